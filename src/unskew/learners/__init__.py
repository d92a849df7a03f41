"""Networks with a leading replica dimension; they map pairs to logits and know nothing of bias."""

from __future__ import annotations

from typing import Any

from unskew.base.registry import BACKBONES
from unskew.learners.backbone import Backbone, Network
from unskew.learners.batch_ensemble import BatchEnsemble
from unskew.learners.custom import Custom
from unskew.learners.intercept import Intercept, UserIntercept
from unskew.learners.learner import Blend, Learner
from unskew.learners.linear import Linear
from unskew.learners.trees import Trees

__all__ = [
    "BACKBONES",
    "Backbone",
    "BatchEnsemble",
    "Blend",
    "Custom",
    "Intercept",
    "Learner",
    "Linear",
    "Network",
    "Trees",
    "UserIntercept",
    "make_backbone",
]

# Registered: written by `make docs`.
from unskew.learners.dcn import DCN
from unskew.learners.deepfm import DeepFM
from unskew.learners.mf import MF
from unskew.learners.mlp import MLP
from unskew.learners.mmoe import MMoE
from unskew.learners.neumf import NeuMF

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
