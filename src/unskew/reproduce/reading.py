"""What the numbers say, in plain sentences made from them; judgement beyond that is a person's."""

from __future__ import annotations

from unskew.metrics.registry import RANKING
from unskew.reproduce.beside import Comparison
from unskew.reproduce.reproduced import Reproduced

CLOSE = 3.0
"""Published standard deviations within which a mean counts as reproduced."""
NEAR_FLOOR = 1.3
"""Times the noise floor up to which a propensity counts as calibrated."""


def readings(result: Reproduced) -> list[str]:
    """Sentences about what reproduces, what calibration did, and what the leak does."""
    lines = []
    ece = {each.source: each for each in result.comparisons.get("table-ece", []) if each.metric == "ece"}
    if ece:
        lines += _about_ece(result, ece)
    for name, comparisons in result.comparisons.items():
        if name == "table-grid":
            lines += _about_grid(name, comparisons)
        elif name != "table-ece":
            lines += _about_methods(name, comparisons)
    lines += _about_leak(result)
    partial = [each for each in result.correlations if each.partial]
    if result.correlations:
        raw = [each for each in result.correlations if not each.partial]
        lines.append(
            "fig-ece-vs-performance: ECE is correlated with performance beyond chance (interval without 0)"
            f" for {sum(c.low * c.high > 0 for c in raw)} of {len(raw)} metrics, and for"
            f" {sum(c.low * c.high > 0 for c in partial)} after mean weight and effective sample size are"
            " partialled out."
        )
    return lines


def _about_ece(result: Reproduced, ece: dict[str, Comparison]) -> list[str]:
    lines = []
    raw, platt = ece["raw"], ece["platt"]
    paper = "" if raw.paper is None else f" (the paper prints {raw.paper.mean:.4f})"
    lines.append(
        f"table-ece: raw ECE is {raw.ours.mean:.4f} ± {raw.ours.std:.4f}{paper}; Platt scaling's is"
        f" {platt.ours.mean:.4f}, {platt.ours.mean / raw.ours.mean:.2f} of it."
    )
    figures = {(each.source, each.metric): each.ours.mean for each in result.comparisons["table-ece"]}
    everywhere = figures.get(("platt", "ece_all_of_d"))
    if result.config.protocol == "paper" and everywhere is not None:
        lines.append(
            f"Measured over all of D, the population that the weights are used for, Platt scaling's ECE is"
            f" {everywhere:.4f}."
        )
    if "constant" in ece:
        trained = {source: each for source, each in ece.items() if source != "constant"}
        best = min(trained.values(), key=lambda each: each.ours.mean)
        floor = figures[best.source, "ece_floor"]
        verdict = "within" if best.ours.mean <= NEAR_FLOOR * floor else "beyond"
        lines.append(
            f"The best calibrated row is {best.source} with {best.ours.mean:.4f},"
            f" {best.ours.mean / floor:.2f} times its noise floor ({verdict} {NEAR_FLOOR}); the constant"
            f" share of clicks, which debiases nothing, has {ece['constant'].ours.mean:.4f}: ECE alone would"
            " choose it."
        )
    return lines


def _about_methods(name: str, comparisons: list[Comparison]) -> list[str]:
    lines = []
    with_paper = [each for each in comparisons if each.deviation is not None]
    if with_paper:
        close = sum(abs(each.deviation or 0.0) <= CLOSE for each in with_paper)
        lines.append(
            f"{name}: {close} of {len(with_paper)} means are within {CLOSE:g} of the paper's standard"
            " deviations of its means."
        )
    for method in dict.fromkeys(each.method for each in comparisons):
        of = {(each.source, each.metric): each for each in comparisons if each.method == method}
        if ("raw", "auc") not in of or ("platt", "auc") not in of:
            continue
        better = sum(of["platt", m].ours.mean > of["raw", m].ours.mean for m in RANKING)
        sure = sum(
            of["platt", m].ours.is_significant and of["platt", m].ours.mean > of["raw", m].ours.mean
            for m in RANKING
        )
        lines.append(
            f"{name}: {method} with Platt scaling is above raw on {better} of {len(RANKING)} metrics,"
            f" significantly (Holm) on {sure}; the paper says all."
        )
    return lines


def _about_grid(name: str, comparisons: list[Comparison]) -> list[str]:
    """Over all methods with given propensities: what Platt scaling, and no information at all, did to AUC."""
    auc: dict[str, dict[str, Comparison]] = {}
    for each in comparisons:
        if each.metric == "auc" and each.source:
            auc.setdefault(each.method, {})[each.source] = each
    if not auc:
        return []
    above = [m for m, of in auc.items() if of["platt"].ours.mean > of["raw"].ours.mean]
    sure = [m for m in above if auc[m]["platt"].ours.is_significant]
    best = [max(of.values(), key=lambda each: each.ours.mean).source for of in auc.values()]
    lines = [
        f"{name}: of {len(auc)} methods with given propensities, Platt scaling's AUC is above raw's for"
        f" {len(above)}, significantly (Holm over the whole table) for {len(sure)}."
    ]
    if "constant" in best:
        lines.append(
            f"{name}: the constant propensity has the best AUC of all rows for {best.count('constant')} of"
            f" {len(auc)} methods."
        )
    return lines


def _about_leak(result: Reproduced) -> list[str]:
    if result.table is None:
        return []
    lines = result.table.to_pylist()
    means: dict[str, list[float]] = {}
    for line in lines:
        if line["part"] == "method" and line["method"] == "naive" and line["metric"] == "dcg@2":
            means.setdefault(line["dataset"], []).append(line["value"])
    if len(means) != 2:
        return []
    told = [f"{name} {sum(values) / len(values):.4f}" for name, values in means.items()]
    return [f"What the leak does: DCG@2 of the naive model is {' and '.join(told)}."]
