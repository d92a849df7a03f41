"""The service from its first line to its last: opened, watched over, ended without losing a request."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import socket
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from unskew.base.errors import ParameterError
from unskew.serve import logs
from unskew.serve.app import Service
from unskew.serve.runs import Runs
from unskew.serve.settings import ServeSettings
from unskew.serve.store import Store

CONNECTIONS = 512
"""Connections that are served; requests of more get 503."""

HEAD_BYTES = 16 << 10
"""The longest head of a request."""

READ_BYTES = 16 << 10
"""Bytes that are read at once."""

AHEAD_BYTES = 64 << 10
"""Bytes that a client may send before its last request is answered."""


class Connection(H11Protocol):
    """Uvicorn's connection, which a client that sends requests and reads no answers cannot fill."""

    def connection_made(self, transport: Any) -> None:
        """Read in small pieces, so that many busy connections leave time for the others."""
        transport.max_size = READ_BYTES
        super().connection_made(transport)

    def data_received(self, data: bytes) -> None:
        """Take bytes; uvicorn goes on reading while it awaits a body, however many requests wait already."""
        super().data_received(data)
        if len(self.conn.trailing_data[0]) > AHEAD_BYTES:
            self.transport.abort()


class Server(uvicorn.Server):
    """Uvicorn's server, which drains before it closes connections, and ends those that do not move."""

    def __init__(self, config: uvicorn.Config, service: Service, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._service, self._started = service, started
        self._moved: dict[Any, tuple[object, float]] = {}

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start, and say so."""
        await super().startup(sockets)
        self._started()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Drain at SIGINT and SIGTERM; the signal is not raised again afterwards."""
        self._service.draining = True

    async def drain(self, seconds: float) -> None:
        """Wait for the signal, answer on, and let each connection end with an answer of its own."""
        while not self._service.draining:
            await asyncio.sleep(0.05)
        logs.write("ending")
        until = time.monotonic() + seconds
        while time.monotonic() < until and self.server_state.connections:
            await asyncio.sleep(0.02)
        self.should_exit = True

    async def end_stalled(self, seconds: float) -> None:
        """Abort connections on which no request began or ended for too long.

        Uvicorn bounds the time between two requests only: neither that of a head, nor that of an answer
        which nobody reads.
        """
        while True:
            await asyncio.sleep(min(1.0, seconds / 4))
            now, before = time.monotonic(), self._moved
            self._moved = {}
            for connection in list(self.server_state.connections):
                cycle = getattr(connection, "cycle", None)
                step = (id(cycle), cycle is None or cycle.response_complete)
                last, since = before.get(connection, (None, now))
                self._moved[connection] = (step, since if step == last else now)
                if step == last and now - since > seconds:
                    connection.transport.abort()


def serve(
    settings: ServeSettings,
    token: str | None,
    own_code: tuple[Path, ...] = (),
    ready: Callable[[str], None] = lambda address: None,
) -> None:
    """Serve a run folder until a signal ends it; ``ready`` is called with the address once it answers."""
    logs.configure()
    with closing(_bound(settings)) as listening, closing(Store(settings.folder, settings.remember)) as store:
        asyncio.run(_serve(settings, token, Runs(settings, own_code, store), store, listening, ready))


def _bound(settings: ServeSettings) -> socket.socket:
    """Return a socket at the address, before any long work."""
    listening: socket.socket | None = None
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        # With the protocol named asyncio sends small answers at once (TCP_NODELAY).
        listening = socket.socket(*found[:3])
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(found[4])
    except OSError as error:
        if listening is not None:
            listening.close()
        raise ParameterError(
            f"cannot listen at {settings.host}:{settings.port} ({error.strerror})",
            remedy="give another --host or --port",
        ) from error
    return listening


async def _serve(
    settings: ServeSettings,
    token: str | None,
    runs: Runs,
    store: Store,
    listening: socket.socket,
    ready: Callable[[str], None],
) -> None:
    model = await runs.first()
    service = Service(settings, token, store, model)
    # What is here stays: the collector need not look at it again with every few requests.
    gc.freeze()

    def started() -> None:
        host, port = listening.getsockname()[:2]
        address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
        folders = {"run": str(settings.run), "state": str(settings.folder)}
        logs.write("serving", address=address, pid=os.getpid(), model=model.name, **folders)
        if host not in ("127.0.0.1", "::1") and token is None:
            why = f"whoever reaches {host} may ask; see --token-file"
            logs.write("no token", logging.WARNING, why=why)
        ready(address)

    config = uvicorn.Config(
        service,
        interface="asgi3",
        loop="asyncio",
        http=Connection,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=CONNECTIONS,
        h11_max_incomplete_event_size=HEAD_BYTES,
        timeout_keep_alive=max(1, round(settings.timeout)),
        timeout_graceful_shutdown=round(settings.timeout) + 1,
    )
    server = Server(config, service, started)
    tasks = [
        asyncio.create_task(server.drain(settings.drain)),
        asyncio.create_task(server.end_stalled(settings.timeout)),
        asyncio.create_task(_watch(runs, service, settings.reload_every)),
    ]
    try:
        await server.serve(sockets=[listening])
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        service.close()
        logs.write("ended", requests=server.server_state.total_requests)


async def _watch(runs: Runs, service: Service, every: float) -> None:
    """Serve each new run folder; whatever is wrong with one must not end the service of the old one."""
    while True:
        await asyncio.sleep(every)
        try:
            model = await runs.look()
        except Exception:
            service.metrics.reloads.labels("refused").inc()
            continue
        if model is not None:
            service.model = model
            service.metrics.reloads.labels("loaded").inc()
            logs.write("run loaded", model=model.name, method=model.facts.get("method"))
