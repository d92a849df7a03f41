"""What the system offers to put files in place: moves that lose nothing, locks of folders, open descriptors.

What is written where, and what may be replaced, is decided in :mod:`unskew.io.files`.
"""

from __future__ import annotations

import errno
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

NOREPLACE, EXCHANGE = 1, 2
"""Flags of Linux's ``renameat2``."""

UNSUPPORTED = (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.EPERM, errno.EMLINK)
"""What a file system answers that cannot do such a move."""

IN_THE_WAY = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOTDIR, errno.EISDIR)

LOCK_SECONDS = 2.0
"""How long to wait for a folder's lock, which is held for a few system calls; then continue without it."""


def move_new(source: Path, target: Path) -> None:
    """Move a file or a folder to where nothing is; a FileExistsError if something is, whenever it came there.

    An empty folder is in no folder's way.
    """
    try:
        if source.is_dir():
            os.rename(source, target)
        elif not _renameat2(source, target, NOREPLACE):
            _move_new_file(source, target)
    except OSError as error:
        if error.errno not in IN_THE_WAY:
            raise
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from error


def exchange(source: Path, target: Path) -> bool:
    """Let two folders change places in one step; False where the system cannot."""
    return _renameat2(source, target, EXCHANGE)


def _move_new_file(source: Path, target: Path) -> None:
    if os.name != "posix":
        # Elsewhere a rename replaces nothing.
        os.rename(source, target)
        return
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
        # No links on this file system: only those who ask for the folder's lock are kept from coming between.
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target)) from error
        os.replace(source, target)
    else:
        os.unlink(source)


def _renameat2(source: Path, target: Path, flag: int) -> bool:
    """Linux's rename with a flag; False where system or file system have none."""
    call = libc_renameat2()
    if call is None:
        return False
    import ctypes

    sys.audit("os.rename", str(source), str(target), -1, -1)
    at_fdcwd = -100
    if call(at_fdcwd, os.fsencode(source), at_fdcwd, os.fsencode(target), flag) == 0:
        return True
    number = ctypes.get_errno()
    if number in UNSUPPORTED:
        return False
    raise OSError(number, os.strerror(number), str(source), None, str(target))


@cache
def libc_renameat2() -> Any:
    """The call of the system's library; None where it has none."""
    if not sys.platform.startswith("linux"):
        return None
    import ctypes

    call = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if call is not None:
        call.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint)
    return call


OURS: set[Path] = set()
"""What this process writes and has locked: to ask for it again would be to wait for oneself."""


class Lock:
    """A lock on a file or a folder, held until it is closed or the process ends, however it ends.

    It is the system's (``flock``), so that it works across users and process namespaces, and leaves no file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor: int | None = None

    def take(self, *, seconds: float = 0.0) -> bool | None:
        """Whether it is ours now; None where there are no locks."""
        if os.name != "posix":
            return None
        import fcntl

        ends = time.monotonic() + seconds
        try:
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
            while True:
                try:
                    fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    return True
                except BlockingIOError:
                    if time.monotonic() >= ends:
                        self.close()
                        return False
                    time.sleep(0.005)
        except OSError:
            self.close()
            return None

    def close(self) -> None:
        """Give it back."""
        if self._descriptor is not None:
            os.close(self._descriptor)
        self._descriptor = None


@contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """A folder for this process alone among those that ask; False where it could not be had."""
    if folder in OURS:
        yield True
        return
    lock = Lock(folder)
    try:
        yield bool(lock.take(seconds=LOCK_SECONDS))
    finally:
        lock.close()


def lives(process: int) -> bool:
    """Whether a process of that number runs here."""
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        pass
    return True


def descriptor_of(path: Path) -> int | None:
    """The open descriptor that a path stands for: 1 for ``/dev/stdout``, 3 for ``/dev/fd/3``, else None."""
    if os.name != "posix":
        return None
    place, ours = os.path.abspath(path), f"/proc/{os.getpid()}"
    for _ in range(40):
        folder, name = os.path.split(place)
        with suppress(OSError):
            folder = os.path.realpath(folder)
        of_process = folder == f"{ours}/fd" or (folder.startswith(f"{ours}/task/") and folder.endswith("/fd"))
        if (of_process or folder == "/dev/fd") and name.isdecimal():
            return int(name)
        try:
            place = os.path.join(folder, os.readlink(place))
        except OSError:
            return None
    return None


def is_writable(descriptor: int) -> bool:
    """Whether something can be written to an open descriptor."""
    import fcntl

    try:
        return fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_ACCMODE != os.O_RDONLY
    except OSError:
        return False


def write_through(descriptor: int, source: Path) -> None:
    """Write a file's content where an open descriptor is: nothing is cut, nothing is moved."""
    if sys.stdout is not None:
        sys.stdout.flush()
    with source.open("rb") as file:
        while block := file.read(1 << 20):
            while block:
                block = block[os.write(descriptor, block) :]
