"""The monitor: are the scores still honest, for whom not, since when, in which way, and what does it cost?

Read from a store (``monitor_store``), with tests that hold under daily looking (``unskew.metrics.anytime``);
in words in ``monitor_words``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from unskew.audit.monitor_store import MonitorSettings, MonitorStore
from unskew.audit.periods import in_order
from unskew.audit.segments import NORMAL_95
from unskew.audit.verdict import HEADLINES, monitor_verdict
from unskew.base.errors import DataError
from unskew.base.notebook import ShowsItself
from unskew.calibration import make_calibrator
from unskew.metrics import CalibrationSketch
from unskew.metrics.anytime import (
    ALTERNATIVES,
    KIND_WEIGHT,
    SIZES,
    Episode,
    episodes,
    evidence_over_time,
    family_shares,
    log_evidence,
    smallest_factor,
    start_weight,
)
from unskew.metrics.cell_sums import both
from unskew.metrics.cells import Cells
from unskew.metrics.judgement import TOLERANCE, Judgement, Level, detected_error, require_limits
from unskew.metrics.score_cells import ScoreCells, cells_of, outcome_weights
from unskew.metrics.weight_calibration import (
    DEFAULT_WEIGHT_BINS,
    errors_of_bins,
    inverse_of,
    inverse_variance,
    joined_bins,
)

SIGNIFICANCE = 0.05
"""The chance that honest scores are ever called off: over all looks and all segments together."""

POOLED_ROWS = 1000
"""Rows of the rarer outcome that tell a period's weights: 10 blocks of ``score_cells.WEIGHT_ROWS``."""

Key = tuple[str, str]
"""A column and one of its values; ("", "") for all rows."""


@dataclass(frozen=True)
class PeriodFigures:
    """A period of a segment.

    Attributes
    ----------
    closed
        Whether its outcomes had the time to come in; others are not judged.
    rows, clicks, expected
        Rows, Σwo and Σwp.
    ratio, low, high
        Mean of o/p̂, 1 for honest propensities, with a 95 % interval.
    wce, floor
        Weight-calibration error, and what it would be by noise alone.
    """

    period: str
    closed: bool
    rows: int
    clicks: float
    expected: float
    ratio: float
    low: float
    high: float
    wce: float
    floor: float


@dataclass(frozen=True)
class Break:
    """Periods in which a segment's scores were off beyond noise.

    Attributes
    ----------
    first, last, found, over
        The periods from when to when, the one with which that was certain, and whether it has ended.
    kind
        ``"level"``, ``"slope"`` or ``"shape"``: whichever the evidence is largest for.
    ratio, low, high
        Mean of o/p̂ over these periods, with a 95 % interval.
    level, slope
        Σwo/Σwp, and the slope of the logit that Platt's map would give (below 1: scores too spread).
    weight_error, weight_share
        Σwo/p̂ − Σw: by how many rows the weights miss their sum, and as a share of it.
    click_error, money
        Σwo − Σwp, and the same times the value of a click (None where that is not known).
    log_evidence
        Natural logarithm of the evidence.
    """

    first: str
    last: str
    found: str
    over: bool
    kind: str
    ratio: float
    low: float
    high: float
    level: float
    slope: float | None
    weight_error: float
    weight_share: float
    click_error: float
    money: float | None
    log_evidence: float
    rows: int


@dataclass(frozen=True)
class SegmentHistory:
    """The history of a segment: its judgement, breaks and periods.

    Attributes
    ----------
    judgement
        Bad: ``"off"`` now; good: ``"honest"``, or ``"over"`` where it was off before; undecided:
        ``"too few rows"`` to see a factor 1.2.
    breaks
        Periods in which it was off.
    log_evidence, threshold
        The evidence that it is off, after the last closed period, and what it takes to be called so.
    smallest_now, smallest_so_far
        The factor of a change of the level that would be found with the last period alone, and with all.
    """

    column: str
    value: str
    judgement: Judgement
    breaks: tuple[Break, ...]
    periods: tuple[PeriodFigures, ...]
    log_evidence: float
    threshold: float
    smallest_now: float
    smallest_so_far: float

    @property
    def name(self) -> str:
        """Return what the segment is called."""
        return f"{self.column} = {self.value}" if self.column else "all rows"

    @property
    def rows(self) -> int:
        """Rows of closed periods."""
        return sum(each.rows for each in self.periods if each.closed)


@dataclass(frozen=True, eq=False, repr=False)
class MonitorResult(ShowsItself):
    """The result of a monitor; :meth:`to_dict` is what ``unskew monitor --json`` writes."""

    store: str
    settings: MonitorSettings
    tolerance: float
    significance: float
    value: float | None
    periods: tuple[str, ...]
    open: tuple[str, ...]
    whole: SegmentHistory
    segments: tuple[SegmentHistory, ...]
    judgement: Judgement

    @property
    def headline(self) -> str:
        """The verdict in a word."""
        return HEADLINES[self.healthy]

    @property
    def verdict(self) -> str:
        """The verdict in a few sentences."""
        return monitor_verdict(self)

    @property
    def healthy(self) -> bool | None:
        """Return whether the scores are honest now, for all; None where that is undecided."""
        return self.judgement.healthy

    @property
    def histories(self) -> tuple[SegmentHistory, ...]:
        """All rows, and the segments, the worst first."""
        return (self.whole, *self.segments)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and text."""
        return {
            "store": self.store,
            "settings": self.settings.to_dict(),
            **{name: getattr(self, name) for name in ("tolerance", "significance", "value")},
            "periods": list(self.periods),
            "open_periods": list(self.open),
            **{name: getattr(self, name) for name in ("headline", "healthy", "verdict")},
            "reason": self.judgement.reason,
            "whole": _history_dict(self.whole),
            "segments": [_history_dict(each) for each in self.segments],
        }


def _history_dict(history: SegmentHistory) -> dict[str, Any]:
    return {**asdict(history), "healthy": history.judgement.healthy, "rows": history.rows}


def monitor(
    store: str | Path,
    *,
    tolerance: float = TOLERANCE,
    significance: float = SIGNIFICANCE,
    value: float | None = None,
) -> MonitorResult:
    """Monitor a store: are its scores still honest; for whom not, and since when?

    Every period adds evidence, for each segment, that its scores are off by more than the tolerance from some
    period on (:mod:`unskew.metrics.anytime`). The chance that honest scores are ever called off is at most
    ``significance``, over all segments and however often one looks. Periods that are open are shown and not
    judged. Rows are taken to be independent: where few users give many rows, ask for less significance.

    Parameters
    ----------
    store
        The file that :func:`unskew.audit.monitor_add.add` wrote.
    tolerance
        Relative error of the weights that passes.
    value
        What a click is worth, for the cost in money.
    """
    require_limits(tolerance, significance)
    held = MonitorStore.load(Path(store))
    closed = held.periods()
    labels = in_order(closed)
    judged = [label for label in labels if closed[label]]
    if not judged:
        raise DataError(
            f"none of its {len(labels)} periods is closed",
            where=str(store),
            remedy="add their files again when the outcomes are in (--maturity has passed)",
        )
    cells, numbers = _by_segment(held)
    position = {label: number for number, label in enumerate(labels)}
    first_seen = np.array(
        [min(position[cells.keys[number].period] for number in of_key) for of_key in numbers.values()]
    )
    shares = family_shares(first_seen).tolist()
    # One segment after the other: a year of a thousand segments would not fit into memory at once.
    histories = {}
    for (key, of_key), share in zip(numbers.items(), shares, strict=True):
        sketches = {cells.keys[number].period: cells.sketch_at(number) for number in of_key}
        threshold = math.log(1 / (significance * share))
        histories[key] = _history(key, sketches, closed, labels, threshold, tolerance, value)
    whole = histories.pop(("", ""))
    segments = tuple(sorted(histories.values(), key=_worst_first))
    judgement = _judged(whole, segments)
    return MonitorResult(
        store=str(store),
        settings=held.settings,
        tolerance=tolerance,
        significance=significance,
        value=value,
        periods=tuple(labels),
        open=tuple(label for label in labels if not closed[label]),
        whole=whole,
        segments=segments,
        judgement=judgement,
    )


def _by_segment(store: MonitorStore) -> tuple[Cells, dict[Key, list[int]]]:
    """Return the cells of a store by period, and the numbers of the keys of all rows and of every segment."""
    # Each column of segments has all rows: the first tells all of them.
    first = (*store.settings.roles.segments, "")[0]
    cells = store.cells.select(lambda key: key.segment == first).group("period")
    if store.settings.roles.segments:
        cells.add(store.cells.group("period", "segment", "value"))
    numbers: dict[Key, list[int]] = {}
    for number, key in enumerate(cells.keys):
        numbers.setdefault((key.segment, key.value), []).append(number)
    return cells, numbers


def _history(
    key: Key,
    sketches: Mapping[str, CalibrationSketch],
    closed: Mapping[str, bool],
    labels: Sequence[str],
    threshold: float,
    tolerance: float,
    value: float | None,
) -> SegmentHistory:
    here = [label for label in labels if label in sketches and sketches[label].total > 0]
    cells = history_cells({label: sketches[label] for label in here})
    judged = [label for label in here if closed[label]]
    evidence = np.array([log_evidence(cells[label], tolerance) for label in judged]).reshape(
        len(judged), len(ALTERNATIVES)
    )
    breaks = tuple(_break(each, judged, sketches, value) for each in episodes(evidence, threshold))
    expected = [
        float((cells[label].total * cells[label].score / cells[label].row_weight()).sum()) for label in judged
    ]
    needed = threshold + math.log(2 * len(SIZES) / KIND_WEIGHT["level"])
    so_far = smallest_factor(sum(expected), needed + math.log(1 / start_weight(1)), tolerance)
    late = needed + math.log(1 / start_weight(max(len(judged), 1)))
    return SegmentHistory(
        column=key[0],
        value=key[1],
        judgement=_judge(breaks, so_far, tolerance),
        breaks=breaks,
        periods=tuple(_figures(label, closed[label], cells[label]) for label in here),
        log_evidence=float(evidence_over_time(evidence)[-1]) if judged else 0.0,
        threshold=threshold,
        smallest_now=smallest_factor(expected[-1] if expected else 0.0, late, tolerance),
        smallest_so_far=so_far,
    )


def history_cells(sketches: Mapping[str, CalibrationSketch]) -> dict[str, ScoreCells]:
    """Return each period's cells, with the outcome weights of enough rows.

    A period with fewer than :data:`POOLED_ROWS` rows of an outcome shares its weights with the periods
    before, which fade the faster the more rows come: the errors of estimates from a few clicks would add up.
    """
    pooled: Any = 0.0
    cells = {}
    for label, sketch in sketches.items():
        own = np.stack([sketch.sums.rows, sketch.sums.weight, sketch.sums.square])
        pooled = own + pooled * max(1.0 - own[0].sum(axis=0).min() / POOLED_ROWS, 0.0)
        alone = cells_of(sketch)
        cells[label] = replace(alone, outcome_weight=outcome_weights(*pooled)[alone.ids])
    return cells


def _judge(breaks: Sequence[Break], smallest: float, tolerance: float) -> Judgement:
    level: Level
    if any(not each.over for each in breaks):
        level, reason = "bad", "off"
    elif breaks:
        level, reason = "good", "over"
    elif smallest > detected_error(tolerance):
        level, reason = "undecided", "too few rows"
    else:
        level, reason = "good", "honest"
    return Judgement(level, reason)


def _judged(whole: SegmentHistory, segments: Sequence[SegmentHistory]) -> Judgement:
    """Return a bad judgement where anything is off now; else that of all rows."""
    bad = [each.judgement for each in (whole, *segments) if each.judgement.level == "bad"]
    if bad:
        return bad[0]
    past = any(each.breaks for each in (whole, *segments))
    return Judgement("good", "over") if past and whole.judgement.level == "good" else whole.judgement


def _worst_first(history: SegmentHistory) -> tuple[int, float, int]:
    """Return those that are off now, by what it costs; those that were; the others by their evidence."""
    order = {"off": 0, "over": 1}.get(history.judgement.reason, 2)
    cost = max((abs(each.weight_error) for each in history.breaks), default=0.0)
    return order, -cost if order < 2 else -history.log_evidence, -history.rows


def _figures(label: str, closed: bool, cells: ScoreCells) -> PeriodFigures:
    total = float(cells.total.sum())
    ratio, low, high = _ratio(cells)
    used = cells.take(cells.score > 0)
    wce = floor = 0.0
    if len(used.score):
        index = joined_bins(used, used.bin_index(bins=DEFAULT_WEIGHT_BINS, spacing="mass"))
        share, excess, variance = errors_of_bins(used, index)
        # The mean of a normal error's absolute value.
        wce, floor = float(share @ np.abs(excess)), float(share @ np.sqrt(2 * variance / math.pi))
    return PeriodFigures(
        period=label,
        closed=closed,
        rows=int(cells.rows.sum()),
        clicks=float(cells.positive.sum()),
        expected=float(total and both(cells.score_sum).sum()),
        ratio=ratio,
        low=low,
        high=high,
        wce=math.inf if math.isinf(ratio) else wce,
        floor=floor,
    )


def _ratio(cells: ScoreCells) -> tuple[float, float, float]:
    """Return the mean of o/p̂ and its 95 % interval, of the variance that the scores imply × that mean."""
    total = float(cells.total.sum())
    ratio = float(inverse_of(cells).sum()) / total
    if not math.isfinite(ratio):
        return ratio, ratio, ratio
    half = NORMAL_95 * math.sqrt(float(inverse_variance(cells).sum()) * max(ratio, 1 / total)) / total
    return ratio, max(ratio - half, 0.0), ratio + half


def _break(
    episode: Episode,
    judged: Sequence[str],
    sketches: Mapping[str, CalibrationSketch],
    value: float | None,
) -> Break:
    """Return an episode with what it amounts to."""
    merged = sketches[judged[episode.first]].copy()
    for label in judged[episode.first + 1 : episode.last + 1]:
        merged.merge(sketches[label])
    cells = cells_of(merged)
    ratio, low, high = _ratio(cells)
    total, promised = float(cells.total.sum()), float(both(cells.score_sum).sum())
    clicks = float(cells.positive.sum())
    both_outcomes = 0 < merged.positives < merged.total
    slope = float(make_calibrator("platt").fit(merged).slope_) if both_outcomes else None  # type: ignore[attr-defined]
    return Break(
        first=judged[episode.first],
        last=judged[episode.last],
        found=judged[episode.found],
        over=episode.over,
        kind=episode.kind,
        ratio=ratio,
        low=low,
        high=high,
        level=clicks / promised if promised else math.inf,
        slope=slope,
        weight_error=(ratio - 1) * total,
        weight_share=ratio - 1,
        click_error=clicks - promised,
        money=None if value is None else value * (clicks - promised),
        log_evidence=episode.log_evidence,
        rows=merged.rows,
    )
