"""What each path answers, and what it refuses, without a socket."""

from __future__ import annotations

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import unskew as us
from contracts.feature_world import part, table
from unskew.serve.answered import Answered
from unskew.serve.app import App
from unskew.serve.bodies import ARROW
from unskew.serve.calibration import Calibration
from unskew.serve.counters import Counters
from unskew.serve.served_model import ServedModel
from unskew.serve.settings import ServeSettings

PAIR = {"rows": [{"user": 1, "item": 2}]}


class Answer:
    def __init__(self, messages):
        self.status = messages[0]["status"]
        self.headers = dict(messages[0]["headers"])
        self.body = b"".join(each.get("body", b"") for each in messages[1:])

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def line(self) -> str:
        (line,) = self.body.decode().splitlines()
        return line


async def ask(app, path, body=None, *, method=None, headers=(), query=b"", chunks=None) -> Answer:
    """One request, its body in one piece or in chunks."""
    if body is not None and not isinstance(body, bytes):
        body = json.dumps(body).encode()
    pieces = list(chunks or [body or b""])
    given = dict([(b"content-type", b"application/json"), *headers])
    if chunks is None:
        given[b"content-length"] = str(len(pieces[0])).encode()
    sent = []

    async def receive():
        await asyncio.sleep(0)
        return {"type": "http.request", "body": pieces.pop(0), "more_body": bool(pieces)}

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query,
        "method": method or ("GET" if body is None and chunks is None else "POST"),
        "headers": list(given.items()),
        "http_version": "1.1",
        "scheme": "http",
        "root_path": "",
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 1),
    }
    await app(scope, receive, send)
    return Answer(sent)


@pytest.fixture
def serve(ids_ready, tmp_path):
    """Run a test's questions against a new application."""

    def run(questions, folder=ids_ready, **changed):
        settings = replace(ServeSettings(run=folder, state=tmp_path, remember=4096, rows=1000), **changed)

        async def main():
            with ThreadPoolExecutor(1) as pool:
                model = ServedModel(folder, settings.unseen, 1)
                app = App(
                    settings,
                    model,
                    Answered(tmp_path / "answered", settings.remember),
                    Calibration(tmp_path / "sketches"),
                    Counters(),
                    pool,
                )
                return await questions(app)

        return asyncio.run(main())

    return run


def one(serve, *arguments, **options) -> Answer:
    settings = options.pop("settings", {})
    return serve(lambda app: ask(app, *arguments, **options), **settings)


@pytest.mark.parametrize("rows", [1, 100, 900])
@pytest.mark.parametrize("form", ["rows", "columns", "arrow"])
def test_scores_are_those_of_unskew_score(serve, ids_run, rows, form):
    pairs = pa.table(
        {"user": [each % 50 for each in range(rows)], "item": [each % 40 for each in range(rows)]}
    )
    headers = ()
    if form == "arrow":
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, pairs.schema) as stream:
            stream.write_table(pairs)
        body, headers = sink.getvalue().to_pybytes(), [(b"content-type", ARROW), (b"accept", ARROW)]
    else:
        body = {form: pairs.to_pylist() if form == "rows" else pairs.to_pydict()}
    answer = one(serve, "/score", body, headers=headers)
    assert answer.status == 200
    if form == "arrow":
        answered = pa.ipc.open_stream(answer.body).read_all()
        scores = answered["score"].to_numpy()
        assert answered.schema.metadata[b"request"] == answer.headers[b"x-request-id"]
    else:
        scores = np.array(answer.json["scores"])
    np.testing.assert_allclose(scores, us.score(ids_run, pairs)["conversion"].to_numpy(), atol=1e-6)


def test_requests_that_come_together_are_answered_apart(serve, ids_run):
    async def questions(app):
        asked = [{"rows": [{"user": each % 50, "item": 1}] * (1 + each % 3)} for each in range(60)]
        return await asyncio.gather(*(ask(app, "/score", each) for each in asked))

    expected = us.score(ids_run, pa.table({"user": list(range(50)), "item": [1] * 50}))[
        "conversion"
    ].to_numpy()
    for each, answer in enumerate(serve(questions)):
        assert answer.json["scores"] == pytest.approx([expected[each % 50]] * (1 + each % 3), abs=1e-6)


def test_unknown_ids_get_null_and_are_counted(serve):
    async def questions(app):
        answer = await ask(app, "/score", {"rows": [{"user": 1, "item": 2}, {"user": 999, "item": 888}]})
        return answer, (await ask(app, "/metrics")).body.decode()

    answer, metrics = serve(questions)
    assert answer.json["scores"][1] is None
    assert (answer.json["unknown_users"], answer.json["unknown_items"]) == (1, 1)
    assert 'unskew_unknown_ids_total{side="user"} 1.0' in metrics
    assert "unskew_rows_total 2.0" in metrics
    assert "unskew_rows_without_score_total 1.0" in metrics
    assert "unskew_scores_count 1.0" in metrics
    assert 'unskew_requests_total{path="/score",status="200"} 1.0' in metrics
    assert 'unskew_request_seconds_count{path="/score"} 1.0' in metrics


def test_features_are_read_and_unknown_users_get_what_they_tell(serve, features_run, features_ready):
    frame = part(table(3000), known=False).slice(0, 20)
    fields = ("user", "item", "country", "price", "tags", "position", "noise")
    answer = one(
        serve, "/score", {"rows": frame.select(fields).to_pylist()}, settings={"folder": features_ready}
    )
    expected = us.score(features_run, frame)["conversion"].to_numpy()
    np.testing.assert_allclose(answer.json["scores"], expected, atol=1e-6)
    assert answer.json["unknown_users"] == 20


def arrow_body(table_: pa.Table, **options) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table_.schema, options=pa.ipc.IpcWriteOptions(**options)) as stream:
        stream.write_table(table_)
    return sink.getvalue().to_pybytes()


GOOD = pa.table({"user": [1, 2], "item": [3, 4]})


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b"{", "the body is not JSON"),
        (b'{"rows": [{"user": NaN, "item": 1}]}', "the body is not JSON"),
        (b"[]", "the body is not a JSON object"),
        ({"rows": [], "columns": {}}, 'give "rows" or "columns" alone'),
        ({"raws": []}, "the body has 'raws'"),
        ({"rows": 7}, "rows is not a list"),
        ({"rows": [{"user": 1, "item": 2, "prise": 3}]}, "row 0: there is no field 'prise'"),
        ({"rows": [{"user": None, "item": 2}]}, "field 'user', row 0: null is no id"),
        ({"columns": {"user": [1], "item": [1, 2]}}, "columns differ in length"),
        ({"columns": {"user": 1, "item": 1}}, "columns is not an object of lists"),
        ({"columns": {"user": [1]}}, "field 'item' is missing"),
    ],
)
def test_a_body_that_cannot_be_read_is_one_line(serve, body, line):
    answer = one(serve, "/score", body)
    assert answer.status == 422
    assert line in answer.line
    assert "To fix:" in answer.line


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b"nonsense", "the body is not a whole Arrow stream"),
        (b"", "the body is not a whole Arrow stream"),
        (arrow_body(GOOD)[:-60], "the body is not a whole Arrow stream"),
        (arrow_body(GOOD, compression="zstd"), "the Arrow stream is compressed"),
        (arrow_body(pa.table({"user": [1, None], "item": [1, 2]})), "field 'user', row 1: null is no id"),
        (
            arrow_body(pa.table({"user": [1.0, float("nan")], "item": [1, 2]})),
            "field 'user', row 1: nan is no id",
        ),
        (arrow_body(pa.table({"user": [{"a": 1}], "item": [1]})), "column 'user': holds struct<a: int64>"),
    ],
)
def test_an_arrow_stream_that_cannot_be_read_is_one_line(serve, body, line):
    answer = one(serve, "/score", body, headers=[(b"content-type", ARROW)])
    assert answer.status == 422
    assert line in answer.line


def test_an_arrow_dictionary_is_read_without_being_multiplied(serve):
    """A megabyte of text that each of many rows refers to is one text."""
    rows = 900
    text = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int16()), pa.array(["x" * 4_000_000]))
    body = arrow_body(pa.table({"user": text, "item": [1] * rows}))
    answer = one(serve, "/score", body, headers=[(b"content-type", ARROW)])
    assert answer.status == 200
    assert answer.json["unknown_users"] == rows


def test_other_content_is_refused(serve):
    assert one(serve, "/score", b"x", headers=[(b"content-type", b"text/csv")]).status == 415


def test_a_body_beyond_the_limit_is_refused_however_it_comes(serve):
    large = json.dumps({"rows": [{"user": 1, "item": 2}] * 50}).encode()
    settings = {"body_bytes": 500}
    whole = one(serve, "/score", large, settings=settings)
    pieces = one(serve, "/score", chunks=[large[:400], large[400:800], large[800:]], settings=settings)
    for answer in (whole, pieces):
        assert answer.status == 413
        assert "more than 500 bytes" in answer.line
        assert answer.headers[b"connection"] == b"close"


def test_a_body_in_pieces_is_one(serve):
    whole = json.dumps(PAIR).encode()
    assert one(serve, "/score", chunks=[whole[:5], whole[5:9], whole[9:]]).status == 200


@pytest.mark.parametrize("form", ["rows", "columns"])
def test_rows_beyond_the_limit_are_refused(serve, form):
    body = (
        {"rows": [{"user": 1, "item": 2}] * 11}
        if form == "rows"
        else {"columns": {"user": [1] * 11, "item": [1] * 11}}
    )
    answer = one(serve, "/score", body, settings={"rows": 10})
    assert answer.status == 413
    assert "the request has 11 rows, and 10 are taken" in answer.line


def test_what_comes_beyond_the_queue_is_asked_to_come_again(serve):
    async def questions(app):
        return await asyncio.gather(*(ask(app, "/score", PAIR) for _ in range(8)))

    answers = serve(questions, queue=5)
    assert sorted(each.status for each in answers) == [200] * 5 + [429] * 3
    refused = next(each for each in answers if each.status == 429)
    assert refused.headers[b"retry-after"] == b"1"


def test_bytes_of_bodies_that_wait_are_bounded_too(serve):
    async def questions(app):
        return await asyncio.gather(*(ask(app, "/score", PAIR) for _ in range(4)))

    size = len(json.dumps(PAIR))
    answers = serve(questions, queue_bytes=2 * size)
    assert sorted(each.status for each in answers) == [200, 200, 429, 429]


def test_a_request_that_does_not_come_in_is_given_up(serve):
    async def questions(app):
        async def never():
            await asyncio.Event().wait()

        sent = []

        async def send(message):
            sent.append(message)

        headers = [(b"content-type", b"application/json"), (b"content-length", b"10")]
        scope = {"type": "http", "path": "/score", "method": "POST", "headers": headers}
        task = asyncio.create_task(app(scope, never, send))
        await asyncio.sleep(0.03)
        app.end_overdue()
        await task
        return Answer(sent), app.counters.in_flight

    answer, in_flight = serve(questions, timeout=0.01)
    assert answer.status == 503
    assert "not received and answered within 0.01 s" in answer.line
    assert in_flight == 0


@pytest.mark.parametrize(
    ("given", "status"),
    [(None, 401), ("Bearer wrong-token", 401), ("Basic right-token", 401), ("Bearer right-token", 200)],
)
def test_a_token_opens_every_path_but_the_probes(serve, given, status):
    headers = [] if given is None else [(b"authorization", given.encode())]

    async def questions(app):
        paths = ["/score", "/model", "/calibration", "/metrics"]
        answers = [
            await ask(app, path, PAIR if path == "/score" else None, headers=headers) for path in paths
        ]
        probes = [await ask(app, path) for path in ("/healthz", "/readyz")]
        return answers, probes

    answers, probes = serve(questions, token="right-token")
    assert [each.status for each in answers] == [status] * 4
    assert [each.status for each in probes] == [200, 200]


@pytest.mark.parametrize(
    "path", ["/", "/etc/passwd", "/../config.toml", "/score/", "/model/../state", "/docs"]
)
def test_no_other_path_leads_anywhere(serve, path):
    answer = one(serve, path)
    assert answer.status == 404
    assert "there is nothing here" in answer.line


def test_scores_are_posted(serve):
    answer = one(serve, "/score")
    assert (answer.status, answer.headers[b"allow"]) == (405, b"POST")


def test_outcomes_by_request_and_by_score_go_into_the_sketch_once(serve):
    async def questions(app):
        answer = (
            await ask(
                app,
                "/score",
                {"rows": [{"user": 1, "item": 2}, {"user": 3, "item": 4}, {"user": 999, "item": 1}]},
            )
        ).json
        request = answer["request"]
        rows = [{"request": request, "row": row, "outcome": row % 2} for row in range(3)]
        first = await ask(app, "/outcomes", {"outcomes": [*rows, rows[0]]})
        again = await ask(app, "/outcomes", {"outcomes": rows[:2]})
        lost = await ask(app, "/outcomes", {"outcomes": [{"request": "00000000-0", "outcome": 1}]})
        score = await ask(app, "/outcomes", {"outcomes": [{"score": 0.5, "outcome": True, "weight": 2.0}]})
        sketch = app.calibration.sketch(app.model.name)
        return answer, [each.json for each in (first, again, lost, score)], sketch

    answer, (first, again, lost, score), sketch = serve(questions)
    assert (first["counted"], first["known"], first["unscored"]) == (2, 1, 1)
    assert (again["counted"], again["known"]) == (0, 2)
    assert (lost["counted"], lost["forgotten"]) == (0, 1)
    assert score["counted"] == 1
    assert first["saved_within_seconds"] == 2.0
    assert (sketch.rows, sketch.total, sketch.positives) == (3, 4.0, 3.0)
    expected = answer["scores"][0] + answer["scores"][1] + 2 * 0.5
    assert sketch.mean_score * sketch.total == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (7, "outcome 1: is not an object"),
        ({"outcome": 1}, "outcome 1: has not one of request and score"),
        ({"score": 0.5, "request": "x", "outcome": 1}, "outcome 1: has not one of request and score"),
        ({"score": 1.5, "outcome": 1}, "outcome 1: score 1.5 is no probability"),
        ({"score": 0.5, "outcome": 2}, "outcome 1: outcome 2 is not 0 or 1"),
        ({"score": 0.5}, "outcome 1: outcome null is not 0 or 1"),
        ({"score": 0.5, "outcome": 1, "weight": -1}, "outcome 1: weight -1 is none"),
        ({"request": 5, "outcome": 1}, "outcome 1: 5 is no request id"),
        ({"request": "../../etc", "outcome": 1}, "is no request id"),
        ({"request": "00000000-0", "row": -1, "outcome": 1}, "outcome 1: row -1 is none"),
        ({"score": 0.5, "outcome": 1, "when": 3}, "outcome 1: there is no field 'when'"),
        ({"score": 0.5, "outcome": 1, "model": "nobody"}, "no outcomes are kept of a model 'nobody'"),
    ],
)
def test_one_wrong_outcome_refuses_all_and_counts_none(serve, outcome, line):
    async def questions(app):
        answer = await ask(app, "/outcomes", {"outcomes": [{"score": 0.5, "outcome": 1}, outcome]})
        return answer, app.calibration.sketch(app.model.name).rows

    answer, rows = serve(questions)
    assert answer.status == 422
    assert line in answer.line
    assert rows == 0


def test_after_a_swap_outcomes_go_to_the_model_that_said_the_score(serve, other_ready):
    async def questions(app):
        before = (await ask(app, "/score", PAIR)).json
        app.serve(ServedModel(other_ready, None, 1))
        after = (await ask(app, "/score", PAIR)).json
        late = [{"request": before["request"], "outcome": 1}]
        await ask(app, "/outcomes", {"outcomes": late})
        return before, after, {name: app.calibration.sketch(name).rows for name in app.calibration.models}

    before, after, rows = serve(questions)
    assert before["model"] != after["model"] == other_ready.name
    assert before["scores"] != after["scores"]
    assert rows == {before["model"]: 1, after["model"]: 0}


@pytest.mark.parametrize("turns", range(6))
def test_a_model_that_comes_between_reading_and_scoring_changes_no_answer(
    serve, ids_ready, other_ready, turns
):
    """At whatever turn of the loop it comes, the scores are those of the model that the answer names."""

    async def questions(app):
        models = {folder.name: ServedModel(folder, None, 1) for folder in (ids_ready, other_ready)}
        alone = {}
        for name, model in models.items():
            app.serve(model)
            alone[name] = (await ask(app, "/score", PAIR)).json["scores"]
        app.serve(models[ids_ready.name])
        waiting = asyncio.create_task(ask(app, "/score", PAIR))
        for _ in range(turns):
            await asyncio.sleep(0)
        app.serve(models[other_ready.name])
        return alone, (await waiting).json

    alone, answer = serve(questions)
    assert answer["scores"] == alone[answer["model"]]


def test_the_calibration_is_told_as_json_and_as_a_page(serve):
    async def questions(app):
        random = np.random.default_rng(0)
        score = random.uniform(0.05, 0.6, 900)
        came = random.random(900) < score
        rows = [{"score": p, "outcome": int(o)} for p, o in zip(score.tolist(), came.tolist(), strict=True)]
        empty = await ask(app, "/calibration", query=b"format=html")
        await ask(app, "/outcomes", {"outcomes": rows})
        return (
            empty,
            await ask(app, "/calibration"),
            await ask(app, "/calibration", query=b"format=html"),
            await ask(app, "/calibration", query=b"format=pdf"),
            await ask(app, "/calibration", query=b"model=../x"),
        )

    empty, told, page, pdf, other = serve(questions)
    assert "No outcome has come yet" in empty.body.decode()
    figures = told.json
    assert (figures["rows"], figures["saved"]["rows_behind"]) == (900, 900)
    assert figures["ece"]["low"] <= figures["ece"]["high"]
    assert figures["verdict"].startswith("Undecided: 900 outcomes are too few")
    text = page.body.decode()
    assert figures["verdict"] in text
    assert "<svg" in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert (pdf.status, other.status) == (422, 404)


def test_the_model_says_what_it_is_and_reads(serve, features_ready):
    told = one(serve, "/model", settings={"folder": features_ready}).json
    assert told["name"] == features_ready.name
    assert [(each["name"], each["kind"]) for each in told["fields"]][:3] == [
        ("user", "id"),
        ("item", "id"),
        ("country", "category"),
    ]
    assert [each["name"] for each in told["fields"] if each.get("required")] == ["position", "noise"]
    assert (told["what"], told["method"], told["unseen"]) == ("conversion", "naive", "other")
    assert told["versions"]["unskew"] == us.__version__


def test_while_it_ends_it_answers_and_closes_connections(serve):
    async def questions(app):
        app.draining = True
        return await ask(app, "/score", PAIR), await ask(app, "/readyz"), await ask(app, "/healthz")

    score, ready, alive = serve(questions)
    assert (score.status, ready.status, alive.status) == (200, 503, 200)
    assert score.headers[b"connection"] == b"close"


def test_a_defect_is_500_and_a_line_in_the_log(serve, capsys):
    async def questions(app):
        app.answered.add = lambda *given: 1 / 0
        return await ask(app, "/score", PAIR), app.counters.in_flight

    answer, in_flight = serve(questions)
    assert (answer.status, in_flight) == (500, 0)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert lines[0]["event"] == "defect"
    assert "ZeroDivisionError" in lines[0]["error"]


def test_failures_beyond_some_a_second_are_counted_in_the_log(serve, capsys):
    async def questions(app):
        for _ in range(300):
            await ask(app, "/score", b"{")

    serve(questions)
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert len(lines) < 300
    assert lines[0]["status"] == 422
    assert "the body is not JSON" in lines[0]["why"]
