"""The audit: one pass over files of scores and outcomes, and what can be said from its sketches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from unskew.audit.audit_result import AuditResult, errors, regions, weight_figures
from unskew.audit.by_segment import compare_by_segment
from unskew.audit.crossfit import (
    COMPARED,
    FOLDS,
    CalibratorScore,
    can_crossfit,
    compare,
    dealt,
    folds_of_cells,
    merged,
)
from unskew.audit.reading import Counted, named, read, require_both_outcomes, require_three_columns
from unskew.audit.segments import corrected, segments_of, worst_first
from unskew.audit.sql import cells_of_engine, collected
from unskew.base.errors import DataError
from unskew.base.estimator import require
from unskew.base.progress import SILENT, Progress
from unskew.data.files import File, FrameInMemory, files_of
from unskew.data.stream import Roles
from unskew.metrics import brier, mean_outcome_over_score, nll, wce_test
from unskew.metrics.cells import Cells
from unskew.metrics.judgement import (
    SIGNIFICANCE,
    TOLERANCE,
    WeightJudgement,
    is_off,
    judge_weights,
    may_be_honest,
    require_limits,
)
from unskew.metrics.weights import Clip

DEFAULT_P_MIN: Clip = "auto"
"""The clip whose cost is reported, as in training."""

_REMEDIES = {
    0: ("was the outcome joined to these rows?", "give the rows with their outcomes, 1 where it happened"),
    1: (
        "are these the clicked rows only?",
        "give all rows, clicked or not; for a bandit log whose score is the probability of the action"
        " that was shown, give --actions N in the place of --outcome",
    ),
}
"""What is asked, and what to do, where all outcomes are 0, or 1."""


def audit(
    data: Any,
    *,
    score: str,
    outcome: str,
    weight: str | None = None,
    segments: Sequence[str] = (),
    tolerance: float = TOLERANCE,
    significance: float = SIGNIFICANCE,
    p_min: Clip = DEFAULT_P_MIN,
    seed: int = 0,
    progress: Progress = SILENT,
) -> AuditResult:
    """Audit propensities: are they honest? One pass over files of any size, in bounded memory.

    .. math:: \\text{miscalibrated} \\iff p(\\text{beyond tolerance}) < \\text{significance}, \\qquad
              \\text{undecided} \\iff \\text{not so, and power} < 0.8 \\text{ or AUC not beyond chance}

    p is that of a χ² test that the weights 1/p̂ are within the tolerance, the power its chance of finding
    weights that are off by a factor 1.2 (:func:`unskew.metrics.judgement.judge_weights`, which has the whole
    rule): few rows are neither blamed for their noise nor praised for it. Rows are dealt to folds as they
    pass (:mod:`unskew.audit.crossfit`), so that each calibrator is judged on rows that it was not
    fitted on, without a second pass.

    Use it on rows that did not train the scores: in-sample scores look better than they are.

    Parameters
    ----------
    data
        CSV, Parquet and Arrow files, folders and globs of them, or several of these; or a data frame of
        pandas, polars (lazy too) or Arrow; or a DuckDB relation or a Spark data frame, whose rows stay with
        their engine; or the :class:`unskew.metrics.cells.Cells` that the query of
        :func:`unskew.audit.sql.cells_query` counted. Where an engine made no folds (``fold_by``), rows are
        dealt to folds by chance within each cell, since nobody here knows their order: where neighbours are
        alike, calibrators look a little better than they are.
    score, outcome, weight
        Columns: a probability in [0, 1], 0 or 1, and how many rows of the population a row stands for.
    segments
        Columns whose every value is audited on its own; of cells, those that they hold. A calibrator
        that reads them (:class:`unskew.Multicalibrated`) is compared with the others, on a sample of the
        rows.
    tolerance
        Relative error of the weights that passes.
    significance
        Level of the tests, of the whole and (corrected for their number) of the segments.
    p_min
        The clip whose cost is reported.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> rows = "".join(f"{0.2 if i % 2 else 0.4},{int(i % 10 == 0)}\\n" for i in range(1000))
    >>> _ = (folder / "log.csv").write_text("p,clicked\\n" + rows)
    >>> result = audit(folder / "log.csv", score="p", outcome="clicked")
    >>> result.rows, result.healthy, round(result.mean_outcome_over_score, 2)
    (1000, False, 0.25)
    """
    roles = Roles(score, outcome, weight, tuple(dict.fromkeys(segments)))
    require_limits(tolerance, significance)
    require(
        p_min == "auto" or 0 <= p_min < 1,
        f"p_min must be 'auto' or in [0, 1), not {p_min!r}",
        "give a number between 0 and 1, such as 0.01",
    )
    require_three_columns(roles)
    cells = data if isinstance(data, Cells) else cells_of_engine(data, roles)
    files: Sequence[File | str]
    if cells is None:
        read_from = files = files_of(collected(data, roles))
        counted = read(read_from, roles, folds=FOLDS, seed=seed, progress=progress)
    else:
        files = ("the cells" if cells is data else "the data frame",)
        counted = _counted(cells, named(files), seed)
    whole = merged(counted.folds)
    require_both_outcomes(whole, outcome, significance, where=named(files), remedies=_REMEDIES)
    limits = {"tolerance": tolerance, "significance": significance}
    figures = errors(whole, seed=seed)
    judgement = judge_weights(whole, **limits)
    scores = compare(counted.folds) if can_crossfit(counted.folds) else []
    recommended = _recommended(scores, judgement, **limits)
    repair = None
    if counted.sample is not None and recommended is not None:
        repair = compare_by_segment(
            counted.sample.rows(), counted.values, counted.folds, recommended=recommended.name, **limits
        )
    is_named = cells is None and not isinstance(files[0], FrameInMemory)
    columns = tuple(dict.fromkeys(key.segment for key in counted.segments.keys))
    return AuditResult(
        files=tuple(map(str, files)),
        roles=replace(roles, segments=columns),
        **limits,
        rows=whole.rows,
        clicks=int(whole.sums.rows[:, 1].sum()),
        base_rate=whole.base_rate,
        mean_score=whole.mean_score,
        ece=figures["ece"],
        wce=figures["wce"],
        judgement=judgement,
        test=wce_test(whole),
        nll=nll(whole),
        brier=brier(whole),
        auc=None if judgement.chance is None else judgement.chance.auc,
        mean_outcome_over_score=mean_outcome_over_score(whole),
        weights=weight_figures(whole, p_min=p_min),
        regions=tuple(regions(whole, tolerance=tolerance)),
        segments=tuple(worst_first(corrected(segments_of(counted.segments)), **limits)),
        calibrators=tuple(scores),
        recommended=None if recommended is None else recommended.name,
        repair=repair,
        sketch=whole,
        paths=tuple(map(str, [data] if isinstance(data, str | Path) else data)) if is_named else (),
    )


def _counted(cells: Cells, where: str, seed: int) -> Counted:
    """Return cells that an engine counted as one pass over the rows leaves them, without a sample."""
    whole = cells.whole()
    if not whole.total:
        raise DataError("there are no rows with a weight above 0", where=where, remedy="give rows")
    segments = cells.select(lambda key: bool(key.segment)).group("segment", "value")
    return Counted(folds_of_cells(cells) or dealt(whole, FOLDS, seed=seed), {}, segments, None)


def _recommended(
    scores: Sequence[CalibratorScore],
    judgement: WeightJudgement,
    *,
    tolerance: float,
    significance: float,
) -> CalibratorScore | None:
    """Return the calibrator to use; ``"none"`` unless weights are off beyond the tolerance, noise taken out,
    and the NLL on held-out rows is lower beyond noise.

    It is the simplest honest one within one standard error of the lowest NLL, or else the nearest to honest.
    A click at a score of 0 is not noise, however little of the NLL it makes up.
    """
    near = sorted((s for s in scores if s.near_best), key=lambda s: ("none", *COMPARED).index(s.name))
    if judgement.reason != "infinite weight":
        limits = {"tolerance": tolerance, "significance": significance}
        better = [s for s in near if is_off(s.p_better, judgement.wce_debiased, **limits)]
        near = better or [s for s in scores if s.name == "none"]
    honest = (s for s in near if may_be_honest(s.sketch, tolerance=tolerance, significance=significance))
    return next(honest, min(near, key=lambda s: s.wce_debiased, default=None))
