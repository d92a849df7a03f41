"""The service under load, on the loopback address alone: ``python -m benchmarks.serve [--requests 100000]``

Two tables. *Cost*: requests of 1, 100 and 10,000 rows, one after the other and several at once: throughput,
latency, and the processor time of the service for each, beside that of the bare ``onnxruntime`` call with the
same inputs in this process, and that of the least service around that call (``benchmarks/serve_floor.py``),
which the same clients ask; with the load of the machine before and after. *Endurance*: requests go on while
run folders are exchanged (now and then for a damaged one) and the service is killed (SIGKILL) and started
again. Every answer must be a 200 with the scores that ``unskew score`` gives, of the model that it names; a
connection that a kill broke is opened again, and its request sent again. At the end the sketch must hold the
outcomes that were sent, less those of the seconds before each kill that it says it may be behind.
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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

HOST = "127.0.0.1"
SAVE_EVERY = 1.0
AT_ONCE = 8
"""Clients."""
ROUNDS = 5
"""Turns of service, least service and bare call, of which the table has the medians."""
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
        """The verb and its options."""
        command = [sys.executable, "-m", "unskew", "serve", str(self.run), "--state", str(self.state)]
        command += ["--host", HOST, "--port", str(self.port), "--save-every", str(SAVE_EVERY)]
        return [*command, "--reload-every", "0.2", *self.options]

    def start(self) -> None:
        """Start, and wait until requests are taken."""
        with self.log.open("a") as log:
            self.process = subprocess.Popen(self.command(), stdout=subprocess.PIPE, stderr=log, text=True)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line.startswith("serving"):
            raise RuntimeError(f"the service did not start: {self.log.read_text()[-2000:]}")

    def kill(self) -> None:
        """SIGKILL: no handler runs."""
        assert self.process is not None
        self.process.send_signal(signal.SIGKILL)
        self._left()

    def end(self) -> int:
        """SIGTERM, and the exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self._left()

    def _left(self) -> int:
        assert self.process is not None
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(timeout=60)

    def cpu(self) -> float:
        """Seconds of the processor that the service took, all its threads together (Linux)."""
        assert self.process is not None
        tasks = Path(f"/proc/{self.process.pid}/task")
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks.iterdir()) / 1e9

    def settle(self) -> None:
        """Wait until nothing is left to do in the background."""
        before = self.cpu()
        for _ in range(40):
            time.sleep(0.5)
            now = self.cpu()
            if now - before < 0.01:
                return
            before = now

    def events(self) -> list[dict[str, Any]]:
        """The lines of its log."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]


class Floor(Service):
    """The least service: ``run`` is an ONNX file here, and there is no state."""

    def command(self) -> list[str]:
        """The program beside this one."""
        return [
            sys.executable,
            str(Path(__file__).with_name("serve_floor.py")),
            str(self.run),
            str(self.port),
        ]


class Client:
    """One connection, kept open; opened again where the service was killed."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.broken = 0
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Status and body of an answer; asked again until there is one."""
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


def make_run(folder: Path, seed: int, users: int, items: int, epochs: int = 2) -> Path:
    """A conversion model (NeuMF, of the default size) of three seeds, as a run folder."""
    import unskew as us

    log = us.load("synthetic", n_users=users, n_items=items, density=0.05, seed=3).train
    us.Naive(backbone=us.NeuMF(), epochs=epochs).fit(log, seeds=[seed, seed + 1, seed + 2]).save(folder)
    return folder


def expected_scores(run: Path, users: int, items: int) -> np.ndarray:
    """What ``unskew score`` gives every pair."""
    import pyarrow as pa

    import unskew as us

    grid = pa.table({"user": np.repeat(np.arange(users), items), "item": np.tile(np.arange(items), users)})
    return us.score(run, grid)["conversion"].to_numpy().reshape(users, items)


def name_of(run: Path) -> str:
    from unskew.io.manifest import digest_of
    from unskew.serve.prepare import model_name

    return model_name(digest_of(run), "conversion", None)


def body_of(rows: int, users: int, items: int, seed: int = 0) -> tuple[bytes, dict[str, np.ndarray]]:
    """Pairs of a request: as rows where there is one, as columns where there are many."""
    random = np.random.default_rng(seed)
    pairs = {"user": random.integers(users, size=rows), "item": random.integers(items, size=rows)}
    if rows == 1:
        content: Any = {"rows": [{name: int(each[0]) for name, each in pairs.items()}]}
    else:
        content = {"columns": {name: each.tolist() for name, each in pairs.items()}}
    return json.dumps(content).encode(), pairs


async def throughput(service: Service, body: bytes, at_once: int, requests: int) -> dict[str, float]:
    """Requests a second, latency and processor time of the service for each."""
    clients = [Client(service.port) for _ in range(at_once)]
    latencies: list[float] = []

    async def work(client: Client, count: int) -> None:
        for _ in range(count):
            began = time.perf_counter()
            status, answer = await client.ask("POST", "/score", body)
            latencies.append(time.perf_counter() - began)
            if status != 200:
                raise RuntimeError(f"{status}: {answer[:200]!r}")

    await asyncio.gather(*(work(each, 1 + requests // at_once // 10) for each in clients))
    latencies.clear()
    cpu, began = service.cpu(), time.perf_counter()
    await asyncio.gather(*(work(each, requests // at_once) for each in clients))
    seconds, cpu = time.perf_counter() - began, service.cpu() - cpu
    for each in clients:
        each.close()
    done = len(latencies)
    p50, p99 = np.quantile(latencies, [0.5, 0.99])
    return {
        "requests/s": done / seconds,
        "p50, ms": 1e3 * p50,
        "p99, ms": 1e3 * p99,
        "service CPU, µs": 1e6 * cpu / done,
    }


def bare_call(model: Path, pairs: dict[str, np.ndarray], repeats: int) -> float:
    """µs of the processor of ``onnxruntime`` alone, on one thread as the service has it."""
    from benchmarks.serve_floor import session_of

    session = session_of(str(model))
    for _ in range(1 + repeats // 10):
        session.run(None, pairs)
    began = time.process_time()
    for _ in range(repeats):
        session.run(None, pairs)
    return 1e6 * (time.process_time() - began) / repeats


def cost(service: Service, model: Path, shape: tuple[int, int], requests: int) -> list[dict[str, Any]]:
    """The first table."""
    table = []
    floor = Floor(model, service.state.with_name("floor"))
    floor.start()
    service.settle()
    try:
        for rows, share in ((1, 1), (100, 2), (10_000, 100)):
            body, pairs = body_of(rows, *shape)
            each = max(AT_ONCE, requests // share // ROUNDS)
            for at_once in (1, AT_ONCE):
                # In turn, and the median of the turns, since the machine may have other work.
                turns = []
                for _ in range(ROUNDS):
                    bare = bare_call(model, pairs, each)
                    least = asyncio.run(throughput(floor, body, at_once, each))["service CPU, µs"]
                    found = asyncio.run(throughput(service, body, at_once, each))
                    of_all = {"least service, µs": least, "bare onnxruntime, µs": bare}
                    turns.append(found | of_all | {"÷ bare": found["service CPU, µs"] / bare})
                middle = {key: float(np.median([turn[key] for turn in turns])) for key in turns[0]}
                table.append({"rows": rows, "at once": at_once, **middle})
    finally:
        floor.kill()
    return table


@dataclass
class Endurance:
    """Requests that go on, whatever happens to the service."""

    service: Service
    shape: tuple[int, int]
    expected: dict[str, np.ndarray]
    requests: int
    at_once: int = AT_ONCE
    pause: float = 0.0
    """Seconds between an answer and a client's next request."""
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
            right = np.allclose(
                answer["scores"], self.expected[answer["model"]][user, item], atol=ATOL, rtol=0
            )
            self.counts["right" if right else "wrong scores"] += 1
            if random.random() < 0.25:
                await self.outcomes(client, answer, random)
        self.counts["broken connections"] += client.broken
        client.close()

    async def outcomes(self, client: Client, answer: dict[str, Any], random: np.random.Generator) -> None:
        came = [
            {"request": answer["request"], "row": row, "outcome": int(random.random() < score)}
            for row, score in enumerate(answer["scores"])
        ]
        status, body = await client.ask("POST", "/outcomes", json.dumps({"outcomes": came}).encode())
        if status != 200:
            self.counts[f"status {status} of outcomes"] += 1
            return
        for kind, count in json.loads(body).items():
            if kind in ("counted", "known", "forgotten", "unscored"):
                self.counts[f"outcomes {kind}"] += count

    async def disturb(self, runs: list[Path], reloads: int, kills: int) -> None:
        """Exchange the run folder so often, with a damaged one before every fifth, and kill so often."""
        events = ["reload"] * reloads + ["kill"] * kills
        order = np.argsort(np.random.default_rng(0).random(len(events)), kind="stable")
        for place, which in enumerate(order):
            due = self.requests * (place + 1) / (len(events) + 1)
            while self.counts["asked"] < due:
                await asyncio.sleep(0.02)
            if events[which] == "kill":
                await asyncio.to_thread(self.service.kill)
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
        before = sum(each["event"] == "run refused" for each in self.service.events())
        await asyncio.to_thread(put_in_place, run, self.service.run, damaged=True)
        async with asyncio.timeout(WAIT):
            while sum(each["event"] == "run refused" for each in self.service.events()) == before:
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


def put_in_place(source: Path, run: Path, *, damaged: bool = False) -> None:
    """A copy of a run folder, written beside and exchanged with the one that is served."""
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


async def endure(load: Endurance, runs: list[Path], reloads: int, kills: int) -> dict[str, Any]:
    """The second table, from a service that runs."""
    began = time.perf_counter()
    async with asyncio.TaskGroup() as tasks:
        for number in range(load.at_once):
            tasks.create_task(load.client(number))
        await load.disturb(runs, reloads, kills)
        load.disturbing = False
    seconds = time.perf_counter() - began
    client = Client(load.service.port)
    rows = 0
    for name in load.models:
        status, body = await client.ask("GET", f"/calibration?model={name}")
        rows += json.loads(body)["rows"] if status == 200 else 0
    client.close()
    return {
        "seconds": round(seconds, 1),
        **load.counts,
        "models": len(load.models),
        "outcomes in sketches": rows,
    }


def show(title: str, rows: list[dict[str, Any]]) -> None:
    """A table."""
    columns = list(rows[0])
    cells = [
        [f"{each:.4g}" if isinstance(each, float) else str(each) for each in row.values()] for row in rows
    ]
    widths = [max(len(head), *(len(line[k]) for line in cells)) for k, head in enumerate(columns)]
    print(f"\n{title}")
    for line in (columns, ["-" * width for width in widths], *cells):
        print("  ".join(cell.rjust(width) for cell, width in zip(line, widths, strict=True)))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--requests", type=int, default=100_000, help="of the endurance")
    parser.add_argument("--cost-requests", type=int, default=4000, help="of one row, in the table of costs")
    parser.add_argument("--reloads", type=int, default=20)
    parser.add_argument("--kills", type=int, default=5)
    parser.add_argument("--users", type=int, default=290)
    parser.add_argument("--items", type=int, default=300)
    parser.add_argument("--json", default=None, help="also write the results to this file")
    given = parser.parse_args()
    shape = (given.users, given.items)
    with tempfile.TemporaryDirectory(prefix="unskew-serve-") as place:
        folder = Path(place)
        runs = [make_run(folder / f"run{seed}", seed, *shape) for seed in (0, 10)]
        expected = {name_of(run): expected_scores(run, *shape) for run in runs}
        service = Service(folder / "run", folder / "state")
        shutil.copytree(runs[0], service.run)
        service.start()
        result: dict[str, Any] = {}
        try:
            if given.cost_requests:
                model = service.state / "models" / name_of(runs[0]) / "model.onnx"
                load_before = os.getloadavg()[0]
                result["cost"] = cost(service, model, shape, given.cost_requests)
                result["load"] = [load_before, os.getloadavg()[0]]
                cores = (
                    f"{os.cpu_count()} cores, load {load_before:.1f} before and {result['load'][1]:.1f} after"
                )
                show(f"Cost of a request ({cores})", result["cost"])
            if given.requests:
                load = Endurance(service, shape, expected, given.requests)
                result["endurance"] = asyncio.run(endure(load, runs, given.reloads, given.kills))
                show(
                    "Endurance",
                    [{"what": what, "count": count} for what, count in result["endurance"].items()],
                )
        finally:
            code = service.end()
    print(json.dumps(result))
    if given.json:
        Path(given.json).write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    bad = [each for each in result.get("endurance", {}) if each.startswith(("status", "wrong"))]
    return 1 if bad or code else 0


if __name__ == "__main__":
    sys.exit(main())
