"""Every estimator as a plain function of tensors, for a training loop of your own.

These are the functions that the methods call, by the methods' names. A tensor is ``[B]``, or ``[R, B]`` for
R models trained side by side; a loss is a number, or ``[R]``. Two kinds of batches will do:

- rows of the population D (impressions) with ``click=`` 1 or 0: conversions and propensities are read on
  clicks alone and may be NaN elsewhere;
- a batch of clicks O and, where a loss sums over D, a batch drawn uniformly from D: what is needed on both is
  given as a pair (on clicks, on D), and ``density=`` is the number of clicks by the size of D.

Propensities are those that you clipped; whatever a method reads without gradient is detached here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from unskew.debias.losses.balance import (
    balancing_weight,
    imputed_imbalance,
    kb_dr,
    kb_dr_imputation,
    kb_ips,
    kernel_balance,
    kernels,
    stable_dr_propensity,
    tilted_logit,
)
from unskew.debias.losses.balanced_tasks import (
    FORM_OF_ERRORS,
    dr_v2,
    dr_v2_imputation,
    imbalance,
    ips_v2,
    squared_imbalance,
)
from unskew.debias.losses.binned import acdr_propensity, calibration_error, equal_mass_edges
from unskew.debias.losses.doubly_robust import (
    cdr,
    cdr_correction,
    cdr_trusted,
    constant_imputation,
    dr,
    dr_bias_imputation,
    dr_correction,
    dr_jl_imputation,
    dr_mse_imputation,
    effective_target,
    eib,
    imputation_loss,
    imputed_error,
    mrdr_imputation,
    tdr_epsilon,
    tdr_targeting,
)
from unskew.debias.losses.experts import expert_logit, gumbel
from unskew.debias.losses.forms import FORMS, FormName, ImputationForm, SquaredPseudoLabel
from unskew.debias.losses.tasks import (
    click_conversion_loss,
    click_loss,
    dcmt,
    dcmt_conversion,
    ddpo,
    ddpo_conversion,
    ddpo_soft_label,
    dr_with_imputation,
    escm2_dr,
    escm2_ips,
    esmm,
    gpl_propensity,
)
from unskew.debias.losses.weighted import att, ips, naive, snips, uips, uips_factor
from unskew.metrics.sample_weight import bias_weight, error_weight, inverse_weight, variance_weight
from unskew.training.means import Space, cross_entropy, halves, squared_error, stratified

dr_jl = mrdr = dr_bias = dr_mse = tdr = gpl = acdr = dce_dr = dr
stable_dr = snips

OF_METHOD: dict[str, dict[str, Callable[..., Any]]] = {
    "naive": {"prediction": naive},
    "ips": {"prediction": ips},
    "snips": {"prediction": snips},
    "uips": {"prediction": uips},
    "eib": {"prediction": eib, "imputation": imputation_loss},
    "dr": {"prediction": dr, "imputation": constant_imputation},
    "dr-jl": {"prediction": dr_jl, "imputation": dr_jl_imputation},
    "mrdr": {"prediction": mrdr, "imputation": mrdr_imputation},
    "gpl": {"prediction": gpl, "imputation": mrdr_imputation, "propensity": gpl_propensity},
    "cdr": {"prediction": cdr, "imputation": mrdr_imputation, "filter": cdr_trusted},
    "ips-v2": {"prediction": ips_v2},
    "dr-v2": {"prediction": dr_v2},
    "esmm": {"prediction": esmm},
    "escm2-ips": {"prediction": escm2_ips},
    "escm2-dr": {"prediction": escm2_dr},
    "dr-bias": {"prediction": dr_bias, "imputation": dr_bias_imputation},
    "dr-mse": {"prediction": dr_mse, "imputation": dr_mse_imputation},
    "stable-dr": {
        "prediction": stable_dr,
        "imputation": dr_jl_imputation,
        "propensity": stable_dr_propensity,
    },
    "tdr": {"prediction": tdr, "imputation": dr_jl_imputation, "targeting": tdr_epsilon},
    "multi-ipw": {"prediction": escm2_ips},
    "multi-dr": {"prediction": escm2_dr},
    "ddpo": {"prediction": ddpo},
    "att": {"first and second": ips, "start": naive, "prediction": att},
    "dcmt": {"prediction": dcmt},
    "acdr": {"prediction": acdr, "imputation": dr_jl_imputation, "propensity": acdr_propensity},
    "dce-dr": {
        "prediction": dce_dr,
        "imputation": dr_jl_imputation,
        "calibration": expert_logit,
        "experts of the propensity": click_loss,
        "experts of the imputation": ips,
    },
    "kb-ips": {"prediction": kb_ips, "weight": kernel_balance},
    "kb-dr": {"prediction": kb_dr, "imputation": kb_dr_imputation, "weight": kernel_balance},
}
"""What each method trains, by the name of the method: one function, or several that learn in turn.

Multi-IPW and Multi-DR are ESCM² with ``click_conversion_weight=0``."""

__all__ = [
    "FORMS",
    "FORM_OF_ERRORS",
    "OF_METHOD",
    "FormName",
    "ImputationForm",
    "Space",
    "SquaredPseudoLabel",
    "acdr",
    "acdr_propensity",
    "att",
    "balancing_weight",
    "bias_weight",
    "calibration_error",
    "cdr",
    "cdr_correction",
    "cdr_trusted",
    "click_conversion_loss",
    "click_loss",
    "constant_imputation",
    "cross_entropy",
    "dce_dr",
    "dcmt",
    "dcmt_conversion",
    "ddpo",
    "ddpo_conversion",
    "ddpo_soft_label",
    "dr",
    "dr_bias",
    "dr_bias_imputation",
    "dr_correction",
    "dr_jl",
    "dr_jl_imputation",
    "dr_mse",
    "dr_mse_imputation",
    "dr_v2",
    "dr_v2_imputation",
    "dr_with_imputation",
    "effective_target",
    "eib",
    "equal_mass_edges",
    "error_weight",
    "escm2_dr",
    "escm2_ips",
    "esmm",
    "expert_logit",
    "gpl",
    "gpl_propensity",
    "gumbel",
    "halves",
    "imbalance",
    "imputation_loss",
    "imputed_error",
    "imputed_imbalance",
    "inverse_weight",
    "ips",
    "ips_v2",
    "kb_dr",
    "kb_dr_imputation",
    "kb_ips",
    "kernel_balance",
    "kernels",
    "mrdr",
    "mrdr_imputation",
    "naive",
    "snips",
    "squared_error",
    "squared_imbalance",
    "stable_dr",
    "stable_dr_propensity",
    "stratified",
    "tdr",
    "tdr_epsilon",
    "tdr_targeting",
    "tilted_logit",
    "uips",
    "uips_factor",
    "variance_weight",
]
