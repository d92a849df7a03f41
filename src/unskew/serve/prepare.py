"""A run folder made ready to be served: ONNX, ids and encoders, in a folder that needs no torch to be read.

It is done in a process of its own (``python -m unskew.serve.prepare``), which loads torch and ends, so that
the one that serves never does.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from unskew import __version__
from unskew.errors import RunFolderError, UnskewError
from unskew.io.files import FolderKind, whole_folder
from unskew.io.manifest import MANIFEST, digest_of, write_manifest
from unskew.io.vocabulary import as_arrow
from unskew.own_code import load_own_code

SERVED = "served.json"
"""What marks a folder as one that is made ready, and says what it holds."""

MODEL = "model.onnx"
IDS = ("users", "items")
TABLES = ("codes", "numbers", "seen")
"""Of the users and items with features: ``user_codes.npy``, …."""

KIND = FolderKind(
    holds="a model made ready to be served",
    marker=SERVED,
    read=json.loads,
    keys=frozenset({"unskew", "run", "what"}),
    files=frozenset(
        {SERVED, MODEL, MANIFEST}
        | {f"{name}.parquet" for name in IDS}
        | {f"{role}_{table}.npy" for role in ("user", "item") for table in TABLES}
    ),
)

POLITE = 5
"""Niceness of the process that makes a model ready: the one that serves goes first."""


def model_name(run_digest: str, what: str, method: str | None) -> str:
    """What a model is called: a digest of the run folder and of what is served from it."""
    return sha256(json.dumps([run_digest, what, method]).encode()).hexdigest()[:16]


def prepare(run: Path, target: Path, what: str, method: str | None) -> None:
    """Make the model of a run folder ready in a new folder ``target``."""
    from unskew.debias import load_model
    from unskew.export import export_onnx
    from unskew.export.models import encoders_of
    from unskew.propensity import load_propensity
    from unskew.training.saved import SavedFolder

    saved = SavedFolder(run)
    digest = digest_of(run)
    model: Any = load_model(saved, method, device="cpu") if what == "conversion" else None
    if what == "propensity":
        model = load_propensity(saved, device="cpu")
        if model is None:
            raise RunFolderError("holds no propensity", where=str(run), remedy="serve its conversion model")
    encoders = encoders_of(model)
    with whole_folder(target, overwrite=False, kind=KIND) as beside:
        exported = export_onnx(model, beside / MODEL, inputs="codes")
        for name, known in zip(IDS, (model.users_, model.items_), strict=True):
            pq.write_table(pa.table({"id": as_arrow(known.ids)}), beside / f"{name}.parquet")
        record = {
            "unskew": __version__,
            "run": digest,
            "what": what,
            "method": getattr(model, "name", None) if what == "conversion" else None,
            "backbone": exported["backbone"],
            "seeds": exported["seeds"],
            "user": model.users_.name,
            "item": model.items_.name,
            "encoders": None,
        }
        if encoders is not None:
            record["encoders"] = encoders.to_dict()
            for role in ("user", "item"):
                block = encoders.tables[role]
                for table, values in zip(TABLES, (*block, encoders.seen[role]), strict=True):
                    np.save(beside / f"{role}_{table}.npy", values, allow_pickle=False)
        (beside / SERVED).write_text(json.dumps(record, ensure_ascii=False) + "\n", encoding="utf-8")
        if digest_of(run) != digest:
            raise RunFolderError(
                "was replaced while it was read", where=str(run), remedy="it is read again by itself"
            )
        write_manifest(beside)


def main(arguments: Sequence[str]) -> int:
    """``RUN TARGET WHAT [METHOD] [-- FILE.py…]``: 0, or 2 and one line that says why not."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    (run, target, what, *method), own_code = arguments[:end], arguments[end + 1 :]
    if hasattr(os, "nice"):
        os.nice(POLITE)
    try:
        for path in own_code:
            load_own_code(Path(path))
        prepare(Path(run), Path(target), what, method[0] if method else None)
    except (UnskewError, OSError) as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
