"""The parts of every loss: cross-entropy on logits, and means over O and D from batches of them.

Means are over the last dimension; what is before it (replicas, several batches) is kept.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from unskew.base.errors import ParameterError
from unskew.base.tensors import Tensor, torch

if TYPE_CHECKING:
    from jaxtyping import Float

OnRows: TypeAlias = 'Float[Tensor, "*#batches #B"]'
"""One number for each row."""

PerModel: TypeAlias = 'Float[Tensor, " *batches"]'
"""One number for each of several models side by side; a single one without any."""

OnBoth: TypeAlias = "Tensor | tuple[Tensor, Tensor]"
"""Values ``[..., B]`` on rows of D; or a pair, on a batch of O ``[..., O]`` and one of D ``[..., D]``."""


def cross_entropy(
    target: Float[Tensor, "*#shape"], logit: Float[Tensor, "*#shape"]
) -> Float[Tensor, "*shape"]:
    """CE(t, σ(a)) = softplus(a) − t·a for each element; affine in t, which may leave [0, 1].

    Examples
    --------
    >>> import torch
    >>> cross_entropy(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 0.0]))
    tensor([0.6931, 0.6931])
    """
    return torch.addcmul(torch.nn.functional.softplus(logit), target, logit, value=-1.0)


def squared_error(
    target: Float[Tensor, "*#shape"], logit: Float[Tensor, "*#shape"]
) -> Float[Tensor, "*shape"]:
    """(t − σ(a))² for each element."""
    return (target - torch.sigmoid(logit)).square()


def stratified(
    *,
    observed: Float[Tensor, "*batches O"] | None = None,
    full: Float[Tensor, "*batches D"] | None = None,
    density: float,
) -> Float[Tensor, " *batches"]:
    """L̂ = mean_{B_D} f + (|O| / |D|) · mean_{B_O} g, the exact stratified estimator of METHODS §1.3.

    It is unbiased for (1/|D|) Σ_D f + (1/|D|) Σ_O g whatever the two batch sizes.

    Parameters
    ----------
    observed
        g on a batch of O, ``[..., O]``.
    full
        f on a batch drawn uniformly from D, ``[..., D]``.
    density
        |O| / |D|.

    Examples
    --------
    >>> import torch
    >>> stratified(observed=torch.tensor([2.0, 4.0]), full=torch.tensor([1.0, 1.0, 4.0]), density=0.1)
    tensor(2.3000)
    """
    if observed is None:
        if full is None:
            raise ValueError("stratified needs a term over O, over D, or both")
        return full.mean(-1)
    clicks = density * observed.mean(-1)
    return clicks if full is None else full.mean(-1) + clicks


def halves(
    values: Float[Tensor, "*batches B"],
) -> tuple[Float[Tensor, "*batches first"], Float[Tensor, "*batches second"]]:
    """Return the two halves of a batch ``[..., B]``, by place; a batch of one row is both.

    E[A·B] = (E m)² for the means A and B of independent halves, while E[m²] = (E m)² + Var m for the mean m
    of the whole batch: a product of halves estimates the square of an expectation, and its gradient, without
    bias. It may be negative.
    """
    middle = values.shape[-1] // 2
    return (values[..., :middle], values[..., middle:]) if middle else (values, values)


def weighted_mean(values: OnRows, weight: OnRows, *, least: float = 0.0) -> PerModel:
    """Σ w·v / Σ w, where Σ w is at least ``least``."""
    weights = weight.sum(-1)
    return (weight * values).sum(-1) / (weights.clamp(min=least) if least else weights)


@dataclass(frozen=True)
class Space:
    """How batches stand for the population D.

    Either ``click`` is given and every value is on rows of D; or values are on a batch of O or, where both
    are needed, a pair on a batch of O and a batch of D, and ``density`` says how O weighs in D.
    """

    click: Tensor | None = None
    """1 (or true) where a row of D was clicked ``[..., B]``."""
    density: float | None = None
    """|O| / |D|. Without it a sum over O alone is a mean over O, which changes it by a factor."""
    unclicked: Tensor | None = None
    """1 on the rows of the batch of D that have no click ``[..., D]``."""

    def known(self, values: Tensor) -> Tensor:
        """Return values that are known on clicks, with 1 elsewhere: a NaN there would be in every
        gradient."""
        return values if self.click is None else torch.where(self.click > 0, values, 1.0)

    def both(self, values: OnBoth) -> tuple[Tensor, Tensor]:
        """Return values on O and on D."""
        if isinstance(values, tuple) == (self.click is not None):
            raise ParameterError(
                "a mean over D was given neither rows of D with click=, nor pairs without",
                remedy="give click= and tensors of the same rows; or pairs (on clicks, on cells of D) and"
                " density=",
            )
        return values if isinstance(values, tuple) else (values, values)

    def over_clicks(self, values: Tensor) -> Tensor:
        """(1/|D|) Σ_O of values of clicks; (1/|O|) Σ_O where no density is known."""
        if self.click is not None:
            return torch.where(self.click > 0, values, 0.0).mean(-1)
        return values.mean(-1) if self.density is None else self.density * values.mean(-1)

    def mean_of_clicks(self, values: Tensor) -> Tensor:
        """(1/|O|) Σ_O of values of clicks."""
        if self.click is None:
            return values.mean(-1)
        return weighted_mean(values, self.click.to(values.dtype), least=1.0)

    def normalised(self, values: Tensor, weight: Tensor) -> Tensor:
        """Σ_O w·v / Σ_O w."""
        return weighted_mean(values, weight if self.click is None else self.click * weight)

    def mean(self, *, clicked: Tensor, everywhere: Tensor) -> Tensor:
        """(1/|D|) Σ_D f + (1/|D|) Σ_O g."""
        if self.click is not None:
            return everywhere.mean(-1) + self.over_clicks(clicked)
        return stratified(observed=clicked, full=everywhere, density=self._known_density())

    def over_cells(self, *, clicked: Tensor, unclicked: Tensor) -> Tensor:
        """(1/|D|) Σ_D [o·a + (1 − o)·b] = (|O|/|D|) · mean_{B_O} a + (1 − |O|/|D|) · mean_{B_D, o = 0} b.

        Clicked and unclicked rows are two strata. mean_{B_D} b + (|O|/|D|) · mean_{B_O} (a − b) would count a
        click that is held out for validation as o = 0, and lets 1/(1 − p) on clicks cancel only on average.

        Parameters
        ----------
        clicked, unclicked
            a on O, b on D.
        """
        if self.click is not None:
            return torch.where(self.click > 0, clicked, unclicked).mean(-1)
        if self.unclicked is None:
            raise ParameterError(
                "which rows of the batch of D have no click is not known", remedy="give unclicked="
            )
        density = self._known_density()
        share = self.unclicked / self.unclicked.sum(-1, keepdim=True).clamp(min=1.0)
        return density * clicked.mean(-1) + (1.0 - density) * (share * unclicked).sum(-1)

    def halves(self) -> tuple[Space, Space]:
        """Cut the batches in two (:func:`halves`)."""
        click = (None, None) if self.click is None else halves(self.click.float())
        unclicked = (None, None) if self.unclicked is None else halves(self.unclicked)
        return tuple(Space(click[part], self.density, unclicked[part]) for part in (0, 1))  # type: ignore[return-value]

    def _known_density(self) -> float:
        if self.density is None:
            raise ParameterError(
                "how clicks weigh in the population is not known",
                remedy="give density=, clicks by rows of the population",
            )
        return self.density
