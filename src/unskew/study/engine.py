"""Runs a grid: propensities, calibrators, then every method in stacks of replicas; resumes a killed one.

What was finished is in :mod:`unskew.study.results`; what came out is one long table.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from unskew.base.errors import ParameterError, RunFolderError
from unskew.base.files import write_text
from unskew.base.progress import SILENT, Progress
from unskew.data import Log, Schema
from unskew.data.datasets import Dataset
from unskew.debias import Debiaser
from unskew.metrics.collapse import collapse_message
from unskew.report.facts import COLLAPSED_MARK
from unskew.study import trained as kept
from unskew.study.grid import NOTHING, DatasetEntry, Grid, MethodEntry, PropensityEntry
from unskew.study.page import first_screen, write_pages
from unskew.study.results import ResultStore, dataset_hash, described, result_key
from unskew.study.table import (
    PREFIX,
    StudySummary,
    learned_nothing,
    long_table,
    summary,
    write_tables,
)
from unskew.study.trained import Given, Stack, run_stack
from unskew.study.tuning import Trial, chosen_params, combinations, search_rows
from unskew.training import resolve_device
from unskew.training.saved import SavedFolder

OTHER_TEST = {"paper": "leak-free", "honest": "as shipped"}
"""What the test set is that a protocol does not read."""


@dataclass
class StudyData:
    """A dataset, its hash, and the propensities that methods are given on it."""

    entry: DatasetEntry
    dataset: Dataset
    tests: dict[str, Log]
    """The test logs: the dataset's own under ``""``, and the other if both are asked for and differ."""
    hash: str
    given: list[Given] = field(default_factory=list)

    def label(self, test: str = "") -> str:
        """The dataset's name in tables, with that of a test log which is not its own."""
        return f"{self.entry.label} ({test})" if test else self.entry.label


def read_data(entry: DatasetEntry, grid: Grid) -> StudyData:
    """Load a dataset, and refuse what could not be run on it."""
    own = grid.protocol_for(entry.name).test_protocol
    dataset = entry.load(own)
    if grid.methods:
        dataset.train.known_conversion()
    tests = {"": dataset.test}
    if grid.both_tests and dataset.facts.get("leaked_cells_found"):
        tests[OTHER_TEST[own]] = entry.load("honest" if own == "paper" else "paper").test
    known = {name: test for name, test in tests.items() if test is not None}
    return StudyData(entry, dataset, known, dataset_hash(dataset, *tests.values()))


@dataclass(frozen=True)
class Task:
    """One result to make."""

    key: str
    label: str
    run: Callable[[Progress], None]


RESULTS = "results"
"""The folder of a study's results."""
GRID = "grid.json"
"""What marks the folder of a study."""

STACKED = {"cpu": 64, "cuda": 1024}
"""Replicas in one training at most. A CPU gains little from more, and all wait for the last to stop."""


@dataclass(frozen=True)
class StudyResult:
    """What a study found."""

    grid: Grid
    table: pa.Table
    folder: Path
    notes: tuple[str, ...]
    """What a reader must know: the protocol's labels, and what diverged."""

    def summaries(self) -> dict[str, StudySummary]:
        """What a study has to show: its propensities, each against its own raw one; its methods, each against
        the grid's baseline."""
        grid, made = self.grid, {}
        if grid.propensities:
            made["propensities"] = summary(
                self.table,
                part="propensity",
                against={"calibrator": "none"},
                title="Propensities on held-out cells",
            )
        if grid.methods:
            made["methods"] = summary(
                self.table,
                metrics=grid.metrics,
                against={"method": grid.baseline},
                title="Conversion models on randomly shown pairs",
            )
        return {name: each for name, each in made.items() if each.rows and each.metrics}

    def write_pages(self) -> None:
        """``tables.md`` and ``tables.html`` in the study's folder."""
        made = self.summaries()
        shown = [each.shown() for each in made.values()]
        first = first_screen(made.get("methods"), made.get("propensities"), self.grid.baseline)
        write_pages(self.folder, self.grid.name, shown, self.notes, first)


def run_study(grid: Grid, out: Path, *, device: str = "auto", progress: Progress = SILENT) -> StudyResult:
    """Run what is missing of a study, and write its tables.

    Results that are finished, under equal inputs and equal code, are taken as they are; a killed one resumes
    with the task that it was in, and its table is the same to the last digit (on a CPU).

    Parameters
    ----------
    out
        The folder of the study: ``results/``, ``grid.json``, ``table.parquet``, ``table.csv`` and timings.
    """
    if out.exists() and not (out.is_dir() and ((out / GRID).is_file() or is_unused(out))):
        raise RunFolderError("holds other things than a study", where=str(out), remedy="choose another --out")
    engine = Engine(grid, ResultStore(out / RESULTS), device)
    engine.check()
    # Nothing is written before data, device and parameters are known to be good.
    with engine.store.opened():
        write_text(out / GRID, json.dumps(grid.model_dump(), indent=1) + "\n")
        table = engine.run(progress)
    write_tables(out, table)
    return StudyResult(grid, table, out, tuple(notes(grid, table)))


def is_unused(out: Path) -> bool:
    """Return whether a folder is empty, but for results of which none is finished."""
    inside = list(out.iterdir())
    return not inside or (inside == [out / RESULTS] and not any((out / RESULTS).glob("[!.]*")))


class Engine:
    """A grid, its data and its results."""

    def __init__(self, grid: Grid, store: ResultStore, device: str) -> None:
        self.grid, self.store, self.device = grid, store, device
        self.device_type = resolve_device(device).type
        self.seeds = list(grid.seed_list)
        self.data = [read_data(entry, grid) for entry in grid.datasets]
        self._raw: tuple[str, Any] = ("", None)
        self._before: dict[str, Task] = {}
        for task in (task for data in self.data for task in self._propensity_tasks(data)):
            # Propensities that are read off the same networks share their training.
            self._before.setdefault(task.key, task)

    def check(self) -> None:
        """Refuse parameters that could not be run, each value of a search included; writes nothing."""
        for data in self.data:
            protocol = self.grid.protocol_for(data.entry.name)
            for given in self.grid.propensities:
                if given.is_trained:
                    kept.check(given.make(protocol, self.grid.learner))
                elif given.key == "true" and data.dataset.truth is None:
                    raise ParameterError(
                        f"{data.dataset.name} has no true propensities",
                        remedy="leave 'true' out, or use synthetic data",
                    )
            tune = self.grid.tune
            for entry in self.grid.methods:
                tried = tune.single_values() if tune is not None and tune.tunes(entry.label) else []
                for params in ({}, *tried):
                    _check_method(self.method(data, entry, params))

    def run(self, progress: Progress) -> pa.Table:
        """Make every result that is missing; the long table of all."""
        first = list(self._before.values())
        first += [task for data in self.data for task in self._search_tasks(data)]
        self._make("propensities", first, progress)
        # Which results the methods of a tuned grid need is known after the search.
        self._make("methods", [task for data in self.data for task in self._method_tasks(data)], progress)
        return long_table(self._rows())

    def _make(self, what: str, tasks: Sequence[Task], progress: Progress) -> None:
        """Run the tasks whose results are missing, in order."""
        missing = [task for task in tasks if not self.store.has(task.key)]
        bar = progress.task(f"study {self.grid.name}, {what}", len(missing))
        for task in missing:
            bar.say(task.label)
            # Two methods of a grid may be one, and so share a result.
            if not self.store.has(task.key):
                task.run(progress)
            bar.advance()
        bar.finish()

    def _propensity_tasks(self, data: StudyData) -> Iterator[Task]:
        for entry in self.grid.propensities:
            if entry.is_trained:
                yield from self._trained_tasks(data, entry)
            else:
                yield self._given_task(data, entry)

    def _given_task(self, data: StudyData, entry: PropensityEntry) -> Task:
        clip, seeds = self.grid.protocol_for(data.entry.name).clip, len(self.seeds)
        key = result_key("given", data=data.hash, name=entry.key, seeds=seeds, p_min=clip)
        data.given.append(Given(entry.key, "none", tuple(self.seeds), key, key, ""))

        def run(_: Progress) -> None:
            kept.keep_given(self.store, key, entry.key, data.dataset, seeds, clip)

        return Task(key, entry.key, run)

    def _trained_tasks(self, data: StudyData, entry: PropensityEntry) -> Iterator[Task]:
        log, store, protocol = data.dataset.train, self.store, self.grid.protocol_for(data.entry.name)
        wanted = entry.make(protocol, self.grid.learner)
        propensity = kept.as_trained(wanted)
        raw_key = result_key(
            "propensity",
            data=data.hash,
            propensity=described(propensity),
            seeds=self.seeds,
            device=self.device_type,
        )

        def train(progress: Progress) -> None:
            kept.train_raw(store, raw_key, propensity, log, progress, seeds=self.seeds, device=self.device)

        yield Task(raw_key, entry.key, train)
        for calibrator_entry in self.grid.calibrators_of(entry):
            read = {"calibrator": calibrator_entry.make(), "uncertainty": wanted.uncertainty}
            inputs = {"raw": raw_key, **{name: each and described(each) for name, each in read.items()}}
            key = result_key("calibrated", **inputs, p_min=protocol.clip, protocol=protocol.name)
            matrix_key = result_key("matrix", **inputs)
            data.given.append(
                Given(entry.key, calibrator_entry.label, tuple(self.seeds), key, matrix_key, raw_key)
            )

            def calibrate(_: Progress, key: str = key, read: Any = read) -> None:
                kept.calibrate(store, key, self._trained(raw_key, data), read, log, protocol)

            def everywhere(_: Progress, key: str = matrix_key, read: Any = read) -> None:
                matrix = self._trained(raw_key, data).reread(**read).predict_matrix_each()
                store.write(key, {}, {"matrix": matrix.astype(np.float32)})

            yield Task(key, f"{entry.key} {calibrator_entry.label}", calibrate)
            if self._needs_everywhere(data):
                yield Task(matrix_key, f"{entry.key} {calibrator_entry.label} on D", everywhere)

    def _needs_everywhere(self, data: StudyData) -> bool:
        wanted = any(
            entry.takes_propensity and self.method(data, entry).needs_propensity_everywhere
            for entry in self.grid.methods
        )
        return wanted and data.dataset.train.space == "matrix"

    def _trained(self, raw_key: str, data: StudyData) -> Any:
        """A trained propensity; the last one is kept in memory for its other calibrators."""
        if self._raw[0] != raw_key:
            self._raw = raw_key, kept.trained(self.store, raw_key, data.dataset.train, self.device)
        return self._raw[1]

    def method(
        self, data: StudyData, entry: MethodEntry, params: Mapping[str, Any] | None = None
    ) -> Debiaser:
        """A method of the grid for a dataset, untrained, with other parameters."""
        protocol = self.grid.protocol_for(data.entry.name)
        method = entry.make(protocol, self.grid.learner, data.dataset.train.density)
        return method.set_params(**(params or {}))

    def _stacks(
        self,
        data: StudyData,
        entry: MethodEntry,
        method: Debiaser,
        seeds: list[int],
        judge: Debiaser | None = None,
    ) -> list[Stack]:
        """The stacked runs of a method: all sets of propensities, as many at once as a stack may have."""
        at_once = max(1, (self.grid.most_replicas or STACKED[self.device_type]) // len(seeds))
        return [
            Stack(
                data=data.dataset,
                data_hash=data.hash,
                tests=data.tests if judge is None else {},
                validation=self.grid.protocol_for(data.entry.name).validation(data.dataset),
                method=method,
                given=tuple(given[start : start + at_once]),
                seeds=tuple(seeds),
                device=self.device,
                device_type=self.device_type,
                judge=judge,
            )
            for given in _sets(data, entry)
            for start in range(0, len(given), at_once)
        ]

    def _stack_task(self, stack: Stack, label: str) -> Task:
        return Task(stack.key, label, lambda progress: run_stack(stack, self.store, progress, label))

    def _trials(self, data: StudyData, entry: MethodEntry) -> list[Trial]:
        """The search of a method; none where it is not tuned."""
        tune, judge = self.grid.tune, self.method(data, entry)
        if tune is None or not tune.tunes(entry.label):
            return []
        seeds = self.seeds[: tune.seeds]
        return [
            Trial(params, self._stacks(data, entry, self.method(data, entry, params), seeds, judge))
            for params in combinations(tune.values, tune.trials, tune.draw)
        ]

    def _search_tasks(self, data: StudyData) -> Iterator[Task]:
        for entry in self.grid.methods:
            for trial in self._trials(data, entry):
                for stack in trial.stacks:
                    yield self._stack_task(stack, f"{entry.label} {trial.label}")

    def _method_tasks(self, data: StudyData) -> Iterator[Task]:
        for entry, stacks in self._method_stacks(data):
            yield from (self._stack_task(stack, entry.label) for stack in stacks)

    def _method_stacks(self, data: StudyData) -> Iterator[tuple[MethodEntry, list[Stack]]]:
        for entry in self.grid.methods:
            trials = self._trials(data, entry)
            params = chosen_params(trials, self.store) if trials else {}
            yield entry, self._stacks(data, entry, self.method(data, entry, params), self.seeds)

    def _rows(self) -> Iterator[dict[str, Any]]:
        for data in self.data:
            base = {"dataset": data.label(), "protocol": self.grid.protocol}
            yield from ({**base, **row} for row in propensity_rows(self.store, data.given, self.seeds))
            for entry in self.grid.methods:
                if trials := self._trials(data, entry):
                    found = search_rows(trials, self.store)
                    yield from ({**base, "method": entry.label, **row} for row in found)
            for entry, stacks in self._method_stacks(data):
                for stack in stacks:
                    for row in stack.rows(self.store):
                        yield {**base, "dataset": data.label(row.pop("test")), "method": entry.label, **row}


def _sets(data: StudyData, entry: MethodEntry) -> list[list[Given | None]]:
    """What a method is given, apart where it cannot be stacked: sets of propensities, and nothing."""
    if not entry.takes_propensity or not data.given:
        return [[None]]
    if not isinstance(entry.propensity, list):
        return [list(data.given)]
    known = {given.name: given for given in data.given}
    named: list[Given | None] = [known[name] for name in entry.propensity if name != NOTHING]
    return [named, [None]] if entry.runs_alone else [named]


def _check_method(method: Debiaser) -> None:
    with warnings.catch_warnings():
        # It warns when it is trained.
        warnings.simplefilter("ignore")
        method._check()
    method.untrained(Schema.of_ids(2, 2), (0,))


def propensity_rows(
    store: ResultStore, propensities: Sequence[Given], seeds: Sequence[int]
) -> Iterator[dict[str, Any]]:
    """Figures of each set of propensities, and what it took to make it; training is listed once."""
    timed: set[str] = set()
    for given in propensities:
        result = store.read(given.key)
        assert result is not None
        names = {"propensity": given.propensity, "calibrator": given.calibrator, "method": ""}
        for metric, values in result.facts["figures"].items():
            for seed, value in zip(seeds, values, strict=True):
                yield {**names, "seed": seed, "metric": metric, "value": value, "part": "propensity"}
        if given.raw_key and given.raw_key not in timed:
            timed.add(given.raw_key)
            trained = SavedFolder(store.subfolder(given.raw_key)).config["timing"]
            yield from _timing({**names, "calibrator": ""}, trained)
        yield from _timing(names, result.facts["timing"])


def notes(grid: Grid, table: pa.Table) -> Iterator[str]:
    """The protocol's labels, what diverged, and which networks learned nothing."""
    yield from grid.protocol_for(grid.datasets[0].name).labels
    diverged: dict[str, int] = {}
    collapsed: dict[str, dict[str, dict[int, float]]] = {}
    for row in table.drop_columns(["users"]).to_pylist():
        if row["metric"] == "diverged" and row["part"] == "method" and row["value"]:
            diverged[_name(row)] = diverged.get(_name(row), 0) + 1
        if row["metric"].startswith(PREFIX) and row["part"] in ("method", "propensity"):
            of_row = collapsed.setdefault(f"{_name(row)} on {row['dataset']}", {})
            of_row.setdefault(row["metric"], {})[row["seed"]] = row["value"]
    for name, count in diverged.items():
        yield f"{name}: {count} of {len(grid.seed_list)} seeds diverged and are left out"
    for name, by_metric in collapsed.items():
        for network, reason, seeds, of_seeds in learned_nothing(by_metric):
            yield f"{COLLAPSED_MARK} {collapse_message(name, network, reason, seeds, of_seeds)}"


def _name(row: Mapping[str, Any]) -> str:
    return " ".join(filter(None, (row["method"], row["propensity"], row["calibrator"])))


def _timing(names: Mapping[str, Any], timing: Mapping[str, float]) -> Iterator[dict[str, Any]]:
    for metric, value in timing.items():
        yield {**names, "seed": None, "metric": metric, "value": float(value), "part": "timing"}
