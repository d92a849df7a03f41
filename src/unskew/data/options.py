"""How a log is asked for: which columns are what, and what its rows are of."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Literal, get_args

from unskew.base.errors import DataError, ParameterError
from unskew.base.estimator import require, require_choice
from unskew.data.described import Wanted, sources_of, without_auto
from unskew.data.digest import digest_of
from unskew.data.kinds import Features
from unskew.data.vocabulary import Vocabulary

CLICK, CONVERSION = "click", "conversion"
"""The columns of outcomes, unless others are named."""

MOST_IDS = 10_000_000
"""Users, and items, that have a code of their own at most: the most frequent."""

Space = Literal["matrix", "impressions"]
Duplicates = Literal["error", "max"]
Unclicked = Literal["error", "drop", "click"]
"""What becomes of rows that converted without a click."""


@dataclass(frozen=True)
class LogOptions:
    """How a log is asked for.

    Attributes
    ----------
    user, item, click, conversion, known_propensity
        Columns of ids and outcomes; None where there is no such column.
    keep
        Further columns, carried along as they are.
    time, times
        The column that says when each row was; None for the first of ``times``, or else of the features,
        that is one of times without missing values.
    features, ignore
        What networks read beside the ids, and with ``"auto"`` columns to leave out.
    numbers
        Columns of CSV files, beside features and outcomes, whose values tell their type.
    most_ids
        Users, and items, that have a code of their own at most.
    space, duplicates, users, items, user_features, item_features, actions, all_known
        As in :meth:`unskew.Log.from_arrays`.
    unclicked
        Whether rows that converted without a click are an error; they keep their conversion for what drops
        or repairs them otherwise.
    auto_keeps
        Whether ``"auto"`` takes columns that are carried along too.
    """

    user: str = "user"
    item: str = "item"
    click: str | None = None
    conversion: str | None = None
    known_propensity: str | None = None
    keep: Iterable[str] = ()
    time: str | None = None
    times: Sequence[str] = ()
    features: Wanted | None = None
    ignore: Iterable[str] = ()
    numbers: Iterable[str] = ()
    most_ids: int = MOST_IDS
    space: Space = "matrix"
    duplicates: Duplicates = "error"
    users: Vocabulary | None = None
    items: Vocabulary | None = None
    user_features: Features | None = None
    item_features: Features | None = None
    actions: int | None = None
    all_known: bool = False
    unclicked: Unclicked = "error"
    auto_keeps: bool = False

    def __post_init__(self) -> None:
        for name in ("keep", "ignore", "numbers"):
            object.__setattr__(self, name, names_of(name, getattr(self, name)))
        require_choice("space", self.space, get_args(Space))
        require_choice("duplicates", self.duplicates, get_args(Duplicates))
        require_choice("unclicked", self.unclicked, get_args(Unclicked))
        kinds = {"users": Vocabulary, "items": Vocabulary}
        for name, kind in {**kinds, "user_features": Features, "item_features": Features}.items():
            value = getattr(self, name)
            remedy = "give unskew.data.Features(names=…, values=…)"
            if kind is Vocabulary:
                remedy = f"give ids of rows as {name[:-1]}=, and log.{name} of another log as {name}="
            problem = f"{name} must be a {kind.__name__}, not a {type(value).__name__}"
            require(value is None or isinstance(value, kind), problem, remedy)
        if None in (self.user, self.item):
            problem = "a log needs a user and an item for each row"
            raise ParameterError(problem, remedy="name their columns with user= and item=")
        role_of: dict[str, str] = {}
        for role in ("user", "item", "known_propensity", "click", "conversion", "time"):
            name = getattr(self, role)
            if not isinstance(name, str | None):
                problem = f"{name!r} is not the name of a column"
                raise ParameterError(problem, where=role, remedy="give names as text; rename columns")
            if name is not None and (other := role_of.setdefault(name, role)) != role:
                problem = f"column '{name}' is given both as {other} and as {role}"
                raise ParameterError(problem, remedy=f"name another column as {other} or as {role}")

    @property
    def outcomes(self) -> list[str]:
        """The columns of outcomes."""
        return [name for name in (self.click, self.conversion, self.known_propensity) if name is not None]

    @property
    def carried(self) -> tuple[str, ...]:
        """Columns that the log has beside ids, outcomes and features."""
        further = (name for name in (self.known_propensity, self.time) if name is not None)
        return tuple(dict.fromkeys((*self.keep, *further)))

    @property
    def taken(self) -> set[str | None]:
        """Columns that ``"auto"`` leaves alone."""
        remaining = () if self.auto_keeps else self.keep
        return {self.user, self.item, *self.outcomes, *self.ignore, *remaining}

    @property
    def called(self) -> dict[str, str]:
        """The names of the columns by role, for messages."""
        outcomes = {"click": self.click or CLICK, "conversion": self.conversion or CONVERSION}
        return {"user": self.user, "item": self.item, **outcomes}

    @property
    def digest(self) -> str:
        """A digest that tells options apart."""
        parts = []
        for entry in fields(self):
            value = getattr(self, entry.name)
            parts += [value.ids, value.buckets] if isinstance(value, Vocabulary) else [value]
        return digest_of(*parts)

    def found_in(self, names: Collection[str], lacked: Collection[str] = ()) -> LogOptions:
        """Name the outcomes by their usual names where such columns are there; refuse what does not fit."""
        click, conversion, known = self.click, self.conversion, self.known_propensity
        free = {*names} - {self.user, self.item, known, self.time}
        if click is None and known is None and CLICK in free - {conversion}:
            click = CLICK
        if conversion is None and CONVERSION in free - {click}:
            conversion = CONVERSION
        for name in () if self.features is None else sources_of(without_auto(self.features)):
            if name in (self.user, self.item, click, conversion, known):
                raise ParameterError(
                    f"column '{name}' is an id or an outcome of the log, and no feature",
                    remedy="leave it out of the features",
                )
        if known is not None:
            self._require_shown_rows(known, names, click)
        elif self.actions is not None:
            problem = "actions goes with known_propensity"
            raise ParameterError(problem, remedy="name the column of the probabilities of showing")
        elif click is None and not self.all_known and self.space == "impressions":
            raise DataError("the space 'impressions' needs a click for each row", remedy="give click=")
        return replace(self, click=click, conversion=conversion)

    def _require_shown_rows(self, known: str, names: Collection[str], click: str | None) -> None:
        """Refuse a space, a click or a missing column that a log of known propensities cannot have."""
        if known not in names:
            problem = f"there is no column '{known}' of known propensities"
            raise DataError(problem, remedy="give it among the columns")
        require(
            self.space == "impressions",
            "known propensities are of rows that were shown, not of all pairs",
            "use the space 'impressions' (--space impressions)",
        )
        require(
            click is None,
            "a log with known propensities has no click column: every row was shown, and what became of it is"
            " its conversion",
            "give the column of the outcome as conversion (--conversion), and no click",
        )


def names_of(parameter: str, given: object) -> tuple[str, ...]:
    """Return a list of names of columns; a text would be read letter by letter, and is an error."""
    names = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else None
    if names is None or not all(isinstance(name, str) for name in names):
        problem = f"{parameter} must be names of columns, not {given!r}"
        raise ParameterError(problem, remedy="give a list of names")
    return names
