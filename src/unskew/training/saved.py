"""Folders of plain files: TOML for what a thing is, safetensors for weights, Parquet for ids, no pickle.

What goes into them is in :mod:`unskew.debias.storage` and :mod:`unskew.propensity.storage`.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from unskew import __version__
from unskew.base.errors import DataError, ParameterError, RunFolderError
from unskew.base.estimator import Estimator, require, require_types
from unskew.base.files import CONFIG, FEATURES, RUN, SCHEMA, heal, whole_folder
from unskew.base.manifest import MANIFEST, faults, write_manifest
from unskew.base.tensors import Tensor, nn, torch
from unskew.base.toml_text import to_toml
from unskew.calibration import make_calibrator
from unskew.data import Block, Encoders, Schema
from unskew.data.distinct import TEXT, as_arrow
from unskew.data.schema import Role
from unskew.data.vocabulary import Vocabulary
from unskew.learners import make_learner
from unskew.training.tensor_files import TensorFileError, read_tensors, shapes_of, write_tensors

IDS_AT_ONCE = 1 << 16
IDS_BUFFER_BYTES = 1 << 20
"""Ids that are read at a time, and bytes of their file: a file of a few kilobytes may hold very many."""

FORMAT = 4
"""Raised when a folder of an earlier version can no longer be read."""

Entry = TypeVar("Entry")
Restored = TypeVar("Restored", bound=Estimator)

BUCKETS = b"buckets"
LONGEST_COUNT = 9
"""Of a vocabulary's file: what names the number of codes that further ids share, and digits of it at most."""

NONE = "none"
"""In a table of parameters: the names of those that are None."""


REMEDY = "give a folder that unskew wrote, whole, or run it again"
SEE_PERMISSIONS = "see to the permissions of the folder and its files"


class SavedFolder:
    """The files of a folder that is as it was written; what is missing or damaged is an error that says so.

    Its manifest is checked once, when it is opened: all files that are read, whoever reads which.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        heal(self.folder)
        if not self.folder.is_dir():
            raise RunFolderError("is not a folder", where=str(folder), remedy="give a run folder")
        has_manifest = (self.folder / MANIFEST).is_file()
        if problems := faults(self.folder, RUN.files) if has_manifest else []:
            unread = any("cannot be read" in each for each in problems)
            raise RunFolderError(
                "; ".join(problems), where=str(folder), remedy=SEE_PERMISSIONS if unread else REMEDY
            )
        try:
            self.config = tomllib.loads(self.text(CONFIG))
        except (tomllib.TOMLDecodeError, RecursionError) as error:
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
        """Return a folder opened, unless it is already: so that what is read several times is checked
        once."""
        return folder if isinstance(folder, cls) else cls(cast(str | Path, folder))

    def damaged(self, name: str, what: object) -> RunFolderError:
        """Return the error that a file is damaged, and how, in one line."""
        reason = " ".join(str(what).split()).rstrip(".")
        return RunFolderError(f"{name} is damaged ({reason})", where=str(self.folder), remedy=REMEDY)

    def entry(self, *path: str, kind: type[Entry]) -> Entry:
        """Return what the config has under a path of keys; an error if it is not there, or of another
        kind."""
        value: Any = self.config
        for number, key in enumerate(path, start=1):
            if not isinstance(value, Mapping) or key not in value:
                raise self.damaged(CONFIG, f"it has no {'.'.join(path[:number])}")
            value = value[key]
        if kind is float and isinstance(value, int) and not isinstance(value, bool):
            value = float(value)
        if not isinstance(value, kind):
            raise self.damaged(CONFIG, f"{'.'.join(path)} is {value!r}")
        return value

    def seeds(self, *path: str) -> tuple[int, ...]:
        """Return the seeds in the config."""
        seeds = self.entry(*path, kind=list)
        whole = [seed for seed in seeds if isinstance(seed, int) and not isinstance(seed, bool) and seed >= 0]
        if not seeds or len(set(whole)) < len(seeds):
            raise self.damaged(CONFIG, f"{'.'.join(path)} is {seeds!r}")
        return tuple(whole)

    def restored(self, make: Callable[..., Restored], *path: str, **makers: Callable[..., Any]) -> Restored:
        """Return what ``make`` makes of the parameters under a path of keys (:func:`restored_params`)."""
        table = self.entry(*path, kind=dict)
        try:
            made = make(**restored_params(table, **makers))
            require_types(made)
        except (ParameterError, TypeError) as error:  # A TypeError: a dataclass has no such parameter.
            raise self.damaged(CONFIG, error) from error
        return made

    def text(self, name: str) -> str:
        """Return the content of a text file."""
        path = self._path(name)
        try:
            return path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise self.damaged(name, error) from error
        except OSError as error:
            raise RunFolderError(
                f"{name} cannot be read ({error.strerror})", where=str(self.folder), remedy=SEE_PERMISSIONS
            ) from error

    def json(self, name: str) -> Any:
        """Return the content of a JSON file."""
        text = self.text(name)
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self.damaged(name, error) from error

    def tensors(self, name: str, prefix: str = "") -> dict[str, Tensor]:
        """Return the tensors of a safetensors file whose names start with a prefix, without it."""
        path = self._path(name)
        try:
            everything = read_tensors(path)
        except (TensorFileError, OSError) as error:
            raise self.damaged(name, error) from error
        return {key[len(prefix) :]: value for key, value in everything.items() if key.startswith(prefix)}

    def schema(self) -> Schema:
        """Return the fields that the networks read; an error where the vocabularies are of other sizes."""
        record = self.json(SCHEMA)
        try:
            schema = Schema.from_dict(record)
        except DataError as error:
            raise self.damaged(SCHEMA, error.problem) from error
        for field in schema.ids:
            ids = self._number_of_ids(f"{field.name}s")
            if ids != field.size:
                raise self.damaged(f"{field.name}s.parquet", f"{ids} ids, where {SCHEMA} says {field.size}")
        return schema

    def encoders(self) -> Encoders | None:
        """Return how features are coded, with those of the users and items; None where the models read ids
        alone."""
        record = self.json(SCHEMA)
        if "encoders" not in record:
            return None
        tensors = self.tensors(FEATURES)
        schema = self.schema()
        try:
            tables: dict[Role, Block] = {
                role: Block(*(tensors[f"{role}/{kind}"].numpy() for kind in ("codes", "numbers")))
                for role in ("user", "item")
            }
            seen: dict[Role, NDArray[Any]] = {
                role: tensors[f"{role}/seen"].numpy().astype(bool) for role in ("user", "item")
            }
            users, items = (each.size for each in schema.ids)
            encoders = Encoders.from_dict(record["encoders"], users, items, tables, seen)
        except (KeyError, DataError) as error:
            raise self.damaged(SCHEMA, error) from error
        if encoders.schema != schema:
            raise self.damaged(SCHEMA, "its encoders are of other fields")
        self._check_tables(encoders)
        return encoders

    def _check_tables(self, encoders: Encoders) -> None:
        """Raise an error where the features of users and items are not what the encoders make."""
        for role in ("user", "item"):
            if encoders.seen[role].shape != (encoders.schema.ids[role].size,):
                raise self.damaged(FEATURES, f"{role}/seen has shape {encoders.seen[role].shape}")
            fields = [field for field in encoders.schema.features if field.role == role]
            block, size = encoders.tables[role], encoders.schema[role].size
            coded = [field for field in fields if not field.is_number]
            for columns, kind, width in (
                (block.codes, "i", sum(field.width for field in coded)),
                (block.numbers, "f", sum(field.width for field in fields if field.is_number)),
            ):
                if columns.shape != (size, width) or columns.dtype.kind != kind:
                    raise self.damaged(FEATURES, f"{role} features have shape {columns.shape}")
            most = [field.size for field in coded for _ in range(field.width)]
            inside = (block.codes >= -1) & (block.codes < np.array(most, dtype=np.int64))
            if not inside.all() or not np.isfinite(block.numbers).all():
                raise self.damaged(FEATURES, f"{role} features are out of range")

    def check_shapes(self, build: Callable[[Schema], Mapping[str, nn.Module]], name: str) -> None:
        """Raise an error where a file of weights has other shapes than the config and the schema ask for.

        Only what the files declare is looked at, so that a wrong size takes no memory: ``build`` makes the
        networks, by the prefix of their weights, on a device that holds nothing.
        """
        schema = self.schema()
        try:
            with torch.device("meta"):
                networks = build(schema)
        except (RuntimeError, OverflowError, TypeError) as error:  # A TypeError: beyond 64 bits.
            reason = str(error).splitlines()[0]
            raise self.damaged(CONFIG, f"no network is of such sizes: {reason}") from error
        try:
            shapes = shapes_of(self._path(name))
        except (TensorFileError, OSError) as error:
            raise self.damaged(name, error) from error
        for prefix, network in networks.items():
            for key, weight in network.state_dict().items():
                self._require_shape(name, prefix + key, shapes.get(prefix + key), list(weight.shape))

    def _require_shape(self, name: str, key: str, actual: list[int] | None, wanted: list[int]) -> None:
        if actual is None:
            raise self.damaged(name, f"{key} is missing")
        if actual != wanted:
            raise self.damaged(name, f"{key} has shape {actual}, where {CONFIG} and the ids ask for {wanted}")

    def fill(self, network: nn.Module, name: str, prefix: str) -> None:
        """Put saved weights into a network that has exactly these, all of them finite."""
        saved, wanted = self.tensors(name, prefix), network.state_dict()
        if not getattr(network, "has_shapes", True):
            try:
                network.load_state_dict(saved)
            except DataError as error:
                raise self.damaged(name, error.problem) from error
            return
        for key in sorted(saved.keys() ^ wanted.keys()):
            raise self.damaged(name, f"{prefix}{key} is {'missing' if key in wanted else 'unknown'}")
        for key, weight in wanted.items():
            self._require_shape(name, prefix + key, list(saved[key].shape), list(weight.shape))
            if saved[key].dtype != weight.dtype:
                raise self.damaged(name, f"{prefix}{key} is {saved[key].dtype}, not {weight.dtype}")
            if not saved[key].isfinite().all():
                raise self.damaged(name, f"{prefix}{key} holds NaN or infinity")
        network.load_state_dict(saved)

    def vocabulary(self, name: str) -> Vocabulary:
        """Return the ids of users or items."""
        file = f"{name}.parquet"
        path = self._path(file)
        parts: list[NDArray[Any]] = []
        try:
            with pq.ParquetFile(path, pre_buffer=False, buffer_size=IDS_BUFFER_BYTES) as source:
                schema = source.schema_arrow
                metadata = schema.metadata or {}
                if "id" not in schema.names or b"name" not in metadata:
                    raise self.damaged(file, "it has no column 'id', or no name")
                kind = schema.field("id").type
                if not (pa.types.is_integer(kind) or is_text(kind)):
                    raise self.damaged(file, f"ids are {kind}")
                for record in source.iter_batches(IDS_AT_ONCE, columns=["id"]):
                    parts.append(self._ids(file, record.column("id"), parts[-1][-1:] if parts else None))
        except (pa.ArrowException, OSError) as error:
            raise self.damaged(file, error) from error
        if not parts:
            raise self.damaged(file, "ids are missing")
        name = metadata[b"name"].decode(errors="replace")
        return Vocabulary(ids=np.concatenate(parts), name=name, buckets=self._buckets(file, metadata))

    def _buckets(self, file: str, metadata: Mapping[bytes, bytes]) -> int:
        """Return codes that ids without one of their own share."""
        count = metadata.get(BUCKETS, b"0")
        if not count.isdigit() or len(count) > LONGEST_COUNT:
            raise self.damaged(file, f"{count!r} codes that ids share")
        return int(count)

    def _ids(self, file: str, ids: Any, last: NDArray[Any] | None) -> NDArray[Any]:
        """Return some of the ids, which follow the last before them: codes are positions, so ids are in
        order."""
        array = np.array(ids.to_pylist(), dtype=TEXT if is_text(ids.type) and not ids.null_count else None)
        in_order = array if last is None else np.concatenate([last, array])
        if ids.null_count or not (in_order[:-1] < in_order[1:]).all():
            raise self.damaged(file, "ids are missing, doubled or out of order")
        return array

    def _number_of_ids(self, name: str) -> int:
        file = f"{name}.parquet"
        try:
            metadata = pq.read_metadata(self._path(file))
        except (pa.ArrowException, OSError) as error:
            raise self.damaged(file, error) from error
        if metadata.num_rows == 0:
            raise self.damaged(file, "ids are missing")
        return int(metadata.num_rows) + self._buckets(file, metadata.metadata or {})

    def _path(self, name: str) -> Path:
        path = self.folder / name
        if not path.is_file():
            raise RunFolderError(f"{name} is missing", where=str(self.folder), remedy=REMEDY)
        return path


def is_text(kind: pa.DataType) -> bool:
    """Return whether a column holds text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


@contextmanager
def sealed_folder(folder: Path, *, overwrite: bool) -> Iterator[Path]:
    """Yield a new run folder, whole or not there (:func:`unskew.base.files.whole_folder`), with its
    manifest."""
    with whole_folder(folder, overwrite=overwrite) as beside:
        yield beside
        write_manifest(beside)


def write_config(folder: Path, config: Mapping[str, Any]) -> None:
    """Write ``config.toml``, with the version that wrote it."""
    text = to_toml({"unskew": __version__, "format": FORMAT, **config})
    (folder / CONFIG).write_text(text, encoding="utf-8")


class Reads(Protocol):
    """A fitted model, of whatever kind."""

    users_: Vocabulary
    items_: Vocabulary
    encoders_: Encoders | None


def write_inputs(folder: Path, *models: Reads) -> None:
    """Write what models of one log read: ``users.parquet``, ``items.parquet`` and ``schema.json``, which
    has the
    fields and how features are coded; with features also ``features.safetensors``, those of the users and
    items.
    """
    users, items = models[0].users_, models[0].items_
    # A calibrator may read features that no model reads.
    read = [each for model in models for each in (model.encoders_, getattr(model, "segment_encoders_", None))]
    encoders = next((each for each in read if each is not None), None)
    if encoders is not None:
        # Each model may read a part of the fields.
        encoders = encoders.whole or encoders
    record: dict[str, Any] = Schema.of_ids(len(users), len(items)).to_dict()
    if encoders is not None:
        record = {**encoders.schema.to_dict(), "encoders": encoders.to_dict()}
        tables = {
            f"{role}/{kind}": torch.tensor(getattr(block, kind))
            for role, block in encoders.tables.items()
            for kind in ("codes", "numbers")
        }
        tables |= {f"{role}/seen": torch.tensor(each) for role, each in encoders.seen.items()}
        write_tensors(folder / FEATURES, tables)
    (folder / SCHEMA).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    for name, vocabulary in (("users", users), ("items", items)):
        ids = as_arrow(vocabulary.ids)
        metadata = {b"name": vocabulary.name.encode()}
        if vocabulary.buckets:
            metadata[BUCKETS] = str(vocabulary.buckets).encode()
        schema = pa.schema({"id": ids.type}, metadata=metadata)
        pq.write_table(pa.table([ids], schema=schema), folder / f"{name}.parquet")


def named(state: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Return a network's tensors under a prefix."""
    return {prefix + name: value for name, value in state.items()}


def params_table(estimator: Estimator) -> dict[str, Any]:
    """Return parameters as TOML can hold them; nested estimators as tables with their names.

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


def restored_params(table: Mapping[str, Any], /, **makers: Callable[..., Any]) -> dict[str, Any]:
    """Return the parameters of such a table of a file; nested estimators are made again by their names.

    ``makers`` tells, for further parameters, what makes them from a name and its parameters.
    """
    learners = dict.fromkeys(("learner", "first", "second"), make_learner)
    makers = {**learners, "calibrator": make_calibrator, **makers}
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
