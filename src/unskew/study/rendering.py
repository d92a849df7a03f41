"""A study's tables as files to read: Markdown, LaTeX and a page of HTML, all from the same summaries."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path

from unskew.io.files import whole_file
from unskew.study.engine import StudyResult
from unskew.study.table import StudySummary, summary

_PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<title>{title}</title>
<style>
body {{ font: 15px/1.45 system-ui, sans-serif; margin: 2rem; color: #222; }}
table {{ border-collapse: collapse; margin: 2rem 0; }}
caption {{ text-align: left; padding-bottom: .5rem; font-weight: 600; }}
th, td {{ padding: .25rem .7rem; text-align: left; border-bottom: 1px solid #ddd; }}
td.number {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
</style>
<h1>{title}</h1>
<ul>
{notes}
</ul>
{tables}
</html>
"""


def summaries(result: StudyResult) -> dict[str, StudySummary]:
    """What a study has to show: its propensities, each against its own raw one; its methods, each against
    the grid's baseline."""
    grid = result.grid
    made = {}
    if grid.propensities:
        made["propensities"] = summary(
            result.table,
            part="propensity",
            against={"calibrator": "none"},
            title="Propensities on held-out cells",
        )
    if grid.methods:
        made["methods"] = summary(
            result.table,
            metrics=grid.metrics,
            against={"method": grid.baseline},
            title="Conversion models on randomly shown pairs",
        )
    return {name: each for name, each in made.items() if each.rows and each.metrics}


def write_renderings(
    folder: Path, title: str, made: Mapping[str, StudySummary], notes: Sequence[str]
) -> None:
    """``tables.md``, ``tables.tex`` and ``tables.html``."""
    shown = [each.shown() for each in made.values()]
    markdown = [f"# {title}", "\n".join(f"- {note}" for note in notes)]
    for each in shown:
        markdown += [f"## {each.title}", each.markdown(), each.caption]
    page = _PAGE.format(
        title=html.escape(title),
        notes="\n".join(f"<li>{html.escape(note)}</li>" for note in notes),
        tables="".join(each.html() for each in shown),
    )
    texts = {
        "tables.md": "\n\n".join(markdown) + "\n",
        "tables.tex": "\n".join(each.latex() for each in shown) + "\n",
        "tables.html": page,
    }
    for name, text in texts.items():
        with whole_file(folder / name) as beside:
            beside.write_text(text, encoding="utf-8")
