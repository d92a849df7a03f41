"""Calibrated, clipped, cross-fitted propensities and weights, written beside the rows they belong to.

Two passes over the files: the first fills the sketches of the folds, the second maps every row with a
calibrator that was fitted without its fold, and writes it. Without scores, a propensity is trained on users,
items and clicks.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unskew.audit.audit import DEFAULT_P_MIN
from unskew.audit.crossfit import FOLDS, fit_without_each, fold_of_rows, merged
from unskew.audit.reading import read, require_three_columns
from unskew.audit.segment_rows import crossfit_by_segment, out_of_fold
from unskew.audit.weights_files import ADDED, added_columns, prepared, require_free, write_with
from unskew.audit.weights_result import RowWeighing, WeightsResult, clip_of
from unskew.audit.weights_trained import log_of_frame, trained_weighing
from unskew.base.errors import ParameterError
from unskew.base.estimator import require
from unskew.base.progress import SILENT, Progress
from unskew.calibration import DEFAULT, Calibrator, Multicalibrated, make_calibrator
from unskew.data.files import File, FrameInMemory, Paths, files_of
from unskew.data.leaks import require_no_leaks
from unskew.data.stream import FileBatch, Roles, number_columns, stream
from unskew.metrics import CalibrationSketch
from unskew.metrics.clip import Clip, require_clip

if TYPE_CHECKING:
    from unskew.data import Wanted

MOST_KEPT = 1 << 17
"""Rows of each outcome that a calibrator by segment is fitted on."""


def write_weights(
    paths: Paths,
    out: str | Path,
    *,
    score: str,
    outcome: str,
    sample_weight: str | None = None,
    calibrator: str | Calibrator = DEFAULT,
    segments: Sequence[str] = (),
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
    score, outcome, sample_weight
        Columns: a probability in [0, 1], 0 or 1, and (for sampled rows) how many rows a row stands for.
    calibrator
        A name of the registry, or a calibrator; ``"multicalibrated"`` too.
    segments
        Columns that a calibrator reads beside the scores (:class:`unskew.Multicalibrated`), each value as a
        category. It is fitted on at most 131,072 rows of each outcome, drawn by chance and weighted.
    folds, seed
        How rows are dealt: by their number in the files (:mod:`unskew.audit.crossfit`), since scores
        have no ids. Rows in another order are in other folds.
    p_min
        Propensities below are raised to it before they become weights; ``"auto"`` is the clip with the least
        error (:func:`unskew.metrics.least_error_clip`).
    weight_all
        Give rows without a click 1/max(p̃, p_min) too.
    """
    roles = Roles(score, outcome, sample_weight, tuple(dict.fromkeys(segments)))
    require_three_columns(roles)
    chosen = make_calibrator(calibrator)
    _require_segments(chosen, roles.segments)
    target, files, schema = prepared(
        paths, out, p_min=p_min, overwrite=overwrite, numbers=roles.numbers, outcome=outcome
    )
    weighing = _calibrated(files, roles, chosen, folds=folds, seed=seed, p_min=p_min, progress=progress)
    p_min = weighing.result.p_min
    rows = write_with(
        files,
        target,
        schema,
        weighing.assign,
        p_min=p_min,
        clicks=None if weight_all else outcome,
        numbers=roles.numbers,
        progress=progress,
    )
    return replace(weighing.result, rows=rows)


def _calibrated(
    files: Sequence[File],
    roles: Roles,
    chosen: Calibrator,
    *,
    folds: int,
    seed: int,
    p_min: Clip,
    progress: Progress,
) -> RowWeighing:
    """Return the weighing of scores that are there, calibrated out of fold."""
    counted = read(files, roles, folds=folds, seed=seed, most_kept=MOST_KEPT, progress=progress)
    values, fitted = counted.values, list[Any]()
    if counted.sample is None:
        fitted += fit_without_each(chosen, counted.folds)
        pairs = [pair for pair in zip(counted.folds, fitted, strict=True) if pair[0].rows]
        calibrated = merged([sketch.mapped(q.predict(sketch.points().score)) for sketch, q in pairs])
    else:
        assert isinstance(chosen, Multicalibrated)
        kept = counted.sample.rows()
        by_segment, probability = crossfit_by_segment(chosen, kept, list(values), folds)
        fitted += by_segment
        calibrated = CalibrationSketch.of(score=probability, outcome=kept.outcome, weight=kept.weight)

    def assign(batch: FileBatch) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
        (scores,) = number_columns(batch, [roles.score])
        fold = fold_of_rows(batch.start, len(scores), folds, seed)
        codes = {name: of_name.codes(batch.record.column(name)) for name, of_name in values.items()}

        def predict(k: int, rows: NDArray[np.int64]) -> NDArray[np.float64]:
            features = [{name: code[rows] for name, code in codes.items()}] if codes else []
            return np.asarray(fitted[k].predict(scores[rows], *features))

        return out_of_fold(fold, predict), fold

    clip = clip_of(calibrated, p_min)
    return RowWeighing(
        assign, WeightsResult(0, folds, tuple(fitted), merged(counted.folds), calibrated, clip)
    )


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
    calibrator: str | Calibrator = DEFAULT,
    segments: Sequence[str] = (),
    folds: int = FOLDS,
    p_min: Clip = DEFAULT_P_MIN,
    weight_all: bool = False,
    seed: int = 0,
    device: str = "auto",
    progress: Progress = SILENT,
) -> Any:
    """A data frame with calibrated propensities and weights, as ``unskew weights`` adds them to files.

    With ``score`` that column is calibrated out of fold (:func:`unskew.audit.write_weights`); without it a
    propensity is trained on ``user``, ``item`` and ``outcome``
    (:func:`unskew.audit.weights_trained.train_weights`).

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
    weight_all
        Give rows without a click 1/p too, where their weight is 0 otherwise.

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
    from unskew.base.columns import with_columns

    require_clip(p_min)
    chosen = make_calibrator(calibrator)
    (source,) = files_of(frame)
    if not isinstance(source, FrameInMemory):
        raise ParameterError("weights are for data frames", remedy="use unskew.audit.write_weights for files")
    require_free(source.frame.columns, source)
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
        log = log_of_frame(frame, user=user, item=item, outcome=outcome, **further)
        require_no_leaks(log, allow_leak)
        weighing = trained_weighing(log, (user, item), propensity, chosen, **shared, training=training)
        named, columns = (), [name for name in (user, item, outcome) if name is not None]
    clicks = None if weight_all else outcome
    batches = [
        added_columns(batch, weighing.assign, p_min=weighing.result.p_min, clicks=clicks)
        for batch in stream([source], columns=columns, numbers=named)
    ]
    values = map(np.concatenate, zip(*batches, strict=True))
    return with_columns(frame, dict(zip((field.name for field in ADDED), values, strict=True)))
