"""A model as a folder of a Triton model repository: ``NAME/config.pbtxt`` and ``NAME/1/model.onnx``."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from unskew.errors import ParameterError
from unskew.export.inputs import Form
from unskew.export.onnx_file import What, export_run
from unskew.io.files import FolderKind, check_target, whole_folder

CONFIG, MODEL, VERSION = "config.pbtxt", "model.onnx", "1"
WRITTEN_BY = "# Written by unskew export --triton"

TYPES = {"text": "TYPE_STRING", "integer": "TYPE_INT64", "codes": "TYPE_INT64", "number": "TYPE_FP64"}
"""Triton's names of what inputs hold; scaled numbers are float32."""

LARGEST_BATCH = 4096
"""Rows that Triton may put together for one call of the model."""

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def _read(text: str) -> dict[str, Any]:
    if not text.startswith(WRITTEN_BY):
        raise ValueError("somebody else's")
    return {"unskew": True}


KIND = FolderKind(
    holds="an exported model",
    marker=CONFIG,
    read=_read,
    keys=frozenset({"unskew"}),
    files=frozenset({CONFIG, VERSION}),
)


def export_triton(
    run: str | Path,
    repository: str | Path,
    *,
    name: str | None = None,
    what: What = "conversion",
    method: str | None = None,
    inputs: Form | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write a model of a run folder into a Triton model repository.

    Everything is inside the one ONNX file: networks, look-ups of ids and categories, scales of numbers,
    calibrators. Triton may put requests together: each row is a batch of one.

    Parameters
    ----------
    run
        A run folder.
    repository
        The folder that Triton is started with (``--model-repository``); it is made where it is not there.
    name
        Of the model, and of its folder; by default that of the run folder.
    what, method
        Which of the run's models.
    inputs
        ``"raw"`` (ids and values as the log has them; the default) or ``"codes"``.
    overwrite
        Whether an earlier model of that name, of unskew's, may be replaced.

    Returns
    -------
    dict
        What the file holds, as :func:`unskew.export_onnx` has it, and ``"name"`` and ``"folder"``.
    """
    named = name or Path(run).resolve().name
    if not NAME.fullmatch(named):
        raise ParameterError(
            f"{named!r} cannot be the name of a model", remedy="give --name of letters, digits, _ and -"
        )
    target = Path(repository) / named
    found = check_target(target, overwrite=overwrite, kind=KIND)
    with whole_folder(target, overwrite=overwrite, kind=KIND, found=found) as beside:
        (beside / VERSION).mkdir()
        place = beside / VERSION / MODEL
        exported = export_run(run, place, what=what, method=method, inputs=inputs or "raw")
        (beside / CONFIG).write_text(config_text(named, place), encoding="utf-8")
    return {**exported, "file": str(target / VERSION / MODEL), "name": named, "folder": str(target)}


def config_text(name: str, model: Path) -> str:
    """``config.pbtxt`` of an exported file, from what its graph and its metadata say of each input."""
    import onnx

    graph = onnx.load(str(model), load_external_data=False)
    described = {each.key: each.value for each in graph.metadata_props}
    holds = {each["name"]: each["holds"] for each in json.loads(described["inputs"])}
    inputs = [
        _tensor(each.name, TYPES.get(holds[each.name], "TYPE_FP32"), _columns(each))
        for each in graph.graph.input
    ]
    outputs = [
        _tensor(each.name, "TYPE_BOOL" if each.name.startswith("known_") else "TYPE_FP32", _columns(each))
        for each in graph.graph.output
    ]
    return "\n".join(
        [
            f"{WRITTEN_BY} {described['unskew']}: {described['what']} of pairs.",
            f'name: "{name}"',
            'backend: "onnxruntime"',
            f"max_batch_size: {LARGEST_BATCH}",
            f"input [\n{_joined(inputs)}\n]",
            f"output [\n{_joined(outputs)}\n]",
            "dynamic_batching { }",
            "instance_group [ { kind: KIND_CPU } ]",
            "",
        ]
    )


def _columns(value: Any) -> int | None:
    """Columns of a tensor ``[n, columns]``, −1 for any number; None for ``[n]``."""
    sizes = value.type.tensor_type.shape.dim
    if len(sizes) == 1:
        return None
    return int(sizes[1].dim_value) or -1


def _tensor(name: str, kind: str, columns: int | None) -> str:
    """A tensor of the config. Triton has none without columns: ``[n, 1]`` becomes the graph's ``[n]``."""
    quoted = json.dumps(name, ensure_ascii=False)
    shape = "dims: [ 1 ]\n    reshape { shape: [ ] }" if columns is None else f"dims: [ {columns} ]"
    return f"  {{\n    name: {quoted}\n    data_type: {kind}\n    {shape}\n  }}"


def _joined(tensors: Sequence[str]) -> str:
    return ",\n".join(tensors)
