"""Tables as files hold them: CSV and Parquet of odd types, values, names, encodings and damage."""

from __future__ import annotations

import csv
import gzip
import io
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import unskew as us
from fuzz.odd import NAMES, TEXTS
from fuzz.trial import Trial
from unskew.data import stream, two_passes

ROWS = (0, 1, 2, 3, 17, 100, 400, 400, 400, 3000)


@dataclass
class Written:
    """A file, and what is known of it.

    Attributes
    ----------
    valid
        Whether score and outcome are what they must be on every row; None where damage makes it unknown.
    cells
        Rows of a CSV file as they were meant, to be found again; None where they are damaged.
    table
        The table of a Parquet file, likewise.
    """

    path: Path
    score: str
    outcome: str
    others: list[str]
    rows: int
    valid: bool | None
    cells: list[list[str]] | None = None
    table: pa.Table | None = None


def audit_or_weights(trial: Trial) -> None:
    """A file of scores and outcomes, audited or weighted: valid ones are taken and the others refused."""
    written = write_csv(trial) if trial.chance(0.5) else write_parquet(trial)
    damage(trial, written)
    if trial.chance(0.6):
        _audit(trial, written)
    else:
        _weights(trial, written)


def read_as_log(trial: Trial) -> None:
    """A file that is read as a log, at once and in batches into mapped arrays: the same, or refused twice."""
    written = write_csv(trial) if trial.chance(0.5) else write_parquet(trial)
    damage(trial, written)
    names = trial.rng.permutation([written.score, *written.others]).tolist()
    columns = {"user": names[0], "item": names[-1], "click": written.outcome}
    further = {
        "features": trial.pick(["auto", None]),
        "keep": [name for name in names[1:-1] if trial.chance(0.2)],
    }

    def read(cache: str) -> Any:
        options = {**columns, **further, "space": "impressions", "cache": cache}
        log = trial.call(f"read_log {options}", lambda: us.read_log(written.path, **options))
        return None if log is None else (log, trial.call("encoders", lambda: log.encoders))

    whole = read("none")
    before = two_passes.MAPPED_BYTES, stream.BATCH_ROWS, stream.PIECE_ROWS
    two_passes.MAPPED_BYTES, stream.BATCH_ROWS, stream.PIECE_ROWS = 0, 64, 64
    try:
        mapped = read("none")
    finally:
        two_passes.MAPPED_BYTES, stream.BATCH_ROWS, stream.PIECE_ROWS = before
    # What is mapped carries no text with gaps, and no long text.
    refused = mapped is None and bool(further["keep"])
    trial.must((whole is None) == (mapped is None) or refused, f"at once {whole}, mapped {mapped}")
    if whole is None or mapped is None:
        return
    for one, other in zip(_read(whole[0]), _read(mapped[0]), strict=True):
        trial.must(one == other, f"at once {one[:300]}, mapped {other[:300]}")


def _read(log: us.Log) -> list[str]:
    """All that is in a log, as text."""
    coded = [] if log.features is None else [*log.encoded_rows(), log.schema_table()]
    carried = [[str(value) for value in values] for values in log.columns.values()]
    found = [log.users.decode(log.user), log.items.decode(log.item), log.click, *coded]
    return [repr(np.asarray(each).tolist()) for each in found] + [repr(carried)]


def _audit(trial: Trial, written: Written) -> None:
    arguments = ["audit", str(written.path.name), f"--score={written.score}", f"--outcome={written.outcome}"]
    segment = written.others and trial.chance(0.4)
    if segment:
        arguments += [f"--segments={trial.pick(written.others)}"]
    report = trial.chance(0.08)
    arguments += ["--out", "out"] if report else ["--no-report", "--json", "out.json"]
    code, _, _ = trial.cli(arguments, outputs=["out"] if report else ["out.json"])
    if written.valid is not None and not segment:
        trial.must(
            (code in (0, 1)) == (written.valid and written.rows > 0), f"code {code}, valid {written.valid}"
        )
    if report and code in (0, 1):
        page = (trial.folder / "out" / "report.html").read_text(encoding="utf-8")
        trial.must(not any(c < " " and c not in "\n\t" for c in page), "control characters in the report")
        trial.must("<script>alert(1)</script>" not in page, "markup of the data in the report")


def _weights(trial: Trial, written: Written) -> None:
    arguments = ["weights", str(written.path.name), "-o", "out.parquet", f"--score={written.score}"]
    arguments += [
        f"--outcome={written.outcome}",
        "--folds",
        "2",
        "--calibrator",
        trial.pick(["platt", "none", "isotonic"]),
    ]
    code, _, _ = trial.cli(arguments, outputs=["out.parquet"])
    if code == 0:
        trial.must(written.valid is not False, "invalid rows were given weights")
        found = pq.read_table(trial.folder / "out.parquet")
        p, weight = (found[name].to_numpy() for name in ("propensity_calibrated", "weight"))
        trial.must(
            bool(np.isfinite(p).all() and (p >= 0).all() and (p <= 1).all()), "propensities beyond [0, 1]"
        )
        trial.must(bool(np.isfinite(weight).all()), "weights that are not finite")
        _unchanged(trial, written, found)


def _unchanged(trial: Trial, written: Written, found: pa.Table) -> None:
    """Columns that are passed through are what they were: a CSV's as text, a Parquet's with their types."""
    if written.table is not None:
        trial.must(found.num_rows == written.table.num_rows, f"{found.num_rows} rows were written")
        for field in written.table.schema:
            same = found.schema.field(field.name).type == field.type
            trial.must(
                same, f"type of {field.name!r}: {field.type} became {found.schema.field(field.name).type}"
            )
            before, after = (repr(each[field.name].to_pylist()) for each in (written.table, found))
            trial.must(before == after, f"{field.name!r} was changed")
    if written.cells is not None:
        header, *rows = written.cells
        trial.must(found.num_rows == len(rows), f"{found.num_rows} rows were written of {len(rows)}")
        for place, name in enumerate(header):
            if name in written.others:
                wanted = [row[place] or None for row in rows]
                trial.must(found[name].to_pylist() == wanted, f"column {name!r} of a CSV was changed")


def scores(trial: Trial, rows: int) -> tuple[np.ndarray, bool]:
    """Scores, and whether all are probabilities."""
    kind = trial.pick(["uniform", "small", "small", "constant", "edges", "tiny", "wrong"])
    p = {
        "uniform": lambda: trial.rng.random(rows),
        "small": lambda: trial.rng.beta(1, 20, rows),
        "constant": lambda: np.full(rows, trial.pick([0.0, 0.3, 1.0, -0.0])),
        "edges": lambda: trial.rng.choice([0.0, 1.0, -0.0, 0.5, 1e-12, 1 - 1e-12], rows),
        "tiny": lambda: trial.rng.choice([1e-300, 5e-324, 1e-20, 0.1], rows),
        "wrong": lambda: trial.rng.random(rows),
    }[kind]()
    if kind == "wrong" and rows:
        p[trial.rng.integers(rows)] = trial.pick([1.0000001, -1e-9, 2.0, np.nan, np.inf, -np.inf, 1e300])
        return p, False
    return p, True


def outcomes(trial: Trial, p: np.ndarray) -> np.ndarray:
    """Clicks that the scores more or less tell."""
    return (trial.rng.random(len(p)) < np.nan_to_num(np.clip(p, 0, 1), nan=0.5)).astype(np.int64)


def column_names(trial: Trial, count: int) -> list[str]:
    """Names, all different."""
    names: list[str] = []
    while len(names) < count:
        name = trial.pick(NAMES)
        names.append(name if name not in [*names, "p", "o"] else f"c{len(names)}")
    return names


def write_csv(trial: Trial) -> Written:
    """A CSV file, from plain to odd."""
    rows = trial.pick(ROWS)
    p, valid = scores(trial, rows)
    o = outcomes(trial, p)
    others = [name for name in column_names(trial, int(trial.rng.integers(0, 4))) if "\0" not in name]
    words = trial.pick([("0", "1"), ("0", "1"), ("0.0", "1.0"), ("false", "true"), ("no", "yes")])
    valid = valid and (words[0] != "no" or rows == 0)
    texts = [each for each in TEXTS if "\0" not in each] if trial.chance(0.7) else ["a", "b"]
    cells = [["p", "o", *others]]
    for row in range(rows):
        shown = repr(float(p[row])) if np.isfinite(p[row]) else trial.pick(["nan", "inf", "", "x"])
        cells.append([shown, words[o[row]], *(trial.pick(texts) for _ in others)])
    end = trial.pick(["\n", "\n", "\r\n"])
    delimiter, suffix = trial.pick([(",", ".csv"), (",", ".csv"), ("\t", ".tsv"), (",", ".csv.gz")])
    text = io.StringIO()
    writer = csv.writer(
        text, delimiter=delimiter, lineterminator=end, quoting=trial.pick([csv.QUOTE_MINIMAL, csv.QUOTE_ALL])
    )
    writer.writerows(cells)
    encoding = trial.pick(["utf-8"] * 6 + ["utf-8-sig", "latin-1", "utf-16"])
    body = text.getvalue().encode(encoding, errors="replace")
    plain = encoding == "utf-8" and not any("\n" in c or "\r" in c for line in cells for c in line)
    path = trial.folder / f"log{suffix}"
    path.write_bytes(gzip.compress(body) if suffix.endswith(".gz") else body)
    known = plain and all(any(line) for line in cells) and "" not in others
    return Written(path, "p", "o", others, rows, valid if known else None, cells if known else None)


def write_parquet(trial: Trial) -> Written:
    """A Parquet file of odd types and row groups."""
    rows = trial.pick(ROWS)
    p, valid = scores(trial, rows)
    o = outcomes(trial, p)
    score, takes = _score_column(trial, p)
    outcome, taken = _outcome_column(trial, o)
    others = column_names(trial, int(trial.rng.integers(0, 4)))
    columns = {"p": score, "o": outcome} | {name: _any_column(trial, rows) for name in others}
    order = list(columns)
    if trial.chance(0.3):
        order = [order[place] for place in trial.rng.permutation(len(order))]
    table = pa.table({name: columns[name] for name in order})
    path = trial.folder / trial.pick(["log.parquet", "log.pq"])
    pq.write_table(
        table,
        path,
        row_group_size=trial.pick([1, 7, 64, 1000, None]) if rows < 1000 else None,
        compression=trial.pick(["snappy", "none", "zstd", "gzip"]),
        use_dictionary=trial.chance(0.5),
        data_page_size=trial.pick([64, 4096, None]),
        version=trial.pick(["1.0", "2.6"]),
    )
    known = valid and takes and taken if rows else False
    # Files keep other types than tables (1.0 knows no nanoseconds): what is compared is what the file holds.
    return Written(path, "p", "o", others, rows, known, table=pq.read_table(path))


def _score_column(trial: Trial, p: np.ndarray) -> tuple[pa.Array, bool]:
    kind = trial.pick(
        ["f64"] * 5 + ["f32", "f32", "dictionary", "null", "text", "list", "decimal", "binary", "date"]
    )
    if kind == "f32":
        with np.errstate(over="ignore", under="ignore"):
            return pa.array(p.astype(np.float32)), True
    if kind == "dictionary":
        return pa.array(p).dictionary_encode(), True
    if kind == "null" and len(p):
        mask = np.zeros(len(p), dtype=bool)
        mask[trial.rng.integers(len(p))] = True
        return pa.array(p, mask=mask), False
    if kind == "text":
        return pa.array([str(each) for each in p], type=pa.string()), False
    if kind == "list":
        return pa.array([[float(each)] for each in p], type=pa.list_(pa.float64())), False
    if kind == "decimal":
        with np.errstate(all="ignore"):
            rounded = [
                Decimal(f"{each:.8f}") if np.isfinite(each) and abs(each) < 100 else None for each in p
            ]
        fits = all(each is not None and 0 <= each <= 1 for each in rounded)
        return pa.array(rounded, type=pa.decimal128(12, 8)), fits
    if kind == "binary":
        return pa.array([each.tobytes() for each in p], type=pa.binary()), False
    if kind == "date":
        return pa.array(np.zeros(len(p), dtype="datetime64[ms]")), False
    return pa.array(p), True


def _outcome_column(trial: Trial, o: np.ndarray) -> tuple[pa.Array, bool]:
    kind = trial.pick(["i64", "i8", "u8", "bool", "f64", "f32", "dictionary", "wrong", "null", "text"])
    if kind == "bool":
        return pa.array(o.astype(bool)), True
    if kind == "dictionary":
        return pa.array(o).dictionary_encode(), True
    if kind == "wrong" and len(o):
        o = o.astype(np.float64)
        o[trial.rng.integers(len(o))] = trial.pick([2.0, -1.0, 0.5, np.nan, np.inf])
        return pa.array(o), False
    if kind == "null" and len(o):
        mask = np.zeros(len(o), dtype=bool)
        mask[trial.rng.integers(len(o))] = True
        return pa.array(o, mask=mask), False
    if kind == "text":
        return pa.array([str(each) for each in o], type=pa.string()), False
    return pa.array(
        o.astype({"i8": np.int8, "u8": np.uint8, "f64": float, "f32": np.float32}.get(kind, np.int64))
    ), True


def _any_column(trial: Trial, rows: int) -> pa.Array:
    """A column of any type, with nulls now and then."""
    kinds: dict[str, tuple[Any, list[Any]]] = {
        "text": (pa.string(), list(TEXTS)),
        "large": (pa.large_string(), ["a", "b"]),
        "view": (pa.string_view(), ["a", "a long text that is not inlined"]),
        "binary": (pa.binary(), [b"", b"\xff\x00", b"abc"]),
        "i8": (pa.int8(), [-128, 127, 0]),
        "u64": (pa.uint64(), [0, 2**64 - 1]),
        "f16": (pa.float16(), [np.float16(0.5), np.float16("nan")]),
        "f64": (pa.float64(), [0.1, float("nan"), float("inf"), -0.0]),
        "bool": (pa.bool_(), [True, False]),
        "date": (pa.date32(), [0, 18_000, -400_000]),
        "time": (pa.timestamp("ms", tz="Europe/Berlin"), [0, 1_600_000_000_000]),
        "decimal": (pa.decimal128(20, 3), [Decimal("1.100"), Decimal("-0.001")]),
        "list": (pa.list_(pa.int32()), [[], [1, None], [2]]),
        "record": (
            pa.struct({"a": pa.int8(), "b": pa.string()}),
            [{"a": 1, "b": None}, {"a": None, "b": "x"}],
        ),
        "map": (pa.map_(pa.string(), pa.int8()), [[("k", 1)], []]),
        "null": (pa.null(), [None]),
    }
    kind, values = kinds[trial.pick(list(kinds))]
    with_nulls = [*values, None] if trial.chance(0.3) else values
    column = pa.array([trial.pick(with_nulls) for _ in range(rows)], type=kind)
    if pa.types.is_string(kind) and trial.chance(0.3):
        return column.dictionary_encode()
    return column


def damage(trial: Trial, written: Written) -> None:
    """Now and then, cut, change or misname a file."""
    if trial.chance(0.75):
        return
    body = bytearray(written.path.read_bytes())
    kind = trial.pick(["cut", "flip", "flip", "noise", "empty", "suffix", "ragged", "twice"])
    if kind == "cut":
        body = body[: int(trial.rng.integers(len(body) + 1))]
    elif kind == "flip" and body:
        for place in trial.rng.integers(0, len(body), 3):
            body[place] = int(trial.rng.integers(256))
    elif kind == "noise":
        body = bytearray(trial.rng.bytes(int(trial.rng.integers(1, 2000))))
    elif kind == "empty":
        body = bytearray()
    elif kind == "ragged":
        body += b"1,2,3,4,5,6,7,8,9\n"
    elif kind == "twice":
        body = body + body
    elif kind == "suffix":
        other = trial.folder / trial.pick(
            ["log.csv", "log.parquet", "log.txt", "log", "log.csv.gz", "log.xlsx"]
        )
        if other != written.path:
            written.path.rename(other)
            written.path = other
    written.path.write_bytes(bytes(body))
    written.valid = written.cells = written.table = None
