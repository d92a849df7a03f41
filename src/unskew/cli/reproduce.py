"""``unskew reproduce``: the paper's tables and figures, beside the published numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from unskew.base.settings import Settings, option
from unskew.cli import options as shared
from unskew.cli import resumable
from unskew.cli.console import show

LEAST_WIDTH = 140
"""Columns of the widest table; a narrower terminal wraps its lines."""


class ReproduceOptions(Settings):
    """The options of ``unskew reproduce``."""

    presets: tuple[str, ...] = option(..., flag="argument", metavar="PRESETS...")
    """table-ece, table-ips, table-dr, table-kuairand, table-sota, table-efficiency, table-switches,
    fig-reliability, fig-histogram, fig-ece-vs-performance, or all of these; table-grid (every method
    of the paper with every propensity)."""
    data: str | None = option(None)
    """coat, yahoo_r3, kuairand or synthetic [coat if it is there, else synthetic]."""
    root: Path | None = option(None)
    """The folder of the dataset's files."""
    protocol: Literal["honest", "paper"] = option("honest")
    """paper does what the published code did."""
    seeds: int = option(10)
    """Repetitions, trained together."""
    seed: shared.Seed = 0
    reverse: tuple[str, ...] = option(())
    """With --protocol paper: a switch to reverse; may be repeated."""
    out: Path | None = option(None, writes="folder")
    """The folder [runs/reproduce-PROTOCOL]; finished parts are used again."""
    jobs: int = option(1, ge=1)
    """Processes that train side by side."""
    device: shared.Device = "auto"
    json_file: shared.JsonFile = None


def reproduce(options: ReproduceOptions) -> None:
    """Print the paper's tables beside the published numbers, and draw its figures."""
    from unskew.base.files import write_text
    from unskew.base.progress import progress_bars
    from unskew.study.reproduce import reproduce as run

    out = options.out or Path("runs") / f"reproduce-{options.protocol}"
    asked = {"data", "root", "protocol", "seeds", "seed", "reverse", "device"}
    base = options.model_dump(mode="json", include=asked, exclude_none=True)
    shared.check_outputs(options, out=out)
    with resumable(out, "what was finished is in"), progress_bars() as progress:
        result = run(options.presets, base, out, jobs=options.jobs, progress=progress)
    lines = (*result.facts.values(), *result.labels, *result.notes)
    show(*(f"  · {line}" for line in lines), dim=True, least_width=LEAST_WIDTH)
    show(*(table for tables in result.tables.values() for table in tables), least_width=LEAST_WIDTH)
    show(*(f"{name}: {out / f'{name}.svg'}" for name in result.figures))
    if options.json_file is not None:
        write_text(options.json_file, (out / "reproduction.json").read_text(encoding="utf-8"))
    show(f"Everything: {out}")
