"""``unskew score``: predictions of a run for new pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from unskew.base.plain_text import plain
from unskew.base.settings import Settings, option
from unskew.cli import options as shared


class ScoreOptions(Settings):
    """The options of ``unskew score``."""

    run: Path = option(..., flag="argument", metavar="RUN")
    """A run folder."""
    pairs: tuple[str, ...] = option(..., flag="argument", metavar="FILE...")
    """CSV, Parquet or Arrow with users and items: files, folders or globs."""
    out: shared.OutRows
    user: str | None = option(None)
    """The column of user ids [as in training]."""
    item: str | None = option(None)
    """The column of item ids [as in training]."""
    method: str | None = option(None)
    """Which of the run's models [its main one]."""
    unseen: Literal["error", "nan", "other", "average"] | None = option(None)
    """For an id that was not seen in training: error, nan, average (the mean over known ids; of a model
    that reads ids alone) or other (of a model that reads features: by these) [other with features,
    else error]."""
    spread: bool = option(False)
    """Also add how far the members of the model disagree: conversion_spread, their standard deviation,
    and conversion_low and conversion_high, between which nine in ten would predict."""
    overwrite: shared.Overwrite = False
    device: shared.Device = "auto"
    log_json: shared.LogJson = None


def score(options: ScoreOptions) -> None:
    """Add conversion (mean over seeds), its standard deviation, propensity and click_and_conversion to pairs.

    Other columns stay; one that is called as an added one becomes given_NAME. Rows are read, scored and
    written batch by batch: memory does not grow with the files.
    """
    from unskew.data.row_files import check_rows_target

    shared.check_outputs(options, read=[*shared.run_files(options.run), *shared.table_files(options.pairs)])
    target = check_rows_target(options.out, overwrite=options.overwrite)

    from unskew.base.progress import progress_bars
    from unskew.run.scoring import score_pairs

    asked = options.model_dump(include={"user", "item", "method", "unseen", "spread", "device"})
    with progress_bars(log_json=options.log_json) as progress:
        rows = score_pairs(options.run, list(options.pairs), target, **asked, progress=progress)
    print(f"{rows:,} pairs scored: {plain(options.out)}")
