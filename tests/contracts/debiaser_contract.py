"""What every debiasing method must do for itself. A method's tests inherit this class and say which it is.

What the base class does for all methods is tested once, in ``tests/debias/test_debiaser.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from sklearn.metrics import roc_auc_score

import unskew as us
from contracts.shown_log import impressions
from contracts.stages import short_stages
from unskew.base.errors import ParameterError
from unskew.debias import METHODS, Debiaser
from unskew.debias import fit as fitting
from unskew.training import evaluating, train

SEEDS = (1, 3, 9)
ROUNDING = 1e-5
CLIP = 0.05

WORLD = us.load("synthetic", n_users=60, n_items=50, density=0.2, seed=4)
TRAINING = {"epochs": 12, "batch_size": 128, "learning_rate": 0.01, "patience": 4}
BRIEFLY = {"epochs": 5, "patience": 2}


class DebiaserContract:
    """Override the fixture ``method``; ``options`` are further parameters of it."""

    @pytest.fixture(scope="class")
    @classmethod
    def method(cls) -> type[Debiaser]:
        raise NotImplementedError

    @pytest.fixture(scope="class")
    @classmethod
    def options(cls) -> dict[str, object]:
        return {}

    @pytest.fixture(scope="class")
    @classmethod
    def make(cls, method, options):
        """A small model with dropout; further keywords are parameters."""

        def made(**further):
            learner = us.NeuMF(dim=4, layers=(8, 4))
            given = {"learner": learner, "p_min": CLIP, **TRAINING, **short_stages(method), **options}
            return method(**given | further)

        return made

    @pytest.fixture(scope="class")
    @classmethod
    def fitted(cls, make) -> Debiaser:
        return make().fit(WORLD.train, propensity=true_propensity(make()), seeds=SEEDS)

    @pytest.fixture(scope="class")
    @classmethod
    def briefly_fitted(cls, make) -> Captured:
        """Two epochs: the second begins with what a method keeps from the first."""
        return Captured.of(make(epochs=2))

    def test_it_is_in_the_table_of_methods_and_tells_what_it_is(self, method):
        assert METHODS[method.name] is method
        assert method.when
        assert method.paper
        assert method.__doc__.strip()

    @pytest.fixture(scope="class")
    @classmethod
    def steps(cls, briefly_fitted):
        """Every step with the networks and a draw, as ``fit`` hands them to the loop."""
        return list(briefly_fitted.steps())

    def test_every_step_has_a_finite_loss_for_each_replica_that_reaches_what_it_trains(self, steps):
        assert steps
        for networks, step, draw in steps:
            loss = step.loss(draw)
            assert loss.shape == (len(SEEDS),)
            assert torch.isfinite(loss).all()
            for network in networks.values():
                network.zero_grad()
            loss.sum().backward()
            for name, network in networks.items():
                assert (gradient_size(network) > 0) is (name in step.trains), f"{step.name}: {name}"

    def test_the_loss_of_a_replica_has_no_gradient_in_the_others(self, steps):
        for networks, step, draw in steps:
            for network in networks.values():
                network.zero_grad()
            step.loss(draw)[1].backward()
            for network in networks.values():
                for name, parameter in network.named_parameters():
                    if parameter.grad is not None:
                        assert not parameter.grad[[0, 2]].any(), f"{step.name}: {name}"

    def test_it_learns_who_converts(self, fitted):
        truth, prediction = WORLD.truth.labels.ravel(), fitted.predict(every_cell())
        assert roc_auc_score(truth, prediction) > 0.6
        if fitted.predicts_rates:
            assert log_loss(truth, prediction) < 0.95 * np.log(2)

    def test_a_seed_alone_is_the_seed_in_a_stack(self, make, briefly_fitted):
        alone = make(epochs=2).fit(WORLD.train, propensity=true_propensity(make()), seeds=[3])
        np.testing.assert_allclose(
            alone.predict_each(WORLD.test)[0], briefly_fitted.predictions[1], atol=ROUNDING
        )
        assert alone.history_.best_epoch[0] == briefly_fitted.best_epoch[1]

    def test_a_saved_model_predicts_the_same(self, fitted, tmp_path):
        fitted.save(tmp_path / "model")
        loaded = us.load_model(tmp_path / "model")
        assert type(loaded) is type(fitted)
        assert loaded.get_params() == fitted.get_params()
        np.testing.assert_array_equal(loaded.predict_each(WORLD.test), fitted.predict_each(WORLD.test))
        assert not [path for path in (tmp_path / "model").iterdir() if path.suffix in (".pkl", ".pt", ".pth")]

    def test_impressions_work_as_well(self, make):
        log = impressions()
        model = make(learner=us.MF(dim=2), epochs=15, patience=None, learning_rate=0.05)
        prediction = model.fit(log, propensity="p" if model.needs_propensity else None).predict(log)
        by_item = [prediction[log.item == item].mean() for item in range(log.n_items)]
        # Five of 15 items convert: who knows nothing draws one of 3,003 orders of the items, seven of which
        # have an AUC of .94 or more.
        assert roc_auc_score(np.arange(log.n_items) % 3 == 0, by_item) >= 0.94

    def test_propensities_of_one_are_no_harm(self, make):
        at_one, near_one = (
            make(epochs=1).fit(WORLD.train, propensity=p).predict(WORLD.test) for p in (1.0, 1 - 1e-6)
        )
        weight = getattr(make(), "clamped_weight", torch.ones_like)
        if not weight(torch.ones(1)).any():
            # (1 − p)/p² and the like leave the imputer alone at 1, and Adam trains it at any weight above 0.
            assert np.isfinite(at_one).all()
            return
        # The loss is continuous in p: weights that differ by 1e-6 move a step of Adam, which is at most the
        # learning rate (.01), by about 1e-6 of it, and an epoch has five steps.
        np.testing.assert_allclose(at_one, near_one, atol=1e-6)

    def test_without_propensities_it_has_no_weights_or_says_that_it_needs_them(self, make, fitted):
        if fitted.needs_propensity:
            with pytest.raises(
                ParameterError, match=rf"{fitted.name} needs propensities.*fit\(…, propensity="
            ):
                make().fit(WORLD.train)
        else:
            assert fitted.clipping_ is None

    def test_fitting_leaves_parameters_as_they_were(self, make, fitted):
        assert fitted.get_params() == make().get_params()


def true_propensity(model: Debiaser):
    return WORLD.truth.propensity if model.needs_propensity else None


@dataclass(frozen=True)
class Captured:
    """What a fit gave, and its networks and passes, stage by stage."""

    predictions: NDArray[np.float64]
    best_epoch: Sequence[int]
    stages: list[tuple[Any, Any]]

    @classmethod
    def of(cls, model: Debiaser) -> Captured:
        stages = []

        def record(networks, passes, schedule, **further):
            stages.append((networks, passes))
            return train(networks, passes, schedule, **further)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(fitting, "train", record)
            model.fit(WORLD.train, propensity=true_propensity(model), seeds=SEEDS)
        return cls(model.predict_each(WORLD.test), model.history_.best_epoch, stages)

    def steps(self):
        """Networks, step and sample of every step, after the training; hooks have run a last time."""
        for networks, passes in self.stages:
            for each in passes:
                if each.before is not None:
                    with evaluating(networks.values()):
                        each.before()
                for network in networks.values():
                    network.train()
                draw = next(next(iter(each.sampler.epoch(0))).steps())
                yield from ((networks, step, draw) for step in each.steps)


def gradient_size(network) -> float:
    return sum(float(p.grad.abs().sum()) for p in network.parameters() if p.grad is not None)


def every_cell() -> us.Log:
    users, items = WORLD.truth.labels.shape
    cells = np.arange(users * items)
    return us.Log.from_arrays(
        user=cells // items,
        item=cells % items,
        click=cells % 2,
        users=WORLD.train.users,
        items=WORLD.train.items,
    )


def log_loss(label, prediction) -> float:
    return float(-(label * np.log(prediction) + (1 - label) * np.log1p(-prediction)).mean())
