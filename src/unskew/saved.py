"""Folders of plain files: TOML for what a thing is, safetensors for weights, Parquet for ids, no pickle.

What goes into them is told by :mod:`unskew.debias.core.storage` and :mod:`unskew.propensity.storage`.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import Module

from unskew import __version__
from unskew.backbones import make_backbone
from unskew.calibration import make_calibrator
from unskew.errors import ParameterError, RunFolderError
from unskew.estimator import Estimator, require, require_types
from unskew.files import CONFIG, RUN, whole_folder
from unskew.manifest import MANIFEST, faults, write_manifest
from unskew.toml_text import to_toml
from unskew.vocabulary import Vocabulary

FORMAT = 2
"""Raised when a folder of an earlier version can no longer be read."""

Told = TypeVar("Told")
Restored = TypeVar("Restored", bound=Estimator)

NONE = "none"
"""In a table of parameters: the names of those that are None."""


REMEDY = "give a folder that unskew wrote, whole, or run it again"


class SavedFolder:
    """The files of a folder that is as it was written; what is missing or damaged is an error that says so.

    Its manifest is checked once, when it is opened: all files that are read, whoever reads which.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        if not self.folder.is_dir():
            raise RunFolderError("is not a folder", where=str(folder), remedy="give a run folder")
        has_manifest = (self.folder / MANIFEST).is_file()
        if found := faults(self.folder, RUN.files) if has_manifest else []:
            raise RunFolderError("; ".join(found), where=str(folder), remedy=REMEDY)
        try:
            self.config = tomllib.loads(self.text(CONFIG))
        except tomllib.TOMLDecodeError as error:
            raise self.damaged(CONFIG, error) from error
        if self.config.get("format") != FORMAT:
            raise RunFolderError(
                f"was written in format {self.config.get('format')}, and this version reads {FORMAT}",
                where=str(folder),
                remedy="run it again with this version",
            )
        if not has_manifest:
            raise RunFolderError(f"{MANIFEST} is missing", where=str(folder), remedy=REMEDY)

    @classmethod
    def of(cls, folder: str | Path | SavedFolder) -> SavedFolder:
        """A folder opened, unless it is already: so that what is read several times is checked once."""
        return folder if isinstance(folder, cls) else cls(cast(str | Path, folder))

    def damaged(self, name: str, what: object) -> RunFolderError:
        """The error that a file is damaged, and how, in one line."""
        told = " ".join(str(what).split()).rstrip(".")
        return RunFolderError(f"{name} is damaged ({told})", where=str(self.folder), remedy=REMEDY)

    def told(self, *path: str, kind: type[Told]) -> Told:
        """What the config has under a path of keys; an error if it is not there, or of another kind."""
        found: Any = self.config
        for number, key in enumerate(path, start=1):
            if not isinstance(found, Mapping) or key not in found:
                raise self.damaged(CONFIG, f"it has no {'.'.join(path[:number])}")
            found = found[key]
        if kind is float and isinstance(found, int) and not isinstance(found, bool):
            found = float(found)
        if not isinstance(found, kind):
            raise self.damaged(CONFIG, f"{'.'.join(path)} is {found!r}")
        return found

    def seeds(self, *path: str) -> tuple[int, ...]:
        """Seeds in the config."""
        found = self.told(*path, kind=list)
        whole = [seed for seed in found if isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0]
        if not found or len(set(whole)) < len(found):
            raise self.damaged(CONFIG, f"{'.'.join(path)} is {found!r}")
        return tuple(whole)

    def restored(self, make: Callable[..., Restored], *path: str, **makers: Callable[..., Any]) -> Restored:
        """What ``make`` makes of the parameters under a path of keys (:func:`restored_params`)."""
        table = self.told(*path, kind=dict)
        try:
            made = make(**restored_params(table, **makers))
            require_types(made)
        except (ParameterError, TypeError) as error:  # A TypeError: a dataclass has no such parameter.
            raise self.damaged(CONFIG, error) from error
        return made

    def text(self, name: str) -> str:
        """A text file."""
        path = self._path(name)
        try:
            return path.read_text(encoding="utf-8")
        except (UnicodeDecodeError, OSError) as error:
            raise self.damaged(name, error) from error

    def json(self, name: str) -> Any:
        """A JSON file."""
        text = self.text(name)
        try:
            return json.loads(text)
        except ValueError as error:
            raise self.damaged(name, error) from error

    def tensors(self, name: str, prefix: str = "") -> dict[str, Tensor]:
        """The tensors of a safetensors file whose names start with a prefix, without it."""
        path = self._path(name)
        try:
            everything = load_file(path)
        except (SafetensorError, OSError) as error:
            raise self.damaged(name, error) from error
        return {key[len(prefix) :]: value for key, value in everything.items() if key.startswith(prefix)}

    def fill(self, network: Module, name: str, prefix: str) -> None:
        """Put saved weights into a network that has exactly these, all of them finite."""
        found, wanted = self.tensors(name, prefix), network.state_dict()
        for key in sorted(found.keys() ^ wanted.keys()):
            raise self.damaged(name, f"{prefix}{key} is {'missing' if key in wanted else 'unknown'}")
        for key, weight in wanted.items():
            if found[key].shape != weight.shape or found[key].dtype != weight.dtype:
                told, asked = (f"{list(each.shape)} of {each.dtype}" for each in (found[key], weight))
                raise self.damaged(
                    name, f"{prefix}{key} has shape {told}, where {CONFIG} and the ids ask for {asked}"
                )
            if not found[key].isfinite().all():
                raise self.damaged(name, f"{prefix}{key} holds NaN or infinity")
        network.load_state_dict(found)

    def vocabulary(self, name: str) -> Vocabulary:
        """The ids of users or items."""
        file = f"{name}.parquet"
        path = self._path(file)
        try:
            table = pq.read_table(path)
        except (pa.ArrowException, OSError) as error:
            raise self.damaged(file, error) from error
        metadata = table.schema.metadata or {}
        if "id" not in table.column_names or b"name" not in metadata:
            raise self.damaged(file, "it has no column 'id', or no name")
        ids = table.column("id")
        if not (pa.types.is_integer(ids.type) or is_text(ids.type)):
            raise self.damaged(file, f"ids are {ids.type}")
        # Codes are positions, so that ids must be there, distinct and in order.
        array = np.array(ids.to_pylist())
        if not len(array) or ids.null_count or not (array[:-1] < array[1:]).all():
            raise self.damaged(file, "ids are missing, doubled or out of order")
        return Vocabulary(ids=array, name=metadata[b"name"].decode(errors="replace"))

    def _path(self, name: str) -> Path:
        path = self.folder / name
        if not path.is_file():
            raise RunFolderError(f"{name} is missing", where=str(self.folder), remedy=REMEDY)
        return path


def is_text(kind: pa.DataType) -> bool:
    """Whether a column holds text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


@contextmanager
def sealed_folder(folder: Path, *, overwrite: bool) -> Iterator[Path]:
    """A new run folder, whole or not there (:func:`unskew.files.whole_folder`), with its manifest."""
    with whole_folder(folder, overwrite=overwrite) as beside:
        yield beside
        write_manifest(beside)


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
    unset = table.get(NONE)
    require(isinstance(unset, list), f"a table of parameters has no list {NONE!r}", "save it again")
    params: dict[str, Any] = dict.fromkeys(map(str, unset or ()))
    for name, value in table.items():
        if isinstance(value, Mapping):
            require(
                name in makers, f"there is no parameter {name!r} with parameters of its own", "save it again"
            )
            kind = value.get("name")
            require(isinstance(kind, str), f"{name} has no name", "save it again")
            inner = restored_params({key: v for key, v in value.items() if key != "name"})
            params[name] = makers[name](kind, **inner)
        elif name != NONE:
            params[name] = tuple(value) if isinstance(value, list) else value
    return params
