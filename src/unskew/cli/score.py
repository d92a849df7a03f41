"""``unskew score``: predictions of a run for new pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew.base.errors import ParameterError
from unskew.base.plain_text import plain
from unskew.cli.options import LogJson


def score(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    pairs: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="CSV, Parquet or Arrow with users and items: files, folders or globs."
        ),
    ],
    out: Annotated[
        str,
        typer.Option(
            "--out", "-o", help="The Parquet file to write, or a folder (its name ends in /) of part files."
        ),
    ],
    user: Annotated[str | None, typer.Option(help="The column of user ids [as in training].")] = None,
    item: Annotated[str | None, typer.Option(help="The column of item ids [as in training].")] = None,
    method: Annotated[str | None, typer.Option(help="Which of the run's models [its main one].")] = None,
    unseen: Annotated[
        str | None,
        typer.Option(
            help="For an id that was not seen in training: error, nan, average (of a model that reads ids"
            " alone: the mean over known ones) or other (of one that reads features: what these tell) [other"
            " with features, else error]."
        ),
    ] = None,
    spread: Annotated[
        bool,
        typer.Option(
            "--spread",
            help="Also add how far the members of the model disagree: conversion_spread, their standard"
            " deviation, and conversion_low and conversion_high, between which nine in ten would predict.",
        ),
    ] = False,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
    log_json: LogJson = None,
) -> None:
    """Add conversion (mean over seeds), its standard deviation, propensity and click_and_conversion to pairs.

    Other columns are carried along; one that is called as an added one becomes given_NAME. Rows are read,
    scored and written batch by batch: memory does not grow with the files.
    """
    if unseen not in (None, "error", "nan", "other", "average"):
        raise ParameterError(
            f"--unseen must be error, nan, other or average, not {unseen!r}", remedy="give one of these"
        )

    from unskew.cli.places import check_outputs, rows_outputs, run_files, table_files
    from unskew.data.row_files import check_rows_target

    file, folder = rows_outputs(out)
    check_outputs(
        {**file, "--log-json": log_json}, folders=folder, read=[*run_files(run), *table_files(pairs)]
    )
    new = check_rows_target(out, overwrite=overwrite)

    from unskew.base.progress import progress_bars
    from unskew.run.scoring import score_pairs

    with progress_bars(log_json=log_json) as progress:
        rows = score_pairs(
            run,
            pairs,
            new,
            user=user,
            item=item,
            method=method,
            unseen=unseen,  # type: ignore[arg-type]
            spread=spread,
            device=device,
            progress=progress,
        )
    print(f"{rows:,} pairs scored: {plain(out)}")
