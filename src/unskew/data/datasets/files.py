"""Your own CSV, Parquet or Arrow files as a dataset."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

from unskew.base.errors import DataError, ParameterError
from unskew.base.estimator import require_choice
from unskew.base.progress import SILENT, Progress
from unskew.base.registry import register
from unskew.data import Duplicates, Log, Space, Wanted
from unskew.data.checks import resolve_unclicked
from unskew.data.datasets.dataset import (
    Dataset,
    Protocol,
    TestIs,
    reading,
    takes,
    without_leaked_cells,
)
from unskew.data.described import AUTO, sources_of, without_auto
from unskew.data.files import Paths
from unskew.data.options import CLICK, CONVERSION, LogOptions, Unclicked, names_of
from unskew.data.read import cached_log_of
from unskew.data.source import Source
from unskew.data.two_passes import log_of
from unskew.data.vocabulary import UNSEEN_CODE

Unseen = Literal["error", "drop", "keep"]
"""What becomes of test rows of users or items that the training log does not have."""


@dataclass(frozen=True, kw_only=True)
class Files:
    """Paths and columns, as :func:`files` takes them."""

    train: Paths | None = None
    test: Paths | None = None
    validation: Paths | None = None
    unbiased: Paths | None = None
    user: str = "user"
    item: str = "item"
    click: str | None = None
    conversion: str | None = None
    space: Space = "matrix"
    duplicates: Duplicates = "error"
    unclicked: Unclicked = "error"
    keep: Sequence[str] = ()
    numbers: Sequence[str] = ()
    unseen: Unseen | None = None
    test_is: TestIs = "logged"
    known_propensity: str | None = None
    actions: int | None = None
    time: str | None = None
    features: Wanted | None = None
    ignore: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.unseen is None:
            object.__setattr__(self, "unseen", "error" if self.features is None else "keep")
        require_choice("unseen", self.unseen, get_args(Unseen))
        require_choice("test_is", self.test_is, get_args(TestIs))
        require_choice("unclicked", self.unclicked, get_args(Unclicked))
        for name in ("keep", "ignore", "numbers"):
            object.__setattr__(self, name, names_of(name, getattr(self, name)))


@register(order=50)
@takes(Files)
def files(
    root: str | Path | None,
    asked: Files,
    *,
    protocol: Protocol = "honest",
    cache: str | Path | None = None,
    progress: Progress = SILENT,
) -> Dataset:
    """Load your own files as a dataset, with one mapping of columns.

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
    unclicked
        What to do with rows that converted without a click: ``"drop"`` them or count them as a ``"click"``,
        and count them in ``facts``. ``"error"`` refuses them in the space ``"matrix"``; the other space
        leaves their conversion out.
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
    if asked.train is None:
        if root is None:
            raise ParameterError("the dataset 'files' needs a training log", remedy="give train= or root=")
        asked, root = replace(asked, train=root), None
    places = {"train": asked.train, "test": asked.test}
    places |= {"validation": asked.validation, "unbiased": asked.unbiased}
    sources = {role: Source.of(under(root, paths)) for role, paths in places.items() if paths is not None}
    source = sources.pop("train")
    asked = _with_outcomes(asked, source.names)
    absent = _absent(asked, source, sources.values())
    named = [] if asked.features is None else sources_of(without_auto(asked.features))
    taken = {asked.user, asked.item, asked.click, asked.conversion, asked.known_propensity}
    taken |= {*asked.keep, *asked.ignore} - set(named)
    options = replace(
        _options(asked),
        time=asked.time,
        times=tuple(name for name in source.times if name not in taken and asked.space == "impressions"),
        features=asked.features,
        ignore=(*asked.ignore, *absent),
    )
    train, repaired = resolve_unclicked(cached_log_of(source, options, cache, progress), asked.unclicked)
    logs: dict[str, Log] = {}
    facts: dict[str, Any] = {"protocol": protocol, "leaked_cells_found": 0, "leaked_cells_dropped": 0}
    facts |= {"unseen_rows_dropped": 0, "features_left_out": absent, "unclicked_conversions": repaired}
    facts["unclicked"] = asked.unclicked
    for role, held_out in sources.items():
        if asked.conversion is None:
            remedy = "name their column with conversion="
            raise ParameterError(f"a {role} log needs conversions", remedy=remedy)
        log, repaired = resolve_unclicked(_held_out(held_out, train, asked), asked.unclicked)
        facts["unclicked_conversions"] += repaired
        with reading(under(root, places[role] or "")):
            if asked.unseen == "drop":
                rows, log = len(log), _seen_rows(log, train)
                facts["unseen_rows_dropped"] += rows - len(log)
            if asked.space == "matrix":
                log, leak = without_leaked_cells(train, log, protocol)
                facts |= {count: facts[count] + leak[count] for count in leak if count != "protocol"}
        logs[role] = log
    if "unbiased" in logs:
        facts["unbiased_rows"] = len(logs["unbiased"])
    return Dataset(
        name="files",
        train=train,
        test=logs.get("test"),
        validation=logs.get("validation"),
        unbiased=logs.get("unbiased"),
        facts=facts,
        test_is=asked.test_is,
    )


def _with_outcomes(asked: Files, names: Sequence[str]) -> Files:
    """Name the columns of outcomes by their usual names, where there are such columns."""
    if asked.click is None and asked.known_propensity is None and CLICK in names:
        asked = replace(asked, click=CLICK)
    if asked.conversion is None and CONVERSION in {*names} - {asked.user, asked.item, asked.click}:
        asked = replace(asked, conversion=CONVERSION)
    return asked


def _absent(asked: Files, source: Source, held_out: Iterable[Source]) -> list[str]:
    """Return the columns that ``"auto"`` would take and that held-out files do not have."""
    if asked.features is None or AUTO not in asked.features:
        return []
    taken = {asked.user, asked.item, asked.click, asked.conversion, *asked.ignore}
    taken |= {*sources_of(without_auto(asked.features))}
    everywhere = [set(each.names) - set(each.lacking) for each in held_out]
    free = [name for name in source.fields if name not in taken]
    return [name for name in free if any(name not in names for names in everywhere)]


def _options(asked: Files) -> LogOptions:
    """Return how all files are read."""
    return LogOptions(
        asked.user,
        asked.item,
        asked.click,
        asked.conversion,
        asked.known_propensity,
        asked.keep,
        numbers=asked.numbers,
        space=asked.space,
        duplicates=asked.duplicates,
        actions=asked.actions,
        unclicked=asked.unclicked,
    )


def _held_out(source: Source, train: Log, asked: Files) -> Log:
    """Read held-out files as the training log was read."""
    is_bandit, shares_ids = asked.known_propensity is not None, asked.unseen == "error"
    options = replace(
        _options(asked),
        features=None if train.features is None else train.features.declared,
        users=train.users if shares_ids else None,
        items=train.items if shares_ids else None,
        # Of impressions a pair may come twice, and all rows may be known; of pairs those that are listed are.
        all_known=asked.space != "matrix" and not is_bandit,
    )
    if not is_bandit and asked.click not in source.names:
        options = replace(options, click=None)
    return log_of(source, options)


def under(root: str | Path | None, paths: Paths) -> Paths:
    """Return paths that start from a folder, if there is one."""
    if root is None:
        return paths
    if isinstance(paths, (str, Path)):
        return Path(root) / paths
    return [Path(root) / path for path in paths]


def _seen_rows(log: Log, train: Log) -> Log:
    """Return the rows whose user and item are in the training vocabularies, in its codes."""
    user = train.users.encode(log.users.ids, unseen="nan")[log.user]
    item = train.items.encode(log.items.ids, unseen="nan")[log.item]
    seen = (user != UNSEEN_CODE) & (item != UNSEEN_CODE)
    if not seen.any():
        raise DataError(
            "no row has a user and an item of the training log",
            remedy="check that both logs use the same ids",
        )
    rest = log.take(seen)
    features = rest.features
    if features is not None:
        features = features.recoded("user", log.users.encode(train.users.ids, unseen="nan"))
        features = features.recoded("item", log.items.encode(train.items.ids, unseen="nan"))
    return replace(
        rest, user=user[seen], item=item[seen], users=train.users, items=train.items, features=features
    )
