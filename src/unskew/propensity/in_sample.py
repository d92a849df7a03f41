"""Whether a propensity was trained on the very clicks that it is to weigh, and the warning that says so."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from unskew.log import Log

MOSTLY = 0.5
"""From this share on of its clicked pairs a log counts as the one that was trained on. A part of the training
log has all of them; a log of other days repeats some pairs by chance."""


class InSampleWarning(UserWarning):
    """Propensities of training rows from a model that saw these rows: no weights."""


def is_in_sample(propensity: Any, log: Log) -> bool:
    """Whether a fitted propensity was trained on most clicked pairs of a log, and has no other model of them.

    By ids, so that it does not matter whether the log is the same object. A loaded propensity does not know
    its clicks any more: one without cross-fitting is then taken to have seen them.
    """
    # An estimator of the user's own may say nothing of cross-fitting; it is not judged.
    if getattr(propensity, "crossfit", 0) is not None:
        return False
    trained: Log | None = propensity.log_
    if trained is None:
        return True
    clicked, seen = log.clicked, trained.clicked
    width = len(trained.items)
    users = trained.users.recode(log.user[clicked], log.users, unseen="nan").astype(np.int64)
    items = trained.items.recode(log.item[clicked], log.items, unseen="nan")
    known = trained.user[seen].astype(np.int64) * width + trained.item[seen]
    both_known = (users >= 0) & (items >= 0)
    return bool((both_known & np.isin(users * width + items, known)).mean() > MOSTLY)


def warn_if_in_sample(propensity: Any, log: Log, stacklevel: int = 2) -> None:
    """Say loudly that a propensity is no weight for the rows of a log that it was trained on."""
    if is_in_sample(propensity, log):
        warnings.warn(
            f"these propensities are in-sample: {type(propensity).__name__}(crossfit=None) was trained on the"
            " clicks that it is now to weigh, so that their weights are too small."
            " To fix: fit it with crossfit=5, the default",
            InSampleWarning,
            stacklevel=stacklevel + 1,
        )
