"""``unskew make-data``: a synthetic world as files, of any size."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from unskew.base.errors import ParameterError
from unskew.base.plain_text import plain

WORLDS = ("impressions",)


def make_data(
    world: Annotated[str, typer.Argument(help="The world; impressions is the one there is.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write; re-run to resume.")],
    rows: Annotated[str, typer.Option(help="Rows of the log, such as 1e8.")] = "1e6",
    users: Annotated[str, typer.Option(help="Users, such as 1e6 [a tenth of the rows].")] = "",
    items: Annotated[str, typer.Option(help="Items [a hundredth of the rows].")] = "",
    test_rows: Annotated[str, typer.Option(help="Rows shown at random, with all conversions.")] = "1e5",
    seed: Annotated[int, typer.Option(help="Of everything.")] = 0,
    confounding: Annotated[
        float, typer.Option(help="Strength of a hidden taste that drives clicks and conversions.")
    ] = 0.0,
    option: Annotated[
        list[str] | None,
        typer.Option("--option", help="KEY=VALUE for the world, as click_rate=0.02; may be repeated."),
    ] = None,
    files: Annotated[
        int | None, typer.Option(help="Files of the log [one for four million rows]; its rows are the same.")
    ] = None,
    truth: Annotated[bool, typer.Option("--truth/--no-truth", help="Write the truth beside the log.")] = True,
    json: Annotated[Path | None, typer.Option(help="Write what was done to this file too.")] = None,
) -> None:
    """Write a log of impressions with features, a random test set and the truth, as Parquet files."""
    if world not in WORLDS:
        raise ParameterError(f"unknown world {world!r}", remedy=f"use {', '.join(WORLDS)}")
    from unskew.cli.options import loader_options
    from unskew.cli.places import check_outputs, check_seed

    check_seed(seed)
    check_outputs({"--json": json}, folders={"--out": out})
    n_rows = _whole("--rows", rows)
    flags = {f"n_{name}": f"--{name}" for name in ("rows", "users", "items")}
    flags |= {"test_rows": "--test-rows", "seed": "--seed", "confounding": "--confounding"}

    from unskew.base.progress import progress_bars
    from unskew.data.datasets.impression_files import write_world
    from unskew.data.datasets.impression_world import ImpressionWorld

    options = loader_options(option or (), ImpressionWorld, flags)
    known = set(ImpressionWorld.__dataclass_fields__)
    unknown = sorted(set(options) - known)
    if unknown:
        raise ParameterError(
            f"the world has no option {', '.join(unknown)}",
            remedy=f"its options are {', '.join(sorted(known - flags.keys()))}",
        )
    described = ImpressionWorld(
        n_rows=n_rows,
        n_users=_whole("--users", users) if users else max(n_rows // 10, 1),
        n_items=_whole("--items", items) if items else max(n_rows // 100, 10),
        seed=seed,
        confounding=confounding,
        **options,
    )
    with progress_bars() as progress:
        done = write_world(
            described,
            out,
            files=files,
            test_rows=_whole("--test-rows", test_rows, least=0),
            truth=truth,
            progress=progress,
        )
    if json is not None:
        from unskew.base.files import write_json

        write_json(json, {**asdict(done), "folder": str(done.folder)})
    kept = f", {done.files_kept} of them from an earlier call" if done.files_kept else ""
    print(f"{done.rows:,} rows in {done.files:,} files{kept}, {done.bytes:,} bytes in all: {plain(out)}")


def _whole(flag: str, text: str, least: int = 1) -> int:
    """A whole number that may be written as 1e8 or 100_000."""
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not (number.is_integer() and number >= least):
        raise ParameterError(
            f"{flag} must be a whole number of at least {least}, not {text!r}",
            remedy=f"write for example {flag} 1e6",
        )
    return int(number)
