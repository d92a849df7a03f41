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

from unskew.debias.acdr import acdr_propensity, calibration_error, equal_mass_edges
from unskew.debias.att import att
from unskew.debias.cdr import cdr, cdr_trusted
from unskew.debias.dce_dr import expert_logit, gumbel
from unskew.debias.dcmt import dcmt
from unskew.debias.ddpo import ddpo
from unskew.debias.dr import constant_imputation, dr
from unskew.debias.dr_bias import dr_bias_imputation
from unskew.debias.dr_jl import dr_jl_imputation
from unskew.debias.dr_mse import dr_mse_imputation
from unskew.debias.dr_v2 import dr_v2
from unskew.debias.eib import eib
from unskew.debias.escm2_dr import escm2_dr
from unskew.debias.escm2_ips import escm2_ips
from unskew.debias.esmm import click_conversion_loss, esmm
from unskew.debias.gpl import gpl_propensity
from unskew.debias.imputation import FORMS, dr_correction, effective_target, imputation_loss, imputed_error
from unskew.debias.ips import ips
from unskew.debias.ips_v2 import imbalance, ips_v2
from unskew.debias.kb_dr import kb_dr, kb_dr_imputation
from unskew.debias.kb_ips import balancing_weight, kb_ips, kernel_balance, kernels
from unskew.debias.mrdr import mrdr_imputation
from unskew.debias.naive import naive
from unskew.debias.snips import snips
from unskew.debias.stable_dr import imputed_imbalance, stable_dr_propensity, tilted_logit
from unskew.debias.tdr import tdr_epsilon, tdr_targeting
from unskew.debias.towers import click_loss
from unskew.debias.uips import uips, uips_factor
from unskew.metrics.sample_weight import bias_weight, error_weight, inverse_weight, variance_weight
from unskew.training.means import Space, cross_entropy, halves, squared_error, stratified

dr_jl = mrdr = dr_bias = dr_mse = tdr = gpl = acdr = dce_dr = dr
stable_dr = snips

__all__ = [name for name in globals() if not name.startswith("_") and name != "annotations"]
