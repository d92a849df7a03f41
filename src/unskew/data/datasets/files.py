"""Your own CSV or Parquet files, as logs and as a dataset."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, get_args

from unskew.base.errors import DataError, ParameterError
from unskew.base.estimator import require_choice
from unskew.base.registry import register
from unskew.base.tables import (
    Paths,
    column_names,
    concatenate,
    expand_paths,
    field_names,
    in_its_file,
    lacking_columns,
    read_files,
    read_table,
    time_columns,
)
from unskew.data import Category, Duplicates, Log, Space, StreamedLog, Wanted
from unskew.data.checks import names_of, require_roles
from unskew.data.datasets.dataset import Dataset, Protocol, TestIs, errors_name, without_leaked_cells
from unskew.data.described import AUTO, lacked_by, sources_of, without_auto
from unskew.data.kinds import TimePart
from unskew.data.vocabulary import UNSEEN_CODE, Vocabulary

CLICK = "click"
"""The column of clicks, unless another is named."""

Unseen = Literal["error", "drop", "keep"]
"""What becomes of test rows of users or items that the training log does not have."""


def read_log(
    path: Paths,
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
) -> Log:
    """Read a log from CSV or Parquet.

    CSV has no types: ids and kept columns are text as it stands there (007, 1e3, NA), unless ``numbers``
    names them. Features are of the type that their values look like, but for declared categories, which are
    text. An empty cell is missing.

    Parameters
    ----------
    path
        A file, a folder, a glob, or several of these.
    user, item, click, conversion
        Names of the columns. ``click`` may be left out: it is then the column of that name, and in the space
        ``"matrix"`` every listed pair was clicked where there is none.
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

    Examples
    --------
    >>> import pathlib, tempfile
    >>> folder = pathlib.Path(tempfile.mkdtemp())
    >>> _ = (folder / "clicks.csv").write_text("uid,iid,bought\\na,1,1\\na,2,0\\nb,1,0\\n")
    >>> read_log(folder / "clicks.csv", user="uid", item="iid", conversion="bought")
    Log(matrix: 2 users × 2 items, 3 rows, 3 clicks, density 0.75)
    """
    keep, ignore, numbers = names_of("keep", keep), names_of("ignore", ignore), names_of("numbers", numbers)
    require_roles(
        user, item, click=click, conversion=conversion, known_propensity=known_propensity, time=time
    )
    if known_propensity is None:
        click = click or _click_column(path)
    outcomes = [name for name in (click, conversion, known_propensity) if name is not None]
    files = expand_paths(path)
    taken = {user, item, *outcomes, *ignore, *keep}
    sources, left_out = ([], {}) if features is None else _feature_columns(files, features, taken)
    tables = read_files(
        files,
        list(dict.fromkeys([user, item, *outcomes, *keep, *([] if time is None else [time]), *sources])),
        numbers={*numbers, *outcomes, *_typed(sources, features, keep)},
    )
    table = concatenate(files, tables)
    try:
        log = Log.from_frame(
            table,
            user=user,
            item=item,
            click=click,
            conversion=conversion,
            keep=keep,
            space=space,
            duplicates=duplicates,
            users=users,
            items=items,
            known_propensity=known_propensity,
            actions=actions,
            features=features,
            ignore=ignore,
            time=time,
            all_known=all_known,
        )
    except DataError as error:
        raise in_its_file(error, files, [len(part) for part in tables]) from error
    if log.features is None or not left_out:
        return log
    return replace(log, features=replace(log.features, left_out={**log.features.left_out, **left_out}))


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
    columns: dict[str, Any] = {
        "user": user,
        "item": item,
        "conversion": conversion,
        "space": space,
        "duplicates": duplicates,
        "keep": keep,
        "numbers": numbers,
        "known_propensity": known_propensity,
        "actions": actions,
    }
    if known_propensity is None:
        click = click or _click_column(under(root, train))
    absent = absent_columns(
        field_names(under(root, train)),
        [under(root, each) for each in (test, validation, unbiased) if each],
        features,
        {user, item, click, conversion, *ignore},
    )
    if time is None and space == "impressions":
        ignored = {*keep, *ignore} - set(named)
        time = _time_of(under(root, train), {user, item, click, conversion, known_propensity, *ignored})
    train_log = read_log(
        under(root, train), time=time, click=click, features=features, ignore=[*ignore, *absent], **columns
    )
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
    train: Log | StreamedLog,
    click: str | None,
    columns: Mapping[str, Any],
    unseen: Unseen,
    facts: dict[str, Any],
) -> dict[str, Log]:
    """Read the held-out files as the training log was read, by role; count in ``facts`` what is dropped.

    Parameters
    ----------
    columns
        Further options of :func:`read_log`.
    """
    if unseen == "error":
        columns = {**columns, "users": train.users, "items": train.items}
    is_bandit, is_matrix = columns.get("known_propensity") is not None, columns["space"] == "matrix"
    logs: dict[str, Log] = {}
    for role, place in places.items():
        if place is None:
            continue
        if columns["conversion"] is None:
            raise ParameterError(
                f"a {role} log needs conversions", remedy="name their column with conversion="
            )
        there = is_bandit or click in column_names(place)
        # Of impressions a pair may come twice, and all rows may be known; of pairs those that are listed are.
        all_known = not is_matrix and not is_bandit
        log = read_log(place, click=click if there else None, all_known=all_known, **columns)
        if unseen == "drop":
            rows = len(log)
            log = _seen_rows(log, train, str(place))
            facts["unseen_rows_dropped"] += rows - len(log)
        if is_matrix and isinstance(train, Log):
            with errors_name(str(place)):
                log, leak = without_leaked_cells(train, log, facts["protocol"])
            for count in ("leaked_cells_found", "leaked_cells_dropped"):
                facts[count] += leak[count]
        logs[role] = log
    if "unbiased" in logs:
        facts["unbiased_rows"] = len(logs["unbiased"])
    return logs


def _time_of(path: Paths, taken: Collection[str | None]) -> str | None:
    """Return the first column of times without missing values; None without one."""
    times = (name for name in time_columns(path) if name not in taken)
    # Missing values are most likely those of the time of a conversion.
    return next((name for name in times if not read_table(path, [name]).column(name).null_count), None)


def _feature_columns(
    files: list[Path], features: Wanted, taken: set[str]
) -> tuple[list[str], dict[str, str]]:
    """Return the columns of the features, and those that ``"auto"`` leaves out since a file lacks them."""
    lacked: dict[str, Path] = {}
    named = sources_of(without_auto(features))
    if AUTO in features:
        skipped = {*taken, *named}
        lacked = {name: file for name, file in lacking_columns(files).items() if name not in skipped}
        named += [name for name in field_names(files) if name not in {*skipped, *lacked}]
    return list(dict.fromkeys(named)), {name: lacked_by(file) for name, file in lacked.items()}


def absent_columns(
    present: Sequence[str], held_out: Sequence[Paths], features: Wanted | None, taken: Collection[str | None]
) -> list[str]:
    """Return the columns that ``"auto"`` would take and that held-out files do not have."""
    if features is None or AUTO not in features:
        return []
    named = sources_of(without_auto(features))
    everywhere = [set(column_names(place)) - set(lacking_columns(place)) for place in held_out]
    return [
        name
        for name in present
        if name not in named and name not in taken and any(name not in each for each in everywhere)
    ]


def _typed(sources: Sequence[str], features: Wanted | None, keep: Sequence[str]) -> set[str]:
    """Return the columns of a CSV file whose values tell their type: features but declared categories."""
    declared = () if features is None else without_auto(features)
    text = {each.source for each in declared if isinstance(each, Category | TimePart)}
    return set(sources) - text - set(keep)


def _click_column(path: Paths) -> str | None:
    """Return the column of clicks where none is named; without one every row counts as a click."""
    return CLICK if CLICK in column_names(path) else None


def under(root: str | Path | None, paths: Paths) -> Paths:
    """Return paths that start from a folder, if there is one."""
    if root is None:
        return paths
    if isinstance(paths, (str, Path)):
        return Path(root) / paths
    return [Path(root) / path for path in paths]


def _seen_rows(log: Log, train: Log | StreamedLog, place: str) -> Log:
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
