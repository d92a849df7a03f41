"""Several processes that ``torchrun`` started: who one is, what the others have, and a failure reported once.

Every process does the same job in the same order. Replicas to train are dealt to ranks (:func:`share`), and
everybody gets what the others made (:func:`exchange`). Rank 0 alone writes and prints. Messages are JSON and
plain tensors, never pickles. Without ``torchrun`` there is one process, and torch is not loaded.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from unskew.base import errors
from unskew.base.errors import ParameterError, ProcessError, UnskewError

if TYPE_CHECKING:
    from torch import Tensor

Value = TypeVar("Value")

LONGEST_WAIT = timedelta(hours=12)
"""For a process whose share takes longer. One that dies is noticed at once, by its closed connection; a whole
machine that vanishes is noticed by torchrun, which ends the others."""

LARGEST_MESSAGE = 1 << 30
"""Bytes that are sent at once."""


@dataclass(frozen=True)
class Processes:
    """The processes that work together, as one of them sees them."""

    rank: int
    world: int
    store: Any
    """Keys and values that all see."""
    messages: Any = None
    """A group of our own beside one that was there already, which is left there; None where it is ours."""


_group: Processes | None = None


def started() -> int:
    """Return how many processes torchrun started; 1 without it."""
    return int(os.environ.get("WORLD_SIZE", "1")) if "RANK" in os.environ else 1


def rank() -> int:
    """Return the number of this process among those that work together."""
    return 0 if _group is None else _group.rank


def world() -> int:
    """Return how many processes work together."""
    return 1 if _group is None else _group.world


def is_writer() -> bool:
    """Return whether this process is the one that writes and prints."""
    return rank() == 0


@contextmanager
def torchrun() -> Iterator[None]:
    """Work together with the other processes that ``torchrun`` started; with none of them, alone.

    All that is fitted inside is dealt to the processes, and each has all of it afterwards; ``save`` writes on
    rank 0 alone. All processes must do the same in the same order. A process group that is there already
    (of Ray Train, Lightning, Accelerate or Spark's TorchDistributor) is joined, and left as it was.

    Examples
    --------
    A script for ``torchrun --nproc-per-node 4 script.py``, which ``python script.py`` runs as well:

    >>> import unskew as us
    >>> log = us.load("synthetic", n_users=40, n_items=30, density=0.2).train
    >>> with us.torchrun():
    ...     model = us.Naive(epochs=1).fit(log, seeds=4)
    """
    if _group is not None:
        yield
        return
    join()
    try:
        yield
    except BaseException as error:
        failed(str(error) or type(error).__name__)
        leave(failed=True)
        raise
    leave()


def join() -> None:
    """Meet the other processes, if there are any; until :func:`leave`."""
    global _group
    loaded = sys.modules.get("torch.distributed")
    is_there = loaded is not None and loaded.is_available() and loaded.is_initialized()
    if _group is not None or (started() == 1 and not is_there):
        return
    if not is_there and "MASTER_ADDR" not in os.environ:
        raise ParameterError(
            "MASTER_ADDR is not set in the environment", remedy="start the processes by torchrun"
        )
    import torch.distributed as dist
    from torch.distributed.distributed_c10d import PrefixStore, _get_default_store

    messages = None
    if is_there:
        messages = waited_for(lambda: dist.new_group(backend="gloo", timeout=LONGEST_WAIT))
    else:
        waited_for(lambda: dist.init_process_group("gloo", timeout=LONGEST_WAIT))
    # torchrun keeps what was written when it starts the processes again.
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    store = PrefixStore(f"unskew, attempt {attempt}", _get_default_store())
    _group = Processes(dist.get_rank(), dist.get_world_size(), store, messages)


def waited_for(work: Callable[[], Value]) -> Value:
    """Return what ``work`` gives, which waits for other processes: signals are heard meanwhile.

    One of them may never come, and inside of PyTorch this process would hear nothing for hours.
    """
    result: Future[Value] = Future()

    def here() -> None:
        try:
            result.set_result(work())
        except BaseException as error:
            result.set_exception(error)

    threading.Thread(target=here, daemon=True).start()
    return result.result()


def leave(*, failed: bool = False) -> None:
    """Work alone from now on.

    Parameters
    ----------
    failed
        Others may wait for this one: they are not waited for.
    """
    global _group
    if _group is None:
        return
    import torch.distributed as dist

    if not failed:
        with _others():
            dist.destroy_process_group(_group.messages)
    _group = None


def share(count: int, number: int | None = None) -> slice:
    """Return which of ``count`` things are a rank's (this process's): an even part, side by side."""
    first = rank() if number is None else number
    return slice(count * first // world(), count * (first + 1) // world())


Packed = tuple[Any, Mapping[str, "Tensor"]]
"""What is sent: plain values as JSON has them, and tensors by name."""


def exchange(work: Callable[[], Packed]) -> list[Packed]:
    """Do ``work``, and return what all processes made of it, in the order of ranks; tensors on the CPU.

    An error that a user can cause, on any of them, is raised by all: none waits, and all go on alike where
    somebody catches it.
    """
    if _group is None:
        return [work()]
    made: Packed = None, {}
    problem: dict[str, Any] | None = None
    try:
        made = work()
    except UnskewError as error:
        problem = {"kind": type(error).__name__, **error.record()}
    results = [_sent(source, {"problem": problem, "value": made[0]}, made[1]) for source in range(world())]
    for source, (message, _) in enumerate(results):
        if (failure := message["problem"]) is not None:
            kind = getattr(errors, failure["kind"], UnskewError)
            where = ", ".join(filter(None, (f"rank {source} of {world()}", failure["where"])))
            raise kind(failure["problem"], where=where, remedy=failure["remedy"])
    return [(message["value"], tensors) for message, tensors in results]


def _sent(source: int, value: Any, tensors: Mapping[str, Tensor]) -> Packed:
    """Return what ``source`` has, as one file of safetensors; the others' arguments are not looked at."""
    import torch
    import torch.distributed as dist
    from safetensors.torch import load, save

    assert _group is not None
    data = b""
    if rank() == source:
        # A cut of one number is contiguous with the strides that it was cut with.
        here = {
            name: each.detach().cpu().clone(memory_format=torch.contiguous_format)
            for name, each in tensors.items()
        }
        data = save(here, {"message": json.dumps([value, list(here)])})
    size = torch.tensor([len(data)])
    with _others():
        dist.broadcast(size, source, group=_group.messages)
        message = torch.frombuffer(bytearray(data or int(size)), dtype=torch.uint8)
        for piece in torch.split(message, LARGEST_MESSAGE):
            dist.broadcast(piece, source, group=_group.messages)
    data = message.numpy().tobytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    value, names = json.loads(header["__metadata__"]["message"])
    received = load(data)
    return value, {name: received[name] for name in names}


def write(work: Callable[[], None]) -> None:
    """Do what writes, on rank 0 alone; all go on when it is done, and fail where it failed.

    Examples
    --------
    >>> write(lambda: print("written"))
    written
    """

    def here() -> Packed:
        if is_writer():
            work()
        return None, {}

    exchange(here)


def failed(line: str) -> bool:
    """Keep what this process failed of, for the others; return whether it is the first."""
    if _group is None:
        return int(os.environ.get("RANK", "0")) == 0 or started() == 1
    mine = json.dumps([_group.rank, line])
    try:
        first: bytes = _group.store.compare_set("failure", "", mine)
    except RuntimeError:
        # Whoever kept it is gone: better reported twice than never.
        return True
    return first.decode() == mine


@contextmanager
def _others() -> Iterator[None]:
    """Raise an error of the connection as what became of the other process: what it said, or that it died."""
    try:
        yield
    except RuntimeError as error:
        assert _group is not None
        problem, end = "another process was killed, or its machine ran out of memory", time.monotonic() + 1.0
        # A process that fails takes a moment to say why.
        while time.monotonic() < end:
            # The process that keeps what was said may be the one that is gone.
            with suppress(RuntimeError):
                if _group.store.check(["failure"]):
                    number, line = json.loads(_group.store.get("failure"))
                    problem, end = f"rank {number} of {world()} failed: {line}", 0.0
            time.sleep(0.05)
        raise ProcessError(problem, remedy="start the same command again") from error
