"""unskew: honest propensities and debiased conversion models for recommenders.

Names are loaded when they are first used, so importing the package stays light (no torch).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from unskew.backbones import MF, Custom, NeuMF
    from unskew.calibration import CALIBRATORS, Calibrator, Platt, load_calibrator
    from unskew.datasets import DATASETS, Dataset, load, read_log
    from unskew.debias import (
        ATT,
        CDR,
        DDPO,
        DR,
        DRJL,
        DRMSE,
        DRV2,
        EIB,
        ESCM2DR,
        ESCM2IPS,
        ESMM,
        GPL,
        IPS,
        IPSV2,
        KBDR,
        KBIPS,
        METHODS,
        MRDR,
        SNIPS,
        TDR,
        Debiaser,
        DRBias,
        MultiDR,
        MultiIPW,
        Naive,
        StableDR,
        load_model,
        register,
    )
    from unskew.errors import UnskewError
    from unskew.evaluation import evaluate
    from unskew.export import export_onnx
    from unskew.io.vocabulary import Vocabulary
    from unskew.log import Features, Log
    from unskew.metrics import CalibrationSketch
    from unskew.offpolicy import Comparison, OffPolicyEstimate, compare, compare_run, off_policy_estimates
    from unskew.progress import progress_bars
    from unskew.propensity import (
        BatchEnsembleMembers,
        DeepEnsemble,
        DualFocal,
        LogisticPropensity,
        MCDropout,
        NaiveBayesPropensity,
        PopularityPropensity,
        Propensity,
        SklearnPropensity,
        load_propensity,
    )
    from unskew.run.job import RunConfig, run_job

_HOME = {
    "unskew.backbones": ("MF", "Custom", "NeuMF"),
    "unskew.calibration": ("CALIBRATORS", "Calibrator", "Platt", "load_calibrator"),
    "unskew.datasets": ("DATASETS", "Dataset", "load", "read_log"),
    "unskew.debias": (
        "ATT",
        "KBDR",
        "KBIPS",
        "StableDR",
        "CDR",
        "DR",
        "DRJL",
        "DRMSE",
        "EIB",
        "IPS",
        "METHODS",
        "MRDR",
        "SNIPS",
        "TDR",
        "DRBias",
        "Debiaser",
        "Naive",
        "load_model",
        "register",
        "GPL",
        "IPSV2",
        "DRV2",
        "ESMM",
        "ESCM2IPS",
        "ESCM2DR",
        "MultiIPW",
        "MultiDR",
        "DDPO",
    ),
    "unskew.errors": ("UnskewError",),
    "unskew.evaluation": ("evaluate",),
    "unskew.export": ("export_onnx",),
    "unskew.log": ("Features", "Log"),
    "unskew.metrics": ("CalibrationSketch",),
    "unskew.offpolicy": (
        "Comparison",
        "OffPolicyEstimate",
        "compare",
        "compare_run",
        "off_policy_estimates",
    ),
    "unskew.progress": ("progress_bars",),
    "unskew.propensity": (
        "BatchEnsembleMembers",
        "DeepEnsemble",
        "DualFocal",
        "MCDropout",
        "Propensity",
        "LogisticPropensity",
        "NaiveBayesPropensity",
        "PopularityPropensity",
        "SklearnPropensity",
        "load_propensity",
    ),
    "unskew.run.job": ("RunConfig", "run_job"),
    "unskew.io.vocabulary": ("Vocabulary",),
}
_MODULE_OF = {name: module for module, names in _HOME.items() for name in names}

__all__ = [
    "ATT",
    "CALIBRATORS",
    "CDR",
    "DATASETS",
    "DDPO",
    "DR",
    "DRJL",
    "DRMSE",
    "DRV2",
    "EIB",
    "ESCM2DR",
    "ESCM2IPS",
    "ESMM",
    "GPL",
    "IPS",
    "IPSV2",
    "KBDR",
    "KBIPS",
    "METHODS",
    "MF",
    "MRDR",
    "SNIPS",
    "TDR",
    "BatchEnsembleMembers",
    "CalibrationSketch",
    "Calibrator",
    "Comparison",
    "Custom",
    "DRBias",
    "Dataset",
    "Debiaser",
    "DeepEnsemble",
    "DualFocal",
    "Features",
    "Log",
    "LogisticPropensity",
    "MCDropout",
    "MultiDR",
    "MultiIPW",
    "Naive",
    "NaiveBayesPropensity",
    "NeuMF",
    "OffPolicyEstimate",
    "Platt",
    "PopularityPropensity",
    "Propensity",
    "RunConfig",
    "SklearnPropensity",
    "StableDR",
    "UnskewError",
    "Vocabulary",
    "compare",
    "compare_run",
    "evaluate",
    "export_onnx",
    "load",
    "load_calibrator",
    "load_model",
    "load_propensity",
    "off_policy_estimates",
    "progress_bars",
    "read_log",
    "register",
    "run_job",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'unskew' has no attribute {name!r}")
    return getattr(import_module(_MODULE_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
