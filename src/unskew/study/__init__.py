"""From a configuration to results: runs and, built on them, grids of runs."""

from __future__ import annotations

from unskew.study.run import RunConfig, RunResult, run_job
from unskew.study.storage import load_model, load_propensity

__all__ = ["RunConfig", "RunResult", "load_model", "load_propensity", "run_job"]
