"""The main job: log → propensity → calibration → debiased model → evaluation. Writes nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from unskew.audit.actions import Moments, judged_actions
from unskew.base import processes
from unskew.base.errors import DataError
from unskew.base.estimator import require
from unskew.base.progress import SILENT, Progress
from unskew.base.tables import column_names
from unskew.data.datasets import Dataset, load
from unskew.data.datasets.dataset import with_unbiased_share
from unskew.data.leaks import require_no_leaks
from unskew.debias import METHODS, Debiaser
from unskew.debias.method import require_shown_alone
from unskew.metrics.clip import resolve_clip
from unskew.offpolicy.auto import Searched
from unskew.propensity import InSampleWarning, NaiveBayesPropensity, registered_name
from unskew.propensity.given import warn_if_in_sample
from unskew.run.protocol import Protocol, protocol_of
from unskew.run.run_config import RunConfig
from unskew.run.run_fields import with_fields
from unskew.run.run_figures import (
    BASELINE,
    calibrated_by,
    confounding_figures,
    known_figures,
    known_labels,
    recalibration_figures,
    recalibration_labels,
    spread_figures,
    truth_figures,
)
from unskew.run.run_parts import (
    NO_METHOD,
    method_of,
    recalibrate_models,
    require_conversions,
    run_metrics,
    set_by_hand,
    with_leaks,
)
from unskew.run.run_propensity import (
    fitted_propensity,
    predicts_everywhere,
    require_everywhere,
    run_labels,
    unknown_propensity,
)
from unskew.run.run_result import RunResult
from unskew.run.run_search import (
    AUTO,
    looks_at_sample,
    require_apart,
    search_of_run,
    shipped_models,
)
from unskew.run.run_split import mature_dataset, with_group_column
from unskew.run.run_start import Starts, check_start, run_digest, start_models, with_start
from unskew.run.run_tower import own_tower, tower_figures, tower_labels, tower_record
from unskew.run.sizes import sized, sizes_label, sizes_of
from unskew.run.training import read_off
from unskew.training import resolve_device
from unskew.training.checkpoint import Checkpoint


def run(
    config: RunConfig,
    progress: Progress = SILENT,
    show: Callable[[Dataset], None] | None = None,
    checkpoint: Checkpoint | str | Path | None = None,
    start: str | Path | None = None,
) -> RunResult:
    """Train, calibrate, debias and evaluate; ``save`` of the result writes the run folder.

    Parameters
    ----------
    show
        Gets the dataset before anything is trained.
    checkpoint
        A folder, or a :class:`~unskew.Checkpoint`, from which the same job goes on after it was killed. Its
        states are removed when the result is saved.
    start
        An earlier run folder: conversion models start from its models (``fit(…, start=…)``), and what changed
        is under ``"start"`` in the metrics. The propensity, which must fit the new log, is fitted anew.

    Examples
    --------
    >>> import unskew as us
    >>> small = {"n_users": 40, "n_items": 30, "density": 0.2}
    >>> result = us.run(us.RunConfig(options=small, backbone="mf", seeds=1, crossfit=2, propensity_epochs=1))
    >>> list(result.models), result.main
    (['naive', 'ips_raw', 'ips'], 'ips')
    """
    require(
        start is None or config.method != AUTO,
        "a search does not start from another run",
        "leave --from out, or give a --method",
    )
    if start is not None:
        check_start(start, config.seed_list)
    journal = None if checkpoint is None else Checkpoint.of(checkpoint)
    dataset = _loaded(config, progress)
    require_same_data(dataset)
    if journal is not None:
        journal.open({**_about(config, dataset), "start": None if start is None else run_digest(start)})
    with nullcontext() if journal is None else journal.in_effect():
        if show is not None:
            show(dataset)
        result = _run(config, dataset, progress, start)
        return replace(result, checkpoint=journal)


def _loaded(config: RunConfig, progress: Progress) -> Dataset:
    """Return the logs of a run."""
    root = None if config.root is None else Path(config.root)
    options = _loader_options(config)
    dataset = load(config.data, root, protocol=config.protocol, progress=progress, **options)
    require_conversions(config, dataset.train.conversion is not None)
    if not looks_at_sample(config):
        dataset = replace(dataset, unbiased=None)
    if config.unbiased_share is not None:
        dataset = with_unbiased_share(dataset, config.unbiased_share)
    require_apart(dataset)
    return mature_dataset(dataset, config.maturity, config.time)


def contents_of(dataset: Dataset) -> dict[str, str | None]:
    """By what the logs of a run are known again."""
    logs = {"train": dataset.train, "test": dataset.test, "validation": dataset.validation}
    logs |= {"unbiased": dataset.unbiased}
    return {name: None if log is None else log.digest for name, log in logs.items()}


def require_same_data(dataset: Dataset) -> None:
    """Raise where a process has read other data than the first, as a machine with an old copy does."""
    if processes.world() == 1:
        return
    found = [contents for contents, _ in processes.exchange(lambda: (contents_of(dataset), {}))]
    for rank, contents in enumerate(found):
        other = [name for name, digest in contents.items() if digest != found[0][name]]
        if other:
            raise DataError(
                f"rank {rank} of {processes.world()} has read other data than rank 0 ({', '.join(other)})",
                remedy="give all machines the same files, under the same path",
            )


def _about(config: RunConfig, dataset: Dataset) -> dict[str, Any]:
    """What a checkpoint knows a job by: where its data lie and where it writes are not part of it."""
    return {
        **{name: value for name, value in config.to_dict().items() if name != "root"},
        "device": resolve_device(config.device).type,
        "contents": contents_of(dataset),
    }


def _run(given: RunConfig, dataset: Dataset, progress: Progress, start: str | Path | None) -> RunResult:
    sizes = sizes_of(given, dataset.train)
    config = sized(given, sizes)
    result = _run_sized(config, dataset, progress, start)
    labels = [each for each in result.metrics["labels"] if each not in set_by_hand(config)]
    if config.members > 1 and result.models:
        labels.append(f"each model is an ensemble of {config.members} members")
    labels += [*recalibration_labels(result.models), *sizes_label(sizes), *set_by_hand(given)]
    found = recalibration_figures(result.models)
    names = calibrated_by(result.propensity)
    by = {"calibrated_by": names} if names else {}
    return replace(result, metrics={**result.metrics, **found, **by, "labels": labels})


def _run_sized(
    config: RunConfig, dataset: Dataset, progress: Progress, start: str | Path | None
) -> RunResult:
    protocol = protocol_of(config)
    starts = {} if start is None else _starts(config, protocol, dataset, start)
    leaks = require_no_leaks(dataset.train, config.allow_leak)
    job = _run_with_trained if dataset.train.known_propensity is None else _run_with_known
    if job is _run_with_trained and own_tower(config, protocol):
        job = _run_with_tower
    result = job(config, protocol, dataset, progress, starts)
    result = result if start is None else with_start(result, start)
    return result if dataset.train.features is None else with_fields(with_leaks(result, leaks))


def _run_with_trained(
    config: RunConfig, protocol: Protocol, dataset: Dataset, progress: Progress, starts: Starts
) -> RunResult:
    log = dataset.train
    propensity, choice = fitted_propensity(config, protocol, dataset, progress)
    if isinstance(propensity, NaiveBayesPropensity):
        # It looked at some of the test pairs.
        dataset = replace(dataset, test=propensity.unseen_)
    found = read_off(propensity, log, protocol.clip)
    if protocol.name == "honest" and config.method not in (BASELINE, NO_METHOD):
        warn_if_in_sample(propensity, log)
    given: dict[str, Any] = {kind: each.rows for kind, each in found.items()}
    if config.method not in (NO_METHOD, AUTO) and METHODS[config.method].needs_propensity_everywhere:
        require_everywhere(propensity, config.method)
        given = {"raw": propensity.reread(calibrator=None), "calibrated": propensity}
    wanted: dict[str, tuple[str, Any]] = {} if config.method == NO_METHOD else {BASELINE: (BASELINE, None)}
    searched: tuple[Searched, list[str]] | None = None
    if config.method not in (BASELINE, NO_METHOD, AUTO):
        wanted[f"{config.method}_raw"] = config.method, given["raw"]
        wanted[config.method] = config.method, given["calibrated"]
    with warnings.catch_warnings():
        # Warned of once, above; the paper's protocol is in-sample on purpose, and says so in its labels.
        warnings.simplefilter("ignore", InSampleWarning)
        if config.method == AUTO:
            everywhere = predicts_everywhere(propensity)
            source = propensity if everywhere else given["calibrated"]
            searched = search_of_run(config, protocol, dataset, source, progress, everywhere=everywhere)
            models = shipped_models(searched[0])
        else:
            models = _trained(config, protocol, dataset, wanted, progress, starts)
        recalibrate_models(config, models, log, given["calibrated"], dataset.unbiased)
    labels = run_labels(protocol, propensity, choice, tested=dataset.test is not None, models=bool(models))
    figures: dict[str, Any] = {
        "propensity": {kind: each.figures for kind, each in found.items()},
        "propensity_by": choice,
        "spread": spread_figures(propensity, found["raw"].rows, found["raw"].spread),
        "p_min": found["calibrated"].figures["p_min"],
    }
    if dataset.truth is not None and predicts_everywhere(propensity):
        figures["truth"] = truth_figures(dataset, propensity, protocol.clip)
    if "true_conversion" in dataset.row_truth.get("train", {}):
        of_rows = np.maximum(found["calibrated"].rows.mean(axis=0), figures["p_min"])
        figures["confounding"] = confounding_figures(dataset, of_rows)
    return RunResult(
        config=config,
        dataset=dataset,
        propensity=propensity,
        models=models,
        metrics=run_metrics(config, dataset, models, figures, labels, searched, propensity),
        sketches={kind: each.sketch for kind, each in found.items()},
        rows={kind: each.rows for kind, each in found.items()},
    )


def _run_with_tower(
    config: RunConfig, protocol: Protocol, dataset: Dataset, progress: Progress, starts: Starts
) -> RunResult:
    """Run a method that has a click tower of its own: no separate propensity is trained."""
    wanted: dict[str, tuple[str, Any]] = {
        BASELINE: (BASELINE, None),
        config.method: (config.method, None),
    }
    models = _trained(config, protocol, dataset, wanted, progress, starts)
    recalibrate_models(config, models, dataset.train, None, dataset.unbiased)
    labels = tower_labels(config, protocol, tested=dataset.test is not None)
    model = models[config.method]
    figures = {"propensity_by": tower_record(config), **tower_figures(model, dataset.train.density)}
    return RunResult(
        config=config,
        dataset=dataset,
        propensity=None,
        models=models,
        metrics=run_metrics(config, dataset, models, figures, labels),
        sketches=model.click_sketches_,
        rows={},
    )


def _loader_options(config: RunConfig) -> dict[str, Any]:
    """The options of the loader; a column that holds the propensity is kept, as numbers."""
    options, column = with_group_column(config.options, config), config.propensity
    if config.data == "files" and column != "auto" and registered_name(column) is None:
        train = options.get("train")
        if column not in column_names(Path(config.root or "") / str(train or "")):
            raise unknown_propensity(column)
        for option in ("keep", "numbers"):
            options[option] = tuple(dict.fromkeys((*options.get(option, ()), column)))
    return options


def _run_with_known(
    config: RunConfig, protocol: Protocol, dataset: Dataset, progress: Progress, starts: Starts
) -> RunResult:
    """The run of a log with known propensities: they are audited, and neither trained nor calibrated."""
    require(
        config.protocol == "honest",
        "a log with known propensities goes with the honest protocol",
        "leave --protocol out",
    )
    require(
        config.method != NO_METHOD,
        "without a method nothing is left to train: the propensities are known",
        "give a --method, or check them with unskew audit --actions",
    )
    if config.method != AUTO:
        require_shown_alone(METHODS[config.method]())
    log = dataset.train
    column = str(log.known_propensity)
    p = log.columns[column]
    wanted: dict[str, tuple[str, Any]] = {BASELINE: (BASELINE, None)}
    searched: tuple[Searched, list[str]] | None = None
    if config.method == AUTO:
        searched = search_of_run(config, protocol, dataset, None, progress, everywhere=False)
        models = shipped_models(searched[0])
    else:
        if config.method != BASELINE:
            wanted[f"{config.method}_known"] = config.method, None
        models = _trained(config, protocol, dataset, wanted, progress, starts)
    recalibrate_models(config, models, log, column, dataset.unbiased)
    clip = resolve_clip(protocol.clip, propensity=p)
    judged = judged_actions(Moments.of(p), (), score=column, actions=log.actions or log.n_items)
    figures = {
        "propensity": {"known": known_figures(log, p, clip)},
        "known_propensity": judged.to_dict(),
        "spread": None,
        "p_min": clip,
    }
    labels = known_labels(column, clip, tested=dataset.test is not None)
    return RunResult(
        config=config,
        dataset=dataset,
        propensity=None,
        models=models,
        metrics=run_metrics(config, dataset, models, figures, labels, searched),
        sketches={},
        rows={"known": p[None]},
    )


def _trained(
    config: RunConfig,
    protocol: Protocol,
    dataset: Dataset,
    wanted: Mapping[str, tuple[str, Any]],
    progress: Progress,
    starts: Starts,
) -> dict[str, Debiaser]:
    """A model for each key: a method by name, and its propensities."""
    models: dict[str, Debiaser] = {}
    for key, (name, propensity) in wanted.items():
        method = method_of(config, protocol, name, dataset.train.density)
        models |= method.fit_many(
            dataset.train,
            propensities={key: propensity},
            validation=protocol.validation(dataset),
            seeds=config.seed_list,
            device=config.device,
            progress=progress,
            label=key.replace("_", " "),
            start=starts.get(key),
        )
    return models


def _starts(config: RunConfig, protocol: Protocol, dataset: Dataset, folder: str | Path) -> Starts:
    """The models of an earlier run by the keys of this one; an error where one of them does not fit."""
    log, validation = dataset.train, protocol.validation(dataset)
    kinds = ("_raw", "") if log.known_propensity is None else ("_known",)
    kinds = ("",) if own_tower(config, protocol) else kinds
    others = [] if config.method == BASELINE else [f"{config.method}{kind}" for kind in kinds]
    keys = [] if config.method == NO_METHOD else [BASELINE, *others]
    found = start_models(folder, keys, config.device)
    for key, model in found.items():
        name = BASELINE if key == BASELINE else config.method
        method = method_of(config, protocol, name, dataset.train.density)
        method.check_start(model, log, config.seed_list, called=str(folder), validation=validation)
    return found
