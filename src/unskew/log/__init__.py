"""Logs: what was shown, clicked and converted, with the features of users and items."""

from __future__ import annotations

from unskew.log.features import Features
from unskew.log.log import Duplicates, Log, Space, require_log

__all__ = ["Duplicates", "Features", "Log", "Space", "require_log"]
