"""Guesses from the columns of files: which column holds what, and what the population is."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from unskew.base.errors import DataError, ParameterError
from unskew.base.plain_text import listed, plain
from unskew.base.registry import DATASETS
from unskew.data.datasets.files import under
from unskew.data.distinct import Pairs
from unskew.data.files import is_place
from unskew.data.source import Source
from unskew.data.stream import rows_located
from unskew.data.vocabulary import id_column
from unskew.run.config import NO_METHOD

if TYPE_CHECKING:
    from unskew.run.config import Config

GUESSES = {
    "user": ("user", "user_id", "userid", "uid", "visitor_id", "visitorid", "customer_id", "member_id"),
    "item": ("item", "item_id", "itemid", "iid", "product_id", "ad_id", "video_id", "article_id", "sku"),
    "click": ("click", "clicked", "is_click", "clicks"),
    "conversion": ("conversion", "converted", "is_conversion", "purchase", "purchased", "bought", "order"),
}
"""The names by which the columns of ids and outcomes are known, the usual one first."""


def source_of_config(config: Config) -> Source:
    """Return the rows of the training log."""
    source = config.data.source
    if not all([source] if isinstance(source, str) else source):
        raise ParameterError("the name of a file is empty", remedy="give a file, a folder or a glob")
    return Source.of(under(config.data.root, source if isinstance(source, str) else list(source)))


def guess_column(role: str, names: Collection[str]) -> str | None:
    """Return the column of a role by its name; None where no name is known.

    Examples
    --------
    >>> guess_column("user", ["UID", "product_id", "clicked"])
    'UID'
    """
    lower = {name.lower(): name for name in reversed(list(names))}
    return next((lower[known] for known in GUESSES[role] if known in lower), None)


def complete(config: Config) -> tuple[Config, list[str]]:
    """Fill in what a configuration of files leaves open, and say so, a sentence for each guess."""
    data = config.data
    if data.is_named:
        notice = "no FILE is given: the data are a synthetic world, whose truth is known"
        return config, [] if "source" in data.model_fields_set else [notice]
    if not are_files(config):
        DATASETS.require(str(data.source))
    source = source_of_config(config)
    names = source.names
    guesses: dict[str, Any] = {}
    for role in ("user", "item"):
        column = getattr(data, role) or guess_column(role, names)
        if column not in names:
            problem = f"column '{column or role}' is missing"
            remedy = f"name one of the columns that are there with --{role}: {listed(names)}"
            raise DataError(problem, where=plain(data.source), remedy=remedy)
        guesses[role] = column
    bandit = data.known_propensity is not None
    guesses["click"] = data.click or (None if bandit else guess_column("click", names))
    usual = "conversion" if bandit else None
    guesses["conversion"] = data.conversion or guess_column("conversion", names) or usual
    if data.space == "auto":
        guesses["space"], why = _space(source, guesses, bandit=bandit)
    new = {name: value for name, value in guesses.items() if value != getattr(data, name)}
    changes = {f"data.{name}": value for name, value in new.items()}
    if config.model.method is None and guesses["conversion"] is None:
        changes["model.method"] = NO_METHOD
    sentences = [f"{name} is column '{plain(new[name])}'" for name in GUESSES if name in new]
    if "space" in new:
        sentences.append(f"the population is {new['space']}: {why}")
    return config.changed(changes), sentences


def are_files(config: Config) -> bool:
    """Return whether the data are files, or at least look like their names."""
    if not isinstance(config.data.source, str):
        return True
    source = str(config.data.source)
    return "://" in source or is_place(source) or (Path(config.data.root or "") / source).exists()


def _space(source: Source, columns: dict[str, Any], *, bandit: bool) -> tuple[str, str]:
    """Return the population of some rows, and why it is that one."""
    if bandit:
        return "impressions", "every row was shown"
    if (click := columns["click"]) is not None:
        for batch in source.read([click]).batches():
            if any(map(_is_zero, pc.unique(batch.record.column(click)).to_pylist())):
                return "impressions", f"column '{plain(click)}' has zeros, so that rows are what was shown"
    user, item = columns["user"], columns["item"]
    pairs = Pairs()
    for batch in source.read([*{user: None, item: None}]).batches():
        with rows_located(batch):
            ids = [id_column(batch.record.column(name), name) for name in (user, item)]
        if pairs.repeat_with(*ids):
            return "impressions", "pairs of a user and an item repeat"
    return "matrix", "every pair of a user and an item; the listed ones were clicked"


def _is_zero(value: Any) -> bool:
    """Return whether a value, or the text of one in a CSV file, means that there was no click."""
    text = str(value).strip().lower()
    try:
        return text == "false" or float(text) == 0.0
    except ValueError:
        return False


def loader_options(config: Config, held_by: str | None) -> dict[str, Any]:
    """Return the options of the loader.

    Parameters
    ----------
    held_by
        A further column that the run needs: the one that groups are split by.
    """
    data, options = config.data, {**config.data.options, **config.features.asked}
    if data.is_named:
        return options
    roles = (
        "user",
        "item",
        "click",
        "conversion",
        "time",
        "space",
        "duplicates",
        "unclicked",
        "known_propensity",
    )
    options |= {name: getattr(data, name) for name in (*roles, "actions", "test", "unbiased", "cache")}
    source = data.source if isinstance(data.source, str) else list(data.source)
    options |= {"train": source, "test_is": data.test_is or "logged"}
    if held_by is not None:
        options["keep"] = tuple(dict.fromkeys((*options.get("keep", ()), held_by)))
    return {name: value for name, value in options.items() if value is not None}
