"""Calibrated, clipped, cross-fitted propensities and weights, written beside the rows they belong to.

Two passes over the files: the first fills the sketches of the folds, the second maps every row with a
calibrator that was fitted without its fold, and writes it. Without scores, a propensity is trained on users,
items and clicks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.audit.audit import DEFAULT_P_MIN, FOLDS, read
from unskew.audit.audit_figures import WeightFigures, weight_figures
from unskew.audit.fold_sketches import fit_without_each, fold_of_rows, merged
from unskew.audit.weights_files import ADDED, Assign, prepared, require_free, write_with
from unskew.calibration import Calibrator, Multicalibrated, make_calibrator
from unskew.calibration.venn_abers import RAISED, is_raised
from unskew.errors import DataError, ParameterError
from unskew.estimator import require
from unskew.io.stream import (
    FileBatch,
    Roles,
    holds_numbers,
    number_columns,
    stream,
)
from unskew.io.tables import (
    FrameInMemory,
    Paths,
    Source,
    require_columns,
    sources,
)
from unskew.leaks import require_no_leaks
from unskew.metrics import CalibrationSketch, mean_outcome_over_score, wce
from unskew.metrics.clip import Clip, require_clip
from unskew.metrics.judgement import judge_clip
from unskew.metrics.mapped_sketch import mapped
from unskew.progress import SILENT, Progress

if TYPE_CHECKING:
    from unskew.log import Log, StreamedLog, Wanted


MOST_KEPT = 1 << 17
"""Rows of each outcome that a calibrator by segment is fitted on."""


@dataclass(frozen=True, eq=False)
class WeightsResult:
    """What was written.

    Attributes
    ----------
    rows, folds
        Rows, and the number of folds.
    calibrators
        The calibrators, one for each fold, each fitted on the others.
    raw, calibrated
        Sketches of the scores before and after, each row's calibrated without its fold.
    trained
        How a propensity that was trained here was chosen, in words.
    """

    rows: int
    folds: int
    calibrators: tuple[Calibrator, ...]
    raw: CalibrationSketch
    calibrated: CalibrationSketch
    p_min: float
    trained: str | None = None

    @property
    def chosen(self) -> tuple[str, ...]:
        """The names of the calibrators, of what ``auto`` chose rather than ``auto`` itself."""
        return tuple(getattr(calibrator, "choice_", calibrator).name for calibrator in self.calibrators)

    @property
    def messages(self) -> tuple[str, ...]:
        """What the calibrators have to say of their fits, and of weights made with them."""
        said = sorted({calibrator.message_ for calibrator in self.calibrators if calibrator.message_})
        return (*said, *([RAISED] if any(map(is_raised, self.calibrators)) else []))

    @property
    def weights(self) -> WeightFigures | None:
        """Figures of the calibrated weights of the clicked rows."""
        return weight_figures(self.calibrated, p_min=self.p_min)

    @property
    def clip_decides(self) -> bool:
        """Whether the clip takes so much of the sum of 1/p̂ that it decides."""
        return self.weights is not None and judge_clip(self.weights.clipped_mass).level == "bad"

    @property
    def verdict(self) -> str:
        """What the clip does to the weights, in a sentence or two."""
        figures = self.weights
        if figures is None:
            return "There are no finite weights of clicked rows to judge."
        taken = (
            f"The clip at p_min = {figures.p_min:g} takes {100 * figures.clipped_mass:.2g} % of the sum of"
            f" the weights 1/p̂ ({100 * figures.clipped:.4g} % of the clicked rows are below it)"
        )
        if not self.clip_decides:
            return f"{taken}."
        return (
            f"{taken}: what is left is the clip's, not the propensities'. Lower p_min (--p-min); the smallest"
            f" p̂ of a clicked row is {1 / figures.largest:.2g}."
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and text."""
        return {
            "verdict": self.verdict,
            "clip_decides": self.clip_decides,
            "rows": self.rows,
            "folds": self.folds,
            "calibrator": self.calibrators[0].name,
            "chosen": list(self.chosen),
            "messages": list(self.messages),
            "propensity": self.trained,
            **{
                kind: {
                    "wce": wce(sketch=sketch),
                    "mean_outcome_over_score": mean_outcome_over_score(sketch=sketch),
                }
                for kind, sketch in (("raw", self.raw), ("calibrated", self.calibrated))
            },
            "weights": None if self.weights is None else vars(self.weights),
        }


def write_weights(
    paths: Paths,
    out: str | Path,
    *,
    score: str,
    outcome: str,
    sample_weight: str | None = None,
    calibrator: str | Calibrator = "platt",
    segments: Sequence[str] = (),
    folds: int = FOLDS,
    p_min: Clip = DEFAULT_P_MIN,
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress = SILENT,
) -> WeightsResult:
    """Add calibrated propensities and weights to rows; the same rows, in the same order, in Parquet.

    .. math:: \\tilde p_i = q^{(-k_i)}(\\hat p_i), \\qquad w_i = \\frac{1}{\\max(\\tilde p_i, p_{\\min})}

    k_i is row i's ``fold`` and q^(−k) the calibrator fitted on the rows of all other folds, so that no row
    has a say in its own weight. ``clipped`` says where p̃ is below ``p_min``. Weights belong to the clicked
    rows: an estimate over the population sums o·w·loss. Every row has one, so that any row can be looked at.

    Parameters
    ----------
    paths
        CSV and Parquet files, folders and globs of them, or several of these, with the same columns.
    out
        The Parquet file to write, or a folder of part files (its name ends in a slash or has no suffix); it
        appears when it is whole.
    score, outcome, sample_weight
        Columns: a probability in [0, 1], 0 or 1, and (for sampled rows) how many rows a row stands for.
    calibrator
        A name of the registry, or a calibrator; ``"multicalibrated"`` too.
    segments
        Columns that a calibrator reads beside the scores (:class:`unskew.Multicalibrated`), each value as a
        category. It is fitted on at most 131,072 rows of each outcome, drawn by chance and weighted.
    folds, seed
        How rows are dealt: by their number in the files (:mod:`unskew.audit.fold_sketches`), since scores
        have no ids. Rows in another order are in other folds.
    p_min
        Propensities below are raised to it before they become weights; ``"auto"`` is the clip with the least
        error (:func:`unskew.metrics.least_error_clip`).
    """
    roles = Roles(score, outcome, sample_weight, tuple(dict.fromkeys(segments)))
    require(
        len(set(roles.numbers)) == len(roles.numbers),
        "score, outcome and sample_weight must be three columns",
        "name another column for one of them",
    )
    chosen = make_calibrator(calibrator)
    _require_segments(chosen, roles.segments)
    target, files, schema = prepared(
        paths, out, p_min=p_min, overwrite=overwrite, numbers=roles.numbers, outcome=outcome
    )
    weighing = _calibrated(files, roles, chosen, folds=folds, seed=seed, p_min=p_min, progress=progress)
    p_min = weighing.result.p_min
    rows = write_with(
        files, target, schema, weighing.assign, p_min=p_min, numbers=roles.numbers, progress=progress
    )
    return replace(weighing.result, rows=rows)


class _Weighing(NamedTuple):
    """How rows get their weights, and what is known of them before any is written."""

    assign: Assign
    result: WeightsResult


def _calibrated(
    files: Sequence[Source],
    roles: Roles,
    chosen: Calibrator,
    *,
    folds: int,
    seed: int,
    p_min: Clip,
    progress: Progress,
) -> _Weighing:
    """Scores that are there, calibrated out of fold."""
    if roles.segments:
        return _calibrated_by_segment(
            files, roles, chosen, folds=folds, seed=seed, p_min=p_min, progress=progress
        )
    sketches, *_ = read(files, roles, folds=folds, seed=seed, progress=progress)
    fitted = fit_without_each(chosen, sketches)

    def assign(batch: FileBatch) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
        (scores,) = number_columns(batch, [roles.score])
        fold = fold_of_rows(batch.start, len(scores), folds, seed)
        return _out_of_fold(fold, lambda k, rows: fitted[k].predict(scores[rows])), fold

    parts = [
        mapped(sketch, calibrator.predict(sketch.points().score))
        for sketch, calibrator in zip(sketches.sketches, fitted, strict=True)
        if sketch.rows
    ]
    calibrated = merged(parts)
    clip = _clip_of(calibrated, p_min)
    return _Weighing(assign, WeightsResult(0, folds, tuple(fitted), sketches.all(), calibrated, clip))


def _out_of_fold(
    fold: NDArray[np.int8], predict: Callable[[int, NDArray[np.int64]], NDArray[np.float64]]
) -> NDArray[np.float64]:
    """``predict(k, rows)`` for the rows of each fold k."""
    propensity = np.empty(len(fold))
    for k in np.unique(fold):
        rows = np.flatnonzero(fold == k)
        propensity[rows] = predict(int(k), rows)
    return propensity


def _require_segments(chosen: Calibrator, segments: Sequence[str]) -> None:
    """An error for a calibrator that reads segments and is given none, or reads none and is given some."""
    require(
        not chosen.reads_features or bool(segments),
        f"{chosen.name} reads columns of segments, and none is named",
        "name some (segments=, --segment COLUMN), or use platt",
    )
    require(
        chosen.reads_features or not segments,
        f"{chosen.name} reads scores alone: segments have no effect",
        "leave them out, or use multicalibrated",
    )


def _calibrated_by_segment(
    files: Sequence[Source],
    roles: Roles,
    chosen: Calibrator,
    *,
    folds: int,
    seed: int,
    p_min: Clip,
    progress: Progress,
) -> _Weighing:
    """Scores that are there, calibrated out of fold by a calibrator that reads segments."""
    assert isinstance(chosen, Multicalibrated)
    sketches, tables, sample = read(
        files, roles, folds=folds, seed=seed, most_kept=MOST_KEPT, progress=progress
    )
    assert sample is not None
    kept = sample.rows()

    def features_of(rows: NDArray[Any]) -> dict[str, NDArray[np.int32]]:
        return {table.column: code[rows] for table, code in zip(tables, kept.code, strict=True)}

    fitted, probability = [], np.empty(len(kept.score))
    for fold in range(folds):
        others, out = kept.fold != fold, kept.fold == fold
        clone = chosen.clone().set_params(segments=None)
        clone.fit(kept.score[others], kept.outcome[others], kept.weight[others], features=features_of(others))
        probability[out] = clone.predict(kept.score[out], features_of(out))
        fitted.append(clone)

    def assign(batch: FileBatch) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
        (scores,) = number_columns(batch, [roles.score])
        fold = fold_of_rows(batch.start, len(scores), folds, seed)
        codes = {table.column: table.codes(batch.record.column(table.column)) for table in tables}

        def predict(k: int, rows: NDArray[np.int64]) -> NDArray[np.float64]:
            return fitted[k].predict(scores[rows], {name: code[rows] for name, code in codes.items()})

        return _out_of_fold(fold, predict), fold

    calibrated = CalibrationSketch.of(score=probability, outcome=kept.outcome, weight=kept.weight)
    clip = _clip_of(calibrated, p_min)
    return _Weighing(assign, WeightsResult(0, folds, tuple(fitted), sketches.all(), calibrated, clip))


def train_weights(
    paths: Paths,
    out: str | Path,
    *,
    user: str,
    item: str,
    outcome: str | None = None,
    propensity: str = "auto",
    features: Wanted | None = None,
    ignore: Sequence[str] = (),
    allow_leak: Sequence[str] = (),
    calibrator: str | Calibrator = "platt",
    folds: int = FOLDS,
    p_min: Clip = DEFAULT_P_MIN,
    seed: int = 0,
    device: str = "auto",
    stream: bool | None = None,
    overwrite: bool = False,
    progress: Progress = SILENT,
) -> WeightsResult:
    """Train a cross-fitted propensity on the rows, and write it beside them as :func:`write_weights` does.

    .. math:: \\tilde p_{ui} = q^{(-k)}(g^{(-k)}(u, i)), \\qquad k = \\text{fold of the pair } (u, i)

    Network and calibrator of each row never saw its pair. The fold is a hash of the pair's ids and the seed:
    all rows of a pair share it, and another order of the rows changes nothing. Where ``outcome`` holds zeros
    the rows are the population (the space ``"impressions"``); where it is left out, or 1 on every row, it is
    all pairs of a user and an item (``"matrix"``), and a pair that is listed twice is one cell.

    Parameters
    ----------
    user, item, outcome
        Columns: ids, and whether the row was clicked.
    propensity
        ``"auto"`` (:func:`unskew.choose_propensity` among logistic regression, popularity and NeuMF, or DCN
        with features), or a name (:func:`unskew.propensity.make_propensity`).
    features, ignore
        What it reads beside the ids, as in :meth:`unskew.Log.from_frame`: position and context too.
    allow_leak
        Features that may give the click away (:func:`unskew.check_leaks`).
    device
        ``"auto"``, ``"cpu"`` or ``"cuda"``.
    stream
        Whether rows of impressions in Parquet files are read in parts instead of into memory; None streams
        those that would take more than a quarter of what is free.
    """
    target, files, schema = prepared(paths, out, p_min=p_min, overwrite=overwrite, outcome=outcome)
    named = [user, item] if outcome is None else [user, item, outcome]
    require_columns(named, schema.names, files[0])
    if len(set(named)) < len(named):
        raise ParameterError("user, item and outcome must be different columns", remedy="name three columns")
    columns = {"user": user, "item": item, "click": outcome}
    log = _log(files, columns, stream, progress, features=features, ignore=ignore)
    sample = _sampled(log)
    require_no_leaks(sample, allow_leak)
    weighing = _trained(
        log,
        sample,
        (user, item),
        propensity,
        make_calibrator(calibrator),
        folds=folds,
        seed=seed,
        p_min=p_min,
        training={"device": device, "progress": progress},
    )
    # A CSV file gives the outcome as numbers, and Parquet as it is: clicks may be the texts 0 and 1 there.
    numbers = [outcome] if outcome is not None and holds_numbers(schema.field(outcome).type) else []
    clip = weighing.result.p_min
    rows = write_with(files, target, schema, weighing.assign, p_min=clip, numbers=numbers, progress=progress)
    return replace(weighing.result, rows=rows)


def _trained(
    log: Log | StreamedLog,
    sample: Log,
    ids: tuple[str, str],
    propensity: str,
    chosen: Calibrator,
    *,
    folds: int,
    seed: int,
    p_min: Clip,
    training: Mapping[str, Any],
) -> _Weighing:
    """A propensity trained on a log, for batches of its rows; of a stream it is chosen on a sample."""
    from unskew.io.columns import column_of, frame_of
    from unskew.propensity import choose_propensity, make_propensity
    from unskew.propensity.choice import rows_to_fit

    shared = {"calibrator": None if chosen.name == "none" else chosen, "crossfit": folds}
    if propensity == "auto":
        network = "neumf" if log.features is None else "dcn"
        candidates = {name: make_propensity(name, **shared) for name in ("logistic", "popularity", network)}
        chosen_one = choose_propensity(sample, candidates, seed=seed, **training)
        fitted, sentence = chosen_one.propensity, chosen_one.sentence
        unfitted = None if log is sample else candidates[chosen_one.name]
    else:
        unfitted = make_propensity(propensity, **shared)
        fitted, sentence = unfitted, f"propensity by {propensity}"
    if unfitted is not None:
        rows = rows_to_fit(unfitted, log)
        fitted = unfitted.fit(rows, seeds=[seed], **training)
        if len(rows) < len(log):
            sentence += f"; fitted on {len(rows):,} of {len(log):,} rows"
    # Without features, ids tell all. With them, of impressions the rows of the log are those of the files.
    by_row = log.features is not None and log.space == "impressions"
    of_rows = fitted.predict_each(log)[0] if by_row and log is sample else None

    def assign(batch: FileBatch) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
        frame = frame_of(pa.table({name: batch.record.column(name) for name in ids}))
        users, items = (column_of(frame, name) for name in ids)
        fold = fitted.fold_of_pairs_each(users, items)[0].astype(np.int8)
        if of_rows is not None:
            return of_rows[batch.start : batch.start + batch.record.num_rows], fold
        if by_row:
            return fitted.predict_frame_each(pa.Table.from_batches([batch.record]))[0], fold
        return fitted.predict_pairs_each(users, items)[0], fold

    (raw,), (calibrated,) = (fitted.held_out_sketches(calibrated=which) for which in (False, True))
    calibrators = tuple(c if c is not None else chosen.clone().fit(raw) for c in fitted.calibrators_)
    clip = _clip_of(calibrated, p_min)
    return _Weighing(assign, WeightsResult(0, folds, calibrators, raw, calibrated, clip, sentence))


def weights(
    frame: Any,
    *,
    score: str | None = None,
    outcome: str | None = None,
    user: str | None = None,
    item: str | None = None,
    sample_weight: str | None = None,
    propensity: str = "auto",
    features: Wanted | None = None,
    ignore: Sequence[str] = (),
    allow_leak: Sequence[str] = (),
    calibrator: str | Calibrator = "platt",
    segments: Sequence[str] = (),
    folds: int = FOLDS,
    p_min: Clip = DEFAULT_P_MIN,
    seed: int = 0,
    device: str = "auto",
    progress: Progress = SILENT,
) -> Any:
    """A data frame with calibrated propensities and weights, as ``unskew weights`` adds them to files.

    With ``score`` that column is calibrated out of fold (:func:`unskew.audit.write_weights`); without it a
    propensity is trained on ``user``, ``item`` and ``outcome``
    (:func:`unskew.audit.weights.train_weights`).

    Parameters
    ----------
    frame
        pandas, polars, Arrow, …
    score, outcome, user, item, sample_weight
        Names of columns.
    propensity
        Without ``score``: ``"auto"`` or a name (:func:`unskew.propensity.make_propensity`).
    features, ignore, allow_leak
        Without ``score``: what the propensity reads beside the ids, as in :meth:`unskew.Log.from_frame`, and
        which of these may give the click away.
    segments
        With ``score``: columns that the calibrator reads, if it is :class:`unskew.Multicalibrated`. Without,
        it reads ``features``.

    Returns
    -------
    frame
        Of the same kind, its columns and then ``propensity_calibrated``, ``weight``, ``fold``, ``clipped``.

    Examples
    --------
    >>> import pyarrow as pa, unskew as us
    >>> log = pa.table({"p": [0.2, 0.4] * 500, "clicked": [0, 0, 0, 1, 0, 1, 0, 0, 0, 0] * 100})
    >>> weighted = us.weights(log, score="p", outcome="clicked")
    >>> weighted.column_names
    ['p', 'clicked', 'propensity_calibrated', 'weight', 'fold', 'clipped']
    """
    from unskew.io.columns import with_columns

    require_clip(p_min)
    chosen = make_calibrator(calibrator)
    (source,) = sources(frame)
    if not isinstance(source, FrameInMemory):
        raise ParameterError("weights are for data frames", remedy="use unskew.audit.write_weights for files")
    require_free(source.table.schema, source)
    shared: dict[str, Any] = {"folds": folds, "seed": seed, "p_min": p_min}
    if score is not None:
        if outcome is None:
            raise ParameterError("score needs outcome", remedy="name the column of clicks")
        roles = Roles(score, outcome, sample_weight, tuple(dict.fromkeys(segments)))
        _require_segments(chosen, roles.segments)
        weighing = _calibrated([source], roles, chosen, **shared, progress=progress)
        named: tuple[str, ...] = roles.numbers
        columns: Sequence[str] = roles.names
    else:
        require(
            not segments, "segments are of scores that are given", "give score=, or segments as features="
        )
        if user is None or item is None:
            raise ParameterError(
                "there is no propensity", remedy="give score=, or user= and item= to train one"
            )
        training = {"device": device, "progress": progress}
        further = {"features": features, "ignore": ignore}
        log = _log_of_frame(frame, user=user, item=item, outcome=outcome, **further)
        require_no_leaks(log, allow_leak)
        weighing = _trained(log, log, (user, item), propensity, chosen, **shared, training=training)
        named, columns = (), [str(user), str(item)]
    parts = [weighing.assign(batch) for batch in stream([source], columns=columns, numbers=named)]
    p, fold = (np.concatenate(part) for part in zip(*parts, strict=True))
    clip = weighing.result.p_min
    values = (p, 1 / np.maximum(p, clip), fold, p < clip)
    return with_columns(frame, dict(zip((field.name for field in ADDED), values, strict=True)))


def _log(
    files: list[Path],
    columns: Mapping[str, Any],
    streamed: bool | None,
    progress: Progress,
    **further: Any,
) -> Log | StreamedLog:
    from unskew.datasets import read_log
    from unskew.datasets.streams import stream_log

    outcome = columns["click"]
    space = "matrix" if outcome is None or not _has_zero(files, outcome) else "impressions"
    if _is_streamed(files, space, streamed):
        return stream_log(files, **columns, **further, progress=progress)
    duplicates: Literal["max", "error"] = "max" if space == "matrix" else "error"
    return read_log(files, **columns, space=space, duplicates=duplicates, **further)  # type: ignore[arg-type]


def _sampled(log: Log | StreamedLog) -> Log:
    """A log, or rows of a stream at random."""
    from unskew.log import StreamedLog
    from unskew.propensity.choice import SAMPLE_ROWS

    return log.sample(SAMPLE_ROWS) if isinstance(log, StreamedLog) else log


def _has_zero(files: Sequence[Path], outcome: str) -> bool:
    """Whether some row was not clicked: then the rows are the population."""
    batches = stream(files, columns=[outcome], numbers=[])
    return any(_space(pa.Table.from_batches([each.record]), outcome) == "impressions" for each in batches)


def _is_streamed(files: Sequence[Path], space: str, asked: bool | None) -> bool:
    """As was asked for, or where the rows would take too much of the free memory."""
    from unskew.datasets.streams import IN_MEMORY, memory_needed
    from unskew.training.memory import available_memory

    if asked is not None or space == "matrix":
        require(
            space == "impressions" or not asked,
            "clicks alone are not streamed",
            "give rows that were not clicked too, or leave --stream out",
        )
        return bool(asked)
    free = available_memory()
    try:
        return free is not None and memory_needed(files) > IN_MEMORY * free
    except DataError:
        # CSV, or what cannot be read: whoever reads it says so.
        return False


def _log_of_frame(frame: Any, *, user: str, item: str, outcome: str | None, **further: Any) -> Log:
    from unskew.log import Log

    space = _space(frame, outcome)
    duplicates: Literal["max", "error"] = "max" if space == "matrix" else "error"
    columns = {"user": user, "item": item, "click": outcome}
    return Log.from_frame(frame, **columns, space=space, duplicates=duplicates, **further)  # type: ignore[arg-type]


def _space(frame: Any, outcome: str | None) -> Literal["matrix", "impressions"]:
    """The population of clicks: the rows, if some are not clicked."""
    from unskew.io.columns import column_of, frame_of, number_column

    if outcome is None:
        return "matrix"
    # As numbers: the text "0" is no 0 to NumPy, and the rows would not be the population.
    clicks = number_column(column_of(frame_of(frame), outcome), outcome)
    return "impressions" if bool(np.any(clicks == 0)) else "matrix"


def _clip_of(calibrated: CalibrationSketch, p_min: Clip) -> float:
    """The clip as a number; ``"auto"`` is that of the least error for calibrated propensities of clicks."""
    if p_min != "auto":
        return float(p_min)
    figures = weight_figures(calibrated, p_min=p_min)
    if figures is None:
        raise DataError(
            "no clip can be chosen: no row has outcome 1, or one with outcome 1 has propensity 0",
            remedy="give a p_min (--p-min) of your own, or another calibrator",
        )
    return figures.p_min
