"""Connections: uvicorn's protocol, with a short way for the requests that a service lives on.

A small request for scores, in JSON both ways, needs no task, no messages and no timer of its own: it is read
when its last byte is here, scored with all others of this turn of the loop, and its answer is one write.
Everything else goes the way of ASGI.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from unskew.serve.app import CLOSE, TEXT

if TYPE_CHECKING:
    from unskew.serve.app import App

MOST_CONNECTIONS = 4096
"""Open at once; what comes beyond gets 503."""

KEEP_ALIVE_SECONDS = 75
"""A connection that asks for nothing is closed after so long, as elsewhere."""

MOST_HEAD_BYTES = 1 << 20
"""Of the head of a request, about: reads are counted, of which the first may have the end of another."""


class Protocol(HttpToolsProtocol):
    """One connection."""

    service: App

    closes_at: float | None = None
    """When it is closed unless more comes: of a request that is not whole, or after a short one."""

    _body: list[bytes] | None = None
    """What has come of the body of a request that may go the short way."""

    _waits = False
    """Whether a request that went it is not answered yet."""

    _began = 0.0

    _head_bytes: int | None = None
    """What has come of a head that is not whole."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A connection: its first request begins now."""
        super().connection_made(transport)
        self.service = self.config.app  # type: ignore[assignment]
        self.closes_at = perf_counter() + self.service.settings.timeout

    def data_received(self, data: bytes) -> None:
        """Bytes, of one request or of several."""
        super().data_received(data)
        if self._head_bytes is not None:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self._refuse_head()
        elif self.closes_at is None and (self.cycle is None or self.cycle.response_complete):
            # Nothing is asked for, and uvicorn's timer has ended with these bytes, whatever they are.
            self.closes_at = perf_counter() + KEEP_ALIVE_SECONDS

    def timeout_keep_alive_handler(self) -> None:
        """Nothing came for long after an answer that went the way of ASGI."""
        self.closes_at = perf_counter()

    def close_stalled(self) -> None:
        """Close it; at once where it was closed before, and waits for a client that takes no answers."""
        if self.transport.is_closing():
            self.transport.abort()
        else:
            self.transport.close()

    def on_message_begin(self) -> None:
        """The first byte of a request; the one before it is answered first."""
        if self._waits:
            self.service.flush()
        super().on_message_begin()
        self._head_bytes = 0
        self.closes_at = perf_counter() + self.service.settings.timeout

    def on_headers_complete(self) -> None:
        """The head is whole, and tells which way the request goes."""
        self._began = perf_counter()
        self._head_bytes = None
        if self._may_go_short():
            self._body = []
        else:
            self._go_long()

    def on_body(self, body: bytes) -> None:
        """Some of the body."""
        if self._body is None:
            super().on_body(body)
        else:
            self._body.append(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        if self._body is not None:
            self._waits = True
            if self.service.score_shortly(b"".join(self._body), self._began, self._answer):
                self._body = None
                return
            self._waits = False
            self._go_long()
        super().on_message_complete()

    def shutdown(self) -> None:
        """The service ends: what came is answered before the connection is closed."""
        if self._waits:
            self.service.flush()
        if self._body is not None:
            self._go_long()
        super().shutdown()

    def _may_go_short(self) -> bool:
        parser = self.parser
        return (
            self.url == b"/score"
            and parser.get_method() == b"POST"
            and parser.get_http_version() == "1.1"
            and parser.should_keep_alive()
            and not self.expect_100_continue
            and (self.cycle is None or self.cycle.response_complete)
            and not self.flow.write_paused
            and len(self.connections) < MOST_CONNECTIONS
            and self.service.is_short(dict(self.headers))
        )

    def _go_long(self) -> None:
        """From here on the application sees to the body."""
        came, self._body = self._body, None
        self.closes_at = None
        super().on_headers_complete()
        for each in came or ():
            super().on_body(each)

    def _refuse_head(self) -> None:
        line = f"the head has more than {MOST_HEAD_BYTES:,} bytes. To fix: send less in headers.\n"
        self._answer(431, [TEXT, CLOSE], line.encode())
        self.transport.close()

    def _answer(self, status: int, headers: list[tuple[bytes, bytes]], content: bytes) -> None:
        self._waits = False
        if self.transport.is_closing():
            return
        lines = b"".join([b"%b: %b\r\n" % each for each in headers])
        self.transport.write(
            b"%b%bcontent-length: %d\r\n\r\n%b" % (STATUS_LINE[status], lines, len(content), content)
        )
        self.server_state.total_requests += 1
        self.closes_at = perf_counter() + KEEP_ALIVE_SECONDS
