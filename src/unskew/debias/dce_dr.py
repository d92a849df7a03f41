"""DCE-DR: doubly robust learning with propensity and imputation both calibrated, by maps mixed by user."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from unskew.base.estimator import require
from unskew.base.registry import register
from unskew.base.tensors import Tensor, torch
from unskew.debias.imputation import JointLearning
from unskew.debias.ips import ips
from unskew.debias.method import Batch, ClicksAndCells, Counted, Pass, Plan, Setting, Step, clicks, within
from unskew.debias.towers import click_loss

if TYPE_CHECKING:
    from unskew.learners import Learner

LEAST = 1e-6
"""Propensities are kept so far from 0 and 1, where their logits would be infinite."""
APART = 0.5
"""Intercepts start between −½ and ½: maps that start alike would learn alike."""


@dataclass(frozen=True)
class PlattExperts:
    """q = Σ_k z_uk·σ(a_k·x + c_k), z_u = softmax(w_u): K Platt maps of a logit x, mixed by user.

    While they learn, z_u = softmax((w_u + g)/T) with Gumbel noise g, new for each row. The maps start near
    the identity, all users alike.
    """

    name: str
    """What is calibrated: the name of it."""
    count: int
    temperature: float

    def towers(self, kind: str) -> tuple[str, ...]:
        """Return the towers of the maps' ``"slope"`` or ``"intercept"``, or of the users' ``"gate"``."""
        return tuple(f"{self.name}_{kind}_{number}" for number in range(self.count))

    def networks(self) -> dict[str, tuple[str, ...]]:
        """Return the maps (slopes, then intercepts), and the gates of users."""
        maps = (*self.towers("slope"), *self.towers("intercept"))
        return {f"{self.name}_maps": maps, f"{self.name}_gates": self.towers("gate")}

    def mapped(self, setting: Setting, batch: Batch, logit: Tensor, *, learns: bool = False) -> Tensor:
        """Return the logit of q of a batch ``[R, B]``; with noise where they learn, else without gradient."""
        with torch.set_grad_enabled(learns):
            slope, intercept, gate = (
                torch.stack(setting.logits(batch, *self.towers(part)), dim=-1)
                for part in ("slope", "intercept", "gate")
            )
            start = torch.linspace(-APART, APART, self.count, dtype=gate.dtype, device=gate.device)
            source = setting.networks[f"{self.name}_gates"].noise
            return expert_logit(
                logit,
                1.0 + slope,
                intercept + (start if self.count > 1 else 0.0),
                gate,
                noise=gumbel(source.uniform(gate.shape, gate.dtype)) if learns else None,
                temperature=self.temperature,
            )


@register(order=270)
@dataclass(kw_only=True)
class DCEDR(JointLearning):
    """L = (1/|D|) Σ_D [ê + o·(e − ê)/p̃], ê = CE(r̃, r̂), with p̃ and r̃ from :class:`PlattExperts`.

    p̃ = Σ_k z_uk·σ(a_k·logit p + c_k) of the given propensity p learns mean_D CE(o, p̃); r̃, the same of the
    imputer's output with experts of its own, learns (1/|D|) Σ_O CE(r, r̃)/p̃, the imputer held fixed. The
    imputer learns as in :class:`DRJL`, (e − ê)²/p̃ by its own output. Each epoch: the experts of p, then on
    each batch of clicks the imputer and its experts, then the prediction. With one expert that stays at the
    identity it is DR-JL. Use it where propensities are off by different maps for different users.

    Parameters
    ----------
    experts
        K of each of the two mixtures.
    temperature
        T of the Gumbel-softmax. The paper lowers it from 1 to 0.001 over a number of epochs that is known
        before; early stopping knows none, so it is fixed.
    expert_learning_rate
        Of maps and gates.
    """

    name = "dce-dr"
    paper = "Kweon 2024"
    when = "doubly robust where propensities are off in ways that differ between users"
    needs_propensity_everywhere = True
    ranges = within(experts="[1, inf)", temperature="(0, inf)", expert_learning_rate="(0, inf)")

    experts: int = 4
    temperature: float = 0.5
    expert_learning_rate: float = 0.01

    @property
    def of_propensity(self) -> PlattExperts:
        """The experts of p̃."""
        return PlattExperts("propensity", self.experts, self.temperature)

    @property
    def of_imputation(self) -> PlattExperts:
        """The experts of r̃."""
        return PlattExperts("imputed", self.experts, self.temperature)

    def networks(self) -> Mapping[str, tuple[str, ...]]:
        """Return those of DR-JL, and the experts'."""
        return {**super().networks(), **self.of_propensity.networks(), **self.of_imputation.networks()}

    def learners(self) -> Mapping[str, Learner]:
        """Return numbers for all pairs, the maps, or for each user, the gates."""
        from unskew.learners import Intercept, UserIntercept

        kinds: dict[str, Learner] = {"maps": Intercept(), "gates": UserIntercept()}
        return {
            f"{of}_{kind}": learner for of in ("propensity", "imputed") for kind, learner in kinds.items()
        }

    def learning_rates(self) -> Mapping[str, float]:
        """Return the rate of the experts."""
        return dict.fromkeys(self.learners(), self.expert_learning_rate)

    def weight_decays(self) -> Mapping[str, float]:
        """Return none for maps; gates decay, towards users who are alike."""
        return {**super().weight_decays(), "propensity_maps": 0.0, "imputed_maps": 0.0}

    def learns_from(self) -> Mapping[str, Counted]:
        """Count all of D for the experts of the propensity."""
        return {**super().learns_from(), **dict.fromkeys(self.of_propensity.networks(), "population")}

    def plan(self) -> Plan:
        """Train the experts of the propensity, the imputer and its experts, then the prediction."""
        imputation, prediction = super().plan()
        propensity = Step("propensity", self.propensity_loss, tuple(self.of_propensity.networks()))
        imputed = Step("imputed", self.imputed_loss, tuple(self.of_imputation.networks()))
        return (
            Pass(ClicksAndCells(self.ratio), (propensity,)),
            Pass(clicks, (*imputation.steps, imputed), imputation.before),
            prediction,
        )

    def propensity_loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """mean_D CE(o, p̃)."""
        on_clicks, on_cells = (
            self.of_propensity.mapped(setting, batch, given_logit(batch), learns=True)
            for batch in (observed, full)
        )
        unclicked = 1.0 - setting.clicked(full)
        return click_loss((on_clicks, on_cells), density=setting.density, unclicked=unclicked)

    def imputed_loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """(|O|/|D|) · mean_B CE(r, r̃)/p̃."""
        output = setting.predicted(observed, "imputation")
        logit = self.of_imputation.mapped(setting, observed, output, learns=True)
        p = self.weighed(setting, observed).propensity
        return ips(observed.conversion, logit, p, density=setting.density)

    def imputer_output(self, setting: Setting, batch: Batch) -> Tensor:
        """Return logit r̃ ``[R, B]``, without gradient and dropout."""
        return self.of_imputation.mapped(setting, batch, setting.predicted(batch, "imputation"))

    def weighed(self, setting: Setting, observed: Batch) -> Batch:
        """Return the batch with p̃, clipped again, in the place of p."""
        logit = self.of_propensity.mapped(setting, observed, given_logit(observed))
        return replace(observed, propensity=torch.sigmoid(logit).clamp(min=setting.floor))

    def _check(self) -> None:
        super()._check()
        require(
            self.imputation_form == "P1",
            f"dce-dr calibrates a pseudo-label, which imputation_form {self.imputation_form!r} has not",
            "use imputation_form='P1'",
        )


def given_logit(batch: Batch) -> Tensor:
    """Return the logit of the given propensities of a batch."""
    return torch.logit(batch.propensity, eps=LEAST)


def expert_logit(
    logit: Tensor,
    slope: Tensor,
    intercept: Tensor,
    gate: Tensor,
    *,
    noise: Tensor | None = None,
    temperature: float = 1.0,
) -> Tensor:
    """logit of Σ_k z_k·σ(a_k·x + c_k), z = softmax(w), or softmax((w + g)/T) with Gumbel noise g.

    How DCE-DR calibrates the logit x of a propensity, which learns :func:`click_loss`, and that of an
    imputed conversion, which learns :func:`ips`. Its prediction learns :func:`dr` with both of them.

    Parameters
    ----------
    logit
        x of each row.
    slope, intercept, gate
        a, c and w of each of K maps, for each row or for all.
    noise
        g, from :func:`gumbel`, while it learns: at a small T about one map is chosen for a row, the k-th with
        the chance softmax(w)_k. Without noise it is the mean over these chances.
    temperature
        T, which is 1 without noise.

    Examples
    --------
    >>> import torch
    >>> one, zero = torch.ones(1), torch.zeros(1)
    >>> expert_logit(torch.tensor([0.5]), 2 * one, one, zero)
    tensor([2.])
    >>> two = torch.ones(2)
    >>> torch.sigmoid(expert_logit(zero, two, torch.tensor([-1.0, 1.0]), 0 * two))
    tensor([0.5000])
    """
    logsigmoid = torch.nn.functional.logsigmoid
    share = gate if noise is None else (gate + noise) / temperature
    share = torch.log_softmax(share, dim=-1)
    mapped = logit.unsqueeze(-1) * slope + intercept
    return torch.logsumexp(share + logsigmoid(mapped), -1) - torch.logsumexp(share + logsigmoid(-mapped), -1)


def gumbel(uniform: Tensor) -> Tensor:
    """−log(−log u) of uniform numbers in (0, 1).

    Examples
    --------
    >>> import torch
    >>> gumbel(torch.tensor([0.5]))
    tensor([0.3665])
    """
    return -torch.log(-torch.log(uniform))
