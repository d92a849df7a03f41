"""Whether held-out clicks can choose an epoch: of each replica's some must have converted, and some not."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr

from unskew.base.errors import HeldOutWarning
from unskew.base.seeds import Replica
from unskew.data import Log
from unskew.data.splitting import SplitBy
from unskew.training.held_out import BY_PAIR, split_parts

LATE_CHANCE = 1e-6
"""Conversions of the latest clicks are missing where so few of them have less than this chance at the rate of
the others; a run looks once, and a million runs may look."""
LATE_SHARE = 0.8
"""… and where their rate is below this share of the others': with many clicks a quiet week-end is beyond
chance too, and of no harm."""

MATURITY = "leave out rows too young to have converted, as --maturity 7d (unskew.data.splitting.mature_rows)"
BY_PAIRS = "--split pair (validation_by='pair')"


@dataclass(frozen=True)
class Outcomes:
    """Clicks that are held out and the others, and how many of them converted."""

    clicks: int
    converted: int
    others: int
    others_converted: int

    @property
    def decide(self) -> bool:
        """Return whether there are both outcomes: a loss of one falls as far as predictions follow it."""
        return 0 < self.converted < self.clicks

    @property
    def late(self) -> bool:
        """Return whether far fewer converted than others did, beyond chance."""
        rate = self.others_converted / max(self.others, 1)
        if self.converted >= LATE_SHARE * rate * self.clicks:
            return False
        return bool(bdtr(self.converted, self.clicks, rate) < LATE_CHANCE)

    @property
    def words(self) -> str:
        """Return what the held-out clicks and the others did."""
        return (
            f"{self.converted:,} of {self.clicks:,} converted, and {self.others_converted:,} of the"
            f" {self.others:,} others"
        )


def outcomes_of(log: Log, share: float, by: SplitBy, replicas: Sequence[Replica]) -> list[Outcomes]:
    """Return what each replica would hold out; nothing where clicks are too few to split."""
    held = by.count(log, log.clicked, share)
    if log.conversion is None or not 0 < held < log.n_clicks:
        return []
    converted = log.known_conversion() > 0.5
    parts: dict[int, set[int]] = {}
    # The latest clicks are the same for all replicas.
    for seed, part in [(0, 0)] if by.kind == "time" else [(each.seed, each.part) for each in replicas]:
        parts.setdefault(seed, set()).add(part)
    found = []
    for seed, of in parts.items():
        for _, chosen in split_parts(log, seed, held, by, sorted(of)).values():
            count = int(converted[chosen].sum())
            found.append(Outcomes(held, count, len(converted) - held, int(converted.sum()) - count))
    return found


def split_that_decides(
    asked: str, log: Log, share: float, replicas: Sequence[Replica], *, selects: bool
) -> SplitBy:
    """Return what is held out together, with a warning where that cannot choose an epoch.

    Where nobody asked for the latest clicks and they have one outcome alone, pairs are held out instead.

    Parameters
    ----------
    asked
        ``validation_by``.
    selects
        Whether an epoch is chosen at all.
    """
    by = SplitBy.of(asked, log)
    found = outcomes_of(log, share, by, replicas)
    lacking = [each for each in found if not each.decide]
    if lacking and by.kind == "time" and asked.partition(":")[0] == "auto":
        pairs = outcomes_of(log, share, BY_PAIR, replicas)
        if any(each.decide for each in pairs):
            _warn(
                f"the latest clicks cannot choose the epoch: of them {lacking[0].words}. A split by pair"
                f" chooses it instead. If their conversions are yet to come, {MATURITY}"
            )
            by, found, lacking = BY_PAIR, pairs, [each for each in pairs if not each.decide]
    if lacking and selects:
        _warn_of(lacking, found, by, share)
    elif by.kind == "time" and found and found[0].late:
        _warn(
            f"conversions of the latest clicks seem to be missing: of those that are held out"
            f" {found[0].words}, so that levels are too low. To fix: {MATURITY}"
        )
    return by


def _warn_of(lacking: Sequence[Outcomes], found: Sequence[Outcomes], by: SplitBy, share: float) -> None:
    """Warn of held-out clicks of one outcome, and say what helps."""
    more = min(0.5, round(2 * share, 2))
    remedies = ["give more data", f"hold out more, as --split pair:{more:g} (validation_share={more:g})"]
    if by.kind == "time":
        remedies = [f"give {BY_PAIRS}", MATURITY, "give more data"]
    each = f" in {len(lacking)} of {len(found)} networks" if len(found) > 1 else ""
    _warn(
        f"held-out clicks cannot choose the epoch{each}: of them {lacking[0].words}, and their loss falls as"
        f" predictions go to {'0' if not lacking[0].converted else '1'}. To fix: {'; or '.join(remedies)}"
    )


def _warn(what: str) -> None:
    # The caller of fit, so that each of several methods does not say it once more.
    warnings.warn(f"{what}.", HeldOutWarning, stacklevel=5)


def outcome_words(log: Log, rows: NDArray[np.int64]) -> str:
    """Return how many clicks ``[lines, n]`` were held out, and how many of them converted, in words."""
    converted = log.take(rows.ravel()).known_conversion().reshape(rows.shape) > 0.5
    counts = converted.sum(axis=1)
    few, many = int(counts.min()), int(counts.max())
    counted = f"{few:,}" if few == many else f"{few:,} to {many:,}"
    return f"{rows.shape[1]:,} clicks held out, {counted} of which converted"
