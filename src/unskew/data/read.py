"""Read a log from files, data frames, tables or relations, with one mapping of columns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from unskew.base.errors import DataError
from unskew.base.estimator import require_choice
from unskew.base.progress import SILENT, Progress
from unskew.data.cache import encoded_once
from unskew.data.checks import names_of, require_roles
from unskew.data.described import AUTO, IGNORED, Described, Wanted
from unskew.data.digest import digest_of
from unskew.data.features import Features
from unskew.data.known_propensity import actions_of
from unskew.data.log import Duplicates, Log, Space, completed, refuse_taken, require_kinds, require_population
from unskew.data.source import Source
from unskew.data.two_passes import MOST_IDS, LogColumns, encoded
from unskew.data.vocabulary import Vocabulary

CLICK, CONVERSION = "click", "conversion"
"""The columns of outcomes, unless others are named."""


def read_log(
    source: Any,
    *,
    user: str = "user",
    item: str = "item",
    click: str | None = None,
    conversion: str | None = None,
    space: Space = "matrix",
    duplicates: Duplicates = "error",
    keep: Sequence[str] = (),
    numbers: Sequence[str] = (),
    users: Vocabulary | None = None,
    items: Vocabulary | None = None,
    known_propensity: str | None = None,
    actions: int | None = None,
    features: Wanted | None = None,
    ignore: Sequence[str] = (),
    time: str | None = None,
    all_known: bool = False,
    most_ids: int = MOST_IDS,
    cache: str | Path | None = None,
    progress: Progress = SILENT,
) -> Log:
    """Read a log from files, or from a data frame, a table or a relation.

    CSV has no types: ids and kept columns are text as it stands there (007, 1e3, NA), unless ``numbers``
    names them. Features are of the type that their values look like, but for declared categories, which are
    text. An empty cell is missing. Folders named ``column=value`` are columns.

    Parameters
    ----------
    source
        CSV, Parquet or Arrow files: a file, a folder, a glob, or several of these, here or where one of
        pyarrow's file systems finds them (``s3://bucket/logs``, Parquet alone); or a data frame (pandas,
        polars, also a lazy one), an Arrow table, a DuckDB relation.
    user, item, click, conversion
        Names of the columns. ``click`` and ``conversion`` may be left out: they are then the columns of these
        names, if there are such; in the space ``"matrix"`` every listed pair was clicked where there is no
        column of clicks.
    keep
        Further columns to carry along.
    numbers
        Columns of a CSV file, of ids or kept ones, that are numbers.
    known_propensity
        The column with the probability that each row was shown, for a bandit log: all rows count as seen.
    space, duplicates, users, items, actions, all_known
        As in :meth:`unskew.Log.from_arrays`.
    features, ignore
        What networks read beside the ids, as in :meth:`unskew.Log.from_frame`.
    time
        The column that says when each row was, which is carried along.
    most_ids
        Users, and items, that have a code of their own at most, the most frequent; the others share codes by
        a hash of their ids.
    cache
        The folder that arrays of more than 256 MB are mapped from, and found in by the next run; None is
        the user's cache directory, and ``"none"`` a temporary folder.
    progress
        What shows how far the reading is.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "clicks.csv").write_text("uid,iid,bought\\na,1,1\\na,2,0\\nb,1,0\\n")
    >>> read_log(folder / "clicks.csv", user="uid", item="iid", conversion="bought")
    Log(matrix: 2 users × 2 items, 3 rows, 3 clicks, density 0.75)
    """
    asked = LogColumns(
        user, item, click, conversion, known_propensity, keep, time, (), features, ignore, numbers, most_ids
    )
    population = LogOptions(space, duplicates, users, items, actions=actions, all_known=all_known)
    return cached_log_of(Source.of(source), asked, population, cache, progress)


@dataclass(frozen=True)
class LogOptions:
    """What the rows of a log are of.

    Attributes
    ----------
    space, duplicates, users, items, user_features, item_features, actions, all_known
        As in :meth:`unskew.Log.from_arrays`.
    """

    space: Space = "matrix"
    duplicates: Duplicates = "error"
    users: Vocabulary | None = None
    items: Vocabulary | None = None
    user_features: Features | None = None
    item_features: Features | None = None
    actions: int | None = None
    all_known: bool = False

    def __post_init__(self) -> None:
        require_kinds(self.users, self.items, self.user_features, self.item_features)
        require_choice("duplicates", self.duplicates, ("error", "max"))

    @property
    def digest(self) -> str:
        """By which a log that was read in the same way is known."""
        vocabularies = [
            None if each is None else (each.ids, each.buckets) for each in (self.users, self.items)
        ]
        parts = [part for each in vocabularies for part in (each or (None,))]
        return digest_of(self.space, self.duplicates, self.actions, self.all_known, *parts)


def cached_log_of(
    source: Source, asked: LogColumns, population: LogOptions, cache: str | Path | None, progress: Progress
) -> Log:
    """Read a log as :func:`log_of` does; large arrays of files are found in a cache, or written there."""
    return encoded_once(
        source,
        cache,
        (repr(asked), population.digest),
        lambda make: log_of(source, asked, population, make, progress),
    )


def log_of(
    source: Source,
    asked: LogColumns,
    population: LogOptions,
    folder: Callable[[int], Path] | None = None,
    progress: Progress = SILENT,
) -> Log:
    """Read the columns of a source that are asked for as a log.

    Parameters
    ----------
    folder
        Makes the folder that so many bytes of large arrays are mapped from.
    """
    asked, known, space = _found(source, asked), asked.known_propensity, population.space
    has_click = asked.click is not None or (population.all_known and known is None)
    require_population(space, asked.carried, known, population.actions, has_click=has_click)
    read = encoded(source, asked, space, (population.users, population.items), folder, progress)
    called = {
        "user": asked.user,
        "item": asked.item,
        "click": asked.click or CLICK,
        "conversion": asked.conversion or CONVERSION,
    }
    try:
        log = Log(
            user=read.user,
            item=read.item,
            click=read.click,
            conversion=read.conversion,
            users=read.users,
            items=read.items,
            space=space,
            user_features=population.user_features,
            item_features=population.item_features,
            columns=read.columns,
            known_propensity=known,
            actions=None if known is None else actions_of(population.actions, read.item, len(read.items)),
            time=read.time,
        )
        log = completed(log, read.features, asked.features, (), population.duplicates, called)
    except DataError as error:
        raise read.place(error) from error
    if log.features is None or asked.features is None:
        return log
    left_out = {**log.features.left_out, **read.left_out}
    if AUTO in asked.features:
        made = {each.source for each in log.features.declared}
        left_out |= {name: IGNORED for name in read.columns if name not in made}
    features: Described = replace(log.features, left_out=left_out)
    return replace(log, features=features)


def _found(source: Source, asked: LogColumns) -> LogColumns:
    """Name the columns of outcomes, and those that may be the time."""
    keep, ignore = names_of("keep", asked.keep), names_of("ignore", asked.ignore)
    guessed = names_of("numbers", asked.guessed)
    roles = {"click": asked.click, "conversion": asked.conversion, "time": asked.time}
    require_roles(asked.user, asked.item, known_propensity=asked.known_propensity, **roles)
    free = {*source.names} - {asked.user, asked.item, asked.known_propensity, asked.time, None}
    click, conversion = asked.click, asked.conversion
    if click is None and asked.known_propensity is None and CLICK in free - {conversion}:
        click = CLICK
    if conversion is None and CONVERSION in free - {click}:
        conversion = CONVERSION
    if asked.features is not None:
        taken = {asked.user, asked.item, click, conversion, asked.known_propensity}
        refuse_taken(asked.features, {name for name in taken if name is not None})
    return replace(
        asked,
        click=click,
        conversion=conversion,
        keep=keep,
        ignore=ignore,
        guessed=guessed,
    )
