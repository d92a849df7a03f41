"""KB-IPS: IPS with weights that balance kernel means."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from unskew.base.registry import register
from unskew.base.tensors import Tensor, torch
from unskew.debias.method import Batch, Debiaser, Setting, Step, evaluating, within
from unskew.training.means import OnRows, PerModel, cross_entropy

Kernel = Literal["gaussian", "exponential"]

SMALLEST_SCALE = 1e-12
"""Keeps a kernel defined where all embeddings coincide."""


@dataclass(kw_only=True)
class Balanced(Debiaser):
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

    needs_full_space = True
    needs_propensity = True
    ranges = within(anchors="[1, inf)", tolerance="[0, inf)", gamma="[0, inf)", ratio="(0, inf)")

    kernel: Kernel = "gaussian"
    anchors: int = 3
    tolerance: float = 0.01
    gamma: float = 10.0
    ratio: float = 1.0

    def networks(self) -> Mapping[str, tuple[str, ...]]:
        """Return the method's networks, and that of the weights."""
        return {**super().networks(), "weight": ("weight",)}

    def weight_loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """Return the negative entropy of the weights, and what is out of balance beyond the tolerance."""
        weight = balancing_weight(setting.logit(observed, "weight"), observed.propensity)
        at_clicks, at_cells = (embeddings(setting, batch) for batch in (observed, full))
        values = kernels(at_clicks, at_cells, anchors=self.anchors, kernel=self.kernel)
        return kernel_balance(weight, *values, tolerance=self.tolerance, gamma=self.gamma)

    def weight(self, setting: Setting, observed: Batch) -> Tensor:
        """Return w of a batch of O, in ``eval`` mode and without gradient."""
        return balancing_weight(setting.predicted(observed, "weight"), observed.propensity)


@register(order=230)
@dataclass(kw_only=True)
class KBIPS(Balanced):
    """L = (1/|O|) Σ_O w·CE(r, r̂), with w from :class:`Balanced`, in turn by batch.

    w has no gradient here. While the weight network is at its start w is 1/p scaled to mean 1, and this is
    :class:`SNIPS`; with γ = 0 the weights go to 1, and it becomes :class:`Naive`. Use it where propensities
    leave some kinds of pairs out of balance; not where embeddings say nothing yet (very few clicks).

    Parameters
    ----------
    kernel, anchors, tolerance, gamma, ratio
        As in :class:`Balanced`.
    """

    name = "kb-ips"
    paper = "Li 2024"
    when = "where 1/p leaves some kinds of pairs out of balance"

    def steps(self) -> tuple[Step, ...]:
        """Train the weights, then the prediction."""
        weight = Step("weight", self.weight_loss, ("weight",))
        return (weight, Step("prediction", self.loss, ("prediction",)))

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """mean_B w·CE(r, r̂)."""
        return kb_ips(observed.conversion, setting.logit(observed), self.weight(setting, observed))


def embeddings(setting: Setting, batch: Batch) -> Tensor:
    """Return rows of the prediction network's tables ``[R, B, F]``, in ``eval`` mode."""
    network = setting.networks["prediction"]
    with evaluating([network]):
        return torch.cat(network.embed(batch.rows), dim=-1)


def kb_ips(conversion: OnRows, logit: OnRows, weight: OnRows) -> PerModel:
    """L = (1/|O|) Σ_O w·CE(r, r̂), w without gradient.

    Parameters
    ----------
    conversion, logit
        r and the logit of r̂, of clicks.
    weight
        w of :func:`balancing_weight`, whose network learns :func:`kernel_balance`.

    Examples
    --------
    >>> import torch
    >>> kb_ips(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 0.0]), torch.tensor([0.5, 1.5]))
    tensor(0.6931)
    """
    return (weight.detach() * cross_entropy(conversion, logit)).mean(-1)


def balancing_weight(weight_logit: OnRows, propensity: OnRows) -> OnRows:
    """w = σ(weight_logit) / p, scaled to mean 1 over a batch of clicks.

    Examples
    --------
    >>> import torch
    >>> balancing_weight(torch.zeros(2), torch.tensor([0.1, 0.3]))
    tensor([1.5000, 0.5000])
    """
    weight = torch.sigmoid(weight_logit) / propensity
    return weight / weight.mean(-1, keepdim=True)


def kernel_balance(
    weight: Tensor,
    kernel_observed: Tensor,
    kernel_full: Tensor,
    *,
    tolerance: float = 0.01,
    gamma: float = 10.0,
) -> PerModel:
    """L_w = mean_O w·log w + γ Σ_j max(0, |mean_D K(x, x_j) − mean_O w·K(x, x_j)| − C).

    Parameters
    ----------
    weight
        w of :func:`balancing_weight`, on a batch of clicks, with its gradient.
    kernel_observed, kernel_full
        K of the clicks, and of a batch of D, with each of J anchors: from :func:`kernels`.
    tolerance, gamma
        C and γ.

    Examples
    --------
    >>> import torch
    >>> kernel_balance(torch.ones(2), torch.ones(2, 1), torch.ones(3, 1))
    tensor(0.)
    """
    balanced = (weight.unsqueeze(-1) * kernel_observed).mean(-2)
    excess = torch.relu((kernel_full.mean(-2) - balanced).abs() - tolerance)
    return (weight * weight.log()).mean(-1) + gamma * excess.sum(-1)


def kernels(
    observed: Tensor, full: Tensor, *, anchors: int = 3, kernel: Kernel = "gaussian"
) -> tuple[Tensor, Tensor]:
    """K of the rows of both batches with each anchor; the first rows of D are the anchors x_j.

    exp(−‖x − x_j‖² / 2s²) or exp(−‖x − x_j‖ / s), s² the mean of ‖x − x_j‖² over the batch of D, so that
    kernels do not depend on the scale of x.

    Parameters
    ----------
    observed, full
        What describes a row, as the embeddings of the prediction network, on clicks and on a batch of D;
        read without gradient.

    Examples
    --------
    >>> import torch
    >>> x = torch.tensor([[0.0], [1.0]])
    >>> kernels(x, x, anchors=1)[0]
    tensor([[1.0000],
            [0.3679]])
    """
    observed, full = observed.detach(), full.detach()
    chosen = full[..., :anchors, :]
    # Embeddings start near zero, where distances by matrix products are rounding errors.
    exact = "donot_use_mm_for_euclid_dist"
    distances = [torch.cdist(x, chosen, compute_mode=exact) for x in (observed, full)]
    scale = distances[1].square().mean((-2, -1), keepdim=True).clamp_min(SMALLEST_SCALE)
    if kernel == "gaussian":
        values = [torch.exp(-distance.square() / (2.0 * scale)) for distance in distances]
    else:
        values = [torch.exp(-distance / scale.sqrt()) for distance in distances]
    return values[0], values[1]
