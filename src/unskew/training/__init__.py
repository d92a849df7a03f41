"""The one training loop, and the samplers that feed it."""

from __future__ import annotations

from unskew.training.devices import resolve_device
from unskew.training.loop import History, Pass, Schedule, evaluating, train
from unskew.training.memory import in_groups, join_histories
from unskew.training.population import IdHashes, Population, Slots
from unskew.training.samplers import (
    ClicksAndNegatives,
    EveryCell,
    LookedUp,
    ObservedAndFull,
    PartsOfEpochs,
    Sample,
    Sampler,
    ShuffledRows,
)
from unskew.training.steps import Step

__all__ = [
    "ClicksAndNegatives",
    "EveryCell",
    "History",
    "IdHashes",
    "LookedUp",
    "ObservedAndFull",
    "PartsOfEpochs",
    "Pass",
    "Population",
    "Sample",
    "Sampler",
    "Schedule",
    "ShuffledRows",
    "Slots",
    "Step",
    "evaluating",
    "in_groups",
    "join_histories",
    "resolve_device",
    "train",
]
