"""``unskew config``: every setting of a run, and the cache of large logs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from unskew.base.plain_text import plain
from unskew.base.settings import Settings, option
from unskew.cli.console import show


class ConfigOptions(Settings):
    """The options of ``unskew config``."""

    effects: ClassVar[Mapping[str, str]] = {"without clear_cache": "cache"}

    json_schema: bool = option(False)
    """Print the JSON schema of the settings."""

    clear_cache: bool = option(False)
    """Remove the encoded logs from the cache, and say what was removed."""

    cache: Path | None = option(None, metavar="DIR")
    """The cache to clear, as of unskew run --cache. By default your own."""


def config(options: ConfigOptions) -> None:
    """List every setting of a run, as its TOML file, --set and Python know it."""
    from unskew.report.table import Table
    from unskew.run.config import FIELDS, SECTIONS, Config

    if options.clear_cache:
        _clear_cache(options.cache)
        return
    if options.json_schema:
        print(json.dumps(Config.model_json_schema(), indent=1))
        return
    flags = {place: f"--{name.replace('_', '-')}" for name, place in FIELDS.items()}
    for section, kind in SECTIONS.items():
        rows = []
        for name, field in kind.model_fields.items():
            default = "" if field.default in (None, (), {}) else str(field.default)
            about = " ".join((field.description or "").split())
            rows.append((f"{section}.{name}", flags[section, name], default, about))
        titles = ("setting", "option", "default", "what it is")
        show(Table(f"[{section}] {kind.__doc__}", titles, rows, words=4))


def _clear_cache(folder: Path | None) -> None:
    """Remove the logs of a cache, and print each."""
    from unskew.data.cache import cache_folder, clear_cache

    removed = clear_cache(folder)
    for log, size in removed.items():
        print(f"Removed: {plain(log)} ({size / 1e6:,.1f} MB)")
    total, place = sum(removed.values()) / 1e6, plain(cache_folder(folder))
    print(f"{len(removed)} encoded logs of {total:,.1f} MB were removed from {place}")
