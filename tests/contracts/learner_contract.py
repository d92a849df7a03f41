"""What every learner without a network must show, on a small world whose truth is known."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.special import expit

from unskew.base.errors import DataError, NotFittedError
from unskew.data.schema import Field, Schema
from unskew.learners.table import EncodedTable, Examples

USERS, ITEMS, CITIES = 40, 30, 5
SCHEMA = Schema(
    (
        Field("user", "id", "user", USERS + 1, "other"),
        Field("item", "id", "item", ITEMS + 1, "other"),
        Field("city", "category", "user", CITIES + 1, "other"),
        Field("tags", "bag", "item", 6, "other", width=3),
        Field("price", "number", "item", unknown="other"),
    )
)


def world(n: int = 4000, seed: int = 0, *, interaction: float = 0.0) -> tuple[Examples, np.ndarray]:
    """Draw rows whose effects add up, but for an interaction of the city with the first tag."""
    random = np.random.default_rng(seed)
    user, item = random.integers(USERS, size=n), random.integers(ITEMS, size=n)
    city, price = 1 + user % CITIES, np.sin(item)
    tags = np.column_stack([1 + item % 5, np.where(item % 2, 1 + item % 3, -1), np.full(n, -1)])
    crossed = np.where((city + tags[:, 0]) % 2, 1.0, -1.0)
    truth = expit(-0.5 + np.cos(user) + 0.8 * price + 0.4 * (city == 2) + interaction * crossed)
    codes = np.column_stack([user, item, city, tags]).astype(np.int32)
    key = (user * 1000 + item).astype(np.uint64)
    table = EncodedTable(SCHEMA, codes, price[:, None].astype(np.float32), key)
    return Examples(table, (random.random(n) < truth).astype(float), np.ones(n)), truth


def log_loss(truth: np.ndarray, predicted: np.ndarray) -> float:
    return float(-(truth * np.log(predicted) + (1 - truth) * np.log1p(-predicted)).mean())


class LearnerContract:
    """Subclass with :meth:`make`."""

    def make(self) -> Any:
        raise NotImplementedError

    @pytest.fixture
    def fitted(self) -> Any:
        return self.make().fit(world()[0], validation=world(1000, seed=1)[0])

    def test_it_closes_most_of_the_gap_between_a_constant_and_the_truth(self, fitted):
        (examples, truth) = world(4000, seed=2)
        predicted = fitted.predict(examples.rows)
        best, constant = log_loss(truth, truth), log_loss(truth, np.full(len(truth), truth.mean()))
        assert log_loss(truth, predicted) < best + 0.25 * (constant - best)
        assert abs(predicted.mean() - truth.mean()) < 0.02

    def test_plain_arrays_hold_all_that_was_learned(self, fitted):
        rows = world(500, seed=3)[0].rows
        arrays = fitted.arrays()
        assert all(values.dtype.kind in "fiub" for values in arrays.values())
        again = self.make().restore(arrays)
        np.testing.assert_array_equal(again.predict(rows), fitted.predict(rows))

    def test_neither_the_order_of_rows_nor_the_scale_of_weights_matters(self, fitted):
        examples, held_out = world()[0], world(1000, seed=1)[0]
        order = np.random.default_rng(0).permutation(len(examples.target))
        mixed = examples.take(order)._replace(weight=np.full(len(order), 7.0))
        again = self.make().fit(mixed, validation=held_out)
        rows = held_out.rows
        np.testing.assert_allclose(again.predict(rows), fitted.predict(rows), atol=0.003)

    def test_rows_of_weight_0_teach_nothing(self, fitted):
        examples, held_out = world()[0], world(1000, seed=1)[0]
        both = world(8000)[0]
        wrong = np.where(np.arange(8000) < 4000, both.target, 1.0 - both.target)
        wrong[:4000], rows = examples.target, both.rows
        rows.codes[:4000], rows.numbers[:4000] = examples.rows.codes, examples.rows.numbers
        rows.key[:4000] = examples.rows.key
        weight = (np.arange(8000) < 4000).astype(float)
        again = self.make().fit(Examples(rows, wrong, weight), validation=held_out)
        loss = [log_loss(world(1000, seed=1)[1], each.predict(held_out.rows)) for each in (fitted, again)]
        assert abs(loss[1] - loss[0]) < 0.01

    def test_values_that_training_never_saw_are_predicted_from_the_rest(self, fitted):
        examples, truth = world(3000, seed=4)
        codes = examples.rows.codes.copy()
        codes[:, 0] = USERS
        unknown = EncodedTable(SCHEMA, codes, examples.rows.numbers, examples.rows.key)
        predicted = fitted.predict(unknown)
        assert np.isfinite(predicted).all()
        assert abs(predicted.mean() - truth.mean()) < 0.06
        assert predicted.std() < fitted.predict(examples.rows).std()

    def test_pseudo_outcomes_beyond_0_and_1_keep_their_mean(self):
        examples, truth = world(8000, seed=5)
        random = np.random.default_rng(0)
        p = random.uniform(0.1, 0.9, 8000)
        target = 0.9 + (random.random(8000) < p) * (examples.target - 0.9) / p
        both = examples._replace(target=target)
        held_out = np.arange(8000) % 4 == 0
        model = self.make().fit(both.take(~held_out), validation=both.take(held_out), errors="squared")
        assert abs(model.predict(examples.rows).mean() - truth.mean()) < 0.03

    def test_a_model_without_held_out_rows_is_fitted_too(self):
        examples, truth = world()
        predicted = self.make().fit(examples).predict(examples.rows)
        assert log_loss(truth, predicted) < log_loss(truth, np.full(len(truth), truth.mean()))

    def test_wrong_examples_are_one_line(self):
        examples, _ = world(100)
        for wrong, said in (
            (examples._replace(target=np.ones(100)), "not 0 and 1"),
            (examples._replace(target=examples.target * 0.5), "not 0 and 1"),
            (examples._replace(weight=np.full(100, np.nan)), "no rows|not a number"),
            (examples._replace(weight=np.zeros(100)), "no rows to learn from"),
        ):
            with pytest.raises(DataError, match=said):
                self.make().fit(wrong)
        with pytest.raises(NotFittedError):
            self.make().predict(examples.rows)
