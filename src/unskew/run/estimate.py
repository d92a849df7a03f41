"""The time that a run takes, about: a few training steps are timed before it starts."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import numpy as np
import torch

from unskew.base.progress import duration_in_words
from unskew.data import Log
from unskew.debias import METHODS
from unskew.debias.losses import cross_entropy
from unskew.learners import Learner, TableLearner, make_learner
from unskew.propensity import Propensity
from unskew.propensity.choice import MOST_WORK
from unskew.run.config import AUTO, NO_METHOD
from unskew.run.models import keys_of
from unskew.run.parameters import changed
from unskew.run.propensities import kinds_of, made, own_tower
from unskew.run.protocol import PATIENCE, protocol_of
from unskew.run.sizes import (
    SMALLEST_BATCH,
    cells,
    cells_of_fold,
    sized,
    sizes_label,
    sizes_of,
    trains_network,
)
from unskew.training import resolve_device
from unskew.training.adam import Adam
from unskew.training.reader import Reader

if TYPE_CHECKING:
    from unskew.run.config import Config

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

SEARCHED, FIRST_ROUND = 7, 2.0
"""Models that a search trains, about, and how often with one member before the better half has all."""


def estimated_seconds(config: Config, log: Log) -> float:
    """Return about how long a run takes once its log is read: the time of a few steps, times all steps.

    Where other work keeps the cores busy, steps take longer than the processor time that they cost, and what
    is not timed is taken to do so too.
    """
    config = sized(config, sizes_of(config, log))
    learner = changed(make_learner(config.learner), "learner", config.model.parameters)
    device, folds, members = resolve_device(config.compute.device), config.crossfit or 1, config.model.members
    protocol, asked = protocol_of(config), config.propensity.kind
    start, of_processor = time.perf_counter(), time.process_time()
    plain, trainings = REPORT_SECONDS, {}
    if config.method == AUTO:
        rounds = FIRST_ROUND + (members if members > 1 else 0)
        trainings["method"] = 2 * log.n_clicks, round(SEARCHED * rounds)
    elif config.method != NO_METHOD:
        reads = 2 if METHODS[config.method].needs_full_space else 1
        models = len(keys_of(config, dict.fromkeys(kinds_of(config, protocol, log))))
        trainings["method"] = reads * log.n_clicks, models * members
    if asked == "auto" and log.known_propensity is None and not own_tower(config, protocol):
        plain += PLAIN_SECONDS * cells(log) * folds
    if trains_network(config, log) and (asked != "auto" or may_try_network(config, log)):
        trainings["propensity"] = cells_of_fold(config, log), folds
    seconds = 0.0
    for part, (rows, networks) in trainings.items():
        size, patience, checks = (
            config.model.parameters.get(f"{part}.{name}", usual)
            for name, usual in (("batch_size", SMALLEST_BATCH), ("patience", PATIENCE), ("checks", 1))
        )
        replicas = networks * len(config.seeds)
        if isinstance(learner, TableLearner):
            seconds += PLAIN_SECONDS * rows * replicas
            continue
        one = seconds_of_row(learner, log, min(replicas, MOST_TIMED), size, device)
        steps = max(rows / size / checks, 1.0)
        epochs = (1 + patience + min(STEPS_TO_FIT / steps, MOST_EPOCHS)) / checks
        seconds += one * rows * replicas * float(epochs)
    busy = (time.perf_counter() - start) / max(time.process_time() - of_processor, 0.1)
    return seconds + plain * max(busy, 1.0)


def seconds_of_row(learner: Learner, log: Log, replicas: int, batch_size: int, device: torch.device) -> float:
    """Return the seconds that a row of one replica takes in a training step: a few steps are timed."""
    log = log if learner.reads_features else log.with_features(None)
    network = learner.build(log.schema, list(range(replicas)), ("prediction",)).to_device(device)
    optimiser = Adam(network, 1e-3, 0.0, batch_size)
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


def estimate_in_words(config: Config, log: Log, seconds: float) -> str:
    """Return what a run says before it trains."""
    seeds, members = len(config.seeds), config.model.members
    repeated = f"{seeds} seed{'s' * (seeds != 1)}" + (f" of {members} members" if members > 1 else "")
    held_out = "one split" if config.crossfit is None else f"{config.crossfit} folds"
    chosen = "".join(f"; {label} (--set changes them)" for label in sizes_label(sizes_of(config, log)))
    return (
        f"{log.n_clicks:,} clicks of {log.n_users + log.n_items:,} ids: {repeated}, {held_out}{chosen}; this"
        f" takes about {duration_in_words(seconds)}"
    )


def may_try_network(config: Config, log: Log) -> bool:
    """Return whether the choice of the propensity would try a network on a log, of which no row is read."""
    network = made(config, protocol_of(config), config.learner)
    assert isinstance(network, Propensity)
    return network.work(log) <= MOST_WORK[resolve_device(config.compute.device).type]
