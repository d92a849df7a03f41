"""Parameters of another type: one line before any training, whoever is given them."""

from __future__ import annotations

import pytest

import unskew as us
from unskew.base.errors import ParameterError
from unskew.calibration import Histogram
from unskew.data import Schema


@pytest.fixture(scope="module")
def log():
    return us.load("synthetic", n_users=20, n_items=40, density=0.3).train


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"learner": "mf"}, r"learner must be a Learner object, not 'mf'\. To fix: give MF\(\)"),
        ({"learner": None}, "learner must be a Learner object, not None"),
        ({"learner": us.MF}, r"not the class MF\. To fix: give MF\(\)"),
        ({"learner": us.MF(dim="a")}, "MF: dim must be a whole number, not 'a'"),
        ({"calibrator": "platt"}, r"calibrator must be a Calibrator object or None.*give Platt\(\)"),
        ({"calibrator": 3}, "calibrator must be a Calibrator object or None, not 3"),
        ({"calibrator": Histogram(bins="x")}, "Histogram: bins must be a whole number, not 'x'"),
        ({"uncertainty": "mc-dropout"}, r"uncertainty must be an Uncertainty object.*give MCDropout\(\)"),
        ({"uncertainty": us.MCDropout(samples=0.5)}, "MCDropout: samples must be a whole number"),
        ({"crossfit": 2.5}, "crossfit must be a whole number or None, not 2.5"),
        ({"epochs": 1.5}, "epochs must be a whole number, not 1.5"),
        ({"batch_size": 1.5}, "batch_size must be a whole number, not 1.5"),
        ({"learning_rate": "a"}, "learning_rate must be a number, not 'a'"),
        ({"fold_by": "zzz"}, "fold_by must be 'cell', 'user' or 'item', not 'zzz'"),
    ],
)
def test_a_propensity_refuses_them(log, params, message):
    with pytest.raises(ParameterError, match=message):
        us.Propensity(**params).fit(log)


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"p_min": None}, "IPS: p_min must be a number or 'auto', not None"),
        ({"p_min": "a"}, "p_min must be a number or 'auto'"),
        ({"learner": "mf"}, r"IPS: learner must be a Learner object.*give MF\(\)"),
        ({"patience": 0.5}, "patience must be a whole number or None"),
    ],
)
def test_a_method_refuses_them(log, params, message):
    with pytest.raises(ParameterError, match=message):
        us.IPS(**params).fit(log, propensity=0.3)


def test_a_calibrator_and_a_network_refuse_them():
    with pytest.raises(ParameterError, match="Histogram: bins must be a whole number, not 'x'"):
        Histogram(bins="x").fit([0.1, 0.9], [0, 1])
    with pytest.raises(ParameterError, match=r"MF: dim must be a whole number, not 2\.5"):
        us.MF(dim=2.5).build(Schema.of_ids(3, 3), seeds=[0])
