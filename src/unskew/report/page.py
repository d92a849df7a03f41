"""Templates rendered into one self-contained HTML file; callers supply the content."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from unskew.base.plain_text import plain
from unskew.report.numbers import FORMATS
from unskew.report.style import FONT_STACK, PANEL_WIDTH, css_variables, inline_svg

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup
    from matplotlib.figure import Figure

    from unskew.report.table import Table

LONGEST_TEXT = 20_000
"""Characters of one text on a page, which may be a whole paragraph."""


@dataclass(frozen=True)
class Picture:
    """A figure on a page: panels that stand beside each other where there is room."""

    name: str
    panels: tuple[Markup, ...]
    width: int | None = None
    """Pixels of a figure that cannot be narrow; a narrow page scrolls it sideways."""


def picture(name: str, figures: Sequence[Figure]) -> Picture:
    """Return figures as SVG to stand in a page."""
    from markupsafe import Markup

    drawn = []
    for number, figure in enumerate(figures, 1):
        title = " ".join(figure.get_suptitle().split()) or str(figure.get_label()) or name
        drawn.append(Markup(inline_svg(figure, name=f"{name}-{number}", title=title)))
    inches = max(figure.get_figwidth() for figure in figures)
    return Picture(name, tuple(drawn), round(80 * inches) if inches > PANEL_WIDTH else None)


def render(template: str, **content: Any) -> str:
    """Return a page from one of the templates; everything but our own SVG and CSS is escaped."""
    from markupsafe import Markup

    styles = {"light": css_variables(dark=False), "dark": css_variables(dark=True), "fonts": FONT_STACK}
    return (
        environment()
        .get_template(template)
        .render(style={name: Markup(text) for name, text in styles.items()}, **content)
    )


def table_html(table: Table, *, sort: bool = False) -> str:
    """Return a table as the pages have it."""
    parts: Any = environment().get_template("parts.html.j2").module
    return str(parts.lay_out(table, sort))


@cache
def environment(*, escape: bool = True) -> Environment:
    """Return what reads the templates, with our formats of numbers as filters; pages are escaped."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    made = Environment(
        loader=PackageLoader("unskew.report"),
        autoescape=escape,
        finalize=lambda value: plain(value, LONGEST_TEXT) if type(value) is str else value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(FORMATS, worded=worded)
    return made


def worded(text: str) -> Markup:
    """Return a sentence for a page: escaped, with what stands between backticks as code.

    Examples
    --------
    >>> worded("give `--p-min 0.1` & <run>")
    Markup('give <code>--p-min 0.1</code> &amp; &lt;run&gt;')
    """
    from markupsafe import Markup, escape

    escaped = str(escape(plain(text, LONGEST_TEXT)))
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped))
