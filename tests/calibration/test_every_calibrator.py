"""Every calibrator keeps the contract; those that promise the base rate keep it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from contracts.calibrator_contract import CalibratorContract, skewed_rows
from unskew.base.errors import ParameterError, RunFolderError
from unskew.calibration import (
    CALIBRATORS,
    Beta,
    Calibrator,
    Histogram,
    Isotonic,
    Platt,
    Spline,
    calibrator_from_dict,
    load_calibrator,
    make_calibrator,
)
from unskew.metrics.sketch import CalibrationSketch

VARIANTS = {
    "platt-prob": Platt(input="prob"),
    "platt-smoothed": Platt(target_smoothing=True),
    "beta-am": Beta(variant="am"),
    "beta-ab": Beta(variant="ab"),
    "isotonic-linear": Isotonic(interpolation="linear"),
    "isotonic-plain": Isotonic(smoothing=0),
    "histogram-width": Histogram(spacing="width", bins=100),
    "histogram-laplace": Histogram(smooth_all=True),
    "spline-fixed": Spline(penalty=1.0),
}
CHOOSERS = ("auto", "spline")
SIMPLE = {name: kind() for name, kind in CALIBRATORS.items() if name not in CHOOSERS} | VARIANTS
KEEP_BASE_RATE = (
    "platt", "platt-prob", "beta", "beta-am", "spline", "isotonic", "scaling_binning"
)  # fmt: skip


def named(name: str) -> Calibrator:
    return (SIMPLE | {chooser: CALIBRATORS[chooser]() for chooser in CHOOSERS})[name].clone()


class TestEveryCalibrator(CalibratorContract):
    @pytest.fixture(params=SIMPLE)
    def calibrator(self, request) -> Calibrator:
        return named(request.param)


class TestCalibratorsThatChoose(CalibratorContract):
    thins_rows_at_random = True

    @pytest.fixture(params=CHOOSERS)
    def calibrator(self, request) -> Calibrator:
        return named(request.param)


@pytest.mark.parametrize("name", KEEP_BASE_RATE)
@pytest.mark.parametrize(
    ("level", "through_sketch", "tolerance"),
    # The cells of a sketch are fine where propensities are small, and coarse near 1.
    [(-6.0, False, 1e-6), (-2.5, False, 1e-6), (2.0, False, 1e-6),
     (-6.0, True, 1e-6), (-2.5, True, 1e-6), (2.0, True, 1e-4)],
)  # fmt: skip
def test_the_mean_prediction_is_the_base_rate(name, level, through_sketch, tolerance):
    score, outcome = skewed_rows(30_000, level=level)
    calibrator = named(name)
    if through_sketch:
        calibrator.fit(CalibrationSketch.of(score=score, outcome=outcome))
    else:
        calibrator.fit(score, outcome)
    assert calibrator.predict(score).mean() == pytest.approx(outcome.mean(), abs=tolerance)


@pytest.mark.parametrize("through_sketch", [False, True])
@pytest.mark.parametrize("name", KEEP_BASE_RATE)
def test_one_click_in_a_million_is_kept_and_has_a_finite_weight(name, through_sketch):
    random = np.random.default_rng(0)
    truth = np.exp(random.normal(0.0, 1.0, 40_000))
    clicked = np.zeros(len(truth), dtype=bool)
    clicked[random.choice(len(truth), 40, replace=False, p=truth / truth.sum())] = True
    # Negatives that were not clicked stand for a thousand each: 40 clicks in 40 million rows.
    weight = np.where(clicked, 1.0, 1000.0)
    score = 3e-6 * truth**1.3
    calibrator = named(name)
    if through_sketch:
        calibrator.fit(CalibrationSketch.of(score=score, outcome=clicked, weight=weight))
    else:
        calibrator.fit(score, clicked, sample_weight=weight)
    probability = calibrator.predict(score)
    base_rate = weight @ clicked / weight.sum()
    assert base_rate == pytest.approx(1e-6, rel=0.01)
    assert weight @ probability / weight.sum() == pytest.approx(base_rate, rel=1e-3)
    assert 1e-9 < probability.min() <= probability.max() < 1e-3


@pytest.mark.parametrize("name", ["isotonic", "histogram", "ic_ipw", "venn_abers"])
def test_no_weight_explodes_where_a_plain_map_answers_zero(name):
    score, outcome = skewed_rows(20_000, level=-8.0)
    assert Isotonic(smoothing=0).fit(score, outcome).predict(score).min() == 1e-12
    probability = make_calibrator(name).fit(score, outcome).predict(score)
    assert probability.min() >= 0.9 / (len(score) + 2)


def test_names_make_calibrators():
    assert isinstance(make_calibrator(None), CALIBRATORS["none"])
    assert make_calibrator("platt", input="prob").get_params()["input"] == "prob"
    given_one = Platt()
    assert make_calibrator(given_one) is given_one
    with pytest.raises(ParameterError, match=r"unknown calibrator 'plat'.*platt"):
        make_calibrator("plat")
    for name, kind in CALIBRATORS.items():
        assert kind.name == name


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Platt(input="logits"), "input must be 'logit' or 'prob'"),
        (lambda: Platt(smallest_slope=0), "smallest_slope must be above 0"),
        (lambda: Beta(variant="a"), "variant must be"),
        (lambda: Isotonic(smoothing=-1), "smoothing must be at least 0"),
        (lambda: Isotonic(interpolation="cubic"), "interpolation must be"),
        (lambda: Histogram(bins=0), "bins must be at least 1"),
        (lambda: Histogram(spacing="log"), "spacing must be"),
        (lambda: Spline(pieces=2), "pieces must be at least 3"),
        (lambda: Spline(penalty=0), "penalty must be above 0"),
        (lambda: make_calibrator("temperature", largest_temperature=0.5), "largest_temperature"),
        (lambda: make_calibrator("scaling_binning", bins=0), "bins must be at least 1"),
        (lambda: make_calibrator("auto", folds=1), "folds must be at least 2"),
        (lambda: make_calibrator("auto", candidates=("auto",)), "auto cannot choose itself"),
    ],
)
def test_parameters_out_of_range_are_told_at_fit(build, message):
    calibrator = build()
    with pytest.raises(ParameterError, match=message):
        calibrator.fit(*skewed_rows(100))


def test_files_that_hold_no_calibrator_are_refused(tmp_path):
    with pytest.raises(RunFolderError, match="cannot be read"):
        load_calibrator(tmp_path / "absent.json")
    (tmp_path / "text.json").write_text("not json")
    with pytest.raises(RunFolderError, match="is not JSON"):
        load_calibrator(tmp_path / "text.json")
    with pytest.raises(RunFolderError, match="does not hold a calibrator"):
        calibrator_from_dict({"calibrator": "unheard of"})
    with pytest.raises(RunFolderError, match="folder does not exist"):
        Platt().fit(*skewed_rows(100)).save(tmp_path / "absent" / "calibrator.json")


def test_importing_calibrators_loads_neither_torch_nor_scikit_learn_nor_numba():
    code = (
        "import sys, unskew.calibration;"
        "print([name for name in ('torch', 'sklearn', 'numba') if name in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("rows", [500, 20_000])
@pytest.mark.parametrize("name", CALIBRATORS)
def test_a_score_of_minus_zero_is_a_score_of_zero(name, rows):
    # 20,000 rows are mapped by a compiled loop, which does not look whether it reads beyond its table.
    generator = np.random.default_rng(0)
    score = generator.random(rows)
    score[:50] = 0.0
    outcome = (generator.random(rows) < score).astype(float)
    outcome[:5] = 1
    signed = np.where(score == 0, -0.0, score)
    plus = make_calibrator(name).fit(score, outcome)
    minus = make_calibrator(name).fit(signed, outcome)
    np.testing.assert_array_equal(plus.predict(signed), plus.predict(score))
    np.testing.assert_array_equal(minus.predict(score), plus.predict(score))
