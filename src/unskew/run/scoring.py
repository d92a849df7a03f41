"""Predictions of a run for the pairs of a file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unskew.datasets.dataset import errors_name
from unskew.debias import load_model
from unskew.errors import DataError
from unskew.io.columns import column_of, frame_of
from unskew.io.files import NewFile, whole_file
from unskew.io.tables import read_table
from unskew.io.vocabulary import Unseen
from unskew.propensity import load_propensity
from unskew.training.saved import SavedFolder

ADDED = ("conversion", "conversion_std", "propensity")


def score_pairs(
    run: Path,
    pairs: Path,
    out: Path | NewFile,
    *,
    user: str | None = None,
    item: str | None = None,
    method: str | None = None,
    unseen: Unseen = "error",
    device: str = "auto",
) -> int:
    """Write the rows of ``pairs`` with conversion, its spread over seeds and the propensity; count them."""
    saved = SavedFolder(run)
    model = load_model(saved, method, device=device)
    propensity = load_propensity(saved, device=device)
    table = read_table(pairs)
    taken = [name for name in ADDED if name in table.column_names]
    if taken:
        raise DataError(
            f"column '{taken[0]}' is there already",
            where=str(pairs),
            remedy="rename it; unskew score adds a column of that name",
        )
    with errors_name(pairs):
        frame = frame_of(table)
        users = column_of(frame, user or model.users_.name)
        items = column_of(frame, item or model.items_.name)
        each = model.predict_pairs_each(users, items, unseen=unseen)
    spread = each.std(axis=0, ddof=1) if len(each) > 1 else np.full(each.shape[1], np.nan)
    table = table.append_column("conversion", pa.array(each.mean(axis=0)))
    table = table.append_column("conversion_std", pa.array(spread))
    if propensity is not None:
        p = propensity.predict_pairs_each(users, items, unseen=unseen).mean(axis=0)
        table = table.append_column("propensity", pa.array(p))
    with whole_file(out) as beside:
        pq.write_table(table, beside)
    return len(table)
