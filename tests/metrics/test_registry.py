"""One entry makes a metric known to tables, plots, words and documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from unskew.metrics import registry
from unskew.metrics.registry import CONVERSION_METRICS, EVALUATED_METRICS, PROPENSITY_METRICS, metric
from unskew.report.run_tables import methods_table

INDEX = Path(__file__).parents[2] / "docs" / "reference" / "metrics.md"


@pytest.mark.parametrize("entry", [*CONVERSION_METRICS.values(), *PROPENSITY_METRICS.values()], ids=str)
def test_every_entry_is_on_the_page(entry):
    lines = INDEX.read_text(encoding="utf-8").splitlines()
    assert any(
        line.split("@K")[0].startswith(f"| `{entry.name}")
        and f"| {entry.label} |" in line
        and entry.note in line
        for line in lines
    )


def test_every_evaluated_metric_has_an_entry():
    assert {name.partition("@")[0] for name in EVALUATED_METRICS} == set(CONVERSION_METRICS)
    assert set(registry.SHOWN_METRICS) <= set(EVALUATED_METRICS)


def test_a_new_metric_is_shown_with_its_name_and_its_goal(monkeypatch):
    entry = registry.Metric("regret", "Regret", "lower", "what a perfect order would add", decimals=2)
    monkeypatch.setitem(CONVERSION_METRICS, "regret", entry)
    (row,) = methods_table({"methods": {"naive": {"regret@5": {"mean": 0.5}}}}, "t").rows
    assert row[0] == "Regret@5 (lower is better)"
    assert metric("regret@5").gain(0.1) < 0
