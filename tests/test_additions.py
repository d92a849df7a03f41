"""A debiaser, a calibrator, a learner and a dataset are one file each: those of the guide."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

import unskew as us
from contracts.calibrator_contract import CalibratorContract
from contracts.dataset_contract import DatasetContract
from contracts.debiaser_contract import DebiaserContract
from contracts.network_contract import NetworkContract
from unskew.base.own_code import load_own_code
from unskew.base.registry import CALIBRATORS, DATASETS, LEARNERS, METHODS
from unskew.cli import main
from unskew.cli.app import command
from unskew.run.config import FIELDS

PAGE = Path(__file__).parents[1] / "docs" / "guides" / "own-method.md"
KINDS = {
    "damped-ips": ("A method", METHODS),
    "factor": ("A calibrator", CALIBRATORS),
    "additive": ("A learner", LEARNERS),
    "two_files": ("A dataset", DATASETS),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory) -> Iterator[list[Path]]:
    """The code of the page, one file for each kind; a test may name them by ``--with``."""
    folder = tmp_path_factory.mktemp("additions")
    text = PAGE.read_text(encoding="utf-8")
    paths = []
    for name, (heading, registry) in KINDS.items():
        assert name not in registry
        (code,) = re.findall(
            r"```python\n(.*?)```", text.split(f"\n## {heading}\n")[1].split("\n## ")[0], re.DOTALL
        )
        paths.append(folder / f"toy_{name.replace('-', '_')}.py")
        paths[-1].write_text(code, encoding="utf-8")
    before = list(sys.path)
    for path in paths:
        load_own_code(path)
    yield paths
    sys.path[:] = before
    for name, (_, registry) in KINDS.items():
        del registry[name]


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    """Files of a small world, as the toy dataset reads them."""
    folder = tmp_path_factory.mktemp("world")
    world = us.load("synthetic", protocol="paper", n_users=40, n_items=30, density=0.25)
    for name, log in (("shown", world.train), ("random", world.test)):
        rows = np.column_stack([log.user, log.item, log.known_conversion()])
        np.savetxt(
            folder / f"{name}.csv", rows, fmt="%d", delimiter=",", header="user,item,bought", comments=""
        )
    return folder


@pytest.fixture(scope="module")
def with_files(files) -> list[str]:
    return [part for path in files for part in ("--with", str(path))]


@pytest.fixture(scope="module")
def run_folder(with_files, root, tmp_path_factory, undrawn, briefly) -> Path:
    folder = tmp_path_factory.mktemp("runs") / "run"
    assert main([
        *with_files, "run", "--data", "two_files", "--root", str(root), "--method", "damped-ips",
        "--calibrator", "factor", "--learner", "additive", "--seeds", "2", "--crossfit", "2",
        "--propensity-epochs", "2", "--device", "cpu", "--out", str(folder),
    ]) == 0  # fmt: skip
    return folder


def test_the_command_line_lists_them(with_files, capsys):
    assert main([*with_files, "methods"]) == 0
    told = capsys.readouterr().out
    for name in KINDS:
        assert name in told


def test_a_run_uses_all_of_them(run_folder):
    metrics = json.loads((run_folder / "metrics.json").read_text(encoding="utf-8"))
    assert set(metrics["methods"]) == {"naive", "damped-ips_raw", "damped-ips"}
    assert len(metrics["methods"]["damped-ips"]["auc"]["seeds"]) == 2
    # One factor makes the weighted level right, and cannot do more: that is what it is there to show.
    calibrated, raw = (metrics["propensity"][which] for which in ("calibrated", "raw"))
    assert abs(calibrated["mean_over_base_rate"] - 1) < abs(raw["mean_over_base_rate"] - 1)
    assert "damped-ips" in (run_folder / "report.html").read_text(encoding="utf-8")


def test_its_folder_loads_and_scores(with_files, run_folder, root, tmp_path):
    model, propensity = us.load_model(run_folder), us.load_propensity(run_folder)
    assert (model.name, model.learner.name, propensity.calibrator.name) == (
        "damped-ips",
        "additive",
        "factor",
    )
    scored = tmp_path / "scored.parquet"
    assert main([*with_files, "score", str(run_folder), str(root / "random.csv"), "-o", str(scored)]) == 0
    table = pq.read_table(scored)
    expected = model.predict_pairs_each(table["user"].to_numpy(), table["item"].to_numpy()).mean(axis=0)
    np.testing.assert_allclose(table["conversion"].to_numpy(), expected)


def test_a_study_has_them_beside_the_others(with_files, root, tmp_path):
    grid = f"""
        name = "additions"
        [base]
        data = {{ source = "two_files", root = '{root}', options = {{ least = 1 }} }}
        evaluation.seeds = 2
        propensity = {{ crossfit = 2, exact_epochs = 2 }}
        model.learner = "additive"
        [grid]
        propensity = ["additive", "mf"]
        calibrator = ["platt", "factor"]
        method = ["naive", "damped-ips"]
    """
    (tmp_path / "grid.toml").write_text(grid, encoding="utf-8")
    out = tmp_path / "out"
    assert (
        main([*with_files, "study", str(tmp_path / "grid.toml"), "--out", str(out), "--device", "cpu"]) == 0
    )
    rows = [row for row in pq.read_table(out / "table.parquet").to_pylist() if row["metric"] == "auc"]
    compared = {(row["propensity"], row["calibrator"]) for row in rows if row["method"] == "damped-ips"}
    assert compared >= {(p, q) for p in ("additive", "mf") for q in ("platt", "factor")}
    assert {row["dataset"] for row in rows} == {"two_files"}


def test_a_field_of_the_configuration_is_all_that_an_option_needs():
    on_the_command_line = {option for each in command.get_command(None, "run").params for option in each.opts}
    for name, (section, field) in FIELDS.items():
        assert f"--{name.replace('_', '-')}" in on_the_command_line
        by_set, schema = us.Config().changed({}), us.Config.model_json_schema()
        assert hasattr(getattr(by_set, section), field)
        assert field in schema["$defs"][f"{section.capitalize()}Config"]["properties"]


class TestMethod(DebiaserContract):
    @pytest.fixture(scope="class")
    @classmethod
    def method(cls, files):
        return METHODS["damped-ips"]


class TestCalibrator(CalibratorContract):
    @pytest.fixture
    def calibrator(self, files):
        return CALIBRATORS["factor"]()


class TestNetwork(NetworkContract):
    @pytest.fixture
    def learner(self, files):
        return LEARNERS["additive"]()


class TestDataset(DatasetContract):
    name = "two_files"

    @pytest.fixture
    def load(self, files, root):
        return lambda **options: us.load("two_files", root, **options)


def test_its_limits_are_naive_and_snips(files):
    world = us.load("synthetic", n_users=40, n_items=30, density=0.25)
    options = {"learner": us.MF(dim=4), "epochs": 5, "learning_rate": 0.01, "selection": "ce"}
    for power, same in ((0.0, us.Naive), (1.0, us.SNIPS)):
        auc = [
            us.evaluate(model.fit(world.train, propensity=world.truth.propensity, seeds=2), world.test)["auc"]
            for model in (METHODS["damped-ips"](power=power, **options), same(**options))
        ]
        np.testing.assert_allclose(auc[0], auc[1], atol=1e-3)
