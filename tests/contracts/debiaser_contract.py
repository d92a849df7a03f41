"""What every debiasing method must do. A method's tests inherit this class and say which one it is."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.metrics import roc_auc_score

import unskew as us
from unskew.debias import METHODS, Debiaser
from unskew.debias.core import fitting
from unskew.errors import DataError, NotFittedError, ParameterError
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
            backbone = us.NeuMF(dim=4, layers=(8, 4))
            return method(**{"backbone": backbone, "p_min": CLIP, **TRAINING, **options, **further})

        return made

    @pytest.fixture(scope="class")
    @classmethod
    def fitted(cls, make) -> Debiaser:
        return make().fit(WORLD.train, propensity=true_propensity(make()), seeds=SEEDS)

    @pytest.fixture(scope="class")
    @classmethod
    def briefly_fitted(cls, make) -> Debiaser:
        return make(**BRIEFLY).fit(WORLD.train, propensity=true_propensity(make()), seeds=SEEDS)

    def test_it_is_in_the_table_of_methods_and_tells_what_it_is(self, method):
        assert METHODS[method.name] is method
        assert method.when
        assert method.paper
        assert method.__doc__.strip()

    def test_every_step_has_a_finite_loss_for_each_replica_that_reaches_what_it_trains(
        self, make, monkeypatch
    ):
        steps = 0
        for networks, passes in captured(make(epochs=1), monkeypatch):
            for each in passes:
                if each.before is not None:
                    with evaluating(networks.values()):
                        each.before()
                draw = next(next(iter(each.sampler.epoch(0))).steps())
                for step in each.steps:
                    loss = step.loss(draw)
                    assert loss.shape == (len(SEEDS),)
                    assert torch.isfinite(loss).all()
                    for network in networks.values():
                        network.zero_grad()
                    loss.sum().backward()
                    for name in step.trains:
                        assert gradient_size(networks[name]) > 0, f"{step.name} does not train {name}"
                    steps += 1
        assert steps > 0

    def test_the_loss_of_a_replica_has_no_gradient_in_the_others(self, make, monkeypatch):
        for networks, passes in captured(make(epochs=1), monkeypatch):
            for each in passes:
                if each.before is not None:
                    with evaluating(networks.values()):
                        each.before()
                draw = next(next(iter(each.sampler.epoch(0))).steps())
                for step in each.steps:
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

    def test_its_history_has_a_finite_loss_for_every_epoch_and_replica(self, fitted):
        assert fitted.history_.train
        for name, losses in fitted.history_.train.items():
            assert np.isfinite(losses).all(), name
            assert np.shape(losses)[1] == len(SEEDS)
        assert np.shape(fitted.history_.validation)[1] == len(SEEDS)
        assert len(fitted.history_.best_epoch) == len(SEEDS)

    def test_a_seed_alone_is_the_seed_in_a_stack(self, make, briefly_fitted):
        alone = make(**BRIEFLY).fit(WORLD.train, propensity=true_propensity(make()), seeds=[3])
        np.testing.assert_allclose(
            alone.predict_each(WORLD.test)[0], briefly_fitted.predict_each(WORLD.test)[1], atol=ROUNDING
        )
        assert alone.history_.best_epoch[0] == briefly_fitted.history_.best_epoch[1]

    def test_fitting_again_gives_the_same_bit_for_bit(self, make, briefly_fitted):
        again = make(**BRIEFLY).fit(WORLD.train, propensity=true_propensity(make()), seeds=SEEDS)
        np.testing.assert_array_equal(again.predict_each(WORLD.test), briefly_fitted.predict_each(WORLD.test))

    def test_seeds_differ(self, briefly_fitted):
        assert len(np.unique(briefly_fitted.predict_each(WORLD.test), axis=0)) == len(SEEDS)

    def test_a_saved_model_predicts_the_same(self, fitted, tmp_path):
        fitted.save(tmp_path / "model")
        loaded = us.load_model(tmp_path / "model")
        assert type(loaded) is type(fitted)
        assert loaded.get_params() == fitted.get_params()
        np.testing.assert_array_equal(loaded.predict_each(WORLD.test), fitted.predict_each(WORLD.test))
        assert not [path for path in (tmp_path / "model").iterdir() if path.suffix in (".pkl", ".pt", ".pth")]

    def test_impressions_work_as_well(self, make):
        log = impressions()
        model = make(epochs=1).fit(log, propensity="p" if make().needs_propensity else None)
        prediction = model.predict(log)
        assert np.isfinite(prediction).all()
        assert ((prediction > 0) & (prediction < 1)).all()

    def test_unseen_ids_are_an_error_or_nan(self, fitted):
        with pytest.raises(DataError, match=r"column 'user', row 1: user 60 was not seen in training"):
            fitted.predict_pairs_each([0, 60], [0, 0])
        some = fitted.predict_pairs_each([0, 60], [0, 0], unseen="nan")
        assert np.isnan(some).tolist() == [[False, True]] * len(SEEDS)

    def test_the_propensity_estimator_it_is_given_is_left_as_it_was(self, make):
        propensity = us.Propensity(backbone=us.MF(dim=2), crossfit=2, epochs=1).fit(WORLD.train, seeds=2)
        propensity.network_.zero_grad()
        before = [parameter.detach().clone() for parameter in propensity.network_.parameters()]
        make(epochs=1).fit(WORLD.train, propensity=propensity, seeds=2)
        for old, parameter in zip(before, propensity.network_.parameters(), strict=True):
            assert torch.equal(old, parameter)
            assert parameter.grad is None

    @pytest.mark.parametrize("edge", [CLIP, 1.0])
    def test_propensities_at_the_clip_and_at_one_are_no_harm(self, make, edge):
        model = make(epochs=1).fit(WORLD.train, propensity=edge)
        assert np.isfinite(model.predict(WORLD.test)).all()
        assert [line.clipped for line in model.clipping_] == [0.0]

    def test_propensities_below_the_clip_are_raised_to_it_and_told(self, make):
        matrix = np.full(WORLD.truth.propensity.shape, 0.5)
        rows = slice(0, len(WORLD.train), 4)
        matrix[WORLD.train.user[rows], WORLD.train.item[rows]] = 0.0
        model = make(epochs=1).fit(WORLD.train, propensity=matrix, seeds=SEEDS)
        (told,) = model.clipping_
        assert told.clipped == pytest.approx(0.25, abs=0.01)
        assert told.largest == pytest.approx(1 / CLIP)
        raised = make(epochs=1).fit(WORLD.train, propensity=np.maximum(matrix, CLIP), seeds=SEEDS)
        np.testing.assert_array_equal(model.predict_each(WORLD.test), raised.predict_each(WORLD.test))

    def test_a_propensity_that_is_nan_is_an_error_that_names_the_row(self, make):
        matrix = np.full(WORLD.truth.propensity.shape, 0.5)
        matrix[WORLD.train.user[17], WORLD.train.item[17]] = np.nan
        with pytest.raises(DataError, match=r"row 17: propensity is nan, not a probability"):
            make().fit(WORLD.train, propensity=matrix)

    def test_without_propensities_it_works_or_says_that_it_needs_them(self, make):
        model = make(epochs=1)
        if model.needs_propensity:
            with pytest.raises(
                ParameterError, match=rf"{model.name} needs propensities.*fit\(…, propensity="
            ):
                model.fit(WORLD.train)
        else:
            assert np.isfinite(model.fit(WORLD.train).predict(WORLD.test)).all()
            assert model.clipping_ is None

    def test_a_sum_over_all_pairs_refuses_the_propensity_of_a_sample(self, make):
        if not make().needs_full_space:
            pytest.skip("sums over clicks alone")
        sampled = us.Propensity(
            backbone=us.MF(dim=2), crossfit=2, epochs=1, negatives=1, population="sampled"
        )
        with pytest.raises(ParameterError, match=r"of a sampled population.*population='D'"):
            make().fit(WORLD.train, propensity=sampled.fit(WORLD.train))

    def test_parameters_are_kept_read_set_and_cloned(self, make):
        model = make()
        copy = clone(model)
        assert copy == model
        copy.set_params(backbone__dim=9, p_min=0.2)
        assert (copy.backbone.dim, copy.p_min) == (9, 0.2)
        assert (model.backbone.dim, model.p_min) == (4, CLIP)
        with pytest.raises(ParameterError, match="has no parameter 'clip'"):
            model.set_params(clip=0.1)

    def test_fitting_leaves_parameters_as_they_were(self, make, fitted):
        assert fitted.get_params() == make().get_params()

    def test_asking_before_fitting_is_told(self, make, tmp_path):
        for ask in (make().predict, make().predict_each):
            with pytest.raises(NotFittedError, match="is not fitted yet"):
                ask(WORLD.test)
        with pytest.raises(NotFittedError, match="is not fitted yet"):
            make().save(tmp_path / "model")
        assert not (tmp_path / "model").exists()


def true_propensity(model: Debiaser):
    return WORLD.truth.propensity if model.needs_propensity else None


def captured(model: Debiaser, monkeypatch):
    """Networks and passes as ``fit`` hands them to the loop, stage by stage, after an epoch of training."""
    stages = []

    def record(networks, passes, schedule, **further):
        stages.append((networks, passes))
        return train(networks, passes, schedule, **further)

    monkeypatch.setattr(fitting, "train", record)
    model.fit(WORLD.train, propensity=true_propensity(model), seeds=SEEDS)
    for networks, _ in stages:
        for network in networks.values():
            network.train()
    return stages


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


def impressions() -> us.Log:
    random = np.random.default_rng(2)
    user, item = random.integers(20, size=600), random.integers(15, size=600)
    p = np.where(user < 8, 0.5, 0.2)
    click = (random.random(600) < p).astype(int)
    return us.Log.from_arrays(
        user=user,
        item=item,
        click=click,
        conversion=np.where(click == 1, (item + user) % 3 == 0, np.nan),
        space="impressions",
        columns={"p": p},
    )
