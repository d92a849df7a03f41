"""The main job, from a log to a result, a folder and a report; ``unskew.run(config)`` calls the package.

The module is callable, so that ``unskew.run`` is the function and ``unskew.run.job`` still a module.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from unskew.base.progress import Progress
    from unskew.data.datasets import Dataset
    from unskew.run.config import Config
    from unskew.run.result import Result


class _Run(ModuleType):
    def __call__(
        self, config: Config, progress: Progress | None = None, show: Callable[[Dataset], None] | None = None
    ) -> Result:
        """Train, calibrate, debias and evaluate; ``save`` of the result writes the run folder."""
        from unskew.base.progress import SILENT
        from unskew.run.job import run

        return run(config, progress or SILENT, show)


sys.modules[__name__].__class__ = _Run
