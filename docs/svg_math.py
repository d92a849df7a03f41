"""Formulas as drawings inside the page: the same in every browser, without fonts, scripts or a network.

MathML would be left to the reader's fonts, and MathJax to a script. A drawing takes the colour of its text,
so that it is right in dark pages too, and has its LaTeX as a label for those who listen.
"""

from __future__ import annotations

import html
import re
from functools import cache
from xml.etree import ElementTree

import ziamath
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.errors import SphinxError
from sphinx.writers.html5 import HTML5Translator

SIZE = 17.0
"""Of the drawn letters, in pixels beside text of 16."""
PRECISION = 2
"""Decimals of a drawing's coordinates; of a pixel, a tenth can be seen on a telephone."""

ziamath.config.svg2 = False  # Drawings of one page must not share ids.
ziamath.config.precision = PRECISION


@cache
def drawn(latex: str, *, inline: bool) -> str:
    """Draw a formula as an ``svg`` that stands on the line of its text."""
    try:
        formula = ziamath.Latex(spaced(latex), size=SIZE, color="currentColor", inline=inline)
        drawing = formula.svgxml()
    except Exception as error:  # Whatever the parser meets is the author's, who needs to see the formula.
        raise SphinxError(f"this formula cannot be drawn: {latex!r}: {error!r}") from error
    width, height = (float(drawing.get(name, "0")) for name in ("width", "height"))
    drawing.set("width", f"{width / 16:.3f}em")
    drawing.set("height", f"{height / 16:.3f}em")
    drawing.set("style", f"vertical-align: {formula.getyofst() / 16:.3f}em")
    drawing.set("role", "img")
    drawing.set("aria-label", " ".join(latex.split()))
    text = ElementTree.tostring(drawing, encoding="unicode")
    return re.sub(r"(?<=\d)\.0+(?=\D)", "", text)


def spaced(latex: str) -> str:
    """With the thin space between an operator's name and its argument, which ziamath leaves out."""
    return re.sub(r"(\\operatorname\{\w+\})\s*(?=[\\\w])", r"\1\\,", latex)


def visit_inline(self: HTML5Translator, node: nodes.math) -> None:
    """Write a formula in a line."""
    self.body.append(f'<span class="formula">{drawn(node.astext(), inline=True)}</span>')
    raise nodes.SkipNode


def visit_block(self: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula in lines of its own, which may be wider than a telephone: it scrolls."""
    label = html.escape(" ".join(node.astext().split())[:60])
    self.body.append(
        f'<div class="formula" tabindex="0" role="group" aria-label="formula {label}">'
        f"{drawn(node.astext(), inline=False)}</div>"
    )
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    """Make drawings the site's way to show mathematics."""
    app.add_html_math_renderer("svg", (visit_inline, None), (visit_block, None))
    app.config.html_math_renderer = "svg"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
