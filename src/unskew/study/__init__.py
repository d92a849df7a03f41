"""From a configuration to results: runs and, built on them, grids of runs."""

from __future__ import annotations

from unskew.study.run import RunConfig, RunResult, run_job

__all__ = ["RunConfig", "RunResult", "run_job"]
