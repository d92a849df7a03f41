"""The propensities of a run: trained, known, or those of the method's own click tower."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.audit.actions import audit_actions
from unskew.base.errors import ParameterError
from unskew.base.estimator import require
from unskew.base.progress import Progress
from unskew.calibration import make_calibrator
from unskew.data import Log
from unskew.data.datasets import Dataset
from unskew.debias import METHODS
from unskew.learners import LEARNERS, make_learner
from unskew.metrics import CalibrationSketch, weight_diagnostics
from unskew.metrics.weights import Clip, resolve_clip
from unskew.propensity import (
    PROPENSITIES,
    ColumnPropensity,
    NaiveBayesPropensity,
    Propensity,
    choose_propensity,
    default_candidates,
    make_propensity,
    registered_name,
)
from unskew.propensity.choice import MOST_WORK, Choice
from unskew.propensity.diagnosis import average, propensity_figures
from unskew.propensity.given import warn_if_in_sample
from unskew.propensity.propensity import BasePropensity
from unskew.run.config import AUTO, CONSTANT, NO_METHOD, NO_PROPENSITY, TRUE, UNTRAINED
from unskew.run.decision import BASELINE
from unskew.run.figures import confounding_figures, spread_figures, truth_figures
from unskew.run.models import method_of
from unskew.run.parameters import changed
from unskew.run.protocol import Protocol
from unskew.training import resolve_device

if TYPE_CHECKING:
    from unskew.run.config import Config


BAYES_SHARE = 0.05
"""Share of the random test set that naive Bayes may look at, as Schnabel et al. let it."""

CLICK_TOWER = "its own click tower"
"""What ``metrics.json`` names in the place of a propensity."""


@dataclass(frozen=True)
class RunPropensities:
    """The propensities of a run.

    Attributes
    ----------
    kinds
        What the method is trained with, by the end of the model's key.
    weigh
        What models are recalibrated with; None where they stay as they are.
    search
        What the candidates of a search are trained with.
    model
        The propensity itself, where one was trained.
    figures, labels
        What ``metrics.json`` holds of them, and what was done, a line each.
    rows, sketches
        Unclipped propensities of the log's rows ``[seeds, n]``, and held-out scores against clicks, by kind.
    """

    kinds: Mapping[str, Any]
    weigh: Any = None
    search: Any = None
    model: BasePropensity | None = None
    figures: Mapping[str, Any] = field(default_factory=dict)
    labels: list[str] = field(default_factory=list)
    rows: Mapping[str, NDArray[np.float64]] = field(default_factory=dict)
    sketches: Mapping[str, CalibrationSketch] = field(default_factory=dict)


def fit_propensity(propensity: BasePropensity, log: Log, **options: Any) -> BasePropensity:
    """Fit a propensity and return it."""
    return propensity.fit(log, **options)


def kinds_of(config: Config, protocol: Protocol, log: Log) -> tuple[str, ...]:
    """Return the ends of the keys of a run's models: one for each kind of propensities."""
    if log.known_propensity is not None:
        return ("_known",)
    alone = config.propensity.kind in UNTRAINED or own_tower(config, protocol)
    raw = "raw" in config.evaluation.beside and config.compute.effort != "quick"
    return ("_raw", "") if raw and not alone else ("",)


def propensities_of(
    config: Config,
    protocol: Protocol,
    dataset: Dataset,
    progress: Progress,
    fit: Callable[..., BasePropensity] = fit_propensity,
) -> RunPropensities:
    """Return the propensities of a run, trained where they must be."""
    if dataset.train.known_propensity is not None:
        return _known(config, protocol, dataset)
    if config.propensity.kind in (CONSTANT, TRUE):
        return _stated(config, protocol, dataset)
    if own_tower(config, protocol):
        stated = [
            label for label in protocol.labels if label.startswith(("epoch chosen", "the test", "test"))
        ]
        sentence = (
            f"{config.method} uses {CLICK_TOWER}: no separate propensity was trained (--propensity linear"
            " gives it one)"
        )
        by = {"asked": config.propensity.kind, "chosen": CLICK_TOWER, "sentence": sentence}
        calibrated = (
            "the click tower is calibrated on a tenth of all cells and judged on another, which trained"
            " nothing"
        )
        labels = [sentence, calibrated]
        labels += [label for label in stated if dataset.test is not None or "test" not in label]
        return RunPropensities({"": None}, figures={"propensity_by": by}, labels=labels)
    return _trained(config, protocol, dataset, progress, fit)


def own_tower(config: Config, protocol: Protocol) -> bool:
    """Return whether the method uses its own click tower: it has one, and no propensity was asked for."""
    if config.propensity.kind == NO_PROPENSITY:
        return True
    asked = config.propensity.kind != "auto" or config.needs_network
    if asked or config.method in (BASELINE, NO_METHOD, AUTO):
        return False
    method = method_of(config, protocol, config.method, 0.5)
    return method.has_tower and getattr(method, "calibration", "external") != "external"


def tower_figures(model: Any, density: float) -> dict[str, Any]:
    """Return the metrics that judge the tower: its figures on cells that it never saw, and its clip."""
    figures = {
        kind: found for kind, found in getattr(model, "click_propensity_", {}).items() if found is not None
    }
    last = next(iter(figures.values()), {"p_min": density})
    return {"propensity": figures, "p_min": last["p_min"], "spread": None}


def _known(config: Config, protocol: Protocol, dataset: Dataset) -> RunPropensities:
    """Audit known propensities, which are neither trained nor calibrated."""
    require(
        config.evaluation.protocol == "honest",
        "a log with known propensities goes with the honest protocol",
        "leave --protocol out",
    )
    require(
        config.method != NO_METHOD,
        "without a method nothing is left to train: the propensities are known",
        "give a --method, or check them with unskew audit --actions",
    )
    log = dataset.train
    column = str(log.known_propensity)
    p = log.columns[column]
    clip = resolve_clip(protocol.clip, propensity=p)
    judged = audit_actions(pa.table({column: p}), score=column, actions=log.actions or log.n_items)
    judged = replace(judged, files=())
    weights = weight_diagnostics(propensity=p, p_min=clip, population_size=log.population_size)
    names = ("weight_check", "effective_sample_size", "clipped", "clipped_mass")
    labels = [
        f"known propensities (column '{column}'): none is trained or calibrated",
        "every row was shown; the population is rows × actions",
        f"weights clipped at p = {clip:.2g}",
        "epoch chosen on a validation split of the rows",
        *(["the test set is touched once"] if dataset.test is not None else []),
    ]
    return RunPropensities(
        kinds={"_known": None},
        weigh=column,
        figures={
            "propensity": {"known": {name: getattr(weights, name) for name in names}},
            "known_propensity": judged.to_dict(),
            "spread": None,
            "p_min": clip,
        },
        labels=labels,
        rows={"known": p[None]},
    )


def _stated(config: Config, protocol: Protocol, dataset: Dataset) -> RunPropensities:
    """Return the share of clicks, or the truth of a synthetic world, as propensities."""
    log, kind = dataset.train, config.propensity.kind
    value: Any = log.density
    if kind == TRUE:
        value = dataset.row_truth.get("train", {}).get("true_click")
        value = dataset.truth.propensity if dataset.truth is not None else value
        require(value is not None, f"{dataset.name} has no true propensities", "give another --propensity")
    scores = value if kind == CONSTANT else np.ravel(value)
    found = given_everywhere(log, scores, protocol.clip, len(config.seeds))
    methods = () if config.method in (NO_METHOD, AUTO) else (METHODS[config.method],)
    everywhere = any(method.needs_propensity_everywhere for method in methods)
    sentence = f"propensity: {'the share of clicks' if kind == CONSTANT else 'the truth of this world'}"
    return RunPropensities(
        kinds={"": value if everywhere else found.rows},
        weigh=found.rows,
        search=found.rows,
        figures={
            "propensity": {"calibrated": found.figures},
            "propensity_by": {"asked": kind, "chosen": kind, "sentence": sentence},
            "spread": None,
            "p_min": found.figures["p_min"],
        },
        labels=[sentence],
        rows={"known": found.rows},
        sketches={"calibrated": found.sketch},
    )


def _trained(
    config: Config,
    protocol: Protocol,
    dataset: Dataset,
    progress: Progress,
    fit: Callable[..., BasePropensity],
) -> RunPropensities:
    """Train the propensity of a run, and read off what it gives the rows of the log."""
    log = dataset.train
    propensity, record = fitted_propensity(config, protocol, dataset, progress, fit)
    found = read_off(propensity, log, protocol.clip)
    if protocol.name == "honest" and config.method not in (BASELINE, NO_METHOD):
        warn_if_in_sample(propensity, log)
    raw, calibrated = found["raw"], found["calibrated"]
    everywhere = predicts_everywhere(propensity)
    kinds: dict[str, Any] = {"_raw": raw.rows, "": calibrated.rows}
    if config.method not in (NO_METHOD, AUTO) and METHODS[config.method].needs_propensity_everywhere:
        require(
            everywhere,
            f"{config.method} needs propensities of all of D: {propensity.name.replace('_', ' ')} has those"
            " of rows",
            "give another --propensity, or a method such as ips",
        )
        kinds = {"_raw": propensity.reread(calibrator=None), "": propensity}
    of_kinds = {kind: dict(estimated.figures) for kind, estimated in found.items()}
    if (on_test := figures_on_test(propensity, dataset.test, protocol.clip)) is not None:
        of_kinds["on test rows"] = on_test
    if isinstance(propensity, Propensity) and (further := protocol.further_figures(propensity, log)):
        of_kinds["calibrated"]["per_seed"] = {**calibrated.figures["per_seed"], **further}
    figures: dict[str, Any] = {
        "propensity": of_kinds,
        "propensity_by": record,
        "spread": spread_figures(propensity, raw.rows, raw.spread),
        "p_min": calibrated.figures["p_min"],
    }
    if dataset.truth is not None and everywhere:
        figures["truth"] = truth_figures(dataset, propensity, protocol.clip)
    if "true_conversion" in dataset.row_truth.get("train", {}):
        of_rows = np.maximum(calibrated.rows.mean(axis=0), figures["p_min"])
        figures["confounding"] = confounding_figures(dataset, of_rows)
    wanted = kinds_of(config, protocol, log)
    return RunPropensities(
        kinds={kind: kinds[kind] for kind in wanted},
        weigh=kinds[""],
        search=propensity if everywhere else calibrated.rows,
        model=propensity,
        figures=figures,
        labels=_labels(protocol, propensity, record, tested=dataset.test is not None, method=config.method),
        rows={kind: estimated.rows for kind, estimated in found.items()},
        sketches={kind: estimated.sketch for kind, estimated in found.items()},
    )


def fitted_propensity(
    config: Config,
    protocol: Protocol,
    dataset: Dataset,
    progress: Progress,
    fit: Callable[..., BasePropensity] = fit_propensity,
) -> tuple[BasePropensity, dict[str, Any]]:
    """Return the propensity of a run, fitted for all its seeds, and how it came to be this one."""
    log, device = dataset.train, config.compute.device
    propensity, choice, record = chosen_propensity(config, protocol, log, progress)
    if choice is not None and len(config.seeds) == 1:
        return choice.propensity, record
    options: dict[str, Any] = {}
    if isinstance(propensity, NaiveBayesPropensity):
        if dataset.test is None or dataset.test_is != "random":
            raise ParameterError(
                "naive Bayes needs a test set of pairs shown at random, a part of which it looks at",
                remedy="give --test FILE --test-is random, or another --propensity",
            )
        options = {"random_sample": dataset.test}
    return fit(propensity, log, seeds=config.seeds, device=device, progress=progress, **options), record


def candidates_of_run(config: Config, log: Log) -> tuple[str, ...]:
    """Return the propensities that are tried; with little effort neither a network nor a blend of two."""
    names = default_candidates(log)
    if config.compute.effort == "quick":
        return tuple(name for name in names if name != "blend")
    return tuple(dict.fromkeys((*names, config.learner)))


def chosen_propensity(
    config: Config, protocol: Protocol, log: Log, progress: Progress
) -> tuple[BasePropensity, Choice | None, dict[str, Any]]:
    """Return the propensity of a run, unfitted; the choice, where there was one; and how it was chosen."""
    asked, device = config.propensity.kind, config.compute.device
    if asked == "auto" and config.needs_network is None:
        candidates = {name: made(config, protocol, name) for name in candidates_of_run(config, log)}
        choice = choose_propensity(
            log,
            candidates,
            seed=config.evaluation.seed,
            device=device,
            progress=progress,
            most_work=MOST_WORK[resolve_device(device).type],
        )
        record = {"asked": "auto", **choice.to_dict(), "sentence": choice.sentence}
        return candidates[choice.name], choice, record
    name = config.learner if asked == "auto" else asked
    because = "" if asked != "auto" else f", since {config.needs_network} is of a network"
    propensity = made(config, protocol, name, log.columns)
    called = f"column '{name}'" if isinstance(propensity, ColumnPropensity) else name
    return propensity, None, {"asked": asked, "chosen": name, "sentence": f"propensity by {called}{because}"}


def made(config: Config, protocol: Protocol, name: str, columns: Collection[str] = ()) -> BasePropensity:
    """Return a propensity by name, unfitted: a network as the protocol has it, another kind, or a column.

    It reads the fields that were chosen; a candidate may read none.
    """
    calibrator, parameters = None, config.model.parameters
    if config.calibrator != "none":
        calibrator = changed(make_calibrator(config.calibrator), "calibrator", parameters)
    known = registered_name(name)
    propensity: BasePropensity
    if known is not None and known in LEARNERS:
        learner = make_learner(known)
        if config.propensity.kind != "auto" or known == config.learner:
            learner = changed(learner, "learner", parameters)
        network = protocol.propensity(learner, calibrator, config.propensity.uncertainty)
        if network.uncertainty is not None:
            changed(network.uncertainty, "uncertainty", parameters)
        propensity = changed(network, "propensity", parameters)
    elif known is not None:
        share = {"sample_share": BAYES_SHARE} if known == NaiveBayesPropensity.name else {}
        options: dict[str, Any] = {"calibrator": calibrator, "crossfit": protocol.crossfit, **share}
        propensity = changed(make_propensity(known, **options), "propensity", parameters)
    elif name in columns:
        propensity = ColumnPropensity(column=name, calibrator=calibrator, crossfit=protocol.crossfit)
    else:
        raise unknown_propensity(name)
    if propensity.reads_features or config.propensity.kind != "auto":
        propensity.fields = config.features.propensity
    return propensity


def unknown_propensity(name: str) -> ParameterError:
    """Return the error for a name that is neither a propensity's nor a column's."""
    names = ("auto", *LEARNERS, *PROPENSITIES)
    close = "".join(f"{each}, or one of " for each in difflib.get_close_matches(name, names, n=1))
    return ParameterError(
        f"unknown propensity {name!r}", remedy=f"use {close}{', '.join(names)}, or a column of your files"
    )


def predicts_everywhere(propensity: BasePropensity) -> bool:
    """Return whether it has a propensity for every pair of D."""
    return not isinstance(propensity, NaiveBayesPropensity | ColumnPropensity)


def _labels(
    protocol: Protocol, propensity: BasePropensity, record: dict[str, Any], *, tested: bool, method: str
) -> list[str]:
    """Return what was done, a line each: how the propensity was chosen, and what the protocol decides."""
    models = method != NO_METHOD
    if protocol.name == "paper":
        # Every number of the paper's protocol carries its own labels alone.
        return [label for label in protocol.labels if tested or "test" not in label]
    labels = [record["sentence"]]
    if isinstance(propensity, NaiveBayesPropensity):
        labels.append(f"{propensity.message_}, as this run does")
    of_network = isinstance(propensity, Propensity) and propensity.has_network
    left_out = [] if of_network else [protocol.stopping]
    if not models:
        labels.append("the propensity alone is trained: no conversion model, and nothing to test")
        left_out += [label for label in protocol.labels if "epoch chosen" in label]
    return labels + [
        label
        for label in protocol.labels
        if label not in left_out and ((tested and models) or "test" not in label)
    ]


SKETCH_ROWS = 1 << 22
"""Cells of D that are sketched at once where propensities are given, not trained."""


@dataclass(frozen=True)
class Estimated:
    """Propensities of a log, one line per seed, and how far they can be trusted."""

    rows: NDArray[np.float64]
    """``[seeds, n]``: of the log's rows; one line for all seeds where nothing was trained."""
    figures: Mapping[str, Any]
    """Means over seeds; by seed under ``"per_seed"``."""
    sketch: CalibrationSketch
    """Scores against clicks of the first seed, on the cells where they are judged."""
    spread: NDArray[np.float64] | None = None
    """How far members or passes disagree on the raw propensities of the rows."""


def read_off(propensity: BasePropensity, log: Log, p_min: Clip) -> dict[str, Estimated]:
    """Score the log once with its trained propensity; return its ``"raw"`` and ``"calibrated"`` estimates."""
    predicted = propensity.predict_both_each(log)
    figures = propensity.diagnose(log, p_min=p_min, predicted=predicted)
    return {
        kind: Estimated(
            rows=predicted.one(calibrated=calibrated),
            figures=figures[kind],
            sketch=propensity.held_out_sketches(calibrated=calibrated)[0],
            spread=None if calibrated else predicted.spread,
        )
        for kind, calibrated in (("raw", False), ("calibrated", True))
    }


def figures_on_test(propensity: BasePropensity, test: Log | None, p_min: Clip) -> dict[str, Any] | None:
    """Return the figures of a propensity on test impressions; None where they have no clicks and others."""
    if test is None or test.space != "impressions" or not 0 < test.n_clicks < len(test):
        return None
    figures = []
    for score in propensity.predict_each(test, average=True):
        sketch = CalibrationSketch()
        sketch.update(score, test.click)
        clicks = score[test.clicked]
        figures.append(propensity_figures(sketch, clicks, p_min=p_min, population_size=len(test)))
    return average(figures)


def given_everywhere(log: Log, scores: NDArray[np.float64] | float, p_min: Clip, seeds: int = 1) -> Estimated:
    """Judge propensities that were not trained: one number, or one for every cell of D.

    Parameters
    ----------
    seeds
        How often the figures, which are the same for every seed, are repeated.
    """
    clicked = np.sort(log.cell[log.clicked]) if log.space == "matrix" else log.clicked
    sketch = CalibrationSketch()
    for start in range(0, log.population_size, SKETCH_ROWS):
        stop = min(start + SKETCH_ROWS, log.population_size)
        outcome = np.zeros(stop - start)
        first, last = np.searchsorted(clicked, (start, stop))
        outcome[clicked[first:last] - start] = 1.0
        part = np.full(stop - start, scores) if isinstance(scores, float) else scores[start:stop]
        sketch.update(part, outcome)
    if isinstance(scores, float):
        rows = np.full(len(log), scores)
    else:
        rows = scores[log.cell] if log.space == "matrix" else scores
    figures = propensity_figures(sketch, rows[log.clicked], p_min=p_min, population_size=log.population_size)
    return Estimated(rows[None], average([figures] * seeds), sketch)
