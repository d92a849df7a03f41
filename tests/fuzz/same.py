"""The same data told in other ways: no format, type, order or number of files may change a figure."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from fuzz.trial import Trial

FORMATS = (
    "csv",
    "csv.gz",
    "tsv",
    "parquet",
    "dictionary",
    "groups",
    "parts",
    "small",
    "reordered",
    "bool",
    "float",
)


def _log(trial: Trial) -> pa.Table:
    rows = trial.pick([60, 300, 1500])
    p = trial.rng.beta(1, trial.pick([2, 20]), rows).round(6)
    o = (trial.rng.random(rows) < p * trial.pick([0.5, 1.0])).astype(np.int64)
    o[:4] = [0, 1, 0, 1]
    city = trial.rng.choice(["Köln", "Bonn", "a,b", "007", "NA"], rows)
    return pa.table({"p": p, "o": o, "city": city.astype(object)})


def _write(trial: Trial, table: pa.Table, kind: str, folder: Path) -> None:
    """The table in one of the ways."""
    folder.mkdir()
    if kind in ("csv", "tsv", "csv.gz"):
        with pa.output_stream(
            folder / f"a.{kind}", compression="gzip" if kind == "csv.gz" else None
        ) as target:
            pa.csv.write_csv(table, target, pa.csv.WriteOptions(delimiter="\t" if kind == "tsv" else ","))
        return
    if kind == "dictionary":
        table = table.set_column(1, "o", table["o"].combine_chunks().dictionary_encode())
        table = table.set_column(2, "city", table["city"].combine_chunks().dictionary_encode())
    elif kind == "small":
        table = table.set_column(1, "o", table["o"].cast(pa.uint8()))
    elif kind == "bool":
        table = table.set_column(1, "o", table["o"].cast(pa.bool_()))
    elif kind == "float":
        table = table.set_column(1, "o", table["o"].cast(pa.float32()))
    elif kind == "reordered":
        table = table.select(["city", "o", "p"])
    if kind == "parts":
        cut = int(trial.rng.integers(1, len(table)))
        pq.write_table(table.slice(0, cut), folder / "a.parquet")
        pq.write_table(table.slice(cut), folder / "b.parquet")
        return
    pq.write_table(table, folder / "a.parquet", row_group_size=13 if kind == "groups" else None)


def audits(trial: Trial) -> None:
    """The audit of a log is one, however it is written."""
    table = _log(trial)
    first: Any = None
    for kind in ("parquet", *trial.rng.choice(FORMATS, 3, replace=False)):
        place = f"log-{kind}"
        if (trial.folder / place).exists():
            continue
        _write(trial, table, str(kind), trial.folder / place)
        arguments = ["audit", place, "--score", "p", "--outcome", "o", "--segments", "city", "--no-report"]
        code, _, _ = trial.cli([*arguments, "--json", f"{place}.json"], outputs=[f"{place}.json"])
        told = json.loads((trial.folder / f"{place}.json").read_text(encoding="utf-8")) if code < 2 else {}
        told.pop("files", None)
        if first is None:
            first = told
        trial.must(_alike(told, first), f"another audit from {kind}: {_differing(first, told)}")


def orders(trial: Trial) -> None:
    """The audit's figures of all rows do not hang on their order."""
    table = _log(trial)
    figures = []
    for name in ("one", "two"):
        pq.write_table(table, trial.folder / f"{name}.parquet")
        arguments = [
            "audit",
            f"{name}.parquet",
            "--score",
            "p",
            "--outcome",
            "o",
            "--no-report",
            "--json",
            f"{name}.json",
        ]
        code, _, _ = trial.cli(arguments, outputs=[f"{name}.json"])
        if code == 2:
            return
        figures.append(json.loads((trial.folder / f"{name}.json").read_text(encoding="utf-8")))
        table = table.take(trial.rng.permutation(len(table)))
    for key in ("rows", "nll", "brier", "auc", "mean_outcome_over_score"):
        one, two = (each[key] for each in figures)
        trial.must(
            one == two or bool(np.isclose(one, two, rtol=1e-9)),
            f"{key} is {one} and, in another order, {two}",
        )
    for key in ("ece", "wce"):
        one, two = (each[key]["value"] for each in figures)
        trial.must(
            one == two or bool(np.isclose(one, two, rtol=1e-9)),
            f"{key} is {one} and, in another order, {two}",
        )


def weights(trial: Trial) -> None:
    """The weights of a log are the same, row by row, however it is written."""
    table = _log(trial)
    first = None
    calibrator = trial.pick(["platt", "isotonic", "none", "beta"])
    for kind in ("parquet", *trial.rng.choice(FORMATS, 3, replace=False)):
        place = f"log-{kind}"
        if (trial.folder / place).exists():
            continue
        _write(trial, table, str(kind), trial.folder / place)
        arguments = ["weights", place, "--score", "p", "--outcome", "o", "-o", f"{place}.parquet"]
        code, _, _ = trial.cli([*arguments, "--calibrator", calibrator], outputs=[f"{place}.parquet"])
        if code == 2:
            told: Any = "refused"
        else:
            found = pq.read_table(trial.folder / f"{place}.parquet")
            told = found.select(["propensity_calibrated", "weight", "fold", "clipped"]).to_pydict()
            trial.must(found["city"].to_pylist() == table["city"].to_pylist(), f"city changed in {kind}")
        if first is None:
            first = told
        trial.must(_alike(told, first), f"other weights from {kind}")


def trained(trial: Trial) -> None:
    """Trained weights do not hang on how clicks and ids are written."""
    rows = 80
    user, item = trial.rng.integers(0, 12, rows), trial.rng.integers(0, 9, rows)
    o = (trial.rng.random(rows) < 0.3).astype(np.int64)
    o[:2] = [0, 1]
    ids = [pa.array([f"{letter}{each}" for each in column]) for letter, column in (("u", user), ("i", item))]
    clicks = {
        "whole": pa.array(o),
        "text": pa.array([str(each) for each in o]),
        "dictionary": pa.array([str(each) for each in o]).dictionary_encode(),
        "bool": pa.array(o.astype(bool)),
        "csv": pa.array(o),
    }
    first = None
    for kind in ("whole", trial.pick(["text", "dictionary", "bool", "csv"])):
        table = pa.table({"user": ids[0], "item": ids[1], "o": clicks[kind]})
        name = "log.csv" if kind == "csv" else f"{kind}.parquet"
        if kind == "csv":
            pa.csv.write_csv(table, trial.folder / name)
        else:
            pq.write_table(table, trial.folder / name)
        out = f"out-{kind}.parquet"
        arguments = ["weights", name, "--user", "user", "--item", "item", "--outcome", "o", "-o", out]
        code, _, _ = trial.cli([*arguments, "--folds", "2", "--device", "cpu"], outputs=[out])
        told = "refused" if code else pq.read_table(trial.folder / out)["weight"].to_pylist()
        first = told if first is None else first
        # Text may be refused where numbers are asked for; what is taken must be taken alike.
        trial.must(told == "refused" or _alike(told, first), f"other weights where clicks are {kind}")


def _alike(one: Any, other: Any) -> bool:
    """Equal, but for the last digits of floats: sums of parts are rounded in another order."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_alike(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return bool(np.isclose(one, other, rtol=1e-9, atol=1e-12, equal_nan=True))
    return bool(one == other)


def _differing(one: Any, other: Any) -> list[str]:
    if not isinstance(one, dict) or not isinstance(other, dict):
        return [repr(one)[:200], repr(other)[:200]]
    return [
        f"{key}: {one.get(key)!r:.200} / {other.get(key)!r:.200}"
        for key in one
        if not _alike(one.get(key), other.get(key))
    ]
