"""The Log: what was shown, clicked and converted. Validated once, immutable afterwards."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.base.columns import arrow_of, require_same_length
from unskew.base.errors import DataError, ParameterError
from unskew.base.notebook import ShowsItself
from unskew.base.plain_text import listed
from unskew.data.arrays import Lines, lines_of
from unskew.data.described import Described, Sources, Wanted, described, prepared
from unskew.data.digest import digest_of
from unskew.data.encoder import Block, Encoders
from unskew.data.kinds import Features
from unskew.data.options import LogOptions, Space, names_of
from unskew.data.schema import Schema
from unskew.data.values import is_list
from unskew.data.vocabulary import Vocabulary

BLOCK_ROWS = 1 << 18
"""Rows of a block of :meth:`Log.blocks`, unless another number is given."""


@dataclass(frozen=True, eq=False)
class Log(ShowsItself):
    """A log of what was shown, clicked and converted; columnar, with ids as codes.

    In the space ``"matrix"`` the population D is every pair of a user and an item: pairs that the log
    does not list were not clicked. In the space ``"impressions"`` the population is the rows themselves.
    ``conversion`` is known only where ``click`` is 1 and NaN elsewhere.

    Build one with :meth:`from_arrays`, :meth:`from_frame` or :func:`unskew.read_log`, which validate.

    Attributes
    ----------
    user, item
        Codes, positions in ``users.ids`` and ``items.ids``.
    click
        0 or 1 for each row (the paper's o).
    conversion
        0 or 1 where clicked, NaN elsewhere (the paper's r); None for a log of clicks alone.
    columns
        Further columns of the rows (features, times, segments), carried along untouched.
    known_propensity
        The column with the probability that the row's item was shown, for a log of what a policy showed (a
        bandit log): every row was shown, and so seen (``click`` is 1), and its outcome is ``conversion``.
    actions
        With ``known_propensity``: of how many items each row shows one. Rows × actions is the population,
        whose size Σ 1/p estimates.
    features
        What networks read beside the ids (:meth:`with_features`); None for the ids alone.
    time
        The one of ``columns`` that says when each row was, if there is one.
    """

    user: NDArray[np.int32]
    item: NDArray[np.int32]
    click: NDArray[np.uint8]
    conversion: NDArray[np.float32] | None
    users: Vocabulary
    items: Vocabulary
    space: Space = "matrix"
    user_features: Features | None = None
    item_features: Features | None = None
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    known_propensity: str | None = None
    actions: int | None = None
    features: Described | None = None
    time: str | None = None

    def __post_init__(self) -> None:
        for array in (self.user, self.item, self.click, self.conversion, *self.columns.values()):
            if array is not None:
                array.flags.writeable = False
        object.__setattr__(self, "columns", MappingProxyType(dict(self.columns)))
        for features, vocabulary in ((self.user_features, self.users), (self.item_features, self.items)):
            if features is not None and len(features.values) != len(vocabulary):
                raise DataError(
                    f"{len(features.values)} rows of {vocabulary.name} features"
                    f" for {len(vocabulary)} {vocabulary.name}s",
                    remedy="give one row for each id of the vocabulary, in its order",
                )

    @classmethod
    def from_arrays(
        cls,
        *,
        user: Any,
        item: Any,
        click: Any = None,
        conversion: Any = None,
        columns: Mapping[str, Any] | None = None,
        sources: Mapping[str, Any] | None = None,
        names: Mapping[str, str] | None = None,
        **options: Any,
    ) -> Log:
        """Validate arrays and build a log.

        Parameters
        ----------
        click
            0/1 for each row. May be left out in the space ``"matrix"``: every listed pair was clicked.
        conversion
            0/1 where clicked; NaN (or 0) where not. A conversion without a click is an error in the space
            ``"matrix"``; in the space ``"impressions"``, where it may follow from a mere view, it is dropped.
        duplicates
            What to do with a pair listed twice in the space ``"matrix"``: ``"error"``, or ``"max"``
            to keep it once, clicked (converted) if any of its rows was.
        users, items
            Vocabularies to share with another log; by default those of the ids given.
        names
            What the caller calls ``user``, ``item``, ``click`` and ``conversion``, for error messages.
        known_propensity
            For what a policy showed: which of ``columns`` holds the probability, above 0 and at most 1, with
            which it showed the row's item. The space is ``"impressions"``, without ``click``.
        actions
            With ``known_propensity``: how many items there were to choose from; by default all those listed.
        features, ignore
            What networks read beside the ids, as in :meth:`with_features`.
        sources
            Columns that features are made of and that are not carried along; by default those of ``columns``.
        time
            Which of ``columns`` says when each row was.
        all_known
            Of a log to judge by, not to train on: without ``click`` every row is clicked, in any space.

        Examples
        --------
        >>> log = Log.from_arrays(user=["a", "a", "b"], item=[1, 2, 1], conversion=[1, 0, 0])
        >>> log.population_size, log.n_clicks, log.density
        (4, 3, 0.75)
        """
        from unskew.data.source import Source
        from unskew.data.two_passes import log_of

        require_mappings(columns=columns, names=names)
        called = {name: name for name in ("user", "item", "click", "conversion")} | dict(names or {})
        supplied = {"user": user, "item": item, "click": click, "conversion": conversion}
        for role in ("user", "item"):
            if supplied[role] is None:
                raise DataError(f"'{called[role]}' is None", remedy="give one id for each row")
        arrays = {called[role]: values for role, values in supplied.items() if values is not None}
        arrays |= {**(sources or {}), **(columns or {})}
        table = {name: arrow_of(values, name) for name, values in arrays.items()}
        for name, values in table.items():
            require_same_length(len(table[called["user"]]), len(values), name)
        options |= {role: called[role] for role in supplied if supplied[role] is not None}
        # Lists are features, or else an error: arrays of a log have one value a row.
        lists = [name for name in table if is_list(table[name].type) and options.get("features")]
        keep = [name for name in columns or {} if name not in lists]
        asked = LogOptions(keep=keep, auto_keeps=True, **options)
        return log_of(Source.of_frame(pa.table(table)), asked)

    @classmethod
    def from_frame(cls, frame: Any, **options: Any) -> Log:
        """Build a log from any data frame (pandas, polars, Arrow, …) and the names of its columns.

        ``keep`` names further columns to carry along, ``known_propensity`` is one of them; ``options`` go to
        :meth:`from_arrays`.

        Parameters
        ----------
        user, item, click, conversion
            Names of the columns. ``click`` and ``conversion`` may be left out: they are then the columns of
            these names, as for ``unskew run``, if the frame has them.
        features
            What networks read beside the ids: names, :class:`unskew.Category`, :class:`unskew.Number` and
            :class:`unskew.Bag`, or ``"auto"`` for all other columns, by their types.
        ignore
            With ``"auto"``: columns to leave out, beside those of ``keep``.
        time
            The column that says when each row was, which is carried along; None for the first of the
            features that is one of times, without missing values.

        Examples
        --------
        >>> import pyarrow as pa
        >>> columns = {"user": [1, 1, 2], "item": [7, 8, 7], "click": [1, 0, 1], "device": ["tv", "pc", "pc"]}
        >>> log = Log.from_frame(pa.table(columns), click="click", space="impressions", features="auto")
        >>> [(field.name, field.kind, field.role) for field in log.schema.features]
        [('device', 'category', 'row')]
        """
        from unskew.data.source import Source
        from unskew.data.two_passes import log_of

        return log_of(Source.of_frame(frame), LogOptions(**options))

    def __len__(self) -> int:
        return len(self.user)

    def __repr__(self) -> str:
        return (
            f"Log({self.space}: {self.n_users:,} users × {self.n_items:,} items, {len(self):,} rows,"
            f" {self.n_clicks:,} clicks, density {self.density:.4g})"
        )

    @property
    def schema(self) -> Schema:
        """The inputs of networks: the two ids, and the features."""
        return self.ids_schema if self.encoders is None else self.encoders.schema

    @property
    def ids_schema(self) -> Schema:
        """The two ids."""
        return Schema.of_ids(self.n_users, self.n_items)

    @cached_property
    def encoders(self) -> Encoders | None:
        """How the features are coded, fitted on this log (or on its stream); None without features."""
        if self.features is None:
            return None
        return self.features.encoders or Encoders.fit(self)

    def encoded_rows(self) -> Block:
        """Return the features of the rows, coded; an error without features."""
        assert self.features is not None
        assert self.encoders is not None
        return self.encoders.block("row", len(self), self.features.values)

    def with_features(self, features: Wanted | None, ignore: Iterable[str] = ()) -> Log:
        """Return the same log with other features.

        Parameters
        ----------
        features
            Names of ``columns``, or of the columns of ``user_features`` and ``item_features``;
            :class:`unskew.Category`, :class:`unskew.Number` and :class:`unskew.Bag` with such names;
            ``"auto"`` for all of them; None for the ids alone.
        ignore
            With ``"auto"``: columns to leave out.
        """
        if features is None:
            return replace(self, features=None)
        known = (self.known_propensity, self.time)
        rows = {name: values for name, values in self.columns.items() if name not in known}
        tables = (self.user_features, self.item_features)
        sources = Sources(self.user, self.item, (self.n_users, self.n_items), self.space, tables)
        ignored = names_of("ignore", ignore)
        columns = prepared(features, rows, ignored)
        return replace(self, features=described(features, columns, sources, ignored))

    def reading(self, fields: Sequence[str] | None) -> Log:
        """Return the same log with some of its features, coded as all of them are.

        Parameters
        ----------
        fields
            Names of features; or, each with a minus in front, of those that are left out: ``("-position",)``
            is all but the position. None is all, ``()`` the ids alone. A column of times names its hour and
            weekday.
        """
        if fields is None:
            return self
        if self.features is None:
            raise ParameterError(
                f"the log has no features, of which {listed(fields) or 'none'} would be read",
                remedy="give the log features=, or leave fields out",
            )
        chosen = self.features.select(fields)
        log = replace(self, features=chosen)
        if chosen.encoders is None:
            assert self.encoders is not None
            vars(log)["encoders"] = self.encoders.select(fields)
        return log

    def schema_table(self) -> list[dict[str, Any]]:
        """Return a line for each field that networks read: name, kind, role, cardinality and more."""
        ids = [
            {"name": each.name, "kind": "id", "role": role, "cardinality": len(each), "missing": 0.0}
            | {"example": str(each.ids[0]), "note": ""}
            for role, each in (("user", self.users), ("item", self.items))
        ]
        return ids + ([] if self.encoders is None else self.encoders.table())

    @property
    def n_users(self) -> int:
        """Users in the vocabulary."""
        return len(self.users)

    @property
    def n_items(self) -> int:
        """Items in the vocabulary."""
        return len(self.items)

    @property
    def n_clicks(self) -> int:
        """|O|."""
        return int(self.click.sum())

    @property
    def population_size(self) -> int:
        """|D|: all pairs, or all rows; rows × actions where propensities are known."""
        return self.n_users * self.n_items if self.space == "matrix" else len(self) * (self.actions or 1)

    @property
    def density(self) -> float:
        """|O| / |D|, the base rate of clicks."""
        return self.n_clicks / self.population_size

    @property
    def clicked(self) -> NDArray[np.int64]:
        """Row numbers with a click (the set O)."""
        return np.flatnonzero(self.click)

    @property
    def cell(self) -> NDArray[np.int64]:
        """The cell of D of each row: ``user · n_items + item``."""
        return self.user.astype(np.int64) * self.n_items + self.item

    def cell_of(self, other: Log) -> NDArray[np.int64]:
        """Return the cell of D of each row of another log, by its ids; below 0 if one is unknown."""
        user = self.users.recode(other.user, other.users, unseen="nan").astype(np.int64)
        item = self.items.recode(other.item, other.items, unseen="nan")
        unknown = (user < 0) | (item < 0)
        return np.where(unknown, -1 - np.arange(len(other)), user * self.n_items + item)

    @cached_property
    def digest(self) -> str:
        """A digest of all that is in it, by which a copy or a file that is read again is known."""
        parts: list[Any] = [self.space, self.known_propensity, self.actions, self.time, self.user, self.item]
        parts += [self.click, self.conversion, self.users.hashes, self.items.hashes]
        parts += [each for name in self.columns for each in (name, self.columns[name])]
        parts += [None if each is None else each.values for each in (self.user_features, self.item_features)]
        if self.features is not None:
            parts.append(self.features.declared)
            parts += [
                each for name in self.features.values for each in vars(self.features.values[name]).values()
            ]
        return digest_of(*parts)

    def known_conversion(self) -> NDArray[np.float32]:
        """Return the conversions of the clicked rows, in their order; an error for a log of clicks alone."""
        if self.conversion is None:
            raise DataError(
                "the log has no conversions", remedy="name the conversion column when the log is built"
            )
        return self.conversion[self.clicked]

    def take(self, rows: Lines) -> Log:
        """Return the log with some of its rows; vocabularies and users' and items' features stay whole."""
        return replace(
            self,
            user=lines_of(self.user, rows),
            item=lines_of(self.item, rows),
            click=lines_of(self.click, rows),
            conversion=None if self.conversion is None else lines_of(self.conversion, rows),
            columns={name: lines_of(values, rows) for name, values in self.columns.items()},
            features=None if self.features is None else self.features.take(rows),
        )

    def blocks(self, rows: int = BLOCK_ROWS) -> Iterator[Log]:
        """Yield the rows in their order as logs of at most so many, whose arrays are views of this one's.

        All blocks code features by the encoders of the whole log.

        Examples
        --------
        >>> log = Log.from_arrays(user=[1, 1, 2], item=[7, 8, 7], click=[1, 0, 1], space="impressions")
        >>> [len(block) for block in log.blocks(2)]
        [2, 1]
        """
        if len(self) <= rows:
            yield self
            return
        shared = self
        if self.features is not None:
            shared = replace(self, features=replace(self.features, encoders=self.encoders))
        for start in range(0, len(self), rows):
            yield shared.take(slice(start, min(start + rows, len(self))))


FIT_A_LOG = "give data.train of a dataset, or make one with us.read_log or us.Log.from_frame"


def require_log(log: object, role: str = "what is fitted", remedy: str = FIT_A_LOG) -> None:
    """Refuse what is no log; a data frame, or a dataset with its logs inside, is the likely slip."""
    if not isinstance(log, Log):
        raise ParameterError(f"{role} is a {type(log).__name__}, not a Log", remedy=remedy)


def require_mappings(**given: object) -> None:
    """Refuse what is no dictionary."""
    for name, value in given.items():
        if value is not None and not isinstance(value, Mapping):
            raise ParameterError(
                f"{name} must be a Mapping, not a {type(value).__name__}", remedy="give a dictionary by name"
            )
