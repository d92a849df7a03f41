"""Put what ``unskew reproduce`` found into the marked sections of docs/evidence/results.md; prose stays.

``python docs/make_results.py FOLDER…`` reads the folders that ``unskew reproduce`` wrote. A section lies
between ``<!-- results: NAME -->`` and
``<!-- end of results -->``. What stands outside is a person's and is never touched. What the numbers say is
in sentences made from them; judgement beyond that is a person's.
"""

from __future__ import annotations

import json
import math
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from unskew.base.files import whole_file
from unskew.metrics.registry import RANKING
from unskew.report.table import Cell, Table
from unskew.study.table import read_table

PAGE = Path(__file__).parent / "evidence" / "results.md"
END = "<!-- end of results -->"
NOT_YET = "*Not run yet: the command is in the introduction.*"
FIGURES = "figures"

BOTH = ("table-ips", "table-dr", "table-efficiency", "fig-reliability", "fig-ece-vs-performance")
ORDER = {"paper": ("table-ece", "table-switches", *BOTH), "honest": ("table-ece", *BOTH)}
"""The presets of each protocol that the page shows; a reproduction's ``tables.html`` has all."""

HEADS = {
    "paper": "The paper protocol: what the published code gives",
    "honest": "The honest protocol: what holds",
}

SKELETON = """# Results: the paper's tables, and the truth about them

The sections between marks are written by `python docs/make_results.py FOLDER…` from what
`unskew reproduce` wrote, and are never edited by hand. ± is the standard deviation over seeds;
\\* differs from raw at 5 % (paired t-test, Holm's correction over the whole table); ‡ is the paper's own
mark; "off, in its s.d." counts the paper's standard deviations between our mean and its mean. All other
tables are in the `tables.html` of each folder:

```
for protocol in paper honest; do
  unskew reproduce all table-grid --data coat --root DATA/coat --protocol $protocol --seeds 10 \\
    --out runs/$protocol
done
python docs/make_results.py runs/paper runs/honest
```

## In short

{reading_paper}

{reading_honest}
"""

DETAILS = """---
nosearch: true
---
# {dataset}: all tables of the paper

Written by `python docs/make_results.py`; [results](results.md) says how, what the signs mean, and what
follows from it.

{sections}
"""


def section(name: str, text: str) -> str:
    """Return a marked section."""
    return f"<!-- results: {name} -->\n\n{text}\n\n{END}"


def skeleton() -> str:
    """Return the page in front before anything was run."""
    readings = {f"reading_{protocol}": section(f"{protocol} reading", NOT_YET) for protocol in ORDER}
    return SKELETON.format(**readings)


def details(dataset: str) -> str:
    """Return the page of a dataset before anything was run."""
    sections = []
    for protocol, presets in ORDER.items():
        sections.append(f"## {HEADS[protocol]}\n\n{section(f'{protocol} facts', NOT_YET)}")
        sections += [f"### {preset}\n\n{section(f'{protocol} {preset}', NOT_YET)}" for preset in presets]
    return DETAILS.format(dataset=dataset.capitalize(), sections="\n\n".join(sections))


def fill(path: Path, empty: str, texts: dict[str, str]) -> None:
    """Put texts into the sections of a page, which is begun where there is none."""
    page = path.read_text(encoding="utf-8") if path.is_file() else empty
    with whole_file(path) as beside:
        beside.write_text(with_sections(page, texts), encoding="utf-8")


def write_page(path: Path, folder: Path) -> None:
    """Put a reproduction's folder into the page in front, and into the page of its dataset beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    result = json.loads((folder / "reproduction.json").read_text(encoding="utf-8"))
    protocol = result["protocol"]
    if result["tables"]:
        lines = readings(result, read_table(folder))
        reading = "\n\n".join((in_short(result), "\n".join(f"- {line}" for line in lines)))
        fill(path, skeleton(), {f"{protocol} reading": reading})
    texts = {f"{protocol} facts": _facts(result)}
    for name, tables in result["tables"].items():
        if name in ORDER[protocol]:
            texts[f"{protocol} {name}"] = tables[0]
    for svg in (svg for svg in sorted(folder.glob("fig-*.svg")) if svg.stem in ORDER[protocol]):
        (path.parent / FIGURES).mkdir(parents=True, exist_ok=True)
        file = f"{protocol}-{svg.name}"
        with whole_file(path.parent / FIGURES / file) as beside:
            beside.write_bytes(svg.read_bytes())
        picture, key = f"![{svg.stem}, {protocol} protocol]({FIGURES}/{file})", f"{protocol} {svg.stem}"
        texts[key] = f"{picture}\n\n{texts[key]}" if key in texts else picture
    fill(path.with_name(f"{result['dataset']}.md"), details(result["dataset"]), texts)


SHORT = ("auc", "dcg@4")
"""Metrics of the table in front."""


def in_short(result: dict[str, Any]) -> str:
    """Return the table in front: the main methods with raw and with Platt-scaled propensities."""
    rows: dict[str, dict[str, Compared]] = {}
    for name in ("table-ips", "table-dr"):
        for each in map(Compared.read, result["comparisons"].get(name, ())):
            if each.source in ("", "raw", "platt"):
                rows.setdefault(f"{each.method} {each.source}".strip(), {})[each.metric] = each
    lines = []
    for name, of in rows.items():
        shown = [of[metric] for metric in SHORT if metric in of]
        cells = [(f"{each.mean:.4f}", f"± {each.std or math.nan:.4f}", each.paper_mean) for each in shown]
        lines.append((name, *(cell for mean, std, paper in cells for cell in (Cell(mean, aside=std), paper))))
    columns = ("", *(name for metric in SHORT for name in (metric, f"{metric}, paper")))
    title = f"{result['dataset']}, {result['protocol']} protocol, {result['seeds']} seeds"
    table = Table(title, columns, lines)
    return f"**{table.title}**\n\n{table.markdown()}"


def with_sections(page: str, texts: dict[str, str]) -> str:
    """Replace the content of some sections of a page; sections that it lacks are added at its end."""
    for name, text in texts.items():
        mark = re.compile(rf"<!-- results: {re.escape(name)} -->.*?{re.escape(END)}", re.DOTALL)
        made = section(name, text)
        if mark.search(page):
            page = mark.sub(lambda _, made=made: made, page)  # type: ignore[misc]
        else:
            page = f"{page.rstrip()}\n\n{made}\n"
    return page


def _facts(result: dict[str, Any]) -> str:
    lines = [f"- {name}: `{value}`" for name, value in result["facts"].items()]
    return "\n".join([*lines, f"- data: {result['dataset']}, {result['seeds']} seeds"])


CLOSE = 3.0
"""Published standard deviations within which a mean counts as reproduced."""
NEAR_FLOOR = 1.3
"""Times the noise floor up to which a propensity counts as calibrated."""


@dataclass(frozen=True)
class Compared:
    """A number of ours beside the paper's, as ``reproduction.json`` tells it."""

    method: str
    source: str
    metric: str
    mean: float
    std: float | None
    is_significant: bool
    paper_mean: float | None
    deviation: float | None

    @classmethod
    def read(cls, record: dict[str, Any]) -> Compared:
        """From its record."""
        return cls(**{name: record[name] for name in cls.__dataclass_fields__})


def readings(result: dict[str, Any], table: pa.Table) -> list[str]:
    """Sentences about what reproduces, what calibration did, and what the leak does."""
    lines = []
    compared = {name: [Compared.read(each) for each in of] for name, of in result["comparisons"].items()}
    ece = {each.source: each for each in compared.get("table-ece", []) if each.metric == "ece"}
    if ece:
        lines += _about_ece(result["protocol"], compared["table-ece"], ece)
    for name, comparisons in compared.items():
        if name == "table-grid":
            lines += _about_grid(name, comparisons)
        elif name != "table-ece":
            lines += _about_methods(name, comparisons)
    lines += _about_leak(table)
    raw, partial = ([c for c in result["correlations"] if c["partial"] == of] for of in (False, True))
    if raw:
        lines.append(
            "fig-ece-vs-performance: ECE is correlated with performance beyond chance (interval without 0)"
            f" for {_beyond_chance(raw)} of {len(raw)} metrics, and for"
            f" {_beyond_chance(partial)} after mean weight and effective sample size are"
            " partialled out."
        )
    return lines


def _beyond_chance(correlations: list[dict[str, Any]]) -> int:
    return sum((c["low"] or 0.0) * (c["high"] or 0.0) > 0 for c in correlations)


def _about_ece(protocol: str, table: list[Compared], ece: dict[str, Compared]) -> list[str]:
    lines = []
    raw, platt = ece["raw"], ece["platt"]
    paper = "" if raw.paper_mean is None else f" (the paper prints {raw.paper_mean:.4f})"
    lines.append(
        f"table-ece: raw ECE is {raw.mean:.4f} ± {raw.std or math.nan:.4f}{paper}; Platt scaling's is"
        f" {platt.mean:.4f}, {platt.mean / raw.mean:.2f} of it."
    )
    figures = {(each.source, each.metric): each.mean for each in table}
    everywhere = figures.get(("platt", "ece_all_of_d"))
    if protocol == "paper" and everywhere is not None:
        lines.append(
            f"Measured over all of D, the population that the weights are used for, Platt scaling's ECE is"
            f" {everywhere:.4f}."
        )
    if "constant" in ece:
        trained = {source: each for source, each in ece.items() if source != "constant"}
        best = min(trained.values(), key=lambda each: each.mean)
        floor = figures[best.source, "ece_floor"]
        verdict = "within" if best.mean <= NEAR_FLOOR * floor else "beyond"
        lines.append(
            f"The best calibrated row is {best.source} with {best.mean:.4f},"
            f" {best.mean / floor:.2f} times its noise floor ({verdict} {NEAR_FLOOR}); the constant"
            f" share of clicks, which debiases nothing, has {ece['constant'].mean:.4f}: ECE alone would"
            " choose it."
        )
    return lines


def _about_methods(name: str, comparisons: list[Compared]) -> list[str]:
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
        better = sum(of["platt", m].mean > of["raw", m].mean for m in RANKING)
        sure = sum(of["platt", m].is_significant and of["platt", m].mean > of["raw", m].mean for m in RANKING)
        lines.append(
            f"{name}: {method} with Platt scaling is above raw on {better} of {len(RANKING)} metrics,"
            f" significantly (Holm) on {sure}; the paper says all."
        )
    return lines


def _about_grid(name: str, comparisons: list[Compared]) -> list[str]:
    """Over all methods with given propensities: what Platt scaling, and no information at all, did to AUC."""
    auc: dict[str, dict[str, Compared]] = {}
    for each in comparisons:
        if each.metric == "auc" and each.source:
            auc.setdefault(each.method, {})[each.source] = each
    if not auc:
        return []
    above = [m for m, of in auc.items() if of["platt"].mean > of["raw"].mean]
    sure = [m for m in above if auc[m]["platt"].is_significant]
    best = [max(of.values(), key=lambda each: each.mean).source for of in auc.values()]
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


def _about_leak(table: pa.Table) -> list[str]:
    means: dict[str, list[float]] = {}
    for line in table.drop_columns(["users"]).to_pylist():
        if line["part"] == "method" and line["method"] == "naive" and line["metric"] == "dcg@2":
            means.setdefault(line["dataset"], []).append(line["value"])
    if len(means) != 2:
        return []
    levels = [f"{name} {sum(values) / len(values):.4f}" for name, values in means.items()]
    return [f"What the leak does: DCG@2 of the naive model is {' and '.join(levels)}."]


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        write_page(PAGE, Path(argument))
    print(f"written: {PAGE.name}")
