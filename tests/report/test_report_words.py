"""Numbers and names as readers see them."""

from __future__ import annotations

import numpy as np
import pytest

from unskew.audit import verdict
from unskew.metrics import CalibrationSketch
from unskew.metrics.collapse import Collapsed, collapse_message, counts
from unskew.report import facts, numbers
from unskew.report.plots.axes import plain
from unskew.report.plots.scores import weight_curve


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (numbers.number(-0.01234), "−0.0123"),
        (numbers.number(1234.5, 0), "1,234"),
        (numbers.number(None), "–"),
        (numbers.number(float("nan")), "–"),
        (numbers.brief(0.012345), "0.0123"),
        (numbers.brief(0.00999, 2), "0.010"),
        (numbers.brief(1.8), "1.80"),
        (numbers.brief(12345.6), "12,346"),
        (numbers.brief(0), "0"),
        (numbers.signed(0.0123), "+0.012"),
        (numbers.signed(-2.5), "−2.5"),
        (numbers.signed_fixed(0.01234), "+0.0123"),
        (numbers.signed_fixed(-0.00001), "0.0000"),
        (numbers.signed_fixed(None), "–"),
        (numbers.percent(0.0213), "2.1 %"),
        (numbers.percent(1.0), "100 %"),
        (numbers.percent(None), "–"),
        (numbers.p_value(0.0312), "= 0.031"),
        (numbers.p_value(1e-9), "< 0.0001"),
        (numbers.counted(1, "seed"), "1 seed"),
        (numbers.counted(12000, "seed"), "12,000 seeds"),
        (numbers.moved(0.3, 0.25), "falls from 0.3000 to 0.2500"),
        (numbers.moved(0.25, 0.25001), "stays at 0.2500"),
        (numbers.sentence("the naive model"), "The naive model"),
        (numbers.listed(["a", "b", "c"]), "a, b and c"),
        (facts.method_name("naive"), "Naive"),
        (facts.method_name("dr_jl_raw"), "DR-JL, raw"),
        (facts.method_phrase("ips_raw"), "IPS with raw propensities"),
        (facts.method_phrase("naive"), "the naive model"),
        (facts.method_parts("dr_jl"), ("dr_jl", "calibrated")),
        (facts.filled({"naive": {"auc": 0.7}, "ips": {}, "snips": None}), {"naive": {"auc": 0.7}}),
        (plain(0.001), "0.001"),
        (plain(1000.0), "1,000"),
        (verdict.short(0.01234), "0.012"),
        (verdict.short(1.0), "1"),
        (verdict.short(123.4), "120"),
        (verdict.short(0.00000123), "1.2e-06"),
        (verdict.percent(2.5), "250 %"),
        (verdict.direction(0.5), "overstated by a factor 2"),
        (verdict.direction(1.25), "understated by a factor 1.2"),
        (verdict.weights_off(0.56), "44 % too small"),
        (verdict.weights_off(1.3), "30 % too large"),
        (verdict.round_up(46_211), 47_000),
        (verdict.round_up(7), 7),
        (verdict.counted(2000, "row"), "2,000 rows"),
    ],
)
def test_what_is_shown(shown: object, expected: object) -> None:
    assert shown == expected


def test_a_weight_curve_is_what_the_weights_of_a_bin_add_up_to() -> None:
    sketch = CalibrationSketch.of(score=[0.5, 0.5, 0.25, 0.25], outcome=[1, 0, 1, 0])
    np.testing.assert_array_equal(weight_curve(sketch, bins=2).ratio, [2.0, 1.0])


def test_a_network_that_learned_nothing_is_counted_once_a_seed() -> None:
    folds = [Collapsed(f"propensity, fold {fold}", 0, "flat") for fold in range(5)]
    assert counts(folds) == [("propensity", "flat", 1)]
    seeds = [Collapsed("prediction", 0, "flat"), Collapsed("prediction", 3, "flat")]
    assert counts(seeds) == [("prediction", "flat", 2)]
    said = collapse_message("dr-jl", "imputation", "flat", 3, 10)
    assert said.startswith("dr-jl: the network 'imputation' learned nothing in 3 of 10 seeds: it")
