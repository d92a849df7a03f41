"""Parameters of the parts of a run by name (``--set method.learning_rate=0.01``), checked before training."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, TypeVar

from unskew.base.errors import ParameterError
from unskew.base.estimator import Estimator, fits, require_types
from unskew.calibration import make_calibrator
from unskew.debias import METHODS
from unskew.learners import make_backbone
from unskew.propensity import (
    LogisticPropensity,
    PopularityPropensity,
    make_propensity,
    make_uncertainty,
    registered_name,
)
from unskew.training.checkpoint import flat

if TYPE_CHECKING:
    from unskew.run.run_config import RunConfig

Part = TypeVar("Part", bound=Estimator)

TRAINING = ("epochs", "batch_size", "learning_rate", "weight_decay", "patience", "checks")
"""What ``training.NAME`` sets of the conversion models and of a propensity by a network alike."""

FLAGS = {
    "method.backbone": "--backbone",
    "method.fields": "--model-features",
    "method.members": "--members",
    "method.recalibrate": "--recalibrate",
    "method.p_min": "--p-min",
    "propensity.backbone": "--propensity",
    "propensity.fields": "--propensity-features",
    "propensity.calibrator": "--calibrator",
    "propensity.uncertainty": "--uncertainty",
    "propensity.crossfit": "--crossfit",
}
"""Parameters that have an option of their own."""


PARTS_OF_THEIR_OWN = ("propensity.calibrator", "propensity.uncertainty")
"""Whose parameters are ``calibrator.NAME`` and ``uncertainty.NAME``."""


def names_of(part: str, estimator: Any) -> Iterator[str]:
    """The parameters of a part, and those of what it is made of: ``propensity.backbone.dim``."""
    for field in fields(estimator):
        name, value = f"{part}.{field.name}", getattr(estimator, field.name)
        if name in PARTS_OF_THEIR_OWN:
            continue
        if isinstance(value, Estimator):
            yield from names_of(name, value)
        elif hasattr(value, "get_params"):
            # A scikit-learn classifier.
            yield from (f"{name}.{each}" for each in value.get_params(deep=False))
        elif name not in FLAGS:
            yield name


def changed(part: Part, named: str, parameters: Mapping[str, Any]) -> Part:
    """A part with those of some parameters that it has; ``named`` is what the part is called in them."""
    has = set(names_of(named, part))
    for key, value in parameters.items():
        head, _, name = key.partition(".")
        own = f"{named}.{name}" if head == "training" and named in ("method", "propensity") else key
        if own in has:
            _set(part, own.split(".")[1:], value)
    return part


def checked(config: RunConfig) -> dict[str, Any]:
    """The parameters of a run by their whole names; an unknown one or a value of a wrong type is an error."""
    parts = list(_parts(config))
    names = [name for part, estimator in parts for name in names_of(part, estimator)]
    trained = [f"training.{name}" for name in TRAINING]
    found = {_whole(key, names, trained): value for key, value in flat(config.parameters)}
    for part, estimator in parts:
        require_types(changed(estimator, part, found), choices=False)
    return found


def _parts(config: RunConfig) -> Iterator[tuple[str, Estimator]]:
    """What a run is made of; of a propensity that is chosen, every candidate."""
    if config.method != "none":
        # Of a search, what every candidate has.
        kind = METHODS["naive" if config.method == "auto" else config.method]
        yield "method", kind(backbone=make_backbone(config.backbone))
    yield "backbone", make_backbone(config.backbone)
    yield "calibrator", make_calibrator(config.calibrator)
    uncertainty = make_uncertainty(config.uncertainty)
    if uncertainty is not None:
        yield "uncertainty", uncertainty
    if config.propensity != "auto":
        known = registered_name(config.propensity)
        if known is not None:
            yield "propensity", make_propensity(known)
        return
    yield "propensity", make_propensity(config.backbone)
    if config.needs_network is None:
        yield "propensity", LogisticPropensity()
        yield "propensity", PopularityPropensity()


def _whole(key: str, names: list[str], trained: list[str]) -> str:
    """The whole name of a parameter, of which the part may be left out where one part alone has it."""
    if key in names or key in trained:
        return key
    flags = [flag for name, flag in FLAGS.items() if key in (name, name.rpartition(".")[2])]
    if flags:
        raise ParameterError(f"{key} has an option of its own", remedy=f"give {flags[0]}")
    ends = list(dict.fromkeys(name for name in names if name.partition(".")[2] == key))
    if len(ends) == 1:
        return ends[0]
    if ends:
        both = [name for name in trained if name.endswith(f".{key}")]
        raise ParameterError(
            f"{key} is a parameter of several parts", remedy=f"give {' or '.join([*ends, *both])}"
        )
    near = _near(key, names)
    remedy = f"use {' or '.join(near)}" if near else "see what unskew methods NAME lists"
    raise ParameterError(f"the run has no parameter {key!r}", remedy=remedy)


def _near(key: str, names: list[str]) -> list[str]:
    """Names that look like a key, as a whole or without their part."""
    last = key.rpartition(".")[2]
    ends = difflib.get_close_matches(last, {name.rpartition(".")[2] for name in names}, n=2)
    found = difflib.get_close_matches(key, names, n=1, cutoff=0.8)
    return list(dict.fromkeys([*found, *(name for name in names if name.rpartition(".")[2] in ends)]))[:4]


def _set(part: Any, path: list[str], value: Any) -> None:
    for outer in path[:-1]:
        part = getattr(part, outer)
    if isinstance(part, Estimator):
        setattr(part, path[-1], _as_meant(part, path[-1], value))
    else:
        part.set_params(**{path[-1]: None if value == "none" else value})


def _as_meant(part: Estimator, name: str, value: Any) -> Any:
    """A list as a tuple; and None for "none", which TOML cannot say, where no text is meant."""
    if isinstance(value, list):
        return tuple(value)
    return None if value == "none" and not fits(part, name, value) else value
