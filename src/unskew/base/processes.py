"""Several processes that ``torchrun`` started: who one is, what the others have, and a failure reported once.

Every process does the same job in the same order. Replicas to train are dealt to ranks (:func:`share`), and
everybody gets what the others made (:func:`exchange`). Rank 0 alone writes and prints. Messages are JSON and
plain tensors, never pickles. Without ``torchrun`` there is one process, and torch is not loaded.
"""

from __future__ import annotations

import json
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from unskew.base import errors
from unskew.base.errors import ParameterError, ProcessError, UnskewError

if TYPE_CHECKING:
    from torch import Tensor

Value = TypeVar("Value")

LONGEST_WAIT = timedelta(hours=12)
"""For a process whose share takes longer. One that dies is noticed at once, by its closed connection; a whole
machine that vanishes is noticed by torchrun, which ends the others."""

LONGEST_ANSWER = timedelta(seconds=10)
"""For what the processes wrote of themselves at the start, when one of them is gone."""

LONGEST_LOOK = 30
"""Tenths of a second in which is found out what became of a process that no longer answers."""

LARGEST_MESSAGE = 1 << 30
"""Bytes that are sent at once."""

FROM_TORCHRUN = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


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


def on_this_machine() -> int:
    """Return how many of them share this machine and its memory."""
    return 1 if _group is None else int(os.environ.get("LOCAL_WORLD_SIZE", _group.world))


def number_on_this_machine() -> int:
    """Return the number of this process among those."""
    return 0 if _group is None else int(os.environ.get("LOCAL_RANK", _group.rank))


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
    if missing := [name for name in FROM_TORCHRUN if not is_there and name not in os.environ]:
        raise ParameterError(
            f"{', '.join(missing)} is not set in the environment", remedy="start the processes by torchrun"
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
    store.set(f"process {_group.rank}", json.dumps([platform.node(), os.getpid()]))


def waited_for(work: Callable[[], Value]) -> Value:
    """Return what ``work`` gives, which waits for other processes: signals are heard meanwhile.

    One of them may never come, and inside of PyTorch this process would hear nothing for hours.
    """
    results: list[Value] = []
    errors_of_work: list[BaseException] = []

    def here() -> None:
        try:
            results.append(work())
        except BaseException as error:
            errors_of_work.append(error)

    thread = threading.Thread(target=here, daemon=True)
    thread.start()
    thread.join()
    if errors_of_work:
        raise errors_of_work[0]
    return results[0]


def how() -> str:
    """Say how many processes work together, and what carries their messages."""
    import torch

    gpus, here = torch.cuda.device_count(), on_this_machine()
    if _group is None or gpus == 0:
        return f"{world()} processes, which talk by gloo"
    many = "1 GPU" if gpus == 1 else f"{gpus} GPUs"
    return f"{world()} processes, which talk by gloo: this machine has {many} for {here} of them"


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


def share(count: int) -> slice:
    """Return which of ``count`` things are this process's: an even part, those of a rank side by side."""
    return share_of(rank(), count)


def share_of(number: int, count: int) -> slice:
    """Return which of ``count`` things are a rank's."""
    return slice(count * number // world(), count * (number + 1) // world())


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
        if message["problem"] is not None:
            _raise(message["problem"], source)
    return [(message["value"], tensors) for message, tensors in results]


def _raise(problem: Mapping[str, Any], source: int) -> NoReturn:
    kind = getattr(errors, problem["kind"], UnskewError)
    where = ", ".join(filter(None, (f"rank {source} of {world()}", problem["where"])))
    raise kind(problem["problem"], where=where, remedy=problem["remedy"])


def _sent(source: int, value: Any, tensors: Mapping[str, Tensor]) -> Packed:
    """Return what ``source`` has, as one file of safetensors; the others' arguments are not looked at."""
    import torch
    from safetensors.torch import load, save

    data = b""
    if rank() == source:
        here = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
        # A cut of one number is contiguous with the strides that it was cut with.
        here = {name: tensor.clone(memory_format=torch.contiguous_format) for name, tensor in here.items()}
        data = save(here, {"message": json.dumps([value, list(here)])})
    size = torch.tensor([len(data)])
    _broadcast(size, source)
    message = (
        torch.frombuffer(bytearray(data), dtype=torch.uint8)
        if data
        else torch.empty(int(size), dtype=torch.uint8)
    )
    for piece in torch.split(message, LARGEST_MESSAGE):
        _broadcast(piece, source)
    data = message.numpy().tobytes()
    header = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])
    value, names = json.loads(header["__metadata__"]["message"])
    received = load(data)
    return value, {name: received[name] for name in names}


def _broadcast(tensor: Tensor, source: int) -> None:
    import torch.distributed as dist

    assert _group is not None
    with _others():
        dist.broadcast(tensor, source, group=_group.messages)


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


def gone() -> list[int]:
    """Return the ranks of this machine whose process has ended."""
    if _group is None:
        return []
    dead = []
    for number in range(_group.world):
        try:
            _group.store.wait([f"process {number}"], LONGEST_ANSWER)
            machine, process = json.loads(_group.store.get(f"process {number}"))
        except RuntimeError:
            continue
        if machine == platform.node() and not _runs(process):
            dead.append(number)
    return dead


def _runs(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            # After the name in brackets, which may hold anything; Z and X have ended.
            return file.read().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
    except OSError:
        return True


@contextmanager
def _others() -> Iterator[None]:
    """Raise an error of the connection as one of a process that is gone."""
    try:
        yield
    except RuntimeError as error:
        raise lost(str(error)) from error


def lost(why: str) -> ProcessError:
    """Return what became of a process that no longer answers: what it said, or that it died."""
    assert _group is not None
    problem = f"another process no longer answers ({why})"
    # A process that is killed takes a moment to end, and one that fails to say why.
    for _ in range(LONGEST_LOOK):
        try:
            if _group.store.check(["failure"]):
                number, line = json.loads(_group.store.get("failure"))
                problem = f"rank {number} of {world()} failed: {line}"
                break
        except RuntimeError:
            problem = f"the process that the others meet at is gone ({why})"
            break
        if dead := gone():
            numbers = ", ".join(map(str, dead))
            killed = "it was killed, or the machine ran out of memory"
            problem = f"rank {numbers} of {world()} died: {killed}"
            break
        time.sleep(0.1)
    return ProcessError(problem, remedy="start the same command again")
