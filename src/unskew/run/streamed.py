"""The main job on a stream: models read all rows, and what is looked at is a bounded number of them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unskew.base import processes
from unskew.base.errors import DataError
from unskew.base.estimator import require
from unskew.base.progress import Progress
from unskew.calibration.recalibration import NONE
from unskew.data import Log, StreamedLog
from unskew.data.datasets import Dataset, wanted_features
from unskew.data.datasets.dataset import with_unbiased_share
from unskew.data.datasets.streams import IN_MEMORY, StreamedDataset, memory_needed, stream_files
from unskew.data.leaks import require_no_leaks
from unskew.data.parquet_places import SCHEME
from unskew.debias import METHODS, Debiaser
from unskew.offpolicy.auto import Searched
from unskew.propensity import InSampleWarning, choice
from unskew.propensity.given import warn_if_in_sample
from unskew.propensity.propensity import BasePropensity
from unskew.run.protocol import Protocol
from unskew.run.run_fields import with_fields
from unskew.run.run_figures import (
    BASELINE,
    spread_figures,
)
from unskew.run.run_memory import memory_parts, weights_of
from unskew.run.run_parts import (
    NO_METHOD,
    method_of,
    recalibrate_models,
    require_conversions,
    run_metrics,
    with_leaks,
)
from unskew.run.run_propensity import (
    chosen_propensity,
    further_data,
    predicts_everywhere,
    require_everywhere,
    run_labels,
)
from unskew.run.run_result import RunResult
from unskew.run.run_search import AUTO, search_of_run, shipped_models
from unskew.run.run_start import Starts
from unskew.run.run_tower import own_tower, tower_figures, tower_labels, tower_record
from unskew.training.checkpoint import once
from unskew.training.kept import Kept
from unskew.training.memory import available_memory, give_back, peak_memory

if TYPE_CHECKING:
    from unskew.run.run_config import RunConfig

REMEMBERED_BYTES, REMEMBERED_SHARE = 1 << 29, 0.1
"""Rows of a stream are kept in memory as codes where they take at most so much, and that share of what is
free: all epochs but the first then read no file."""


def why_streamed(config: RunConfig) -> str | None:
    """Why the training log of a run is streamed, in words; None where it is read into memory."""
    if config.stream:
        require(
            config.data == "files",
            f"the dataset '{config.data}' is not streamed",
            "give Parquet files as data",
        )
        return "the log is streamed, as was asked for"
    options, train = config.options, config.options.get("train") or config.root
    fits = options.get("space") != "impressions" or options.get("known_propensity") is not None
    if config.stream is False or config.data != "files" or fits or not isinstance(train, str):
        return None
    free = available_memory()
    place = train if SCHEME.match(train) else str(Path(config.root or "") / train)
    try:
        needed = memory_needed(place)
    except DataError:
        # CSV, or what cannot be read: whoever reads it says so.
        return None
    if free is None or needed <= IN_MEMORY * free:
        return None
    return (
        f"the log is streamed: in memory it would take about {needed / 1e9:.3g} GB, more than"
        f" {IN_MEMORY:.0%} of the {free / 1e9:.3g} GB that are free"
    )


def streamed_dataset(
    config: RunConfig, options: Mapping[str, Any], why: str, progress: Progress
) -> StreamedDataset:
    """The logs of a run whose training log is streamed.

    Parameters
    ----------
    options
        Of the loader of files.
    why
        Why it is streamed, for the facts of the dataset.
    """
    require(
        config.protocol == "honest",
        "the paper's protocol goes with a log in memory",
        "leave --stream or --protocol out",
    )
    given = dict(options)
    given["features"] = wanted_features(given.get("features"), given.pop("numeric", ()), given.pop("bag", ()))
    given["time"] = config.time or given.get("time")
    dataset = stream_files(config.root, maturity=config.maturity, progress=progress, **given)
    require_conversions(config, dataset.train.n_conversions is not None)
    if config.unbiased_share is not None:
        held_out = _in_memory(dataset, dataset.train.source.empty)
        parted = with_unbiased_share(held_out, config.unbiased_share)
        dataset = replace(dataset, test=parted.test, unbiased=parted.unbiased, facts=parted.facts)
    return replace(dataset, facts={**dataset.facts, "streamed": why})


def run_streamed(
    config: RunConfig, protocol: Protocol, dataset: StreamedDataset, progress: Progress, starts: Starts
) -> RunResult:
    """The job on a training log that is streamed."""
    give_back()
    log = dataset.train
    sample = log.sample(choice.SAMPLE_ROWS)
    log = log.remembered(once("remembered", most_remembered), progress)
    give_back()
    dataset = replace(dataset, train=log)
    leaks = require_no_leaks(sample, config.allow_leak)
    propensity: BasePropensity | None = None
    if not own_tower(config, protocol):
        propensity, record = _fitted(config, protocol, dataset, sample, progress)
        if config.method not in (BASELINE, NO_METHOD):
            warn_if_in_sample(propensity, sample)
        figures = propensity.diagnose(p_min=protocol.clip)
        propensity.forget_log()
        give_back()
    before_training = peak_memory()
    with warnings.catch_warnings():
        # Warned of once, above.
        warnings.simplefilter("ignore", InSampleWarning)
        searched = None
        if config.method == AUTO:
            assert propensity is not None
            everywhere = predicts_everywhere(propensity)
            searched = search_of_run(config, protocol, dataset, propensity, progress, everywhere=everywhere)
            models = shipped_models(searched[0])
        else:
            models = _trained(config, protocol, log, propensity, progress, starts)
        if config.recalibrate != NONE or dataset.unbiased is not None:
            recalibrate_models(config, models, Kept.of(log).log, propensity, dataset.unbiased)
    view = _in_memory(dataset, sample)
    tested, rows = view.test is not None, {}
    if propensity is None:
        sketches = models[config.method].click_sketches_
        labels = tower_labels(config, protocol, tested=tested)
        found = {"propensity_by": tower_record(config), **tower_figures(models[config.method], log.density)}
    else:
        predicted = propensity.predict_both_each(sample)
        rows = {"raw": predicted.raw, "calibrated": predicted.calibrated}
        sketches = {kind: propensity.held_out_sketches(calibrated=kind == "calibrated")[0] for kind in rows}
        labels = run_labels(protocol, propensity, record, tested=tested, models=bool(models))
        found = {
            "propensity": figures,
            "propensity_by": record,
            "spread": spread_figures(propensity, predicted.raw, predicted.spread),
            "p_min": figures["calibrated"]["p_min"],
        }
    result = RunResult(
        config=config,
        dataset=view,
        propensity=propensity,
        models=models,
        metrics=run_metrics(config, view, models, found, labels, searched, propensity, stream=dataset),
        sketches=sketches,
        rows=rows,
        streamed=True,
        memory=memory_parts(log, *_held(models, None if searched is None else searched[0]), before_training),
    )
    return result if log.features is None else with_fields(with_leaks(result, leaks))


def _in_memory(dataset: StreamedDataset, log: Log) -> Dataset:
    """Return the dataset with a log in memory in the place of the stream."""
    rest: dict[str, Any] = {"facts": dataset.facts, "test_is": dataset.test_is, "unbiased": dataset.unbiased}
    return Dataset(dataset.name, log, dataset.test, **rest)


def _held(
    models: Mapping[str, Debiaser], searched: Searched | None
) -> tuple[Mapping[str, Debiaser], Mapping[str, Debiaser]]:
    """All models that were held, and those of the largest training: of a search, one at a time."""
    if searched is None:
        return models, {key: each for key, each in models.items() if key != BASELINE}
    largest = max(searched.models, key=lambda name: weights_of(searched.models[name]))
    return searched.models, {largest: searched.models[largest]}


def most_remembered() -> float:
    """Bytes of rows that this process keeps in memory; each on a machine keeps its own."""
    most, free = REMEMBERED_BYTES / processes.on_this_machine(), available_memory()
    # That is what is free of this process's own share of the machine.
    return most if free is None else min(most, REMEMBERED_SHARE * free)


def _fitted(
    config: RunConfig, protocol: Protocol, dataset: StreamedDataset, sample: Log, progress: Progress
) -> tuple[BasePropensity, dict[str, Any]]:
    """The propensity, fitted on the stream, or on some of its rows where its kind cannot read a stream."""
    log = dataset.train
    share = len(sample) / len(log)
    propensity, tried, record = chosen_propensity(config, protocol, sample, progress, share)
    if tried is not None and share < 1.0:
        record["sentence"] += f", on {len(sample):,} of {len(log):,} rows"
    # What was fitted to be compared is of no more use.
    del tried
    give_back()
    rows = choice.rows_to_fit(propensity, log)
    if len(rows) < len(log):
        record["fitted_on_rows"] = len(rows)
        record["sentence"] += f"; fitted on {len(rows):,} rows at random, which its kind has in memory"
    further = further_data(propensity, dataset)
    propensity.fit(rows, seeds=config.seed_list, device=config.device, progress=progress, **further)
    return propensity, record


def _trained(
    config: RunConfig,
    protocol: Protocol,
    log: StreamedLog,
    propensity: BasePropensity | None,
    progress: Progress,
    starts: Starts,
) -> dict[str, Debiaser]:
    """Train the naive model, and the method: by its own click tower, or with both kinds of propensities."""
    if config.method == NO_METHOD:
        return {}
    options: dict[str, Any] = {"seeds": config.seed_list, "device": config.device, "progress": progress}
    naive = method_of(config, protocol, BASELINE, log.density)
    models = {BASELINE: naive.fit(log, label=BASELINE, start=starts.get(BASELINE), **options)}
    give_back()
    if config.method == BASELINE:
        return models
    if propensity is None:
        method = method_of(config, protocol, config.method, log.density)
        start = starts.get(config.method)
        return models | {config.method: method.fit(log, label=config.method, start=start, **options)}
    if METHODS[config.method].needs_propensity_everywhere:
        require_everywhere(propensity, config.method)
    keys = (f"{config.method}_raw", config.method)
    # Both read the stream in one pass; where they start from two models, each has its own.
    for together in [keys] if not starts else [(key,) for key in keys]:
        models |= method_of(config, protocol, config.method, log.density).fit_many(
            log,
            propensities=dict.fromkeys(together, propensity),
            raw=[keys[0]],
            label=together[-1].replace("_", " "),
            start=starts.get(together[-1]),
            **options,
        )
        give_back()
    return models
