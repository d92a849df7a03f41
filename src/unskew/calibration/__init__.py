"""Calibrators: maps from a score to an honest probability, one file each. NumPy in, NumPy out, no torch."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unskew.base.errors import RunFolderError
from unskew.base.registry import CALIBRATORS
from unskew.calibration.calibrator import Calibrator
from unskew.calibration.multicalibrated import Multicalibrated

if TYPE_CHECKING:
    from unskew.calibration.sklearn_adapter import CalibratedClassifier

__all__ = [
    "CALIBRATORS",
    "CalibratedClassifier",
    "Calibrator",
    "Multicalibrated",
    "calibrator_from_dict",
    "load_calibrator",
    "make_calibrator",
]

# Registered: written by `make docs`.
from unskew.calibration.auto import AutoCalibrator
from unskew.calibration.beta import Beta
from unskew.calibration.histogram import Histogram
from unskew.calibration.ic_ipw import ICIPW
from unskew.calibration.identity import Identity
from unskew.calibration.isotonic import Isotonic
from unskew.calibration.platt import Platt
from unskew.calibration.scaling_binning import ScalingBinning
from unskew.calibration.spline import Spline
from unskew.calibration.temperature import Temperature
from unskew.calibration.venn_abers import VennAbers

__all__ += [
    "ICIPW",
    "AutoCalibrator",
    "Beta",
    "Histogram",
    "Identity",
    "Isotonic",
    "Platt",
    "ScalingBinning",
    "Spline",
    "Temperature",
    "VennAbers",
]
# End of what is registered.


DEFAULT = AutoCalibrator.name
"""The calibrator of a propensity, of weights and of a run unless one is named; the paper's is Platt."""


def make_calibrator(name: str | Calibrator | None, **parameters: Any) -> Calibrator:
    """Return a calibrator from its name; ``None`` is ``"none"``, and a calibrator is given back as it is.

    Examples
    --------
    >>> make_calibrator("platt", input="prob")
    Platt(input='prob')
    """
    if isinstance(name, Calibrator):
        return name.set_params(**parameters)
    if name == Multicalibrated.name:
        return Multicalibrated().set_params(**parameters)
    return CALIBRATORS["none" if name is None else name]().set_params(**parameters)


def calibrator_from_dict(saved: Mapping[str, Any]) -> Calibrator:
    """Return the fitted calibrator, of whatever kind, that ``to_dict`` wrote."""
    name = saved.get("calibrator") if isinstance(saved, Mapping) else None
    kind: type[Calibrator] | None = Multicalibrated if name == Multicalibrated.name else None
    if kind is None and isinstance(name, str):
        kind = CALIBRATORS.get(name)
    if kind is None:
        raise RunFolderError(
            f"this does not hold a calibrator of this version (found {name!r})",
            remedy="fit and save it again",
        )
    return kind.from_dict(saved)


def load_calibrator(path: str | os.PathLike[str]) -> Calibrator:
    """Read a calibrator that ``save`` wrote (JSON, never a pickle)."""
    try:
        saved = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise RunFolderError(
            f"cannot be read: {error.strerror}", where=str(path), remedy="check the path and its permissions"
        ) from error
    except (ValueError, RecursionError) as error:
        raise RunFolderError(
            f"is not JSON: {error}", where=str(path), remedy="give a file that save wrote"
        ) from error
    return calibrator_from_dict(saved)


def __getattr__(name: str) -> Any:
    if name == "CalibratedClassifier":
        from unskew.calibration.sklearn_adapter import CalibratedClassifier

        return CalibratedClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
