"""``--method auto``: the search of a run, on its random sample or without one; never on its test set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.base.errors import DataError, ParameterError
from unskew.base.progress import Progress
from unskew.calibration.recalibration import NONE
from unskew.data import Log
from unskew.data.datasets import Dataset
from unskew.debias import METHODS, Debiaser
from unskew.offpolicy.auto import Candidate, Searched, candidates_of, search
from unskew.offpolicy.decision import BASELINE
from unskew.run.protocol import Protocol
from unskew.run.run_parts import method_of
from unskew.training import resolve_device

if TYPE_CHECKING:
    from unskew.run.run_config import RunConfig

AUTO = "auto"
"""The method of a run that a random sample chooses."""
GRID_CLICKS = 200_000
"""Clicks × seeds up to which a CPU tries a second regularisation of each method."""


def looks_at_sample(config: RunConfig) -> bool:
    """Whether a run has a use for a random sample: to choose a method, or to set levels right."""
    return config.method == AUTO or config.recalibrate != NONE


def require_search(config: RunConfig) -> None:
    """An error for what does not go with ``auto``, and for a sample that nothing looks at."""
    if config.method == AUTO and config.protocol == "paper":
        raise ParameterError(
            "the paper's protocol has no auto", remedy="give a --method, or leave --protocol"
        )
    sampled = config.unbiased_share is not None or config.options.get("unbiased") is not None
    if sampled and not looks_at_sample(config):
        raise ParameterError(
            f"an unbiased sample has no effect with method {config.method}",
            remedy="give --method auto, or --recalibrate auto, or leave the sample out",
        )


def require_apart(dataset: Dataset) -> None:
    """An error for a sample that shares pairs with the test set, which it must not see."""
    if dataset.unbiased is None or dataset.test is None or dataset.train.space != "matrix":
        return
    sample, test = dataset.unbiased, dataset.test
    shared = int(np.isin(sample.cell, sample.cell_of(test)).sum())
    if shared:
        raise DataError(
            f"{shared:,} pairs of the unbiased sample are in the test set too",
            remedy="leave them out of one of both: what chooses must not judge",
        )


def run_candidates(
    config: RunConfig, log: Log, *, sampled: bool, everywhere: bool
) -> tuple[list[Candidate], list[str]]:
    """What the search of a run trains, and the methods that are left out.

    Parameters
    ----------
    sampled
        Whether there is a random sample: without one nothing is chosen, and no grid is tried.
    everywhere
        Whether there are propensities of all of D; methods that need them are left out otherwise.
    """
    grid = sampled and (
        resolve_device(config.device).type != "cpu" or log.n_clicks * len(config.seed_list) <= GRID_CLICKS
    )
    found = candidates_of(log, grid=grid)
    kept = [each for each in found if everywhere or not METHODS[each.method].needs_propensity_everywhere]
    return kept, list(dict.fromkeys(each.method for each in found if each not in kept))


def candidate_method(config: RunConfig, protocol: Protocol, candidate: Candidate, log: Log) -> Debiaser:
    """A candidate's method, untrained; what is set by hand is the same for all."""
    method = method_of(config, protocol, candidate.method, log.density)
    by_hand = {name.partition(".")[2] for name in config.parameters}
    return method.set_params(**{k: v for k, v in candidate.params.items() if k not in by_hand})


def left_out_words(left_out: list[str], propensity: str) -> list[str]:
    """Which methods are not searched among, and why; nothing where all are."""
    if not left_out:
        return []
    return [
        f"left out of the search: {', '.join(left_out)}, which need propensities of all of D, and"
        f" {propensity} has those of rows"
    ]


def search_of_run(
    config: RunConfig,
    protocol: Protocol,
    dataset: Dataset,
    propensity: Any,
    progress: Progress,
    *,
    everywhere: bool,
) -> tuple[Searched, list[str]]:
    """The search of a run, on its random sample or without one, and what else is to be said of it."""
    log, sample = dataset.train, dataset.unbiased
    candidates, left_out = run_candidates(config, log, sampled=sample is not None, everywhere=everywhere)
    found = search(
        lambda candidate: candidate_method(config, protocol, candidate, log),
        candidates,
        log,
        propensity=propensity,
        unbiased=sample,
        members=config.members,
        seeds=config.seed_list,
        validation=protocol.validation(dataset),
        device=config.device,
        progress=progress,
    )
    notes = left_out_words(left_out, config.propensity) if propensity is not None else []
    if sample is not None and (count := clicked_in_log(sample, log)):
        notes.append(
            f"{count:,} of {len(sample):,} pairs of the random sample were clicked in the log too: a row is"
            " an event of its own, and they count"
        )
    return found, notes


def clicked_in_log(sample: Log, log: Log) -> int:
    """Return how many rows of a random sample have a pair that was clicked in a log of impressions too.

    In the space ``"matrix"`` such pairs are an error, and rows with known propensities are all shown.
    """
    if log.space == "matrix" or log.known_propensity is not None:
        return 0
    return int(np.isin(log.cell_of(sample), log.cell[log.clicked]).sum())


def shipped_models(found: Searched) -> dict[str, Debiaser]:
    """The naive ensemble, and the model that is shipped."""
    return {BASELINE: found.models[BASELINE], AUTO: found.chosen}
