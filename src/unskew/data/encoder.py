"""How features are coded: vocabularies, hashes and scales, fitted on the values of a training log."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError
from unskew.base.seeds import splitmix64
from unskew.data.arrays import Lines, empty_like, lines_of, pieces
from unskew.data.described import COUNTS, IDS, MOST_VALUES, last_word
from unskew.data.distinct import TEXT, ValueIndex, as_arrow
from unskew.data.kinds import Bag, Coded, Feature, TimePart, feature_from_dict
from unskew.data.schema import Field, Role, Schema, is_selected
from unskew.data.values import MISSING, Numbers, Texts, Values, missing_share
from unskew.data.vocabulary import UNSEEN_CODE, text_hashes

if TYPE_CHECKING:
    from unskew.data.log import Log

ROLES: tuple[Role, ...] = ("user", "item", "row")

POSITIONS = {"position", "pos", "rank", "slot", "place", "placement"}
"""Words in the name of a field that may be a place on a page."""

SAMPLED_ROWS = 1 << 22
"""Rows whose numbers a scale is fitted on: all of a shorter log, else those with the least hash of the row's
number. A quantile of so many is off by a twentieth of a percentage point of rank at most."""

OTHER_CODE, MISSING_CODE, FIRST_CODE = 0, 1, 2
"""Codes of values that are rare or were never seen, of values that are not there, and of the first of a
vocabulary."""

PAD = -1
"""What a bag has in its columns beyond its last value."""

MOST_IN_BAG = 20
"""Values of a list that are read at most, unless the feature says otherwise."""

MOST_SKEWED = 2.0
"""Skewness (third standardised moment) beyond which ``transform="auto"`` does not leave a number as it is."""

KNOTS = 129
"""Quantiles that ``transform="quantile"`` keeps."""

ROUNDING = 1e-14
"""A deviation of less than this share of the largest number is that of one number, by rounding."""

FARTHEST = 8.0
"""Standardised numbers are cut at ± this: one outlier must not move a prediction without limit."""


@dataclass(frozen=True, eq=False)
class Encoder(ABC):
    """How one feature is coded. Subclasses are fitted with ``fit``.

    Attributes
    ----------
    cardinality
        Distinct values in the training log.
    missing
        Share of its users, items or rows without a value there.
    example
        One of its values.
    """

    feature: Feature
    cardinality: int
    missing: float
    example: str

    @property
    @abstractmethod
    def field(self) -> Field:
        """Return the field that networks read."""

    @property
    @abstractmethod
    def note(self) -> str:
        """How it is coded, in a few words."""

    @abstractmethod
    def encode(self, values: Values, out: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return ``[n, width]``: int32 codes, or float32 numbers.

        Parameters
        ----------
        out
            Where they are written, if there is an array for them.
        """

    @abstractmethod
    def learned(self) -> dict[str, Any]:
        """Return what was learned, as plain values."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for files."""
        return {
            "declared": self.feature.to_dict(),
            "cardinality": self.cardinality,
            "missing": self.missing,
            "example": self.example,
            **self.learned(),
        }


@dataclass(frozen=True, eq=False)
class CodeEncoder(Encoder):
    """Categories and bags: 0 is "other", 1 is missing, the rest a vocabulary or a hash.

    Where nothing was missing in training, nothing was learned of it: what is missing later is "other".
    """

    vocabulary: NDArray[Any]
    """Sorted texts; the code of one is its place + 2. Empty where values are hashed."""
    buckets: int | None
    collisions: float | None
    """Share of the distinct values that share a code of the hash with another."""
    width: int

    @classmethod
    def fit(cls, feature: Feature, values: Texts, sharing: Sequence[Texts], root: Feature) -> CodeEncoder:
        """Fit the encoder to the values of a log.

        Parameters
        ----------
        sharing, root
            The values of all features with the same codes, and the one of these that says how they are made.
        """
        buckets = root.hash if isinstance(root, Coded) else None
        texts = values.texts[values.counts() > 0]
        vocabulary: NDArray[Any] = np.empty(0, dtype=TEXT)
        collisions = None
        if buckets is not None:
            used = np.bincount(_bucket_of(texts, buckets), minlength=buckets)
            collisions = float(used[used > 1].sum() / max(1, len(texts)))
        elif isinstance(feature, TimePart):
            vocabulary = np.sort(values.texts)
        else:
            assert isinstance(root, Coded)
            vocabulary = _frequent(sharing, root.min_count, root.size or MOST_VALUES)
        width = 1
        if isinstance(feature, Bag):
            width = feature.width or max(1, min(values.longest(), MOST_IN_BAG))
        return cls(
            feature=feature,
            cardinality=len(texts),
            missing=missing_share(values),
            example=values.example(),
            vocabulary=vocabulary,
            buckets=buckets,
            collisions=collisions,
            width=width,
        )

    @property
    def field(self) -> Field:
        """Return the field that networks read."""
        declared, role = self.feature, self.feature.role
        assert role is not None
        own = (declared.dim, declared.share) if isinstance(declared, Coded) else (None, None)
        return Field(
            name=declared.name,
            kind=declared.kind,
            role=role,
            size=FIRST_CODE + (self.buckets or len(self.vocabulary)),
            unknown="other",
            width=self.width,
            dim=own[0],
            share=own[1],
            pool=declared.pool if isinstance(declared, Bag) else "mean",
        )

    @property
    def note(self) -> str:
        """How many values have a code of their own, or how many share one of the hash; what is missing."""
        empty = "empty lists count as missing" if isinstance(self.feature, Bag) and self.missing > 0 else ""
        if self.buckets is not None:
            coded = f"hashed to {self.buckets:,} codes, {self.collisions or 0:.1%} of the values share one"
        else:
            rare = self.cardinality - len(self.vocabulary)
            coded = f"{rare:,} rare values share a code" if rare > 0 else ""
        return "; ".join(filter(None, (empty, coded)))

    def encode(self, values: Values, out: NDArray[Any] | None = None) -> NDArray[np.int32]:
        """Return codes ``[n, width]``."""
        assert isinstance(values, Texts)
        codes = np.empty((len(values), self.width), dtype=np.int32) if out is None else out
        # The last place is where code −1 looks.
        nothing = np.int32(MISSING_CODE if self.missing > 0 else OTHER_CODE)
        code_of = np.append(self._codes_of(values.texts), nothing)
        for piece in pieces(len(values)):
            some = values.take(piece)
            codes[piece] = code_of[some.codes][:, None] if some.starts is None else self._bag(some, code_of)
        return codes

    def _bag(self, values: Texts, code_of: NDArray[np.int32]) -> NDArray[np.int32]:
        columns = np.full((len(values), self.width), PAD, dtype=np.int32)
        lengths = np.minimum(values.lengths, self.width)
        assert values.starts is not None
        row = np.repeat(np.arange(len(values)), lengths)
        column = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        columns[row, column] = code_of[values.codes[values.starts[row] + column]]
        columns[lengths == 0, 0] = code_of[-1]
        return columns

    def learned(self) -> dict[str, Any]:
        """Return the vocabulary or the hash."""
        return {
            "vocabulary": self.vocabulary.tolist(),
            "buckets": self.buckets,
            "collisions": self.collisions,
            "width": self.width,
        }

    @cached_property
    def _places(self) -> ValueIndex:
        return ValueIndex(as_arrow(self.vocabulary))

    def _codes_of(self, texts: NDArray[Any]) -> NDArray[np.int32]:
        if self.buckets is not None:
            return (FIRST_CODE + _bucket_of(texts, self.buckets)).astype(np.int32)
        if not len(texts) or not len(self.vocabulary):
            return np.full(len(texts), OTHER_CODE, dtype=np.int32)
        position = self._places.find(as_arrow(texts))
        return np.where(position == UNSEEN_CODE, OTHER_CODE, position + FIRST_CODE).astype(np.int32)


@dataclass(frozen=True, eq=False)
class NumberEncoder(Encoder):
    """Numbers, or vectors of them, of mean 0 and variance 1, 0 where missing; a last column says so, if
    training had such."""

    transform: str
    mean: NDArray[np.float64]
    scale: NDArray[np.float64]
    knots: NDArray[np.float64]

    @classmethod
    def fit(cls, feature: Feature, values: Numbers) -> NumberEncoder:
        """Fit on the values of a log."""
        sample = Numbers(_sample(values.values))
        known = sample.values[~sample.missing()].astype(np.float64)
        asked = str(getattr(feature, "transform", "standard"))
        transform = _chosen_transform(known) if asked == "auto" else asked
        if transform == "log" and len(known) and known.min() < 0:
            raise DataError(
                f"transform='log' needs numbers from 0 on, and there is {known.min():g}",
                where=f"column '{feature.source}'",
                remedy="use 'quantile' or 'standard'",
            )
        knots = np.empty(0)
        if transform == "quantile" and len(known):
            knots = np.quantile(known, np.linspace(0, 1, KNOTS))
        scaled = np.atleast_2d(_transformed(known, transform, knots).T).T
        width = values.values.shape[1] if values.is_vector else 1
        mean, scale, most = np.zeros(width), np.ones(width), np.zeros(width)
        if len(known):
            mean, scale, most = scaled.mean(axis=0), scaled.std(axis=0), np.abs(scaled).max(axis=0)
        distinct = np.unique(sample.keys()[~sample.missing()] if values.is_vector else known)
        example = f"{np.median(known):.4g}" if len(known) else ""
        if values.is_vector and len(known):
            example = ", ".join(f"{number:.4g}" for number in known[0, :3]) + ", …"
        return cls(
            feature=feature,
            cardinality=len(distinct),
            missing=missing_share(values),
            example=example,
            transform=transform,
            mean=mean,
            # Of one number alone the deviation is a rounding of it, which is no scale.
            scale=np.where(scale > ROUNDING * most, scale, 1.0),
            knots=knots,
        )

    @property
    def field(self) -> Field:
        """The field that networks read."""
        assert self.feature.role is not None
        width = len(self.mean) + (self.missing > 0)
        return Field(self.feature.name, self.feature.kind, self.feature.role, unknown="other", width=width)

    @property
    def note(self) -> str:
        """The transform, or the width."""
        return f"{len(self.mean)} numbers" if self.feature.kind == "vector" else self.transform

    def encode(self, values: Values, out: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """Return numbers ``[n, width]``."""
        assert isinstance(values, Numbers)
        if values.is_vector and values.values.shape[1] != len(self.mean):
            raise DataError(
                f"its vectors have {values.values.shape[1]} numbers, those of training {len(self.mean)}",
                where=f"column '{self.feature.source}'",
                remedy="give vectors of the same model",
            )
        columns = np.empty((len(values), self.field.width), dtype=np.float32) if out is None else out
        for piece in pieces(len(values)):
            some = values.take(piece)
            missing = some.missing()
            # What cannot be transformed as in training is taken as the nearest that can.
            numbers = np.maximum(some.values, 0.0) if self.transform == "log" else some.values
            numbers = _transformed(numbers, self.transform, self.knots).reshape(len(some), -1)
            scaled = np.clip((numbers - self.mean) / self.scale, -FARTHEST, FARTHEST)
            columns[piece, : len(self.mean)] = np.where(missing[:, None], 0.0, scaled)
            if self.missing > 0:
                columns[piece, -1] = missing
        return columns

    def learned(self) -> dict[str, Any]:
        """Return transform and scale."""
        numbers = {"mean": self.mean, "scale": self.scale, "knots": self.knots}
        return {"transform": self.transform, **{name: each.tolist() for name, each in numbers.items()}}


def _sample(values: NDArray[Any]) -> NDArray[Any]:
    """Return the lines of an array that a scale is fitted on."""
    if len(values) <= SAMPLED_ROWS:
        return values
    return np.concatenate([values[piece][_is_sampled(piece, len(values))] for piece in pieces(len(values))])


def _is_sampled(rows: slice, total: int) -> NDArray[np.bool_]:
    hashed = splitmix64(np.arange(rows.start, rows.stop, dtype=np.uint64))
    return np.asarray(hashed < np.uint64(SAMPLED_ROWS / total * 2.0**64))


def _bucket_of(texts: NDArray[Any], buckets: int) -> NDArray[np.int64]:
    return (text_hashes(texts).view(np.uint64) % np.uint64(buckets)).astype(np.int64)


def _frequent(sharing: Sequence[Texts], min_count: int, size: int) -> NDArray[Any]:
    """Return the most frequent texts of several columns, at most so many, each seen so often; sorted."""
    texts = np.concatenate([each.texts for each in sharing])
    counts = np.concatenate([each.counts() for each in sharing])
    unique, position = np.unique(texts, return_inverse=True)
    total = np.bincount(position, weights=counts, minlength=len(unique))
    remaining = np.flatnonzero(total >= min_count)
    # By count, and by text where counts are equal.
    best = remaining[np.argsort(-total[remaining], kind="stable")[:size]]
    return np.asarray(unique[np.sort(best)])


def _skewness(values: NDArray[np.float64]) -> float:
    deviation = values.std()
    if deviation <= ROUNDING * np.abs(values).max():
        return 0.0
    standard = (values - values.mean()) / deviation
    return float((standard * standard * standard).mean())


def _chosen_transform(known: NDArray[np.float64]) -> str:
    """Return the rule of :class:`Number`."""
    if not len(known) or abs(_skewness(known)) <= MOST_SKEWED:
        return "standard"
    if known.min() >= 0 and abs(_skewness(np.log1p(known))) <= MOST_SKEWED:
        return "log"
    return "quantile"


def _transformed(values: NDArray[np.float64], transform: str, knots: NDArray[np.float64]) -> NDArray[Any]:
    if transform == "log":
        return np.log1p(values)
    if transform == "quantile" and len(knots):
        return np.interp(values, *quantile_line(knots))
    return values


def quantile_line(knots: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the corners of what ``transform="quantile"`` interpolates between: values and their ranks."""
    ranks = np.linspace(-np.sqrt(3), np.sqrt(3), len(knots))
    # Several knots on one value: its middle rank.
    position, at = np.unique(knots, return_inverse=True)
    return position, np.bincount(at, ranks) / np.bincount(at)


def encoder_from(record: Any) -> Encoder:
    """Return what :meth:`Encoder.to_dict` described; something else is a :class:`DataError`."""
    if not isinstance(record, Mapping):
        raise DataError("this is not an encoder", remedy="give what was saved")
    feature = feature_from_dict(record.get("declared"))
    is_number = feature.kind in ("number", "vector")
    arrays: dict[str, Any] = dict.fromkeys(("mean", "scale", "knots"), np.float64)
    arrays = arrays if is_number else {"vocabulary": TEXT}
    made: dict[str, Any] = {name: value for name, value in record.items() if name != "declared"}
    # Models of earlier versions have no knots of vectors, and one mean for a number.
    made = {"transform": "standard", "knots": [], **made} if is_number else made
    try:
        for name, value in made.items():
            if name in arrays:
                made[name] = np.array([value] if is_number and np.isscalar(value) else value, arrays[name])
                if made[name].ndim != 1:
                    raise TypeError(f"{name} is no list")
                continue
            is_text = name in ("transform", "example")
            is_none = value is None and name in ("buckets", "collisions")
            if not is_text and not is_none and type(value) not in (int, float):
                raise TypeError(f"{name} is no number")
        encoder: Encoder = (NumberEncoder if is_number else CodeEncoder)(feature=feature, **made)
        _ = encoder.field
    except (TypeError, ValueError, AssertionError) as error:
        raise DataError(f"the encoder of '{feature.name}' is not whole", remedy="save it again") from error
    return encoder


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
        """Fit the encoders to a training log with features."""
        described = log.features
        assert described is not None
        declared, values, seen = described.declared, described.values, _seen(log)
        learned = {
            each.name: values[each.name].take(seen[each.role]) if each.role in seen else values[each.name]
            for each in declared
        }
        roots = {each.name: getattr(each, "share", None) or each.name for each in declared}
        fitted: list[Encoder] = []
        for feature in sorted(declared, key=lambda each: ROLES.index(each.role or "row")):
            supplied = learned[feature.name]
            if isinstance(supplied, Numbers):
                fitted.append(NumberEncoder.fit(feature, supplied))
                continue
            root = next(each for each in declared if each.name == roots[feature.name])
            sharing = [each for name, each in learned.items() if roots[name] == root.name]
            texts = [each for each in sharing if isinstance(each, Texts)]
            fitted.append(CodeEncoder.fit(feature, supplied, texts, root))
        sizes = (log.n_users, log.n_items)
        whole = cls(tuple(fitted), *sizes)
        sides: tuple[tuple[Role, int], ...] = (("user", sizes[0]), ("item", sizes[1]))
        tables = {
            role: _with_nobody(whole.block(role, size, values), whole.of_role(role)) for role, size in sides
        }
        return replace(whole, tables=tables, seen=seen)

    @cached_property
    def schema(self) -> Schema:
        """The inputs of networks: the ids, with a code for those that are not known, and the features."""
        return Schema(
            (
                Field("user", "id", "user", self.users + 1, "other"),
                Field("item", "id", "item", self.items + 1, "other"),
                *(each.field for each in self.encoders),
            )
        )

    def select(self, fields: Sequence[str] | None) -> Encoders:
        """Return those of some features (:func:`unskew.data.schema.is_selected`)."""
        if fields is None:
            return self
        remaining = tuple(each for each in self.encoders if is_selected(each.feature.name, fields))
        some = replace(self, encoders=remaining, whole=self.whole or self)
        tables = {role: some.part_of(self, table, role) for role, table in self.tables.items()}
        return replace(some, tables=tables)

    def columns_of(self, role: Role) -> Iterator[tuple[Encoder, Literal["codes", "numbers"], slice]]:
        """Yield the encoders of a role, each with the array of a :class:`Block` and the columns of it."""
        sizes: dict[str, int] = {"codes": 0, "numbers": 0}
        for encoder in self.of_role(role):
            kind: Literal["codes", "numbers"] = "numbers" if encoder.field.is_number else "codes"
            start = sizes[kind]
            sizes[kind] += encoder.field.width
            yield encoder, kind, slice(start, sizes[kind])

    def part_of(self, whole: Encoders, block: Block, role: Role = "row") -> Block:
        """Return, of the features of a role that ``whole`` encoded, those of these encoders."""
        if self is whole:
            return block
        names = {each.feature.name for each in self.of_role(role)}
        places: dict[str, list[int]] = {"codes": [], "numbers": []}
        for encoder, kind, columns in whole.columns_of(role):
            if encoder.feature.name in names:
                places[kind] += range(columns.start, columns.stop)
        return Block(block.codes[:, places["codes"]], block.numbers[:, places["numbers"]])

    def of_role(self, role: Role) -> tuple[Encoder, ...]:
        """Return the encoders of one role."""
        return tuple(each for each in self.encoders if each.feature.role == role)

    def encode(self, log: Log) -> dict[Role, Block]:
        """Return the features of a log: by its own codes of users and items, and by row."""
        described = log.features
        assert described is not None
        sizes = {"user": log.n_users, "item": log.n_items, "row": len(log)}
        return {role: self.block(role, sizes[role], described.values) for role in ROLES}

    def block(self, role: Role, size: int, values: Mapping[str, Values | NDArray[Any]]) -> Block:
        """Return the columns of one role from values by name, or from what is encoded already."""
        widths = {"codes": 0, "numbers": 0}
        for _, kind, columns in self.columns_of(role):
            widths[kind] = columns.stop
        like = next((_array_of(each) for each in values.values() if len(each) == size), np.empty(0))
        block = Block(
            empty_like(like, (size, widths["codes"]), np.int32),
            empty_like(like, (size, widths["numbers"]), np.float32),
        )
        for encoder, kind, columns in self.columns_of(role):
            supplied = values.get(encoder.feature.name)
            if supplied is None:
                raise DataError(
                    f"column '{encoder.feature.source}' is missing, which the model reads",
                    remedy="give the column, or train without it",
                )
            target = getattr(block, kind)[:, columns]
            if isinstance(supplied, np.ndarray):
                target[:] = supplied
            else:
                encoder.encode(supplied, target)
        return block

    def table_columns(self, role: Role, at: NDArray[np.integer[Any]]) -> dict[str, NDArray[Any]]:
        """Return what is known of users or items by their codes: the columns of each feature, by its name."""
        taken = self.tables[role].take(at)
        return {
            encoder.feature.name: getattr(taken, kind)[:, columns]
            for encoder, kind, columns in self.columns_of(role)
        }

    def table(self) -> list[dict[str, Any]]:
        """Return a line for each feature: name, kind, role, cardinality, missing share, example, note."""
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
        """Return plain values, for files; the tables apart."""
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
        """Build one from what :meth:`to_dict` returned; raise a :class:`DataError` for anything else."""
        if not isinstance(record, list):
            raise DataError("these are not encoders", remedy="give a list")
        return cls(tuple(encoder_from(each) for each in record), users, items, tables or {}, seen or {})


def _seen(log: Log) -> dict[Role, NDArray[np.bool_]]:
    """Return the users and items with rows; in the space ``"matrix"``, where all pairs count, all of them."""
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
    """Hint at a field of rows that is called as a place on a page; nothing is done by itself."""
    words = re.split(r"[^a-z]+", feature.name.lower())
    if feature.role != "row" or not POSITIONS.intersection(words):
        return ""
    return f"a position? (--model-features=-{feature.name})"


def _array_of(values: Values | NDArray[Any]) -> NDArray[Any]:
    """Return the array that has a line for each row, or an element of a list."""
    if isinstance(values, np.ndarray):
        return values
    return values.values if isinstance(values, Numbers) else values.codes


def _with_nobody(block: Block, encoders: Sequence[Encoder]) -> Block:
    """Return a table with one more line, of somebody of whom nothing is known."""
    nobody: dict[bool, list[NDArray[Any]]] = {True: [], False: []}
    for encoder in encoders:
        empty: Values = Texts(np.array([MISSING], np.int32), np.empty(0, TEXT))
        if isinstance(encoder, NumberEncoder):
            shape = (1, len(encoder.mean)) if encoder.feature.kind == "vector" else (1,)
            empty = Numbers(np.full(shape, np.nan))
        elif encoder.feature.kind == "bag":
            empty = Texts(np.empty(0, np.int32), np.empty(0, TEXT), np.zeros(2, np.int64))
        nobody[encoder.field.is_number].append(encoder.encode(empty))
    lines = [
        np.vstack([known, np.hstack([np.empty((1, 0), known.dtype), *nobody[numbers]])])
        for known, numbers in ((block.codes, False), (block.numbers, True))
    ]
    return Block(lines[0], lines[1])
