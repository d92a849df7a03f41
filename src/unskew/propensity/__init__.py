"""Propensities: how likely each pair of the population was to be clicked."""

from __future__ import annotations

from unskew.propensity.crossfit import logit_offset
from unskew.propensity.in_sample import InSampleWarning
from unskew.propensity.logistic import LogisticPropensity
from unskew.propensity.naive_bayes import NaiveBayesPropensity
from unskew.propensity.network import Propensity
from unskew.propensity.popularity import PopularityPropensity
from unskew.propensity.sklearn_classifier import SklearnPropensity
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
    "UNCERTAINTIES",
    "BatchEnsembleMembers",
    "DeepEnsemble",
    "DualFocal",
    "InSampleWarning",
    "LogisticPropensity",
    "MCDropout",
    "NaiveBayesPropensity",
    "PopularityPropensity",
    "Propensity",
    "SklearnPropensity",
    "Uncertainty",
    "load_propensity",
    "logit_offset",
    "make_uncertainty",
]
