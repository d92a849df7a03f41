"""Results show a sentence, a figure and a table in a notebook, and one sentence where they are printed."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import unskew as us
from unskew.audit import Roles, write_weights


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    p = rng.beta(1, 9, 6000)
    clicked = rng.random(6000) < p / 1.5
    table = pa.table({"p": p, "<b>": clicked, "day": np.arange(6000) // 1500})
    folder = tmp_path_factory.mktemp("weights")
    pq.write_table(table, folder / "p.parquet")
    log = us.load("synthetic", n_users=40, n_items=30, density=0.2)
    propensity = us.Propensity(learner=us.MF(dim=2), crossfit=2, epochs=1).fit(log.train)
    models = {
        kind.name: kind(learner=us.MF(dim=2), epochs=1).fit(log.train, **given)
        for kind, given in ((us.Naive, {}), (us.IPS, {"propensity": propensity}))
    }
    world = {"n_users": 40, "n_items": 30, "density": 0.2}
    config = us.Config(options=world, learner="mf", propensity="mf", crossfit=2)
    return {
        "audit": us.audit(table, score="p", outcome="<b>"),
        "weights": write_weights(folder / "p.parquet", folder / "out.parquet", Roles("p", "<b>")),
        "comparison": us.compare(models, log.train, propensity=propensity),
        "run": us.run(config.changed({"training.epochs": 1})),
        "calibrator": us.Platt().fit(p, clicked),
        "log": log.train,
        "diagnosis": propensity.diagnose(),
        "evaluation": us.evaluate(models["ips"], log.test),
    }


WITH_FIGURES = {"audit", "weights", "comparison", "run", "calibrator"}


@pytest.mark.parametrize(
    "name", ["audit", "weights", "comparison", "run", "calibrator", "log", "diagnosis", "evaluation"]
)
def test_a_notebook_shows_a_sentence_a_figure_and_a_table(shown: dict[str, Any], name: str) -> None:
    page = shown[name]._repr_html_()
    assert ("<svg" in page) == (name in WITH_FIGURES)
    assert "<table>" in page
    assert re.search(r'<p class="sentence">[^<]+\.</p>', page)
    assert "<b>" not in page
    for svg in re.findall(r"<svg.*?</svg>", page, re.S):
        ET.fromstring(svg)


def test_drawings_of_two_outputs_share_no_ids(shown: dict[str, Any]) -> None:
    first, second = (set(re.findall(r'\bid="([^"]+)"', shown["audit"]._repr_html_())) for _ in "ab")
    assert first
    assert not first & second


@pytest.mark.parametrize("name", ["audit", "weights", "comparison", "run"])
def test_a_result_is_printed_as_one_sentence(shown: dict[str, Any], name: str) -> None:
    text = repr(shown[name])
    assert text.startswith(f"{type(shown[name]).__name__}: ")
    assert "\n" not in text
    assert len(text) < 1200


def test_figures_index_like_a_dictionary(shown: dict[str, Any]) -> None:
    assert shown["diagnosis"]["raw"]["auc"] == dict(shown["diagnosis"])["raw"]["auc"]
    assert isinstance(shown["evaluation"], dict)
