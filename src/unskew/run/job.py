"""The main job: log → propensity → calibration → debiased model → evaluation. Writes nothing."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.audit.actions import Moments, judged_actions
from unskew.backbones import make_backbone
from unskew.calibration import make_calibrator
from unskew.datasets import Dataset, load
from unskew.debias import METHODS, Debiaser, make_method
from unskew.debias.core.given import require_shown_alone
from unskew.estimator import require
from unskew.metrics import CalibrationSketch
from unskew.metrics.clip import Clip, require_clip, resolve_clip
from unskew.progress import SILENT, Progress
from unskew.propensity import InSampleWarning, Propensity, make_uncertainty
from unskew.propensity.design import MOST_FOLDS
from unskew.propensity.in_sample import warn_if_in_sample
from unskew.run.figures import (
    BASELINE,
    collapsed_counts,
    data_facts,
    known_figures,
    known_labels,
    metrics_on_test,
    spread_figures,
    truth_figures,
)
from unskew.run.protocol import ProtocolName, ProtocolSettings, protocol_settings
from unskew.seeds import require_count

MOST_EPOCHS = 100_000
"""Epochs beyond which training would not end while anybody waits for it."""


@dataclass(frozen=True)
class RunConfig:
    """What to run.

    Parameters
    ----------
    data, root, options
        The dataset's name, its folder, and further options of its loader.
    method
        The debiaser to compare with the naive model, once with raw and once with calibrated propensities.
    seeds, seed
        How many repetitions, numbered from ``seed``.
    crossfit
        Folds of the propensity; None for a single split.
    p_min
        Propensities below are raised to it; ``"auto"`` is the clip with the least error.
    propensity_epochs
        Train the propensity for exactly so many epochs, as published code does, instead of stopping early.
    """

    data: str = "synthetic"
    root: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    backbone: str = "neumf"
    calibrator: str = "platt"
    uncertainty: str = "none"
    method: str = "ips"
    seeds: int = 10
    seed: int = 0
    protocol: ProtocolName = "honest"
    crossfit: int | None = 5
    propensity_epochs: int | None = None
    p_min: Clip = "auto"
    device: str = "auto"

    def __post_init__(self) -> None:
        require_count(self.seeds)
        require(self.seed >= 0, f"seed must not be negative, not {self.seed}", "give 0 or more")
        require(
            self.crossfit is None or 2 <= self.crossfit <= MOST_FOLDS,
            f"crossfit must be None (0) or from 2 to {MOST_FOLDS} folds, not {self.crossfit}",
            "give 5, for example",
        )
        require(
            self.propensity_epochs is None or 1 <= self.propensity_epochs <= MOST_EPOCHS,
            f"propensity_epochs must be from 1 to {MOST_EPOCHS:,}, not {self.propensity_epochs}",
            "give 30, for example",
        )
        require_clip(self.p_min)
        require(
            self.protocol in ("honest", "paper"),
            f"protocol must be 'honest' or 'paper', not {self.protocol!r}",
            "give one of these",
        )
        make_backbone(self.backbone)
        make_calibrator(self.calibrator)
        make_uncertainty(self.uncertainty)
        METHODS.require(self.method)

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {**asdict(self), "options": dict(self.options)}


@dataclass(frozen=True)
class RunResult:
    """What a run found; :mod:`unskew.run.folder` writes it, :mod:`unskew.report` draws it."""

    config: RunConfig
    dataset: Dataset
    propensity: Propensity | None
    """None where the propensities of the log are known."""
    models: Mapping[str, Debiaser]
    metrics: Mapping[str, Any]
    sketches: Mapping[str, CalibrationSketch]
    """Held-out scores against clicks of the first seed, ``"raw"`` and ``"calibrated"``."""
    clicked: Mapping[str, NDArray[np.float64]]
    """Unclipped propensities of the clicked rows, first seed."""

    @property
    def main(self) -> str:
        """The key of the model that the run is about."""
        return self.config.method if self.config.method in self.models else f"{self.config.method}_known"

    @property
    def histories(self) -> dict[str, dict[str, Any]]:
        """Learning curves by name."""
        return {
            **({} if self.propensity is None else {"propensity": self.propensity.history_.to_dict()}),
            **{key: model.history_.to_dict() for key, model in self.models.items()},
        }


def run_job(config: RunConfig, progress: Progress = SILENT) -> RunResult:
    """Train, calibrate, debias and evaluate."""
    root = None if config.root is None else Path(config.root)
    dataset = load(config.data, root, protocol=config.protocol, **config.options)
    log = dataset.train
    log.known_conversion()
    if log.known_propensity is not None:
        require(
            config.protocol == "honest",
            "a log with known propensities goes with the honest protocol",
            "leave --protocol out",
        )
        require_shown_alone(METHODS[config.method]())
    settings = protocol_settings(
        config.protocol,
        crossfit=config.crossfit,
        propensity_epochs=config.propensity_epochs,
        p_min=config.p_min,
        data=config.data,
    )
    if log.known_propensity is not None:
        return _run_with_known(config, settings, dataset, log.known_propensity, progress)
    seeds = range(config.seed, config.seed + config.seeds)
    calibrator = None if config.calibrator == "none" else make_calibrator(config.calibrator)
    propensity = settings.propensity(make_backbone(config.backbone), calibrator)
    propensity.set_params(uncertainty=settings.uncertainty(config.uncertainty))
    propensity.fit(log, seeds=seeds, device=config.device, progress=progress)
    each = {
        kind: propensity.predict_each(log, calibrated=kind == "calibrated") for kind in ("raw", "calibrated")
    }
    if settings.name == "honest" and config.method != BASELINE:
        warn_if_in_sample(propensity, log)
    with warnings.catch_warnings():
        # Told once, above; the paper's protocol is in-sample on purpose, and says so in its labels.
        warnings.simplefilter("ignore", InSampleWarning)
        models = _fit_models(config, settings, dataset, propensity, each, progress)
    figures = propensity.diagnose(p_min=settings.p_min)
    metrics: dict[str, Any] = {
        "data": data_facts(dataset),
        "propensity": figures,
        "spread": spread_figures(propensity, log),
        "methods": {},
        "collapsed": collapsed_counts({"propensity": propensity, **models}),
        "protocol": settings.name,
        "p_min": figures["calibrated"]["p_min"],
        "labels": [label for label in settings.labels if dataset.test is not None or "test" not in label],
    }
    if dataset.test is not None:
        metrics |= metrics_on_test(models, dataset)
    if dataset.truth is not None:
        metrics["truth"] = truth_figures(dataset, propensity, settings.p_min)
    return RunResult(
        config=config,
        dataset=dataset,
        propensity=propensity,
        models=models,
        metrics=metrics,
        sketches={
            kind: propensity.held_out_sketches(calibrated=kind == "calibrated")[0]
            for kind in ("raw", "calibrated")
        },
        clicked={kind: lines[0, log.clicked] for kind, lines in each.items()},
    )


def _run_with_known(
    config: RunConfig, settings: ProtocolSettings, dataset: Dataset, column: str, progress: Progress
) -> RunResult:
    """The run of a log with known propensities: they are audited, and neither trained nor calibrated."""
    log = dataset.train
    p = log.columns[column]
    wanted = {BASELINE: BASELINE}
    if config.method != BASELINE:
        wanted[f"{config.method}_known"] = config.method
    models = {key: _fit_model(config, settings, dataset, key, name, progress) for key, name in wanted.items()}
    clip = resolve_clip(settings.p_min, propensity=p)
    metrics: dict[str, Any] = {
        "data": data_facts(dataset),
        "propensity": {"known": known_figures(log, p, clip)},
        "known_propensity": judged_actions(
            Moments.of(p), (), score=column, actions=log.actions or log.n_items
        ).to_dict(),
        "spread": None,
        "methods": {},
        "collapsed": collapsed_counts(models),
        "protocol": settings.name,
        "p_min": clip,
        "labels": known_labels(column, clip, tested=dataset.test is not None),
    }
    if dataset.test is not None:
        metrics |= metrics_on_test(models, dataset)
    return RunResult(
        config=config,
        dataset=dataset,
        propensity=None,
        models=models,
        metrics=metrics,
        sketches={},
        clicked={"known": p},
    )


def _fit_models(
    config: RunConfig,
    settings: ProtocolSettings,
    dataset: Dataset,
    propensity: Propensity,
    each: Mapping[str, NDArray[np.float64]],
    progress: Progress,
) -> dict[str, Debiaser]:
    wanted: dict[str, tuple[str, str | None]] = {BASELINE: (BASELINE, None)}
    if config.method != BASELINE:
        wanted[f"{config.method}_raw"] = (config.method, "raw")
        wanted[config.method] = (config.method, "calibrated")
    models = {}
    for key, (name, kind) in wanted.items():
        everywhere = METHODS[name].needs_propensity_everywhere
        given = None if kind is None else propensity if everywhere else each[kind]
        models[key] = _fit_model(
            config, settings, dataset, key, name, progress, given=given, calibrated=kind != "raw"
        )
    return models


def _fit_model(
    config: RunConfig,
    settings: ProtocolSettings,
    dataset: Dataset,
    key: str,
    name: str,
    progress: Progress,
    *,
    given: Any = None,
    calibrated: bool = True,
) -> Debiaser:
    model = make_method(
        name,
        backbone=settings.method_backbone(make_backbone(config.backbone)),
        **settings.method_options(weighted=name != BASELINE, method=name, density=dataset.train.density),
    )
    return model.fit(
        dataset.train,
        propensity=given,
        calibrated=calibrated,
        seeds=range(config.seed, config.seed + config.seeds),
        validation=dataset.validation,
        device=config.device,
        progress=progress,
        label=key.replace("_", " "),
    )
