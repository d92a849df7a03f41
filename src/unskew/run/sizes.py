"""Sizes that a run takes from its data, and how long it will take: a few training steps are timed.

Logs of up to 2·10⁶ rows and 50,000 ids have the batches and widths of the paper. What is set by hand stays.
``docs/explanation/defaults.md`` argues for each rule.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from unskew.data import Log
from unskew.learners import make_learner
from unskew.propensity import names_network
from unskew.propensity.crossfit import AUTO_RATIO
from unskew.propensity.per_replica import MOST_CELLS
from unskew.run.config import NO_METHOD
from unskew.run.propensities import own_tower
from unskew.run.protocol import PATIENCE, protocol_of
from unskew.training import resolve_device

if TYPE_CHECKING:
    from unskew.run.config import Config

SMALLEST_BATCH, LARGEST_BATCH = 1024, 8192
"""The paper's, and the one beyond which a step takes as many times longer."""

LARGEST_BATCH_OF_FEATURES = 2048
"""The same of a network that reads features, on a CPU: there is nothing to gain from larger ones, whose
activations take memory (DR-JL by a DCN with 14 fields: 33 s of processor time an epoch at 1,024, 32 s at
4,096 and at 8,192, and 0.8 GB more)."""

STEPS_PER_EPOCH = 1000
"""About so many from 10⁶ rows on, until batches are the largest. A model that fits a large log after an epoch
or two would hardly be trained by then with fewer."""

MANY_IDS = 50_000
"""Users and items up to which embeddings have the width of the learner's default."""

NARROW = 16
"""The width beyond them."""

PLATEAU_STEPS, LONGEST_PATIENCE = 250, 10
"""Steps for which a propensity waits at least, up to so many epochs: a NeuMF stays at the popularity of users
and items for some hundred steps before it learns more, which on a small log are several epochs."""

CHECK_STEPS = 250
"""Steps from one look at held-out rows to the next, where an epoch has several times as many."""


def batch_size(rows: int, largest: int = LARGEST_BATCH) -> int:
    """Return a power of two: about a thousandth of the rows, from 1,024 to the largest.

    Examples
    --------
    >>> batch_size(7_000), batch_size(3_000_000), batch_size(10**8)
    (1024, 2048, 8192)
    """
    return min(max(1 << (max(rows // STEPS_PER_EPOCH, 1)).bit_length() - 1, SMALLEST_BATCH), largest)


def width(ids: int, usual: int) -> int:
    """Return the width of embeddings: the learner's own, and at most 16 for more than 50,000 ids."""
    return usual if ids <= MANY_IDS else min(usual, NARROW)


def sizes_of(config: Config, log: Log) -> dict[str, Any]:
    """Return the parameters that a run takes from a log: none with the paper's protocol, or set by hand."""
    if config.evaluation.protocol == "paper":
        return {}
    learner = make_learner(config.learner)
    on_cpu = resolve_device(config.compute.device).type == "cpu"
    largest = LARGEST_BATCH_OF_FEATURES if on_cpu and learner.reads_features else LARGEST_BATCH
    rows = {"method": (log.n_clicks, log.n_clicks)} if config.method != NO_METHOD else {}
    if trains_network(config, log):
        rows["propensity"] = cells(log), cells_of_fold(config, log)
    wanted: dict[str, Any] = {}
    for part, (all_rows, of_training) in rows.items():
        size = batch_size(all_rows, largest)
        if size != SMALLEST_BATCH:
            wanted[f"{part}.batch_size"] = size
        checks = of_training // size // CHECK_STEPS
        if checks > 1:
            wanted[f"{part}.checks"] = checks
        patience = min(-(-PLATEAU_STEPS * size // of_training), LONGEST_PATIENCE)
        if part == "propensity" and config.propensity.exact_epochs is None and patience > PATIENCE:
            wanted["propensity.patience"] = patience
    usual = getattr(learner, "dim", None)
    if isinstance(usual, int) and width(log.n_users + log.n_items, usual) != usual:
        wanted["learner.dim"] = width(log.n_users + log.n_items, usual)
    by_hand = config.model.parameters
    return {
        name: value
        for name, value in wanted.items()
        if name not in by_hand and f"training.{name.partition('.')[2]}" not in by_hand
    }


def sized(config: Config, sizes: dict[str, Any]) -> Config:
    """Return the configuration with its sizes; what was set by hand wins."""
    parameters = {**sizes, **config.model.parameters}
    return config.model_copy(update={"model": config.model.model_copy(update={"parameters": parameters})})


def sizes_label(sizes: Mapping[str, Any]) -> list[str]:
    """Return what the data chose in words; nothing where all sizes are the usual ones."""
    named = ", ".join(f"{name} = {value}" for name, value in sizes.items())
    return [f"sizes by the data: {named}"] if named else []


def cells(log: Log) -> int:
    """Return how many cells of D a propensity is trained on in an epoch."""
    if log.space == "impressions":
        return len(log)
    sampled = log.population_size > MOST_CELLS
    return round((1 + AUTO_RATIO) * log.n_clicks) if sampled else log.population_size


def cells_of_fold(config: Config, log: Log) -> int:
    """Return how many of them one network is trained on: with K folds those of the K − 1 others."""
    return max(1, round(cells(log) * (1.0 - 1.0 / (config.crossfit or 5))))


def trains_network(config: Config, log: Log) -> bool:
    """Return whether the propensity is a network, or may become one."""
    if log.known_propensity is not None or own_tower(config, protocol_of(config)):
        return False
    tried = config.compute.effort != "quick" or config.needs_network is not None
    return tried if config.propensity.kind == "auto" else names_network(config.propensity.kind)
