"""The battery: methods, and ``auto``, on worlds of known truth; regret, and who loses to naive."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.backbones import make_backbone
from unskew.calibration import Platt
from unskew.datasets import Dataset, load
from unskew.datasets.battery import UNBIASED_SHARE, WORLDS
from unskew.datasets.dataset import with_unbiased_share
from unskew.debias import Debiaser
from unskew.errors import TrainingError
from unskew.estimator import require, require_choice
from unskew.evaluation import evaluate
from unskew.io.files import write_json, write_text
from unskew.log import Log
from unskew.progress import SILENT, Progress
from unskew.propensity import LogisticPropensity
from unskew.search.auto import evidence_by_clicks
from unskew.search.candidates import Candidate, candidates_of
from unskew.search.decision import BASELINE, Decision, Sample, decide, mean_paired
from unskew.seeds import as_seeds
from unskew.study.results import ResultStore, dataset_hash, result_key
from unskew.study.shown_table import Shown, write_pages
from unskew.training import resolve_device

Floats = NDArray[np.float64]

REAL = "coat (real)"
"""The world that is read from files, where their folder is given."""
SINGLE = "naive, one network"
AUTO = "auto"
AUTO_ALONE = "auto, no sample"
NOISE = 1.96
"""Standard errors over test users beyond which a difference counts."""
SHOWN_METRICS = ("auc", "dcg@6", "nll", "mean_over_rate")
RESULTS = "results"


@dataclass(frozen=True)
class Settings:
    """What the battery runs."""

    worlds: tuple[str, ...]
    methods: tuple[str, ...] | None
    scale: str
    seeds: tuple[int, ...]
    members: int
    backbone: str
    criterion: str
    unbiased_share: float
    grid: bool
    epochs: int | None
    root: str | None


@dataclass(frozen=True, eq=False)
class Fixed:
    """Predictions of a test log's rows as a model."""

    predictions: Floats
    predicts_rates: bool = True

    def predict_each(self, log: Log) -> Floats:
        """``[seeds, n]``."""
        assert len(log) == self.predictions.shape[1]
        return self.predictions


@dataclass(frozen=True)
class Cell:
    """One method in one world.

    Attributes
    ----------
    metrics
        On the random test log, averaged over seeds.
    advantage, standard_error
        Over the naive ensemble in the criterion, paired by test user.
    regret
        What the best candidate is ahead of it.
    seconds
        Of its training; None for what is chosen among trained ones.
    """

    metrics: Mapping[str, float]
    advantage: float
    standard_error: float
    regret: float
    seconds: float | None

    @property
    def loses(self) -> bool:
        """Whether it is worse than the naive ensemble beyond noise."""
        return self.advantage < -NOISE * self.standard_error

    @property
    def wins(self) -> bool:
        """Whether it is better beyond noise."""
        return self.advantage > NOISE * self.standard_error


@dataclass(frozen=True, eq=False)
class WorldResult:
    """What the battery found in one world."""

    world: str
    facts: Mapping[str, Any]
    cells: Mapping[str, Cell]
    decisions: Mapping[str, tuple[Decision, ...]]
    best: str

    @property
    def gap(self) -> float | None:
        """What the best candidate is ahead of the naive ensemble, where that is beyond noise."""
        best = self.cells[self.best]
        return best.advantage if best.wins else None

    def closed(self, name: str) -> float | None:
        """The share of the gap that a way of choosing closes; None where there is no gap."""
        return None if self.gap is None else self.cells[name].advantage / self.gap


@dataclass(frozen=True, eq=False)
class BatteryResult:
    """Tables, a picture and figures of a battery."""

    settings: Settings
    worlds: tuple[WorldResult, ...]

    @property
    def methods(self) -> list[str]:
        """Rows of the table."""
        return list(dict.fromkeys(name for each in self.worlds for name in each.cells))

    def regret_table(self) -> Shown:
        """Method × world: regret, and in how many worlds it loses to the naive ensemble."""
        rows = []
        for name in self.methods:
            cells = [each.cells.get(name) for each in self.worlds]
            known = [cell for cell in cells if cell is not None]
            regrets = [cell.regret for cell in known]
            rows.append(
                (
                    name,
                    *(_regret_text(cell) for cell in cells),
                    f"{np.mean(regrets):.4f}",
                    f"{sum(cell.loses for cell in known)} of {len(known)}",
                )
            )
        return Shown(
            title=f"Regret in {self.settings.criterion} against the best of each world",
            columns=("method", *(each.world for each in self.worlds), "mean", "loses to naive"),
            rows=tuple(rows),
            caption="▲ better, ▼ worse than the naive ensemble beyond noise (paired by test user).",
        )

    def metric_table(self, name: str) -> Shown:
        """Method × world of one metric."""
        rows = tuple(
            (
                method,
                *(
                    "–" if method not in each.cells else f"{each.cells[method].metrics.get(name, np.nan):.4f}"
                    for each in self.worlds
                ),
            )
            for method in self.methods
        )
        return Shown(title=name, columns=("method", *(each.world for each in self.worlds)), rows=rows)

    def auto_table(self) -> Shown:
        """What auto chose in each world, and how much of the gap it closed."""
        rows = []
        for each in self.worlds:
            for name, decisions in each.decisions.items():
                closed = each.closed(name)
                rows.append(
                    (
                        each.world,
                        name,
                        ", ".join(dict.fromkeys(decision.chosen for decision in decisions)),
                        f"{decisions[0].rows:,}",
                        f"{each.cells[name].advantage:+.4f}",
                        f"{each.cells[each.best].advantage:+.4f} ({each.best})",
                        "no gap beyond noise" if closed is None else f"{100 * closed:.0f} %",
                    )
                )
        return Shown(
            title="What auto chose",
            columns=("world", "", "chose", "sample", "ahead of naive", "best ahead by", "closed"),
            rows=tuple(rows),
            text_columns=3,
        )

    def tables(self) -> list[Shown]:
        """All tables."""
        return [self.regret_table(), self.auto_table(), *map(self.metric_table, SHOWN_METRICS)]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "settings": {name: getattr(self.settings, name) for name in self.settings.__dataclass_fields__},
            "worlds": {
                each.world: {
                    "facts": dict(each.facts),
                    "best": each.best,
                    "gap": each.gap,
                    "closed": {name: each.closed(name) for name in each.decisions},
                    "methods": {
                        name: {
                            "metrics": dict(cell.metrics),
                            "advantage": cell.advantage,
                            "standard_error": cell.standard_error,
                            "regret": cell.regret,
                            "loses": cell.loses,
                            "wins": cell.wins,
                            "seconds": cell.seconds,
                        }
                        for name, cell in each.cells.items()
                    },
                    "decisions": {
                        name: [decision.to_dict() for decision in decisions]
                        for name, decisions in each.decisions.items()
                    },
                }
                for each in self.worlds
            },
        }

    def write(self, out: Path) -> None:
        """``battery.json``, ``battery.svg`` and the tables as pages."""
        from unskew.report.plots.battery import battery_svg

        figures = self.to_dict()
        write_json(out / "battery.json", figures)
        write_text(out / "battery.svg", battery_svg(figures))
        write_pages(out, "The battery", self.tables(), self.notes)

    @property
    def notes(self) -> list[str]:
        """What the numbers rest on."""
        of = self.settings
        return [
            f"{of.members} members, {len(of.seeds)} repetitions, {of.backbone}, scale {of.scale}",
            f"auto looks at {100 * of.unbiased_share:g} % of the random pairs; all are judged on the others",
            "propensities by logistic regression, Platt-calibrated, 5 folds; nothing is chosen on the test",
        ]


def run_battery(
    out: str | Path,
    *,
    worlds: Sequence[str] | None = None,
    methods: Sequence[str] | None = None,
    scale: str = "full",
    seeds: int | Sequence[int] = 3,
    members: int = 5,
    backbone: str = "neumf",
    criterion: str = "auc",
    unbiased_share: float = UNBIASED_SHARE,
    grid: bool = True,
    epochs: int | None = None,
    root: str | None = None,
    device: str = "auto",
    progress: Progress = SILENT,
) -> BatteryResult:
    """Train every candidate in every world, or go on with it; choose as ``auto`` would; judge all.

    A finished training is kept in ``out/results`` under a hash of all that went into it, and found again.
    What auto chooses is computed from the kept predictions: it costs no training.

    Parameters
    ----------
    worlds, methods
        By default all of the battery, and the candidates of ``auto``.
    grid
        Each method with another regularisation too.
    epochs
        At most so many; the methods' own by default.
    root
        The folder of Coat's files: the real log is then one more world.
    """
    chosen = tuple(worlds or WORLDS)
    for world in chosen:
        require_choice("world", world, tuple(WORLDS))
    require_choice("scale", scale, ("full", "small"))
    require(members >= 1, f"members must be at least 1, not {members}", "give 5, for example")
    settings = Settings(
        worlds=(*chosen, *(() if root is None else (REAL,))),
        methods=None if methods is None else tuple(methods),
        scale=scale,
        seeds=as_seeds(seeds),
        members=members,
        backbone=backbone,
        criterion=criterion,
        unbiased_share=unbiased_share,
        grid=grid,
        epochs=epochs,
        root=root,
    )
    make_backbone(backbone)
    folder = Path(out)
    with ResultStore(folder / RESULTS).opened() as store:
        bar = progress.task("battery", len(settings.worlds))
        found = []
        for world in settings.worlds:
            found.append(_World(settings, world, store, device, progress).result())
            bar.advance(1)
        bar.finish()
    result = BatteryResult(settings, tuple(found))
    result.write(folder)
    return result


class _World:
    """One world: its data, its trainings, its decisions."""

    def __init__(
        self, settings: Settings, world: str, store: ResultStore, device: str, progress: Progress
    ) -> None:
        self.settings, self.world, self.store = settings, world, store
        self.device, self.progress = device, progress
        self.data = self._loaded()
        self.hash = dataset_hash(self.data, self.data.unbiased)
        self._propensity: LogisticPropensity | None = None

    def _loaded(self) -> Dataset:
        of = self.settings
        if self.world == REAL:
            return with_unbiased_share(load("coat", of.root), of.unbiased_share)
        return load("battery", world=self.world, scale=of.scale, unbiased_share=of.unbiased_share)

    def result(self) -> WorldResult:
        """Train what is missing, decide, judge."""
        kept = {name: found for name, found in self._trainings() if found is not None}
        data, outcome = self.data, self._outcome(self.data.test)
        test = {name: found.arrays["test"].astype(np.float64) for name, found in kept.items()}
        decisions = self._decisions(kept)
        for name, of_seeds in decisions.items():
            test[name] = np.stack([test[each.chosen][seed] for seed, each in enumerate(of_seeds)])
        test[SINGLE] = kept[BASELINE].arrays["single"].astype(np.float64)
        assert data.test is not None
        judged = Sample(data.test.user[data.test.clicked], outcome, test)
        paired = {name: mean_paired(judged, name, BASELINE, self.settings.criterion) for name in test}
        best = max(kept, key=lambda name: paired[name].advantage)
        rates = {name: bool(found.facts["predicts_rates"]) for name, found in kept.items()}
        cells = {
            name: Cell(
                metrics=self._metrics(lines, rates.get(name, True)),
                advantage=paired[name].advantage,
                standard_error=paired[name].standard_error,
                regret=paired[best].advantage - paired[name].advantage,
                seconds=kept[name].facts["seconds"] if name in kept else None,
            )
            for name, lines in test.items()
        }
        facts = {
            "clicks": data.train.n_clicks,
            "density": data.train.density,
            "sample": 0 if data.unbiased is None else len(data.unbiased),
            "test": len(data.test),
        }
        order = [SINGLE, *kept, *decisions]
        return WorldResult(self.world, facts, {name: cells[name] for name in order}, decisions, best)

    def _metrics(self, lines: Floats, rates: bool) -> dict[str, float]:
        assert self.data.test is not None
        known = self.data.test.take(self.data.test.clicked)
        found = evaluate(Fixed(lines, rates), known, ks=(2, 6))
        return {name: float(np.mean(found[name])) for name in SHOWN_METRICS if name in found}

    def _outcome(self, log: Log | None) -> Floats:
        assert log is not None
        return log.known_conversion().astype(np.float64)

    def _candidates(self) -> list[Candidate]:
        """Under names that are the same in every world."""
        found = candidates_of(self.data.train, self.settings.methods, grid=self.settings.grid)
        return [
            Candidate(f"{each.method}, other λ" if each.params else each.name, each.method, each.params)
            for each in found
        ]

    def _trainings(self) -> Iterator[tuple[str, Any]]:
        """Each candidate's result, trained where it is missing; None for one that diverged."""
        for candidate in self._candidates():
            key = result_key(
                "battery",
                data=self.hash,
                candidate=[candidate.method, dict(candidate.params)],
                seeds=self.settings.seeds,
                members=self.settings.members,
                backbone=self.settings.backbone,
                epochs=self.settings.epochs,
                device=resolve_device(self.device).type,
            )
            if self.store.read(key) is None:
                self._train(key, candidate)
            found = self.store.read(key)
            assert found is not None
            yield candidate.name, None if "diverged" in found.facts else found

    def _train(self, key: str, candidate: Candidate) -> None:
        of = self.settings
        shared = {"backbone": make_backbone(of.backbone), "members": of.members}
        method = candidate.make(**shared, **({} if of.epochs is None else {"epochs": of.epochs}))
        start = time.perf_counter()
        try:
            model = method.fit(
                self.data.train,
                propensity=self._fitted_propensity() if method.needs_propensity else None,
                seeds=of.seeds,
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
            "log": model.predict_each(self.data.train),
        }
        kept = {name: values.astype(np.float32) for name, values in arrays.items()}
        rows = {"held_out": model.validation_rows(self.data.train)}
        return {"seconds": seconds, "predicts_rates": model.predicts_rates}, {**kept, **rows}

    def _fitted_propensity(self) -> LogisticPropensity:
        if self._propensity is None:
            fitted = LogisticPropensity(calibrator=Platt(), crossfit=5)
            self._propensity = fitted.fit(
                self.data.train, seeds=self.settings.seeds, device=self.device, progress=self.progress
            )
        return self._propensity

    def _propensity_rows(self) -> Floats:
        """Of the log's rows ``[seeds, n]``."""
        key = result_key("battery propensity", data=self.hash, seeds=self.settings.seeds)
        found = self.store.read(key)
        if found is None:
            rows = self._fitted_propensity().predict_each(self.data.train)
            self.store.write(key, {}, {"rows": rows})
            return np.asarray(rows, dtype=np.float64)
        return found.arrays["rows"].astype(np.float64)

    def _decisions(self, kept: Mapping[str, Any]) -> dict[str, tuple[Decision, ...]]:
        """What auto ships in each repetition, with and without the sample."""
        sample = self.data.unbiased
        assert sample is not None
        p = self._propensity_rows()
        user, outcome = sample.user[sample.clicked], self._outcome(sample)
        criterion = self.settings.criterion
        made: dict[str, list[Decision]] = {AUTO: [], AUTO_ALONE: []}
        for seed in range(len(self.settings.seeds)):
            scores = {name: found.arrays["log"][seed].astype(np.float64) for name, found in kept.items()}
            evidence = evidence_by_clicks(
                scores,
                self.data.train,
                p[seed if len(p) > 1 else 0],
                criterion,
                held_out=kept[BASELINE].arrays["held_out"][seed],
            )
            lines = {
                name: found.arrays["sample"][seed : seed + 1].astype(np.float64)
                for name, found in kept.items()
            }
            options: dict[str, Any] = {"candidates": tuple(kept), "criterion": criterion}
            made[AUTO].append(decide(Sample(user, outcome, lines), evidence, **options))
            made[AUTO_ALONE].append(decide(None, evidence, **options))
        return {name: tuple(each) for name, each in made.items()}


def _regret_text(cell: Cell | None) -> str:
    if cell is None:
        return "–"
    mark = " ▲" if cell.wins else " ▼" if cell.loses else ""
    return f"{cell.regret:.4f}{mark}"
