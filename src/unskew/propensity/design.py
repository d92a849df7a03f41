"""Features as columns of numbers, for logistic regression, trees and other classifiers."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from unskew.data import Block, Encoders, Log, Rows
from unskew.data.encoder import Encoder
from unskew.data.encoders import ROLES
from unskew.data.schema import Role
from unskew.propensity.crossfit import Codes, Floats, ReplicaScores
from unskew.propensity.per_replica import PerReplica

Columns = NDArray[np.float32]
"""As encoders give them: of many rows they take half as much memory as with 8 bytes each."""
Filled = TypeVar("Filled", bound=NDArray[Any])

MOST_CODES = 64
"""Categories and bags with more codes are left out: what so many columns tell is better learned by a network
with embeddings, and on known users and items by their ids."""

ROWS_AT_ONCE = 1 << 15
"""Rows whose columns are made, or scored, at once: there may be a hundred columns of 8 bytes."""


class Design:
    """One column for each code of a category or bag (but "other"), and those of numbers.

    Attributes
    ----------
    widths
        Columns of users', items' and rows' features, which stand in this order.
    """

    def __init__(self, encoders: Encoders) -> None:
        self.encoders = encoders
        self._places: list[tuple[Role, Encoder, str, slice]] = []
        at = {"codes": 0, "numbers": 0}
        for encoder in encoders.encoders:
            kind = "numbers" if encoder.field.is_number else "codes"
            role = encoder.feature.role
            assert role is not None
            if encoder.field.size <= MOST_CODES:
                place = slice(at[kind], at[kind] + encoder.field.width)
                self._places.append((role, encoder, kind, place))
            at[kind] += encoder.field.width
        self.widths = [sum(self._width(each) for each in self._of(role)) for role in ROLES]

    def of_rows(self, rows: Rows) -> Floats:
        """Columns ``[n, k]`` of rows ``[1, n]`` with features."""
        given = {name: rows[name][0].numpy() for name in ("codes", "numbers") if name in rows}
        columns = np.empty((len(rows.user[0]), sum(self.widths)))
        return _filled(columns, [each.design(given[kind][:, at]) for _, each, kind, at in self._places])

    def of_cells(self, log: Log, user: Codes, item: Codes, cell: Codes) -> Floats:
        """The same of cells of a training log, by their users, items and rows."""
        tables = [self.table("user", user), self.table("item", item)]
        if self.widths[2]:
            tables.append(self.of_log_rows(self.row_block(log), cell))
        return np.hstack(tables).astype(np.float64)

    def table(self, role: Role, codes: Codes) -> Columns:
        """Columns ``[n, k]`` of users, or items, by their codes."""
        return self._of_block(role, self.encoders.tables[role], codes)

    def row_block(self, log: Log) -> Block:
        """Return the features of the training log's rows as codes and numbers, of which columns are made."""
        return log.encoded_rows()

    def of_log_rows(self, block: Block, rows: Codes) -> Columns:
        """Columns ``[n, k]`` of rows' own features, by their numbers."""
        return self._of_block("row", block, rows)

    def split(self, columns: Floats) -> list[Floats]:
        """Users', items' and rows' columns."""
        return np.split(columns, np.cumsum(self.widths)[:-1], axis=1)

    def _of(self, role: Role) -> list[Encoder]:
        return [each for of, each, _, _ in self._places if of == role]

    @staticmethod
    def _width(encoder: Encoder) -> int:
        return encoder.field.width if encoder.field.is_number else encoder.field.size - 1

    def _of_block(self, role: Role, block: Block, at: Codes) -> Columns:
        before = {"codes": 0, "numbers": 0}
        for each in self.encoders.encoders:
            if ROLES.index(each.feature.role or "row") < ROLES.index(role):
                before["numbers" if each.field.is_number else "codes"] += each.field.width
        places = [
            (encoder, kind, slice(place.start - before[kind], place.stop - before[kind]))
            for of, encoder, kind, place in self._places
            if of == role
        ]
        columns = np.empty((len(at), self.widths[ROLES.index(role)]), dtype=np.float32)
        for start in range(0, len(at), ROWS_AT_ONCE):
            some = slice(start, start + ROWS_AT_ONCE)
            parts = [each.design(getattr(block, kind)[at[some], place]) for each, kind, place in places]
            _filled(columns[some], parts)
        return columns


def _filled(columns: Filled, parts: Sequence[Columns]) -> Filled:
    """Columns with the values of parts, side by side."""
    edges = np.cumsum([0, *(part.shape[1] for part in parts)])
    for part, (start, stop) in zip(parts, pairwise(edges), strict=True):
        columns[:, start:stop] = part
    return columns


class DesignedModels(PerReplica):
    """The scorer of models that read the columns of a design beside the ids."""

    design: Design

    def with_design(self, design: Design) -> DesignedModels:
        """The same with a design."""
        object.__setattr__(self, "design", design)
        return self

    def score(self, rows: Rows, replicas: Sequence[int]) -> ReplicaScores:
        """Raw propensities over D, in blocks."""
        parts = [
            super(DesignedModels, self)
            .score(self._designed(rows.between(start, start + ROWS_AT_ONCE)), replicas)
            .mean
            for start in range(0, rows.shape[1], ROWS_AT_ONCE)
        ]
        return ReplicaScores(np.hstack(parts) if parts else np.empty((len(replicas), 0)))

    def _designed(self, rows: Rows) -> Rows:
        import torch

        return Rows(user=rows.user, item=rows.item, design=torch.as_tensor(self.design.of_rows(rows))[None])
