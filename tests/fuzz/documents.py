"""Files of a run that were cut, changed or removed, and JSON and TOML of odd content."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq

from fuzz.odd import TEXTS
from fuzz.trial import Trial
from unskew.base.manifest import MANIFEST, write_manifest
from unskew.calibration import CALIBRATORS, load_calibrator, make_calibrator

READ = (
    "config.toml",
    "model.safetensors",
    "propensity.safetensors",
    "calibrator.json",
    "users.parquet",
    "items.parquet",
    "schema.json",
)

VALUES: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1,
    2**63,
    10**30,
    0.5,
    -0.0,
    1e308,
    float("nan"),
    float("inf"),
    "",
    "x",
    "platt",
    [],
    [None],
    [[1]],
    {},
    {"name": "platt"},
    *TEXTS[:6],
)


TOML_VALUES = (
    *("0", "-1", "1", "3", "50000000", "1000000000000", "9223372036854775807", "1" * 40, "nan", "inf", "0.5"),
    *("true", '""', '"x"', '"none"', "[]", "[0, 0]", '["a"]', "{}", "1979-05-27", "'\\x1b'", "[[[]]]"),
)


def run_folder(trial: Trial) -> None:
    """A run folder with a fault: whatever it is, nothing is scored or exported wrongly."""
    folder = trial.folder / "run"
    shutil.copytree(trial.assets / "run", folder)
    shutil.copy(trial.assets / "pairs.csv", trial.folder / "pairs.csv")
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    _fault(trial, folder)
    # With a manifest of its own, what the files say is all that can tell the fault.
    sealed = trial.chance(0.6)
    if sealed and (folder / MANIFEST).is_file() and all(path.is_file() for path in folder.iterdir()):
        write_manifest(folder)
    same = before == {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    verb = trial.pick(["score", "score", "export", "compare"])
    arguments, output = {
        "score": (["score", "run", "pairs.csv", "-o", "out.parquet", "--device", "cpu"], "out.parquet"),
        "export": (
            ["export", "run", "-o", "out.onnx", f"--what={trial.pick(['conversion', 'propensity'])}"],
            "out.onnx",
        ),
        "compare": (
            ["compare", "run", "--resamples", "50", "--device", "cpu", "--json", "out.json"],
            "out.json",
        ),
    }[verb]
    code, _, _ = trial.cli(arguments, outputs=[output])
    if same:
        trial.must(code != 2, "a whole folder was refused")
    if code == 0 and verb == "score":
        table = pq.read_table(trial.folder / "out.parquet")
        for name in ("conversion", "propensity"):
            if name in table.column_names:
                p = table[name].to_numpy()
                trial.must(
                    bool(np.isfinite(p).all() and (p >= 0).all() and (p <= 1).all()),
                    f"{name} is no probability",
                )


def _fault(trial: Trial, folder: Path) -> None:
    path = folder / trial.pick([*READ, *READ, MANIFEST, "metrics.json", "propensities.parquet"])
    kind = trial.pick(["cut", "flip", "remove", "swap", "json", "json", "toml", "toml", "folder", "none"])
    if kind == "json":
        path = folder / trial.pick(["calibrator.json", "calibrator.json", "metrics.json"])
        path.write_text(odd_json(trial, json.loads(path.read_text(encoding="utf-8"))), encoding="utf-8")
    elif kind == "toml":
        path = folder / "config.toml"
        path.write_bytes(odd_toml(trial, path.read_text(encoding="utf-8")))
    elif kind == "remove":
        path.unlink()
    elif kind == "folder":
        path.unlink()
        path.mkdir()
    elif kind == "swap":
        path.write_bytes((folder / trial.pick(READ)).read_bytes())
    elif kind in ("cut", "flip"):
        body = bytearray(path.read_bytes())
        if kind == "cut":
            body = body[: int(trial.rng.integers(len(body)))]
        else:
            for place in trial.rng.integers(0, len(body), 3):
                body[place] = int(trial.rng.integers(256))
        path.write_bytes(bytes(body))


def odd_json(trial: Trial, value: Any) -> str:
    """A document with one to three values replaced, or one that is none."""
    if trial.chance(0.1):
        return trial.pick(
            [
                "",
                "{",
                "[" * 5000,
                "[" * 100_000,
                '{"a":' * 5000,
                "nul",
                "\ufeff{}",
                '"\\ud800"',
                "1e999",
                "[1,]",
            ]
        )
    for _ in range(int(trial.rng.integers(1, 4))):
        value = _replaced(trial, value)
    return json.dumps(value)


def _replaced(trial: Trial, value: Any) -> Any:
    """The value with something in it put in the place of something else."""
    if isinstance(value, dict) and value and trial.chance(0.9):
        key = trial.pick(list(value))
        if trial.chance(0.1):
            return {name: inner for name, inner in value.items() if name != key}
        if trial.chance(0.05):
            return {**value, trial.pick(TEXTS): trial.pick(VALUES)}
        return {**value, key: _replaced(trial, value[key])}
    if isinstance(value, list) and value and trial.chance(0.9):
        place = int(trial.rng.integers(len(value)))
        if trial.chance(0.1):
            return value[:place] + value[place + 1 :]
        if trial.chance(0.05):
            return value + value
        return [*value[:place], _replaced(trial, value[place]), *value[place + 1 :]]
    return trial.pick(VALUES)


def odd_toml(trial: Trial, text: str) -> bytes:
    """Lines of TOML removed, doubled, or with another value."""
    lines = text.splitlines()
    for _ in range(int(trial.rng.integers(1, 4))):
        place = int(trial.rng.integers(len(lines)))
        kind = trial.pick(["value"] * 5 + ["drop", "twice", "noise", "deep"])
        name = lines[place].split("=")[0]
        if kind == "value" and "=" in lines[place]:
            lines[place] = f"{name}= {trial.pick(TOML_VALUES)}"
        elif kind == "drop":
            lines = lines[:place] + lines[place + 1 :] or [""]
        elif kind == "twice":
            lines.insert(place, lines[place])
        elif kind == "noise":
            lines[place] = trial.pick(
                ["=", "[", "[a", "a.b.c = 1", "\x00", "x = \x1b[31m", "[methods]", "\ufeff"]
            )
        elif kind == "deep":
            lines[place] = "deep = " + "[" * 3000 + "]" * 3000
    body = "\n".join(lines).encode("utf-8", errors="replace")
    return body + trial.pick([b""] * 9 + [b"\xff\xfe"])


def calibrator_file(trial: Trial) -> None:
    """A saved calibrator with odd values: refused, or its probabilities are some."""
    name = trial.pick([each for each in CALIBRATORS if each != "none"])
    scores = trial.rng.random(60)
    fitted = make_calibrator(name).fit(scores, (trial.rng.random(60) < scores).astype(int))
    path = trial.folder / "calibrator.json"
    path.write_text(odd_json(trial, fitted.to_dict()), encoding="utf-8")
    loaded = trial.call(f"load_calibrator of {name}", lambda: load_calibrator(path))
    if loaded is not None:
        p = trial.call(f"predict of a loaded {name}", lambda: loaded.predict(np.linspace(0, 1, 11)))
        if p is not None:
            trial.must(
                bool(np.isfinite(p).all() and (p >= 0).all() and (p <= 1).all()),
                f"{name} gives {p}, no probabilities",
            )


GRID: dict[str, Any] = {
    "base": {
        "data": {"source": "synthetic", "options": {"n_users": 20, "n_items": 18, "density": 0.3}},
        "evaluation": {"seeds": 1},
        "model": {"learner": "mf", "parameters": {"learner.dim": 2, "training.epochs": 1}},
        "propensity": {"kind": "mf", "crossfit": 2},
    },
    "grid": {"calibrator": ["platt"], "method": ["zzz"]},
}
"""A grid whose method does not exist, so that no other fault lets it train for long."""


def grid(trial: Trial) -> None:
    """A study's file with odd values: one line, and nothing is left."""
    from unskew.base.toml_text import to_toml

    text = to_toml({key: value for key, value in GRID.items() if value is not None})
    (trial.folder / "grid.toml").write_bytes(odd_toml(trial, text))
    trial.cli(["study", "grid.toml", "--out", "out", "--device", "cpu"], codes=(2,))
