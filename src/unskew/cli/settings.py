"""``unskew config``: every setting of a run."""

from __future__ import annotations

import json

from unskew.base.settings import Settings, option


class ConfigOptions(Settings):
    """The options of ``unskew config``."""

    json_schema: bool = option(False)
    """Print the JSON schema of the settings."""


def config(options: ConfigOptions) -> None:
    """List every setting of a run, as its TOML file, --set and Python know it."""
    from rich.table import Table

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
