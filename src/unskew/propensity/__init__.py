"""Propensities: how likely each pair of the population was to be clicked."""

from __future__ import annotations

from typing import Any

from unskew.base.errors import ParameterError
from unskew.base.registry import LEARNERS, PROPENSITIES
from unskew.learners import NetworkLearner
from unskew.propensity.choice import Choice, Tried, choose_propensity, default_candidates
from unskew.propensity.column import ColumnPropensity
from unskew.propensity.crossfit import logit_offset
from unskew.propensity.given import InSampleWarning
from unskew.propensity.naive_bayes import NaiveBayesPropensity
from unskew.propensity.network import Propensity
from unskew.propensity.popularity import PopularityPropensity
from unskew.propensity.position import PositionPropensity
from unskew.propensity.propensity import BasePropensity
from unskew.propensity.storage import load_propensity
from unskew.propensity.uncertainty import (
    UNCERTAINTIES,
    BatchEnsembleMembers,
    DeepEnsemble,
    DualFocal,
    MCDropout,
    Uncertainty,
    make_uncertainty,
)

__all__ = [
    "PROPENSITIES",
    "UNCERTAINTIES",
    "BatchEnsembleMembers",
    "Choice",
    "ColumnPropensity",
    "DeepEnsemble",
    "DualFocal",
    "InSampleWarning",
    "MCDropout",
    "NaiveBayesPropensity",
    "PopularityPropensity",
    "PositionPropensity",
    "Propensity",
    "Tried",
    "Uncertainty",
    "choose_propensity",
    "default_candidates",
    "load_propensity",
    "logit_offset",
    "make_propensity",
    "make_uncertainty",
    "names_network",
    "registered_name",
]


def registered_name(name: str) -> str | None:
    """Return the name of a learner or of a registered kind, which may be written with - for _; else None."""
    return next((n for n in (name, name.replace("-", "_")) if n in LEARNERS or n in PROPENSITIES), None)


def names_network(name: str) -> bool:
    """Return whether a name is that of a network."""
    known = registered_name(name)
    return known in LEARNERS and issubclass(LEARNERS[str(known)], NetworkLearner)


def make_propensity(name: str, **params: Any) -> BasePropensity:
    """Return a propensity by name: that of its learner (``"trees"``, ``"neumf"``), or of a registered kind.

    Examples
    --------
    >>> make_propensity("popularity", item_power=0.5).item_power, make_propensity("mf").learner
    (0.5, MF(dim=32, init_std=0.01))
    """
    known = registered_name(name)
    if known is None:
        raise ParameterError(
            f"unknown propensity {name!r}", remedy=f"use one of {', '.join((*LEARNERS, *PROPENSITIES))}"
        )
    return (
        Propensity(learner=LEARNERS[known](), **params)
        if known in LEARNERS
        else PROPENSITIES[known](**params)
    )
