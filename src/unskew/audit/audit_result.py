"""The result of an audit, as numbers: for the terminal, for ``--json``, for the report."""

from __future__ import annotations

import dataclasses
import shlex
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.audit.by_segment import MULTI, SegmentRepair
from unskew.audit.crossfit import CalibratorScore
from unskew.audit.segments import Segment
from unskew.audit.verdict import OutcomeWords, headline, outcome_words, verdict
from unskew.base.notebook import ShowsItself
from unskew.data.stream import Roles
from unskew.metrics import CalibrationSketch, WeightTest, ece, interval, noise_floor, wce
from unskew.metrics.judgement import CLEAR_ERRORS, WeightJudgement
from unskew.metrics.score_cells import bin_sums, cells_of
from unskew.metrics.weight_calibration import (
    DEFAULT_WEIGHT_BINS,
    has_infinite_weight,
    inverse_of,
    inverse_variance,
)
from unskew.metrics.weights import Clip, resolve_clip

SEGMENTS_LISTED = 100
"""Worst segments in :meth:`AuditResult.to_dict`."""

OF_CALIBRATORS = ("name", "nll", "wce", "ece", "wce_debiased", "mean_outcome_over_score")
"""What it tells of a calibrator."""

PLAIN = (
    "rows", "clicks", "base_rate", "mean_score", "nll", "brier", "auc", "mean_outcome_over_score", "verdict",
    "headline", "healthy", "tolerance", "significance", "recommended", "command",
)  # fmt: skip
"""What it tells as it is."""


@dataclass(frozen=True, eq=False, repr=False)
class AuditResult(ShowsItself):
    """The result of an audit; :meth:`to_dict` is what ``unskew audit --json`` writes.

    Attributes
    ----------
    rows, clicks, base_rate, mean_score
        Rows, rows with outcome 1, and weighted means of outcome and score.
    ece, wce
        With interval and noise floor.
    judgement
        What follows from the rows (:class:`unskew.metrics.judgement.WeightJudgement`).
    test
        The χ² test that the weights are honest.
    nll, brier, auc, mean_outcome_over_score
        Of the scores as they are; ``auc`` is None where all outcomes are the same.
    regions
        Where scores are clearly off, the worst first.
    segments
        Every segment, the worst first: those beyond chance before the others, and those with too few rows
        to be judged last.
    calibrators
        What each calibrator would reach on held-out rows, lowest NLL first; empty where there are too few
        rows of one class.
    recommended
        The calibrator of scores alone to use: the simplest that is honest and within one standard error of
        the lowest NLL; ``"none"`` where weights are within the tolerance, noise taken out, or no
        calibrator is better beyond noise.
    repair
        Whether one that reads the segments is worth it; None without segments, or with too few rows.
    paths
        What was audited, as it was given; empty where no files were.
    sketch
        All rows.
    """

    files: tuple[str, ...]
    roles: Roles
    tolerance: float
    significance: float
    rows: int
    clicks: int
    base_rate: float
    mean_score: float
    ece: ErrorFigure
    wce: ErrorFigure
    judgement: WeightJudgement
    test: WeightTest
    nll: float
    brier: float
    auc: float | None
    mean_outcome_over_score: float
    weights: WeightFigures | None
    regions: tuple[Region, ...]
    segments: tuple[Segment, ...]
    calibrators: tuple[CalibratorScore, ...]
    recommended: str | None
    repair: SegmentRepair | None
    sketch: CalibrationSketch
    paths: tuple[str, ...] = ()

    @property
    def limits(self) -> dict[str, float]:
        """The tolerance and the significance, by name."""
        return {"tolerance": self.tolerance, "significance": self.significance}

    @cached_property
    def verdict(self) -> str:
        """The verdict in a few sentences."""
        return verdict(self)

    @property
    def headline(self) -> str:
        """The verdict in a word or two."""
        return headline(self)

    @property
    def remedy(self) -> CalibratorScore | None:
        """The recommended calibrator."""
        return next((score for score in self.calibrators if score.name == self.recommended), None)

    @property
    def calibrated(self) -> CalibrationSketch | None:
        """All rows, calibrated out of fold by the recommended calibrator."""
        return None if self.remedy is None else self.remedy.sketch

    @property
    def healthy(self) -> bool | None:
        """Return whether the weights are honest within the tolerance; None where that is undecided."""
        return self.judgement.healthy

    @property
    def outcome_words(self) -> OutcomeWords:
        """Return what rows with outcome 1 are called."""
        return outcome_words(self.roles.outcome)

    @property
    def command(self) -> str | None:
        """The command that writes the weights of the calibrator to use, or None where there is none."""
        worth_it = self.repair is not None and self.repair.worth_it
        calibrator = MULTI if worth_it else self.recommended
        if calibrator in (None, "none") or not self.paths:
            return None
        roles = self.roles
        words = ["unskew", "weights", *self.paths, "--score", roles.score, "--outcome", roles.outcome]
        words += ["--sample-weight", roles.weight] if roles.weight else []
        words += ["--calibrator", str(calibrator)]
        words += [word for name in roles.segments if worth_it for word in ("--segments", name)]
        return shlex.join([*words, "--out", "weighted.parquet"])

    @property
    def judged_segments(self) -> tuple[Segment, ...]:
        """The segments with enough rows for a test."""
        return tuple(segment for segment in self.segments if segment.p_value is not None)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, text and lists."""
        judged, test = self.judgement, self.test
        return {
            "files": list(self.files),
            "columns": dataclasses.asdict(self.roles),
            **{name: getattr(self, name) for name in PLAIN},
            "ece": vars(self.ece),
            "wce": {
                **vars(self.wce),
                "debiased": judged.wce_debiased,
                "chi2": test.statistic,
                "dof": test.dof,
                "p_value": test.p_value,
                "p_beyond_tolerance": judged.p_beyond_tolerance,
            },
            "weights": None if self.weights is None else vars(self.weights),
            "regions": [vars(region) for region in self.regions],
            "reason": judged.reason,
            "power": {name: getattr(judged, name) for name in ("error", "power", "rows_needed")},
            "beyond_chance": None if judged.chance is None else judged.chance._asdict(),
            "segments": [vars(segment) for segment in self.segments[:SEGMENTS_LISTED]],
            "segment_count": len(self.segments),
            "calibrators": [
                {name: getattr(score, name) for name in OF_CALIBRATORS} for score in self.calibrators
            ],
            "by_segment": None if self.repair is None else self.repair.to_dict(),
        }


Array = NDArray[np.float64]

OPEN_ERRORS = 2.0
"""A bin that is within so many standard errors of being off may belong to a region around it."""

RESAMPLES = 500
"""Of the bootstrap of each interval: more would move its ends by less than a twentieth of its width."""


@dataclass(frozen=True)
class ErrorFigure:
    """A calibration error, its interval, and what a perfect score would show on as many rows.

    ``low`` and ``high`` are None where there is no interval: outcomes at a score of 0.
    """

    value: float
    low: float | None
    high: float | None
    floor: float


@dataclass(frozen=True)
class Region:
    """Neighbouring scores that are off in one direction.

    Attributes
    ----------
    low, high
        Between which scores; None for no limit.
    share
        Of all rows (weight).
    ratio
        Mean of o/p̂: below 1 the scores are overstated and the weights too small, above 1 the reverse.
    part
        What the region adds to WCE.
    """

    low: float | None
    high: float | None
    share: float
    ratio: float
    part: float


@dataclass(frozen=True)
class WeightFigures:
    """The weights 1/max(p̂, p_min) of the rows with outcome 1, from the cells of the sketch (to 0.8 %): those
    that ``unskew weights`` writes, and figures as in :class:`unskew.metrics.weights.WeightDiagnostics`.

    Attributes
    ----------
    rows
        Rows with outcome 1.
    median, largest
        Of the weights.
    largest_unclipped
        The largest 1/p̂.
    effective_sample_size
        (Σw)²/Σw²: as many rows of equal weight carry the same information.
    p_min, clipped, clipped_mass
        The clip, the share of rows below it, and the share of the sum of the weights that it takes.
    """

    rows: int
    median: float
    largest: float
    largest_unclipped: float
    effective_sample_size: float
    p_min: float
    clipped: float
    clipped_mass: float


def errors(sketch: CalibrationSketch, *, seed: int = 0) -> dict[str, ErrorFigure]:
    """Return ECE and WCE, each with interval and floor."""
    figures = {}
    for name, value in (("ece", ece(sketch)), ("wce", wce(sketch))):
        floor = noise_floor(sketch, metric=name, seed=seed)  # type: ignore[arg-type]
        figures[name] = ErrorFigure(value, None, None, floor)
        if name == "ece" or not has_infinite_weight(sketch):
            limits = interval(sketch, metric=name, resamples=RESAMPLES, seed=seed)  # type: ignore[arg-type]
            figures[name] = ErrorFigure(value, limits.low, limits.high, floor)
    return figures


def regions(sketch: CalibrationSketch, *, tolerance: float, bins: int = DEFAULT_WEIGHT_BINS) -> list[Region]:
    """Return the regions where weights are off by more than the tolerance, the largest part of WCE first.

    Equal-mass bins that are clearly off in one direction make a region, with those between them that may
    be; so do those from there to the end of the scores, where the fewest clicks are.
    """
    cells = cells_of(sketch)
    index = cells.bin_index(bins=bins, spacing="mass")
    total = bin_sums(cells.total, index)
    inverse = bin_sums(inverse_of(cells), index)
    error = np.sqrt(bin_sums(inverse_variance(cells), index)) / total
    excess = inverse / total - 1
    starts = np.flatnonzero(np.diff(index, prepend=-1))
    lowest, highest = cells.score[starts], cells.score[np.append(starts[1:], len(index)) - 1]
    off_regions = []
    for first, last in _runs(excess, error, tolerance):
        run = slice(first, last + 1)
        off_regions.append(
            Region(
                low=None if first == 0 else float(np.sqrt(highest[first - 1] * lowest[first])),
                high=None if last == len(total) - 1 else float(np.sqrt(highest[last] * lowest[last + 1])),
                share=float(total[run].sum() / total.sum()),
                ratio=float(inverse[run].sum() / total[run].sum()),
                part=float(total[run] @ np.abs(excess[run]) / total.sum()),
            )
        )
    return sorted(off_regions, key=lambda region: -region.part)


def weight_figures(sketch: CalibrationSketch, *, p_min: Clip) -> WeightFigures | None:
    """Return figures of the weights of rows with outcome 1; None if there are none, or one is infinite."""
    cells = cells_of(sketch)
    cells = cells.take(cells.positive > 0)
    if not len(cells.score) or has_infinite_weight(sketch):
        return None
    inverse = cells.inverse_sum / cells.positive
    propensity = 1 / inverse
    p_min = resolve_clip(p_min, propensity=propensity, count=cells.positive)
    clipped = np.minimum(inverse, 1 / p_min) if p_min > 0 else inverse
    clipped_sum = float(cells.positive @ clipped)
    order = np.argsort(inverse)
    half = np.searchsorted(np.cumsum(cells.positive[order]), cells.positive.sum() / 2)
    summed = float(cells.positive @ inverse)
    return WeightFigures(
        rows=int(cells.rows[:, 1].sum()),
        median=float(clipped[order[min(half, len(order) - 1)]]),
        largest=float(clipped.max()),
        largest_unclipped=float(inverse.max()),
        effective_sample_size=clipped_sum**2 / float(cells.square_sum[:, 1] @ clipped**2),
        p_min=p_min,
        clipped=float(cells.positive[propensity < p_min].sum() / cells.positive.sum()),
        clipped_mass=1 - clipped_sum / summed,
    )


def _runs(excess: Array, error: Array, tolerance: float) -> list[tuple[int, int]]:
    """Return the first and last bin of each region."""
    off = np.abs(excess) > np.maximum(tolerance, CLEAR_ERRORS * error)

    def may_be_off(sign: float, first: int, stop: int) -> bool:
        between = slice(first, stop)
        return bool((sign * excess[between] + OPEN_ERRORS * error[between] > tolerance).all())

    runs: list[tuple[int, int]] = []
    for position in np.flatnonzero(off).tolist():
        sign = float(np.sign(excess[position]))
        if runs and np.sign(excess[runs[-1][0]]) == sign and may_be_off(sign, runs[-1][1] + 1, position):
            runs[-1] = (runs[-1][0], position)
        else:
            runs.append((position, position))
    if runs and may_be_off(float(np.sign(excess[runs[0][0]])), 0, runs[0][0]):
        runs[0] = (0, runs[0][1])
    if runs and may_be_off(float(np.sign(excess[runs[-1][1]])), runs[-1][1] + 1, len(excess)):
        runs[-1] = (runs[-1][0], len(excess) - 1)
    return runs
