"""Features as columns of numbers, for logistic regression, trees and other classifiers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from unskew.log import Block, Encoders, Log, Rows
from unskew.log.encoder import Encoder
from unskew.log.encoders import ROLES
from unskew.log.schema import Role
from unskew.propensity.crossfit import Codes, Floats, ReplicaScores
from unskew.propensity.per_replica import BLOCK, PerReplica

MOST_CODES = 64
"""Categories and bags with more codes are left out: what so many columns tell is better learned by a network
with embeddings, and on known users and items by their ids."""


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
            kind = "numbers" if encoder.field.kind == "number" else "codes"
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
        return self._joined(
            len(rows.user[0]), [each.design(given[kind][:, place]) for _, each, kind, place in self._places]
        )

    def of_cells(self, log: Log, user: Codes, item: Codes, cell: Codes) -> Floats:
        """The same of cells of a training log, by their users, items and rows."""
        tables = [self.table("user")[user], self.table("item")[item]]
        if self.widths[2]:
            tables.append(self.of_log_rows(log)[cell])
        return np.hstack(tables)

    def table(self, role: Role) -> Floats:
        """Columns ``[n + 1, k]`` of all users, or all items."""
        return self._of_block(role, self.encoders.tables[role])

    def of_log_rows(self, log: Log) -> Floats:
        """Columns ``[n, k]`` of rows' own features."""
        assert log.features is not None
        return self._of_block("row", self.encoders.block("row", len(log), log.features.values))

    def split(self, columns: Floats) -> list[Floats]:
        """Users', items' and rows' columns."""
        return np.split(columns, np.cumsum(self.widths)[:-1], axis=1)

    def _of(self, role: Role) -> list[Encoder]:
        return [each for of, each, _, _ in self._places if of == role]

    @staticmethod
    def _width(encoder: Encoder) -> int:
        return encoder.field.width if encoder.field.kind == "number" else encoder.field.size - 1

    def _of_block(self, role: Role, block: Block) -> Floats:
        before = {"codes": 0, "numbers": 0}
        for each in self.encoders.encoders:
            if ROLES.index(each.feature.role or "row") < ROLES.index(role):
                before["numbers" if each.field.kind == "number" else "codes"] += each.field.width
        parts = [
            encoder.design(getattr(block, kind)[:, place.start - before[kind] : place.stop - before[kind]])
            for of, encoder, kind, place in self._places
            if of == role
        ]
        return self._joined(len(block.codes), parts)

    @staticmethod
    def _joined(rows: int, parts: Sequence[NDArray[np.float32]]) -> Floats:
        return np.hstack([np.empty((rows, 0)), *parts]).astype(np.float64)


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
            .score(self._designed(rows.between(start, start + BLOCK)), replicas)
            .mean
            for start in range(0, rows.shape[1], BLOCK)
        ]
        return ReplicaScores(np.hstack(parts) if parts else np.empty((len(replicas), 0)))

    def _designed(self, rows: Rows) -> Rows:
        import torch

        return Rows(user=rows.user, item=rows.item, design=torch.as_tensor(self.design.of_rows(rows))[None])
