"""The table of methods: one line each."""

from __future__ import annotations

from typing import Any

from unskew.debias.base import Debiaser
from unskew.debias.ips import IPS
from unskew.debias.naive import Naive
from unskew.debias.snips import SNIPS
from unskew.errors import ParameterError

METHODS: dict[str, type[Debiaser]] = {
    method.name: method
    for method in (
        Naive,
        IPS,
        SNIPS,
    )
}


def make_method(name: str, **params: Any) -> Debiaser:
    """A method by name, e.g. ``make_method("ips", p_min=0.05)``."""
    if name not in METHODS:
        raise ParameterError(f"unknown method {name!r}", remedy=f"use one of {', '.join(METHODS)}")
    return METHODS[name](**params)
