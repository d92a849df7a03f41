"""Declarations of features: kind, role and coding. Values and codes are elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError, ParameterError
from unskew.base.estimator import require
from unskew.data.schema import Kind, Part, Pool, Role

Transform = Literal["auto", "standard", "log", "quantile"]

MIN_COUNT = 2
"""Rows (or users, or items) that a value must be seen in to have a code of its own."""


@dataclass(frozen=True)
class Feature:
    """A column that networks read.

    Parameters
    ----------
    name
        Of the column.
    role
        What it tells of: ``"user"``, ``"item"`` or ``"row"``. None finds out: a column whose value never
        changes within a user is the user's, one that never changes within an item is the item's.
    """

    kind: ClassVar[Kind]
    name: str
    role: Role | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        is_name = isinstance(self.name, str) and bool(self.name)
        require(is_name, f"{self.name!r} is not the name of a column", "give its name as text")
        self._require_one_of("role", (None, "user", "item", "row"))

    @property
    def source(self) -> str:
        """The column it is made of."""
        return self.name

    def with_role(self, role: Role) -> Self:
        """Return the same for a role."""
        return replace(self, role=role)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for files."""
        return {"feature": type(self).__name__, **asdict(self)}

    def _require_one_of(self, parameter: str, allowed: Iterable[str | None]) -> None:
        value, allowed = getattr(self, parameter), tuple(allowed)
        problem = f"feature '{self.name}': {parameter} is {value!r}"
        require(value in allowed, problem, f"give one of {', '.join(map(str, allowed))}")

    def _require_whole(self, *parameters: str) -> None:
        for name in parameters:
            value = getattr(self, name)
            require(
                value is None or (type(value) is int and value >= 1),
                f"feature '{self.name}': {name} must be a whole number of at least 1, not {value!r}",
                "give one, or leave it out",
            )


@dataclass(frozen=True)
class Coded(Feature):
    """The base of categories and bags: features whose values get codes.

    Parameters
    ----------
    size
        At most so many values have a code of their own, the most frequent; None for all that are seen
        ``min_count`` times. Rare and unseen values share the code "other".
    hash
        For open vocabularies: so many codes, and a value gets one by a hash of its text. None keeps a
        vocabulary.
    dim
        Dimension of its embedding; None as the backbone says.
    share
        The name of another feature whose codes and embeddings it shares (a viewed and a bought brand).
    min_count
        How often a value must be seen in training to have a code of its own.
    """

    size: int | None = field(default=None, kw_only=True)
    hash: int | None = field(default=None, kw_only=True)
    dim: int | None = field(default=None, kw_only=True)
    share: str | None = field(default=None, kw_only=True)
    min_count: int = field(default=MIN_COUNT, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_whole("size", "hash", "dim", "min_count")
        problem = f"feature '{self.name}' has both size and hash"
        require(None in (self.size, self.hash), problem, "give one: a vocabulary, or hashing")
        require(
            self.share is None or (self.size, self.hash, self.dim) == (None, None, None),
            f"feature '{self.name}' shares the codes of '{self.share}', which has size, hash and dim",
            "give them there",
        )


@dataclass(frozen=True)
class Category(Coded):
    """One of a number of values: a country, a device, a brand.

    Parameters
    ----------
    name, role
        The column, and what it tells of: ``"user"``, ``"item"``, ``"row"``, or None to find out.
    size
        At most so many values have a code of their own, the most frequent; rare and unseen values share one.
    hash
        So many codes, by a hash of the value's text, for open vocabularies.
    dim
        Dimension of its embedding; None as the backbone says.
    share
        The name of another feature whose codes and embeddings it shares.
    min_count
        How often a value must be seen to have a code of its own.

    Examples
    --------
    >>> Category("country", role="user").kind
    'category'
    """

    kind: ClassVar[Kind] = "category"


@dataclass(frozen=True)
class Bag(Coded):
    """A list of values: tags, words, the last items that were seen.

    Parameters
    ----------
    pool
        How the embeddings of a row's values become one: ``"mean"``, ``"sum"`` or ``"max"``.
    width
        At most so many values of a row are read, the first ones; None takes the longest list of training, up
        to :data:`unskew.data.encoder.MOST_IN_BAG`.
    name, role, size, hash, dim, share, min_count
        As in :class:`Category`.
    """

    kind: ClassVar[Kind] = "bag"
    pool: Pool = "mean"
    width: int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_one_of("pool", get_args(Pool))
        self._require_whole("width")


@dataclass(frozen=True)
class Number(Feature):
    """A number: a price, an age, a count.

    Parameters
    ----------
    transform
        ``"standard"``: less the mean, over the standard deviation. ``"log"``: log(1 + x) first, for numbers
        from 0 on. ``"quantile"``: the rank among the training values, from −√3 to √3. ``"auto"``: standard
        where the skewness is within ± 2, else log where that brings it there, else quantile.
    name, role
        As in :class:`Category`.
    """

    kind: ClassVar[Kind] = "number"
    transform: Transform = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._require_one_of("transform", get_args(Transform))


@dataclass(frozen=True)
class Vector(Feature):
    """Several numbers in an order, such as an embedding of a title or an image.

    A vector is a column of lists of one length, or several columns of numbers that are named by a prefix and
    a number: ``Vector("emb_")`` is ``emb_0``, ``emb_1`` and so on, in the order of the numbers. Networks
    project them, linear models and trees read each as a number. Each is standardised.

    Parameters
    ----------
    name, role
        As in :class:`Category`; the name is the column, or the prefix of the columns.

    Examples
    --------
    >>> Vector("title_embedding", role="item").kind
    'vector'
    """

    kind: ClassVar[Kind] = "vector"


def numbered(prefix: str, names: Iterable[str]) -> list[str]:
    """Return the columns that are named by a prefix and a number, in the order of the numbers.

    Examples
    --------
    >>> numbered("emb_", ["emb_10", "emb_9", "emb_x", "emb"])
    ['emb_9', 'emb_10']
    """
    numbers = {name: name.removeprefix(prefix) for name in names if name.startswith(prefix)}
    result = {name: int(number) for name, number in numbers.items() if re.fullmatch(r"\d{1,6}", number)}
    return sorted(result, key=result.__getitem__)


@dataclass(frozen=True)
class TimePart(Feature):
    """The hour of the day or the day of the week of a column of times; what ``"auto"`` makes of one."""

    kind: ClassVar[Kind] = "category"
    role: Role | None = field(default="row", kw_only=True)
    part: Part = "hour"
    of: str = ""

    @classmethod
    def both(cls, column: str) -> tuple[TimePart, TimePart]:
        """Return hour and weekday of a column."""
        hour, weekday = (cls(f"{column}.{part}", part=part, of=column) for part in get_args(Part))
        return hour, weekday

    @property
    def source(self) -> str:
        """The column of times."""
        return self.of


DECLARED: dict[str, type[Feature]] = {
    each.__name__: each for each in (Category, Bag, Number, Vector, TimePart)
}


def feature_from_dict(record: Any) -> Feature:
    """Return what :meth:`Feature.to_dict` described; something else is a :class:`DataError`."""
    kind = DECLARED.get(str(record.get("feature"))) if isinstance(record, Mapping) else None
    if kind is None or record.keys() - {"feature"} != {each.name for each in fields(kind)}:
        raise DataError("this is not a feature", remedy=f"give one of {', '.join(DECLARED)}")
    try:
        return kind(**{name: value for name, value in record.items() if name != "feature"})
    except ParameterError as error:
        raise DataError(error.problem, remedy=error.remedy) from error


@dataclass(frozen=True, eq=False)
class Features:
    """One row of numbers per user (or per item), in the order of the vocabulary, beside the rows of a log."""

    names: tuple[str, ...]
    values: NDArray[np.float32]

    def __post_init__(self) -> None:
        if self.values.ndim != 2 or self.values.shape[1] != len(self.names):
            raise DataError(
                f"a feature matrix of shape {self.values.shape} does not fit its {len(self.names)} names",
                remedy="give one column for each name",
            )
        if not np.isfinite(self.values).all():
            row, column = np.argwhere(~np.isfinite(self.values))[0]
            raise DataError(
                "feature is NaN or infinite",
                where=f"feature '{self.names[column]}', row {row}",
                remedy="fill missing features before building the log",
            )
        values = self.values.astype(np.float32)
        values.flags.writeable = False
        object.__setattr__(self, "values", values)
