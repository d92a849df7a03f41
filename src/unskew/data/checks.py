"""Checks of the values of a log, and of it as a whole: outcomes, each pair once, more than one class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unskew.base.columns import number_column
from unskew.base.errors import DataError, ParameterError
from unskew.base.estimator import require_whole

if TYPE_CHECKING:
    from unskew.data.log import Log
    from unskew.data.options import Duplicates, Unclicked


def binary_column(values: Any, name: str) -> NDArray[np.float64]:
    """Return a column of 0 and 1 without missing values."""
    number = number_column(values, name)
    wrong = ~((number == 0) | (number == 1))
    remedy = "encode as 0 and 1, without missing values"
    _refuse_first(wrong, number, name, f"{name} is", ", not 0 or 1", remedy)
    return number


def conversion_column(
    values: Any, click: NDArray[np.uint8], space: str, name: str, *, keep: bool = False
) -> NDArray[np.float32]:
    """Return 0 or 1 where clicked and NaN elsewhere; of pairs, a conversion without a click is an error.

    With ``keep`` it stays a 1, for whoever drops or repairs such rows.
    """
    number = number_column(values, name)
    clicked, unknown = click == 1, np.isnan(number)
    what, remedy = "conversion is missing where click is 1", "give 0 or 1 for every clicked row, or drop it"
    _refuse_first(clicked & unknown, number, name, what, None, remedy)
    known = np.where(unknown, 0.0, number)
    binary_column(known, name)
    unclicked = ~clicked & (known == 1)
    if space == "matrix" and not keep:
        what = "conversion is 1 where click is 0"
        remedy = "drop such rows (--unclicked drop), count them as clicked (--unclicked click), or set the"
        remedy += " conversion to 0 or null"
        _refuse_first(unclicked, number, name, what, None, remedy)
    return np.where(clicked | (keep & unclicked), known, np.nan).astype(np.float32)


def shown_probabilities(values: Any, name: str) -> NDArray[np.float64]:
    """Return a column of probabilities above 0 and at most 1, without missing values."""
    p = number_column(values, name)
    what, must = "the probability of showing is", ": it must be above 0 and at most 1"
    remedy = "give the logged probability with which the row's item was shown"
    _refuse_first(~((p > 0) & (p <= 1)), p, name, what, must, remedy)
    return p


def _refuse_first(
    wrong: NDArray[np.bool_], number: NDArray[np.float64], name: str, what: str, must: str | None, remedy: str
) -> None:
    """Raise an error for the first of the rows that are wrong, with their number.

    Parameters
    ----------
    must
        What the value, which is shown, must be; None shows none.
    """
    if not wrong.any():
        return
    row = int(np.flatnonzero(wrong)[0])
    if must is not None:
        what += " missing (NaN or null)" if np.isnan(number[row]) else f" value {number[row]:g}{must}"
    problem = f"{what} ({int(wrong.sum())} such rows)"
    raise DataError(problem, where=f"column '{name}', row {row}", remedy=remedy)


def actions_of(actions: int | None, item: NDArray[np.int32], n_items: int) -> int:
    """Return how many items each row shows one of; by default all of the vocabulary."""
    if actions is None:
        return n_items
    require_whole(1, actions=actions)
    listed = len(np.unique(item))
    if actions < listed:
        raise ParameterError(
            f"the log shows {listed} items, more than the {actions} actions there were to choose from",
            remedy="give the number of items that could be shown, or leave it out",
        )
    return int(actions)


def require_unknown_propensities(known: str | None) -> None:
    """Refuse to learn a propensity from rows that were all shown."""
    if known is not None:
        raise ParameterError(
            "every row of this log was shown with a known probability: there is no propensity to learn",
            remedy=f"fit naive, ips or snips on it, which read its column '{known}'",
        )


def resolve_duplicates(log: Log, policy: Duplicates, called: Mapping[str, str]) -> Log:
    """Return each pair once: a repeated one is an error, or clicked (converted) if any of its rows was.

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
    first_rows = log.take(first[order])
    return replace(
        first_rows, click=click[order], conversion=None if conversion is None else conversion[order]
    )


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
    """Refuse a log without clicks, or with one outcome alone: nothing can be learned of it.

    A log in which every row is clicked trains models without propensities (:func:`require_both_clicks`).
    """
    if not log.n_clicks:
        require_both_clicks(0, log.population_size, log.space, called)
    if log.conversion is not None:
        known = log.known_conversion()
        converted = int((known == 1).sum())
        if converted in (0, len(known)):
            raise DataError(
                f"conversion is {int(converted > 0)} on every clicked row: one class only",
                where=f"column '{called['conversion']}'",
                remedy="a conversion model needs converted and unconverted clicks",
            )


def require_both_clicks(
    clicks: int, population: int, space: str, called: Mapping[str, str] | None = None
) -> None:
    """Refuse a population of which all is clicked, or nothing: no propensity can be learned."""
    if clicks in (0, population):
        which = "no row" if clicks == 0 else "every pair" if space == "matrix" else "every row"
        raise DataError(
            f"{which} of the population is clicked: one class only",
            where=None if called is None else f"column '{called['click']}'",
            remedy="a propensity needs clicks and non-clicks; in the space 'matrix' the pairs that the"
            " log does not list are the non-clicks; us.Naive trains without a propensity",
        )
