"""Replicas in groups where a GPU's memory runs out; the memory is played."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import unskew as us
from unskew.errors import TrainingError
from unskew.training import History, in_groups, join_histories, loop


def limited_to(most: int, seen: list[int] | None = None):
    """Work that gives the replicas back, and runs out of memory with more than ``most``."""

    def work(replicas: slice) -> list[int]:
        numbers = list(range(100))[replicas]
        if seen is not None:
            seen.append(len(numbers))
        if len(numbers) > most:
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        return numbers

    return work


class TestInGroups:
    def test_all_at_once_where_they_fit(self):
        assert in_groups(10, limited_to(10)) == [list(range(10))]

    @pytest.mark.parametrize("most", [1, 2, 3, 4, 9])
    def test_every_replica_comes_once_and_in_order(self, most):
        with pytest.warns(UserWarning, match="ran out of memory"):
            groups = in_groups(10, limited_to(most))
        assert [number for group in groups for number in group] == list(range(10))
        assert max(map(len, groups)) <= most

    def test_warnings_tell_how_many_are_trained_at_a_time(self):
        with pytest.warns(UserWarning, match="at a time") as told:
            in_groups(10, limited_to(3))
        assert [str(each.message) for each in told] == [
            "the GPU ran out of memory with 10 replicas; training goes on with 5 at a time",
            "the GPU ran out of memory with 5 replicas; training goes on with 3 at a time",
        ]

    def test_memory_that_runs_out_later_keeps_what_is_done(self):
        seen: list[int] = []
        left = [8, 8, 4, 1, 9, 9, 9, 9]

        def work(replicas: slice) -> int:
            seen.append(replicas.start)
            if replicas.stop - replicas.start > left.pop(0):
                raise torch.cuda.OutOfMemoryError("CUDA out of memory")
            return replicas.start

        with pytest.warns(UserWarning, match="ran out of memory"):
            assert in_groups(16, work) == [0, 8, 10, 12, 14]
        assert seen == [0, 0, 8, 8, 8, 10, 12, 14]

    def test_not_even_one_is_an_error_with_a_remedy(self):
        with (
            pytest.warns(UserWarning, match="ran out of memory"),
            pytest.raises(TrainingError, match=r"not enough memory for a single replica.*--device cpu"),
        ):
            in_groups(4, limited_to(0))

    def test_other_errors_are_not_caught(self):
        def work(replicas: slice) -> None:
            raise ValueError("something else")

        with pytest.raises(ValueError, match="something else"):
            in_groups(4, work)


def test_histories_stand_side_by_side_and_shorter_ones_keep_their_last_losses():
    joined = join_histories(
        [
            History({"a": [[1.0, 2.0], [3.0, 4.0]]}, [[5.0, 6.0], [7.0, 8.0]], [0, 1]),
            History({"a": [[9.0]]}, [[10.0]], [0]),
        ]
    )
    assert joined.train == {"a": [[1.0, 2.0, 9.0], [3.0, 4.0, 9.0]]}
    assert joined.validation == [[5.0, 6.0, 10.0], [7.0, 8.0, 10.0]]
    assert joined.best_epoch == [0, 1, 0]


@pytest.fixture
def small_memory(monkeypatch):
    """A device that holds so many networks' replicas at once."""

    def limit(most: int) -> list[int]:
        trained, original = [], loop._train

        def train(networks, passes, schedule, replicas, validate, tracker):
            if replicas > most:
                raise torch.cuda.OutOfMemoryError("CUDA out of memory")
            trained.append(replicas)
            return original(networks, passes, schedule, replicas, validate, tracker)

        monkeypatch.setattr(loop, "_train", train)
        return trained

    return limit


@pytest.fixture(scope="module")
def log():
    return us.load("synthetic", n_users=60, n_items=40, density=0.15, seed=1).train


PROPENSITY = {"backbone": us.MF(dim=4), "learning_rate": 0.02, "epochs": 6, "patience": 2}


@pytest.mark.parametrize(
    ("options", "groups"),
    [
        ({"crossfit": None}, [3, 2]),
        # Also between the folds of one seed, and between the members of one ensemble.
        ({"crossfit": 3}, [4, 4, 4, 3]),
        ({"crossfit": 2, "uncertainty": us.DeepEnsemble(members=2), "negatives": 2}, [3, 3, 3, 3, 3, 3, 2]),
    ],
)
def test_a_propensity_trained_in_groups_is_the_one_trained_at_once(log, small_memory, options, groups):
    at_once = us.Propensity(**PROPENSITY, **options).fit(log, seeds=5)
    trained = small_memory(groups[0])
    with pytest.warns(UserWarning, match="at a time"):
        in_parts = us.Propensity(**PROPENSITY, **options).fit(log, seeds=5)
    assert trained == groups
    assert in_parts.seeds_ == at_once.seeds_
    for calibrated in (False, True):
        np.testing.assert_allclose(
            in_parts.predict_matrix_each(calibrated=calibrated),
            at_once.predict_matrix_each(calibrated=calibrated),
            atol=1e-5,
        )
    assert in_parts.history_.best_epoch == at_once.history_.best_epoch
    assert in_parts.diagnose()["calibrated"]["nll"] == pytest.approx(at_once.diagnose()["calibrated"]["nll"])


@pytest.mark.parametrize("method", [us.IPS, us.GPL, us.DRJL, us.ESCM2DR])
def test_a_debiaser_trained_in_groups_is_the_one_trained_at_once(log, small_memory, method):
    def fitted():
        model = method(backbone=us.MF(dim=4), epochs=4, learning_rate=0.02, patience=2)
        return model.fit(log, propensity=np.linspace(0.05, 0.4, 5 * len(log)).reshape(5, -1), seeds=5)

    at_once = fitted()
    small_memory(3)
    with pytest.warns(UserWarning, match="3 at a time"):
        in_parts = fitted()
    np.testing.assert_allclose(in_parts.predict_each(log), at_once.predict_each(log), atol=1e-5)
    np.testing.assert_allclose(in_parts.validation_loss_, at_once.validation_loss_, rtol=1e-4)
    assert in_parts.seeds_ == at_once.seeds_
    for kind, figures in getattr(at_once, "click_propensity_", {}).items():
        assert in_parts.click_propensity_[kind]["nll"] == pytest.approx(figures["nll"], rel=1e-4)
        assert in_parts.click_propensity_[kind]["auc"] == pytest.approx(figures["auc"], rel=1e-3)


def test_several_sets_of_propensities_in_groups(log, small_memory):
    def fitted():
        model = us.IPS(backbone=us.MF(dim=4), epochs=3, learning_rate=0.02)
        return model.fit_many(log, propensities={"low": 0.1, "high": 0.4}, seeds=3)

    at_once = fitted()
    small_memory(4)
    with pytest.warns(UserWarning, match="3 at a time"):
        in_parts = fitted()
    for key, model in at_once.items():
        np.testing.assert_allclose(in_parts[key].predict_each(log), model.predict_each(log), atol=1e-5)
