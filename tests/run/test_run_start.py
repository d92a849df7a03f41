"""Runs that start from yesterday's, and runs with a checkpoint in Python."""

from __future__ import annotations

import json

import numpy as np
import pytest

import unskew as us
from unskew.base.errors import ParameterError, RunFolderError
from unskew.cli import main
from unskew.training.checkpoint import JobDoneError

WORLD = {"n_users": 40, "n_items": 25, "density": 0.25}
CONFIG = us.Config(
    options=WORLD,
    propensity="popularity",
    learner="mf",
    method="ips",
    seeds=2,
    crossfit=2,
    device="cpu",
    parameters={"method.epochs": 12, "method.learning_rate": 0.02},
)


def changed(**changes) -> us.Config:
    return CONFIG.changed(changes)


@pytest.fixture(scope="module")
def yesterday(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "yesterday"
    result = us.run(CONFIG)
    result.save(folder)
    return folder, result


def test_every_model_starts_from_the_one_of_its_key(yesterday):
    folder, before = yesterday
    after = us.run(changed(start=folder))
    for key, model in after.models.items():
        old = before.models[key]
        np.testing.assert_allclose(model.history_.start, old.validation_loss_, rtol=1e-5)
        assert (np.array(model.validation_loss_) <= np.array(old.validation_loss_) * (1 + 1e-5)).all()
    start = after.metrics["start"]
    assert start["run"] == str(folder)
    assert start["fields"]["user"] == {"kept": before.dataset.train.n_users, "new": 0, "gone": 0}
    assert start["models"].keys() == after.models.keys()
    assert all(each["rank_correlation"] > 0.5 for each in start["models"].values())


def test_what_changed_is_in_the_metrics_on_the_terminal_and_in_the_report(yesterday, tmp_path, capsys):
    folder, _ = yesterday
    options = [each for name, value in WORLD.items() for each in ("--option", f"{name}={value}")]
    command = ["run", "--data", "synthetic", *options, "--propensity", "popularity", "--learner", "mf"]
    command += ["--seeds", "1", "--crossfit", "2", "--device", "cpu", "--set", "method.epochs=1"]
    assert main([*command, "--from", str(folder), "--out", str(tmp_path / "today")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert f"started from {folder}: users 40 kept, 0 new, 0 gone; items 25 kept" in said
    assert "ips: predictions of" in said
    page = (tmp_path / "today" / "report.html").read_text(encoding="utf-8")
    assert "40 kept, 0 new, 0 gone" in page
    assert "rank correlation" in page
    found = json.loads((tmp_path / "today" / "metrics.json").read_text(encoding="utf-8"))
    assert found["start"]["models"]["ips"]["mean_absolute_change"] > 0


def test_another_method_starts_from_the_main_model(yesterday):
    folder, before = yesterday
    after = us.run(changed(method="snips", seeds=1, start=folder))
    old = before.models["ips"]
    assert after.models["snips"].history_.start != after.models["naive"].history_.start
    np.testing.assert_array_equal(
        after.models["snips"].start_.model.predict(old_log := before.dataset.train), old.predict(old_log)
    )
    assert after.models["snips"].start_.model.name == "ips"


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"learner": "neumf", "parameters": {}}, "is of another learner: name was 'mf' and is 'neumf'"),
        ({"parameters": {"learner.dim": 3}}, "is of another learner: dim was "),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_is_trained(yesterday, monkeypatch, changes, message):
    folder, _ = yesterday
    monkeypatch.setattr("unskew.run.propensities.fitted_propensity", lambda *_: pytest.fail("it trains"))
    with pytest.raises(ParameterError, match=message) as caught:
        us.run(changed(**changes, start=folder))
    assert str(caught.value).startswith(f"{folder}: ")


def test_a_folder_without_models_is_refused(tmp_path):
    us.run(changed(method="none", parameters={})).save(tmp_path / "p")
    with pytest.raises(RunFolderError, match="holds no conversion model to start from"):
        us.run(changed(start=tmp_path / "p"))


def test_from_needs_a_method(capsys, tmp_path):
    assert main(["run", "--method", "none", "--from", str(tmp_path)]) == 2
    assert "--from has no effect with method none" in capsys.readouterr().err


def test_a_run_with_a_checkpoint_is_done_when_it_is_saved(yesterday, tmp_path):
    folder, _ = yesterday
    result = us.run(changed(checkpoint=tmp_path / "states"))
    names = {path.name for path in (tmp_path / "states").iterdir()}
    assert "training-0003-done.safetensors" in names
    result.save(tmp_path / "run")
    assert [path.name for path in (tmp_path / "states").iterdir()] == ["job.safetensors"]
    for name in ("model.safetensors", "metrics.json", "propensities.parquet", "report.html"):
        assert (tmp_path / "run" / name).read_bytes() == (folder / name).read_bytes(), name
    with pytest.raises(JobDoneError, match=f"this job is done: its run is {tmp_path / 'run'}"):
        us.run(changed(checkpoint=tmp_path / "states"))


def test_a_run_that_was_not_saved_is_read_from_its_checkpoint(tmp_path, monkeypatch):
    first = us.run(changed(checkpoint=tmp_path / "states"))
    first.checkpoint.close()
    with monkeypatch.context() as patched:
        patched.setattr("unskew.training.steps.EagerSteps.take", lambda *_: pytest.fail("a step was taken"))
        again = us.run(changed(checkpoint=tmp_path / "states"))
    assert again.checkpoint.goes_on
    assert json.dumps(again.metrics) == json.dumps(first.metrics)
    again.checkpoint.close()
    with pytest.raises(RunFolderError, match=r"of another job: evaluation.seeds was 2 and is 1"):
        us.run(changed(seeds=1, checkpoint=tmp_path / "states"))
    with pytest.raises(RunFolderError, match=r"another job: contents.train differs|options.density was"):
        us.run(changed(options={**WORLD, "density": 0.3}, checkpoint=tmp_path / "states"))


@pytest.mark.parametrize(
    ("start", "seeds", "said"),
    [("nope", 2, "nope"), (None, 3, r"has no seed 2: it was trained with 0, 1.*--seeds")],
)
def test_what_a_run_cannot_start_from_is_refused_before_its_log_is_read(
    yesterday, tmp_path, monkeypatch, start, seeds, said
):
    monkeypatch.setattr("unskew.run.job.load", lambda *given, **options: pytest.fail("the log was read"))
    with pytest.raises((ParameterError, RunFolderError), match=said):
        us.run(changed(seeds=seeds, start=tmp_path / start if start else yesterday[0]))
