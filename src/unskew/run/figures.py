"""The figures of a run: its data, the spread of its propensities, test metrics, and the truth where known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from unskew.data import Log
from unskew.data.datasets import Dataset
from unskew.data.leaks import Leak
from unskew.debias import Debiaser
from unskew.debias.evaluation import Evaluation, level_of
from unskew.metrics.collapse import counts
from unskew.metrics.ranking import ranking_rails
from unskew.metrics.registry import CUTOFFS, metric
from unskew.metrics.significance import holm, summarise, users_and_seeds
from unskew.metrics.weights import Clip, resolve_clip
from unskew.propensity import Propensity
from unskew.propensity.propensity import BasePropensity
from unskew.run.decision import BASELINE
from unskew.run.fields import field_calibration, field_importance
from unskew.theory import truth_report

if TYPE_CHECKING:
    from unskew.run.config import Config

MOST_VALUES = 20
"""Values that ``metrics.json`` lists, the worst."""
PARTS = {name: f"{name}_part" for name in ("calibration", "refinement", "discretisation")}
"""The names in ``metrics.json`` of the parts of an estimate's bias."""


def data_facts(dataset: Dataset) -> dict[str, Any]:
    """Return sizes and rates of a dataset."""
    log = dataset.train
    rate = None if log.conversion is None else float(log.known_conversion().mean())
    return {
        "name": dataset.name,
        "space": log.space,
        "users": log.n_users,
        "items": log.n_items,
        "rows": len(log),
        "clicks": log.n_clicks,
        "population": log.population_size,
        "density": log.density,
        "conversion_rate_of_clicks": rate,
        "test_rows": 0 if dataset.test is None else len(dataset.test),
        "test_rows_judged": 0 if dataset.test is None else dataset.test.n_clicks,
        "test_conversions": None
        if dataset.test is None or dataset.test.conversion is None
        else int((dataset.test.known_conversion() == 1).sum()),
        "known_propensity": log.known_propensity,
        "actions": log.actions,
        "test_is": None if dataset.test is None else dataset.test_is,
        "leaked_cells_dropped": 0,
        **({} if log.features is None else {"fields": log.schema_table()}),
        **dataset.facts,
    }


def collapsed_counts(trained: Mapping[str, Any]) -> dict[str, list[dict[str, Any]]]:
    """Count the networks of each trained model that learned nothing, by their reason."""
    return {
        key: [
            {"network": network, "reason": reason, "seeds": seeds, "of": len(each.seeds_)}
            for network, reason, seeds in counts(
                each.collapsed_, (each.members if isinstance(each, Debiaser) else 1)
            )
        ]
        for key, each in trained.items()
    }


def spread_figures(
    propensity: BasePropensity, score: NDArray[np.float64], spread: NDArray[np.float64] | None
) -> dict[str, Any] | None:
    """Return how far members or passes disagree on the raw propensities ``score`` of the log's rows."""
    if (
        not isinstance(propensity, Propensity)
        or propensity.uncertainty is None
        or spread is None
        or not spread.any()
    ):
        return None
    median, p90 = np.quantile(spread, (0.5, 0.9)).tolist()
    mean, relative = float(spread.mean()), float((spread / score).mean())
    return {
        "method": propensity.uncertainty.name,
        "median": median,
        "p90": p90,
        "mean": mean,
        "relative": relative,
    }


def metrics_on_test(
    models: Mapping[str, Debiaser], found: Mapping[str, Evaluation], test: Log
) -> dict[str, Any]:
    """Return the metrics of each model on the test log, and its differences to the baseline."""
    summaries: dict[str, dict[str, Any]] = {
        key: {
            name: dict(summarise(seeds, of.resampled[name])) | _beside(of, name) for name, seeds in of.items()
        }
        for key, of in found.items()
    }
    for key, figures in summaries.items():
        if "mean_over_rate" in figures:
            figures["mean_over_rate"] |= _level_before(models[key], test.take(test.clicked))
    return {
        "methods": summaries,
        "comparison": _comparison(found),
        "rails": ranking_rails(user=test.user[test.clicked], outcome=test.known_conversion(), ks=CUTOFFS),
    }


def _level_before(model: Debiaser, rows: Log) -> dict[str, Any]:
    """Return the level on test rows without the recalibration, where there is one."""
    if model.recalibration_ is None:
        return {}
    score = model.without_recalibration().predict_each(rows)
    level = level_of(score, rows.known_conversion(), rows.user)
    return {"before": {"mean": level["mean"], "low": level["low"], "high": level["high"]}}


def calibrated_by(propensity: Any) -> list[str]:
    """Name the calibrators of a propensity's folds and seeds, the most frequent first; empty without any."""
    calibrators = [each for each in getattr(propensity, "calibrators_", None) or () if each is not None]
    return [name for name, _ in Counter(getattr(c, "choice_", c).name for c in calibrators).most_common()]


def recalibration_figures(models: Mapping[str, Debiaser]) -> tuple[dict[str, Any], list[str]]:
    """Return what recalibration did to each model, and the same in words."""
    figures, labels = {}, []
    for key, model in models.items():
        if (found := model.recalibration_) is not None:
            figures[key] = found.figures
            kinds = " or ".join(dict.fromkeys(found.by))
            kinds += "" if found.trust == 1.0 else f" ({found.trust:.2f} of it)"
            labels.append(
                f"{key.replace('_', ' ')} recalibrated by {kinds} on {found.rows:,} {found.on}: predicted ÷"
                f" actual rate there {found.before} before"
            )
    return ({"recalibration": figures} if figures else {}), labels


def _beside(of: Evaluation, name: str) -> dict[str, float | None]:
    """Return what members of ensembles reach on average, and all seeds together."""
    members = {} if of.members is None else {"members_mean": summarise(of.members[name].mean(axis=1))["mean"]}
    return members if of.together is None else members | {"together": of.together[name]}


def _comparison(found: Mapping[str, Evaluation]) -> dict[str, Any]:
    """Return paired differences to the baseline, with Holm's correction over all methods and metrics; where
    1 is the goal (``mean_over_rate``), differences of the distance from 1. Intervals and p-values are over
    test users and seeds, as in :func:`unskew.metrics.significance.users_and_seeds`."""
    result: dict[str, Any] = {}
    for key, of in found.items():
        for name in of if key != BASELINE and BASELINE in found else ():
            mine, theirs = (
                [metric(name).compared_by(each[name]) for each in (model, model.resampled)]
                for model in (of, found[BASELINE])
            )
            difference = mine[0] - theirs[0]
            tested = users_and_seeds(difference, mine[1] - theirs[1])
            if tested.p_value is not None:
                summary = {"difference": float(difference.mean()), **tested._asdict()}
                result.setdefault(key, {})[name] = summary
    tests = [summary for by_metric in result.values() for summary in by_metric.values()]
    for summary, adjusted in zip(tests, holm([summary["p_value"] for summary in tests]), strict=True):
        summary["p_holm"] = float(adjusted)
    return result


def truth_figures(dataset: Dataset, propensity: BasePropensity, p_min: Clip) -> dict[str, Any]:
    """Return estimates of the ideal loss of one fixed predictor, beside the truth.

    The predictor gives every pair the true overall conversion rate. It was not trained on the clicks, so
    what an estimate is off by is selection alone.
    """
    truth, log = dataset.truth, dataset.train
    assert truth is not None
    rate = float(truth.labels.mean())
    error = np.where(truth.labels == 1, -np.log(rate), -np.log1p(-rate))
    click = np.zeros(log.population_size)
    click[log.cell[log.clicked]] = 1.0

    everywhere = propensity.predict_both_matrix_each()

    def clipped(p: NDArray[np.float64]) -> NDArray[np.float64]:
        least = resolve_clip(p_min, propensity=p.ravel()[log.cell[log.clicked]])
        return np.asarray(np.maximum(p, least))

    report = truth_report(
        propensity_true=truth.propensity,
        error=error,
        click=click.reshape(error.shape),
        propensities={
            "ips_raw": clipped(everywhere.raw[0]),
            "ips": clipped(everywhere.calibrated[0]),
            "ips_true": truth.propensity,
            "ips_constant": np.full(error.shape, log.density),
        },
    )
    estimates = {"naive": report.naive, **report.ips}
    return {
        "predictor": f"the true conversion rate {rate:.4f} for every pair",
        "ideal_loss": report.ideal,
        "estimates": {
            name: {PARTS.get(part, part): value for part, value in estimate.to_dict().items()}
            for name, estimate in estimates.items()
        },
    }


def confounding_figures(dataset: Dataset, p: NDArray[np.float64]) -> dict[str, Any]:
    """Return how often clicked rows would convert, weighted, and how often all rows would.

    Weighted by the true propensities they agree. What stays with estimated ones is what these miss: where
    something that no field holds moves clicks and conversions alike, no propensity of the fields mends it.
    Probabilities stand in the place of outcomes, so that the only noise is in which rows were clicked.

    Parameters
    ----------
    p
        Calibrated propensities of the log's rows, clipped.
    """
    truth, clicked = dataset.row_truth["train"], dataset.train.clicked
    rate = float(truth["true_conversion"].mean())
    value = truth["true_conversion"][clicked]

    def weighted(propensity: NDArray[np.float64]) -> dict[str, float]:
        weight = 1.0 / propensity[clicked]
        share = weight / weight.sum()
        mean = float(share @ value)
        error = float(np.sqrt(np.square(share * (value - mean)).sum()))
        return {"times": mean / rate, "standard_error": error / rate}

    return {
        "hidden": float(dataset.facts["options"]["confounding"]),
        "true_rate": rate,
        "clicked": weighted(np.ones(len(p))),
        "estimated": weighted(p),
        "true": weighted(truth["true_click"]),
    }


def field_figures(
    models: Mapping[str, Debiaser],
    main: str,
    propensity: BasePropensity | None,
    dataset: Dataset,
    weight: NDArray[np.float64] | None,
) -> dict[str, Any]:
    """Return the importance of the fields, and calibration by their values, of models that read features.

    The conversion model is judged on the test set; without one on the clicks that chose its epoch. The
    propensity is judged on the training log, out of fold.

    Parameters
    ----------
    weight
        1/p of the rows of the training log, by which these clicks are weighted.
    """
    found: dict[str, Any] = {}
    model, train = models.get(main), dataset.train
    if model is not None and model.reads_features:
        found["conversion"] = None
        rows = model.validation_rows(train)
        if dataset.test is not None:
            found["conversion"] = {"judged_on": "test set", **_of_fields(model, dataset.test)}
        elif rows.shape[1]:
            judged_on = "validation clicks" + ("" if weight is None else ", weighted by 1/p")
            found["conversion"] = {
                "judged_on": judged_on,
                **_of_fields(model, train, rows=rows, weight=weight),
            }
    if propensity is not None and propensity.reads_features and propensity.encoders_ is not None:
        judged_on = "held-out rows" if propensity.crossfit else "rows that trained it"
        found["propensity"] = {"judged_on": judged_on, **_of_fields(propensity, train)}
    return {"fields": found} if found else {}


def _of_fields(model: Debiaser | BasePropensity, log: Log, **options: Any) -> dict[str, Any]:
    values = field_calibration(model, log, **options)
    return {
        "importance": asdict(field_importance(model, log, **options)),
        "values": len(values),
        "values_off": sum(value.off for value in values),
        "worst_values": [asdict(value) for value in values[:MOST_VALUES]],
    }


def leak_figures(config: Config, leaks: Sequence[Leak]) -> tuple[dict[str, Any], list[str]]:
    """Return the leaks that are allowed, and a line for each that was found."""
    allowed = [leak for leak in leaks if leak.column in config.features.allow_leak]
    labels = [
        f"{'leak allowed' if leak in allowed else 'may be a leak'}: '{leak.column}', {leak.found}"
        for leak in leaks
    ]
    return {"leaks_allowed": [leak.to_dict() for leak in allowed]}, labels
