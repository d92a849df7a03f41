"""Renders a template into one self-contained HTML file; callers supply its content."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from unskew.plain_text import plain
from unskew.report.style import FONT_STACK, css_variables

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup

    from unskew.report.plots.dot_charts import DotChart
    from unskew.report.plots.drawing import Panel

LONGEST_TEXT = 20_000
"""Characters of one text on a page, which may be a whole paragraph."""


@dataclass(frozen=True)
class Picture:
    """A figure on a page: charts and panels side by side, what their series are called, and a caption."""

    name: str
    caption: str
    panels: tuple[Markup, ...] = ()
    charts: tuple[DotChart, ...] = ()
    keys: tuple[tuple[str, str, Markup], ...] = ()
    """Series, what each is called, and how it looks: those that a reader may switch off."""
    wide: Markup | None = None
    """A picture that cannot be narrow, and is moved sideways there."""


class Pictures(dict[str, Picture]):
    """The figures of a page, by name."""

    def put(
        self,
        name: str,
        caption: str,
        *,
        panels: Sequence[Panel | str] = (),
        charts: Sequence[DotChart] = (),
        keys: Mapping[str, str] | None = None,
    ) -> None:
        """A figure of panels (SVG) and charts (HTML).

        Parameters
        ----------
        keys
            Series and what they are called; by default the series of the panels.
        """
        from markupsafe import Markup

        from unskew.report.plots.drawing import Panel, sample

        drawn = (each.drawn(each.title) if isinstance(each, Panel) else each for each in panels)
        series = [key for each in panels if isinstance(each, Panel) for key in each.named]
        named = dict.fromkeys(series) if keys is None else keys
        self[name] = Picture(
            name,
            caption,
            tuple(Markup(each) for each in drawn),
            tuple(charts),
            tuple((key, called or key, Markup(sample(key))) for key, called in named.items()),
        )


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

    environment = Environment(
        loader=PackageLoader("unskew.report"),
        autoescape=True,
        finalize=_plain_words,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["worded"] = worded
    return environment


def worded(text: str) -> Markup:
    """A sentence for a page: escaped, with what stands between backticks as code.

    Examples
    --------
    >>> worded("give `--p-min 0.1` & <run>")
    Markup('give <code>--p-min 0.1</code> &amp; &lt;run&gt;')
    """
    from markupsafe import Markup, escape

    escaped = str(escape(plain(text, LONGEST_TEXT)))
    return Markup(re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped))


def _plain_words(value: Any) -> Any:
    """What the page shows, without control characters; what is markup already is ours, and stays."""
    return plain(value, LONGEST_TEXT) if type(value) is str else value
