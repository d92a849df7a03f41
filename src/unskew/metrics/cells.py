"""Counts by cell of the score and outcome, for each key: what every calibration figure is computed from.

:meth:`Cells.update` fills them with NumPy here; the query of ``unskew.audit.sql`` fills them where the
rows are, with equal counts. What the cells of a score are is in ``sketch_grid``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.base.columns import frame_of
from unskew.base.errors import DataError
from unskew.base.plain_text import listed
from unskew.metrics.cell_sums import SUMS as SUMS
from unskew.metrics.cell_sums import Array, Codes, added_up, values_of
from unskew.metrics.chunks import DEFAULT_NAMES, Names, chunks
from unskew.metrics.sketch import DEFAULT_BINS, DEFAULT_MANTISSA_BITS, CalibrationSketch
from unskew.metrics.sketch_grid import MOST_BINS, MOST_MANTISSA_BITS, SMALLEST, SketchGrid, grid

WEIGHTS = ("weight", "square")
"""Sums that a table without weights leaves out: they are the rows."""
COUNTS = ("cell", "outcome", "rows")
RESOLUTION = ("bins", "mantissa_bits")
"""Columns that tell the grid, the same on every row: cells of two grids must not be added."""

REFUSED = {
    -1: ("null scores", "drop these rows or fill in the scores"),
    -2: ("scores outside [0, 1]", "give probabilities"),
    -3: ("null outcomes", "write 0 where it did not happen"),
    -4: ("outcomes that are neither 0 nor 1", "encode outcomes as 0 and 1"),
    -5: ("null weights", "give each row a weight, or name no column"),
    -6: ("weights that are neither 0 nor from 1e-12 to 1e12", "give rows of the population a row"),
    -7: ("null times", "drop these rows or fill in the times"),
}
"""Cells into which the query puts rows with a bad value: what they are and what to do about them."""

MOST_DENSE = 1 << 20
"""Codes up to here are counted in an array of all of them: 59 MB."""

MOST_PENDING = 1 << 19
"""Sums that wait before they are added to the others: some 30 MB."""


class Key(NamedTuple):
    """Which rows are counted: a period, a value of a segment's column, a fold, the file they came from."""

    period: str = ""
    segment: str = ""
    value: str = ""
    fold: int = -1
    source: str = ""


class Cells:
    """A table with a row for each key, cell and outcome that has rows, and :data:`SUMS` as columns.

    Counts are equal under any chunking, order and merging; floating-point sums are equal to rounding.

    Parameters
    ----------
    keys
        The keys, by the number that :meth:`update` takes; more may be appended.
    bins, mantissa_bits
        Of the grid, as in :class:`unskew.metrics.CalibrationSketch`.

    Examples
    --------
    >>> cells = Cells([Key(fold=0), Key(fold=1)])
    >>> cells.update([0.1, 0.8, 0.3], [0, 1, 0], key=np.array([0, 0, 1]))
    >>> cells.sketch(Key(fold=0)).rows, cells.whole().rows, cells.to_cells().num_rows
    (2, 3, 3)
    """

    def __init__(
        self,
        keys: Iterable[Key] = (Key(),),
        *,
        bins: int = DEFAULT_BINS,
        mantissa_bits: int = DEFAULT_MANTISSA_BITS,
    ) -> None:
        self.grid: SketchGrid = grid(bins, mantissa_bits)
        self.keys = list(keys)
        self._parts: list[tuple[Codes, Array]] = []
        self._pending = 0

    def update(
        self,
        score: Any,
        outcome: Any,
        weight: Any = None,
        *,
        key: NDArray[np.integer[Any]] | None = None,
        first_row: int = 0,
        names: Names = DEFAULT_NAMES,
    ) -> None:
        """Count rows; a bad value is an error, and nothing is added.

        Parameters
        ----------
        score, outcome, weight, first_row, names
            As in :meth:`unskew.metrics.CalibrationSketch.update`.
        key
            The number of each row's key; by default all rows have the first.
        """
        count([(self, key)], score, outcome, weight, first_row=first_row, names=names)

    def add(self, other: Cells) -> Self:
        """Add the rows of other cells of the same grid."""
        self.require_same_grid(other)
        number = {key: place for place, key in enumerate(self.keys)}
        places = [number.setdefault(key, len(number)) for key in other.keys]
        self.keys = list(number)
        self._append_renumbered(other, np.array(places, dtype=np.int64))
        return self

    def group(self, *fields: str) -> Cells:
        """Return cells keyed by these fields alone, added up over the others."""
        return self.renamed(lambda key: Key(**{name: getattr(key, name) for name in fields}))

    def renamed(self, rename: Callable[[Key], Key]) -> Cells:
        """Return cells with other keys, sorted, and added up where two have one name."""
        names = [rename(key) for key in self.keys]
        number = {key: place for place, key in enumerate(sorted(set(names)))}
        renamed = self.like(number)
        renamed._append_renumbered(self, np.array([number[key] for key in names], dtype=np.int64))
        return renamed

    def select(self, wanted: Callable[[Key], bool]) -> Cells:
        """Return the cells of the keys that are wanted."""
        chosen = np.array([wanted(key) for key in self.keys], dtype=bool)
        selected = self.like(key for key, is_chosen in zip(self.keys, chosen, strict=True) if is_chosen)
        selected._append_renumbered(self, np.where(chosen, np.cumsum(chosen) - 1, -1))
        return selected

    def sketch(self, key: Key) -> CalibrationSketch:
        """Return the sketch of one key."""
        return self.sketch_at(self.keys.index(key))

    def sketch_at(self, number: int) -> CalibrationSketch:
        """Return the sketch of the key of this number."""
        code, sums = self._entries()
        width = 2 * self.grid.size
        first, last = np.searchsorted(code, [number * width, (number + 1) * width])
        sketch = CalibrationSketch(bins=self.grid.bins, mantissa_bits=self.grid.mantissa_bits)
        sketch.table.reshape(len(SUMS), -1)[:, code[first:last] - number * width] = sums[:, first:last]
        return sketch

    def whole(self) -> CalibrationSketch:
        """Return the sketch of all rows: every column of segments has all of them, the first is taken."""
        first = min((key.segment for key in self.keys), default="")
        return self.select(lambda key: key.segment == first).group().sketch(Key())

    def rows(self) -> dict[Key, int]:
        """Return the number of rows of each key."""
        code, sums = self._entries()
        number = code // (2 * self.grid.size)
        counted = np.bincount(number, sums[0], minlength=len(self.keys))
        return {key: round(rows) for key, rows in zip(self.keys, counted.tolist(), strict=True)}

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return ``key`` (its number), ``cell``, ``outcome`` and :data:`SUMS`, sorted by the first three."""
        code, sums = self._entries()
        key_and_cell, outcome = np.divmod(code, 2)
        key, cell = np.divmod(key_and_cell, self.grid.size)
        return {"key": key, "cell": cell, "outcome": outcome, **dict(zip(SUMS, sums, strict=True))}

    def to_cells(self) -> Any:
        """Return an Arrow table, sorted, as the query of :func:`unskew.audit.cells_query` gives it."""
        ordered = self.renamed(lambda key: key)
        columns = ordered.columns()
        key = pa.array(columns.pop("key"))
        named = {
            name: pa.array([getattr(each, name) for each in ordered.keys], kind).take(key)
            for name, kind in KEY_TYPES.items()
        }
        numbers = {
            **{name: pa.array(columns.pop(name)).cast(pa.int32()) for name in ("cell", "outcome")},
            "rows": pa.array(np.rint(columns.pop("rows")).astype(np.int64)),
            **{name: pa.array(values) for name, values in columns.items()},
        }
        resolution = (getattr(self.grid, name) for name in RESOLUTION)
        same = {name: pa.repeat(value, len(key)) for name, value in zip(RESOLUTION, resolution, strict=True)}
        return pa.table({**named, **numbers, **same})

    @classmethod
    def from_cells(cls, frame: Any, where: str = "the data frame") -> Cells:
        """Return the cells of a table or a data frame; others are an error."""
        table = frame_of(frame).to_arrow()
        for name in (*COUNTS, *SUMS[3:], *RESOLUTION):
            if name not in table.column_names:
                raise DataError(
                    f"column '{name}' is missing",
                    where=where,
                    remedy=f"name one of the columns that are there: {listed(table.column_names)}",
                )
        if not len(table):
            raise DataError("the table of cells has no rows", where=where, remedy="look at the query's table")
        return cls._from_table(table, where)

    @classmethod
    def _from_table(cls, table: Any, where: str) -> Cells:
        bins, mantissa_bits = (_one_value(table, name, where) for name in RESOLUTION)
        if not (1 <= bins <= MOST_BINS and 0 <= mantissa_bits <= MOST_MANTISSA_BITS):
            raise DataError(
                f"there is no grid of {bins} bins and {mantissa_bits} mantissa bits",
                where=where,
                remedy="make the cells again with the query that unskew audit --sql prints",
            )
        cell, outcome, rows = (_numbers(table, name, where, whole=True).astype(np.int64) for name in COUNTS)
        _require_no_refused(cell, rows, where)
        keys, key = _keys_of(table)
        cells = cls(keys, bins=bins, mantissa_bits=mantissa_bits)
        size = cells.grid.size
        if ((cell < 0) | (cell >= size) | (outcome < 0) | (outcome > 1) | (rows < 0)).any():
            raise DataError(
                "holds cells that the grid does not have, or counts below 0",
                where=where,
                remedy="give the result of the query that unskew audit --sql prints, as it is",
            )
        weighted = all(name in table.column_names for name in WEIGHTS)
        sums = np.stack(
            [
                rows.astype(np.float64)
                if name == "rows" or (name in WEIGHTS and not weighted)
                else _numbers(table, name, where)
                for name in SUMS
            ]
        )
        # Earlier queries gave Σw/p of clicked rows alone.
        _, weight, _, score, inverse, *_ = sums
        sums[4] = np.where((inverse == 0) & (score > 0), weight**2 / np.maximum(score, SMALLEST), inverse)
        cells._append(2 * (key * size + cell) + outcome, sums)
        return cells

    def require_same_grid(self, other: Cells, where: str | None = None) -> None:
        """Raise an error for cells of another grid."""
        for name in RESOLUTION:
            mine, theirs = getattr(self.grid, name), getattr(other.grid, name)
            if mine != theirs:
                raise DataError(
                    f"holds cells of {name}={theirs}, where the others have {name}={mine}",
                    where=where,
                    remedy="make all cells with one query; unskew monitor needs one with --by",
                )

    def like(self, keys: Iterable[Key]) -> Cells:
        """Return empty cells of the same grid."""
        return Cells(keys, bins=self.grid.bins, mantissa_bits=self.grid.mantissa_bits)

    def _append_renumbered(self, other: Cells, number: Codes) -> None:
        """Append the sums of other cells, whose keys have these numbers here; those below 0 are left out."""
        code, sums = other._entries()
        width = 2 * self.grid.size
        key, rest = np.divmod(code, width)
        chosen = number[key] >= 0
        if not chosen.all():
            key, rest, sums = key[chosen], rest[chosen], sums[:, chosen]
        self._append(number[key] * width + rest, sums)

    def _append(self, code: Codes, sums: Array) -> None:
        self._parts.append((code, sums))
        self._pending += len(code)
        if self._pending > MOST_PENDING + len(self._parts[0][0]):
            self._entries()

    def _entries(self) -> tuple[Codes, Array]:
        """Return the codes, sorted and distinct, and their sums ``[sum, code]``."""
        if len(self._parts) != 1 or self._pending:
            code = np.concatenate([np.empty(0, np.int64), *(code for code, _ in self._parts)])
            sums = np.concatenate([np.empty((len(SUMS), 0)), *(part for _, part in self._parts)], axis=1)
            self._parts = [added_up(code, sums)]
            self._pending = 0
        return self._parts[0]


def count(
    tables: Sequence[tuple[Cells, NDArray[np.integer[Any]] | None]],
    score: Any,
    outcome: Any,
    weight: Any = None,
    *,
    first_row: int = 0,
    names: Names = DEFAULT_NAMES,
) -> None:
    """Count rows in several tables in one pass, each by its own number of each row's key.

    A bad value is an error, and nothing is added. The tables may have different grids.
    """
    counters = [_Counter(cells, key) for cells, key in tables]
    start = 0
    for chunk in chunks(score, outcome, weight, first_row=first_row, names=names):
        values = values_of(chunk)
        finest = tables[0][0].grid
        cell = finest.ids(chunk.score)
        for counter in counters:
            grid = counter.cells.grid
            own = cell if grid is finest else grid.ids(chunk.score, within=(finest, cell))
            counter.add(own, slice(start, start + len(cell)), chunk.clicked, values)
        start += len(cell)
    for counter in counters:
        counter.finish()


class _Counter:
    """The sums of one call of :func:`count`: in an array of all codes where these are few, else sorted."""

    def __init__(self, cells: Cells, key: NDArray[np.integer[Any]] | None) -> None:
        self.cells, self.key = cells, key
        keys = 1 if key is None else int(key.max(initial=0)) + 1
        codes = 2 * cells.grid.size * keys
        self.dense = np.zeros((len(SUMS), codes)) if codes <= MOST_DENSE else None
        self.parts = cells.like(cells.keys)

    def add(self, cell: Codes, rows: slice, clicked: NDArray[np.bool_], values: list[Array | None]) -> None:
        code = 2 * cell
        code += clicked
        if self.key is not None:
            code += self.key[rows].astype(np.int64) * (2 * self.cells.grid.size)
        if self.dense is None:
            self.parts._append(*added_up(code, values))
            return
        counted = np.bincount(code, minlength=self.dense.shape[1])
        for total, added in zip(self.dense, values, strict=True):
            total += counted if added is None else np.bincount(code, added, len(counted))

    def finish(self) -> None:
        if self.dense is not None:
            code = np.flatnonzero(self.dense[0])
            self.parts._append(code, self.dense[:, code])
        self.cells._append(*self.parts._entries())


KEY_TYPES = {name: pa.int32() if name == "fold" else pa.string() for name in Key._fields}


def _keys_of(table: Any) -> tuple[list[Key], Codes]:
    """Return the keys of a table, sorted, and the number of each row's."""
    code = np.zeros(len(table), dtype=np.int64)
    known: list[list[Any]] = []
    names = [name for name in Key._fields if name in table.column_names]
    for name in names:
        encoded = table.column(name).combine_chunks().dictionary_encode()
        if isinstance(encoded, pa.ChunkedArray):
            encoded = encoded.combine_chunks()
        values = encoded.dictionary.to_pylist()
        known.append(
            [
                *(int(remainder) if name == "fold" else str(remainder) for remainder in values),
                Key._field_defaults[name],
            ]
        )
        code = code * len(known[-1]) + encoded.indices.fill_null(len(values)).to_numpy(zero_copy_only=False)
    distinct, number = np.unique(code, return_inverse=True)
    keys = []
    for remainder in distinct.tolist():
        fields = {}
        for name, values in reversed(list(zip(names, known, strict=True))):
            remainder, position = divmod(remainder, len(values))
            fields[name] = values[position]
        keys.append(Key(**fields))
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return [keys[position] for position in order], np.argsort(order)[number]


def _numbers(table: Any, name: str, where: str, *, whole: bool = False) -> Array:
    """Return a column as finite numbers; what the query does not give is an error."""
    try:
        values = table.column(name).cast(pa.float64())
        numbers = None if values.null_count else np.asarray(values.to_numpy(), dtype=np.float64)
    except pa.ArrowException:
        numbers = None
    if numbers is None or not np.isfinite(numbers).all() or (whole and (np.rint(numbers) != numbers).any()):
        raise DataError(
            f"column '{name}' holds something else than the query gives",
            where=where,
            remedy="give the result of the query that unskew audit --sql prints, as it is",
        )
    return numbers


def _one_value(table: Any, name: str, where: str) -> int:
    values = np.unique(_numbers(table, name, where, whole=True)).astype(np.int64)
    if len(values) > 1:
        raise DataError(
            f"holds cells of {name}={values[0]} and {name}={values[1]}, which cannot be added",
            where=where,
            remedy="make all cells with one query",
        )
    return int(values[0])


def _require_no_refused(cell: Codes, rows: Codes, where: str) -> None:
    """Raise an error that counts the rows that the query could not place, by what is wrong with them."""
    refused = {code: int(rows[cell == code].sum()) for code in REFUSED if (cell == code).any()}
    if refused:
        counted = ", ".join(f"{number:,} {REFUSED[code][0]}" for code, number in refused.items())
        raise DataError(f"there are {counted}", where=where, remedy=REFUSED[next(iter(refused))][1])
