"""Fitted models as ONNX files, whole or not there, with all that their inputs need."""

from __future__ import annotations

import io
import json
import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from unskew import __version__
from unskew.debias import Debiaser, load_model
from unskew.errors import ParameterError, RunFolderError, UnskewError
from unskew.export.inputs import Form, Inputs, require_free_names
from unskew.export.models import encoders_of, further_columns, module_of, names_of
from unskew.io.files import NewFile, check_new_file, whole_file
from unskew.log import Encoders
from unskew.propensity import Propensity, load_propensity
from unskew.propensity.propensity import BasePropensity
from unskew.training.saved import SavedFolder

What = Literal["all", "conversion", "propensity"]

OUTPUTS = ("propensity", "conversion", "click_and_conversion")
"""P(click), P(conversion | click), and their product: CTR, CVR and CTCVR."""

OPSET, IR_VERSION = 17, 8
"""Versions of the operators and of the file format, of 2022: what most runtimes in use know."""

ML, ML_OPSET = "ai.onnx.ml", 2
"""The operators that look up texts, and their version, of 2019."""

LARGEST_BYTES = (1 << 31) - (1 << 20)
"""A file of Protocol Buffers ends at 2 GiB; beyond it tables are in a second file."""

PAGE_BYTES = 1 << 12

OUTSIDE = ".data"
"""What the name of a file of tables adds to that of the model."""

INSIDE = "unskew/"
"""What the names of values inside the graph begin with: a column may be called anything else."""


def export_onnx(
    model: Debiaser | BasePropensity,
    path: str | Path,
    *,
    propensity: BasePropensity | None = None,
    inputs: Form | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write a fitted model as one ONNX file: pairs (and features) in, probabilities out, calibrators inside.

    ``user [n], item [n]`` and an input for each feature → ``conversion [n]`` or ``propensity [n]`` (float32);
    a conversion model with its propensity gives both, and their product ``click_and_conversion``. Each is the
    mean over seeds of what ``predict_frame_each`` gives, for a propensity with ``average=True``. The file's
    metadata describe every input. An id that the model does not know gets NaN from a model that reads ids
    alone, and from one that reads features what these tell.

    Use it to serve a model without torch or unskew. Not for cross-fitted propensities of the training
    pairs themselves, which :meth:`unskew.Propensity.predict` gives out of fold: the file gives every pair
    the mean over folds.

    Parameters
    ----------
    model
        A fitted conversion model, or a fitted propensity. Not: MC dropout, classifiers of scikit-learn (and
        so boosted trees), a calibrator of your own.
    path
        The file to write. Beyond 2 GB the tables are in a second file beside it, ``PATH.data`` (ONNX external
        data), which must go where the file goes.
    propensity
        The fitted propensity of the same log, beside a conversion model.
    inputs
        ``"raw"``: ids and values as the log has them; texts are looked up and numbers are transformed in the
        graph, only values that are hashed come as codes. ``"codes"``: positions in the vocabularies, which
        are in the metadata (``users``, ``items``, and ``encoder`` of each feature), and numbers as they are
        scaled. With raw inputs a feature of a user or item may be left out, by the value that the metadata
        call ``absent``: the file holds those of training. The outputs ``known_user [n]`` and ``known_item
        [n]`` say whether training had rows of an id. None is raw for a model that reads features, and codes
        for one that reads ids alone.
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
    ['conversion']
    """
    require_onnx()
    target = _new_file(path, overwrite=overwrite)
    if not isinstance(model, Debiaser | BasePropensity):
        raise ParameterError(
            f"a {type(model).__name__} is not a fitted model", remedy="give a debiaser or a propensity"
        )
    return _export([model] if propensity is None else [model, propensity], target, inputs)


def export_run(
    run: str | Path,
    path: str | Path,
    *,
    what: What = "all",
    method: str | None = None,
    inputs: Form | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write a run's conversion model (its main one unless named), its propensity, or both in one file."""
    require_onnx()
    target = _new_file(path, overwrite=overwrite)
    return _export(models_of_run(run, what, method), target, inputs)


def models_of_run(
    run: str | Path | SavedFolder, what: What, method: str | None
) -> list[Debiaser | BasePropensity]:
    """Return what a run folder holds of a conversion model and a propensity, as far as it is wanted."""
    saved = SavedFolder.of(run)
    models: list[Debiaser | BasePropensity] = []
    if what == "conversion" or (what == "all" and saved.config.get("methods")):
        models.append(load_model(saved, method, device="cpu"))
    propensity = None if what == "conversion" else load_propensity(saved, device="cpu")
    if propensity is not None:
        models.append(propensity)
    if not models:
        raise RunFolderError(
            "holds no propensity", where=str(saved.folder), remedy="use its conversion model, or another run"
        )
    return models


def require_onnx() -> None:
    """Raise an error with its remedy where the package onnx is not installed."""
    try:
        import onnx  # noqa: F401
    except ImportError as error:
        raise UnskewError(
            "to export needs the package onnx, which is not installed", remedy="pip install 'unskew[onnx]'"
        ) from error


class _Served(nn.Module):
    """All that a file answers: values of its inputs → its outputs, in their order."""

    def __init__(self, models: Sequence[Debiaser | BasePropensity], inputs: Inputs) -> None:
        super().__init__()
        self.inputs = inputs
        self.models = nn.ModuleDict(
            {"conversion" if isinstance(each, Debiaser) else "propensity": module_of(each) for each in models}
        )
        answers = OUTPUTS if len(models) > 1 else tuple(self.models)
        known = ("known_user", "known_item") if inputs.form == "raw" else ()
        # The one that a file is asked for first comes first.
        self.outputs = (*sorted(answers, key=lambda name: name != "conversion"), *known)

    def forward(self, *values: Tensor) -> tuple[Tensor, ...]:
        """Return them."""
        columns = self.inputs(*values)
        for name, model in self.models.items():
            columns[f"answer {name}"] = model(columns)
        answers = {name: columns[f"answer {name}"] for name in self.models}
        if len(answers) > 1:
            answers["click_and_conversion"] = answers["propensity"] * answers["conversion"]
        return tuple(answers[name] if name in answers else columns[name] for name in self.outputs)


def _export(
    models: Sequence[Debiaser | BasePropensity], target: NewFile, form: Form | None
) -> dict[str, Any]:
    if form not in (None, *get_args(Form)):
        raise ParameterError(f"inputs must be 'raw' or 'codes', not {form!r}", remedy="give one of these")
    for each in models:
        each._require_fitted("networks_" if isinstance(each, Debiaser) else "scorer_")
    first, encoders = models[0], _encoders_of_all(models)
    further = tuple(name for each in models for name in further_columns(each))
    usual: Form = "codes" if encoders is None else "raw"
    inputs = Inputs(first.users_, first.items_, encoders, form or usual, further)
    served = _Served(models, inputs).eval()
    require_free_names(inputs, served.outputs)
    facts: dict[str, Any] = {}
    for each in models:
        facts = {**_facts(each), **facts}
    metadata = {
        "unskew": __version__,
        "what": served.outputs[0],
        "schema": json.dumps(inputs.schema.to_dict()),
        "inputs": json.dumps(inputs.described, ensure_ascii=False),
        **{key: value if isinstance(value, str) else json.dumps(value) for key, value in facts.items()},
        "user_column": first.users_.name,
        "item_column": first.items_.name,
    }
    if inputs.form == "codes":
        for name, known in (("users", first.users_), ("items", first.items_)):
            metadata[name] = json.dumps(known.ids.tolist(), ensure_ascii=False)
    tables = _write(_graph(served, metadata), served.state_dict(), target)
    return {
        "what": served.outputs[0],
        "file": str(target.path),
        **({} if tables is None else {"tables": str(tables)}),
        "bytes": sum(file.stat().st_size for file in (target.path, tables) if file is not None),
        "opset": OPSET,
        "inputs": [each["name"] for each in inputs.described],
        "holds": {each["name"]: each["holds"] for each in inputs.described},
        "outputs": list(served.outputs),
        "users": len(first.users_),
        "items": len(first.items_),
        **facts,
    }


def _encoders_of_all(models: Sequence[Debiaser | BasePropensity]) -> Encoders | None:
    """Return the encoders of all features that models (and their calibrators) read; None without any."""
    read: dict[str, Any] = {}
    whole: Encoders | None = None
    same = all(
        getattr(models[0], ids).same_as(getattr(model, ids))
        for model in models
        for ids in ("users_", "items_")
    )
    for model in models:
        for encoders in (encoders_of(model), getattr(model, "segment_encoders_", None)):
            if encoders is None:
                continue
            own = encoders is not getattr(model, "segment_encoders_", None)
            for encoder in encoders.encoders if own else encoders.of_role("row"):
                same &= read.setdefault(encoder.feature.name, encoder.to_dict()) == encoder.to_dict()
                candidate = encoders.whole or encoders
                if whole is None or len(candidate.encoders) > len(whole.encoders):
                    whole = candidate
    if not same:
        raise ParameterError(
            "the propensity and the conversion model know other ids, or code features otherwise",
            remedy="fit both on one log",
        )
    if whole is None or len(read) == len(whole.encoders):
        return whole
    return whole.select([each.feature.name for each in whole.encoders if each.feature.name in read])


def _graph(served: _Served, metadata: Mapping[str, str]) -> Any:
    """Trace a module, with look-ups before it and names behind it, and without its tables."""
    from onnx import TensorProto, helper, load_from_string

    examples = [
        torch.zeros(
            (3,) if given.columns is None else (3, 2 if isinstance(given.columns, str) else given.columns),
            dtype=torch.int64 if given.dtype is object else torch.from_numpy(np.empty(0, given.dtype)).dtype,
        )
        for given in served.inputs.inputs
    ]
    names = [f"{INSIDE}:{number}" for number in range(len(examples) + len(served.outputs))]
    free = {name: {0: "n", 1: f"columns {name}"} for name in names}
    content = io.BytesIO()
    with torch.no_grad(), warnings.catch_warnings():
        # The tracer warns of every shape that it takes for granted.
        warnings.simplefilter("ignore")
        try:
            torch.onnx.export(
                served,
                tuple(examples),
                content,  # type: ignore[arg-type]
                dynamo=False,
                export_params=False,
                do_constant_folding=False,
                input_names=names[: len(examples)],
                output_names=names[len(examples) :],
                dynamic_axes={
                    name: {axis: called for axis, called in free[name].items() if axis < example.dim()}
                    for name, example in zip(names, examples, strict=False)
                },
                opset_version=OPSET,
            )
        except RuntimeError as error:
            raise UnskewError(
                "torch cannot write this model as ONNX",
                remedy="use one of unskew's backbones, or write your own module with torch.onnx.export",
            ) from error
    graph = load_from_string(content.getvalue()).graph
    nodes, heads, tails = [], [], []
    for given, name in zip(served.inputs.inputs, names, strict=False):
        text = given.dtype is object
        kind = TensorProto.STRING if text else helper.np_dtype_to_tensor_dtype(np.dtype(given.dtype))
        shape = ["n"] if given.columns is None else ["n", given.columns]
        heads.append(helper.make_tensor_value_info(given.name, kind, shape))
        if given.look_up is None:
            nodes.append(helper.make_node("Identity", [given.name], [name]))
            continue
        look_up: dict[str, Any] = {"keys_strings" if text else "keys_int64s": list(given.look_up.keys)}
        look_up |= {"values_int64s": list(given.look_up.codes), "default_int64": given.look_up.otherwise}
        nodes.append(helper.make_node("LabelEncoder", [given.name], [name], domain=ML, **look_up))
    # A column may be called anything but what names inside begin with.
    inner = {name: name for name in names} | {name: INSIDE + name for name in served.state_dict()} | {"": ""}
    for node in graph.node:
        for side in (node.input, node.output):
            side[:] = [inner.setdefault(name, f"{INSIDE}{len(inner)}") for name in side]
        if node.op_type == "Reshape":
            # A length of 0 is none, not that of the input.
            del node.attribute[:]
            node.attribute.append(helper.make_attribute("allowzero", 1))
        node.name = node.doc_string = ""
        nodes.append(node)
    for output, name, traced in zip(served.outputs, names[len(examples) :], graph.output, strict=True):
        tails.append(helper.make_tensor_value_info(output, traced.type.tensor_type.elem_type, ["n"]))
        nodes.append(helper.make_node("Identity", [name], [output]))
    model = helper.make_model(
        helper.make_graph(nodes, "unskew", heads, tails),
        opset_imports=[helper.make_opsetid("", OPSET), helper.make_opsetid(ML, ML_OPSET)],
        ir_version=IR_VERSION,
        producer_name="unskew",
        doc_string=f"{metadata['what']} of pairs; the metadata says what the inputs hold",
    )
    helper.set_model_props(model, dict(metadata))
    return model


def _write(model: Any, tables: Mapping[str, Tensor], target: NewFile) -> Path | None:
    """Write a model and its tables, whole or not at all; return the second file where one is too small."""
    from onnx import TensorProto, checker, helper, numpy_helper

    read = {name for node in model.graph.node for name in node.input}
    # Of equal tables torch makes the later ones out of the first.
    read -= {name for node in model.graph.node for name in node.output}
    arrays = {
        INSIDE + name: table.detach().numpy() for name, table in tables.items() if INSIDE + name in read
    }
    texts = model.ByteSize()
    if texts > LARGEST_BYTES:
        raise UnskewError(
            f"ids and texts of the model have {texts / 1e9:.1f} GB, and an ONNX file holds 2.1 GB of them",
            remedy="train on shorter ids, such as whole numbers",
        )
    if texts + sum(array.nbytes for array in arrays.values()) <= LARGEST_BYTES:
        model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
        checker.check_model(model, full_check=True)
        with whole_file(target) as beside:
            beside.write_bytes(model.SerializeToString(deterministic=True))
        return None
    outside = check_new_file(target.path.with_name(target.path.name + OUTSIDE), overwrite=target.overwrite)
    with whole_file(outside) as beside, open(beside, "wb") as file:
        for name, array in arrays.items():
            tensor = TensorProto(
                name=name,
                data_type=helper.np_dtype_to_tensor_dtype(array.dtype),
                dims=array.shape,
                data_location=TensorProto.EXTERNAL,
            )
            # Tables begin on whole pages, so that a runtime can map them.
            file.seek(-(-file.tell() // PAGE_BYTES) * PAGE_BYTES)
            facts = {"location": outside.path.name, "offset": file.tell(), "length": array.nbytes}
            for key, value in facts.items():
                tensor.external_data.add(key=key, value=str(value))
            model.graph.initializer.append(tensor)
            np.ascontiguousarray(array).tofile(file)
    try:
        with whole_file(target) as beside:
            beside.write_bytes(model.SerializeToString(deterministic=True))
            checker.check_model(str(beside), full_check=True)
    except BaseException:
        outside.path.unlink(missing_ok=True)
        raise
    return outside.path


def _new_file(path: str | Path, *, overwrite: bool) -> NewFile:
    """Check the file to write; the name of a folder, which paths do not keep as such, is an error."""
    if isinstance(path, str) and path.endswith(("/", os.sep)):
        place = Path(path) / "model.onnx"
        raise ParameterError("names a folder", where=path, remedy=f"name the file to write, such as {place}")
    return check_new_file(Path(path), overwrite=overwrite)


def _facts(model: Debiaser | BasePropensity) -> dict[str, Any]:
    """Return what the metadata tell of a model."""
    if isinstance(model, Debiaser):
        return {"method": model.name, "backbone": model.backbone.name, "seeds": list(model.seeds_)}
    uncertainty = model.uncertainty if isinstance(model, Propensity) else None
    return {
        "backbone": model.backbone.name if isinstance(model, Propensity) else model.name,
        "uncertainty": "none" if uncertainty is None else uncertainty.name,
        "calibrators": names_of(model.calibrators_),
        "seeds": list(model.seeds_),
        "folds": model.design_.replicas,
        "space": model.space_,
    }
