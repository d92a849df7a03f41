"""What every kind of propensity must do for itself. A test class inherits this and says how one is made.

What the base class does for all kinds is tested once, in ``tests/propensity/test_propensity.py``.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
import pytest
from sklearn.base import clone

import unskew as us
from unskew.base.errors import NotFittedError, ParameterError
from unskew.propensity.propensity import BasePropensity

SEEDS = (3, 8)
FOLDS = 3
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
    rows = propensity.reader().of_pairs(user, item).rows
    groups = propensity.scorer_.groups()
    scores = np.concatenate([propensity.scorer_.score(rows, group).mean for group in groups])
    return scores.reshape(len(propensity.seeds_), -1, scores.shape[1])


def rows_in(log: us.Log, rows: np.ndarray) -> dict[str, Any]:
    """Some rows of a log as columns of ids."""
    columns = {
        "user": log.users.ids[log.user][rows].tolist(),
        "item": log.items.ids[log.item][rows].tolist(),
        "click": log.click[rows].astype(int),
    }
    if log.conversion is not None:
        columns["conversion"] = log.conversion[rows].astype(int)
    return columns


def log_of(columns: dict[str, Any], space: str) -> us.Log:
    """A log whose vocabularies are in an order of their own."""
    return us.Log.from_arrays(**columns, space=space)


class PropensityFixtures:
    """Inherit, and define ``make``."""

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


class PropensityContract(PropensityFixtures):
    """Inherit, and define ``make``."""

    knows_pairs: ClassVar[bool] = True
    """Whether the propensity of a pair follows from the pair alone."""
    same: ClassVar[float] = 1e-5
    """How close, relatively, other batches of the same rows come."""

    def test_the_parameters_of_all_are_checked_and_nothing_is_fitted(self):
        propensity = self.make(fold_by="week")
        with pytest.raises(ParameterError, match="fold_by must be 'cell', 'user' or 'item', not 'week'"):
            self.fit(propensity, LOGS["matrix"])
        with pytest.raises(NotFittedError, match="call fit first"):
            propensity.predict(LOGS["matrix"])

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
        fitted = fitted.reread(calibrator=us.Platt())
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
        platt = fitted.reread(calibrator=us.Platt())
        assert platt.diagnose()["calibrated"]["mean_over_base_rate"] == pytest.approx(1, abs=0.02)

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

    def test_numbers_follow_from_ids(self, fitted, log):
        other = log_of(rows_in(log, np.random.default_rng(1).permutation(len(log))[::2]), log.space)
        expected = by_ids(fitted, log)
        for key, values in by_ids(fitted, other).items():
            assert values == pytest.approx(expected[key], rel=self.same), key

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
            raw.reread(calibrator=fitted.calibrator).predict_each(log), fitted.predict_each(log)
        )
        with pytest.raises(ParameterError, match="crossfit changes how it is trained"):
            fitted.reread(crossfit=2)

    def test_saved_and_loaded_it_is_the_same_to_the_last_bit(self, log, tmp_path):
        propensity = self.make(crossfit=FOLDS, negatives=3)
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
