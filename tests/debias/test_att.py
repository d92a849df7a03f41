"""ATT: which pairs get pseudo-labels, and who learns from them."""

from __future__ import annotations

import pytest
import torch

import unskew as us
from contracts.small_setting import WIDE, clicked_batch, full_batch, small_setting, trained_by
from unskew.base.errors import ParameterError
from unskew.debias import ATT, IPS, Naive, Setting

OBSERVED, FULL = clicked_batch(), full_batch()


def att(**params: object) -> tuple[ATT, Setting]:
    method = ATT(learner=WIDE, **params)
    return method, small_setting(method)


def raise_logits(setting: Setting, network: str, by: float) -> None:
    with torch.no_grad():
        for offset in setting.networks[network].offset.values():
            offset.add_(by)


def cross_entropy(target: torch.Tensor, probability: torch.Tensor) -> torch.Tensor:
    return -(target * probability.log() + (1 - target) * (1 - probability).log())


@pytest.mark.parametrize("agreement", [0.02, 0.2, 1.0])
def test_the_loss_is_the_mean_over_pairs_on_which_the_two_agree(agreement: float):
    method, setting = att(agreement=agreement, labelled=0.0)
    zero, one, two = (torch.sigmoid(setting.predicted(FULL, t)) for t in ("prediction", "first", "second"))
    for replica, loss in enumerate(method.loss(setting, OBSERVED, FULL).detach()):
        agree = (one[replica] - two[replica]).abs() <= agreement
        label = one[replica][agree]
        expected = sum(cross_entropy(label, model[replica][agree]).mean() for model in (zero, one, two))
        assert float(loss) == pytest.approx(float(expected), rel=1e-5)


@pytest.mark.parametrize("raised", ["first", "second"])
def test_disagreement_counts_in_both_directions(raised: str):
    """Some public code keeps every pair with r̂₁ < r̂₂ + ε."""
    method, setting = att(agreement=0.1, labelled=0.0)
    raise_logits(setting, "first", -10.0)
    raise_logits(setting, "second", -10.0)
    raise_logits(setting, raised, 20.0)
    loss = method.loss(setting, OBSERVED, FULL)
    assert loss.tolist() == [0.0, 0.0]


def test_all_three_learn_and_labels_have_no_gradient():
    method, setting = att()
    assert all(trained_by(method.loss, setting, OBSERVED, FULL).values())
    method, setting = att(labelled=0.0)
    trained_by(method.loss, setting, OBSERVED, FULL)
    largest = {
        name: max(float(p.grad.abs().max()) for p in network.parameters())
        for name, network in setting.networks.items()
    }
    # Without dropout A₁ is where its own labels are: a gradient in it could only come through them.
    assert largest["first"] < 1e-6 < 1e-3 < min(largest["prediction"], largest["second"])


def test_pre_training_is_naive_for_the_predictor_and_ips_for_its_teachers():
    method, setting = att()
    pretraining, pseudo = method.stages()
    losses = {each.steps[0].trains: each.steps[0].loss for each in pretraining.passes}
    plain = losses[("prediction",)](setting, OBSERVED, FULL)
    torch.testing.assert_close(plain, Naive().loss(setting, OBSERVED, FULL))
    for tower in ("first", "second"):
        as_prediction = Setting({"prediction": setting.networks[tower]}, setting.density, setting.clicks)
        as_prediction.networks["prediction"].towers = ("prediction",)
        offsets = setting.networks[tower].offset
        offsets["prediction"] = offsets[tower]
        places = setting.networks[tower].place
        places["prediction"] = places[tower]
        expected = IPS().loss(as_prediction, OBSERVED, FULL)
        setting.networks[tower].towers = (tower,)
        torch.testing.assert_close(losses[(tower,)](setting, OBSERVED, FULL), expected)
    assert [step.trains for step in pseudo.passes[0].steps] == [("prediction", "first", "second")]


def test_the_third_model_is_the_one_that_predicts():
    data = us.load("synthetic", n_users=20, n_items=30)
    model = ATT(learner=WIDE, epochs=2, pseudo_epochs=2).fit(data.train, propensity=data.truth.propensity)
    before = model.predict(data.test)
    raise_logits(Setting(model.networks_, 0.1, OBSERVED), "first", 3.0)
    assert (model.predict(data.test) == before).all()
    raise_logits(Setting(model.networks_, 0.1, OBSERVED), "prediction", 3.0)
    assert (model.predict(data.test) > before).all()


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ({"agreement": 0.0}, "agreement must be in"),
        ({"pseudo_epochs": 0}, "pseudo_epochs must be at least 1"),
        ({"labelled": -1.0}, "labelled must be at least 0"),
    ],
)
def test_parameters_that_cannot_work_are_refused(params: dict[str, float], told: str):
    data = us.load("synthetic", n_users=20, n_items=30)
    with pytest.raises(ParameterError, match=told):
        ATT(**params).fit(data.train, propensity=0.1)
