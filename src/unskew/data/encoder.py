"""How one feature is coded: a vocabulary, a hash or a scale, fitted on the values of a training log."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError
from unskew.base.seeds import splitmix64
from unskew.data.arrays import pieces
from unskew.data.distinct import TEXT, ValueIndex, as_arrow
from unskew.data.kinds import Bag, Coded, Feature, Number, TimePart, feature_from_dict
from unskew.data.schema import Field
from unskew.data.values import Bags, Numbers, Texts, Values, Vectors, missing_share
from unskew.data.vocabulary import UNSEEN_CODE, text_hashes

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

MOST_VALUES = 1_000_000
"""Values of a vocabulary at most, the most frequent, unless the feature says otherwise."""

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
        """What was learned, as plain values."""

    def design(self, encoded: NDArray[Any]) -> NDArray[np.float32]:
        """Columns for linear models and trees, from what :meth:`encode` gave: numbers are their own."""
        return np.asarray(encoded, dtype=np.float32)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for files."""
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
    def fit(
        cls, feature: Feature, values: Texts | Bags, sharing: Sequence[Texts | Bags], root: Feature
    ) -> CodeEncoder:
        """From the values of a log.

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
            assert isinstance(values, Bags)
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
        assert isinstance(values, Texts | Bags)
        codes = np.empty((len(values), self.width), dtype=np.int32) if out is None else out
        # The last place is where code −1 looks.
        nothing = np.int32(MISSING_CODE if self.missing > 0 else OTHER_CODE)
        code_of = np.append(self._codes_of(values.texts), nothing)
        for piece in pieces(len(values)):
            some = values.take(piece)
            codes[piece] = (
                code_of[some.codes][:, None] if isinstance(some, Texts) else self._bag(some, code_of)
            )
        return codes

    def _bag(self, values: Bags, code_of: NDArray[np.int32]) -> NDArray[np.int32]:
        columns = np.full((len(values), self.width), PAD, dtype=np.int32)
        lengths = np.minimum(values.lengths, self.width)
        row = np.repeat(np.arange(len(values)), lengths)
        column = np.arange(len(row)) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        columns[row, column] = code_of[values.codes[values.starts[row] + column]]
        columns[lengths == 0, 0] = code_of[-1]
        return columns

    def design(self, encoded: NDArray[Any]) -> NDArray[np.float32]:
        """A column for each code but "other": how many of a row's values have it."""
        size = self.field.size
        columns = np.zeros((len(encoded), size), dtype=np.float32)
        row, place = np.nonzero(encoded >= 0)
        np.add.at(columns, (row, encoded[row, place]), np.float32(1))
        return columns[:, 1:]

    def learned(self) -> dict[str, Any]:
        """Vocabulary or hash."""
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
        place = self._places.find(as_arrow(texts))
        return np.where(place == UNSEEN_CODE, OTHER_CODE, place + FIRST_CODE).astype(np.int32)


@dataclass(frozen=True, eq=False)
class NumberEncoder(Encoder):
    """Numbers of mean 0 and variance 1, 0 where missing; a second column says so, if training had such."""

    transform: str
    mean: float
    scale: float
    knots: NDArray[np.float64]

    @classmethod
    def fit(cls, feature: Number, values: Numbers) -> NumberEncoder:
        """From the values of a log."""
        sample = _sample(values.values)
        known = sample[~np.isnan(sample)]
        transform = _chosen_transform(known) if feature.transform == "auto" else str(feature.transform)
        if transform == "log" and len(known) and known.min() < 0:
            raise DataError(
                f"transform='log' needs numbers from 0 on, and there is {known.min():g}",
                where=f"column '{feature.source}'",
                remedy="use 'quantile' or 'standard'",
            )
        knots = np.empty(0)
        if transform == "quantile" and len(known):
            knots = np.quantile(known, np.linspace(0, 1, KNOTS))
        scaled = _transformed(known, transform, knots)
        # Of one number alone the deviation is a rounding of it, which is no scale.
        varies = len(known) > 0 and scaled.std() > ROUNDING * np.abs(scaled).max()
        return cls(
            feature=feature,
            cardinality=len(np.unique(known)),
            missing=missing_share(values),
            example=f"{np.median(known):.4g}" if len(known) else "",
            transform=transform,
            mean=float(scaled.mean()) if len(known) else 0.0,
            scale=float(scaled.std()) if varies else 1.0,
            knots=knots,
        )

    @property
    def field(self) -> Field:
        """Return the field that networks read."""
        assert self.feature.role is not None
        return Field(
            self.feature.name, "number", self.feature.role, unknown="other", width=1 + (self.missing > 0)
        )

    @property
    def note(self) -> str:
        """The transform."""
        return self.transform

    def encode(self, values: Values, out: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """Return numbers ``[n, 1 or 2]``."""
        assert isinstance(values, Numbers)
        columns = np.empty((len(values), self.field.width), dtype=np.float32) if out is None else out
        for piece in pieces(len(values)):
            numbers = values.values[piece]
            missing = np.isnan(numbers)
            # What cannot be transformed as in training is taken as the nearest that can.
            numbers = np.maximum(numbers, 0.0) if self.transform == "log" else numbers
            scaled = (_transformed(numbers, self.transform, self.knots) - self.mean) / self.scale
            columns[piece, 0] = np.where(missing, 0.0, np.clip(scaled, -FARTHEST, FARTHEST))
            if self.missing > 0:
                columns[piece, 1] = missing
        return columns

    def learned(self) -> dict[str, Any]:
        """Transform and scale."""
        return {
            "transform": self.transform,
            "mean": self.mean,
            "scale": self.scale,
            "knots": self.knots.tolist(),
        }


@dataclass(frozen=True, eq=False)
class VectorEncoder(Encoder):
    """Vectors whose numbers have mean 0 and variance 1, 0 where missing; a last column says so, if training
    had such."""

    mean: NDArray[np.float64]
    scale: NDArray[np.float64]

    @classmethod
    def fit(cls, feature: Feature, values: Vectors) -> VectorEncoder:
        """Fit on the values of a log."""
        known = _sample(values.values)
        known = known[~np.isnan(known[:, 0])].astype(np.float64)
        width = values.values.shape[1]
        mean, scale = (
            (known.mean(axis=0), known.std(axis=0)) if len(known) else (np.zeros(width), np.ones(width))
        )
        most = np.abs(known).max(axis=0, initial=0.0)
        return cls(
            feature=feature,
            cardinality=len(np.unique(values.keys()[~values.missing()]))
            if len(values) <= SAMPLED_ROWS
            else len(known),
            missing=missing_share(values),
            example=", ".join(f"{number:.4g}" for number in known[0, :3]) + ", …" if len(known) else "",
            mean=mean,
            scale=np.where(scale > ROUNDING * most, scale, 1.0),
        )

    @property
    def field(self) -> Field:
        """Return the field that networks read."""
        assert self.feature.role is not None
        width = len(self.mean) + (self.missing > 0)
        return Field(self.feature.name, "vector", self.feature.role, unknown="other", width=width)

    @property
    def note(self) -> str:
        """The width."""
        return f"{len(self.mean)} numbers"

    def encode(self, values: Values, out: NDArray[Any] | None = None) -> NDArray[np.float32]:
        """Return numbers ``[n, width]``."""
        assert isinstance(values, Vectors)
        if values.values.shape[1] != len(self.mean):
            raise DataError(
                f"its vectors have {values.values.shape[1]} numbers, those of training {len(self.mean)}",
                where=f"column '{self.feature.source}'",
                remedy="give vectors of the same model",
            )
        columns = np.empty((len(values), self.field.width), dtype=np.float32) if out is None else out
        for piece in pieces(len(values)):
            missing = np.isnan(values.values[piece, 0])
            scaled = np.clip((values.values[piece] - self.mean) / self.scale, -FARTHEST, FARTHEST)
            columns[piece, : len(self.mean)] = np.where(missing[:, None], 0.0, scaled)
            if self.missing > 0:
                columns[piece, -1] = missing
        return columns

    def learned(self) -> dict[str, Any]:
        """Return the scale."""
        return {"mean": self.mean.tolist(), "scale": self.scale.tolist()}


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


def _frequent(sharing: Sequence[Texts | Bags], min_count: int, size: int) -> NDArray[Any]:
    """The most frequent texts of several columns, at most so many, each seen so often; sorted."""
    texts = np.concatenate([each.texts for each in sharing])
    counts = np.concatenate([each.counts() for each in sharing])
    unique, place = np.unique(texts, return_inverse=True)
    total = np.bincount(place, weights=counts, minlength=len(unique))
    kept = np.flatnonzero(total >= min_count)
    # By count, and by text where counts are equal.
    best = kept[np.argsort(-total[kept], kind="stable")[:size]]
    return np.asarray(unique[np.sort(best)])


def _skewness(values: NDArray[np.float64]) -> float:
    deviation = values.std()
    if deviation <= ROUNDING * np.abs(values).max():
        return 0.0
    standard = (values - values.mean()) / deviation
    return float((standard * standard * standard).mean())


def _chosen_transform(known: NDArray[np.float64]) -> str:
    """The rule of :class:`Number`."""
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
    """The corners of what ``transform="quantile"`` interpolates between: values and their ranks."""
    ranks = np.linspace(-np.sqrt(3), np.sqrt(3), len(knots))
    # Several knots on one value: its middle rank.
    place, at = np.unique(knots, return_inverse=True)
    return place, np.bincount(at, ranks) / np.bincount(at)


KINDS: dict[str, Any] = {
    "category": CodeEncoder,
    "bag": CodeEncoder,
    "number": NumberEncoder,
    "vector": VectorEncoder,
}


def encoder_from(record: Any) -> Encoder:
    """From what :meth:`Encoder.to_dict` gave; a :class:`DataError` where it is something else."""
    if not isinstance(record, Mapping):
        raise DataError("this is not an encoder", remedy="give what was saved")
    feature = feature_from_dict(record.get("declared"))
    kind = KINDS[feature.kind]
    arrays: dict[str, Any] = {"vocabulary": TEXT, "knots": np.float64}
    if feature.kind == "vector":
        arrays |= {"mean": np.float64, "scale": np.float64}
    learned = {name: value for name, value in record.items() if name != "declared"}
    try:
        made: dict[str, Any] = {
            name: np.array(value, dtype=arrays[name]) if name in arrays else value
            for name, value in learned.items()
        }
        for name, value in made.items():
            if name in arrays and value.ndim != 1:
                raise TypeError(f"{name} is no list")
            optional = name in ("buckets", "collisions") and value is None
            if (
                name not in (*arrays, "transform", "example")
                and not optional
                and type(value) not in (int, float)
            ):
                raise TypeError(f"{name} is no number")
        encoder: Encoder = kind(feature=feature, **made)
        _ = encoder.field
    except (TypeError, ValueError, AssertionError) as error:
        raise DataError(f"the encoder of '{feature.name}' is not whole", remedy="save it again") from error
    return encoder
