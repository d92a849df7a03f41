"""Predictions of a run for the pairs of files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.base.columns import frame_of, with_columns
from unskew.base.errors import DataError, RunFolderError
from unskew.base.progress import SILENT, Progress
from unskew.data.files import File, Paths, files_of
from unskew.data.row_files import Target, check_rows_target, rows_writer
from unskew.data.stream import cast_columns, rows_located, stream, tracked, united_schema
from unskew.debias import Debiaser, load_model
from unskew.propensity import load_propensity
from unskew.propensity.propensity import BasePropensity
from unskew.propensity.segments import SegmentReader
from unskew.training.fitted import interval, require_several, spread
from unskew.training.reader import Asked, Reader, Unseen
from unskew.training.saved import SavedFolder

DISAGREEMENT = ("conversion_spread", "conversion_low", "conversion_high")
"""How far members disagree, where it is asked for."""
LEVEL = 0.9
"""Of the limits among them."""
PRODUCT = "click_and_conversion"
"""P(click) · P(conversion | click) of a run that holds both."""
SPREAD = ("conversion", "conversion_std", *DISAGREEMENT, "propensity", PRODUCT)
"""Those of which hardly two values are the same."""
ADDED = (*SPREAD, "unseen_user", "unseen_item")
GIVEN = "given_"
"""What stands before the name of a column of the files that is called as one of these."""


def score_pairs(
    run: Path,
    pairs: Paths,
    out: str | Path | Target,
    *,
    user: str | None = None,
    item: str | None = None,
    method: str | None = None,
    unseen: Unseen | None = None,
    spread: bool = False,
    device: str = "auto",
    progress: Progress = SILENT,
) -> int:
    """Write the rows of ``pairs`` with conversion, its spread, propensity and their product; count them.

    A model that reads features reads them from the files; users and items that it does not know are marked
    in ``unseen_user`` and ``unseen_item``, also by ``unseen="average"`` and ``"nan"``.

    Other columns are carried along. A log holds conversions that were seen: a column that is called as one of
    those that are added becomes ``given_conversion``.

    Rows are read, scored and written batch by batch, in their order: memory does not grow with the files.

    Parameters
    ----------
    out
        A Parquet file, or a folder of part files (its name ends in a slash or has no suffix): those of one
        file of ``pairs`` begin with ``part-`` and its number.
    spread
        Also write how far the members of the model disagree, as in :func:`score`.
    """
    target = check_rows_target(out, overwrite=True) if isinstance(out, str | Path) else out
    files = files_of(pairs)
    scoring = _Scoring.of(run, method, device, spread=spread)
    numbers = _numbers(scoring.model, scoring.propensity)
    schema = united_schema(files, numbers=numbers)
    carried = _carried(schema.names, str(files[0]))
    added = scoring.added(unseen)
    written = pa.schema(
        [pa.field(name, field.type) for name, field in zip(carried, schema, strict=True)] + list(added)
    )
    present = [name for name in numbers if name in schema.names]
    batches = tracked(stream(files, columns=None, numbers=present), progress, "scoring")
    number_of: dict[File, int] = {file: number for number, file in enumerate(files)}
    with rows_writer(target, written, plain=SPREAD) as writer:
        for batch in batches:
            kept = cast_columns(batch, schema)
            with rows_located(batch):
                columns = scoring.columns(pa.table(kept, schema=schema), user, item, unseen, more=True)
            kept += [pa.array(columns[field.name], type=field.type) for field in added]
            writer.write(kept, number_of[batch.file])
    return writer.rows


def score(
    run: str | Path,
    frame: Any,
    *,
    user: str | None = None,
    item: str | None = None,
    method: str | None = None,
    unseen: Unseen | None = None,
    spread: bool = False,
    device: str = "auto",
) -> Any:
    """Return a data frame with the predictions of a run for its rows, as ``unskew score`` adds them to files.

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
    spread
        Also add how far all members of all seeds disagree: ``conversion_spread`` is their standard deviation,
        ``conversion_low`` and ``conversion_high`` are :meth:`unskew.Debiaser.predict_interval` at 90 %.

    Returns
    -------
    frame
        Of the same kind: its columns (one that is called as an added one becomes ``given_NAME``), and then
        ``conversion``, ``conversion_std``, ``propensity`` and their product, ``click_and_conversion``.
    """
    added = _Scoring.of(run, method, device, spread=spread).columns(frame, user, item, unseen)
    table = frame_of(frame)
    carried = dict(zip(table.columns, _carried(table.columns, "the data frame"), strict=True))
    return with_columns(table.rename(carried).to_native(), added)


@dataclass(frozen=True)
class _Scoring:
    """The models that a run folder predicts with: a conversion model, a propensity, or both."""

    model: Debiaser | None
    propensity: BasePropensity | None
    spread: bool
    place: str

    @classmethod
    def of(cls, run: str | Path, method: str | None, device: str, *, spread: bool) -> _Scoring:
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
        if spread and model is None:
            raise RunFolderError("holds no conversion model", where=str(run), remedy="leave --spread out")
        if spread and model is not None:
            require_several(len(model.replicas()), model.name)
        return cls(model, propensity, spread, str(run))

    @property
    def known(self) -> Debiaser | BasePropensity:
        """The estimator whose policy treats unknown ids: the model, or else the propensity."""
        known = self.model or self.propensity
        assert known is not None
        return known

    def added(self, unseen: Unseen | None) -> tuple[Any, ...]:
        """Return the fields that :meth:`columns` adds, in their order."""
        names = [] if self.model is None else ["conversion", "conversion_std"]
        names += DISAGREEMENT if self.spread else ()
        names += [] if self.propensity is None else ["propensity"]
        names += [] if self.model is None or self.propensity is None else [PRODUCT]
        marked = self.known.reader().policy(unseen) != "error"
        marks = [pa.field(name, pa.bool_()) for name in ADDED[-2:]] if marked else []
        return (*(pa.field(name, pa.float64()) for name in names), *marks)

    def columns(
        self, given: Any, user: str | None, item: str | None, unseen: Unseen | None, *, more: bool = False
    ) -> dict[str, NDArray[Any]]:
        """Return the columns that are added to a data frame.

        Parameters
        ----------
        more
            Whether more rows follow, so that nobody knows how many of them are of ids that are not known.
        """
        frame = frame_of(given)
        reader = self.known.reader()
        policy = reader.policy(unseen)
        asked = reader.of_frame(frame, user, item, "nan" if more and policy == "error" else policy)
        if policy == "error":
            _require_known(asked, frame, reader, user, item)
        added: dict[str, NDArray[Any]] = {}
        if self.model is not None:
            each = reader.predictions(asked, policy, self.model.predict_rows)
            added["conversion"] = each.mean(axis=0)
            one = np.full(each.shape[1], np.nan)
            added["conversion_std"] = each.std(axis=0, ddof=1) if len(each) > 1 else one
            if self.spread:
                members = reader.predictions(asked, policy, self.model.predict_replicas_rows)
                found = (spread(members), *interval(members, LEVEL))
                added |= dict(zip(DISAGREEMENT, found, strict=True))
        if self.propensity is not None:
            added["propensity"] = self._propensities(frame, asked, user, item, policy).mean(axis=0)
            if self.model is not None:
                added[PRODUCT] = added["propensity"] * added["conversion"]
        for name in {"conversion", "propensity"} & added.keys():
            if np.isnan(added[name][asked.known]).any():
                raise RunFolderError(
                    f"{name} is NaN for users and items that it knows: its weights are beyond all numbers",
                    where=self.place,
                    remedy="train it anew with a lower learning rate, or give another run",
                )
        if policy != "error":
            added |= {"unseen_user": asked.unseen_user, "unseen_item": asked.unseen_item}
        return added

    def _propensities(
        self, frame: Any, asked: Asked, user: str | None, item: str | None, policy: Unseen
    ) -> NDArray[np.float64]:
        """``[seeds, n]``; ids that both know by the same codes are not looked up twice."""
        assert self.propensity is not None
        reader = self.propensity.reader()
        if policy in ("other", "average"):
            # As the conversion model does, as far as this one can.
            policy = "average" if reader.encoders is None else "other"
        if self._same_rows:
            return self.propensity.predict_asked_each(asked, policy)
        return self.propensity.predict_frame_each(frame, user=user, item=item, unseen=policy)

    @cached_property
    def _same_rows(self) -> bool:
        """True if the propensity reads ids alone, as the model does, and has the same codes for them."""
        if self.propensity is None:
            return False
        one, other = self.known.reader(), self.propensity.reader()
        if one.encoders is not None or other.encoders is not None or one.device != other.device:
            return False
        if isinstance(other, SegmentReader):
            return False
        return one.users.same_as(other.users) and one.items.same_as(other.items)


def _require_known(asked: Asked, frame: Any, reader: Reader, user: str | None, item: str | None) -> None:
    """Raise for the first row of an id that was not there in training."""
    ids = ((asked.unseen_user, reader.users, user), (asked.unseen_item, reader.items, item))
    for unknown, vocabulary, column in ids:
        if unknown.any():
            row = int(np.flatnonzero(unknown)[0])
            name = column or vocabulary.name
            raise DataError(
                f"{vocabulary.name} {frame[name][row]} was not seen in training",
                where=f"column '{name}', row {row}",
                remedy="leave such rows out, or ask for NaN (unseen='nan', --unseen nan)",
            )


def _numbers(*models: Debiaser | BasePropensity | None) -> set[str]:
    """Return the columns of CSV files that models read as numbers."""
    return {
        encoder.feature.source
        for model in models
        if model is not None and model.encoders_ is not None
        for encoder in model.encoders_.encoders
        if encoder.field.kind == "number"
    }


def _carried(names: Sequence[str], place: str) -> list[str]:
    """Return what columns of the files are called beside the added ones."""
    carried = [f"{GIVEN}{name}" if name in ADDED else name for name in names]
    twice = next((name for name in carried if carried.count(name) > 1), None)
    if twice is not None:
        raise DataError(
            f"column '{twice}' is there already",
            where=place,
            remedy=f"rename it, or leave out '{twice.removeprefix(GIVEN)}'",
        )
    return carried
