"""Logs: what was shown, clicked and converted; the schema of their fields, and batches of their rows."""

from __future__ import annotations

from unskew.log.described import Described, Wanted
from unskew.log.encoders import Block, Encoders
from unskew.log.features import Features
from unskew.log.kinds import Bag, Category, Feature, Number
from unskew.log.log import Duplicates, Log, Space, require_log
from unskew.log.rows import Rows
from unskew.log.schema import Field, Schema
from unskew.log.streamed import StreamedLog

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
    "StreamedLog",
    "Wanted",
    "require_log",
]
