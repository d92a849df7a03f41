"""A run that mends the level of its models, and says what that did."""

from __future__ import annotations

import numpy as np
import pytest

import unskew as us
from unskew.base.errors import ParameterError

SMALL = {"n_users": 80, "n_items": 60, "density": 0.15, "bias": 1.2}


@pytest.fixture(scope="module")
def results():
    config = us.Config(
        options=SMALL,
        method="ips",
        propensity="popularity",
        learner="mf",
        crossfit=2,
        seeds=2,
        members=2,
        device="cpu",
        parameters={"method.epochs": 4, "method.learning_rate": 0.02},
    )
    plain = us.run(config)
    return plain, us.run(config.changed({"model.recalibrate": "shift"}))


def test_every_model_has_a_map_and_the_order_stays(results):
    plain, mended = results
    assert "recalibration" not in plain.metrics
    assert set(mended.metrics["recalibration"]) == {"naive", "ips_raw", "ips"}
    for key, figures in mended.metrics["methods"].items():
        was = plain.metrics["methods"][key]
        assert figures["auc"]["mean"] == pytest.approx(was["auc"]["mean"], abs=1e-9)
        assert figures["mean_over_rate"]["before"]["mean"] == pytest.approx(was["mean_over_rate"]["mean"])
        assert figures["mean_over_rate"]["mean"] != pytest.approx(was["mean_over_rate"]["mean"], abs=1e-5)
        assert figures["auc"]["members_mean"] > 0


def test_the_naive_model_is_mended_by_the_propensities_of_the_run(results):
    _, mended = results
    found = mended.metrics["recalibration"]["naive"]
    assert found["on"] == "held-out clicks, weighted by 1/p"
    assert "after" not in found, "on the rows of the fit it is 1.00 by construction"
    level = mended.metrics["methods"]["naive"]["mean_over_rate"]
    assert abs(level["mean"] - 1) < abs(level["before"]["mean"] - 1)


def test_the_labels_say_it(results):
    labels = "\n".join(results[1].metrics["labels"])
    assert "naive recalibrated by shift on" in labels
    assert "predicted ÷ actual rate there" in labels
    assert " after" not in labels


def test_the_folder_predicts_the_same(results, tmp_path):
    _, mended = results
    mended.save(tmp_path / "run")
    for key, model in mended.models.items():
        loaded = us.load_model(tmp_path / "run", key, device="cpu")
        np.testing.assert_array_equal(
            loaded.predict_each(mended.dataset.test), model.predict_each(mended.dataset.test)
        )


def test_an_unknown_kind_is_refused_before_training():
    with pytest.raises(ParameterError, match="recalibrate must be one of none, auto, shift"):
        us.Config(recalibrate="up")


def test_a_random_sample_mends_all_models():
    config = us.Config(
        options={**SMALL, "test_per_user": 20},
        propensity="popularity",
        learner="mf",
        method="auto",
        crossfit=2,
        seeds=1,
        members=1,
        unbiased_share=0.5,
        device="cpu",
        parameters={"training.epochs": 2},
    )
    result = us.run(config)
    assert {each["on"] for each in result.metrics["recalibration"].values()} == {"clicks of a random sample"}
    assert result.metrics["methods"]["naive"]["mean_over_rate"]["mean"] == pytest.approx(1.0, abs=0.1)
