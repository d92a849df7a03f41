"""Logs that were encoded once: folders of plain arrays, mapped by the next run on the same files.

A log is found again by the bytes of its files and by how it was read. A file is read again for its digest
where its size or its time of change is another. A folder is written beside its place and moved into it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.feather
from numpy.typing import NDArray

from unskew import __version__
from unskew.base.errors import DataError
from unskew.base.files import Lock, write_json
from unskew.data.described import Described
from unskew.data.digest import digest_of
from unskew.data.distinct import TEXT, as_arrow, as_numpy
from unskew.data.files import opened
from unskew.data.kinds import feature_from_dict
from unskew.data.log import Log
from unskew.data.source import Source
from unskew.data.values import Numbers, Texts, Values
from unskew.data.vocabulary import Vocabulary

FORMAT = 1
HELD_BYTES = 1 << 26
"""Files of so many bytes at most are encoded anew each time."""

CACHE_BYTES = 100 * 10**9
"""Bytes of all logs of a cache: where there are more, those that were not used for longest are removed."""

FILES, DESCRIPTION = "files.json", "log.json"
PARTIAL, LOCK = ".partial", ".lock"
LOG_NAME = re.compile(r"[0-9a-f]{32}(\.partial)?")
"""The name of the folder of a log, or of one that is being written."""

NO_CACHE = "none"
"""In the place of a folder: large arrays lie in a temporary one, which is gone with the process."""

TEMPORARY = "unskew-"
"""How the name of a temporary folder begins."""
ARRAY_NAME = re.compile(r"\d+\.npy")
"""The name of a file in it: a folder that holds others is somebody else's."""
SECONDS_TO_LOCK = 60.0
"""A temporary folder that is younger may belong to a process that is about to lock it."""

READ_BYTES = 1 << 22


def cache_folder(folder: str | Path | None = None) -> Path:
    """Return the folder of a cache, which is made if it is not there; None is the user's own.

    Examples
    --------
    >>> cache_folder().name
    'unskew'
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    path = home / "unskew" if folder is None else Path(folder).expanduser()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise DataError(
            f"no cache can be made there: {error.strerror}",
            where=str(path),
            remedy="name another folder with cache= (--cache DIR)",
        ) from error
    return path


def clear_cache(folder: str | Path | None = None) -> dict[Path, int]:
    """Remove all logs of a cache that no process is writing; return them, with their bytes.

    Nothing else in the folder is touched.
    """
    path = cache_folder(folder)
    removed = _trimmed(path, 0)
    if not _logs(path):
        (path / FILES).unlink(missing_ok=True)
    return removed


@contextmanager
def temporary_folder(cache: str | Path | None) -> Iterator[Callable[[int], Path]]:
    """Give what makes a folder for large arrays, whose files are gone with the last array of them.

    Those that processes left which were killed are removed.
    """
    parent = Path(tempfile.gettempdir()) if cache in (None, NO_CACHE) else cache_folder(cache)
    _remove_dead(parent)
    made: list[tuple[Path, Lock]] = []

    def make(size: int) -> Path:
        folder = Path(tempfile.mkdtemp(prefix=TEMPORARY, dir=parent))
        made.append((folder, Lock(folder)))
        made[-1][1].take()
        return folder

    try:
        yield make
    finally:
        for folder, lock in made:
            shutil.rmtree(folder, ignore_errors=True)
            lock.close()


def _remove_dead(parent: Path) -> None:
    """Remove temporary folders of arrays that no process holds, unless they were made this minute."""
    for folder in parent.glob(f"{TEMPORARY}*"):
        with suppress(OSError):
            is_old = time.time() - folder.stat().st_mtime > SECONDS_TO_LOCK
            if is_old and all(ARRAY_NAME.fullmatch(path.name) for path in folder.iterdir()):
                lock = Lock(folder)
                if lock.take():
                    shutil.rmtree(folder, ignore_errors=True)
                lock.close()


def encoded_once(
    source: Source, cache: str | Path | None, read_as: str, encode: Callable[[Callable[[int], Path]], Log]
) -> Log:
    """Return the log of a source; large arrays of files are found in a cache, or written there.

    Parameters
    ----------
    read_as
        What else the log depends on, beside the bytes of the files.
    encode
        Encodes the log, given what makes the folder for large arrays.
    """
    if cache == NO_CACHE or source.is_frame or sum(size for _, size, _ in source.stamps()) <= HELD_BYTES:
        with temporary_folder(cache) as make:
            return encode(make)
    folder, stamps = cache_folder(cache), source.stamps()
    _remove_dead(folder)
    partitions = [values for _, values in source.partitions.values()]
    contents = _contents(folder, source)
    key = digest_of(FORMAT, __version__, contents, [*source.partitions], partitions, read_as)[:32]
    target, beside = folder / key, folder / f"{key}{PARTIAL}"

    def make_beside(size: int) -> Path:
        _trimmed(folder, CACHE_BYTES - size)
        beside.mkdir(mode=0o700)
        return beside

    with _locked(folder / f"{key}{LOCK}"):
        if not (target / DESCRIPTION).is_file():
            # What a process left there that was killed.
            shutil.rmtree(beside, ignore_errors=True)
            try:
                log = encode(make_beside)
                if source.stamps() != stamps:
                    raise DataError(
                        "the files have changed while they were read",
                        where=stamps[0][0],
                        remedy="read them again once they no longer change",
                    )
                if not beside.is_dir():
                    return log
                _save(log, beside, digest_of("cached log", key))
                del log
                os.replace(beside, target)
            finally:
                shutil.rmtree(beside, ignore_errors=True)
        os.utime(target / DESCRIPTION)
        return _load(target)


def _contents(folder: Path, source: Source) -> list[str]:
    """Return a digest of the bytes of each file; those of a file that is known are not read."""
    index = folder / FILES
    try:
        known = json.loads(index.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        known = {}
    now: dict[str, Any] = {}
    for file, (name, size, changed) in zip(source.files, source.stamps(), strict=True):
        before = known.get(name)
        is_known = changed is not None and isinstance(before, list) and before[:2] == [size, changed]
        now[name] = before if is_known else [size, changed, _digest_of_bytes(file)]
    if any(known.get(name) != stamp for name, stamp in now.items()):
        write_json(index, {**known, **now})
    return [now[name][2] for name, _, _ in source.stamps()]


def _trimmed(folder: Path, most: int) -> dict[Path, int]:
    """Remove logs that were not used for longest, until the others take at most so many bytes.

    Returns those that were removed, with their bytes. What another process is writing stays.
    """
    logs = sorted(_logs(folder), key=_last_used)
    sizes = {log: _size(log) for log in logs}
    removed: dict[Path, int] = {}
    for log in logs:
        if sum(sizes.values()) <= most:
            break
        with _locked(log.with_name(f"{log.name.removesuffix(PARTIAL)}{LOCK}"), wait=False) as ours:
            if ours:
                shutil.rmtree(log, ignore_errors=True)
                removed[log] = sizes.pop(log)
    return removed


def _digest_of_bytes(file: Any) -> str:
    digest = hashlib.blake2b(digest_size=16)
    with open(file, "rb") if isinstance(file, Path) else opened(file) as source:
        while piece := source.read(READ_BYTES):
            digest.update(piece)
    return digest.hexdigest()


def _logs(folder: Path) -> list[Path]:
    """Return the folders of logs, and of those that were not finished: no folder of anybody else's."""
    return [path for path in folder.iterdir() if LOG_NAME.fullmatch(path.name) and path.is_dir()]


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.iterdir())


def _last_used(folder: Path) -> float:
    description = folder / DESCRIPTION
    return description.stat().st_mtime if description.is_file() else 0.0


@contextmanager
def _locked(file: Path, *, wait: bool = True) -> Iterator[bool]:
    """Hold a lock, so that one process alone writes; give whether it is ours."""
    file.touch(mode=0o600)
    lock = Lock(file)
    try:
        # Where the system has no locks, two processes may both write, and the first one moves into place.
        yield lock.take(seconds=float("inf") if wait else 0.0) is not False
    finally:
        lock.close()


def _arrays_of(log: Log) -> Iterator[tuple[str, NDArray[Any]]]:
    """Yield all arrays of a log, by name."""
    yield "user", log.user
    yield "item", log.item
    yield "click", log.click
    if log.conversion is not None:
        yield "conversion", log.conversion
    yield "users", log.users.ids
    yield "items", log.items.ids
    for name, array in log.columns.items():
        yield f"column/{name}", array
    if log.features is None:
        return
    for name, values in log.features.values.items():
        for name_of_array, array in vars(values).items():
            if array is not None:
                yield f"values/{name}/{name_of_array}", array
    for name, when in log.features.times.items():
        yield f"times/{name}", when


def _save(log: Log, folder: Path, digest: str) -> None:
    """Write what is not there yet of a log, whose large arrays are in the folder; remove other files."""
    files: dict[str, str] = {}
    for number, (name, array) in enumerate(_arrays_of(log)):
        own = Path(getattr(array, "filename", None) or "")
        if isinstance(array, np.memmap) and own.parent == folder and own.is_file():
            array.flush()
            files[name] = own.name
        elif array.dtype == TEXT:
            files[name] = f"array-{number}.arrow"
            table = pa.table({"text": as_arrow(array)})
            pa.feather.write_feather(table, folder / files[name], compression="uncompressed")
        else:
            files[name] = f"array-{number}.npy"
            np.save(folder / files[name], array, allow_pickle=False)
    features = log.features
    description = {
        "unskew": __version__,
        "format": FORMAT,
        "files": files,
        "digest": digest,
        "space": log.space,
        "known_propensity": log.known_propensity,
        "actions": log.actions,
        "time": log.time,
        "columns": [*log.columns],
        "vocabularies": [[each.name, each.buckets] for each in (log.users, log.items)],
        "features": None
        if features is None
        else {
            "declared": [each.to_dict() for each in features.declared],
            "left_out": dict(features.left_out),
            "times": [*features.times],
        },
    }
    for path in folder.iterdir():
        if path.name not in files.values():
            path.unlink()
    write_json(folder / DESCRIPTION, description)


def _load(folder: Path) -> Log:
    """Return a log whose arrays are mapped from a folder."""
    about = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    files: Mapping[str, str] = about["files"]

    def get(name: str) -> NDArray[Any]:
        path = folder / files[name]
        if path.suffix == ".npy":
            array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
            return array
        texts = pa.feather.read_table(path).column("text").combine_chunks()
        return as_numpy(texts)

    vocabularies = [
        Vocabulary(np.asarray(get(role)), name, buckets)
        for role, (name, buckets) in zip(("users", "items"), about["vocabularies"], strict=True)
    ]
    features = None
    if about["features"] is not None:
        declared = tuple(feature_from_dict(entry) for entry in about["features"]["declared"])
        values: dict[str, Values] = {}
        for entry in declared:
            prefix = f"values/{entry.name}/"
            parts = {name.removeprefix(prefix): get(name) for name in files if name.startswith(prefix)}
            values[entry.name] = (Numbers if "values" in parts else Texts)(**parts)
        times = {name: get(f"times/{name}") for name in about["features"]["times"]}
        features = Described(declared, values, about["features"]["left_out"], times)
    log = Log(
        user=get("user"),
        item=get("item"),
        click=get("click"),
        conversion=get("conversion") if "conversion" in files else None,
        users=vocabularies[0],
        items=vocabularies[1],
        space=about["space"],
        columns={name: get(f"column/{name}") for name in about["columns"]},
        known_propensity=about["known_propensity"],
        actions=about["actions"],
        features=features,
        time=about["time"],
    )
    vars(log)["digest"] = about["digest"]
    return log
