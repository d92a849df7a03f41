"""Networks with a leading replica dimension; they map pairs to logits and know nothing of bias."""

from __future__ import annotations

from typing import Any

from unskew.backbones.base import Backbone, Network
from unskew.backbones.batch_ensemble import BatchEnsemble
from unskew.backbones.custom import Custom
from unskew.backbones.intercept import Intercept
from unskew.backbones.mf import MF
from unskew.backbones.neumf import NeuMF
from unskew.errors import ParameterError

BACKBONES: dict[str, type[Backbone]] = {backbone.name: backbone for backbone in (NeuMF, MF)}


def make_backbone(name: str, **params: Any) -> Backbone:
    """A backbone by name, e.g. ``make_backbone("neumf", dim=32)``."""
    if name not in BACKBONES:
        raise ParameterError(f"unknown backbone {name!r}", remedy=f"use one of {', '.join(BACKBONES)}")
    return BACKBONES[name](**{key: tuple(v) if isinstance(v, list) else v for key, v in params.items()})


__all__ = [
    "BACKBONES",
    "MF",
    "Backbone",
    "BatchEnsemble",
    "Custom",
    "Intercept",
    "Network",
    "NeuMF",
    "make_backbone",
]
