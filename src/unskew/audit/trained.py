"""Weights without scores: a propensity is trained on users, items and clicks, then written as weights."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from unskew.audit.audit import DEFAULT_P_MIN, FOLDS
from unskew.audit.weights import WeightsResult, clip_of, prepared, write_with
from unskew.calibration import Calibrator, make_calibrator
from unskew.datasets import read_log
from unskew.errors import ParameterError
from unskew.io.column_types import holds_numbers
from unskew.io.columns import column_of, frame_of, number_column
from unskew.io.stream import Batch
from unskew.io.tables import Paths, read_table, require_columns
from unskew.metrics.clip import Clip
from unskew.progress import SILENT, Progress

if TYPE_CHECKING:
    from unskew.log import Log
    from unskew.propensity import Propensity


def train_weights(
    paths: Paths,
    out: str | Path,
    *,
    user: str,
    item: str,
    outcome: str | None = None,
    calibrator: str | Calibrator = "platt",
    folds: int = FOLDS,
    p_min: Clip = DEFAULT_P_MIN,
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
    device
        ``"auto"``, ``"cpu"`` or ``"cuda"``.
    """
    target, files, schema = prepared(paths, out, p_min=p_min, overwrite=overwrite, outcome=outcome)
    named = [user, item] if outcome is None else [user, item, outcome]
    require_columns(named, schema.names, files[0])
    if len(set(named)) < len(named):
        raise ParameterError("user, item and outcome must be different columns", remedy="name three columns")
    from unskew.propensity import Propensity

    log = _log(files, user=user, item=item, outcome=outcome)
    chosen = make_calibrator(calibrator)
    propensity = Propensity(calibrator=None if chosen.name == "none" else chosen, crossfit=folds)
    propensity.fit(log, seeds=[seed], device=device, progress=progress)
    p, fold = _out_of_fold(propensity, files, user, item)

    def assign(batch: Batch) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
        rows = slice(batch.start, batch.start + batch.record.num_rows)
        return p[rows], fold[rows]

    # A CSV file gives the outcome as numbers, and Parquet as it is: clicks may be the texts 0 and 1 there.
    numbers = [outcome] if outcome is not None and holds_numbers(schema.field(outcome).type) else []
    (raw,), (calibrated,) = (propensity.held_out_sketches(calibrated=which) for which in (False, True))
    clip = clip_of(calibrated, p_min)
    rows = write_with(files, target, schema, assign, p_min=clip, numbers=numbers, progress=progress)
    fitted = tuple(c if c is not None else chosen.clone().fit(raw) for c in propensity.calibrators_)
    return WeightsResult(rows, folds, fitted, raw, calibrated, clip)


def _log(files: list[Path], *, user: str, item: str, outcome: str | None) -> Log:
    columns: dict[str, Any] = {"user": user, "item": item, "click": outcome}
    space: Literal["matrix", "impressions"] = "matrix"
    if outcome is not None:
        given = column_of(frame_of(read_table(files, [outcome], numbers=[outcome])), outcome)
        # As numbers: the text "0" is no 0 to NumPy, and the rows would not be the population.
        space = "impressions" if bool(np.any(number_column(given, outcome) == 0)) else "matrix"
    return read_log(files, **columns, space=space, duplicates="max" if space == "matrix" else "error")


def _out_of_fold(
    propensity: Propensity, files: list[Path], user: str, item: str
) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
    """Propensity and fold of every row of the files, in order."""
    frame = frame_of(read_table(files, [user, item]))
    users, items = column_of(frame, user), column_of(frame, item)
    p = propensity.predict_pairs_each(users, items)
    return p[0], propensity.fold_of_pairs_each(users, items)[0].astype(np.int8)
