"""Few epochs for the stages of a method beside its main one: by default they cost most of a short fit."""

from __future__ import annotations

from unskew.debias import Debiaser

STAGES = {"click_warm_up": 4, "pseudo_epochs": 4}
"""Epochs; defaults are tried in three worlds (``tests/debias/test_three_worlds.py``)."""


def short_stages(method: type[Debiaser]) -> dict[str, int]:
    """Parameters of a method, none where it has no such stage."""
    return {name: epochs for name, epochs in STAGES.items() if hasattr(method, name)}
