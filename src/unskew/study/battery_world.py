"""One world of the battery: its data, its trainings, what auto chooses there, and how all are judged."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.backbones import Backbone, make_backbone
from unskew.calibration import Multicalibrated, Platt
from unskew.calibration.recalibration import Judged as JudgedRows
from unskew.calibration.recalibration import recalibration
from unskew.datasets import Dataset, load
from unskew.datasets.dataset import with_unbiased_share
from unskew.debias import Debiaser
from unskew.errors import TrainingError
from unskew.evaluation import evaluate
from unskew.log import Log
from unskew.progress import SILENT, Progress, Tracker
from unskew.propensity import LogisticPropensity, load_propensity
from unskew.propensity.storage import save_propensity
from unskew.run.sizes import batch_size
from unskew.search.auto import evidence_by_clicks
from unskew.search.candidates import CANDIDATES, Candidate, candidates_of
from unskew.search.decision import BASELINE, Decision, RandomSample, decide, mean_paired
from unskew.seeds import as_seeds
from unskew.study.battery_plan import OTHERS_TRIED, PATIENCE, REAL, WIDTH, Settings, WorldPlan, methods_of
from unskew.study.battery_result import AUTO, AUTO_ALONE, SHOWN_METRICS, Standing, WorldResult
from unskew.study.results import Result, ResultStore, dataset_hash, result_key
from unskew.training import resolve_device
from unskew.training.ensemble import combined

Floats = NDArray[np.float64]

SINGLE = "naive, one network"
MULTICALIBRATED = "ips, multicalibrated"
"""IPS with propensities that are calibrated for segments of all features too."""


@dataclass(frozen=True, eq=False)
class Fixed:
    """Predictions of a test log's rows as a model."""

    predictions: Floats
    predicts_rates: bool = True

    def predict_each(self, log: Log) -> Floats:
        """``[seeds, n]``."""
        assert len(log) == self.predictions.shape[1]
        return self.predictions


class WorldRun:
    """One world: its data, its trainings, its decisions."""

    def __init__(
        self,
        settings: Settings,
        plan: WorldPlan,
        store: ResultStore,
        device: str,
        progress: Progress = SILENT,
        bar: Tracker = SILENT,
    ) -> None:
        self.settings, self.plan, self.world, self.store = settings, plan, plan.world, store
        self.device, self.progress, self.bar = device, progress, bar
        self.seeds = as_seeds(plan.repetitions)
        data = self._loaded()
        self.hash = dataset_hash(data, data.unbiased)
        # The truth of every pair is large, and judging needs the test alone.
        self.data = replace(data, truth=None)
        self.kept: dict[str, Result] = {}
        self._propensity: LogisticPropensity | None = None
        self._seconds = 0.0

    def _loaded(self) -> Dataset:
        of = self.settings
        if self.world == REAL:
            return with_unbiased_share(load("coat", of.root), of.unbiased_share)
        return load("battery", world=self.world, scale=of.scale, unbiased_share=of.unbiased_share)

    def result(self) -> WorldResult:
        """Train what is missing, decide, judge."""
        tried = self.train()
        kept, data, outcome = self.kept, self.data, self._outcome(self.data.test)
        test = {name: found.arrays["test"].astype(np.float64) for name, found in kept.items()}
        decisions = self._decisions({name: kept[name] for name in tried})
        for name, of_seeds in decisions.items():
            test[name] = _shipped(of_seeds, test)
        test[AUTO] = self._at_level(decisions[AUTO], test[AUTO])
        test[SINGLE] = kept[BASELINE].arrays["single"].astype(np.float64)
        assert data.test is not None
        judged = RandomSample(data.test.user[data.test.clicked], outcome, test)
        paired = {name: mean_paired(judged, name, BASELINE, self.settings.criterion) for name in test}
        most = max(paired[name].advantage for name in kept)
        rates = {name: bool(found.facts["predicts_rates"]) for name, found in kept.items()}
        standings = {
            name: Standing(
                metrics=self._metrics(lines, rates.get(name, True)),
                advantage=paired[name].advantage,
                standard_error=paired[name].standard_error,
                regret=most - paired[name].advantage,
                seconds=kept[name].facts["seconds"] if name in kept else None,
            )
            for name, lines in test.items()
        }
        facts = {
            "clicks": data.train.n_clicks,
            "density": data.train.density,
            "sample": 0 if data.unbiased is None else len(data.unbiased),
            "test": len(data.test),
            "repetitions": self.plan.repetitions,
            "members": self.plan.members,
            "seconds": sum(float(found.facts["seconds"]) for found in kept.values()),
        }
        order = [SINGLE, *kept, *decisions]
        best = max(tried, key=lambda name: paired[name].advantage)
        shown = {name: standings[name] for name in order}
        return WorldResult(self.world, facts, shown, decisions, best, len(tried) - 1)

    def _at_level(self, decisions: Sequence[Decision], lines: Floats) -> Floats:
        """What auto ships with its level set by the sample, as :class:`unskew.Auto` does; the order stays."""
        sample = self.data.unbiased
        assert sample is not None
        outcome = np.tile(self._outcome(sample), (len(lines), 1))
        on_sample = {name: found.arrays["sample"].astype(np.float64) for name, found in self.kept.items()}
        predicted = _shipped(decisions, on_sample)
        rows = JudgedRows(predicted, outcome, np.ones_like(outcome))
        return recalibration(rows, "auto", "clicks of a random sample").predict(lines)

    def _metrics(self, lines: Floats, rates: bool) -> dict[str, float]:
        assert self.data.test is not None
        known = self.data.test.take(self.data.test.clicked)
        found = evaluate(Fixed(lines, rates), known, ks=(2, 6))
        return {name: float(np.mean(found[name])) for name in SHOWN_METRICS if name in found}

    def _outcome(self, log: Log | None) -> Floats:
        assert log is not None
        return log.known_conversion().astype(np.float64)

    def train(self, *, wait: bool = True) -> tuple[str, ...]:
        """Train what is missing; the names of those that auto chooses among.

        Parameters
        ----------
        wait
            For what another process is training; without it that is left out, and all that depends on it.
        """
        of = self.settings
        candidates = candidates_of(self.data.train, methods_of(of.methods), grid=of.grid)
        usual = [each for each in candidates if not each.params]
        if of.methods is None and self._has_features:
            usual.append(Candidate(MULTICALIBRATED, "ips", {}))
        found = [self._keep(candidate, wait) for candidate in usual]
        if not all(found):
            return ()
        named = {BASELINE, *(CANDIDATES if of.methods is None else of.methods)}
        tried = [each.name for each in usual if each.name in named and each.name in self.kept]
        first = {BASELINE, *self._first_on_sample(tried)}
        for candidate in candidates:
            if candidate.params and candidate.method in first:
                # Under a name that is the same in every world.
                renamed = replace(candidate, name=f"{candidate.method}, other λ")
                self._keep(renamed, wait)
                tried += [renamed.name] if renamed.name in self.kept else []
        self._advance_to(self.plan.seconds)
        return tuple(tried)

    @property
    def _has_features(self) -> bool:
        train = self.data.train
        return train.features is not None or train.user_features is not None

    def _first_on_sample(self, names: Sequence[str]) -> list[str]:
        """The candidates that are furthest ahead on the sample."""
        sample = self._sample({name: self.kept[name] for name in names}, slice(None))
        criterion = self.settings.criterion
        ahead = {
            name: mean_paired(sample, name, BASELINE, criterion).advantage
            for name in names
            if name != BASELINE
        }
        return sorted(ahead, key=lambda name: -ahead[name])[:OTHERS_TRIED]

    def _keep(self, candidate: Candidate, wait: bool) -> bool:
        """Whether there is a candidate's result, trained where it is missing; one that diverged is not kept.

        Without ``wait`` nothing is trained that another process is at, or whose propensity it is at.
        """
        key = self._key(candidate)
        self.bar.say(f"{self.world}: {candidate.name}")
        found = self.store.read(key)
        if found is None:
            with self.store.claimed(key, wait=wait) as mine:
                if mine and self.store.read(key) is None:
                    self._train(key, candidate, wait)
            found = self.store.read(key)
        if found is None:
            return False
        if "diverged" not in found.facts:
            self.kept[candidate.name] = found
        self._advance_to(self._seconds + self.plan.seconds / (self.plan.trainings + 1))
        return True

    def _key(self, candidate: Candidate) -> str:
        of = self.settings
        return result_key(
            "battery",
            data=self.hash,
            candidate=[candidate.method, dict(candidate.params), candidate.name == MULTICALIBRATED],
            seeds=self.seeds,
            members=self.plan.members,
            backbone=[of.backbone, WIDTH],
            schedule=[of.epochs, PATIENCE, batch_size(self.data.train.n_clicks)],
            device=resolve_device(self.device).type,
        )

    def _advance_to(self, seconds: float) -> None:
        """Tell that so many of the world's estimated seconds are done."""
        done = min(seconds, self.plan.seconds)
        self.bar.advance(round(1000 * done) - round(1000 * self._seconds))
        self._seconds = done

    def _train(self, key: str, candidate: Candidate, wait: bool) -> None:
        of = self.settings
        shared: dict[str, Any] = {
            "backbone": _narrow(of.backbone),
            "members": self.plan.members,
            "batch_size": batch_size(self.data.train.n_clicks),
            "patience": PATIENCE,
        }
        method = candidate.make(**shared, **({} if of.epochs is None else {"epochs": of.epochs}))
        propensity = None
        if method.needs_propensity:
            propensity = self._fitted_propensity(wait)
            if propensity is None:
                return
            if candidate.name == MULTICALIBRATED:
                self.bar.say(f"{self.world}: calibration for segments")
                propensity = propensity.reread(calibrator=Multicalibrated())
        start = time.perf_counter()
        try:
            model = method.fit(
                self.data.train,
                propensity=propensity,
                seeds=self.seeds,
                device=self.device,
                progress=self.progress,
                label=f"{self.world}: {candidate.name}",
            )
        except TrainingError as error:
            if candidate.name == BASELINE:
                raise
            self.store.write(key, {"diverged": str(error)})
            return
        seconds = time.perf_counter() - start
        self.store.write(key, *self._kept(model, seconds))

    def _kept(self, model: Debiaser, seconds: float) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
        """What is kept of a training: its predictions."""
        test, sample = self.data.test, self.data.unbiased
        assert test is not None
        assert sample is not None
        known = test.take(test.clicked)
        arrays = {
            "test": model.predict_each(known),
            "single": model.predict_members_each(known)[:, 0],
            "sample": model.predict_each(sample.take(sample.clicked)),
            "log": model.predict_lines_each(self.data.train),
        }
        kept = {name: values.astype(np.float32) for name, values in arrays.items()}
        rows = {"held_out": model.validation_rows(self.data.train)}
        return {"seconds": seconds, "predicts_rates": model.predicts_rates}, {**kept, **rows}

    def _fitted_propensity(self, wait: bool = True) -> LogisticPropensity | None:
        """Fitted once for all candidates and repetitions, which would differ in folds alone, and kept.

        None where another process is at it, and this one is not to ``wait``.
        """
        if self._propensity is None:
            key = result_key("battery propensity", data=self.hash)
            if not self.store.has(key):
                with self.store.claimed(key, wait=wait) as mine:
                    if not mine:
                        return None
                    if not self.store.has(key):
                        self._fit_propensity(key)
            # As it was read back, so that a battery that is resumed has the same.
            read = load_propensity(self.store.subfolder(key), device=self.device)
            assert isinstance(read, LogisticPropensity)
            read.use_log(self.data.train)
            self._propensity = read
        return self._propensity

    def _fit_propensity(self, key: str) -> None:
        self.bar.say(f"{self.world}: propensity")
        start = time.perf_counter()
        fitted = LogisticPropensity(calibrator=Platt(), crossfit=5)
        fitted.fit(self.data.train, seeds=1, device=self.device, progress=self.progress)
        self.store.remove(key)
        timing = {"train_seconds": time.perf_counter() - start}
        save_propensity(fitted, self.store.subfolder(key), timing=timing)

    def _propensity_rows(self) -> Floats:
        """Of the log's rows."""
        key = result_key("battery propensity of rows", data=self.hash)
        found = self.store.read(key)
        if found is None:
            fitted = self._fitted_propensity()
            assert fitted is not None
            rows = fitted.predict_each(self.data.train)[0]
            self.store.write(key, {}, {"rows": rows})
            return np.asarray(rows, dtype=np.float64)
        return found.arrays["rows"].astype(np.float64)

    def _sample(self, kept: Mapping[str, Result], seeds: slice) -> RandomSample:
        """The random sample, with predictions of some repetitions."""
        sample = self.data.unbiased
        assert sample is not None
        lines = {name: found.arrays["sample"][seeds].astype(np.float64) for name, found in kept.items()}
        return RandomSample(sample.user[sample.clicked], self._outcome(sample), lines)

    def _decisions(self, kept: Mapping[str, Result]) -> dict[str, tuple[Decision, ...]]:
        """What auto ships in each repetition, with and without the sample."""
        p = self._propensity_rows()
        criterion = self.settings.criterion
        made: dict[str, list[Decision]] = {AUTO: [], AUTO_ALONE: []}
        for seed in range(len(self.seeds)):
            count = len(kept[BASELINE].arrays["held_out"]) // len(self.seeds)
            lines = slice(seed * count, (seed + 1) * count)
            scores = {name: found.arrays["log"][lines].astype(np.float64) for name, found in kept.items()}
            held_out = kept[BASELINE].arrays["held_out"][lines]
            evidence = evidence_by_clicks(scores, self.data.train, p, criterion, held_out=held_out)
            options: dict[str, Any] = {"candidates": tuple(kept), "criterion": criterion}
            made[AUTO].append(decide(self._sample(kept, slice(seed, seed + 1)), evidence, **options))
            made[AUTO_ALONE].append(decide(None, evidence, **options))
        return {name: tuple(each) for name, each in made.items()}


def _shipped(decisions: Sequence[Decision], lines: Mapping[str, Floats]) -> Floats:
    """What is shipped in each repetition: the chosen one, or the mean logit of several."""
    found = []
    for seed, each in enumerate(decisions):
        found.append(combined(np.stack([lines[name][seed] for name in each.shipped])[None])[0])
    return np.stack(found)


def _narrow(name: str) -> Backbone:
    """A backbone with embeddings of the battery's width, at most."""
    usual = make_backbone(name)
    dim = getattr(usual, "dim", None)
    if not isinstance(dim, int):
        return usual
    return make_backbone(name, dim=min(dim, WIDTH))
