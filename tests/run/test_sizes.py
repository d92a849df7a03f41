"""Sizes by the data: as they were for small logs, larger batches and narrower tables for large ones."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import unskew as us
from unskew.base.errors import ParameterError
from unskew.cli import main
from unskew.data import Schema
from unskew.run.protocol import protocol_of
from unskew.run.sizes import (
    PLATEAU_STEPS,
    estimate_in_words,
    sized,
    sizes_of,
)

SMALL = {"n_users": 40, "n_items": 30, "density": 0.2}


def log_of(*, clicks, users, items, rows=None):
    """All that sizes are chosen by."""

    class Counted(SimpleNamespace):
        def __len__(self):
            return rows or clicks

    return Counted(
        n_clicks=clicks,
        n_users=users,
        n_items=items,
        space="matrix" if rows is None else "impressions",
        population_size=users * items if rows is None else rows,
        known_propensity=None,
        schema=Schema.of_ids(users, items),
    )


COAT = log_of(clicks=6_960, users=290, items=300)
LARGE = log_of(clicks=10**6, users=10**6, items=10**5, rows=10**7)


def test_a_run_has_one_seed_one_member_and_two_folds():
    config = us.Config()
    assert (list(config.seeds), config.model.members, config.crossfit) == ([0], 1, 2)


def test_the_papers_protocol_has_ten_seeds_and_the_patience_of_each_class():
    config = us.Config(protocol="paper", device="cpu")
    assert list(config.seeds) == list(range(10))
    assert list(us.Config(protocol="paper", seeds=2).seeds) == [0, 1]
    method = protocol_of(config).method("escm2-dr", us.MF(), 0.1)
    assert method.patience == us.ESCM2DR().patience
    assert sizes_of(config, LARGE) == {}


def test_early_stopping_of_a_run_waits_for_three_epochs_or_as_long_as_is_asked():
    options = {"propensity": "mf", "learner": "mf", "method": "ips", "options": SMALL}
    short = us.run(us.Config(**options))
    assert {model.patience for model in short.models.values()} == {3}
    long = us.run(us.Config(**options, parameters={"training.patience": 7}))
    assert {model.patience for model in long.models.values()} == {7}
    assert long.propensity.patience == 7


def test_a_large_log_is_checked_within_an_epoch():
    data = us.load("synthetic", **SMALL)
    options = {"learner": us.MF(dim=2), "batch_size": 16, "epochs": 2, "patience": 50, "checks": 3}
    propensity = us.Propensity(**options, crossfit=None).fit(data.train)
    assert len(propensity.history_.validation) == 2 * 3
    model = us.ESCM2DR(**options).fit(data.train)
    assert len(model.history_.validation) == 2 * 3
    assert (
        len(us.IPS(**{**options, "patience": None}).fit(data.train, propensity=0.2).history_.train["ips"])
        == 2
    )


def test_a_small_log_has_the_batches_of_the_paper_and_waits_for_a_number_of_steps():
    config = us.Config(data="coat", device="cpu")
    sizes = sizes_of(config, COAT)
    assert list(sizes) == ["propensity.patience"]
    steps = 290 * 300 / 2 / 1024
    assert sizes["propensity.patience"] - 1 < PLATEAU_STEPS / steps <= sizes["propensity.patience"]
    assert sizes_of(us.Config(propensity_epochs=5), COAT) == {}


def test_a_large_log_has_large_batches_and_narrow_tables():
    config = us.Config(device="cpu")
    sizes = sizes_of(config, LARGE)
    assert sizes == {
        "method.checks": 3,
        "propensity.batch_size": 8192,
        "propensity.checks": 2,
        "learner.dim": 16,
    }
    assert sized(config, sizes).model.parameters["learner.dim"] == 16
    sentence = estimate_in_words(config, LARGE, 300.0)
    assert "1 seed, 2 folds; sizes by the data: method.checks = 3" in sentence
    assert sentence.endswith("(--set changes them); this takes about 5 min")


def test_networks_that_read_features_have_batches_whose_activations_a_cpu_can_hold():
    sizes = sizes_of(us.Config(learner="dcn", device="cpu"), LARGE)
    assert sizes == {"method.checks": 3, "propensity.batch_size": 2048, "propensity.checks": 9}


@pytest.mark.parametrize("name", ["training.batch_size", "method.batch_size", "learner.dim"])
def test_what_is_set_by_hand_stays(name):
    config = us.Config(parameters={name: 64}, device="cpu")
    sizes = sizes_of(config, LARGE)
    assert name not in sizes
    assert sized(config, sizes).model.parameters[name] == 64
    if name == "training.batch_size":
        assert "propensity.batch_size" not in sizes


class TestEstimate:
    @pytest.fixture(autouse=True)
    def _a_row_takes_ten_milliseconds(self, monkeypatch):
        monkeypatch.setattr("unskew.run.sizes.seconds_of_row", lambda *_: 1e-2)
        # How much longer a busy machine takes for these depends on the machine.
        monkeypatch.setattr("unskew.run.sizes.REPORT_SECONDS", 0.0)
        monkeypatch.setattr("unskew.run.sizes.ROW_SECONDS", 0.0)

    def test_a_run_of_some_time_says_how_long_and_how_to_get_a_papers_table(
        self, capsys, tmp_path, monkeypatch
    ):
        monkeypatch.chdir(tmp_path)
        options = [f"--option={name}={value}" for name, value in SMALL.items()]
        assert main(["run", *options, "--learner", "mf", "--propensity", "popularity"]) == 0
        said = capsys.readouterr()
        assert "1 seed, 2 folds; this takes about " in said.err
        assert said.out.endswith("For a paper's table: --effort thorough --members 10\n")


def test_impossible_numbers_are_refused():
    with pytest.raises(ParameterError, match=r"--members .* must be at least 1, not 0"):
        us.Config(members=0)
    with pytest.raises(ParameterError, match=r"members has an option of its own.*--members"):
        us.Config(parameters={"method.members": 2})


def test_a_run_tells_the_sizes_that_its_data_chose(monkeypatch):
    monkeypatch.setattr("unskew.run.sizes.MANY_IDS", 10)
    config = us.Config(
        options=SMALL, propensity="popularity", method="naive", parameters={"method.epochs": 1}
    )
    result = us.run(config)
    assert "sizes by the data: learner.dim = 16" in result.metrics["labels"]
    assert "set: method.epochs = 1" in result.metrics["labels"]
    assert result.models["naive"].learner.dim == 16
