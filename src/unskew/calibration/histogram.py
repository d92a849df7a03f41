"""Histogram binning: the frequency of each bin, safe to divide by."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from unskew.base.estimator import require_at_least
from unskew.base.registry import register
from unskew.calibration.grouping import Vector, sum_by
from unskew.calibration.step_calibrator import (
    StepCalibrator,
    block_starts,
    edges_between,
    smooth_extremes,
    width_edges,
)


def equal_mass_starts(total: Vector, bins: int) -> NDArray[np.intp]:
    """Return the first group of each of up to ``bins`` bins of about equal weight; no score is split."""
    middle_rank = (np.cumsum(total) - total / 2) / total.sum()
    return block_starts(np.minimum(middle_rank * bins, bins - 1).astype(np.intp))


@register(order=70)
@dataclass(kw_only=True, eq=False, repr=False)
class Histogram(StepCalibrator):
    r"""q(p̂) = n₊/n of the bin that holds p̂.

    A bin with n₊ = 0 or n₊ = n gets (n₊+s)/(n+2s) instead (s is ``smoothing``), and an empty one its
    centre, so every inverse weight is finite. ``values_`` are the bins' probabilities, ``edges_`` the
    inner edges; bins of equal width are right-closed, the paper's rule.

    Use it as the simplest map that assumes nothing, with hundreds of rows of the rarer class in a bin.
    Not where ranking matters (a bin is one tie) nor, with equal widths, for small propensities: they
    would all fall into the first bin. Not monotone.

    Parameters
    ----------
    bins
        At most this many; 20 are the quantile bins of the paper's reliability plots.
    spacing
        ``"mass"`` (Zadrozny and Elkan 2001): equal weight; ``"width"``: equal width.
    smoothing
        s, pseudo-rows of each class (Laplace's 1); 0 leaves zeros, which then become 1e-12.
    smooth_all
        (n₊+s)/(n+2s) in every bin. It pulls all bins towards ½: at a base rate of 0.1 % and 500 rows a
        bin, threefold.

    Examples
    --------
    >>> histogram = Histogram(bins=2, spacing="width").fit([0.1, 0.2, 0.3, 0.9], [0, 1, 0, 1])
    >>> histogram.predict([0.4, 0.6]).round(3)
    array([0.333, 0.667])
    """

    name: ClassVar[str] = "histogram"
    monotone: ClassVar[bool] = False

    bins: int = 20
    spacing: Literal["mass", "width"] = "mass"
    smoothing: float = 1.0
    smooth_all: bool = False

    def _check_parameters(self) -> None:
        super()._check_parameters()
        require_at_least(1, bins=self.bins)
        require_at_least(0, smoothing=self.smoothing)

    def _fit_points(self, score: Vector, total: Vector, positive: Vector) -> None:
        if self.spacing == "mass":
            starts = equal_mass_starts(total, self.bins)
            edges = edges_between(score[starts[1:] - 1], score[starts[1:]])
            centre = np.full(len(starts), np.nan)
            in_bin, in_bin_positive = np.add.reduceat(total, starts), np.add.reduceat(positive, starts)
        else:
            edges = np.nextafter(width_edges(self.bins)[1:-1], 1.0)
            centre = (np.arange(self.bins) + 0.5) / self.bins
            bin_of = np.searchsorted(edges, score, side="right")
            in_bin = sum_by(bin_of, total, self.bins)
            in_bin_positive = sum_by(bin_of, positive, self.bins)
        filled = in_bin > 0
        frequency = np.where(filled, in_bin_positive / np.where(filled, in_bin, 1.0), centre)
        if self.smooth_all:
            smoothed = (in_bin_positive + self.smoothing) / (in_bin + 2 * self.smoothing)
        else:
            smoothed = smooth_extremes(frequency, in_bin, self.smoothing)
        self._set_steps(edges, np.where(filled, smoothed, centre))
