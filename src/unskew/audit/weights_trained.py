"""Weights of rows without scores: a propensity is trained on their users, items and clicks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.audit.weights_result import WeightsResult, clip_of
from unskew.base.columns import column_of, frame_of, number_column
from unskew.base.estimator import require
from unskew.base.progress import Progress
from unskew.calibration import Calibrator
from unskew.data.files import ArrowSchema, require_columns
from unskew.data.leaks import require_no_leaks
from unskew.data.stream import FileBatch, stream
from unskew.metrics.weights import Clip

if TYPE_CHECKING:
    from unskew.data import Wanted


@dataclass(frozen=True)
class Trained:
    """The columns that a propensity is trained on where there are no scores, and which propensity.

    Where ``outcome`` holds zeros the rows are the population (the space ``"impressions"``); where it is left
    out, or 1 on every row, it is all pairs of a user and an item (``"matrix"``), and a pair that is listed
    twice is one cell. Network and calibrator of each row never saw its pair: the fold is a hash of the pair's
    ids and the seed, so that another order of the rows changes nothing.

    Attributes
    ----------
    user, item, outcome
        Columns: ids, and whether the row was clicked.
    propensity
        ``"auto"`` (:func:`unskew.choose_propensity` among linear, popularity and NeuMF; with features among
        linear, trees, their blend, popularity and DCN), or a name
        (:func:`unskew.propensity.make_propensity`).
    features, ignore
        What it reads beside the ids, as in :func:`unskew.read_log`: position and context too.
    allow_leak
        Features that may give the click away (:func:`unskew.check_leaks`).
    device
        ``"auto"``, ``"cpu"`` or ``"cuda"``.
    """

    user: str
    item: str
    outcome: str | None = None
    propensity: str = "auto"
    features: Wanted | None = None
    ignore: Sequence[str] = ()
    allow_leak: Sequence[str] = ()
    device: str = "auto"


def trained(
    files: Sequence[Path],
    schema: ArrowSchema,
    columns: Trained,
    chosen: Calibrator,
    folds: int,
    seed: int,
    p_min: Clip,
    progress: Progress,
) -> tuple[Callable[[FileBatch], tuple[NDArray[np.float64], NDArray[np.int8]]], WeightsResult]:
    """Train a propensity on the rows of files; return what weighs a batch of them, and the figures."""
    from unskew.data.read import read_log
    from unskew.propensity import choose_propensity, default_candidates, make_propensity

    user, item, outcome = columns.user, columns.item, columns.outcome
    named = [user, item] if outcome is None else [user, item, outcome]
    require_columns(named, schema.names, files[0])
    require(len(set(named)) == len(named), "user, item and outcome must be different columns", "name others")
    matrix = outcome is None or not _has_zero(files, outcome)
    log = read_log(
        files,
        user=user,
        item=item,
        click=outcome,
        space="matrix" if matrix else "impressions",
        duplicates="max" if matrix else "error",
        features=columns.features,
        ignore=columns.ignore,
    )
    require_no_leaks(log, columns.allow_leak)
    shared: dict[str, Any] = {"calibrator": None if chosen.name == "none" else chosen, "crossfit": folds}
    training: dict[str, Any] = {"device": columns.device, "progress": progress}
    if columns.propensity == "auto":
        network = "neumf" if log.features is None else "dcn"
        names = (*default_candidates(log), network)
        candidates = {name: make_propensity(name, **shared) for name in names}
        best = choose_propensity(log, candidates, seed=seed, **training)
        fitted, sentence = best.propensity, best.sentence
    else:
        fitted = make_propensity(columns.propensity, **shared).fit(log, seeds=[seed], **training)
        sentence = f"propensity by {columns.propensity}"
    # Without features, ids tell all. With them, of impressions the rows of the log are those of the files.
    by_row = log.features is not None and log.space == "impressions"
    of_rows = fitted.predict_each(log)[0] if by_row else None

    def assign(batch: FileBatch) -> tuple[NDArray[np.float64], NDArray[np.int8]]:
        frame = frame_of(pa.table({name: batch.record.column(name) for name in (user, item)}))
        users, items = (column_of(frame, name) for name in (user, item))
        fold = fitted.fold_of_pairs_each(users, items)[0].astype(np.int8)
        if of_rows is not None:
            return of_rows[batch.start : batch.start + batch.record.num_rows], fold
        return fitted.predict_pairs_each(users, items)[0], fold

    (raw,), (calibrated,) = (fitted.held_out_sketches(calibrated=which) for which in (False, True))
    calibrators = tuple(c if c is not None else chosen.clone().fit(raw) for c in fitted.calibrators_)
    clip = clip_of(calibrated, p_min)
    return assign, WeightsResult(0, folds, calibrators, raw, calibrated, clip, sentence)


def _has_zero(files: Sequence[Path], outcome: str) -> bool:
    """Return whether some row was not clicked: then the rows are the population."""
    for batch in stream(files, columns=[outcome]):
        # As numbers: the text "0" is no 0 to NumPy, and the rows would not be the population.
        frame = frame_of(pa.Table.from_batches([batch.record]))
        if bool(np.any(number_column(column_of(frame, outcome), outcome) == 0)):
            return True
    return False
