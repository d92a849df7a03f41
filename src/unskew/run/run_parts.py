"""What every job of a run does in the same way: its methods, its labels, what it refuses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from unskew.base.errors import ParameterError
from unskew.calibration.recalibration import AUTO, NONE
from unskew.data import Log
from unskew.data.datasets import Dataset
from unskew.data.leaks import Leak
from unskew.debias import Debiaser
from unskew.learners import make_backbone
from unskew.propensity.propensity import BasePropensity
from unskew.run.protocol import Protocol
from unskew.run.run_figures import BASELINE, collapsed_counts, data_facts, metrics_on_test
from unskew.run.run_parameters import changed
from unskew.run.run_result import RunResult
from unskew.run.run_split import split_labels, validation_params

if TYPE_CHECKING:
    from unskew.offpolicy.auto import Searched
    from unskew.run.run_config import RunConfig

NO_METHOD = "none"
"""The method of a run that trains the propensity alone."""


def method_of(config: RunConfig, protocol: Protocol, name: str, density: float) -> Debiaser:
    """A method by name, untrained, with all that the configuration says of it."""
    backbone = changed(make_backbone(config.backbone), "backbone", config.parameters)
    method = protocol.method(name, backbone, density)
    method.set_params(**validation_params(config.split, config.valid_from, config.time))
    method.fields = config.model_features
    method.members = config.members
    # The naive model trains without propensities, and is recalibrated with them afterwards.
    method.recalibrate = NONE if name == BASELINE else config.recalibrate
    return changed(method, "method", config.parameters)


def recalibrate_models(
    config: RunConfig, models: Mapping[str, Debiaser], log: Log, propensity: Any, unbiased: Log | None = None
) -> None:
    """Mend the levels: by a random sample where there is one, else of those that trained without weights.
    Without a propensity these stay as they are.

    A run that chooses its method by a random sample mends levels by it unasked.
    """
    kind = AUTO if config.recalibrate == NONE and config.method == "auto" else config.recalibrate
    if unbiased is not None and kind != NONE:
        for model in models.values():
            model.recalibrate_on(unbiased, by=kind)
    elif config.recalibrate != NONE and propensity is not None:
        for model in models.values():
            if model.recalibration_ is None:
                model.recalibrate_on(log, propensity=propensity, by=kind)


def require_conversions(config: RunConfig, there: bool) -> None:
    """An error for a method where the log has no conversions."""
    if config.method != NO_METHOD and not there:
        raise ParameterError(
            f"the log has no conversions: {config.method} cannot be trained, a propensity can",
            remedy="name the column of conversions (--conversion), or give method none",
        )


def set_by_hand(config: RunConfig) -> list[str]:
    """Parameters that are not what they are by default."""
    named = ", ".join(f"{name} = {value}" for name, value in config.parameters.items())
    return [f"set: {named}"] if named else []


def run_metrics(
    config: RunConfig,
    dataset: Dataset,
    models: Mapping[str, Debiaser],
    figures: Mapping[str, Any],
    labels: list[str],
    searched: tuple[Searched, list[str]] | None = None,
    propensity: BasePropensity | None = None,
) -> dict[str, Any]:
    """Return what ``metrics.json`` holds of a job: its data, figures, labels, search and test metrics.

    Parameters
    ----------
    figures, labels
        Those of the propensity, and what the protocol says of this kind of job.
    """
    judged = {"propensity": propensity} if propensity is not None and propensity.may_collapse else {}
    labels = [*split_labels(labels, models, dataset), *set_by_hand(config)]
    metrics: dict[str, Any] = {
        "data": data_facts(dataset),
        **figures,
        "methods": {},
        "collapsed": collapsed_counts({**judged, **models}),
        "protocol": config.protocol,
        "labels": labels,
    }
    if searched is not None:
        found, notes = searched
        metrics["search"] = found.to_dict()
        metrics["labels"] += [*notes, found.decision.sentence]
    if dataset.test is not None and models:
        metrics |= metrics_on_test(models, dataset)
    return metrics


def with_leaks(result: RunResult, leaks: Sequence[Leak]) -> RunResult:
    """Return the result with the leaks that were found: those that are allowed, and those warned of."""
    allowed = [leak for leak in leaks if leak.column in result.config.allow_leak]
    labels = [
        f"{'leak allowed' if leak in allowed else 'may be a leak'}: '{leak.column}', {leak.found}"
        for leak in leaks
    ]
    found = {"leaks_allowed": [leak.to_dict() for leak in allowed]}
    return replace(
        result, metrics={**result.metrics, **found, "labels": [*result.metrics["labels"], *labels]}
    )
