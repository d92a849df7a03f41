"""Checks on the fields of a configuration together, and the parameters of its parts."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from unskew.base.errors import ParameterError
from unskew.base.estimator import Estimator, fits, require, require_types
from unskew.calibration import make_calibrator
from unskew.calibration.recalibration import NONE, require_kind
from unskew.data.splitting import parse_duration
from unskew.debias import METHODS
from unskew.learners import LEARNERS, make_learner
from unskew.metrics.weights import require_clip
from unskew.propensity import (
    PopularityPropensity,
    make_propensity,
    make_uncertainty,
    names_network,
    registered_name,
)
from unskew.run.config import AUTO, FIELDS, NO_METHOD, NO_PROPENSITY, SECTIONS, UNTRAINED
from unskew.run.protocol import validation_params
from unskew.training.checkpoint import flat

if TYPE_CHECKING:
    from unskew.run.config import Config

Part = TypeVar("Part", bound=Estimator)

TRAINING = ("epochs", "batch_size", "learning_rate", "weight_decay", "patience", "checks")
"""What ``training.NAME`` sets of the conversion models and of a propensity by a network alike."""

FLAGS = {
    "method.learner": "--learner",
    "method.fields": "--model-features",
    "method.members": "--members",
    "method.recalibrate": "--recalibrate",
    "method.p_min": "--p-min",
    "propensity.learner": "--propensity",
    "propensity.fields": "--propensity-features",
    "propensity.calibrator": "--calibrator",
    "propensity.uncertainty": "--uncertainty",
    "propensity.crossfit": "--crossfit",
}
"""Parameters that have an option of their own."""

OF_FILES = (
    "test", "test_is", "unbiased", "user", "item", "click", "conversion", "space", "known_propensity",
    "actions", "duplicates", "unclicked", "cache",
)  # fmt: skip
"""Options that say what the columns of a file are; a dataset with a name knows."""

OF_TRAINED = ("propensity", "calibrator", "uncertainty", "crossfit", "propensity_epochs")
"""Options of a propensity that is trained."""

OF_HONEST = ("crossfit", "p_min", "split", "valid_from", "time")
"""Options that the paper's protocol sets itself."""


def check_names(config: Config) -> dict[str, Any]:
    """Check what the fields of a configuration say together; return its parameters by their whole names."""
    _refuse_without_effect(config)
    make_calibrator(config.calibrator)
    make_uncertainty(config.propensity.uncertainty)
    require_kind(config.model.recalibrate)
    require_clip(config.propensity.p_min)
    if config.method not in (NO_METHOD, AUTO):
        METHODS.require(config.method)
    paper, crossfit = config.evaluation.protocol == "paper", config.propensity.crossfit
    require(crossfit != 1, "crossfit must be 0 or from 2 to 100 folds, not 1", "give 5, for example")
    require(
        config.method != AUTO or not paper,
        "the paper's protocol has no auto",
        "give a --method, or leave --protocol",
    )
    require(
        config.model.start is None or config.method not in (AUTO, NO_METHOD),
        f"--from has no effect with method {config.method}",
        "leave --from out, or give a --method",
    )
    sampled = config.data.unbiased_share is not None or config.data.unbiased is not None
    require(
        not (sampled or config.data.options.get("unbiased")) or looks_at_sample(config),
        f"an unbiased sample has no effect with method {config.method}",
        "give --method auto, or --recalibrate auto, or leave the sample out",
    )
    require(
        config.needs_network is None
        or config.propensity.kind in ("auto", *UNTRAINED)
        or names_network(config.propensity.kind),
        f"the propensity {config.propensity.kind!r} has no {config.needs_network}, which a network has",
        f"leave it out, or use one of {', '.join(LEARNERS)}",
    )
    require(
        config.propensity.kind != NO_PROPENSITY
        or config.method in (AUTO, NO_METHOD)
        or not METHODS[config.method].needs_propensity,
        f"{config.method} cannot do without propensities",
        "give another --propensity",
    )
    evaluation = config.evaluation
    validation_params(evaluation.split, evaluation.valid_from, config.data.time)
    if config.data.maturity is not None:
        parse_duration(config.data.maturity)
    return checked(config)


def looks_at_sample(config: Config) -> bool:
    """Return whether a run uses a random sample: to choose a method, or to set levels right."""
    return config.method == AUTO or config.model.recalibrate != NONE


def is_given(config: Config, name: str) -> bool:
    """Return whether an option has another value than by default."""
    section, field = FIELDS[name]
    return bool(getattr(getattr(config, section), field) != SECTIONS[section].model_fields[field].default)


def _refuse_without_effect(config: Config) -> None:
    """Raise for an option that would have no effect beside the others."""
    data, paper = config.data, config.evaluation.protocol == "paper"
    bandit = data.known_propensity is not None
    rules: tuple[tuple[bool, tuple[str, ...], str], ...] = (
        (not bandit, ("actions",), "without --known-propensity"),
        (bandit, OF_TRAINED, "with --known-propensity: no propensity is trained"),
        (data.is_named, OF_FILES, f"with --data {data.source}"),
        (paper, OF_HONEST, "with --protocol paper, which sets it as the paper did"),
        (not paper, ("reverse",), "without --protocol paper"),
        (config.compute.checkpoint is None, ("every",), "without --checkpoint"),
        (data.test is None, ("test_is",), "without --test"),
        (config.features.columns != ("auto",), ("ignore",), "without --features auto"),
    )
    for applies, names, because in rules:
        for name in names if applies else ():
            if is_given(config, name):
                flag = f"--{name.replace('_', '-')}"
                raise ParameterError(f"{flag} has no effect {because}", remedy="leave it out")


def names_of(part: str, estimator: Any) -> Iterator[str]:
    """Yield the parameters of a part, and those of what it is made of: ``propensity.learner.dim``."""
    for field in fields(estimator):
        name, value = f"{part}.{field.name}", getattr(estimator, field.name)
        if name in ("propensity.calibrator", "propensity.uncertainty"):
            # Their parameters are calibrator.NAME and uncertainty.NAME.
            continue
        if isinstance(value, Estimator):
            yield from names_of(name, value)
        elif hasattr(value, "get_params"):
            # A scikit-learn classifier.
            yield from (f"{name}.{parameter}" for parameter in value.get_params(deep=False))
        elif name not in FLAGS:
            yield name


def changed(part: Part, named: str, parameters: Mapping[str, Any]) -> Part:
    """Set those of some parameters that a part has; ``named`` is what the part is called in them."""
    has = set(names_of(named, part))
    for key, value in parameters.items():
        head, _, name = key.partition(".")
        own = f"{named}.{name}" if head == "training" and named in ("method", "propensity") else key
        if own in has:
            _set(part, own.split(".")[1:], value)
    return part


def checked(config: Config) -> dict[str, Any]:
    """Return the parameters by their whole names; an unknown one or a value of a wrong type is an error."""
    parts = list(_parts(config))
    names = [name for part, estimator in parts for name in names_of(part, estimator)]
    trained = [f"training.{name}" for name in TRAINING]
    found = {_whole(key, names, trained): value for key, value in flat(config.model.parameters)}
    for part, estimator in parts:
        require_types(changed(estimator, part, found), choices=False)
    return found


def _parts(config: Config) -> Iterator[tuple[str, Estimator]]:
    """Yield what a run is made of; of a propensity that is chosen, every candidate."""
    learner, kind = config.learner, config.propensity.kind
    if config.method != NO_METHOD:
        # Of a search, what every candidate has.
        method = METHODS["naive" if config.method == AUTO else config.method]
        yield "method", method(learner=make_learner(learner))
    yield "learner", make_learner(learner)
    yield "calibrator", make_calibrator(config.calibrator)
    uncertainty = make_uncertainty(config.propensity.uncertainty)
    if uncertainty is not None:
        yield "uncertainty", uncertainty
    if kind != "auto":
        known = registered_name(kind)
        if known is not None:
            yield "propensity", make_propensity(known)
        return
    yield "propensity", make_propensity(learner)
    if config.needs_network is None:
        yield "propensity", PopularityPropensity()


def _whole(key: str, names: list[str], trained: list[str]) -> str:
    """Return the whole name of a parameter, whose part may be left out where one part alone has it."""
    if key in names or key in trained:
        return key
    last = key.rpartition(".")[2]
    if key in FLAGS or f"method.{key}" in FLAGS:
        flag = FLAGS.get(key) or FLAGS[f"method.{key}"]
        raise ParameterError(f"{key} has an option of its own", remedy=f"give {flag}")
    ends = list(dict.fromkeys(name for name in names if name.partition(".")[2] == key))
    if len(ends) == 1:
        return ends[0]
    if ends:
        ends += [name for name in trained if name.endswith(f".{key}")]
        raise ParameterError(f"{key} is a parameter of several parts", remedy=f"give {' or '.join(ends)}")
    sections = [f"{section}.{name}" for section, kind in SECTIONS.items() for name in kind.model_fields]
    near = difflib.get_close_matches(key, [*names, *sections], n=1, cutoff=0.8)
    like = difflib.get_close_matches(last, {name.rpartition(".")[2] for name in names}, n=2)
    near = list(dict.fromkeys([*near, *(name for name in names if name.rpartition(".")[2] in like)]))[:4]
    remedy = f"use {' or '.join(near)}" if near else "see what unskew methods NAME and unskew config list"
    raise ParameterError(f"the run has no parameter {key!r}", remedy=remedy)


def _set(part: Any, path: list[str], value: Any) -> None:
    """Set a parameter; "none" is None where no text is meant, which TOML cannot say."""
    for outer in path[:-1]:
        part = getattr(part, outer)
    name = path[-1]
    if not isinstance(part, Estimator):
        part.set_params(**{name: None if value == "none" else value})
    elif isinstance(value, list):
        setattr(part, name, tuple(value))
    else:
        setattr(part, name, None if value == "none" and not fits(part, name, value) else value)
