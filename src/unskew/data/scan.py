"""The one pass over files before they are streamed: vocabularies, features, counts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from unskew.base.columns import (
    LARGEST_EXACT_FLOAT,
    binary_column,
    column_of,
    frame_of,
    inexact,
    is_utf8,
    require_utf8,
    unknown_zone,
)
from unskew.base.cores import usable_cores
from unskew.base.errors import DataError
from unskew.base.estimator import require_whole
from unskew.base.progress import SILENT, Progress
from unskew.base.seeds import splitmix64
from unskew.base.tables import in_its_file, is_time
from unskew.data.ahead import ahead
from unskew.data.checks import require_both_clicks, require_both_conversions
from unskew.data.described import (
    AUTO,
    IGNORED,
    NO_FEATURE,
    Described,
    Wanted,
    is_number,
    kinds_of_type,
    lacked_by,
    named_twice,
    no_feature,
    require_shared_codes,
    sources_of,
    without_auto,
)
from unskew.data.digest import digest_of
from unskew.data.distinct import TEXT
from unskew.data.encoders import Encoders
from unskew.data.id_table import text_buffers
from unskew.data.kinds import Feature, TimePart
from unskew.data.log import Log, refuse_taken
from unskew.data.row_groups import Chunk, Piece, RowGroups
from unskew.data.rows_of_files import ColumnNames, RowsOfFiles, array_of, conversions_of
from unskew.data.schema import ROLES_OF_IDS
from unskew.data.streamed import BLOCK_ROWS, StreamedLog
from unskew.data.tallies import SAMPLED_NUMBERS, Distinct, FeatureTally, Occurrences
from unskew.data.values import MISSING, Values, no_values
from unskew.data.vocabulary import Vocabulary, id_column

MOST_IDS = 10_000_000
"""Users, and items, that have a code of their own at most: the most frequent."""

BUCKETS = 1 << 14
"""Codes that the other users, or items, share by a hash of their ids."""

SCAN_ROWS, SCAN_BYTES = 1 << 20, 1 << 27
"""What is counted at a time, at most."""

THREADS = 8
"""Ids and features that are counted at a time, at most: each takes memory for its values."""


def scanned(
    files: RowGroups,
    columns: ColumnNames,
    *,
    features: Wanted | None = None,
    ignore: Sequence[str] = (),
    block_rows: int = BLOCK_ROWS,
    most_ids: int = MOST_IDS,
    users: Vocabulary | None = None,
    items: Vocabulary | None = None,
    progress: Progress = SILENT,
) -> StreamedLog:
    """A stream of files: what is in them is counted in one pass, in bounded memory.

    Parameters
    ----------
    features, ignore
        As in :meth:`Log.from_frame`.
    most_ids
        Users, and items, that have a code of their own at most, the most frequent; others share one of
        :data:`BUCKETS` by a hash of their ids.
    users, items
        Vocabularies to share with another log; by default those of the ids that are found.
    """
    require_whole(1, most_ids=most_ids)
    scan = _Scan(files, columns, features, ignore, most_ids, (users, items))
    with ThreadPoolExecutor(min(THREADS, usable_cores())) as pool:
        for chunk in scan.chunks(progress):
            with chunk.located():
                scan.add(chunk, pool)
            scan.close_numbers()
    try:
        empty, carried = scan.found()
    except DataError as error:
        rows = [each.num_rows for each in files.metadata]
        raise in_its_file(error, files.files, rows) from error
    return StreamedLog(
        RowsOfFiles(files, carried, empty, scan.digest, scan.gaps),
        scan.clicks,
        scan.conversions,
        block_rows=block_rows,
    )


@dataclass(eq=False)
class _Scan:
    """The running counts of a pass."""

    files: RowGroups
    columns: ColumnNames
    wanted: Wanted | None
    ignore: Sequence[str]
    most_ids: int
    given: tuple[Vocabulary | None, Vocabulary | None]
    rows: int = 0
    clicks: int = 0
    converted: int = 0
    nulls: dict[str, int] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    inexact: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.ids = {role: Distinct(self.most_ids) for role in ROLES_OF_IDS}
        named = [f"{what} of {role}" for role in ROLES_OF_IDS for what in ("rows", "ids", "lengths")]
        self.digests = {name: hashlib.sha256() for name in (*named, "outcomes")}
        self.sources, self.features = [], []
        for name, kinds in self._candidates().items():
            self.sources.append(name)
            self.features += [FeatureTally(each) for each in kinds]
        names = (
            self.columns.user,
            self.columns.item,
            *self.columns.outcomes,
            *self.columns.carried,
            *self.columns.times,
            *self.sources,
        )
        self.schema = self.files.typed(list(dict.fromkeys(names)))
        share = SAMPLED_NUMBERS / max(sum(self.files.sizes), 1)
        self.threshold = None if share >= 1 else np.uint64(share * 2.0**64)

    @property
    def conversions(self) -> int | None:
        """Converted clicks."""
        return None if self.columns.conversion is None else self.converted

    @property
    def gaps(self) -> frozenset[str]:
        """Columns with missing values."""
        return frozenset(name for name, nulls in self.nulls.items() if nulls)

    @property
    def digest(self) -> str:
        """Of all ids and outcomes in their order, and of the sizes of the files."""
        found = [each.hexdigest() for each in self.digests.values()]
        return digest_of([each.size for each in self.files.stamps], *found)

    def chunks(self, progress: Progress) -> Iterator[Chunk]:
        """All rows, with a bar."""
        pieces = [Piece(number, 0, rows) for number, rows in enumerate(self.files.sizes)]
        task = progress.task("reading vocabularies", 100)
        total, shown = sum(self.files.sizes), 0
        for chunk in ahead(self.files.chunks(pieces, self.schema, SCAN_ROWS, SCAN_BYTES), 1):
            before = self.rows
            yield chunk
            done = 100 * self.rows // total
            task.observe(100 * self.rows / total - shown, self.rows - before, {})
            task.advance(done - shown)
            shown = done
        task.finish()

    def add(self, chunk: Chunk, pool: ThreadPoolExecutor) -> None:
        """Some rows more."""
        table, columns = chunk.table, self.columns
        frame = frame_of(table)

        def count_ids(role: str, name: str) -> Occurrences:
            ids, before = self.ids[role], len(self.ids[role])
            column = id_column(array_of(table, name), name)
            code = ids.add_rows(column)
            new = ids.values.slice(before)
            if not is_utf8(new):
                require_utf8(column, name)
            # Half the bytes take half the time.
            self.digests[f"rows of {role}"].update(code.astype(np.int32).data)
            if pa.types.is_integer(new.type):
                self.digests[f"ids of {role}"].update(new.to_numpy().data)
            else:
                offsets, letters = text_buffers(new)
                self.digests[f"ids of {role}"].update(letters[offsets[0] : offsets[-1]].data)
                self.digests[f"lengths of {role}"].update(np.diff(offsets).data)
            return Occurrences(code, before, len(ids))

        counted = {
            role: pool.submit(count_ids, role, name)
            for role, name in zip(ROLES_OF_IDS, (columns.user, columns.item), strict=True)
        }
        sampled = self._sampled(len(table))

        def count_feature(tally: FeatureTally) -> None:
            values = tally.count(array_of(table, tally.feature.source), sampled)
            # Ids were begun before all features, so that they end whatever waits for them.
            tally.place(values, {role: each.result() for role, each in counted.items()})

        # What one id or feature counts is no other's; the first error is that of the first.
        placed = pool.map(count_feature, [each for each in self.features if each.is_open])
        click = binary_column(column_of(frame, columns.click), columns.click).astype(np.uint8)
        conversion = conversions_of(frame, columns, click)
        self.clicks += int(click.sum())
        converted = np.zeros(len(click), dtype=bool) if conversion is None else conversion == 1
        self.converted += int(converted.sum())
        self.digests["outcomes"].update((click + np.uint8(2) * converted).data)
        for each in counted.values():
            each.result()
        list(placed)
        for name in columns.carried:
            column = array_of(table, name)
            require_utf8(column, name)
            if pa.types.is_integer(column.type) and _largest(column) > LARGEST_EXACT_FLOAT:
                self.inexact.add(name)
        for name in table.column_names:
            self.nulls[name] = self.nulls.get(name, 0) + table.column(name).null_count
        self.rows += len(table)
        for role, ids in self.ids.items():
            kept = ids.shrunk()
            for tally in self.features if kept is not None else ():
                assert kept is not None
                tally.keep(role, kept)

    def close_numbers(self) -> None:
        """Whole numbers that are more than codes, whatever the rest of the rows holds, are counted as such
        alone."""
        total = sum(self.files.sizes)
        for codes, _ in self._undecided():
            if is_number(len(codes.distinct), total):
                codes.close()

    def _undecided(self) -> Iterator[tuple[FeatureTally, FeatureTally]]:
        """Counts of one column as codes and as numbers."""
        for tally, other in pairwise(self.features):
            if tally.feature.name == other.feature.name:
                yield tally, other

    def found(self) -> tuple[Log, ColumnNames]:
        """A log without rows that has all that was learned, and which columns its logs carry."""
        columns = self.columns
        require_both_clicks(self.clicks, self.rows, "impressions", columns.called)
        if columns.conversion is not None:
            require_both_conversions(self.converted, self.clicks, columns.called)
        repeats = {role: ids.repeats for role, ids in self.ids.items()}
        vocabularies = []
        places: dict[str, NDArray[np.int64]] = {}
        for role, name, given in zip(ROLES_OF_IDS, (columns.user, columns.item), self.given, strict=True):
            vocabulary, places[role] = self._vocabulary(role, name, given)
            vocabularies.append(vocabulary)
        times = (name for name in columns.times if is_time(self.schema.field(name).type))
        time = columns.time or next((name for name in times if not self.nulls[name]), None)
        carried = replace(columns, time=time)
        for name in self.gaps.intersection(carried.carried):
            self._require_wide(name)
        empty = Log(
            user=np.empty(0, dtype=np.int32),
            item=np.empty(0, dtype=np.int32),
            click=np.empty(0, dtype=np.uint8),
            conversion=None if columns.conversion is None else np.empty(0, dtype=np.float32),
            users=vocabularies[0],
            items=vocabularies[1],
            space="impressions",
            columns={
                name: column_of(frame_of(self.schema.empty_table()), name, gaps=name in self.gaps)
                for name in carried.carried
            },
            features=None if self.wanted is None else self._described(vocabularies, places, repeats, time),
            time=time,
        )
        return empty, carried

    def _require_wide(self, name: str) -> None:
        """An error for a column with gaps whose values have no type that can tell of these."""
        kind = self.schema.field(name).type
        if name in self.inexact:
            raise inexact(name)
        if pa.types.is_timestamp(kind) and kind.tz is not None:
            try:
                pa.scalar(0, kind).as_py()
            except pa.ArrowInvalid:
                raise unknown_zone(kind.tz, name) from None

    def _vocabulary(
        self, role: str, name: str, given: Vocabulary | None
    ) -> tuple[Vocabulary, NDArray[np.int64]]:
        """The ids that have a code, and where each is among those that were counted (-1: nowhere)."""
        ids = self.ids[role]
        kept = ids.cut()
        for tally in self.features if kept is not None else ():
            assert kept is not None
            tally.keep(role, kept)
        if given is None:
            # Arrow sorts text faster, in the same order.
            order = pc.array_sort_indices(ids.values).to_numpy().astype(np.int64)
            buckets = BUCKETS if ids.truncated else 0
            taken = ids.values.take(pa.array(order))
            is_whole = pa.types.is_integer(taken.type)
            found = taken.to_numpy() if is_whole else np.array(taken.to_pylist(), dtype=TEXT)
            return Vocabulary(found, name, buckets), np.append(order, np.full(buckets, MISSING))
        code = given.encode_column(ids.values)
        if not given.buckets and (code < 0).any():
            unknown = ids.values.filter(pa.array(code < 0))
            raise DataError(
                f"{name} {unknown[0]} was not seen in training ({len(unknown)} such ids)",
                where=f"column '{name}'",
                remedy="leave these rows out, or read the files without the vocabularies of another log",
            )
        places = np.full(len(given), MISSING, dtype=np.int64)
        places[code] = np.arange(len(code))
        return given, places

    def _described(
        self,
        vocabularies: Sequence[Vocabulary],
        places: dict[str, NDArray[np.int64]],
        repeats: dict[str, bool],
        time: str | None,
    ) -> Described:
        declared: dict[str, Feature] = {}
        values: dict[str, Values] = {}
        learned: dict[str, Any] = {}
        for tally in self._chosen(time):
            feature = tally.feature.with_role(tally.role(repeats))
            declared[feature.name] = feature
            if feature.role == "row":
                values[feature.name], learned[feature.name] = no_values(feature), tally.learned()
                continue
            assert feature.role is not None
            at = places[feature.role]
            values[feature.name] = tally.of_side(feature.role, at)
            learned[feature.name] = values[feature.name].take(at != MISSING)
        require_shared_codes(declared)
        users, items = (
            (at != MISSING) | (np.arange(len(at)) >= len(vocabulary.ids))
            for at, vocabulary in zip(places.values(), vocabularies, strict=True)
        )
        sizes = (len(vocabularies[0]), len(vocabularies[1]))
        encoders = Encoders.learn(
            tuple(declared.values()), learned, values, sizes, {"user": users, "item": items}
        )
        times = {
            each.source: np.empty(0, dtype="datetime64[us]")
            for each in declared.values()
            if isinstance(each, TimePart)
        }
        return Described(tuple(declared.values()), values, self.left_out, times, encoders)

    def _candidates(self) -> dict[str, tuple[Feature, ...]]:
        """By column: the features that are asked for, or that it may be."""
        if self.wanted is None:
            return {}
        columns = self.columns
        taken = {columns.user, columns.item, *columns.outcomes}
        refuse_taken(self.wanted, taken)
        named = without_auto(self.wanted)
        names = sources_of(named)
        rest = []
        if AUTO in self.wanted:
            skipped = {*taken, *columns.keep, *self.ignore}
            skipped |= {*names}
            rest = [name for name in self.files.field_names if name not in {*skipped, *self.files.lacking}]
            self.left_out |= dict.fromkeys(columns.keep, IGNORED)
            self.left_out |= {
                name: lacked_by(file) for name, file in self.files.lacking.items() if name not in skipped
            }
        types = self.files.typed(list(dict.fromkeys([*names, *rest])))
        found: dict[str, tuple[Feature, ...]] = {}
        met = set(ROLES_OF_IDS)
        for each in named:
            source = each if isinstance(each, str) else each.source
            kinds = kinds_of_type(types.field(source).type, source) if isinstance(each, str) else (each,)
            if not kinds:
                raise no_feature(source)
            if met & {kind.name for kind in kinds}:
                raise named_twice(kinds[0].name)
            met |= {kind.name for kind in kinds}
            found[source] = (*found.get(source, ()), *kinds)
        for name in rest:
            kinds = kinds_of_type(types.field(name).type, name)
            if not kinds:
                self.left_out[name] = NO_FEATURE
                continue
            found[name] = kinds
        return found

    def _chosen(self, time: str | None) -> list[FeatureTally]:
        """The features in their order; of whole numbers that may be a category or a number, what they are."""
        chosen: list[FeatureTally] = []
        for tally in self.features:
            other = chosen[-1] if chosen and chosen[-1].feature.name == tally.feature.name else None
            if other is None:
                chosen.append(tally)
                continue
            distinct, known = len(other.distinct), other.rows - other.missing
            if other.distinct.truncated or is_number(distinct, known):
                chosen[-1] = tally
        # Of those that were found, the time is first, as among the columns of a log.
        sources = [] if self.wanted is None else sources_of(without_auto(self.wanted))

        def place(tally: FeatureTally) -> int:
            source = tally.feature.source
            return 0 if source in sources else 1 if source == time else 2

        return sorted(chosen, key=place)

    def _sampled(self, rows: int) -> NDArray[np.bool_] | None:
        if self.threshold is None:
            return None
        hashed = splitmix64(np.arange(self.rows, self.rows + rows, dtype=np.uint64))
        return np.asarray(hashed < self.threshold)


def _largest(numbers: Any) -> int:
    """The largest whole number of an Arrow array, without its sign; 0 of none."""
    ends = pc.min_max(numbers).as_py()
    return max((abs(each) for each in ends.values() if each is not None), default=0)
