"""KB-IPS: IPS with weights that balance kernel means."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from unskew.debias.ips import weighted_loss
from unskew.debias.method import Debiaser
from unskew.debias.setting import Batch, ClicksAndCells, Plan, Setting, require_ratio
from unskew.estimator import require
from unskew.registry import register
from unskew.training import Pass, Step, evaluating

Kernel = Literal["gaussian", "exponential"]

SMALLEST_SCALE = 1e-12
"""Keeps a kernel defined where all embeddings coincide."""


@dataclass(frozen=True)
class KernelBalance:
    """L_w = mean_O w·log w + γ Σ_j max(0, |mean_D K(x, x_j) − mean_O w·K(x, x_j)| − C).

    w = σ(weight network) / p, scaled to mean 1 over a batch of O (Σ_O w/|O| = 1 is a constraint of the
    original problem); x are the embeddings of the prediction network, without gradient; x_j are ``anchors``
    random pairs of D, new in each batch. Parameters are those of :class:`KBIPS`.
    """

    kernel: Kernel
    anchors: int
    tolerance: float
    gamma: float

    def step(self) -> Step:
        """The step that trains the weights."""
        return Step("weight", self.loss, ("weight",))

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """Negative entropy of the weights and what is out of balance beyond the tolerance."""
        weight = relative_weight(setting.logit(observed, "weight"), observed)
        at_observed, at_full = kernels(setting, observed, full, self.anchors, self.kernel)
        balanced = (weight.unsqueeze(-1) * at_observed).mean(1)
        excess = torch.relu((at_full.mean(1) - balanced).abs() - self.tolerance)
        return (weight * weight.log()).mean(-1) + self.gamma * excess.sum(-1)

    def weighed(self, setting: Setting, observed: Batch) -> Batch:
        """A batch of O whose 1/p is w·|D|/|O|, in ``eval`` mode and without gradient."""
        weight = relative_weight(setting.predicted(observed, "weight"), observed)
        return replace(observed, propensity=setting.density / weight)

    def check(self) -> None:
        """Raise for parameters that cannot work."""
        require(
            self.kernel in ("gaussian", "exponential"),
            f"kernel must be 'gaussian' or 'exponential', not {self.kernel!r}",
            "give one of these",
        )
        require(self.anchors >= 1, f"anchors must be at least 1, not {self.anchors}", "give 1 or more")
        require(
            self.tolerance >= 0.0, f"tolerance must not be negative, not {self.tolerance}", "give 0 or more"
        )
        require(self.gamma >= 0.0, f"gamma must not be negative, not {self.gamma}", "give 0 or more")


@register(order=230)
@dataclass(kw_only=True)
class KBIPS(Debiaser):
    """L = (1/|O|) Σ_O w·CE(r, r̂), with w from :class:`KernelBalance`, in turn by batch.

    w has no gradient here. While the weight network is at its start w is 1/p scaled to mean 1, and this is
    :class:`SNIPS`; with γ = 0 the weights go to 1, and it becomes :class:`Naive`. Use it where propensities
    leave some kinds of pairs out of balance; not where embeddings say nothing yet (very few clicks).

    Parameters
    ----------
    kernel
        ``"gaussian"``, exp(−‖x − x_j‖² / 2s²), or ``"exponential"``, exp(−‖x − x_j‖ / s); s² is the mean
        of ‖x − x_j‖² over the batch of D, so that kernels do not depend on the scale of the embeddings.
    anchors
        J; 3 in the published code.
    tolerance
        C; 1e-5 to 1e-2 in the published code.
    gamma
        γ; 1 to 100 in the published code.
    ratio
        Pairs of D per click in a batch; 5 in the published code.
    """

    name: ClassVar[str] = "kb-ips"
    paper: ClassVar[str] = "Li 2024"
    when: ClassVar[str] = "where 1/p leaves some kinds of pairs out of balance"
    needs_propensity: ClassVar[bool] = True
    needs_full_space: ClassVar[bool] = True
    detached: ClassVar[tuple[str, ...]] = (
        "propensity",
        "weight in the prediction step",
        "embeddings in the kernels",
    )

    kernel: Kernel = "gaussian"
    anchors: int = 3
    tolerance: float = 0.01
    gamma: float = 10.0
    ratio: float = 1.0

    @property
    def balance(self) -> KernelBalance:
        """Where w comes from."""
        return KernelBalance(self.kernel, self.anchors, self.tolerance, self.gamma)

    def networks(self) -> dict[str, tuple[str, ...]]:
        """The predictor and the weights."""
        return {"prediction": ("prediction",), "weight": ("weight",)}

    def plan(self) -> Plan:
        """On each batch the weights, then the prediction."""
        prediction = Step("prediction", self.loss, ("prediction",))
        return (Pass(ClicksAndCells(self.ratio), (self.balance.step(), prediction)),)

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """mean_B w·CE(r, r̂)."""
        return weighted_loss(setting, self.balance.weighed(setting, observed))

    def _check(self) -> None:
        super()._check()
        require_ratio(self.ratio)
        self.balance.check()


def relative_weight(logit: Tensor, observed: Batch) -> Tensor:
    """σ(logit) / p, scaled to mean 1 for each replica."""
    weight = torch.sigmoid(logit) / observed.propensity
    return weight / weight.mean(-1, keepdim=True)


def kernels(
    setting: Setting, observed: Batch, full: Batch, anchors: int, kernel: Kernel
) -> tuple[Tensor, Tensor]:
    """K of the pairs of both batches with each anchor ``[R, B, J]``; the first pairs of D are anchors."""
    at_observed, at_full = embeddings(setting, observed), embeddings(setting, full)
    chosen = at_full[:, :anchors]
    # Embeddings start near zero, where distances by matrix products are rounding errors.
    exact = "donot_use_mm_for_euclid_dist"
    distances = [torch.cdist(x, chosen, compute_mode=exact) for x in (at_observed, at_full)]
    scale = distances[1].square().mean((1, 2), keepdim=True).clamp_min(SMALLEST_SCALE)
    if kernel == "gaussian":
        values = [torch.exp(-distance.square() / (2.0 * scale)) for distance in distances]
    else:
        values = [torch.exp(-distance / scale.sqrt()) for distance in distances]
    return values[0], values[1]


def embeddings(setting: Setting, batch: Batch) -> Tensor:
    """Rows of the prediction network's tables ``[R, B, F]``, in ``eval`` mode and without gradient."""
    network = setting.networks["prediction"]
    with evaluating([network]):
        return torch.cat(network.embed(batch.rows), dim=-1)
