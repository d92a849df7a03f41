"""The table of methods: one line each."""

from __future__ import annotations

from typing import Any, TypeVar

from unskew.debias.att import ATT
from unskew.debias.cdr import CDR
from unskew.debias.core.base import Debiaser
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
from unskew.errors import ParameterError

Method = TypeVar("Method", bound=type[Debiaser])

METHODS: dict[str, type[Debiaser]] = {
    method.name: method
    for method in (
        Naive,
        IPS,
        SNIPS,
        EIB,
        DR,
        DRJL,
        MRDR,
        GPL,
        CDR,
        IPSV2,
        DRV2,
        ESMM,
        ESCM2IPS,
        ESCM2DR,
        DRBias,
        DRMSE,
        StableDR,
        TDR,
        MultiIPW,
        MultiDR,
        DDPO,
        ATT,
        KBIPS,
        KBDR,
    )
}
"""Every debiasing method by the name that ``unskew run --method`` knows it by."""


def register(method: Method) -> Method:
    """Add a method of your own to ``METHODS``; runs, studies and ``load_model`` then know it by its name.

    A class decorator, above ``@dataclass``. Defining the same class again (in a notebook) replaces it;
    the name of another method is refused.
    """
    name = getattr(method, "name", None)
    if not isinstance(method, type) or not issubclass(method, Debiaser) or not isinstance(name, str):
        raise ParameterError(f"{method!r} is not a Debiaser with a name", remedy="subclass it, set name")
    known = METHODS.get(name)
    if known is not None and _written_at(known) != _written_at(method):
        raise ParameterError(f"a method {name!r} is there already ({known.__name__})", remedy="rename yours")
    METHODS[name] = method
    return method


def _written_at(method: type[Debiaser]) -> tuple[str, str]:
    return method.__module__, method.__qualname__


def make_method(name: str, **params: Any) -> Debiaser:
    """A method by name, e.g. ``make_method("ips", p_min=0.05)``."""
    if name not in METHODS:
        raise ParameterError(f"unknown method {name!r}", remedy=f"use one of {', '.join(METHODS)}")
    return METHODS[name](**params)
