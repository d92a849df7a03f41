"""Predictions of a run for the pairs of files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unskew.datasets.dataset import errors_name
from unskew.debias import Debiaser, load_model
from unskew.errors import DataError, RunFolderError
from unskew.io.columns import frame_of, with_columns
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
    scoring = _Scoring.of(run, method, device)
    table = read_table(pairs, numbers=_numbers(scoring.model, scoring.propensity))
    place = str(pairs) if isinstance(pairs, str | Path) else ", ".join(map(str, pairs))
    with errors_name(place):
        added = scoring.columns(table, user, item, unseen)
    table = table.rename_columns(list(_carried(table.column_names, place)))
    for name, values in added.items():
        table = table.append_column(name, pa.array(values))
    with whole_file(out) as beside:
        pq.write_table(table, beside)
    return len(table)


def score(
    run: str | Path,
    frame: Any,
    *,
    user: str | None = None,
    item: str | None = None,
    method: str | None = None,
    unseen: Unseen | None = None,
    device: str = "auto",
) -> Any:
    """A data frame with the predictions of a run for its rows, as ``unskew score`` adds them to files.

    Parameters
    ----------
    run
        A run folder.
    frame
        pandas, polars, Arrow, …
    user, item
        Its columns of ids; by default those of training.
    method
        Which of the run's models; its main one by default.
    unseen
        What becomes of users and items that were not there in training: ``"error"``, ``"nan"``, ``"other"``
        or ``"average"``, as in :meth:`unskew.Debiaser.predict_each`.

    Returns
    -------
    frame
        Of the same kind: its columns (one that is called as an added one becomes ``given_NAME``), and then
        ``conversion``, ``conversion_std`` and ``propensity``.
    """
    added = _Scoring.of(run, method, device).columns(frame, user, item, unseen)
    table = frame_of(frame)
    carried = dict(zip(table.columns, _carried(table.columns, "the data frame"), strict=True))
    return with_columns(table.rename(carried).to_native(), added)


@dataclass(frozen=True)
class _Scoring:
    """What a run folder predicts with: a conversion model, a propensity, or both."""

    model: Debiaser | None
    propensity: BasePropensity | None

    @classmethod
    def of(cls, run: str | Path, method: str | None, device: str) -> _Scoring:
        """Read them from a run folder."""
        saved = SavedFolder(run)
        has_model = method is not None or bool(saved.config.get("methods"))
        model = load_model(saved, method, device=device) if has_model else None
        propensity = load_propensity(saved, device=device)
        if model is None and propensity is None:
            raise RunFolderError(
                "holds neither a conversion model nor a propensity that could be saved",
                where=str(run),
                remedy="give another run",
            )
        return cls(model, propensity)

    def columns(
        self, given: Any, user: str | None, item: str | None, unseen: Unseen | None
    ) -> dict[str, NDArray[Any]]:
        """The columns that are added to a data frame."""
        frame = frame_of(given)
        known = self.model or self.propensity
        assert known is not None
        reader = known.reader()
        policy = reader.policy(unseen)
        asked = reader.of_frame(frame, user, item, policy)
        added: dict[str, NDArray[Any]] = {}
        if self.model is not None:
            each = reader.predictions(asked, policy, self.model.predict_rows)
            added["conversion"] = each.mean(axis=0)
            one = np.full(each.shape[1], np.nan)
            added["conversion_std"] = each.std(axis=0, ddof=1) if len(each) > 1 else one
        if self.propensity is not None:
            of_propensity = policy if self.propensity.reads_features == known.reads_features else None
            if of_propensity is None and policy == "other":
                of_propensity = "average"
            p = self.propensity.predict_frame_each(frame, user=user, item=item, unseen=of_propensity)
            added["propensity"] = p.mean(axis=0)
        if policy != "error":
            added |= {"unseen_user": asked.unseen_user, "unseen_item": asked.unseen_item}
        return added


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
