"""The card of a run says what its figures say, and what the model must not be used for."""

from __future__ import annotations

import json
import re

import pytest

from unskew.cli import main
from unskew.report.finding import Answer, Finding
from unskew.report.model_card import model_card

METRICS = {
    "data": {
        "name": "synthetic",
        "space": "matrix",
        "rows": 3544,
        "clicks": 3544,
        "users": 180,
        "items": 130,
        "population": 23400,
        "density": 0.151,
        "test_rows": 2481,
        "test_rows_judged": 2481,
        "test_is": "random",
    },
    "protocol": "honest",
    "p_min": 0.01,
    "methods": {
        "ips": {
            "auc": {"mean": 0.64, "std": 0.017, "low": 0.61, "high": 0.66},
            "mean_over_rate": {"mean": 1.114, "std": 0.1, "low": 1.0, "high": 1.2},
            "dcg@2": {"mean": 0.73, "std": 0.05},
        },
        "naive": {"auc": {"mean": 0.67, "std": float("nan")}},
    },
    "propensity": {"raw": {"ece": 0.3, "auc": 0.56}, "calibrated": {"ece": 0.01, "auc": 0.56}},
}
CONFIG = {"calibrator": "platt", "crossfit": 2, "learner": "neumf", "seeds": 3, "seed": 0}
FOUND = [Answer("What is biased?", Finding("bias.loss", "bad", {"size": 0.2, "side": "high"}))]


def test_files_are_called_by_their_path():
    metrics = {**METRICS, "data": {**METRICS["data"], "name": "files", "space": "impressions"}}
    card = model_card(metrics, {**CONFIG, "options": {"train": ["shop/log", "shop/more"]}}, "ips", FOUND)
    assert "- shop/log and 1 more file: 3,544 rows" in card
    assert "randomly shown test impressions" in card


def test_it_has_the_figures_with_their_intervals():
    card = model_card(METRICS, CONFIG, "ips", FOUND)
    assert "0.6400 ± 0.0170 [0.610, 0.660] | 0.6700 |" in card
    assert re.search(r"\| ECE \| 0\.3000 \| 0\.0100 \|", card)
    assert "**What is biased?** The average loss over clicks is 20 % too high." in card
    assert "synthetic: 3,544 rows, 3,544 clicks, 180 users, 130 items." in card
    assert "Propensity by –, calibrated by platt, cross-fitted over 2 folds, clipped at 0.0100." in card
    assert "± nan" not in card


def test_what_it_must_not_be_used_for_follows_from_the_run():
    card = model_card(METRICS, CONFIG, "ips", FOUND)
    assert "Real people: the data were drawn from a model." in card
    assert "it reads ids alone" in card
    assert "predicted ÷ actual conversions was 1.11 on the test set" in card
    logged = {
        **METRICS,
        "data": {**METRICS["data"], "name": "files", "test_is": "logged", "fields": [{"name": "age"}]},
    }
    card = model_card(logged, CONFIG, "ips", FOUND)
    assert "Claims about randomly chosen pairs" in card
    assert "Real people: the data" not in card
    assert "it reads ids alone" not in card
    collapsed = {"ips": [{"network": "prediction", "reason": "flat", "seeds": 3, "of": 3}]}
    card = model_card({**METRICS, "collapsed": collapsed}, CONFIG, "ips", FOUND)
    assert "Anything, before this is repaired" in card
    assert "it says how likely a pair is clicked" in model_card(METRICS, CONFIG, "none", [])


def test_names_of_the_user_obey_no_markdown():
    data = {**METRICS["data"], "name": "a|b\n# c <script>", "fields": [{"name": "[x](y)"}]}
    card = model_card({**METRICS, "data": data}, CONFIG, "ips", FOUND)
    assert "a\\|b \\# c \\<script\\>" in card
    assert "\\[x\\](y)" in card


@pytest.mark.usefixtures("undrawn", "briefly")
def test_every_run_folder_has_one_which_may_be_edited(tmp_path):
    world = [f"--option={each}" for each in ("n_users=40", "n_items=30", "density=0.2")]
    quick = [
        "--learner",
        "mf",
        "--seeds",
        "2",
        "--crossfit",
        "0",
        "--propensity-epochs",
        "1",
        "--method",
        "naive",
    ]
    given = ["run", "--data", "synthetic", *world, *quick, "--out", str(tmp_path / "run")]
    assert main(given) == 0
    card = tmp_path / "run" / "MODEL_CARD.md"
    assert card.read_text().startswith("# Model card: a conversion model (Naive)")
    assert "MODEL_CARD.md" in json.loads((tmp_path / "run" / "manifest.json").read_text())["files"]
    card.write_text("mine")
    assert main(["export", str(tmp_path / "run"), "-o", str(tmp_path / "m.onnx")]) == 0
    assert main([*given, "--overwrite"]) == 0
    assert card.read_text() != "mine"


@pytest.mark.parametrize("metrics", [{}, {"data": {}, "methods": {}, "propensity": {}}])
def test_a_run_of_which_little_is_known_has_one_too(metrics):
    assert "## What it must not be used for" in model_card(metrics, {}, "ips", [])
