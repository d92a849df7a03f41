"""The manifest of a folder: what each file held when it was written, so that a damaged one is named."""

from __future__ import annotations

import errno
import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"

MODEL_CARD = "MODEL_CARD.md"

FOR_PEOPLE = frozenset({"report.html", "overview.svg", MODEL_CARD})
"""Files that no command reads: they may be edited, moved and deleted. The manifest lists them too."""

DIGEST = "sha256"
"""What ``sha256sum`` prints, so that a folder can be checked without unskew."""


def write_manifest(folder: Path) -> None:
    """Write ``manifest.json``: size and digest of every other file of a folder. Call it when all are written.

    It ends with a digest of itself, so that a change of it is not blamed on another file.
    """
    files = {
        path.name: {"bytes": path.stat().st_size, DIGEST: _digest(path)}
        for path in sorted(folder.iterdir())
        if path.name != MANIFEST
    }
    text = json.dumps({"files": files, DIGEST: _digest_of(files)}, indent=1)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def faults(folder: Path, known: Collection[str]) -> list[str]:
    """Return what is wrong with a folder that has a manifest, a clause for each file.

    Sizes are looked at before any content, so that a file that was cut is found without reading the others.

    Parameters
    ----------
    known
        Names that a reader of the folder would look at. One of them that is there and not in the manifest was
        put there later; other names, notes for example, are nobody's business.
    """
    try:
        files = _files(json.loads(_text_of(folder)))
    except OSError as error:
        return [f"{MANIFEST} cannot be read ({error.strerror})"]
    except (ValueError, RecursionError):
        return [f"{MANIFEST} is damaged (it is not what unskew wrote)"]
    checked = {name: entry for name, entry in files.items() if name not in FOR_PEOPLE}
    found = [_fault_of_size(folder / name, entry) for name, entry in checked.items()]
    if not any(found):
        found = [_fault_of_content(folder / name, entry) for name, entry in checked.items()]
    found += [
        f"{name} was put there later"
        for name in sorted(set(known) - files.keys() - FOR_PEOPLE - {MANIFEST})
        if (folder / name).exists()
    ]
    return [each for each in found if each]


def digest_of(folder: Path) -> str:
    """Return a digest of what a folder held when it was written; raise ValueError or OSError without one."""
    return _digest_of(_files(json.loads(_text_of(folder))))


def _text_of(folder: Path) -> str:
    """Read the manifest of a folder; a pipe would wait for somebody to write into it."""
    path = folder / MANIFEST
    if path.exists() and not path.is_file():
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return path.read_text(encoding="utf-8")


def _files(manifest: Any) -> Mapping[str, Mapping[str, Any]]:
    """Return the table of files of a manifest; raise a ValueError if it is none, or was changed."""
    files = manifest.get("files") if isinstance(manifest, dict) else None
    if not isinstance(files, dict) or manifest.get(DIGEST) != _digest_of(files):
        raise ValueError("it is no manifest, or was changed")
    for name, entry in files.items():
        if Path(name).name != name or not isinstance(entry, dict) or entry.keys() != {"bytes", DIGEST}:
            raise ValueError(f"it tells of {name!r} in another way")
    return files


def _fault_of_size(path: Path, entry: Mapping[str, Any]) -> str:
    if not path.is_file():
        return f"{path.name} is missing"
    size = path.stat().st_size
    if size < entry["bytes"]:
        return f"{path.name} is damaged (it was cut: {size:,} of {entry['bytes']:,} bytes are left)"
    return f"{path.name} is damaged (it was changed)" if size > entry["bytes"] else ""


def _fault_of_content(path: Path, entry: Mapping[str, Any]) -> str:
    try:
        same = _digest(path) == entry[DIGEST]
    except OSError as error:
        return f"{path.name} cannot be read ({error.strerror})"
    return "" if same else f"{path.name} is damaged (it was changed)"


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, DIGEST).hexdigest()


def _digest_of(files: Mapping[str, Any]) -> str:
    return hashlib.new(DIGEST, json.dumps(files, sort_keys=True).encode()).hexdigest()
