"""``python -m unskew`` is the command line."""

from __future__ import annotations

from unskew.cli import entry

if __name__ == "__main__":
    entry()
