"""``us.Auto``: candidates are trained as ensembles, and a random sample decides; the baseline otherwise."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError, ParameterError, TrainingError
from unskew.base.estimator import Estimator, require
from unskew.base.plain_text import listed
from unskew.base.progress import SILENT, Progress
from unskew.calibration.recalibration import FOLDS
from unskew.data import Log, require_log
from unskew.debias import METHODS, Debiaser
from unskew.learners import Learner, NeuMF
from unskew.metrics.user_bootstrap import require_paired
from unskew.offpolicy import compare
from unskew.offpolicy.decision import BASELINE, ClickEvidence, Decision, RandomSample, decide, mean_paired
from unskew.training.memory import give_back

KEPT_SHARE = 0.5
"""Of the candidates, those that a rung leaves."""
LEAST_KEPT = 3
"""But at least so many, with which biased clicks can still be judged."""
RESAMPLES = 400
"""Of the users, for what biased clicks say."""

CANDIDATES = ("ips", "mrdr", "dr-jl", "esmm", "escm2-ips", "ddpo", "dcmt")
"""One to three of each family: weights, doubly robust, all of D, and order alone. By the table of synthetic
worlds in the page of defaults, and DCMT by twins of Coat (the page on choosing); no real test set was looked
at. UIPS adds nothing to IPS: like ACDR and DCE-DR it is in the table of ``benchmarks/battery.py`` alone."""

DENSE = 0.05
"""Share of clicked pairs from which a log counts as dense."""

OTHER_REGULARISATION = {"dense": 15.0, "sparse": 1.0}
"""λ beside the default of 5: more where rows repeat much of each other, less where tables are wide."""


@dataclass(frozen=True)
class Candidate:
    """A method by name with parameters of its own; ``name`` is its name in tables."""

    name: str
    method: str
    params: Mapping[str, Any]

    def make(self, **shared: Any) -> Debiaser:
        """Return the debiaser, untrained; ``shared`` parameters that it does not have are left out."""
        given = {**shared, **self.params}
        return METHODS[self.method](**{name: given[name] for name in given if name in self.takes})

    @property
    def takes(self) -> frozenset[str]:
        """The parameters that its method has."""
        return frozenset(each.name for each in fields(METHODS[self.method]))


def candidates_of(
    log: Log, methods: Sequence[str] | None = None, *, grid: bool = True
) -> tuple[Candidate, ...]:
    """Return the baseline, then every method; with ``grid`` each also with another regularisation.

    Methods that look at pairs which a log with known propensities does not list are left out there.

    Examples
    --------
    >>> from unskew.data.datasets import load
    >>> [each.name for each in candidates_of(load("synthetic").train, ["ips"])]
    ['naive', 'naive λ=15', 'ips', 'ips λ=15']
    """
    names = dict.fromkeys((BASELINE, *(CANDIDATES if methods is None else methods)))
    METHODS.require(*names)
    if log.known_propensity is not None and methods is None:
        names = dict.fromkeys((BASELINE, "ips", "snips"))
    other = OTHER_REGULARISATION["dense" if log.density >= DENSE else "sparse"]
    tried = [("", {}), (f" λ={other:g}", {"regularisation": other})] if grid else [("", {})]
    return tuple(Candidate(name + shown, name, params) for name in names for shown, params in tried)


Make = Callable[[Candidate], Debiaser]


@dataclass(frozen=True)
class TriedCandidate:
    """One training of a candidate: its rung (0 first), its members, seconds, and how far it was ahead.

    Attributes
    ----------
    advantage
        Over the baseline of the same rung, on the sample; None without one, and for the baseline.
    left_out
        Why it went no further; empty where it did, or where it was in the last rung.
    """

    name: str
    rung: int
    members: int
    seconds: float
    advantage: float | None
    left_out: str


@dataclass(frozen=True, eq=False)
class Searched:
    """What a search left: the models of its last rung, the decision, and every training."""

    models: Mapping[str, Debiaser]
    decision: Decision
    tried: tuple[TriedCandidate, ...]

    @property
    def chosen(self) -> Debiaser:
        """The model that is shipped: the chosen one, or several in one, first one that predicts rates."""
        shipped = (self.models[name] for name in self.decision.shipped)
        first, *others = sorted(shipped, key=lambda model: not model.predicts_rates)
        return first.with_beside(*others) if others else first

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for ``metrics.json``."""
        return {**self.decision.to_dict(), "tried": [asdict(each) for each in self.tried]}


def search(
    make: Make,
    candidates: Sequence[Candidate],
    log: Log,
    *,
    propensity: Any,
    unbiased: Log | None,
    members: int,
    criterion: str = "auc",
    halving: bool = True,
    seeds: int | Sequence[int] = 1,
    validation: Log | None = None,
    device: str = "auto",
    progress: Progress = SILENT,
) -> Searched:
    """Train candidates, halve them by the sample, train the rest as ensembles, and decide.

    Parameters
    ----------
    make
        From a candidate to its method, untrained.
    log
        All candidates are trained on it, one after the other.
    halving
        Train all candidates with one member first, and only the better half as ensembles. Without a sample
        nothing can be halved.
    """
    # What cannot be judged is said before hours of training, not after.
    require_paired(criterion)
    if unbiased is not None:
        rows, _ = _known(unbiased)
        # Each row of impressions is an event of its own, and a pair may be shown again.
        shared = int(np.isin(log.cell_of(rows), log.cell[log.clicked]).sum()) if log.space == "matrix" else 0
        if shared:
            raise DataError(
                f"{shared:,} pairs of the random sample were clicked in the log",
                remedy="leave them out of the sample: a model that learned an outcome must not be judged"
                " by it",
            )
        if not make(candidates[0]).reads_features:
            log.users.recode(rows.user, rows.users)
            log.items.recode(rows.item, rows.items)
    if criterion == "nll":
        candidates = [each for each in candidates if make(each).predicts_rates]
    tried: list[TriedCandidate] = []

    def trained(number: int, members: int) -> Iterator[tuple[str, Debiaser]]:
        """Yield candidates that could be trained, by name, one after the other; record all."""
        for place, candidate in enumerate(candidates, 1):
            method = make(candidate).set_params(members=members)
            start = time.perf_counter()
            left_out = ""
            try:
                method.fit(
                    log,
                    propensity=propensity if method.needs_propensity else None,
                    seeds=seeds,
                    validation=validation,
                    device=device,
                    progress=progress,
                    label=f"{candidate.name} ({place} of {len(candidates)})",
                )
            except TrainingError as error:
                # One that diverges is out of the search; the others are not.
                if candidate.name == BASELINE:
                    raise
                left_out = str(error)
            seconds = time.perf_counter() - start
            tried.append(TriedCandidate(candidate.name, number, members, seconds, None, left_out))
            give_back()
            if not left_out:
                yield candidate.name, method

    if halving and unbiased is not None and halves(len(candidates), members):
        # The predictions of these networks are kept, and not the networks.
        first = sample_of(trained(0, 1), unbiased)
        candidates = _better_half(candidates, first, criterion, tried)
    rung = 1 if tried else 0
    models = dict(trained(rung, members))
    sample = None if unbiased is None else sample_of(models.items(), unbiased)
    weights = log.known_propensity if propensity is None else propensity
    evidence = evidence_by_clicks(models, log, weights, criterion) if validation is None else {}
    decision = decide(sample, evidence, candidates=tuple(models), criterion=criterion)
    if sample is not None:
        ahead = {each.name: each.advantage for each in decision.judged}
        _record(tried, rung, ahead, {})
    return Searched(models, decision, tuple(tried))


def halves(candidates: int, members: int) -> bool:
    """Return whether so many candidates are worth a round with one member, judged by a sample."""
    return members > 1 and candidates > LEAST_KEPT + 1


def kept_of(others: int) -> int:
    """Return how many candidates beside the baseline a rung leaves."""
    return max(LEAST_KEPT, round(KEPT_SHARE * others))


def sample_of(models: Iterable[tuple[str, Debiaser]], unbiased: Log) -> RandomSample:
    """Return the known rows of a random sample, with the predictions of every model.

    As they were before any recalibration: their mean is one of these, and the sample sets the level of what
    is shipped.
    """
    rows, outcome = _known(unbiased)
    predictions = {name: model.without_recalibration().predict_each(rows) for name, model in models}
    return RandomSample(rows.user, outcome, predictions)


def _known(unbiased: Log) -> tuple[Log, NDArray[np.float64]]:
    """Return the rows of a random sample whose outcomes are known, and these outcomes."""
    require_log(unbiased, "the unbiased sample", "give a Log of pairs with their conversions")
    rows, outcome = unbiased.take(unbiased.clicked), unbiased.known_conversion().astype(np.float64)
    if len(outcome) < FOLDS or outcome.min() == outcome.max():
        raise DataError(
            f"the random sample has {len(outcome):,} known pairs, not {FOLDS} or more with both converted and"
            " unconverted ones",
            remedy="give a larger random sample",
        )
    return rows, outcome


def evidence_by_clicks(
    models: Mapping[str, Any],
    log: Log,
    propensity: Any,
    criterion: str,
    *,
    held_out: Any = "validation",
) -> dict[str, ClickEvidence]:
    """Compare each candidate with the baseline on held-out biased clicks, with the range over Γ.

    Nothing where they cannot be asked: there is one model, no propensity, or what was held out has not both
    outcomes.
    """
    if len(models) < 2 or propensity is None:
        return {}
    if isinstance(held_out, str):
        # Each seed (or member) must have held out converted and unconverted clicks, the same for all models.
        if any(not model.split_.held_out for model in models.values()):
            return {}
        assert log.conversion is not None
        outcome = log.conversion[models[BASELINE].validation_rows(log)]
        if not (outcome.min(axis=1) < outcome.max(axis=1)).all():
            return {}
    found = compare(
        models,
        log,
        propensity=propensity,
        metrics=[criterion],
        baseline=BASELINE,
        held_out=held_out,
        resamples=RESAMPLES,
    )
    evidence = {}
    for each in found.differences:
        name, sign = (each.better, 1.0) if each.worse == BASELINE else (each.worse, -1.0)
        ends = sorted((sign * each.range_low, sign * each.range_high))
        evidence[name] = ClickEvidence(sign * each.advantage, each.standard_error, ends[0], ends[1])
    return evidence


def _better_half(
    candidates: Sequence[Candidate], sample: RandomSample, criterion: str, tried: list[TriedCandidate]
) -> list[Candidate]:
    """Return the baseline, and the better half of the others on the sample."""
    ahead = {
        name: mean_paired(sample, name, BASELINE, criterion).advantage
        for name in sample.predictions
        if name != BASELINE
    }
    kept = {BASELINE, *sorted(ahead, key=lambda name: -ahead[name])[: kept_of(len(ahead))]}
    _record(tried, 0, ahead, {name: "in the lower half on the sample" for name in ahead if name not in kept})
    return [each for each in candidates if each.name in kept]


def _record(
    tried: list[TriedCandidate], rung: int, ahead: Mapping[str, float | None], left_out: Mapping[str, str]
) -> None:
    """Add to the trainings of a rung how far they were ahead, and why they ended."""
    for place, each in enumerate(tried):
        if each.rung == rung and each.name in ahead:
            why = each.left_out or left_out.get(each.name, "")
            tried[place] = replace(each, advantage=ahead[each.name], left_out=why)


@dataclass(kw_only=True)
class Auto(Estimator):
    """The models that a random sample chooses, and the naive ensemble where they are not ahead.

    Candidates are methods × a small grid by the density of the log. With a random sample (``unbiased=``) all
    are trained with one member, the better half as ensembles, and the mean of those that are best together
    is shipped if it is ahead of the naive ensemble on the sample (:func:`unskew.offpolicy.decision.decide`).
    Without a sample the naive ensemble is shipped:
    biased clicks may only reject candidates, whatever they seem to say. The sample also sets the level of
    what is shipped right (``recalibrate_on``). The test set is never looked at.

    Parameters
    ----------
    learner
        Of every candidate.
    candidates
        Names of methods beside ``naive``; None for those of :data:`unskew.offpolicy.auto.CANDIDATES`.
    grid
        Try each method with another regularisation too.
    members
        Of the ensembles.
    criterion
        What models are chosen by: ``"auc"``, ``"nll"``, ``"dcg@K"`` or ``"hits@K"``.
    halving
        Train all with one member first.
    parameters
        Further parameters of the candidates, such as ``{"epochs": 50}``; those that a method does not have
        are left out there. One that no candidate has is an error.

    Examples
    --------
    >>> import unskew as us
    >>> from unskew.data.datasets.dataset import with_unbiased_share
    >>> data = with_unbiased_share(us.load("synthetic", n_users=40, n_items=30, density=0.2), 0.05)
    >>> auto = us.Auto(learner=us.MF(dim=4), candidates=("ips",), grid=False, members=2,
    ...                parameters={"epochs": 2}).fit(data.train, propensity=0.2, unbiased=data.unbiased)
    >>> auto.decision_.chosen in ("naive", "ips"), auto.predict_each(data.test).shape[0]
    (True, 1)
    """

    name: ClassVar[str] = "auto"

    learner: Learner = field(default_factory=NeuMF)
    candidates: tuple[str, ...] | None = None
    grid: bool = True
    members: int = 5
    criterion: str = "auc"
    halving: bool = True
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def fit(
        self,
        log: Log,
        *,
        propensity: Any,
        unbiased: Log | None = None,
        seeds: int | Sequence[int] = 1,
        validation: Log | None = None,
        device: str = "auto",
        progress: Progress = SILENT,
    ) -> Self:
        """Search, and keep the model that is shipped as ``model_``.

        Parameters
        ----------
        log
            What each candidate is trained on, in turn.
        propensity
            As :meth:`unskew.Debiaser.fit` takes it.
        unbiased
            Pairs shown at random with their conversions, none of which is in a test set.
        seeds, validation, device, progress
            As in :meth:`unskew.Debiaser.fit`.
        """
        require_log(log)
        require(self.members >= 1, f"members must be at least 1, not {self.members}", "give 5, for example")
        if "members" in self.parameters or "learner" in self.parameters:
            raise ParameterError(
                "members and learner are parameters of Auto itself", remedy="give them beside parameters"
            )

        candidates = candidates_of(log, self.candidates, grid=self.grid and unbiased is not None)
        known = frozenset().union(*(each.takes for each in candidates))
        for name in self.parameters:
            remedy = f"use some of {listed(sorted(known))}"
            require(name in known, f"no candidate has a parameter {name!r}", remedy)

        def make(candidate: Candidate) -> Debiaser:
            return candidate.make(**self.parameters, learner=copy.deepcopy(self.learner))

        self.searched_ = search(
            make,
            candidates,
            log,
            propensity=propensity,
            unbiased=unbiased,
            members=self.members,
            criterion=self.criterion,
            halving=self.halving,
            seeds=seeds,
            validation=validation,
            device=device,
            progress=progress,
        )
        self.decision_ = self.searched_.decision
        self.model_ = self.searched_.chosen
        if unbiased is not None:
            self.model_.recalibrate_on(unbiased)
        self.seeds_ = self.model_.seeds_
        self.split_ = self.model_.split_
        return self

    @property
    def predicts_rates(self) -> bool:
        """Of the model that is shipped."""
        return self.model_.predicts_rates

    def predict_each(self, log: Log) -> NDArray[np.float64]:
        """Return conversion probabilities ``[seeds, n]`` of a log's rows, by the model that is shipped."""
        self._require_fitted("model_")
        return self.model_.predict_each(log)

    def predict_lines_each(self, log: Log) -> NDArray[np.float64]:
        """Return what :meth:`unskew.Debiaser.predict_lines_each` does, by the model that is shipped."""
        self._require_fitted("model_")
        return self.model_.predict_lines_each(log)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write the model that is shipped, for :func:`unskew.load_model`."""
        self._require_fitted("model_")
        self.model_.save(folder, overwrite=overwrite)
