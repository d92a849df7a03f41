"""A run folder in MLflow: its settings, its figures, its files, and its models as one that MLflow serves."""

from __future__ import annotations

import json
import math
import re
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from unskew.base.errors import ParameterError, UnskewError
from unskew.base.files import CONFIG

LONGEST_VALUE = 500
"""Characters of a parameter."""

NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_./ -]")
"""What MLflow refuses in the name of a parameter or metric."""


def log_run(folder: Path) -> None:
    """Log a run folder to MLflow's active run, to the last one of this process, or to a new one.

    The settings of ``config.toml`` are parameters, the numbers of ``metrics.json`` are metrics, the folder is
    an artifact, and the exported ONNX file is logged as ``model``, which ``mlflow models serve`` and
    ``mlflow.pyfunc.load_model`` read.
    """
    try:
        import mlflow
        import onnx
    except ImportError as error:
        raise ParameterError(
            f"{error.name} is not installed", remedy="pip install mlflow-skinny 'unskew[onnx]'"
        ) from None
    from unskew.serve.onnx_file import export_run

    config = tomllib.loads((folder / CONFIG).read_text(encoding="utf-8"))
    figures = json.loads((folder / "metrics.json").read_text(encoding="utf-8"))
    last = mlflow.last_active_run()
    going_on = None if last is None else last.info.run_id
    with nullcontext() if mlflow.active_run() else mlflow.start_run(run_id=going_on):
        mlflow.log_params({name: str(value)[:LONGEST_VALUE] for name, value in _leaves(config)})
        numbers = {name: float(value) for name, value in _leaves(figures) if type(value) in (int, float)}
        mlflow.log_metrics({name: value for name, value in numbers.items() if math.isfinite(value)})
        mlflow.log_artifacts(str(folder), "run")
        with tempfile.TemporaryDirectory(prefix="unskew-") as place:
            file = Path(place) / "model.onnx"
            try:
                export_run(folder, file)
            except UnskewError as error:
                # Trees and noise have no ONNX form; everything else is logged.
                mlflow.set_tag("unskew.not_exported", str(error))
            else:
                mlflow.onnx.log_model(onnx.load(str(file)), name="model", pip_requirements=["onnxruntime"])


def _leaves(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Return the values of nested tables by their path."""
    for key, value in values.items():
        name = before + NOT_IN_NAMES.sub("_", str(key).replace("@", "_at_"))
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{name}.")
        else:
            yield name, value
