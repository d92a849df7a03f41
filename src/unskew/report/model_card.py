"""The model card of a run: what it was trained on and how, how good it is, what it must not be used for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from unskew import __version__
from unskew.base.plain_text import plain
from unskew.metrics.registry import metric
from unskew.report.finding import (
    LEVEL,
    Finding,
    collapsed_sentences,
    data_name,
    is_random,
    sampled,
    tested_on,
    units,
)
from unskew.report.words import brief, counted, method_name, number, percent, real

SHOWN = ("auc", "user_auc", "nll", LEVEL)
"""Figures of a model; of those at k, all."""

COUNTED = ("row", "click", "user", "item")

AT_K = ("ndcg@", "recall@")

FIGURES = (("ece", "ECE"), ("ece_floor", "ECE if honest"), ("wce", "WCE"), ("nll", "NLL"), ("auc", "AUC"))


def model_card(
    metrics: Mapping[str, Any], config: Mapping[str, Any], main: str, findings: Sequence[Finding]
) -> str:
    """Markdown, from what ``metrics.json`` and ``config.toml`` hold.

    Parameters
    ----------
    main
        The key of the model that the run is about; ``"none"`` for a propensity alone.
    findings
        What the numbers say, in words.
    """
    what = "a propensity" if main == "none" else f"a conversion model ({method_name(main)})"
    sections = [
        f"# Model card: {what}",
        f"By unskew {__version__}; `metrics.json`, `config.toml` and `report.html` beside it have more.",
        "## Data",
        _listed(_data(metrics, config)),
        "## Protocol",
        _listed(_protocol(metrics, config)),
        "## How good it is",
        *(f"**{each.question}** {_plain(each.text)}" for each in findings),
        *_tables(metrics, main),
        "## What it must not be used for",
        _listed(_limits(metrics, main)),
    ]
    return "\n\n".join(sections) + "\n"


def _data(metrics: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    data = metrics.get("data", {})
    space = "all user × item pairs" if data.get("space") == "matrix" else "the logged impressions"
    counts = ", ".join(counted(data.get(f"{one}s"), one) for one in COUNTED)
    facts = [
        f"{_plain(data_name(metrics, config))}: {counts}.",
        f"The population is {space}, {number(data.get('population'), 0)} in all; conversions are known for"
        f" {percent(data.get('density'))} of them.",
    ]
    if data.get("test_rows"):
        facts.append(f"Judged on {tested_on(metrics)}, {number(data.get('test_rows_judged'), 0)} rows.")
    else:
        facts.append("There was no test set.")
    if data.get("leaked_cells_dropped"):
        leaked = number(data["leaked_cells_dropped"], 0)
        facts.append(f"{leaked} test {units(metrics)} that were also clicked in training were left out.")
    fields = [_plain(each.get("name")) for each in data.get("fields") or ()]
    facts.append(f"Fields: {', '.join(fields)}." if fields else "Read: the ids of users and items alone.")
    if data.get("note"):
        facts.append(f"{_plain(data['note'])}.")
    return facts


def _protocol(metrics: Mapping[str, Any], config: Mapping[str, Any]) -> list[str]:
    by = (metrics.get("propensity_by") or {}).get("chosen", config.get("propensity"))
    how = ""
    if by != "its own click tower":
        how = f", calibrated by {_plain(config.get('calibrator'))}"
        how += f", cross-fitted over {_plain(config.get('crossfit'))} folds"
    facts = [
        f"`{_plain(metrics.get('protocol'))}`"
        + (": nothing was chosen on the test set." if metrics.get("protocol") == "honest" else "."),
        f"Propensity by {_plain(by)}{how}, clipped at {brief(metrics.get('p_min'))}.",
        f"Backbone {_plain(config.get('backbone'))}; {counted(config.get('seeds'), 'seed')} from"
        f" {_plain(config.get('seed'))}.",
    ]
    if config.get("allow_leak"):
        leaks = ", ".join(_plain(each) for each in config["allow_leak"])
        facts.append(f"Features that look like leaks were allowed: {leaks}.")
    return facts


def _tables(metrics: Mapping[str, Any], main: str) -> list[str]:
    tables = []
    methods = metrics.get("methods") or {}
    shown = [key for key in dict.fromkeys((main, "naive")) if methods.get(key)]
    names = [name for name in methods.get(main, {}) if name in SHOWN or name.startswith(AT_K)]
    if names:
        heads = [f"{method_name(key)} (95 % over {sampled(methods)})" for key in shown]
        rows = [[metric(name).label, *(_value(methods[key].get(name)) for key in shown)] for name in names]
        tables.append(_table(["on the test set", *heads], rows))
    propensity = metrics.get("propensity") or {}
    kinds = [kind for kind in ("raw", "calibrated", "known") if kind in propensity]
    rows = [
        [label, *(brief(propensity[kind].get(name)) for kind in kinds)]
        for name, label in FIGURES
        if any(propensity[kind].get(name) is not None for kind in kinds)
    ]
    if rows:
        tables.append(_table(["propensities against held-out clicks", *kinds], rows))
    return tables


def _value(figure: Mapping[str, Any] | None) -> str:
    if not figure:
        return "–"
    text = number(figure.get("mean"))
    if figure.get("low") is not None:
        text += f" ({number(figure['low'])} to {number(figure['high'])})"
    return text


def _limits(metrics: Mapping[str, Any], main: str) -> list[str]:
    """What follows from how it was made, and what follows for every model of its kind."""
    data = metrics.get("data", {})
    limits = [f"Anything, before this is mended: {_plain(each)}" for each in collapsed_sentences(metrics)]
    level = ((metrics.get("methods") or {}).get(main) or {}).get(LEVEL) or {}
    if main != "none" and not is_random(metrics):
        limits.append(
            f"Claims about {units(metrics)} that nobody chose: the test set is as chosen as the clicks, so"
            f" its figures do not say how the model does on random {units(metrics)}."
        )
    if main != "none" and real(level.get("mean")) == real(level.get("mean")):
        limits.append(
            "Bids or budgets that take its probabilities at their word without a look at their level:"
            f" predicted ÷ actual conversions was {number(level['mean'], 2)} on the test set."
        )
    if main == "none":
        limits.append("Predicting conversions: it says how likely a pair is clicked.")
    if data.get("name") in ("synthetic", "impressions"):
        limits.append("Real people: the data were drawn from a model.")
    if not data.get("fields"):
        limits.append("Users and items that were not there in training: it reads ids alone.")
    return [
        *limits,
        "Another population, place, time or product than the data are of; watch it with `unskew monitor`, or"
        " serve it with `unskew serve`, which compares what it says with what comes.",
        "Claims of cause: that a pair is likely to convert does not say that showing it makes it convert.",
        "Decisions about a person's credit, work, housing, insurance, health or legal standing. Clicks are"
        " what people did with what they were shown, and not what is fair; segments of them may be off"
        " (`unskew audit --segment`).",
    ]


def _plain(value: Any) -> str:
    """On one line, and without a mark that Markdown would obey."""
    text = plain("–" if value is None else value)
    return "".join(f"\\{letter}" if letter in "\\`*_[]<>#|" else letter for letter in text)


def _listed(facts: Sequence[str]) -> str:
    return "\n".join(f"- {each}" for each in facts)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    rule = ["---", *("---:" for _ in heads[1:])]
    return "\n".join("| " + " | ".join(line) + " |" for line in (heads, rule, *rows))
