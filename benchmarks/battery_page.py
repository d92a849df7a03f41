"""What the battery found, as sentences, tables and a picture; from the dictionary of ``battery.json``."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from benchmarks.common import markdown
from unskew.metrics.registry import metric as registered
from unskew.report.style import MUTED, SERIES, new_figure, styled, svg

NOISE = 1.96
"""Standard errors over test users beyond which a difference counts."""
NEGLIGIBLE = 0.001
"""A gap below it is none: models that are nearly the same differ beyond noise in the fourth decimal."""
ENOUGH = 0.75
"""The share of a gap that auto should close with 5 % of the random pairs."""
PANELS_A_ROW = 4


def ahead(cell: Mapping[str, Any]) -> int:
    """1 or −1 where a method is better or worse than the naive ensemble beyond noise."""
    return int(np.sign(cell["advantage"])) if abs(cell["advantage"]) > NOISE * cell["standard_error"] else 0


def best_and_gap(world: Mapping[str, Any]) -> tuple[str, float | None]:
    """The best candidate, and what it is ahead of the naive ensemble by where that is beyond noise.

    It is found to be the best on the test users that it is judged by, so that its advantage must stand a
    correction for so many candidates (Bonferroni's).
    """
    cells = world["methods"]
    best = max(world["candidates"], key=lambda name: cells[name]["advantage"])
    cell = cells[best]
    critical = -float(ndtri(ndtr(-NOISE) / max(len(world["candidates"]) - 1, 1)))
    real = cell["advantage"] >= NEGLIGIBLE and cell["advantage"] > critical * cell["standard_error"]
    return best, cell["advantage"] if real else None


def page(found: Mapping[str, Any], picture: str | None = None) -> str:
    """All of it in Markdown; with a picture, as for the documentation, the first table alone."""
    lines = "\n".join(f"- {line}" for line in readings(found))
    drawn = [f"![how far each method is ahead of the naive ensemble, by world]({picture})"] if picture else []
    return "\n\n".join([lines, *drawn, *itertools.islice(tables(found), 3 if picture else None)])


def readings(found: Mapping[str, Any]) -> Iterator[str]:
    """Sentences about what auto did with and without the sample, and which methods lose to naive."""
    worlds = found["worlds"]
    for name in next(iter(worlds.values()))["decisions"]:
        lost = [world for world, of in worlds.items() if ahead(of["methods"][name]) < 0]
        gaps = {world: best_and_gap(of)[1] for world, of in worlds.items()}
        closed = {w: worlds[w]["methods"][name]["advantage"] / gap for w, gap in gaps.items() if gap}
        shares = ", ".join(f"{world} {100 * share:.0f} %" for world, share in closed.items())
        where = f" ({', '.join(lost)})" if lost else ""
        yield (
            f"{name}: worse than the naive ensemble beyond noise in {len(lost)} of {len(worlds)} worlds"
            f"{where}; it closed at least {100 * ENOUGH:.0f} % of the gap in"
            f" {sum(share >= ENOUGH for share in closed.values())} of {len(closed)} worlds that have one"
            f"{f' ({shares})' if shares else ''}."
        )
    for word, sign in (("worse", -1), ("better", 1)):
        counts = {
            name: sum(ahead(of["methods"][name]) == sign for of in worlds.values() if name in of["methods"])
            for name in names(found)
            if not name.startswith("auto")
        }
        most = sorted((name for name, count in counts.items() if count), key=lambda name: -counts[name])
        told = ", ".join(f"{name} {counts[name]}" for name in most) or "none"
        yield f"Worlds where a method is {word} than the naive ensemble beyond noise: {told}."
    seconds = sum(cell["seconds"] or 0.0 for of in worlds.values() for cell in of["methods"].values())
    yield f"All trainings together took {seconds / 60:.0f} minutes."


def names(found: Mapping[str, Any]) -> list[str]:
    """Rows of the tables: what auto ships stands below what it chooses among."""
    every = dict.fromkeys(name for of in found["worlds"].values() for name in of["methods"])
    return sorted(every, key=lambda name: name.startswith("auto"))


def tables(found: Mapping[str, Any]) -> Iterator[str]:
    """Regret, what auto chose, and every metric, by world."""
    worlds, criterion = found["worlds"], found["criterion"]
    marks = {1: " ▲", -1: " ▼", 0: ""}
    rows = []
    for name in names(found):
        cells = [of["methods"].get(name) for of in worlds.values()]
        known = [cell for cell in cells if cell]
        texts = [f"{cell['regret']:.4f}{marks[ahead(cell)]}" if cell else "–" for cell in cells]
        mean = f"{np.mean([cell['regret'] for cell in known]):.4f}"
        rows.append((name, *texts, mean, f"{sum(ahead(cell) < 0 for cell in known)} of {len(known)}"))
    yield f"**Regret in {criterion} against the best of each world**"
    yield markdown(("method", *worlds, "mean", "loses to naive"), rows)
    yield "*▲ better, ▼ worse than the naive ensemble beyond noise (paired by test user).*"
    rows = []
    for world, of in worlds.items():
        best, gap = best_and_gap(of)
        for name, decisions in of["decisions"].items():
            cell = of["methods"][name]
            chosen = dict.fromkeys(
                each["chosen"] if len(each["shipped"]) == 1 else f"the mean of {len(each['shipped'])}"
                for each in decisions
            )
            rows.append(
                (
                    world,
                    name,
                    ", ".join(chosen),
                    f"{cell['advantage']:+.4f}{marks[ahead(cell)]}",
                    f"{of['methods'][best]['advantage']:+.4f} ({best})",
                    "no gap beyond noise" if gap is None else f"{100 * cell['advantage'] / gap:.0f} %",
                )
            )
    yield "**What auto chose**"
    yield markdown(("world", "", "chose", "ahead of naive", "best ahead by", "closed"), rows, words=3)
    sizes = [
        (w, f"{of['clicks']:,}", f"{100 * of['density']:.2g} %", f"{of['sample']:,}", f"{of['test']:,}")
        for w, of in worlds.items()
    ]
    yield "**The worlds**"
    yield markdown(("world", "clicks", "density", "sample", "test"), sizes)
    for metric in dict.fromkeys(m for of in worlds.values() for m in of["methods"]["naive"]["metrics"]):
        every = [
            (name, *(_metric(of["methods"].get(name), metric) for of in worlds.values()))
            for name in names(found)
        ]
        yield f"**{metric}**"
        yield markdown(("method", *worlds), every)


def _metric(cell: Mapping[str, Any] | None, metric: str) -> str:
    return f"{cell['metrics'][metric]:.4f}" if cell and metric in cell["metrics"] else "–"


@styled
def battery_figure(found: Mapping[str, Any]) -> Any:
    """A panel for each world, a line for each method, with 95 % intervals over test users."""
    worlds, methods = found["worlds"], names(found)
    rows = -(-len(worlds) // PANELS_A_ROW)
    figure = new_figure(rows * (0.8 + 0.2 * len(methods)))
    panels = figure.subplots(rows, min(PANELS_A_ROW, len(worlds)), squeeze=False)
    for axes in panels.flat[len(worlds) :]:
        axes.set_axis_off()
    for place, (axes, (world, of)) in enumerate(zip(panels.flat, worlds.items(), strict=False)):
        for row, name in enumerate(methods):
            if name not in of["methods"]:
                continue
            cell, is_auto = of["methods"][name], name.startswith("auto")
            series = SERIES["raw" if is_auto else "naive" if name.startswith("naive") else "calibrated"]
            ends = (cell["advantage"] + sign * NOISE * cell["standard_error"] for sign in (-1, 1))
            axes.hlines(row, *ends, color=series.colour.light, linewidth=2.2 if is_auto else 1.4)
            axes.plot(cell["advantage"], row, **series.line())
        axes.axvline(0.0, color=MUTED.light, linewidth=0.9)
        axes.set_title(world)
        axes.set_ylim(len(methods) - 0.4, -0.6)
        axes.set_yticks(range(len(methods)), [""] * len(methods) if place % PANELS_A_ROW else methods)
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="y", visible=False)
        axes.locator_params(axis="x", nbins=4)
        axes.set_xlabel(f"{registered(found['criterion']).label} ahead of naive")
    return figure


def battery_svg(found: Mapping[str, Any]) -> str:
    """The picture as an SVG file of its own."""
    title = "How far each method is ahead of the naive ensemble, by world"
    return svg(battery_figure(found), name="battery", title=title)
