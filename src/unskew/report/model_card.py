"""The model card of a run: what it was trained on and how, how good it is, what it must not be used for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from unskew import __version__
from unskew.base.plain_text import plain
from unskew.metrics.registry import SHOWN_METRICS
from unskew.report.facts import (
    collapsed_sentences,
    data_name,
    filled,
    is_random,
    level_of,
    method_name,
    tested_on,
    units,
)
from unskew.report.finding import Answer
from unskew.report.page import LONGEST_TEXT, environment
from unskew.report.run_tables import methods_table, propensity_table
from unskew.report.table import Table


def model_card(
    metrics: Mapping[str, Any], config: Mapping[str, Any], main: str, findings: Sequence[Answer]
) -> str:
    """Return Markdown, from what ``metrics.json`` and ``config.toml`` hold.

    Parameters
    ----------
    main
        The key of the model that the run is about; ``"none"`` for a propensity alone.
    findings
        What the numbers say, in words.
    """
    env = environment(escape=False)
    env.filters["md"] = _escaped
    return (
        env.get_template("model_card.md.j2").render(
            main=main,
            method=method_name(main),
            version=__version__,
            name=data_name(metrics, config),
            data=defaultdict(lambda: None, metrics.get("data") or {}),
            config=defaultdict(lambda: None, config),
            protocol=metrics.get("protocol"),
            p_min=metrics.get("p_min"),
            by=(metrics.get("propensity_by") or {}).get("chosen", config.get("propensity")),
            units=units(metrics),
            tested_on=tested_on(metrics),
            random_test=is_random(metrics),
            level=level_of(metrics.get("methods") or {}, main),
            collapsed=collapsed_sentences(metrics),
            findings=findings,
            tables=_tables(metrics, main),
        )
        + "\n"
    )


def _tables(metrics: Mapping[str, Any], main: str) -> list[Table]:
    """Return the metrics of the main model beside the naive one, and the figures of the propensities."""
    methods = filled(metrics.get("methods"))
    keys = [key for key in dict.fromkeys((main, "naive")) if key in methods]
    shown = {**metrics, "methods": {key: methods[key] for key in keys}}
    tables = [methods_table(shown, "Model", SHOWN_METRICS)] if keys else []
    figures = filled(metrics.get("propensity"))
    return [*tables, *([propensity_table(figures, units(metrics))] if figures else [])]


def _escaped(value: Any) -> str:
    """Return a value on one line, without marks that Markdown would obey."""
    text = plain("–" if value is None else value, LONGEST_TEXT)
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>#|" else letter for letter in text)
