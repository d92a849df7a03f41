"""Losses of clicks alone, weighted or not; and of pseudo-labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from unskew.training.means import Space, cross_entropy, squared_error, weighted_mean

if TYPE_CHECKING:
    from jaxtyping import Float

Errors = Literal["ce", "squared"]
"""Cross-entropy, or the squared difference of probabilities."""

ERRORS = {"ce": cross_entropy, "squared": squared_error}


def naive(
    conversion: Float[Tensor, "*#batches #B"],
    logit: Float[Tensor, "*#batches #B"],
    *,
    click: Tensor | None = None,
) -> Float[Tensor, " *batches"]:
    """L = (1/|O|) Σ_O CE(r, r̂).

    Parameters
    ----------
    conversion, logit
        r and the logit of r̂, of clicks; or of rows of D, with ``click``.

    Examples
    --------
    >>> naive(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0]))
    tensor(1.4100)
    """
    space = Space(click)
    return space.mean_of_clicks(cross_entropy(space.known(conversion), logit))


def ips(
    conversion: Float[Tensor, "*#batches #B"],
    logit: Float[Tensor, "*#batches #B"],
    propensity: Float[Tensor, "*#batches #B"],
    *,
    click: Tensor | None = None,
    density: float | None = None,
    errors: Errors = "ce",
    detach_propensity: bool = True,
) -> Float[Tensor, " *batches"]:
    """L = (1/|D|) Σ_O e/p, e = CE(r, r̂).

    Parameters
    ----------
    conversion, logit, propensity
        r, the logit of r̂, and p, clipped as you like: of clicks; or of rows of D, with ``click``. Where a
        row has no click its conversion and its propensity are not read.
    density
        |O| / |D|, for a batch of clicks. It is a factor of the loss.
    errors
        ``"squared"``: e = (r − r̂)², as IPS-V2 has it.
    detach_propensity
        False lets the loss move p, which it can only push up.

    Examples
    --------
    Clicks alone, then rows of the population:

    >>> conversion, logit, p = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0]), torch.tensor([0.5, 0.1])
    >>> ips(conversion, logit, p, density=0.5)
    tensor(5.6639)
    >>> ips(conversion, logit, p, click=torch.tensor([1.0, 0.0]))
    tensor(0.6931)
    """
    space = Space(click, density)
    error = ERRORS[errors](space.known(conversion), logit)
    return space.over_clicks(error / _weight(space, propensity, detach=detach_propensity))


def snips(
    conversion: Float[Tensor, "*#batches #B"],
    logit: Float[Tensor, "*#batches #B"],
    propensity: Float[Tensor, "*#batches #B"],
    *,
    click: Tensor | None = None,
) -> Float[Tensor, " *batches"]:
    """L = Σ_B CE(r, r̂)/p / Σ_B 1/p, over the clicks of a batch.

    Parameters
    ----------
    conversion, logit, propensity
        As in :func:`ips`; a common factor of p does not matter.

    Examples
    --------
    >>> snips(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0]), torch.tensor([0.5, 0.1]))
    tensor(1.8880)
    """
    space = Space(click)
    error = cross_entropy(space.known(conversion), logit)
    return space.normalised(error, 1.0 / _weight(space, propensity))


def uips(
    conversion: Float[Tensor, "*#batches #B"],
    logit: Float[Tensor, "*#batches #B"],
    propensity: Float[Tensor, "*#batches #B"],
    uncertainty: Float[Tensor, "*#batches #B"],
    *,
    shrinkage: float,
    gamma: float = 1.0,
    eta: float = 1.0,
    cap: float = 1.0,
    click: Tensor | None = None,
    density: float | None = None,
) -> Float[Tensor, " *batches"]:
    """L = (1/|D|) Σ_O φ·CE(r, r̂)/p, with φ from :func:`uips_factor`, without gradient.

    Parameters
    ----------
    conversion, logit, propensity, click, density
        As in :func:`ips`.
    uncertainty, shrinkage, gamma, eta, cap
        As in :func:`uips_factor`.

    Examples
    --------
    A propensity that is sure, and a λ so large that nothing is shrunk, leave :func:`ips`:

    >>> conversion, logit, p = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 2.0]), torch.tensor([0.5, 0.1])
    >>> uips(conversion, logit, p, torch.zeros(2), shrinkage=1e9, density=0.5)
    tensor(5.6639)
    >>> uips(conversion, logit, p, torch.tensor([0.0, 2.0]), shrinkage=1e9, density=0.5)
    tensor(1.7599)
    """
    space = Space(click, density)
    p, spread = _weight(space, propensity), _weight(space, uncertainty)
    factor = uips_factor(p, spread, shrinkage=shrinkage, gamma=gamma, eta=eta, cap=cap)
    return space.over_clicks(factor * cross_entropy(space.known(conversion), logit) / p)


def uips_factor(
    propensity: Float[Tensor, "*#shape"],
    uncertainty: Float[Tensor, "*#shape"],
    *,
    shrinkage: float,
    gamma: float = 1.0,
    eta: float = 1.0,
    cap: float = 1.0,
) -> Float[Tensor, "*shape"]:
    """φ = min{λ / [(λ/η)·e^(−γU) + η/(p²·e^(−γU))], 2η₂ / (e^(γU) + e^(−γU))} of each click.

    The weight φ/p has the least bound of its squared error, if the true propensity is between p·e^(−γU) and
    p·e^(γU) and every pair is to count alike.

    Parameters
    ----------
    propensity, uncertainty
        p, and U: the standard error of log p.
    shrinkage
        λ. Without uncertainty φ is ½ at 1/p = √λ (η = 1), where φ/p is largest.
    gamma, eta, cap
        γ, η and η₂.

    Examples
    --------
    >>> uips_factor(torch.tensor([0.5, 0.1, 0.1]), torch.tensor([0.0, 0.0, 1.0]), shrinkage=100.0)
    tensor([0.9615, 0.5000, 0.3240])
    """
    sure = torch.exp(-gamma * uncertainty)
    shrunk = shrinkage / (shrinkage / eta * sure + eta / (propensity.square() * sure))
    return torch.minimum(shrunk, cap / torch.cosh(gamma * uncertainty))


def att(
    logit: Float[Tensor, "*#batches #B"],
    first: Float[Tensor, "*#batches #B"],
    second: Float[Tensor, "*#batches #B"],
    *,
    agreement: float,
) -> Float[Tensor, " *batches"]:
    """L = mean of CE(r̂₁, r̂) over the rows with |r̂₁ − r̂₂| ≤ ε, 0 where there is none.

    The loss of one of ATT's three models on pseudo-labels. Before, the first and the second learn
    :func:`ips`, each from its own start, and the one that predicts learns :func:`naive`.

    Parameters
    ----------
    logit
        Of the model that learns, on rows of D.
    first, second
        Logits of r̂₁ and r̂₂, read without gradient.
    agreement
        ε, a difference of probabilities.

    Examples
    --------
    >>> second = torch.tensor([0.1, 3.0])  # The first row's labels agree, the second's do not.
    >>> att(torch.tensor([0.0, 5.0]), torch.tensor([0.0, 0.0]), second, agreement=0.1)
    tensor(0.6931)
    """
    label, other = (torch.sigmoid(each).detach() for each in (first, second))
    agree = ((label - other).abs() <= agreement).to(logit.dtype)
    return weighted_mean(cross_entropy(label, logit), agree, least=1.0)


def _weight(space: Space, propensity: Tensor, *, detach: bool = True) -> Tensor:
    """The p (or U) that becomes a weight."""
    known = space.known(propensity)
    return known.detach() if detach else known
