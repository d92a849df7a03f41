"""One sentence under each figure: how to read it, and what it shows in this run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from unskew.metrics import CalibrationSketch, reliability_curve
from unskew.metrics.registry import metric, shown_metrics
from unskew.report.judging import beyond_noise, level_of, tested_on
from unskew.report.plots.reliability import CURVE_BINS
from unskew.report.plots.truth import deviation
from unskew.report.verdict import worst_misstatement
from unskew.report.words import (
    brief,
    counted,
    filled,
    listed,
    method_phrase,
    number,
    percent,
    real,
    signed_fixed,
)


def overview(metrics: Mapping[str, Any]) -> str:
    """Of the figure at the top."""
    parts = ["Left, honest propensities lie on the diagonal"]
    truth_known, tested = filled(metrics.get("truth")), filled(metrics.get("methods"))
    if truth_known:
        parts.append("next to it, honest estimates lie on the line of the true loss")
    if not truth_known and not tested:
        parts.append("right, honest weights lie on the line at 1")
    if tested:
        parts.append(f"right, the models on {tested_on(metrics)}: how much they promise, and their order")
    return "; ".join(parts) + "; each is taken up below."


def reliability(sketches: Mapping[str, CalibrationSketch]) -> str:
    """Of the reliability diagram."""
    shown = []
    for name, sketch in sketches.items():
        if not sketch.rows:
            continue
        curve = reliability_curve(sketch=sketch, bins=CURVE_BINS, spacing="mass")
        touching = int(((curve.low <= curve.score) & (curve.score <= curve.high)).sum())
        shown.append(f"{touching} of {len(curve.score)} {name} intervals reach it")
    worst = worst_misstatement(sketches.get("raw"))
    said = (
        f", and where the raw say {percent(worst.said)}, {percent(worst.seen)} were clicked" if worst else ""
    )
    return (
        "Each point is a group of held-out pairs of equal size, with the 95 % interval of the share that was"
        f" clicked, and on the diagonal a propensity means what it says; here {listed(shown)}{said}."
    )


def histograms(figures: Mapping[str, Any], clicks: Any, p_min: float | None) -> str:
    """Of the histograms of propensities and weights."""
    clipped = [
        f"{percent(of.get('clipped'))} ({name})"
        for name, of in figures.items()
        if of.get("clipped") is not None
    ]
    sizes = [
        f"{number(of.get('effective_sample_size'), 0)} ({name})"
        for name, of in figures.items()
        if of.get("effective_sample_size") is not None
    ]
    shown = []
    if clipped and p_min is not None:
        shown.append(f"the cap raises the propensity of {listed(clipped)} of the clicked pairs")
    if sizes:
        shown.append(
            f"the weights of {number(clicks, 0)} clicks carry as much information as {listed(sizes)}"
        )
    here = f"; here {' and '.join(shown)}" if shown else ""
    return (
        "A small propensity on the left becomes a large weight on the right, and few large weights decide"
        f"{here}."
    )


def weight_calibration(figures: Mapping[str, Any]) -> str:
    """Of the weight-calibration curve."""
    off = [f"{percent(of['wce'])} ({name})" for name, of in figures.items() if of.get("wce") is not None]
    here = f"; here they are off by {listed(off)} on average (WCE)" if off else ""
    return (
        "Among pairs of one propensity, the weights of the clicked ones should add up to the number of pairs,"
        f" which is the line at 1: above it they are too large{here}."
    )


def spread(of_spread: Mapping[str, Any]) -> str:
    """Of the disagreement of members or passes."""
    return (
        f"How far the members ({of_spread.get('method')}) disagree on a pair: where the band reaches the"
        " dotted line, they do not know its propensity at all. It tells what more data could settle, not"
        " whether their mean is right (that is calibration); here the standard deviation is"
        f" {brief(real(of_spread.get('median')))} in the median, {percent(of_spread.get('relative'))} of the"
        " propensity on average."
    )


def methods(of_methods: Mapping[str, Any]) -> str:
    """Of the comparison of methods."""
    seeds = max((len(v.get("seeds", [])) for of in of_methods.values() for v in of.values()), default=0)
    first = shown_metrics(of_methods)[0]
    means = {key: real(of.get(first, {}).get("mean")) for key, of in of_methods.items()}
    known = {key: mean for key, mean in means.items() if np.isfinite(mean)}
    best = max(known, key=lambda key: known[key], default=None)
    here = (
        f"; here {method_phrase(best)} has the highest {metric(first).label}, {brief(known[best])}"
        if best
        else ""
    )
    levels = {key: level_of(of_methods, key) for key in of_methods}
    known_levels = {key: abs(level - 1) for key, level in levels.items() if np.isfinite(level)}
    if known_levels:
        nearest = min(known_levels, key=lambda key: known_levels[key])
        here += f", and {method_phrase(nearest)} keeps best what it promises ({number(levels[nearest], 2)})"
    return (
        f"Each tick is one of {counted(seeds, 'seed')}, the marker their mean and the bar its 95 % interval,"
        f" and below stands what a random and a perfect order reach{here}."
    )


def differences(comparison: Mapping[str, Any]) -> str:
    """Of the paired differences."""
    counts = []
    for key, found in comparison.items():
        signs = [beyond_noise(name, each) for name, each in found.items()]
        counts.append(f"{method_phrase(key)} has {signs.count(1)} better and {signs.count(-1)} worse")
    return (
        "Seed by seed against the naive model, with 95 % intervals over seeds; a filled marker is a"
        " difference beyond the noise of training (after Holm's correction over all tests) and of the test"
        f" users (95 % interval of a bootstrap over users); here, of all metrics, {listed(counts)}."
    )


def truth(known: Mapping[str, Any]) -> str:
    """Of the estimates beside the truth."""
    estimates = known.get("estimates", {})
    off = [
        f"{method_phrase(key)} by {signed_fixed(deviation(of), 3)}"
        for key, of in estimates.items()
        if key != "ips_constant" and np.isfinite(deviation(of))
    ]
    here = f"; here the estimates are off by, on average: {listed(off)}" if off else ""
    return (
        "Left, the estimates from the clicks at hand with 95 % intervals beside the true loss; right, how far"
        " each is off on average, split into what a calibrator could remove (filled) and what none can"
        f" (hatched){here}."
    )


def learning(histories: Mapping[str, Mapping[str, Any]]) -> str:
    """Of the learning curves."""
    kept = []
    for name, history in histories.items():
        epochs = [epoch for epoch in history.get("best_epoch") or [] if epoch is not None]
        if epochs:
            called = "the propensity" if name == "propensity" else method_phrase(name)
            kept.append(f"{called} kept epoch {np.quantile(epochs, 0.5, method='lower') + 1:g}")
    here = f"; here, in the median, {listed(kept)}" if kept else ""
    return (
        "The line is the median over seeds, the band holds all of them, and dotted line and ticks mark"
        f" the epochs whose weights were kept{here}."
    )
