"""Weights where the data live: a query that adds calibrated propensities, weights and folds to a table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unskew.audit.audit import DEFAULT_P_MIN
from unskew.audit.crossfit import FOLDS, HASH_DIGITS, fit_without_each, folds_of_cells, mapped
from unskew.audit.reading import counted_cells
from unskew.audit.sql import fold_of, table_name, truth
from unskew.audit.weights import ADDED
from unskew.audit.weights_result import clip_of
from unskew.base.errors import DataError, ParameterError, RunFolderError
from unskew.base.estimator import require
from unskew.calibration import DEFAULT, Calibrator, calibrator_from_dict, load_calibrator, make_calibrator
from unskew.calibration.calibrator import PROBABILITY_FLOOR
from unskew.calibration.sql import Dialect, double, named, rendered, require_dialect, switch
from unskew.metrics import CalibrationSketch
from unskew.metrics.weights import Clip, require_clip

CALIBRATORS, FIGURES = "calibrator.json", "metrics.json"
"""Files of a run's folder: a calibrator for each seed and fold, and figures with the clip among them."""


def weights_query(
    source: Any,
    table: str,
    *,
    score: str,
    outcome: str,
    fold_by: str | None = None,
    dialect: Dialect = "duckdb",
    calibrator: str | Calibrator = DEFAULT,
    p_min: Clip = DEFAULT_P_MIN,
    weight_all: bool = False,
    boolean_outcome: bool = False,
) -> str:
    """Return the query that adds ``weight``, ``clipped``, ``propensity_calibrated`` and ``fold`` to a table.

    .. math:: \\tilde p_i = q^{(-k_i)}(\\hat p_i), \\qquad w_i = \\frac{o_i}{\\max(\\tilde p_i, p_{\\min})}

    k_i is the fold of the row's id (:func:`unskew.audit.crossfit.fold_of_id`) and q^(−k) the calibrator
    fitted on the cells of all other folds: no row has a say in its own weight. The new columns come first.
    A score that is null or outside [0, 1] makes them null, and so does a null outcome the weight.
    Put ``CREATE TABLE … AS`` before it.

    Parameters
    ----------
    source
        Cells with folds, from the query of :func:`unskew.audit.cells_query` with ``fold_by``: a data frame, a
        file, or :class:`unskew.metrics.cells.Cells`. Or what was fitted on other rows than these, which then
        need no folds: a calibrator, a file that its ``save`` wrote, or the folder of a run, whose calibrators
        (one for each seed and fold) are averaged.
    table
        Its name, as the engine knows it; for DuckDB also files and globs.
    score, outcome, fold_by
        Columns: a probability, 0 or 1, and the ids by which the cells' folds were made.
    calibrator
        Fitted on cells; a name or a calibrator.
    p_min, weight_all
        As in :func:`unskew.audit.write_weights`. ``"auto"`` is the run's own clip with the folder of a run.
    boolean_outcome
        Whether the outcome is true and false, which Postgres and BigQuery do not take for a number.

    Examples
    --------
    >>> platt = make_calibrator("platt").fit([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1])
    >>> query = weights_query(platt, "logs", score="p", outcome="clicked", p_min=0.01)
    >>> query.splitlines()[0]
    '-- Weights by unskew: the score, calibrated by platt, clipped at 0.01.'
    """
    require_dialect(dialect)
    require_clip(p_min)
    taken = next((field.name for field in ADDED if field.name in (score, outcome, fold_by)), None)
    require(taken is None, f"the query adds a column named '{taken}'", "rename the table's column")
    p, o = named(score, dialect), named(outcome, dialect)
    fitted = _fitted(source)
    if fitted is None:
        by_fold, clip = _fitted_on_cells(source, make_calibrator(calibrator), fold_by, p_min)
        fold, maps = fold_of(str(fold_by), FOLDS, dialect), [each.sql_of(p, dialect) for each in by_fold]
    else:
        require(fold_by is None, "folds are those of cells", "leave fold_by (--fold-by) out, or give cells")
        require(
            calibrator == DEFAULT, "what is given is fitted already", "leave calibrator (--calibrator) out"
        )
        by_fold, clip, fold = fitted, _clip_of_run(source, p_min), "0"
        summed = " + ".join(each.sql_of(p, dialect) for each in fitted)
        maps = [summed if len(fitted) == 1 else f"({summed}) / {double(len(fitted))}"]
    q, fold_name = named("propensity_calibrated", dialect), named("fold", dialect)
    calibrated = switch([(f"{fold_name} = {k}", text) for k, text in enumerate(maps)], "NULL")
    least = double(clip)
    # Not by GREATEST, which some engines take of what is not null: a bad score has no weight.
    weight = f"CASE WHEN {q} < {least} THEN {double(1.0)} / {least} ELSE {double(1.0)} / {q} END"
    if not weight_all:
        happened = truth(outcome, dialect) if boolean_outcome else f"CAST({o} AS DOUBLE)"
        weight = f"CASE WHEN {happened} = 1 THEN {weight} WHEN {happened} = 0 THEN {double(0.0)} END"
    # New columns come before those of the table: DuckDB takes the first of two with one name.
    query = f"""
SELECT {weight} AS {named("weight", dialect)}, {q} < {least} AS {named("clipped", dialect)}, "c".*
FROM (SELECT {calibrated} AS {q}, "f".*
  FROM (SELECT {fold} AS {fold_name}, "t".* FROM {table_name(table, dialect)} AS "t") AS "f") AS "c"
"""
    return _header(by_fold, clip, fold_by) + rendered(query, dialect)


def _fitted(source: Any) -> list[Calibrator] | None:
    """Return the fitted calibrators that a source holds, or None where it is cells."""
    if isinstance(source, Calibrator):
        return [source]
    if not isinstance(source, str | Path):
        return None
    path = Path(source)
    if not path.is_dir():
        return [load_calibrator(path)] if path.suffix == ".json" else None
    try:
        saved = json.loads((path / CALIBRATORS).read_text(encoding="utf-8"))
        fitted = [calibrator_from_dict(each) for each in saved if each is not None]
    except (OSError, ValueError, TypeError) as error:
        raise RunFolderError(
            f"its calibrators cannot be read: {error}", where=str(path), remedy="give the folder of a run"
        ) from error
    if not fitted or any(each.reads_features for each in fitted):
        raise RunFolderError(
            "its propensity is not calibrated, or by columns in the run's own codes",
            where=str(path),
            remedy="run it with --calibrator auto, or give cells of unskew audit --sql --fold-by COLUMN",
        )
    return fitted


def _clip_of_run(source: Any, p_min: Clip) -> float:
    """Return the clip as a number; ``"auto"`` is that of the run whose folder is the source."""
    if p_min != "auto":
        return float(p_min)
    figures = Path(source) / FIGURES if isinstance(source, str | Path) else None
    if figures is None or not figures.is_file():
        raise ParameterError(
            "the clip of least error is chosen from cells, and a fitted calibrator brings none",
            remedy="give a p_min (--p-min) between 0 and 1, or cells",
        )
    return float(json.loads(figures.read_text(encoding="utf-8"))["p_min"])


def _fitted_on_cells(
    source: Any, chosen: Calibrator, fold_by: str | None, p_min: Clip
) -> tuple[list[Calibrator], float]:
    """Return a calibrator for each fold of cells, fitted on the others, and the clip."""
    require(
        not chosen.reads_features,
        f"{chosen.name} reads columns that cells do not have",
        "use another calibrator, or fit it on rows and give it here",
    )
    cells = counted_cells(source)
    folds = folds_of_cells(cells)
    if folds is None or len(folds) > FOLDS:
        raise DataError(
            f"the cells have no {FOLDS} folds, so that rows would have a say in their own weights",
            remedy="count them with unskew audit --sql ENGINE --fold-by COLUMN",
        )
    if fold_by is None:
        raise ParameterError(
            "the cells have folds by the ids of a column, and none is named",
            remedy="name the column that the cells were counted with (--fold-by COLUMN)",
        )
    # The last folds may have no rows; an id that is new may be of them.
    grid = {"bins": folds[0].bins, "mantissa_bits": folds[0].mantissa_bits}
    folds += [CalibrationSketch(**grid) for _ in range(FOLDS - len(folds))]
    fitted = fit_without_each(chosen, folds)
    return fitted, max(clip_of(mapped(folds, fitted), p_min), PROBABILITY_FLOOR)


def _header(fitted: Sequence[Calibrator], clip: float, fold_by: str | None) -> str:
    """Return comments that say what the query does."""
    chosen = ", ".join(sorted({getattr(each, "choice_", each).name for each in fitted}))
    lines = [f"Weights by unskew: the score, calibrated by {chosen}, clipped at {clip!r}."]
    if fold_by is not None:
        lines.append(
            f"Fold of a row: the first {HASH_DIGITS} hexadecimal digits of the MD5 of {fold_by!r} as text,"
            f" modulo {FOLDS}. Each fold's calibrator was fitted on the other folds."
        )
    elif len(fitted) > 1:
        lines.append(f"The mean of {len(fitted)} calibrators, one for each seed and fold of the run.")
    return "".join(f"-- {line}\n" for line in lines)
