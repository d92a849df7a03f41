"""What each deviation of the published code does, one switch at a time, and a diagnostic that is none."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from unskew.report.table import Table
from unskew.study.chosen_on_test import SWITCH, ChoosingOnTest
from unskew.study.engine import Engine
from unskew.study.presets import PAPER_NAMES, SOURCES, Preset
from unskew.study.published import published_row
from unskew.study.reproduction import Reproduction, Values

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

DOUBLY_ROBUST = ("dr-jl", "mrdr")
ROWS = ("raw", "platt")
"""Methods whose epoch the diagnostic chooses on the test set, and the propensities of both tables."""


def switch_table(work: Reproduction, preset: Preset) -> Table:
    """ECE of raw and Platt with every switch as it is, and with each one reversed alone."""
    rows = []
    for name in ("", *PROPENSITY_SWITCHES):
        reverse = {*work.config.reversed} ^ ({name} if name else set())
        found = Values(work.run(work.grid(ROWS, reverse=sorted(reverse))), work, "propensity")
        raw, platt = (np.asarray(found.of(key)["ece"]) for key in ROWS)
        rows.append(
            (
                f"without {name}" if name else "as it is",
                _text(raw),
                _text(platt),
                f"{platt.mean() / raw.mean():.2f}",
                f"{np.mean(found.of('platt')['auc']):.3f}",
                f"{np.mean(found.of('platt')['weight_check']):.3g}",
            )
        )
    return Table(
        title=preset.title,
        columns=("", "ECE raw", "ECE Platt", "Platt ÷ raw", "AUC Platt", "Σ1/p ÷ size of D, Platt"),
        rows=tuple(rows),
        caption="mean ± standard deviation over seeds; where ECE is measured, its switch says",
    )


def chosen_on_test_table(work: Reproduction) -> Table:
    """AUC of the doubly robust methods at the last epoch, and at the epoch that the test set chooses."""
    rows = []
    grid = work.grid(ROWS, {name: list(ROWS) for name in DOUBLY_ROBUST})
    found = [Values(work.run(grid, kind), work, "method") for kind in (Engine, ChoosingOnTest)]
    for name in DOUBLY_ROBUST:
        for key in ROWS:
            before, after = (np.asarray(values.of(key, name)["auc"]) for values in found)
            paper = published_row("dr", work.data, PAPER_NAMES[name], key, "auc")
            rows.append(
                (
                    f"{name} {SOURCES[key].title}",
                    _text(before),
                    _text(after),
                    "–" if paper is None else f"{paper.mean:.4f} ± {paper.std:.4f}",
                    *("–" if paper is None else f"{paper.deviation(x.mean()):+.1f}" for x in (before, after)),
                )
            )
    return Table(
        title=f"A diagnostic, no result: {SWITCH}",
        columns=("AUC", "last epoch", SWITCH, "paper", "off, in its s.d.", f"… with {SWITCH}"),
        rows=tuple(rows),
        caption=f"{SWITCH}: the published doubly robust scripts keep the epoch with the best AUC on the test"
        " set that they then report. It is off in every other table, and no model should be chosen so.",
    )


def _text(values: NDArray[np.float64]) -> str:
    spread = f" ± {values.std(ddof=1):.4f}" if len(values) > 1 else ""
    return f"{values.mean():.4f}{spread}"
