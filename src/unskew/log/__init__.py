"""Logs: what was shown, clicked and converted; the schema of their fields, and batches of their rows."""

from __future__ import annotations

from unskew.log.features import Features
from unskew.log.log import Duplicates, Log, Space, require_log
from unskew.log.rows import Rows
from unskew.log.schema import Field, Schema

__all__ = ["Duplicates", "Features", "Field", "Log", "Rows", "Schema", "Space", "require_log"]
