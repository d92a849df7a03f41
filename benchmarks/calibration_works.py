"""What ``benchmarks.calibration`` times: the same work by unskew and by every library that is installed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from unskew import calibration, metrics

Work = Callable[[NDArray[Any], NDArray[Any]], Any]
"""From scores and outcomes to a number, or to calibrated scores."""

OURS = "unskew"
BINS = 100


def applied(kind: type[calibration.Calibrator]) -> Work:
    """Fit and apply one of our calibrators."""
    return lambda score, outcome: kind().fit(score, outcome).predict(score)


def ours() -> dict[str, Work]:
    """Every work by unskew."""
    works: dict[str, Work] = {
        "ECE, 100 bins": lambda s, o: metrics.ece(score=s, outcome=o, bins=BINS),
        "adaptive ECE": lambda s, o: metrics.adaptive_ece(score=s, outcome=o, bins=BINS),
        "smooth ECE": lambda s, o: metrics.smooth_ece(score=s, outcome=o),
        "sketch (every metric)": lambda s, o: metrics.CalibrationSketch.of(score=s, outcome=o),
    }
    kinds = (k for name, k in calibration.CALIBRATORS.items() if name != "none")
    return works | {kind.name: applied(kind) for kind in kinds}


def scikit_learn() -> dict[str, Work]:
    from sklearn.calibration import _SigmoidCalibration, _TemperatureScaling, calibration_curve
    from sklearn.isotonic import IsotonicRegression

    return {
        "ECE, 100 bins": lambda s, o: calibration_curve(o, s, n_bins=BINS),
        "platt": lambda s, o: _SigmoidCalibration().fit(logit(s), o).predict(logit(s)),
        "temperature": lambda s, o: _TemperatureScaling().fit(logit(s), o).predict(logit(s)),
        "isotonic": lambda s, o: IsotonicRegression(out_of_bounds="clip").fit(s, o).predict(s),
    }


def netcal() -> dict[str, Work]:
    from netcal.binning import HistogramBinning, IsotonicRegression
    from netcal.metrics import ACE, ECE
    from netcal.scaling import BetaCalibration, LogisticCalibration, TemperatureScaling

    def fitted(make: Callable[[], Any]) -> Work:
        return lambda s, o: make().fit(s, o).transform(s)

    return {
        "ECE, 100 bins": lambda s, o: ECE(BINS).measure(s, o),
        "adaptive ECE": lambda s, o: ACE(BINS).measure(s, o),
        "platt": fitted(LogisticCalibration),
        "temperature": fitted(TemperatureScaling),
        "beta": fitted(BetaCalibration),
        "isotonic": fitted(IsotonicRegression),
        "histogram": fitted(lambda: HistogramBinning(bins=20)),
    }


def probcal() -> dict[str, Work]:
    import probcal as package
    from probcal import metrics as measured

    def fitted(make: Callable[[], Any]) -> Work:
        return lambda s, o: make().fit(s, o).predict_proba(s)

    return {
        "ECE, 100 bins": lambda s, o: measured.ece(o, s, n_bins=BINS, strategy="width"),
        "adaptive ECE": lambda s, o: measured.ece(o, s, n_bins=BINS, strategy="mass"),
        "smooth ECE": lambda s, o: measured.smooth_ece(o, s),
        "platt": fitted(package.PlattCalibrator),
        "temperature": fitted(package.TemperatureCalibrator),
        "beta": fitted(package.BetaCalibrator),
        "isotonic": fitted(package.IsotonicCalibrator),
        "histogram": fitted(lambda: package.HistogramBinningCalibrator(n_bins=20)),
        "scaling_binning": fitted(lambda: package.ScalingBinningCalibrator(n_bins=20)),
        "spline": fitted(package.SplineCalibrator),
        "venn_abers": fitted(package.VennAbersCalibrator),
    }


def relplot() -> dict[str, Work]:
    import relplot as package
    from relplot.metrics import binnedECE

    return {
        "ECE, 100 bins": lambda s, o: binnedECE(s, o, nbins=BINS),
        "smooth ECE": lambda s, o: package.smECE(s, o),
    }


def torchmetrics() -> dict[str, Work]:
    import torch
    from torchmetrics.functional.classification import binary_calibration_error

    return {
        "ECE, 100 bins": lambda s, o: binary_calibration_error(
            torch.from_numpy(s), torch.from_numpy(o), n_bins=BINS
        )
    }


def mcgrad() -> dict[str, Work]:
    from mcgrad import metrics as measured

    return {
        "ECE, 100 bins": lambda s, o: measured.expected_calibration_error(o, s, num_bins=BINS),
        "adaptive ECE": lambda s, o: measured.adaptive_calibration_error(o, s, num_bins=BINS),
    }


def mapie() -> dict[str, Work]:
    from mapie.metrics.calibration import expected_calibration_error

    return {"ECE, 100 bins": lambda s, o: expected_calibration_error(o, s, num_bins=BINS)}


def uncertainty_calibration() -> dict[str, Work]:
    import calibration as package

    return {
        "platt": lambda s, o: package.get_platt_scaler(s, o)(s),
        "histogram": lambda s, o: package.get_histogram_calibrator(
            s, o, package.get_equal_bins(s, num_bins=20)
        )(s),
    }


def betacal() -> dict[str, Work]:
    from betacal import BetaCalibration

    return {"beta": lambda s, o: BetaCalibration("abm").fit(s.reshape(-1, 1), o).predict(s)}


def venn_abers() -> dict[str, Work]:
    import venn_abers as package

    def fitted(score: NDArray[Any], outcome: NDArray[Any]) -> Any:
        both = np.column_stack([1 - score, score])
        model = package.VennAbers()
        model.fit(both, outcome)
        return model.predict_proba(both)[0]

    return {"venn_abers": fitted}


def splinecalib() -> dict[str, Work]:
    from splinecalib import SplineCalib

    def fitted(score: NDArray[Any], outcome: NDArray[Any]) -> Any:
        model = SplineCalib()
        model.fit(score, outcome)
        return model.calibrate(score)

    return {"spline": fitted}


LIBRARIES: Mapping[str, tuple[str, Callable[[], dict[str, Work]]]] = {
    "scikit-learn": ("scikit-learn", scikit_learn),
    "netcal": ("netcal", netcal),
    "probcal": ("probcal", probcal),
    "relplot": ("relplot", relplot),
    "torchmetrics": ("torchmetrics", torchmetrics),
    "MCGrad": ("mcgrad", mcgrad),
    "MAPIE": ("mapie", mapie),
    "uncertainty-calibration": ("uncertainty-calibration", uncertainty_calibration),
    "betacal": ("betacal", betacal),
    "venn-abers": ("venn-abers", venn_abers),
    "splinecalib": ("splinecalib", splinecalib),
}
"""Name in tables: distribution on the package index, and its works."""
