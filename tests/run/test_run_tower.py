"""A method with a click tower of its own trains no separate propensity, unless one is asked for."""

from __future__ import annotations

import pytest

import unskew as us
from unskew.base.errors import RunFolderError
from unskew.offpolicy import compare_run

SMALL = {
    "options": {"n_users": 40, "n_items": 30, "density": 0.2},
    "learner": "mf",
    "device": "cpu",
    "parameters": {"method.epochs": 2},
}
SENTENCE = "uses its own click tower: no separate propensity was trained"


@pytest.mark.parametrize("method", ["esmm", "escm2-dr", "ddpo", "dcmt", "ips-v2", "gpl"])
def test_a_multi_task_method_uses_its_own_click_tower(method, tmp_path):
    result = us.run(us.Config(**SMALL, method=method))
    assert list(result.models) == ["naive", method]
    assert result.propensity is None
    assert any(SENTENCE in label for label in result.metrics["labels"])
    assert result.metrics["propensity"] == result.models[method].click_propensity_
    assert SENTENCE in result.report()
    assert "Propensity by its own click tower, clipped at" in result.model_card()
    result.save(tmp_path / "run")
    assert not (tmp_path / "run" / "propensities.parquet").exists()
    again = us.load_model(tmp_path / "run", device="cpu")
    test = result.dataset.test
    assert (again.predict(test) == result.models[method].predict(test)).all()
    with pytest.raises(RunFolderError, match=r"used its own click tower.*--propensity linear"):
        compare_run(tmp_path / "run")


@pytest.mark.parametrize(
    ("options", "trained"),
    [
        ({"propensity": "popularity"}, True),
        ({"parameters": {"method.epochs": 2, "method.calibration": "external"}}, True),
        ({"propensity_epochs": 1}, True),
        ({"recalibrate": "shift"}, False),
    ],
)
def test_a_propensity_that_is_asked_for_is_trained(options, trained):
    result = us.run(us.Config(**{**SMALL, "method": "escm2-dr", **options}))
    assert (result.propensity is not None) == trained
    assert ("escm2-dr_raw" in result.models) == trained
    assert any(SENTENCE in label for label in result.metrics["labels"]) != trained
