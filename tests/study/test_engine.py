"""The engine: what is shared, what is kept, what a kill leaves, and that tuning sees validation alone."""

from __future__ import annotations

import dataclasses
import random
import shutil
import signal
from typing import ClassVar

import numpy as np
import pyarrow.compute as pc
import pytest
import torch

import unskew as us
from forked import Forked
from unskew.base.errors import CollapseWarning, ParameterError, RunFolderError, TrainingError, UnskewError
from unskew.data.datasets import Dataset
from unskew.debias import METHODS
from unskew.study import engine, trained
from unskew.study.engine import run_study
from unskew.study.grid import read_grid
from unskew.study.results import ResultStore, dataset_hash, result_key

TINY = {
    "name": "tiny",
    "seeds": 2,
    "crossfit": 2,
    "learner": {"name": "mf", "params": {"dim": 4}},
    "datasets": [{"name": "synthetic", "options": {"n_users": 60, "n_items": 40, "density": 0.2}}],
    "propensities": [{"key": "mf", "params": {"epochs": 3}}, "constant"],
    "calibrators": ["none", "platt"],
    "methods": [
        {"method": "naive", "params": {"epochs": 3}},
        {"method": "ips", "params": {"epochs": 3}},
        {"method": "stable-dr", "params": {"epochs": 2}},
    ],
}


def grid(**changes):
    return read_grid({**TINY, **changes})


def values(table, **wanted):
    table = table.filter(pc.not_equal(table["part"], "users"))
    for name, value in wanted.items():
        table = table.filter(pc.equal(table[name], value))
    return table["value"].to_numpy()


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return run_study(grid(), tmp_path_factory.mktemp("study") / "tiny", device="cpu")


@pytest.fixture
def counted(monkeypatch):
    """How often a propensity and a stack of models are trained."""
    count = {"propensity": 0, "stack": 0}

    def counting(module, name, kind):
        inner = getattr(module, name)

        def wrapped(*given, **named):
            count[kind] += 1
            return inner(*given, **named)

        monkeypatch.setattr(module, name, wrapped)

    counting(trained, "train_raw", "propensity")
    counting(engine, "run_stack", "stack")
    return count


class TestNumbers:
    def test_propensities_and_models_are_those_of_the_library(self, done):
        data = us.load("synthetic", n_users=60, n_items=40, density=0.2)
        p = us.Propensity(learner=us.MF(dim=4), calibrator=us.Platt(), crossfit=2, epochs=3)
        p.fit(data.train, seeds=2, device="cpu")
        figures = p.diagnose(p_min=0.01)
        for calibrator, kind in (("none", "raw"), ("platt", "calibrated")):
            for metric in ("ece", "nll", "auc", "weight_check"):
                found = values(
                    done.table, propensity="mf", calibrator=calibrator, metric=metric, part="propensity"
                )
                np.testing.assert_allclose(found, figures[kind]["per_seed"][metric], rtol=1e-9)
        for method in ("ips", "stable-dr"):
            model = METHODS[method](learner=us.MF(dim=4), epochs=3 if method == "ips" else 2)
            model.fit(data.train, propensity=p, seeds=2, device="cpu")
            found = values(done.table, method=method, propensity="mf", calibrator="platt", metric="auc")
            np.testing.assert_allclose(found, us.evaluate(model, data.test)["auc"], rtol=1e-4)

    def test_the_table_has_every_part_of_the_grid_once(self, done):
        table = done.table.filter(pc.equal(done.table["part"], "method"))
        keys = table.select(["propensity", "calibrator", "method", "seed", "metric"]).to_pylist()
        assert len({tuple(key.values()) for key in keys}) == len(keys)
        auc = [key for key in keys if key["metric"] == "auc"]
        # naive once; two methods with raw, Platt and constant propensities; two seeds
        assert len(auc) == 2 * (1 + 2 * 3)

    def test_a_constant_has_a_perfect_ece_and_no_discrimination(self, done):
        of = {"propensity": "constant", "part": "propensity"}
        assert values(done.table, metric="ece", **of) == pytest.approx(0.0, abs=1e-9)
        assert values(done.table, metric="auc", **of) == pytest.approx(0.5)
        assert values(done.table, metric="weight_check", **of) == pytest.approx(1.0)

    def test_the_true_propensity_is_there_where_the_data_have_it(self, tmp_path):
        result = run_study(grid(propensities=["true"], methods=[]), tmp_path / "s", device="cpu")
        assert values(result.table, metric="weight_check") == pytest.approx(1.0, abs=0.2)
        assert values(result.table, metric="auc").min() > 0.6


class TestResults:
    def test_a_propensity_is_trained_once_for_all_methods_and_stacks_hold_all_propensities(
        self, counted, tmp_path
    ):
        run_study(grid(), tmp_path / "s", device="cpu")
        assert counted == {"propensity": 1, "stack": 3}

    def test_finished_results_are_not_made_again_and_new_ones_are_added(self, done, counted, tmp_path):
        folder = shutil.copytree(done.folder, tmp_path / "copy")
        again = run_study(grid(), folder, device="cpu")
        assert again.table.to_pylist() == done.table.to_pylist()
        assert counted == {"propensity": 0, "stack": 0}
        more = [*TINY["methods"], {"method": "snips", "params": {"epochs": 2}}]
        run_study(grid(methods=more), folder, device="cpu")
        assert counted == {"propensity": 0, "stack": 1}

    def test_mc_dropout_is_read_off_the_plain_network(self, counted, tmp_path):
        neumf = {"name": "neumf", "params": {"dim": 4, "layers": [4]}}
        read = {"uncertainty": "mc-dropout", "calibrators": ["none"]}
        both = [{"key": "plain", "params": {"epochs": 3}}, {"key": "mc", "params": {"epochs": 3}, **read}]
        result = run_study(grid(propensities=both, learner=neumf, methods=[]), tmp_path / "s", device="cpu")
        assert counted["propensity"] == 1
        alone = run_study(
            grid(propensities=both[1:], learner=neumf, methods=[]), tmp_path / "t", device="cpu"
        )
        mc, of_itself, plain = (
            values(each.table, propensity=key, calibrator="none", metric="nll")
            for each, key in ((result, "mc"), (alone, "mc"), (result, "plain"))
        )
        np.testing.assert_array_equal(mc, of_itself)
        assert (mc != plain).all()

    def test_a_method_is_given_the_sets_that_it_names(self, done, tmp_path):
        methods = [
            {"method": "ips", "params": {"epochs": 3}, "propensity": ["mf platt"]},
            {"method": "dr-v2", "params": {"epochs": 2}, "propensity": ["constant none", ""]},
        ]
        table = run_study(grid(methods=methods), tmp_path / "s", device="cpu").table
        of = table.filter(pc.equal(table["part"], "method")).to_pylist()
        assert {(row["method"], row["propensity"], row["calibrator"]) for row in of} == {
            ("ips", "mf", "platt"),
            ("dr-v2", "constant", "none"),
            ("dr-v2", "", ""),
        }
        same = {"method": "ips", "propensity": "mf", "calibrator": "platt", "metric": "auc"}
        np.testing.assert_allclose(values(table, **same), values(done.table, **same), rtol=1e-4)

    def test_both_test_logs_are_measured_with_one_training(self, done, counted, tmp_path):
        both = run_study(grid(both_tests=True, propensities=[], methods=TINY["methods"][:1]), tmp_path / "s")
        assert counted["stack"] == 1
        naive = {"method": "naive", "metric": "auc"}
        own, other = (
            values(both.table, dataset=name, **naive) for name in ("synthetic", "synthetic (as shipped)")
        )
        np.testing.assert_array_equal(own, values(done.table, **naive))
        shipped = us.load("synthetic", n_users=60, n_items=40, density=0.2, protocol="paper").test
        model = us.Naive(learner=us.MF(dim=4), epochs=3)
        model.fit(us.load("synthetic", n_users=60, n_items=40, density=0.2).train, seeds=2, device="cpu")
        np.testing.assert_allclose(other, us.evaluate(model, shipped)["auc"], rtol=1e-4)

    def test_a_damaged_result_counts_as_missing(self, tmp_path):
        with ResultStore(tmp_path / "results").opened() as store:
            store.write("k", {"x": 1.5, "nan": float("nan")}, {"a": np.arange(3)})
            result = store.read("k")
            assert result.facts["x"] == 1.5
            assert np.isnan(result.facts["nan"])
            assert list(result.arrays["a"]) == [0, 1, 2]
            whole = store.path("k").read_bytes()
            store.path("k").write_bytes(whole[: len(whole) // 2])
            assert store.read("k") is None
            assert not store.has("k")

    def test_what_a_killed_process_left_is_removed_and_two_at_once_are_refused(self, tmp_path):
        store = ResultStore(tmp_path / "results")
        with store.opened():
            (tmp_path / "results" / ".k.npz.partial-7").write_bytes(b"half")
            (tmp_path / "results" / ".m.partial-7").mkdir()
            with pytest.raises(RunFolderError, match="another study is running there"), store.opened():
                pass
        with store.opened():
            assert not list((tmp_path / "results").iterdir())

    def test_keys_change_with_inputs_data_and_a_methods_own_source(self):
        first, second = (us.load("synthetic", n_users=30, n_items=20, seed=seed) for seed in (0, 1))
        assert dataset_hash(first) == dataset_hash(us.load("synthetic", n_users=30, n_items=20, seed=0))
        assert dataset_hash(first) != dataset_hash(second)
        read = first.with_features(["taste_0"])
        assert dataset_hash(first) != dataset_hash(read), "networks read features"
        assert result_key("a", x=1) != result_key("a", x=2) != result_key("b", x=2)

    def test_a_folder_with_other_things_is_left_alone(self, tmp_path):
        (tmp_path / "mine.txt").write_text("x", encoding="utf-8")
        with pytest.raises(RunFolderError, match="holds other things than a study"):
            run_study(grid(), tmp_path, device="cpu")
        assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]

    @pytest.mark.parametrize(
        "file", ["config.toml", "propensity.safetensors", "users.parquet", "calibrator.json"]
    )
    def test_a_damaged_propensity_is_trained_again(self, counted, tmp_path, file):
        small = grid(methods=[], calibrators=["none"])
        before = run_study(small, tmp_path / "s", device="cpu")
        (result,) = (path for path in (tmp_path / "s" / "results").iterdir() if path.is_dir())
        (result / file).write_bytes(b"\xffhalf of a fi")
        after = run_study(small, tmp_path / "s", device="cpu")
        assert counted["propensity"] == 2

        def figures(result):
            return values(result.table, part="propensity")

        np.testing.assert_array_equal(figures(after), figures(before))

    def test_a_study_killed_as_it_began_goes_on(self, tmp_path):
        with ResultStore(tmp_path / "s" / "results").opened():
            pass
        table = run_study(grid(propensities=["constant"], methods=[]), tmp_path / "s", device="cpu").table
        assert set(table["part"].to_pylist()) == {"propensity"}


BAD = [
    ({"datasets": [{"name": "coat", "root": "/nowhere"}]}, "cpu", "nowhere"),
    (
        {"datasets": [{"name": "synthetic", "options": {"n_users": "a"}}]},
        "cpu",
        "n_users must be a whole number",
    ),
    ({"learner": {"name": "mf", "params": {"dim": 0}}}, "cpu", "dim must be at least 1"),
    ({"crossfit": 1}, "cpu", "crossfit"),
    ({"propensities": [{"key": "p", "uncertainty": "mc-dropout"}]}, "cpu", "needs a learner with dropout"),
    ({"methods": [{"method": "ips", "params": {"selection": "zzz"}}]}, "cpu", "selection must be"),
    (
        {"methods": [{"method": "ips", "params": {"p_min": -1}}]},
        "cpu",
        r"p_min must be 'auto' or a number in \(0, 1\), not -1",
    ),
    ({"propensities": [{"key": "p", "params": {"negatives": -1}}]}, "cpu", "negatives must be None"),
    (
        {"tune": {"values": {"learning_rate": [float("inf")]}}},
        "cpu",
        "learning_rate must be above 0",
    ),
    ({"tune": {"values": {"learner__dim": [4, 0]}}}, "cpu", "dim must be at least 1"),
    ({}, "tpu9", "'tpu9' is not a device"),
]


@pytest.mark.parametrize(("change", "device", "message"), BAD)
def test_what_cannot_be_run_is_refused_before_anything_is_written(tmp_path, change, device, message):
    with pytest.raises(UnskewError, match=message):
        run_study(grid(**change), tmp_path / "new" / "s", device=device)
    assert not list(tmp_path.iterdir())


def test_a_command_that_fails_leaves_the_study_that_is_there(done):
    before = (done.folder / "grid.json").read_bytes()
    with pytest.raises(ParameterError, match="epochs must be at least 1"):
        run_study(grid(propensities=[{"key": "p", "params": {"epochs": 0}}]), done.folder, device="cpu")
    assert (done.folder / "grid.json").read_bytes() == before


def test_true_propensities_of_real_data_are_refused_before_anything_is_written(tmp_path, monkeypatch):
    data = dataclasses.replace(us.load("synthetic", n_users=30, n_items=20), truth=None)
    monkeypatch.setattr("unskew.study.grid.load", lambda *given, **named: data)
    with pytest.raises(ParameterError, match="has no true propensities"):
        run_study(grid(propensities=["true"], methods=[]), tmp_path / "s", device="cpu")
    assert not list(tmp_path.iterdir())


class TestDivergence:
    def test_a_seed_that_diverges_is_told_and_the_others_are_kept(self, monkeypatch, tmp_path):
        fit_many = us.IPS.fit_many

        def breaking(self, log, *, propensities, seeds, **named):
            if 1 in seeds:
                raise TrainingError("the loss became nan", remedy="lower learning_rate")
            return fit_many(self, log, propensities=propensities, seeds=seeds, **named)

        whole = run_study(grid(propensities=["constant"]), tmp_path / "whole", device="cpu")
        monkeypatch.setattr(us.IPS, "fit_many", breaking)
        result = run_study(grid(propensities=["constant"]), tmp_path / "s", device="cpu")
        auc, unbroken = (values(each.table, method="ips", metric="auc") for each in (result, whole))
        assert auc[0] == pytest.approx(unbroken[0], rel=1e-4)
        assert np.isnan(auc[1])
        assert list(values(result.table, method="ips", metric="diverged")) == [0.0, 1.0]
        assert any("ips constant none: 1 of 2 seeds diverged" in note for note in result.notes)


class TestCollapse:
    def test_networks_that_learned_nothing_are_marked_and_told_with_the_remedy(self, tmp_path):
        # No step is taken, so that every network is as flat as it began.
        methods = [
            {"method": name, "params": {"epochs": 1, "learning_rate": 1e-12}} for name in ("naive", "ips")
        ]
        with pytest.warns(CollapseWarning):
            result = run_study(grid(propensities=["constant"], methods=methods), tmp_path / "s", device="cpu")
        found = values(result.table, method="ips", metric="collapsed:prediction:flat")
        assert list(found) == [1.0, 1.0]
        (told,) = (note for note in result.notes if note.startswith("⚠ ips"))
        assert "ips constant none on synthetic: the network 'prediction' learned nothing in 2 of 2" in told
        assert "lower weight_decay" in told
        shown = result.summaries()["methods"].shown()
        assert all(any("⚠" in cell for cell in row) for row in shown.rows)


class TestTuning:
    TUNE: ClassVar = {"values": {"learning_rate": [1e-4, 0.05], "learner__dim": [2, 4]}, "methods": ["ips"]}

    def test_the_choice_has_the_lowest_validation_loss_and_the_search_is_in_the_table(self, tmp_path):
        tuned = grid(tune=self.TUNE, methods=TINY["methods"][:2])
        result = run_study(tuned, tmp_path / "s", device="cpu")
        search = result.table.filter(pc.equal(result.table["part"], "search")).to_pylist()
        losses = {}
        for row in search:
            if row["metric"].startswith("validation_loss"):
                losses.setdefault(row["metric"], []).append(row["value"])
        assert len(losses) == 4
        best = min(losses, key=lambda name: np.mean(losses[name]))
        chosen = {row["metric"]: row["value"] for row in search if row["metric"].startswith("chosen")}
        rate, dim = chosen["chosen[learning_rate]"], chosen["chosen[learner__dim]"]
        assert best == f"validation_loss[learning_rate={rate}, learner__dim={dim:.0f}]"
        assert {row["method"] for row in search} == {"ips"}

    @pytest.mark.parametrize("tried", [{"p_min": [0.01, 0.5]}, {"selection": ["snips", "ce"]}])
    def test_the_same_model_has_the_same_loss_whatever_weights_a_trial_would_have(self, tmp_path, tried):
        """Models that learn nothing differ in their weights alone, which are those of the untuned method."""
        method = {"method": "ips", "params": {"epochs": 1, "learning_rate": 1e-12}}
        wide = {"name": "mf", "params": {"dim": 4, "init_std": 1.0}}
        tuned = grid(methods=[method], learner=wide, tune={"values": tried}, calibrators=["none"])
        result = run_study(tuned, tmp_path / "s", device="cpu")
        search = result.table.filter(pc.equal(result.table["part"], "search")).to_pylist()
        by_trial = {}
        for row in search:
            if row["metric"].startswith("validation_loss"):
                by_trial.setdefault(row["metric"], []).append(row["value"])
        first, second = by_trial.values()
        np.testing.assert_allclose(first, second, rtol=1e-6)
        assert len(set(first)) > 1, "weights by the propensities differ from those of a constant"

    def test_the_search_never_sees_the_test_log(self, monkeypatch, tmp_path):
        seen = []
        inner = trained.evaluate_users
        monkeypatch.setattr(
            trained, "evaluate_users", lambda model, test: seen.append(model.name) or inner(model, test)
        )
        run_study(grid(tune=self.TUNE, propensities=["constant"]), tmp_path / "s", device="cpu")
        assert seen == ["naive", "ips", "stable-dr"]


RESULTS = 9
"""Of the tiny study: a trained propensity, two calibrators on rows and on D, a constant, three methods."""


def the_study(folder, threads):
    """What a process does."""
    torch.set_num_threads(threads)
    run_study(read_grid(TINY), folder, device="cpu")


def finished_results(folder):
    return [
        path
        for path in (folder / "results").glob("*")
        if path.suffix in ("", ".npz") and not path.name.startswith(".")
    ]


@pytest.mark.slow
def test_killed_twice_at_random_and_the_same_table_to_the_last_digit(done, tmp_path):
    """The first kill meets a new study, the second one that resumes."""
    whole = done.folder
    assert len(finished_results(whole)) == RESULTS
    killed = tmp_path / "killed"
    seed = random.SystemRandom().randrange(1 << 30)
    moments = random.Random(seed)
    for finished in sorted(moments.sample(range(RESULTS - 1), 2)):
        process = Forked(__file__, "the_study", killed, torch.get_num_threads())
        while len(finished_results(killed)) < finished or not (killed / "results").is_dir():
            ended = process.wait(0.01)
            assert ended is None, f"the study ended with {ended}, before it could be killed"
        process.wait(moments.uniform(0.0, 0.1))
        process.kill()
        assert process.ended()[0] in (-signal.SIGKILL, 0), f"it failed (moments from seed {seed})"
    code, _, error = Forked(__file__, "the_study", killed, torch.get_num_threads()).ended()
    assert code == 0, error
    for name in ("table.csv", "table.parquet", "users.parquet"):
        assert (whole / name).read_bytes() == (killed / name).read_bytes(), f"{name} differs (seed {seed})"


def test_the_hash_of_a_dataset_is_that_of_its_text_ids_and_not_of_their_place_in_memory():
    def dataset(first: str) -> Dataset:
        users = [f"{first} and a text that does not fit sixteen bytes", "b", "b", "c"]
        log = us.Log.from_arrays(user=users, item=["x", "y", "x", "y"], conversion=[0, 1, 0, 1])
        return Dataset(name="files", train=log, test=None, validation=None, facts={})

    assert dataset_hash(dataset("a")) == dataset_hash(dataset("a"))
    assert dataset_hash(dataset("a")) != dataset_hash(dataset("z"))
