"""Sizes that a run takes from its data, and the time that it takes, about: a few training steps are timed.

Logs of up to 2·10⁶ rows and 50,000 ids have the batches and widths of the paper. What is set by hand stays.
``docs/explanation/defaults.md`` argues for each rule.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.base.progress import duration_in_words
from unskew.data import Log
from unskew.debias import METHODS
from unskew.learners import Learner, TableLearner, make_learner
from unskew.propensity import Propensity, names_network
from unskew.propensity.choice import MOST_WORK
from unskew.propensity.crossfit import AUTO_RATIO
from unskew.propensity.per_replica import MOST_CELLS
from unskew.run.auto import candidates_of, learners_of
from unskew.run.config import AUTO, NO_METHOD
from unskew.run.models import keys_of
from unskew.run.parameters import changed
from unskew.run.propensities import candidates_of_run, kinds_of, made, own_tower
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

STEPS_TO_FIT, MOST_EPOCHS = 100, 10
"""Steps after which a network is at its best, as a rule, and the epochs that takes at most; in memory early
stopping then waits. Seen on five logs of 1,500 to 70,000 clicks: 26 to 670 steps, 1 to 16 epochs."""

TIMED_SECONDS, MOST_TIMED = 0.3, 4
"""For how long steps are timed, after one that is not, and the most replicas they are timed with."""

ROW_SECONDS, FIELD_SECONDS = 1e-5, 1e-6
"""Of a row of a fold in logistic regression or popularity, and further of each field of it in trees, neither
of which is timed. Measured on 130,000 rows of 26 fields: 5e-6 of a row, and 1e-6 of a field of a row."""

REPORT_SECONDS = 6.0
"""Of the figures on test users, the pictures and the files of a run."""

SAID_SECONDS = 20.0
"""From which estimate on a run says how long it takes."""


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
    plain, learners = REPORT_SECONDS, {config.learner: learner}
    trainings: list[tuple[str, str, int, int]] = []
    if config.method == AUTO:
        learners |= learners_of(config, log)
        models_of = Counter(each.learner for each in candidates_of(log, learners_of(config, log)))
        trainings += [("method", name, 2 * log.n_clicks, n * members) for name, n in models_of.items()]
    elif config.method != NO_METHOD:
        reads = 2 if METHODS[config.method].needs_full_space else 1
        models = len(keys_of(config, dict.fromkeys(kinds_of(config, protocol, log))))
        trainings.append(("method", config.learner, reads * log.n_clicks, models * members))
    if asked == "auto" and log.known_propensity is None and not own_tower(config, protocol):
        tables = (name for name in candidates_of_run(config, log) if not names_network(name))
        plain += cells_of_fold(config, log) * folds * sum(table_seconds(name, log) for name in tables)
    if trains_network(config, log) and (asked != "auto" or may_try_network(config, log)):
        trainings.append(("propensity", config.learner, cells_of_fold(config, log), folds))
    seconds = 0.0
    for part, name, rows, networks in trainings:
        size, patience, checks = (
            config.model.parameters.get(f"{part}.{name}", usual)
            for name, usual in (("batch_size", SMALLEST_BATCH), ("patience", PATIENCE), ("checks", 1))
        )
        replicas = networks * len(config.seeds)
        if isinstance(learners[name], TableLearner):
            plain += table_seconds(name, log) * rows * replicas
            continue
        one = seconds_of_row(learners[name], log, min(replicas, MOST_TIMED), size, device)
        steps = max(rows / size / checks, 1.0)
        epochs = (1 + patience + min(STEPS_TO_FIT / steps, MOST_EPOCHS)) / checks
        seconds += one * rows * replicas * float(epochs)
    busy = (time.perf_counter() - start) / max(time.process_time() - of_processor, 0.1)
    return seconds + plain * max(busy, 1.0)


def table_seconds(name: str, log: Log) -> float:
    """Return the seconds that a learner without a network takes for a row."""
    fields = 0 if name in ("linear", "popularity") else 2 + len(log.schema.features)
    return ROW_SECONDS + FIELD_SECONDS * fields


def seconds_of_row(learner: Learner, log: Log, replicas: int, batch_size: int, device: Any) -> float:
    """Return the seconds that a row of one replica takes in a training step: a few steps are timed."""
    import torch

    from unskew.debias.losses import cross_entropy
    from unskew.training.adam import Adam
    from unskew.training.reader import Reader

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
