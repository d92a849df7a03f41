"""Which propensity a log deserves: by the likelihood of clicks that the candidates did not see."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np

from unskew.base.errors import CollapseWarning, ParameterError, TrainingError
from unskew.base.progress import SILENT, Progress
from unskew.data import Log
from unskew.data.splitting import time_column, times_of
from unskew.metrics import auc, nll
from unskew.propensity.network import Propensity
from unskew.propensity.propensity import BasePropensity
from unskew.training import resolve_device

MOST_WORK = {"cpu": 1e12, "cuda": 1e14}
"""Rows × parameters (:meth:`unskew.Propensity.work`) up to which a network is tried. On two CPU cores that is
some five minutes at most and, as networks stop early, about one; on a GPU some hundred times as much is done
in that time. It is counted, not timed: the same log, seed and kind of device give the same choice."""


LATEST = 0.2
"""The share of impressions with times, the latest, that candidates are chosen on: random folds prefer what
memorises days and pairs."""

MOST_CHOSEN_ON = 5_000_000
"""The latest rows that candidates are fitted and judged on; a longer log is not copied to choose."""


@dataclass(frozen=True)
class Tried:
    """A candidate: its held-out figures, or why it has none."""

    name: str
    nll: float | None = None
    auc: float | None = None
    work: float | None = None
    """Rows × parameters of a network."""
    left_out: str | None = None


@dataclass(frozen=True, eq=False)
class Choice:
    """The candidate with the least held-out negative log-likelihood.

    Attributes
    ----------
    fit
        Fits the chosen one on the whole log.
    by_time
        Whether it was chosen on the latest rows of the log, not on folds of all.
    """

    name: str
    tried: tuple[Tried, ...]
    fit: Callable[[], BasePropensity]
    by_time: bool = False

    @cached_property
    def propensity(self) -> BasePropensity:
        """The chosen one, fitted on the whole log for the one seed that it was chosen with."""
        return self.fit()

    @property
    def sentence(self) -> str:
        """The choice in words, and what it was chosen from."""
        figures = {each.name: each.nll for each in self.tried if each.nll is not None}
        others = [f"{name} {nll:.5f}" for name, nll in figures.items() if name != self.name]
        beside = f" against {', '.join(others)}" if others else ""
        reasons = "".join(f"; {each.name} {each.left_out}" for each in self.tried if each.left_out)
        rows = f"NLL on the latest {100 * LATEST:.0f} % of the log" if self.by_time else "held-out NLL"
        return f"propensity by {self.name}, chosen by {rows}: {figures[self.name]:.5f}{beside}{reasons}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        tried = [asdict(each) for each in self.tried]
        return {"chosen": self.name, "by_time": self.by_time, "candidates": tried}


def default_candidates(log: Log) -> tuple[str, ...]:
    """Return the names of the propensities that every log is tried with, beside a network.

    Trees, and their mean logit with a linear model, read features; ids alone leave them little.
    """
    if log.features is None and log.user_features is None and log.item_features is None:
        return ("linear", "popularity")
    return ("linear", "trees", "blend", "popularity")


def choose_propensity(
    log: Log,
    candidates: Mapping[str, BasePropensity] | None = None,
    *,
    seed: int = 0,
    device: str = "auto",
    most_work: float | None = None,
    progress: Progress = SILENT,
) -> Choice:
    """Fit each candidate for one seed, and choose the one whose calibrated held-out NLL is least.

    .. math:: \\arg\\min_g \\; -\\frac{1}{|D|} \\sum_D\\,
              [o \\log \\tilde p^{(-k)} + (1 - o) \\log(1 - \\tilde p^{(-k)})]

    All candidates hold out the same cells: the latest fifth of impressions with times; without times every
    cell of D, each scored by a model and a calibrator that never saw it. Of equals the first is chosen. A
    network is tried where its :meth:`~unskew.Propensity.work` is at most ``most_work``.

    Parameters
    ----------
    candidates
        By name, unfitted; by default those of :func:`default_candidates` and NeuMF.
    most_work
        Rows × parameters; :data:`MOST_WORK` by default.

    Examples
    --------
    >>> import unskew as us
    >>> log = us.load("synthetic", n_users=200, n_items=100, density=0.2).train
    >>> kinds = {"linear": us.Propensity(learner=us.Linear()), "popularity": us.PopularityPropensity()}
    >>> choice = us.choose_propensity(log, kinds)
    >>> choice.name, [each.name for each in choice.tried]
    ('linear', ['linear', 'popularity'])
    """
    if candidates is None:
        from unskew.propensity import make_propensity

        candidates = {name: make_propensity(name) for name in (*default_candidates(log), "neumf")}
    if not candidates:
        raise ParameterError("there is no candidate", remedy="give at least one propensity")
    limit = MOST_WORK[resolve_device(device).type] if most_work is None else most_work
    tried: list[Tried] = []
    fitted: dict[str, BasePropensity] = {}
    parts = _earlier_and_latest(log)
    earlier, latest = parts or (log, None)
    for name, candidate in candidates.items():
        work = candidate.work(log) if isinstance(candidate, Propensity) else None
        if work is not None and work > limit:
            above = next(f"{work:.{n}g}" for n in range(2, 18) if f"{work:.{n}g}" != f"{limit:.{n}g}")
            why = (
                f"was not tried: {above} rows × parameters are above {limit:.3g} (--propensity {name}"
                " trains it all the same)"
            )
            tried.append(Tried(name, work=work, left_out=why))
            continue
        propensity = copy.copy(candidate)
        try:
            with warnings.catch_warnings():
                # A network that learned nothing loses; nobody need hear of it.
                warnings.simplefilter("ignore", CollapseWarning)
                propensity.fit(earlier, seeds=[seed], device=device, progress=progress)
        except TrainingError as error:
            tried.append(Tried(name, work=work, left_out=f"failed: {error.problem}"))
            continue
        if latest is None:
            figures = propensity.diagnose()["calibrated"]
        else:
            score, click = propensity.predict(latest, average=True), latest.click
            figures = {"nll": nll(score, click), "auc": auc(score, click)}
        tried.append(Tried(name, figures["nll"], figures["auc"], work))
        fitted[name] = propensity
    with_figures = {each.name: each.nll for each in tried if each.nll is not None}
    if not with_figures:
        raise TrainingError(
            f"no propensity could be fitted: {'; '.join(f'{each.name} {each.left_out}' for each in tried)}",
            remedy="name one (--propensity), or give more data",
        )
    best = min(with_figures, key=lambda name: with_figures[name])

    def fit() -> BasePropensity:
        if parts is None:
            return fitted[best]
        chosen = copy.copy(candidates[best])
        return chosen.fit(log, seeds=[seed], device=device, progress=progress)

    return Choice(best, tuple(tried), fit, by_time=parts is not None)


def _earlier_and_latest(log: Log) -> tuple[Log, Log] | None:
    """Return two parts of a log of impressions with times; None where one of them lacks an outcome."""
    if log.space != "impressions" or time_column(log) is None:
        return None
    times = times_of(log).view(np.int64)
    most = min(len(log), MOST_CHOSEN_ON)
    first, edge = np.quantile(times, (1 - most / len(log), 1 - LATEST * most / len(log)), method="higher")
    earlier, latest = log.take((times >= first) & (times < edge)), log.take(times >= edge)
    both = all(0 < part.n_clicks < len(part) for part in (earlier, latest))
    return (earlier, latest) if both else None
