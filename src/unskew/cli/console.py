"""The terminal: it shows words as they are, whatever brackets and colons a user's names have."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


def plain_console(least_width: int = 0) -> Console:
    """A console that reads no markup and no emoji into what it prints."""
    from rich.console import Console

    console = Console(highlight=False, markup=False, emoji=False)
    console.width = max(console.width, least_width)
    return console
