"""unskew reproduce: every preset on a small world, beside the paper's numbers, and nothing trained twice."""

from __future__ import annotations

import importlib.util
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import spearmanr

import unskew as us
from unskew.base.errors import ParameterError
from unskew.metrics import CalibrationSketch, ece
from unskew.run.models import method_of
from unskew.run.protocol import protocol_of
from unskew.study import workshop
from unskew.study.chosen_on_test import auc_chosen_on_test
from unskew.study.correlation import platt_path, rank_correlation, scaled, scaled_ece
from unskew.study.grid import Row
from unskew.study.paper_protocol import Paper
from unskew.study.paper_tables import beside, comparisons, summarised
from unskew.study.presets import PAPER_SOURCES, PRESETS, SOURCES, chosen_presets
from unskew.study.reproduce import Reproduction, found_data, reproduce
from unskew.study.table import long_table, read_table, summary
from unskew.study.workshop import Workshop

WORLD = {"n_users": 40, "n_items": 30, "density": 0.2, "seed": 4}
PARAMETERS = {"learner.dim": 4, "learner.layers": (4,), "method.epochs": 2}
SMALL = {
    "data": {"source": "synthetic", "options": WORLD},
    "seeds": 2,
    "propensity_epochs": 2,
    "model.parameters": PARAMETERS,
    "device": "cpu",
}
PAPER = {**SMALL, "protocol": "paper"}
SMALLEST = {
    **PAPER,
    "seeds": 1,
    "propensity_epochs": 1,
    "model.parameters": {**PARAMETERS, "method.epochs": 1},
}
TABLES = ("table-ece", "table-ips", "table-dr")


@pytest.fixture(scope="module")
def paper(tmp_path_factory):
    out = tmp_path_factory.mktemp("paper") / "out"
    return reproduce(TABLES, PAPER, out)


@pytest.fixture(scope="module")
def honest(tmp_path_factory):
    out = tmp_path_factory.mktemp("honest") / "out"
    presets = (
        "table-ece",
        "table-ips",
        "table-efficiency",
        "fig-reliability",
        "fig-histogram",
        "fig-ece-vs-performance",
    )
    return reproduce(presets, SMALL, out)


class TestTables:
    def test_the_papers_rows_are_there_for_every_method_and_seed(self, paper):
        assert paper.table is not None
        lines = [line for line in paper.table.to_pylist() if line["part"] == "method"]
        rows = {(line["method"], line["propensity"], line["calibrator"]) for line in lines}
        expected = {("naive", "", "")} | {
            (method, SOURCES[key].propensity, SOURCES[key].calibrator)
            for method in ("ips", "dr-jl", "mrdr")
            for key in PAPER_SOURCES
        }
        assert rows == expected
        assert {line["seed"] for line in lines} == {0, 1}

    def test_both_test_sets_are_told_and_the_leaked_pairs_are_the_difference(self, paper, honest):
        names = {line["dataset"] for line in paper.table.to_pylist() if line["part"] == "method"}
        assert names == {"synthetic", "synthetic (leak-free)"}
        names = {line["dataset"] for line in honest.table.to_pylist() if line["part"] == "method"}
        assert names == {"synthetic", "synthetic (as shipped)"}

    def test_ours_stand_beside_the_papers_with_the_deviation(self, paper):
        # A small world under the name of Coat: the numbers are no match, the arithmetic is.
        own = [line for line in paper.table.to_pylist() if line["dataset"] == "synthetic"]
        table = long_table({**line, "dataset": "coat"} for line in own)
        found = summarised(table, PRESETS["table-ips"], "paper", "coat", "method")
        told = {
            (each.method, each.source, each.metric): each for each in comparisons(found, PRESETS["table-ips"])
        }
        base = told["naive", "", "auc"]
        assert base.paper is not None
        assert (base.paper.mean, base.paper.std) == (0.7604, 0.0041)
        assert base.deviation == pytest.approx((base.ours.mean - 0.7604) / 0.0041)
        shown = beside(found, PRESETS["table-ips"])
        names = [row[0] for row in shown.rows]
        assert names[:3] == ["naive", "  paper", "  off, in its s.d."]
        assert shown.rows[1][1] == "0.7604 ± 0.0041"
        platt = names.index("ips Platt scaling")
        assert shown.rows[platt + 1][1] == "0.7693 ± 0.0036‡"

    def test_tests_are_against_raw_of_the_same_method_and_one_family(self, paper):
        found = summarised(paper.table, PRESETS["table-dr"], "paper", "synthetic", "method")
        raw = Row("synthetic", "paper", "neumf", "none", "mrdr")
        assert found.rows[raw]["auc"].p_value is None
        tested = [f for by in found.rows.values() for f in by.values() if f.p_value is not None]
        assert len(tested) == 2 * 4 * 7
        assert all(f.p_holm >= f.p_value for f in tested)
        platt = found.rows[raw._replace(calibrator="platt")]["auc"]
        values = summary(paper.table, metrics=("auc",)).rows
        assert platt.difference == pytest.approx(
            values[raw._replace(calibrator="platt")]["auc"].mean - values[raw]["auc"].mean
        )

    def test_the_folder_holds_the_same_and_json_says_it(self, paper):
        out = paper.out
        assert read_table(out).num_rows == paper.table.num_rows
        told = json.loads((out / "reproduction.json").read_text(encoding="utf-8"))
        assert told["protocol"] == "paper"
        assert set(told["comparisons"]) == set(TABLES)

    def test_the_honest_rows_have_a_floor_and_a_constant_that_wins_on_ece(self, honest):
        ours = {(each.source, each.metric): each.ours.mean for each in honest.comparisons["table-ece"]}
        assert {source for source, _ in ours} == set(SOURCES)
        assert ours["constant", "ece"] == pytest.approx(0.0, abs=1e-12)
        assert ours["constant", "auc"] == pytest.approx(0.5)
        assert all(ours[source, "ece_floor"] > 0 for source in PAPER_SOURCES)

    def test_a_method_stands_with_its_own_propensities_in_one_table_and_with_given_ones_in_another(
        self, tmp_path
    ):
        presets = ("table-sota", "table-grid")
        result = reproduce(presets, SMALLEST, tmp_path)
        rows = {
            name: [row[0] for row in result.tables[name][0].rows if not row[0].startswith("  ")]
            for name in presets
        }
        assert rows["table-sota"] == ["gpl", "cdr raw", "dr-v2", "escm2-dr", "mrdr Platt scaling"]
        given = ("ips", "snips", "dr", "dr-jl", "mrdr", "cdr", "ips-v2", "dr-v2", "escm2-ips", "escm2-dr")
        assert rows["table-grid"] == [
            *("naive", "eib", "esmm", "gpl"),
            *(f"{method} {SOURCES[key].title}" for method in given for key in PAPER_SOURCES),
        ]

    def test_times_are_ratios_to_raw_beside_the_papers(self, honest):
        (shown,) = honest.tables["table-efficiency"]
        trained = [source for key, source in SOURCES.items() if key != "constant"]
        assert {row[0] for row in shown.rows} == {source.title for source in trained}
        assert (shown.rows[0][0], shown.rows[0][2:4]) == ("raw", ("1.00", "1.00"))
        platt = next(row for row in shown.rows if row[0] == "Platt scaling")
        assert float(platt[1]) >= float(shown.rows[0][1]), "a calibrator is fitted after the training"
        assert platt[3] == "1.06"

    def test_one_that_was_stopped_resumes_and_ends_with_the_same_numbers(self, paper, tmp_path, monkeypatch):
        def stop(*_, **__):
            raise KeyboardInterrupt

        def refuse(*_, **__):
            raise AssertionError("trained again")

        asked = ("table-ips",), PAPER, tmp_path / "out"
        with monkeypatch.context() as patched:
            patched.setattr(us.IPS, "fit_many", stop)
            with pytest.raises(KeyboardInterrupt):
                reproduce(*asked)
        monkeypatch.setattr(workshop, "fit_propensity", refuse)
        assert reproduce(*asked).comparisons["table-ips"] == paper.comparisons["table-ips"]


class TestFigures:
    def test_each_is_an_svg_with_a_panel_for_each_row(self, honest):
        assert set(honest.figures) == {"fig-reliability", "fig-histogram", "fig-ece-vs-performance"}
        drawn = {name: (honest.out / f"{name}.svg").read_text("utf-8") for name in honest.figures}
        assert all(text.startswith("<svg") for text in drawn.values())
        assert all(source.title in drawn["fig-reliability"] for source in SOURCES.values())

    def test_correlations_are_raw_and_partial_for_every_metric(self, honest):
        assert len(honest.correlations) == 14
        assert sum(each.partial for each in honest.correlations) == 7
        # ten rows without the constant, two seeds
        assert {each.points for each in honest.correlations} == {20}


class TestCorrelation:
    def test_it_is_spearmans(self):
        rng = np.random.default_rng(0)
        x, y = rng.random(40), rng.random(40)
        (found,) = rank_correlation(x, {"auc": y}, cluster=range(40), draws=200)
        assert found.rho == pytest.approx(spearmanr(x, y).statistic)
        assert found.low < found.rho < found.high

    def test_what_a_control_explains_is_gone_when_it_is_partialled_out(self):
        rng = np.random.default_rng(1)
        control = rng.random(400)
        x, y = control + 0.2 * rng.random(400), control + 0.2 * rng.random(400)
        (raw,) = rank_correlation(x, {"auc": y}, cluster=range(400), draws=50)
        (partial,) = rank_correlation(
            x, {"auc": y}, cluster=range(400), controls={"weight": control}, draws=50
        )
        assert raw.rho > 0.8
        assert abs(partial.rho) < 0.15

    def test_metrics_that_the_controls_explain_exactly_have_none(self):
        x = np.arange(10.0)
        (found,) = rank_correlation(x, {"auc": x**2}, cluster=range(10), controls={"x": x}, draws=10)
        assert math.isnan(found.rho)

    def test_plattss_path_ends_at_platt_and_lowers_the_loss(self):
        rng = np.random.default_rng(2)
        score = 1 / (1 + np.exp(-3 * rng.standard_normal(4000)))
        outcome = rng.random(4000) < scaled(score, 0.5, -1.0)
        sketch = CalibrationSketch.of(score=score, outcome=outcome)
        path = platt_path(sketch)
        platt = us.Platt().fit(sketch)
        number, slope, intercept = path[-1]
        assert (slope, intercept) == pytest.approx((platt.slope_, platt.intercept_), abs=2e-3)
        assert [step[0] for step in path[:3]] == [0, 10, 20]
        assert number >= path[-2][0]
        assert scaled_ece(sketch, slope, intercept) < scaled_ece(sketch, *path[0][1:])
        direct = ece(score=scaled(score, slope, intercept), outcome=outcome)
        assert scaled_ece(sketch, slope, intercept) == pytest.approx(direct, abs=5e-3)


class TestPage:
    """``docs/make_results.py``, which reads the folders alone."""

    @pytest.fixture(scope="class")
    @classmethod
    def make_results(cls):
        path = Path(__file__).parents[2] / "docs" / "make_results.py"
        spec = importlib.util.spec_from_file_location("make_results", path)
        module = importlib.util.module_from_spec(spec)
        sys.modules["make_results"] = module  # Where dataclasses look for their module.
        spec.loader.exec_module(module)
        return module

    def test_a_result_fills_its_own_sections_and_leaves_prose(self, make_results, paper, honest, tmp_path):
        front, page = tmp_path / "evidence" / "results.md", tmp_path / "evidence" / "synthetic.md"
        make_results.write_page(front, paper.out)
        text = page.read_text(encoding="utf-8")
        page.write_text(
            text.replace("## The paper protocol", "A person's sentence.\n\n## The paper protocol")
        )
        make_results.write_page(front, honest.out)
        text, short = page.read_text(encoding="utf-8"), front.read_text(encoding="utf-8")
        assert "A person's sentence." in text
        assert paper.facts["command"] in text
        assert honest.facts["command"] in text
        assert (page.parent / "figures" / "honest-fig-reliability.svg").is_file()
        assert "(figures/honest-fig-reliability.svg)" in text
        for result in (paper, honest):
            shown = {name: tables[0] for name, tables in result.tables.items()}
            for name in make_results.ORDER[result.work.protocol]:
                assert name not in shown or shown[name].markdown() in text
        assert "**synthetic, paper protocol, 2 seeds**\n\n|  | auc | auc, paper |" in short
        assert "What the leak does: DCG@2 of the naive model is" in short
        make_results.write_page(front, honest.out)
        assert (page.read_text(encoding="utf-8"), front.read_text(encoding="utf-8")) == (text, short)

    def test_a_section_that_the_page_lacks_is_added(self, make_results):
        assert "<!-- results: x -->\n\nnew" in make_results.with_sections("# Page\n", {"x": "new"})
        skeleton = make_results.details("coat")
        assert skeleton.count("<!-- results:") == skeleton.count("<!-- end of results -->") > 10


class TestEpochChosenOnTest:
    """A diagnostic of ``table-switches``: nothing else may choose on the test set."""

    @pytest.mark.parametrize("name", ["dr-jl", "mrdr"])
    def test_each_seed_keeps_the_epoch_with_the_best_test_auc(self, tmp_path, name):
        longer = {**PARAMETERS, "method.epochs": 12, "method.learning_rate": 0.1}
        work = Reproduction({**PAPER, "model.parameters": longer}, Workshop(tmp_path))
        differs = False
        with work.workshop.opened():
            for key in ("raw", "platt"):
                config, p = work.config(key, name), work.result(work.config(key)).rows["calibrated"]
                data, by_epoch = work.workshop.load(config), []
                for epochs in range(1, 13):
                    stopped = method_of(
                        config.changed({"method.epochs": epochs}),
                        protocol_of(config),
                        name,
                        data.train.density,
                    )
                    model = stopped.fit(data.train, propensity=p, seeds=[0, 1], device="cpu")
                    by_epoch.append(us.evaluate(model, data.test)["auc"])
                best = np.max(by_epoch, axis=0)
                np.testing.assert_allclose(auc_chosen_on_test(work, key, name), best, atol=1e-12)
                np.testing.assert_allclose(work.values([config])[0]["auc"], by_epoch[-1], atol=1e-12)
                differs |= bool((best > by_epoch[-1]).any())
        assert differs, "where the last epoch is always the best, the choice is not tested"

    def test_no_constructor_and_no_switch_of_the_protocol_has_it(self):
        assert not [
            name for name, kind in us.METHODS.items() if "epoch_chosen_on_test" in kind().get_params()
        ]
        with pytest.raises(ParameterError, match="no switch 'epoch_chosen_on_test'"):
            Paper(reverse=("epoch_chosen_on_test",))

    def test_the_preset_shows_both_tables(self, tmp_path):
        presets = ("table-switches", "fig-ece-vs-performance")
        found = reproduce(presets, SMALLEST, tmp_path / "out").tables
        assert len(found["fig-ece-vs-performance"][0].rows) == 7
        switches, diagnostic = found["table-switches"]
        assert switches.rows[0][0] == "as it is"
        assert diagnostic.title == "A diagnostic, no result: epoch_chosen_on_test"


class TestChoice:
    def test_all_leaves_out_what_does_not_fit_and_says_so(self):
        chosen, left_out = chosen_presets(["all"], "coat", "honest")
        names = {preset.name for preset in chosen}
        assert names == set(PRESETS) - {"table-kuairand", "table-switches", "table-grid"}
        with_it, _ = chosen_presets(["all", "table-grid"], "coat", "honest")
        assert {preset.name for preset in with_it} == names | {"table-grid"}
        assert any("table-kuairand is left out" in line for line in left_out)

    @pytest.mark.parametrize(
        ("presets", "data", "problem"),
        [
            (["table-7"], "coat", "no preset 'table-7'. To fix: use one of table-ece"),
            (
                ["table-kuairand"],
                "coat",
                "is about kuairand, not coat. To fix: give --data kuairand --root FOLDER",
            ),
            (["table-switches"], "coat", "give --protocol paper"),
        ],
    )
    def test_what_cannot_be_is_told(self, presets, data, problem):
        with pytest.raises(ParameterError, match=problem):
            chosen_presets(presets, data, "honest")

    @pytest.mark.parametrize(
        ("data", "where"), [("yahoo_r3", "Webscope"), ("kuairand", "kuairand.com"), ("coat", "coat.zip")]
    )
    def test_without_its_folder_a_dataset_is_asked_for(self, data, where, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("UNSKEW_DATA", str(tmp_path))
        with pytest.raises(ParameterError, match=rf"{where}.*--root FOLDER"):
            found_data(data, None)

    def test_without_a_name_coat_is_taken_if_it_is_there_else_the_synthetic_world(
        self, tmp_path, monkeypatch
    ):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("UNSKEW_DATA", str(tmp_path))
        data, _, notes = found_data(None, None)
        assert data == "synthetic"
        assert "not of the paper's data" in notes[0]
        (tmp_path / "coat").mkdir()
        assert found_data(None, None) == ("coat", Path(tmp_path) / "coat", [])

    def test_switches_belong_to_the_paper_protocol(self, tmp_path):
        with pytest.raises(ParameterError, match="no effect without --protocol paper"):
            reproduce(("all",), {**SMALL, "reverse": ("no_offset",)}, tmp_path)


@pytest.mark.coat
def test_the_published_ece_of_raw_and_platt_comes_out_on_coat(coat_root, tmp_path):
    base = {"data": "coat", "root": str(coat_root), "protocol": "paper", "seeds": 1, "device": "cpu"}
    work = Reproduction(base, Workshop(tmp_path))
    with work.workshop.opened():
        found = work.values([work.config("raw"), work.config("platt")], "propensity")
    raw, platt = (each["ece"][0] for each in found)
    assert raw == pytest.approx(0.1458, abs=0.015)
    assert platt < raw / 3
