"""Renders a template into one self-contained HTML file; callers supply its content."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from unskew.plain_text import plain
from unskew.report.style import FONT_STACK, css_variables, svg

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup
    from matplotlib.figure import Figure

LONGEST_TEXT = 20_000
"""Characters of one text on a page, which may be a whole paragraph."""


@dataclass(frozen=True)
class Picture:
    """A figure on a page, with its caption."""

    name: str
    svg: Markup
    caption: str


class Pictures(dict[str, Picture]):
    """The figures of a page, by name."""

    def add(self, name: str, figure: Figure, title: str, caption: str) -> None:
        """A figure made ready for a page; ``title`` is for those who hear it."""
        self.put(name, svg(figure, name=name, title=title), caption)

    def put(self, name: str, drawn: str, caption: str) -> None:
        """A figure that is SVG already (``plots/drawing``)."""
        from markupsafe import Markup

        self[name] = Picture(name, Markup(drawn), caption)


def render(template: str, **content: Any) -> str:
    """A page from one of the templates; everything but our own SVG and CSS is escaped."""
    from markupsafe import Markup

    styles = {"light": css_variables(dark=False), "dark": css_variables(dark=True), "fonts": FONT_STACK}
    return (
        _environment()
        .get_template(template)
        .render(style={name: Markup(text) for name, text in styles.items()}, **content)
    )


@lru_cache(maxsize=1)
def _environment() -> Environment:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    return Environment(
        loader=PackageLoader("unskew.report"),
        autoescape=True,
        finalize=_plain_words,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


def _plain_words(value: Any) -> Any:
    """What the page shows, without control characters; what is markup already is ours, and stays."""
    return plain(value, LONGEST_TEXT) if type(value) is str else value
