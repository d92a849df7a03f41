"""Debiasing methods, one file each: how propensities enter the training of the conversion model."""

from __future__ import annotations

from typing import Any

from unskew.base.registry import METHODS, register
from unskew.debias import losses
from unskew.debias.method import Debiaser
from unskew.debias.setting import Batch, ClicksAndCells, Setting, Stage, State, clicks
from unskew.debias.storage import load_model

__all__ = [
    "METHODS",
    "Batch",
    "ClicksAndCells",
    "Debiaser",
    "Setting",
    "Stage",
    "State",
    "clicks",
    "load_model",
    "losses",
    "make_method",
    "register",
]

# Registered: written by `make docs`.
from unskew.debias.acdr import ACDR
from unskew.debias.att import ATT
from unskew.debias.cdr import CDR
from unskew.debias.dce_dr import DCEDR
from unskew.debias.dcmt import DCMT
from unskew.debias.ddpo import DDPO
from unskew.debias.dr import DR
from unskew.debias.dr_bias import DRBias
from unskew.debias.dr_jl import DRJL
from unskew.debias.dr_mse import DRMSE
from unskew.debias.dr_v2 import DRV2
from unskew.debias.eib import EIB
from unskew.debias.escm2_dr import ESCM2DR
from unskew.debias.escm2_ips import ESCM2IPS
from unskew.debias.esmm import ESMM
from unskew.debias.gpl import GPL
from unskew.debias.ips import IPS
from unskew.debias.ips_v2 import IPSV2
from unskew.debias.kb_dr import KBDR
from unskew.debias.kb_ips import KBIPS
from unskew.debias.mrdr import MRDR
from unskew.debias.multi_dr import MultiDR
from unskew.debias.multi_ipw import MultiIPW
from unskew.debias.naive import Naive
from unskew.debias.snips import SNIPS
from unskew.debias.stable_dr import StableDR
from unskew.debias.tdr import TDR
from unskew.debias.uips import UIPS

__all__ += [
    "ACDR",
    "ATT",
    "CDR",
    "DCEDR",
    "DCMT",
    "DDPO",
    "DR",
    "DRJL",
    "DRMSE",
    "DRV2",
    "EIB",
    "ESCM2DR",
    "ESCM2IPS",
    "ESMM",
    "GPL",
    "IPS",
    "IPSV2",
    "KBDR",
    "KBIPS",
    "MRDR",
    "SNIPS",
    "TDR",
    "UIPS",
    "DRBias",
    "MultiDR",
    "MultiIPW",
    "Naive",
    "StableDR",
]
# End of what is registered.


def make_method(name: str, **params: Any) -> Debiaser:
    """Return a method by name, e.g. ``make_method("ips", p_min=0.05)``."""
    return METHODS[name](**params)
