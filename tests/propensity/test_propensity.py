"""What the base class does for every kind of propensity, seen with the cheapest."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone

import unskew as us
from contracts.propensity_contract import (
    FOLDS,
    LOGS,
    SEEDS,
    PropensityFixtures,
    all_pairs,
    by_ids,
    log_of,
    rows_in,
)
from unskew.base.errors import DataError, NotFittedError, ParameterError, UnskewError

FIGURES = {
    "ece",
    "ece_floor",
    "wce",
    "nll",
    "brier",
    "auc",
    "auc_of_chance",
    "mean_over_base_rate",
    "weight_check",
    "effective_sample_size",
    "clipped",
    "clipped_mass",
    "p_min",
}


class TestBase(PropensityFixtures):
    @classmethod
    def make(cls, **options):
        return us.PopularityPropensity(**options)

    def test_parameters_are_read_set_and_cloned_and_folds_are_the_default(self):
        propensity = self.make()
        assert propensity.crossfit == 5
        copy = clone(propensity).set_params(crossfit=4, fold_by="user")
        assert (copy.crossfit, copy.fold_by, propensity.crossfit) == (4, "user", 5)
        assert {"calibrator", "crossfit", "fold_by", "negatives"} <= set(propensity.get_params(deep=False))
        with pytest.raises(ParameterError, match=r"has no parameter 'folds'.*crossfit"):
            propensity.set_params(folds=3)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"fold_by": "week"}, "fold_by must be 'cell', 'user' or 'item', not 'week'"),
            ({"crossfit": 1}, "crossfit must be None or from 2 to 100 folds, not 1"),
            ({"crossfit": 2.5}, "crossfit must be a whole number or None, not 2.5"),
            ({"negatives": -1}, "negatives must be None, 'auto' or a positive ratio"),
            ({"calibrator": "platt"}, r"calibrator must be a Calibrator object.*give Platt\(\)"),
        ],
    )
    def test_a_wrong_parameter_is_told_and_nothing_is_fitted(self, options, message):
        propensity = self.make(**options)
        with pytest.raises(ParameterError, match=message):
            self.fit(propensity, LOGS["matrix"])
        with pytest.raises(NotFittedError, match="call fit first"):
            propensity.predict(LOGS["matrix"])

    def test_too_few_clicks_and_what_is_no_log_are_told(self):
        few = us.Log.from_arrays(user=[0, 1, 2], item=[0, 1, 2], conversion=[0, 1, 0])
        with pytest.raises(DataError, match=r"too few clicks \(3\).*fewer folds"):
            self.fit(self.make(), few)
        with pytest.raises(ParameterError, match="is a int, not a Log"):
            self.make().fit(3)

    def test_a_fold_follows_from_ids_and_seed_alone(self, fitted, log):
        user, item = all_pairs(log)
        other = us.Propensity(learner=us.Linear(), crossfit=FOLDS).fit(log, seeds=SEEDS[::-1])
        np.testing.assert_array_equal(
            fitted.fold_of_pairs_each(user, item), other.fold_of_pairs_each(user, item)[::-1]
        )

    def test_one_pass_gives_raw_and_calibrated(self, fitted, log):
        both = fitted.predict_both_each(log)
        for calibrated, lines in ((False, both.raw), (True, both.calibrated)):
            np.testing.assert_array_equal(lines, fitted.predict_each(log, calibrated=calibrated))
            np.testing.assert_array_equal(lines.mean(axis=0), fitted.predict(log, calibrated=calibrated))
        assert np.abs(both.raw - both.calibrated).max() > 1e-4
        given, scored = fitted.diagnose(log, predicted=both), fitted.diagnose(log)
        for kind in ("raw", "calibrated"):
            assert given[kind]["weight_check"] == pytest.approx(scored[kind]["weight_check"])

    def test_weights_are_inverse_and_out_of_fold_where_clicked(self, fitted, log):
        weight, p, clicked = fitted.weights(log, p_min=0.05), fitted.predict(log), log.click == 1
        np.testing.assert_array_equal(weight[clicked], 1 / np.maximum(p[clicked], 0.05))
        assert (weight[~clicked] == 0).all()
        assert fitted.weights(log).max() <= 1 / p[clicked].min()

    @pytest.mark.parametrize("which", ["copy", "subset", "other order and ids", "csv", "parquet"])
    def test_numbers_follow_from_ids(self, fitted, log, which, tmp_path):
        rows = {
            "copy": np.arange(len(log)),
            "subset": np.arange(0, len(log), 3),
        }.get(which, np.random.default_rng(1).permutation(len(log))[::2])
        columns = rows_in(log, rows)
        if which in ("csv", "parquet"):
            frame, path = pytest.importorskip("polars").DataFrame(columns), tmp_path / f"log.{which}"
            (frame.write_csv if which == "csv" else frame.write_parquet)(path)
            other = us.read_log(path, **{name: name for name in columns}, space=log.space)
        else:
            other = log_of(columns, log.space)
        expected, found = by_ids(fitted, log), by_ids(fitted, other)
        assert len(found) > 0.2 * len(expected)
        for key, values in found.items():
            assert values == pytest.approx(expected[key]), key

    def test_unknown_ids_are_told_or_nan(self, fitted, log):
        user, item = all_pairs(log)
        stranger = "nobody" if log.space == "impressions" else 999
        with pytest.raises(DataError, match=r"column 'user', row 1: user .* was not seen in training"):
            fitted.predict_pairs_each([user[0], stranger], [item[0]] * 2)
        some = fitted.predict_pairs_each([user[0], stranger], [item[0]] * 2, unseen="nan")
        assert np.isnan(some).tolist() == [[False, True]] * len(SEEDS)
        np.testing.assert_allclose(some[:, 0], fitted.predict_pairs_each(user[:1], item[:1])[:, 0])
        with pytest.raises(DataError, match="column 'item' has 1 rows where the others have 2"):
            fitted.predict_pairs_each(user[:2], item[:1])
        with pytest.raises(
            ParameterError, match="unseen must be 'error', 'nan', 'other' or 'average', not 'x'"
        ):
            fitted.predict_pairs_each(user[:1], item[:1], unseen="x")
        with pytest.raises(ParameterError, match="what to predict is a list, not a Log"):
            fitted.predict_each([3])

    def test_an_empty_log_is_not_the_training_log(self, fitted, log):
        with pytest.raises(DataError, match="there are no clicked rows"):
            fitted.diagnose(log.take(np.arange(0)))

    def test_figures_have_one_set_of_names_and_a_value_for_each_seed(self, fitted, split):
        for propensity in (fitted, split):
            told = propensity.diagnose()
            assert list(told) == ["raw", "calibrated"]
            for figures in told.values():
                assert set(figures) == FIGURES | {"per_seed", "collapsed"}
                for name in FIGURES:
                    values = figures["per_seed"][name]
                    assert len(values) == len(SEEDS)
                    assert figures[name] == pytest.approx(np.mean(values))

    def test_folds_by_user_hold_users_out_together(self, log):
        fitted = self.fit(self.make(crossfit=2, fold_by="user"), log)
        user, item = all_pairs(log)
        (fold,) = fitted.fold_of_pairs_each(user, item)
        assert all(len(set(fold[user == each])) == 1 for each in log.users.ids)
        assert set(fold) == {0, 1}
        assert fitted.predict_pairs_each(user, item).mean() == pytest.approx(log.density, rel=0.05)

    def test_debiasers_take_it_with_seeds_paired(self, fitted, log):
        if log.conversion is None:
            pytest.skip("without conversions")
        model = us.IPS(learner=us.MF(dim=2), epochs=1).fit(log, propensity=fitted, seeds=SEEDS)
        weights = 1 / fitted.predict_each(log)[:, log.clicked]
        found = [each.weight_check for each in model.clipping_]
        assert found == pytest.approx(list(weights.sum(axis=1) / log.population_size), rel=1e-6)

    def test_a_folder_is_replaced_on_request_and_a_damaged_one_is_told(self, fitted, tmp_path):
        with pytest.raises(NotFittedError, match="call fit first"):
            self.make().save(tmp_path / "q")
        fitted.save(tmp_path / "p")
        with pytest.raises(UnskewError, match="overwrite"):
            fitted.save(tmp_path / "p")
        fitted.save(tmp_path / "p", overwrite=True)
        weights = tmp_path / "p" / "propensity.safetensors"
        weights.write_bytes(weights.read_bytes()[:-3] + b"abc")
        with pytest.raises(UnskewError, match=r"propensity\.safetensors is damaged"):
            us.load_propensity(tmp_path / "p")
