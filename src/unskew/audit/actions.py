"""The audit of logged probabilities of showing: a bandit log has no outcome to hold them against."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from unskew.audit.segments import NORMAL_95
from unskew.audit.verdict import HEADLINES, counted, percent, round_up, short
from unskew.base.errors import DataError
from unskew.base.estimator import require_whole
from unskew.base.progress import SILENT, Progress
from unskew.data.files import files_of
from unskew.data.stream import FileBatch, located, number_columns, stream, tracked
from unskew.metrics.judgement import SIGNIFICANCE, TOLERANCE, MeanJudgement, judge_mean, require_limits
from unskew.metrics.sketch_grid import SMALLEST


@dataclass(frozen=True)
class ActionsResult:
    """The result of an audit of probabilities of showing; :meth:`to_dict` is what ``--json`` writes.

    Attributes
    ----------
    ratio, low, high
        mean(1/p) ÷ N, 1 for the probabilities with which N actions were chosen, and its 95 % interval.
    smallest
        The smallest p.
    healthy
        True, False, or None where the rows do not decide.
    power, rows_needed
        The chance of finding weights that are off by a factor 1.2, and how many rows would find it with 80 %.
    """

    files: tuple[str, ...]
    score: str
    actions: int
    tolerance: float
    significance: float
    rows: int
    ratio: float
    low: float
    high: float
    smallest: float
    healthy: bool | None
    power: float
    rows_needed: int
    verdict: str

    @property
    def headline(self) -> str:
        """The verdict in a word."""
        return HEADLINES[self.healthy]

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and text."""
        return {**asdict(self), "files": list(self.files), "headline": self.headline}


def audit_actions(
    data: Any,
    *,
    score: str,
    actions: int,
    tolerance: float = TOLERANCE,
    significance: float = SIGNIFICANCE,
    progress: Progress = SILENT,
) -> ActionsResult:
    r"""Check whether these are the probabilities with which the shown actions were chosen among N.

    .. math:: \mathbb{E}\left[\frac1{p(a)}\right] = \sum_a p(a) \frac{1}{p(a)} = N, \qquad
              \text{ratio} = \frac{1}{n N} \sum_i \frac1{p_i}

    p_i (``score``) is the logged probability of the action that row i shows, N (``actions``) how many actions
    there were to choose from, each with p > 0. The interval is normal, with the spread of 1/p. Miscalibrated:
    beyond the tolerance, and not by noise (z-test at the level ``significance``); undecided: not so, but the
    rows would not find weights off by a factor 1.2. Use it for bandit logs, whose p says nothing of clicks.
    It sees the level alone: probabilities of other rows pass, if their inverses have the right mean.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "log.csv").write_text("p\n" + "0.5\n0.25\n0.5\n0.25\n0.5\n0.5\n0.25\n0.5\n" * 500)
    >>> result = audit_actions(folder / "log.csv", score="p", actions=3)
    >>> result.healthy, round(result.ratio, 3)
    (False, 0.917)
    """
    require_whole(1, actions=actions)
    require_limits(tolerance, significance)
    files = files_of(data)
    rows, total, square, smallest = 0, 0.0, 0.0, math.inf
    for batch in tracked(stream(files, columns=[score], numbers=[score]), progress, "reading"):
        (column,) = number_columns(batch, [score])
        p = column.astype(np.float64)
        if not len(p):
            continue
        _require_probabilities(p, score, batch)
        inverse = 1 / np.maximum(p, SMALLEST)
        rows, smallest = rows + len(p), min(smallest, float(p.min()))
        total, square = total + float(inverse.sum()), square + float(inverse @ inverse)
    if not rows:
        raise DataError("there are no rows", where=str(files[0]), remedy="give files with rows")
    mean = total / rows
    ratio = mean / actions
    error = math.sqrt(max(square / rows - mean**2, 0.0) / rows) / actions
    judged = judge_mean(ratio, error, rows, tolerance=tolerance, significance=significance)
    half = NORMAL_95 * error
    return ActionsResult(
        files=tuple(map(str, files)),
        score=score,
        actions=actions,
        tolerance=tolerance,
        significance=significance,
        rows=rows,
        ratio=ratio,
        low=ratio - half,
        high=ratio + half,
        smallest=smallest,
        healthy=judged.healthy,
        power=judged.power,
        rows_needed=judged.rows_needed,
        verdict=_verdict(judged, ratio, half, actions, rows, score),
    )


def _require_probabilities(p: Any, score: str, batch: FileBatch) -> None:
    wrong = ~((p > 0) & (p <= 1))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        with located(batch):
            raise DataError(
                f"{p[row]:g} is not the probability of an action that was shown: it must be above 0 and at"
                " most 1",
                where=f"column '{score}', row {batch.first_row + row}",
                remedy="give the logged probability of the action that the row shows",
            )


def _verdict(judged: MeanJudgement, ratio: float, half: float, actions: int, rows: int, score: str) -> str:
    said = f"the mean of 1/{score} over {counted(rows, 'row')} is {ratio:.3f} ± {short(half)} of {actions:,}"
    if judged.level == "good":
        return f"As {counted(actions, 'action')} would give: {said}."
    if judged.level == "undecided":
        return (
            f"So far {said}; weights that are off by a factor 1.2 would be found with a chance of"
            f" {percent(judged.power)}, and some {round_up(judged.rows_needed):,} rows like these would tell."
        )
    implied = ratio * actions
    return (
        f"{said[0].upper()}{said[1:]}, as if there were {implied:.1f} actions. Is '{score}' the probability"
        f" of the action shown, among {actions:,} that could be shown, each with a chance above 0? Weights"
        f" 1/{score} are {percent(abs(ratio - 1))} too {'small' if ratio < 1 else 'large'} in sum."
    )
