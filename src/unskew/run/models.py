"""The conversion models of a run: made as the configuration says, trained, and recalibrated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unskew.base.errors import RunFolderError
from unskew.base.manifest import MANIFEST
from unskew.base.progress import Progress
from unskew.calibration.recalibration import AUTO, NONE
from unskew.data import Log
from unskew.data.datasets import Dataset
from unskew.data.digest import digest_of
from unskew.debias import METHODS, Debiaser, load_model
from unskew.debias.method import require_shown_alone
from unskew.learners import Learner, make_learner
from unskew.run.config import AUTO as AUTO_METHOD
from unskew.run.config import NO_METHOD
from unskew.run.decision import BASELINE
from unskew.run.parameters import changed
from unskew.run.protocol import Protocol, validation_params
from unskew.training.saved import SavedFolder
from unskew.training.warm_start import without_seed

if TYPE_CHECKING:
    from unskew.run.config import Config


def method_of(
    config: Config, protocol: Protocol, name: str, density: float, learner: Learner | None = None
) -> Debiaser:
    """Return a method by name, untrained, with all that the configuration says of it."""
    if learner is None:
        learner = changed(make_learner(config.learner), "learner", config.model.parameters)
    method = protocol.method(name, learner, density)
    evaluation = config.evaluation
    method.set_params(**validation_params(evaluation.split, evaluation.valid_from, config.data.time))
    method.fields = config.features.model
    method.members = config.model.members
    # The naive model trains without propensities, and is recalibrated with them afterwards.
    method.recalibrate = NONE if name == BASELINE else config.model.recalibrate
    return changed(method, "method", config.model.parameters)


def keys_of(config: Config, kinds: Mapping[str, Any]) -> dict[str, str]:
    """Return the methods of a run by the keys of its models, which end in the kind of their propensities."""
    if config.method == NO_METHOD:
        return {}
    others = () if config.method in (BASELINE, AUTO_METHOD) else kinds
    first = (BASELINE,) if not others or BASELINE in config.evaluation.beside else ()
    return {**dict.fromkeys(first, BASELINE), **{f"{config.method}{kind}": config.method for kind in others}}


def fit_models(
    config: Config,
    protocol: Protocol,
    dataset: Dataset,
    propensities: Mapping[str, Any],
    starts: Mapping[str, Debiaser],
    progress: Progress,
) -> dict[str, Debiaser]:
    """Train the baseline, and the method with each kind of propensity."""
    models: dict[str, Debiaser] = {}
    validation = protocol.validation(dataset)
    if dataset.train.known_propensity is not None:
        require_shown_alone(METHODS[config.method]())
    for key, name in keys_of(config, propensities).items():
        method = method_of(config, protocol, name, dataset.train.density)
        propensity = None if name == BASELINE else propensities[key.removeprefix(config.method)]
        models |= method.fit_many(
            dataset.train,
            propensities={key: propensity},
            validation=validation,
            seeds=config.seeds,
            device=config.compute.device,
            progress=progress,
            label=key.replace("_", " "),
            start=starts.get(key),
        )
    return models


def started_from(
    config: Config, protocol: Protocol, dataset: Dataset, kinds: Mapping[str, Any]
) -> dict[str, Debiaser]:
    """Return the models of an earlier run by the keys of this one; one that does not fit is an error."""
    folder = config.model.start
    if folder is None:
        return {}
    log, validation = dataset.train, protocol.validation(dataset)
    names = keys_of(config, kinds)
    found = start_models(folder, names, config.compute.device)
    for key, model in found.items():
        method = method_of(config, protocol, names[key], log.density)
        method.check_start(model, log, config.seeds, called=str(folder), validation=validation)
    return found


def recalibrate_models(
    config: Config, models: Mapping[str, Debiaser], log: Log, propensity: Any, unbiased: Log | None = None
) -> None:
    """Mend the levels: by a random sample where there is one, else those of models trained without weights.

    Without a propensity these stay as they are. A run that chooses its method by a random sample mends levels
    by it unasked.
    """
    asked = config.model.recalibrate
    kind = AUTO if asked == NONE and config.method == AUTO_METHOD else asked
    if unbiased is not None and kind != NONE:
        for model in models.values():
            model.recalibrate_on(unbiased, by=kind)
    elif asked != NONE and propensity is not None:
        for model in models.values():
            if model.recalibration_ is None:
                model.recalibrate_on(log, propensity=propensity, by=kind)


def run_digest(folder: str | Path) -> str:
    """Return the digest of a run folder: of its manifest, which lists all its files."""
    return digest_of(SavedFolder(folder).text(MANIFEST))


def check_start(folder: str | Path, seeds: Sequence[int]) -> None:
    """Raise for a folder from which no run with these seeds can start, before any row is read."""
    saved = SavedFolder(folder)
    has = saved.seeds("methods", next(iter(_models_of(saved, folder))), "seeds")
    missing = [seed for seed in seeds if seed not in has]
    if missing:
        raise without_seed(missing[0], has, str(folder))


def _models_of(saved: SavedFolder, folder: str | Path) -> Mapping[str, Any]:
    """Return what its config says of the conversion models of a run, by key; without any, raise."""
    there = saved.entry("methods", kind=dict) if "methods" in saved.config else {}
    if not there:
        raise RunFolderError(
            "holds no conversion model to start from", where=str(folder), remedy="give another run, or none"
        )
    return there


def start_models(folder: str | Path, keys: Iterable[str], device: str) -> dict[str, Debiaser]:
    """Return the model of an earlier run for each key; its main model where it has none of that key."""
    saved = SavedFolder(folder)
    there = _models_of(saved, folder)
    return {key: load_model(saved, key if key in there else None, device=device) for key in keys}


def start_figures(
    folder: str | Path, models: Mapping[str, Debiaser], main: str, log: Log
) -> tuple[dict[str, Any], list[str]]:
    """Return what changed since the run that models started from, and the same in words."""
    changes = {
        key: model.start_.changes(model, log) for key, model in models.items() if model.start_ is not None
    }
    if not changes:
        return {}, []
    fields = changes[main]["fields"]
    moved = {
        key: {name: value for name, value in change.items() if name != "fields"}
        for key, change in changes.items()
    }
    labels = [_of_fields(folder, fields), *map(_of_model, moved, moved.values())]
    return {"start": {"run": str(folder), "fields": fields, "models": moved}}, labels


def _of_fields(folder: str | Path, fields: Mapping[str, Mapping[str, int]]) -> str:
    words = []
    for name, carried in fields.items():
        is_id = name in ("user", "item")
        if is_id or carried["new"] or carried["gone"]:
            called = f"{name}s" if is_id else f"'{name}'"
            counts = (f"{carried[what]:,} {what}" for what in ("kept", "new", "gone"))
            words.append(f"{called} {', '.join(counts)}")
    return f"started from {folder}: {'; '.join(words)}"


def _of_model(key: str, moved: Mapping[str, Any]) -> str:
    name = key.replace("_", " ")
    if "rows" not in moved:
        return f"{name}: no row is of a user and an item that both models know"
    order = "–" if moved["rank_correlation"] is None else f"{moved['rank_correlation']:.3f}"
    return (
        f"{name}: predictions of {moved['rows']:,} rows moved by {moved['mean_absolute_change']:.2g} on"
        f" average (rank correlation {order}, mean {moved['mean_before']:.3g} → {moved['mean_after']:.3g})"
    )
