"""``unskew config``: every setting of a run, and the cache of large logs."""

from __future__ import annotations

import json
from pathlib import Path

from unskew.base.plain_text import plain
from unskew.base.settings import Settings, option
from unskew.cli.verb import refuse


class ConfigOptions(Settings):
    """The options of ``unskew config``."""

    json_schema: bool = option(False)
    """Print the JSON schema of the settings."""

    clear_cache: bool = option(False)
    """Remove the encoded logs from the cache, and say what was removed."""

    cache: Path | None = option(None, metavar="DIR")
    """The cache to clear, as of unskew run --cache. By default your own."""


def config(options: ConfigOptions) -> None:
    """List every setting of a run, as its TOML file, --set and Python know it."""
    from rich.table import Table

    if options.clear_cache:
        _clear_cache(options.cache)
        return
    refuse(options, ["cache"], "without --clear-cache")
    from unskew.cli.console import plain_console
    from unskew.run.config import FIELDS, SECTIONS, Config

    if options.json_schema:
        print(json.dumps(Config.model_json_schema(), indent=1))
        return
    flags = {place: f"--{name.replace('_', '-')}" for name, place in FIELDS.items()}
    console = plain_console()
    for section, kind in SECTIONS.items():
        titles = ("setting", "option", "default", "what it is")
        table = Table(*titles, title=f"[{section}] {kind.__doc__}", title_justify="left")
        for name, field in kind.model_fields.items():
            default = "" if field.default in (None, (), {}) else str(field.default)
            about = " ".join((field.description or "").split())
            table.add_row(f"{section}.{name}", flags[section, name], default, about)
        console.print(table)


def _clear_cache(folder: Path | None) -> None:
    """Remove the logs of a cache, and print each."""
    from unskew.data.cache import cache_folder, clear_cache

    removed = clear_cache(folder)
    for log, size in removed.items():
        print(f"Removed: {plain(log)} ({size / 1e6:,.1f} MB)")
    total, place = sum(removed.values()) / 1e6, plain(cache_folder(folder))
    print(f"{len(removed)} encoded logs of {total:,.1f} MB were removed from {place}")
