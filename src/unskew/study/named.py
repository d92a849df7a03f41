"""Studies that have a name: grids over one dataset, and two of estimators that train nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from unskew.calibration import CALIBRATORS
from unskew.debias import METHODS
from unskew.errors import ParameterError
from unskew.propensity import UNCERTAINTIES
from unskew.study.estimators import estimator_study, show_estimators
from unskew.study.grid import Grid, read_grid
from unskew.study.shown_table import Shown
from unskew.study.tuning import SUPPLEMENT
from unskew.study.unbiasedness import show_unbiasedness, unbiasedness_study

TUNE_TRIALS = 24
"""Combinations of the supplement's 720 that the preset ``tuned`` draws."""


@dataclass(frozen=True)
class NamedStudy:
    """A study by name; it has a grid, or is a table made by a function."""

    about: str
    grid: Callable[[], Mapping[str, Any]] | None = None
    shown: Callable[[], Shown] | None = None


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


BATTERY = "battery"
"""The study of methods on worlds of known truth (:mod:`unskew.study.battery`), which is no grid."""

NAMED: dict[str, NamedStudy] = {
    "methods": NamedStudy("every method with calibrated, cross-fitted propensities", grid=_methods),
    "calibrators": NamedStudy(
        "every uncertainty × every calibrator, on held-out cells, beside a constant", grid=_calibrators
    ),
    "small": NamedStudy("five methods with raw, Platt and isotonic propensities", grid=_small),
    "tuned": NamedStudy(
        f"the same, tuned on validation loss: {TUNE_TRIALS} draws from the supplement's grid", grid=_tuned
    ),
    "unbiasedness": NamedStudy(
        "estimates of the ideal loss over 2,000 draws of the clicks of a synthetic world",
        shown=lambda: show_unbiasedness(unbiasedness_study()),
    ),
    "estimators": NamedStudy(
        "relative error of estimators on a complete matrix, raw and calibrated propensities",
        shown=lambda: show_estimators(estimator_study()),
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
    make = NAMED[name].grid if name in NAMED else None
    if make is None:
        raise ParameterError(f"no grid is called {name!r}", remedy=f"use one of {', '.join(grids())}")
    datasets = [{"name": data, "root": root}]
    return read_grid({"name": f"{name}-{data}", "datasets": datasets, **make(), **changes})


def grids() -> list[str]:
    """Names of the studies that are grids."""
    return [name for name, study in NAMED.items() if study.grid is not None]


def show_studies() -> Shown:
    """The named studies as a table."""
    return Shown(
        title="Named studies",
        columns=("name", "what it compares", "needs data"),
        rows=(
            *(
                (name, study.about, "yes (--data, --root)" if study.grid else "no")
                for name, study in NAMED.items()
            ),
            (BATTERY, "methods and auto on worlds of known truth: regret, and who loses to naive", "no"),
        ),
        text_columns=3,
    )
