"""``unskew reproduce``: the paper's tables and figures, beside the published numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew.cli import RESUME, interrupted

LEAST_WIDTH = 140
"""Columns of the widest table; a narrower terminal wraps its lines."""


def reproduce(
    presets: Annotated[
        list[str],
        typer.Argument(
            help="table-ece, table-ips, table-dr, table-kuairand, table-sota, table-efficiency,"
            " table-switches, fig-reliability, fig-histogram, fig-ece-vs-performance, or all of these;"
            " table-grid (every method of the paper with every propensity)."
        ),
    ],
    data: Annotated[
        str | None,
        typer.Option(help="coat, yahoo_r3, kuairand or synthetic [coat if it is found, else synthetic]."),
    ] = None,
    root: Annotated[Path | None, typer.Option(help="The folder of the dataset's files.")] = None,
    protocol: Annotated[str, typer.Option(help="honest, or paper (what the published code did).")] = "honest",
    seeds: Annotated[int, typer.Option(help="Repetitions, trained together.")] = 10,
    seed: Annotated[int, typer.Option(help="Number of the first repetition.")] = 0,
    reverse: Annotated[
        list[str] | None,
        typer.Option(help="With --protocol paper: a switch to reverse; may be repeated."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="The folder [runs/reproduce-PROTOCOL]; finished parts are reused."),
    ] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    json: Annotated[Path | None, typer.Option(help="Write the comparisons to this file too.")] = None,
) -> None:
    """Print the paper's tables beside the published numbers, and draw its figures."""
    from unskew.base.files import write_text
    from unskew.base.progress import progress_bars
    from unskew.cli.console import plain_console
    from unskew.cli.places import check_outputs, check_seed
    from unskew.data.datasets import DATASETS
    from unskew.study.reproduce import reproduce as run
    from unskew.study.reproduction import ReproduceConfig

    check_seed(seed)
    if data is not None:
        DATASETS.require(data)
    config = ReproduceConfig(
        presets=tuple(presets),
        out=out or Path("runs") / f"reproduce-{protocol}",
        data=data,
        root=root,
        protocol=protocol,  # type: ignore[arg-type]
        seeds=seeds,
        seed=seed,
        device=device,
        reversed=tuple(reverse or ()),
    )
    check_outputs({"--json": json}, folders={"--out": config.out})
    try:
        with progress_bars() as progress:
            result = run(config, progress)
    except KeyboardInterrupt:
        if not config.out.exists():
            raise
        interrupted(f"what was finished is in {config.out}. {RESUME}")
    console = plain_console(LEAST_WIDTH)
    for line in (*result.facts.values(), *result.labels, *result.notes):
        console.print(f"  · {line}", style="dim")
    for tables in result.tables.values():
        for shown in tables:
            console.print(shown.rich())
    for name in result.figures:
        console.print(f"{name}: {config.out / f'{name}.svg'}")
    if json is not None:
        write_text(json, (config.out / "reproduction.json").read_text(encoding="utf-8"))
    console.print(f"Everything: {config.out}")
