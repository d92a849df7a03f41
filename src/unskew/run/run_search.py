"""``--method auto``: the search of a run, on its random sample or without one; never on its test set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.calibration.recalibration import NONE
from unskew.datasets import Dataset
from unskew.debias import METHODS, Debiaser
from unskew.errors import DataError, ParameterError
from unskew.progress import Progress
from unskew.run.protocol import Protocol
from unskew.run.run_parts import method_of
from unskew.search.auto import Searched, search
from unskew.search.candidates import Candidate, candidates_of
from unskew.search.decision import BASELINE
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


def searched_models(
    config: RunConfig,
    protocol: Protocol,
    dataset: Dataset,
    propensity: Any,
    progress: Progress,
    *,
    everywhere: bool,
) -> tuple[dict[str, Debiaser], dict[str, Any]]:
    """The naive ensemble and the model that is shipped, and the whole search for ``metrics.json``.

    Parameters
    ----------
    everywhere
        Whether there are propensities of all of D; methods that need them are left out otherwise.
    """
    log = dataset.train
    grid = dataset.unbiased is not None and (
        resolve_device(config.device).type != "cpu" or log.n_clicks * config.seeds <= GRID_CLICKS
    )
    candidates = [
        each
        for each in candidates_of(log, grid=grid)
        if everywhere or not METHODS[each.method].needs_propensity_everywhere
    ]

    def make(candidate: Candidate) -> Debiaser:
        method = method_of(config, protocol, candidate.method, log.density)
        by_hand = {name.partition(".")[2] for name in config.parameters}
        return method.set_params(**{k: v for k, v in candidate.params.items() if k not in by_hand})

    assert config.members != "auto"
    found: Searched = search(
        make,
        candidates,
        log,
        propensity=propensity,
        unbiased=dataset.unbiased,
        members=config.members,
        seeds=config.seed_list,
        validation=protocol.validation(dataset),
        device=config.device,
        progress=progress,
    )
    models = {BASELINE: found.models[BASELINE], AUTO: found.chosen}
    return models, found.to_dict()
