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
from unskew.audit.audit import audit
from unskew.audit.audit_result import AuditResult
from unskew.base.errors import UnskewError
from unskew.base.files import finite
from unskew.metrics import CalibrationSketch, ece, wce
from unskew.metrics.cells import Cells
from unskew.serve import logs
from unskew.serve.requests import OutcomeReader, TooLargeError
from unskew.serve.served_model import ServedModel
from unskew.serve.settings import ServeSettings
from unskew.serve.store import Store, UnknownRowError

WAITING_BYTES = 16 << 20
"""Bytes of all bodies that are not answered yet; a request beyond gets 503."""

INLINE_BYTES = 4 << 10
"""Bodies up to this are worked on by the loop itself; to hand them over would cost more."""

MEASURED_EVERY = 1.0
"""Seconds for which the calibration errors of ``/metrics`` hold, however often somebody asks."""

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
    settings, token, store
        Its limits, the bearer token that requests must send, if any, and what it remembers.
    model
        The model to serve; it may be replaced at any time.
    """

    def __init__(self, settings: ServeSettings, token: str | None, store: Store, model: ServedModel) -> None:
        self.settings, self.store, self.model = settings, store, model
        self.draining = False
        self.metrics = Metrics()
        self._token = token
        self._outcome_reader = OutcomeReader(settings.max_rows)
        # One thread works on large requests, so that the loop is free for those who ask for less.
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="unskew")
        self._waiting = 0
        self._audit_lock = asyncio.Lock()
        self._measured = -MEASURED_EVERY
        pages = {
            "/healthz": self._healthz,
            "/readyz": self._readyz,
            "/metrics": self._metrics_page,
            "/model": self._model_page,
            "/calibration": self._calibration_page,
        }
        posts = {"/score": self._score, "/outcomes": self._outcomes}
        self._paths = pages.keys() | posts.keys()
        # Starlette looks at one after the other: those that are asked for most come first.
        routes = [Route(path, handle, methods=["POST"]) for path, handle in posts.items()]
        routes += [Route(path, handle) for path, handle in pages.items()]
        refusals: Any = dict.fromkeys((HTTPException, UnskewError, Exception), _refused)
        self._routes = Starlette(routes=routes, exception_handlers=refusals)

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

        late = f"not answered within {self.settings.timeout:g} s. To fix: send less at once."
        try:
            with self.metrics.in_flight.track_inprogress():
                async with asyncio.timeout(self.settings.timeout):
                    allowed = path in OPEN or self._authorised(scope)
                    await (self._routes if allowed else _problem(401, NO_TOKEN))(scope, receive, noted)
        except TimeoutError:
            if not status:
                await _problem(503, late)(scope, receive, noted)
        except ClientDisconnect:
            return
        except Exception:
            # It was answered with 500; its text may quote the request.
            logs.REQUESTS.exception("defect", extra={"facts": {"path": path}})
        seconds = time.perf_counter() - began
        self.metrics.requests.labels(path, str(status)).inc()
        self.metrics.seconds.labels(path).observe(seconds)
        if status >= 400 or self.settings.log_requests:
            facts = {"path": path, "status": status, "ms": round(seconds * 1e3, 3)}
            facts |= {"why": json.loads(why)["error"]} if why.startswith(b"{") else {}
            level = logging.INFO if status < 400 else logging.WARNING
            logs.REQUESTS.log(level, "request", extra={"facts": facts})

    def _authorised(self, scope: Scope) -> bool:
        if self._token is None:
            return True
        kind, _, token = dict(scope["headers"]).get(b"authorization", b"").partition(b" ")
        return hmac.compare_digest(token.strip(), self._token.encode()) and kind.lower() == b"bearer"

    def close(self) -> None:
        """Wait for the work that goes on."""
        self._pool.shutdown()

    async def _answer(self, request: Request, work: Callable[[bytes], dict[str, Any]]) -> Response:
        """Read a body within its limits, and answer with what ``work`` makes of it."""
        most, size = self.settings.max_body, 0
        if not request.headers.get("content-type", "application/json").lower().startswith("application/json"):
            raise HTTPException(415, "the body is not JSON. To fix: send Content-Type: application/json.")
        if int(request.headers.get("content-length", 0)) > most:
            raise _too_large(most)
        chunks = []
        try:
            async for chunk in request.stream():
                size += len(chunk)
                self._waiting += len(chunk)
                if size > most:
                    raise _too_large(most)
                if self._waiting > max(WAITING_BYTES, most):
                    raise HTTPException(503, BUSY, headers={"retry-after": "1"})
                chunks.append(chunk)
            content = partial(_json_of, work, b"".join(chunks))
            if size <= INLINE_BYTES:
                return Response(content(), media_type="application/json")
            answer = await asyncio.get_running_loop().run_in_executor(self._pool, content)
            return Response(answer, media_type="application/json")
        finally:
            self._waiting -= size

    async def _score(self, request: Request) -> Response:
        return await self._answer(request, partial(self._scores_of, self.model))

    def _scores_of(self, model: ServedModel, body: bytes) -> dict[str, Any]:
        scored = model.score(model.reader.read(body))
        self.metrics.count_scores(scored.outputs[model.main], scored.unknown_users, scored.unknown_items)
        scores = {
            name: [None if score != score else score for score in values.tolist()]
            for name, values in scored.outputs.items()
        }
        return {
            "request": self.store.add(model.name, scored.outputs[model.main]),
            "model": model.name,
            "scores": scores[model.main],
            "unknown_users": scored.unknown_users,
            "unknown_items": scored.unknown_items,
            **({"outputs": scores} if len(scores) > 1 else {}),
        }

    async def _outcomes(self, request: Request) -> Response:
        return await self._answer(request, self._settled)

    def _settled(self, body: bytes) -> dict[str, Any]:
        counts = self.store.settle(self._outcome_reader.records(body))
        for result, count in counts.items():
            self.metrics.outcomes.labels(result).inc(count)
        return counts

    async def _healthz(self, request: Request) -> Response:
        return PlainTextResponse("alive\n")

    async def _readyz(self, request: Request) -> Response:
        return PlainTextResponse("ending\n", 503) if self.draining else PlainTextResponse("ready\n")

    async def _metrics_page(self, request: Request) -> Response:
        async with self._audit_lock:
            if time.monotonic() >= self._measured + MEASURED_EVERY:
                cells = await asyncio.to_thread(self.store.cells, self.model.name)
                await asyncio.to_thread(self.metrics.measure, cells.whole())
                self._measured = time.monotonic()
        text = self.metrics.page(self.model, self.draining)
        return Response(text, media_type="text/plain; version=0.0.4")

    async def _model_page(self, request: Request) -> Response:
        return JSONResponse(self.described())

    def described(self) -> dict[str, Any]:
        """Return what is served, as ``GET /model`` tells it."""
        import onnxruntime

        facts, settings = self.model.facts, self.settings
        made_with = {"made_with": facts["unskew"], "onnxruntime": onnxruntime.__version__}
        return {
            "name": self.model.name,
            "folder": settings.run.name,
            "what": self.model.main,
            **{key: facts[key] for key in ("method", "learner") if key in facts},
            "seeds": json.loads(facts.get("seeds", "[]")),
            "outputs": self.model.outputs,
            "unseen": self.model.unseen,
            "fields": list(self.model.reader.fields.values()),
            "limits": {"body_bytes": settings.max_body, "rows": settings.max_rows},
            "versions": {"unskew": __version__, **made_with},
        }

    async def _calibration_page(self, request: Request) -> Response:
        asked, models = request.query_params, await asyncio.to_thread(lambda: self.store.served)
        if asked.keys() - {"format", "model"} or asked.get("format", "json") not in ("json", "html"):
            raise HTTPException(422, "an unknown question. To fix: give ?format=html and ?model=NAME alone.")
        name = asked.get("model", self.model.name)
        if name not in models:
            raise HTTPException(404, "no such model was served here. To fix: see GET /calibration.")
        async with self._audit_lock:
            # One at a time: the intervals are some tenths of a second of work.
            cells = await asyncio.to_thread(self.store.cells, name)
            if asked.get("format") == "html":
                return HTMLResponse(await asyncio.to_thread(_page, cells, self.model.main))
            figures = await asyncio.to_thread(_figures, cells, self.model.main)
        others = [other for other in models if other != name]
        return JSONResponse({"model": name, **figures, "others": others})


class Metrics:
    """Counters of one service, in a registry of their own."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)

        def made(kind: Any, name: str, about: str, *labels: str) -> Any:
            return kind(f"unskew_{name}", about, labels, registry=self._registry)

        self.model = made(Info, "model", "The served model.")
        self.requests = made(Counter, "requests", "Requests answered.", "path", "status")
        self.seconds = made(Histogram, "request_seconds", "Time of a request.", "path")
        self.rows = made(Counter, "rows", "Rows scored.")
        self.score_sum = made(Counter, "score_sum", "Sum of the scores.")
        self.unscored = made(Counter, "rows_without_score", "Rows that got null.")
        self.unknown = made(Counter, "unknown_ids", "Ids that training lacked.", "side")
        self.outcomes = made(Counter, "outcomes", "Outcomes that came.", "result")
        self.reloads = made(Counter, "reloads", "New run folders.", "result")
        self.in_flight = made(Gauge, "in_flight", "Requests not answered yet.")
        self.draining = made(Gauge, "draining", "1 while the service ends.")
        self.calibration = {
            name: made(Gauge, f"calibration_{name}", f"{about} of the served model.")
            for name, about in (
                ("rows", "Outcomes"),
                ("ece", "Expected calibration error"),
                ("wce", "Weight calibration error"),
                ("mean_over_rate", "Mean score ÷ rate of outcomes"),
            )
        }

    def count_scores(self, scores: Any, unknown_users: int, unknown_items: int) -> None:
        """Count the rows of an answer."""
        known = scores[scores == scores]
        self.rows.inc(len(scores))
        self.score_sum.inc(float(known.sum()))
        self.unscored.inc(len(scores) - len(known))
        self.unknown.labels("user").inc(unknown_users)
        self.unknown.labels("item").inc(unknown_items)

    def page(self, model: ServedModel, draining: bool) -> bytes:
        """Return all of them, as Prometheus reads them."""
        self.model.info({"model": model.name, "what": model.main})
        self.draining.set(draining)
        return generate_latest(self._registry)

    def measure(self, sketch: CalibrationSketch) -> None:
        """Set the calibration errors so far."""
        figures = {"rows": sketch.rows, "ece": np.nan, "wce": np.nan, "mean_over_rate": np.nan}
        if sketch.rows:
            level = sketch.mean_score / sketch.base_rate if sketch.base_rate else np.inf
            figures |= {"ece": ece(sketch), "wce": wce(sketch), "mean_over_rate": level}
        for name, value in figures.items():
            self.calibration[name].set(value)


def _audited(cells: Cells, output: str) -> AuditResult | str:
    """Audit the outcomes of a model; return a sentence where there is nothing to judge yet."""
    sketch = cells.whole()
    if not sketch.total:
        return "No outcomes have arrived yet."
    if not 0 < sketch.positives < sketch.total:
        return f"Undecided: all {sketch.rows:,} outcomes are the same."
    return audit(cells, score="score", outcome=output)


def _figures(cells: Cells, output: str) -> dict[str, Any]:
    result = _audited(cells, output)
    if isinstance(result, str):
        return {"rows": cells.whole().rows, "healthy": None, "verdict": result}
    figures: dict[str, Any] = finite(result.to_dict())
    return figures


def _page(cells: Cells, output: str) -> str:
    from unskew.report.audit_report import render_audit_report

    result = _audited(cells, output)
    if isinstance(result, str):
        return f"<!doctype html><title>unskew serve</title><p>{result}"
    return render_audit_report(result)


def _json_of(work: Callable[[bytes], dict[str, Any]], body: bytes) -> bytes:
    return json.dumps(work(body), separators=(",", ":"), allow_nan=False).encode()


def _too_large(most: int) -> TooLargeError:
    return TooLargeError(f"the body has more than {most:,} bytes", remedy="send it in several parts")


async def _refused(request: Request, error: Exception) -> Response:
    if isinstance(error, HTTPException):
        # Starlette's own words have no remedy.
        remedy = "" if "To fix" in error.detail else ". To fix: see docs/guides/serve.md."
        text = f"{error.detail}{remedy}" if not remedy else f"{error.detail.lower()}{remedy}"
        return _problem(error.status_code, text, error.headers)
    if isinstance(error, UnskewError):
        statuses: dict[type[UnskewError], int] = {UnknownRowError: 404, TooLargeError: 413}
        return _problem(statuses.get(type(error), 422), str(error))
    return _problem(500, "a defect of the service. To fix: see its log.")


def _problem(status: int, text: str, headers: Any = None) -> Response:
    """Return an error as one line of JSON."""
    return JSONResponse({"error": text}, status, headers)
