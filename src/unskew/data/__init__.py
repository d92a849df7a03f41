"""Logs: what was shown, clicked and converted; the schema of their fields, and batches of their rows."""

from __future__ import annotations

from unskew.data.described import Described, Wanted
from unskew.data.encoder import Block, Encoders
from unskew.data.kinds import Bag, Category, Feature, Features, Number, Vector
from unskew.data.log import Log, require_log
from unskew.data.options import Duplicates, Space
from unskew.data.rows import Rows
from unskew.data.schema import Field, Schema

__all__ = [
    "Bag",
    "Block",
    "Category",
    "Described",
    "Duplicates",
    "Encoders",
    "Feature",
    "Features",
    "Field",
    "Log",
    "Number",
    "Rows",
    "Schema",
    "Space",
    "Vector",
    "Wanted",
    "require_log",
]
