"""Calibration by a mixture of Platt maps, one mixture for each row."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from jaxtyping import Float

logsigmoid = torch.nn.functional.logsigmoid


def expert_logit(
    logit: Float[Tensor, "*batches B"],
    slope: Float[Tensor, "*#shape K"],
    intercept: Float[Tensor, "*#shape K"],
    gate: Float[Tensor, "*#shape K"],
    *,
    noise: Float[Tensor, "*#shape K"] | None = None,
    temperature: float = 1.0,
) -> Float[Tensor, "*batches B"]:
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
    >>> one, zero = torch.ones(1), torch.zeros(1)
    >>> expert_logit(torch.tensor([0.5]), 2 * one, one, zero)
    tensor([2.])
    >>> two = torch.ones(2)
    >>> torch.sigmoid(expert_logit(zero, two, torch.tensor([-1.0, 1.0]), 0 * two))
    tensor([0.5000])
    """
    share = gate if noise is None else (gate + noise) / temperature
    share = torch.log_softmax(share, dim=-1)
    mapped = logit.unsqueeze(-1) * slope + intercept
    return torch.logsumexp(share + logsigmoid(mapped), -1) - torch.logsumexp(share + logsigmoid(-mapped), -1)


def gumbel(uniform: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """−log(−log u) of uniform numbers in (0, 1).

    Examples
    --------
    >>> gumbel(torch.tensor([0.5]))
    tensor([0.3665])
    """
    return -torch.log(-torch.log(uniform))
