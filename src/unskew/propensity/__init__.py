"""Propensities: how likely each pair of the population was to be clicked."""

from __future__ import annotations

from unskew.propensity.estimator import Propensity
from unskew.propensity.negatives import logit_offset
from unskew.propensity.storage import load_propensity

__all__ = ["Propensity", "load_propensity", "logit_offset"]
