"""Requests as bytes on a connection: the short way answers as ASGI does, in order, and nothing is lost."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import perf_counter

import pytest

from unskew.serve.answered import Answered
from unskew.serve.app import INLINE_ROWS, App
from unskew.serve.bodies import ARROW
from unskew.serve.calibration import Calibration
from unskew.serve.counters import Counters
from unskew.serve.protocol import KEEP_ALIVE_SECONDS, Protocol
from unskew.serve.served_model import ServedModel
from unskew.serve.settings import ServeSettings

PAIR = b'{"rows": [{"user": 1, "item": 2}]}'
MANY = json.dumps({"columns": {"user": [1] * (INLINE_ROWS + 1), "item": [2] * (INLINE_ROWS + 1)}}).encode()


class Wire(asyncio.Transport):
    """The other end: what was written to it, and whether it was closed."""

    def __init__(self) -> None:
        super().__init__()
        self.written, self.closed, self.aborted = b"", False, False

    def write(self, data):
        self.written += data

    def close(self):
        self.closed = True

    def abort(self):
        self.aborted = True

    def is_closing(self):
        return self.closed

    def pause_reading(self): ...

    def resume_reading(self): ...

    def answers(self) -> list[tuple[int, dict[str, str], bytes]]:
        """Status, headers and body of each answer, in the order in which they came."""
        found, rest = [], self.written
        while rest:
            head, _, rest = rest.partition(b"\r\n\r\n")
            status, *lines = head.decode().split("\r\n")
            headers = dict(line.split(": ", 1) for line in lines)
            size = int(headers.get("content-length", 0))
            found.append((int(status.split()[1]), headers, rest[:size]))
            rest = rest[size:]
        return found


def request(body: bytes, *lines: str, path="/score", version="1.1", length=True) -> bytes:
    head = [f"POST {path} HTTP/{version}", "Host: x", "Content-Type: application/json", *lines]
    if length:
        head.append(f"Content-Length: {len(body)}")
    return "\r\n".join(head).encode() + b"\r\n\r\n" + body


@pytest.fixture
def connect(ids_ready, tmp_path):
    """Run a test's talk on a connection of a new service."""
    import uvicorn
    from uvicorn.server import ServerState

    def run(talk, **changed):
        settings = replace(ServeSettings(run=ids_ready, state=tmp_path, remember=4096, rows=1000), **changed)

        async def main():
            with ThreadPoolExecutor(1) as pool:
                answered = Answered(tmp_path / "answered", settings.remember)
                calibration = Calibration(tmp_path / "sketches")
                model = ServedModel(ids_ready, settings.unseen, 1)
                app = App(settings, model, answered, calibration, Counters(), pool)
                config = uvicorn.Config(app, log_config=None, lifespan="off", http=Protocol)
                protocol, wire = Protocol(config, ServerState(), {}), Wire()
                protocol.connection_made(wire)
                return await talk(app, protocol, wire)

        return asyncio.run(main())

    return run


async def until(wire: Wire, answers: int) -> None:
    async with asyncio.timeout(20):
        while len(wire.answers()) < answers:
            await asyncio.sleep(0)


def ask(connect, *pieces: bytes, answers=1, **settings):
    """Send bytes in pieces; the answers, whether each went the short way, and the counts."""
    ways = []

    async def talk(app, protocol, wire):
        short = app.score_shortly

        def noted(*given):
            ways.append(short(*given))
            return ways[-1]

        app.score_shortly = noted
        for each in pieces:
            protocol.data_received(each)
            await asyncio.sleep(0)
        await until(wire, answers)
        await asyncio.sleep(0.01)
        return wire.answers(), app.counters

    found, counters = connect(talk, **settings)
    assert counters.in_flight == 0
    return found, ways, counters


def said(body: bytes) -> dict[str, object]:
    """An answer without the id of its request."""
    answer = json.loads(body)
    assert answer.pop("request")
    return answer


@pytest.mark.parametrize(
    "body",
    [PAIR, b'{"columns": {"user": ["1", "x"], "item": [2, 3]}}', b"{", b'{"rows": [{"user": 1}]}', MANY],
)
def test_both_ways_give_one_answer(connect, body):
    """A request that closes its connection goes the long way, whatever it asks for."""
    short = ask(connect, request(body))
    long = ask(connect, request(body, "Connection: close"))
    (status, headers, content), (long_status, long_headers, long_content) = short[0][0], long[0][0]
    assert (short[1], long[1]) == ([body is not MANY], [])
    assert status == long_status
    assert (said if status == 200 else bytes)(content) == (said if status == 200 else bytes)(long_content)
    assert long_headers.pop("connection") == "close"
    assert headers == {**long_headers, "content-length": str(len(content))}
    for counters in (short[2], long[2]):
        assert counters.requests == {("/score", status): 1}


@pytest.mark.parametrize(
    ("bytes_sent", "status", "settings"),
    [
        (request(PAIR, version="1.0"), 200, {}),
        (request(PAIR, f"Accept: {ARROW.decode()}"), 200, {}),
        (request(PAIR, "Expect: 100-continue"), 100, {}),
        (request(b"22\r\n" + PAIR + b"\r\n0\r\n\r\n", "Transfer-Encoding: chunked", length=False), 200, {}),
        (request(PAIR), 413, {"body_bytes": 5}),
        (request(PAIR), 401, {"token": "right-token"}),
        (request(b'{"outcomes": []}', path="/outcomes"), 200, {}),
    ],
)
def test_what_is_not_plain_goes_the_long_way(connect, bytes_sent, status, settings):
    answers, ways, _ = ask(connect, bytes_sent, **settings)
    assert answers[0][0] == status
    assert ways == []


def test_a_token_does_not_cost_the_short_way(connect):
    answers, ways, _ = ask(connect, request(PAIR, "Authorization: Bearer right-token"), token="right-token")
    assert answers[0][0] == 200
    assert ways == [True]


@pytest.mark.parametrize("cut", [10, 60, 100, 120])
def test_a_request_in_pieces_is_one(connect, cut):
    whole = request(PAIR)
    answers, ways, _ = ask(connect, whole[:cut], whole[cut:])
    assert [status for status, *_ in answers] == [200]
    assert ways == [True]


def test_requests_sent_at_once_on_one_connection_are_answered_in_their_order(connect):
    """Short, long, failing and short again: each answer waits for the one before."""
    bodies = [PAIR, b'{"rows": [{"user": 3, "item": 4}]}', MANY, b"{", PAIR]
    answers, _, counters = ask(connect, b"".join(map(request, bodies)), answers=5)
    assert [status for status, *_ in answers] == [200, 200, 200, 422, 200]
    first, second, many, _, last = (content for _, _, content in answers)
    assert said(first) == said(last) != said(second)
    assert len(said(many)["scores"]) == INLINE_ROWS + 1
    assert sum(counters.requests.values()) == 5


def test_what_is_not_answered_when_the_service_ends_is_answered_then(connect):
    async def talk(app, protocol, wire):
        protocol.data_received(request(PAIR))
        before = wire.written
        protocol.shutdown()
        return before, wire.answers(), wire.closed

    before, answers, closed = connect(talk)
    assert before == b""
    assert [status for status, *_ in answers] == [200]
    assert closed


def test_a_request_of_which_half_has_come_when_the_service_ends_is_answered(connect):
    async def talk(app, protocol, wire):
        whole = request(PAIR)
        protocol.data_received(whole[:-10])
        protocol.shutdown()
        assert not wire.closed
        protocol.data_received(whole[-10:])
        await until(wire, 1)
        return wire.answers(), wire.closed

    answers, closed = connect(talk)
    assert answers[0][0] == 200
    assert answers[0][1]["connection"] == "close"
    assert closed


def test_a_new_model_comes_after_what_waits(connect, other_ready):
    async def talk(app, protocol, wire):
        name = app.model.name
        protocol.data_received(request(PAIR))
        app.serve(ServedModel(other_ready, None, 1))
        return name, json.loads(wire.answers()[0][2])["model"]

    before, answered = connect(talk)
    assert before == answered


def test_nobody_is_answered_who_has_left(connect):
    async def talk(app, protocol, wire):
        protocol.data_received(request(PAIR))
        wire.close()
        protocol.connection_lost(None)
        await asyncio.sleep(0.01)
        return wire.written, app.counters.in_flight

    assert connect(talk) == (b"", 0)


def test_a_defect_is_500_on_the_short_way_too(connect, capsys):
    async def talk(app, protocol, wire):
        app.answered.add = lambda *given: 1 / 0
        protocol.data_received(request(PAIR))
        await until(wire, 1)
        return wire.answers()

    assert connect(talk)[0][0] == 500
    assert json.loads(capsys.readouterr().err.splitlines()[0])["event"] == "defect"


def test_a_connection_is_closed_when_nothing_comes(connect):
    """Soon where a request is not whole, later where the last was answered, never while one is."""

    async def talk(app, protocol, wire):
        times = [protocol.closes_at]
        protocol.data_received(request(PAIR)[:-5])
        times.append(protocol.closes_at)
        protocol.data_received(request(PAIR)[-5:])
        await until(wire, 1)
        times.append(protocol.closes_at)
        protocol.data_received(request(MANY))
        return [*times, protocol.closes_at]

    made, half, answered, long = connect(talk, timeout=10)
    now = perf_counter()
    assert made < now + 10
    assert half < now + 10
    assert now + 10 < answered <= now + KEEP_ALIVE_SECONDS
    assert long is None


def test_requests_of_one_turn_may_have_more_rows_than_are_remembered(connect):
    """All are answered; the scores of the latest wait for outcomes."""
    bodies = [json.dumps({"columns": {"user": [1] * 3, "item": [2] * 3}}).encode()] * 5

    async def talk(app, protocol, wire):
        others = [Protocol(protocol.config, protocol.server_state, {}) for _ in bodies]
        wires = [Wire() for _ in bodies]
        for other, its_wire, body in zip(others, wires, bodies, strict=True):
            other.connection_made(its_wire)
            other.data_received(request(body))
        for its_wire in wires:
            await until(its_wire, 1)
        answers = [each.answers()[0] for each in wires]
        numbers = [app.answered.row_of(json.loads(content)["request"], 2) for _, _, content in answers]
        return [status for status, *_ in answers], [app.answered.find(each) for each in numbers]

    statuses, found = connect(talk, rows=4, remember=4)
    assert statuses == [200] * 5
    assert found == ["forgotten"] * 3 + ["waits"] * 2


@pytest.mark.parametrize("after", [b"\r\n", request(PAIR)[:20]])
def test_bytes_that_are_no_request_keep_no_connection_open(connect, after):
    """The timer of uvicorn ends with the next bytes, whatever they are."""

    async def talk(app, protocol, wire):
        protocol.data_received(request(MANY))
        await until(wire, 1)
        protocol.data_received(after)
        return protocol.timeout_keep_alive_task, protocol.closes_at

    timer, closes_at = connect(talk)
    assert timer is not None or closes_at is not None


def test_a_head_without_end_is_refused(connect):
    async def talk(app, protocol, wire):
        protocol.data_received(b"POST /score HTTP/1.1\r\nX: ")
        for _ in range(40):
            if not wire.closed:
                protocol.data_received(b"x" * (1 << 16))
        return wire.answers(), wire.closed

    answers, closed = connect(talk)
    assert [status for status, *_ in answers] == [431]
    assert closed


def test_many_requests_in_one_read_are_not_a_long_head(connect):
    """A read has 256 KiB at most."""
    many = 1 << 11
    answers, ways, _ = ask(connect, b"".join([request(b"{")] * many + [request(PAIR)[:20]]), answers=many)
    assert ways == [True] * many
    assert {status for status, *_ in answers} == {422}


def test_a_client_that_takes_no_answers_does_not_stay(connect):
    """To close a connection waits for what was written to it, for ever; so it ends at the second look."""
    import uvicorn

    from unskew.serve.server import Server

    async def talk(app, protocol, wire):
        server = Server(uvicorn.Config(app))
        server.server_state.connections = {protocol}
        server.close_stalled()
        before = wire.closed
        protocol.timeout_keep_alive_handler()
        server.close_stalled()
        once = wire.closed, wire.aborted
        server.close_stalled()
        return before, once, wire.aborted

    assert connect(talk) == (False, (True, False), True)
