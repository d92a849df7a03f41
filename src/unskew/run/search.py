"""``--method auto``: the search of a run, on its random sample or without one; never on its test set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.base.errors import DataError
from unskew.base.progress import Progress
from unskew.data import Log
from unskew.data.datasets import Dataset
from unskew.debias import METHODS, Debiaser
from unskew.offpolicy.auto import Candidate, Searched, candidates_of, search
from unskew.run.models import method_of
from unskew.run.protocol import Protocol
from unskew.training import resolve_device

if TYPE_CHECKING:
    from unskew.run.config import Config

GRID_CLICKS = 200_000
"""Clicks × seeds up to which a CPU tries a second regularisation of each method."""


def require_apart(dataset: Dataset) -> None:
    """Raise for a sample that shares pairs with the test set, which it must not see."""
    if dataset.unbiased is None or dataset.test is None or dataset.train.space != "matrix":
        return
    sample, test = dataset.unbiased, dataset.test
    shared = int(np.isin(sample.cell, sample.cell_of(test)).sum())
    if shared:
        raise DataError(
            f"{shared:,} pairs of the unbiased sample are in the test set too",
            remedy="leave them out of one of both: what chooses must not judge",
        )


def candidate_method(config: Config, protocol: Protocol, candidate: Candidate, log: Log) -> Debiaser:
    """Return a candidate's method, untrained; what is set by hand is the same for all."""
    method = method_of(config, protocol, candidate.method, log.density)
    by_hand = {name.partition(".")[2] for name in config.model.parameters}
    return method.set_params(**{k: v for k, v in candidate.params.items() if k not in by_hand})


def search_of_run(
    config: Config,
    protocol: Protocol,
    dataset: Dataset,
    propensity: Any,
    progress: Progress,
    *,
    everywhere: bool,
) -> tuple[Searched, list[str]]:
    """Search for a method, on a random sample or without one; say what was left out.

    Parameters
    ----------
    everywhere
        Whether there are propensities of all of D; methods that need them are left out otherwise.
    """
    log, sample = dataset.train, dataset.unbiased
    on_cpu = resolve_device(config.compute.device).type == "cpu"
    # Without a sample nothing is chosen, and no grid is tried.
    grid = sample is not None and (not on_cpu or log.n_clicks * len(config.seeds) <= GRID_CLICKS)
    found = candidates_of(log, grid=grid)
    candidates = [
        each for each in found if everywhere or not METHODS[each.method].needs_propensity_everywhere
    ]
    left_out = list(dict.fromkeys(each.method for each in found if each not in candidates))
    searched = search(
        lambda candidate: candidate_method(config, protocol, candidate, log),
        candidates,
        log,
        propensity=propensity,
        unbiased=sample,
        members=config.model.members,
        seeds=config.seeds,
        validation=protocol.validation(dataset),
        device=config.compute.device,
        progress=progress,
    )
    notes = []
    if left_out and propensity is not None:
        notes.append(
            f"left out of the search: {', '.join(left_out)}, which need propensities of all of D, and"
            f" {config.propensity.kind} has those of rows"
        )
    return searched, notes
