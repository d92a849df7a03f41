"""WCE ranks calibrators as the true bias of IPS does, better than ECE: the study on reference/metrics.md."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def study():
    path = ROOT / "benchmarks" / "wce_vs_ece.py"
    spec = importlib.util.spec_from_file_location("wce_vs_ece", path)
    module = importlib.util.module_from_spec(spec)
    # Dataclasses look their module up by name while it is being made.
    sys.modules["wce_vs_ece"] = module
    spec.loader.exec_module(module)
    return module


def test_wce_follows_the_bias_of_ips_better_than_ece_does(study):
    records = study.study(rows=500_000, draws=1)
    assert len(records) == 16
    wce, ece = (np.array([record[name] for record in records]) for name in ("WCE", "ECE-100, equal width"))
    assert wce.mean() > ece.mean() + 0.1
    assert (wce > ece).sum() >= 12


def test_worlds_have_the_prevalence_they_claim_and_distorted_scores(study):
    random = np.random.default_rng(0)
    for world in study.worlds(noise=0.0):
        p, score, click, error = world.draw(200_000, random)
        assert p.mean() == pytest.approx(world.prevalence, rel=0.03)
        assert click.mean() == pytest.approx(world.prevalence, rel=0.25)
        assert abs(np.log(score / p)).mean() > 0.3
        assert np.sign(np.corrcoef(error, p)[0, 1]) == np.sign(world.error_slope)


def test_the_table_of_the_page_puts_wce_first_among_calibration_errors():
    page = (ROOT / "docs" / "reference" / "metrics.md").read_text(encoding="utf-8")
    rows = dict(re.findall(r"^\| ([^|]+?) \| \**(-?\d\.\d\d)\** \|", page, re.MULTILINE))
    assert float(rows["WCE"]) == max(float(value) for value in rows.values())
