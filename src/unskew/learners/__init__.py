"""Networks with a leading replica dimension; they map pairs to logits and know nothing of bias."""

from __future__ import annotations

from typing import Any

from unskew.base.registry import BACKBONES
from unskew.learners.backbone import Backbone, Network
from unskew.learners.batch_ensemble import BatchEnsemble
from unskew.learners.custom import Custom
from unskew.learners.intercept import Intercept, UserIntercept
from unskew.learners.learner import Learner, TableLearner

__all__ = [
    "BACKBONES",
    "Backbone",
    "BatchEnsemble",
    "Custom",
    "Intercept",
    "Learner",
    "Network",
    "TableLearner",
    "UserIntercept",
    "make_backbone",
]

# Registered: written by `make docs`.
from unskew.learners.blend import Blend
from unskew.learners.dcn import DCN
from unskew.learners.deepfm import DeepFM
from unskew.learners.linear import Linear
from unskew.learners.mf import MF
from unskew.learners.mlp import MLP
from unskew.learners.mmoe import MMoE
from unskew.learners.neumf import NeuMF
from unskew.learners.trees import Trees

__all__ += [
    "DCN",
    "MF",
    "MLP",
    "Blend",
    "DeepFM",
    "Linear",
    "MMoE",
    "NeuMF",
    "Trees",
]
# End of what is registered.


def make_backbone(name: str, **params: Any) -> Learner:
    """Return a learner by name, e.g. ``make_backbone("neumf", dim=32)``."""
    return BACKBONES[name](**{key: tuple(v) if isinstance(v, list) else v for key, v in params.items()})
