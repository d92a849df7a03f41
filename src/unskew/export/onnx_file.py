"""Fitted models as ONNX files, whole or not there, with the vocabularies that their codes need."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Literal, get_args

from unskew import __version__
from unskew.debias import Debiaser, load_model
from unskew.errors import ParameterError, RunFolderError
from unskew.export.graph import OPSET, Serialised, check_file, require_onnx, serialised
from unskew.export.inputs import Form, require_free_names
from unskew.export.predictions import conversion_graph, propensity_graph, reads_features
from unskew.io.files import NewFile, check_new_file, whole_file
from unskew.propensity import Propensity, load_propensity
from unskew.propensity.propensity import BasePropensity

What = Literal["conversion", "propensity"]

OUTSIDE = ".data"
"""What the name of a file of tables adds to that of the model, where the model is beyond 2 GB."""


def export_onnx(
    model: Debiaser | Propensity, path: str | Path, *, inputs: Form | None = None, overwrite: bool = False
) -> dict[str, Any]:
    """Write a fitted model as one ONNX file: pairs (and features) in, probabilities out, calibrators inside.

    ``user [n], item [n]`` and an input for each feature → ``conversion [n]`` or ``propensity [n]`` (float32):
    the mean over seeds of what ``predict_frame_each`` gives, for a propensity with ``average=True``. What
    each input is, is in the file's metadata under ``inputs`` and ``schema``. An id that the model does not
    know gets NaN from one that reads ids alone, and from one that reads features what these tell.

    Use it to serve a model without torch or unskew. Not for cross-fitted propensities of the training
    pairs themselves, which :meth:`unskew.Propensity.predict` gives out of fold: the file gives every pair
    the mean over folds.

    Parameters
    ----------
    model
        A fitted conversion model, or a fitted :class:`unskew.Propensity`. Not: a custom ``nn.Module``, MC
        dropout, a propensity without a network, a calibrator of your own.
    path
        The file to write. Beyond 2 GB the tables are in a second file beside it, ``PATH.data`` (ONNX external
        data), which must go where the file goes.
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
        What the file holds, for machines: ``"what"``, ``"seeds"``, ``"calibrators"``, ``"bytes"``, ….

    Examples
    --------
    >>> import unskew as us
    >>> model = us.load_model("runs/demo")                     # doctest: +SKIP
    >>> us.export_onnx(model, "model.onnx")["outputs"]         # doctest: +SKIP
    ['conversion']
    """
    require_onnx()
    return _export(model, _new_file(path, overwrite=overwrite), inputs)


def _export(model: Debiaser | BasePropensity, target: NewFile, form: Form | None) -> dict[str, Any]:
    if form not in (None, *get_args(Form)):
        raise ParameterError(f"inputs must be 'raw' or 'codes', not {form!r}", remedy="give one of these")
    if isinstance(model, Debiaser):
        model._require_fitted("networks_")
        what: What = "conversion"
        facts = {"method": model.name, "backbone": model.backbone.name, "seeds": list(model.seeds_)}
        inputs, answer = conversion_graph(model, form or _usual(model))
    elif isinstance(model, Propensity):
        model._require_fitted("network_")
        what = "propensity"
        facts = _facts(model)
        inputs, answer = propensity_graph(model, form or _usual(model))
    else:
        raise ParameterError(
            f"{type(model).__name__} has no network to export",
            remedy="give a fitted debiaser or us.Propensity, which unskew run --propensity dcn (neumf, with"
            " ids alone) trains; for others write their predictions to a table",
        )
    outputs = [answer.named(what)]
    if inputs.form == "raw":
        outputs += [known.named(f"known_{role}") for role, known in inputs.known.items()]
    require_free_names(inputs, outputs)
    metadata = {
        "unskew": __version__,
        "what": what,
        "schema": json.dumps(inputs.schema.to_dict()),
        "inputs": json.dumps(inputs.described, ensure_ascii=False),
        **{key: value if isinstance(value, str) else json.dumps(value) for key, value in facts.items()},
        "user_column": model.users_.name,
        "item_column": model.items_.name,
    }
    if inputs.form == "codes":
        for name, known in (("users", model.users_), ("items", model.items_)):
            metadata[name] = json.dumps(known.ids.tolist(), ensure_ascii=False)
    doc = f"{what} of pairs; the metadata says what the inputs hold"
    outside = target.path.with_name(f"{target.path.name}{OUTSIDE}")
    made = serialised(
        inputs.graph,
        outputs,
        name=f"unskew_{what}",
        doc=doc,
        metadata=metadata,
        beside=outside.name,
    )
    if made.outside:
        _write_two(made, target, check_new_file(outside, overwrite=target.found.identity is not None))
    else:
        with whole_file(target) as beside:
            beside.write_bytes(made.content)
    return {
        "what": what,
        "file": str(target.path),
        **({"tables": str(outside)} if made.outside else {}),
        "bytes": len(made.content) + (outside.stat().st_size if made.outside else 0),
        "opset": OPSET,
        "inputs": [each["name"] for each in inputs.described],
        "holds": {each["name"]: each["holds"] for each in inputs.described},
        "outputs": [each.name for each in outputs],
        "users": len(model.users_),
        "items": len(model.items_),
        **facts,
    }


def _write_two(made: Serialised, target: NewFile, tables: NewFile) -> None:
    """The tables, and then the file that names them; of a failure nothing new is left."""
    with whole_file(tables) as beside:
        made.write_outside(beside)
    try:
        with whole_file(target) as beside:
            beside.write_bytes(made.content)
            check_file(beside)
    except BaseException:
        tables.path.unlink(missing_ok=True)
        raise


def export_run(
    run: str | Path,
    path: str | Path,
    *,
    what: What = "conversion",
    method: str | None = None,
    inputs: Form | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write a model of a run folder, its main one unless named, or its propensity."""
    require_onnx()
    target = _new_file(path, overwrite=overwrite)
    if what == "conversion":
        return _export(load_model(run, method, device="cpu"), target, inputs)
    propensity = load_propensity(run, device="cpu")
    if propensity is None:
        raise RunFolderError(
            "holds no propensity", where=str(run), remedy="export its conversion model, or give another run"
        )
    return _export(propensity, target, inputs)


def _new_file(path: str | Path, *, overwrite: bool) -> NewFile:
    """The file to write; the name of a folder, which paths do not keep as such, is an error."""
    if isinstance(path, str) and path.endswith(("/", os.sep)):
        place = Path(path) / "model.onnx"
        raise ParameterError("names a folder", where=path, remedy=f"name the file to write, such as {place}")
    return check_new_file(Path(path), overwrite=overwrite)


def _usual(model: Debiaser | Propensity) -> Form:
    return "raw" if reads_features(model) else "codes"


def _facts(propensity: Propensity) -> dict[str, Any]:
    names = [
        "none" if each is None else getattr(each, "choice_", each).name for each in propensity.calibrators_
    ]
    return {
        "backbone": propensity.backbone.name,
        "uncertainty": "none" if propensity.uncertainty is None else propensity.uncertainty.name,
        "calibrators": sorted(set(names)),
        "seeds": list(propensity.seeds_),
        "folds": propensity.design_.replicas,
        "space": propensity.space_,
    }
