"""``unskew score``: predictions of a run for new pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew.errors import ParameterError
from unskew.plain_text import plain

PARQUET_SUFFIXES = (".parquet", ".pq")


def score(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    pairs: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE...", help="CSV, Parquet or Arrow with users and items: files, folders or globs."
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The Parquet file to write.")],
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
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output file.")] = False,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:1.")] = "auto",
) -> None:
    """Add conversion (mean over seeds), its standard deviation, and the propensity to each pair.

    Other columns are carried along; one that is called as an added one becomes given_NAME.
    """
    if unseen not in (None, "error", "nan", "other", "average"):
        raise ParameterError(
            f"--unseen must be error, nan, other or average, not {unseen!r}", remedy="give one of these"
        )
    if out.suffix not in PARQUET_SUFFIXES:
        raise ParameterError(f"{out} must end in .parquet", remedy="give -o FILE.parquet")

    from unskew.cli.places import check_outputs, run_files, table_files
    from unskew.io.files import check_new_file

    check_outputs({"--out": out}, read=[*run_files(run), *table_files(pairs)])
    new = check_new_file(out, overwrite=overwrite)

    from unskew.run.scoring import score_pairs

    rows = score_pairs(
        run,
        pairs,
        new,
        user=user,
        item=item,
        method=method,
        unseen=unseen,  # type: ignore[arg-type]
        device=device,
    )
    print(f"{rows:,} pairs scored: {plain(out)}")
