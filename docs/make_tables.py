"""Tables and lists of pages that follow from the code: ``python docs/make_tables.py``; a test compares."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from unskew.base.errors import DataError
from unskew.base.registry import CALIBRATORS, DATASETS, LEARNERS, METHODS
from unskew.calibration import Calibrator
from unskew.debias import Debiaser
from unskew.report.table import Table

DOCS = Path(__file__).parent
PAGES = [
    DOCS / "methods" / "index.md",
    DOCS / "calibrators" / "index.md",
    DOCS / "reference" / "datasets.md",
]


def needs(method: type[Debiaser]) -> str:
    """Describe what a method must be given."""
    wanted = []
    if method.needs_propensity:
        everywhere = method.needs_propensity_everywhere
        wanted.append("propensities on all of D" if everywhere else "propensities")
    if method.needs_full_space:
        wanted.append("batches of D")
    return ", ".join(wanted) or "clicks alone"


def show_methods() -> Table:
    """Every method of the library: its class, where it comes from, what it needs and when to use it."""
    return Table(
        title="Debiasing methods",
        columns=("method", "class", "paper", "needs", "imputes by", "use it"),
        rows=tuple(
            (
                f"[`{name}`]({name}.md)",
                f"`{method.__name__}`",
                method.paper,
                needs(method),
                method.imputation or "–",
                method.when,
            )
            for name, method in METHODS.built_in.items()
        ),
        words=6,
    )


def show_calibrators() -> Table:
    """Every calibrator: what its page calls it, whether it keeps the order of scores and the base rate."""
    pages = DOCS / "calibrators"
    return Table(
        title="Calibrators",
        columns=("name", "class", "what it is", "monotone", "mean prediction = base rate"),
        rows=tuple(
            (
                f"[`{name}`]({name}.md)",
                f"`{kind.__name__}`",
                (pages / f"{name}.md").read_text(encoding="utf-8").split("\n")[0].partition(" — ")[2],
                "yes" if kind.monotone else "no",
                "yes" if keeps_base_rate(kind()) else "no",
            )
            for name, kind in CALIBRATORS.built_in.items()
        ),
        words=5,
    )


def keeps_base_rate(calibrator: Calibrator) -> bool:
    """Whether its mean prediction on the rows that it was fitted on is their share of positives."""
    random = np.random.default_rng(0)
    score = random.beta(1, 8, 20_000)
    outcome = random.random(20_000) < score**1.5
    return bool(abs(calibrator.fit(score, outcome).predict(score).mean() - outcome.mean()) < 1e-6)


def show_datasets() -> Table:
    """Every dataset: the first line of its file, and its options."""
    return Table(
        title="Datasets",
        columns=("name", "what it is", "options"),
        rows=tuple(
            (
                f"`{name}`",
                str(sys.modules[loader.__module__].__doc__).split("\n")[0].rstrip("."),
                ", ".join(f"`{each}`" for each in inspect.signature(loader).parameters if each not in SHARED),
            )
            for name, loader in DATASETS.built_in.items()
        ),
        words=3,
    )


SHARED = ("root", "protocol", "progress")
"""Options that every dataset has."""

TABLES: dict[str, Callable[[], Table]] = {
    "methods": show_methods,
    "calibrators": show_calibrators,
    "datasets": show_datasets,
}
"""Tables by the name in a page's marks, ``<!-- table: NAME -->`` and ``<!-- end of table -->``."""

NAMES = {
    "methods": [kind.__name__ for kind in METHODS.built_in.values()],
    "calibrators": [kind.__name__ for kind in CALIBRATORS.built_in.values()],
    "learners": [kind.__name__ for kind in LEARNERS.built_in.values()],
    "datasets": list(DATASETS.built_in),
}
"""Lists by the name in a page's marks, ``<!-- names: NAME -->`` and ``<!-- end of names -->``."""

_MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)
_LISTED = re.compile(r"(<!-- names: (\w+) -->).*?(<!-- end of names -->)")


def with_tables(page: str) -> str:
    """Return a page's text with every marked table and list made again."""

    def made(found: re.Match[str]) -> str:
        opening, name, closing = found.groups()
        if name not in TABLES:
            raise DataError(f"there is no table {name!r}", remedy=f"use one of {', '.join(TABLES)}")
        return f"{opening}\n{TABLES[name]().markdown()}\n\n{closing}"

    def listed(found: re.Match[str]) -> str:
        opening, name, closing = found.groups()
        return opening + ", ".join(f"`{each}`" for each in NAMES[name]) + closing

    return _MARKED.sub(made, _LISTED.sub(listed, page))


if __name__ == "__main__":
    for path in PAGES:
        path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"written: {path.relative_to(DOCS.parent)}")
