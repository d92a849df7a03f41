"""``unskew tune``: a bounded search that sees held-out clicks or a random sample, and never a test set."""

from __future__ import annotations

import pytest

import unskew as us
from unskew.base.errors import ParameterError
from unskew.cli import main
from unskew.run.tune import parsed_values, tune

WORLD = {"n_users": 40, "n_items": 30, "density": 0.25, "test_per_user": 12}
SPACE = {"method.learning_rate": "1e-4:3e-2:log", "learner.dim": "2:6"}


def searched(**options):
    pytest.importorskip("optuna")
    config = us.Config(options=WORLD, method="naive", learner="mf", device="cpu", **options)
    return tune(config.changed({"training.epochs": 3}), SPACE, trials=4)


def test_trials_lie_in_the_space_and_the_best_has_the_least_loss():
    tuned = searched()
    assert tuned.judged_on == "held-out clicks"
    assert [trial.number for trial in tuned.trials] == [1, 2, 3, 4]
    assert all(1e-4 <= trial.values["method.learning_rate"] <= 3e-2 for trial in tuned.trials)
    assert all(trial.values["learner.dim"] in range(2, 7) for trial in tuned.trials)
    assert tuned.best.loss == min(trial.loss for trial in tuned.trials)
    assert len({trial.loss for trial in tuned.trials}) > 1
    assert tuned.svg().startswith("<svg")
    assert searched().trials[-1].loss == tuned.trials[-1].loss, "the same seed makes the same search"


def test_a_random_sample_judges_where_there_is_one():
    assert searched(unbiased_share=0.5, recalibrate="auto").judged_on == "the random sample"


def test_the_test_set_is_not_looked_at(monkeypatch):
    seen = []
    monkeypatch.setattr("unskew.run.tune.judged_loss", lambda model, data: seen.append(data.test) or 1.0)
    searched()
    assert seen == [None] * 4


def test_the_command_writes_its_trials(tmp_path, capsys):
    pytest.importorskip("optuna")
    file, told, picture = (tmp_path / name for name in ("run.toml", "t.json", "t.svg"))
    file.write_text('[model]\nmethod = "naive"\nlearner = "mf"\n[data.options]\nn_users = 40\nn_items = 30\n')
    words = ["--set", "method.epochs=2", "--space", "learner.dim=2,4", "--trials", "2"]
    assert main(["tune", str(file), *words, "--json", str(told), "--picture", str(picture)]) == 0
    assert "No test set was looked at" in " ".join(capsys.readouterr().out.split())
    assert picture.exists()
    assert told.exists()


@pytest.mark.parametrize("text", ["3:1", "a:b", "1:2:lin"])
def test_what_is_no_range_is_one_line(text):
    with pytest.raises(ParameterError, match="is no range"):
        parsed_values("learner.dim", text)


def test_a_method_must_be_named():
    pytest.importorskip("optuna")
    with pytest.raises(ParameterError, match="method auto has nothing to tune"):
        tune(us.Config(options=WORLD))
