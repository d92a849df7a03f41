"""The service as a process: hot reload, kills, its end, and the load test in short."""

from __future__ import annotations

import asyncio
import json
import os
import runpy
import shutil
import signal
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import unskew as us
from unskew.cli import main
from unskew.errors import RunFolderError
from unskew.own_code import load_own_code
from unskew.registry import METHODS
from unskew.serve.reload import Loader
from unskew.serve.settings import ServeSettings
from unskew.serve.state import State

if sys.platform != "linux":
    pytest.skip("signals and /proc", allow_module_level=True)

EXAMPLE = Path(__file__).parents[2] / "examples" / "add_a_method.py"
LOAD = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "serve.py"))
Service, Client, Endurance = LOAD["Service"], LOAD["Client"], LOAD["Endurance"]
SHAPE = (50, 40)


def with_model(service, run, ready):
    """A service whose model is made ready already, which takes seconds."""
    shutil.copytree(run, service.run)
    State(service.state).close()
    shutil.copytree(ready, service.state / "models" / ready.name)
    service.start()
    return service


@pytest.fixture
def service(ids_run, ids_ready, tmp_path):
    made = with_model(Service(tmp_path / "run", tmp_path / "state"), ids_run, ids_ready)
    yield made
    made.process.stdout.close()
    made.process.kill()
    made.process.wait()


def test_no_request_fails_while_runs_are_exchanged_and_the_service_is_killed(service, ids_run, other_run):
    """Every answer is right and of the model that it names; the sketch has what it said it would have."""
    runs = [ids_run, other_run]
    expected = {LOAD["name_of"](run): LOAD["expected_scores"](run, *SHAPE) for run in runs}
    load = Endurance(service, SHAPE, expected, requests=600, at_once=4, pause=0.01)
    found = asyncio.run(LOAD["endure"](load, runs, reloads=3, kills=2))
    assert found["right"] == found["asked"] >= 600
    assert (found["reloads"], found["damaged, refused"], found["kills"]) == (3, 1, 2)
    assert found["broken connections"] > 0
    assert found["models"] == 2
    sent = found["outcomes counted"]
    assert found["outcomes in sketches"] <= sent
    assert service.end() == 0
    events = Counter(each["event"] for each in service.events())
    assert events["run loaded"] >= 1
    assert events["ended"] == 1
    assert "defect" not in events


def test_what_was_accepted_is_answered_and_the_sketch_is_saved_at_the_end(service):
    rows = 20_000
    pairs = {"user": [each % 50 for each in range(rows)], "item": [each % 40 for each in range(rows)]}
    large, small = json.dumps({"columns": pairs}).encode(), b'{"rows": [{"user": 1, "item": 2}]}'

    async def questions():
        clients = [Client(service.port) for _ in range(6)]
        first = json.loads((await clients[0].ask("POST", "/score", small))[1])
        body = json.dumps({"outcomes": [{"request": first["request"], "outcome": 1}]}).encode()
        assert (await clients[0].ask("POST", "/outcomes", body))[0] == 200
        asked = [asyncio.create_task(each.ask("POST", "/score", large)) for each in clients]
        await asyncio.sleep(0.05)
        service.process.send_signal(signal.SIGTERM)
        answers = await asyncio.gather(*asked)
        for each in clients:
            each.close()
        return answers, sum(each.broken for each in clients)

    answers, broken = asyncio.run(questions())
    assert [status for status, _ in answers] == [200] * 6
    assert {len(json.loads(body)["scores"]) for _, body in answers} == {rows}
    assert broken == 0
    assert service.process.wait(timeout=60) == 0
    from unskew.metrics import CalibrationSketch

    (sketch,) = service.state.glob("sketches/*.npz")
    assert CalibrationSketch.load(sketch).rows == 1


def test_a_damaged_run_at_the_start_leaves_the_model_before(service, other_run):
    """The last model that was served goes on, and the log says why."""
    name = LOAD["name_of"](service.run)
    assert service.end() == 0
    LOAD["put_in_place"](other_run, service.run, damaged=True)
    service.start()

    async def question():
        client = Client(service.port)
        told = json.loads((await client.ask("GET", "/model"))[1])
        client.close()
        return told

    assert asyncio.run(question())["name"] == name
    refused = [each for each in service.events() if each["event"] == "run refused"]
    assert "model.safetensors is damaged" in refused[-1]["why"]


def test_who_has_a_state_does_not_wait_for_itself(tmp_path, monkeypatch):
    """Files are put into a folder under its lock, which the service holds already."""
    monkeypatch.setattr("unskew.io.moving.time.sleep", lambda _: pytest.fail("it waits for its own lock"))
    for _ in range(2):
        state = State(tmp_path / "state")
        (state.models / "a1").mkdir(exist_ok=True)
        state.serve("a1")
        assert state.served == ["a1"]
        state.close()


def test_a_model_that_an_orphan_makes_ready_meanwhile_is_served(ids_run, ids_ready, tmp_path):
    """The child of a killed service goes on; whichever of two is first, both find the model."""
    loader = Loader(ServeSettings(run=ids_run, state=tmp_path / "state"), State(tmp_path / "state"))

    async def both():
        return await asyncio.gather(loader.load(loader.name()), loader.load(loader.name()))

    assert [each.name for each in asyncio.run(both())] == [ids_ready.name] * 2
    loader.state.close()


def test_a_method_of_ones_own_is_made_ready_by_a_process_that_runs_its_file(tmp_path):
    load_own_code(EXAMPLE)
    try:
        log = us.load("synthetic", n_users=50, n_items=40, density=0.2, seed=3).train
        model = METHODS["damped-ips"](backbone=us.MF(dim=4), epochs=1)
        model.fit(log, seeds=1, propensity=np.full(len(log), 0.2)).save(tmp_path / "run")
    finally:
        del METHODS["damped-ips"]
    settings = ServeSettings(run=tmp_path / "run", state=tmp_path / "state", own_code=(EXAMPLE,))
    loader = Loader(settings, State(settings.state))
    assert asyncio.run(loader.load(loader.name())).facts["method"] == "damped-ips"
    loader.state.close()


def test_files_of_ones_own_are_checked_first_and_not_run_by_the_service(ids_run, tmp_path, capsys):
    state = ["--port", "0", "--state", tmp_path / "state"]
    line = fails(["--with", tmp_path / "no.py", "serve", ids_run, *state], capsys)
    assert "there is no such file" in line
    broken = tmp_path / "broken.py"
    broken.write_text("import os\nraise RuntimeError(f'not {os.getpid()}')", encoding="utf-8")
    line = fails(["--with", broken, "serve", ids_run, *state], capsys)
    assert "RuntimeError: not " in line
    assert f"not {os.getpid()}" not in line


def test_a_connection_that_never_ends_its_head_is_closed(ids_run, ids_ready, tmp_path):
    import socket
    import time

    service = Service(tmp_path / "run", tmp_path / "state", options=("--timeout", "1"))
    with_model(service, ids_run, ids_ready)
    try:
        with socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection:
            connection.sendall(b"POST /score HTTP/1.1\r\nHost: x\r\n")
            began = time.monotonic()
            assert connection.recv(100) == b""
            assert time.monotonic() - began < 20
    finally:
        service.end()


def fails(arguments, capsys) -> str:
    assert main([str(each) for each in arguments]) == 2
    out, error = capsys.readouterr()
    assert out == ""
    assert error.count("\n") == 1, error
    return error


def test_what_cannot_be_served_is_one_line(ids_run, tmp_path, capsys, monkeypatch):
    run = tmp_path / "run"
    shutil.copytree(ids_run, run)
    state = ["--state", tmp_path / "state", "--port", "0"]
    assert "its manifest cannot be read" in fails(["serve", tmp_path / "no", *state], capsys)
    assert "holds no propensity" in fails(["serve", run, "--what", "propensity", *state], capsys)
    assert "what must be one of" in fails(["serve", run, "--what", "clicks", *state], capsys)
    assert "would change" in fails(["serve", run, "--state", run / "state"], capsys)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("x")
    line = fails(["serve", run, "--state", tmp_path / "mine", "--port", "0"], capsys)
    assert "is a folder with other things in it" in line
    monkeypatch.setenv("UNSKEW_TOKEN", "short")
    assert "a token of fewer than 8 characters is guessed" in fails(["serve", run, *state], capsys)


def test_an_address_that_is_taken_is_one_line(ids_run, tmp_path, capsys):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        line = fails(["serve", ids_run, "--state", tmp_path / "state", "--port", port], capsys)
    assert f"cannot listen at 127.0.0.1:{port}" in line


def test_without_the_extra_it_says_what_to_install(ids_run, capsys, monkeypatch):
    import importlib.util

    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "uvicorn" else found(name))
    assert "pip install 'unskew[serve]'" in fails(["serve", ids_run], capsys)


def test_it_serves_what_the_verb_scores_alone_and_writes_into_its_folder_only(service, ids_run):
    expected = LOAD["expected_scores"](ids_run, *SHAPE)
    user, item = np.indices(SHAPE).reshape(2, -1)
    body = json.dumps({"columns": {"user": user.tolist(), "item": item.tolist()}}).encode()

    async def question():
        client = Client(service.port)
        answer = json.loads((await client.ask("POST", "/score", body))[1])
        client.close()
        return answer

    np.testing.assert_allclose(asyncio.run(question())["scores"], expected.reshape(-1), atol=1e-6)
    with pytest.raises(RunFolderError, match="another service has this state"):
        State(service.state)
    assert service.end() == 0
    assert sorted(os.listdir(service.run)) == sorted(os.listdir(ids_run))
    assert sorted(os.listdir(service.run.parent)) == ["run", "state", "state.log"]
    state = sorted(each.name for each in service.state.iterdir())
    assert state == ["answered.bin", "models", "sketches", "unskew-serve.json"]
