"""Studies that have a name: grids over one dataset."""

from __future__ import annotations

from typing import Any

from unskew.base.errors import ParameterError
from unskew.calibration import CALIBRATORS
from unskew.debias import METHODS
from unskew.propensity import UNCERTAINTIES
from unskew.report.table import Table
from unskew.study.grid import Grid, read_grid
from unskew.study.tuning import SUPPLEMENT

TUNE_TRIALS = 24
"""Combinations of the supplement's 720 that the preset ``tuned`` draws."""


NAMED: dict[str, str] = {
    "methods": "every method with calibrated, cross-fitted propensities",
    "calibrators": "every uncertainty × every calibrator, on held-out cells, beside a constant",
    "small": "five methods with raw, Platt and isotonic propensities",
    "tuned": f"the same, tuned on validation loss: {TUNE_TRIALS} draws from the supplement's grid",
}
"""What ``unskew study NAME`` knows, and what each compares."""


def named_grid(name: str, data: str, root: str | None, **changes: Any) -> Grid:
    """Return the grid of a named study on a dataset.

    Examples
    --------
    >>> [method.label for method in named_grid("small", "synthetic", None, seeds=2).methods]
    ['naive', 'ips', 'snips', 'dr-jl', 'mrdr']
    """
    if name not in NAMED:
        raise ParameterError(f"no grid is called {name!r}", remedy=f"use one of {', '.join(NAMED)}")
    uncertain = [{"key": kind, "uncertainty": kind} for kind in UNCERTAINTIES]
    small = {
        "propensities": ["neumf", "constant"],
        "calibrators": ["none", "platt", "isotonic"],
        "methods": ["naive", "ips", "snips", "dr-jl", "mrdr"],
    }
    tune = {"values": SUPPLEMENT, "trials": TUNE_TRIALS, "methods": ["naive", "ips", "dr-jl", "mrdr"]}
    grids: dict[str, dict[str, Any]] = {
        "methods": {"propensities": ["neumf"], "calibrators": ["platt"], "methods": list(METHODS)},
        "calibrators": {
            "propensities": ["neumf", *uncertain, "constant"],
            "calibrators": list(CALIBRATORS),
        },
        "small": small,
        "tuned": {**small, "tune": tune},
    }
    datasets = [{"name": data, "root": root}]
    return read_grid({"name": f"{name}-{data}", "datasets": datasets, **grids[name], **changes})


def show_studies() -> Table:
    """Return the named studies as a table."""
    return Table(
        title="Named studies (of a dataset: --data, --root)",
        columns=("name", "what it compares"),
        rows=tuple(NAMED.items()),
        words=2,
    )
