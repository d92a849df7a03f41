"""The main job: log → propensity → calibration → debiased model → evaluation. Writes nothing."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from unskew.base import processes
from unskew.base.errors import DataError, ParameterError
from unskew.base.progress import SILENT, Progress
from unskew.data.datasets import Dataset, load
from unskew.data.datasets.dataset import with_unbiased_share
from unskew.data.leaks import Leak, require_no_leaks
from unskew.debias import Debiaser
from unskew.debias.evaluation import Evaluation, evaluate
from unskew.propensity import InSampleWarning, NaiveBayesPropensity, registered_name
from unskew.propensity.propensity import BasePropensity
from unskew.run.auto import Search, Searched, require_apart
from unskew.run.config import AUTO, NO_METHOD, UNTRAINED, Config
from unskew.run.decision import BASELINE
from unskew.run.figures import (
    calibrated_by,
    collapsed_counts,
    data_facts,
    field_figures,
    leak_figures,
    metrics_on_test,
    recalibration_figures,
)
from unskew.run.files import complete, loader_options, source_of_config
from unskew.run.models import (
    check_start,
    fit_models,
    recalibrate_models,
    run_digest,
    start_figures,
    started_from,
)
from unskew.run.parameters import looks_at_sample
from unskew.run.propensities import (
    RunPropensities,
    fit_propensity,
    kinds_of,
    propensities_of,
    tower_figures,
    unknown_propensity,
)
from unskew.run.protocol import mature_dataset, protocol_of, split_labels, validation_params
from unskew.run.result import Result, main_key
from unskew.run.sizes import sized, sizes_label, sizes_of
from unskew.training import resolve_device
from unskew.training.checkpoint import Checkpoint


def run(
    config: Config,
    progress: Progress = SILENT,
    show: Callable[[Dataset], None] | None = None,
    *,
    load: Callable[[Config, Progress], Dataset] | None = None,
    fit: Callable[..., BasePropensity] = fit_propensity,
) -> Result:
    """Train, calibrate, debias and evaluate; ``save`` of the result writes the run folder.

    Parameters
    ----------
    show
        Gets the dataset before anything is trained.
    load, fit
        Load the data and fit a propensity; a study shares both between its runs.

    Examples
    --------
    >>> import unskew as us
    >>> small = {"n_users": 40, "n_items": 30, "density": 0.2}
    >>> result = us.run(us.Config(options=small, learner="mf", seeds=1, crossfit=2, propensity_epochs=1))
    >>> list(result.models), result.main
    (['naive', 'auto'], 'auto')
    """
    config, _ = complete(config)
    start, checkpoint = config.model.start, config.compute.checkpoint
    if start is not None:
        check_start(start, config.seeds)
    journal = None if checkpoint is None else Checkpoint(checkpoint, config.compute.every)
    dataset = (load or load_dataset)(config, progress)
    require_same_data(dataset)
    if journal is not None:
        journal.open({**_identity(config, dataset), "start": None if start is None else run_digest(start)})
    with nullcontext() if journal is None else journal.in_effect():
        if show is not None:
            show(dataset)
        return replace(_run(config, dataset, progress, fit), checkpoint=journal)


def load_dataset(config: Config, progress: Progress = SILENT) -> Dataset:
    """Return the logs of a run."""
    held_by = validation_params(config.evaluation.split, None, None).get("validation_by", "")
    column = held_by.removeprefix("group:") if held_by.startswith("group:") else None
    options = loader_options(config, column)
    kind = config.propensity.kind
    kinds = (*UNTRAINED, "auto")
    if not config.data.is_named and kind not in kinds and registered_name(kind) is None:
        if kind not in source_of_config(config).names:
            raise unknown_propensity(kind)
        for name in ("keep", "numbers"):
            options[name] = tuple(dict.fromkeys((*options.get(name, ()), kind)))
    root = None if config.data.root is None else Path(config.data.root)
    source = str(config.data.source) if config.data.is_named else "files"
    dataset = load(source, root, protocol=protocol_of(config).test_protocol, progress=progress, **options)
    if config.method != NO_METHOD and dataset.train.conversion is None:
        raise ParameterError(
            f"the log has no conversions: {config.method} cannot be trained, a propensity can",
            remedy="name the column of conversions (--conversion), or give method none",
        )
    if not looks_at_sample(config):
        dataset = replace(dataset, unbiased=None)
    if config.data.unbiased_share is not None:
        dataset = with_unbiased_share(dataset, config.data.unbiased_share)
    require_apart(dataset)
    return mature_dataset(dataset, config.data.maturity, config.data.time)


def contents_of(dataset: Dataset) -> dict[str, str | None]:
    """Return digests that identify the logs of a run."""
    logs = {name: getattr(dataset, name) for name in ("train", "test", "validation", "unbiased")}
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


def _identity(config: Config, dataset: Dataset) -> dict[str, Any]:
    """Return what identifies a job to a checkpoint: not where its data are, nor where it writes."""
    places = {"data": {"root"}, "model": {"start"}, "compute": {"checkpoint", "every"}}
    plain = config.model_dump(mode="json", exclude={**places, "output": True})
    return {
        **{f"{section}.{name}": value for section, fields in plain.items() for name, value in fields.items()},
        "device": resolve_device(config.compute.device).type,
        "contents": contents_of(dataset),
    }


def _run(asked: Config, dataset: Dataset, progress: Progress, fit: Callable[..., BasePropensity]) -> Result:
    """Train, and build the figures."""
    sizes = sizes_of(asked, dataset.train)
    config = sized(asked.resolved(), sizes)
    protocol, log = protocol_of(config), dataset.train
    starts = started_from(config, protocol, dataset, dict.fromkeys(kinds_of(config, protocol, log)))
    leaks = require_no_leaks(log, config.features.allow_leak)
    found = propensities_of(config, protocol, dataset, progress, fit)
    if isinstance(found.model, NaiveBayesPropensity):
        # It looked at some of the test pairs.
        dataset = replace(dataset, test=found.model.unseen_)
    searched: Searched | None = None
    with warnings.catch_warnings():
        # Warned of once; the paper's protocol is in-sample on purpose, and says so in its labels.
        warnings.simplefilter("ignore", InSampleWarning)
        if config.method == AUTO:
            searched = Search(config, protocol, dataset, found, progress).run()
            models = {BASELINE: searched.naive, AUTO: searched.shipped}
        else:
            models = fit_models(config, protocol, dataset, found.kinds, starts, progress)
        recalibrate_models(config, models, log, found.weigh, dataset.unbiased)
    main = main_key(config, models)
    if "propensity" not in found.figures:
        model: Any = models[main]
        figures = {**found.figures, **tower_figures(model, log.density)}
        found = replace(found, figures=figures, sketches=getattr(model, "click_sketches_", {}))
    test = dataset.test
    evaluated = {} if test is None else {key: evaluate(model, test) for key, model in models.items()}
    return Result(
        config=config,
        dataset=dataset,
        propensity=found.model,
        models=models,
        evaluated=evaluated,
        metrics=_metrics(asked, config, dataset, found, models, evaluated, searched, leaks, sizes),
        sketches=found.sketches,
        rows=found.rows,
    )


def _metrics(
    asked: Config,
    config: Config,
    dataset: Dataset,
    found: RunPropensities,
    models: Mapping[str, Debiaser],
    evaluated: Mapping[str, Evaluation],
    searched: Searched | None,
    leaks: list[Leak],
    sizes: Mapping[str, Any],
) -> dict[str, Any]:
    """Return what ``metrics.json`` holds: the data, the propensities, the test metrics, and what was done."""
    propensity, main = found.model, main_key(config, models)
    judged = {"propensity": propensity} if propensity is not None and propensity.may_collapse else {}
    labels = split_labels(found.labels, models, dataset)
    metrics: dict[str, Any] = {
        "data": data_facts(dataset),
        **found.figures,
        "methods": {},
        "collapsed": collapsed_counts({**judged, **models}),
        "protocol": config.evaluation.protocol,
    }
    if searched is not None:
        metrics["search"] = searched.to_dict()
        labels.append(searched.decision.sentence)
    if dataset.test is not None and models:
        metrics |= metrics_on_test(models, evaluated, dataset.test)
    if config.model.start is not None:
        figures, words = start_figures(config.model.start, models, main, dataset.train)
        metrics, labels = {**metrics, **figures}, [*labels, *words]
    if dataset.train.features is not None:
        figures, words = leak_figures(config, leaks)
        metrics, labels = {**metrics, **figures}, [*labels, *words]
    if dataset.train.features is not None and config.compute.effort != "quick":
        p = found.rows.get("known" if propensity is None else "calibrated")
        weight = None if p is None else 1.0 / np.maximum(p.mean(axis=0), float(metrics["p_min"]))
        metrics |= field_figures(models, main, propensity, dataset, weight)
    figures, recalibrated = recalibration_figures(models)
    metrics |= figures
    if names := calibrated_by(propensity):
        metrics["calibrated_by"] = names
    if config.model.members > 1 and models:
        labels.append(f"each model is an ensemble of {config.model.members} members")
    labels += [*recalibrated, *sizes_label(sizes)]
    if by_hand := ", ".join(f"{name} = {value}" for name, value in asked.model.parameters.items()):
        labels.append(f"set: {by_hand}")
    return {**metrics, "labels": labels}
