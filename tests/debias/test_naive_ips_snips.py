"""Naive, IPS and SNIPS are their formulas, and agree where they must."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import unskew as us
from unskew.base.errors import UnskewError
from unskew.data import Rows, Schema
from unskew.debias import Batch, Setting
from unskew.learners import BatchEnsemble, Intercept

REPLICAS, BATCH = 3, 40


@pytest.fixture
def setting() -> Setting:
    network = us.MF(dim=4, init_std=0.7).build(Schema.of_ids(20, 10), range(REPLICAS)).double()
    return Setting(networks={"prediction": network}, density=0.13, clicks=batch(0.5))


def batch(propensity) -> Batch:
    random = torch.Generator().manual_seed(0)
    return Batch(
        rows=Rows(
            user=torch.randint(20, (REPLICAS, BATCH), generator=random),
            item=torch.randint(10, (REPLICAS, BATCH), generator=random),
        ),
        conversion=torch.randint(2, (REPLICAS, BATCH), generator=random).double(),
        propensity=torch.as_tensor(propensity, dtype=torch.float64).expand(REPLICAS, BATCH),
    )


def varied() -> torch.Tensor:
    random = torch.Generator().manual_seed(1)
    return 0.02 + 0.9 * torch.rand(REPLICAS, BATCH, generator=random, dtype=torch.float64)


def losses(setting, propensity):
    """Naive, IPS and SNIPS on one batch, and the errors they are made of."""
    given = batch(propensity)
    prediction = torch.sigmoid(setting.networks["prediction"](given.rows))
    r = given.conversion
    error = -(r * prediction.log() + (1 - r) * (1 - prediction).log())
    values = [kind().loss(setting, given, given) for kind in (us.Naive, us.IPS, us.SNIPS)]
    assert [value.shape for value in values] == [(REPLICAS,)] * 3
    return (*values, error)


def test_losses_are_their_formulas(setting):
    p = varied()
    naive, ips, snips, error = losses(setting, p)
    torch.testing.assert_close(naive, error.mean(1))
    torch.testing.assert_close(ips, 0.13 * (error / p).mean(1))
    torch.testing.assert_close(snips, (error / p).sum(1) / (1 / p).sum(1))


def test_the_constant_density_gives_exactly_the_naive_loss(setting):
    naive, ips, snips, _ = losses(setting, 0.13)
    torch.testing.assert_close(ips, naive, rtol=1e-14, atol=0)
    torch.testing.assert_close(snips, naive, rtol=1e-14, atol=0)


@pytest.mark.parametrize("factor", [0.01, 0.5, 7.0])
def test_snips_does_not_care_for_a_common_factor_and_ips_does(setting, factor):
    p = varied()
    _, ips, snips, _ = losses(setting, p)
    _, scaled_ips, scaled_snips, _ = losses(setting, factor * p)
    torch.testing.assert_close(scaled_snips, snips, rtol=1e-12, atol=0)
    torch.testing.assert_close(scaled_ips, ips / factor, rtol=1e-12, atol=0)


@pytest.fixture(scope="module")
def world():
    return us.load("synthetic", n_users=80, n_items=50, density=0.15, seed=6)


def small(kind, **options):
    training = {"epochs": 6, "batch_size": 100, "learning_rate": 0.01}
    return kind(learner=us.MF(dim=4), **{**training, **options})


@pytest.mark.parametrize("kind", [us.IPS, us.SNIPS])
def test_training_with_constant_propensities_is_training_the_naive_model(world, kind):
    naive = small(us.Naive).fit(world.train, seeds=2).predict_each(world.test)
    constant = small(kind).fit(world.train, propensity=world.train.density, seeds=2).predict_each(world.test)
    np.testing.assert_allclose(constant, naive, atol=1e-5)


class TestValidation:
    def test_without_a_share_nothing_is_held_out_and_all_epochs_are_trained(self, world):
        model = small(us.Naive, validation_share=0.0, patience=2).fit(world.train)
        assert model.history_.validation == []
        assert model.history_.best_epoch == [5]

    def test_a_validation_log_is_used_instead(self, world):
        model = small(us.Naive, epochs=1).fit(world.train, validation=world.test)
        r = world.test.known_conversion()
        p = model.predict(world.test)
        expected = -(r * np.log(p) + (1 - r) * np.log1p(-p)).mean()
        assert model.history_.validation[0][0] == pytest.approx(expected, rel=1e-5)

    def test_it_is_weighted_by_the_methods_propensities_unless_asked_not_to(self, world):
        values = {
            selection: small(us.IPS, epochs=1, selection=selection)
            .fit(world.train, propensity=world.truth.propensity)
            .history_.validation[0][0]
            for selection in ("snips", "ce")
        }
        assert values["snips"] != pytest.approx(values["ce"], rel=1e-3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epochs": 0}, "epochs must be at least 1, not 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, not 0"),
        ({"validation_share": 1.0}, r"validation_share must be in \[0, 1\), not 1.0"),
        ({"selection": "auc"}, "selection must be 'snips' or 'ce', not 'auc'"),
        ({"p_min": 0.0}, r"p_min must be 'auto' or a number in \(0, 1\), not 0.0"),
        ({"p_min": 1.5}, r"p_min must be 'auto' or a number in \(0, 1\), not 1.5"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"patience": 0}, "patience must be at least 1"),
    ],
)
def test_parameters_out_of_range_are_told(world, options, message):
    with pytest.raises(us.UnskewError, match=message):
        small(us.IPS, **options).fit(world.train, propensity=0.1)


def test_too_few_clicks_to_split_are_told():
    log = us.Log.from_arrays(user=[0, 1, 2], item=[0, 1, 2], conversion=[0, 1, 0])
    with pytest.raises(us.UnskewError, match="3 clicked rows are too few to split"):
        small(us.Naive).fit(log)


def test_a_log_of_clicks_alone_has_nothing_to_learn_from():
    log = us.Log.from_arrays(user=[0, 1, 2], item=[0, 1, 2])
    with pytest.raises(us.UnskewError, match="the log has no conversions"):
        small(us.Naive).fit(log)


@pytest.mark.parametrize("learner", [Intercept(), BatchEnsemble(base=us.MF(dim=4), members=3)])
def test_a_pair_has_one_prediction_whatever_is_asked_with_it(learner):
    log = us.load("synthetic", n_users=30, n_items=20, density=0.3).train
    model = us.Naive(learner=learner, epochs=2).fit(log, seeds=2)
    users, items = log.users.ids[:6], log.items.ids[:6]
    together = model.predict_pairs_each(users, items)
    for place in range(6):
        alone = model.predict_pairs_each(users[place : place + 1], items[place : place + 1])
        np.testing.assert_allclose(alone[:, 0], together[:, place], rtol=1e-6)
    with pytest.raises(us.UnskewError, match="column 'item' has 1 rows where the others have 6"):
        model.predict_pairs_each(users, items[:1])
    with pytest.raises(us.UnskewError, match="what to predict is a NoneType, not a Log"):
        model.predict(None)


@pytest.mark.parametrize(
    ("fit", "told"),
    [
        (lambda data: us.Naive().fit(data), r"is a Dataset, not a Log.*data\.train"),
        (lambda data: us.IPS().fit(None, propensity=0.1), "is a NoneType, not a Log"),
        (lambda data: us.Naive().fit(data.train, validation="x"), "validation is a str, not a Log"),
        (lambda data: us.Propensity().fit(data), r"is a Dataset, not a Log.*data\.train"),
        (lambda data: us.PopularityPropensity().fit(3), "is a int, not a Log"),
    ],
)
def test_what_is_no_log_is_told(fit, told):
    data = us.load("synthetic", n_users=30, n_items=20, density=0.3)
    with pytest.raises(UnskewError, match=told):
        fit(data)
