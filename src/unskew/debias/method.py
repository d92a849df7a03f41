"""The debiaser: its parameters, its networks and losses and when they train; fit, predict, save.

How it is trained is in :mod:`unskew.debias.fit`, once for all methods.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError, ParameterError
from unskew.base.estimator import (
    Estimator,
    require,
    require_in,
    require_schedule,
    require_share,
    require_types,
)
from unskew.base.progress import SILENT, Progress
from unskew.base.seeds import Replica, as_seeds, replicas_of, stream
from unskew.base.tensors import Tensor, require_torch, torch
from unskew.calibration.recalibration import NONE, Recalibration, require_kind
from unskew.data import Encoders, Log, Rows, Schema, require_log
from unskew.data.checks import require_both_clicks
from unskew.data.splitting import SplitBy
from unskew.debias.fit import Job, Stack, train_sets
from unskew.debias.setting import Batch, ClicksAndCells, Loss, Plan, Setting, Stage, State, clicks, within
from unskew.learners import Learner, Network, NeuMF, TableLearner
from unskew.learners.table import read_by_tables
from unskew.metrics import WeightDiagnostics
from unskew.metrics.collapse import Collapsed, warn_of_collapse
from unskew.metrics.weights import Clip, require_clip
from unskew.propensity.given import GivenPropensities, given_propensities
from unskew.training import Pass, Step, evaluating, fitted, resolve_device
from unskew.training.fitted import MOST_MEMBERS, interval, require_several, spread
from unskew.training.held_out import Ends, Split, SplitCells, split_that_decides
from unskew.training.reader import Reader, Unseen
from unskew.training.warm_start import WarmStart

__all__ = [
    "Batch",
    "ClicksAndCells",
    "Counted",
    "Debiaser",
    "Loss",
    "Pass",
    "Plan",
    "Setting",
    "SplitCells",
    "Stage",
    "State",
    "Step",
    "clicks",
    "evaluating",
    "within",
]

Counted = Literal["clicks", "population"]
"""What the loss of a network is a likelihood of: |O| clicks, or |D| cells."""


@dataclass(kw_only=True)
class Debiaser(Estimator):
    """A conversion model and the losses that train it.

    A method subclasses this, names itself, and defines :meth:`loss`; with more than one network or step,
    also :meth:`networks` and :meth:`plan`.

    Parameters
    ----------
    learner
        The conversion network f_θ (and the method's other networks).
    fields
        The features that they read, of a log that has them: names, or with a minus in front (``"-position"``)
        those that they do not read; None for all, ``()`` for the ids alone. A propensity has its own.
    p_min
        Propensities below are raised to it before they become weights; what that did is in ``clipping_``.
        ``"auto"`` takes the clip with the least estimated error of the weights at hand
        (:func:`unskew.metrics.least_error_clip`), so that it follows the density of the log.
    epochs, batch_size, learning_rate, patience, checks
        Training; early stopping is on the validation loss, looks at it ``checks`` times an epoch,
        and ends after ``patience`` of these without progress.
    weight_decay, regularisation
        A number is Adam's L2 coefficient. ``"auto"`` is λ/n with λ = ``regularisation``: training minimises
        Σ loss + (λ/2)·‖θ‖², a normal prior of variance 1/λ on every weight, whatever the size of the log. n
        is the number of rows that the loss is a mean of: |O| for losses of conversions, also where weights
        1/p make them means over D; |D| where it is a likelihood over all of D (click towers, ESMM, EIB).
        λ = 5 was settled on synthetic worlds from 0.2 % to 20 % density; 1 to 10 do as well there.
        A fixed coefficient holds for one size and one density alone: what a row of an embedding table
        learns per step falls with the number of users, what decay takes from it does not.
    validation_share
        Share of O that is held out to choose the epoch.
    validation_by
        What is held out together: ``"pair"``, ``"user"``, ``"group:COLUMN"``, or the latest clicks
        (``"time"``, ``"time:COLUMN"``; ``"from:2026-01-17"`` for those from a date on, however many).
        ``"auto"`` is by time for impressions with a column of times (``"auto:COLUMN"`` names it), unless all
        of the latest clicks, or none of them, converted; by pair otherwise.
    selection
        Validation loss: ``"snips"`` weights it by the method's own propensities, ``"ce"`` does not.
    members
        Networks of each seed, whose mean logit is the model: an ensemble. Members have first weights and an
        order of batches of their own, and each holds out clicks of its own (but for the latest, and
        where they start from a model that held out others); propensities are the seed's. Each member
        stops at its own epoch. All members of all seeds are trained in one stack. The first member is the
        model that ``members=1`` trains.
    recalibrate
        After training, a map of the predictions to the weighted outcomes of held-out clicks, which mends the
        level and keeps the order: ``"none"``, ``"shift"`` of the logit, ``"auto"`` (as much of the shift as
        weights of estimated propensities can be trusted with; by known ones, and without weights, all of it,
        or Platt's line where clicks ask for it), or a calibrator's name. Weights are 1/p of the propensities
        that it trained with, 1 without any. ``recalibration_`` has predicted ÷ actual rate before.

    Notes
    -----
    After ``fit``, ``history_`` and ``validation_loss_`` have a column for every member, those of a seed side
    by side. ``collapsed_`` lists the networks and seeds that learned nothing (the rule is that of
    :func:`unskew.metrics.collapse.learned`), and a :class:`unskew.base.errors.CollapseWarning` named them.
    ``start_`` is what it started from, None for fresh weights; its ``changes(model, log)`` has what changed.
    """

    paper: ClassVar[str] = ""
    when: ClassVar[str] = ""
    """One line: when to use it."""
    needs_propensity: ClassVar[bool] = False
    needs_propensity_everywhere: ClassVar[bool] = False
    """Whether its losses read propensities on batches of D too."""
    needs_full_space: ClassVar[bool] = False
    """Whether its losses sum over D, beyond the clicked rows."""
    imputation: ClassVar[str | None] = None
    """How it imputes errors: P1 pseudo-label, P2 direct error, P3 residual (METHODS §1.2)."""
    has_tower: ClassVar[bool] = False
    """True for a method that learns its own propensities with a click tower."""
    ranges: ClassVar[Mapping[str, str]] = within(
        epochs="[1, inf)",
        batch_size="[1, inf)",
        checks="[1, inf)",
        members=f"[1, {MOST_MEMBERS}]",
        regularisation="[0, inf)",
        validation_share="[0, 1)",
    )
    """Intervals of the parameters that a class adds."""
    with_tables: ClassVar[Literal["weights", "pseudo-outcome"] | None] = None
    """How a learner of tables is fitted: weights of clicks, a pseudo-outcome, or nothing at all."""
    predicts_rates: ClassVar[bool] = True
    """Whether predictions are meant as conversion rates; otherwise they are scores, to rank by."""

    learner: Learner = field(default_factory=NeuMF)
    fields: tuple[str, ...] | None = None
    p_min: Clip = "auto"
    epochs: int = 200
    batch_size: int = 1024
    learning_rate: float = 1e-3
    weight_decay: float | Literal["auto"] = "auto"
    regularisation: float = 5.0
    patience: int | None = 10
    checks: int = 1
    validation_share: float = 0.1
    validation_by: str = "auto"
    selection: Literal["snips", "ce"] = "snips"
    members: int = 1
    recalibrate: str = NONE

    # What a method says of itself.

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """Compute the loss ``[R]`` from a batch of O and, where ``needs_full_space``, a batch of D."""
        raise NotImplementedError

    def networks(self) -> Mapping[str, tuple[str, ...]]:
        """Return networks by name, with the towers that share their embeddings; ``"prediction"`` predicts."""
        return {"prediction": ("prediction",)}

    def steps(self) -> tuple[Step, ...]:
        """Return the steps of each batch, in turn; by default one of :meth:`loss` for all networks."""
        return (Step(self.name, self.loss, tuple(self.networks())),)

    def before_epoch(self, setting: Setting) -> None:
        """Find what the steps of an epoch read; without gradient and dropout."""

    def plan(self) -> Plan:
        """Return the passes of an epoch; by default one with :meth:`steps`."""
        draws = ClicksAndCells(getattr(self, "ratio", 1.0)) if self.needs_full_space else clicks
        return (Pass(draws, self.steps(), self.before_epoch),)

    def stages(self) -> tuple[Stage, ...]:
        """Return what is trained, in order."""
        return (Stage(self.plan()),)

    def finish(self, setting: Setting) -> None:
        """Learn or report what a method does when its training is over; subclasses extend it."""

    def own_propensity(self, setting: Setting, rows: Log) -> NDArray[np.float64]:
        """Return propensities ``[R, n]`` by a method's click tower."""
        raise NotImplementedError

    def learners(self) -> Mapping[str, Learner]:
        """Return learners by network, where they are not ``learner``."""
        return {}

    def learner_of(self, network: str) -> Learner:
        """Return what builds a network."""
        own = self.learners().get(network)
        return self.learner if own is None else own

    def learning_rates(self) -> Mapping[str, float]:
        """Return the learning rate by network, where it is not ``learning_rate``."""
        return {}

    def weight_decays(self) -> Mapping[str, float]:
        """Return the weight decay by network, where it is not ``weight_decay``."""
        return {}

    def learns_from(self) -> Mapping[str, Counted]:
        """Return what a network's loss is a likelihood of, where it is not clicks."""
        return {name: "population" for name, towers in self.networks().items() if "click" in towers}

    def decay_of(self, network: str, *, clicks: int, population: int) -> float:
        """Return the weight decay of a network: as given, or λ over the rows that its loss is a mean of."""
        decay = self.weight_decays().get(network, self.weight_decay)
        if decay != "auto":
            return float(decay)
        rows = population if self.learns_from().get(network) == "population" else clicks
        return self.regularisation / max(rows, 1)

    def untrained(
        self,
        schema: Schema,
        seeds: Sequence[int],
        device: torch.device | None = None,
        *,
        drawn: bool = True,
    ) -> dict[str, Network]:
        """Build networks of one replica per seed (``Replica.own``), which do not depend on each
        other; without a device they stay where they are made. ``drawn`` is as in
        ``Learner.build``."""
        schema = schema.select(self.fields)
        # What else a method learns, a learner of tables fits on the way.
        alone = isinstance(self.learner, TableLearner)
        made = {"prediction": ("prediction",)} if alone else self.networks()
        networks = {
            name: self.learner_of(name).build(
                schema, [stream(seed, name) for seed in seeds], towers, drawn=drawn
            )
            for name, towers in made.items()
        }
        return {name: each if device is None else each.to_device(device) for name, each in networks.items()}

    # What a learner of tables fits.

    def click_weight(self, setting: Setting, observed: Batch) -> Tensor:
        """Return the weight of each click ``[R, B]``; with a pseudo-outcome, in the imputer's fit."""
        return torch.ones_like(observed.conversion)

    def pseudo_propensity(self, observed: Batch) -> Tensor:
        """Return the p of a pseudo-outcome."""
        return observed.propensity

    def imputed_rate(self, setting: Setting) -> Tensor | None:
        """Return one imputed conversion rate for all rows ``[R]``; None where an imputer is fitted."""
        return None

    # Training.

    def fit(
        self,
        log: Log,
        *,
        propensity: Any = None,
        seeds: int | Sequence[int] = 1,
        validation: Log | None = None,
        device: str = "auto",
        progress: Progress = SILENT,
        label: str | None = None,
        calibrated: bool = True,
        start: Debiaser | str | Path | None = None,
    ) -> Self:
        """Train one conversion model (of ``members`` networks) per seed, all in one stacked loop.

        Parameters
        ----------
        log
            What to train on.
        propensity
            A fitted :class:`unskew.Propensity` (its seeds are paired with these), an array aligned with the
            log's rows or of shape [users, items], a column's name, or one number.
        seeds
            How many repetitions, or their seeds. Each has its own split, weights and batch order; the same
            seed gives the same ones to every method.
        validation
            A log to choose the epoch on instead of a share of O.
        label
            What the progress bar calls this training.
        calibrated
            False takes the raw scores of a :class:`unskew.Propensity`.
        start
            A fitted model, or its folder, to start from: users, items and values of features that it knows
            keep their rows, others have new ones, all other weights are taken over. Its seeds must be among
            the model's, and learner and fields the same. Where no epoch is better than what it started as,
            that is kept.
        """
        self._check()
        self._start(seeds, device)
        require_log(log)
        resolved = self._given_propensities(log, propensity, calibrated)
        job = self._job(log, validation, progress, label, start)
        self._keep(job, train_sets(self, job, [resolved])[0], resolved)
        warn_of_collapse(job.label, self.collapsed_, len(self.seeds_), self.members)
        return self

    def fit_many(
        self,
        log: Log,
        *,
        propensities: Mapping[str, Any],
        seeds: int | Sequence[int] = 1,
        validation: Log | None = None,
        device: str = "auto",
        progress: Progress = SILENT,
        label: str | None = None,
        start: Debiaser | str | Path | None = None,
        raw: Collection[str] = (),
    ) -> dict[str, Self]:
        """Train one model per set of propensities and seed, all in one stacked loop.

        Every set has the same splits, first weights and batch orders, so that what differs between two of
        them is due to the propensities. A model's replicas are those that :meth:`fit` would have trained, up
        to the rounding of sums: batches and dropout masks are the same. Training may amplify rounding, as it
        amplifies a learning rate that differs in its seventh digit (GPL with a NeuMF by some per cent of the
        predictions after ten epochs); so does another number of seeds in one :meth:`fit`.

        Parameters
        ----------
        propensities
            What :meth:`fit` takes as ``propensity``, by a key of your own.
        seeds, validation, device, progress, label, start
            As in :meth:`fit`.
        raw
            Keys of those whose raw scores are taken.

        Returns
        -------
        dict
            A fitted copy of this method for each key; this one stays as it was.
        """
        require(bool(propensities), "there are no propensities to fit with", "give at least one set")
        self._check()
        require_log(log)
        sets, resolved = {key: type(self)(**self.get_params(deep=False)) for key in propensities}, []
        for key, model in sets.items():
            model._start(seeds, device)
            resolved.append(model._given_propensities(log, propensities[key], key not in raw))
        first = next(iter(sets.values()))
        job = first._job(log, validation, progress, label, start)
        trained_sets = train_sets(first, job, resolved)
        for (key, model), trained, own in zip(sets.items(), trained_sets, resolved, strict=True):
            model.learner = first.learner
            model._keep(job, trained, own)
            warn_of_collapse(f"{job.label} ({key})", model.collapsed_, len(model.seeds_), model.members)
        return sets

    def check_start(
        self,
        start: Debiaser,
        log: Log,
        seeds: int | Sequence[int],
        *,
        called: str = "start",
        validation: Log | None = None,
    ) -> None:
        """Raise an error, which calls the model so, where :meth:`fit` could not start from it."""
        other = type(self)(**self.get_params(deep=False))
        other._start(seeds, "cpu")
        log = other._read_alone(log)
        warm = other._warm_start(start, log, called)
        other.learner = warm.learner(other, log.schema.select(other.fields))
        with torch.device("meta"):
            warm.check(other.untrained(log.schema, [other.replicas()[0].own]), other)
        if validation is None and other.validation_share:
            by = SplitBy.of(warm.asked(other.validation_by), log)
            if held_out := by.count(log, log.clicked, other.validation_share):
                warm.ends(other, log, warm.parts(other.replicas()), by, held_out)

    def _start(self, seeds: int | Sequence[int], device: str) -> None:
        self.seeds_ = as_seeds(seeds)
        self.device_ = resolve_device(device)
        self.clipping_: tuple[WeightDiagnostics, ...] | None = None

    def _given_propensities(self, log: Log, propensity: Any, calibrated: bool) -> GivenPropensities | None:
        """Return propensities where losses read them; None if none are given and the method needs none."""
        if log.known_propensity is not None:
            require_shown_alone(self)
            if propensity is None and self.needs_propensity:
                propensity = log.known_propensity
        if propensity is None:
            if self.needs_propensity:
                raise ParameterError(
                    f"{self.name} needs propensities",
                    remedy="give fit(…, propensity=) a fitted Propensity, an array or a column's name",
                )
            if getattr(self, "calibration", None) == "external":
                raise ParameterError(
                    f"{self.name} with calibration='external' needs propensities",
                    remedy="give fit(…, propensity=) a Propensity, an array or a column, or use 'in-loop'",
                )
            return None
        resolved = given_propensities(
            log,
            propensity,
            self.seeds_,
            self.p_min,
            calibrated=calibrated,
            everywhere=self.needs_propensity_everywhere,
            full_space=self.needs_full_space,
        )
        self.clipping_ = resolved.diagnostics
        return resolved.of_members(self.members)

    @property
    def reads_features(self) -> bool:
        """True where one of its networks reads more than the two ids."""
        return any(self.learner_of(name).reads_features for name in self.networks())

    def _job(
        self,
        log: Log,
        validation: Log | None,
        progress: Progress,
        label: str | None,
        start: Debiaser | str | Path | None,
    ) -> Job:
        log = self._read_alone(log)
        if any("click" in towers for towers in self.networks().values()):
            require_both_clicks(log.n_clicks, log.population_size, log.space)
        warm = None
        if start is not None:
            warm = self._warm_start(start, log)
            self.learner = warm.learner(self, log.schema.select(self.fields))
        replicas = self.replicas()
        if warm is not None:
            replicas = warm.parts(replicas)
        share = self.validation_share if validation is None else 0.0
        by = split_that_decides(
            self.validation_by if warm is None else warm.asked(self.validation_by),
            log,
            share,
            replicas,
            selects=self.patience is not None and self.epochs > 1,
        )
        held_out, ends = by.count(log, log.clicked, share), dict[int, Ends]()
        if log.conversion is not None and (log.n_clicks - held_out < 1 or (share > 0 and held_out < 1)):
            raise DataError(
                f"{log.n_clicks} clicked rows are too few to split ({held_out} would be held out)",
                remedy="give more data, or hold out others",
            )
        if warm is not None and held_out:
            held_out, ends = warm.ends(self, log, replicas, by, held_out)
        name = label or self.name
        return Job(log, replicas, self.device_, validation, progress, name, warm, by, held_out, ends)

    def _warm_start(self, start: Debiaser | str | Path, log: Log, called: str = "start") -> WarmStart:
        from unskew.debias.storage import load_model

        require(
            not isinstance(self.learner, TableLearner),
            f"only networks start from a fitted model, and {self.learner.name} is none",
            "leave start out",
        )
        if isinstance(start, str | Path):
            return WarmStart.of(load_model(start, device=str(self.device_)), self, log, str(start))
        start._require_fitted("networks_")
        return WarmStart.of(start, self, log, called)

    def replicas(self) -> tuple[Replica, ...]:
        """Return all members of all seeds, in the order of the networks' replicas."""
        return replicas_of(self.seeds_, self.members)

    def _read_alone(self, log: Log) -> Log:
        """Return the log with what its networks read."""
        if isinstance(self.learner, TableLearner):
            return read_by_tables(log, self.fields)
        if self.reads_features:
            return log.reading(self.fields)
        return log if log.features is None else log.with_features(None)

    def _keep(self, job: Job, trained: Stack, resolved: GivenPropensities | None) -> None:
        """Keep what training left, finish, and recalibrate."""
        log = job.log
        self.users_, self.items_ = log.users, log.items
        self.encoders_: Encoders | None = log.encoders
        self.networks_ = trained.networks
        self.start_: WarmStart | None = job.start
        self.recalibration_: Recalibration | None = None
        self.beside_: tuple[Debiaser, ...] = ()
        self.history_ = trained.learnt.history
        self.validation_loss_ = trained.learnt.validation_loss
        self.split_: Split = job.split(self.seeds_, members=1 + max(each.part for each in job.replicas))
        self.collapsed_: tuple[Collapsed, ...] = trained.collapsed(self.replicas())
        self.finish(trained.setting)
        self._recalibrate(job, resolved, trained.setting)

    def _recalibrate(self, job: Job, resolved: GivenPropensities | None, setting: Setting) -> None:
        """Recalibrate as ``recalibrate`` says, on the clicks that chose the epoch."""
        if self.recalibrate == NONE:
            return
        if job.validation is not None:
            self.recalibrate_on(job.validation, of="rows of validation")
            return
        log, rows = job.log, self._held_out_rows(job.log)
        if resolved is not None:
            own = resolved.clicked[list(resolved.lines[:: self.members])]
            p = np.take_along_axis(own, np.searchsorted(log.clicked, rows), axis=1)
        elif self.has_tower:
            lines = [fitted.by_seed(self, self.own_propensity(setting, log.take(line))) for line in rows]
            p = np.stack([of_seeds[seed].mean(axis=0) for seed, of_seeds in enumerate(lines)])
        else:
            p = np.ones(rows.shape)
        self.recalibration_ = fitted.map_of(log, rows, self.predict_held_out(log), p, self.recalibrate)

    def _held_out_rows(self, log: Log) -> NDArray[np.int64]:
        """Return :meth:`validation_rows`, all lines of a seed in one: ``[seeds, n]``."""
        return self.validation_rows(log).reshape(len(self.seeds_), -1)

    def predict_held_out(self, log: Log) -> NDArray[np.float64]:
        """Predict the clicks of the training log that chose an epoch ``[seeds, n]``, by what held them out.

        They are those of :meth:`validation_rows`, all lines of a seed in one; before any recalibration.
        """
        lines = self.validation_rows(log)
        rows = self.reader().of_log(log.take(lines.ravel())).rows
        return fitted.of_own_lines(self.without_recalibration(), rows, len(lines))

    def without_recalibration(self) -> Self:
        """Return the same model as it was before it was recalibrated."""
        raw = copy(self)
        raw.recalibration_ = None
        return raw

    def recalibrate_on(
        self, log: Log, *, propensity: Any = None, by: str = "auto", of: str = "clicks of a random sample"
    ) -> Self:
        """Mend the level of a fitted model by clicks that trained nothing; the order stays.

        Parameters
        ----------
        log
            Without ``propensity``: a log whose pairs were shown at random, or stand for those to predict; all
            of its clicked rows count, alike. With ``propensity``: the log of training, of which the held-out
            clicks count, by 1/p.
        propensity
            As in :meth:`fit`; also for a method that trained without, such as the naive one.
        by
            What ``recalibrate`` may be.
        of
            What the rows are, in words.
        """
        self._require_fitted("networks_")
        require_log(log)
        require_kind(by)
        if propensity is None:
            rows = np.tile(log.clicked, (len(self.seeds_), 1))
            predicted = self.without_recalibration().predict_each(log.take(log.clicked))
            self.recalibration_ = fitted.map_of(log, rows, predicted, np.ones(rows.shape), by, of)
            return self
        rows = self._held_out_rows(log)
        resolved = given_propensities(log, propensity, self.seeds_, self.p_min).clicked
        p = np.take_along_axis(resolved, np.searchsorted(log.clicked, rows), axis=1)
        self.recalibration_ = fitted.map_of(log, rows, self.predict_held_out(log), p, by)
        return self

    def _check(self) -> None:
        require_types(self)
        if not isinstance(self.learner, TableLearner):
            require_torch(f"the network {self.learner.name}")
        else:
            self.learner.check()
            require(
                self.with_tables is not None,
                f"{self.name} trains networks in turn or together, and {self.learner.name} is none",
                "use a network such as NeuMF(), or naive, ips, snips, uips, eib, dr, dr-jl or mrdr",
            )
        require_kind(self.recalibrate)
        require(
            self.fields is None or self.reads_features,
            f"fields are chosen, and {self.learner.name} reads the ids alone",
            "use a learner that reads features, such as DCN(), or leave fields out",
        )
        for kind in type(self).__mro__:
            for name, allowed in vars(kind).get("ranges", {}).items():
                require_in(allowed, **{name: getattr(self, name)})
        require_schedule(
            self.learning_rate, 0.0 if self.weight_decay == "auto" else self.weight_decay, self.patience
        )
        require_clip(self.p_min)
        if self.validation_by.partition(":")[0] != "auto":
            SplitBy.parse(self.validation_by)

    # What a trained one can do.

    def predict(self, log: Any, *, unseen: Unseen | None = None) -> NDArray[np.float64]:
        """Predict conversion probabilities ``[n]`` of rows of a log or a data frame, averaged over seeds."""
        return np.asarray(self.predict_each(log, unseen=unseen).mean(axis=0))

    def predict_each(self, log: Any, *, unseen: Unseen | None = None) -> NDArray[np.float64]:
        """Predict conversion probabilities ``[seeds, n]`` of the rows of a log.

        Parameters
        ----------
        log
            A log, or a data frame whose columns of ids are called as in training
            (:meth:`predict_frame_each` takes others).
        unseen
            What becomes of users and items that were not there in training: ``"error"``, ``"nan"``,
            ``"other"`` (what the features tell of somebody who is not known) or ``"average"`` (the mean over
            known ones). None is ``"other"`` for a model that reads features, and ``"error"`` for one that
            reads ids alone, which has no ``"other"``.
        """
        return self._predictions(log, unseen, self.predict_rows)

    def _predictions(
        self, log: Any, unseen: Unseen | None, predict: Callable[[Rows], NDArray[np.float64]]
    ) -> NDArray[np.float64]:
        """Return what one of the ways to predict rows says of those of a log, or of a data frame."""
        reader = self.reader()
        policy = reader.policy(unseen)
        parts = [reader.predictions(asked, policy, predict) for asked in reader.parts_of(log, unseen)]
        return np.concatenate(parts, axis=-1)

    def predict_pairs_each(
        self, user: Any, item: Any, *, unseen: Unseen | None = None
    ) -> NDArray[np.float64]:
        """Predict conversion probabilities ``[seeds, n]`` of pairs; ``unseen`` as in :meth:`predict_each`.

        Features are those that the users and items had in training.
        """
        reader = self.reader()
        asked = reader.of_pairs(user, item, unseen)
        return reader.predictions(asked, reader.policy(unseen), self.predict_rows)

    def predict_frame_each(
        self, frame: Any, *, user: str | None = None, item: str | None = None, unseen: Unseen | None = None
    ) -> NDArray[np.float64]:
        """Predict conversion probabilities ``[seeds, n]`` of the rows of a data frame, by its features too.

        Parameters
        ----------
        user, item
            Columns of ids; by default those of training. Other columns are not looked at.
        unseen
            As in :meth:`predict_each`.
        """
        reader = self.reader()
        asked = reader.of_frame(frame, user, item, unseen)
        return reader.predictions(asked, reader.policy(unseen), self.predict_rows)

    def predict_members_each(self, log: Any, *, unseen: Unseen | None = None) -> NDArray[np.float64]:
        """Predict conversion probabilities ``[seeds, members, n]`` by each member of the ensembles.

        Parameters
        ----------
        log, unseen
            As in :meth:`predict_each`.
        """
        return fitted.by_seed(self, self._predictions(log, unseen, self.predict_replicas_rows))

    def predict_interval(
        self, log: Any, *, level: float = 0.9, unseen: Unseen | None = None
    ) -> NDArray[np.float64]:
        r"""Return the limits ``[2, n]`` of another member's prediction, with probability ``level``.

        .. math:: \sigma\left(\bar z \pm t_{K-1} \, s \, \sqrt{1 + 1/K}\right)

        z̄ and s are the mean and the standard deviation of the logits of all K members of all seeds. They tell
        how far the data leave a prediction open, for whoever ranks under risk: a pair that members agree on
        has a narrow interval. What all members miss alike, such as hidden confounding, is not in it.

        Parameters
        ----------
        log, unseen
            As in :meth:`predict_each`.
        """
        require_share("level", level, "0.9")
        return interval(self._disagreeing(log, unseen), level)

    def spread(self, log: Any, *, unseen: Unseen | None = None) -> NDArray[np.float64]:
        """Return the standard deviation ``[n]`` of the predictions of all members of all seeds.

        Parameters
        ----------
        log, unseen
            As in :meth:`predict_each`.
        """
        return spread(self._disagreeing(log, unseen))

    def _disagreeing(self, log: Any, unseen: Unseen | None) -> NDArray[np.float64]:
        """Return predictions ``[K, n]`` of all members of all seeds, of which there must be two."""
        members = np.concatenate(self.predict_members_each(log, unseen=unseen))
        require_several(len(members), self.name)
        return members

    def reader(self) -> Reader:
        """Return what turns logs, pairs and frames into the rows that the networks read."""
        self._require_fitted("networks_")
        return Reader(self.users_, self.items_, self.encoders_, self.device_)

    def validation_rows(self, log: Log) -> NDArray[np.int64]:
        """Return numbers ``[lines, n]`` of a log's rows that were held out to choose an epoch.

        A line for each seed, or for each of its members where these hold out clicks of their own, as members
        that are trained apart do in memory: :meth:`predict_lines_each` gives their predictions.

        Which clicks those are follows from ids, times and seeds: the log may be the one of training, in any
        order, read again, or a part of it.
        """
        self._require_fitted("networks_")
        return self.split_.rows(log, self.seeds_)

    def predict_lines_each(self, log: Any, *, unseen: Unseen | None = None) -> NDArray[np.float64]:
        """Predict conversion probabilities ``[lines, n]`` of the rows of a log by what held out each line of
        :meth:`validation_rows`: the ensemble of a seed, or one member of it.

        Parameters
        ----------
        log, unseen
            As in :meth:`predict_each`.
        """
        return self._predictions(log, unseen, self.predict_lines)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write a folder of plain files that :func:`unskew.load_model` reads."""
        self._require_fitted("networks_")
        from unskew.debias.storage import save_model

        save_model(self, folder, overwrite=overwrite)

    def predict_rows(self, rows: Rows) -> NDArray[np.float64]:
        """Predict conversion probabilities ``[seeds, n]`` of rows ``[1, n]`` as :meth:`reader` gives them."""
        return fitted.of_seeds(self, rows)

    def predict_lines(self, rows: Rows) -> NDArray[np.float64]:
        """Return the same by line, as :meth:`predict_lines_each`; rows are ``[1, n]``, or ``[lines, n]``."""
        return fitted.of_lines(self, rows)

    def predict_replicas_rows(self, rows: Rows) -> NDArray[np.float64]:
        """Return the same ``[seeds · members, n]`` by each member, also of models beside it."""
        return fitted.of_replicas(self, rows)

    def _columns(self) -> tuple[str, ...]:
        """Return the features that a fitted model reads."""
        return () if self.encoders_ is None else tuple(each.feature.name for each in self.encoders_.encoders)

    def with_beside(self, *others: Debiaser) -> Self:
        """Return this model with others of the same log beside it: the mean logit of their ensembles.

        Parameters
        ----------
        others
            Each counts as much as this one, as it was before any recalibration.
        """
        self._require_fitted("networks_")
        for other in others:
            other._require_fitted("networks_")
            require(
                self.seeds_ == other.seeds_
                and self._columns() == other._columns()
                and self.split_ == other.split_
                and self.users_.same_as(other.users_)
                and self.items_.same_as(other.items_),
                f"{self.name} and {other.name} were not trained with the same seeds, ids, features and"
                " held-out clicks",
                "fit both alike: seeds, members, validation_share and validation_by too",
            )
        together: tuple[Debiaser, ...] = (self, *others)
        for model in together:
            problem = f"{model.name} has a model beside it already"
            require(not model.beside_, problem, "give models as fit left them")
        whole = self.without_recalibration()
        whole.beside_ = tuple(other.without_recalibration() for other in others)
        return whole


def require_shown_alone(method: Debiaser) -> None:
    """Raise for a method that looks at pairs which a log of shown rows does not list."""
    if method.needs_full_space or method.needs_propensity_everywhere:
        raise ParameterError(
            f"{method.name} looks at pairs that were not shown, which a log with known propensities does not"
            " list",
            remedy="use naive, ips or snips",
        )
