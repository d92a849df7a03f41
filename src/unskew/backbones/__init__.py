"""Networks with a leading replica dimension; they map pairs to logits and know nothing of bias."""

from __future__ import annotations

from typing import Any

from unskew.backbones.backbone import Backbone, Network
from unskew.backbones.batch_ensemble import BatchEnsemble
from unskew.backbones.custom import Custom
from unskew.backbones.intercept import Intercept, UserIntercept
from unskew.registry import BACKBONES

__all__ = [
    "BACKBONES",
    "Backbone",
    "BatchEnsemble",
    "Custom",
    "Intercept",
    "Network",
    "UserIntercept",
    "make_backbone",
]

# Registered: written by `make docs`.
from unskew.backbones.dcn import DCN
from unskew.backbones.deepfm import DeepFM
from unskew.backbones.mf import MF
from unskew.backbones.mlp import MLP
from unskew.backbones.mmoe import MMoE
from unskew.backbones.neumf import NeuMF

__all__ += [
    "DCN",
    "MF",
    "MLP",
    "DeepFM",
    "MMoE",
    "NeuMF",
]
# End of what is registered.


def make_backbone(name: str, **params: Any) -> Backbone:
    """A backbone by name, e.g. ``make_backbone("neumf", dim=32)``."""
    return BACKBONES[name](**{key: tuple(v) if isinstance(v, list) else v for key, v in params.items()})
