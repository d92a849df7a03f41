"""Weights of rows without scores: a propensity is trained on their users, items and clicks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.audit.audit import DEFAULT_P_MIN
from unskew.audit.crossfit import FOLDS
from unskew.audit.weights_files import prepared, write_with
from unskew.audit.weights_result import RowWeighing, WeightsResult, clip_of
from unskew.base.errors import ParameterError
from unskew.base.progress import SILENT, Progress
from unskew.calibration import DEFAULT, Calibrator, make_calibrator
from unskew.data.files import Paths, require_columns
from unskew.data.leaks import require_no_leaks
from unskew.data.stream import FileBatch, holds_numbers, stream
from unskew.metrics.clip import Clip

if TYPE_CHECKING:
    from unskew.data import Log, Wanted


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
    calibrator: str | Calibrator = DEFAULT,
    folds: int = FOLDS,
    p_min: Clip = DEFAULT_P_MIN,
    weight_all: bool = False,
    seed: int = 0,
    device: str = "auto",
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
        ``"auto"`` (:func:`unskew.choose_propensity` among linear, popularity and NeuMF; with features among
        linear, trees, their blend, popularity and DCN), or a name
        (:func:`unskew.propensity.make_propensity`).
    features, ignore
        What it reads beside the ids, as in :meth:`unskew.Log.from_frame`: position and context too.
    allow_leak
        Features that may give the click away (:func:`unskew.check_leaks`).
    weight_all
        Give rows without a click 1/p too, where their weight is 0 otherwise.
    device
        ``"auto"``, ``"cpu"`` or ``"cuda"``.
    """
    from unskew.data.datasets import read_log

    target, files, schema = prepared(paths, out, p_min=p_min, overwrite=overwrite, outcome=outcome)
    named = [user, item] if outcome is None else [user, item, outcome]
    require_columns(named, schema.names, files[0])
    if len(set(named)) < len(named):
        raise ParameterError("user, item and outcome must be different columns", remedy="name three columns")
    columns: dict[str, Any] = {"user": user, "item": item, "click": outcome}
    matrix = outcome is None or not _has_zero(files, outcome)
    log = read_log(
        files,
        **columns,
        space="matrix" if matrix else "impressions",
        duplicates="max" if matrix else "error",
        features=features,
        ignore=ignore,
    )
    require_no_leaks(log, allow_leak)
    weighing = trained_weighing(
        log,
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
    rows = write_with(
        files,
        target,
        schema,
        weighing.assign,
        p_min=weighing.result.p_min,
        clicks=None if weight_all else outcome,
        numbers=numbers,
        progress=progress,
    )
    return replace(weighing.result, rows=rows)


def trained_weighing(
    log: Log,
    ids: tuple[str, str],
    propensity: str,
    chosen: Calibrator,
    *,
    folds: int,
    seed: int,
    p_min: Clip,
    training: Mapping[str, Any],
) -> RowWeighing:
    """Train a propensity on a log, and return its weighing of batches of the rows."""
    from unskew.base.columns import column_of, frame_of
    from unskew.propensity import choose_propensity, default_candidates, make_propensity

    shared = {"calibrator": None if chosen.name == "none" else chosen, "crossfit": folds}
    if propensity == "auto":
        network = "neumf" if log.features is None else "dcn"
        names = (*default_candidates(log), network)
        candidates = {name: make_propensity(name, **shared) for name in names}
        chosen_one = choose_propensity(log, candidates, seed=seed, **training)
        fitted, sentence = chosen_one.propensity, chosen_one.sentence
    else:
        fitted = make_propensity(propensity, **shared).fit(log, seeds=[seed], **training)
        sentence = f"propensity by {propensity}"
    # Without features, ids tell all. With them, of impressions the rows of the log are those of the files.
    by_row = log.features is not None and log.space == "impressions"
    of_rows = fitted.predict_each(log)[0] if by_row else None

    def assign(batch: FileBatch) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
        frame = frame_of(pa.table({name: batch.record.column(name) for name in ids}))
        users, items = (column_of(frame, name) for name in ids)
        fold = fitted.fold_of_pairs_each(users, items)[0].astype(np.int8)
        if of_rows is not None:
            return of_rows[batch.start : batch.start + batch.record.num_rows], fold
        return fitted.predict_pairs_each(users, items)[0], fold

    (raw,), (calibrated,) = (fitted.held_out_sketches(calibrated=which) for which in (False, True))
    calibrators = tuple(c if c is not None else chosen.clone().fit(raw) for c in fitted.calibrators_)
    clip = clip_of(calibrated, p_min)
    return RowWeighing(assign, WeightsResult(0, folds, calibrators, raw, calibrated, clip, sentence))


def _has_zero(files: Sequence[Path], outcome: str) -> bool:
    """Whether some row was not clicked: then the rows are the population."""
    batches = stream(files, columns=[outcome], numbers=[])
    return any(_space(pa.Table.from_batches([each.record]), outcome) == "impressions" for each in batches)


def log_of_frame(frame: Any, *, user: str, item: str, outcome: str | None, **further: Any) -> Log:
    """Return the log of a data frame, over its rows where some are not clicked; conversions are not read."""
    from unskew.base.columns import frame_of
    from unskew.data import Log

    others = {"click", "conversion"} - {user, item, outcome}
    frame = frame_of(frame).drop(*others, strict=False).to_native()
    space = _space(frame, outcome)
    duplicates: Literal["max", "error"] = "max" if space == "matrix" else "error"
    columns = {"user": user, "item": item, "click": outcome}
    return Log.from_frame(frame, **columns, space=space, duplicates=duplicates, **further)  # type: ignore[arg-type]


def _space(frame: Any, outcome: str | None) -> Literal["matrix", "impressions"]:
    """The population of clicks: the rows, if some are not clicked."""
    from unskew.base.columns import column_of, frame_of, number_column

    if outcome is None:
        return "matrix"
    # As numbers: the text "0" is no 0 to NumPy, and the rows would not be the population.
    clicks = number_column(column_of(frame_of(frame), outcome), outcome)
    return "impressions" if bool(np.any(clicks == 0)) else "matrix"
