"""Runs whose method has a click tower of its own, and which train no separate propensity unless asked to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from unskew.debias import Debiaser
from unskew.run.protocol import Protocol
from unskew.run.run_figures import BASELINE
from unskew.run.run_parts import NO_METHOD, method_of

if TYPE_CHECKING:
    from unskew.run.run_config import RunConfig

CLICK_TOWER = "its own click tower"
"""What ``metrics.json`` names in the place of a propensity."""


def own_tower(config: RunConfig, protocol: Protocol) -> bool:
    """Return whether the method uses its own click tower: it has one, and no propensity was asked for."""
    if config.propensity != "auto" or config.needs_network or config.method in (BASELINE, NO_METHOD, "auto"):
        return False
    tower = method_of(config, protocol, config.method, 0.5).tower
    return tower is not None and tower.calibration != "external"


def tower_record(config: RunConfig) -> dict[str, Any]:
    """Return where the propensities come from, as the record of a chosen propensity."""
    sentence = (
        f"{config.method} uses {CLICK_TOWER}: no separate propensity was trained (--propensity logistic gives"
        " it one)"
    )
    return {"asked": config.propensity, "chosen": CLICK_TOWER, "sentence": sentence}


def tower_labels(config: RunConfig, protocol: Protocol, *, tested: bool) -> list[str]:
    """Return what was done, a line each."""
    stated = [label for label in protocol.labels if label.startswith(("epoch chosen", "the test", "test"))]
    return [
        tower_record(config)["sentence"],
        "the click tower is calibrated on a tenth of all cells and judged on another, which trained nothing",
        *(label for label in stated if tested or "test" not in label),
    ]


def tower_figures(model: Debiaser, density: float) -> dict[str, Any]:
    """Return the metrics that judge the tower: its figures on cells that it never saw, and its clip."""
    figures = {kind: each for kind, each in model.click_propensity_.items() if each is not None}
    last = next(iter(figures.values()), {"p_min": density})
    return {"propensity": figures, "p_min": last["p_min"], "spread": None}
