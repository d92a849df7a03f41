"""Debiasing methods, one file each: how propensities enter the training of the conversion model."""

from __future__ import annotations

from unskew.debias.base import Debiaser
from unskew.debias.ips import IPS
from unskew.debias.naive import Naive
from unskew.debias.setting import Batch, PassPlan, Setting, StagePlan, StepPlan
from unskew.debias.snips import SNIPS
from unskew.debias.storage import load_model
from unskew.debias.table import METHODS, make_method, register

__all__ = [
    "IPS",
    "METHODS",
    "SNIPS",
    "Batch",
    "Debiaser",
    "Naive",
    "PassPlan",
    "Setting",
    "StagePlan",
    "StepPlan",
    "load_model",
    "make_method",
    "register",
]
