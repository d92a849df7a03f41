"""The encoders of all features of a log, and what networks read of its users, items and rows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError
from unskew.data.arrays import Lines, empty_like, lines_of
from unskew.data.described import COUNTS, IDS, last_word
from unskew.data.distinct import TEXT
from unskew.data.encoder import CodeEncoder, Encoder, NumberEncoder, VectorEncoder, encoder_from
from unskew.data.kinds import Feature, Number
from unskew.data.schema import Field, Role, Schema, is_selected
from unskew.data.values import MISSING, Bags, Numbers, Texts, Values, Vectors

if TYPE_CHECKING:
    from unskew.data.log import Log

POSITIONS = {"position", "pos", "rank", "slot", "place", "placement"}
"""Words in the name of a field that may be a place on a page."""

ROLES: tuple[Role, ...] = ("user", "item", "row")


class Block(NamedTuple):
    """The columns of the features of one role, a line for each user, item or row."""

    codes: NDArray[np.int32]
    numbers: NDArray[np.float32]

    def take(self, at: Lines) -> Block:
        """Return some of the lines."""
        return Block(lines_of(self.codes, at), lines_of(self.numbers, at))


@dataclass(frozen=True, eq=False)
class Encoders:
    """The encoders of all features of a training log, and its users' and items' features, encoded.

    Attributes
    ----------
    encoders
        Those of users' features first, then items', then rows'.
    users, items
        How many there are; the code after the last is for those that are not known.
    tables
        Features by the code of the user or item; the last line is of one of whom nothing is known.
    seen
        Which codes of users and items the training log had rows of; those without are not known.
    whole
        Those that these are a part of (:meth:`select`); None for all of a log.
    """

    encoders: tuple[Encoder, ...]
    users: int
    items: int
    tables: Mapping[Role, Block] = field(default_factory=dict)
    seen: Mapping[Role, NDArray[np.bool_]] = field(default_factory=dict)
    whole: Encoders | None = field(default=None, kw_only=True)

    @classmethod
    def fit(cls, log: Log) -> Encoders:
        """From a training log with features."""
        described = log.features
        assert described is not None
        declared, values, seen = described.declared, described.values, _seen(log)
        learned = {
            each.name: values[each.name].take(seen[each.role]) if each.role in seen else values[each.name]
            for each in declared
        }
        roots = {each.name: getattr(each, "share", None) or each.name for each in declared}
        fitted: dict[str, Encoder] = {}
        for feature in sorted(declared, key=lambda each: ROLES.index(each.role or "row")):
            given = learned[feature.name]
            if isinstance(feature, Number):
                assert isinstance(given, Numbers)
                fitted[feature.name] = NumberEncoder.fit(feature, given)
                continue
            if isinstance(given, Vectors):
                fitted[feature.name] = VectorEncoder.fit(feature, given)
                continue
            root = next(each for each in declared if each.name == roots[feature.name])
            sharing = [
                each
                for name, each in learned.items()
                if roots[name] == root.name and isinstance(each, Texts | Bags)
            ]
            assert isinstance(given, Texts | Bags)
            fitted[feature.name] = CodeEncoder.fit(feature, given, sharing, root)
        sizes = (log.n_users, log.n_items)
        whole = cls(tuple(fitted.values()), *sizes)
        sides: tuple[tuple[Role, int], ...] = (("user", sizes[0]), ("item", sizes[1]))
        tables = {
            role: _with_nobody(whole.block(role, size, values), whole.of_role(role)) for role, size in sides
        }
        return replace(whole, tables=tables, seen=seen)

    @cached_property
    def schema(self) -> Schema:
        """What networks read: the ids, with a code for those that are not known, and the features."""
        return Schema(
            (
                Field("user", "id", "user", self.users + 1, "other"),
                Field("item", "id", "item", self.items + 1, "other"),
                *(each.field for each in self.encoders),
            )
        )

    def select(self, fields: Sequence[str] | None) -> Encoders:
        """Those of some features (:func:`unskew.data.schema.is_selected`)."""
        if fields is None:
            return self
        kept = tuple(each for each in self.encoders if is_selected(each.feature.name, fields))
        part = replace(self, encoders=kept, whole=self.whole or self)
        tables = {}
        for role, table in self.tables.items():
            columns = self.table_columns(role, np.arange(len(table.codes)))
            tables[role] = part.block(role, len(table.codes), columns)
        return replace(part, tables=tables)

    def places_in(self, whole: Encoders, role: Role) -> dict[str, NDArray[np.int64]]:
        """Where the columns of a role's features are among those of ``whole``: of codes, and of numbers."""
        names = {each.feature.name for each in self.of_role(role)}
        places: dict[str, list[int]] = {"codes": [], "numbers": []}
        for encoder, kind, columns in whole.columns_of(role):
            if encoder.feature.name in names:
                places[kind] += range(columns.start, columns.stop)
        return {kind: np.array(at, dtype=np.int64) for kind, at in places.items()}

    def columns_of(self, role: Role) -> Iterator[tuple[Encoder, Literal["codes", "numbers"], slice]]:
        """Yield the encoders of a role, each with the array of a :class:`Block` and the columns of it."""
        sizes: dict[str, int] = {"codes": 0, "numbers": 0}
        for encoder in self.of_role(role):
            kind: Literal["codes", "numbers"] = "numbers" if encoder.field.is_number else "codes"
            start = sizes[kind]
            sizes[kind] += encoder.field.width
            yield encoder, kind, slice(start, sizes[kind])

    def part_of(self, whole: Encoders, encoded: Block) -> Block:
        """Of the rows' features that ``whole`` encoded, those of these encoders."""
        if self is whole:
            return encoded
        places = self.places_in(whole, "row")
        return Block(encoded.codes[:, places["codes"]], encoded.numbers[:, places["numbers"]])

    def codes_rows_as(self, whole: Encoders) -> bool:
        """Whether features of rows that these encode are among those of ``whole``, and coded alike."""
        mine, theirs = (
            {each.feature.name: (each.learned(), each.missing > 0) for each in of.of_role("row")}
            for of in (self, whole)
        )
        return all(theirs.get(name) == learned for name, learned in mine.items())

    def of_role(self, role: Role) -> tuple[Encoder, ...]:
        """The encoders of one role."""
        return tuple(each for each in self.encoders if each.feature.role == role)

    def encode(self, log: Log) -> dict[Role, Block]:
        """The features of a log: by its own codes of users and items, and by row."""
        described = log.features
        assert described is not None
        sizes = {"user": log.n_users, "item": log.n_items, "row": len(log)}
        return {role: self.block(role, sizes[role], described.values) for role in ROLES}

    def block(self, role: Role, size: int, values: Mapping[str, Values | NDArray[Any]]) -> Block:
        """The columns of one role from values by name, or from what is encoded already."""
        widths = {"codes": 0, "numbers": 0}
        for _, kind, columns in self.columns_of(role):
            widths[kind] = columns.stop
        like = next((_array_of(each) for each in values.values() if len(each) == size), np.empty(0))
        block = Block(
            empty_like(like, (size, widths["codes"]), np.int32),
            empty_like(like, (size, widths["numbers"]), np.float32),
        )
        for encoder, kind, columns in self.columns_of(role):
            given = values.get(encoder.feature.name)
            if given is None:
                raise DataError(
                    f"column '{encoder.feature.source}' is missing, which the model reads",
                    remedy="give the column, or train without it",
                )
            target = getattr(block, kind)[:, columns]
            if isinstance(given, np.ndarray):
                target[:] = given
            else:
                encoder.encode(given, target)
        return block

    def table_columns(self, role: Role, at: NDArray[np.integer[Any]]) -> dict[str, NDArray[Any]]:
        """What is known of users or items by their codes: the columns of each feature, by its name."""
        taken = self.tables[role].take(at)
        return {
            encoder.feature.name: getattr(taken, kind)[:, columns]
            for encoder, kind, columns in self.columns_of(role)
        }

    def design(self, role: Role, block: Block) -> NDArray[np.float32]:
        """Return columns for linear models and trees: one for each code of a category or bag, and numbers."""
        designs = [
            encoder.design(getattr(block, kind)[:, columns])
            for encoder, kind, columns in self.columns_of(role)
        ]
        return np.hstack([np.empty((len(block.codes), 0), dtype=np.float32), *designs])

    def table(self) -> list[dict[str, Any]]:
        """A line for each feature: name, kind, role, cardinality, missing share, example, and a note."""
        return [
            {
                "name": each.feature.name,
                "kind": each.field.kind,
                "role": each.feature.role,
                "cardinality": each.cardinality,
                "missing": each.missing,
                "example": each.example,
                "note": "; ".join(filter(None, (each.note, _type_hint(each), _position_hint(each.feature)))),
            }
            for each in self.encoders
        ]

    def to_dict(self) -> list[dict[str, Any]]:
        """As plain values, for files; the tables apart."""
        return [each.to_dict() for each in self.encoders]

    @classmethod
    def from_dict(
        cls,
        record: Any,
        users: int,
        items: int,
        tables: Mapping[Role, Block] | None = None,
        seen: Mapping[Role, NDArray[np.bool_]] | None = None,
    ) -> Encoders:
        """From what :meth:`to_dict` gave; a :class:`DataError` where it is something else."""
        if not isinstance(record, list):
            raise DataError("these are not encoders", remedy="give a list")
        return cls(tuple(encoder_from(each) for each in record), users, items, tables or {}, seen or {})


def _seen(log: Log) -> dict[Role, NDArray[np.bool_]]:
    """The users and items with rows; in the space ``"matrix"``, where all pairs count, all of them."""
    if log.space == "matrix":
        return {"user": np.ones(log.n_users, bool), "item": np.ones(log.n_items, bool)}
    return {
        "user": np.bincount(log.user, minlength=log.n_users) > 0,
        "item": np.bincount(log.item, minlength=log.n_items) > 0,
    }


def _type_hint(encoder: Encoder) -> str:
    """Say why whole numbers are what they are, where their name alone says it."""
    word, kind = last_word(encoder.feature.source), encoder.field.kind
    return (
        "an id by its name"
        if kind == "category" and word in IDS
        else ("a number by its name" if kind == "number" and word in COUNTS else "")
    )


def _position_hint(feature: Feature) -> str:
    """What to think of where a field of rows is called as a place on a page; nothing is done by itself."""
    words = re.split(r"[^a-z]+", feature.name.lower())
    if feature.role != "row" or not POSITIONS.intersection(words):
        return ""
    return f"a position? (--model-features=-{feature.name})"


def _array_of(values: Values | NDArray[Any]) -> NDArray[Any]:
    """Return the array that has a line for each row, or an element of a list."""
    if isinstance(values, np.ndarray):
        return values
    return values.values if isinstance(values, Numbers | Vectors) else values.codes


def _with_nobody(block: Block, encoders: Sequence[Encoder]) -> Block:
    """A table with one more line, of somebody of whom nothing is known."""
    nobody: dict[bool, list[NDArray[Any]]] = {True: [], False: []}
    for encoder in encoders:
        empty: Values
        if encoder.field.kind == "number":
            empty = Numbers(np.array([np.nan]))
        elif isinstance(encoder, VectorEncoder):
            empty = Vectors(np.full((1, len(encoder.mean)), np.nan, dtype=np.float32))
        elif encoder.field.kind == "bag":
            empty = Bags(np.zeros(2, np.int64), np.empty(0, np.int32), np.empty(0, TEXT))
        else:
            empty = Texts(np.array([MISSING], np.int32), np.empty(0, TEXT))
        nobody[encoder.field.is_number].append(encoder.encode(empty))
    lines = [
        np.vstack([known, np.hstack([np.empty((1, 0), known.dtype), *nobody[numbers]])])
        for known, numbers in ((block.codes, False), (block.numbers, True))
    ]
    return Block(lines[0], lines[1])
