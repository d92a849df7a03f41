"""Your own CSV, Parquet or Arrow files as a dataset."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from unskew.base.errors import DataError, ParameterError
from unskew.base.estimator import require_choice
from unskew.base.progress import SILENT, Progress
from unskew.base.registry import register
from unskew.base.tables import (
    Paths,
)
from unskew.data import Duplicates, Log, Space, Wanted
from unskew.data.checks import names_of
from unskew.data.datasets.dataset import Dataset, Protocol, TestIs, errors_name, without_leaked_cells
from unskew.data.described import AUTO, sources_of, without_auto
from unskew.data.read import CLICK, CONVERSION, LogOptions, cached_log_of, log_of
from unskew.data.source import source_of
from unskew.data.two_passes import LogColumns
from unskew.data.vocabulary import UNSEEN_CODE

Unseen = Literal["error", "drop", "keep"]
"""What becomes of test rows of users or items that the training log does not have."""


@register(order=50)
def files(
    root: str | Path | None = None,
    *,
    protocol: Protocol = "honest",
    train: Paths | None = None,
    test: Paths | None = None,
    validation: Paths | None = None,
    user: str = "user",
    item: str = "item",
    click: str | None = None,
    conversion: str | None = None,
    space: Space = "matrix",
    duplicates: Duplicates = "error",
    keep: Sequence[str] = (),
    numbers: Sequence[str] = (),
    unseen: Unseen | None = None,
    test_is: TestIs = "logged",
    known_propensity: str | None = None,
    actions: int | None = None,
    time: str | None = None,
    features: Wanted | None = None,
    ignore: Sequence[str] = (),
    unbiased: Paths | None = None,
    cache: str | Path | None = None,
    progress: Progress = SILENT,
) -> Dataset:
    """Your own files as a dataset, with one mapping of columns.

    Parameters
    ----------
    root
        The folder that relative paths start from; without ``train``, the training log itself.
    train, test, validation
        Each a file, a folder, a glob, or several. Test and validation rows are pairs with their conversions,
        at best shown at random (``test_is``). Where they lack the click column, every row counts; where they
        have it, the clicked rows do, since the others have no conversion to judge by.
    unseen
        What to do with test and validation rows of users or items that are not in ``train``: ``"error"``,
        ``"drop"`` and count them in ``facts``, or ``"keep"`` for models that read features. None is
        ``"keep"`` with features and ``"error"`` without.
    test_is
        ``"random"``: the test pairs were shown at random. ``"logged"``: they were seen as the training pairs
        were (a next day's log), so that they are biased in the same way, and reports say so.
    known_propensity, actions
        For bandit logs, training and test alike: the column with the probability that each row was shown, and
        of how many items (all those of the training log, by default).
    time
        The column of times of the training log, which is carried along; by default, in the space
        ``"impressions"``, the first column of a Parquet file whose type is one of times, which has no
        missing values and is not ignored. Runs hold out the latest rows of such a log.
    features, ignore
        What networks read beside the ids, as in :meth:`unskew.Log.from_frame`; test and validation are read
        as the training log is. ``"auto"`` leaves out columns that one of them lacks (the time of a
        conversion, most likely); ``facts`` name them.

    unbiased
        A small sample of pairs shown at random, read as the test files are, to choose a method on.
    cache, progress
        Of the training log, as in :func:`unskew.read_log`.

    Notes
    -----
    In the space ``"matrix"`` test cells that were clicked in training are left out under the honest
    protocol. In the space ``"impressions"`` a row is an event of its own and none is left out.
    """
    unseen = checked_unseen(unseen, features)
    require_choice("test_is", test_is, get_args(TestIs))
    keep, ignore, numbers = names_of("keep", keep), names_of("ignore", ignore), names_of("numbers", numbers)
    named = [] if features is None else sources_of(without_auto(features))
    if train is None:
        if root is None:
            raise ParameterError("the dataset 'files' needs a training log", remedy="give train= or root=")
        train, root = root, None
    source = source_of(under(root, train))
    if click is None and known_propensity is None and CLICK in source.names:
        click = CLICK
    if conversion is None and CONVERSION in source.names and CONVERSION not in (user, item, click):
        conversion = CONVERSION
    columns: dict[str, Any] = {
        "user": user,
        "item": item,
        "conversion": conversion,
        "known_propensity": known_propensity,
        "keep": keep,
        "guessed": numbers,
    }
    population = LogOptions(space, duplicates, actions=actions)
    absent = absent_columns(
        source.fields,
        [under(root, each) for each in (test, validation, unbiased) if each],
        features,
        {user, item, click, conversion, *ignore},
    )
    taken = {user, item, click, conversion, known_propensity, *({*keep, *ignore} - set(named))}
    times = [name for name in source.times if name not in taken] if space == "impressions" else []
    asked = LogColumns(
        click=click, time=time, times=(*times,), features=features, ignore=(*ignore, *absent), **columns
    )
    train_log = cached_log_of(source, asked, population, cache, progress)
    if train_log.features is not None:
        columns["features"] = train_log.features.declared
    facts: dict[str, Any] = {
        "protocol": protocol,
        "leaked_cells_found": 0,
        "leaked_cells_dropped": 0,
        "unseen_rows_dropped": 0,
        "features_left_out": absent,
    }
    places = {"test": test, "validation": validation, "unbiased": unbiased}
    held_out = held_out_logs(
        {role: None if paths is None else under(root, paths) for role, paths in places.items()},
        train_log,
        click,
        columns,
        population,
        unseen,
        facts,
    )
    return Dataset(
        name="files",
        train=train_log,
        test=held_out.get("test"),
        validation=held_out.get("validation"),
        facts=facts,
        test_is=test_is,
        unbiased=held_out.get("unbiased"),
    )


def checked_unseen(unseen: Unseen | None, features: Wanted | None) -> Unseen:
    """Return what to do with ids that are not in the training log; None is as the features say."""
    unseen = unseen or ("error" if features is None else "keep")
    require_choice("unseen", unseen, get_args(Unseen))
    return unseen


def held_out_logs(
    places: Mapping[str, Paths | None],
    train: Log,
    click: str | None,
    columns: Mapping[str, Any],
    population: LogOptions,
    unseen: Unseen,
    facts: dict[str, Any],
) -> dict[str, Log]:
    """Read the held-out files as the training log was read, by role; count in ``facts`` what is dropped.

    Parameters
    ----------
    columns, population
        Further columns that are asked for, and what the rows are of.
    """
    if unseen == "error":
        population = replace(population, users=train.users, items=train.items)
    is_bandit, is_matrix = columns["known_propensity"] is not None, population.space == "matrix"
    logs: dict[str, Log] = {}
    for role, place in places.items():
        if place is None:
            continue
        if columns["conversion"] is None:
            raise ParameterError(
                f"a {role} log needs conversions", remedy="name their column with conversion="
            )
        source = source_of(place)
        there = is_bandit or click in source.names
        # Of impressions a pair may come twice, and all rows may be known; of pairs those that are listed are.
        population = replace(population, all_known=not is_matrix and not is_bandit)
        asked = LogColumns(click=click if there else None, **columns)
        log = log_of(source, asked, population)
        if unseen == "drop":
            rows = len(log)
            log = _seen_rows(log, train, str(place))
            facts["unseen_rows_dropped"] += rows - len(log)
        if is_matrix:
            with errors_name(str(place)):
                log, leak = without_leaked_cells(train, log, facts["protocol"])
            for count in ("leaked_cells_found", "leaked_cells_dropped"):
                facts[count] += leak[count]
        logs[role] = log
    if "unbiased" in logs:
        facts["unbiased_rows"] = len(logs["unbiased"])
    return logs


def absent_columns(
    present: Sequence[str], held_out: Sequence[Paths], features: Wanted | None, taken: Collection[str | None]
) -> list[str]:
    """Return the columns that ``"auto"`` would take and that held-out files do not have."""
    if features is None or AUTO not in features:
        return []
    named = sources_of(without_auto(features))
    others = [source_of(place) for place in held_out]
    everywhere = [set(source.names) - set(source.lacking) for source in others]
    return [
        name
        for name in present
        if name not in named and name not in taken and any(name not in each for each in everywhere)
    ]


def under(root: str | Path | None, paths: Paths) -> Paths:
    """Return paths that start from a folder, if there is one."""
    if root is None:
        return paths
    if isinstance(paths, (str, Path)):
        return Path(root) / paths
    return [Path(root) / path for path in paths]


def _seen_rows(log: Log, train: Log, place: str) -> Log:
    """Return the rows whose user and item are in the training vocabularies, in its codes."""
    user = train.users.encode(log.users.ids, unseen="nan")[log.user]
    item = train.items.encode(log.items.ids, unseen="nan")[log.item]
    seen = (user != UNSEEN_CODE) & (item != UNSEEN_CODE)
    if not seen.any():
        raise DataError(
            "no row has a user and an item of the training log",
            where=place,
            remedy="check that both logs use the same ids",
        )
    kept = log.take(seen)
    features = kept.features
    if features is not None:
        features = features.recoded("user", log.users.encode(train.users.ids, unseen="nan"))
        features = features.recoded("item", log.items.encode(train.items.ids, unseen="nan"))
    return replace(
        kept, user=user[seen], item=item[seen], users=train.users, items=train.items, features=features
    )
