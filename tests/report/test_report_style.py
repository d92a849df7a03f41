"""Figures can be told apart by everyone, are the same bytes every time, and touch nobody's settings."""

from __future__ import annotations

import itertools
import subprocess
import sys
import textwrap
from typing import Any

import matplotlib
import numpy as np
import pytest
from numpy.typing import NDArray

from unskew.report.plots.methods import overview_figures, overview_svg
from unskew.report.style import COLOURS, SERIES, Colour, svg

# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
PROTANOPIA = [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
]
DEUTERANOPIA = [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.011820, 0.042940, 0.968881],
]
TO_XYZ = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]) / np.array(
    [[0.9505], [1.0], [1.089]]
)


def drawn(inputs: dict[str, Any]) -> Any:
    return overview_figures(metrics={}, sketches=inputs["sketches"])


def linear(colour: str) -> NDArray[np.float64]:
    value = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(value <= 0.04045, value / 12.92, ((value + 0.055) / 1.055) ** 2.4)


def lab(rgb: NDArray[np.float64]) -> NDArray[np.float64]:
    x, y, z = np.cbrt(np.clip(TO_XYZ @ rgb, 0.0089, None))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("shade", ["light", "dark"])
@pytest.mark.parametrize("pair", list(itertools.combinations(("raw", "calibrated", "naive"), 2)))
def test_the_series_of_a_run_differ_in_grey(pair: tuple[str, str], shade: str) -> None:
    lightness = [lab(linear(getattr(SERIES[name].colour, shade)))[0] for name in pair]
    assert abs(lightness[0] - lightness[1]) > 10


@pytest.mark.parametrize("matrix", [np.eye(3), PROTANOPIA, DEUTERANOPIA])
def test_all_series_differ_for_colour_blind_readers(matrix: Any) -> None:
    seen = {name: lab(np.asarray(matrix) @ linear(series.colour.light)) for name, series in SERIES.items()}
    for first, second in itertools.combinations(seen, 2):
        assert np.linalg.norm(seen[first] - seen[second]) > 15, (first, second)


@pytest.mark.parametrize("shade", ["light", "dark"])
def test_text_has_enough_contrast_with_the_surface(shade: str) -> None:
    def luminance(colour: Colour) -> float:
        return float(np.array([0.2126, 0.7152, 0.0722]) @ linear(getattr(colour, shade)))

    named = {colour.name: luminance(colour) for colour in COLOURS}
    for text in ("ink", "muted"):
        bright, dark = max(named[text], named["surface"]), min(named[text], named["surface"])
        assert (bright + 0.05) / (dark + 0.05) > 4.5  # WCAG AA for text


def test_the_same_input_gives_the_same_bytes(inputs: dict[str, Any]) -> None:
    arguments = {"metrics": inputs["metrics"], "sketches": inputs["sketches"]}
    assert overview_svg(**arguments) == overview_svg(**arguments)


def test_the_readers_own_settings_change_nothing(inputs: dict[str, Any]) -> None:
    plain = svg(*drawn(inputs), name="a", title="a")
    own = {"font.size": 30.0, "axes.grid": False, "svg.fonttype": "path", "lines.linewidth": 9.0}
    with matplotlib.rc_context(own):
        changed = svg(*drawn(inputs), name="a", title="a")
        assert {key: matplotlib.rcParams[key] for key in own} == own
    assert changed == plain


def test_importing_loads_no_matplotlib_and_drawing_no_pyplot() -> None:
    script = """
        import sys
        import unskew, unskew.report
        assert "matplotlib" not in sys.modules and "jinja2" not in sys.modules and "torch" not in sys.modules
        from unskew.metrics import CalibrationSketch
        sketch = CalibrationSketch.of(score=[0.1, 0.2, 0.4, 0.6], outcome=[0, 0, 1, 1])
        unskew.report.overview_svg(metrics={}, sketches={"raw": sketch})
        assert "matplotlib" in sys.modules and "matplotlib.pyplot" not in sys.modules
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
