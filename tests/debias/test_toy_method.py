"""Adding a method is one class: a toy that is defined here goes wherever built-in methods go."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from torch import Tensor

import unskew as us
from contracts.debiaser_contract import DebiaserContract
from unskew.cli import main
from unskew.debias import METHODS, Batch, Debiaser, Setting, make_method, register
from unskew.errors import ParameterError
from unskew.training import cross_entropy


@dataclass(kw_only=True)
class DampedIPS(Debiaser):
    """L = Σ_B w·CE(r, r̂) / Σ_B w with w = p^(−power): between Naive (0) and SNIPS (1)."""

    name: ClassVar[str] = "damped-ips"
    paper: ClassVar[str] = "a test"
    when: ClassVar[str] = "to show how a method is added"
    needs_propensity: ClassVar[bool] = True
    detached: ClassVar[tuple[str, ...]] = ("propensity",)

    power: float = 0.5

    def loss(self, setting: Setting, observed: Batch, full: Batch) -> Tensor:
        """Weighted mean over the batch."""
        weight = observed.propensity**-self.power
        error = cross_entropy(observed.conversion, setting.logit(observed))
        return (weight * error).sum(-1) / weight.sum(-1)


@pytest.fixture(autouse=True, scope="module")
def registered() -> Iterator[type[Debiaser]]:
    """In the table while this file is tested."""
    yield register(DampedIPS)
    del METHODS[DampedIPS.name]


class TestToyMethod(DebiaserContract):
    @pytest.fixture(scope="class")
    @classmethod
    def method(cls) -> type[Debiaser]:
        return DampedIPS


@pytest.fixture(scope="module")
def run_folder(registered, tmp_path_factory):
    """``unskew run --method damped-ips`` on files of a small world."""
    folder = tmp_path_factory.mktemp("toy")
    world = us.load("synthetic", n_users=40, n_items=30, density=0.25)
    for name, log in (("train", world.train), ("test", world.test)):
        columns = {"user": log.user, "item": log.item, "conversion": log.known_conversion().astype(int)}
        pq.write_table(pa.table(columns), folder / f"{name}.parquet")
    arguments = [
        "run", "--data", str(folder / "train.parquet"), "--test", str(folder / "test.parquet"),
        "--method", "damped-ips", "--backbone", "mf", "--seeds", "2", "--crossfit", "2",
        "--propensity-epochs", "2", "--out", str(folder / "run"), "--json", str(folder / "metrics.json"),
    ]  # fmt: skip
    assert main(arguments) == 0
    return folder


def test_the_command_line_lists_it(capsys):
    assert main(["methods"]) == 0
    assert "damped-ips" in capsys.readouterr().out


def test_a_run_compares_it_with_naive_raw_and_calibrated(run_folder):
    metrics = json.loads((run_folder / "metrics.json").read_text())
    assert set(metrics["methods"]) == {"naive", "damped-ips_raw", "damped-ips"}
    assert len(metrics["methods"]["damped-ips"]["auc"]["seeds"]) == 2
    assert "damped-ips" in (run_folder / "run" / "report.html").read_text(encoding="utf-8")


def test_its_run_loads_and_scores(run_folder):
    model = us.load_model(run_folder / "run")
    assert isinstance(model, DampedIPS)
    scored = run_folder / "scored.parquet"
    pairs, run = str(run_folder / "test.parquet"), str(run_folder / "run")
    renamed = pq.read_table(pairs).rename_columns(["user", "item", "bought"])
    pq.write_table(renamed, run_folder / "pairs.parquet")
    assert main(["score", run, str(run_folder / "pairs.parquet"), "--out", str(scored)]) == 0
    table = pq.read_table(scored)
    expected = model.predict_pairs_each(table["user"].to_numpy(), table["item"].to_numpy()).mean(axis=0)
    np.testing.assert_allclose(table["conversion"].to_numpy(), expected)


def test_a_study_compares_it_with_other_methods(tmp_path):
    grid = """
        name = "toy"
        seeds = 2
        crossfit = 2
        propensity_epochs = 2
        backbone = "mf"
        datasets = [{ name = "synthetic", options = { n_users = 40, n_items = 30, density = 0.25 } }]
        propensities = [{ key = "mf" }]
        calibrators = ["platt"]
        methods = ["naive", "snips", "damped-ips"]
    """
    (tmp_path / "toy.toml").write_text(grid, encoding="utf-8")
    assert main(["study", str(tmp_path / "toy.toml"), "--out", str(tmp_path / "out"), "--device", "cpu"]) == 0
    table = pq.read_table(tmp_path / "out" / "table.parquet").to_pylist()
    auc = {(line["method"], line["seed"]) for line in table if line["metric"] == "auc" and line["method"]}
    assert auc == {(method, seed) for method in ("naive", "snips", "damped-ips") for seed in (0, 1)}
    assert "damped-ips" in (tmp_path / "out" / "tables.md").read_text(encoding="utf-8")


def test_without_damping_it_is_snips_and_with_all_of_it_naive():
    world = us.load("synthetic", n_users=40, n_items=30, density=0.25)
    options = {"backbone": us.MF(dim=4), "epochs": 5, "learning_rate": 0.01, "selection": "ce"}
    for power, same in ((1.0, "snips"), (0.0, "naive")):
        toy = make_method("damped-ips", power=power, **options)
        values = [
            us.evaluate(model.fit(world.train, propensity=world.truth.propensity, seeds=2), world.test)["auc"]
            for model in (toy, make_method(same, **options))
        ]
        np.testing.assert_allclose(values[0], values[1], atol=1e-3)


def test_the_name_of_another_method_is_refused():
    taken = type("Mine", (DampedIPS,), {"name": "ips"})
    with pytest.raises(ParameterError, match=r"'ips' is there already \(IPS\).*rename yours"):
        register(taken)
    assert METHODS["ips"] is us.IPS


def test_defining_the_same_class_again_replaces_it():
    again = type("DampedIPS", (Debiaser,), {"name": "damped-ips", "__module__": DampedIPS.__module__})
    assert register(again) is again
    assert METHODS["damped-ips"] is again
    register(DampedIPS)


@pytest.mark.parametrize("thing", [dict, Debiaser, "ips"])
def test_what_is_no_method_is_refused(thing):
    with pytest.raises(ParameterError, match="is neither a Debiaser, Calibrator or Backbone with a name"):
        register(thing)
