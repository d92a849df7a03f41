"""Executable theory: estimates of the ideal loss, their bias and its two parts, and bounds that hold.

Everything here is NumPy on arrays over the population D (any shape, all alike). What needs the true
propensities works in a synthetic world; what any log can tell is in :func:`estimable_parts`.
"""

from unskew.theory.bounds import (
    EceBound,
    EstimableParts,
    GeneralisationBound,
    ece_bound,
    estimable_parts,
    generalisation_bound,
)
from unskew.theory.estimates import (
    Bias,
    BiasSplit,
    dr_bias,
    dr_estimate,
    dr_variance,
    ideal_loss,
    ips_bias,
    ips_estimate,
    ips_variance,
    naive_estimate,
    snips_bias,
    snips_estimate,
    snips_variance,
    split_bias,
)
from unskew.theory.known_truth import EstimateTruth, TruthReport, truth_report

__all__ = [
    "Bias",
    "BiasSplit",
    "EceBound",
    "EstimableParts",
    "EstimateTruth",
    "GeneralisationBound",
    "TruthReport",
    "dr_bias",
    "dr_estimate",
    "dr_variance",
    "ece_bound",
    "estimable_parts",
    "generalisation_bound",
    "ideal_loss",
    "ips_bias",
    "ips_estimate",
    "ips_variance",
    "naive_estimate",
    "snips_bias",
    "snips_estimate",
    "snips_variance",
    "split_bias",
    "truth_report",
]
