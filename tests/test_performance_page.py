"""The page of measurements has ranges, and the page of a benchmark says whether each bar is reached."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]
MAKER = runpy.run_path(str(ROOT / "benchmarks" / "calibration_page.py"))
METRICS = MAKER["METRICS"]


def test_every_ratio_of_training_has_its_range_or_says_that_it_is_one_run() -> None:
    text = (ROOT / "docs" / "evidence" / "performance.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.*?) \| (.*?) \| (.*?) \| (.*?) \|$", text, flags=re.MULTILINE)
    ratios = {
        claim: measured for claim, _, measured, _ in rows if " ÷ " in claim or " against the plain" in claim
    }
    assert len(ratios) == 3
    for claim, measured in ratios.items():
        limits = re.search(r"range ([\d.,]+) to ([\d.,]+)", measured)
        assert limits is not None or "one run" in measured, claim
        expected = re.search(r"\*\*([\d.,]+)", measured)
        if limits is not None and expected is not None:
            low, high = (float(limits[part].strip(",.").replace(",", "")) for part in (1, 2))
            assert low <= float(expected[1].strip(",.").replace(",", "")) <= high, claim


def test_a_bar_is_told_as_reached_exactly_where_it_is() -> None:
    """From figures made up so that each kind of bar is missed once."""

    def record(work: str, library: str, seconds: float, types: str = "float64 + int64") -> dict[str, object]:
        timed = {"rows": 1_000_000, "seconds": seconds, "extra_mb": 1.0}
        return {"work": work, "library": library, "types": types, **timed}

    records = []
    for types, ours in (("float64 + int64", 2.0), ("float32 + uint8", 4.0)):
        records += [
            record("plain read", "NumPy", 1.0, types),
            record(METRICS[0], "unskew", ours, types),
            record(METRICS[0], "relplot", 9.0, types),
        ]
    records += [
        record("platt", "unskew", 1.0),
        record("platt", "netcal", 7.0),
        record("platt", "probcal", 2.0),
    ]
    large = [
        {"work": work, "rows": rows, "seconds": seconds, "extra_mb": 65.0}
        for work in ("plain read", "platt")
        for rows, seconds in ((1_000_000, 1.0), (100_000_000, 130.0))
    ]
    text = MAKER["page"]({"machine": "", "versions": {}, "limit": 1.0, "records": records, "large": large})
    bars = re.findall(r"^\| (.*?) \| ([≤≥].*?) \| (.*?) \| (.*?) \|$", text, flags=re.MULTILINE)
    told = {what: (found, outcome) for what, _, found, outcome in bars}
    assert told == {
        "ECE beside the fastest library, float64 + int64, 10⁶ rows": ("4.5 ×", "reached"),
        "ECE beside a plain read, float64 + int64, 10⁶ rows": ("2.0 ×", "reached"),
        "ECE beside the fastest library, float32 + uint8, 10⁶ rows": ("2.2 ×", "**not reached**"),
        "ECE beside a plain read, float32 + uint8, 10⁶ rows": ("4.0 ×", "**not reached**"),
        "slowest of the calibrators beside scikit-learn and netcal, 10⁶ rows (platt)": (
            "7.0 ×",
            "**not reached**",
        ),
        "greatest extra memory of ours": ("65 MB", "**not reached**"),
        "growth of the time a row to the largest size (platt)": ("1.30 ×", "**not reached**"),
    }
