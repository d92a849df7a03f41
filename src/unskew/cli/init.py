"""``unskew init``: look at files, and write a commented configuration of a run."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from unskew.base.errors import ParameterError
from unskew.base.plain_text import listed, plain
from unskew.base.settings import Settings, option
from unskew.cli import options as shared

if TYPE_CHECKING:
    from collections.abc import Iterator

    from unskew.data import Log
    from unskew.run.config import Config


class InitOptions(Settings):
    """The options of ``unskew init``."""

    files: tuple[str, ...] = option(..., flag="argument", metavar="FILE...")
    """CSV, Parquet or Arrow: files, folders or globs."""
    user: str | None = option(None)
    """The column of user ids [guessed by its name]."""
    item: str | None = option(None)
    """The column of item ids [guessed by its name]."""
    click: str | None = option(None)
    """The click column [guessed by its name]."""
    conversion: str | None = option(None)
    """The conversion column [guessed by its name]."""
    space: Literal["auto", "matrix", "impressions"] = option("auto")
    """The population, as in unskew run."""
    out: Path = option(Path("run.toml"), flag="--out -o", writes="file")
    """The file to write."""
    overwrite: shared.Overwrite = False


def init(options: InitOptions) -> None:
    """Look at files, and write a commented run.toml: columns, population, types, time, leaks."""
    from unskew.base.files import write_text
    from unskew.base.progress import progress_bars
    from unskew.run.config import Config
    from unskew.run.files import complete
    from unskew.run.job import load_dataset

    shared.check_outputs(options, read=shared.table_files(options.files))
    if options.out.exists() and not options.overwrite:
        raise ParameterError(f"{options.out} is there already", remedy="give --overwrite, or another --out")
    source = options.files[0] if len(options.files) == 1 else options.files
    named = options.model_dump(include={"user", "item", "click", "conversion", "space"}, exclude_none=True)
    config, guesses = complete(Config(source=source, features="auto", **named))
    with progress_bars() as progress:
        log = load_dataset(config, progress).train
    text = "\n".join(_lines(config, log, guesses)) + "\n"
    write_text(options.out, text)
    print(text)
    print(f"Written: {plain(options.out)}. Start with: unskew run --config {plain(options.out)}")


def _lines(config: Config, log: Log, guesses: list[str]) -> Iterator[str]:
    """Yield the lines of the file."""
    from unskew.base.toml_text import to_toml
    from unskew.data.leaks import check_leaks
    from unskew.data.splitting import time_column

    source = config.data.source
    named = source if isinstance(source, str) else listed(source)
    counts = f"{len(log):,} rows, {log.n_users:,} users, {log.n_items:,} items"
    yield f"# unskew init looked at {plain(named)}: {counts}."
    rate = "" if log.conversion is None else f", {log.known_conversion().mean():.2%} of which converted"
    yield f"# {log.n_clicks:,} rows are clicked{rate}."
    yield from (f"# Guessed: {sentence}." for sentence in guesses)
    time = config.data.time or time_column(log)
    when = (
        "clicks that are drawn at random" if time is None else f"the latest clicks (column '{plain(time)}')"
    )
    yield f"# Training stops early by {when}."
    roles = {"source", "user", "item", "click", "conversion", "space"}
    data = config.data.model_dump(include=roles, exclude_none=True)
    yield to_toml({"data": data if time is None else {**data, "time": time}})
    yield "# Models read, beside the ids:"
    leaks = {leak.column: leak for leak in check_leaks(log)}
    for line in log.schema_table()[2:]:
        if not any(line["name"] == name or line["name"].startswith(f"{name}.") for name in leaks):
            missing = f", {line['missing']:.1%} missing" if line["missing"] else ""
            yield f"#   {plain(line['name'])}: {line['kind']}, {line['cardinality']:,} values{missing}"
    left_out: dict[str, Any] = {} if log.features is None else dict(log.features.left_out)
    left_out |= {name: f"it may give an outcome away: {leak.found}" for name, leak in leaks.items()}
    if left_out:
        yield "# Left out:"
        yield from (f"#   {plain(name)}: {plain(reason)}" for name, reason in left_out.items())
    yield to_toml({"features": {"columns": "auto", "ignore": list(leaks)}})
    yield "# unskew config lists every setting. Pairs that were shown at random are the best test: data.test."
    yield to_toml({"model": {"method": config.method}, "compute": {"effort": config.compute.effort}}).rstrip()
