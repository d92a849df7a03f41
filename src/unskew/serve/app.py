"""The application: Starlette routes behind one guard, which checks tokens, bounds time and counts."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    generate_latest,
)
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from unskew import __version__
from unskew.base.errors import UnskewError
from unskew.serve import logs
from unskew.serve.calibration import errors_of, figures_of
from unskew.serve.requests import OutcomeReader, TooLargeError
from unskew.serve.served_model import ServedModel
from unskew.serve.settings import ServeSettings
from unskew.serve.store import Store, UnknownRowError

WAITING_BYTES = 16 << 20
"""Bytes of all bodies that are not answered yet; a request beyond gets 503."""

INLINE_BYTES = 4 << 10
"""Bodies up to this are worked on by the loop itself; to hand them over would cost more."""

OPEN = frozenset({"/healthz", "/readyz"})
"""Paths that need no token."""

CLOSING = frozenset({401, 413, 503})
"""Answers after which the connection is closed: the rest of such a request is not read."""

NO_TOKEN = "the token is missing or wrong. To fix: send Authorization: Bearer TOKEN."
BUSY = "too many requests wait for their answers. To fix: try again in a second."


class Service:
    """The ASGI application of a service.

    Parameters
    ----------
    settings, store
        Its limits, and what it remembers.
    model
        The model to serve; it may be replaced at any time.
    """

    def __init__(self, settings: ServeSettings, store: Store, model: ServedModel) -> None:
        self.settings, self.store, self.model = settings, store, model
        self.draining = False
        self.metrics = Metrics()
        self._outcome_reader = OutcomeReader(settings.rows)
        # One thread works on large requests, so that the loop is free for those who ask for less.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="unskew")
        self._waiting = 0
        self._figures: tuple[tuple[str, int], dict[str, Any]] | None = None
        self._figures_lock = asyncio.Lock()
        routes = {"/score": self._score, "/outcomes": self._outcomes}
        pages = {
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/metrics": self._metrics_page,
            "/model": self._model_page,
            "/calibration": self._calibration_page,
        }
        self._paths = routes.keys() | pages.keys()
        self._routes = Starlette(
            routes=[
                *(Route(path, handle, methods=["POST"]) for path, handle in routes.items()),
                *(Route(path, handle) for path, handle in pages.items()),
            ],
            exception_handlers={HTTPException: _refused, UnskewError: _refused, Exception: _refused},
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request in time."""
        path = scope["path"] if scope["path"] in self._paths else "other"
        status, why, began = 0, b"", time.perf_counter()

        async def noted(message: Message) -> None:
            nonlocal status, why
            if message["type"] == "http.response.start":
                status = message["status"]
                if self.draining or status in CLOSING:
                    message["headers"] = [*message["headers"], (b"connection", b"close")]
            elif status >= 400:
                why = message.get("body", b"")
            await send(message)

        answer = _problem(503, f"not answered within {self.settings.timeout:g} s. To fix: send less at once.")
        try:
            with self.metrics.in_flight.track_inprogress():
                async with asyncio.timeout(self.settings.timeout):
                    allowed = path in OPEN or self._authorised(scope)
                    await (self._routes if allowed else _problem(401, NO_TOKEN))(scope, receive, noted)
        except TimeoutError:
            if not status:
                await answer(scope, receive, noted)
        except ClientDisconnect:
            return
        except Exception:
            # It was answered with 500; its text may quote the request.
            logs.REQUESTS.exception("defect", extra={"facts": {"path": path}})
        self._note(path, status, time.perf_counter() - began, why)

    def _note(self, path: str, status: int, seconds: float, why: bytes) -> None:
        self.metrics.requests.labels(path, str(status)).inc()
        self.metrics.seconds.labels(path).observe(seconds)
        if status < 400 and not self.settings.log_requests:
            return
        facts: dict[str, Any] = {"path": path, "status": status, "ms": round(seconds * 1e3, 3)}
        if why.startswith(b"{"):
            facts["why"] = json.loads(why)["error"]
        level = logging.INFO if status < 400 else logging.WARNING
        logs.REQUESTS.log(level, "request", extra={"facts": facts})

    def _authorised(self, scope: Scope) -> bool:
        if self.settings.token is None:
            return True
        kind, _, token = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        same = hmac.compare_digest(token.strip(), self.settings.token.encode())
        return same and kind.lower() == b"bearer"

    def close(self) -> None:
        """Wait for the work that goes on."""
        self._pool.shutdown()

    async def _answer(self, request: Request, work: Callable[[bytes], dict[str, Any]]) -> Response:
        """Read a body within its limits, and answer with what ``work`` makes of it in the pool."""
        most, size = self.settings.body_bytes, 0
        too_large = TooLargeError(f"the body has more than {most:,} bytes", remedy="send it in several parts")
        if not request.headers.get("content-type", "application/json").lower().startswith("application/json"):
            raise HTTPException(415, "the body is not JSON. To fix: send Content-Type: application/json.")
        if int(request.headers.get("content-length", 0)) > most:
            raise too_large
        parts = []
        try:
            async for part in request.stream():
                size += len(part)
                self._waiting += len(part)
                if size > most:
                    raise too_large
                if self._waiting > max(WAITING_BYTES, most):
                    raise HTTPException(503, BUSY, headers={"retry-after": "1"})
                parts.append(part)
            content = partial(_json_of, work, b"".join(parts))
            if size > INLINE_BYTES:
                answer = await asyncio.get_running_loop().run_in_executor(self._pool, content)
            else:
                answer = content()
            return Response(answer, media_type="application/json")
        finally:
            self._waiting -= size

    async def _score(self, request: Request) -> Response:
        return await self._answer(request, partial(self._scores_of, self.model))

    def _scores_of(self, model: ServedModel, body: bytes) -> dict[str, Any]:
        scored = model.score(model.reader.read(body))
        main = scored.outputs[model.main]
        self.metrics.count_scores(main, scored.unknown_users, scored.unknown_items)
        answer: dict[str, Any] = {
            "request": self.store.add(model.name, main),
            "model": model.name,
            "scores": _plain(main),
            "unknown_users": scored.unknown_users,
            "unknown_items": scored.unknown_items,
        }
        if len(scored.outputs) > 1:
            answer["outputs"] = {name: _plain(values) for name, values in scored.outputs.items()}
        return answer

    async def _outcomes(self, request: Request) -> Response:
        return await self._answer(request, partial(self._settled, self.model.name))

    def _settled(self, current: str, body: bytes) -> dict[str, Any]:
        counts = self.store.settle(self._outcome_reader.read(body), current)
        for result, count in counts.items():
            self.metrics.outcomes.labels(result).inc(count)
        return counts

    async def _healthz(self, request: Request) -> Response:
        return PlainTextResponse("alive\n")

    async def _readyz(self, request: Request) -> Response:
        return PlainTextResponse("ending\n", 503) if self.draining else PlainTextResponse("ready\n")

    async def _metrics_page(self, request: Request) -> Response:
        return Response(await asyncio.to_thread(self._metrics), media_type="text/plain; version=0.0.4")

    def _metrics(self) -> bytes:
        self.metrics.model.info({"model": self.model.name, "what": self.model.main})
        for name, value in errors_of(self.store.sketch(self.model.name)).items():
            self.metrics.calibration[name].set(value)
        self.metrics.draining.set(self.draining)
        return generate_latest(self.metrics.registry)

    async def _model_page(self, request: Request) -> Response:
        return JSONResponse(self.described())

    def described(self) -> dict[str, Any]:
        """Return what is served, as ``GET /model`` tells it."""
        import onnxruntime

        facts, settings = self.model.facts, self.settings
        return {
            "name": self.model.name,
            "folder": settings.run.name,
            "what": self.model.main,
            **{key: facts[key] for key in ("method", "backbone") if key in facts},
            "seeds": json.loads(facts.get("seeds", "[]")),
            "outputs": self.model.outputs,
            "unseen": self.model.unseen,
            "fields": list(self.model.reader.fields.values()),
            "limits": {"body_bytes": settings.body_bytes, "rows": settings.rows},
            "versions": {
                "unskew": __version__,
                "made_with": facts["unskew"],
                "onnxruntime": onnxruntime.__version__,
            },
        }

    async def _calibration_page(self, request: Request) -> Response:
        asked, models = request.query_params, await asyncio.to_thread(lambda: self.store.served)
        if asked.keys() - {"format", "model"} or asked.get("format", "json") not in ("json", "html"):
            raise HTTPException(422, "an unknown question. To fix: give ?format=html and ?model=NAME alone.")
        name = asked.get("model", self.model.name)
        if name not in models:
            raise HTTPException(404, "no such model was served here. To fix: see GET /calibration.")
        async with self._figures_lock:
            # One at a time: the intervals are some tenths of a second of work.
            sketch = await asyncio.to_thread(self.store.sketch, name)
            if self._figures is None or self._figures[0] != (name, sketch.rows):
                self._figures = (name, sketch.rows), await asyncio.to_thread(figures_of, sketch)
            figures = self._figures[1]
            if asked.get("format") == "html":
                from unskew.serve.page import render_page

                about = {**self.described(), "name": name}
                return HTMLResponse(await asyncio.to_thread(render_page, about, figures, sketch))
        return JSONResponse(
            {"model": name, **figures, "others": [other for other in models if other != name]}
        )


class Metrics:
    """Counters of one service, in a registry of their own."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self.model = Info("unskew_model", "The served model.", registry=registry)
        self.requests = Counter(
            "unskew_requests", "Requests answered.", ["path", "status"], registry=registry
        )
        self.seconds = Histogram("unskew_request_seconds", "Time of a request.", ["path"], registry=registry)
        self.rows = Counter("unskew_rows", "Rows scored.", registry=registry)
        self.score_sum = Counter("unskew_score_sum", "Sum of the scores.", registry=registry)
        self.unscored = Counter("unskew_rows_without_score", "Rows that got null.", registry=registry)
        self.unknown = Counter("unskew_unknown_ids", "Ids that training lacked.", ["side"], registry=registry)
        self.outcomes = Counter("unskew_outcomes", "Outcomes that came.", ["result"], registry=registry)
        self.reloads = Counter("unskew_reloads", "New run folders.", ["result"], registry=registry)
        self.in_flight = Gauge("unskew_in_flight", "Requests not answered yet.", registry=registry)
        self.draining = Gauge("unskew_draining", "1 while the service ends.", registry=registry)
        self.calibration = {
            name: Gauge(f"unskew_calibration_{name}", f"{about} of the served model.", registry=registry)
            for name, about in (
                ("rows", "Outcomes"),
                ("ece", "Expected calibration error"),
                ("wce", "Weight calibration error"),
                ("mean_over_rate", "Mean score ÷ rate of outcomes"),
            )
        }

    def count_scores(self, scores: Any, unknown_users: int, unknown_items: int) -> None:
        """Count the rows of an answer."""
        self.rows.inc(len(scores))
        self.score_sum.inc(float(np.nansum(scores)))
        self.unscored.inc(int(np.isnan(scores).sum()))
        self.unknown.labels("user").inc(unknown_users)
        self.unknown.labels("item").inc(unknown_items)


def _json_of(work: Callable[[bytes], dict[str, Any]], body: bytes) -> bytes:
    return json.dumps(work(body), separators=(",", ":"), allow_nan=False).encode()


def _plain(scores: Any) -> list[float | None]:
    """Return scores as JSON has them: null where there is none."""
    return [None if score != score else score for score in scores.tolist()]


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        # Starlette's own words have no remedy.
        text = (
            error.detail
            if "To fix" in error.detail
            else f"{error.detail.lower()}. To fix: see docs/serving.md."
        )
        return _problem(error.status_code, text, error.headers)
    if isinstance(error, UnskewError):
        status = (
            404 if isinstance(error, UnknownRowError) else 413 if isinstance(error, TooLargeError) else 422
        )
        return _problem(status, str(error))
    return _problem(500, "a defect of the service. To fix: see its log.")


def _problem(status: int, text: str, headers: Any = None) -> Response:
    """Return an error as one line of JSON."""
    return JSONResponse({"error": text}, status, headers)
