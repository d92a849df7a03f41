"""``--method auto``: methods × learners are trained, and the mean logit of those that nothing rules out is
shipped.

What may rule one out: a learner of features, the held-out log-loss of clicks; anything, a random sample.
Never the test set.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import CollapseWarning, DataError, TrainingError
from unskew.base.progress import SILENT, Progress
from unskew.calibration.recalibration import FOLDS
from unskew.data import Log
from unskew.data.datasets import Dataset
from unskew.debias import METHODS, Debiaser
from unskew.learners import MF, Learner, Linear, NeuMF, TableLearner, Trees, make_learner
from unskew.metrics.proper import nll
from unskew.run.decision import BASELINE, Decision, RandomSample, decide, mean_paired
from unskew.run.models import method_of
from unskew.run.parameters import changed
from unskew.run.propensities import RunPropensities
from unskew.run.protocol import Protocol
from unskew.training.fitted import combined
from unskew.training.memory import give_back

if TYPE_CHECKING:
    from unskew.run.config import Config

Floats = NDArray[np.float64]

OF_NETWORKS = (BASELINE, "esmm", "escm2-ips", "dcmt")
"""Methods of the hedge on ratings: one without weights, and three that learn propensities of their own."""

OF_KNOWN = (BASELINE, "ips", "snips")
"""Methods that look at no pair which a log with known propensities does not list."""

LEAST_CLICK_AUC = 0.525
"""Held-out AUC of the propensity from which a hedge is shipped. Where clicks follow nothing there is nothing
to correct, and methods with a click tower only lose: at .497 they did, at .547 they were ahead again."""


@dataclass(frozen=True)
class Candidate:
    """A method with a learner."""

    method: str
    learner: str
    """The name of the learner in tables."""

    @property
    def name(self) -> str:
        """The name of both in tables."""
        return f"{self.method}, {self.learner}"


@dataclass(frozen=True)
class TriedCandidate:
    """One training: its members and seconds, how far it was ahead of the naive model on the sample (None
    without one) and the standard error, and why it is not shipped; empty where it is."""

    name: str
    members: int
    seconds: float
    advantage: float | None = None
    standard_error: float | None = None
    left_out: str = ""


@dataclass(frozen=True, eq=False)
class Searched:
    """The result of a search: the naive model, the one that is shipped, the decision, and every training.

    Attributes
    ----------
    models
        Every candidate that was trained, unless its learner was left out.
    losses
        Mean held-out log-loss of clicks, by learners; empty where these were not chosen by it.
    """

    naive: Debiaser
    shipped: Debiaser
    models: Mapping[str, Debiaser]
    decision: Decision
    tried: tuple[TriedCandidate, ...]
    losses: Mapping[str, float] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for ``metrics.json``."""
        tried = [asdict(each) for each in self.tried]
        return {**self.decision.to_dict(), "tried": tried, "learners": dict(self.losses)}


def learners_of(config: Config, log: Log) -> dict[str, Learner]:
    """Return the learners of a search by name: the one that was asked for, or some that differ."""
    learners: dict[str, Learner] = {"linear": Linear(), "trees": Trees()}
    if config.model.learner is not None:
        learners = {config.learner: make_learner(config.learner)}
    elif of_ids(config, log):
        # Deeper networks lost the level of a sparse log with a direct loss of clicks (docs/explanation).
        learners = {"neumf": NeuMF(dim=16, layers=(32, 16)), "mf": MF(), **learners}
    return {name: changed(each, "learner", config.model.parameters) for name, each in learners.items()}


def of_ids(config: Config, log: Log) -> bool:
    """Return whether candidates read ids alone: ratings for which no features were asked."""
    return log.space == "matrix" and not config.features.asked


def candidates_of(log: Log, learners: Mapping[str, Learner]) -> list[Candidate]:
    """Return methods × learners, the naive ones first.

    With learners of tables weights and pseudo-outcomes lost to the naive model wherever they were tried
    (``docs/explanation/choosing.md``).
    """
    known = log.known_propensity is not None
    networks = [name for name, learner in learners.items() if not isinstance(learner, TableLearner)]
    methods = OF_KNOWN if known else OF_NETWORKS
    others = learners if known else networks
    naive = [Candidate(BASELINE, name) for name in learners]
    return naive + [Candidate(name, learner) for name in methods[1:] for learner in others]


class Search:
    """The trainings of a search.

    Parameters
    ----------
    propensities
        What methods with weights are trained with; how well it predicts clicks says whether there is anything
        to correct.
    """

    def __init__(
        self,
        config: Config,
        protocol: Protocol,
        dataset: Dataset,
        propensities: RunPropensities,
        progress: Progress = SILENT,
    ) -> None:
        self.config, self.protocol, self.dataset, self.progress = config, protocol, dataset, progress
        self.propensities = propensities
        self.learners = learners_of(config, dataset.train)
        self.tried: list[TriedCandidate] = []

    def run(self) -> Searched:
        """Train the naive models, leave learners out, train the other methods, and decide."""
        log, unbiased = self.dataset.train, self.dataset.unbiased
        rows = None if unbiased is None else self._known(unbiased)
        candidates = candidates_of(log, self.learners)
        naive = self._trained([each for each in candidates if each.method == BASELINE])
        losses: dict[str, float] = {}
        if len(naive) > 1 and not of_ids(self.config, log):
            losses = self._losses(naive)
            chosen = min(losses, key=lambda names: losses[names]).split(" + ")
            worse = {name for name in naive if name.partition(", ")[2] not in chosen}
            self._leave_out(worse, "another learner predicts held-out clicks better")
            naive = {name: model for name, model in naive.items() if name not in worse}
        others = [each for each in candidates if each.method != BASELINE and self._can(each.method)]
        models = naive | (self._trained(others) if self._clicks_follow_something() else {})
        sample = None
        if unbiased is not None and rows is not None:
            predictions = {
                name: model.without_recalibration().predict_each(rows) for name, model in models.items()
            }
            sample = RandomSample(rows.user, unbiased.known_conversion().astype(np.float64), predictions)
            for at, tried in enumerate(self.tried):
                if tried.name in models:
                    ahead = mean_paired(sample, (tried.name,), tuple(naive))
                    self.tried[at] = replace(
                        tried, advantage=ahead.advantage, standard_error=ahead.standard_error
                    )
        decision = decide(sample, tuple(models), tuple(naive))
        self._leave_out(set(models) - set(decision.shipped), "the sample is surer without it")
        shipped = mean_of([models[name] for name in decision.shipped])
        return Searched(mean_of(list(naive.values())), shipped, models, decision, tuple(self.tried), losses)

    def _can(self, name: str) -> bool:
        """Return whether there are the propensities that a method needs."""
        method, propensities = METHODS[name], self.propensities
        if method.needs_propensity_everywhere:
            return propensities.search is not None and propensities.search is propensities.model
        known = self.dataset.train.known_propensity is not None
        return known or propensities.search is not None or not method.needs_propensity

    def _clicks_follow_something(self) -> bool:
        """Return whether held-out clicks can be predicted, as far as that was measured."""
        judged = self.propensities.figures.get("propensity", {}).get("calibrated") or {}
        area = judged.get("auc")
        return area is None or not area < LEAST_CLICK_AUC

    def _known(self, unbiased: Log) -> Log:
        """Return the rows of a random sample whose outcomes are known; raise where it can judge nothing."""
        log, rows = self.dataset.train, unbiased.take(unbiased.clicked)
        outcome = unbiased.known_conversion()
        if len(outcome) < FOLDS or outcome.min() == outcome.max():
            raise DataError(
                f"the random sample has {len(outcome):,} known pairs, not {FOLDS} or more with both converted"
                " and unconverted ones",
                remedy="give a larger random sample",
            )
        # Each row of impressions is an event of its own, and a pair may be shown again.
        shared = int(np.isin(log.cell_of(rows), log.cell[log.clicked]).sum()) if log.space == "matrix" else 0
        if shared:
            raise DataError(
                f"{shared:,} pairs of the random sample were clicked in the log",
                remedy="leave them out of the sample: a model that learned an outcome must not be judged"
                " by it",
            )
        if not any(each.reads_features for each in self.learners.values()):
            log.users.recode(rows.user, rows.users)
            log.items.recode(rows.item, rows.items)
        return rows

    def _trained(self, candidates: Sequence[Candidate]) -> dict[str, Debiaser]:
        """Train candidates one after the other; one that diverges is out of the search."""
        config, log = self.config, self.dataset.train
        models: dict[str, Debiaser] = {}
        for candidate in candidates:
            learner = self.learners[candidate.learner]
            method = method_of(config, self.protocol, candidate.method, log.density, learner)
            if isinstance(learner, TableLearner) and of_ids(config, log):
                method.fields = ()
            # A method with a click tower of its own uses it, unless propensities were asked for.
            asked = config.propensity.kind != "auto" and method.has_tower
            start, left_out = time.perf_counter(), ""
            try:
                with warnings.catch_warnings():
                    # A network that learned nothing moves the level of a mean and no order.
                    warnings.simplefilter("ignore", CollapseWarning)
                    models[candidate.name] = method.fit(
                        log,
                        propensity=self.propensities.search if method.needs_propensity or asked else None,
                        seeds=config.seeds,
                        validation=self.protocol.validation(self.dataset),
                        device=config.compute.device,
                        progress=self.progress,
                        label=candidate.name,
                    )
            except TrainingError as error:
                left_out = str(error)
                if candidate.method == BASELINE and candidate is candidates[-1] and not models:
                    raise
            seconds = time.perf_counter() - start
            self.tried.append(TriedCandidate(candidate.name, method.members, seconds, left_out=left_out))
            give_back()
        return models

    def _losses(self, naive: Mapping[str, Debiaser]) -> dict[str, float]:
        """Return the held-out log-loss of clicks of each learner, and of the mean logits of several."""
        log, validation = self.dataset.train, self.protocol.validation(self.dataset)
        first = next(iter(naive.values()))
        if validation is not None:
            rows = validation.take(validation.clicked)
            outcome = validation.known_conversion()[None]
            predicted = {name: model.predict_each(rows) for name, model in naive.items()}
        elif first.split_.held_out:
            assert log.conversion is not None
            outcome = log.conversion[first.validation_rows(log).reshape(len(first.seeds_), -1)]
            predicted = {name: model.predict_held_out(log) for name, model in naive.items()}
        else:
            return {" + ".join(self.learners): 0.0}
        losses = {}
        for size in range(1, len(naive) + 1):
            for names in combinations(naive, size):
                score = combined(np.stack([predicted[name] for name in names], axis=1))
                label = " + ".join(name.partition(", ")[2] for name in names)
                both = zip(score, np.broadcast_to(outcome, score.shape), strict=True)
                losses[label] = float(np.mean([nll(p, r) for p, r in both]))
        return losses

    def _leave_out(self, names: set[str], why: str) -> None:
        """Note why some are not shipped."""
        self.tried = [
            replace(each, left_out=why) if each.name in names and not each.left_out else each
            for each in self.tried
        ]


def mean_of(models: Sequence[Debiaser]) -> Debiaser:
    """Return the mean logit of models as one model, whose first predicts rates."""
    first, *others = sorted(models, key=lambda model: not model.predicts_rates)
    return first.with_beside(*others) if others else first


def require_apart(dataset: Dataset) -> None:
    """Raise for a sample that shares pairs with the test set, which it must not see."""
    if dataset.unbiased is None or dataset.test is None or dataset.train.space != "matrix":
        return
    sample, test = dataset.unbiased, dataset.test
    shared = int(np.isin(sample.cell, sample.cell_of(test)).sum())
    if shared:
        raise DataError(
            f"{shared:,} pairs of the unbiased sample are in the test set too",
            remedy="leave them out of one of both: what chooses must not judge",
        )
