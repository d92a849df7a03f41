"""The features of a log: what each is, given or found out from its type, and its values."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.base.columns import arrow_of, is_text
from unskew.base.errors import DataError, ParameterError
from unskew.base.estimator import require
from unskew.base.plain_text import listed
from unskew.data.arrays import Lines, empty_like, lines_of, pieces
from unskew.data.distinct import TEXT, Counts, ValueIndex, as_numpy
from unskew.data.kinds import Bag, Category, Coded, Feature, Features, Number, TimePart, Vector, numbered
from unskew.data.schema import NOT, ROLES_OF_IDS, Role, is_selected
from unskew.data.values import (
    MISSING,
    Numbers,
    Texts,
    Values,
    coded_column,
    holds_vectors,
    is_binary,
    is_list,
    is_text_of_times,
    packed,
    times_of,
    values_of,
)

if TYPE_CHECKING:
    from unskew.data.encoder import Encoders

AUTO = "auto"

MOST_VALUES = 1_000_000
"""Values of a vocabulary at most, the most frequent, unless the feature says otherwise."""

Wanted = Sequence[Feature | str] | Literal["auto"]
"""Features as they are asked for: declared, by name (the type tells the kind), or ``"auto"``, alone or among
others, for all other columns."""

MOST_CODES = 100
CODE_SHARE = 0.01
"""A column of whole numbers is a category, unless it has more than 100 distinct values and these are more
than 1 % of the rows: then it is a number."""

NO_ROWS = "most pairs of the space 'matrix' have no row"
ROWS_REMEDY = (
    "use the space 'impressions' (--space impressions), say role='user' or 'item' to take each one's last"
    " value, or leave it out (--ignore)"
)

IGNORED, NO_FEATURE, CONSTANT = "ignored", "its type is no feature's", "it has one value in all rows"
"""Why a column is not taken."""

IDS = frozenset({"id", "ids", "uid", "code", "sku", "zip", "postcode"})
COUNTS = frozenset(
    {"count", "counts", "seconds", "secs", "ms", "millis", "milliseconds", "duration", "elapsed"}
)
"""Last words of the names of whole numbers that are categories, however many values they have, and of those
that are numbers, however few."""


ONE_HOT = ":"
"""Columns of 0 and 1 that are named ``group:value``, one of them 1 in each line, are one category."""


@dataclass(frozen=True, eq=False)
class Described:
    """The features of a log.

    Attributes
    ----------
    declared
        What each is, with its role.
    values
        By name: for each user, item or row of the log, as the role says.
    left_out
        Columns that ``"auto"`` did not take, and why.
    times
        Columns of times that features are parts of, whole: one for each row.
    encoders
        How the features are coded, where that was fitted on more rows than these: blocks of one stream share
        it. None fits encoders on the log itself.
    """

    declared: tuple[Feature, ...]
    values: Mapping[str, Values]
    left_out: Mapping[str, str] = field(default_factory=dict)
    times: Mapping[str, NDArray[np.datetime64]] = field(default_factory=dict)
    encoders: Encoders | None = None

    def take(self, rows: Lines) -> Described:
        """Return the features of some rows; those of users and items stay whole."""
        of_rows = {each.name for each in self.declared if each.role == "row"}
        taken = {name: each.take(rows) if name in of_rows else each for name, each in self.values.items()}
        times = {name: lines_of(when, rows) for name, when in self.times.items()}
        return Described(self.declared, taken, self.left_out, times, self.encoders)

    def select(self, fields: Sequence[str] | None) -> Described:
        """Return some of them, by name (:func:`unskew.data.schema.is_selected`); refuse an unknown name."""
        if fields is None:
            return self
        marked = {entry.startswith(NOT) for entry in fields}
        require(
            len(marked) < 2,
            f"of the fields {listed(fields)} some are named and some left out",
            "name those that are read, or with a minus those that are not",
        )
        names = {name for entry in self.declared for name in (entry.name, entry.source)}
        for name in (entry.removeprefix(NOT) for entry in fields):
            remedy = f"name some of {listed(feature.name for feature in self.declared)}"
            require(name in names, f"there is no feature '{name}'", remedy)
        declared = tuple(entry for entry in self.declared if is_selected(entry.name, fields))
        remaining = {entry.name for entry in declared}
        for entry in declared:
            share = entry.share if isinstance(entry, Coded) else None
            problem = f"feature '{entry.name}' shares the codes of '{share}', which is left out"
            require(share is None or share in remaining, problem, "name both, or none")
        values = {name: entry for name, entry in self.values.items() if name in remaining}
        encoders = None if self.encoders is None else self.encoders.select(fields)
        return Described(declared, values, self.left_out, self.times, encoders)

    def recoded(self, role: Role, at: NDArray[np.integer[Any]]) -> Described:
        """Return the same for other codes of users or items: ``at`` has the present code of each, or −1."""
        values = {
            each.name: self.values[each.name].take(at) if each.role == role else self.values[each.name]
            for each in self.declared
        }
        return Described(self.declared, values, self.left_out, self.times)


@dataclass(frozen=True)
class Prepared:
    """A column of which the features and their values are known.

    Attributes
    ----------
    features
        What it is, without a role unless one is declared; none where its type is no feature's.
    values
        By the name of the feature.
    times
        Where the features are parts of times: when each row was.
    """

    features: tuple[Feature, ...]
    values: Mapping[str, Values]
    times: NDArray[np.datetime64] | None = None


@dataclass(frozen=True)
class Sources:
    """Where the values of features come from.

    Attributes
    ----------
    user, item
        Codes of the rows.
    sizes
        How many users and items there are.
    tables
        Features by user and by item, if the log has such.
    """

    user: NDArray[np.int32]
    item: NDArray[np.int32]
    sizes: tuple[int, int]
    space: str
    tables: tuple[Features | None, Features | None] = (None, None)


def asked_columns(
    wanted: Wanted, names: Iterable[str], taken: Collection[str | None] = ()
) -> dict[str, tuple[Feature | None, ...]]:
    """Return the columns of features, each with what is declared of it.

    None is declared of one that is named, or found by ``"auto"`` among those that are not taken.
    """
    asked: dict[str, tuple[Feature | None, ...]] = {}
    for entry in without_auto(wanted):
        name = entry if isinstance(entry, str) else entry.source
        asked[name] = (*asked.get(name, ()), None if isinstance(entry, str) else entry)
    inside = {name for prefix in asked for name in numbered(prefix, names)}
    if AUTO in wanted:
        free = [name for name in names if name not in taken and name not in inside]
        asked |= {name: (None,) for name in free if name not in asked}
    return asked


def prepared(
    wanted: Wanted, columns: Mapping[str, Any], taken: Collection[str | None]
) -> dict[str, Prepared]:
    """Return the columns of features from arrays of any library; those that are not there are left out."""
    result: dict[str, Prepared] = {}
    for name, declared in asked_columns(wanted, columns, taken).items():
        group = numbered(name, columns) if name not in columns else []
        if name in columns or group:
            array = packed([columns[n] for n in group], group) if group else arrow_of(columns[name], name)
            column = FeatureColumn(name, array.type, declared)
            column.learn(array)
            column.decide()
            result[name] = column.prepared(column.arrays(array), array.slice(0, 0))
    return result


def described(
    wanted: Wanted, columns: Mapping[str, Prepared], sources: Sources, ignored: Iterable[str] = ()
) -> Described:
    """Return the features that are asked for, with roles where they were left open.

    Parameters
    ----------
    columns
        Those of the rows.
    ignored
        Columns that ``"auto"`` leaves out.
    """
    finder = _Finder(columns, sources, dict.fromkeys(ignored if AUTO in wanted else (), IGNORED))
    for entry in without_auto(wanted):
        finder.take(entry)
    if AUTO in wanted:
        finder.take_all()
    require_shared_codes(finder.declared)
    made = {entry.source for entry in finder.declared.values()}
    times = {name: columns[name].times for name in columns if name in made}
    known = {name: when for name, when in times.items() if when is not None}
    return Described(tuple(finder.declared.values()), finder.values, finder.left_out, known)


def without_auto(wanted: Wanted) -> list[Feature | str]:
    """Return the features that are named; an error for what is none."""
    if wanted == AUTO:
        return []
    if isinstance(wanted, str) or not isinstance(wanted, Collection):
        raise ParameterError(
            f"features must be 'auto' or a list, not {wanted!r}", remedy="give a list of names"
        )
    for entry in wanted:
        if not isinstance(entry, Feature | str):
            raise ParameterError(
                f"{entry!r} is not a feature",
                remedy="give a name, or us.Category, us.Number or us.Bag with one",
            )
    return [entry for entry in wanted if entry != AUTO]


def sources_of(named: Iterable[Feature | str]) -> list[str]:
    """Return the columns of features that are named."""
    return [each if isinstance(each, str) else each.source for each in named]


class _Finder:
    def __init__(self, columns: Mapping[str, Prepared], sources: Sources, left_out: dict[str, str]) -> None:
        self.columns, self.sources, self.left_out = columns, sources, left_out
        self.tables = _tables(sources)
        self.declared: dict[str, Feature] = {}
        self.values: dict[str, Values] = {}

    def take_all(self) -> None:
        for name in [*self.tables, *self.columns]:
            if name in self.left_out or name in {each.source for each in self.declared.values()}:
                continue
            if name in self.tables:
                self.take(name)
                continue
            if not self.columns[name].features:
                self.left_out[name] = NO_FEATURE
            for feature in self.columns[name].features:
                self._take_row(feature, refuse=False)
                values = self.values.get(feature.name)
                if values is not None and _is_one(values):
                    self.left_out[name] = CONSTANT
                    del self.declared[feature.name], self.values[feature.name]

    def take(self, wanted: Feature | str) -> None:
        name = wanted if isinstance(wanted, str) else wanted.name
        source = wanted if isinstance(wanted, str) else wanted.source
        if name in self.declared or name in ROLES_OF_IDS:
            problem = f"feature '{name}' is there twice, or is an id"
            raise ParameterError(problem, remedy="name each column once, ids apart")
        if source in self.tables:
            role, values = self.tables[source]
            kind = Number if isinstance(values, Numbers) else Category
            feature = kind(name) if isinstance(wanted, str) else wanted
            if feature.kind != kind.kind:
                values = _converted(feature, values)
            self._keep(feature.with_role(role), values)
        elif source not in self.columns:
            remedy = f"name some of those that are there: {listed([*self.tables, *self.columns])}"
            raise DataError(f"there is no column '{source}'", remedy=remedy)
        else:
            features = self.columns[source].features if isinstance(wanted, str) else (wanted,)
            if not features:
                remedy = "write it as text, numbers, lists or times, or leave it out"
                raise DataError(NO_FEATURE, where=f"column '{name}'", remedy=remedy)
            for feature in features:
                self._take_row(feature, refuse=True)

    def _take_row(self, feature: Feature, *, refuse: bool) -> None:
        """Take a column of the rows, as it is, or as one value for each user or item."""
        values = self.columns[feature.source].values[feature.name]
        role = feature.role or self._role(values)
        if role == "row" and feature.role is None and self.sources.space == "matrix":
            reason = f"it differs within users and within items: {NO_ROWS}"
            if refuse:
                raise DataError(f"feature '{feature.name}': {reason}", remedy=ROWS_REMEDY)
            self.left_out[feature.name] = reason
            return
        if role != "row":
            side = ROLES_OF_IDS.index(role)
            code, size = (self.sources.user, self.sources.item)[side], self.sources.sizes[side]
            last = np.full(size, MISSING, dtype=np.int64)
            for piece in pieces(len(code)):
                last[code[piece]] = np.arange(piece.start, piece.stop)
            values = values.take(last)
        self._keep(feature.with_role(role), values)

    def _role(self, values: Values) -> Role:
        """Return whose value it is: the user's (or item's) if it never changes within one, else the row's."""
        for role, code, size in zip(
            ROLES_OF_IDS, (self.sources.user, self.sources.item), self.sources.sizes, strict=True
        ):
            # Where nobody is there twice every column would pass.
            tells = self.sources.space == "matrix" or self._repeats(code, size)
            if tells and _is_constant(values, code, size):
                return role  # type: ignore[return-value]
        return "row"

    @staticmethod
    def _repeats(code: NDArray[np.int32], size: int) -> bool:
        return len(code) > size or bool((np.bincount(code, minlength=size) > 1).any())

    def _keep(self, feature: Feature, values: Values) -> None:
        self.declared[feature.name] = feature
        self.values[feature.name] = values


def _is_one(values: Values) -> bool:
    """Return whether all values are the same."""
    first = values.take(np.zeros(1, dtype=np.int64)).keys() if len(values) else np.empty(0)
    return all((values.take(piece).keys() == first).all() for piece in pieces(len(values)))


def _is_constant(values: Values, code: NDArray[np.int32], size: int) -> bool:
    """Return whether values never change within a user (or an item)."""
    key, known = np.zeros(size, dtype=np.int64), np.zeros(size, dtype=bool)
    for piece in pieces(len(code)):
        at, keys = code[piece], values.take(piece).keys()
        new = ~known[at]
        key[at[new]], known[at[new]] = keys[new], True
        if not (key[at] == keys).all():
            return False
    return True


def require_shared_codes(declared: Mapping[str, Feature]) -> None:
    """Refuse a feature that shares the codes of one without codes of its own."""
    for entry in declared.values():
        share = entry.share if isinstance(entry, Coded) else None
        if share is None:
            continue
        other = declared.get(share)
        if not isinstance(other, Coded) or other.share is not None:
            raise ParameterError(
                f"feature '{entry.name}' shares the codes of '{share}', which has none of its own",
                remedy="name a Category or a Bag that shares nothing itself",
            )


def kinds_of_type(kind: Any, name: str) -> tuple[Feature, ...]:
    """Return the features that a type allows; for whole numbers two, between which the values decide."""
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return TimePart.both(name)
    if pa.types.is_fixed_size_list(kind) and pa.types.is_floating(kind.value_type):
        return (Vector(name),)
    if is_list(kind):
        return () if pa.types.is_nested(kind.value_type) or is_binary(kind.value_type) else (Bag(name),)
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return (Number(name),)
    if pa.types.is_integer(kind):
        return Category(name), Number(name)
    if (
        pa.types.is_boolean(kind)
        or pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_string_view(kind)
    ):
        return (Category(name),)
    return ()


def last_word(name: str) -> str:
    """Return the last word of the name of a column, in small letters.

    Examples
    --------
    >>> last_word("author_id"), last_word("authorId"), last_word("paid")
    ('id', 'id', 'paid')
    """
    words = re.findall(r"[A-Z]?[a-z]+|[A-Z]+", name)
    return words[-1].lower() if words else ""


def is_number(distinct: int, known: int, name: str = "") -> bool:
    """Return whether whole numbers are more than codes: by the name of the column, else by how many there are
    and how many of them differ (:data:`MOST_CODES`, :data:`CODE_SHARE`)."""
    word = last_word(name)
    if word in IDS or word in COUNTS:
        return word in COUNTS
    return distinct > MOST_CODES and distinct > CODE_SHARE * known


def _converted(feature: Feature, values: Values) -> Values:
    """Return a table's column as a feature of another kind than its own."""
    if isinstance(feature, Category) and isinstance(values, Numbers):
        return values_of(feature, pa.array(values.values, from_pandas=True))
    raise DataError(
        f"feature '{feature.name}' is declared as a {feature.kind}, which its values are not",
        remedy="declare it as a Number or a Category, or give its name alone",
    )


def _tables(sources: Sources) -> dict[str, tuple[Role, Values]]:
    """Return the features of users and items as columns; two with one name get their side's in front."""
    outcome_: dict[str, dict[str, Values]] = {
        role: {} if features is None else _columns_of(features)
        for role, features in zip(ROLES_OF_IDS, sources.tables, strict=True)
    }
    twice = outcome_["user"].keys() & outcome_["item"].keys()
    result: dict[str, tuple[Role, Values]] = {}
    for role in ROLES_OF_IDS:
        for name, values in outcome_[role].items():
            result[f"{role}.{name}" if name in twice else name] = role, values  # type: ignore[assignment]
    return result


def _columns_of(features: Features) -> dict[str, Values]:
    """Read blocks of 0 and 1 as categories, other columns by the rule for whole numbers."""
    groups: dict[str, list[int]] = {}
    for position, name in enumerate(features.names):
        groups.setdefault(name.partition(ONE_HOT)[0] if ONE_HOT in name else name, []).append(position)
    columns: dict[str, Values] = {}
    for group, places in groups.items():
        block = features.values[:, places]
        names = [features.names[position] for position in places]
        is_one_hot = np.isin(block, (0, 1)).all() and (block.sum(axis=1) == 1).all()
        if is_one_hot and all(ONE_HOT in name for name in names):
            texts = np.array([name.partition(ONE_HOT)[2] for name in names], dtype=TEXT)
            columns[group] = Texts(block.argmax(axis=1).astype(np.int32), texts)
            continue
        for name, column in zip(names, block.T.astype(np.float64), strict=True):
            numbers = Numbers(column)
            is_code = bool((column == np.floor(column)).all())
            is_code = is_code and not is_number(len(np.unique(column)), len(column))
            columns[name] = _converted(Category(name), numbers) if is_code else numbers
    return columns


GONE = "…"
"""What stands for all texts of a column that were too rare to be kept."""


class FeatureColumn:
    """A column of features: what is learned of it in the first pass, and its values in the second."""

    def __init__(self, name: str, kind: Any, declared: Sequence[Feature | None]) -> None:
        self.name = name
        kinds = kinds_of_type(kind, name)
        # Whole numbers may be codes or numbers, of which the values decide.
        self.is_open = declared[0] is None and len(kinds) == 2 and not isinstance(kinds[0], TimePart)
        self.may_be_time = declared[0] is None and is_text(kind)
        self.may_be_vector = declared[0] is None and is_list(kind)
        self.width = getattr(kind, "list_size", 0)
        self.features: tuple[Feature, ...] = ()
        for entry in declared:
            self.features += kinds if entry is None else (entry,)
        self.counts = Counts(MOST_VALUES)
        self.known = 0
        self._places: ValueIndex | None = None

    @property
    def coded(self) -> Coded | None:
        """The feature whose texts get codes, if there is one."""
        return next((each for each in self.features if isinstance(each, Coded)), None)

    def learn(self, array: Any) -> None:
        """Count the values of some rows."""
        if self.may_be_time:
            self.may_be_time = False
            if is_text_of_times(array):
                self.features = TimePart.both(self.name)
        if self.may_be_vector:
            self.may_be_vector = False
            if holds_vectors(array):
                self.features = (Vector(self.name),)
        if isinstance(self.features[0] if self.features else None, Vector):
            vectors = values_of(self.features[0], array)
            assert isinstance(vectors, Numbers)
            self._require_width(vectors)
        if self.coded is None:
            return
        coded = coded_column(self.coded, array)
        known = coded.codes[coded.codes != MISSING]
        self.counts.add(coded.texts, np.bincount(known, minlength=len(coded.texts)))
        self.known += len(known)

    def _require_width(self, vectors: Numbers) -> None:
        width = vectors.values.shape[1]
        if vectors.missing().all():
            return
        if self.width and width != self.width:
            raise DataError(
                f"a vector has {width} numbers where others have {self.width}",
                where=f"column '{self.name}'",
                remedy="write lists of one length, or declare the column as a Bag",
            )
        self.width = width

    def decide(self) -> None:
        """Choose what whole numbers are."""
        if self.is_open:
            category, number = self.features
            many = is_number(len(self.counts), self.known, self.name)
            self.features = (number if many else category,)
        self.counts.cut()
        if self.coded is not None and len(self.counts):
            self._places = ValueIndex(self.counts.values)

    def row_bytes(self) -> int:
        """Return what a row takes in the arrays, about."""
        widths = [8 if isinstance(each, Number | Bag) else 4 for each in self.features]
        widths += [4 * self.width]
        return sum(widths) + (8 if any(isinstance(each, TimePart) for each in self.features) else 0)

    def arrays(self, array: Any) -> dict[str, NDArray[Any]]:
        """Return the arrays of some rows, by name."""
        result: dict[str, NDArray[Any]] = {}
        for feature in self.features:
            if isinstance(feature, Coded):
                coded = coded_column(feature, array)
                position = (
                    np.empty(0, dtype=np.int64) if self._places is None else self._places.find(coded.texts)
                )
                if (position == MISSING).any() and not self.counts.truncated:
                    problem, where = "has changed while it was read", f"column '{self.name}'"
                    raise DataError(problem, where=where, remedy="read it again")
                position[position == MISSING] = len(self.counts)
                result["codes"] = np.append(position, MISSING)[coded.codes].astype(np.int32)
                if coded.starts is not None:
                    result["lengths"] = np.diff(coded.starts)
                continue
            values = values_of(feature, array)
            if isinstance(values, Texts):
                result[feature.name] = values.codes
            elif values.is_vector and values.values.shape[1] != self.width:
                # All are missing there.
                result["numbers"] = np.full((len(values), max(self.width, 1)), np.nan, dtype=np.float32)
            else:
                result["numbers"] = values.values
        if any(isinstance(each, TimePart) for each in self.features):
            result["times"] = times_of(array, self.name)
        return result

    def prepared(self, arrays: Mapping[str, NDArray[Any]], empty: Any) -> Prepared:
        """Return the column from the arrays of all rows."""
        values: dict[str, Values] = {}
        for feature in self.features:
            if isinstance(feature, Coded):
                texts = as_numpy(self.counts.values) if len(self.counts) else np.empty(0, dtype=TEXT)
                if self.counts.truncated:
                    texts = np.append(texts, np.array([GONE], dtype=TEXT))
                starts = _starts_of(arrays["lengths"]) if "lengths" in arrays else None
                values[feature.name] = Texts(arrays["codes"], texts, starts)
            elif isinstance(feature, TimePart):
                known = values_of(feature, empty)
                assert isinstance(known, Texts)
                values[feature.name] = Texts(arrays[feature.name], known.texts)
            else:
                values[feature.name] = Numbers(arrays["numbers"])
        return Prepared(self.features, values, arrays.get("times"))


def _starts_of(lengths: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where lists of these lengths begin, and where the last ends."""
    starts = empty_like(lengths, (len(lengths) + 1,), np.int64)
    starts[0] = 0
    for piece in pieces(len(lengths)):
        starts[piece.start + 1 : piece.stop + 1] = starts[piece.start] + np.cumsum(lengths[piece])
    return starts
