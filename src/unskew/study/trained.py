"""What results of a study hold: propensities, trained once and calibrated in every way, and stacks of models.

How they are trained is in :mod:`unskew.run.training`; here they are kept, and read back.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import TrainingError
from unskew.base.progress import Progress
from unskew.data import Log, Schema
from unskew.data.datasets import Dataset
from unskew.debias import Debiaser
from unskew.debias.evaluation import evaluate_users
from unskew.debias.fit import validation_loss
from unskew.debias.setting import Observed
from unskew.metrics import CalibrationSketch
from unskew.metrics.clip import Clip
from unskew.metrics.user_bootstrap import RESAMPLES
from unskew.propensity import Propensity, Uncertainty, load_propensity
from unskew.propensity.given import given_propensities
from unskew.propensity.storage import save_propensity
from unskew.run.protocol import Protocol
from unskew.run.training import given_everywhere, read_off
from unskew.study.results import ResultStore, described, result_key
from unskew.study.table import collapsed_values


@dataclass(frozen=True)
class Given:
    """One set of propensities as methods take it: a result with rows and, where needed, one of all pairs."""

    propensity: str
    calibrator: str
    seeds: tuple[int, ...]
    key: str
    matrix_key: str
    raw_key: str
    """The result with the trained model; empty where nothing was trained."""

    @property
    def name(self) -> str:
        """Return the name under which a method of a grid asks for it."""
        return f"{self.propensity} {self.calibrator}"

    def rows(self, store: ResultStore) -> NDArray[np.float64]:
        """Read ``[seeds, n]``, those of the log's rows; one line where all seeds have the same."""
        result = store.read(self.key)
        assert result is not None
        rows: NDArray[np.float64] = result.arrays["rows"]
        return rows

    def sketch(self, store: ResultStore) -> CalibrationSketch:
        """Read the scores against clicks of the first seed, on the cells where they are judged."""
        return CalibrationSketch.load(store.sketch(self.key))


def as_trained(propensity: Propensity) -> Propensity:
    """Return the same without an uncertainty that only reads trained networks off: it is trained alike."""
    reads_off = propensity.method().same_training(Uncertainty())
    return copy.copy(propensity).set_params(uncertainty=None) if reads_off else propensity


def train_raw(
    store: ResultStore, key: str, propensity: Propensity, log: Log, progress: Progress, **fit: Any
) -> None:
    """Train, and keep the networks as a result."""
    start = time.perf_counter()
    propensity.fit(log, progress=progress, **fit)
    seconds = time.perf_counter() - start
    store.remove(key)
    epochs = len(propensity.history_.validation) or propensity.epochs
    timing = {"train_seconds": seconds, "epochs": epochs}
    save_propensity(propensity, store.subfolder(key), timing=timing)


def check(propensity: Propensity) -> None:
    """Refuse, before any training, parameters that could not be trained."""
    propensity._check()
    propensity.method().check_network(propensity.trained_learner().build(Schema.of_ids(2, 2), [0]))


def trained(store: ResultStore, key: str, log: Log, device: str) -> Propensity:
    """Read the propensity of such a result, ready to be calibrated and judged on its log."""
    propensity = load_propensity(store.subfolder(key), device=device)
    assert isinstance(propensity, Propensity)
    propensity.use_log(log)
    return propensity


def calibrate(
    store: ResultStore, key: str, trained: Propensity, read: Mapping[str, Any], log: Log, protocol: Protocol
) -> None:
    """Read a trained propensity off anew; keep the propensities of the log's rows and their figures.

    Parameters
    ----------
    read
        The calibrator and the uncertainty.
    """
    start = time.perf_counter()
    propensity = trained.reread(**read)
    fitted = time.perf_counter() - start
    found = read_off(propensity, log, protocol.clip)["calibrated"]
    further = protocol.further_figures(propensity, log)
    collapsed = collapsed_values(propensity.collapsed_, propensity.seeds_)
    figures = {**found.figures["per_seed"], **further, **collapsed}
    timing = {"calibrate_seconds": fitted, "predict_seconds": found.seconds}
    found.sketch.save(store.sketch(key))
    store.write(key, {"figures": figures, "timing": timing}, {"rows": found.rows})


def keep_given(store: ResultStore, key: str, name: str, data: Dataset, seeds: int, p_min: Clip) -> None:
    """Keep a propensity that is known without training: the share of clicks, or the truth."""
    log, arrays = data.train, {}
    if name == "true":
        assert data.truth is not None
        arrays["matrix"] = data.truth.propensity[None]
        found = given_everywhere(log, data.truth.propensity.ravel(), p_min, seeds)
    else:
        found = given_everywhere(log, log.density, p_min, seeds)
    facts = {"figures": found.figures["per_seed"], "timing": {}}
    found.sketch.save(store.sketch(key))
    store.write(key, facts, {"rows": found.rows, **arrays})


Values = dict[str, list[float]]
"""By metric, one value per seed."""
OverUsers = dict[str, NDArray[np.float64]]
"""By metric, the same on resamples of the test users ``[seeds, resamples]``."""
ON = " on "
"""Between the name of a metric and that of a test log which is not the dataset's own."""
USERS = "users"
"""Array of a result: those resamples, averaged over seeds ``[sets of propensities, metrics, resamples]``."""


@dataclass(frozen=True, eq=False)
class Stack:
    """Replicas that are trained at once: they differ in their seeds or propensities alone."""

    data: Dataset
    data_hash: str
    tests: Mapping[str, Log]
    """On which the models are evaluated, by name; in a search on none."""
    validation: Log | None
    method: Debiaser
    given: tuple[Given | None, ...]
    seeds: tuple[int, ...]
    device: str
    device_type: str
    judge: Debiaser | None = None
    """Of a search: the method before it is tuned. Its clip and selection weigh the validation loss of every
    trial alike. None is no search."""

    @cached_property
    def key(self) -> str:
        """Return the key of its result."""
        return result_key(
            "method",
            data=self.data_hash,
            method=described(self.method),
            given=[None if each is None else each.key for each in self.given],
            seeds=self.seeds,
            device=self.device_type,
            judge=self.judge and described(self.judge),
        )

    def rows(self, store: ResultStore) -> Iterator[dict[str, Any]]:
        """Read the result as rows of the long table, with the test's name for dataset and method."""
        result = store.read(self.key)
        assert result is not None
        for number, (given, values) in enumerate(zip(self.given, result.facts["values"], strict=True)):
            names = {
                "propensity": "" if given is None else given.propensity,
                "calibrator": "" if given is None else given.calibrator,
            }
            for name, line in values.items():
                for seed, value in zip(self.seeds, line, strict=True):
                    yield {**names, **_of_test(name), "seed": seed, "value": value, "part": "method"}
            for line, name in enumerate(result.facts[USERS]):
                draws = result.arrays[USERS][number, line]
                if np.isfinite(draws).any():
                    yield {**names, **_of_test(name), "seed": None, "users": draws, "part": "users"}
            for name, seconds in result.facts["timing"].items():
                yield {**names, **_of_test(name), "seed": None, "value": seconds, "part": "timing"}


def _of_test(name: str) -> dict[str, str]:
    metric, _, test = name.partition(ON)
    return {"metric": metric, "test": test}


def run_stack(stack: Stack, store: ResultStore, progress: Progress, label: str) -> None:
    """Train, evaluate and keep the numbers of a stack as a result."""
    start = time.perf_counter()
    measured = _measured(stack, store, progress, label)
    seconds = (time.perf_counter() - start) / len(stack.given)
    names = list(dict.fromkeys(name for _, users in measured for name in users))
    facts = {"values": [values for values, _ in measured], "timing": {"train_seconds": seconds}, USERS: names}
    store.write(stack.key, facts, {USERS: np.stack([_averaged(users, names) for _, users in measured])})


def _averaged(users: OverUsers, names: Sequence[str]) -> NDArray[np.float64]:
    """Average over the seeds that have a value ``[metrics, resamples]``; NaN where none has."""
    lines = np.full((len(names), RESAMPLES), np.nan)
    for number, name in enumerate(names):
        known = [line for line in users.get(name, ()) if np.isfinite(line).any()]
        if known:
            lines[number] = np.mean(known, axis=0)
    return lines


def _measured(
    stack: Stack, store: ResultStore, progress: Progress, label: str
) -> list[tuple[Values, OverUsers]]:
    """Measure each set of propensities; where a loss became NaN, train the others without it."""
    everywhere = stack.method.needs_propensity_everywhere and stack.data.train.space == "matrix"
    sets: Mapping[str, Any] = {
        str(number): None if each is None else _read(store, each, everywhere, stack.seeds)
        for number, each in enumerate(stack.given)
    }
    try:
        models = stack.method.fit_many(
            stack.data.train,
            propensities=sets,
            validation=stack.validation,
            seeds=stack.seeds,
            device=stack.device,
            progress=progress,
            label=label,
        )
    except TrainingError:
        if len(stack.given) > 1:
            alone = [replace(stack, given=(each,)) for each in stack.given]
            return [_measured(one, store, progress, label)[0] for one in alone]
        if len(stack.seeds) == 1:
            return [({"diverged": [1.0]}, {})]
        alone = [replace(stack, seeds=(seed,)) for seed in stack.seeds]
        lines = [_measured(one, store, progress, label)[0] for one in alone]
        names = dict.fromkeys(name for line, _ in lines for name in line)
        values = {name: [line.get(name, [math.nan])[0] for line, _ in lines] for name in names}
        names = dict.fromkeys(name for _, users in lines for name in users)
        users = {name: np.concatenate([of[name] for _, of in lines if name in of]) for name in names}
        return [(values, users)]
    return [
        _evaluated(model, _validation_loss(stack, model, sets[number]), stack.tests)
        for number, model in models.items()
    ]


def _validation_loss(stack: Stack, model: Debiaser, propensity: Any) -> list[float] | None:
    """A model's own; in a search under the judge's weights, since 1/max(p, p_min) differ between trials."""
    log, judge = stack.data.train, stack.judge
    own = model.validation_loss_
    if own is None or judge is None or propensity is None or stack.validation is not None:
        return None if own is None else _by_seed(own, model)
    given = given_propensities(log, propensity, model.seeds_, judge.p_min).of_members(model.members)
    replicas = model.replicas()
    seeds, parts = tuple(each.seed for each in replicas), tuple(each.part for each in replicas)
    data = Observed(log, given, seeds, model.device_, parts=parts)
    _, held_out = data.split(model.split_.held_out, model.split_.by, {})
    loss = validation_loss(
        model.networks_["prediction"], data, held_out, log, None, weighted=judge.selection == "snips"
    )
    assert loss is not None
    return _by_seed(loss().tolist(), model)


def _by_seed(values: Sequence[float], model: Debiaser) -> list[float]:
    """Average over the members of each seed."""
    return [float(each) for each in np.reshape(values, (len(model.seeds_), -1)).mean(axis=1)]


def _read(store: ResultStore, given: Given, everywhere: bool, seeds: tuple[int, ...]) -> Any:
    """Read the propensities of some seeds from their result: the same numbers whenever it was made."""
    result = store.read(given.matrix_key if everywhere else given.key)
    assert result is not None
    if everywhere and "matrix" not in result.arrays:
        return float(result.arrays["rows"][0, 0])
    lines = result.arrays["matrix" if everywhere else "rows"]
    return lines if len(lines) == 1 else lines[[given.seeds.index(seed) for seed in seeds]]


def _evaluated(
    model: Debiaser, loss: list[float] | None, tests: Mapping[str, Log]
) -> tuple[Values, OverUsers]:
    values: dict[str, list[float]] = {}
    resampled: OverUsers = {}
    for test, log in tests.items():
        found, suffix = evaluate_users(model, log), f"{ON}{test}" if test else ""
        values |= {f"{name}{suffix}": list(line) for name, line in found.values.items()}
        resampled |= {f"{name}{suffix}": draws for name, draws in found.resampled.items()}
    if loss is not None:
        values["validation_loss"] = loss
    values["best_epoch"] = _by_seed(model.history_.best_epoch, model)
    values["diverged"] = [0.0] * len(model.seeds_)
    values |= collapsed_values(model.collapsed_, model.seeds_, model.members)
    numbers = {name: [float(np.float64(value)) for value in line] for name, line in values.items()}
    return numbers, resampled
