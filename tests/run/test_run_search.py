"""``--method auto``, the default: the mean of several candidates is shipped as one model, and a random sample
may leave some of them out."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from scipy.special import expit, logit

import unskew as us
from unskew.base.errors import DataError, ParameterError
from unskew.cli import main

QUICK = {
    "seeds": 1,
    "crossfit": 2,
    "device": "cpu",
    "propensity": "popularity",
    "parameters": {"method.epochs": 2, "learner.dim": 4},
}
WORLD = {"n_users": 60, "n_items": 50, "density": 0.15, "test_per_user": 25}
HEDGE = [f"naive, {learner}" for learner in ("neumf", "mf", "linear", "trees")]
HEDGE += [f"{method}, {net}" for method in ("esmm", "escm2-ips", "dcmt") for net in ("neumf", "mf")]


@pytest.fixture(scope="module")
def searched():
    config = us.Config(options=WORLD, unbiased_share=0.4, learner="mf", members=2, **QUICK)
    return us.run(config)


@pytest.fixture(scope="module")
def alone():
    return us.run(us.Config(options=WORLD, **QUICK))


def test_without_a_sample_the_mean_of_all_is_shipped_and_the_report_says_so(alone):
    search = alone.metrics["search"]
    assert (alone.config.method, alone.main, list(alone.models)) == ("auto", "auto", ["naive", "auto"])
    assert list(search["shipped"]) == [each["name"] for each in search["tried"]] == HEDGE
    assert search["sentence"].startswith("No data of yours decided this")
    page = alone.report()
    assert "No data of yours decided this" in page
    assert "plan-random" in page


def test_what_is_shipped_is_the_mean_logit_of_its_models(alone):
    test = alone.dataset.test
    shipped = alone.models["auto"]
    members = shipped.predict_members_each(test)
    assert members.shape[1] == len(HEDGE)
    np.testing.assert_allclose(shipped.predict_each(test), expit(logit(members).mean(axis=1)), rtol=1e-6)


def test_a_hedge_is_saved_scored_and_overwritten_as_one_model(alone, searched, tmp_path, undrawn):
    for result in (searched, alone):
        result.save(tmp_path / "run", overwrite=True)
        model = us.load_model(tmp_path / "run", device="cpu")
        test = result.dataset.test
        expected = result.models["auto"].predict_each(test)
        np.testing.assert_allclose(model.predict_each(test), expected, rtol=1e-6)


def test_a_sample_chooses_and_the_whole_search_is_in_the_metrics(searched):
    search = searched.metrics["search"]
    assert search["rows"] == searched.metrics["data"]["unbiased_rows"] == len(searched.dataset.unbiased)
    assert len(search["tried"]) == 4
    assert all(each["members"] == 2 and each["advantage"] is not None for each in search["tried"])
    left_out = {each["name"] for each in search["tried"] if each["left_out"]}
    assert left_out == {each["name"] for each in search["tried"]} - set(search["shipped"])
    assert search["sentence"] in searched.metrics["labels"]
    assert "How was the method chosen?" in searched.report()


def test_nothing_was_chosen_on_the_test_pairs(searched):
    sample, test = searched.dataset.unbiased, searched.dataset.test
    assert not np.isin(sample.cell, test.cell).any()
    assert len(sample) + len(test) == len(us.load("synthetic", **WORLD).test)


def test_the_sample_sets_the_level_right(searched):
    model = searched.models["auto"]
    rows = searched.dataset.unbiased
    rate = rows.known_conversion().mean()
    raw = model.without_recalibration().predict_each(rows).mean() / rate
    assert abs(model.predict_each(rows).mean() / rate - 1) < 0.1 < abs(raw - 1)


def test_learners_of_features_are_chosen_by_held_out_clicks():
    options = {"n_rows": 1500, "n_users": 80, "n_items": 30, "test_rows": 400, "click_rate": 0.3}
    result = us.run(
        us.Config(
            data="impressions", options=options, features="auto", effort="quick", allow_leak=("position",)
        )
    )
    search = result.metrics["search"]
    losses = search["learners"]
    assert set(losses) == {"linear", "trees", "linear + trees"}
    chosen = min(losses, key=losses.get).split(" + ")
    assert {name.partition(", ")[2] for name in search["shipped"]} == set(chosen)
    assert {name.partition(", ")[0] for name in search["shipped"]} == {"naive"}


def test_options_that_do_not_go_together_are_one_line():
    with pytest.raises(ParameterError, match="an unbiased sample has no effect with method ips"):
        us.Config(unbiased_share=0.05, method="ips")
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
    assert main([*command, "--method", "ips", "--unbiased", "sample.csv"]) == 2
    assert "an unbiased sample has no effect with method ips" in capsys.readouterr().err
    written(Path("test.csv"), data.test)
    config = us.Config(data="files", options={**files, "unbiased": "sample.csv"}, method="auto")
    with pytest.raises(DataError, match="400 pairs of the unbiased sample are in the test set too"):
        us.run(config)


def test_a_sample_that_can_judge_nothing_is_refused_before_anything_is_trained(tmp_path, monkeypatch):
    data = us.load("synthetic", **WORLD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(us.Naive, "fit", lambda *given, **named: pytest.fail("it was trained"))
    written(Path("log.csv"), data.train)
    outcome = data.test.known_conversion()
    few = np.concatenate([np.flatnonzero(outcome == label)[:2] for label in (0, 1)])
    written(Path("sample.csv"), data.test, few)
    with pytest.raises(DataError, match="not 5 or more with both converted and unconverted"):
        us.run(us.Config(data="log.csv", unbiased="sample.csv", **QUICK))
    written(Path("sample.csv"), data.train)
    with pytest.raises(DataError, match="pairs were clicked in training"):
        us.run(us.Config(data="log.csv", unbiased="sample.csv", **QUICK))
