"""Comparing the models of a run folder, from its files alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unskew.base.columns import column_of, frame_of
from unskew.base.errors import DataError, ParameterError, RunFolderError
from unskew.base.files import ROW_FEATURES
from unskew.data import Category, Log, Rows, Space
from unskew.data.kinds import TimePart
from unskew.data.values import Values, values_of
from unskew.debias import Debiaser, load_model
from unskew.offpolicy.comparison import Comparison, compare
from unskew.training.saved import SavedFolder

PROPENSITIES = "propensities.parquet"
WRITTEN = ("click", "conversion", "propensity_raw", "propensity", "weight", "clipped")
"""Its columns in every run; a further one is what the run's split goes by."""
METRICS = "metrics.json"
ROW = "row of the run"
"""A column of the log: the number of each row."""


def compare_run(
    folder: str | Path, *, models: tuple[str, ...] = (), device: str = "auto", **options: Any
) -> Comparison:
    """Compare the models of a run on the clicks that they held out.

    ``propensities.parquet`` is the training log with its calibrated propensities, out of fold and averaged
    over seeds; which of its rows were held out follows from the models' seeds. The run's clip is used. Known
    probabilities of showing (``run --known-propensity``) are used as they are.

    Parameters
    ----------
    models
        Keys of the run's models; by default all.
    options
        Of :func:`compare`.

    Examples
    --------
    >>> print(compare_run("runs/demo", metrics=["nll"]))  # doctest: +SKIP
    """
    saved = SavedFolder(folder)
    known = models_of(saved)
    for name in models:
        if name not in known:
            raise ParameterError(f"this run has no model {name!r}", remedy=f"use one of {', '.join(known)}")
    space, p_min, actions = facts_of(saved)
    by = saved.json(METRICS).get("propensity_by")
    if isinstance(by, Mapping) and by.get("chosen") == "its own click tower":
        raise RunFolderError(
            "has no propensities to weigh held-out clicks by: its method used its own click tower",
            where=str(folder),
            remedy="run it again with --propensity linear",
        )
    options = {"p_min": p_min, **options}
    chosen = {name: load_model(saved, name, device=device) for name in models or known}
    try:
        log = training_log(saved, space, actions)
        models_of_rows = {name: with_row_features(model, saved, log) for name, model in chosen.items()}
        return compare(models_of_rows, log, propensity="propensity", **options)
    except DataError as error:
        raise DataError(error.problem, where=error.where or str(folder), remedy=error.remedy) from error


@dataclass(frozen=True)
class RowScorer:
    """A model that reads features of rows, for rows of the training log, which the column ``ROW`` numbers."""

    model: Debiaser
    values: Mapping[str, Values]

    def __getattr__(self, name: str) -> Any:
        """Return what the model has: its seeds, its split, whether it predicts rates."""
        return getattr(self.model, name)

    def predict_each(self, log: Log) -> NDArray[np.float64]:
        """Return conversion probabilities ``[seeds, n]``."""
        return self.model.predict_rows(self._rows(log))

    def predict_lines_each(self, log: Log) -> NDArray[np.float64]:
        """Return conversion probabilities ``[lines, n]``."""
        return self.model.predict_lines(self._rows(log))

    def _rows(self, log: Log) -> Rows:
        values = {name: each.take(log.columns[ROW]) for name, each in self.values.items()}
        return self.model.reader().of_rows(log, values).rows


def with_row_features(model: Debiaser, saved: SavedFolder, log: Log) -> Debiaser | RowScorer:
    """Return the model, with the features of the log's rows where it reads such."""
    encoders = () if model.encoders_ is None else model.encoders_.of_role("row")
    if not encoders:
        return model
    try:
        table = pq.read_table(saved.folder / ROW_FEATURES)
    except (pa.ArrowException, OSError) as error:
        raise RunFolderError(
            f"{ROW_FEATURES} is missing or damaged",
            where=str(saved.folder),
            remedy="give a run folder, whole, or run it again with this version",
        ) from error
    names = [each.feature.name for each in encoders]
    if len(table) != len(log) or not set(names) <= set(table.column_names):
        raise saved.damaged(ROW_FEATURES, f"{len(table)} rows of {', '.join(table.column_names)}")
    # The parts of a time are stored as the categories that they are.
    kinds = {
        each.feature.name: Category(each.feature.name) if isinstance(each.feature, TimePart) else each.feature
        for each in encoders
    }
    return RowScorer(model, {name: values_of(kinds[name], table[name]) for name in names})


def models_of(saved: SavedFolder) -> tuple[str, ...]:
    """Return the keys of a run's conversion models; raise where it has none."""
    known = tuple(saved.entry("methods", kind=dict)) if "methods" in saved.config else ()
    if not known:
        raise RunFolderError("holds no conversion model", where=str(saved.folder), remedy="give another run")
    return known


def facts_of(saved: SavedFolder) -> tuple[Space, float, int | None]:
    """Return the space of a run's log, its clip and, with known propensities, the actions of a row."""
    metrics = saved.json(METRICS)
    p_min = metrics.get("p_min") if isinstance(metrics, Mapping) else None
    if isinstance(p_min, bool) or not isinstance(p_min, int | float) or not 0.0 <= p_min <= 1.0:
        raise saved.damaged(METRICS, f"p_min is {p_min!r}")
    data = metrics.get("data")
    space = data.get("space") if isinstance(data, Mapping) else None
    if space not in get_args(Space):
        raise saved.damaged(METRICS, f"data.space is {space!r}")
    if data.get("known_propensity") is None:
        return cast(Space, space), float(p_min), None
    actions = data.get("actions")
    if isinstance(actions, bool) or not isinstance(actions, int) or actions < 1:
        raise saved.damaged(METRICS, f"data.actions is {actions!r}")
    return cast(Space, space), float(p_min), actions


def training_log(saved: SavedFolder, space: Space, actions: int | None = None) -> Log:
    """Return the log of a run, row by row as it was trained on, with the column ``propensity``.

    With ``actions`` it holds known probabilities of showing.
    """
    path = saved.folder / PROPENSITIES
    try:
        frame = frame_of(pq.read_table(path))
    except (pa.ArrowException, OSError) as error:
        raise RunFolderError(
            f"{PROPENSITIES} is missing or damaged",
            where=str(saved.folder),
            remedy="give a run folder, whole",
        ) from error
    users, items = saved.vocabulary("users"), saved.vocabulary("items")
    numbers = np.arange(len(frame))
    further = [name for name in frame.columns if name not in (*WRITTEN, users.name, items.name)]
    return Log.from_arrays(
        user=column_of(frame, users.name),
        item=column_of(frame, items.name),
        click=column_of(frame, "click") if actions is None else None,
        conversion=column_of(frame, "conversion"),
        space=space,
        users=users,
        items=items,
        columns={name: column_of(frame, name) for name in ("propensity", *further)} | {ROW: numbers},
        known_propensity=None if actions is None else "propensity",
        actions=actions,
    )
