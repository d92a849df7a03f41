"""Every calibrator on one propensity, beside a constant: trained once, judged on cells it never saw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.calibration import CALIBRATORS, make_calibrator
from unskew.errors import DataError
from unskew.log import Log
from unskew.metrics.clip import Clip
from unskew.metrics.registry import SHOWN_PROPENSITY
from unskew.progress import SILENT, Progress
from unskew.propensity import Propensity
from unskew.propensity.propensity import BasePropensity
from unskew.run.training import given_everywhere
from unskew.study.shown_table import Shown

FOLDS = 5
"""Folds of the propensity that is trained where none is given."""

CONSTANT = "constant"
"""The row that gives every pair the share of clicks: calibrated, and useless."""

SHOWN = tuple(each for each in SHOWN_PROPENSITY if each.name not in ("brier", "clipped_mass"))
"""Figures of the table to read."""


def compare_calibrators(
    log: Log,
    propensity: BasePropensity | None = None,
    *,
    calibrators: Sequence[str] = tuple(CALIBRATORS),
    beside: Mapping[str, NDArray[Any]] | None = None,
    seeds: int | Sequence[int] = 1,
    p_min: Clip = "auto",
    device: str = "auto",
    progress: Progress = SILENT,
) -> pa.Table:
    """Figures of one propensity under every calibrator.

    The raw propensity is trained once. With ``crossfit=K`` each calibrator is fitted K times, on the
    out-of-fold scores of K − 1 folds, and judged on all cells of D: neither model nor calibrator saw the
    cell it is judged on.

    Parameters
    ----------
    propensity
        What to calibrate, fitted or not; by default NeuMF, cross-fitted over 5 folds.
    calibrators
        Names in ``CALIBRATORS``; ``"none"`` is the raw propensity.
    beside
        Further propensities ``[users, items]`` by name, judged on all of D as they are. They may have seen
        anything.
    p_min
        Clip of the weights on the clicked rows.

    Returns
    -------
    pyarrow.Table
        One row per calibrator, then the constant, then ``beside``: ``calibrator`` and the figures of
        :meth:`unskew.Propensity.diagnose`, means over seeds.

    Examples
    --------
    >>> import unskew as us
    >>> log = us.load("synthetic", n_users=60, n_items=50, density=0.2).train
    >>> table = compare_calibrators(log, us.LogisticPropensity(crossfit=2), calibrators=("none", "platt"))
    >>> table.column("calibrator").to_pylist()
    ['none', 'platt', 'constant']
    """
    CALIBRATORS.require(*calibrators)
    fitted: BasePropensity = propensity or Propensity(calibrator=None, crossfit=FOLDS)
    if not hasattr(fitted, "calibrators_"):
        fitted.fit(log, seeds=seeds, device=device, progress=progress)
    rows = []
    for name in calibrators:
        used = None if name == "none" else make_calibrator(name)
        rows.append((name, fitted.reread(calibrator=used).diagnose(log, p_min=p_min)["calibrated"]))
    given = {CONSTANT: np.full(log.population_size, log.density), **(beside or {})}
    rows += [(name, _figures_of_given(log, name, values, p_min)) for name, values in given.items()]
    return pa.Table.from_pylist(
        [
            {"calibrator": name, **{key: value for key, value in figures.items() if key != "per_seed"}}
            for name, figures in rows
        ]
    )


def show_calibrators(table: pa.Table) -> Shown:
    """The result of :func:`compare_calibrators` as a table to read."""
    return Shown(
        title="Calibrators on held-out cells",
        columns=("calibrator", *(each.label for each in SHOWN)),
        rows=tuple(
            (row["calibrator"], *(each.text(row[each.name]) for each in SHOWN)) for row in table.to_pylist()
        ),
        caption="A constant has a perfect ECE and debiases nothing: read NLL and AUC beside it.",
    )


def _figures_of_given(log: Log, name: str, values: NDArray[Any], p_min: Clip) -> dict[str, Any]:
    score = np.asarray(values, dtype=np.float64).ravel()
    if len(score) != log.population_size:
        raise DataError(
            f"{name} has {len(score):,} propensities for the {log.population_size:,} cells of D",
            remedy="give a matrix [users, items] (or one per row, in the space 'impressions')",
        )
    return dict(given_everywhere(log, score, p_min).figures)
