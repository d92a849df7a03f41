"""Runs configurations and keeps what they found, each under its hash; runs share data and propensities."""

from __future__ import annotations

import copy
import hashlib
import inspect
import json
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import unskew
from unskew.base.errors import RunFolderError, TrainingError
from unskew.base.estimator import plain_params
from unskew.base.files import Lock, whole_file, write_json
from unskew.base.progress import SILENT, Progress
from unskew.base.registry import CALIBRATORS, LEARNERS, METHODS
from unskew.data import Log
from unskew.data.datasets import Dataset, load
from unskew.debias.evaluation import evaluate
from unskew.metrics.collapse import Collapsed, counts
from unskew.propensity import Propensity, Uncertainty, load_propensity
from unskew.propensity.propensity import BasePropensity
from unskew.propensity.storage import save_propensity
from unskew.run.config import NO_METHOD, NO_PROPENSITY, Config
from unskew.run.files import complete
from unskew.run.job import contents_of, load_dataset, run
from unskew.run.propensities import fit_propensity
from unskew.run.protocol import protocol_of
from unskew.run.result import Result
from unskew.study.table import PREFIX, RESULT
from unskew.training import resolve_device
from unskew.training.saved import SavedFolder

OTHER_TEST = {"paper": "leak-free", "honest": "as shipped"}
"""What the test set is that a protocol does not read."""
WITHOUT_NUMBERS = ("cli", "report", "audit", "serve")
"""Packages that no number of a study depends on: changing them leaves its results as they are."""
PLACES: Any = {"data": {"root", "cache"}, "compute": {"device", "checkpoint", "every"}, "output": True}
"""Fields that say where something lies or runs: no result depends on them."""


@cache
def code_version() -> str:
    """Return a hash of the package's source files and of the versions of its libraries."""
    import scipy
    import torch

    digest = hashlib.sha256(f"{torch.__version__} {np.__version__} {scipy.__version__}".encode())
    home = Path(unskew.__file__).parent
    for path in sorted(home.rglob("*.py")):
        name = path.relative_to(home)
        if name.parts[0] not in WITHOUT_NUMBERS:
            digest.update(name.as_posix().encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def digest_of(**inputs: Any) -> str:
    """Return a hash of plain inputs and of the code; equal inputs and equal code give equal hashes.

    Examples
    --------
    >>> digest_of(seeds=[0, 1]) == digest_of(seeds=(0, 1)) != digest_of(seeds=[0])
    True
    """
    text = json.dumps({"code": code_version(), **inputs}, sort_keys=True, default=repr)
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _own_code(*names: tuple[Any, str]) -> list[str]:
    """Return the source files of the classes that are not the package's."""
    kinds = [registry[name] for registry, name in names if name in registry]
    own = [kind for kind in kinds if not kind.__module__.startswith("unskew.")]
    return [Path(inspect.getfile(kind)).read_text(encoding="utf-8") for kind in own]


@dataclass
class Workshop:
    """A folder of results, and the data and the propensity that the last run used.

    A result is a file and a propensity a folder, each written beside and moved into place: a process that is
    killed leaves at most what nobody reads, and the next one removes it.
    """

    folder: Path
    both_tests: bool = False
    """Whether models are measured on the test log of the other protocol too."""
    timing: dict[str, float] = field(default_factory=dict)
    """Seconds that the propensity of the last run took."""
    _dataset: tuple[str, Dataset] | None = None
    _propensity: tuple[str, BasePropensity] | None = None

    @contextmanager
    def opened(self) -> Iterator[Workshop]:
        """Open the folder for this process and its workers alone; a second study in it is an error."""
        where = str(self.folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            problem = f"cannot be written: {error.strerror}"
            raise RunFolderError(problem, where=where, remedy="choose another --out") from error
        lock = Lock(self.folder)
        if lock.take() is False:
            raise RunFolderError(
                "another study is running there", where=where, remedy="wait, or choose another --out"
            )
        try:
            for left in self.folder.glob(".*.partial-*"):
                shutil.rmtree(left) if left.is_dir() else left.unlink()
            yield self
        finally:
            lock.close()

    def load(self, config: Config, progress: Progress = SILENT) -> Dataset:
        """Return the data of a run; those of the last one stay in memory."""
        protocol = protocol_of(config).test_protocol
        key = repr((config.data, config.features, protocol, config.propensity.kind, config.evaluation.split))
        if self._dataset is None or self._dataset[0] != key:
            self._dataset = key, load_dataset(config, progress)
        return self._dataset[1]

    def key(self, config: Config) -> str:
        """Return the hash of a run: of its configuration, its data and the code."""
        config, _ = complete(config)
        named = (METHODS, config.method), (LEARNERS, config.learner), (CALIBRATORS, config.calibrator)
        return digest_of(
            config=config.model_dump(mode="json", exclude=PLACES),
            device=resolve_device(config.compute.device).type,
            data=contents_of(self.load(config)),
            both_tests=self.both_tests,
            own=_own_code(*named),
        )

    def run(self, config: Config, progress: Progress = SILENT) -> Result:
        """Run a configuration with the shared data and propensities."""
        self.timing = {}
        return run(config, progress, load=self.load, fit=self.fit)

    def fit(self, propensity: BasePropensity, log: Log, **options: Any) -> BasePropensity:
        """Fit a propensity, or read it off the models that an earlier run trained."""
        if not propensity.saves or "random_sample" in options:
            return fit_propensity(propensity, log, **options)
        reads: dict[str, Any] = {"calibrator": propensity.calibrator}
        bare = copy.copy(propensity).set_params(calibrator=None)
        if isinstance(propensity, Propensity):
            reads["uncertainty"] = propensity.uncertainty
            if propensity.method().same_training(Uncertainty()):
                bare.set_params(uncertainty=None)
        key = digest_of(
            propensity=plain_params(bare),
            kind=type(bare).__qualname__,
            own=_own_code((LEARNERS, getattr(bare, "learner", bare).name)),
            log=log.digest,
            seeds=list(options["seeds"]),
            device=resolve_device(options["device"]).type,
        )
        if self._propensity is None or self._propensity[0] != key:
            self._propensity = key, self._trained(self.folder / key, bare, log, **options)
        start = time.perf_counter()
        read = self._propensity[1].reread(**reads)
        self.timing = {**_timing(self.folder / key), "calibrate_seconds": time.perf_counter() - start}
        return read

    def _trained(self, folder: Path, bare: BasePropensity, log: Log, **options: Any) -> BasePropensity:
        """Return the models that are kept in a folder, or train and keep them."""
        try:
            loaded = load_propensity(folder, device=options["device"])
            _timing(folder)
        except RunFolderError:
            shutil.rmtree(folder, ignore_errors=True)
            start = time.perf_counter()
            fit_propensity(bare, log, **options)
            seconds = time.perf_counter() - start
            save_propensity(bare, folder, timing={"train_seconds": seconds})
            return bare
        assert isinstance(loaded, BasePropensity)
        loaded.use_log(log)
        return loaded

    def read(self, key: str) -> pa.Table | None:
        """Return the table of a run by its hash; None where it is not finished, or damaged."""
        try:
            return pq.read_table(self.folder / f"{key}.parquet", schema=RESULT)
        except (OSError, pa.ArrowException):
            return None

    def finish(self, config: Config, key: str, progress: Progress = SILENT) -> None:
        """Run a configuration, and keep what it found under its hash."""
        rows = [{"config": key, **row} for row in self._rows(config, progress)]
        with whole_file(self.folder / f"{key}.parquet") as beside:
            pq.write_table(pa.Table.from_pylist(rows, schema=RESULT), beside)

    def kept(self, key: str, make: Callable[[], Any]) -> Any:
        """Return plain values that are kept under a hash, or make and keep them."""
        path = self.folder / f"{key}.json"
        if not path.is_file():
            write_json(path, make())
        return json.loads(path.read_text(encoding="utf-8"))

    def _rows(self, config: Config, progress: Progress) -> list[dict[str, Any]]:
        """Return what a run found; where a loss became NaN, what its seeds found one by one."""
        start = time.perf_counter()
        try:
            result = self.run(config, progress)
        except TrainingError:
            if len(config.seeds) == 1:
                seed = config.seeds[0]
                return [{"part": "method", "seed": seed, "metric": "diverged", "value": 1.0}]
            alone = [config.changed({"evaluation.seed": s, "evaluation.seeds": 1}) for s in config.seeds]
            rows = [row for one in alone for row in self._rows(one, progress)]
            # Intervals over test users and seconds are of all seeds together.
            return [row for row in rows if "seed" in row]
        timing = {"seconds": time.perf_counter() - start, **self.timing}
        if config.method == NO_METHOD and result.propensity is not None:
            start = time.perf_counter()
            result.propensity.predict_each(result.dataset.train)
            timing["predict_seconds"] = time.perf_counter() - start
        rows = [*_propensity_rows(result), *self._model_rows(result)]
        return rows + [{"part": "timing", "metric": name, "value": value} for name, value in timing.items()]

    def _model_rows(self, result: Result) -> Iterator[dict[str, Any]]:
        """Yield the metrics of the main model on each test log, and what its training was like."""
        if result.main not in result.models:
            return
        model = result.models[result.main]
        tests = {"": result.evaluated[result.main]} if result.evaluated else {}
        if (other := self._other_test(result)) is not None:
            name = OTHER_TEST[protocol_of(result.config).test_protocol]
            tests[name] = evaluate(model, other)
        for test, measured in tests.items():
            for metric, values in measured.items():
                yield from _of_seeds("method", model.seeds_, metric, values, test=test)
                known = [line for line in measured.resampled[metric] if np.isfinite(line).any()]
                if known:
                    yield {"part": "users", "test": test, "metric": metric, "users": np.mean(known, axis=0)}
        members = (len(model.seeds_), -1)
        figures = {"best_epoch": model.history_.best_epoch, "validation_loss": model.validation_loss_}
        for metric, of_members in figures.items():
            if of_members is not None:
                means = np.reshape(np.array(of_members, dtype=np.float64), members).mean(axis=1)
                yield from _of_seeds("method", model.seeds_, metric, means)
        yield from _of_seeds("method", model.seeds_, "diverged", np.zeros(len(model.seeds_)))
        for metric, marks in collapsed_values(model.collapsed_, model.seeds_, model.members).items():
            yield from _of_seeds("method", model.seeds_, metric, marks)

    def _other_test(self, result: Result) -> Log | None:
        """Return the test log that the protocol does not read, where it is asked for and differs."""
        data = result.config.data
        if not (self.both_tests and result.dataset.facts.get("leaked_cells_found")):
            return None
        own = protocol_of(result.config).test_protocol
        root = None if data.root is None else Path(data.root)
        return load(
            str(data.source), root, protocol="honest" if own == "paper" else "paper", **data.options
        ).test


def _propensity_rows(result: Result) -> Iterator[dict[str, Any]]:
    """Yield the figures of the propensities, seed by seed."""
    figures = result.metrics.get("propensity", {}).get("calibrated", {}).get("per_seed", {})
    if not result.sketches or result.config.propensity.kind == NO_PROPENSITY:
        return
    for metric, values in figures.items():
        yield from _of_seeds("propensity", result.config.seeds, metric, values)
    if result.propensity is not None:
        collapsed = collapsed_values(result.propensity.collapsed_, result.config.seeds)
        for metric, values in collapsed.items():
            yield from _of_seeds("propensity", result.config.seeds, metric, values)


def _of_seeds(
    kind: str, seeds: Iterable[int], metric: str, values: Iterable[float], test: str = ""
) -> Iterator[dict[str, Any]]:
    for seed, value in zip(seeds, values, strict=True):
        yield {"part": kind, "test": test, "seed": seed, "metric": metric, "value": float(value)}


def _timing(folder: Path) -> dict[str, float]:
    """Return the seconds that a kept propensity took to train."""
    return {name: float(value) for name, value in SavedFolder(folder).entry("timing", kind=dict).items()}


def collapsed_values(
    collapsed: Iterable[Collapsed], seeds: Sequence[int], members: int = 1
) -> dict[str, list[float]]:
    """Return by metric 1 for each seed whose network collapsed and 0 for the others; empty if none did.

    Examples
    --------
    >>> collapsed_values([Collapsed("imputation", 4, "flat")], (3, 4))
    {'collapsed:imputation:flat': [0.0, 1.0]}
    """
    networks = list(collapsed)
    of_seeds = [counts((each for each in networks if each.seed == seed), members) for seed in seeds]
    by_seed = [{(name, why) for name, why, times in of_seed if times} for of_seed in of_seeds]
    return {
        f"{PREFIX}{network}:{reason}": [float((network, reason) in names) for names in by_seed]
        for network, reason, _ in counts(networks, members)
    }
