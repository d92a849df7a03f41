"""Uncertainty of a propensity model: MC dropout, deep ensembles, BatchEnsemble, dual focal loss.

Each is an option of :class:`unskew.Propensity` and can be combined with any learner and any calibrator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import ParameterError
from unskew.base.estimator import Estimator, require, require_above, require_at_least, require_choice
from unskew.base.tensors import Tensor, torch
from unskew.learners import Learner, Network, NetworkLearner
from unskew.learners.batch_ensemble import BatchEnsemble
from unskew.learners.network import DropoutLayers
from unskew.training.means import cross_entropy

LEAST = 1e-12
"""Outputs nearer to 0 or 1 count as this near, where a link or a logit would be infinite."""


@dataclass(kw_only=True)
class Uncertainty(Estimator):
    """The changes of a method to training and reading off a propensity; by default none."""

    def check(self) -> None:
        """Raise for parameters that cannot be."""

    def check_network(self, network: Network) -> None:
        """Raise for a network the method cannot work on."""

    def stacked_members(self) -> int:
        """Return the number of independent networks per fold."""
        return 1

    def passes(self) -> int:
        """Return the number of stochastic passes per prediction; 0 predicts without noise."""
        return 0

    def same_training(self, other: Uncertainty) -> bool:
        """Return whether another method trains the same networks, so that these can be read off its way."""
        plain = (Uncertainty, MCDropout)
        return self == other or (type(self) in plain and type(other) in plain)

    def dropout_layers(self) -> DropoutLayers:
        """Return which dropout is active in those passes."""
        return "all"

    def learner(self, learner: Learner) -> Learner:
        """Return the learner to train instead."""
        return learner

    def loss(self, target: Tensor, logit: Tensor) -> Tensor:
        """Compute the loss of each cell."""
        return cross_entropy(target, logit)

    def held_out_loss(self, click: Tensor, logit: Tensor, offset: float) -> Tensor:
        """Compute the loss of held-out cells, which stops training; ``offset`` leads to the odds over D."""
        return self.loss(click, logit + offset)

    def probability(self, score: NDArray[np.float64]) -> NDArray[np.float64]:
        """Convert the network's output to a probability."""
        return score


@dataclass(kw_only=True)
class MCDropout(Uncertainty):
    """p̂ = (1/T) Σ_t σ(g_φ(x; mask_t)): the mean of ``samples`` passes with dropout on.

    Only dropout is active; probabilities are averaged, not logits. Cheap to train (one network), T times the
    work to predict. It needs a learner with dropout.

    Parameters
    ----------
    samples
        T, 10 in the paper.
    layers
        Which dropout stays on: ``"all"``, ``"mlp"``, or ``"embedding"`` (what the published code does).
    """

    name: ClassVar[str] = "mc-dropout"
    samples: int = 10
    layers: DropoutLayers = "all"

    def check(self) -> None:
        """Raise for parameters that cannot be."""
        require_at_least(1, samples=self.samples)
        require_choice("layers", self.layers, ("all", "mlp", "embedding"))

    def check_network(self, network: Network) -> None:
        """Raise for a network without dropout in these layers."""
        where = "" if self.layers == "all" else f" in layers={self.layers!r}"
        require(
            bool(network.dropouts(self.layers)),
            f"{self.name} needs a learner with dropout{where}, and this one has none",
            "use NeuMF(dropout=0.2), NeuMF(emb_dropout=0.2) for layers='embedding', or another uncertainty",
        )

    def passes(self) -> int:
        """T."""
        return self.samples

    def dropout_layers(self) -> DropoutLayers:
        """Return which dropout is active in those passes."""
        return self.layers


@dataclass(kw_only=True)
class DeepEnsemble(Uncertainty):
    """p̂ = (1/N) Σ_n σ(g_φₙ(x)): the mean of ``members`` networks with seeds and data orders of their own.

    The members are replicas: they train in the same stacked loop. Sampled negatives are each member's own.
    Averaging lowers confidence; that need not lower ECE.
    """

    name: ClassVar[str] = "deep-ensemble"
    members: int = 10

    def check(self) -> None:
        """Raise for parameters that cannot be."""
        require_at_least(1, members=self.members)

    def stacked_members(self) -> int:
        """N."""
        return self.members


@dataclass(kw_only=True)
class BatchEnsembleMembers(Uncertainty):
    """Members that share weights: :class:`unskew.learners.BatchEnsemble` of the learner."""

    name: ClassVar[str] = "batch-ensemble"
    members: int = 10
    init: Literal["signs", "normal"] = "signs"

    def learner(self, learner: Learner) -> Learner:
        """Return the learner with members."""
        assert isinstance(learner, NetworkLearner)
        return BatchEnsemble(base=learner, members=self.members, init=self.init)


@dataclass(kw_only=True)
class DualFocal(Uncertainty):
    """L = −(1 − p_y + p_j)^γ · log p_y, in place of the cross-entropy.

    p_y is the probability of the true class, p_j the largest probability below it (0 if none). In the
    binary case: −(2(1 − p_y))^γ log p_y for p_y > ½, −(1 − p_y)^γ log p_y otherwise. It is not a proper
    loss: for P(o = 1) = 0.02 its minimiser is 0.124, so small propensities are inflated 2.4 to 10 times.
    ``link="inverse"`` undoes that: at a stationary point of the expected loss η = L₀' / (L₀' − L₁').

    Parameters
    ----------
    gamma
        γ, 2 in the paper.
    link
        ``"inverse"``, or ``"none"`` for the paper's form, whose output is a score and no probability.
    """

    name: ClassVar[str] = "dual-focal"
    gamma: float = 2.0
    link: Literal["inverse", "none"] = "inverse"

    def check(self) -> None:
        """Raise for parameters that cannot be."""
        require_above(0, gamma=self.gamma)
        require_choice("link", self.link, ("inverse", "none"))

    def loss(self, target: Tensor, logit: Tensor) -> Tensor:
        """Return the binary closed form on logits; targets between 0 and 1 mix the two classes."""
        return target * self._of_class(logit) + (1.0 - target) * self._of_class(-logit)

    def _of_class(self, logit: Tensor) -> Tensor:
        """Return the loss where the true class has this logit."""
        missing = torch.sigmoid(-logit)
        base = torch.where(logit > 0, 2.0 * missing, missing)
        return base.pow(self.gamma) * torch.nn.functional.softplus(-logit)

    def held_out_loss(self, click: Tensor, logit: Tensor, offset: float) -> Tensor:
        """Return the negative log-likelihood of what the link makes of the output, or the loss."""
        if self.link == "none":
            return self.loss(click, logit + offset)
        eta = self.probability(torch.sigmoid(logit.double()).cpu().numpy())
        corrected = torch.as_tensor(eta, device=logit.device).logit(eps=LEAST) + offset
        return cross_entropy(click.double(), corrected)

    def probability(self, score: NDArray[np.float64]) -> NDArray[np.float64]:
        """η of each output by the inverse link (or the output itself); ½ is kept between the branches."""
        if self.link == "none":
            return score
        low = np.minimum(score, 1.0 - score)
        eta = np.minimum(_inverse_link(np.clip(low, LEAST, 0.5), self.gamma), 0.5)
        return np.where(score <= 0.5, eta, 1.0 - eta)


def _inverse_link(p: NDArray[np.float64], gamma: float) -> NDArray[np.float64]:
    """η whose expected dual focal loss is stationary at p ≤ ½: η L₁'(p) + (1 − η) L₀'(p) = 0."""
    d_clicked = gamma * (1 - p) ** (gamma - 1) * np.log(p) - (1 - p) ** gamma / p
    d_unclicked = -2 * gamma * (2 * p) ** (gamma - 1) * np.log1p(-p) + (2 * p) ** gamma / (1 - p)
    return np.asarray(d_unclicked / (d_unclicked - d_clicked))


UNCERTAINTIES: dict[str, type[Uncertainty]] = {
    kind.name: kind for kind in (MCDropout, DeepEnsemble, BatchEnsembleMembers, DualFocal)
}
"""Every uncertainty by the name that ``unskew run --uncertainty`` knows it by."""


def make_uncertainty(name: str | None, **params: Any) -> Uncertainty | None:
    """Return an uncertainty method by name; ``"none"`` and None are no method."""
    if name is None or name == "none":
        return None
    if name not in UNCERTAINTIES:
        raise ParameterError(
            f"unknown uncertainty {name!r}", remedy=f"use one of none, {', '.join(UNCERTAINTIES)}"
        )
    return UNCERTAINTIES[name](**params)
