"""``--method auto``: the search is in metrics and report, and what is shipped is an ordinary model."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import unskew as us
from unskew.base.errors import DataError, ParameterError
from unskew.cli import main

pytestmark = pytest.mark.filterwarnings("ignore::unskew.base.errors.CollapseWarning")

QUICK = {
    "learner": "mf",
    "seeds": 1,
    "members": 2,
    "crossfit": 2,
    "device": "cpu",
    "propensity": "popularity",
    "parameters": {"method.epochs": 2, "learner.dim": 4},
}
WORLD = {"n_users": 60, "n_items": 50, "density": 0.15, "test_per_user": 25}


@pytest.fixture(scope="module")
def searched():
    return us.run(us.Config(options=WORLD, method="auto", unbiased_share=0.4, **QUICK))


@pytest.fixture(scope="module")
def alone():
    return us.run(us.Config(options=WORLD, method="auto", **QUICK))


def test_the_whole_search_is_in_the_metrics(searched):
    search = searched.metrics["search"]
    assert list(searched.models) == ["naive", "auto"]
    assert searched.main == "auto"
    assert search["rows"] == searched.metrics["data"]["unbiased_rows"] == len(searched.dataset.unbiased)
    # Eight methods, two regularisations, half of them again as ensembles.
    assert [each["rung"] for each in search["tried"]].count(0) == 16
    assert [each["rung"] for each in search["tried"]].count(1) == 1 + round(15 / 2)
    assert search["sentence"] in searched.metrics["labels"]
    assert {"naive", "auto"} == set(searched.metrics["methods"])


def test_nothing_was_chosen_on_the_test_pairs(searched):
    sample, test = searched.dataset.unbiased, searched.dataset.test
    assert not np.isin(sample.cell, test.cell).any()
    assert len(sample) + len(test) == len(us.load("synthetic", **WORLD).test)


def test_the_report_shows_the_search(searched):
    page = searched.report()
    assert 'id="search"' in page
    assert "How was the method chosen?" in page
    assert "esmm λ=15" in page
    assert "in the lower half on the sample" in page


def test_the_sample_sets_the_level_right(searched):
    model = searched.models["auto"]
    rows = searched.dataset.unbiased
    rate = rows.known_conversion().mean()
    raw = model.without_recalibration().predict_each(rows).mean() / rate
    assert abs(model.predict_each(rows).mean() / rate - 1) < 0.1 < abs(raw - 1)
    assert us.Config(method="naive", unbiased_share=0.1, recalibrate="auto").data.unbiased_share == 0.1


def test_what_is_shipped_is_saved_and_read_again(searched, tmp_path, undrawn):
    searched.save(tmp_path / "run")
    model = us.load_model(tmp_path / "run", device="cpu")
    test = searched.dataset.test
    np.testing.assert_allclose(
        model.predict_each(test), searched.models["auto"].predict_each(test), rtol=1e-6
    )
    assert model.members == 2


def test_a_model_that_is_naive_itself_is_saved_beside_it(alone, searched, tmp_path, undrawn):
    """Both have one network in common; so has the mean of naive and others."""
    naive = alone.models["naive"]
    mean = naive.with_beside(searched.models["naive"])
    for name, result in (("naive", alone), ("mean", replace(alone, models={"naive": naive, "auto": mean}))):
        result.save(tmp_path / name)
        model = us.load_model(tmp_path / name, device="cpu")
        test = alone.dataset.test
        expected = result.models["auto"].predict_each(test)
        np.testing.assert_allclose(model.predict_each(test), expected, rtol=1e-6)


def test_without_a_sample_naive_is_shipped_and_the_report_says_why(alone):
    assert alone.models["auto"] is alone.models["naive"]
    assert "Biased clicks cannot decide" in alone.metrics["search"]["sentence"]
    page = alone.report()
    assert "Biased clicks cannot decide" in page
    assert "plan-random" in page
    assert alone.metrics["methods"]["auto"]["auc"] == alone.metrics["methods"]["naive"]["auc"]


def test_options_that_do_not_go_together_are_one_line():
    with pytest.raises(ParameterError, match="an unbiased sample has no effect with method ips"):
        us.Config(unbiased_share=0.05)
    with pytest.raises(ParameterError, match="the paper's protocol has no auto"):
        us.Config(method="auto", protocol="paper")
    with pytest.raises(ParameterError, match="--from has no effect with method auto"):
        us.Config(options=WORLD, method="auto", **QUICK, start=Path("nowhere"))


def written(path: Path, log: us.Log, rows=slice(None)) -> None:
    lines = zip(log.user[rows], log.item[rows], log.known_conversion()[rows], strict=True)
    path.write_text("\n".join(["user,item,conversion", *(f"{u},{i},{r:.0f}" for u, i, r in lines)]))


def test_a_sample_comes_from_a_file(tmp_path, monkeypatch, capsys):
    data = us.load("synthetic", **WORLD)
    monkeypatch.chdir(tmp_path)
    written(Path("log.csv"), data.train)
    written(Path("test.csv"), data.test, slice(400, None))
    written(Path("sample.csv"), data.test, slice(0, 400))
    files = {"train": "log.csv", "test": "test.csv", "test_is": "random", "conversion": "conversion"}
    loaded = us.load("files", **files, unbiased="sample.csv")
    assert len(loaded.unbiased) == loaded.facts["unbiased_rows"] == 400
    command = ["run", "--data", "log.csv", "--test", "test.csv", "--test-is", "random", "--out", "run"]
    assert main([*command, "--unbiased", "sample.csv"]) == 2
    assert "an unbiased sample has no effect with method ips" in capsys.readouterr().err
    written(Path("test.csv"), data.test)
    config = us.Config(data="files", options={**files, "unbiased": "sample.csv"}, method="auto")
    with pytest.raises(DataError, match="400 pairs of the unbiased sample are in the test set too"):
        us.run(config)
