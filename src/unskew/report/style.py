"""How every figure looks: palette, matplotlib settings, and SVG that is the same bytes every time.

The figures are in ``plots/``. matplotlib is imported inside the functions, so that nobody waits for it who
draws nothing, and only through its objects (``Figure``), never through pyplot.
"""

from __future__ import annotations

import io
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar
from xml.sax.saxutils import escape

if TYPE_CHECKING:
    from matplotlib.figure import Figure

P = ParamSpec("P")
T = TypeVar("T")

PANEL_WIDTH = 4.2
"""Inches of one panel on a page: on a telephone its letters are still ten pixels high."""

FIGURE_WIDTH = 11.4
"""Inches of a figure of several panels, which stands in a file of its own."""

MARGIN = 4.0
"""Points around a picture."""

SVG_NAMESPACE = "http://www.w3.org/2000/svg"
XLINK_NAMESPACE = "http://www.w3.org/1999/xlink"

FONT_STACK = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"
"""Fonts of the page and, in it, of the figures. Figures are laid out with DejaVu Sans, which comes with
matplotlib (the same layout on every machine) and is wider than all of these (so nothing can overlap)."""


@dataclass(frozen=True)
class Colour:
    """A colour on a light page and on a dark one, and its name as a CSS variable."""

    name: str
    light: str
    dark: str


INK = Colour("ink", "#1b1f24", "#e6e9ed")
MUTED = Colour("muted", "#5b636d", "#9aa4b0")
LINE = Colour("line", "#d9dee4", "#333b45")
SURFACE = Colour("surface", "#ffffff", "#171b21")
BEFORE = Colour("before", "#e69f00", "#e69f00")
AFTER = Colour("after", "#0072b2", "#3a8fd0")
PLAIN = Colour("plain", "#474d55", "#d3d9e0")
TRUE = Colour("true", "#17a67d", "#2fbf95")
CONSTANT = Colour("constant", "#cc79a7", "#d98fb8")

COLOURS = (INK, MUTED, LINE, SURFACE, BEFORE, AFTER, PLAIN, TRUE, CONSTANT)


@dataclass(frozen=True)
class Series:
    """One kind of data: distinct by colour, by lightness, by marker and by line."""

    colour: Colour
    marker: str
    dashes: str | tuple[float, tuple[float, ...]]

    def line(self) -> dict[str, Any]:
        """Return the arguments of a line with markers; faces have the page's surface or the colour."""
        return {
            "color": self.colour.light,
            "marker": self.marker,
            "linestyle": self.dashes,
            "markerfacecolor": SURFACE.light if self.colour is BEFORE else self.colour.light,
            "markeredgecolor": self.colour.light,
        }


SERIES: Mapping[str, Series] = {
    "raw": Series(BEFORE, "s", (0, (4.0, 1.6))),
    "calibrated": Series(AFTER, "o", "-"),
    "naive": Series(PLAIN, "D", (0, (1.2, 1.2))),
    "true": Series(TRUE, "^", "-."),
    "constant": Series(CONSTANT, "v", (0, (6.0, 1.5, 1.0, 1.5))),
}
"""Okabe and Ito's colours, safe for colour-blind readers. In grey, raw, calibrated and naive differ
by lightness (L* 71, 46 and 32 on a light page; 71, 57 and 86 on a dark one), the others by their markers."""

STYLE = Path(__file__).with_name("templates") / "figures.mplstyle"

INKED = {
    INK: ("axes.titlecolor", "text.color"),
    MUTED: ("axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"),
    LINE: ("grid.color",),
    SURFACE: ("legend.facecolor",),
}
"""The settings of matplotlib that have each colour."""

_RC = threading.RLock()
"""Held while the settings are changed: matplotlib's are global, and a service draws in several threads."""


@contextmanager
def settings() -> Iterator[None]:
    """Put our settings in the place of the reader's matplotlibrc, and his back afterwards."""
    import matplotlib

    with _RC, matplotlib.rc_context():
        if matplotlib.rcParams["svg.hashsalt"] != "unskew":
            matplotlib.rcdefaults()
            matplotlib.rcParams.update(matplotlib.rc_params_from_file(STYLE, use_default_template=False))
            inked: dict[Any, str] = {name: c.light for c, names in INKED.items() for name in names}
            matplotlib.rcParams.update(inked)
        yield


def styled(draw: Callable[P, T]) -> Callable[P, T]:
    """Run a function that draws under our settings."""

    @wraps(draw)
    def drawn(*args: P.args, **kwargs: P.kwargs) -> T:
        with settings():
            return draw(*args, **kwargs)

    return drawn


def new_figure(height: float, width: float = FIGURE_WIDTH) -> Figure:
    """Return an empty figure of a size in inches, which is laid out when it is written."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def svg(*figures: Figure, name: str, title: str, columns: int = 3) -> str:
    """Return figures side by side as an SVG file with fixed colours: the same bytes for the same figures.

    Parameters
    ----------
    name
        Put before every id, so that several figures can stand in one file.
    title
        What the figures show, for readers who hear it instead of seeing it.
    """
    drawn = [_drawn(figure, f"{name}-{number}") for number, figure in enumerate(figures, 1)]
    across = max(box[2] for box, _ in drawn)
    panels, height = "", 0.0
    for first in range(0, len(drawn), columns):
        row = drawn[first : first + columns]
        for column, (box, rest) in enumerate(row):
            corner = f'x="{column * across:g}" y="{height:g}" width="{box[2]:g}" height="{box[3]:g}"'
            panels += f"\n{_opening(*box)} {corner}>{rest}"
        height += max(box[3] for box, _ in row)
    width = across * min(columns, len(drawn))
    size = f'width="{width:g}" height="{height:g}"'
    return (
        f'{_opening(0, 0, width, height)} role="img" {size}>\n <title>{escape(title)}</title>\n'
        f' <rect {size} fill="{SURFACE.light}"/>{panels}\n</svg>\n'
    )


def inline_svg(figure: Figure, *, name: str, title: str) -> str:
    """Return a figure to stand in a page: no ground, and colours that follow the page into the dark."""
    box, rest = _drawn(figure, name)
    for colour in COLOURS:
        rest = rest.replace(colour.light, f"var(--{colour.name})")
    label = escape(title, {'"': "&quot;"})
    return f'{_opening(*box)} role="img" aria-label="{label}">{rest}\n'


def _opening(*box: float) -> str:
    corners = " ".join(f"{number:g}" for number in box)
    return f'<svg xmlns="{SVG_NAMESPACE}" xmlns:xlink="{XLINK_NAMESPACE}" viewBox="{corners}"'


def _drawn(figure: Figure, name: str) -> tuple[tuple[float, float, float, float], str]:
    """Return the box of a figure with a margin, and its SVG after the opening tag."""
    target = io.StringIO()
    with settings(), warnings.catch_warnings():
        # The reader has fonts for letters that the font of the layout lacks.
        warnings.filterwarnings("ignore", r"Glyph \d+ .* missing from", UserWarning)
        figure.savefig(target, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Type", "Format")))
    text = target.getvalue()
    text = re.sub(r"<!--.*?-->\s*", "", text[text.index("<svg") :].rstrip())
    text = text.replace("font-family: 'DejaVu Sans'", f"font-family: {FONT_STACK}")
    text = re.sub(r'\bid="', f'id="{name}-', text)
    text = re.sub(r'(href="#|url\(#)', rf"\g<1>{name}-", text)
    width, height = (72 * float(inches) + 2 * MARGIN for inches in figure.get_size_inches())
    return (-MARGIN, -MARGIN, width, height), text.split(">", 1)[1]


def css_variables(dark: bool) -> str:
    """Return the palette as CSS declarations."""
    return " ".join(f"--{c.name}: {c.dark if dark else c.light};" for c in COLOURS)
