"""Sizes that a run takes from its data, and how long it will take: a few training steps are timed.

Logs of up to 2·10⁶ rows and 50,000 ids have the batches and widths of the paper. What is set by hand stays.
How many replicas are trained at a time follows from free memory
(:func:`unskew.training.memory.replicas_at_once`), which changes no model.
``docs/defaults.md`` argues for each rule.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from unskew.base.progress import duration_in_words
from unskew.data import Log
from unskew.debias import METHODS
from unskew.debias.losses import cross_entropy
from unskew.learners import BACKBONES, Backbone, make_backbone
from unskew.propensity import registered_name
from unskew.propensity.crossfit import AUTO_RATIO
from unskew.propensity.per_replica import MOST_CELLS
from unskew.run.protocol import PATIENCE, protocol_of
from unskew.run.run_parameters import changed
from unskew.run.run_parts import NO_METHOD
from unskew.run.run_propensity import may_try_network
from unskew.run.run_tower import own_tower
from unskew.training import Schedule, resolve_device
from unskew.training.loop import adam
from unskew.training.reader import Reader

if TYPE_CHECKING:
    from unskew.run.run_config import RunConfig

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
"""Users and items up to which embeddings have the width of the backbone's default."""

NARROW = 16
"""The width beyond them."""

PLATEAU_STEPS, LONGEST_PATIENCE = 250, 10
"""Steps for which a propensity waits at least, up to so many epochs: a NeuMF stays at the popularity of users
and items for some hundred steps before it learns more, which on a small log are several epochs."""

CHECK_STEPS = 250
"""Steps from one look at held-out rows to the next, where an epoch has several times as many."""

STEPS_TO_FIT, MOST_EPOCHS = 100, 10
"""Steps after which a network is at its best, as a rule, and the epochs that takes at most; in memory early
stopping then waits. Seen on five logs of 1,500 to 70,000 clicks: 26 to 670 steps, 1 to 16 epochs."""

TIMED_SECONDS, MOST_TIMED = 0.3, 4
"""For how long steps are timed, after one that is not, and the most replicas they are timed with."""

PLAIN_SECONDS = 1e-5
"""Of a row of a fold in logistic regression, which is no network, and is not timed."""

REPORT_SECONDS = 6.0
"""Of the figures on test users, the pictures and the files of a run."""

SAID_SECONDS = 20.0
"""From which estimate on a run says how long it takes."""

SEARCHED = 7
"""Models that a search trains, about."""

FIRST_ROUND = 2.0
"""How often it trains them with one member before it trains the better half with all."""


def batch_size(rows: int, largest: int = LARGEST_BATCH) -> int:
    """Return a power of two: about a thousandth of the rows, from 1,024 to the largest.

    Examples
    --------
    >>> batch_size(7_000), batch_size(3_000_000), batch_size(10**8)
    (1024, 2048, 8192)
    """
    return min(max(1 << (max(rows // STEPS_PER_EPOCH, 1)).bit_length() - 1, SMALLEST_BATCH), largest)


def width(ids: int, usual: int) -> int:
    """Return the width of embeddings: the backbone's own, and at most 16 for more than 50,000 ids."""
    return usual if ids <= MANY_IDS else min(usual, NARROW)


def sizes_of(config: RunConfig, log: Log) -> dict[str, Any]:
    """Return the parameters that a run takes from a log: none with the paper's protocol, or set by hand."""
    if config.protocol == "paper":
        return {}
    backbone = make_backbone(config.backbone)
    on_cpu = resolve_device(config.device).type == "cpu"
    largest = LARGEST_BATCH_OF_FEATURES if on_cpu and backbone.reads_features else LARGEST_BATCH
    rows = {"method": (log.n_clicks, log.n_clicks)} if config.method != NO_METHOD else {}
    if _trains_network(config, log):
        rows["propensity"] = _cells(log), _cells_of_fold(config, log)
    wanted: dict[str, Any] = {}
    for part, (all_rows, of_training) in rows.items():
        size = batch_size(all_rows, largest)
        if size != SMALLEST_BATCH:
            wanted[f"{part}.batch_size"] = size
        checks = of_training // size // CHECK_STEPS
        if checks > 1:
            wanted[f"{part}.checks"] = checks
        patience = min(-(-PLATEAU_STEPS * size // of_training), LONGEST_PATIENCE)
        if part == "propensity" and config.propensity_epochs is None and patience > PATIENCE:
            wanted["propensity.patience"] = patience
    usual = getattr(backbone, "dim", None)
    if isinstance(usual, int) and width(log.n_users + log.n_items, usual) != usual:
        wanted["backbone.dim"] = width(log.n_users + log.n_items, usual)
    by_hand = config.parameters
    return {
        name: value
        for name, value in wanted.items()
        if name not in by_hand and f"training.{name.partition('.')[2]}" not in by_hand
    }


def sized(config: RunConfig, sizes: dict[str, Any]) -> RunConfig:
    """Return the configuration with its sizes; what was set by hand wins."""
    return replace(config, parameters={**sizes, **config.parameters})


def sizes_label(sizes: dict[str, Any]) -> list[str]:
    """Return what the data chose in words; nothing where all sizes are the usual ones."""
    named = ", ".join(f"{name} = {value}" for name, value in sizes.items())
    return [f"sizes by the data: {named}"] if named else []


def estimated_seconds(config: RunConfig, log: Log) -> float:
    """Return about how long a run takes once its log is read: the time of a few steps, times all steps.

    Where other work keeps the cores busy, steps take longer than the processor time that they cost, and what
    is not timed is taken to do so too.
    """
    config = sized(config, sizes_of(config, log))
    backbone = changed(make_backbone(config.backbone), "backbone", config.parameters)
    device, seeds = resolve_device(config.device), len(config.seed_list)
    start, of_processor = time.perf_counter(), time.process_time()

    def of_training(rows: int, replicas: int, part: str) -> float:
        if rows == 0 or replicas == 0:
            return 0.0
        size = config.parameters.get(f"{part}.batch_size", SMALLEST_BATCH)
        one = seconds_of_row(backbone, log, min(replicas, MOST_TIMED), size, device)
        patience = config.parameters.get(f"{part}.patience", PATIENCE)
        checks = config.parameters.get(f"{part}.checks", 1)
        epochs = expected_epochs(rows / size / checks, patience) / checks
        return one * rows * replicas * float(epochs)

    models, reads = _trainings(config)
    seconds = of_training(reads * log.n_clicks, models * seeds, "method")
    folds, plain = config.crossfit or 1, REPORT_SECONDS
    if config.propensity == "auto" and _trains_network(config, log):
        plain += PLAIN_SECONDS * _cells(log) * folds
    if _trains_network(config, log) and (config.propensity != "auto" or may_try_network(config, log)):
        seconds += of_training(_cells_of_fold(config, log), folds * seeds, "propensity")
    busy = (time.perf_counter() - start) / max(time.process_time() - of_processor, 0.1)
    return seconds + plain * max(busy, 1.0)


def seconds_of_row(
    backbone: Backbone, log: Log, replicas: int, batch_size: int, device: torch.device
) -> float:
    """Return the seconds that a row of one replica takes in a training step: a few steps are timed."""
    log = log if backbone.reads_features else log.with_features(None)
    network = backbone.build(log.schema, list(range(replicas)), ("prediction",)).to_device(device)
    optimiser = adam(network, "prediction", Schedule(1, 1e-3, 0.0, None), batch_size)
    drawn = np.random.default_rng(0).integers(len(log), size=replicas * batch_size)
    reader = Reader(log.users, log.items, log.encoders, device)
    rows = reader.of_log(log.take(drawn)).rows.map(
        lambda values: values.reshape(replicas, batch_size, *values.shape[2:])
    )
    click = torch.as_tensor(log.click[drawn], dtype=torch.float32, device=device).view(replicas, batch_size)
    steps, start = -1, time.perf_counter()
    while steps < 1 or time.perf_counter() - start < TIMED_SECONDS:
        if steps == 0:
            start = time.perf_counter()
        optimiser.zero_grad()
        loss = cross_entropy(click, network(rows)).mean(1).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        # A GPU is done when its number is here.
        loss.item()
        steps += 1
    return (time.perf_counter() - start) / (steps * replicas * batch_size)


def expected_epochs(steps: float, patience: float = PATIENCE) -> float:
    """Return about how many epochs early stopping lets a training take, with so many steps an epoch."""
    return 1 + patience + min(STEPS_TO_FIT / max(steps, 1.0), MOST_EPOCHS)


def estimate_in_words(config: RunConfig, log: Log, seconds: float) -> str:
    """Return what a run says before it trains."""
    seeds, members = len(config.seed_list), config.members
    repeated = f"{seeds} seed{'s' * (seeds != 1)}" + (f" of {members} members" if members > 1 else "")
    held_out = "one split" if config.crossfit is None else f"{config.crossfit} folds"
    chosen = "".join(f"; {label} (--set changes them)" for label in sizes_label(sizes_of(config, log)))
    return (
        f"{log.n_clicks:,} clicks of {log.n_users + log.n_items:,} ids: {repeated}, {held_out}{chosen}; this"
        f" takes about {duration_in_words(seconds)}"
    )


def _cells(log: Log) -> int:
    """Return how many cells of D a propensity is trained on in an epoch."""
    if log.space == "impressions":
        return len(log)
    sampled = log.population_size > MOST_CELLS
    return round((1 + AUTO_RATIO) * log.n_clicks) if sampled else log.population_size


def _cells_of_fold(config: RunConfig, log: Log) -> int:
    """Return how many of them one network is trained on: with K folds those of the K − 1 others."""
    return max(1, round(_cells(log) * (1.0 - 1.0 / (config.crossfit or 5))))


def _trains_network(config: RunConfig, log: Log) -> bool:
    """Return whether the propensity is a network, or may become one."""
    if log.known_propensity is not None or own_tower(config, protocol_of(config)):
        return False
    return config.propensity == "auto" or registered_name(config.propensity) in BACKBONES


def _trainings(config: RunConfig) -> tuple[int, int]:
    """Return how many conversion models a seed has, and how many times the clicks each reads an epoch."""
    if config.method == NO_METHOD:
        return 0, 0
    if config.method == "auto":
        rounds = FIRST_ROUND + config.members if config.members > 1 else FIRST_ROUND
        return round(SEARCHED * rounds), 2
    models = 1 if config.method == "naive" else 3
    return models * config.members, 2 if METHODS[config.method].needs_full_space else 1
