"""The result of a run: its findings, its report, and its folder of plain files, whole or not there."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unskew.base import processes
from unskew.base.files import ROW_FEATURES, write_json
from unskew.base.manifest import MODEL_CARD
from unskew.base.notebook import ShowsItself
from unskew.data.datasets import Dataset
from unskew.data.distinct import as_arrow
from unskew.data.values import as_column
from unskew.debias import Debiaser
from unskew.debias.evaluation import Evaluation
from unskew.debias.storage import write_models
from unskew.metrics import CalibrationSketch
from unskew.propensity.propensity import BasePropensity
from unskew.propensity.storage import write_propensity
from unskew.run.protocol import split_columns
from unskew.training.checkpoint import Checkpoint
from unskew.training.saved import sealed_folder, write_config, write_inputs

if TYPE_CHECKING:
    from unskew.report.finding import Answer
    from unskew.run.config import Config


def main_key(config: Config, models: Mapping[str, Debiaser]) -> str:
    """Return the key of the model that a run is about."""
    if not models:
        return "none"
    return config.method if config.method in models else f"{config.method}_known"


@dataclass(frozen=True, repr=False)
class Result(ShowsItself):
    """The result of a run; ``save`` writes what ``unskew run`` writes."""

    config: Config
    dataset: Dataset
    propensity: BasePropensity | None
    """None where the propensities of the log are known, and where the method uses its own click tower."""
    models: Mapping[str, Debiaser]
    metrics: Mapping[str, Any]
    """What ``metrics.json`` holds."""
    evaluated: Mapping[str, Evaluation]
    """The metrics of each model on the test log, and on resamples of its users; empty without a test log."""
    sketches: Mapping[str, CalibrationSketch]
    """Held-out scores against clicks of the first seed, ``"raw"`` and ``"calibrated"``."""
    rows: Mapping[str, NDArray[np.float64]]
    """Unclipped propensities of the log's rows ``[seeds, n]``, ``"raw"`` and ``"calibrated"``, or
    ``"known"``; none where the method uses its own click tower, which trained on most of the rows."""
    checkpoint: Checkpoint | None = None
    """Where the job would go on from; ``save`` removes its states."""

    @property
    def main(self) -> str:
        """The key of the model that the run is about; ``"none"`` where the propensity alone was trained."""
        return main_key(self.config, self.models)

    def to_dict(self) -> dict[str, Any]:
        """Return the configuration and what ``metrics.json`` holds, as plain values."""
        return {"config": self.config.to_dict(), **self.metrics}

    @property
    def histories(self) -> dict[str, dict[str, Any]]:
        """Learning curves of networks, by name."""
        history = getattr(self.propensity, "history_", None)
        return {
            **({} if history is None else {"propensity": history.to_dict()}),
            **{key: model.history_.to_dict() for key, model in self.models.items()},
        }

    @cached_property
    def findings(self) -> list[Answer]:
        """The findings: answers that follow from the numbers, in a few words each."""
        from unskew.report.findings import findings

        return findings(self.metrics, self._settings(), self.sketches)

    def report(self) -> str:
        """Return the report as one HTML file that opens offline."""
        from unskew import report

        return report.render_run_report(
            metrics=self.metrics,
            config=self._settings(),
            sketches=self.sketches,
            histories=self.histories,
        )

    def model_card(self) -> str:
        """Return the model card, as Markdown: the model, its quality, and what it must not be used for."""
        from unskew.report.model_card import model_card

        return model_card(self.metrics, self._settings(), self.main, self.findings)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write ``config.toml``, ``model.safetensors``, ``calibrator.json``, ``propensities.parquet``,
        ``metrics.json``, ``report.html``, a picture for slides, ``overview.svg``, ``MODEL_CARD.md``, the
        propensity's weights, the vocabularies, ``row_features.parquet`` where models read features of rows,
        and the manifest of all these. A propensity that no file can hold (trees, a column) is left out;
        ``propensities.parquet`` has what it gave.

        Parameters
        ----------
        overwrite
            Replace an earlier run; a folder with other things in it is never replaced.
        """
        with nullcontext() if self.checkpoint is None else self.checkpoint.saving(Path(folder)):
            processes.write(lambda: self._write(Path(folder), overwrite))

    def _write(self, folder: Path, overwrite: bool) -> None:
        from unskew.report import overview_svg

        # Of a propensity that files cannot hold, the folder has the values of the log's rows alone.
        saved = self.propensity if self.propensity is not None and self.propensity.saves else None
        propensities = [] if saved is None else [saved]
        report = self.report()
        overview = overview_svg(metrics=self.metrics, sketches=self.sketches)
        with sealed_folder(folder, overwrite=overwrite) as beside:
            config = {
                "main": self.main,
                "run": self.config.to_dict(),
                **(write_models(beside, self.models, *propensities) if self.models else {}),
                **({} if saved is None else write_propensity(beside, saved)),
            }
            if not self.models and self.propensity is not None:
                write_inputs(beside, self.propensity)
            write_config(beside, config)
            if self.rows:
                pq.write_table(self.propensity_table(), beside / "propensities.parquet")
            if (table := self.row_features()) is not None:
                pq.write_table(table, beside / ROW_FEATURES)
            write_json(beside / "metrics.json", self.metrics)
            (beside / "report.html").write_text(report, encoding="utf-8")
            (beside / "overview.svg").write_text(overview, encoding="utf-8")
            (beside / MODEL_CARD).write_text(self.model_card(), encoding="utf-8")

    def propensity_table(self) -> pa.Table:
        """Return every row of the log with its propensity, raw and calibrated, and its weight if clicked."""
        log, p_min = self.dataset.train, float(self.metrics["p_min"])
        kinds = ("known", "known") if self.propensity is None else ("raw", "calibrated")
        raw, calibrated = (self.rows[kind].mean(axis=0) for kind in kinds)
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
        columns = {**split_columns(self.models, log), **columns}
        return pa.table({name: pa.array(values, from_pandas=True) for name, values in columns.items()})

    def row_features(self) -> pa.Table | None:
        """Return the features of the log's rows, which ``compare`` reads; None if no model reads features."""
        described = self.dataset.train.features
        rows = [] if described is None else [each for each in described.declared if each.role == "row"]
        if described is None or not rows or not any(each.reads_features for each in self.models.values()):
            return None
        return pa.table({each.name: as_column(described.values[each.name]) for each in rows})

    def _settings(self) -> dict[str, Any]:
        """Return the settings of the report: all options, as they were resolved."""
        config = self.config
        settings = {
            **config.flat(),
            "method": config.method,
            "learner": config.learner,
            "calibrator": config.calibrator,
            "crossfit": config.crossfit,
            "seeds": len(config.seeds),
            "data": self.dataset.name,
            "options": {**config.data.options, "train": config.data.source},
            "p_min": self.metrics["p_min"],
        }
        by_tower = self.propensity is None and not self.rows
        return {**settings, **({"calibrator": "platt"} if by_tower else {})}
