"""Checks of how a log is asked for, and of it as a whole: each pair once, and more than one class."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from unskew.base.errors import DataError, ParameterError

if TYPE_CHECKING:
    from unskew.data.log import Duplicates, Log


Unclicked = Literal["error", "drop", "click"]
"""What becomes of rows that converted without a click."""


def names_of(parameter: str, given: object) -> tuple[str, ...]:
    """A list of names of columns; an error for what is none: a text would be read letter by letter."""
    names = tuple(given) if isinstance(given, Iterable) and not isinstance(given, str) else None
    if names is None or not all(isinstance(name, str) for name in names):
        raise ParameterError(
            f"{parameter} must be names of columns, not {given!r}", remedy="give a list of names"
        )
    return names


def require_roles(user: object, item: object, **others: object) -> None:
    """Raise an error for what names no column, and for a column with two roles; ``others`` may be None."""
    if user is None or item is None:
        raise ParameterError(
            "a log needs a user and an item for each row", remedy="name their columns with user= and item="
        )
    role_of: dict[str, str] = {}
    for parameter, name in {"user": user, "item": item, **others}.items():
        if not isinstance(name, str | None):
            raise ParameterError(
                f"{name!r} is not the name of a column",
                where=parameter,
                remedy="give names as text; rename columns",
            )
        if name is not None and (other := role_of.setdefault(name, parameter)) != parameter:
            raise ParameterError(
                f"column '{name}' is given both as {other} and as {parameter}",
                remedy=f"name another column as {other} or as {parameter}",
            )


def resolve_duplicates(log: Log, policy: Duplicates, called: Mapping[str, str]) -> Log:
    """Each pair once: a repeated one is an error, or clicked (converted) if any of its rows was.

    Parameters
    ----------
    called
        What the caller calls the columns.
    """
    _, first, inverse, counts = np.unique(
        log.cell, return_index=True, return_inverse=True, return_counts=True
    )
    if len(first) == len(log):
        return log
    if policy == "error":
        repeated = np.flatnonzero(counts[inverse] > 1)
        row = int(repeated[inverse[repeated] == inverse[repeated[0]]][1])
        raise DataError(
            f"the pair ({called['user']} {log.users.ids[log.user[row]]}, {called['item']}"
            f" {log.items.ids[log.item[row]]}) is listed {counts[inverse[row]]} times"
            f" ({len(log) - len(first)} repeated rows in all)",
            where=f"columns '{called['user']}' and '{called['item']}', row {row}",
            remedy="keep each pair once, ask for duplicates='max' (--duplicates max),"
            " or use the space 'impressions' (--space impressions)",
        )
    click = np.zeros(len(first), dtype=np.uint8)
    np.maximum.at(click, inverse, log.click)
    conversion = log.conversion
    if conversion is not None:
        merged = np.full(len(first), -1.0, dtype=np.float32)
        np.maximum.at(merged, inverse, np.where(np.isnan(conversion), np.float32(-1), conversion))
        conversion = np.where(merged < 0, np.float32(np.nan), merged)
    order = np.argsort(first)
    kept = log.take(first[order])
    return replace(kept, click=click[order], conversion=None if conversion is None else conversion[order])


def resolve_unclicked(log: Log, policy: Unclicked) -> tuple[Log, int]:
    """Drop rows that converted without a click, or count them as clicked; return how many there were."""
    if log.conversion is None or policy == "error":
        return log, 0
    wrong = (log.click == 0) & (log.conversion == 1)
    if wrong.any():
        click = np.where(wrong, 1, log.click).astype(np.uint8)
        log = log.take(~wrong) if policy == "drop" else replace(log, click=click)
    return log, int(wrong.sum())


def require_outcomes(log: Log, called: Mapping[str, str]) -> None:
    """Raise an error for a log without clicks, or with one outcome alone: nothing can be learned of it.

    A log in which every row is clicked trains models without propensities (:func:`require_both_clicks`).
    """
    if not log.n_clicks:
        require_both_clicks(0, log.population_size, log.space, called)
    if log.conversion is not None:
        known = log.known_conversion()
        require_both_conversions(int((known == 1).sum()), len(known), called)


def require_both_clicks(
    clicks: int, population: int, space: str, called: Mapping[str, str] | None = None
) -> None:
    """Raise an error where all of a population is clicked, or none: no propensity can be learned."""
    if clicks in (0, population):
        which = "no row" if clicks == 0 else "every pair" if space == "matrix" else "every row"
        raise DataError(
            f"{which} of the population is clicked: one class only",
            where=None if called is None else f"column '{called['click']}'",
            remedy="a propensity needs clicks and non-clicks; in the space 'matrix' the pairs that the"
            " log does not list are the non-clicks; us.Naive trains without a propensity",
        )


def require_both_conversions(converted: int, clicks: int, called: Mapping[str, str]) -> None:
    """Conversions and none, among clicks."""
    if converted in (0, clicks):
        raise DataError(
            f"conversion is {int(converted > 0)} on every clicked row: one class only",
            where=f"column '{called['conversion']}'",
            remedy="a conversion model needs converted and unconverted clicks",
        )
