"""Calibrated, clipped, cross-fitted propensities and weights, written beside the rows they belong to.

Two passes over the rows: the first fills the cells of the folds, the second maps every row with a calibrator
that was fitted without its fold, and writes it. Without scores, a propensity is trained on users, items and
clicks (``weights_trained``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.audit.audit import DEFAULT_P_MIN
from unskew.audit.by_segment import crossfit_by_segment, out_of_fold
from unskew.audit.crossfit import FOLDS, fit_without_each, fold_of_rows, mapped, merged
from unskew.audit.reading import read, require_three_columns
from unskew.audit.weights_result import WeightsResult, clip_of
from unskew.audit.weights_trained import Trained, trained
from unskew.base.columns import column_of, frame_of, number_column, with_columns
from unskew.base.errors import DataError, ParameterError
from unskew.base.estimator import require
from unskew.base.progress import SILENT, Progress
from unskew.calibration import DEFAULT, Calibrator, Multicalibrated, make_calibrator
from unskew.data.files import File, FrameInMemory, Paths, expand_paths, files_of
from unskew.data.row_files import check_rows_target, rows_writer
from unskew.data.stream import (
    FileBatch,
    Roles,
    cast_columns,
    holds_numbers,
    number_columns,
    stream,
    tracked,
    united_schema,
)
from unskew.metrics import CalibrationSketch
from unskew.metrics.weights import Clip, require_clip

ADDED = (
    pa.field("propensity_calibrated", pa.float64()),
    pa.field("weight", pa.float64()),
    pa.field("fold", pa.int8()),
    pa.field("clipped", pa.bool_()),
)
"""The columns that are added, in this order."""

SPREAD = ("propensity_calibrated", "weight")
"""Those of which hardly two values are the same."""

MOST_KEPT = 1 << 17
"""Rows of each outcome that a calibrator by segment is fitted on."""


class RowWeighing(NamedTuple):
    """How rows get their weights, and what is known of them before any is written.

    ``assign`` gives calibrated propensities and folds of the rows of a batch.
    """

    assign: Callable[[FileBatch], tuple[NDArray[np.float64], NDArray[np.int8]]]
    result: WeightsResult


def write_weights(
    paths: Paths,
    out: str | Path,
    columns: Roles | Trained,
    *,
    calibrator: str | Calibrator = DEFAULT,
    folds: int = FOLDS,
    p_min: Clip = DEFAULT_P_MIN,
    weight_all: bool = False,
    seed: int = 0,
    overwrite: bool = False,
    progress: Progress = SILENT,
) -> WeightsResult:
    """Add calibrated propensities and weights to rows; the same rows, in the same order, in Parquet.

    .. math:: \\tilde p_i = q^{(-k_i)}(\\hat p_i), \\qquad w_i = \\frac{o_i}{\\max(\\tilde p_i, p_{\\min})}

    k_i is row i's ``fold`` and q^(−k) the calibrator fitted on the rows of all other folds, so that no row
    has a say in its own weight. ``clipped`` says where p̃ is below ``p_min``. Rows without a click have weight
    0, as in :func:`unskew.sample_weight`: an estimate over the population sums w·loss. p̃ is in the column
    ``propensity_calibrated`` of every row.

    Parameters
    ----------
    paths
        CSV and Parquet files, folders and globs of them, or several of these, with the same columns.
    out
        The Parquet file to write, or a folder of part files (its name ends in a slash or has no suffix); it
        appears when it is whole.
    columns
        ``Roles(score, outcome, weight, segments)``: a probability in [0, 1], 0 or 1, (for sampled rows) how
        many rows a row stands for, and columns that :class:`unskew.Multicalibrated` reads beside the score,
        fitted on at most 131,072 rows of each outcome. Or :class:`unskew.audit.Trained` to train a
        propensity.
    calibrator
        A name of the registry, or a calibrator; ``"multicalibrated"`` too.
    folds, seed
        How rows are dealt: by their number in the files (:mod:`unskew.audit.crossfit`), since scores
        have no ids. Rows in another order are in other folds. Rows of a trained propensity: by their ids.
    p_min
        Propensities below are raised to it before they become weights; ``"auto"`` is the clip with the least
        error (:func:`unskew.metrics.least_error_clip`).
    weight_all
        Give rows without a click 1/max(p̃, p_min) too.
    """
    require_clip(p_min)
    chosen = make_calibrator(calibrator)
    target = check_rows_target(out, overwrite=overwrite)
    files = expand_paths(paths)
    numbers = columns.numbers if isinstance(columns, Roles) else ()
    guessed = () if columns.outcome is None else (columns.outcome,)
    schema = united_schema(files, numbers=numbers, guessed=guessed)
    _require_free(schema.names, files[0])
    if isinstance(columns, Roles):
        weighing = _calibrated(files, columns, chosen, folds, seed, p_min, progress)
    else:
        weighing = RowWeighing(*trained(files, schema, columns, chosen, folds, seed, p_min, progress))
    # A CSV file gives the outcome as numbers, and Parquet as it is: clicks may be the texts 0 and 1 there.
    numbers = tuple(name for name in (*numbers, *guessed) if holds_numbers(schema.field(name).type))
    clicks = None if weight_all else columns.outcome
    number_of: dict[File, int] = {file: number for number, file in enumerate(files)}
    try:
        with rows_writer(target, pa.schema([*schema, *ADDED], schema.metadata), plain=SPREAD) as writer:
            batches = stream(files, columns=None, numbers=list(dict.fromkeys(numbers)))
            for batch in tracked(batches, progress, "writing"):
                values = zip(ADDED, _added(batch, weighing, clicks), strict=True)
                added = [pa.array(column, type=field.type) for field, column in values]
                writer.write(cast_columns(batch, schema) + added, number_of[batch.file])
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError) as error:
        raise DataError(
            f"cannot be written as Parquet: {error}",
            where=str(files[0]),
            remedy="leave out the column, or write it with another type",
        ) from error
    return replace(weighing.result, rows=writer.rows)


def weights(
    frame: Any,
    *,
    score: str,
    outcome: str,
    sample_weight: str | None = None,
    segments: Sequence[str] = (),
    calibrator: str | Calibrator = DEFAULT,
    folds: int = FOLDS,
    p_min: Clip = DEFAULT_P_MIN,
    weight_all: bool = False,
    seed: int = 0,
) -> Any:
    """Add calibrated propensities and weights to a data frame, as ``unskew weights`` adds them to files.

    Without scores, fit a propensity on the log (:class:`unskew.Propensity`).

    Parameters
    ----------
    frame
        pandas, polars, Arrow, …
    score, outcome, sample_weight, segments
        Names of columns, as ``columns`` of :func:`unskew.audit.write_weights`.
    calibrator, folds, p_min, weight_all, seed
        As there.

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
    require_clip(p_min)
    (source,) = files_of(frame)
    if not isinstance(source, FrameInMemory):
        raise ParameterError("weights are for data frames", remedy="use unskew.audit.write_weights for files")
    _require_free(source.frame.columns, source)
    roles = Roles(score, outcome, sample_weight, tuple(dict.fromkeys(segments)))
    weighing = _calibrated([source], roles, make_calibrator(calibrator), folds, seed, p_min, SILENT)
    clicks = None if weight_all else outcome
    batches = stream([source], columns=roles.names, numbers=roles.numbers)
    columns = zip(*(_added(batch, weighing, clicks) for batch in batches), strict=True)
    names = (field.name for field in ADDED)
    return with_columns(frame, dict(zip(names, map(np.concatenate, columns), strict=True)))


def _calibrated(
    files: Sequence[File],
    roles: Roles,
    chosen: Calibrator,
    folds: int,
    seed: int,
    p_min: Clip,
    progress: Progress,
) -> RowWeighing:
    """Return the weighing of scores that are there, calibrated out of fold."""
    require_three_columns(roles)
    require(
        not chosen.reads_features or bool(roles.segments),
        f"{chosen.name} reads columns of segments, and none is named",
        "name some (segments=, --segments COLUMN), or use platt",
    )
    require(
        chosen.reads_features or not roles.segments,
        f"{chosen.name} reads scores alone: segments have no effect",
        "leave them out, or use multicalibrated",
    )
    counted = read(files, roles, folds=folds, seed=seed, most_kept=MOST_KEPT, progress=progress)
    values, fitted = counted.values, list[Any]()
    if counted.sample is None:
        fitted += fit_without_each(chosen, counted.folds)
        calibrated = mapped(counted.folds, fitted)
    else:
        assert isinstance(chosen, Multicalibrated)
        sampled = counted.sample.rows()
        by_segment, probability = crossfit_by_segment(chosen, sampled, list(values), folds)
        fitted += by_segment
        calibrated = CalibrationSketch.of(probability, sampled.outcome, sampled.weight)

    def assign(batch: FileBatch) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
        (scores,) = number_columns(batch, [roles.score])
        fold = fold_of_rows(batch.start, len(scores), folds, seed)
        codes = {name: of_name.codes(batch.record.column(name)) for name, of_name in values.items()}

        def predict(k: int, rows: NDArray[np.int64]) -> NDArray[np.float64]:
            features = [{name: code[rows] for name, code in codes.items()}] if codes else []
            return np.asarray(fitted[k].predict(scores[rows], *features))

        return out_of_fold(fold, predict), fold

    clip = clip_of(calibrated, p_min)
    result = WeightsResult(0, folds, tuple(fitted), merged(counted.folds), calibrated, clip)
    return RowWeighing(assign, result)


def _added(batch: FileBatch, weighing: RowWeighing, clicks: str | None) -> tuple[NDArray[Any], ...]:
    """Return the columns of :data:`ADDED` for the rows of a batch.

    The weight is o/max(p̃, p_min), o from the column ``clicks``; None gives every row 1/max(p̃, p_min).
    """
    propensity, fold = weighing.assign(batch)
    p_min = weighing.result.p_min
    weight = 1 / np.maximum(propensity, p_min)
    if clicks is not None:
        if holds_numbers(batch.record.schema.field(clicks).type):
            weight *= number_columns(batch, [clicks])[0]
        else:
            frame = frame_of(pa.Table.from_batches([batch.record.select([clicks])]))
            weight *= number_column(column_of(frame, clicks), clicks)
    return propensity, weight, fold, propensity < p_min


def _require_free(names: Sequence[str], source: File) -> None:
    """Raise an error for a column that is called as an added one."""
    taken = next((field.name for field in ADDED if field.name in names), None)
    if taken is not None:
        raise DataError(
            f"column '{taken}' is there already",
            where=str(source),
            remedy="rename it; unskew weights adds a column of that name",
        )
