"""The application: what each path answers. ``/score`` and ``/outcomes`` are plain ASGI, the rest Starlette's.

One thread reads requests and runs the model for small ones, all that came in at once in one call; large ones
go to another thread, while this one goes on.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import Executor
from functools import partial
from time import perf_counter
from typing import Any, TypeVar

import numpy as np
import orjson
import pyarrow as pa
from numpy.typing import NDArray
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from unskew.errors import DataError
from unskew.serve import logs
from unskew.serve.answered import FORGOTTEN, KNOWN, Answered
from unskew.serve.batcher import Batcher, Scored
from unskew.serve.bodies import ARROW, JSON, Outcome, TooManyRowsError, read_outcomes, read_rows
from unskew.serve.calibration import Calibration, Outcomes
from unskew.serve.counters import Counters, Metrics
from unskew.serve.served_model import Parts, ServedModel
from unskew.serve.settings import ServeSettings

INLINE_BYTES = 1 << 15
"""Bodies up to this are read by the thread that reads requests; to hand them over would cost more."""

INLINE_ROWS = 256
"""… and rows up to this are scored by it."""

FAILURES_A_SECOND = 20
"""Lines of the log about requests that failed; more in a second are counted, and reported in one."""

OPEN_TO_ALL = frozenset({"/healthz", "/readyz"})

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Headers = dict[bytes, bytes]
Done = TypeVar("Done")
Score = NDArray[np.float32]
Fields = list[tuple[bytes, bytes]]
Answer = tuple[int, Fields, bytes]


class RefusedError(Exception):
    """A request that is not answered with what it asks for."""

    def __init__(self, status: int, line: str, *further: tuple[bytes, bytes]) -> None:
        super().__init__(line)
        self.status, self.further = status, further


class App:
    """The ASGI application, with a short way for small requests (:mod:`unskew.serve.protocol`).

    Parameters
    ----------
    settings, model, answered, calibration, counters
        What it works with; ``model`` may be replaced by :meth:`serve` at any time.
    pool
        The thread of large requests.
    """

    def __init__(
        self,
        settings: ServeSettings,
        model: ServedModel,
        answered: Answered,
        calibration: Calibration,
        counters: Counters,
        pool: Executor,
    ) -> None:
        self.settings, self.answered, self.calibration = settings, answered, calibration
        self.counters, self.pool = counters, pool
        self.draining = False
        self._waiting: dict[asyncio.Task[Any], float] = {}
        """Requests that are not answered yet, and since when."""
        self._overdue: set[asyncio.Task[Any]] = set()
        self._failures = (0, 0)
        self._page: tuple[tuple[str, int], str] | None = None
        self._page_lock = asyncio.Lock()
        self._metrics = Metrics(counters, self._gauges, self._labels)
        self._token = None if settings.token is None else settings.token.encode()
        self._hot = {"/score": self._score, "/outcomes": self._outcomes}
        self._cold = Starlette(
            routes=[
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
                Route("/metrics", self._metrics_page),
                Route("/model", self._model_page),
                Route("/calibration", self._calibration_page),
            ]
        )
        self._batcher = Batcher(model, self._remember)
        self.serve(model)

    def serve(self, model: ServedModel) -> None:
        """Answer with this model from now on; what was read for another is scored by that one."""
        self.flush()
        self.calibration.serve(model.name)
        self.model = model
        self._batcher = Batcher(model, self._remember)

    def flush(self) -> None:
        """Answer what waits for its turn."""
        self._batcher.flush()

    def is_short(self, headers: Headers) -> bool:
        """Whether a request for scores may go the short way, by its head; what is refused may not."""
        if self.draining or b"content-length" not in headers:
            return False
        try:
            self._authorise(headers)
            size = self._admitted(headers)
        except RefusedError:
            return False
        return (
            size <= INLINE_BYTES
            and headers.get(b"content-type", JSON) == JSON
            and ARROW not in headers.get(b"accept", b"")
        )

    def score_shortly(self, body: bytes, began: float, answer: Callable[[int, Fields, bytes], None]) -> bool:
        """Give a small request its answer in this turn of the loop; False where it has many rows."""
        batcher, counters = self._batcher, self.counters
        model = batcher.model

        def tell(found: Scored | Exception) -> None:
            counters.in_flight -= 1
            if isinstance(found, Exception):
                status, further, content = self._refusal("/score", found)
            else:
                status, further, content = 200, [JSON_TYPE], self._json(model, parts, *found)
            answer(status, further, content)
            self._note("/score", status, began, content)

        counters.in_flight += 1
        try:
            parts = read_rows(model, body, arrow=False, most=self.settings.rows)
        except Exception as error:
            tell(error)
            return True
        if parts.rows > INLINE_ROWS:
            counters.in_flight -= 1
            return False
        batcher.add(parts, tell)
        return True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return
        began = perf_counter()
        path: str = scope["path"]
        handle = self._hot.get(path)
        if handle is None:
            await self._cold_path(scope, receive, send, began)
            return
        counters, size = self.counters, 0
        headers: Headers = dict(scope["headers"])
        try:
            self._authorise(headers)
            if scope["method"] != "POST":
                raise RefusedError(405, "To fix: POST to this path.", (b"allow", b"POST"))
            size = self._admitted(headers)
            counters.in_flight += 1
            counters.in_flight_bytes += size
            waiting = asyncio.current_task()
            assert waiting is not None
            self._waiting[waiting] = began
            try:
                body = await self._body(receive)
                if body is None:
                    return
                status, further, content = await handle(headers, body)
            except asyncio.CancelledError:
                if waiting not in self._overdue:
                    raise
                waiting.uncancel()
                raise TimeoutError from None
            finally:
                del self._waiting[waiting]
                self._overdue.discard(waiting)
                counters.in_flight -= 1
                counters.in_flight_bytes -= size
        except Exception as error:
            status, further, content = self._refusal(path, error)
        further.append((b"content-length", str(len(content)).encode()))
        if self.draining:
            further.append(CLOSE)
        await send({"type": "http.response.start", "status": status, "headers": further})
        await send({"type": "http.response.body", "body": content})
        self._note(path, status, began, content)

    def _refusal(self, path: str, error: Exception) -> Answer:
        """What a request is answered that something is wrong with."""
        if isinstance(error, RefusedError):
            return error.status, [*error.further, TEXT], f"{error}\n".encode()
        if isinstance(error, DataError):
            return 413 if isinstance(error, TooManyRowsError) else 422, [TEXT], f"{error}\n".encode()
        if isinstance(error, TimeoutError):
            late = (
                f"not received and answered within {self.settings.timeout:g} s. To fix: send less at once.\n"
            )
            return 503, [TEXT, RETRY, CLOSE], late.encode()
        logs.write("defect", level="error", path=path, error=f"{type(error).__name__}: {error}")
        return 500, [TEXT], b"a defect of the service, which its log names\n"

    def end_overdue(self) -> None:
        """Give up requests that have taken too long: one look at all costs less than a timer for each."""
        latest = perf_counter() - self.settings.timeout
        for task, began in list(self._waiting.items()):
            if began < latest:
                self._overdue.add(task)
                task.cancel()

    def _note(self, path: str, status: int, began: float, content: bytes) -> None:
        seconds = perf_counter() - began
        self.counters.answered(path, status, seconds)
        if status < 400 and not self.settings.log_requests:
            return
        second, count = self._failures
        if status >= 400 and not self.settings.log_requests:
            now = int(began)
            if now == second and count >= FAILURES_A_SECOND:
                self._failures = (second, count + 1)
                return
            if now != second and count > FAILURES_A_SECOND:
                logs.write("requests failed", level="warning", not_shown=count - FAILURES_A_SECOND)
            self._failures = (now, count + 1 if now == second else 1)
        why = {"why": content.decode(errors="replace").strip()} if status >= 400 else {}
        level: logs.Level = "info" if status < 400 else "warning"
        logs.write("request", level=level, path=path, status=status, ms=round(seconds * 1e3, 3), **why)

    def _authorise(self, headers: Headers) -> None:
        if self._token is None:
            return
        given = headers.get(b"authorization", b"")
        kind, _, token = given.partition(b" ")
        right = hmac.compare_digest(token.strip(), self._token)
        if kind.lower() != b"bearer" or not right:
            raise RefusedError(
                401,
                "the request bears no token, or another. To fix: send Authorization: Bearer TOKEN.",
                (b"www-authenticate", b"Bearer"),
                CLOSE,
            )

    def _admitted(self, headers: Headers) -> int:
        """Bytes that a request may have; refused where it is too large, or too many wait."""
        settings, counters = self.settings, self.counters
        length = headers.get(b"content-length")
        size = settings.body_bytes if length is None else int(length)
        if size > settings.body_bytes:
            raise self._too_large()
        if counters.in_flight >= settings.queue or (
            counters.in_flight_bytes + size > settings.queue_bytes and counters.in_flight
        ):
            raise RefusedError(
                429, "too many requests wait for their answers. To fix: try again in a second.", RETRY
            )
        return size

    def _too_large(self) -> RefusedError:
        most = self.settings.body_bytes
        return RefusedError(
            413, f"the body has more than {most:,} bytes. To fix: send it in several parts.", CLOSE
        )

    async def _body(self, receive: Receive) -> bytes | None:
        """The body; None where the client has left."""
        message = await receive()
        if message["type"] == "http.disconnect":
            return None
        body: bytes = message.get("body", b"")
        if not message.get("more_body"):
            return body
        parts, size = [body], len(body)
        while message.get("more_body"):
            message = await receive()
            if message["type"] == "http.disconnect":
                return None
            parts.append(message.get("body", b""))
            size += len(parts[-1])
            if size > self.settings.body_bytes:
                raise self._too_large()
        return b"".join(parts)

    async def _score(self, headers: Headers, body: bytes) -> Answer:
        arrow = _is_arrow(headers.get(b"content-type", JSON))
        model, batcher = self.model, self._batcher
        read = partial(read_rows, model, body, arrow=arrow, most=self.settings.rows)
        parts = read() if len(body) <= INLINE_BYTES else await self._in_pool(read)
        if parts.rows <= INLINE_ROWS:
            scores, first = await batcher.score(parts)
        else:
            scores = await self._in_pool(partial(model.score, parts))
            first = self._remember(model, scores)
        return self._scored(headers, model, parts, scores, first)

    async def _in_pool(self, work: Callable[[], Done]) -> Done:
        return await asyncio.get_running_loop().run_in_executor(self.pool, work)

    def _scored(
        self, headers: Headers, model: ServedModel, parts: Parts, scores: Score, first: int
    ) -> Answer:
        if ARROW not in headers.get(b"accept", b""):
            return 200, [JSON_TYPE], self._json(model, parts, scores, first)
        self._count_unknown(model, parts)
        request = self.answered.request_id(first)
        return (
            200,
            [(b"content-type", ARROW), (b"x-request-id", request.encode())],
            _arrow(scores, model.unknown(parts), {"request": request, "model": model.name}),
        )

    def _json(self, model: ServedModel, parts: Parts, scores: Score, first: int) -> bytes:
        users, items = self._count_unknown(model, parts)
        return orjson.dumps(
            {
                "request": self.answered.request_id(first),
                "model": model.name,
                "scores": scores,
                "unknown_users": users,
                "unknown_items": items,
            },
            option=orjson.OPT_SERIALIZE_NUMPY,
        )

    def _count_unknown(self, model: ServedModel, parts: Parts) -> tuple[int, int]:
        users, items = model.count_unknown(parts)
        counted = self.counters.unknown
        counted["user"] += users
        counted["item"] += items
        return users, items

    def _remember(self, model: ServedModel, scores: Score) -> int:
        self.counters.scored(scores)
        return self.answered.add(scores, model.number)

    async def _outcomes(self, headers: Headers, body: bytes) -> Answer:
        if _is_arrow(headers.get(b"content-type", JSON)):
            raise DataError("outcomes are not read from Arrow", remedy="send them as JSON")
        read = partial(read_outcomes, body, most=self.settings.rows)
        if len(body) <= INLINE_BYTES:
            came = read()
        else:
            came = await self._in_pool(read)
        counts = self._count_outcomes(came)
        self.counters.outcomes.update(counts)
        return 200, [JSON_TYPE], orjson.dumps({**counts, "saved_within_seconds": self.settings.save_every})

    def _count_outcomes(self, came: list[Outcome]) -> dict[str, int]:
        """Put outcomes to the sketches of their models; how many were, and what became of the others."""
        counts = {"counted": 0, "known": 0, "forgotten": 0, "unscored": 0}
        models = {name: int(name[:8], 16) for name in self.calibration.models}
        of_scores: Outcomes = {}
        of_rows: dict[int, Outcome] = {}
        numbers = [
            None if each.request is None else self.answered.row_of(each.request, each.row) for each in came
        ]
        for each in came:
            if each.model is not None and each.model not in models:
                raise DataError(
                    f"no outcomes are kept of a model {each.model!r}",
                    remedy="give one that /calibration lists",
                )
        for each, number in zip(came, numbers, strict=True):
            if each.request is None:
                model = models[each.model or self.model.name]
                of_scores.setdefault(model, []).append((each.score, each.outcome, each.weight))
                counts["counted"] += 1
                continue
            found = self.answered.find(number)
            if found == KNOWN or number in of_rows:
                counts["known"] += 1
            elif found == FORGOTTEN or number is None:
                counts["forgotten"] += 1
            else:
                of_rows[number] = each
        score, model_of = self.answered.take(list(of_rows))
        for each, p, model in zip(of_rows.values(), score.tolist(), model_of.tolist(), strict=True):
            if p != p:
                counts["unscored"] += 1
            elif model not in models.values():
                counts["forgotten"] += 1
            else:
                of_scores.setdefault(model, []).append((p, each.outcome, each.weight))
                counts["counted"] += 1
        self.calibration.add(of_scores)
        return counts

    async def _cold_path(self, scope: Scope, receive: Receive, send: Send, began: float) -> None:
        status = 500

        async def noted(message: MutableMapping[str, Any]) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                if self.draining:
                    message["headers"] = [*message["headers"], CLOSE]
            await send(message)

        path = scope["path"]
        known = any(route.path == path for route in self._cold.routes if isinstance(route, Route))
        try:
            if path not in OPEN_TO_ALL:
                self._authorise(dict(scope["headers"]))
            if not known:
                raise RefusedError(404, "there is nothing here. To fix: see docs/serving.md for the paths.")
            await self._cold(scope, receive, noted)
        except RefusedError as error:
            refusal = Response(f"{error}\n", error.status, {k.decode(): v.decode() for k, v in error.further})
            await refusal(scope, receive, noted)
        # Paths that strangers make up are one in the counts.
        self._note(path if known else "other", status, began, b"")

    async def _healthz(self, request: Request) -> Response:
        return Response("alive\n", media_type="text/plain")

    async def _readyz(self, request: Request) -> Response:
        if self.draining:
            return Response("ending\n", 503, media_type="text/plain")
        return Response("ready\n", media_type="text/plain")

    async def _metrics_page(self, request: Request) -> Response:
        # By this thread, which alone adds to the counts.
        self.counters.settle()
        page = await asyncio.to_thread(self._metrics.page)
        return Response(page, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def _model_page(self, request: Request) -> Response:
        return _json_response(self.described())

    async def _calibration_page(self, request: Request) -> Response:
        asked = request.query_params
        if asked.keys() - {"format", "model"} or asked.get("format", "json") not in ("json", "html"):
            return Response("To fix: give ?format=html, ?format=json and ?model=NAME alone.\n", 422)
        name = asked.get("model", self.model.name)
        if name not in self.calibration.models:
            return Response("no outcomes are kept of this model. To fix: see /calibration.\n", 404)
        async with self._page_lock:
            # One at a time: the intervals are some tenths of a second of work.
            figures = await asyncio.to_thread(self.calibration.figures, name)
            saved = self.calibration.behind(name)
            if asked.get("format") == "html":
                return Response(await self._html(name, figures, saved), media_type="text/html")
        others = [each for each in self.calibration.models if each != name]
        return _json_response({"model": name, **figures, "saved": saved, "others": others})

    async def _html(self, name: str, figures: dict[str, Any], saved: dict[str, Any]) -> str:
        key = (name, figures["rows"])
        if self._page is None or self._page[0] != key:
            from unskew.serve.page import render_page

            about = {**self.described(), "name": name}
            sketch = self.calibration.sketch(name)
            self._page = (key, await asyncio.to_thread(render_page, about, figures, sketch, saved))
        return self._page[1]

    def described(self) -> dict[str, Any]:
        """What is served."""
        import onnxruntime

        from unskew import __version__

        model = self.model
        return {
            "name": model.name,
            "folder": self.settings.run.name,
            **{key: model.facts[key] for key in ("run", "what", "method", "backbone", "seeds")},
            "unseen": model.unseen,
            "fields": model.schema,
            "limits": {"body_bytes": self.settings.body_bytes, "rows": self.settings.rows},
            "versions": {
                "unskew": __version__,
                "made_with": model.facts["unskew"],
                "onnxruntime": onnxruntime.__version__,
            },
        }

    def _labels(self) -> dict[str, str]:
        facts = self.model.facts
        return {"model": self.model.name, "what": facts["what"], "run": facts["run"]}

    def _gauges(self) -> dict[str, tuple[str, float]]:
        name = self.model.name
        errors = self.calibration.errors(name)
        behind = self.calibration.behind(name)
        return {
            "calibration_ece": ("Expected calibration error of the served model so far.", errors["ece"]),
            "calibration_wce": ("Weight calibration error of the served model so far.", errors["wce"]),
            "calibration_mean_over_rate": ("Mean score ÷ rate of outcomes.", errors["mean_over_rate"]),
            "calibration_rows": ("Outcomes in its sketch.", errors["rows"]),
            "calibration_rows_behind": ("Of these, not on disk yet.", behind["rows_behind"]),
            "draining": ("1 while the service ends.", float(self.draining)),
        }


TEXT = (b"content-type", b"text/plain; charset=utf-8")
JSON_TYPE = (b"content-type", JSON)
RETRY = (b"retry-after", b"1")
CLOSE = (b"connection", b"close")


def _is_arrow(content_type: bytes) -> bool:
    kind = content_type.partition(b";")[0].strip().lower()
    if kind not in (ARROW, JSON):
        raise RefusedError(
            415,
            f"the body is neither {JSON.decode()} nor {ARROW.decode()}. To fix: say which in Content-Type.",
        )
    return kind == ARROW


def _json_response(value: Any) -> Response:
    return Response(orjson.dumps(value), media_type="application/json")


def _arrow(
    scores: Score, unknown: tuple[NDArray[np.bool_], NDArray[np.bool_]], facts: dict[str, str]
) -> bytes:
    # NaN is a score that is not there, in JSON as in Arrow.
    table = pa.table(
        {
            "score": pa.array(scores, from_pandas=True),
            "unknown_user": unknown[0],
            "unknown_item": unknown[1],
        }
    ).replace_schema_metadata(facts)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue().to_pybytes())
