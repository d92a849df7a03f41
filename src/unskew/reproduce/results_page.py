"""docs/results.md: what ``unskew reproduce`` found, put into the page's marked sections; prose stays.

A section lies between ``<!-- results: NAME -->`` and ``<!-- end of results -->``. What stands outside is a
person's and is never touched.
"""

from __future__ import annotations

import re
from pathlib import Path

from unskew.io.files import whole_file
from unskew.reproduce.reading import readings
from unskew.reproduce.reproduced import Reproduced

END = "<!-- end of results -->"
NOT_YET = "*Not run yet: the command is told in the introduction.*"
NEEDS_DATA = (
    "*Needs KuaiRand-Pure, which cannot be shipped:"
    " `unskew reproduce table-kuairand --data kuairand --root FOLDER --write-docs …` fills it.*"
)
FIGURES = "figures"

BOTH = (
    "table-ips",
    "table-dr",
    "table-sota",
    "table-grid",
    "table-kuairand",
    "table-efficiency",
    "fig-reliability",
    "fig-histogram",
    "fig-ece-vs-performance",
)
ORDER = {"paper": ("table-ece", "table-switches", *BOTH), "honest": ("table-ece", *BOTH)}
"""The sections of each protocol."""

HEADS = {
    "paper": "The paper protocol: what the published code gives",
    "honest": "The honest protocol: what holds",
}

SKELETON = """# Results: the paper's tables, and the truth about them

Every number below was made by a command; the sections between marks are written by it
(`unskew reproduce … --write-docs docs/results.md`) and are never edited by hand. ± is the standard deviation
over seeds (ddof 1); \\* differs from raw (in the table of later methods: from ESCM²-DR) at 5 % by a paired
t-test with Holm's correction over the whole table; ‡ is the paper's own mark; "off, in its s.d." is how many
of the paper's standard deviations our mean is away from its mean. To make it again:

```
for protocol in paper honest; do
  unskew reproduce all table-grid --data coat --root DATA/coat --protocol $protocol --seeds 10 \\
    --write-docs docs/results.md
done
```

## In short

{reading_paper}

{reading_honest}

## Which method should I use?

Begin with the naive model and with `unskew audit`. Weight only by propensities that are calibrated on cells
which trained nothing, and look at the effective sample size first: where it is a small part of the clicks,
prefer SNIPS or a doubly robust method with clipped propensities. Choose on a validation split of your own
clicks (`unskew run`), never on a test set; where the tables below show no mark, the methods cannot be told
apart on data of this size, and the simplest is the best.

{sections}
"""


def section(name: str, text: str) -> str:
    """A marked section."""
    return f"<!-- results: {name} -->\n\n{text}\n\n{END}"


def skeleton() -> str:
    """The page before anything was run."""
    sections = []
    for protocol, presets in ORDER.items():
        sections.append(f"## {HEADS[protocol]}\n\n{section(f'{protocol} facts', NOT_YET)}")
        for preset in presets:
            text = NEEDS_DATA if preset == "table-kuairand" else NOT_YET
            sections.append(f"### {preset}\n\n{section(f'{protocol} {preset}', text)}")
    return SKELETON.format(
        reading_paper=section("paper reading", NOT_YET),
        reading_honest=section("honest reading", NOT_YET),
        sections="\n\n".join(sections),
    )


def write_page(path: Path, result: Reproduced) -> None:
    """Put a result into a page's sections; the page is begun where there is none. Figures lie beside it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    page = path.read_text(encoding="utf-8") if path.is_file() else skeleton()
    protocol = result.config.protocol
    texts = {f"{protocol} facts": _facts(result)}
    if result.tables:
        texts[f"{protocol} reading"] = "\n".join(f"- {line}" for line in readings(result))
    for name, tables in result.tables.items():
        texts[f"{protocol} {name}"] = "\n\n".join(
            f"{shown.markdown()}\n\n*{shown.caption}*" for shown in tables
        )
    folder = path.parent / FIGURES
    for name, svg in result.figures.items():
        folder.mkdir(parents=True, exist_ok=True)
        file = f"{protocol}-{name}.svg"
        with whole_file(folder / file) as beside:
            beside.write_text(svg, encoding="utf-8")
        picture = f"![{name}, {protocol} protocol]({FIGURES}/{file})"
        key = f"{protocol} {name}"
        texts[key] = f"{picture}\n\n{texts[key]}" if key in texts else picture
    with whole_file(path) as beside:
        beside.write_text(with_sections(page, texts), encoding="utf-8")


def with_sections(page: str, texts: dict[str, str]) -> str:
    """A page with some sections' content replaced; sections that it does not have are added at its end."""
    for name, text in texts.items():
        mark = re.compile(rf"<!-- results: {re.escape(name)} -->.*?{re.escape(END)}", re.DOTALL)
        made = section(name, text)
        if mark.search(page):
            page = mark.sub(lambda _, made=made: made, page)  # type: ignore[misc]
        else:
            page = f"{page.rstrip()}\n\n{made}\n"
    return page


def _facts(result: Reproduced) -> str:
    lines = [f"- {name}: `{value}`" for name, value in result.facts.items()]
    lines += [f"- data: {result.dataset}, {result.config.seeds} seeds"]
    return "\n".join([*lines, *(f"- {line}" for line in (*result.labels, *result.notes))])
