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

from unskew.debias.acdr import acdr_propensity as acdr_propensity
from unskew.debias.acdr import calibration_error as calibration_error
from unskew.debias.acdr import equal_mass_edges as equal_mass_edges
from unskew.debias.att import att as att
from unskew.debias.cdr import cdr as cdr
from unskew.debias.cdr import cdr_correction as cdr_correction
from unskew.debias.cdr import cdr_trusted as cdr_trusted
from unskew.debias.dce_dr import expert_logit as expert_logit
from unskew.debias.dce_dr import gumbel as gumbel
from unskew.debias.dcmt import dcmt as dcmt
from unskew.debias.dcmt import dcmt_conversion as dcmt_conversion
from unskew.debias.ddpo import ddpo as ddpo
from unskew.debias.ddpo import ddpo_conversion as ddpo_conversion
from unskew.debias.ddpo import ddpo_soft_label as ddpo_soft_label
from unskew.debias.dr import constant_imputation as constant_imputation
from unskew.debias.dr import dr as dr
from unskew.debias.dr_bias import dr_bias_imputation as dr_bias_imputation
from unskew.debias.dr_jl import dr_jl_imputation as dr_jl_imputation
from unskew.debias.dr_mse import dr_mse_imputation as dr_mse_imputation
from unskew.debias.dr_v2 import FORM_OF_ERRORS as FORM_OF_ERRORS
from unskew.debias.dr_v2 import dr_v2 as dr_v2
from unskew.debias.dr_v2 import dr_v2_imputation as dr_v2_imputation
from unskew.debias.eib import eib as eib
from unskew.debias.escm2_dr import dr_with_imputation as dr_with_imputation
from unskew.debias.escm2_dr import escm2_dr as escm2_dr
from unskew.debias.escm2_ips import escm2_ips as escm2_ips
from unskew.debias.esmm import esmm as esmm
from unskew.debias.forms import FORMS as FORMS
from unskew.debias.forms import FormName as FormName
from unskew.debias.forms import ImputationForm as ImputationForm
from unskew.debias.forms import SquaredPseudoLabel as SquaredPseudoLabel
from unskew.debias.forms import dr_correction as dr_correction
from unskew.debias.forms import effective_target as effective_target
from unskew.debias.forms import imputation_loss as imputation_loss
from unskew.debias.forms import imputed_error as imputed_error
from unskew.debias.gpl import gpl_propensity as gpl_propensity
from unskew.debias.ips import ips as ips
from unskew.debias.ips_v2 import imbalance as imbalance
from unskew.debias.ips_v2 import ips_v2 as ips_v2
from unskew.debias.ips_v2 import squared_imbalance as squared_imbalance
from unskew.debias.kb_dr import kb_dr as kb_dr
from unskew.debias.kb_dr import kb_dr_imputation as kb_dr_imputation
from unskew.debias.kb_ips import balancing_weight as balancing_weight
from unskew.debias.kb_ips import kb_ips as kb_ips
from unskew.debias.kb_ips import kernel_balance as kernel_balance
from unskew.debias.kb_ips import kernels as kernels
from unskew.debias.mrdr import mrdr_imputation as mrdr_imputation
from unskew.debias.naive import naive as naive
from unskew.debias.snips import snips as snips
from unskew.debias.stable_dr import imputed_imbalance as imputed_imbalance
from unskew.debias.stable_dr import stable_dr_propensity as stable_dr_propensity
from unskew.debias.stable_dr import tilted_logit as tilted_logit
from unskew.debias.tasks import click_conversion_loss as click_conversion_loss
from unskew.debias.tasks import click_loss as click_loss
from unskew.debias.tdr import tdr_epsilon as tdr_epsilon
from unskew.debias.tdr import tdr_targeting as tdr_targeting
from unskew.debias.uips import uips as uips
from unskew.debias.uips import uips_factor as uips_factor
from unskew.metrics.sample_weight import bias_weight as bias_weight
from unskew.metrics.sample_weight import error_weight as error_weight
from unskew.metrics.sample_weight import inverse_weight as inverse_weight
from unskew.metrics.sample_weight import variance_weight as variance_weight
from unskew.training.means import Space as Space
from unskew.training.means import cross_entropy as cross_entropy
from unskew.training.means import halves as halves
from unskew.training.means import squared_error as squared_error
from unskew.training.means import stratified as stratified

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
    name for name in globals() if not name.startswith("_") and name not in ("Any", "Callable", "annotations")
]
