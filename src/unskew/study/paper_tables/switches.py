"""What each deviation of the published code does to the ECE table: one switch reversed at a time."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unskew.study.paper import PaperProtocol
from unskew.study.paper_tables.presets import Preset
from unskew.study.paper_tables.reproduction import Reproduction
from unskew.study.shown import Shown

PROPENSITY_SWITCHES = (
    "sampled_negatives",
    "negatives_once",
    "no_offset",
    "spare_tenth",
    "propensity_epochs_fixed",
    "embedding_dropout",
    "platt_in_sample",
    "platt_dropout",
    "ece_in_sample",
)
"""Switches that the propensities depend on."""


def switch_table(
    work_with: Callable[[PaperProtocol], Reproduction], switches: PaperProtocol, preset: Preset
) -> Shown:
    """ECE of raw and Platt with every switch as it is, and with each one reversed alone."""
    rows = []
    for name in ("", *PROPENSITY_SWITCHES):
        chosen = switches.reversed(name) if name else switches
        found = work_with(chosen).estimated(["raw", "platt"])
        raw, platt = (np.asarray(found[key].figures["ece"]) for key in ("raw", "platt"))
        rows.append(
            (
                f"without {name}" if name else "as it is",
                _told(raw),
                _told(platt),
                f"{platt.mean() / raw.mean():.2f}",
                f"{np.mean(found['platt'].figures['auc']):.3f}",
                f"{np.mean(found['platt'].figures['weight_check']):.3g}",
            )
        )
    return Shown(
        title=preset.title,
        columns=("", "ECE raw", "ECE Platt", "Platt ÷ raw", "AUC Platt", "Σ1/p ÷ size of D, Platt"),
        rows=tuple(rows),
        caption="mean ± standard deviation over seeds; where ECE is measured, its switch says",
    )


def _told(values: NDArray[np.float64]) -> str:
    spread = f" ± {values.std(ddof=1):.4f}" if len(values) > 1 else ""
    return f"{values.mean():.4f}{spread}"
