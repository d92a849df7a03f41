"""Trains the networks of any method on a log, one replica per seed, in groups where memory is short."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from unskew.debias.core.given import GivenPropensities
from unskew.debias.core.guard import learned_by_towers
from unskew.debias.core.held_out import HeldOut
from unskew.debias.core.method import Method
from unskew.debias.core.observed import Observed
from unskew.debias.core.passes import passes_of
from unskew.debias.core.plans import StagePlan
from unskew.debias.core.setting import FLOOR, Setting
from unskew.debias.core.stacking import share_of_propensities, stacked_propensities
from unskew.debias.core.trained import Networks, Trained, untrained
from unskew.debias.core.validation import validation_loss
from unskew.log import Log, require_log
from unskew.progress import Progress
from unskew.training import History, Schedule, in_groups, train
from unskew.training.memory import parameters_of, replicas_at_once


@dataclass(frozen=True)
class Job:
    """What to train on, where, and whom to tell how far it is.

    Parameters
    ----------
    seeds
        One replica for each; a seed may come several times, with other propensities.
    validation
        A log to choose the epoch on instead of a share of O.
    label
        What the progress bar calls this training.
    """

    log: Log
    seeds: tuple[int, ...]
    device: torch.device
    validation: Log | None
    progress: Progress
    label: str

    def __post_init__(self) -> None:
        if self.validation is not None:
            require_log(self.validation, "validation", "give a Log of pairs with their conversions")


def train_replicas(method: Method, job: Job, given: GivenPropensities | None) -> Trained:
    """Train the replicas of all seeds, in one go if they fit into memory."""

    def train_some(replicas: slice) -> Trained:
        own = share_of_propensities(given, replicas)
        return _train_at_once(method, job, job.seeds[replicas], own)

    parameters = parameters_of(
        lambda tiny: list(untrained(method, tiny, job.seeds[:1], job.device).values()), job.log.schema
    )
    size = replicas_at_once(len(job.seeds), parameters, job.device, kept=2)
    parts = in_groups(len(job.seeds), train_some, size)
    return parts[0] if len(parts) == 1 else Trained.joined(parts, _fresh(method, job, job.seeds), job.seeds)


def train_sets(method: Method, job: Job, given: Sequence[GivenPropensities | None]) -> list[Trained]:
    """Train all seeds with each set of propensities in one stack; then each set's share of it."""
    seeds, size = job.seeds, len(job.seeds)
    whole = train_replicas(method, replace(job, seeds=seeds * len(given)), stacked_propensities(given))
    return [
        whole.share(slice(number * size, (number + 1) * size), _fresh(method, job, seeds), seeds)
        for number in range(len(given))
    ]


def _fresh(method: Method, job: Job, seeds: tuple[int, ...]) -> Networks:
    return untrained(method, job.log.schema, seeds, job.device)


def _train_at_once(
    method: Method, job: Job, seeds: tuple[int, ...], given: GivenPropensities | None
) -> Trained:
    log = job.log
    data = Observed(log, given, seeds, job.device)
    training, held_out = data.split(method.validation_share if job.validation is None else 0.0)
    networks = _fresh(method, job, seeds)
    setting = Setting(
        networks=networks,
        density=log.density,
        clicks=data.observed(training),
        given=data.propensity is not None,
        held_out=HeldOut(data.population, seeds),
    )
    setting.remember(FLOOR, _floors(method, given, len(seeds), log, job.device))
    validate = validation_loss(
        networks["prediction"],
        data,
        held_out,
        log,
        job.validation,
        weighted=method.selection == "snips",
        level=method.predicts_rates,
    )
    rates = {name: method.learning_rates().get(name, method.learning_rate) for name in networks}
    decays = {
        name: method.decay_of(name, clicks=training.shape[1], population=log.population_size)
        for name in networks
    }
    history = History()
    for number, stage in enumerate(method.stages()):
        if number:
            # Replicas may have stopped at different times: each begins a stage as it would alone.
            for network in networks.values():
                network.noise.restart()
        epochs = method.epochs if stage.epochs is None else stage.epochs
        told = train(
            networks,
            passes_of(stage, setting, data, training, method.batch_size),
            Schedule(epochs, rates, decays, stage.patience or method.patience if stage.selects else None),
            replicas=len(seeds),
            validate=validate if stage.validate is None else partial(stage.validate, setting),
            tracker=job.progress.task(job.label, epochs),
        )
        history = history + (told if stage.validate is None else _with_its_own_validation(told, stage))
    return Trained(
        networks=networks,
        setting=setting,
        history=history,
        validation_loss=None if validate is None else validate().tolist(),
        held_out=held_out.shape[1],
        learned=learned_by_towers(method, setting, validate, data.population),
    )


def _with_its_own_validation(history: History, stage: StagePlan) -> History:
    """A stage that stops on another loss than that of conversions: told apart from it."""
    names = ", ".join(step.name for each in stage.passes for step in each.steps)
    return History({**history.train, f"{names}, held out": history.validation}, [], history.best_epoch)


def _floors(
    method: Method, given: GivenPropensities | None, replicas: int, log: Log, device: torch.device
) -> Tensor:
    """The clip of each replica's propensities ``[R, 1]``; the density until a click tower has some."""
    if given is not None:
        floors = torch.tensor(given.floors)
    else:
        floors = torch.full((replicas,), log.density if method.p_min == "auto" else float(method.p_min))
    return floors.to(device, torch.float32).unsqueeze(1)
