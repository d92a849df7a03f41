"""Studies that have a name: grids over one dataset."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from unskew.calibration import CALIBRATORS
from unskew.debias import METHODS
from unskew.errors import ParameterError
from unskew.propensity import UNCERTAINTIES
from unskew.study.grid import Grid, read_grid
from unskew.study.shown_table import Shown
from unskew.study.tuning import SUPPLEMENT

TUNE_TRIALS = 24
"""Combinations of the supplement's 720 that the preset ``tuned`` draws."""


@dataclass(frozen=True)
class NamedStudy:
    """A grid by name."""

    about: str
    grid: Callable[[], Mapping[str, Any]]


def _methods() -> Mapping[str, Any]:
    return {
        "propensities": [{"key": "neumf"}],
        "calibrators": ["platt"],
        "methods": list(METHODS),
    }


def _calibrators() -> Mapping[str, Any]:
    uncertain = [{"key": name, "uncertainty": name} for name in UNCERTAINTIES]
    return {
        "propensities": [{"key": "neumf"}, *uncertain, {"key": "constant"}],
        "calibrators": list(CALIBRATORS),
    }


def _small() -> Mapping[str, Any]:
    return {
        "propensities": [{"key": "neumf"}, {"key": "constant"}],
        "calibrators": ["none", "platt", "isotonic"],
        "methods": ["naive", "ips", "snips", "dr-jl", "mrdr"],
    }


def _tuned() -> Mapping[str, Any]:
    return {
        **_small(),
        "tune": {"values": SUPPLEMENT, "trials": TUNE_TRIALS, "methods": ["naive", "ips", "dr-jl", "mrdr"]},
    }


NAMED: dict[str, NamedStudy] = {
    "methods": NamedStudy("every method with calibrated, cross-fitted propensities", grid=_methods),
    "calibrators": NamedStudy(
        "every uncertainty × every calibrator, on held-out cells, beside a constant", grid=_calibrators
    ),
    "small": NamedStudy("five methods with raw, Platt and isotonic propensities", grid=_small),
    "tuned": NamedStudy(
        f"the same, tuned on validation loss: {TUNE_TRIALS} draws from the supplement's grid", grid=_tuned
    ),
}
"""What ``unskew study NAME`` knows."""


def named_grid(name: str, data: str, root: str | None, **changes: Any) -> Grid:
    """The grid of a named study on a dataset.

    Examples
    --------
    >>> [method.label for method in named_grid("small", "synthetic", None, seeds=2).methods]
    ['naive', 'ips', 'snips', 'dr-jl', 'mrdr']
    """
    if name not in NAMED:
        raise ParameterError(f"no grid is called {name!r}", remedy=f"use one of {', '.join(NAMED)}")
    datasets = [{"name": data, "root": root}]
    return read_grid({"name": f"{name}-{data}", "datasets": datasets, **NAMED[name].grid(), **changes})


def show_studies() -> Shown:
    """Return the named studies as a table."""
    return Shown(
        title="Named studies (of a dataset: --data, --root)",
        columns=("name", "what it compares"),
        rows=tuple((name, study.about) for name, study in NAMED.items()),
        text_columns=2,
    )
