"""Fitted models as ONNX files, whole or not there, with all that their inputs need."""

from __future__ import annotations

import io
import json
import os
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from unskew import __version__
from unskew.base.errors import ParameterError, RunFolderError, UnskewError
from unskew.base.files import NewFile, check_new_file, whole_file
from unskew.base.tensors import Tensor, nn, require_torch, torch
from unskew.data import Encoders
from unskew.debias import Debiaser, load_model
from unskew.propensity import load_propensity
from unskew.propensity.propensity import BasePropensity
from unskew.serve.calibrators import chosen
from unskew.serve.inputs import GraphInputs
from unskew.serve.models import Fitted, further_column, module_of
from unskew.training.saved import SavedFolder

What = Literal["all", "conversion", "propensity"]

PRODUCT = "click_and_conversion"
"""The third output of a file with P(click), ``propensity``, and P(conversion | click), ``conversion``."""

OPSET, ML_OPSET, IR_VERSION = 17, 2, 8
"""Versions of the operators, of those that look up texts, and of the file format: of 2019 to 2022."""

LARGEST_BYTES = (1 << 31) - (1 << 20)
"""A file of Protocol Buffers ends at 2 GiB; beyond it tables are in a second file."""

OUTSIDE = ".data"
"""What the name of a file of tables adds to that of the model."""

INSIDE = "unskew/"
"""What the names of values inside the graph begin with: a column may be called anything else."""


def export_onnx(
    model: Fitted, path: str | Path, *, propensity: BasePropensity | None = None, overwrite: bool = False
) -> dict[str, Any]:
    """Write a fitted model as one ONNX file: rows in, probabilities out, calibrators inside.

    ``user [n], item [n]`` and an input for each feature, as the log has them → ``conversion [n]`` or
    ``propensity [n]`` (float32); a conversion model with its propensity gives both, and their product
    ``click_and_conversion``. Each is the mean over seeds of what ``predict_frame_each`` gives, for a
    propensity with ``average=True``. ``known_user [n]`` and ``known_item [n]`` say whether training had rows
    of an id. An id that the model does not know gets NaN from a model that reads ids alone, and from one that
    reads features what these tell.

    The file's metadata describe every input: what it holds, and which value means missing. Texts are looked
    up and numbers are transformed in the graph; only values that are hashed come as codes. A feature of a
    user or item may be left out, by the value that the metadata call ``absent``: the file holds those of
    training.

    Use it to serve a model without torch or unskew. Not for cross-fitted propensities of the training
    pairs themselves, which :meth:`unskew.Propensity.predict` gives out of fold: the file gives every pair
    the mean over folds.

    Parameters
    ----------
    model
        A fitted conversion model, or a fitted propensity. Not: MC dropout, classifiers of scikit-learn (and
        so boosted trees).
    path
        The file to write. Beyond 2 GB the tables are in a second file beside it, ``PATH.data`` (ONNX external
        data), which must go where the file goes.
    propensity
        The fitted propensity of the same log, beside a conversion model.
    overwrite
        Whether an earlier file may be replaced.

    Returns
    -------
    dict
        What the file holds, for machines: ``"outputs"``, ``"seeds"``, ``"calibrators"``, ``"bytes"``, ….

    Examples
    --------
    >>> import unskew as us
    >>> model = us.load_model("runs/demo")                     # doctest: +SKIP
    >>> us.export_onnx(model, "model.onnx")["outputs"]         # doctest: +SKIP
    ['conversion', 'known_user', 'known_item']
    """
    target = _new_file(path, overwrite=overwrite)
    if not isinstance(model, Debiaser | BasePropensity):
        raise ParameterError(
            f"a {type(model).__name__} is not a fitted model", remedy="give a debiaser or a propensity"
        )
    return _export([model] if propensity is None else [model, propensity], target)


def export_run(
    run: str | Path,
    path: str | Path,
    *,
    what: What = "all",
    method: str | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write a run's conversion model (its main one unless named), its propensity, or both in one file."""
    target = _new_file(path, overwrite=overwrite)
    saved = SavedFolder(run)
    models: list[Fitted] = []
    if what == "conversion" or (what == "all" and saved.config.get("methods")):
        models.append(load_model(saved, method, device="cpu"))
    propensity = None if what == "conversion" else load_propensity(saved, device="cpu")
    if propensity is not None:
        models.append(propensity)
    if not models:
        raise RunFolderError(
            "holds no propensity", where=str(run), remedy="use its conversion model, or another run"
        )
    return _export(models, target)


class _Served(nn.Module):
    """All that a file answers: values of its inputs → its outputs, in their order."""

    def __init__(self, fitted: Sequence[Fitted]) -> None:
        super().__init__()
        for model in fitted:
            model._require_fitted("networks_" if isinstance(model, Debiaser) else "scorer_")
        further = [name for name in map(further_column, fitted) if name is not None]
        self.inputs = GraphInputs(fitted[0].users_, fitted[0].items_, _encoders_of_all(fitted), further)
        names = ["conversion" if isinstance(model, Debiaser) else "propensity" for model in fitted]
        self.models = nn.ModuleDict(dict(zip(names, map(module_of, fitted), strict=True)))
        self.outputs = [*names, *([PRODUCT] if len(names) > 1 else []), "known_user", "known_item"]
        if taken := [wanted.name for wanted in self.inputs.inputs if wanted.name in self.outputs]:
            raise UnskewError(
                f"the feature '{taken[0]}' has the name of the output",
                remedy="rename the column and train again",
            )

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Return them."""
        columns = self.inputs(*values)
        answers = {name: model(columns) for name, model in self.models.items()}
        answers[PRODUCT] = torch.stack([*answers.values()]).prod(0)
        return tuple(answers[name] if name in answers else columns[name] for name in self.outputs)


def _encoders_of_all(models: Sequence[Fitted]) -> Encoders | None:
    """Return the encoders of all features that models (and their calibrators) read; None without any.

    Of a calibrator's segments a request must hold those of rows alone: the file has the others.
    """
    read: dict[str, Any] = {}
    wholes: list[Encoders] = []
    first, same = models[0], True
    for model in models:
        same &= model.users_.same_as(first.users_) and model.items_.same_as(first.items_)
        own = model.encoders_ if model.reads_features else None
        segments: Encoders | None = getattr(model, "segment_encoders_", None)
        wholes += [encoders.whole or encoders for encoders in (own, segments) if encoders is not None]
        needed = [*(own.encoders if own else ()), *(segments.of_role("row") if segments else ())]
        for encoder in needed:
            same &= read.setdefault(encoder.feature.name, encoder.to_dict()) == encoder.to_dict()
    if not same:
        raise ParameterError(
            "the propensity and the conversion model know other ids, or code features otherwise",
            remedy="fit both on one log",
        )
    if not read:
        return None
    whole = max(wholes, key=lambda encoders: len(encoders.encoders))
    names = [encoder.feature.name for encoder in whole.encoders]
    return whole if len(names) == len(read) else whole.select([name for name in names if name in read])


def _export(fitted: Sequence[Fitted], target: NewFile) -> dict[str, Any]:
    served = _Served(fitted).eval()
    inputs, users, items = served.inputs, fitted[0].users_, fitted[0].items_
    facts: dict[str, Any] = {}
    for model in reversed(fitted):
        facts |= _facts(model)
    metadata = {
        "unskew": __version__,
        "what": served.outputs[0],
        "schema": json.dumps(inputs.schema.to_dict()),
        "inputs": json.dumps(inputs.described, ensure_ascii=False),
        "user_column": users.name,
        "item_column": items.name,
        **{key: value if isinstance(value, str) else json.dumps(value) for key, value in facts.items()},
    }
    written = _write(_graph(served, metadata), served.state_dict(), target)
    return {
        "what": served.outputs[0],
        "file": str(target.path),
        **({"tables": str(written[1])} if len(written) > 1 else {}),
        "bytes": sum(file.stat().st_size for file in written),
        "opset": OPSET,
        "inputs": [wanted.name for wanted in inputs.inputs],
        "holds": {described["name"]: described["holds"] for described in inputs.described},
        "outputs": served.outputs,
        "users": len(users),
        "items": len(items),
        **facts,
    }


def _traced(served: _Served, names: Sequence[str]) -> Any:
    """Return torch's ONNX graph of a module, whose inputs and outputs are called so, without its tables."""
    from onnx import load_from_string

    inputs, content = served.inputs.inputs, io.BytesIO()
    axes = {name: wanted.axes for name, wanted in zip(names, inputs, strict=False)}
    with torch.no_grad(), warnings.catch_warnings():
        # The tracer warns of every shape that it takes for granted.
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(
                served,
                tuple(wanted.example for wanted in inputs),
                content,  # type: ignore[arg-type]
                dynamo=False,
                export_params=False,
                do_constant_folding=False,
                input_names=names[: len(inputs)],
                output_names=names[len(inputs) :],
                dynamic_axes=axes,
                opset_version=OPSET,
            )
        except RuntimeError as error:
            raise UnskewError(
                "torch cannot write this model as ONNX",
                remedy="use one of unskew's learners, or write your own module with torch.onnx.export",
            ) from error
    return load_from_string(content.getvalue()).graph


def _graph(served: _Served, metadata: Mapping[str, str]) -> Any:
    """Trace a module, with look-ups before it and names behind it, and without its tables."""
    from onnx import helper

    inputs = served.inputs.inputs
    names = [f"{INSIDE}:{number}" for number in range(len(inputs) + len(served.outputs))]
    traced = _traced(served, names)
    nodes, heads, tails = [], [], []
    for name, wanted in zip(names, inputs, strict=False):
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(wanted.dtype))
        heads.append(helper.make_tensor_value_info(wanted.name, kind, wanted.shape))
        nodes.append(helper.make_node(inputs=[wanted.name], outputs=[name], **wanted.look_up))
    # A column may be called anything but what names inside begin with.
    inner = {name: name for name in ("", *names)} | {name: INSIDE + name for name in served.state_dict()}
    for node in traced.node:
        for side in (node.input, node.output):
            side[:] = [inner.setdefault(name, f"{INSIDE}{len(inner)}") for name in side]
        if node.op_type == "Reshape":
            # A length of 0 is none, not that of the input.
            del node.attribute[:]
            node.attribute.append(helper.make_attribute("allowzero", 1))
        node.name = node.doc_string = ""
        nodes.append(node)
    for output, name, value in zip(served.outputs, names[len(inputs) :], traced.output, strict=True):
        tails.append(helper.make_tensor_value_info(output, value.type.tensor_type.elem_type, ["n"]))
        nodes.append(helper.make_node("Identity", [name], [output]))
    model = helper.make_model(
        helper.make_graph(nodes, "unskew", heads, tails),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid("ai.onnx.ml", ML_OPSET)],
        ir_version=IR_VERSION,
        producer_name="unskew",
        doc_string=f"{metadata['what']} of pairs; the metadata says what the inputs hold",
    )
    helper.set_model_props(model, dict(metadata))
    return model


def _write(model: Any, tables: Mapping[str, Tensor], target: NewFile) -> list[Path]:
    """Write a model and its tables, whole or not at all; return the files, two where one is too small."""
    import onnx

    if model.ByteSize() > LARGEST_BYTES:
        raise UnskewError(
            f"ids and texts of the model have {model.ByteSize() / 1e9:.1f} GB, and an ONNX file holds 2.1 GB",
            remedy="train on shorter ids, such as whole numbers",
        )
    read = {name for node in model.graph.node for name in node.input}
    # Of equal tables torch makes the later ones out of the first.
    read -= {name for node in model.graph.node for name in node.output}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(table.detach().contiguous().numpy(), INSIDE + name)
        for name, table in tables.items()
        if INSIDE + name in read
    )
    if model.ByteSize() <= LARGEST_BYTES:
        with whole_file(target) as beside:
            beside.write_bytes(model.SerializeToString(deterministic=True))
            onnx.checker.check_model(str(beside), full_check=True)
        return [target.path]
    tables_path = target.path.with_name(target.path.name + OUTSIDE)
    tables_file = check_new_file(tables_path, overwrite=target.overwrite)
    with tempfile.TemporaryDirectory(prefix=".unskew-", dir=target.path.resolve().parent) as folder:
        onnx.save_model(
            model, f"{folder}/model", save_as_external_data=True, location=tables_path.name, size_threshold=0
        )
        onnx.checker.check_model(f"{folder}/model", full_check=True)
        for written, file in ((tables_path.name, tables_file), ("model", target)):
            with whole_file(file) as beside:
                os.replace(Path(folder) / written, beside)
    return [target.path, tables_path]


def _new_file(path: str | Path, *, overwrite: bool) -> NewFile:
    """Check that a file can be written; the name of a folder, which paths do not keep, is an error."""
    require_torch("a file of ONNX")
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise UnskewError(
            "to export needs the package onnx, which is not installed", remedy="pip install 'unskew[onnx]'"
        ) from error
    if isinstance(path, str) and path.endswith(("/", os.sep)):
        file = Path(path) / "model.onnx"
        raise ParameterError("names a folder", where=path, remedy=f"name the file to write, such as {file}")
    return check_new_file(Path(path), overwrite=overwrite)


def _facts(model: Fitted) -> dict[str, Any]:
    """Return what the metadata tell of a model."""
    if isinstance(model, Debiaser):
        return {"method": model.name, "learner": model.learner.name, "seeds": list(model.seeds_)}
    maps = [chosen(calibrator) for calibrator in model.calibrators_]
    uncertainty = getattr(model, "uncertainty", None)
    return {
        "learner": getattr(model, "learner", model).name,
        "uncertainty": "none" if uncertainty is None else uncertainty.name,
        "calibrators": sorted({"none" if each is None else each.name for each in maps}),
        "seeds": list(model.seeds_),
        "folds": model.design_.replicas,
        "space": model.space_,
    }
