"""One propensity under every calibrator: the figures are those of a propensity fitted with it."""

from __future__ import annotations

import numpy as np
import pytest

import unskew as us
from unskew.calibration import CALIBRATORS
from unskew.errors import DataError, ParameterError
from unskew.study.calibrator_comparison import compare_calibrators, show_calibrators


@pytest.fixture(scope="module")
def log():
    return us.load("synthetic", n_users=80, n_items=60, density=0.12, seed=1).train


def rows_of(table):
    return {row["calibrator"]: row for row in table.to_pylist()}


@pytest.mark.parametrize(
    "make",
    [
        lambda **options: us.Propensity(backbone=us.MF(dim=4), epochs=3, batch_size=512, **options),
        lambda **options: us.LogisticPropensity(**options),
    ],
    ids=["network", "logistic"],
)
def test_a_row_is_what_a_propensity_with_that_calibrator_shows(make, log):
    seeds = [3, 8]
    raw, compared = make(calibrator=None, crossfit=2), ("none", "platt", "isotonic")
    rows = rows_of(compare_calibrators(log, raw, calibrators=compared, seeds=seeds))
    for name in ("platt", "isotonic"):
        alone = make(calibrator=CALIBRATORS[name](), crossfit=2).fit(log, seeds=seeds).diagnose()
        for figure in ("ece", "wce", "nll", "auc", "weight_check", "clipped"):
            assert rows[name][figure] == pytest.approx(alone["calibrated"][figure], rel=1e-4), figure
            assert rows["none"][figure] == pytest.approx(alone["raw"][figure], rel=1e-4), figure


def test_every_calibrator_has_its_row_and_the_best_is_no_worse_than_none(log):
    rows = rows_of(compare_calibrators(log, us.PopularityPropensity(crossfit=2)))
    assert list(rows) == [*CALIBRATORS, "constant"]
    assert rows["platt"]["nll"] < rows["none"]["nll"]
    assert rows["platt"]["mean_over_base_rate"] == pytest.approx(1, abs=0.01)


def test_the_constant_is_calibrated_and_useless(log):
    row = rows_of(compare_calibrators(log, us.PopularityPropensity(crossfit=2), calibrators=()))["constant"]
    d = log.density
    assert row["ece"] == pytest.approx(0, abs=1e-6)
    assert row["wce"] == pytest.approx(0, abs=1e-6)
    assert row["auc"] == 0.5
    assert row["nll"] == pytest.approx(-d * np.log(d) - (1 - d) * np.log(1 - d), rel=1e-9)
    assert row["weight_check"] == pytest.approx(1, rel=1e-12)
    assert row["effective_sample_size"] == pytest.approx(log.n_clicks, rel=1e-12)


def test_a_fitted_propensity_is_taken_as_it_is_and_stays_so(log):
    fitted = us.PopularityPropensity(crossfit=2).fit(log, seeds=[5])
    before = fitted.predict_each(log)
    compare_calibrators(log, fitted, calibrators=("none", "beta"))
    np.testing.assert_array_equal(fitted.predict_each(log), before)
    assert fitted.seeds_ == (5,)


def test_other_propensities_stand_beside(log):
    truth = us.load("synthetic", n_users=80, n_items=60, density=0.12, seed=1).truth.propensity
    rows = rows_of(
        compare_calibrators(
            log, us.PopularityPropensity(crossfit=2), calibrators=("platt",), beside={"true": truth}
        )
    )
    assert rows["true"]["nll"] < rows["platt"]["nll"] < rows["constant"]["nll"]
    assert rows["true"]["ece"] < 2 * rows["true"]["ece_floor"]


def test_the_table_to_read_has_a_line_for_each(log):
    table = compare_calibrators(log, us.PopularityPropensity(crossfit=2), calibrators=("none", "platt"))
    shown = show_calibrators(table)
    assert [row[0] for row in shown.rows] == ["none", "platt", "constant"]
    assert {len(row) for row in shown.rows} == {len(shown.columns)}
    assert shown.markdown().count("\n") == 4


def test_what_cannot_be_compared_is_told(log):
    with pytest.raises(ParameterError, match="unknown calibrator 'magic'"):
        compare_calibrators(log, calibrators=("magic",))
    popularity = us.PopularityPropensity(crossfit=2).fit(log)
    with pytest.raises(DataError, match="half has 2,400 propensities for the 4,800 cells"):
        compare_calibrators(log, popularity, calibrators=(), beside={"half": np.full((80, 30), 0.1)})
    with pytest.raises(ParameterError, match="penalty changes how it is trained"):
        us.LogisticPropensity(crossfit=2).fit(log).reread(penalty=3.0)


@pytest.mark.coat
def test_on_coat_the_shipped_propensities_and_the_constant_are_as_measured(coat_root):
    data = us.load("coat", root=coat_root)
    rows = rows_of(
        compare_calibrators(
            data.train,
            us.PopularityPropensity(crossfit=5),
            calibrators=("none", "platt"),
            beside={"shipped": data.extra["shipped_propensities"]},
        )
    )
    assert rows["shipped"]["auc"] == pytest.approx(0.777, abs=0.002)
    assert rows["shipped"]["ece"] == pytest.approx(0.007, abs=0.001)
    assert rows["shipped"]["weight_check"] == pytest.approx(1.04, abs=0.005)
    assert rows["constant"]["nll"] == pytest.approx(0.2788, abs=1e-4)
    assert rows["platt"]["wce"] < rows["none"]["wce"]
