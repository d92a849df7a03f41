"""Every method has its losses as functions, and trains by them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import unskew as us
from contracts.small_setting import WIDE, clicked_batch, full_batch, small_setting
from unskew import losses

OBSERVED, FULL = clicked_batch(), full_batch()
OTHERWISE = {"multi-ipw": losses.escm2_ips, "multi-dr": losses.escm2_dr}
"""Methods that are ESCM² without its last term."""


def function_of(name: str) -> Any:
    return OTHERWISE.get(name) or getattr(losses, name.replace("-", "_"))


def imputation_of(name: str) -> Any:
    host = "dr_jl" if name == "tdr" else name.replace("-", "_")
    return losses.imputation_loss if name == "eib" else getattr(losses, f"{host}_imputation")


@pytest.mark.parametrize("name", us.METHODS.built_in)
def test_every_method_has_a_function_of_its_name_that_opens_with_its_formula(name):
    assert function_of(name).__doc__.startswith("L = ")
    assert not set(losses.__all__) - set(dir(losses))


@pytest.mark.parametrize("cls", [us.DRJL, us.MRDR, us.DRBias, us.DRMSE, us.TDR, us.EIB])
def test_methods_with_an_imputer_train_by_their_functions(cls):
    method = cls(learner=WIDE, normalise_weights=False)
    setting = small_setting(method)
    method.before_imputation(setting)
    method.before_prediction(setting)
    logit, output = (
        (setting.logit(OBSERVED, tower), setting.logit(FULL, tower)) for tower in ("prediction", "imputation")
    )
    weights = () if cls is us.EIB else (OBSERVED.propensity,)
    prediction = function_of(cls.name)(OBSERVED.conversion, logit, *weights, output, density=setting.density)
    torch.testing.assert_close(method.loss(setting, OBSERVED, FULL), prediction)
    options: dict[str, Any] = {"density": setting.density}
    weight = OBSERVED.propensity
    if cls is us.EIB:
        options["loss"], weight = "ce", torch.ones_like(weight)
    if cls is us.TDR:
        clicks = setting.clicks
        at_clicks = (setting.predicted(clicks, "imputation"), setting.predicted(clicks))
        epsilon = losses.tdr_epsilon(clicks.conversion, *at_clicks, clicks.propensity)
        assert bool((epsilon != 0).all())
        options["targeting"] = losses.tdr_targeting(epsilon, weight)
    imputation = imputation_of(cls.name)(OBSERVED.conversion, output[0], logit[0], weight, **options)
    torch.testing.assert_close(method.imputation_loss(setting, OBSERVED, FULL), imputation)


def test_kb_dr_trains_by_its_functions():
    method = us.KBDR(learner=WIDE, normalise_weights=False)
    setting = small_setting(method)
    method.before_epoch(setting)
    weight = method.weight(setting, OBSERVED)
    logit, output = (
        (setting.logit(OBSERVED, tower), setting.logit(FULL, tower)) for tower in ("prediction", "imputation")
    )
    torch.testing.assert_close(
        method.loss(setting, OBSERVED, FULL), losses.kb_dr(OBSERVED.conversion, logit, weight, output)
    )
    torch.testing.assert_close(
        method.imputation_loss(setting, OBSERVED, FULL),
        losses.kb_dr_imputation(OBSERVED.conversion, output[0], logit[0], weight),
    )
