"""Propensities: how likely each pair of the population was to be clicked."""

from __future__ import annotations

from unskew.propensity.estimator import Propensity
from unskew.propensity.negatives import logit_offset
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
    "MCDropout",
    "Propensity",
    "Uncertainty",
    "load_propensity",
    "logit_offset",
    "make_uncertainty",
]
