"""Functions compiled by numba or Triton, and cached on disk where a cache can be written."""

from __future__ import annotations

import atexit
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from llvmlite import ir
from numba import njit
from numba.core import cgutils, types
from numba.extending import intrinsic

Function = TypeVar("Function", bound=Callable[..., Any])

IMPORTS = re.compile(r"^(?:from|import) ([\w.]+)(?: import (\([^)]*\)|.*))?", re.MULTILINE)
"""A statement that imports at the top of a file: a module, and what is taken from it."""


def compiled(**options: Any) -> Callable[[Function], Function]:
    """A decorator: compiled at the first call, without Python's lock while it runs.

    What was compiled is kept beside the module or in numba's folder of the user, and found there by the next
    process. Where neither can be written (an install of another user, no home) each process compiles anew.
    """

    def decorate(function: Function) -> Function:
        try:
            made = njit(cache=True, nogil=True, **options)(function)
        except RuntimeError:
            made = njit(nogil=True, **options)(function)
        else:
            drop_stale(made.stats.cache_path, function.__code__.co_filename, function.__module__)
            save_one_at_a_time(made)
        result: Function = made
        return result

    return decorate


def save_one_at_a_time(made: Any) -> None:
    """Let no two processes write to a function's cache at once.

    numba numbers the files of a function by how many its index has. Two processes that compile it for
    different types at the same time would take the same number, and one would later read the other's code.
    """
    if os.name != "posix":
        return
    import fcntl

    save = made._cache.save_overload

    def save_alone(*compiled: Any) -> None:
        folder = Path(made.stats.cache_path)
        folder.mkdir(parents=True, exist_ok=True)
        with ExitStack() as held:
            # Some file systems have no locks, and another user's file may not be opened: then as numba does.
            with suppress(OSError):
                fcntl.flock(held.enter_context(open(folder / ".lock", "a")), fcntl.LOCK_EX)
            save(*compiled)

    made._cache.save_overload = save_alone


@cache
def drop_stale(folder: str, source: str, module: str) -> None:
    """Take away what an older version of a module's file, or of one it imports from, left in the cache.

    numba reads the types of its arguments before it looks whether the file has changed, and they may be gone;
    another process could find the old code under a name that the new one has just been given; and numba does
    not look at other files, whose constants and functions are compiled into those of this one.
    """
    if not os.path.exists(source):
        # In an archive of modules, which has one time for all of them.
        return
    changed = max(os.stat(path).st_mtime_ns for path in imported_files(source, module))
    for path in Path(folder).glob(f"{Path(source).stem}.*.nb[ic]"):
        with suppress(FileNotFoundError, PermissionError):  # Another process was first, or may alone.
            if path.stat().st_mtime_ns < changed:
                path.unlink()


def imported_files(source: str, module: str) -> set[str]:
    """The file of a module, and those of its package that it imports from, through others too."""
    package = module.partition(".")[0]
    found: set[str] = set()
    waiting: list[str | None] = [source]
    while waiting:
        path = waiting.pop()
        if path is None or path in found or not path.endswith(".py"):
            continue
        found.add(path)
        for name, taken in IMPORTS.findall(Path(path).read_text(encoding="utf-8")):
            if name.partition(".")[0] == package:
                # What is taken may be a module itself.
                names = (name, *(f"{name}.{each}" for each in re.findall(r"\w+", taken)))
                waiting += [getattr(sys.modules.get(each), "__file__", None) for each in names]
    return found


def _prefetch(typing: Any, array: Any, row: Any) -> Any:
    """Let the processor fetch the start of a row into its cache while it goes on; nothing waits for it."""

    arrays: Any = cgutils

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        kind = signature.args[0]
        found = context.make_array(kind)(context, builder, arguments[0])
        place = [arguments[1], *[context.get_constant(types.intp, 0)] * (kind.ndim - 1)]
        pointer = arrays.get_item_pointer(context, builder, kind, found, place, wraparound=False)
        byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
        prefetch = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
        function = arrays.get_or_insert_function(builder.module, prefetch, "llvm.prefetch.p0i8")
        # For writing, to be kept in all caches, data.
        how = [ir.Constant(number, value) for value in (1, 3, 1)]
        builder.call(function, [builder.bitcast(pointer, byte), *how])
        return context.get_dummy_value()

    return types.void(array, types.intp), generate


ask_for: Any = intrinsic(_prefetch)
"""In a compiled function, ``ask_for(array, row)``: a table of much memory is waited for a row at a time."""


def triton_cache() -> None:
    """See to it that Triton can keep its kernels; called before it compiles the first.

    It keeps them in the user's home, without asking whether that can be written. Where it cannot, they go to
    a folder of this process, which is removed at its end.
    """
    if os.environ.get("TRITON_CACHE_DIR"):
        return
    place = Path(os.environ.get("TRITON_HOME") or Path.home()) / ".triton" / "cache"
    there = next(folder for folder in (place, *place.parents) if folder.exists())
    if there.is_dir() and os.access(there, os.W_OK | os.X_OK):
        return
    folder = tempfile.mkdtemp(prefix="unskew-triton-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.environ["TRITON_CACHE_DIR"] = folder
