"""A page of figures of ``calibration`` and ``bench_audit``."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

WIDTH = 115
OURS, READ = "unskew", "plain read"
ECE = "ECE, 100 bins"
METRICS = (ECE, "adaptive ECE", "smooth ECE", "sketch (every metric)")
YARDSTICKS = ("scikit-learn", "netcal")
WIDE, NARROW = "float64 + int64", "float32 + uint8"
ECE_RATIO, READ_RATIO, FIT_RATIO, EXTRA_MB, GROWTH = 4.0, 3.0, 8.0, 64.0, 1.2
"""What is wanted: times faster than the fastest library, times a plain read, times faster than scikit-learn
or netcal, extra memory, time a row at the largest size over that at 10⁶."""

ABOUT = """Made by `python -m benchmarks.calibration --audit audit.json --write PAGE.md`, in
one process on the same arrays: logit-normal scores around 5 %, over-spread and shifted; float64 with int64 outcomes where nothing
else is said. CPU seconds of one thread, best of several; ratios are what to read, seconds are the machine's. Extra
memory is the peak above the arrays and the result. Fit and apply are timed together. What is missing is not offered,
or would take more than {limit:g} s."""  # noqa: E501

WHY_READ = """A plain read is one vectorised `or` over both arrays. ECE adds one number to one of 100 bins for each
row: a load, an addition and a store that rows do not share, 0.4 ns on this machine, beside 0.35 ns to check the row
and to find its bin; every type and size takes these. So the ratio hangs on how fast the read is: 16 bytes a row from
memory take half of that time, 5 bytes a row from the cache less than a tenth. In 10⁵ rows the call itself shows: a
tenth of a millisecond is ours, and a fifth of that is Python."""  # noqa: E501

WHY_GROWTH = """What grows is what applies a map of steps: the more rows it was fitted on, the more steps it has
(Venn-Abers 570 at 10⁶ rows, 1,070 at 4·10⁷), and the worse a processor guesses between which of two a score lies. What
shrinks has a fit whose time does not depend on the rows."""  # noqa: E501

AUDIT = """`read` is `pyarrow.parquet.read_table` of the two columns in a process that has loaded it; `pass` reads,
checks and sketches every row; `audit` is the pass and everything up to the verdict, ten calibrators cross-fitted
among it; `report` draws report.html. Only the pass grows with the rows. Peak memory is that of `audit` above what the
process holds after its imports."""  # noqa: E501

Record = Mapping[str, Any]


def page(told: Mapping[str, Any]) -> str:
    """Return the whole page in Markdown."""
    records: list[Record] = told["records"]
    wide = [record for record in records if record["types"] == WIDE]
    sizes = sorted({record["rows"] for record in wide})
    versions = ", ".join(f"{name} {number}" for name, number in told["versions"].items())
    parts = [
        "# Calibration: speed and memory\n",
        _wrapped(ABOUT.format(limit=told["limit"])),
        f"Machine: {told['machine']}. {versions}.\n",
        "## What is wanted, and what is reached\n",
        _bars(told),
        "## Metrics\n",
        *(_table(wide, size, METRICS) for size in sizes),
        _ece_table(records),
        "## Calibrators, fit and apply\n",
        *(_table(wide, size, _calibrators(wide)) for size in sizes),
        _fits_table(wide, sizes),
    ]
    if told["large"]:
        parts += [f"## unskew alone, {NARROW}\n", _large_table(told["large"])]
    if told.get("note"):
        parts.append(_wrapped(told["note"]))
    if told.get("audit"):
        parts += ["## unskew audit beside a read of the two columns\n", _audit(told["audit"])]
    return "\n".join(parts) + "\n"


def _bars(told: Mapping[str, Any]) -> str:
    lines = ["| what | wanted | found | |", "|---|---:|---:|---|"]
    for what, wanted, found, reached in _verdicts(told):
        lines.append(f"| {what} | {wanted} | {found} | {'reached' if reached else '**not reached**'} |")
    return "\n".join(lines) + "\n"


def _verdicts(told: Mapping[str, Any]) -> Iterator[tuple[str, str, str, bool]]:
    records: list[Record] = told["records"]
    for types in (WIDE, NARROW):
        for rows in _sizes(records, types):
            faster, of_read = _ece_ratios(records, types, rows)
            where = f"{types}, {_rows(rows)} rows"
            yield (
                f"ECE beside the fastest library, {where}",
                f"≥ {ECE_RATIO:g} ×",
                f"{faster:.1f} ×",
                faster >= ECE_RATIO,
            )
            yield (
                f"ECE beside a plain read, {where}",
                f"≤ {READ_RATIO:g} ×",
                f"{of_read:.1f} ×",
                of_read <= READ_RATIO,
            )
    wide = [record for record in records if record["types"] == WIDE]
    for rows in _sizes(records, WIDE):
        ratios = _fit_ratios(wide, rows)
        if ratios:
            worst = min(ratios, key=lambda name: ratios[name])
            yield (
                f"slowest of the calibrators beside {' and '.join(YARDSTICKS)}, {_rows(rows)} rows ({worst})",
                f"≥ {FIT_RATIO:g} ×",
                f"{ratios[worst]:.1f} ×",
                ratios[worst] >= FIT_RATIO,
            )
    extra = max(r["extra_mb"] for r in (*records, *told["large"]) if r.get("library", OURS) == OURS)
    yield "greatest extra memory of ours", f"≤ {EXTRA_MB:g} MB", f"{extra:.0f} MB", extra <= EXTRA_MB
    if told["large"]:
        worst, growth = max(_growths(told["large"]).items(), key=lambda item: item[1])
        yield (
            f"growth of the time a row to the largest size ({worst})",
            f"≤ {GROWTH:g} ×",
            f"{growth:.2f} ×",
            growth <= GROWTH,
        )
    for bar in (told.get("audit") or {}).get("bars", ()):
        yield f"audit: {bar['what']}", bar["wanted"], bar["found"], bar["reached"]


def _rows(rows: int) -> str:
    return "10" + "".join("⁰¹²³⁴⁵⁶⁷⁸⁹"[int(digit)] for digit in str(len(str(rows)) - 1))


def _sizes(records: Sequence[Record], types: str) -> list[int]:
    return sorted({record["rows"] for record in records if record["types"] == types})


def _calibrators(records: Sequence[Record]) -> tuple[str, ...]:
    named = dict.fromkeys(record["work"] for record in records)
    return tuple(work for work in named if work not in (*METRICS, READ))


def _find(records: Sequence[Record], work: str, rows: int, types: str = WIDE) -> dict[str, Record]:
    return {r["library"]: r for r in records if (r["work"], r["rows"], r["types"]) == (work, rows, types)}


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


def _ece_ratios(records: Sequence[Record], types: str, rows: int) -> tuple[float, float]:
    """How many times faster than the fastest library, and how many times a plain read."""
    found, read = (_find(records, work, rows, types) for work in (ECE, READ))
    mine = found.pop(OURS)["seconds"]
    fastest = min((record["seconds"] for record in found.values()), default=float("nan"))
    return fastest / mine, mine / read["NumPy"]["seconds"]


def _ece_table(records: Sequence[Record]) -> str:
    lines = [
        "| ECE of | rows | ns a row | a plain read, ns a row | times a plain read | fastest library |"
        " times faster than it |",
        "|---|---:|---:|---:|---:|---|---:|",
    ]
    for types in (WIDE, NARROW):
        for rows in _sizes(records, types):
            found, read = (_find(records, work, rows, types) for work in (ECE, READ))
            faster, of_read = _ece_ratios(records, types, rows)
            mine = found.pop(OURS)
            best = min(found.values(), key=lambda record: record["seconds"])["library"] if found else "–"
            pace = [record["seconds"] / rows * 1e9 for record in (mine, read["NumPy"])]
            lines.append(
                f"| {types} | {_rows(rows)} | {pace[0]:.2f} | {pace[1]:.2f} | {of_read:.1f} | {best} |"
                f" {faster:.1f} |"
            )
    return "\n".join(lines) + f"\n\n{_wrapped(WHY_READ)}"


def _fit_ratios(records: Sequence[Record], rows: int) -> dict[str, float]:
    """For each calibrator that a yardstick has, how many times faster we are."""
    ratios = {}
    for work in _calibrators(records):
        found = _find(records, work, rows)
        times = [found[name]["seconds"] for name in YARDSTICKS if name in found]
        if times and OURS in found:
            ratios[work] = min(times) / found[OURS]["seconds"]
    return ratios


def _fits_table(records: Sequence[Record], sizes: Sequence[int]) -> str:
    """Ratios to the faster of the yardsticks, a line a size."""
    by_size = {rows: _fit_ratios(records, rows) for rows in sizes}
    works = list(dict.fromkeys(work for ratios in by_size.values() for work in ratios))
    lines = [
        f"| times faster than the faster of {' and '.join(YARDSTICKS)} | {' | '.join(works)} |",
        f"|---|{'---:|' * len(works)}",
    ]
    for rows, ratios in by_size.items():
        told = (f"{ratios[work]:.1f}" if work in ratios else "–" for work in works)
        lines.append(f"| {_rows(rows)} rows | {' | '.join(told)} |")
    return "\n".join(lines) + "\n"


def _growths(records: Sequence[Record]) -> dict[str, float]:
    small, large = sorted({record["rows"] for record in records})
    pace = {(r["work"], r["rows"]): r["seconds"] / r["rows"] for r in records}
    return {work: pace[work, large] / pace[work, small] for work, _ in pace if work != READ}


def _large_table(records: Sequence[Record]) -> str:
    small, large = sorted({record["rows"] for record in records})
    lines = [
        f"| work | ns a row at {_rows(small)} | at {_rows(large)} | growth | extra MB at {_rows(large)} |",
        "|---|---:|---:|---:|---:|",
    ]
    for work in dict.fromkeys(record["work"] for record in records):
        one, other = (
            next(r for r in records if r["work"] == work and r["rows"] == rows) for rows in (small, large)
        )
        pace = [record["seconds"] / record["rows"] * 1e9 for record in (one, other)]
        lines.append(
            f"| {work} | {pace[0]:.2f} | {pace[1]:.2f} | {pace[1] / pace[0]:.2f} | {other['extra_mb']:,.0f} |"
        )
    return "\n".join(lines) + f"\n\n{_wrapped(WHY_GROWTH)}"


def _audit(told: Mapping[str, Any]) -> str:
    lines = [
        "Made by `python -m benchmarks.bench_audit --json audit.json`; wall seconds, best of several.\n",
        "| data | read | pass | audit | report | pass ÷ read | audit ÷ read | with report | peak MB |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for row in told["rows"]:
        times = " | ".join(f"{row[name]:.3f}" for name in ("read", "pass", "audit", "report"))
        ratios = (row["pass"], row["audit"], row["audit"] + row["report"])
        told_ratios = " | ".join(f"{value / row['read']:.1f}" for value in ratios)
        lines.append(f"| {row['data']} | {times} | {told_ratios} | {row['peak MB']:.0f} |")
    lines += [
        f"\n{_wrapped(AUDIT)}",
        "| a fresh process | seconds | of CPU |",
        "|---|---:|---:|",
        *(f"| {name} | {of['wall']:.2f} | {of['cpu']:.2f} |" for name, of in told["command"].items()),
        f"\n{_wrapped(told['limit'])}",
    ]
    return "\n".join(lines)


def _wrapped(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False) + "\n"


def _seconds(record: Record) -> str:
    return f"{record['seconds']:.3g}"
