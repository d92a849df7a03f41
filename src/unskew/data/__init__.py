"""Logs: what was shown, clicked and converted; the schema of their fields, and batches of their rows."""

from __future__ import annotations

from unskew.data.described import Described, Wanted
from unskew.data.encoders import Block, Encoders
from unskew.data.features import Features
from unskew.data.kinds import Bag, Category, Feature, Number, Vector
from unskew.data.log import Duplicates, Log, Space, require_log
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
