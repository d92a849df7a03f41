"""``unskew make-data``: a synthetic world as files, of any size."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator

from unskew.base.errors import ParameterError
from unskew.base.plain_text import plain
from unskew.base.settings import Settings, option
from unskew.cli import options as shared

WORLDS = ("impressions",)


def _whole(value: Any) -> Any:
    """Read a whole number that may be written as 1e8 or 100_000."""
    with suppress(ValueError):
        number = float(value)
        return int(number) if number.is_integer() else value
    return value


Count = Annotated[int, BeforeValidator(_whole)]


class MakeDataOptions(Settings):
    """The options of ``unskew make-data``."""

    world: str = option(..., flag="argument", metavar="WORLD")
    """The world; impressions is the one there is."""
    out: Path = option(..., flag="--out -o", writes="folder")
    """The folder to write."""
    rows: Count = option(10**6, ge=1)
    """Rows of the log, such as 1e8."""
    users: Count | None = option(None)
    """Users, such as 1e6 [a tenth of the rows]."""
    items: Count | None = option(None)
    """Items [a hundredth of the rows]."""
    test_rows: Count = option(10**5, ge=0)
    """Rows shown at random, with all conversions."""
    seed: shared.Seed = 0
    confounding: float = option(0.0)
    """Strength of a hidden taste that drives clicks and conversions."""
    options: tuple[str, ...] = option((), flag="--option")
    """KEY=VALUE for the world, as click_rate=0.02; may be repeated."""
    truth: bool = option(True, flag="--truth/--no-truth")
    """Write the truth beside the log."""
    json_file: shared.JsonFile = None


def make_data(asked: MakeDataOptions) -> None:
    """Write a log of impressions with features, a random test set and the truth, as Parquet files."""
    if asked.world not in WORLDS:
        raise ParameterError(f"unknown world {asked.world!r}", remedy=f"use {', '.join(WORLDS)}")
    shared.check_outputs(asked)

    from unskew.base.progress import progress_bars
    from unskew.data.datasets.impression_world import ImpressionWorld
    from unskew.data.datasets.impressions import write_world

    known = set(ImpressionWorld.__dataclass_fields__)
    flags = {f"n_{name}": f"--{name}" for name in ("rows", "users", "items")}
    flags |= {"test_rows": "--test-rows", "seed": "--seed", "confounding": "--confounding"}
    options = shared.loader_options(asked.options, ImpressionWorld, flags)
    if unknown := sorted(set(options) - known):
        raise ParameterError(
            f"the world has no option {', '.join(unknown)}",
            remedy=f"its options are {', '.join(sorted(known - flags.keys()))}",
        )
    world = ImpressionWorld(
        n_rows=asked.rows,
        n_users=asked.users or max(asked.rows // 10, 1),
        n_items=asked.items or max(asked.rows // 100, 10),
        seed=asked.seed,
        confounding=asked.confounding,
        **options,
    )
    with progress_bars() as progress:
        written = write_world(
            world, asked.out, test_rows=asked.test_rows, truth=asked.truth, progress=progress
        )
    shared.write_figures(asked.json_file, {**written, "folder": str(asked.out)})
    files = f"{written['files']:,} file{'s' * (written['files'] != 1)}"
    counted = f"{written['rows']:,} rows in {files}, {written['bytes']:,} bytes"
    print(f"{counted}: {plain(asked.out)}")
