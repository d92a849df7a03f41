"""The run folder: a run's results as plain files, whole or not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unskew.debias.core.storage import write_models
from unskew.io.files import Found, write_json
from unskew.io.vocabulary import as_arrow
from unskew.propensity.storage import write_propensity
from unskew.run.job import RunResult
from unskew.training.saved import sealed_folder, write_config


def write_run(
    result: RunResult,
    folder: Path,
    *,
    report: str,
    overview: str,
    overwrite: bool,
    found: Found | None = None,
) -> None:
    """Write ``config.toml``, ``model.safetensors``, ``calibrator.json``, ``propensities.parquet``,
    ``metrics.json``, ``report.html``, its first picture as ``overview.svg``, the propensity's weights, the
    vocabularies, and the manifest of all these."""
    with sealed_folder(folder, overwrite=overwrite, found=found) as beside:
        config = {
            "main": result.main,
            "run": result.config.to_dict(),
            **write_models(beside, result.models),
            **({} if result.propensity is None else write_propensity(beside, result.propensity)),
        }
        write_config(beside, config)
        pq.write_table(propensity_table(result), beside / "propensities.parquet")
        write_json(beside / "metrics.json", result.metrics)
        (beside / "report.html").write_text(report, encoding="utf-8")
        (beside / "overview.svg").write_text(overview, encoding="utf-8")


def propensity_table(result: RunResult) -> pa.Table:
    """Every row of the training log with its propensity, raw and calibrated, and its weight if clicked."""
    log, p_min = result.dataset.train, float(result.metrics["p_min"])
    if result.propensity is None:
        raw = calibrated = result.clicked["known"]
    else:
        raw = result.propensity.predict(log, calibrated=False)
        calibrated = result.propensity.predict(log)
    columns: dict[str, Any] = {
        log.users.name: as_arrow(log.users.decode(log.user)),
        log.items.name: as_arrow(log.items.decode(log.item)),
        "click": log.click,
        "propensity_raw": raw,
        "propensity": calibrated,
        "weight": np.where(log.click == 1, 1.0 / np.maximum(calibrated, p_min), np.nan),
        "clipped": calibrated < p_min,
    }
    if log.conversion is not None:
        columns["conversion"] = log.conversion
    return pa.table({name: pa.array(values, from_pandas=True) for name, values in columns.items()})
