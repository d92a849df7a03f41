"""Unforeseen errors in one line: a full disk, no memory left, a defect of unskew."""

from __future__ import annotations

import errno
import os
import sys
import traceback
from pathlib import Path

DEBUG = "UNSKEW_DEBUG"
"""Set in the environment, it shows where a defect is."""

REMEDIES = {
    errno.ENOSPC: "free some space",
    errno.EDQUOT: "free some space",
    errno.EFBIG: "raise the limit on the size of files",
    errno.EACCES: "see to its permissions",
    errno.EPERM: "see to its permissions",
    errno.EROFS: "choose another place",
    errno.ENAMETOOLONG: "give a shorter name",
    errno.ELOOP: "give a link that leads somewhere",
    errno.EMFILE: "raise the limit on open files",
}

NO_MEMORY = ("DefaultCPUAllocator", "not enough memory", "bad_alloc", "[enforce fail at alloc_cpu")
"""What torch says where a CPU's memory is full, in an error that has no type of its own."""

PACKAGE = Path(__file__).parents[1]


def is_of_the_machine(error: Exception) -> bool:
    """Check whether files, memory or encodings failed, which a user can fix, and not the code."""
    # torch has an error of its own for a device's memory, and is not loaded here to name it.
    return isinstance(error, (OSError, UnicodeError)) or _is_memory(error)


def machine_message(error: Exception) -> str:
    """Return the message of such an error: its problem, place and remedy."""
    from unskew.base.errors import UnskewError

    if _is_memory(error):
        return str(UnskewError("the memory is full", remedy="give less data, fewer seeds or another device"))
    if isinstance(error, OSError) and error.strerror:
        where = None if error.filename is None else str(error.filename)
        remedy = REMEDIES.get(error.errno or 0, "check the path and the disk")
        return str(UnskewError(error.strerror, where=where, remedy=remedy))
    if isinstance(error, UnicodeError):
        remedy = "give files whose names and content are UTF-8"
        return str(UnskewError(f"there is text that is not UTF-8 ({error})", remedy=remedy))
    return str(UnskewError(f"{type(error).__name__}: {error}", remedy="check the paths and the disk"))


def defect_message(error: Exception) -> str:
    """Return the message of any other error: a defect of unskew, not the user's fault."""
    from unskew.base.errors import UnskewError

    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(PACKAGE)]
    place = ""
    if ours:
        file = Path(ours[-1].filename).relative_to(PACKAGE.parent).as_posix()
        place = f" ({file}, line {ours[-1].lineno})"
    problem = f"this is a defect of unskew, not yours: {type(error).__name__}: {error}{place}"
    return str(UnskewError(problem, remedy=f"report it with what {DEBUG}=1 shows"))


def show_traceback(error: Exception) -> None:
    """Print the traceback, if the environment asks for it."""
    if os.environ.get(DEBUG, "0") not in ("", "0"):
        traceback.print_exception(error)


def settle_output() -> None:
    """Drop what cannot be written to the output, which Python would try and complain about at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, sys.stdout.fileno())
        os.close(nowhere)


def _is_memory(error: Exception) -> bool:
    by_words = isinstance(error, RuntimeError) and any(words in str(error) for words in NO_MEMORY)
    return by_words or isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
