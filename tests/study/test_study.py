"""Studies: a list of configurations, each result under its hash, resumed after a kill."""

from __future__ import annotations

import random
import shutil
import signal
import sys

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import torch

import unskew as us
from forked import Forked
from unskew.base.errors import CollapseWarning, ParameterError, RunFolderError, TrainingError, UnskewError
from unskew.base.own_code import load_own_code
from unskew.debias import METHODS
from unskew.study import workshop
from unskew.study.engine import run_study
from unskew.study.grid import NAMED, Row, named_study, read_study
from unskew.study.workshop import Workshop, digest_of

WORLD = {"n_users": 60, "n_items": 40, "density": 0.2}
BASE = {
    "data": {"source": "synthetic", "options": WORLD},
    "seeds": 2,
    "crossfit": 2,
    "learner": "mf",
    "device": "cpu",
    "model.parameters": {"learner.dim": 4, "propensity.epochs": 3, "method.epochs": 3},
}
GRID = {
    "method": ["naive", "ips", "stable-dr"],
    "propensity": ["mf", "constant"],
    "calibrator": ["none", "platt"],
}
TINY = {"name": "tiny", "base": BASE, "grid": GRID}


def tiny(base=(), **changes):
    return read_study({**TINY, **changes, "base": {**BASE, **dict(base)}})


def values(table, **wanted):
    table = table.filter(pc.is_in(table["part"], pc.cast(["propensity", "method"], "string")))
    for name, value in wanted.items():
        table = table.filter(pc.equal(table[name], value))
    return table["value"].to_numpy()


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    return run_study(tiny(), tmp_path_factory.mktemp("study") / "tiny")


@pytest.fixture
def counted(monkeypatch):
    """How often a propensity is trained, and how often a configuration is run."""
    count = {"propensity": 0, "run": 0}

    def counting(name, kind):
        inner = getattr(workshop, name)

        def wrapped(*given, **named):
            count[kind] += 1
            return inner(*given, **named)

        monkeypatch.setattr(workshop, name, wrapped)

    counting("fit_propensity", "propensity")
    counting("run", "run")
    return count


OWN = (
    "import unskew as us\nfrom dataclasses import dataclass\n"
    "@us.register\n@dataclass(kw_only=True)\nclass Mine(us.IPS):\n    name = 'mine-of-tests'\n"
)
"""A method of a user's own, which is IPS."""


@pytest.fixture
def own_method(tmp_path, monkeypatch):
    """What registers a method from its text."""
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def forget():
        if "mine-of-tests" in METHODS:
            del METHODS["mine-of-tests"]
        sys.modules.pop("with_mine", None)

    def load(text):
        forget()
        (tmp_path / "mine.py").write_text(text, encoding="utf-8")
        load_own_code(tmp_path / "mine.py")

    yield load
    forget()


class TestList:
    def test_the_grid_is_of_fields_and_runs_that_are_one_stand_once(self):
        assert tiny().rows == [
            Row("synthetic", "honest", "", "", "naive"),
            *(
                Row("synthetic", "honest", *of, method)
                for method in ("ips", "stable-dr")
                for of in (("mf", "none"), ("mf", "platt"), ("constant", "none"))
            ),
        ]

    def test_further_runs_and_what_they_differ_in(self):
        base = {"method": "ips", "learner": "mf", "seeds": 3}
        runs = [{"p_min": 0.1}, {"p_min": 0.2}, {"method": "naive"}]
        study = read_study({"name": "more", "base": base, "runs": runs}, seeds=4)
        assert [len(config.seeds) for config in study.configs] == [4, 4, 4]
        names = ["ips (p_min=0.1)", "ips (p_min=0.2)", "naive"]
        assert [row.method for row in study.rows] == names

    @pytest.mark.parametrize(
        ("method", "parameters", "takes"),
        [
            ("naive", {}, False),
            ("ips", {}, True),
            ("esmm", {}, False),
            ("escm2-ips", {}, True),
            ("escm2-ips", {"method.calibration": "in-loop"}, False),
        ],
    )
    def test_a_method_is_given_propensities_where_it_can_use_them(self, method, parameters, takes):
        (config,) = read_study(
            {"name": "x", "runs": [{"method": method, "propensity": "mf", "learner": "mf", **parameters}]}
        ).configs
        assert (config.propensity.kind == "mf") is takes

    @pytest.mark.parametrize("name", NAMED)
    def test_every_named_study_is_valid(self, name):
        configs = named_study(name, data="synthetic", seeds=2).configs
        assert {len(config.seeds) for config in configs} == {2}
        assert {config.crossfit for config in configs} == {5}

    @pytest.mark.parametrize(
        ("change", "line"),
        [
            ({"sedes": 3}, "there is no option sedes"),
            ({"base": {"sedes": 3}}, "no parameter 'sedes'"),
            ({"grid": {"method": ["ipss"]}}, "unknown method 'ipss'"),
            ({"grid": {"method": ["ips"], "method.pmin": [0.1]}}, "no parameter 'method.pmin'"),
            ({"grid": {"method": []}}, "grid.method must be"),
            ({"name": ".."}, r"'\.\.' cannot be a study's name"),
            ({"name": "x" * 300}, "use up to 100 letters"),
            ({"metrics": ["zzz"]}, "no metric is called 'zzz'. To fix: use one of auc"),
            ({"base": {"reverse": "no_clip", "method": "naive"}}, "no effect without --protocol paper"),
            ({"grid": {"method": ["ips"], "calibrator": ["plat"]}}, "unknown calibrator 'plat'"),
            ({"grid": {"method": ["ips"], "propensity": ["none"]}}, "ips cannot do without propensities"),
        ],
    )
    def test_a_mistake_is_one_line(self, change, line):
        with pytest.raises(UnskewError, match=line) as caught:
            read_study({"name": "x", "grid": {"method": ["naive"]}, **change})
        assert "\n" not in str(caught.value)

    def test_a_file_that_is_missing_or_not_toml_is_named(self, tmp_path):
        with pytest.raises(ParameterError, match=r"nothing\.toml: there is no such file"):
            read_study(tmp_path / "nothing.toml")
        (tmp_path / "bad.toml").write_text("name = ", encoding="utf-8")
        with pytest.raises(ParameterError, match=r"bad\.toml: is not TOML"):
            read_study(tmp_path / "bad.toml")


class TestNumbers:
    def test_propensities_and_models_are_those_of_the_library(self, done):
        data = us.load("synthetic", **WORLD)
        p = us.Propensity(learner=us.MF(dim=4), calibrator=us.Platt(), crossfit=2, epochs=3)
        p.fit(data.train, seeds=2, device="cpu")
        figures = p.diagnose(p_min="auto")
        for calibrator, kind in (("none", "raw"), ("platt", "calibrated")):
            for metric in ("ece", "nll", "auc", "weight_check"):
                found = values(
                    done.table, propensity="mf", calibrator=calibrator, metric=metric, part="propensity"
                )
                np.testing.assert_allclose(found, figures[kind]["per_seed"][metric], rtol=1e-9)
        for method in ("ips", "stable-dr"):
            model = METHODS[method](learner=us.MF(dim=4), epochs=3, p_min="auto")
            model.fit(data.train, propensity=p, seeds=2, device="cpu")
            found = values(done.table, method=method, propensity="mf", calibrator="platt", metric="auc")
            np.testing.assert_allclose(found, us.evaluate(model, data.test)["auc"], rtol=1e-4)

    def test_the_notes_have_the_folds_of_the_propensities_that_were_trained(self, done):
        assert [note for note in done.notes if "fold" in note] == [
            "model and calibrator held out: 2-fold cross-fitted"
        ]

    def test_a_constant_has_a_perfect_ece_and_no_discrimination(self, done):
        of = {"propensity": "constant", "part": "propensity"}
        assert values(done.table, metric="ece", **of) == pytest.approx(0.0, abs=1e-9)
        assert values(done.table, metric="auc", **of) == pytest.approx(0.5)
        assert values(done.table, metric="weight_check", **of) == pytest.approx(1.0)

    def test_the_true_propensity_is_there_where_the_data_have_it(self, tmp_path):
        study = tiny(grid={"method": ["none"], "propensity": ["true"]})
        table = run_study(study, tmp_path / "s").table
        assert values(table, metric="weight_check") == pytest.approx(1.0, abs=0.2)
        assert values(table, metric="auc").min() > 0.6

    def test_both_test_logs_are_measured_with_one_training(self, done, counted, tmp_path):
        both = run_study(tiny(both_tests=True, grid={"method": ["naive"]}), tmp_path / "s")
        assert counted["run"] == 1
        own, other = (
            values(both.table, dataset=name, method="naive", metric="auc")
            for name in ("synthetic", "synthetic (as shipped)")
        )
        np.testing.assert_array_equal(own, values(done.table, method="naive", metric="auc"))
        shipped = us.load("synthetic", **WORLD, protocol="paper").test
        model = us.Naive(learner=us.MF(dim=4), epochs=3)
        model.fit(us.load("synthetic", **WORLD).train, seeds=2, device="cpu")
        np.testing.assert_allclose(other, us.evaluate(model, shipped)["auc"], rtol=1e-4)


class TestResults:
    def test_a_propensity_is_trained_once_and_finished_runs_are_not_made_again(self, counted, tmp_path):
        first = run_study(tiny(), tmp_path / "s")
        assert counted == {"propensity": 1, "run": 7}
        again = run_study(tiny(), tmp_path / "s")
        assert again.table.equals(first.table)
        run_study(tiny(grid={**GRID, "method": [*GRID["method"], "snips"]}), tmp_path / "s")
        assert counted == {"propensity": 1, "run": 10}

    def test_mc_dropout_is_read_off_the_plain_network(self, counted, tmp_path):
        base = {"learner": "neumf", "model.parameters": {"learner.dim": 4, "propensity.epochs": 3}}
        network = {"kind": "neumf", "calibrator": "none"}
        kinds = [network, {**network, "uncertainty": "mc-dropout"}]
        table = run_study(tiny(base, grid={"method": ["none"], "propensity": kinds}), tmp_path / "s").table
        assert counted["propensity"] == 1
        plain, mc = (values(table, propensity=name, metric="nll") for name in ("neumf", "mc-dropout"))
        alone = tiny(base, grid={"method": ["none"], "propensity": kinds[1:]})
        of_itself = values(run_study(alone, tmp_path / "t").table, propensity="mc-dropout", metric="nll")
        np.testing.assert_array_equal(mc, of_itself)
        assert (mc != plain).all()

    def test_a_damaged_result_and_a_damaged_propensity_are_made_again(self, counted, done, tmp_path):
        folder = shutil.copytree(done.folder, tmp_path / "copy")
        (model,) = (path for path in (folder / "results").iterdir() if path.is_dir())
        (model / "propensity.safetensors").write_bytes(b"\xffhalf of a fi")
        for number, path in enumerate(sorted((folder / "results").glob("*.parquet"))):
            path.write_bytes(path.read_bytes()[: 50 if number % 2 else 0])
        again = run_study(tiny(), folder)
        assert counted == {"propensity": 1, "run": 7}
        np.testing.assert_array_equal(values(again.table), values(done.table))

    def test_what_a_killed_process_left_is_removed_and_two_at_once_are_refused(self, tmp_path):
        shop = Workshop(tmp_path / "results")
        with shop.opened():
            (tmp_path / "results" / ".k.parquet.partial-7").write_bytes(b"half")
            (tmp_path / "results" / ".m.partial-7").mkdir()
            with pytest.raises(RunFolderError, match="another study is running there"), shop.opened():
                pass
        with shop.opened():
            assert not list((tmp_path / "results").iterdir())

    def test_keys_change_with_the_configuration_the_data_and_the_code_of_a_method(self, tmp_path, own_method):
        log = tmp_path / "log.csv"
        log.write_text("user,item,conversion\na,x,1\nb,y,0\na,y,0\n", encoding="utf-8")

        def key(code=OWN, **changes):
            own_method(code)
            values = {"data": str(log), "method": "mine-of-tests", "cache": "none"}
            return Workshop(tmp_path).key(us.Config(**values, space="matrix", user="user", **changes))

        keys = [key(), key(seeds=3), key(OWN + "# other\n")]
        assert key() == keys[0]
        log.write_text("user,item,conversion\na,x,1\nb,y,0\n", encoding="utf-8")
        assert len({*keys, key()}) == 4
        assert digest_of(x=1) == digest_of(x=1) != digest_of(x=2)

    def test_a_folder_with_other_things_is_left_alone(self, tmp_path):
        (tmp_path / "mine.txt").write_text("x", encoding="utf-8")
        with pytest.raises(RunFolderError, match="holds other things than a study"):
            run_study(tiny(), tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]

    @pytest.mark.parametrize(
        ("base", "message"),
        [
            ({"data": "coat", "root": "/nowhere"}, "nowhere"),
            ({"data": "cot"}, "unknown dataset 'cot'"),
            ({"data": {"source": "synthetic", "options": {"n_users": "a"}}}, "n_users must be a whole"),
            ({"device": "tpu9"}, "'tpu9' is not a device"),
        ],
    )
    def test_what_cannot_be_run_is_refused_before_anything_is_written(self, tmp_path, base, message):
        with pytest.raises(UnskewError, match=message):
            run_study(tiny(base), tmp_path / "new" / "s")
        assert not list(tmp_path.iterdir())


def test_a_seed_that_diverges_is_told_and_the_others_are_kept(monkeypatch, tmp_path):
    fit_many = us.IPS.fit_many

    def breaking(self, log, *, propensities, seeds, **named):
        if 1 in seeds:
            raise TrainingError("the loss became nan", remedy="lower learning_rate")
        return fit_many(self, log, propensities=propensities, seeds=seeds, **named)

    study = tiny(grid={"method": ["naive", "ips"], "propensity": ["constant"]})
    whole = run_study(study, tmp_path / "whole")
    monkeypatch.setattr(us.IPS, "fit_many", breaking)
    result = run_study(study, tmp_path / "s")
    auc, unbroken = (values(each.table, method="ips", metric="auc") for each in (result, whole))
    assert list(auc) == pytest.approx(list(unbroken[:1]), rel=1e-4)
    assert list(values(result.table, method="ips", metric="diverged")) == [0.0, 1.0]
    assert any("ips constant none: 1 of 2 seeds diverged" in note for note in result.notes)


def test_networks_that_learned_nothing_are_marked_and_told_with_the_remedy(tmp_path):
    # No step is taken, so that every network is as flat as it began.
    flat = {"model.parameters": {"learner.dim": 4, "method.epochs": 1, "method.learning_rate": 1e-12}}
    study = tiny(flat, grid={"method": ["naive", "ips"], "propensity": ["constant"]})
    with pytest.warns(CollapseWarning):
        result = run_study(study, tmp_path / "s")
    assert list(values(result.table, method="ips", metric="collapsed:prediction:flat")) == [1.0, 1.0]
    (told,) = (note for note in result.notes if note.startswith("⚠ ips"))
    assert "ips constant none on synthetic: the network 'prediction' learned nothing in 2 of 2" in told
    assert "lower weight_decay" in told
    assert all(any("⚠" in cell for cell in row) for row in result.summaries()["methods"].shown().rows)


RESULTS = 8
"""Of the tiny study: the models of a propensity, and seven runs."""


def the_study(folder, threads, jobs):
    """What a process does."""
    torch.set_num_threads(threads)
    run_study(tiny(), folder, jobs=jobs)


def finished(folder):
    return list((folder / "results").glob("[!.]*"))


@pytest.mark.slow
def test_killed_twice_at_random_and_the_same_table_to_the_last_digit(done, tmp_path):
    """The first kill meets a new study, the second one that resumes."""
    assert len(finished(done.folder)) == RESULTS
    killed, threads = tmp_path / "killed", torch.get_num_threads()
    seed = random.SystemRandom().randrange(1 << 30)
    moments = random.Random(seed)
    for wanted in sorted(moments.sample(range(RESULTS - 1), 2)):
        process = Forked(__file__, "the_study", killed, threads, 1)
        while len(finished(killed)) < wanted or not (killed / "results").is_dir():
            ended = process.wait(0.01)
            assert ended is None, f"the study ended with {ended}, before it could be killed"
        process.wait(moments.uniform(0.0, 0.1))
        process.kill()
        assert process.ended()[0] in (-signal.SIGKILL, 0), f"it failed (moments from seed {seed})"
    code, _, error = Forked(__file__, "the_study", killed, threads, 1).ended()
    assert code == 0, error
    tables = [pq.read_table(folder / "table.parquet") for folder in (done.folder, killed)]
    whole, resumed = (table.filter(pc.not_equal(table["part"], "timing")) for table in tables)
    assert whole.equals(resumed), f"differs (seed {seed})"


@pytest.mark.slow
def test_several_processes_give_the_same_table_also_of_code_of_ones_own(done, own_method, tmp_path):
    own_method(OWN)
    study = tiny(grid={**GRID, "method": ["ips", "mine-of-tests"], "calibrator": ["platt"]})
    table = run_study(study, tmp_path / "s", jobs=2).table
    of = {"metric": "auc", "propensity": "mf", "calibrator": "platt"}
    expected = values(done.table, method="ips", **of)
    for method in ("ips", "mine-of-tests"):
        np.testing.assert_allclose(values(table, method=method, **of), expected, rtol=1e-6)
