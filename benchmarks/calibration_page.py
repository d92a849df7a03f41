"""The page ``docs/calibration-performance.md``, from the figures of ``benchmarks.calibration``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

OURS, READ = "unskew", "plain read"
METRICS = ("ECE, 100 bins", "adaptive ECE", "smooth ECE", "sketch (every metric)")
YARDSTICKS = ("scikit-learn", "netcal")
ECE_RATIO, READ_RATIO, FIT_RATIO, EXTRA_MB, GROWTH = 4.0, 3.0, 8.0, 64.0, 1.2
"""What is wanted: times faster than the fastest library, times a plain read, times faster than scikit-learn
or netcal, extra memory, time a row at the largest size over that at 10⁶."""

ABOUT = (
    "Made by `python -m benchmarks.calibration --write docs/calibration-performance.md`, in one process on"
    " the same\narrays: scores float64 and outcomes int64, logit-normal around 5 %, over-spread and shifted."
    " CPU seconds of one\nthread, best of several; ratios are what to read, seconds are the machine's. Extra"
    " memory is the peak above the\narrays and the result. Fit and apply are timed together. What is missing"
    " is not offered, or would take more than\n{limit:g} s.\n"
)

Record = Mapping[str, Any]


def page(told: Mapping[str, Any]) -> str:
    """The whole page in Markdown."""
    records: list[Record] = told["records"]
    sizes = sorted({record["rows"] for record in records})
    versions = ", ".join(f"{name} {number}" for name, number in told["versions"].items())
    parts = [
        "# Calibration: speed and memory\n",
        ABOUT.format(limit=told["limit"]),
        f"Machine: {told['machine']}. {versions}.\n",
        "## Metrics\n",
        *(_table(records, size, METRICS) for size in sizes),
        _verdict_of_ece(records, sizes),
        "## Calibrators, fit and apply\n",
        *(_table(records, size, _calibrators(records)) for size in sizes),
        _verdict_of_fits(records, sizes),
    ]
    if told["large"]:
        parts += ["## unskew alone, float32 scores and uint8 outcomes\n", _large(told["large"])]
    return "\n".join(parts) + "\n"


def _rows(rows: int) -> str:
    return "10" + "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(len(str(rows)) - 1))


def _calibrators(records: Sequence[Record]) -> tuple[str, ...]:
    named = dict.fromkeys(record["work"] for record in records)
    return tuple(work for work in named if work not in (*METRICS, READ))


def _find(records: Sequence[Record], work: str, rows: int) -> dict[str, Record]:
    return {r["library"]: r for r in records if r["work"] == work and r["rows"] == rows}


def _table(records: Sequence[Record], rows: int, works: Sequence[str]) -> str:
    """Our time and memory, the libraries' in order of time, and how many times faster we are."""
    lines = [
        f"At {_rows(rows)} rows:\n",
        "| work | unskew, s (extra MB) | libraries, s (extra MB) | times faster than the fastest |",
        "|---|---:|---|---:|",
    ]
    for work in works:
        found = _find(records, work, rows)
        mine = found.pop(OURS, None)
        if mine is None:
            continue
        others = sorted(found.values(), key=lambda record: record["seconds"])
        listed = " · ".join(f"{r['library']} {_seconds(r)} ({r['extra_mb']:,.0f})" for r in others)
        ratio = f"{others[0]['seconds'] / mine['seconds']:.1f}" if others else "–"
        lines.append(f"| {work} | {_seconds(mine)} ({mine['extra_mb']:,.0f}) | {listed or '–'} | {ratio} |")
    return "\n".join(lines) + "\n"


def _verdict_of_ece(records: Sequence[Record], sizes: Sequence[int]) -> str:
    lines = [
        "| ECE at | times a plain read of the two arrays | times faster than the fastest library |",
        "|---|---:|---:|",
    ]
    for rows in sizes:
        found, read = _find(records, METRICS[0], rows), _find(records, READ, rows)
        mine = found.pop(OURS)["seconds"]
        faster = min((record["seconds"] for record in found.values()), default=float("nan")) / mine
        lines.append(f"| {_rows(rows)} rows | {mine / read['NumPy']['seconds']:.1f} | {faster:.1f} |")
    return "\n".join(lines) + f"\n\nWanted: at most {READ_RATIO:g}, at least {ECE_RATIO:g}.\n"


def _verdict_of_fits(records: Sequence[Record], sizes: Sequence[int]) -> str:
    """Ratios to the faster of the yardsticks, a line a size, and our greatest extra memory."""
    ratios: dict[str, dict[int, float]] = {}
    for work in _calibrators(records):
        for rows in sizes:
            found = _find(records, work, rows)
            times = [found[name]["seconds"] for name in YARDSTICKS if name in found]
            if times and OURS in found:
                ratios.setdefault(work, {})[rows] = min(times) / found[OURS]["seconds"]
    lines = [
        f"| times faster than the faster of {' and '.join(YARDSTICKS)} | {' | '.join(ratios)} |",
        f"|---|{'---:|' * len(ratios)}",
    ]
    for rows in sizes:
        told = (f"{by_size[rows]:.0f}" if rows in by_size else "–" for by_size in ratios.values())
        lines.append(f"| {_rows(rows)} rows | {' | '.join(told)} |")
    extra = max(record["extra_mb"] for record in records if record["library"] == OURS)
    wanted = (
        f"Wanted: at least {FIT_RATIO:g}. Greatest extra memory of ours, metrics included: {extra:.0f} MB;"
    )
    return "\n".join(lines) + f"\n\n{wanted} wanted: at most {EXTRA_MB:g}.\n"


def _large(records: Sequence[Record]) -> str:
    small, large = sorted({record["rows"] for record in records})
    lines = [
        f"| work | ns a row at {_rows(small)} | at {_rows(large)} | growth | extra MB at {_rows(large)} |",
        "|---|---:|---:|---:|---:|",
    ]
    worst = 0.0
    for work in dict.fromkeys(record["work"] for record in records):
        one, other = (
            next(r for r in records if r["work"] == work and r["rows"] == rows) for rows in (small, large)
        )
        pace = [record["seconds"] / record["rows"] * 1e9 for record in (one, other)]
        growth = pace[1] / pace[0]
        worst = max(worst, growth if work != READ else 0.0)
        lines.append(f"| {work} | {pace[0]:.2f} | {pace[1]:.2f} | {growth:.2f} | {other['extra_mb']:,.0f} |")
    return "\n".join(lines) + f"\n\nGreatest growth {worst:.2f}; wanted: at most {GROWTH:g}.\n"


def _seconds(record: Record) -> str:
    return f"{record['seconds']:.3g}"
