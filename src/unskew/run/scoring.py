"""Predictions of a run for the pairs of files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unskew.datasets.dataset import errors_name
from unskew.debias import Debiaser, load_model
from unskew.errors import DataError, RunFolderError
from unskew.io.columns import frame_of
from unskew.io.files import NewFile, whole_file
from unskew.io.tables import Paths, read_table
from unskew.propensity import load_propensity
from unskew.propensity.propensity import BasePropensity
from unskew.training.reader import Unseen
from unskew.training.saved import SavedFolder

ADDED = ("conversion", "conversion_std", "propensity", "unseen_user", "unseen_item")
GIVEN = "given_"
"""What stands before the name of a column of the files that is called as one of these."""


def score_pairs(
    run: Path,
    pairs: Paths,
    out: Path | NewFile,
    *,
    user: str | None = None,
    item: str | None = None,
    method: str | None = None,
    unseen: Unseen | None = None,
    device: str = "auto",
) -> int:
    """Write the rows of ``pairs`` with conversion, its spread over seeds and the propensity; count them.

    A model that reads features reads them from the files; users and items that it does not know are marked
    in ``unseen_user`` and ``unseen_item``, also by ``unseen="average"`` and ``"nan"``.

    Other columns are carried along. A log holds conversions that were seen: a column that is called as one of
    those that are added becomes ``given_conversion``.
    """
    saved = SavedFolder(run)
    has_model = method is not None or bool(saved.config.get("methods"))
    model = load_model(saved, method, device=device) if has_model else None
    propensity = load_propensity(saved, device=device)
    known = model or propensity
    if known is None:
        raise RunFolderError(
            "holds neither a conversion model nor a propensity that could be saved",
            where=str(run),
            remedy="give another run",
        )
    table = read_table(pairs, numbers=_numbers(model, propensity))
    place = str(pairs) if isinstance(pairs, str | Path) else ", ".join(map(str, pairs))
    with errors_name(place):
        frame = frame_of(table)
        reader = known.reader()
        policy = reader.policy(unseen)
        asked = reader.of_frame(frame, user, item, policy)
        each = None if model is None else reader.predictions(asked, policy, model.predict_rows)
        p = None
        if propensity is not None:
            of_propensity = policy if propensity.reads_features == known.reads_features else None
            if of_propensity is None and policy == "other":
                of_propensity = "average"
            p = propensity.predict_frame_each(frame, user=user, item=item, unseen=of_propensity).mean(axis=0)
    table = table.rename_columns(_carried(table.column_names, place))
    if each is not None:
        spread = each.std(axis=0, ddof=1) if len(each) > 1 else np.full(each.shape[1], np.nan)
        table = table.append_column("conversion", pa.array(each.mean(axis=0)))
        table = table.append_column("conversion_std", pa.array(spread))
    if p is not None:
        table = table.append_column("propensity", pa.array(p))
    if policy != "error":
        table = table.append_column("unseen_user", pa.array(asked.unseen_user))
        table = table.append_column("unseen_item", pa.array(asked.unseen_item))
    with whole_file(out) as beside:
        pq.write_table(table, beside)
    return len(table)


def _numbers(*models: Debiaser | BasePropensity | None) -> set[str]:
    """Columns of CSV files that models read as numbers."""
    return {
        encoder.feature.source
        for model in models
        if model is not None and model.encoders_ is not None
        for encoder in model.encoders_.encoders
        if encoder.field.kind == "number"
    }


def _carried(names: Sequence[str], place: str) -> list[str]:
    """What columns of the files are called beside the added ones."""
    carried = [f"{GIVEN}{name}" if name in ADDED else name for name in names]
    twice = next((name for name in carried if carried.count(name) > 1), None)
    if twice is not None:
        raise DataError(
            f"column '{twice}' is there already",
            where=place,
            remedy=f"rename it, or leave out '{twice.removeprefix(GIVEN)}'",
        )
    return carried
