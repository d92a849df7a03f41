"""Calibrators: maps from a score to an honest probability, one file each. NumPy in, NumPy out, no torch."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from unskew.calibration.auto import Auto
from unskew.calibration.base import Calibrator
from unskew.calibration.beta import Beta
from unskew.calibration.histogram import Histogram
from unskew.calibration.ic_ipw import ICIPW
from unskew.calibration.identity import Identity
from unskew.calibration.isotonic import Isotonic
from unskew.calibration.platt import Platt
from unskew.calibration.scaling_binning import ScalingBinning
from unskew.calibration.segmented import Segmented
from unskew.calibration.spline import Spline
from unskew.calibration.temperature import Temperature
from unskew.calibration.venn_abers import VennAbers
from unskew.errors import ParameterError, RunFolderError

if TYPE_CHECKING:
    from unskew.calibration.sklearn_adapter import CalibratedClassifier

CALIBRATORS: dict[str, type[Calibrator]] = {
    kind.name: kind
    for kind in (
        Identity,
        Platt,
        Temperature,
        Beta,
        Spline,
        Isotonic,
        Histogram,
        VennAbers,
        ScalingBinning,
        ICIPW,
        Auto,
    )
}
"""Every calibrator of scores alone by its name, in the order of tables (``Segmented`` needs more)."""


def make_calibrator(name: str | Calibrator | None, **parameters: Any) -> Calibrator:
    """A calibrator from its name; ``None`` is ``"none"``, and a calibrator is given back as it is.

    Examples
    --------
    >>> make_calibrator("platt", input="prob")
    Platt(input='prob')
    """
    if isinstance(name, Calibrator):
        return name.set_params(**parameters)
    kind = CALIBRATORS.get("none" if name is None else name)
    if kind is None:
        raise ParameterError(
            f"there is no calibrator {name!r}", remedy=f"use one of {', '.join(CALIBRATORS)}"
        )
    return kind().set_params(**parameters)


def calibrator_from_dict(saved: Mapping[str, Any]) -> Calibrator:
    """The fitted calibrator, of whatever kind, that ``to_dict`` told of."""
    told = saved.get("calibrator") if isinstance(saved, Mapping) else None
    kinds = CALIBRATORS | {Segmented.name: Segmented}
    if not isinstance(told, str) or told not in kinds:
        raise RunFolderError(
            f"this does not hold a calibrator of this version (found {told!r})",
            remedy="fit and save it again",
        )
    return kinds[told].from_dict(saved)


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


__all__ = [
    "CALIBRATORS",
    "ICIPW",
    "Auto",
    "Beta",
    "CalibratedClassifier",
    "Calibrator",
    "Histogram",
    "Identity",
    "Isotonic",
    "Platt",
    "ScalingBinning",
    "Segmented",
    "Spline",
    "Temperature",
    "VennAbers",
    "calibrator_from_dict",
    "load_calibrator",
    "make_calibrator",
]
