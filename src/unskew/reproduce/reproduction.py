"""Trains what the paper's tables need, once each: propensities read off in every way, methods stacked.

What was finished is kept as results, so that a killed reproduction resumes. How the numbers look
beside the paper's is in :mod:`unskew.reproduce.beside`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.backbones import Backbone, NeuMF
from unskew.calibration import make_calibrator
from unskew.datasets import Dataset, load
from unskew.debias import Debiaser
from unskew.evaluation import evaluate_users
from unskew.log import Log
from unskew.metrics import CalibrationSketch, ece
from unskew.progress import SILENT, Progress
from unskew.propensity import MCDropout, Propensity, Uncertainty
from unskew.reproduce.chosen_on_test import SWITCH, chosen_on_test
from unskew.reproduce.presets import ALONE, NOISY, SOURCES, Source
from unskew.run.protocol import Protocol, ProtocolName
from unskew.run.training import Estimated, given_everywhere, read_off, train_methods
from unskew.study.results import Result, ResultStore, dataset_hash, described, result_key

MOST_CELLS = 1 << 21
"""Pairs of D up to which the ECE over all of them is measured too."""

OTHER_TEST = {"paper": "leak-free", "honest": "as shipped"}
"""What the test set is that the protocol does not use."""


class Reproduction:
    """One dataset under one protocol.

    Parameters
    ----------
    data, root, options
        The dataset, its folder and options of its loader.
    protocol
        What it decides.
    store
        Where results are kept.
    backbone
        The network; the paper's by default.
    """

    def __init__(
        self,
        data: str,
        root: Path | None,
        protocol: Protocol,
        store: ResultStore,
        *,
        seeds: Sequence[int],
        options: Mapping[str, Any] | None = None,
        backbone: Backbone | None = None,
        method_params: Mapping[str, Any] | None = None,
        device: str = "auto",
        progress: Progress = SILENT,
    ) -> None:
        self.protocol, self.store, self.device, self.progress = protocol, store, device, progress
        self.seeds = list(seeds)
        self.backbone = backbone or NeuMF()
        self.method_params = dict(method_params or {})
        options = dict(options or {})
        self.dataset: Dataset = load(data, root, protocol=protocol.test_protocol, **options)
        self.tests = {"": self.dataset.test}
        if self.dataset.facts.get("leaked_cells_found"):
            other: ProtocolName = "honest" if protocol.test_protocol == "paper" else "paper"
            name = OTHER_TEST[protocol.test_protocol]
            self.tests[name] = load(data, root, protocol=other, **options).test
        self._estimated: dict[str, Estimated] = {}

    @cached_property
    def _data_hash(self) -> str:
        return dataset_hash(self.dataset)

    def estimated(self, keys: Sequence[str]) -> dict[str, Estimated]:
        """Propensities of rows; those that need the same trained networks are trained together."""
        missing = [_source(key) for key in keys if key not in self._estimated]
        for trained in dict.fromkeys(source.trained for source in missing):
            family: Propensity | None = None
            for source in (each for each in missing if each.trained == trained):
                key = self._propensity_key(source)
                if self._kept(key) is None:
                    if trained != "constant" and family is None:
                        family = self.trained(trained)
                    self._keep(key, source, family)
                found = self._kept(key)
                assert found is not None
                self._estimated[source.key] = found
        return {key: self._estimated[key] for key in keys}

    def propensity(self, trained: str) -> Propensity:
        """An untrained propensity under the protocol, without a calibrator."""
        return self.protocol.propensity(self.backbone, uncertainty=trained)

    def trained(self, trained: str) -> Propensity:
        """The same, trained."""
        fit: dict[str, Any] = {"seeds": self.seeds, "device": self.device, "progress": self.progress}
        return self.propensity(trained).fit(self.dataset.train, **fit)

    def read_off(self, family: Propensity, source: Source) -> Propensity:
        """A row's propensities from trained networks."""
        params: dict[str, Any] = {
            "calibrator": None if source.calibrator == "none" else make_calibrator(source.calibrator)
        }
        if source.read != "none":
            params["uncertainty"] = self._reader(source)
        return family.reread(**params)

    def _reader(self, source: Source) -> Uncertainty | None:
        return MCDropout(samples=1) if source is NOISY else self.protocol.uncertainty(source.read)

    def _propensity_key(self, source: Source) -> str:
        return result_key(
            "reproduced propensity",
            data=self._data_hash,
            source=vars(source),
            propensity=None if source.trained == "constant" else described(self.propensity(source.trained)),
            read=repr(self._reader(source)),
            seeds=self.seeds,
            p_min=self.protocol.clip,
        )

    def _kept(self, key: str) -> Estimated | None:
        result, sketch = self.store.read(key), self.store.folder / f"{key}.sketch"
        if result is None or not sketch.is_file():
            return None
        return Estimated(result.arrays["rows"], result.facts["figures"], CalibrationSketch.load(sketch))

    def _keep(self, key: str, source: Source, family: Propensity | None) -> None:
        log, clip, seeds = self.dataset.train, self.protocol.clip, len(self.seeds)
        further: dict[str, list[float]] = {}
        if family is None:
            found = given_everywhere(log, log.density, clip, seeds)
        else:
            propensity = self.read_off(family, source)
            found = read_off(propensity, log, clip)["calibrated"]
            small = log.space == "matrix" and log.population_size <= MOST_CELLS
            if self.protocol.name == "paper" and small:
                further = _over_all_of_d(propensity, log)
        found.sketch.save(self.store.folder / f"{key}.sketch")
        rows = np.broadcast_to(found.rows, (seeds, len(log)))
        self.store.write(key, {"figures": {**found.figures["per_seed"], **further}}, {"rows": rows})

    def method(self, name: str) -> Debiaser:
        """An untrained method under the protocol."""
        made = self.protocol.method(name, self.backbone, self.dataset.train.density)
        return made.set_params(**self.method_params)

    def scores(
        self, name: str, keys: Sequence[str], *, epoch_chosen_on_test: bool = False
    ) -> dict[str, Result]:
        """Metrics of a method for each row (``ALONE``: without given propensities): facts by test set.

        Parameters
        ----------
        epoch_chosen_on_test
            A diagnostic that ``table-switches`` alone asks for
            (:mod:`unskew.reproduce.chosen_on_test`).
        """
        found = self.estimated([key for key in keys if key != ALONE])
        given = {key: None if key == ALONE else found[key].rows for key in keys}
        return self.scores_with(name, given, epoch_chosen_on_test=epoch_chosen_on_test)

    def scores_with(
        self,
        name: str,
        given: Mapping[str, NDArray[np.float64] | None],
        *,
        epoch_chosen_on_test: bool = False,
    ) -> dict[str, Result]:
        """The same with propensities of the caller's own, ``[seeds, n]`` each."""
        on_test = epoch_chosen_on_test
        keys_of = {key: self._method_key(name, rows, on_test) for key, rows in given.items()}
        missing = {key: rows for key, rows in given.items() if self.store.read(keys_of[key]) is None}
        start = time.perf_counter()
        for key, model in self._models(name, missing, on_test):
            judged = {test: evaluate_users(model, log) for test, log in self.tests.items() if log is not None}
            facts = {
                "metrics": {
                    test: {metric: values.tolist() for metric, values in each.values.items()}
                    for test, each in judged.items()
                },
                "seconds": (time.perf_counter() - start) / len(missing),
            }
            users = {
                f"users {metric} {test}": draws.mean(axis=0)
                for test, each in judged.items()
                for metric, draws in each.resampled.items()
            }
            self.store.write(keys_of[key], facts, users)
        found = {key: self.store.read(place) for key, place in keys_of.items()}
        return {key: result for key, result in found.items() if result is not None}

    def _method_key(self, name: str, rows: NDArray[np.float64] | None, on_test: bool) -> str:
        return result_key(
            f"reproduced method, {SWITCH}" if on_test else "reproduced method",
            data=self._data_hash,
            method=described(self.method(name)),
            seeds=self.seeds,
            rows=None if rows is None else result_key("rows", values=rows.tobytes().hex()),
        )

    def _models(
        self, name: str, given: Mapping[str, NDArray[np.float64] | None], on_test: bool
    ) -> Iterator[tuple[str, Debiaser]]:
        with_rows = {key: rows for key, rows in given.items() if rows is not None}
        for sets in (with_rows, {key: None for key in given if key not in with_rows}):
            if sets:
                method = self.method(name)
                if on_test:
                    method = chosen_on_test(method, self.dataset.train, self._test)
                yield from train_methods(
                    method,
                    self.dataset,
                    sets,
                    validation=self.protocol.validation(self.dataset),
                    seeds=self.seeds,
                    device=self.device,
                    progress=self.progress,
                ).items()

    @property
    def _test(self) -> Log:
        assert self.dataset.test is not None, "reproduced datasets have a test set"
        return self.dataset.test


def _over_all_of_d(propensity: Propensity, log: Log) -> dict[str, list[float]]:
    """Figures over every pair at the true rate, whatever the protocol measures on."""
    click = np.zeros(log.population_size)
    click[log.cell[log.clicked]] = 1.0
    sketches = [
        CalibrationSketch.of(score=line.ravel(), outcome=click) for line in propensity.predict_matrix_each()
    ]
    return {
        "ece_all_of_d": [ece(sketch=sketch) for sketch in sketches],
        "mean_over_base_rate_all_of_d": [sketch.mean_score / sketch.base_rate for sketch in sketches],
    }


def _source(key: str) -> Source:
    return NOISY if key == NOISY.key else SOURCES[key]


def propensity_rows(work: Reproduction, keys: Sequence[str]) -> Iterator[dict[str, Any]]:
    """About propensities."""
    for key, each in work.estimated(keys).items():
        for metric, values in each.figures.items():
            yield from _long(work, "propensity", work.dataset.name, SOURCES[key], "", metric, values)


def method_rows(work: Reproduction, name: str, keys: Sequence[str]) -> Iterator[dict[str, Any]]:
    """About a method, on each of the test sets."""
    for key, result in work.scores(name, keys).items():
        source = None if key == ALONE else SOURCES[key]
        for test, metrics in result.facts["metrics"].items():
            dataset = f"{work.dataset.name} ({test})" if test else work.dataset.name
            for metric, values in metrics.items():
                yield from _long(work, "method", dataset, source, name, metric, values)
                yield {
                    **_names(work, dataset, source, name),
                    "metric": metric,
                    "users": result.arrays[f"users {metric} {test}"],
                    "part": "users",
                }


def _long(
    work: Reproduction,
    part: str,
    dataset: str,
    source: Source | None,
    method: str,
    metric: str,
    values: Sequence[float],
) -> Iterator[dict[str, Any]]:
    for seed, value in zip(work.seeds, values, strict=True):
        names = _names(work, dataset, source, method)
        yield {**names, "seed": seed, "metric": metric, "value": value, "part": part}


def _names(work: Reproduction, dataset: str, source: Source | None, method: str) -> dict[str, Any]:
    return {
        "dataset": dataset,
        "protocol": work.protocol.name,
        "propensity": "" if source is None else source.propensity,
        "calibrator": "" if source is None else source.calibrator,
        "method": method,
    }
