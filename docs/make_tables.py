"""What the methods are, as a table; and the tables on the pages of the documentation, made again.

``python docs/make_tables.py`` writes the tables of docs/methods/index.md anew; a test compares.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from unskew.debias import METHODS, Debiaser
from unskew.errors import DataError
from unskew.study.estimators import estimator_study, show_estimators
from unskew.study.shown import Shown
from unskew.study.unbiasedness import show_unbiasedness, unbiasedness_study


def needs(method: type[Debiaser]) -> str:
    """What a method must be given, in words."""
    wanted = []
    if method.needs_propensity:
        everywhere = method.needs_propensity_everywhere
        wanted.append("propensities on all of D" if everywhere else "propensities")
    if method.needs_full_space:
        wanted.append("batches of D")
    return ", ".join(wanted) or "clicks alone"


def show_methods() -> Shown:
    """Every method of the library: its class, where it comes from, what it needs and when to use it."""
    return Shown(
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
            for name, method in METHODS.items()
            if method.__module__.startswith("unskew.")
        ),
        text_columns=6,
    )


PAGE = Path(__file__).parent / "methods" / "index.md"

TABLES: dict[str, Callable[[], Shown]] = {
    "methods": show_methods,
    "unbiasedness": lambda: show_unbiasedness(unbiasedness_study()),
    "estimators": lambda: show_estimators(estimator_study()),
}
"""Tables by the name in a page's marks, ``<!-- table: NAME -->`` and ``<!-- end of table -->``."""

_MARKED = re.compile(r"(<!-- table: (\w+) -->\n).*?(<!-- end of table -->)", re.DOTALL)


def with_tables(page: str) -> str:
    """A page's text with every marked table made again."""

    def made(found: re.Match[str]) -> str:
        opening, name, closing = found.groups()
        if name not in TABLES:
            raise DataError(f"there is no table {name!r}", remedy=f"use one of {', '.join(TABLES)}")
        return f"{opening}\n{TABLES[name]().markdown()}\n\n{closing}"

    return _MARKED.sub(made, page)


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"written: {PAGE.name}")
