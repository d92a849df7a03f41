"""The one training loop: passes of steps over batches, Adam, early stopping, best weights per replica."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Generic, TypeVar

from unskew.base.errors import TrainingError
from unskew.base.estimator import require_at_least, require_schedule
from unskew.base.progress import Tracker
from unskew.base.tensors import Tensor, nn, torch
from unskew.learners.layers import release, settle
from unskew.training.adam import Adam
from unskew.training.checkpoint import Call, checkpoint_in_effect
from unskew.training.samplers import Sampler
from unskew.training.state import Parts, Stateful, copy_back, restore, result_parts, tensors_of, under
from unskew.training.steps import (
    START,
    CapturedSteps,
    EagerSteps,
    Position,
    Step,
)

Source = TypeVar("Source", covariant=True)

ALLOW_TF32 = True
"""Matrix products of a GPU in TF32 (10 bits of mantissa, sums in float32): twice as fast as float32, and
``benchmarks/quality.py`` shows that metrics do not move."""

SECONDS_BETWEEN_WORDS = 5.0
"""Within an epoch, from one word on its progress to the next: a GPU is asked for its losses then."""


@dataclass(frozen=True)
class Pass(Generic[Source]):
    """One pass over a sampler's epoch; on each batch its steps run in turn.

    ``[Pass(a), Pass(b)]`` alternates by epoch, ``[Pass(a, b)]`` by batch. Who declares a pass before there
    are data puts what makes its sampler in the sampler's place.
    """

    sampler: Source
    steps: tuple[Step, ...]
    before: Callable[..., None] | None = None
    """Runs before the pass in each epoch, in ``eval`` mode without gradient."""


@dataclass(frozen=True)
class Schedule:
    """How long and how fast to train."""

    epochs: int
    learning_rate: float | Mapping[str, float]
    """For all networks, or by network."""
    weight_decay: float | Mapping[str, float]
    """For all networks, or by network."""
    patience: int | None
    """Epochs without improvement on validation before a replica stops and goes back to its best weights;
    None trains all epochs and keeps the last."""

    def __post_init__(self) -> None:
        require_at_least(1, epochs=self.epochs)
        rate, decay = min(_values(self.learning_rate)), min(_values(self.weight_decay))
        require_schedule(rate, decay, self.patience)

    def of(self, network: str) -> tuple[float, float]:
        """Return the learning rate and the weight decay of a network."""
        rate, decay = (
            value[network] if isinstance(value, Mapping) else value
            for value in (self.learning_rate, self.weight_decay)
        )
        return rate, decay


@dataclass
class History:
    """Losses by epoch, ``[R]`` each, and the epoch whose weights each replica kept.

    Those of a replica that stopped stay what they were when it did.
    """

    train: dict[str, list[list[float]]] = field(default_factory=dict)
    validation: list[list[float]] = field(default_factory=list)
    best_epoch: list[int] = field(default_factory=list)
    start: list[float] = field(default_factory=list)
    """Validation loss ``[R]`` of another model's weights that it started from; they are of epoch −1."""

    def __add__(self, later: History) -> History:
        """Join one stage and the next; the best epoch is counted from the start of the last."""
        steps = {**self.train}
        for name, losses in later.train.items():
            steps[name] = steps.get(name, []) + losses
        return History(steps, self.validation + later.validation, later.best_epoch, self.start or later.start)

    def to_dict(self) -> dict[str, Any]:
        """Return plain lists, for JSON."""
        losses = {"train": self.train, "validation": self.validation, "best_epoch": self.best_epoch}
        return {**losses, "start": self.start} if self.start else losses


def train(
    networks: Mapping[str, nn.Module],
    passes: Sequence[Pass[Sampler]],
    schedule: Schedule,
    *,
    replicas: int,
    validate: Callable[[], Tensor] | None,
    tracker: Tracker,
    state: Stateful | None = None,
    about: Callable[[], Mapping[str, Any]] = dict,
    keeps_start: bool = False,
) -> History:
    """Train all replicas of all networks together; with patience each keeps the weights of its best epoch.

    A replica that stops early keeps its best weights while the others go on: its result is the same as if
    it had been trained alone.

    Parameters
    ----------
    validate
        Validation loss ``[R]`` of the current weights (networks in ``eval`` mode); None keeps the last
        epoch's weights.
    state, about
        For a checkpoint, where one is in effect: what steps change beside the networks, and what is trained
        on what.
    keeps_start
        With patience, the weights that the training starts from are kept, as those of epoch −1, where no
        epoch is better.

    Raises
    ------
    TrainingError
        A loss became NaN or infinite.
    """
    checkpoint = checkpoint_in_effect()
    call = None if checkpoint is None else checkpoint.call({**_about(networks, passes, schedule), **about()})
    result = result_parts(networks, state)
    if call is not None and (done := call.done()) is not None:
        restore(result, done.tensors)
        tracker.finish()
        return History(**done.facts["history"])
    try:
        with _matrix_products():
            training = _Training(networks, passes, schedule, replicas, validate, tracker, call)
            history = training.run(result, keeps_start=keeps_start)
    except torch.cuda.OutOfMemoryError:
        # Smaller groups of replicas come in its place.
        if checkpoint is not None and call is not None:
            checkpoint.take_back(call)
        raise
    finally:
        for network in networks.values():
            release(network)
    if call is not None:
        call.finish({"history": history.to_dict()}, tensors_of(result))
    return history


def _about(
    networks: Mapping[str, nn.Module], passes: Sequence[Pass[Sampler]], schedule: Schedule
) -> dict[str, Any]:
    """Return what is trained, as far as the loop knows."""
    return {
        "networks": {
            name: {key: list(weight.shape) for key, weight in network.state_dict().items()}
            for name, network in networks.items()
        },
        "passes": [[each.sampler.steps, *(step.name for step in each.steps)] for each in passes],
        "schedule": asdict(schedule),
    }


class _Training:
    """One training: its optimisers, its best weights, and how far it is."""

    def __init__(
        self,
        networks: Mapping[str, nn.Module],
        passes: Sequence[Pass[Sampler]],
        schedule: Schedule,
        replicas: int,
        validate: Callable[[], Tensor] | None,
        tracker: Tracker,
        call: Call | None,
    ) -> None:
        self.networks, self.passes, self.schedule, self.replicas = networks, passes, schedule, replicas
        self.validate, self.tracker, self.call = validate, tracker, call
        batch_rows = max(each.sampler.batch_rows for each in passes)
        self.optimisers = {
            name: Adam(network, *schedule.of(name), batch_rows) for name, network in networks.items()
        }
        self.device = next(weight.device for each in networks.values() for weight in each.parameters())
        self.history = History()
        self.keeper: BestWeights | None = None
        self.parts: Parts = {}

    def run(self, result: Parts, *, keeps_start: bool) -> History:
        """Train from the start, or from where a checkpoint has it, to the end."""
        schedule = self.schedule
        # With one epoch, early stopping does nothing.
        if (
            self.validate is not None
            and schedule.patience is not None
            and (schedule.epochs > 1 or keeps_start)
        ):
            self.keeper = BestWeights(self.networks, self.replicas)
        optimisers = {f"optimiser/{name}": each for name, each in self.optimisers.items()}
        self.parts = {**result, **optimisers, **({} if self.keeper is None else {"best": self.keeper})}
        first, position = self._begin(keeps_start=keeps_start)
        eager = [EagerSteps(each.steps, self.optimisers) for each in self.passes]
        executors = [CapturedSteps(each) if self.device.type == "cuda" else each for each in eager]
        self._tell_least_left()
        for epoch in range(first[0], schedule.epochs):
            for number, executor in enumerate(executors):
                if (epoch, number) >= first:
                    self._pass(executor, epoch, number, position if (epoch, number) == first else START)
            self._validated(epoch)
            self.tracker.advance()
            self._tell_least_left()
            if self.keeper is not None and self.keeper.exhausted(schedule.patience or 0):
                break
        self.tracker.finish()
        for network in self.networks.values():
            # As large as the weights, and of no more use.
            network.zero_grad(set_to_none=True)
        last = [schedule.epochs - 1] * self.replicas
        self.history.best_epoch = last if self.keeper is None else self.keeper.put_back()
        return self.history

    def _begin(self, *, keeps_start: bool) -> tuple[tuple[int, int], Position]:
        """Return the epoch and the pass to begin with, and where in it, by the state of a checkpoint."""
        state = None if self.call is None else self.call.latest()
        if state is not None:
            restore(self.parts, state.tensors)
            sums = {name: total.to(self.device) for name, total in under(state.tensors, "sums/").items()}
            facts = state.facts
            self.history = History(**facts["history"])
            self.tracker.go_on(facts["epoch"])
            position = Position(facts["block"], facts["step"], facts["taken"], sums)
            return (facts["epoch"], facts["pass"]), position
        if keeps_start and self.keeper is not None:
            value = self._validation_loss(-1)
            self.keeper.offer(value, -1)
            self.history.start = value.tolist()
        return (0, 0), START

    def _pass(self, executor: EagerSteps | CapturedSteps, epoch: int, number: int, start: Position) -> None:
        """Run one pass of an epoch, and record its losses."""
        this = self.passes[number]
        if this.before is not None and start is START:
            with evaluating(self.networks.values()):
                this.before()
        for network in self.networks.values():
            network.train()
        shown, taken, spoke = start.taken, start.taken, time.monotonic()

        def tell(share: float, losses: Mapping[str, Tensor]) -> None:
            nonlocal shown, spoke
            rows, shown, spoke = (taken - shown) * this.sampler.batch_rows, taken, time.monotonic()
            figures: dict[str, float] = {"epoch": epoch + 1, "step": taken}
            for name, loss in losses.items():
                # Of several steps each has its loss; the last is the one to show.
                figures |= {f"loss_{name}": float(loss.mean()), "loss": float(loss.mean())}
            self.tracker.observe(min((number + share) / len(self.passes), 1.0), rows, figures)

        def between(at: Position) -> None:
            nonlocal taken
            taken = at.taken
            self._save(epoch, number, at)
            if time.monotonic() >= spoke + SECONDS_BETWEEN_WORDS:
                means = {name: total / taken for name, total in at.sums.items()}
                tell(taken / max(this.sampler.steps, 1), means)

        losses = executor.run(this.sampler, epoch, start, between)
        tell(1.0, losses)
        for network in self.networks.values():
            settle(network)
        for name, loss in losses.items():
            _require_finite(loss, name, epoch, self.keeper)
            _record(loss, self.history.train.setdefault(name, []), self.keeper)

    def _save(self, epoch: int, number: int, at: Position) -> None:
        """Write a state for the checkpoint between two steps, where it is time for one."""
        if self.call is not None and self.call.is_due:
            progress = {"epoch": epoch, "pass": number, "block": at.block, "step": at.step, "taken": at.taken}
            sums = {f"sums/{name}": total for name, total in at.sums.items()}
            facts = {"history": self.history.to_dict(), **progress}
            self.call.save(facts, {**tensors_of(self.parts), **sums})

    def _validated(self, epoch: int) -> None:
        """Record the validation loss of an epoch, and keep the weights that are the best so far."""
        if self.validate is None:
            return
        value = self._validation_loss(epoch)
        _record(value, self.history.validation, self.keeper)
        self.tracker.observe(0.0, 0, {"validation": float(value.mean())})
        if self.keeper is not None:
            self.keeper.offer(value, epoch)

    def _validation_loss(self, epoch: int) -> Tensor:
        assert self.validate is not None
        with evaluating(self.networks.values()):
            value = self.validate()
        _require_finite(value, "validation", epoch, self.keeper)
        return value

    def _tell_least_left(self) -> None:
        """Say after how many epochs the training may end: when the last replica has waited long enough."""
        if self.keeper is None:
            return
        patience, start = self.schedule.patience or 0, self.history.start
        losses = [*([start] if start else ()), *self.history.validation]
        best = [min(range(len(losses)), key=lambda epoch: line[epoch]) for line in zip(*losses, strict=True)]
        waited = len(losses) - 1 - max(best) if losses else -1
        self.tracker.may_end(max(0, patience - waited))


@contextmanager
def _matrix_products() -> Iterator[None]:
    """Multiply matrices of a GPU in TF32 (:data:`ALLOW_TF32`)."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = before or ALLOW_TF32
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _values(setting: float | Mapping[str, float]) -> list[float]:
    return list(setting.values()) if isinstance(setting, Mapping) else [setting]


@contextmanager
def evaluating(networks: Any) -> Iterator[None]:
    """Put networks in ``eval`` mode without gradients, and back where they were in ``train`` mode."""
    were_training = [(network, network.training) for network in networks]
    for network, _ in were_training:
        network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for network, training in were_training:
            network.train(training)


def _require_finite(loss: Tensor, name: str, epoch: int, keeper: BestWeights | None) -> None:
    wrong = ~torch.isfinite(loss)
    if keeper is not None:
        # What becomes of a replica after it stopped is thrown away.
        wrong &= ~keeper.stopped
    if bool(wrong.any()):
        replica = int(torch.nonzero(wrong)[0])
        raise TrainingError(
            f"the loss '{name}' became {float(loss[replica])} in epoch {epoch} (replica {replica})",
            remedy="lower learning_rate, raise p_min, or check the propensities",
        )


def _record(loss: Tensor, lines: list[list[float]], keeper: BestWeights | None) -> None:
    """Record a line of losses; a replica that stopped stays at its last, as if it had been trained alone."""
    if keeper is not None and lines:
        loss = torch.where(keeper.stopped, loss.new_tensor(lines[-1]), loss)
    lines.append(loss.tolist())


class BestWeights:
    """The best weights so far of each replica, on the device."""

    def __init__(self, networks: Mapping[str, nn.Module], replicas: int) -> None:
        self._parameters = [p for network in networks.values() for p in network.parameters()]
        self._best: list[Tensor] = []
        device = self._parameters[0].device
        # As exact as any validation loss: what a checkpoint holds of it must be the same number.
        self._value = torch.full((replicas,), torch.inf, dtype=torch.float64, device=device)
        self._epoch = torch.zeros(replicas, dtype=torch.int64, device=device)
        self._waited = torch.zeros(replicas, dtype=torch.int64, device=device)
        self.stopped = torch.zeros(replicas, dtype=torch.bool, device=device)

    def offer(self, value: Tensor, epoch: int) -> None:
        """Keep the current weights of every running replica that improved."""
        better = (value < self._value) & ~self.stopped
        self._value = torch.where(better, value, self._value)
        self._epoch = torch.where(better, epoch, self._epoch)
        self._waited = torch.where(better, 0, self._waited + 1)
        if not self._best:
            self._best = [current.detach().clone() for current in self._parameters]
        elif bool(better.any()):
            for best, current in zip(self._best, self._parameters, strict=True):
                chosen = better.view(-1, *(1,) * (current.dim() - 1))
                torch.where(chosen, current.detach(), best, out=best)

    def exhausted(self, patience: int) -> bool:
        """Return whether every replica has waited ``patience`` epochs; those that have are stopped for
        good."""
        self.stopped |= self._waited >= patience
        return bool(self.stopped.all())

    def tensors(self) -> dict[str, Tensor]:
        """Return all of it, for a checkpoint."""
        weights = {f"weight/{number}": kept for number, kept in enumerate(self._best)}
        return {
            **weights,
            "value": self._value,
            "epoch": self._epoch,
            "waited": self._waited,
            "stopped": self.stopped,
        }

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        """Bring back what :meth:`tensors` gave."""
        if "weight/0" in tensors:
            # Before the first validation there are none.
            self._best = [torch.empty_like(current.detach()) for current in self._parameters]
        with torch.no_grad():
            copy_back(self.tensors(), tensors)

    def put_back(self) -> list[int]:
        """Give the networks the best weights; the epochs they are from."""
        with torch.no_grad():
            for best, current in zip(self._best, self._parameters, strict=True):
                current.copy_(best)
        return [int(epoch) for epoch in self._epoch]
