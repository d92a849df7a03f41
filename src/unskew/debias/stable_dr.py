"""StableDR: SNIPS with propensities that are tilted until imputed errors are balanced."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from unskew.base.registry import register
from unskew.base.tensors import Tensor, torch
from unskew.debias.dr_jl import dr_jl_imputation
from unskew.debias.imputation import imputed_error
from unskew.debias.method import Batch, Debiaser, Setting, State, Step, within
from unskew.debias.snips import snips
from unskew.training.means import OnBoth, OnRows, PerModel, Space, halves, weighted_mean

if TYPE_CHECKING:
    from unskew.learners import Learner

CERTAIN = 1e-6
"""A propensity of 1 is taken for 1 minus this, so that it has a logit that can be shifted."""


class Centre(State):
    """The estimate of Ē in the tilt."""

    imputed: Tensor
    """``[R, 1]``."""


@register(order=170)
@dataclass(kw_only=True)
class StableDR(Debiaser):
    """L = Σ_B e/p / Σ_B 1/p, where p keeps the constraint Σ_O (ê − Ē)/p = 0 and Ē = mean_D ê.

    Under the constraint the doubly robust estimate Ē + Σ_O (e − ê)/p ÷ Σ_O 1/p is this one: bounded by the
    largest error whatever the weights, and right if either p or ê is. logit p = logit p̃ + s + t·(ê − Ē): the
    given propensities p̃ (any) with a shift s and a tilt t per repetition. On each batch

    - the imputer learns (1/|D|) Σ_O (e − ê)²/p, with ê = CE(r̃, r̂) (P1);
    - t learns (1/|D|) Σ_D CE(o, p) + η·((1/|D|) Σ_O (ê − Ē)/p)², s the first term alone; the square is the
      product of two half-batches, so that noise is not taken for imbalance;
    - the prediction learns L.

    p has no gradient in the first and third, ê none in the second. Use it where small propensities make
    DR unstable; one tilt cannot repair propensities that rank pairs wrongly beyond ê.

    Parameters
    ----------
    constraint
        η. 100 (Coat) to 1,000 (Yahoo) in the published code, which sums where this takes means.
    shift_learning_rate
        Of s and t; 0.01 in the published code on Coat, for its one parameter.
    ratio
        Cells of D per click in a batch; 3 to 5 in the published code.
    """

    name = "stable-dr"
    paper = "Li 2023"
    when = "where small propensities make doubly robust training unstable"
    needs_propensity = True
    needs_propensity_everywhere = True
    needs_full_space = True
    imputation = "P1"
    ranges = within(ratio="(0, inf)", constraint="[0, inf)")

    constraint: float = 100.0
    shift_learning_rate: float = 0.01
    ratio: float = 1.0

    def networks(self) -> Mapping[str, tuple[str, ...]]:
        """Return the predictor, the imputer, and the shift and tilt of the propensities."""
        return {"prediction": ("prediction",), "imputation": ("imputation",), "propensity": ("shift", "tilt")}

    def steps(self) -> tuple[Step, ...]:
        """Train the imputer, shift and tilt, then the prediction."""
        losses = {"imputation": self.imputation_loss, "propensity": self.propensity_loss}
        return tuple(Step(name, loss, (name,)) for name, loss in {**losses, "prediction": self.loss}.items())

    def learners(self) -> Mapping[str, Learner]:
        """Return one number each for shift and tilt."""
        from unskew.learners import Intercept

        return {"propensity": Intercept()}

    def learning_rates(self) -> Mapping[str, float]:
        """Return the rate of shift and tilt."""
        return {"propensity": self.shift_learning_rate}

    def weight_decays(self) -> Mapping[str, float]:
        """Return none for shift and tilt, nor by default for the imputer, whose squared loss is flat."""
        imputer = {"imputation": 0.0} if self.weight_decay == "auto" else {}
        return {"propensity": 0.0, **imputer}

    def imputation_loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """(|O|/|D|) · mean_B (e − ê)²/p."""
        return dr_jl_imputation(
            observed.conversion,
            setting.logit(observed, "imputation"),
            setting.predicted(observed),
            self.tilted(setting, observed),
            density=setting.density,
        )

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """Σ_B CE(r, r̂)/p / Σ_B 1/p."""
        return snips(observed.conversion, setting.logit(observed), self.tilted(setting, observed))

    def before_epoch(self, setting: Setting) -> None:
        """Find Σ_O ê/p̃ ÷ Σ_O 1/p̃ for the Ē of the tilt: any constant will do there, s makes up for it."""
        mean = weighted_mean(self.imputed(setting, setting.clicks), 1.0 / setting.clicks.propensity)
        setting.state(Centre).write(imputed=mean.unsqueeze(-1))

    def propensity_loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """mean_D CE(o, p) + η·C², the square by halves and without gradient in s."""
        (shift, tilt), (shift_full, tilt_full) = (
            setting.logits(batch, "shift", "tilt") for batch in (observed, full)
        )
        return stable_dr_propensity(
            (observed.propensity, full.propensity),
            (self.imputed(setting, observed), self.imputed(setting, full)),
            (shift, shift_full),
            (tilt, tilt_full),
            constraint=self.constraint,
            centre=setting.state(Centre).imputed,
            p_min=setting.floor,
            density=setting.density,
        )

    def tilted(self, setting: Setting, batch: Batch) -> Tensor:
        """Return tilted propensities of a batch, clipped again, without gradient."""
        shift, tilt = setting.logits(batch, "shift", "tilt")
        imputed, centre = self.imputed(setting, batch), setting.state(Centre).imputed
        logit = tilted_logit(batch.propensity, imputed, shift, tilt, centre=centre)
        return torch.sigmoid(logit).clamp_min(setting.floor).detach()

    def imputed(self, setting: Setting, batch: Batch) -> Tensor:
        """Return ê = CE(r̃, r̂) without gradient and dropout."""
        return imputed_error(setting.predicted(batch, "imputation"), setting.predicted(batch))


def stable_dr_propensity(
    propensity: OnBoth,
    imputed: OnBoth,
    shift: OnBoth,
    tilt: OnBoth,
    *,
    constraint: float = 100.0,
    centre: float | Tensor = 0.0,
    p_min: float | Tensor = 0.0,
    **space: Any,
) -> PerModel:
    """L_p = (1/|D|) Σ_D CE(o, p) + η·C², C = (1/|D|) Σ_O (ê − Ē)/p, p by :func:`tilted_logit`.

    How StableDR learns s and t; the square is the product of two half-batches, and s has no gradient in it.
    Then the prediction learns :func:`snips` and the imputer :func:`dr_jl_imputation`, both with p.

    Parameters
    ----------
    propensity, imputed
        p̃ and ê = CE(r̃, r̂) (:func:`imputed_error`), on rows of D with ``click``; or pairs, with ``density``.
    shift, tilt
        s and t, spread over the rows as these are.
    constraint
        η.
    p_min
        What p is clipped at.
    space
        ``click``; or ``density``, with pairs.

    Examples
    --------
    >>> import torch
    >>> half, zero = torch.full((4,), 0.5), torch.zeros(4)
    >>> stable_dr_propensity(half, zero, zero, zero, click=torch.tensor([1.0, 0.0, 1.0, 0.0]))
    tensor(0.6931)
    """
    whole, softplus = Space(**space), torch.nn.functional.softplus
    (first_p, first_p_full), (error, error_full) = whole.both(propensity), whole.both(imputed)
    (s, s_full), (t, t_full) = whole.both(shift), whole.both(tilt)
    error, error_full = error.detach(), error_full.detach()
    at_clicks = tilted_logit(first_p, error, s, t, centre=centre)
    at_cells = tilted_logit(first_p_full, error_full, s_full, t_full, centre=centre)
    # o = 0 everywhere, and then 1 on clicks: no row of the batch of D needs to be looked up.
    likelihood = whole.mean(clicked=softplus(-at_clicks) - softplus(at_clicks), everywhere=softplus(at_cells))
    p = torch.sigmoid(tilted_logit(first_p, error, s.detach(), t, centre=centre)).clamp(min=p_min)
    first, second = (
        imputed_imbalance(*parts, click=half.click, density=half.density)
        for half, *parts in zip(whole.halves(), *map(halves, (error, error_full, p)), strict=True)
    )
    return likelihood + constraint * first * second


def imputed_imbalance(imputed: OnRows, imputed_full: Tensor, propensity: OnRows, **space: Any) -> PerModel:
    """C = (1/|D|) Σ_O (ê − mean_D ê)/p.

    Parameters
    ----------
    imputed, propensity
        ê and p of clicks; or of rows of D, with ``click``.
    imputed_full
        ê on D.
    space
        ``click`` or ``density``.
    """
    centred = imputed - imputed_full.mean(-1, keepdim=True)
    return Space(**space).over_clicks(centred / propensity)


def tilted_logit(
    propensity: OnRows, imputed: OnRows, shift: OnRows, tilt: OnRows, *, centre: float | Tensor = 0.0
) -> OnRows:
    """logit p = logit p̃ + s + t·(ê − Ē), the propensities of StableDR.

    Parameters
    ----------
    propensity, imputed
        p̃ and ê of rows.
    shift, tilt
        s and t.
    centre
        Ē, or any constant in its place, which s makes up for.

    Examples
    --------
    >>> import torch
    >>> tilted_logit(torch.tensor([0.5]), torch.tensor([2.0]), torch.tensor([0.1]), torch.tensor([0.2]))
    tensor([0.5000])
    """
    return torch.logit(propensity, eps=CERTAIN) + shift + tilt * (imputed - centre)
