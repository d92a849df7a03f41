"""`--config` and `--set`: all options of a run in a file, and parameters by name."""

from __future__ import annotations

import json
import tomllib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew as us
from unskew.cli import main

QUICK = [
    "--propensity",
    "popularity",
    "--learner",
    "mf",
    "--method",
    "naive",
    "--seeds",
    "1",
    "--crossfit",
    "2",
]


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    data = us.load("synthetic", n_users=40, n_items=30, density=0.2, seed=3).train
    path = tmp_path_factory.mktemp("log") / "log.parquet"
    pq.write_table(pa.table({"uid": data.user, "iid": data.item, "bought": data.known_conversion()}), path)
    return path


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("unskew.report.render_run_report", lambda **told: "<html></html>")
    return tmp_path


@pytest.fixture
def arguments(log):
    return ["run", "--data", str(log), "--user", "uid", "--item", "iid", "--conversion", "bought", *QUICK]


def config_of(folder):
    return tomllib.loads((folder / "config.toml").read_text())["run"]


def test_a_run_is_repeated_from_its_folder(arguments, here):
    given = [*arguments, "--set", "method.learning_rate=0.02", "--set", "learner.dim=4"]
    given += ["--members", "2"]
    assert main([*given, "--out", "first"]) == 0
    assert main(["run", "--config", "first/config.toml", "--out", "again"]) == 0
    for name in ("metrics.json", "model.safetensors", "config.toml"):
        assert (here / "again" / name).read_bytes() == (here / "first" / name).read_bytes()


def test_the_command_line_wins_key_by_key(log, here):
    (here / "mine.toml").write_text(
        f'data = "{log}"\nuser = "uid"\nitem = "iid"\nconversion = "bought"\npropensity = "popularity"\n'
        'learner = "mf"\nmethod = "naive"\nseeds = 3\ncrossfit = 2\nout = "mine"\np-min = 0.02\n'
        "[set]\nmethod.learning_rate = 0.02\nmethod.epochs = 2\n"
    )
    assert main(["run", "--config", "mine.toml", "--seeds", "1", "--set", "method.epochs=1"]) == 0
    config = config_of(here / "mine")
    assert config["evaluation"]["seeds"] == 1
    assert (config["propensity"]["crossfit"], config["propensity"]["p_min"]) == (2, 0.02)
    assert config["model"]["parameters"] == {"method.learning_rate": 0.02, "method.epochs": 1}
    models = tomllib.loads((here / "mine" / "config.toml").read_text())["methods"]
    assert models["naive"]["params"]["learning_rate"] == 0.02
    assert models["naive"]["params"]["epochs"] == 1
    labels = json.loads((here / "mine" / "metrics.json").read_text())["labels"]
    assert "set: method.learning_rate = 0.02, method.epochs = 1" in labels


def test_options_of_a_dataset_are_kept(here):
    world = ["--option", "n_users=40", "--option", "n_items=30", "--option", "density=0.2"]
    assert main(["run", *world, *QUICK, "--out", "a"]) == 0
    assert main(["run", "--config", "a/config.toml", "--option", "n_users=45", "--out", "b"]) == 0
    assert config_of(here / "b")["data"]["options"] == {"n_users": 45, "n_items": 30, "density": 0.2}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("sedes = 3\n", "bad.toml: there is no option 'sedes'. To fix: use seeds"),
        ("seeds = \n", "bad.toml: cannot be read as TOML"),
        ("seeds = 'many'\n", "--seeds (evaluation.seeds) must be a whole number, not 'many'"),
        ("seeds = [1, 2]\n", "--seeds (evaluation.seeds) must be a whole number"),
        ("run = 3\n", "bad.toml: run is no table"),
        ("config = 'x'\n", "there is no option 'config'"),
    ],
)
def test_a_bad_file_is_one_line(here, capsys, text, words):
    (here / "bad.toml").write_text(text)
    assert main(["run", "--config", "bad.toml"]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("method.learning_rte=1", "has no parameter 'method.learning_rte'. To fix: use method.learning_rate"),
        ("lerning_rate=1", "To fix: use method.learning_rate or propensity.learning_rate"),
        (
            "learning_rate=1",
            "give method.learning_rate or propensity.learning_rate or training.learning_rate",
        ),
        ("method.epochs=many", "IPS: epochs must be a whole number, not 'many'"),
        ("method.p_min=0.1", "method.p_min has an option of its own. To fix: give --p-min"),
        ("evaluation.seeds=0", "--seeds (evaluation.seeds) must be at least 1, not 0"),
        ("evaluation.sedes=2", "the run has no parameter 'evaluation.sedes'. To fix: use evaluation.seed"),
        ("zzz=1", "the run has no parameter 'zzz'"),
        ("epochs", "--set 'epochs' is not KEY=VALUE"),
    ],
)
def test_a_bad_parameter_is_one_line(here, capsys, key, words):
    assert main(["run", "--method", "ips", "--set", key]) == 2
    error = capsys.readouterr().err
    assert words in error
    assert error.count("\n") == 1
    assert list(here.iterdir()) == []


class TestParameters:
    def test_a_name_without_its_part_is_found_where_one_part_has_it(self):
        assert dict(us.Config(parameters={"dim": 8}).model.parameters) == {"learner.dim": 8}
        nested = {"propensity": {"learner": {"dim": 8}}}
        assert dict(us.Config(parameters=nested).model.parameters) == {"propensity.learner.dim": 8}

    def test_they_reach_every_part(self):
        world = {"options": {"n_users": 40, "n_items": 30, "density": 0.2}, "learner": "mf", "crossfit": 2}
        given = {
            "training.epochs": 2,
            "propensity.learner.dim": 3,
            "learner.dim": 5,
            "calibrator.input": "prob",
            "uncertainty.members": 2,
            "method.patience": "none",
        }
        parts = {"calibrator": "platt", "uncertainty": "deep-ensemble"}
        config = us.Config(**world, **parts, method="ips", seeds=1, parameters=given)
        result = us.run(config)
        assert (result.propensity.epochs, result.models["ips"].epochs, result.models["naive"].epochs) == (
            2,
            2,
            2,
        )
        assert (result.propensity.learner.dim, result.models["ips"].learner.dim) == (3, 5)
        assert result.propensity.calibrator.input == "prob"
        assert result.propensity.uncertainty.members == 2
        assert result.models["ips"].patience is None

    @pytest.mark.parametrize(
        ("name", "words"),
        [
            ("ips", ["ips (method)", "method.learning_rate", "0.001", "--p-min"]),
            ("neumf", ["neumf (learner)", "learner.dim", "64", "Widths of the MLP"]),
            ("trees", ["trees (learner)", "learner.max_trees", "1000"]),
            ("naive-bayes", ["propensity.sample_share"]),
            ("mc-dropout", ["uncertainty.samples", "10"]),
            ("synthetic", ["--option n_users"]),
            ("propensity", ["propensity.label_smoothing"]),
        ],
    )
    def test_methods_lists_them(self, name, words, capsys):
        assert main(["methods", name]) == 0
        out = capsys.readouterr().out
        for word in words:
            assert word in out

    def test_methods_of_an_unknown_name_is_one_line(self, capsys):
        assert main(["methods", "nothing"]) == 2
        assert "nothing is called 'nothing'" in capsys.readouterr().err
