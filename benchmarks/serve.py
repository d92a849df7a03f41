"""The service under load, on the loopback address alone: ``python -m benchmarks.serve [--requests 20000]``

*Cost*: processor time of a request of one row, beside that of a plain service around the same ONNX file
(``benchmarks/serve_floor.py``). *Endurance*: requests go on while run folders are exchanged, now and then for
a damaged one, and the service is killed (SIGKILL) and started again; every answer must be right, and every
acknowledged outcome must be counted exactly once. *Hostile*: clients that send slowly, too much, nonsense, or
never read; it measures memory and the time of ``/healthz``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

HOST = "127.0.0.1"
WAIT = 600.0
"""Seconds that the service may take to load or refuse a run folder, on a busy machine."""
ATOL = 1e-6
"""Float rounding between torch's and onnxruntime's order of the same sums."""


@dataclass
class Service:
    """``unskew serve`` as a process of its own, which may be killed and started again at one address."""

    run: Path
    state: Path
    options: tuple[str, ...] = ()
    port: int = 0
    process: subprocess.Popen[str] | None = None
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.state.with_name(f"{self.state.name}.log")
        if not self.port:
            with socket.socket() as free:
                free.bind((HOST, 0))
                self.port = free.getsockname()[1]

    def command(self) -> list[str]:
        command = [sys.executable, "-m", "unskew", "serve", str(self.run), "--state", str(self.state)]
        return [*command, "--port", str(self.port), "--reload-every", "0.2", "--drain", "0.2", *self.options]

    def start(self) -> None:
        """Start, and wait until requests are taken."""
        with self.log.open("a") as log:
            self.process = subprocess.Popen(self.command(), stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        if not self.process.stdout.readline().startswith("serving"):
            raise RuntimeError(f"the service did not start: {self.log.read_text()[-2000:]}")

    def end(self, how: int = signal.SIGTERM) -> int:
        """Send a signal, and return the exit code."""
        assert self.process is not None
        assert self.process.stdout is not None
        self.process.send_signal(how)
        self.process.stdout.close()
        return self.process.wait(timeout=60)

    def cpu(self) -> float:
        """Return seconds of the processor, all threads together (Linux)."""
        assert self.process is not None
        tasks = Path(f"/proc/{self.process.pid}/task")
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9

    def memory(self) -> float:
        """Return the resident MiB (Linux)."""
        assert self.process is not None
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def events(self) -> list[dict[str, Any]]:
        """Return the lines of its log, which are JSON."""
        return [json.loads(line) for line in self.log.read_text().splitlines()]


class Floor(Service):
    """The plain service: ``run`` is an ONNX file here, and there is no state."""

    def command(self) -> list[str]:
        return [
            sys.executable,
            str(Path(__file__).with_name("serve_floor.py")),
            str(self.run),
            str(self.port),
        ]


class Client:
    """One connection, kept open; opened again where the service was killed."""

    def __init__(self, port: int) -> None:
        self.port, self.broken = port, 0
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Return status and body of an answer; ask again until there is one."""
        head = f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\nContent-Type: application/json\r\n"
        request = f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body
        until = time.monotonic() + 120
        while True:
            try:
                return await self._once(request)
            except (OSError, asyncio.IncompleteReadError):
                self.broken += 1
                self.close()
                if time.monotonic() > until:
                    raise
                await asyncio.sleep(0.05)

    async def _once(self, request: bytes) -> tuple[int, bytes]:
        if self._streams is None:
            self._streams = await asyncio.open_connection(HOST, self.port, limit=1 << 22)
        reader, writer = self._streams
        writer.write(request)
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        body = await reader.readexactly(length)
        if b"connection: close" in head:
            self.close()
        return int(head.split(b" ", 2)[1]), body

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
        self._streams = None


def make_run(folder: Path, seed: int, users: int, items: int) -> Path:
    """Save a conversion model (NeuMF, of the default size) of three seeds as a run folder."""
    import unskew as us

    log = us.load("synthetic", n_users=users, n_items=items, density=0.05, seed=3).train
    us.Naive(learner=us.NeuMF(), epochs=2).fit(log, seeds=[seed, seed + 1, seed + 2]).save(folder)
    return folder


def expected_scores(run: Path, users: int, items: int) -> np.ndarray:
    """Return what ``unskew score`` gives every pair."""
    import pyarrow as pa

    import unskew as us

    grid = pa.table({"user": np.repeat(np.arange(users), items), "item": np.tile(np.arange(items), users)})
    return us.score(run, grid)["conversion"].to_numpy().reshape(users, items)


def name_of(run: Path) -> str:
    from unskew.base.manifest import digest_of
    from unskew.serve.runs import model_name

    return model_name(digest_of(run), "all", None)


async def cost(service: Service, requests: int, rounds: int = 5) -> float:
    """Return µs of the processor for a request of one row from one client, the median of rounds."""
    client, body = Client(service.port), b'{"rows": [{"user": 1, "item": 2}]}'
    turns = []
    for number in range(rounds + 1):
        began = service.cpu()
        for _ in range(requests // rounds):
            status, _ = await client.ask("POST", "/score", body)
            assert status == 200
        if number:
            turns.append((service.cpu() - began) / (requests // rounds))
    client.close()
    return 1e6 * float(np.median(turns))


@dataclass
class Endurance:
    """Requests that go on, whatever happens to the service."""

    service: Service
    shape: tuple[int, int]
    expected: dict[str, np.ndarray]
    requests: int
    at_once: int = 8
    pause: float = 0.0
    disturbing: bool = True
    """Requests go on until there were enough *and* nothing more happens to the service."""
    counts: Counter[str] = field(default_factory=Counter)
    models: Counter[str] = field(default_factory=Counter)

    async def client(self, number: int) -> None:
        """Ask for scores of one to five pairs, check each, and send every outcome of each fourth request."""
        random = np.random.default_rng(number)
        client = Client(self.service.port)
        while self.counts["asked"] < self.requests or self.disturbing:
            self.counts["asked"] += 1
            await asyncio.sleep(self.pause)
            rows = 1 if random.random() < 0.7 else int(random.integers(2, 6))
            user, item = (random.integers(size, size=rows) for size in self.shape)
            content = [{"user": int(u), "item": int(i)} for u, i in zip(user, item, strict=True)]
            status, body = await client.ask("POST", "/score", json.dumps({"rows": content}).encode())
            if status != 200:
                self.counts[f"status {status}"] += 1
                continue
            answer = json.loads(body)
            self.models[answer["model"]] += 1
            expected = self.expected[answer["model"]][user, item]
            right = np.allclose(answer["scores"], expected, atol=ATOL, rtol=0)
            self.counts["right" if right else "wrong scores"] += 1
            if random.random() < 0.25:
                await self.outcomes(client, answer, random)
        self.counts["broken connections"] += client.broken
        client.close()

    async def outcomes(self, client: Client, answer: dict[str, Any], random: np.random.Generator) -> None:
        """Send outcomes until they are acknowledged; a kill may come between counting and saying so."""
        came = [
            {"request": answer["request"], "row": row, "outcome": int(random.random() < score)}
            for row, score in enumerate(answer["scores"])
        ]
        status, body = await client.ask("POST", "/outcomes", json.dumps({"outcomes": came}).encode())
        self.counts["acknowledged" if status == 200 else f"status {status} of outcomes"] += len(came)
        assert status != 200 or sum(json.loads(body).values()) == len(came)

    async def disturb(self, runs: list[Path], reloads: int, kills: int) -> None:
        """Exchange run folders and kill the service, evenly over the requests."""
        events = ["reload"] * reloads + ["kill"] * kills
        order = np.random.default_rng(0).permutation(len(events))
        for number, which in enumerate(order):
            while self.counts["asked"] < self.requests * (number + 1) / (len(events) + 1):
                await asyncio.sleep(0.02)
            if events[which] == "kill":
                await asyncio.to_thread(self.service.end, signal.SIGKILL)
                await asyncio.to_thread(self.service.start)
                self.counts["kills"] += 1
                continue
            if self.counts["reloads"] % 5 == 2:
                await self.put_damaged(runs[0])
            wanted = runs[(self.counts["reloads"] + 1) % len(runs)]
            await asyncio.to_thread(put_in_place, wanted, self.service.run)
            await self.until_served(name_of(wanted))
            self.counts["reloads"] += 1

    async def put_damaged(self, run: Path) -> None:
        before = sum(event["event"] == "run refused" for event in self.service.events())
        await asyncio.to_thread(put_in_place, run, self.service.run, damaged=True)
        async with asyncio.timeout(WAIT):
            while sum(event["event"] == "run refused" for event in self.service.events()) == before:
                await asyncio.sleep(0.1)
        self.counts["damaged, refused"] += 1

    async def until_served(self, name: str) -> None:
        client = Client(self.service.port)
        try:
            async with asyncio.timeout(WAIT):
                while json.loads((await client.ask("GET", "/model"))[1])["name"] != name:
                    await asyncio.sleep(0.05)
        finally:
            client.close()

    async def run(self, runs: list[Path], reloads: int, kills: int) -> dict[str, Any]:
        """Return the counts, and the outcomes that the service has in its cells at the end."""
        async with asyncio.TaskGroup() as tasks:
            for number in range(self.at_once):
                tasks.create_task(self.client(number))
            await self.disturb(runs, reloads, kills)
            self.disturbing = False
        client = Client(self.service.port)
        rows = 0
        for name in self.models:
            status, body = await client.ask("GET", f"/calibration?model={name}")
            rows += json.loads(body)["rows"] if status == 200 else 0
        client.close()
        return {**self.counts, "models": len(self.models), "counted": rows}


def put_in_place(source: Path, run: Path, *, damaged: bool = False) -> None:
    """Put a copy of a run folder, written beside, in the place of the one that is served."""
    beside = run.with_name(f".{run.name}.beside")
    shutil.rmtree(beside, ignore_errors=True)
    shutil.copytree(source, beside)
    if damaged:
        weights = beside / "model.safetensors"
        weights.write_bytes(weights.read_bytes()[:-100])
    old = run.with_name(f".{run.name}.old")
    os.rename(run, old)
    os.rename(beside, run)
    shutil.rmtree(old)


def request_of(body: bytes, path: str = "/score") -> bytes:
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


GET = b"GET %b HTTP/1.1\r\nHost: x\r\n\r\n"
HEAD = b"POST /score HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
PAIR = request_of(b'{"rows": [{"user": 1, "item": 2}]}')
HOSTILE: dict[str, tuple[bytes, bytes]] = {
    "pipelined scores": (b"", PAIR * 1000),
    "pipelined probes": (b"", GET % b"/healthz" * 2000),
    "pipelined metrics": (b"", GET % b"/metrics" * 2000),
    "slow head": (b"GET / HTTP/1.1\r\nX: ", b"a"),
    "slow body": (HEAD + b"Content-Length: 2000000\r\n\r\n", b"["),
    "long head": (b"GET / HTTP/1.1\r\nX: ", b"a" * 65536),
    "large body": (b"", request_of(b'{"rows": [' + b'{"user":1,"item":1},' * 99_000 + b"0]}")),
    "endless chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"ffff\r\n" + b"a" * 0xFFFF + b"\r\n"),
    "both lengths": (
        b"",
        HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n",
    ),
    "deep JSON": (b"", request_of(b'{"rows": ' + b"[" * 100_000)),
    "huge number": (b"", request_of(b'{"rows": [{"user": ' + b"9" * 100_000 + b"}]}")),
    "wrong types": (b"", request_of(b'{"rows": [' + b'{"user":null},' * 5000 + b"{}]}")),
    "flood of ids": (
        b"",
        request_of(json.dumps({"rows": [{"user": -k, "item": k} for k in range(2000)]}).encode()),
    ),
    "guessed outcomes": (b"", request_of(b'{"outcomes": [{"request": "a", "outcome": 1}]}', "/outcomes")),
    "no request": (b"", b"\x16\x03\x01\x02\x00" * 100),
}
"""By name: what a client sends once, and what it then sends for ever, without reading an answer."""


async def warm(service: Service) -> None:
    client = Client(service.port)
    _, body = await client.ask("POST", "/score", b'{"rows": [{"user": 1, "item": 2}]}')
    outcome = {"request": json.loads(body)["request"], "outcome": 1}
    await client.ask("POST", "/outcomes", json.dumps({"outcomes": [outcome]}).encode())
    client.close()


def attack(service: Service, seconds: float, connections: int, kinds: list[str]) -> dict[str, float]:
    """Let hostile clients loose; the memory that they cost, and the slowest answer of ``/healthz``."""
    # What is loaded once is loaded before.
    asyncio.run(warm(service))
    before = peak = service.memory()
    clients: list[list[Any]] = []
    slowest = probed = sent = 0.0
    until, due = time.monotonic() + seconds, 0.0
    probe: socket.socket | None = None
    while (now := time.monotonic()) < until:
        while len(clients) < connections:
            first, further = HOSTILE[kinds[int(probed + len(clients)) % len(kinds)]]
            client = socket.create_connection((HOST, service.port), timeout=30)
            client.setblocking(False)
            clients.append([client, first, further])
        for entry in list(clients):
            with suppress(BlockingIOError):
                try:
                    count = entry[0].send(entry[1][: 1 << 16] or entry[2][: 1 << 16])
                    sent += count
                    entry[1] = (entry[1] or entry[2])[count:]
                except OSError as error:
                    if isinstance(error, BlockingIOError):
                        raise
                    entry[0].close()
                    clients.remove(entry)
        if probe is None and now >= due:
            probe = socket.create_connection((HOST, service.port), timeout=30)
            probe.sendall(GET % b"/healthz")
            probe.setblocking(False)
            asked = now
        if probe is not None:
            with suppress(BlockingIOError):
                assert b"200" in probe.recv(100)
                slowest, probed, due = max(slowest, time.monotonic() - asked), probed + 1, now + 0.2
                probe.close()
                probe = None
        peak = max(peak, service.memory())
        time.sleep(0.002)
    for client in [*(entry[0] for entry in clients), *([probe] if probe else [])]:
        client.close()
    return {
        "MiB before": before,
        "MiB more": peak - before,
        "slowest probe, s": slowest,
        "MB sent": sent / 1e6,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000, help="of the endurance")
    parser.add_argument("--cost-requests", type=int, default=4000)
    parser.add_argument("--reloads", type=int, default=20)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--hostile-seconds", type=float, default=60.0)
    asked = parser.parse_args()
    shape, result = (290, 300), {}
    with tempfile.TemporaryDirectory(prefix="unskew-serve-") as place:
        folder = Path(place)
        runs = [make_run(folder / f"run{seed}", seed, *shape) for seed in (0, 10)]
        service = Service(folder / "run", folder / "state")
        shutil.copytree(runs[0], service.run)
        service.start()
        try:
            if asked.cost_requests:
                floor = Floor(service.state / "models" / f"{name_of(runs[0])}.onnx", folder / "floor")
                floor.start()
                result["cost, µs"] = asyncio.run(cost(service, asked.cost_requests))
                result["cost of a plain service, µs"] = asyncio.run(cost(floor, asked.cost_requests))
                floor.end(signal.SIGKILL)
            if asked.requests:
                expected = {name_of(run): expected_scores(run, *shape) for run in runs}
                load = Endurance(service, shape, expected, asked.requests)
                result["endurance"] = asyncio.run(load.run(runs, asked.reloads, asked.kills))
            if asked.hostile_seconds:
                result["hostile"] = attack(service, asked.hostile_seconds, 200, list(HOSTILE))
            result["load"] = os.getloadavg()[0]
        finally:
            code = service.end()
    print(json.dumps(result, indent=2))
    endurance: dict[str, Any] = result.get("endurance", {})
    right = endurance.get("acknowledged") == endurance.get("counted")
    return code or int(not right or any(name.startswith(("status", "wrong")) for name in endurance))


if __name__ == "__main__":
    sys.exit(main())
