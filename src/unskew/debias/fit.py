"""How a method is trained on a log: rows, split, passes, validation; all members of all seeds in a stack.

What is trained is decided by the method (:mod:`unskew.debias.method`), how by :mod:`unskew.training`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.base import processes
from unskew.base.errors import ParameterError
from unskew.base.estimator import plain_params
from unskew.base.progress import Progress
from unskew.base.seeds import Replica, stream
from unskew.base.tensors import Tensor, torch
from unskew.data import Log, require_log
from unskew.data.digest import digest_of
from unskew.data.splitting import SplitBy
from unskew.debias.setting import Observed, Setting, Stage
from unskew.debias.with_tables import TableFits
from unskew.learners import Network, TableLearner
from unskew.metrics.collapse import Collapsed, Learned, learned
from unskew.propensity.given import GivenPropensities
from unskew.training import (
    History,
    PartsOfEpochs,
    Pass,
    Population,
    Sampler,
    Schedule,
    ShuffledRows,
    hashing,
    in_groups,
    join_histories,
    train,
)
from unskew.training.held_out import BY_PAIR, Ends, HeldOut, Split, ValidationLoss
from unskew.training.inference import logits
from unskew.training.means import weighted_mean
from unskew.training.memory import replicas_at_once, share_of_history, size_of
from unskew.training.reader import Reader
from unskew.training.state import under
from unskew.training.warm_start import WarmStart

if TYPE_CHECKING:
    from unskew.debias.method import Debiaser

PAIRS = 4096
"""Pairs of D, the same for all networks, on which the spread of logits is looked at beside held-out rows."""

OF_CONVERSIONS = ("prediction", "first", "second", "imputation")
"""Towers whose output is (by default) the logit of a conversion."""

OF_CLICKS = "click"
"""The tower whose output is the logit of a click, up to a constant."""

Networks = dict[str, Network]


@dataclass(frozen=True)
class Job:
    """A training job: its data, its device and its progress.

    Parameters
    ----------
    replicas
        Those to train; one may come several times, with other propensities.
    validation
        A log to choose the epoch on instead of a share of O.
    label
        What the progress bar calls this training.
    start
        The model that it starts from.
    by, held_out
        What is held out together to choose the epoch, and how many clicks of each replica.
    ends
        Of the parts of each seed (:func:`~unskew.training.held_out.split_parts`), where ``start`` has set
        them.
    """

    log: Log
    replicas: tuple[Replica, ...]
    device: torch.device
    validation: Log | None
    progress: Progress
    label: str
    start: WarmStart | None = None
    by: SplitBy = BY_PAIR
    held_out: int = 0
    ends: Mapping[int, Ends] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.validation is not None:
            require_log(self.validation, "validation", "give a Log of pairs with their conversions")

    def split(self, seeds: Sequence[int], members: int) -> Split:
        """Return which clicks are held out, for so many members that are trained on their own."""
        split = Split.of(self.log, seeds, self.held_out, self.by, members=members)
        if not self.ends:
            return split
        ends = tuple(self.ends[seed] for seed in seeds)
        return replace(split, ends=tuple(of_seed[: split.lines] for of_seed in ends))

    def untrained(self, method: Debiaser, replicas: tuple[Replica, ...], *, drawn: bool = True) -> Networks:
        """Return a method's networks for some replicas; ``drawn`` as in ``Learner.build``."""
        own = [each.own for each in replicas]
        return method.untrained(self.log.schema, own, self.device, drawn=drawn)


@dataclass(frozen=True)
class Learnt:
    """The results of training some replicas; all else follows from the data."""

    history: History
    validation_loss: list[float] | None
    """Of each replica at its chosen epoch; None where nothing was held out."""
    learned: dict[str, list[Learned]]
    """What each replica's towers learned, by the tower's name."""
    tensors: dict[str, Tensor]
    """Tensors of the networks and of the setting that the losses saw last ``[R, …]``."""

    @classmethod
    def joined(cls, parts: Sequence[Learnt]) -> Learnt:
        """Return the findings for the replicas of several groups."""
        first = parts[0]
        losses = [part.validation_loss for part in parts if part.validation_loss is not None]
        return cls(
            join_histories([part.history for part in parts]),
            [loss for of_part in losses for loss in of_part] if losses else None,
            {tower: [one for part in parts for one in part.learned[tower]] for tower in first.learned},
            {name: torch.cat([part.tensors[name] for part in parts]) for name in first.tensors},
        )

    def share(self, replicas: slice) -> Learnt:
        """Return the findings for some of the replicas."""
        return Learnt(
            share_of_history(self.history, replicas),
            None if self.validation_loss is None else self.validation_loss[replicas],
            {tower: of_replicas[replicas] for tower, of_replicas in self.learned.items()},
            {name: values[replicas] for name, values in self.tensors.items()},
        )

    def packed(self) -> processes.Packed:
        """Return the findings as other processes can read them."""
        rest = {"validation_loss": self.validation_loss, "learned": self.learned}
        return {"history": self.history.to_dict(), **rest}, self.tensors

    @classmethod
    def unpacked(cls, packed: processes.Packed) -> Learnt:
        """Return what another process packed."""
        value, tensors = packed
        learned = {tower: [Learned(*one) for one in ones] for tower, ones in value["learned"].items()}
        return cls(History(**value["history"]), value["validation_loss"], learned, dict(tensors))


@dataclass(frozen=True)
class Stack:
    """The networks, setting and learnt figures of a trained stack of replicas."""

    networks: Networks
    setting: Setting
    """The setting that the losses saw last, for :meth:`unskew.Debiaser.finish`."""
    learnt: Learnt

    @classmethod
    def now(
        cls,
        method: Debiaser,
        networks: Networks,
        setting: Setting,
        history: History,
        validate: ValidationLoss | None,
    ) -> Stack:
        """Return what training left just now."""
        tensors = {f"setting {name}": value for name, value in setting.tensors().items()}
        for name, network in networks.items():
            tensors |= {f"network {name} {key}": value for key, value in network.state_dict().items()}
        losses = None if validate is None else validate().tolist()
        towers = _learned(method, setting, validate, setting.cells.population)
        return cls(networks, setting, Learnt(history, losses, towers, tensors))

    @classmethod
    def of(cls, learnt: Learnt, method: Debiaser, job: Job, propensities: GivenPropensities | None) -> Stack:
        """Return the networks and the setting of the replicas of a job from what was found for them."""
        networks = job.untrained(method, job.replicas, drawn=False)
        for name, network in networks.items():
            network.load_state_dict(under(learnt.tensors, f"network {name} "))
        data = _observed(job, propensities, job.replicas)
        training, _ = data.split(job.held_out, job.by, job.ends)
        setting = _setting(method, job, data, training, networks, propensities)
        setting.restore(under(learnt.tensors, "setting "))
        return cls(networks, setting, learnt)

    def collapsed(self, replicas: tuple[Replica, ...]) -> tuple[Collapsed, ...]:
        """Return the towers and seeds that learned nothing; members beyond the first are named."""
        return tuple(
            Collapsed(tower + f", member {of.member}" * (of.member > 0), of.seed, one.reason)
            for tower, of_replicas in self.learnt.learned.items()
            for of, one in zip(replicas, of_replicas, strict=True)
            if one.reason is not None
        )


def _seeds(replicas: Sequence[Replica]) -> tuple[int, ...]:
    return tuple(each.seed for each in replicas)


def _observed(job: Job, propensities: GivenPropensities | None, replicas: Sequence[Replica]) -> Observed:
    """Return the rows of a job, for some replicas."""
    return Observed(
        job.log,
        propensities,
        _seeds(replicas),
        job.device,
        parts=tuple(each.part for each in replicas),
    )


def train_replicas(method: Debiaser, job: Job, propensities: GivenPropensities | None) -> Stack:
    """Train all replicas, at once if they fit into memory; each of several processes trains some of them."""
    if isinstance(method.learner, TableLearner):
        return _fit_tables(method, job, propensities)
    if processes.world() == 1:
        return _train_here(method, job, propensities)
    parts = [processes.share(len(job.replicas), rank) for rank in range(processes.world())]
    own = parts[processes.rank()]

    def train_own() -> processes.Packed:
        if not job.replicas[own]:
            return None, {}
        trained = _train_here(method, replace(job, replicas=job.replicas[own]), _share(propensities, own))
        return trained.learnt.packed()

    packed = zip(parts, processes.exchange(train_own), strict=True)
    learnt = Learnt.joined([Learnt.unpacked(one) for part, one in packed if job.replicas[part]])
    return Stack.of(learnt, method, job, propensities)


def _share(propensities: GivenPropensities | None, replicas: slice) -> GivenPropensities | None:
    return None if propensities is None else propensities.share(replicas)


def _train_here(method: Debiaser, job: Job, propensities: GivenPropensities | None) -> Stack:
    """Train all replicas in this process."""

    def train_some(replicas: slice) -> Stack:
        return _train_at_once(method, job, job.replicas[replicas], _share(propensities, replicas))

    of_one = size_of(
        lambda schema: list(method.untrained(schema, [job.replicas[0].own]).values()),
        job.log.schema,
        # Beside a batch of O most methods read as large a part of D, or ``ratio`` times as large.
        batch_rows=round(method.batch_size * (1 + getattr(method, "ratio", 1.0))),
    )
    size = replicas_at_once(len(job.replicas), of_one, job.device, copies=2)
    parts = in_groups(len(job.replicas), train_some, size)
    if len(parts) == 1:
        return parts[0]
    return Stack.of(Learnt.joined([part.learnt for part in parts]), method, job, propensities)


def train_sets(method: Debiaser, job: Job, propensities: Sequence[GivenPropensities | None]) -> list[Stack]:
    """Train all replicas with each set of propensities in one stack; then each set's share of it."""
    if isinstance(method.learner, TableLearner):
        return [_fit_tables(method, job, each) for each in propensities]
    whole = train_replicas(
        method, replace(job, replicas=job.replicas * len(propensities)), _stacked(propensities)
    )
    if len(propensities) == 1:
        return [whole]
    learnt, size = whole.learnt, len(job.replicas)
    return [
        Stack.of(learnt.share(slice(at * size, (at + 1) * size)), method, job, own)
        for at, own in enumerate(propensities)
    ]


def _stacked(propensities: Sequence[GivenPropensities | None]) -> GivenPropensities | None:
    """Stack the propensities of all replicas, set after set; None where no set has any."""
    known = [each for each in propensities if each is not None]
    if not known:
        return None
    if len(known) != len(propensities):
        raise ParameterError(
            "some of the propensities are None, others are not", remedy="fit the method without them apart"
        )
    everywhere = [each.everywhere for each in known if each.everywhere is not None]
    first = np.cumsum([0, *(len(each.clicked) for each in known)]).tolist()
    return GivenPropensities(
        clicked=np.concatenate([each.clicked for each in known]),
        everywhere=np.concatenate(everywhere) if everywhere else None,
        diagnostics=tuple(each for one in known for each in one.diagnostics),
        floors=tuple(floor for one in known for floor in one.floors),
        lines=tuple(start + line for start, one in zip(first, known, strict=False) for line in one.lines),
    )


def _fit_tables(method: Debiaser, job: Job, propensities: GivenPropensities | None) -> Stack:
    """Fit the model of each replica, in every process: it takes seconds."""
    network = job.untrained(method, job.replicas)["prediction"]
    data = _observed(job, propensities, job.replicas)
    training, held_out = data.split(job.held_out, job.by, job.ends)
    setting = _setting(method, job, data, training, {"prediction": network}, propensities)
    TableFits(method, setting, data, job.replicas, training, held_out).fit()
    validate = validation_loss(
        network,
        data,
        held_out,
        job.log,
        job.validation,
        weighted=method.selection == "snips",
        level=method.predicts_rates,
    )
    return Stack.now(method, {"prediction": network}, setting, History(), validate)


def _train_at_once(
    method: Debiaser, job: Job, replicas: tuple[Replica, ...], propensities: GivenPropensities | None
) -> Stack:
    log = job.log
    networks = job.untrained(method, replicas)
    data = _observed(job, propensities, replicas)
    training, held_out = data.split(job.held_out, job.by, job.ends)
    setting = _setting(method, job, data, training, networks, propensities)
    networks["prediction"].start_at("prediction", torch.logit(_rate(setting)))
    if job.start is not None:
        job.start.fill(networks, replicas, method)
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

    def train_stage(number: int, stage: Stage) -> History:
        if number:
            # Replicas may have stopped at different times: each begins a stage as it would alone.
            for network in networks.values():
                network.noise.restart()
        epochs = method.epochs if stage.epochs is None else stage.epochs
        patience = stage.patience or method.patience if stage.selects else None
        order = partial(_shuffled, training, replicas, method.batch_size)
        passes = _passes(stage, setting, data, order)
        if patience is not None and method.checks > 1:
            parts = min(method.checks, *(each.sampler.steps for each in passes))
            passes = [replace(each, sampler=PartsOfEpochs(each.sampler, parts)) for each in passes]
            epochs *= parts
        trained = train(
            networks,
            passes,
            Schedule(epochs, rates, decays, patience),
            replicas=len(replicas),
            validate=validate if stage.validate is None else partial(stage.validate, setting),
            tracker=job.progress.task(job.label, epochs),
            state=setting,
            about=partial(_about, method, job, replicas, propensities, number),
            keeps_start=job.start is not None,
        )
        return trained if stage.validate is None else _with_its_own_validation(trained, stage)

    history = sum((train_stage(number, stage) for number, stage in enumerate(method.stages())), History())
    return Stack.now(method, networks, setting, history, validate)


def _setting(
    method: Debiaser,
    job: Job,
    data: Observed,
    training: Tensor,
    networks: Networks,
    propensities: GivenPropensities | None,
) -> Setting:
    """Return what the losses see at the start."""
    if propensities is not None:
        floors = torch.tensor([propensities.floors[line] for line in propensities.lines])
    else:
        floors = torch.full(
            (len(data.seeds),), job.log.density if method.p_min == "auto" else float(method.p_min)
        )
    return Setting(
        networks=networks,
        density=job.log.density,
        clicks=data.observed(training),
        floor=floors.to(job.device, torch.float32).unsqueeze(1),
        given=data.propensity is not None,
        held_out=HeldOut(data.population, data.seeds),
    )


def _about(
    method: Debiaser,
    job: Job,
    replicas: tuple[Replica, ...],
    propensities: GivenPropensities | None,
    stage: int,
) -> dict[str, Any]:
    """Return what a checkpoint knows a training by."""
    known = (
        ()
        if propensities is None
        else (propensities.clicked, propensities.everywhere, np.array(propensities.lines))
    )
    return {
        "trains": method.name,
        "stage": stage,
        "seeds": list(_seeds(replicas)),
        "members": [each.member for each in replicas],
        "hold out": [each.part for each in replicas],
        "parameters": plain_params(method),
        "log": job.log.digest,
        "validation": None if job.validation is None else job.validation.digest,
        "propensities": digest_of(*known),
        "start": None if job.start is None else job.start.digest,
        "device": job.device.type,
    }


def _rate(setting: Setting) -> Tensor:
    """Return the conversion rate ``[R]`` of the training clicks, weighted where there are propensities."""
    clicks = setting.clicks
    weight = torch.ones_like(clicks.conversion)
    if setting.given:
        weight = 1.0 / torch.maximum(clicks.propensity, setting.floor)
    least = 1.0 / (clicks.conversion.shape[1] + 1)
    return weighted_mean(clicks.conversion, weight).clamp(least, 1.0 - least)


def _passes(
    stage: Stage,
    setting: Setting,
    data: Observed,
    order: Callable[[str], ShuffledRows],
) -> list[Pass[Sampler]]:
    """Return the passes of an epoch of a stage, with samplers by the purpose of their order."""
    passes = []
    for number, each in enumerate(stage.passes):
        # Every method's first pass has the same order, so that methods are paired; others differ.
        observed = order("order" if number == 0 else f"order of pass {number}")
        steps = tuple(replace(step, loss=data.bind(step.loss, setting)) for step in each.steps)
        before = None if each.before is None else partial(each.before, setting)
        passes.append(Pass(each.sampler(observed, data.population), steps, before))
    return passes


def _shuffled(rows: Tensor, replicas: Sequence[Replica], batch_size: int, purpose: str) -> ShuffledRows:
    """Return batches of positions ``rows [R, n]`` in O, in an order of each replica's own."""
    return ShuffledRows(rows, [stream(each.own, purpose) for each in replicas], batch_size)


def _with_its_own_validation(history: History, stage: Stage) -> History:
    """Return the history of a stage that stops on a loss of its own, under a name of its own."""
    names = ", ".join(step.name for each in stage.passes for step in each.steps)
    return History({**history.train, f"{names}, held out": history.validation}, [], history.best_epoch)


def validation_loss(
    prediction: Network,
    data: Observed,
    held_out: Tensor,
    log: Log,
    validation: Log | None,
    *,
    weighted: bool,
    level: bool = True,
) -> ValidationLoss | None:
    """Return the validation loss of a network.

    Parameters
    ----------
    held_out
        Positions in O that trained nothing, ``[R, n]``; with none of them there is no such loss.
    validation
        A log to take instead, unweighted; its ids must be those of ``log``.
    weighted
        w = 1/p where propensities were given; else w = 1.
    level
        As in :class:`ValidationLoss`.
    """
    if validation is not None:
        clicks = validation.take(validation.clicked)
        rows = Reader(log.users, log.items, log.encoders, data.device).of_log(clicks).rows
        conversion = torch.as_tensor(clicks.known_conversion(), device=data.device)[None]
        return ValidationLoss(prediction, rows, conversion, torch.ones_like(conversion), level)
    if held_out.shape[1] == 0:
        return None
    batch = data.observed(held_out)
    plain = data.propensity is None or not weighted
    weight = torch.ones_like(batch.conversion) if plain else 1.0 / batch.propensity
    return ValidationLoss(prediction, batch.rows, batch.conversion, weight, level)


def _learned(
    method: Debiaser, setting: Setting, validation: ValidationLoss | None, population: Population
) -> dict[str, list[Learned]]:
    """Return what each tower of each replica learned; the rule is that of :mod:`unskew.metrics.collapse`.

    A conversion tower is judged on the rows that chose the epoch, with their weights; where none were held
    out, and where its output is no rate (scores to rank by, imputed errors), by its spread alone. A click
    tower is judged on cells that it never saw. Towers of other kinds (weights of kernels, shifts of
    propensities) are meant to be nearly constant, and are not judged.
    """
    zero = torch.zeros((), dtype=torch.int64, device=population.device)
    cells = hashing.uniform_int(torch.arange(PAIRS, device=population.device), zero, population.size)
    pairs = population.rows(cells[None])
    form = getattr(method, "imputation_form", "P1")
    towers: dict[str, list[Learned]] = {}
    for network in setting.networks.values():
        for tower in network.towers:
            # A residual that is 0 everywhere is what an imputer of the form P3 should learn from a good
            # prediction.
            if (tower == "imputation" and form == "P3") or tower not in (*OF_CONVERSIONS, OF_CLICKS):
                continue
            is_rate = form == "P1" if tower == "imputation" else method.predicts_rates
            elsewhere = logits(network, pairs, tower=tower).detach().double().cpu().numpy()
            towers[tower] = [
                learned(logits=z, outcome=o, weight=w, elsewhere=e)
                for (z, o, w), e in zip(
                    _judged_rows(setting, validation, tower, is_rate), elsewhere, strict=True
                )
            ]
    return towers


def _judged_rows(
    setting: Setting, validation: ValidationLoss | None, tower: str, is_rate: bool
) -> Iterator[tuple[Tensor, Tensor | None, Tensor]]:
    """Yield logits, outcomes and weights of each replica's held-out rows."""
    if tower == OF_CLICKS:
        assert setting.held_out is not None
        seen = setting.held_out.evaluation
        for z, o, w in zip(setting.predicted(seen, tower), seen.click, seen.weight, strict=True):
            counted = w > 0
            yield _plain(z[counted]), _plain(o[counted]), _plain(w[counted])
        return
    source = setting.clicks if validation is None else validation
    z = logits(setting.network_of(tower)[1], source.rows, tower=tower)
    outcome = source.conversion.expand(z.shape)
    weight = torch.ones_like(z) if validation is None else validation.weight.expand(z.shape)
    judged = validation is not None and is_rate
    for of_z, of_outcome, of_weight in zip(z, outcome, weight, strict=True):
        yield _plain(of_z), _plain(of_outcome) if judged else None, _plain(of_weight)


def _plain(values: Tensor) -> Tensor:
    return values.detach().double().cpu()
