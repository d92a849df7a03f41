"""Propensities from networks, all replicas in one stack."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import expit, logit

from unskew.base import processes
from unskew.base.estimator import (
    require,
    require_at_least,
    require_in,
    require_schedule,
    require_types,
)
from unskew.base.progress import Progress
from unskew.base.seeds import stream
from unskew.base.tensors import Tensor, nn, require_torch, torch
from unskew.data import Log, Rows, Schema
from unskew.learners import Learner, Network, NeuMF, TableLearner
from unskew.learners.fitted import FittedLearners, restored, state_of
from unskew.learners.table import Examples, read_by_tables, table_of
from unskew.propensity.crossfit import (
    STOP,
    TRAIN,
    Floats,
    ReplicaScores,
    Scorer,
    SplitDesign,
    logit_offset,
    resolve_ratio,
)
from unskew.propensity.per_replica import MOST_CELLS, ReplicaCells
from unskew.propensity.propensity import BasePropensity
from unskew.propensity.uncertainty import DualFocal, Uncertainty, make_uncertainty
from unskew.training import (
    ClicksAndNegatives,
    EveryCell,
    History,
    LookedUp,
    PartsOfEpochs,
    Pass,
    Sample,
    Sampler,
    Schedule,
    Step,
    in_groups,
    join_histories,
    resolve_device,
    train,
)
from unskew.training.checkpoint import checkpoint_in_effect
from unskew.training.inference import logits, probability_moments
from unskew.training.memory import replicas_at_once, size_of
from unskew.training.samplers import is_large, share_of_unclicked

HELD_OUT_BUDGET = 1 << 24
"""Held-out cells kept over all networks; beyond it the unclicked are thinned and weighted."""

LEAST_OF_ROW = 5_000
"""Parameters that take as long as drawing and looking up a row does: MF, with 67, needs half of the time of
NeuMF with 11,201."""


@dataclass(frozen=True)
class NetworkStack:
    """The scorer of networks of all seeds, folds and members, which answer together."""

    network: Network
    method: Uncertainty
    offset: float
    """Added to logits that were learned from sampled negatives."""
    noisy: bool = False
    """One pass with dropout on, where the method makes none."""

    def groups(self) -> Sequence[Sequence[int]]:
        """Return all replicas as one group."""
        return [range(self.network.replicas // self.method.stacked_members())]

    def score(self, rows: Rows, replicas: Sequence[int]) -> ReplicaScores:
        """Return mean and variance of the raw probabilities over members and passes."""
        method, members = self.method, self.method.stacked_members()
        corrected = isinstance(method, DualFocal)
        mean, variance = probability_moments(
            self.network,
            rows if len(rows.user) == 1 else rows.map(lambda each: each.repeat_interleave(members, dim=0)),
            offset=0.0 if corrected else self.offset,
            passes=method.passes() or int(self.noisy),
            layers=method.dropout_layers(),
            stacked=members,
        )
        score: Floats = mean.cpu().numpy()
        if corrected:
            # The offset is one of odds, so it comes after the link has made a probability of the score.
            score = expit(logit(method.probability(score)) + self.offset)
        return ReplicaScores(score, variance.cpu().numpy())

    def tensors(self) -> dict[str, Tensor]:
        """Return the weights."""
        return self.network.state_dict()


@dataclass(kw_only=True)
class Propensity(BasePropensity):
    """p̃(u, i) = q(σ(g_φ(u, i))): how likely each pair of the population was to be clicked.

    g_φ is ``learner``, trained by L_g = −mean_D [o·log p̂ + (1 − o)·log(1 − p̂)] over the cells of D; q is
    ``calibrator``, fitted on cells that trained nothing. Any learner will do: :class:`unskew.Linear`,
    :class:`unskew.Trees` and their :class:`unskew.Blend` where features tell who sees what or the log is
    small, a network where ids do. The networks of all seeds, folds and members train in one stacked loop;
    each stops early on held-out cells of its own. Other learners are fitted one after another, and the same
    cells choose how strongly they are regularised.

    Parameters
    ----------
    calibrator, crossfit, fold_by, negatives, fields
        As every propensity has them: the map to honest probabilities (None for raw scores), the number
        of folds (None for one 80/10/10 split), what a fold holds together, and negatives per click (None for
        all of D; ``"auto"`` samples above 50 million cells). Sampled negatives are new in each epoch, and
        their logit offset is undone. ``fields`` names the features that it reads, of a log that has them, or
        with a minus in front (``"-price"``) those that it does not read; None for all, ``()`` for ids alone.
    learner
        The learner. What follows, but for calibrating and folds, is of networks alone.
    uncertainty
        :class:`MCDropout`, :class:`DeepEnsemble`, :class:`BatchEnsembleMembers` or :class:`DualFocal`; its
        mean is the score that is calibrated, its spread is :meth:`predict_spread_each`.
    label_smoothing
        Moves training targets so far toward ½ (0 in the paper's text, 0.1 in part of its code).
    epochs, batch_size, learning_rate, weight_decay, patience, checks
        Training; early stopping is on the negative log-likelihood of held-out cells at the true base rate.
        ``patience=None`` trains all epochs, and overfits. Weight decay is 0 as in the published code: at the
        paper's 10⁻⁴ NeuMF stays on a plateau of popularity for some 20 epochs of Coat. Early stopping
        looks ``checks`` times an epoch, and ``patience`` counts these.

    Attributes
    ----------
    offset_
        Added to logits that were learned from sampled negatives.
    history_
        Losses by epoch; not kept by a saved propensity.
    """

    name: ClassVar[str] = "propensity"
    most_cells: ClassVar[int] = 50_000_000
    read_off: ClassVar[tuple[str, ...]] = ("calibrator", "uncertainty")
    may_collapse: ClassVar[bool] = True
    makers: ClassVar[Mapping[str, Callable[..., Any]]] = {"uncertainty": make_uncertainty}
    facts: ClassVar[Mapping[str, type]] = {"offset_": float}

    learner: Learner = field(default_factory=NeuMF)
    uncertainty: Uncertainty | None = None
    label_smoothing: float = 0.0
    epochs: int = 50
    batch_size: int = 1024
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    patience: int | None = 5
    checks: int = 1

    def work(self, log: Log) -> float:
        """Return rows × parameters of one seed, at most: epochs · (rows · those of a row + steps · all).

        Every row is multiplied with the parameters that it reads, and every step updates all that are in no
        table trained by touched rows. A row counts for at least :data:`LEAST_OF_ROW` parameters. Early
        stopping most often needs a fifth of it.
        """
        if not self.has_network:
            return 0.0
        design, ratio = self._design(), resolve_ratio(self.negatives, log.population_size, self.most_cells)
        cells = log.population_size if ratio is None else round((1 + ratio) * log.n_clicks)
        rows = cells * float((design.roles == TRAIN).double().mean(1).sum()) * self.method().stacked_members()
        schema = log.schema.select(self.fields) if self.reads_features else log.schema.ids
        of_all, of_row = (
            size_of(lambda schema: [self._networks(schema, [0])], each, self.batch_size)
            for each in (schema, _of_one_row(schema))
        )
        of_step = of_all.parameters - of_all.by_rows
        return self.epochs * rows * (max(of_row.parameters, LEAST_OF_ROW) + of_step / self.batch_size)

    def predict_spread_each(self, log: Log) -> Floats:
        """Return the standard deviation ``[seeds, n]`` of the raw probability over members or passes."""
        spread = self.predict_both_each(log).spread
        return np.zeros((len(self.seeds_), len(log))) if spread is None else spread

    @property
    def has_network(self) -> bool:
        """Return whether its models are networks, which train in one loop."""
        return not isinstance(self.learner, TableLearner)

    def method(self) -> Uncertainty:
        """Return the uncertainty method; one that changes nothing if there is none."""
        return self.uncertainty or Uncertainty()

    def trained_learner(self) -> Learner:
        """Return the learner as the uncertainty method has it."""
        return self.method().learner(self.learner)

    @property
    def network_(self) -> Network:
        """Return the stack of networks: seeds × folds × members."""
        return self._stack().network

    @property
    def reads_features(self) -> bool:
        """Return whether the learner reads more than the two ids."""
        return self.learner.reads_features

    def _read_alone(self, log: Log) -> Log:
        return super()._read_alone(log) if self.has_network else read_by_tables(log, self.fields)

    def _stack(self) -> NetworkStack:
        assert isinstance(self.scorer_, NetworkStack)
        return self.scorer_

    def _check(self) -> None:
        super()._check()
        require_types(self)
        self.method().check()
        if not isinstance(self.learner, TableLearner):
            require_torch(f"the network {self.learner.name}")
        else:
            self.learner.check()
            require(
                self.uncertainty is None and self.label_smoothing == 0.0,
                f"uncertainty and label_smoothing are of networks, and {self.learner.name} is none",
                "leave them out, or use a network such as NeuMF()",
            )
        require_at_least(1, epochs=self.epochs, batch_size=self.batch_size, checks=self.checks)
        require_schedule(self.learning_rate, self.weight_decay, self.patience)
        require_in("[0, 1)", label_smoothing=self.label_smoothing)

    def _design(self) -> SplitDesign:
        return SplitDesign.of(self.crossfit)

    def _device(self, device: str) -> torch.device:
        return resolve_device(device) if self.has_network else torch.device("cpu")

    def _most_cells(self) -> int:
        return self.most_cells if self.has_network else MOST_CELLS

    def _most_held_out(self) -> int:
        networks = self.replicas_ * self.method().stacked_members()
        tables = self.cells_.population.tables
        # Features take more memory than the two ids.
        return max(1, HELD_OUT_BUDGET // (networks * (1 if tables is None else 1 + tables.columns // 4)))

    def _seeds(self, purpose: str) -> list[int]:
        """Return the seeds of one purpose, one per network."""
        folds, members = range(self.design_.replicas), range(self.method().stacked_members())
        return [stream(s, purpose, k, m) for s in self.seeds_ for k in folds for m in members]

    def _untrained(self, schema: Schema) -> Network:
        if isinstance(self.learner, TableLearner) and not self.learner.saves:
            self.learner.arrays()
        return self._networks(schema, self._seeds("propensity"), drawn=False)

    def _networks(self, schema: Schema, seeds: Sequence[int], *, drawn: bool = True) -> Network:
        return self.trained_learner().build(schema, seeds, drawn=drawn)

    def _scorer_of(self, trained: nn.Module) -> NetworkStack:
        assert isinstance(trained, Network)
        return NetworkStack(trained.to_device(self.device_), self.method(), self.offset_)

    def _read_off(self, trained: Self) -> None:
        require(
            trained.method().same_training(self.method()),
            "this uncertainty changes how it is trained",
            f"fit another {type(self).__name__}",
        )
        self.method().check_network(trained.network_)
        self.scorer_ = NetworkStack(trained.network_, self.method(), self.offset_)

    def _train(self, progress: Progress) -> Scorer:
        """Train all networks, in one go if they fit into memory; each keeps its best epoch.

        Each of several processes trains some of the networks.
        """
        if isinstance(self.learner, TableLearner):
            return self._train_tables(self.learner, progress)
        self.offset_ = self._offset()
        assert self.log_ is not None
        schema, seeds = self.log_.schema, self._seeds("propensity")
        of_one = size_of(lambda schema: [self._networks(schema, seeds[:1])], schema, self.batch_size)
        own = processes.share(len(seeds))
        size = replicas_at_once(own.stop - own.start, of_one, self.device_)
        # Where groups are trained one after the other, or elsewhere, each has networks of its own.
        at_once = own == slice(0, len(seeds)) and size >= len(seeds)
        whole = self._networks(schema, seeds, drawn=at_once)
        self.method().check_network(whole)
        whole.to_device(self.device_)
        state = whole.state_dict()

        def train_some(some: slice) -> History:
            networks = slice(own.start + some.start, own.start + some.stop)
            if networks == slice(0, len(seeds)):
                return self._train_stack(whole, networks, progress)
            stack = self._networks(schema, seeds[networks]).to_device(self.device_)
            history = self._train_stack(stack, networks, progress)
            for name, trained in stack.state_dict().items():
                state[name][networks] = trained
            return history

        def train_own() -> processes.Packed:
            histories = in_groups(own.stop - own.start, train_some, size)
            history = join_histories(histories).to_dict() if histories else None
            return history, {name: values[own] for name, values in state.items()}

        parts = processes.exchange(train_own)
        for rank, (_, tensors) in enumerate(parts):
            if rank == processes.rank():
                continue
            for name, values in tensors.items():
                state[name][processes.share(len(seeds), rank)] = values.to(self.device_)
        self.history_ = join_histories([History(**history) for history, _ in parts if history is not None])
        return NetworkStack(whole, self.method(), self.offset_)

    def _train_tables(self, learner: TableLearner, progress: Progress) -> Scorer:
        """Fit one model per replica; each of several processes fits some of them.

        Sampled negatives have the weight 1/w, w the share of them that is kept, so that there is no offset.
        """
        self.offset_, self.history_ = 0.0, History()
        for role in (TRAIN, STOP):
            self.cells_.require_clicks(role)
        # What no file holds cannot be sent either: then every process fits all.
        shared = processes.world() > 1 and learner.saves
        own = processes.share(self.replicas_) if shared else slice(0, self.replicas_)
        tracker = progress.task("propensity", own.stop - own.start)
        models: dict[int, TableLearner] = {}

        def fit_own() -> processes.Packed:
            for number in range(own.start, own.stop):
                models[number] = self._fitted_table(learner, number)
                tracker.advance()
            return None, state_of(models) if shared else {}

        assert self.log_ is not None
        fitted = FittedLearners(learner, self.log_.schema, self.replicas_, ("prediction",))
        if shared:
            parts = processes.exchange(fit_own)
            fitted.load_state_dict({name: values for _, state in parts for name, values in state.items()})
        else:
            fit_own()
            fitted.models = list(models.values())
        tracker.finish()
        return NetworkStack(fitted, self.method(), self.offset_)

    def _fitted_table(self, learner: TableLearner, number: int) -> TableLearner:
        """Return the model of a replica: fitted, or as a checkpoint has it."""
        checkpoint = checkpoint_in_effect() if learner.saves else None
        call = None if checkpoint is None else checkpoint.call({**self.about_training(), "replica": number})
        if call is not None and (done := call.done()) is not None:
            return restored(learner, done.tensors, "0.")
        replica = ReplicaCells(self.cells_, number, self.name)
        model = learner.unfitted().fit(
            self._training_examples(replica),
            validation=self._held_out_examples(number),
            seed=replica.seed,
        )
        if call is not None:
            call.finish({}, state_of({0: model}))
        return model

    def _training_examples(self, replica: ReplicaCells) -> Examples:
        """Return the training cells of a replica, with their clicks."""
        cells = replica.training(self.ratio_)
        weight = np.where(cells.click > 0, 1.0, np.exp(-replica.offset(self.ratio_)))
        return self._examples(torch.as_tensor(cells.cell), cells.click, weight)

    def _held_out_examples(self, replica: int) -> Examples:
        """Return the cells that a replica stops on."""
        cells, weight = (part[0] for part in self.cells_.held_out(STOP, [replica], self._most_held_out()))
        cells, weight = cells[weight > 0], weight[weight > 0]
        click = self.cells_.population.click(cells)
        return self._examples(cells, click.double().numpy(), weight.double().numpy())

    def _examples(self, cells: Tensor, click: Floats, weight: Floats) -> Examples:
        assert self.log_ is not None
        hashes = self.folds_.hashes
        rows = self.cells_.population.rows(cells[None])
        table = table_of(self.log_.schema, rows, (hashes.user.numpy(), hashes.item.numpy()))
        return Examples(table, click.astype(np.float64), weight.astype(np.float64))

    def _offset(self) -> float:
        """log w of sampled negatives; 0 where training is over all of D."""
        return (
            0.0
            if self.ratio_ is None
            else logit_offset(self.ratio_, self.cells_.population.n_clicks, self.cells_.population.size)
        )

    def _train_stack(self, network: Network, networks: slice, progress: Progress) -> History:
        """Train some of the networks, as they would be among all: they do not depend on one another."""
        method, smoothing = self.method(), self.label_smoothing
        members = method.stacked_members()
        replicas = [number // members for number in range(self.replicas_ * members)[networks]]
        population = self.cells_.population

        def loss(sample: Sample) -> Tensor:
            assert sample.rows is not None
            assert sample.click is not None
            rows = sample.rows if sample.cells is None else population.filled(sample.rows, sample.cells)
            target = sample.click * (1.0 - smoothing) + 0.5 * smoothing if smoothing else sample.click
            return method.loss(target, network(rows)).mean(-1)

        ordered, epochs = self._sampler(replicas, self._seeds("propensity order")[networks]), self.epochs
        if self.patience is not None and self.checks > 1:
            parts = min(self.checks, ordered.steps)
            ordered, epochs = PartsOfEpochs(ordered, parts), epochs * parts
        one: Pass[Sampler] = Pass(LookedUp(ordered, population), (Step("propensity", loss, ("propensity",)),))
        return train(
            {"propensity": network},
            [one],
            Schedule(epochs, self.learning_rate, self.weight_decay, self.patience),
            replicas=network.replicas,
            validate=self._validation(network, replicas),
            tracker=progress.task("propensity", epochs),
            about=lambda: {**self.about_training(), "replicas": [networks.start, networks.stop]},
        )

    def _sampler(self, replicas: Sequence[int], seeds: Sequence[int]) -> Sampler:
        """Return a sampler of the training cells of some replicas' networks, in orders of their own."""
        self.cells_.require_clicks(TRAIN)
        cells, slots = self.cells_, self.cells_.slots(replicas)
        arguments = (cells.population, seeds, self.batch_size, slots, cells.admitted(TRAIN, replicas))
        if self.ratio_ is None:
            return EveryCell(*arguments)
        if is_large(cells.population):
            return EveryCell(*arguments, unclicked=share_of_unclicked(cells.population, self.ratio_))
        return ClicksAndNegatives(*arguments, self.ratio_, self._resamples())

    def _resamples(self) -> bool:
        """Return whether negatives are drawn anew in each epoch."""
        return True

    def _validation(self, network: Network, replicas: Sequence[int]) -> Callable[[], Tensor] | None:
        """Return the loss ``[networks]`` of held-out cells, on which each network stops."""
        population, method, offset = self.cells_.population, self.method(), self.offset_
        cells, weight = self.cells_.held_out(STOP, replicas, self._most_held_out())
        rows, click = population.rows(cells), population.click(cells)

        def held_out_loss() -> Tensor:
            losses = method.held_out_loss(click, logits(network, rows), offset)
            return (losses * weight).sum(1) / weight.sum(1)

        return held_out_loss


def _of_one_row(schema: Schema) -> Schema:
    """Return the same fields with one code each, and one for values that are not known."""
    codes = {field.name: 1 + (field.unknown == "other") for field in schema}
    return Schema(
        tuple(replace(field, size=codes[field.share or field.name] if field.size else 0) for field in schema)
    )
