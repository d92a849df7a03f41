"""Fitted models as ONNX files, whole or not there, with the vocabularies that their codes need."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

from unskew import __version__
from unskew.debias import Debiaser, load_model
from unskew.errors import NotFittedError, ParameterError, RunFolderError
from unskew.export.graph import OPSET, require_onnx, serialised
from unskew.export.predictions import conversion_graph, propensity_graph, schema_of
from unskew.io.files import NewFile, check_new_file, whole_file
from unskew.propensity import Propensity, load_propensity
from unskew.propensity.propensity import BasePropensity

What = Literal["conversion", "propensity"]


def export_onnx(model: Debiaser | Propensity, path: str | Path, *, overwrite: bool = False) -> dict[str, Any]:
    """Write a fitted model as one ONNX file: codes of pairs in, probabilities out, calibrators inside.

    ``user [n], item [n]`` (int64, positions in the vocabularies) → ``conversion [n]`` or ``propensity [n]``
    (float32): the mean over seeds of what ``predict_pairs_each`` gives, for a propensity with
    ``average=True``. The file's metadata holds the vocabularies as JSON lists under ``users`` and
    ``items``, and what each input is under ``schema``. An unknown id has the code −1; any code outside the
    vocabulary gets NaN.

    Use it to serve a model without torch or unskew. Not for cross-fitted propensities of the training
    pairs themselves, which :meth:`unskew.Propensity.predict` gives out of fold: the file gives every pair
    the mean over folds.

    Parameters
    ----------
    model
        A fitted conversion model, or a fitted :class:`unskew.Propensity`. Not: a custom ``nn.Module``, MC
        dropout, a propensity without a network, a calibrator of your own.
    path
        The file to write.
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
    return _export(model, check_new_file(Path(path), overwrite=overwrite))


def _export(model: Debiaser | BasePropensity, target: NewFile) -> dict[str, Any]:
    if isinstance(model, Debiaser):
        _require_fitted(model, "networks_")
        what: What = "conversion"
        facts = {"method": model.name, "backbone": model.backbone.name, "seeds": list(model.seeds_)}
        graph, answer = conversion_graph(model)
    elif isinstance(model, Propensity):
        _require_fitted(model, "network_")
        what = "propensity"
        facts = _facts(model)
        graph, answer = propensity_graph(model)
    else:
        raise ParameterError(
            f"{type(model).__name__} has no network to export",
            remedy="give a fitted debiaser or us.Propensity; for others write their predictions to a table",
        )
    schema = schema_of(model)
    metadata = {
        "unskew": __version__,
        "what": what,
        "schema": json.dumps(schema.to_dict()),
        **{key: value if isinstance(value, str) else json.dumps(value) for key, value in facts.items()},
        "user_column": model.users_.name,
        "item_column": model.items_.name,
        "users": json.dumps(model.users_.ids.tolist(), ensure_ascii=False),
        "items": json.dumps(model.items_.ids.tolist(), ensure_ascii=False),
    }
    doc = f"{what} of pairs of codes; the ids are in the metadata (users, items); an unknown code gives NaN"
    content = serialised(graph, [answer.named(what)], name=f"unskew_{what}", doc=doc, metadata=metadata)
    with whole_file(target) as beside:
        beside.write_bytes(content)
    return {
        "what": what,
        "file": str(target.path),
        "bytes": len(content),
        "opset": OPSET,
        "inputs": [field.name for field in schema],
        "outputs": [what],
        "users": len(model.users_),
        "items": len(model.items_),
        **facts,
    }


def export_run(
    run: str | Path,
    path: str | Path,
    *,
    what: What = "conversion",
    method: str | None = None,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write a model of a run folder, its main one unless named, or its propensity."""
    require_onnx()
    target = check_new_file(Path(path), overwrite=overwrite)
    if what == "conversion":
        return _export(load_model(run, method, device="cpu"), target)
    propensity = load_propensity(run, device="cpu")
    if propensity is None:
        raise RunFolderError(
            "holds no propensity", where=str(run), remedy="export its conversion model, or give another run"
        )
    return _export(propensity, target)


def _require_fitted(model: Debiaser | Propensity, learned: str) -> None:
    if not hasattr(model, learned):
        raise NotFittedError(f"this {type(model).__name__} is not fitted yet", remedy="call fit first")


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
