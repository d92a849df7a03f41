"""A model made ready: from the columns of requests to scores, by onnxruntime and without torch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unskew.errors import DataError, ParameterError, RunFolderError
from unskew.io.manifest import faults
from unskew.io.vocabulary import UNSEEN_CODE
from unskew.log.encoder import Encoder, encoder_from
from unskew.plain_text import listed
from unskew.serve.fields import ABSENT, Column, FieldReader, Ids, reader_of
from unskew.serve.prepare import IDS, KIND, MODEL, SERVED
from unskew.serve.settings import Unseen

PROBED = 8
"""Pairs that a model must score with probabilities before it is served."""


class Parts(NamedTuple):
    """The rows of one request or of several, as lists, by the names of the graph's inputs."""

    rows: int
    user: list[int]
    item: list[int]
    features: tuple[list[Any], ...]

    @classmethod
    def joined(cls, parts: Sequence[Parts]) -> Parts:
        """Those of several requests, one after the other."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            sum(each.rows for each in parts),
            list(chain.from_iterable([each.user for each in parts])),
            list(chain.from_iterable([each.item for each in parts])),
            tuple(
                list(chain.from_iterable(column))
                for column in zip(*(each.features for each in parts), strict=True)
            ),
        )


class ServedModel:
    """What a folder of :mod:`unskew.serve.prepare` holds, ready to score.

    Parameters
    ----------
    folder
        Its name is that of the model.
    unseen
        What is done with ids that are not known; None is the model's own rule.
    threads
        Of onnxruntime.
    """

    def __init__(self, folder: Path, unseen: Unseen | None, threads: int) -> None:
        import onnxruntime

        if found := faults(folder, KIND.files):
            raise RunFolderError("; ".join(found), where=str(folder), remedy="remove this folder")
        self.name = folder.name
        self.number = int(self.name[:8], 16)
        """By which the scores that wait for outcomes name their model."""
        self.facts: dict[str, Any] = json.loads((folder / SERVED).read_text(encoding="utf-8"))
        encoders = [encoder_from(each) for each in self.facts.pop("encoders") or ()]
        self.reads_features = bool(encoders)
        self.unseen = self._policy(unseen)
        users, items = (pq.read_table(folder / f"{name}.parquet")["id"].to_pylist() for name in IDS)
        self._users, self._items = Ids(self.facts["user"], users), Ids(self.facts["item"], items)
        self._readers = list(_readers(folder, encoders))
        self._code_of_known = (
            {role: _known(np.load(folder / f"{role}_seen.npy")) for role in ("user", "item")}
            if encoders
            else None
        )
        self.fields = tuple(
            dict.fromkeys([self._users.name, self._items.name, *(each.source for each in self._readers)])
        )
        self._known_fields = frozenset(self.fields)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads, options.inter_op_num_threads = threads, 1
        # Threads that wait must not spin: requests come when they come.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(
            str(folder / MODEL), options, providers=["CPUExecutionProvider"]
        )
        self._outputs = [self.facts["what"]]
        self._probe()

    def _policy(self, unseen: Unseen | None) -> Unseen:
        if unseen is None:
            return "other" if self.reads_features else "nan"
        if unseen == "other" and not self.reads_features:
            raise ParameterError(
                "--unseen other is for models that read features; this one reads ids alone",
                remedy="give --unseen nan or error",
            )
        return unseen

    def _probe(self) -> None:
        """An error unless known pairs get probabilities."""
        rows = min(PROBED, self._users.size, self._items.size)
        features = tuple(each.read([None] * rows) for each in self._readers)
        score = self.score(Parts(rows, list(range(rows)), list(range(rows)), features))
        # Ids without rows in training are as good as unknown.
        left_out = np.isnan(score) if self.reads_features and self.unseen == "nan" else np.zeros(rows, bool)
        if not (left_out | ((score >= 0) & (score <= 1))).all():
            raise RunFolderError(
                "its model gives known pairs no probabilities", where=self.name, remedy="train it again"
            )

    @cached_property
    def schema(self) -> list[dict[str, Any]]:
        """What a request may hold, field by field."""
        ids = [
            {"name": each.name, "kind": "id", "role": role, "holds": "text" if each.text else "integer"}
            for role, each in (("user", self._users), ("item", self._items))
        ]
        features = {
            each.source: {
                "name": each.source,
                "kind": each.kind,
                "role": each.role,
                "required": each.table is None,
            }
            for each in self._readers
        }
        return ids + list(features.values())

    def read(self, columns: Mapping[str, Column]) -> Parts:
        """The columns of a request, of equal lengths, checked and coded."""
        if not columns.keys() <= self._known_fields:
            unknown = sorted(columns.keys() - self._known_fields)
            raise DataError(
                f"there is no field {listed(map(repr, unknown))}",
                remedy=f"give {listed(self.fields)}",
            )
        for each in (self._users, self._items):
            if each.name not in columns:
                raise DataError(f"field '{each.name}' is missing", remedy="give the ids of users and items")
        user, item = (each.codes(columns[each.name]) for each in (self._users, self._items))
        absent = [ABSENT] * len(user)
        features = tuple(each.read(columns.get(each.source, absent)) for each in self._readers)
        if self.unseen == "error":
            self._refuse_unknown(user, item, columns)
        return Parts(len(user), user, item, features)

    def read_rows(self, rows: Sequence[Any]) -> Parts:
        """The rows of a request, each a mapping of fields to values."""
        return self.read(self._columns_of_full(rows) or self._columns(rows))

    def _columns_of_full(self, rows: Sequence[Any]) -> dict[str, Column] | None:
        """The columns of rows that have all fields, and so no other; None where one has not."""
        if set(map(type, rows)) != {dict} or set(map(len, rows)) != {len(self.fields)}:
            return None
        try:
            return {name: [row[name] for row in rows] for name in self.fields}
        except KeyError:
            return None

    def _columns(self, rows: Sequence[Any]) -> dict[str, Column]:
        for number, row in enumerate(rows):
            if type(row) is not dict:
                raise DataError("is not an object", where=f"row {number}", remedy="give {field: value, …}")
            if not row.keys() <= self._known_fields:
                unknown = sorted(row.keys() - self._known_fields)
                raise DataError(
                    f"there is no field {listed(map(repr, unknown))}",
                    where=f"row {number}",
                    remedy=f"give {listed(self.fields)}",
                )
        return {name: [row.get(name, ABSENT) for row in rows] for name in self.fields}

    def _refuse_unknown(self, user: list[int], item: list[int], columns: Mapping[str, Column]) -> None:
        for each, codes in ((self._users, user), (self._items, item)):
            known = None if self._code_of_known is None else self._code_of_known[self._role(each)]
            for row, code in enumerate(codes):
                if code == UNSEEN_CODE or (known is not None and known[code] == each.size):
                    raise DataError(
                        f"{columns[each.name][row]!s} was not seen in training",
                        where=f"field '{each.name}', row {row}",
                        remedy="leave it out, or serve with --unseen nan",
                    )

    def _role(self, ids: Ids) -> str:
        return "user" if ids is self._users else "item"

    def score(self, parts: Parts) -> NDArray[np.float32]:
        """Probabilities, by one call of the model for the rows of one request or several."""
        user, item = np.array(parts.user, dtype=np.int64), np.array(parts.item, dtype=np.int64)
        inputs: dict[str, NDArray[Any]] = {"user": user, "item": item}
        if self._code_of_known is not None:
            # The last line of a table, which −1 reads, is of one of whom nothing is known.
            owners = inputs
            inputs = {role: self._code_of_known[role][owner] for role, owner in owners.items()}
            for reader, values in zip(self._readers, parts.features, strict=True):
                inputs[reader.name] = reader.array(values, owners.get(reader.role or "row"))
        score: NDArray[np.float32] = self.session.run(self._outputs, inputs)[0]
        if self._code_of_known is not None and self.unseen == "nan":
            score = np.where(np.logical_or(*self.unknown(parts)), np.float32(np.nan), score)
        return score

    def unknown(self, parts: Parts) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
        """Which users and which items training did not have, row by row."""
        return self._unknown(self._users, parts.user), self._unknown(self._items, parts.item)

    def count_unknown(self, parts: Parts) -> tuple[int, int]:
        """How many."""
        if self._code_of_known is None:
            return parts.user.count(UNSEEN_CODE), parts.item.count(UNSEEN_CODE)
        users, items = self.unknown(parts)
        return int(np.count_nonzero(users)), int(np.count_nonzero(items))

    def _unknown(self, ids: Ids, codes: list[int]) -> NDArray[np.bool_]:
        found = np.array(codes, dtype=np.int64)
        if self._code_of_known is None:
            return np.asarray(found == UNSEEN_CODE)
        return np.asarray(self._code_of_known[self._role(ids)][found] == ids.size)


def _readers(folder: Path, encoders: Iterable[Encoder]) -> Iterable[FieldReader]:
    """A reader for each feature, with its columns of the tables of users and items."""
    tables: dict[str, NDArray[Any]] = {}
    places: dict[str, int] = {}
    for encoder in encoders:
        kind = "numbers" if encoder.field.kind == "number" else "codes"
        role = encoder.feature.role
        if role == "row":
            yield reader_of(encoder, None)
            continue
        key = f"{role}_{kind}"
        if key not in tables:
            # A plain array on the mapped file: NumPy's own class of them is slow to index.
            tables[key] = np.asarray(np.load(folder / f"{key}.npy", mmap_mode="r", allow_pickle=False))
        start = places.get(key, 0)
        places[key] = start + encoder.field.width
        yield reader_of(encoder, tables[key][:, start : places[key]])


def _known(seen: NDArray[np.bool_]) -> NDArray[np.int64]:
    """By code: the same where training had rows of it, the one after the last where not."""
    codes = np.append(np.where(seen, np.arange(len(seen)), len(seen)), len(seen))
    return codes.astype(np.int64)
