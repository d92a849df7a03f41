"""Networks with a leading replica dimension; they map pairs to logits and know nothing of bias."""

from __future__ import annotations

from typing import Any

from unskew.base.registry import LEARNERS
from unskew.learners.batch_ensemble import BatchEnsemble
from unskew.learners.custom import Custom
from unskew.learners.intercept import Intercept, UserIntercept
from unskew.learners.learner import Learner, TableLearner
from unskew.learners.network import Network, NetworkLearner

__all__ = [
    "LEARNERS",
    "BatchEnsemble",
    "Custom",
    "Intercept",
    "Learner",
    "Network",
    "NetworkLearner",
    "TableLearner",
    "UserIntercept",
    "make_learner",
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


def make_learner(name: str, **params: Any) -> Learner:
    """Return a learner by name, e.g. ``make_learner("neumf", dim=32)``."""
    return LEARNERS[name](**{key: tuple(v) if isinstance(v, list) else v for key, v in params.items()})
