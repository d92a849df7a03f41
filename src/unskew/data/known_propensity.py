"""Checks of logs with known propensities: what a policy showed, and with which probability."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.base.columns import number_column
from unskew.base.errors import DataError, ParameterError
from unskew.base.estimator import require_whole


def require_shown_rows(name: str, columns: Iterable[str], space: str, no_click: bool) -> None:
    """An error for a space, a click or a missing column that such a log cannot have."""
    if name not in columns:
        raise DataError(
            f"there is no column '{name}' of known propensities", remedy="give it among the columns"
        )
    if space != "impressions":
        raise ParameterError(
            "known propensities are of rows that were shown, not of all pairs",
            remedy="use the space 'impressions' (--space impressions)",
        )
    if not no_click:
        raise ParameterError(
            "a log with known propensities has no click column: every row was shown, and what became of it is"
            " its conversion",
            remedy="give the column of the outcome as conversion (--conversion), and no click",
        )


def require_unknown_propensities(known: str | None) -> None:
    """An error where a propensity is to be learned from rows that were all shown."""
    if known is not None:
        raise ParameterError(
            "every row of this log was shown with a known probability: there is no propensity to learn",
            remedy=f"fit naive, ips or snips on it, which read its column '{known}'",
        )


def shown_probabilities(values: Any, name: str) -> NDArray[np.float64]:
    """A column of probabilities above 0 and at most 1, without missing values."""
    p = number_column(values, name)
    wrong = ~((p > 0) & (p <= 1))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        shown = "missing (NaN or null)" if np.isnan(p[row]) else f"{p[row]:g}"
        raise DataError(
            f"the probability of showing is {shown}: it must be above 0 and at most 1"
            f" ({int(wrong.sum())} such rows)",
            where=f"column '{name}', row {row}",
            remedy="give the logged probability with which the row's item was shown",
        )
    return p


def actions_of(actions: int | None, item: NDArray[np.int32], n_items: int) -> int:
    """How many items each row shows one of; by default all of the vocabulary."""
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
