"""What each path answers, and what it refuses, without a socket."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil

import numpy as np
import pyarrow as pa
import pytest

import unskew as us
from contracts.feature_world import part, table
from serve.conftest import timed_table
from unskew.base.errors import ParameterError, RunFolderError

pytest.importorskip("starlette")
pytest.importorskip("onnxruntime")

from unskew.serve import logs
from unskew.serve.app import Service
from unskew.serve.requests import MOST_IN_LIST
from unskew.serve.served_model import ServedModel
from unskew.serve.settings import ServeSettings
from unskew.serve.store import MOST_MODELS, Store, forget_model

PAIR = {"rows": [{"user": 1, "item": 2}]}
FLOAT32 = 1e-6


class Answer:
    def __init__(self, messages):
        self.status = messages[0]["status"]
        self.headers = dict(messages[0]["headers"])
        self.body = b"".join(each.get("body", b"") for each in messages[1:])

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def error(self) -> str:
        (line,) = self.body.splitlines()
        return json.loads(line)["error"]


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


def served(app, model) -> ServedModel:
    """Put an exported model into the folder of the service, and serve it."""
    shutil.copy(model, app.store.models)
    app.store.serve(model.stem, "kind")
    app.model = ServedModel(app.store.file(model.stem), app.settings.unseen, app.settings.max_rows)
    return app.model


@pytest.fixture
def serve(ids_model, tmp_path):
    """Run a test's questions against a new application, whose state is that of the one before."""

    def run(questions, model=ids_model, token=None, **changed):
        settings = ServeSettings(run=tmp_path, state=tmp_path / "state", remember=4096, max_rows=1000)
        settings = settings.model_copy(update=changed)
        logs.configure()

        async def main():
            store = Store(settings.folder, settings.remember)
            try:
                shutil.copy(model, store.models)
                ready = ServedModel(store.file(model.stem), settings.unseen, settings.max_rows)
                store.serve(model.stem, "kind")
                app = Service(settings, token, store, ready)
                return await questions(app)
            finally:
                store.close()

        return asyncio.run(main())

    return run


def one(serve, *arguments, **options) -> Answer:
    settings = options.pop("settings", {})
    return serve(lambda app: ask(app, *arguments, **options), **settings)


async def rows_counted(app, model=None) -> int:
    query = b"" if model is None else f"model={model}".encode()
    return (await ask(app, "/calibration", query=query)).json["rows"]


@pytest.mark.parametrize("rows", [0, 1, 900])
def test_scores_are_those_of_unskew_score(serve, ids_run, rows):
    pairs = pa.table(
        {
            "user": pa.array([each % 50 for each in range(rows)], pa.int64()),
            "item": pa.array([each % 40 for each in range(rows)], pa.int64()),
        }
    )
    answer = one(serve, "/score", {"rows": pairs.to_pylist()})
    assert answer.status == 200
    expected = us.score(ids_run, pairs)["conversion"].to_numpy() if rows else []
    np.testing.assert_allclose(answer.json["scores"], expected, atol=FLOAT32)


@pytest.mark.parametrize("user", [7, "7"])
def test_ids_are_found_as_numbers_and_as_their_digits(serve, user):
    assert one(serve, "/score", {"rows": [{"user": user, "item": 2}]}).json["unknown_users"] == 0


@pytest.mark.parametrize("user", ["007", "x", 10**15, -1, 2**63 - 1, "9" * 30])
def test_an_id_that_training_lacked_is_unknown(serve, user):
    answer = one(serve, "/score", {"rows": [{"user": user, "item": 2}]}).json
    assert (answer["scores"], answer["unknown_users"]) == ([None], 1)


def test_unknown_ids_are_counted_or_refused_without_being_named(serve):
    body = {"rows": [{"user": 1, "item": 2}, {"user": 999, "item": 888}]}

    async def questions(app):
        return await ask(app, "/score", body), (await ask(app, "/metrics")).body.decode()

    answer, metrics = serve(questions)
    assert answer.json["scores"][1] is None
    assert (answer.json["unknown_users"], answer.json["unknown_items"]) == (1, 1)
    for line in (
        'unskew_unknown_ids_total{side="user"} 1.0',
        "unskew_rows_total 2.0",
        "unskew_rows_without_score_total 1.0",
        'unskew_requests_total{path="/score",status="200"} 1.0',
        'unskew_request_seconds_count{path="/score"} 1.0',
        "unskew_calibration_rows 0.0",
    ):
        assert line in metrics, line
    refused = one(serve, "/score", body, settings={"unseen": "error"})
    assert refused.status == 422
    assert "row 1: its user or item was not seen in training" in refused.error
    assert "999" not in refused.error


def test_metrics_that_are_asked_for_without_end_are_measured_once(serve):
    """200 clients who pipelined them cost 157 MiB before."""
    measured = []

    async def questions(app):
        cells = app.store.cells
        app.store.cells = lambda name: measured.append(name) or cells(name)
        return await asyncio.gather(*(ask(app, "/metrics") for _ in range(20)))

    assert {each.status for each in serve(questions)} == {200}
    assert len(measured) == 1


def test_a_model_of_ids_alone_has_no_other_features(serve):
    with pytest.raises(ParameterError, match="this one reads ids alone"):
        one(serve, "/score", PAIR, settings={"unseen": "other"})


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("left_out", [(), ("country", "tags"), ("price",)])
def test_features_get_what_score_gives_them(serve, features_run, features_model, known, left_out):
    frame = part(table(3000), known=known).slice(0, 60).drop_columns(list(left_out))
    fields = ("user", "item", "country", "price", "tags", "position", "noise")
    asked = frame.select([name for name in fields if name in frame.column_names])
    answer = one(serve, "/score", {"rows": asked.to_pylist()}, settings={"model": features_model}).json
    expected = us.score(features_run, frame)
    np.testing.assert_allclose(answer["scores"], expected["conversion"].to_numpy(), atol=FLOAT32)
    assert answer["unknown_users"] == sum(expected["unseen_user"].to_pylist())


@pytest.mark.parametrize(
    "change", [{"country": "zz"}, {"country": None}, {"tags": ["never", "all", None]}, {"position": "?"}]
)
def test_values_that_training_lacked_get_what_score_gives_them(serve, features_run, features_model, change):
    row = part(table(3000), known=True).slice(0, 1).drop_columns(["click", "bought", "match"]).to_pylist()[0]
    answer = one(serve, "/score", {"rows": [row | change]}, settings={"model": features_model}).json
    if "position" in change:
        change = {"position": 99}
    frame = {name: [value] for name, value in (row | change).items()}
    frame["tags"] = [[tag for tag in frame["tags"][0] if tag is not None]]
    types = {"country": pa.string()}
    expected = us.score(
        features_run, pa.table({name: pa.array(v, types.get(name)) for name, v in frame.items()})
    )
    np.testing.assert_allclose(answer["scores"], expected["conversion"].to_numpy(), atol=FLOAT32)


def test_some_rows_may_leave_a_field_out(serve, features_model):
    rows = part(table(3000), known=True).slice(0, 3).drop_columns(["click", "bought", "match"]).to_pylist()
    del rows[1]["country"], rows[2]["tags"]

    async def questions(app):
        alone = [(await ask(app, "/score", {"rows": [row]})).json["scores"][0] for row in rows]
        return alone, (await ask(app, "/score", {"rows": rows})).json["scores"]

    alone, together = serve(questions, model=features_model)
    assert together == pytest.approx(alone, abs=FLOAT32)


def test_hashed_values_and_times_get_what_score_gives_them(serve, hashed_run, hashed_model):
    frame = timed_table().slice(0, 40)
    asked = frame.select(["user", "item", "country", "tags", "time"]).to_pylist()
    body = {"rows": [row | {"time": row["time"].isoformat()} for row in asked]}
    answer = one(serve, "/score", body, settings={"model": hashed_model}).json
    expected = us.score(hashed_run, frame)["conversion"].to_numpy()
    np.testing.assert_allclose(answer["scores"], expected, atol=FLOAT32)


SECRET = "anna.secret@example.org"

BAD_ROWS = [
    (b"{", "Invalid JSON"),
    (b"", "Invalid JSON"),
    (b"\x00\xff", "Invalid JSON"),
    (b"[" * 200_000, "recursion limit"),
    (b'{"rows": ' + b"[" * 200_000, "recursion limit"),
    (b'{"rows": [{"user": ' + b"9" * 100_000 + b', "item": 1}]}', "number out of range"),
    (b'{"rows": [{"user": "\\ud800", "item": 1}]}', "Invalid JSON"),
    (b'{"rows": [{"user": "\xff", "item": 1}]}', "Invalid JSON"),
    (b"[]", "should be an object"),
    ({}, "Field required"),
    ({"rows": [], SECRET: 1}, "not permitted"),
    ({"rows": 7}, "should be a valid array"),
    ({"rows": [7]}, "row 0: Input should be an object"),
    ({"rows": [{"user": 1, "item": 2, SECRET: 3}]}, "row 0: Extra inputs are not permitted"),
    ({"rows": [{"user": 1}]}, "row 0, field 'item': Field required"),
    ({"rows": [{"user": SECRET, "item": None}]}, "row 0, field 'item': is not a whole number of 64 bits"),
    ({"rows": [{"user": {SECRET: 1}, "item": 1}]}, "row 0, field 'user': is not"),
    ({"rows": [{"user": 1.5, "item": 1}]}, "row 0, field 'user': is not"),
    ({"rows": [{"user": True, "item": 1}]}, "row 0, field 'user': is not"),
    ({"rows": [{"user": 2**63, "item": 1}]}, "row 0, field 'user': is not"),
    ({"rows": [{"user": SECRET * 100, "item": 1}]}, "row 0, field 'user': is not"),
]


@pytest.mark.parametrize(("body", "line"), BAD_ROWS)
def test_a_bad_body_is_one_line_that_names_no_id(serve, body, line, capsys):
    answer = one(serve, "/score", body)
    assert answer.status == 422
    assert line in answer.error
    assert "To fix:" in answer.error
    assert SECRET not in answer.body.decode() + capsys.readouterr().err


@pytest.mark.parametrize(
    ("change", "status", "line"),
    [
        ({"country": ["de"]}, 422, "field 'country': is not one value"),
        ({"country": SECRET * 100}, 422, "field 'country': is not one value"),
        ({"price": "3"}, 422, "field 'price': is not a finite number"),
        ({"price": float("inf")}, 422, "field 'price': is not a finite number"),
        ({"tags": "red"}, 422, "field 'tags': is not a list"),
        ({"tags": [["red"]]}, 422, "field 'tags': is not a list"),
        ({"tags": ["red"] * (MOST_IN_LIST + 1)}, 413, "field 'tags'"),
    ],
)
def test_a_bad_value_of_a_feature_is_one_line(serve, features_model, change, status, line):
    row = {"user": "u1", "item": 1, "position": 1, "noise": 0.5} | change
    answer = one(serve, "/score", {"rows": [row]}, settings={"model": features_model})
    assert answer.status == status
    assert f"row 0, {line}" in answer.error
    assert SECRET not in answer.error


def test_a_body_beyond_the_limit_is_refused_however_it_comes(serve):
    large = json.dumps({"rows": [{"user": 1, "item": 2}] * 50}).encode()
    settings = {"max_body": 500}
    whole = one(serve, "/score", large, settings=settings)
    pieces = one(serve, "/score", chunks=[large[:400], large[400:800], large[800:]], settings=settings)
    for answer in (whole, pieces):
        assert answer.status == 413
        assert "more than 500 bytes" in answer.error
        assert answer.headers[b"connection"] == b"close"


@pytest.mark.parametrize("body", [PAIR, {"outcomes": [{"request": "x", "outcome": 1}]}])
def test_rows_beyond_the_limit_are_refused(serve, body):
    path = "/outcomes" if "outcomes" in body else "/score"
    many = {form: rows * 11 for form, rows in body.items()}
    answer = one(serve, path, many, settings={"max_rows": 10})
    assert answer.status == 413
    assert "at most 10 items" in answer.error


def test_bodies_that_wait_are_bounded_together(serve, monkeypatch):
    body = json.dumps({"rows": [{"user": 1, "item": 2}] * 400}).encode()
    monkeypatch.setattr("unskew.serve.app.WAITING_BYTES", 2 * len(body))

    async def questions(app):
        together = await asyncio.gather(*(ask(app, "/score", body) for _ in range(5)))
        return together, await ask(app, "/score", body)

    together, after = serve(questions, max_body=len(body))
    assert sorted(each.status for each in together) == [200, 200, 503, 503, 503]
    refused = next(each for each in together if each.status == 503)
    assert refused.headers[b"retry-after"] == b"1"
    assert after.status == 200


def test_a_request_that_does_not_come_in_is_given_up(serve):
    async def questions(app):
        sent = []

        async def never():
            await asyncio.Event().wait()

        async def send(message):
            sent.append(message)

        scope = {"type": "http", "path": "/score", "method": "POST", "headers": [], "query_string": b""}
        await app(scope, never, send)
        return Answer(sent), await ask(app, "/score", PAIR)

    answer, after = serve(questions, timeout=0.05)
    assert answer.status == 503
    assert "not answered within 0.05 s" in answer.error
    assert after.status == 200


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
        return answers, [await ask(app, path) for path in ("/healthz", "/readyz")]

    answers, probes = serve(questions, token="right-token")
    assert [each.status for each in answers] == [status] * 4
    assert [each.status for each in probes] == [200, 200]


@pytest.mark.parametrize(
    ("path", "status"),
    [("/", 404), ("/../config.toml", 404), ("/score/x", 404), ("/model/../state", 404), ("/score", 405)],
)
def test_no_other_path_or_method_leads_anywhere(serve, path, status):
    answer = one(serve, path)
    assert answer.status == status
    assert "To fix" in answer.error


def test_other_content_is_refused(serve):
    assert one(serve, "/score", b"x", headers=[(b"content-type", b"text/csv")]).status == 415


def test_outcomes_are_counted_once(serve):
    rows = {"rows": [{"user": 1, "item": 2}, {"user": 3, "item": 4}, {"user": 999, "item": 1}]}

    async def questions(app):
        answer = (await ask(app, "/score", rows)).json
        came = [{"request": answer["request"], "row": row, "outcome": row % 2} for row in range(3)]
        first = await ask(app, "/outcomes", {"outcomes": [*came, came[0]]})
        again = await ask(app, "/outcomes", {"outcomes": [came[1] | {"outcome": 0}]})
        other = (await ask(app, "/score", PAIR)).json
        weighted = {"request": other["request"], "outcome": True, "weight": 2.0}
        third = await ask(app, "/outcomes", {"outcomes": [weighted]})
        counts = [each.json for each in (first, again, third)]
        return answer["scores"], other["scores"], counts, app.store.cells(app.model.name).whole()

    scores, others, counts, sketch = serve(questions)
    assert counts == [
        {"counted": 2, "known": 1, "unscored": 1},
        {"counted": 0, "known": 1, "unscored": 0},
        {"counted": 1, "known": 0, "unscored": 0},
    ]
    assert (sketch.rows, sketch.total, sketch.positives) == (3, 4.0, 3.0)
    expected = scores[0] + scores[1] + 2 * others[0]
    assert sketch.mean_score * sketch.total == pytest.approx(expected, abs=1e-6)


def outcomes_of(app, score, came, weight=None) -> list[dict]:
    """Outcomes of rows that were answered with these scores."""
    request = app.store.add(app.model.name, score.astype(np.float32))
    weights = np.ones(len(score)) if weight is None else weight
    return [
        {"request": request, "row": row, "outcome": int(o), "weight": w}
        for row, (o, w) in enumerate(zip(came.tolist(), weights.tolist(), strict=True))
    ]


def test_cells_in_the_database_are_those_of_one_sketch(serve):
    random = np.random.default_rng(0)
    score = random.uniform(1e-6, 1, 900).astype(np.float32)
    came, weight = random.random(900) < score, random.choice([1.0, 0.5, 3.0], 900)

    async def questions(app):
        rows = outcomes_of(app, score, came, weight)
        for start in range(0, 900, 300):
            assert (await ask(app, "/outcomes", {"outcomes": rows[start : start + 300]})).status == 200
        return app.store.cells(app.model.name).whole()

    counted = serve(questions)
    expected = us.CalibrationSketch.of(score=score.astype(np.float64), outcome=came, weight=weight)
    np.testing.assert_allclose(counted.table, expected.table, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("row", [1, 2, 2**31 - 1])
def test_an_outcome_of_a_row_that_was_not_asked_for_settles_nobodys_row(serve, row):
    async def questions(app):
        first = (await ask(app, "/score", PAIR)).json["request"]
        second = (await ask(app, "/score", PAIR)).json["request"]
        beyond = await ask(app, "/outcomes", {"outcomes": [{"request": first, "row": row, "outcome": 1}]})
        return beyond, (await ask(app, "/outcomes", {"outcomes": [{"request": second, "outcome": 1}]})).json

    beyond, after = serve(questions)
    assert beyond.status == 404
    assert "outcome 0: no such row waits for its outcome" in beyond.error
    assert after["counted"] == 1


def test_request_ids_cannot_be_guessed(serve):
    async def questions(app):
        return [(await ask(app, "/score", PAIR)).json["request"] for _ in range(20)]

    ids = serve(questions)
    assert len(set(ids)) == len({each[:6] for each in ids}) == 20
    assert min(map(len, ids)) >= 22
    guess = one(serve, "/outcomes", {"outcomes": [{"request": "AAAAAAAAAAAAAAAAAAAAAA", "outcome": 1}]})
    assert guess.status == 404


@pytest.mark.parametrize(
    ("outcome", "line"),
    [
        (7, "row 1: Input should be"),
        ({"outcome": 1}, "row 1, field 'request': Field required"),
        ({"request": "x", "score": 0.5, "outcome": 1}, "row 1: Extra inputs are not permitted"),
        ({"request": "x", "outcome": 2}, "row 1, field 'outcome': is not 0 or 1"),
        ({"request": "x"}, "row 1, field 'outcome': Field required"),
        ({"request": "x", "outcome": 1, "weight": -1}, "row 1, field 'weight': is not a number from 0"),
        ({"request": "x", "outcome": 1, "weight": 1e308}, "row 1, field 'weight': is not a number from 0"),
        ({"request": "x", "outcome": 1, "weight": float("nan")}, "row 1, field 'weight': is not"),
        ({"request": 5, "outcome": 1}, "row 1, field 'request': is not the request of an answer"),
        ({"request": "x" * 65, "outcome": 1}, "row 1, field 'request': is not the request of an answer"),
        ({"request": "x", "row": -1, "outcome": 1}, "row 1, field 'row': is not a row"),
        ({"request": "x", "outcome": 1, "when": 3}, "row 1: Extra inputs are not permitted"),
    ],
)
def test_one_wrong_outcome_refuses_all_and_counts_none(serve, outcome, line):
    async def questions(app):
        right = {"request": (await ask(app, "/score", PAIR)).json["request"], "outcome": 1}
        answer = await ask(app, "/outcomes", {"outcomes": [right, outcome]})
        return answer, await rows_counted(app)

    answer, rows = serve(questions)
    assert answer.status == 422
    assert line in answer.error
    assert rows == 0


@pytest.mark.parametrize(
    ("score", "outcome", "weight"), [(1e-30, 1, 1.0), (1e-30, 0, 1.0), (1e-5, 1, 1e5), (0.0, 1, 1.0)]
)
def test_an_outcome_that_would_decide_every_sum_is_refused(serve, score, outcome, weight):
    async def questions(app):
        rows = outcomes_of(app, np.array([0.5, score]), np.array([1, outcome]), np.array([1.0, weight]))
        return await ask(app, "/outcomes", {"outcomes": rows}), await rows_counted(app)

    answer, rows = serve(questions)
    assert (answer.status, rows) == (422, 0)
    assert "outcome 1: weight ÷ score is above 1e+09" in answer.error


def test_an_outcome_of_nobody_is_404_and_undoes_those_before_it(serve):
    async def questions(app):
        right = {"request": (await ask(app, "/score", PAIR)).json["request"], "outcome": 1}
        answer = await ask(app, "/outcomes", {"outcomes": [right, {"request": "nobody", "outcome": 1}]})
        return answer.status, (await ask(app, "/outcomes", {"outcomes": [right]})).json["counted"]

    assert serve(questions) == (404, 1)


def test_answers_from_two_threads_have_rows_of_their_own(serve):
    """Small requests are answered by the loop and large ones by a thread, at the same time."""

    async def questions(app):
        large = {"rows": PAIR["rows"] * 300}
        answers = await asyncio.gather(*(ask(app, "/score", (large, PAIR)[k % 2]) for k in range(60)))
        came = [{"request": each.json["request"], "row": 0, "outcome": 1} for each in answers]
        return (await ask(app, "/outcomes", {"outcomes": came})).json["counted"]

    assert serve(questions, remember=100_000) == 60


def test_the_state_survives_a_restart_and_forgets_rows_of_long_ago(serve):
    async def before(app):
        old = (await ask(app, "/score", PAIR)).json["request"]
        for _ in range(10):
            new = (await ask(app, "/score", PAIR)).json["request"]
        await ask(app, "/outcomes", {"outcomes": [{"request": new, "outcome": 1}]})
        return old, new, (await ask(app, "/score", PAIR)).json["request"]

    async def after(app):
        answers = [
            await ask(app, "/outcomes", {"outcomes": [{"request": each, "outcome": 1}]}) for each in ids
        ]
        return [each.status for each in answers], [each.json for each in answers[1:]], await rows_counted(app)

    ids = serve(before, remember=10, max_rows=10)
    statuses, (known, fresh), rows = serve(after, remember=10, max_rows=10)
    assert statuses == [404, 200, 200]
    assert (known["known"], fresh["counted"], rows) == (1, 1, 2)


def test_after_a_swap_outcomes_go_to_the_model_that_said_the_score(serve, other_model):
    async def questions(app):
        before = (await ask(app, "/score", PAIR)).json
        served(app, other_model)
        after = (await ask(app, "/score", PAIR)).json
        await ask(app, "/outcomes", {"outcomes": [{"request": before["request"], "outcome": 1}]})
        return before, after, [await rows_counted(app, each["model"]) for each in (before, after)]

    before, after, rows = serve(questions)
    assert before["model"] != after["model"] == other_model.stem
    assert before["scores"] != after["scores"]
    assert rows == [1, 0]


def test_an_operator_forgets_the_outcomes_of_a_model(serve, tmp_path):
    async def before(app):
        request = (await ask(app, "/score", PAIR)).json["request"]
        await ask(app, "/outcomes", {"outcomes": [{"request": request, "outcome": 1}]})
        return app.model.name

    async def after(app):
        request = (await ask(app, "/score", PAIR)).json["request"]
        rows = await rows_counted(app)
        return rows, (await ask(app, "/outcomes", {"outcomes": [{"request": request, "outcome": 1}]})).json

    name = serve(before)
    with pytest.raises(ParameterError, match="no model 'nobody' was served"):
        forget_model(tmp_path / "state", "nobody")
    forget_model(tmp_path / "state", name)
    rows, counts = serve(after)
    assert (rows, counts["counted"]) == (0, 1)


def test_models_long_ago_are_forgotten(serve, ids_model):
    async def questions(app):
        for number in range(MOST_MODELS + 3):
            shutil.copy(ids_model, app.store.file(f"{number:016x}"))
            app.store.serve(f"{number:016x}", "kind")
        return app.store.served, sorted(each.stem for each in app.store.models.iterdir())

    models, files = serve(questions)
    assert models == [f"{number:016x}" for number in range(3, MOST_MODELS + 3)]
    assert files == models[-3:]


def test_one_service_has_a_state_and_a_damaged_one_is_one_line(tmp_path):
    store = Store(tmp_path / "state", 10)
    with pytest.raises(RunFolderError, match="another service has this state"):
        Store(tmp_path / "state", 10)
    store.close()
    (tmp_path / "state" / "service.sqlite").write_bytes(b"nonsense" * 1000)
    with pytest.raises(RunFolderError, match="its database cannot be read"):
        Store(tmp_path / "state", 10)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    with pytest.raises(RunFolderError, match="is a folder with other things in it"):
        Store(tmp_path / "mine", 10)


@pytest.mark.parametrize(
    ("rows", "factor", "healthy"), [(100, 1.0, None), (60_000, 1.0, True), (60_000, 0.5, False)]
)
def test_the_calibration_is_the_audit_of_what_was_served(serve, rows, factor, healthy):
    random = np.random.default_rng(0)
    score = random.uniform(0.02, 0.6, rows).astype(np.float32).astype(float)
    came = random.random(rows) < factor * score

    async def questions(app):
        empty = await ask(app, "/calibration", query=b"format=html")
        await ask(app, "/outcomes", {"outcomes": outcomes_of(app, score, came)})
        queries = [b"", b"format=html", b"format=pdf", b"model=../x"]
        return empty, *[await ask(app, "/calibration", query=query) for query in queries]

    empty, about, page, pdf, other = serve(questions, max_rows=rows, remember=rows, max_body=1 << 24)
    assert "No outcomes have arrived yet" in empty.body.decode()
    figures = about.json
    assert (figures["rows"], figures["healthy"]) == (rows, healthy)
    expected = us.audit(pa.table({"p": score, "conversion": came}), score="p", outcome="conversion")
    assert figures["wce"]["value"] == pytest.approx(expected.wce.value, rel=1e-9)
    assert figures["headline"] == expected.headline
    text = page.body.decode()
    assert figures["headline"] in text
    assert "<svg" in text
    assert "http://" not in text.replace("http://www.w3.org", "")
    assert (pdf.status, other.status) == (422, 404)


def test_outcomes_that_are_all_the_same_decide_nothing(serve):
    async def questions(app):
        await ask(app, "/outcomes", {"outcomes": outcomes_of(app, np.full(5, 0.5), np.zeros(5, bool))})
        return (await ask(app, "/calibration")).json

    figures = serve(questions)
    assert (figures["rows"], figures["healthy"]) == (5, None)
    assert figures["verdict"] == "Undecided: all 5 outcomes are the same."


def test_the_model_says_what_it_is_and_reads(serve, features_model):
    about = one(serve, "/model", settings={"model": features_model}).json
    assert about["name"] == features_model.stem
    assert [(each["name"], each["kind"]) for each in about["fields"]][:3] == [
        ("user", "id"),
        ("item", "id"),
        ("country", "category"),
    ]
    required = [each["name"] for each in about["fields"] if each["required"]]
    assert required == ["user", "item", "position", "noise"]
    assert (about["what"], about["method"], about["unseen"]) == ("conversion", "naive", "other")
    assert (about["outputs"], about["seeds"]) == (["conversion"], [0, 1])
    assert about["versions"]["unskew"] == us.__version__


def test_every_output_of_the_file_is_answered_by_its_name(serve, ids_model, tmp_path):
    onnx = pytest.importorskip("onnx")
    model = onnx.load(ids_model)
    model.graph.node.append(onnx.helper.make_node("Identity", ["conversion"], ["click"]))
    model.graph.output.append(onnx.helper.make_tensor_value_info("click", onnx.TensorProto.FLOAT, ["n"]))
    onnx.save(model, tmp_path / ids_model.name)
    answer = one(serve, "/score", PAIR, settings={"model": tmp_path / ids_model.name}).json
    assert answer["outputs"] == {"conversion": answer["scores"], "click": answer["scores"]}


def test_while_it_ends_it_answers_and_closes_connections(serve):
    async def questions(app):
        app.draining = True
        return await ask(app, "/score", PAIR), await ask(app, "/readyz"), await ask(app, "/healthz")

    score, ready, alive = serve(questions)
    assert (score.status, ready.status, alive.status) == (200, 503, 200)
    assert score.headers[b"connection"] == b"close"


def log_lines(capsys) -> list[dict]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_defect_is_500_and_a_line_that_quotes_no_request(serve, capsys):
    def broken(*given):
        raise ZeroDivisionError(SECRET)

    async def questions(app):
        app.store.add = broken
        return await ask(app, "/score", PAIR)

    assert serve(questions).status == 500
    lines = log_lines(capsys)
    assert [each["event"] for each in lines] == ["defect", "request"]
    assert lines[0]["error"] == "ZeroDivisionError"
    assert SECRET not in json.dumps(lines)


@pytest.mark.parametrize("name", ["unskew.serve.requests", "uvicorn.error"])
def test_lines_about_failures_are_json_and_limited_in_number(capsys, monkeypatch, name):
    monkeypatch.setattr("unskew.serve.logs.time.monotonic", lambda: clock[0])
    clock = [5.0]
    logs.configure()
    for _ in range(300):
        logging.getLogger(name).warning("Invalid HTTP request received.")
    logs.write("serving")
    clock[0] = 6.0
    logging.getLogger(name).warning("another")
    events = [each["event"] for each in log_lines(capsys)]
    shown = logs.FAILURES_A_SECOND
    assert events == ["Invalid HTTP request received."] * shown + ["serving", "lines left out", "another"]
