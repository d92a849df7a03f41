"""Arrays of odd shapes, types and values for calibrators, metrics, logs and ids."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np

import unskew.metrics as metrics
from fuzz.odd import TEXTS
from fuzz.trial import Trial
from unskew.calibration import CALIBRATORS, make_calibrator
from unskew.data import Log
from unskew.data.vocabulary import Vocabulary
from unskew.metrics import CalibrationSketch


def numbers(trial: Trial, rows: int) -> Any:
    """What somebody may give for a column of probabilities."""
    p = trial.rng.random(rows)
    odd: dict[str, Callable[[], Any]] = {
        "plain": lambda: p,
        "small": lambda: p * 1e-6,
        "constant": lambda: np.full(rows, trial.pick([0.0, 0.5, 1.0, -0.0])),
        "float32": lambda: p.astype(np.float32),
        "float16": lambda: p.astype(np.float16),
        "longdouble": lambda: p.astype(np.longdouble),
        "list": lambda: p.tolist(),
        "tuple": lambda: tuple(p.tolist()),
        "strided": lambda: np.repeat(p, 2)[::2],
        "reversed": lambda: p[::-1],
        "foreign": lambda: p.astype(">f8"),
        "readonly": lambda: _readonly(p),
        "object": lambda: p.astype(object),
        "decimal": lambda: [Decimal(str(each)) for each in p],
        "text": lambda: [str(each) for each in p],
        "masked": lambda: np.ma.masked_array(p, mask=trial.rng.random(rows) < 0.3),
        "column": lambda: p[:, None],
        "square": lambda: np.tile(p, (2, 1)),
        "scalar": lambda: 0.5,
        "none": lambda: None,
        "empty": list,
        "nan": lambda: np.where(np.arange(rows) == 0, np.nan, p),
        "inf": lambda: np.where(np.arange(rows) == rows - 1, np.inf, p),
        "above": lambda: p + 1e-9 + (np.arange(rows) == 0),
        "below": lambda: p - 1.5 * (np.arange(rows) == 0),
        "complex": lambda: p + 0j,
        "bytes": lambda: b"0.5" * rows,
        "nested": lambda: [[0.5], [0.1, 0.2]],
        "date": lambda: np.zeros(rows, dtype="datetime64[s]"),
        "set": lambda: set(p.tolist()),
        "short": lambda: p[:-1],
        "nothing": lambda: [None] * rows,
    }
    names = list(odd)
    return odd[trial.pick(names[:6] * 8 + names)]()


def labels(trial: Trial, rows: int) -> Any:
    """What somebody may give for a column of 0 and 1."""
    o = trial.rng.integers(0, 2, rows)
    odd: dict[str, Callable[[], Any]] = {
        "plain": lambda: o,
        "bool": lambda: o.astype(bool),
        "float": lambda: o.astype(float),
        "uint8": lambda: o.astype(np.uint8),
        "list": lambda: o.tolist(),
        "zeros": lambda: o * 0,
        "ones": lambda: o * 0 + 1,
        "two": lambda: o + (np.arange(rows) == 0),
        "minus": lambda: 2 * o - 1,
        "text": lambda: o.astype(str),
        "words": lambda: ["yes" if each else "no" for each in o],
        "object": lambda: o.astype(object),
        "nan": lambda: np.where(np.arange(rows) == 0, np.nan, o),
        "masked": lambda: np.ma.masked_array(o, mask=trial.rng.random(rows) < 0.3),
        "column": lambda: o[:, None],
        "short": lambda: o[:-1],
        "empty": list,
        "none": lambda: None,
    }
    names = list(odd)
    return odd[trial.pick(names[:5] * 12 + names)]()


def ids(trial: Trial, rows: int) -> Any:
    """What somebody may give for a column of ids."""
    code = trial.rng.integers(0, max(rows // 3, 1), rows)
    odd: dict[str, Callable[[], Any]] = {
        "plain": lambda: code,
        "text": lambda: [f"u{each}" for each in code],
        "odd text": lambda: [trial.pick(TEXTS) for _ in code],
        "float": lambda: code.astype(float),
        "fraction": lambda: code + 0.5,
        "nan": lambda: np.where(np.arange(rows) == 0, np.nan, code),
        "mixed": lambda: [each if each % 2 else str(each) for each in code.tolist()],
        "null": lambda: [None, *code.tolist()[1:]],
        "bool": lambda: code > 0,
        "big": lambda: code.astype(np.uint64) + np.uint64(2**63),
        "beyond": lambda: [10**30] * rows,
        "bytes": lambda: [b"a"] * rows,
        "half": lambda: ["\ud800"] * rows,
        "masked": lambda: np.ma.masked_array(code, mask=trial.rng.random(rows) < 0.3),
        "date": lambda: code.astype("datetime64[D]"),
        "nested": lambda: [[1], [2, 3]],
        "column": lambda: code[:, None],
        "empty": list,
        "none": lambda: None,
        "records": lambda: [{"a": 1}] * rows,
    }
    names = list(odd)
    return odd[trial.pick(names[:2] * 20 + names)]()


def _readonly(values: np.ndarray) -> np.ndarray:
    values = values.copy()
    values.flags.writeable = False
    return values


def _frozen(value: Any) -> str:
    """What an argument is, to see whether a call changed it."""
    return repr(np.asarray(value).tolist()) if isinstance(value, np.ndarray) else repr(value)


def calibrators(trial: Trial) -> None:
    """A calibrator fitted on odd arrays: an error of unskew's, or probabilities."""
    rows = trial.pick([1, 2, 3, 30, 200])
    name = trial.pick(list(CALIBRATORS))
    score, outcome = numbers(trial, rows), labels(trial, rows)
    weight = None if trial.chance(0.7) else numbers(trial, rows)
    before = [_frozen(each) for each in (score, outcome, weight)]
    told = f"{name}.fit({type(score).__name__}, {type(outcome).__name__}) of {rows} rows"
    fitted = trial.call(told, lambda: make_calibrator(name).fit(score, outcome, sample_weight=weight))
    trial.must(
        before == [_frozen(each) for each in (score, outcome, weight)], f"{told} changed its arguments"
    )
    if fitted is None:
        return
    asked = numbers(trial, rows)
    p = trial.call(f"{name}.predict({type(asked).__name__})", lambda: fitted.predict(asked))
    if p is not None:
        fine = np.isfinite(p).all() and (p >= 0).all() and (p <= 1).all()
        trial.must(bool(fine) and len(p) == len(asked), f"{told}: predict gives {p}")


MEASURES = (
    "ece",
    "adaptive_ece",
    "debiased_ece",
    "mce",
    "wce",
    "nll",
    "brier",
    "auc",
    "smooth_ece",
    "kuiper",
)


def measures(trial: Trial) -> None:
    """A metric of odd arrays: an error of unskew's, or a number, and a sketch agrees on which."""
    rows = trial.pick([1, 2, 3, 30, 200])
    score, outcome = numbers(trial, rows), labels(trial, rows)
    name = trial.pick(MEASURES)
    function = getattr(metrics, name)
    given = {"score": score, "outcome": outcome}
    value = trial.call(f"{name} of {rows} rows", lambda: function(**given))
    sketch = trial.call("CalibrationSketch.of", lambda: CalibrationSketch.of(**given))
    if isinstance(value, float):
        trial.must(not np.isnan(value), f"{name} is NaN")
        trial.must(sketch is not None, f"{name} takes what a sketch refuses")


def logs(trial: Trial) -> None:
    """A log of odd arrays: an error of unskew's, or one whose rows say what was given."""
    rows = trial.pick([1, 2, 5, 40])
    columns = {"user": ids(trial, rows), "item": ids(trial, rows)}
    if trial.chance(0.6):
        columns["click"] = labels(trial, rows)
    if trial.chance(0.6):
        columns["conversion"] = labels(trial, rows)
    space = trial.pick(["matrix", "impressions", "impressions"])
    duplicates = trial.pick(["error", "max"])
    log = trial.call(
        f"Log.from_arrays of {rows} rows",
        lambda: Log.from_arrays(**columns, space=space, duplicates=duplicates),
    )
    if log is not None and space == "impressions":
        for given, vocabulary, code in (
            (columns["user"], log.users, log.user),
            (columns["item"], log.items, log.item),
        ):
            found = vocabulary.decode(code).tolist()
            trial.must(
                [str(each) for each in found] == [_shown(each) for each in np.asarray(given, dtype=object)],
                "ids changed",
            )


def _shown(value: Any) -> str:
    return str(int(value)) if not isinstance(value, str) else value


def vocabularies(trial: Trial) -> None:
    """Ids of any kind: an error of unskew's, or a round trip."""
    rows = trial.pick([1, 3, 30])
    known, asked = ids(trial, rows), ids(trial, rows)
    vocabulary = trial.call("Vocabulary.of", lambda: Vocabulary.of(known, name="user"))
    if vocabulary is not None:
        codes = trial.call("encode", lambda: vocabulary.encode(asked, unseen=trial.pick(["error", "nan"])))
        if codes is not None:
            trial.must(len(codes) == len(asked), "codes of another length")
