"""The service from its first line to its last: opened, watched over, ended without losing a request."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import uvicorn

from unskew.errors import ParameterError, RunFolderError, UnskewError
from unskew.metrics.sketch import load_pass
from unskew.serve import logs
from unskew.serve.answered import Answered
from unskew.serve.app import App
from unskew.serve.calibration import Calibration
from unskew.serve.counters import Counters
from unskew.serve.protocol import KEEP_ALIVE_SECONDS, MOST_CONNECTIONS, Protocol
from unskew.serve.reload import Loader, Reloader, fingerprint
from unskew.serve.served_model import ServedModel
from unskew.serve.settings import ServeSettings
from unskew.serve.state import State

BACKLOG = 2048


class Server(uvicorn.Server):
    """Uvicorn's, which is asked to end before it closes connections."""

    asked_to_end: Callable[[], None]

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """SIGINT and SIGTERM end the service, and are not raised again afterwards: it has ended as asked."""
        loop = asyncio.get_running_loop()
        handled = (signal.SIGINT, signal.SIGTERM)
        before = {each: signal.getsignal(each) for each in handled}
        try:
            for each in handled:
                loop.add_signal_handler(each, self.asked_to_end)
        except (NotImplementedError, RuntimeError):
            # Not on this system, or not in the main thread.
            yield
            return
        try:
            yield
        finally:
            for each, handler in before.items():
                loop.remove_signal_handler(each)
                signal.signal(each, handler)

    def close_stalled(self) -> None:
        """Close connections on which nothing came for too long."""
        now = time.perf_counter()
        for each in list(self.server_state.connections):
            if isinstance(each, Protocol) and each.closes_at is not None and each.closes_at < now:
                each.close_stalled()


def serve(settings: ServeSettings, ready: Callable[[str], None] | None = None) -> None:
    """Serve a run folder until a signal ends it.

    Parameters
    ----------
    settings
        What is served, where, and its limits.
    ready
        Called with the address when requests are taken.
    """
    listening = _bound(settings)
    try:
        state = State(settings.state)
        try:
            _runner()(_serve(settings, state, listening, ready))
        finally:
            state.close()
    finally:
        listening.close()


def _runner() -> Callable[[Any], Any]:
    """uvloop's, where it is: half the cost of a small request."""
    try:
        import uvloop
    except ImportError:
        return asyncio.run
    return uvloop.run


def _bound(settings: ServeSettings) -> socket.socket:
    """A socket at the address, before any long work."""
    listening: socket.socket | None = None
    try:
        found = socket.getaddrinfo(settings.host, settings.port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(found[0], found[1])
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
    settings: ServeSettings, state: State, listening: socket.socket, ready: Callable[[str], None] | None
) -> None:
    loader = Loader(settings, state)
    seen = fingerprint(settings.run)
    model = await _first_model(loader)
    calibration = Calibration(state.sketches)
    for why in calibration.refused:
        logs.write("sketch refused", level="error", why=why)
    answered = Answered(state.answered, settings.remember)
    counters = Counters()
    pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="unskew-large")
    app = App(settings, model, answered, calibration, counters, pool)
    state.serve(model.name)
    # What is here stays: the collector need not look at it again with every few requests.
    gc.freeze()

    def serve_now(new: ServedModel) -> None:
        app.serve(new)
        state.serve(new.name)

    server = Server(
        uvicorn.Config(
            app,
            interface="asgi3",
            http=Protocol,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            date_header=False,
            limit_concurrency=MOST_CONNECTIONS,
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=int(settings.timeout) + 1,
            backlog=BACKLOG,
        )
    )
    ending = asyncio.Event()
    server.asked_to_end = ending.set
    reloader = Reloader(loader, counters, serve_now, model.name, seen)
    tasks = [
        asyncio.create_task(_drain(app, server, ending, settings.drain)),
        asyncio.create_task(reloader.watch(settings.look_every)),
        asyncio.create_task(_save(calibration, settings.save_every)),
        asyncio.create_task(_give_up(app, server, settings.timeout)),
    ]
    tasks.append(asyncio.create_task(_announce(server, settings, listening, app, ready)))
    # The compiled pass over scores takes a second to load, which the first outcomes need not wait for.
    tasks.append(asyncio.create_task(asyncio.to_thread(load_pass)))
    try:
        await server.serve(sockets=[listening])
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        pool.shutdown()
        calibration.save()
        logs.write("ended", requests=server.server_state.total_requests)


async def _first_model(loader: Loader) -> ServedModel:
    """The model of the run folder; where that is damaged, the one that was served before."""
    try:
        return await loader.load(loader.name())
    except UnskewError as error:
        model = await loader.last()
        if model is None:
            raise
        logs.write(
            "run refused", level="error", run=str(loader.settings.run), why=str(error), serving=model.name
        )
        return model


async def _announce(
    server: Server,
    settings: ServeSettings,
    listening: socket.socket,
    app: App,
    ready: Callable[[str], None] | None,
) -> None:
    while not server.started:
        await asyncio.sleep(0.01)
    host, port = listening.getsockname()[:2]
    address = f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
    logs.write("serving", address=address, pid=os.getpid(), **_said_of(app))
    if host not in ("127.0.0.1", "::1") and settings.token is None:
        logs.write("no token", level="warning", why=f"whoever reaches {host} may ask; see --token-file")
    if ready is not None:
        ready(address)


def _said_of(app: App) -> dict[str, Any]:
    model = app.model
    return {
        "run": str(app.settings.run),
        "state": str(app.settings.state),
        "model": model.name,
        "outcomes": app.calibration.sketch(model.name).rows,
        "scores_forgotten": app.answered.begun_anew,
    }


async def _drain(app: App, server: Server, ending: asyncio.Event, seconds: float) -> None:
    """After the signal: say so, answer on, and let each connection end with an answer of its own."""
    await ending.wait()
    app.draining = True
    logs.write("ending", in_flight=app.counters.in_flight)
    waited = time.monotonic() + seconds
    while time.monotonic() < waited and server.server_state.connections:
        await asyncio.sleep(0.02)
    server.should_exit = True


async def _save(calibration: Calibration, every: float) -> None:
    while True:
        await asyncio.sleep(every)
        try:
            await asyncio.to_thread(calibration.save)
        except (OSError, RunFolderError) as error:
            # A full disk is the operator's to mend; the sketch goes on in memory, and says that it is behind.
            logs.write("sketch not saved", level="error", why=str(error))


async def _give_up(app: App, server: Server, seconds: float) -> None:
    """End requests that take too long to come in or to be answered."""
    while True:
        await asyncio.sleep(min(1.0, seconds / 4))
        server.close_stalled()
        app.end_overdue()
