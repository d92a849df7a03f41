"""Draws the packages and their imports: ``python docs/make_architecture.py``.

``images/architecture.svg`` and the table of ``architecture.md`` are made from the imports in the source
(``import_graph.py``); a test makes them again.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path

from import_graph import LAYERS, SOURCE, lines, packages, parsed

PAGE = Path(__file__).with_name("architecture.md")
DRAWING = Path(__file__).parent / "images" / "architecture.svg"

WIDTH, HEIGHT, GAP, ROW, BEND = 132, 44, 26, 92, 16
"""Of a box, between boxes, between rows, and of the place that a passing arrow takes, in pixels."""

_MARKED = re.compile(r"(<!-- packages -->\n).*?(<!-- end of packages -->)", re.DOTALL)
_ROW = re.compile(r"^\| `([\w.]+)` \| ([\d,]+) \|", re.MULTILINE)

Node = tuple[str, str, int]
"""A package (name, "", 0), or where the arrow from one to another passes a row (from, to, row)."""


def has_arrows(name: str) -> bool:
    """Whether it is drawn by itself; the single files of the lowest layer are what everybody stands on."""
    return (SOURCE / name).is_dir() or name not in LAYERS[0]


def direct() -> dict[str, set[str]]:
    """Packages and what they import, without what follows: an arrow a → c is left out where a → b → c."""
    needs = {
        name: {each for each in others if has_arrows(each)}
        for name, others in packages().items()
        if has_arrows(name)
    }

    @cache
    def below(name: str) -> set[str]:
        return needs[name].union(*(below(other) for other in needs[name]))

    return {
        name: {each for each in others if not any(each in below(other) for other in others)}
        for name, others in needs.items()
    }


def ranks(needs: Mapping[str, set[str]]) -> dict[str, int]:
    """The row of each package: one above the highest that it imports."""

    @cache
    def rank(name: str) -> int:
        return 1 + max((rank(other) for other in needs[name]), default=-1)

    return {name: rank(name) for name in needs}


def places(needs: Mapping[str, set[str]]) -> tuple[dict[Node, int], dict[tuple[str, str], list[Node]]]:
    """The middle of every node in its row, and the nodes that each arrow passes, from the top."""
    row_of = ranks(needs)
    arrows: dict[tuple[str, str], list[Node]] = {}
    rows: list[list[Node]] = [[] for _ in range(max(row_of.values()) + 1)]
    for name in sorted(needs):
        rows[row_of[name]].append((name, "", 0))
    for name in sorted(needs):
        for other in sorted(needs[name]):
            passed = [(name, other, row) for row in range(row_of[name] - 1, row_of[other], -1)]
            arrows[name, other] = [(name, "", 0), *passed, (other, "", 0)]
            for node in passed:
                rows[node[2]].append(node)
    beside: dict[Node, list[Node]] = {node: [] for row in rows for node in row}
    for passed in arrows.values():
        for upper, lower in pairwise(passed):
            beside[upper].append(lower)
            beside[lower].append(upper)

    middle: dict[Node, float] = {}
    for row in rows:
        middle |= _spread(row, {node: float(k * WIDTH) for k, node in enumerate(row)})
    for sweep in range(60):
        for row in rows if sweep % 2 else rows[::-1]:
            wanted = {node: sum(middle[each] for each in beside[node]) / len(beside[node]) for node in row}
            middle |= _spread(row, wanted)
    left = min(middle[node] - _width(node) / 2 for node in middle)
    return {node: round(place - left) + GAP for node, place in middle.items()}, arrows


def _width(node: Node) -> int:
    return BEND if node[1] else WIDTH


def _spread(row: list[Node], wanted: Mapping[Node, float]) -> dict[Node, float]:
    """Places near the wanted ones, in their order, without overlap; the row as a whole is not moved."""
    order = sorted(row, key=lambda node: (wanted[node], node))
    found: dict[Node, float] = {}
    for before, node in zip([None, *order], order, strict=False):
        least = -1e9 if before is None else found[before] + (_width(before) + _width(node)) / 2 + GAP
        found[node] = max(wanted[node], least)
    moved = sum(found[node] - wanted[node] for node in row) / len(row)
    return {node: place - moved for node, place in found.items()}


def drawing(counted: Mapping[str, int]) -> str:
    """The SVG: boxes with lines of source, arrows from a package to what it imports."""
    needs = direct()
    row_of, (middle, arrows) = ranks(needs), places(needs)
    top = max(row_of.values())

    def height(node: Node) -> int:
        return GAP + (top - (node[2] if node[1] else row_of[node[0]])) * ROW

    width = max(place + _width(node) // 2 for node, place in middle.items()) + GAP
    floor = GAP + (top + 1) * ROW
    files = [name for name in packages() if not has_arrows(name)]
    shapes = []
    for passed in arrows.values():
        points = [f"M{middle[passed[0]]},{height(passed[0]) + HEIGHT}"]
        for upper, lower in pairwise(passed):
            start = height(upper) + HEIGHT
            end = height(lower) - (0 if lower[1] else 5)
            half = (start + end) // 2
            points.append(f"C{middle[upper]},{half} {middle[lower]},{half} {middle[lower]},{end}")
            if lower[1]:
                points.append(f"V{height(lower) + HEIGHT}")
        shapes.append(f'<path class="arrow" d="{" ".join(points)}"/>')
    for name in needs:
        x, y = middle[name, "", 0], height((name, "", 0))
        shapes += [
            f'<rect class="box" x="{x - WIDTH // 2}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="6"/>',
            f'<text class="name" x="{x}" y="{y + 19}">{name}</text>',
            f'<text class="lines" x="{x}" y="{y + 35}">{counted[name]:,} lines</text>',
        ]
    shapes += [
        f'<rect class="floor" x="{GAP}" y="{floor}" width="{width - 2 * GAP}" height="{HEIGHT}" rx="6"/>',
        f'<text class="name" x="{width // 2}" y="{floor + 19}">{" · ".join(sorted(files))}</text>',
        f'<text class="lines" x="{width // 2}" y="{floor + 35}">one file each, imported by all:'
        f" {sum(counted[name] for name in files):,} lines</text>",
    ]
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {floor + HEIGHT + GAP}">',
        "<style>",
        "svg { background: #ffffff; font-family: sans-serif; text-anchor: middle }",
        ".box { fill: #eaf1fb; stroke: #2f5d9b } .floor { fill: #f2f2f2; stroke: #8a8a8a }",
        ".name { font-size: 15px; fill: #14263f } .lines { font-size: 11px; fill: #4a5a70 }",
        ".arrow { fill: none; stroke: #5b7291; stroke-width: 1.2; marker-end: url(#head) }",
        "</style>",
        '<defs><marker id="head" markerWidth="7" markerHeight="7" refX="2" refY="3" orient="auto">'
        '<path d="M0,0 L6,3 L0,6 z" fill="#5b7291"/></marker></defs>',
        *shapes,
        "</svg>",
        "",
    ])  # fmt: skip


def page(written: str, counted: Mapping[str, int]) -> str:
    """The page with its table made again."""
    rows = [
        f"| `{name}` | {counted[name]:,} | {_says(name)} | {', '.join(sorted(packages()[name])) or '–'} |"
        for name in packages()
    ]
    total = f"| all | {sum(counted.values()):,} | | |"
    table = ["| package | lines | what it is | imports |", "|---|---:|---|---|", *rows, total]
    return _MARKED.sub(lambda found: f"{found[1]}\n" + "\n".join(table) + f"\n\n{found[2]}", written)


def _says(name: str) -> str:
    """The first sentence of its docstring."""
    place = SOURCE / name / "__init__.py" if (SOURCE / name).is_dir() else SOURCE / f"{name}.py"
    text = ast.get_docstring(parsed(place)) or ""
    first = " ".join(text.split("\n\n")[0].split()).replace("``", "`").replace("|", "\\|")
    return first if first.endswith(".") else f"{first}."


def written_lines(text: str) -> dict[str, int]:
    """The lines of source that a page tells."""
    return {name: int(number.replace(",", "")) for name, number in _ROW.findall(text)}


def rounded() -> dict[str, int]:
    """Lines to the next ten, so that a small change does not move the drawing."""
    return {name: max(10, round(number, -1)) for name, number in lines().items()}


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8"), rounded()), encoding="utf-8")
    DRAWING.write_text(drawing(rounded()), encoding="utf-8")
    print(f"written: {PAGE.name}, {DRAWING.name}")
