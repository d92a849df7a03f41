"""Processes that work together, as torchrun would start them."""

from __future__ import annotations

import os
import runpy
import socket
import subprocess
import sys
from pathlib import Path

from forked import SECONDS, Forked


def free_port() -> int:
    """A port that nobody listens at."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def environment() -> dict[str, str]:
    """That of this process, with one thread, and unskew's source where it is found."""
    import unskew

    source = str(Path(unskew.__file__).parents[1])
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": source, "GLOO_SOCKET_IFNAME": "lo"}


def together(
    file: str, function: str, folder: Path, world: int = 2, joined: bool = False
) -> list[tuple[int, str]]:
    """Exit codes and standard error of so many processes that call a function of a file.

    It gets the folder, inside of :func:`unskew.torchrun`; with ``joined``, where a process group is there
    already, which must be there afterwards.
    """
    work = "_call_joined" if joined else "_call"
    return [(code, error) for code, _, error in _ended(work, file, function, folder, world=world)]


def commanded(*arguments: str, world: int = 2) -> list[tuple[int, str, str]]:
    """Exit codes, standard output and error of so many processes of ``unskew ARGUMENTS``, soon started."""
    return _ended("_command", arguments, world=world)


def _ended(work: str, *given: object, world: int) -> list[tuple[int, str, str]]:
    shared = {"WORLD_SIZE": str(world), "LOCAL_WORLD_SIZE": str(world)}
    shared |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    started = [
        Forked(
            *(__file__, work, *given),
            variables={**environment(), **shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
        )
        for rank in range(world)
    ]
    try:
        return [each.ended() for each in started]
    finally:
        for each in started:
            each.kill()


def torchrun(
    *arguments: str, world: int = 2, options: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """``torchrun … -m unskew ARGUMENTS``, when it has ended."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(world)]
    command += ["--master-addr", "127.0.0.1", "--master-port", str(free_port()), *options, "-m", "unskew"]
    return subprocess.run(
        [*command, *arguments], env=environment(), capture_output=True, text=True, timeout=SECONDS
    )


def _call(file: str, function: str, folder: Path) -> None:
    import unskew

    work = runpy.run_path(file)[function]
    with unskew.torchrun():
        work(folder)


def _call_joined(file: str, function: str, folder: Path) -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    _call(file, function, folder)
    dist.barrier()
    dist.destroy_process_group()


def _command(arguments: tuple[str, ...]) -> None:
    from unskew.cli import main

    sys.exit(main(arguments))
