"""Weights that balance kernel means between the clicks and all pairs: what KB-IPS and KB-DR share."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from unskew.debias.core.plans import StepPlan
from unskew.debias.core.setting import Batch, Setting
from unskew.debias.parts.full_space import FullSpace
from unskew.estimator import require
from unskew.training import evaluating

Kernel = Literal["gaussian", "exponential"]

SMALLEST_SCALE = 1e-12
"""Keeps a kernel defined where all embeddings coincide."""


@dataclass(kw_only=True)
class KernelBalancing(FullSpace):
    """L_w = mean_O w·log w + γ Σ_j max(0, |mean_D K(x, x_j) − mean_O w·K(x, x_j)| − C).

    w = σ(weight network) / p, scaled to mean 1 over a batch of O (Σ_O w/|O| = 1 is a constraint of the
    original problem); x are the embeddings of the prediction network, without gradient; x_j are ``anchors``
    random pairs of D, new in each batch.

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

    needs_propensity: ClassVar[bool] = True

    kernel: Kernel = "gaussian"
    anchors: int = 3
    tolerance: float = 0.01
    gamma: float = 10.0

    def weight_step(self) -> StepPlan:
        """The step that trains the weights."""
        return StepPlan("weight", self.weight_loss, ("weight",))

    def weight_loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """Negative entropy of the weights and what is out of balance beyond the tolerance."""
        weight = relative_weight(setting.logit(observed, "weight"), observed)
        at_observed, at_full = kernels(setting, observed, full, self.anchors, self.kernel)
        balanced = (weight.unsqueeze(-1) * at_observed).mean(1)
        excess = torch.relu((at_full.mean(1) - balanced).abs() - self.tolerance)
        return (weight * weight.log()).mean(-1) + self.gamma * excess.sum(-1)

    def balanced(self, setting: Setting, observed: Batch) -> Batch:
        """A batch of O whose 1/p is w·|D|/|O|, in ``eval`` mode and without gradient."""
        weight = relative_weight(setting.predicted(observed, "weight"), observed)
        return replace(observed, propensity=setting.density / weight)

    def _check(self) -> None:
        super()._check()
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
