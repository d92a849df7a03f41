"""Folders of plain files: TOML for what a thing is, safetensors for weights, Parquet for ids, no pickle.

What goes into them is told by :mod:`unskew.debias.core.storage` and :mod:`unskew.propensity.storage`.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from unskew import __version__
from unskew.backbones import make_backbone
from unskew.calibration import make_calibrator
from unskew.errors import RunFolderError
from unskew.estimator import Estimator
from unskew.files import CONFIG, to_toml
from unskew.vocabulary import Vocabulary

FORMAT = 1
"""Raised when a folder of an earlier version can no longer be read."""

NONE = "none"
"""In a table of parameters: the names of those that are None."""


class SavedFolder:
    """The files of a folder; what is missing or damaged is an error that says so."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise RunFolderError("is not a folder", where=str(folder), remedy="give a run folder")
        try:
            self.config = tomllib.loads(self.text(CONFIG))
        except tomllib.TOMLDecodeError as error:
            raise RunFolderError(f"{CONFIG} is damaged: {error}", where=str(folder)) from error
        if self.config.get("format") != FORMAT:
            raise RunFolderError(
                f"was written in format {self.config.get('format')}, and this version reads {FORMAT}",
                where=str(folder),
                remedy="run it again with this version",
            )

    def text(self, name: str) -> str:
        """A text file."""
        return self._path(name).read_text(encoding="utf-8")

    def json(self, name: str) -> Any:
        """A JSON file."""
        try:
            return json.loads(self.text(name))
        except ValueError as error:
            raise RunFolderError(f"{name} is damaged: {error}", where=str(self.folder)) from error

    def tensors(self, name: str, prefix: str = "") -> dict[str, Tensor]:
        """The tensors of a safetensors file whose names start with a prefix, without it."""
        try:
            everything = load_file(self._path(name))
        except SafetensorError as error:
            raise RunFolderError(f"{name} is damaged: {error}", where=str(self.folder)) from error
        return {key[len(prefix) :]: value for key, value in everything.items() if key.startswith(prefix)}

    def vocabulary(self, name: str) -> Vocabulary:
        """The ids of users or items."""
        try:
            table = pq.read_table(self._path(f"{name}.parquet"))
        except pa.ArrowException as error:
            raise RunFolderError(f"{name}.parquet is damaged: {error}", where=str(self.folder)) from error
        return Vocabulary(
            ids=np.array(table.column("id").to_pylist()), name=table.schema.metadata[b"name"].decode()
        )

    def _path(self, name: str) -> Path:
        path = self.folder / name
        if not path.is_file():
            raise RunFolderError(
                f"{name} is missing", where=str(self.folder), remedy="give a folder that unskew wrote, whole"
            )
        return path


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """``config.toml``, with the version that wrote it."""
    text = to_toml({"unskew": __version__, "format": FORMAT, **config})
    (folder / CONFIG).write_text(text, encoding="utf-8")


def write_vocabularies(folder: Path, users: Vocabulary, items: Vocabulary) -> None:
    """``users.parquet`` and ``items.parquet``."""
    for name, vocabulary in (("users", users), ("items", items)):
        schema = pa.schema({"id": pa.array(vocabulary.ids).type}, metadata={"name": vocabulary.name})
        pq.write_table(pa.table([pa.array(vocabulary.ids)], schema=schema), folder / f"{name}.parquet")


def named(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """A network's tensors under a prefix, ready to be written."""
    return {prefix + name: value.detach().cpu().contiguous() for name, value in state.items()}


def params_table(estimator: Estimator) -> dict[str, Any]:
    """Parameters as TOML can hold them; nested estimators as tables with their names.

    TOML has no None, and ``"none"`` may be a parameter's value: what is None is listed by name.
    """
    params = estimator.get_params(deep=False)
    table: dict[str, Any] = {NONE: [name for name, value in params.items() if value is None]}
    for name, value in params.items():
        if isinstance(value, Estimator):
            table[name] = {"name": type(value).name, **params_table(value)}
        elif value is not None:
            table[name] = value
    return table


def restored_params(table: Mapping[str, Any], **makers: Callable[..., Any]) -> dict[str, Any]:
    """Parameters from such a table; nested estimators are made again by their names.

    ``makers`` tells, for further parameters, what makes them from a name and its parameters.
    """
    makers = {"backbone": make_backbone, "calibrator": make_calibrator, **makers}
    params: dict[str, Any] = dict.fromkeys(table[NONE])
    for name, value in table.items():
        if isinstance(value, Mapping):
            inner = restored_params({key: v for key, v in value.items() if key != "name"})
            params[name] = makers[name](str(value["name"]), **inner)
        elif name != NONE:
            params[name] = value
    return params
