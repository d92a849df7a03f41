"""The columns of a log as a network sees them: fields with a kind and a role. Their values are `Rows`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, Literal, get_args

from unskew.base.errors import DataError

Kind = Literal["id", "category", "number", "bag", "vector"]
"""One of many codes that name a thing, one of few codes, a number, several codes, or several numbers."""

Role = Literal["user", "item", "row", "time"]
"""What a field tells of: the user, the item, the single row (its context), or when the row was."""

Unknown = Literal["error", "other"]
"""What a value that was not there in training is: an error (no prediction), or one of the code "other"."""

Pool = Literal["mean", "sum", "max"]
"""How the embeddings of a bag become one."""

ROLES_OF_IDS = ("user", "item")

Part = Literal["hour", "weekday"]
"""What a column of times is read as: ``time.hour`` and ``time.weekday``."""

NOT = "-"
"""What stands before the name of a field that is left out."""


def is_selected(name: str, fields: Sequence[str] | None) -> bool:
    """Return whether a field is among those named, or not among those named with a minus; None is all.

    A column of times names both of its fields.

    Examples
    --------
    >>> is_selected("time.hour", ("time",)), is_selected("price", ("-price",))
    (True, False)
    """
    if fields is None:
        return True
    column, _, piece = name.rpartition(".")
    names = {name, column} if piece in get_args(Part) else {name}
    if any(each.startswith(NOT) for each in fields):
        return names.isdisjoint(each.removeprefix(NOT) for each in fields)
    return not names.isdisjoint(fields)


@dataclass(frozen=True)
class Field:
    """One named input of a network.

    Parameters
    ----------
    size
        Number of codes, which count from 0; 0 for a number, which has none.
    unknown
        ``"other"``: one of the codes, the last of an id and the first of a category or bag, is for values
        that were not there in training.
    width
        Columns that it has in a batch: 1 for a category; as many codes as a row of a bag may have; 1 for a
        number, and as many as it has for a vector, with one more that says whether it is missing.
    dim, share, pool
        The embedding: its dimension (None as the learner says), the field whose embeddings it shares, and
        how those of a bag become one.
    """

    name: str
    kind: Kind
    role: Role
    size: int = 0
    unknown: Unknown = "error"
    width: int = 1
    dim: int | None = None
    share: str | None = None
    pool: Pool = "mean"

    @property
    def is_number(self) -> bool:
        """True where its columns are numbers and no codes."""
        return self.kind in ("number", "vector")

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not isinstance(self.share, str | None):
            raise DataError(
                f"field {self.name!r} shares with {self.share!r}: one of them is no name",
                remedy="give names as text",
            )
        for name, allowed in (("kind", Kind), ("role", Role), ("unknown", Unknown), ("pool", Pool)):
            if getattr(self, name) not in get_args(allowed):
                raise DataError(
                    f"field {self.name!r}: {name} is {getattr(self, name)!r}",
                    remedy=f"give one of {', '.join(get_args(allowed))}",
                )
        if type(self.size) is not int or self.size < 0 or (self.size == 0) != self.is_number:
            raise DataError(
                f"field {self.name!r}: the kind {self.kind!r} cannot have the size {self.size!r}",
                remedy="give the number of its codes, or 0 for a number",
            )
        for name, value in (("width", self.width), ("dim", 1 if self.dim is None else self.dim)):
            if type(value) is not int or value < 1:
                raise DataError(
                    f"field {self.name!r}: {name} is {value!r}", remedy="give a whole number of at least 1"
                )


@dataclass(frozen=True)
class Schema:
    """The fields of a log in their order; two of them are the ids, named ``"user"`` and ``"item"``.

    Examples
    --------
    >>> schema = Schema.of_ids(290, 300)
    >>> schema.user.size, [field.name for field in schema]
    (290, ['user', 'item'])
    """

    fields: tuple[Field, ...]

    def __post_init__(self) -> None:
        names = [field.name for field in self.fields]
        if len(set(names)) < len(names):
            raise DataError(f"two of the fields {names} have one name", remedy="rename one of the columns")
        ids = [(field.name, field.role) for field in self.fields if field.kind == "id"]
        if ids != [(role, role) for role in ROLES_OF_IDS]:
            raise DataError(
                f"the ids are {ids}", remedy="give one id 'user' and one id 'item', in this order"
            )
        sizes = {field.name: field.size for field in self.fields}
        for field in self.fields:
            if field.share is not None and sizes.get(field.share) != field.size:
                raise DataError(
                    f"field {field.name!r} shares embeddings with {field.share!r}, which has other codes",
                    remedy="name a field of the same codes",
                )

    @classmethod
    def of_ids(cls, users: int, items: int) -> Schema:
        """Return the two ids alone, of so many users and items."""
        return cls((Field("user", "id", "user", users), Field("item", "id", "item", items)))

    def __iter__(self) -> Iterator[Field]:
        return iter(self.fields)

    def __getitem__(self, name: str) -> Field:
        return self._by_name[name]

    @property
    def user(self) -> Field:
        """The id of users."""
        return self._by_name["user"]

    @property
    def item(self) -> Field:
        """The id of items."""
        return self._by_name["item"]

    @property
    def ids(self) -> Schema:
        """The two ids alone, of the users and items that are known."""
        return Schema.of_ids(*(each.size - (each.unknown == "other") for each in (self.user, self.item)))

    @property
    def features(self) -> tuple[Field, ...]:
        """The fields beside the ids: users', items' and rows', in this order, as batches have them."""
        return tuple(
            field for role in ("user", "item", "row") for field in self.of_role(role) if field.kind != "id"
        )

    def select(self, fields: Sequence[str] | None) -> Schema:
        """Return the ids and some of the features (:func:`is_selected`)."""
        return Schema(
            tuple(each for each in self.fields if each.kind == "id" or is_selected(each.name, fields))
        )

    def of_role(self, role: Role) -> tuple[Field, ...]:
        """Return the fields that tell of one thing, its id among them."""
        return tuple(field for field in self.fields if field.role == role)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for files."""
        return {"fields": [asdict(field) for field in self.fields]}

    @classmethod
    def from_dict(cls, record: Any) -> Schema:
        """Build one from what :meth:`to_dict` returned; raise a :class:`DataError` for anything else."""
        names = {each.name for each in fields(Field)}
        result = record.get("fields") if isinstance(record, Mapping) else None
        if not isinstance(result, list) or not all(
            isinstance(e, Mapping) and e.keys() == names for e in result
        ):
            raise DataError("this is not a schema", remedy=f"give a list of fields with {sorted(names)}")
        return cls(tuple(Field(**each) for each in result))

    @cached_property
    def _by_name(self) -> dict[str, Field]:
        return {field.name: field for field in self.fields}
