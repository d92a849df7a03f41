"""A bounded search for parameters by Optuna: it sees held-out clicks or a random sample, never a test set."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.base.errors import ParameterError, TrainingError
from unskew.base.estimator import require
from unskew.base.progress import SILENT, Progress
from unskew.data.datasets import Dataset
from unskew.debias import METHODS
from unskew.metrics.proper import nll
from unskew.report.table import Table
from unskew.run.config import AUTO, NO_METHOD
from unskew.run.job import load_dataset
from unskew.run.models import method_of
from unskew.run.propensities import propensities_of
from unskew.run.protocol import protocol_of
from unskew.run.sizes import sized, sizes_of

if TYPE_CHECKING:
    from unskew.run.config import Config

SPACE = {"method.learning_rate": "3e-4:3e-2:log", "method.regularisation": "0.5:50:log"}
"""What is searched unless a space is given: the two parameters that matter most for networks."""


@dataclass(frozen=True)
class Trial:
    """One training: its values, the loss that judged it (None where it diverged) and its seconds."""

    number: int
    values: Mapping[str, Any]
    loss: float | None
    seconds: float


@dataclass(frozen=True)
class Tuned:
    """The result of a search for hyperparameters.

    Attributes
    ----------
    judged_on
        The rows that losses are of. The least loss is a little too good: it was chosen among many.
    """

    judged_on: str
    space: Mapping[str, str]
    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial:
        """Return the trial with the least loss."""
        return min(self.trials, key=lambda trial: np.inf if trial.loss is None else trial.loss)

    @property
    def sentence(self) -> str:
        """Return what was found, with the options that repeat it."""
        values = self.best.values.items()
        options = " ".join(f"--set {name}={value:.4g}" for name, value in values if isinstance(value, float))
        options += "".join(f" --set {name}={value}" for name, value in values if not isinstance(value, float))
        first = self.trials[0].loss
        before = "diverged" if first is None else f"had {first:.5f}"
        return (
            f"The least loss on {self.judged_on} is {self.best.loss:.5f}, in trial {self.best.number} of"
            f" {len(self.trials)} (the first {before}): {options}. No test set was looked at."
        )

    def table(self) -> Table:
        """Return every trial, the best first."""
        ordered = sorted(self.trials, key=lambda trial: np.inf if trial.loss is None else trial.loss)
        rows = [(f"{trial.number}", *trial.values.values(), trial.loss, trial.seconds) for trial in ordered]
        columns = ("trial", *self.space, "loss", "seconds")
        return Table(f"Trials, by their loss on {self.judged_on}", columns, rows, units={"seconds": "fixed1"})

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {**asdict(self), "best": asdict(self.best), "sentence": self.sentence}

    def svg(self) -> str:
        """Draw the loss of every trial and the least so far, as a picture that stands alone."""
        from unskew.report.plots.curves import tuning_svg

        return tuning_svg([trial.loss for trial in self.trials], self.judged_on)


def tune(
    config: Config,
    space: Mapping[str, str] = SPACE,
    *,
    trials: int = 20,
    seed: int = 0,
    progress: Progress = SILENT,
) -> Tuned:
    """Search a space of parameters for the least loss on held-out clicks, or on a random sample.

    Parameters
    ----------
    space
        By the names that ``--set`` takes: ``"LOW:HIGH"``, ``"LOW:HIGH:log"`` (whole numbers where both ends
        are), or values parted by commas.
    trials
        Trainings; the propensities are fitted once.
    """
    try:
        import optuna
    except ImportError:
        problem = "unskew tune needs Optuna, which is not installed"
        raise ParameterError(problem, remedy="pip install unskew[tune]") from None
    require(config.method not in (AUTO, NO_METHOD), f"method {config.method} has nothing to tune", "name one")
    require(trials >= 1, f"trials must be at least 1, not {trials}", "give 20, for example")
    parsed = {name: parsed_values(name, text) for name, text in space.items()}
    dataset = replace(load_dataset(config, progress), test=None)
    log = dataset.train
    config = sized(config.resolved(), sizes_of(config, log))
    protocol = protocol_of(config)
    weights = METHODS[config.method].needs_propensity
    propensity = propensities_of(config, protocol, dataset, progress).weigh if weights else None
    done: list[Trial] = []

    def loss_of(trial: Any) -> float:
        values = {name: suggested(trial, name, kind) for name, kind in parsed.items()}
        start = time.perf_counter()
        tried = config.changed(values)
        method = method_of(tried, protocol, config.method, log.density)
        try:
            model = method.fit(
                log,
                propensity=propensity,
                seeds=config.seeds,
                validation=protocol.validation(dataset),
                device=config.compute.device,
                progress=progress,
                label=f"trial {trial.number + 1} of {trials}",
            )
            loss: float | None = judged_loss(model, dataset)
        except TrainingError:
            loss = None
        done.append(Trial(trial.number + 1, values, loss, time.perf_counter() - start))
        if loss is None:
            raise optuna.TrialPruned
        return loss

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    optuna.create_study(sampler=optuna.samplers.TPESampler(seed=seed)).optimize(loss_of, n_trials=trials)
    if all(trial.loss is None for trial in done):
        raise TrainingError("every trial diverged", remedy="give a space with smaller learning rates")
    judged_on = "held-out clicks" if dataset.unbiased is None else "the random sample"
    return Tuned(judged_on, dict(space), tuple(done))


def judged_loss(model: Any, dataset: Dataset) -> float:
    """Return the log-loss on the random sample, or without one the validation loss."""
    if dataset.unbiased is None:
        require(model.validation_loss_ is not None, "no clicks are held out to judge by", "give --split")
        return float(np.mean(model.validation_loss_))
    rows = dataset.unbiased.take(dataset.unbiased.clicked)
    outcome = dataset.unbiased.known_conversion()
    return float(np.mean([nll(line, outcome) for line in model.predict_each(rows)]))


def parsed_values(name: str, text: str) -> tuple[Any, ...]:
    """Return the choices of a parameter, or its ends and whether they are of a logarithmic scale.

    Examples
    --------
    >>> parsed_values("learner.dim", "8:64:log"), parsed_values("method.selection", "ce,snips")
    ((8, 64, True), ('ce', 'snips'))
    """
    parts = text.split(":")
    if len(parts) == 1:
        return tuple(number_or_text(value) for value in text.split(","))
    low, high = (number_or_text(value) for value in parts[:2])
    if isinstance(low, str) or isinstance(high, str) or low >= high or parts[2:] not in ([], ["log"]):
        raise ParameterError(
            f"{name}={text} is no range", remedy="write for example 1e-4:1e-2:log or 8,16,32"
        )
    return low, high, bool(parts[2:])


def number_or_text(text: str) -> int | float | str:
    """Return the number that a text is, or the text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def suggested(trial: Any, name: str, kind: tuple[Any, ...]) -> Any:
    """Ask Optuna for a value."""
    if len(kind) != 3 or not isinstance(kind[2], bool):
        return trial.suggest_categorical(name, kind)
    whole = all(isinstance(end, int) for end in kind[:2])
    suggest = trial.suggest_int if whole else trial.suggest_float
    return suggest(name, kind[0], kind[1], log=kind[2])
