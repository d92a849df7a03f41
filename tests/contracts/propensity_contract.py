"""What every kind of propensity must do. A test class inherits this and says how one is made."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from sklearn.base import clone

import unskew as us
from unskew.errors import DataError, NotFittedError, ParameterError
from unskew.propensity.propensity import BasePropensity

SEEDS = (3, 8)
FOLDS = 3
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
DATA = us.load("synthetic", n_users=60, n_items=40, density=0.15, seed=1)


def impressions() -> us.Log:
    """Rows with texts as ids, some pairs several times."""
    random = np.random.default_rng(0)
    user, item = random.integers(40, size=2500), random.integers(20, size=2500)
    click = (random.random(2500) < 0.05 + 0.4 * (user < 15)).astype(int)
    ids = (np.char.add(letter, codes.astype(str)) for letter, codes in (("u", user), ("i", item)))
    return us.Log.from_arrays(
        **dict(zip(("user", "item"), ids, strict=True)), click=click, space="impressions"
    )


LOGS = {"matrix": DATA.train, "impressions": impressions()}


def clicks_of(log: us.Log) -> np.ndarray:
    """The clicks of all cells of D."""
    if log.space == "impressions":
        return log.click.astype(float)
    clicks = np.zeros(log.population_size)
    clicks[log.cell[log.clicked]] = 1
    return clicks


def all_pairs(log: us.Log) -> tuple[Any, Any]:
    """The ids of all cells of D."""
    if log.space == "impressions":
        return log.users.ids[log.user], log.items.ids[log.item]
    user, item = np.divmod(np.arange(log.population_size), log.n_items)
    return log.users.ids[user], log.items.ids[item]


def by_ids(propensity: BasePropensity, log: us.Log) -> dict[tuple[str, str, float], list[float]]:
    """Propensities of a log's rows by user id, item id and conversion."""
    conversion = np.zeros(len(log)) if log.conversion is None else log.conversion
    keys = zip(map(str, log.users.ids[log.user]), map(str, log.items.ids[log.item]), conversion, strict=True)
    return dict(zip(keys, propensity.predict_each(log).T.tolist(), strict=True))


def each_replica(propensity: BasePropensity, log: us.Log) -> np.ndarray:
    """Raw scores ``[seeds, folds, n]`` of all cells of D by every replica."""
    user, item = all_pairs(log)
    rows, _ = propensity._rows_of_ids(user, item, "error")
    groups = propensity.scorer_.groups()
    scores = np.concatenate([propensity.scorer_.score(rows, group).mean for group in groups])
    return scores.reshape(len(propensity.seeds_), -1, scores.shape[1])


class PropensityContract:
    """Inherit, and define ``make``."""

    knows_pairs: ClassVar[bool] = True
    """Whether the propensity of a pair follows from the pair alone."""
    same: ClassVar[float] = 1e-5
    """How close, relatively, other batches of the same rows come."""

    @classmethod
    def make(cls, **options: Any) -> BasePropensity:
        """One to be fitted quickly."""
        raise NotImplementedError

    @classmethod
    def fit(cls, propensity: BasePropensity, log: us.Log, **options: Any) -> BasePropensity:
        """Fit it."""
        return propensity.fit(log, **options)

    @pytest.fixture(scope="class", params=["matrix", "impressions"])
    @classmethod
    def space(cls, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    @pytest.fixture(scope="class")
    @classmethod
    def log(cls, space: str) -> us.Log:
        return LOGS[space]

    @pytest.fixture(scope="class")
    @classmethod
    def fitted(cls, log: us.Log) -> BasePropensity:
        return cls.fit(cls.make(crossfit=FOLDS), log, seeds=SEEDS)

    @pytest.fixture(scope="class")
    @classmethod
    def split(cls, log: us.Log) -> BasePropensity:
        return cls.fit(cls.make(crossfit=None), log, seeds=SEEDS)

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

    def test_each_cell_is_scored_by_the_model_and_the_calibrator_that_hold_it_out(self, fitted, log):
        if not self.knows_pairs:
            pytest.skip("a pair alone says nothing")
        user, item = all_pairs(log)
        fold, scores = fitted.fold_of_pairs_each(user, item), each_replica(fitted, log)
        raw, mapped = (fitted.predict_pairs_each(user, item, calibrated=which) for which in (False, True))
        for seed in range(len(SEEDS)):
            assert set(np.unique(fold[seed])) == set(range(FOLDS))
            for k in range(FOLDS):
                mine = fold[seed] == k
                np.testing.assert_allclose(raw[seed, mine], scores[seed, k, mine], rtol=self.same)
                calibrator = fitted.calibrators_[seed * FOLDS + k]
                np.testing.assert_allclose(mapped[seed, mine], calibrator.predict(raw[seed, mine]))
        averaged = fitted.predict_pairs_each(user, item, calibrated=False, average=True)
        np.testing.assert_allclose(averaged, scores.mean(axis=1), rtol=self.same)

    def test_the_calibrator_of_a_fold_is_fitted_on_the_other_folds(self, fitted, log):
        if not self.knows_pairs:
            pytest.skip("it is fitted on the pairs whose conversion is known")
        user, item = all_pairs(log)
        raw, fold = (
            fitted.predict_pairs_each(user, item, calibrated=False),
            fitted.fold_of_pairs_each(user, item),
        )
        click, grid = clicks_of(log), np.linspace(0.02, 0.5, 20)
        for replica, calibrator in enumerate(fitted.calibrators_):
            seed, k = divmod(replica, FOLDS)
            others = fold[seed] != k
            expected = us.Platt().fit(raw[seed, others], click[others]).predict(grid)
            np.testing.assert_allclose(calibrator.predict(grid), expected, rtol=1e-2)

    def test_a_fold_follows_from_ids_and_seed_alone(self, fitted, log):
        user, item = all_pairs(log)
        other = us.PopularityPropensity(crossfit=FOLDS).fit(log, seeds=SEEDS[::-1])
        np.testing.assert_array_equal(
            fitted.fold_of_pairs_each(user, item), other.fold_of_pairs_each(user, item)[::-1]
        )

    def test_held_out_cells_stand_for_all_of_the_population(self, fitted, log):
        raw, calibrated = (fitted.held_out_sketches(calibrated=which) for which in (False, True))
        for sketch in raw + calibrated:
            assert sketch.total == pytest.approx(log.population_size)
            assert sketch.base_rate == pytest.approx(log.density)
        if self.knows_pairs:
            means = fitted.predict_pairs_each(*all_pairs(log)).mean(axis=1)
            assert [each.mean_score for each in calibrated] == pytest.approx(means.tolist(), rel=self.same)

    def test_without_folds_a_tenth_judges_and_calibration_has_the_base_rate(self, split, fitted, log):
        for sketch in split.held_out_sketches(calibrated=False):
            assert sketch.total == pytest.approx(0.1 * log.population_size, rel=0.35)
        assert (split.fold_of_pairs_each(*all_pairs(log)) == 0).all()
        assert fitted.diagnose()["calibrated"]["mean_over_base_rate"] == pytest.approx(1, abs=0.02)

    def test_one_pass_gives_raw_and_calibrated(self, fitted, log):
        both = fitted.predict_both_each(log)
        for calibrated, lines in ((False, both.raw), (True, both.calibrated)):
            np.testing.assert_array_equal(lines, fitted.predict_each(log, calibrated=calibrated))
            np.testing.assert_array_equal(lines.mean(axis=0), fitted.predict(log, calibrated=calibrated))
        assert ((both.calibrated > 0) & (both.calibrated < 1)).all()
        assert np.abs(both.raw - both.calibrated).max() > 1e-4
        given, scored = fitted.diagnose(log, predicted=both), fitted.diagnose(log)
        for kind in ("raw", "calibrated"):
            assert given[kind]["weight_check"] == pytest.approx(scored[kind]["weight_check"], rel=self.same)

    def test_all_pairs_at_once_where_there_are_all_pairs(self, fitted, log):
        if log.space == "impressions":
            with pytest.raises(ParameterError, match="only the space 'matrix'"):
                fitted.predict_matrix_each()
        elif not self.knows_pairs:
            with pytest.raises(ParameterError, match="not of all of D"):
                fitted.predict_matrix_each()
        else:
            matrix = fitted.predict_matrix_each()
            np.testing.assert_allclose(
                fitted.predict_each(log), matrix[:, log.user, log.item], rtol=self.same
            )

    @pytest.mark.parametrize("which", ["copy", "subset", "other order and ids", "csv", "parquet"])
    def test_numbers_follow_from_ids(self, fitted, log, which, tmp_path):
        rows = {
            "copy": np.arange(len(log)),
            "subset": np.arange(0, len(log), 3),
        }.get(which, np.random.default_rng(1).permutation(len(log))[::2])
        columns = {
            "user": log.users.ids[log.user][rows].tolist(),
            "item": log.items.ids[log.item][rows].tolist(),
            "click": log.click[rows].astype(int),
        }
        if log.conversion is not None:
            columns["conversion"] = log.conversion[rows].astype(int)
        if which in ("csv", "parquet"):
            frame, path = pytest.importorskip("polars").DataFrame(columns), tmp_path / f"log.{which}"
            (frame.write_csv if which == "csv" else frame.write_parquet)(path)
            other = us.read_log(path, **{name: name for name in columns}, space=log.space)
        else:
            other = us.Log.from_arrays(**columns, space=log.space)
        expected, found = by_ids(fitted, log), by_ids(fitted, other)
        assert len(found) > 0.2 * len(expected)
        for key, values in found.items():
            assert values == pytest.approx(expected[key], rel=self.same), key

    def test_all_rows_of_a_pair_share_a_number(self, fitted, log):
        expected = by_ids(fitted, log)
        part = log.take(np.arange(len(log)) < len(log) // 2)
        for key, values in by_ids(fitted, part).items():
            assert values == pytest.approx(expected[key], rel=self.same)

    def test_unknown_ids_are_told_or_nan(self, fitted, log):
        user, item = all_pairs(log)
        stranger = "nobody" if log.space == "impressions" else 999
        with pytest.raises(DataError, match=r"column 'user', row 1: user .* was not seen in training"):
            fitted.predict_pairs_each([user[0], stranger], [item[0]] * 2)
        some = fitted.predict_pairs_each([user[0], stranger], [item[0]] * 2, unseen="nan")
        assert np.isnan(some).tolist() == [[False, True]] * len(SEEDS)
        np.testing.assert_allclose(
            some[:, 0], fitted.predict_pairs_each(user[:1], item[:1])[:, 0], rtol=self.same
        )
        with pytest.raises(DataError, match="column 'item' has 1 rows where the others have 2"):
            fitted.predict_pairs_each(user[:2], item[:1])
        with pytest.raises(ParameterError, match="unseen must be 'error' or 'nan', not 'x'"):
            fitted.predict_pairs_each(user[:1], item[:1], unseen="x")
        with pytest.raises(ParameterError, match="what to predict is a list, not a Log"):
            fitted.predict_each([3])

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
                    assert np.isfinite(values).all(), name

    def test_a_seed_gives_the_same_alone_and_beside_others(self, fitted, log):
        if not self.knows_pairs:
            pytest.skip("the first seed chooses what is seen of the sample")
        alone = self.fit(clone(fitted), log, seeds=[SEEDS[1]])
        np.testing.assert_allclose(alone.predict_each(log)[0], fitted.predict_each(log)[1], rtol=1e-4)

    def test_it_is_calibrated_anew_without_training(self, fitted, log):
        raw = fitted.reread(calibrator=None)
        np.testing.assert_array_equal(raw.predict_each(log), fitted.predict_each(log, calibrated=False))
        assert raw.diagnose()["raw"] == raw.diagnose()["calibrated"]
        np.testing.assert_array_equal(
            raw.reread(calibrator=us.Platt()).predict_each(log), fitted.predict_each(log)
        )
        with pytest.raises(ParameterError, match="crossfit changes how it is trained"):
            fitted.reread(crossfit=2)

    def test_folds_by_user_hold_users_out_together(self, log):
        fitted = self.fit(self.make(crossfit=2, fold_by="user"), log)
        user, item = all_pairs(log)
        (fold,) = fitted.fold_of_pairs_each(user, item)
        assert all(len(set(fold[user == each])) == 1 for each in log.users.ids)
        assert set(fold) == {0, 1}
        assert np.isfinite(fitted.predict(log)).all()

    def test_debiasers_take_it_with_seeds_paired(self, fitted, log):
        if log.conversion is None:
            pytest.skip("without conversions")
        model = us.IPS(backbone=us.MF(dim=2), epochs=1).fit(log, propensity=fitted, seeds=SEEDS)
        weights = 1 / fitted.predict_each(log)[:, log.clicked]
        found = [each.weight_check for each in model.clipping_]
        assert found == pytest.approx(list(weights.sum(axis=1) / log.population_size), rel=1e-6)

    @pytest.mark.parametrize("calibrator", [us.Platt(), None])
    def test_saved_and_loaded_it_is_the_same_to_the_last_bit(self, log, calibrator, tmp_path):
        propensity = self.make(crossfit=FOLDS, calibrator=calibrator, negatives=3)
        propensity = self.fit(propensity, log, seeds=SEEDS)
        propensity.save(tmp_path / "p")
        assert {path.suffix for path in (tmp_path / "p").iterdir()} <= {
            ".toml",
            ".safetensors",
            ".json",
            ".parquet",
        }
        loaded = us.load_propensity(tmp_path / "p", device="cpu")
        assert type(loaded) is type(propensity)
        assert repr(loaded) == repr(propensity)
        loaded.save(tmp_path / "again")
        for other in (loaded, us.load_propensity(tmp_path / "again", device="cpu")):
            for average in (False, True):
                for mine, theirs in zip(
                    propensity.predict_both_each(log, average=average),
                    other.predict_both_each(log, average=average),
                    strict=True,
                ):
                    np.testing.assert_array_equal(mine, theirs)
        with pytest.raises(NotFittedError, match="keeps no data to diagnose"):
            loaded.diagnose(log)
        with pytest.raises(NotFittedError, match="keeps no data to calibrate on"):
            loaded.reread(calibrator=None)

    def test_a_folder_is_replaced_on_request_and_a_damaged_one_is_told(self, fitted, tmp_path):
        with pytest.raises(NotFittedError, match="call fit first"):
            self.make().save(tmp_path / "q")
        fitted.save(tmp_path / "p")
        with pytest.raises(us.errors.UnskewError, match="overwrite"):
            fitted.save(tmp_path / "p")
        fitted.save(tmp_path / "p", overwrite=True)
        weights = tmp_path / "p" / "propensity.safetensors"
        weights.write_bytes(weights.read_bytes()[:-3] + b"abc")
        with pytest.raises(us.errors.UnskewError, match=r"propensity\.safetensors is damaged"):
            us.load_propensity(tmp_path / "p")
