"""Trains what the paper's tables need, once each: propensities read off in every way, methods stacked.

What was finished is kept as cells, so that a killed reproduction goes on where it was. How the numbers look
beside the paper's is told in :mod:`unskew.reproduce.beside`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.backbones import Backbone, NeuMF
from unskew.calibration import make_calibrator
from unskew.datasets import Dataset, load
from unskew.debias import Debiaser
from unskew.evaluation import Evaluated, evaluate_users
from unskew.log import Log
from unskew.metrics import CalibrationSketch, ece
from unskew.progress import SILENT, Progress
from unskew.propensity import MCDropout, Propensity, Uncertainty
from unskew.propensity.diagnosis import propensity_figures
from unskew.reproduce.chosen_on_test import SWITCH, chosen_on_test
from unskew.reproduce.presets import ALONE, NOISY, SOURCES, Source
from unskew.run.protocol import Protocol, ProtocolName
from unskew.study.cells import Cell, CellStore, cell_key, dataset_hash, told

MOST_CELLS = 1 << 21
"""Pairs of D up to which the ECE over all of them is measured too."""

OTHER_TEST = {"paper": "leak-free", "honest": "as shipped"}
"""What the test set is that the protocol does not use."""


@dataclass(frozen=True)
class Estimated:
    """A row's propensities."""

    source: Source
    figures: Mapping[str, Sequence[float]]
    """By metric, one value per seed."""
    rows: NDArray[np.float64]
    """``[seeds, n]``: propensities of the log's rows."""
    sketch: CalibrationSketch
    """Scores against clicks of the first seed, on the cells where the protocol measures."""


class Reproduction:
    """One dataset under one protocol.

    Parameters
    ----------
    data, root, options
        The dataset, its folder and options of its loader.
    settings
        The protocol.
    store
        Where cells are kept.
    backbone
        The network; the paper's by default.
    """

    def __init__(
        self,
        data: str,
        root: Path | None,
        settings: Protocol,
        store: CellStore,
        *,
        seeds: Sequence[int],
        options: Mapping[str, Any] | None = None,
        backbone: Backbone | None = None,
        method_params: Mapping[str, Any] | None = None,
        device: str = "auto",
        progress: Progress = SILENT,
    ) -> None:
        self.settings, self.store, self.device, self.progress = settings, store, device, progress
        self.seeds = list(seeds)
        self.backbone = backbone or NeuMF()
        self.method_params = dict(method_params or {})
        options = dict(options or {})
        self.dataset: Dataset = load(data, root, protocol=settings.test_protocol, **options)
        self.tests = {"": self.dataset.test}
        if self.dataset.facts.get("leaked_cells_found"):
            other: ProtocolName = "honest" if settings.test_protocol == "paper" else "paper"
            name = OTHER_TEST[settings.test_protocol]
            self.tests[name] = load(data, root, protocol=other, **options).test
        self._estimated: dict[str, Estimated] = {}

    @cached_property
    def _data_hash(self) -> str:
        return dataset_hash(self.dataset)

    def estimated(self, keys: Sequence[str]) -> dict[str, Estimated]:
        """Propensities of rows; those that need the same trained networks are trained together."""
        missing = [_source(key) for key in keys if key not in self._estimated]
        for trained in dict.fromkeys(source.trained for source in missing):
            self._estimate([source for source in missing if source.trained == trained])
        return {key: self._estimated[key] for key in keys}

    def _estimate(self, sources: list[Source]) -> None:
        family: Propensity | None = None
        for source in sources:
            key = self._propensity_key(source)
            cell = self.store.read(key)
            sketch = self.store.folder / f"{key}.sketch"
            if cell is None or not sketch.is_file():
                if source.trained == "constant":
                    self._keep_constant(key, sketch)
                else:
                    family = family or self._trained(source.trained)
                    self._keep(key, sketch, self.read_off(family, source))
                cell = self.store.read(key)
            assert cell is not None
            self._estimated[source.key] = Estimated(
                source, cell.facts["figures"], cell.arrays["rows"], CalibrationSketch.load(sketch)
            )

    def propensity(self, trained: str) -> Propensity:
        """An untrained propensity under the protocol, without a calibrator."""
        return self.settings.propensity(self.backbone, uncertainty=trained)

    def _trained(self, trained: str) -> Propensity:
        propensity = self.propensity(trained)
        return propensity.fit(
            self.dataset.train, seeds=self.seeds, device=self.device, progress=self.progress
        )

    def read_off(self, family: Propensity, source: Source) -> Propensity:
        """A row's propensities from trained networks."""
        params: dict[str, Any] = {
            "calibrator": None if source.calibrator == "none" else make_calibrator(source.calibrator)
        }
        if source.read != "none":
            params["uncertainty"] = self._reader(source)
        return family.reread(**params)

    def _reader(self, source: Source) -> Uncertainty | None:
        if source is NOISY:
            return MCDropout(samples=1)
        return self.settings.uncertainty(source.read)

    def _propensity_key(self, source: Source) -> str:
        return cell_key(
            "reproduced propensity",
            data=self._data_hash,
            source=vars(source),
            propensity=None if source.trained == "constant" else told(self.propensity(source.trained)),
            read=repr(self._reader(source)),
            seeds=self.seeds,
            p_min=self.settings.clip,
        )

    def _keep(self, key: str, sketch: Path, propensity: Propensity) -> None:
        log = self.dataset.train
        figures = propensity.diagnose(p_min=self.settings.clip)["calibrated"]["per_seed"]
        everywhere = log.space == "matrix" and log.population_size <= MOST_CELLS
        if self.settings.name == "paper" and everywhere:
            figures = {**figures, **self._over_all_of_d(propensity)}
        self._write(
            key,
            sketch,
            figures,
            propensity.predict_each(log),
            propensity.held_out_sketches(calibrated=True)[0],
        )

    def _over_all_of_d(self, propensity: Propensity) -> dict[str, list[float]]:
        """Figures over every pair at the true rate, whatever the protocol measures on."""
        log = self.dataset.train
        click = np.zeros(log.population_size)
        click[log.cell[log.clicked]] = 1.0
        sketches = [
            CalibrationSketch.of(score=line.ravel(), outcome=click)
            for line in propensity.predict_matrix_each()
        ]
        return {
            "ece_all_of_d": [ece(sketch=sketch) for sketch in sketches],
            "mean_over_base_rate_all_of_d": [sketch.mean_score / sketch.base_rate for sketch in sketches],
        }

    def _keep_constant(self, key: str, sketch_path: Path) -> None:
        log = self.dataset.train
        rows = np.full((len(self.seeds), len(log)), log.density)
        sketch = CalibrationSketch()
        for outcome, count in ((1.0, log.n_clicks), (0.0, log.population_size - log.n_clicks)):
            for start in range(0, count, MOST_CELLS):
                size = min(MOST_CELLS, count - start)
                sketch.update(np.full(size, log.density), np.full(size, outcome))
        figures = propensity_figures(
            sketch, rows[0, log.clicked], p_min=self.settings.clip, population_size=log.population_size
        )
        each = {name: [float(value)] * len(self.seeds) for name, value in vars(figures).items()}
        self._write(key, sketch_path, each, rows, sketch)

    def _write(
        self,
        key: str,
        path: Path,
        figures: Mapping[str, Sequence[float]],
        rows: NDArray[np.float64],
        sketch: CalibrationSketch,
    ) -> None:
        sketch.save(path)
        self.store.write(key, {"figures": {n: list(v) for n, v in figures.items()}}, {"rows": rows})

    def method(self, name: str) -> Debiaser:
        """An untrained method under the protocol."""
        made = self.settings.method(name, self.backbone, self.dataset.train.density)
        return made.set_params(**self.method_params)

    def scores(
        self, name: str, keys: Sequence[str], *, epoch_chosen_on_test: bool = False
    ) -> dict[str, Cell]:
        """Metrics of a method for each row (``ALONE``: without given propensities): facts by test set.

        Parameters
        ----------
        epoch_chosen_on_test
            A diagnostic that ``table-switches`` alone asks for
            (:mod:`unskew.reproduce.chosen_on_test`).
        """
        sources = [key for key in keys if key != ALONE]
        rows = {key: each.rows for key, each in self.estimated(sources).items()}
        given = {key: rows.get(key) for key in keys}
        return self.scores_with(name, given, epoch_chosen_on_test=epoch_chosen_on_test)

    def scores_with(
        self,
        name: str,
        given: Mapping[str, NDArray[np.float64] | None],
        *,
        epoch_chosen_on_test: bool = False,
    ) -> dict[str, Cell]:
        """The same with propensities of the caller's own, ``[seeds, n]`` each."""
        on_test = epoch_chosen_on_test
        cells = {key: self._method_key(name, rows, on_test) for key, rows in given.items()}
        missing = {key: rows for key, rows in given.items() if self.store.read(cells[key]) is None}
        if missing:
            start = time.perf_counter()
            for key, model in self._models(name, missing, on_test):
                seconds = (time.perf_counter() - start) / len(missing)
                judged = self._evaluated(model)
                self.store.write(
                    cells[key],
                    {
                        "metrics": {
                            test: {metric: values.tolist() for metric, values in each.values.items()}
                            for test, each in judged.items()
                        },
                        "seconds": seconds,
                    },
                    {
                        f"users {metric} {test}": draws.mean(axis=0)
                        for test, each in judged.items()
                        for metric, draws in each.resampled.items()
                    },
                )
        found = {key: self.store.read(cell) for key, cell in cells.items()}
        return {key: cell for key, cell in found.items() if cell is not None}

    def _method_key(self, name: str, rows: NDArray[np.float64] | None, on_test: bool) -> str:
        return cell_key(
            f"reproduced method, {SWITCH}" if on_test else "reproduced method",
            data=self._data_hash,
            method=told(self.method(name)),
            seeds=self.seeds,
            rows=None if rows is None else cell_key("rows", values=rows.tobytes().hex()),
        )

    def _models(
        self, name: str, given: Mapping[str, NDArray[np.float64] | None], on_test: bool
    ) -> Iterator[tuple[str, Debiaser]]:
        fit: dict[str, Any] = {
            "seeds": self.seeds,
            "device": self.device,
            "progress": self.progress,
            "validation": self.settings.validation(self.dataset),
        }
        log = self.dataset.train

        def made() -> Debiaser:
            method = self.method(name)
            return chosen_on_test(method, log, self._test) if on_test else method

        with_rows = {key: rows for key, rows in given.items() if rows is not None}
        if with_rows:
            yield from made().fit_many(log, propensities=with_rows, **fit).items()
        if ALONE in given:
            yield ALONE, made().fit(log, **fit)

    @property
    def _test(self) -> Log:
        assert self.dataset.test is not None, "reproduced datasets have a test set"
        return self.dataset.test

    def _evaluated(self, model: Debiaser) -> dict[str, Evaluated]:
        return {name: evaluate_users(model, test) for name, test in self.tests.items() if test is not None}


def _source(key: str) -> Source:
    return NOISY if key == NOISY.key else SOURCES[key]
