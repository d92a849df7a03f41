"""The columns of rows for a calibrator that reads features: the log's features, coded, by name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.base.columns import frame_of
from unskew.base.errors import DataError
from unskew.base.tensors import torch
from unskew.calibration import Calibrator, Multicalibrated
from unskew.data import Block, Encoders, Log, Rows
from unskew.data.described import NO_ROWS
from unskew.data.schema import ROLES_OF_IDS, Role
from unskew.data.values import Values, values_in
from unskew.training.reader import Asked, Reader, Unseen

CODES, NUMBERS = "segment_codes", "segment_numbers"
"""The fields of ``Rows`` that hold what a calibrator reads of single rows."""

MOST_CELLS = 1 << 17
"""Held-out cells per replica that such a calibrator is fitted on; beyond it the unclicked are thinned and
weighted."""

Columns = Mapping[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Segments:
    """The features that a calibrator reads.

    Users' and items' are looked up by their codes as they were in training; of somebody new nothing is known.

    Attributes
    ----------
    encoders
        How they are coded; None where ids alone are read.
    ids
        Those of ``"user"`` and ``"item"`` that are segments themselves.
    of_rows
        Features of the training log's own rows.
    """

    encoders: Encoders | None
    ids: tuple[str, ...]
    of_rows: Block | None = None

    @classmethod
    def of_log(cls, log: Log, calibrator: Calibrator) -> Segments:
        """Return the segments of a training log; raise where it has none, or not those that are named."""
        assert isinstance(calibrator, Multicalibrated)
        wanted = calibrator.segments
        ids = tuple(name for name in wanted or () if name in ROLES_OF_IDS)
        names = None if wanted is None else [name for name in wanted if name not in ROLES_OF_IDS]
        if names == []:
            return cls(None, ids)
        described = _described(log, names)
        segments = cls.of_encoders(described.encoders, wanted)
        assert segments.encoders is not None
        own = segments.encoders.of_role("row")
        if own and log.space == "matrix":
            raise DataError(
                f"feature '{own[0].feature.name}' is of single rows, and {NO_ROWS}",
                remedy="name other segments, or use the space 'impressions' (--space impressions)",
            )
        of_rows = segments.row_block(described) if own else None
        return cls(segments.encoders, ids, of_rows)

    @classmethod
    def of_encoders(cls, encoders: Encoders | None, wanted: Sequence[str] | None) -> Segments:
        """Select segments from the encoders of all features of a log; bags of values are no segments."""
        ids = tuple(name for name in wanted or () if name in ROLES_OF_IDS)
        if encoders is None:
            return cls(None, ids)
        bags = [each.feature.name for each in encoders.encoders if each.field.kind == "bag"]
        named = [name for name in bags if name in (wanted or ())]
        if named:
            raise DataError(
                f"feature '{named[0]}' has several values a row, and a segment has one",
                remedy="name other segments",
            )
        names = [each.feature.name for each in encoders.encoders] if wanted is None else list(wanted)
        return cls(encoders.select([name for name in names if name not in (*bags, *ROLES_OF_IDS)]), ids)

    @property
    def row_names(self) -> list[str]:
        """Return the columns of single rows that segments are read from."""
        return [] if self.encoders is None else [each.feature.source for each in self.encoders.of_role("row")]

    def row_block(self, log: Log) -> Block:
        """Return what is read of the rows of a log themselves."""
        assert self.encoders is not None
        log = _described(log, [each.feature.name for each in self.encoders.of_role("row")])
        assert log.features is not None
        coded_by = log.features.encoders
        if coded_by is not None and coded_by in (self.encoders, self.encoders.whole):
            # Blocks of the stream of training are coded already, and those in memory have no values.
            return self.encoders.part_of(coded_by, log.encoded_rows())
        return self.encoders.block("row", len(log), log.features.values)

    def of_cells(self, rows: Rows, cell: torch.Tensor | None) -> Rows:
        """Return complete rows ``[R, n]`` of training cells, by their numbers in the log."""
        if self.of_rows is None:
            return rows
        assert cell is not None
        return _with_block(rows, self.of_rows, cell)

    def columns(self, rows: Rows, line: int, count: int) -> Columns:
        """Return the columns of the first rows of a line."""
        line = min(line, len(rows.user) - 1)
        code = {role: rows[role][line, :count].cpu().numpy() for role in ROLES_OF_IDS}
        columns: dict[str, NDArray[Any]] = {name: code[name] for name in self.ids}
        if self.encoders is None:
            return columns
        sides: tuple[Role, ...] = ("user", "item")
        blocks = {role: self.encoders.tables[role].take(code[role]) for role in sides}
        if self.row_names:
            if CODES not in rows:
                raise DataError(
                    f"the calibrator reads '{self.row_names[0]}' of each row, which pairs of ids do not have",
                    remedy="give a log or a data frame with this column",
                )
            blocks["row"] = Block(*(rows[name][line, :count].cpu().numpy() for name in (CODES, NUMBERS)))
        for role, block in blocks.items():
            places = {"codes": 0, "numbers": 0}
            for encoder in self.encoders.of_role(role):
                is_number = encoder.field.is_number
                kind = "numbers" if is_number else "codes"
                start, width = places[kind], encoder.field.width
                places[kind] += width
                column = getattr(block, kind)[:, start]
                if width == 2 and is_number:
                    # The second column says where the first is missing.
                    column = np.where(block.numbers[:, start + 1] > 0, np.nan, column)
                columns[encoder.feature.name] = column
        return columns


@dataclass(frozen=True)
class SegmentReader(Reader):
    """A reader whose rows carry what a calibrator reads of single rows too."""

    segments: Segments

    def of_log(self, log: Log, unseen: Unseen | None = None) -> Asked:
        """Return the rows of a log."""
        return self._with(super().of_log(log, unseen), self.segments.row_block(log))

    def of_rows(self, log: Log, values: Mapping[str, Values]) -> Asked:
        """Return the rows of a log with values of the features of rows, by name."""
        assert self.segments.encoders is not None
        return self._with(super().of_rows(log, values), self.segments.encoders.block("row", len(log), values))

    def of_frame(
        self, frame: Any, user: str | None = None, item: str | None = None, unseen: Unseen | None = None
    ) -> Asked:
        """Return the rows of a data frame."""
        asked, table = super().of_frame(frame, user, item, unseen), frame_of(frame)
        assert self.segments.encoders is not None
        values = values_in(table, (each.feature for each in self.segments.encoders.of_role("row")))
        return self._with(asked, self.segments.encoders.block("row", len(table), values))

    def _with(self, asked: Asked, block: Block) -> Asked:
        return asked._replace(rows=_with_block(asked.rows, block, None))


def _with_block(rows: Rows, block: Block, at: torch.Tensor | None) -> Rows:
    """Return rows with what is read of them alone, at some places of a block."""
    values = {CODES: block.codes, NUMBERS: block.numbers}
    own = {name: torch.as_tensor(each, device=rows.device)[at] for name, each in values.items()}
    return Rows(**{name: rows[name] for name in rows}, **own)


def _described(log: Log, names: Sequence[str] | None) -> Log:
    """Return a log with features: its own, or those that its columns and its tables of users and items
    make."""
    if log.features is not None:
        known = {name for each in log.features.declared for name in (each.name, each.source)}
        missing = [name for name in names or () if name not in known]
        if missing:
            raise DataError(
                f"the calibrator is to read '{missing[0]}', and the log has no such feature",
                remedy="give the log that feature (features=, --features), or name other segments",
            )
        return log
    if names is not None:
        return log.with_features(list(names))
    if log.user_features is None and log.item_features is None:
        raise DataError(
            "the log has no features to calibrate by",
            remedy="give it some (features=, --features), name segments of its columns, or use Platt",
        )
    return log.with_features("auto", ignore=log.columns)
