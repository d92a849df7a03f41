"""What a user says of a feature: its kind, its role, how it is coded. Values and codes are elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, Self, get_args

from unskew.base.errors import DataError, ParameterError
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
        if not isinstance(self.name, str) or not self.name:
            raise ParameterError(f"{self.name!r} is not the name of a column", remedy="give its name as text")
        if self.role not in (None, "user", "item", "row"):
            raise ParameterError(
                f"feature '{self.name}': role is {self.role!r}", remedy="give 'user', 'item', 'row' or None"
            )

    @property
    def source(self) -> str:
        """The column it is made of."""
        return self.name

    def with_role(self, role: Role) -> Self:
        """The same for a role."""
        return replace(self, role=role)

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for files."""
        return {"feature": type(self).__name__, **asdict(self)}


@dataclass(frozen=True)
class Coded(Feature):
    """What categories and bags share: values that get codes.

    Parameters
    ----------
    size
        At most so many values have a code of their own, the most frequent; None for all that are seen
        ``min_count`` times. Rare and unseen values share the code "other".
    hash
        For open vocabularies: so many codes, and a value gets one by a hash of its text. None keeps a
        vocabulary.
    dim
        Dimension of its embedding; None as the learner says.
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
        for name in ("size", "hash", "dim", "min_count"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 1):
                raise ParameterError(
                    f"feature '{self.name}': {name} must be a whole number of at least 1, not {value!r}",
                    remedy="give one, or leave it out",
                )
        if self.size is not None and self.hash is not None:
            raise ParameterError(
                f"feature '{self.name}' has both size and hash", remedy="give one: a vocabulary, or hashing"
            )
        if self.share is not None and (self.size, self.hash, self.dim) != (None, None, None):
            raise ParameterError(
                f"feature '{self.name}' shares the codes of '{self.share}', which has size, hash and dim",
                remedy="give them there",
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
        Dimension of its embedding; None as the learner says.
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
        if self.pool not in get_args(Pool):
            raise ParameterError(
                f"feature '{self.name}': pool is {self.pool!r}",
                remedy=f"give one of {', '.join(get_args(Pool))}",
            )
        if self.width is not None and (type(self.width) is not int or self.width < 1):
            raise ParameterError(
                f"feature '{self.name}': width must be a whole number of at least 1, not {self.width!r}",
                remedy="give one, or leave it out",
            )


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
        if self.transform not in get_args(Transform):
            raise ParameterError(
                f"feature '{self.name}': transform is {self.transform!r}",
                remedy=f"give one of {', '.join(get_args(Transform))}",
            )


@dataclass(frozen=True)
class Vector(Feature):
    """Several numbers in an order, such as an embedding of a title or an image: lists of one length.

    Networks project them, linear models and trees read each as a number. Each is standardised.

    Parameters
    ----------
    name, role
        As in :class:`Category`.

    Examples
    --------
    >>> Vector("title_embedding", role="item").kind
    'vector'
    """

    kind: ClassVar[Kind] = "vector"


@dataclass(frozen=True)
class TimePart(Feature):
    """The hour of the day or the day of the week of a column of times; what ``"auto"`` makes of one."""

    kind: ClassVar[Kind] = "category"
    role: Role | None = field(default="row", kw_only=True)
    part: Part = "hour"
    of: str = ""

    @classmethod
    def both(cls, column: str) -> tuple[TimePart, TimePart]:
        """Hour and weekday of a column."""
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
    """From what :meth:`Feature.to_dict` gave; a :class:`DataError` where it is something else."""
    kind = DECLARED.get(str(record.get("feature"))) if isinstance(record, Mapping) else None
    if kind is None or record.keys() - {"feature"} != {each.name for each in fields(kind)}:
        raise DataError("this is not a feature", remedy=f"give one of {', '.join(DECLARED)}")
    try:
        return kind(**{name: value for name, value in record.items() if name != "feature"})
    except ParameterError as error:
        raise DataError(error.problem, remedy=error.remedy) from error
