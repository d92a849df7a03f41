"""The main job and its folder: what a run tells, and that it is whole or not there."""

from __future__ import annotations

import inspect
import json
import tomllib
import warnings

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import unskew as us
from unskew.base.errors import ParameterError, RunFolderError
from unskew.cli import main
from unskew.debias.evaluation import evaluate
from unskew.propensity import InSampleWarning
from unskew.report.plots.methods import metric_charts
from unskew.run import result as run_result

WORLD = {"options": {"n_users": 60, "n_items": 40, "density": 0.15}, "learner": "mf", "crossfit": 2}
SMALL = {**WORLD, "propensity": "mf", "method": "ips"}
PROPENSITY = {
    "ece",
    "ece_floor",
    "wce",
    "nll",
    "brier",
    "auc",
    "auc_of_chance",
    "mean_over_base_rate",
    "weight_check",
    "effective_sample_size",
    "clipped",
    "clipped_mass",
    "collapsed",
}
RANKING = {f"{name}@{k}" for name in ("dcg", "hits", "recall", "ndcg") for k in (2, 4, 6)}
FILES = {
    "MODEL_CARD.md",
    "calibrator.json",
    "config.toml",
    "items.parquet",
    "manifest.json",
    "metrics.json",
    "overview.svg",
    "model.safetensors",
    "propensities.parquet",
    "propensity.safetensors",
    "report.html",
    "schema.json",
    "users.parquet",
}


@pytest.fixture(scope="module")
def result():
    return us.run(us.Config(**SMALL, seeds=2, seed=5))


@pytest.fixture
def drawn(monkeypatch):
    """No figures are drawn where they do not matter."""
    monkeypatch.setattr("unskew.report.render_run_report", lambda **told: "<html></html>")
    monkeypatch.setattr("unskew.report.overview_svg", lambda **told: "<svg/>")


@pytest.fixture
def folder(result, tmp_path, drawn):
    result.save(tmp_path / "run")
    return tmp_path / "run"


def test_python_gives_exactly_what_the_command_gives(tmp_path, capsys):
    world = ["--option", "n_users=40", "--option", "n_items=30", "--option", "density=0.2"]
    small = [
        "--method",
        "ips",
        "--learner",
        "mf",
        "--crossfit",
        "2",
        "--seeds",
        "2",
        "--propensity-epochs",
        "3",
    ]
    assert main(["run", *world, *small, "--device", "cpu", "--out", str(tmp_path / "command")]) == 0
    options = {"n_users": 40, "n_items": 30, "density": 0.2}
    config = us.Config(
        options=options, method="ips", learner="mf", crossfit=2, seeds=2, propensity_epochs=3, device="cpu"
    )
    result = us.run(config)
    result.save(tmp_path / "python")
    ours, theirs = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("python", "command")
    )
    assert set(ours) == FILES
    assert ours == theirs
    assert ours["report.html"].decode() == result.report()
    printed = capsys.readouterr().out
    assert all(finding.short in printed for finding in result.findings)


def test_the_calibrator_is_auto_unless_named_and_the_papers_is_platt():
    assert us.Config().calibrator == us.Propensity().calibrator.name == "auto"
    assert inspect.signature(us.weights).parameters["calibrator"].default == "auto"
    assert us.Config(protocol="paper").calibrator == "platt"
    assert us.Config(protocol="paper", calibrator="beta").calibrator == "beta"


class TestMetrics:
    def test_what_learned_nothing_is_counted_for_each_model(self, result):
        told = result.metrics["collapsed"]
        trained = {"propensity": result.propensity, **result.models}
        assert set(told) == {"propensity", "naive", "ips_raw", "ips"}
        for key, model in trained.items():
            expected = {(each.network.split(",")[0], each.seed, each.reason) for each in model.collapsed_}
            assert sum(each["seeds"] for each in told[key]) == len(expected)
            assert all(each["of"] == 2 for each in told[key])

    def test_data_are_told(self, result):
        log, told = result.dataset.train, result.metrics["data"]
        assert told["name"] == "synthetic"
        assert (told["users"], told["items"], told["population"]) == (60, 40, 2400)
        assert told["clicks"] == log.n_clicks
        assert told["density"] == log.density
        assert told["test_rows"] == len(result.dataset.test)
        assert told["leaked_cells_dropped"] == told["leaked_cells_found"] > 0

    def test_propensities_are_judged_raw_and_calibrated(self, result):
        told = result.metrics["propensity"]
        assert set(told) == {"raw", "calibrated"}
        again = result.propensity.diagnose(result.dataset.train)
        for kind, figures in told.items():
            assert set(figures) >= PROPENSITY
            for name in PROPENSITY:
                assert figures[name] == pytest.approx(again[kind][name], rel=1e-5), name

    def test_methods_have_every_metric_with_mean_deviation_and_seeds(self, result):
        methods = result.metrics["methods"]
        assert set(methods) == {"naive", "ips_raw", "ips"}
        for of_method in methods.values():
            assert set(of_method) >= {"auc", "user_auc"} | RANKING
            for told in of_method.values():
                assert len(told["seeds"]) == 2
                assert told["mean"] == pytest.approx(np.mean(told["seeds"]))
                assert told["std"] == pytest.approx(np.std(told["seeds"], ddof=1))

    def test_they_are_those_of_the_models_on_the_test_log(self, result):
        for key, model in result.models.items():
            again = us.evaluate(model, result.dataset.test)
            for name, values in again.items():
                assert result.metrics["methods"][key][name]["seeds"] == pytest.approx(values)

    def test_the_weighted_models_had_the_raw_and_the_calibrated_propensities(self, result):
        log = result.dataset.train
        for key, calibrated in (("ips_raw", False), ("ips", True)):
            p = result.propensity.predict_each(log, calibrated=calibrated)[:, log.clicked]
            told = result.models[key].clipping_
            assert [line.weight_check for line in told] == pytest.approx(
                (1 / p).sum(axis=1) / log.population_size
            )
        assert result.models["naive"].clipping_ is None

    def test_differences_to_naive_are_tested_and_corrected(self, result):
        comparison = result.metrics["comparison"]
        assert set(comparison) == {"ips_raw", "ips"}
        methods = result.metrics["methods"]
        for key, of_method in comparison.items():
            assert set(of_method) >= {"auc", "user_auc"} | RANKING
            for name, told in of_method.items():
                seeds = [np.array(methods[k][name]["seeds"]) for k in (key, "naive")]
                if name == "mean_over_rate":
                    seeds = [np.abs(each - 1) for each in seeds]
                assert told["difference"] == pytest.approx(np.mean(seeds[0] - seeds[1]), abs=1e-12)
                assert told["low"] <= told["difference"] <= told["high"]
                assert told["p_value"] <= told["p_holm"] <= 1

    def test_differences_need_no_second_seed(self, drawn):
        one = us.run(us.Config(**SMALL, seeds=1, seed=5))
        methods, comparison = one.metrics["methods"], one.metrics["comparison"]
        assert set(comparison) == {"ips_raw", "ips"}
        for of_method in comparison.values():
            for told in of_method.values():
                assert told["low"] <= told["difference"] <= told["high"]
                assert 0 <= told["p_value"] <= told["p_holm"] <= 1
        assert any(told["low"] < told["high"] for told in comparison["ips"].values())
        improved = next(each for each in one.findings if each.question == "Did debiasing help?")
        assert "95 % interval over test users" in improved.text
        for name in ("auc", "mean_over_rate"):
            (chart,) = metric_charts(methods, metrics=[name])
            for row, told in zip(chart.rows, methods.values(), strict=True):
                assert (row.dots[0].low, row.dots[0].high) == (told[name]["low"], told[name]["high"])

    def test_means_have_an_interval_over_test_users(self, result):
        test = result.dataset.test
        for key, of_method in result.metrics["methods"].items():
            found = evaluate(result.models[key], test)
            for name, told in of_method.items():
                margin = 1.959964 * found.resampled[name].mean(axis=0).std(ddof=1)
                ends = (told["low"], told["high"])
                assert ends == pytest.approx((told["mean"] - margin, told["mean"] + margin), rel=1e-6), name

    def test_rails_frame_every_ranking_metric(self, result):
        rails = result.metrics["rails"]
        assert set(rails) == {"random", "oracle"}
        for name in RANKING:
            assert rails["random"][name] < rails["oracle"][name]
            for of_method in result.metrics["methods"].values():
                assert of_method[name]["mean"] <= rails["oracle"][name] + 1e-12

    def test_the_truth_has_every_estimate_and_its_parts(self, result):
        truth = result.metrics["truth"]
        estimates = truth["estimates"]
        assert set(estimates) == {"naive", "ips_raw", "ips", "ips_true", "ips_constant"}
        assert estimates["ips_constant"]["estimate"] == pytest.approx(estimates["naive"]["estimate"])
        for name, told in estimates.items():
            assert told["bias"] == pytest.approx(truth["ideal_loss"] - told["expected"])
            if name != "naive":
                parts = told["calibration_part"] + told["refinement_part"]
                assert parts == pytest.approx(told["bias"])

    def test_labels_say_what_was_done(self, result):
        assert result.metrics["protocol"] == "honest"
        assert any("2-fold cross-fitted" in label for label in result.metrics["labels"])
        assert not any("paper" in label for label in result.metrics["labels"])


class TestPropensity:
    def test_the_default_is_chosen_on_held_out_clicks_and_told(self):
        result = us.run(us.Config(**WORLD, method="ips", seeds=2))
        told = result.metrics["propensity_by"]
        figures = {each["name"]: each["nll"] for each in told["candidates"]}
        assert told["asked"] == "auto"
        assert set(figures) == {"linear", "trees", "blend", "popularity", "mf"}
        assert figures[told["chosen"]] == min(figures.values())
        assert result.metrics["labels"][0] == told["sentence"]
        assert told["sentence"] in result.report()
        assert result.propensity.seeds_ == (0, 1)

    def test_what_only_a_network_has_asks_for_one(self):
        assert us.Config(propensity_epochs=3).needs_network == "propensity_epochs"
        told = us.run(us.Config(**WORLD, seeds=1, propensity_epochs=1, method="naive")).metrics
        assert told["propensity_by"]["chosen"] == "mf"
        assert told["labels"][0] == "propensity by mf, since propensity_epochs is of a network"
        with pytest.raises(ParameterError, match="'popularity' has no propensity_epochs"):
            us.Config(propensity="popularity", propensity_epochs=3)

    @pytest.mark.parametrize("name", ["popularity", "trees", "naive-bayes"])
    def test_it_may_be_of_any_kind_and_its_folder_is_read(self, name, tmp_path):
        result = us.run(us.Config(**WORLD, propensity=name, seeds=1, method="naive"))
        assert result.metrics["propensity_by"]["chosen"] == name
        assert not any("stopped early" in label for label in result.metrics["labels"])
        result.save(tmp_path / "run")
        us.load_model(tmp_path / "run")
        assert us.load_propensity(tmp_path / "run") is not None

    def test_naive_bayes_is_not_tested_on_what_it_saw(self):
        result = us.run(us.Config(**WORLD, propensity="naive-bayes", seeds=1, method="naive"))
        assert result.dataset.test is result.propensity.unseen_
        assert "truth" not in result.metrics
        with pytest.raises(ParameterError, match="stable-dr needs propensities of all of D: naive bayes has"):
            us.run(us.Config(**WORLD, propensity="naive-bayes", seeds=1, method="stable-dr"))


def test_the_paper_protocol_labels_every_choice_and_keeps_leaked_cells():
    told = us.run(
        us.Config(**{**SMALL, "crossfit": None}, seeds=1, protocol="paper", propensity_epochs=2)
    ).metrics
    assert told["protocol"] == "paper"
    assert all(label.startswith("paper protocol") for label in told["labels"])
    assert told["data"]["leaked_cells_dropped"] == 0 < told["data"]["leaked_cells_found"]
    # Nothing is held out and negatives are 1:1, so the scores are no propensities over D, and it shows.
    assert told["propensity"]["raw"]["weight_check"] < 0.6


def test_one_seed_has_no_deviation_and_is_not_compared():
    told = us.run(us.Config(**{**SMALL, "method": "naive"}, seeds=1, propensity_epochs=1)).metrics
    assert set(told["methods"]) == {"naive"}
    assert told["methods"]["naive"]["auc"]["std"] is None
    assert told["comparison"] == {}


def test_without_a_calibrator_raw_and_calibrated_are_the_same():
    options = {**SMALL, "seeds": 1, "calibrator": "none", "propensity_epochs": 1}
    told = us.run(us.Config(**options)).metrics["propensity"]
    assert told["raw"] == told["calibrated"]


@pytest.mark.parametrize("space", ["matrix", "impressions"])
def test_files_without_a_test_log_give_propensities_and_models(space, tmp_path, drawn):
    random = np.random.default_rng(0)
    cells = random.permutation(30 * 20)[:400]
    click = (random.random(400) < 0.4).astype(int)
    table = {
        "user": cells // 20,
        "item": cells % 20,
        "click": click,
        "conversion": np.where(click == 1, cells % 3 == 0, 0).astype(int),
    }
    pyarrow.csv.write_csv(pyarrow.table(table), tmp_path / "clicks.csv")
    options = {"train": str(tmp_path / "clicks.csv"), "click": "click", "conversion": "conversion"}
    config = us.Config(
        data="files",
        options={**options, "space": space},
        method="ips",
        learner="mf",
        crossfit=2,
        seeds=1,
        propensity_epochs=2,
    )
    result = us.run(config)
    assert result.metrics["methods"] == {}
    assert "truth" not in result.metrics
    assert result.metrics["data"]["population"] == (600 if space == "matrix" else 400)
    assert set(result.models) == {"naive", "ips_raw", "ips"}
    result.save(tmp_path / "run")
    assert us.load_model(tmp_path / "run").predict(result.dataset.train) == pytest.approx(
        result.models["ips"].predict(result.dataset.train)
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seeds": 0}, "--seeds .* must be at least 1, not 0"),
        ({"seed": -1}, "--seed .* must be at least 0, not -1"),
        ({"p_min": 0.0}, r"p_min must be 'auto' or a number in \(0, 1\), not 0.0"),
    ],
)
def test_what_cannot_be_run_is_told_before_any_work(options, message):
    with pytest.raises(ParameterError, match=message):
        us.Config(**options)


class TestFolder:
    def test_it_holds_plain_files_and_nothing_is_beside_it(self, folder):
        assert {path.name for path in folder.iterdir()} == FILES
        assert [path.name for path in folder.parent.iterdir()] == ["run"]

    def test_metrics_are_json_without_nan(self, folder, result):
        def refuse(constant):
            raise AssertionError(f"{constant} is not JSON")

        told = json.loads((folder / "metrics.json").read_text(), parse_constant=refuse)
        assert set(told) >= {"data", "propensity", "methods", "truth", "protocol", "labels"}
        assert told["methods"]["ips"]["auc"] == result.metrics["methods"]["ips"]["auc"]

    def test_the_config_tells_the_run_again(self, folder, result):
        told = tomllib.loads((folder / "config.toml").read_text())
        assert told["unskew"] == us.__version__
        assert told["main"] == "ips"
        assert told["run"]["data"]["options"] == SMALL["options"]
        assert us.Config(**told["run"]) == result.config
        assert set(told["methods"]) == {"naive", "ips_raw", "ips"}
        assert told["methods"]["ips"]["seeds"] == [5, 6]

    def test_propensities_are_there_for_every_row_with_their_weights(self, folder, result):
        log = result.dataset.train
        table = pq.read_table(folder / "propensities.parquet").to_pydict()
        np.testing.assert_array_equal(table["user"], log.user)
        np.testing.assert_array_equal(table["item"], log.item)
        p = result.propensity.predict(log)
        np.testing.assert_allclose(table["propensity"], p)
        np.testing.assert_allclose(table["propensity_raw"], result.propensity.predict(log, calibrated=False))
        clip = result.metrics["p_min"]
        assert 0.0 < clip < p.max()
        np.testing.assert_allclose(table["weight"], 1 / np.maximum(p, clip))
        np.testing.assert_array_equal(table["clipped"], p < clip)

    def test_models_and_propensity_come_back(self, folder, result):
        log = result.dataset.test
        for key, model in result.models.items():
            np.testing.assert_array_equal(
                us.load_model(folder, key).predict_each(log), model.predict_each(log)
            )
        np.testing.assert_array_equal(
            us.load_model(folder).predict(log), result.models["ips"].predict(log), "ips is the main one"
        )
        np.testing.assert_array_equal(
            us.load_propensity(folder).predict_each(log), result.propensity.predict_each(log)
        )

    @pytest.mark.parametrize("error", [OSError("disk full"), KeyboardInterrupt()])
    @pytest.mark.parametrize("broken", ["write_models", "write_propensity", "write_config", "write_json"])
    def test_nothing_is_left_of_a_failure(self, result, drawn, tmp_path, monkeypatch, broken, error):
        def fail(*arguments):
            raise error

        monkeypatch.setattr(run_result, broken, fail)
        with pytest.raises(type(error)):
            result.save(tmp_path / "run")
        assert not list(tmp_path.iterdir())

    def test_an_earlier_run_survives_the_failure_of_a_later_one(self, result, folder, monkeypatch):
        def fail(*arguments):
            raise OSError("disk full")

        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        monkeypatch.setattr(run_result, "write_json", fail)
        with pytest.raises(OSError, match="disk full"):
            result.save(folder, overwrite=True)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
        assert [path.name for path in folder.parent.iterdir()] == ["run"]

    def test_an_earlier_run_is_replaced_on_request_and_only_then(self, result, folder):
        with pytest.raises(RunFolderError, match=r"holds a run already.*--overwrite"):
            result.save(folder)
        (folder / "report.html").write_text("old")
        (folder / "notes.txt").write_text("a person's")
        with pytest.raises(RunFolderError, match=r"'notes.txt' which does not belong to it"):
            result.save(folder, overwrite=True)
        (folder / "notes.txt").unlink()
        result.save(folder, overwrite=True)
        assert (folder / "report.html").read_text() == "<html></html>"
        assert {path.name for path in folder.iterdir()} == FILES


@pytest.mark.coat
@pytest.mark.usefixtures("at_length")
def test_coat_is_at_the_known_scale(coat_root):
    config = us.Config(data="coat", root=str(coat_root), seeds=1, crossfit=0, method="naive")
    told = us.run(config.changed({"propensity.kind": "neumf"}))
    metrics = told.metrics
    assert metrics["data"]["leaked_cells_dropped"] == 366
    assert metrics["data"]["density"] == pytest.approx(0.08)
    assert metrics["propensity"]["calibrated"]["ece"] <= 0.025
    assert metrics["propensity"]["calibrated"]["auc"] > 0.7
    assert 0.735 <= metrics["methods"]["naive"]["auc"]["mean"] <= 0.765


@pytest.mark.parametrize(("uncertainty", "spreads"), [("deep-ensemble", True), ("dual-focal", False)])
def test_members_have_a_spread_and_a_single_network_has_none(uncertainty, spreads):
    config = us.Config(**{**SMALL, "uncertainty": uncertainty}, seeds=1, propensity_epochs=2)
    told = us.run(config).metrics["spread"]
    assert (told is not None) == spreads
    if spreads:
        assert 0 < told["median"] <= told["p90"]


@pytest.mark.parametrize(
    ("method", "crossfit", "in_sample"),
    [("ips", 0, True), ("dr-jl", 0, True), ("naive", 0, False), ("ips", 2, False)],
)
def test_a_run_tells_once_where_weights_are_in_sample(method, crossfit, in_sample):
    config = us.Config(**{**SMALL, "method": method, "crossfit": crossfit}, seeds=1, propensity_epochs=1)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        result = us.run(config)
    assert [each.category for each in seen].count(InSampleWarning) == in_sample
    if in_sample:
        assert any("weights are in-sample" in label for label in result.metrics["labels"])


@pytest.mark.parametrize(
    ("asked", "models", "spread"),
    [
        ({"method": "ips", "propensity": "constant"}, ["naive", "ips"], 0.0),
        ({"method": "ips", "propensity": "true", "beside": "none"}, ["ips"], 0.05),
        ({"method": "naive", "propensity": "none"}, ["naive"], None),
        ({"method": "ips", "propensity": "mf", "beside": "raw"}, ["ips_raw", "ips"], 1e-6),
    ],
)
def test_propensities_may_be_stated_and_the_models_beside_a_method_be_left_out(asked, models, spread):
    found = us.run(us.Config(**WORLD, **asked, seeds=1).changed({"training.epochs": 1}))
    assert list(found.models) == list(found.evaluated) == models
    rows = found.rows.get("known", found.rows.get("calibrated"))
    assert rows is None if spread is None else rows.std() >= spread
    assert found.report().startswith("<!doctype html>")


def test_a_method_that_weighs_needs_propensities():
    with pytest.raises(ParameterError, match="ips cannot do without propensities"):
        us.Config(method="ips", propensity="none")
