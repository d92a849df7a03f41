"""The service as a process: hot reload, kills, hostile clients, its end."""

from __future__ import annotations

import asyncio
import json
import os
import re
import runpy
import shutil
import signal
import socket
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

import unskew as us
from cli.conftest import fails
from unskew.base.own_code import load_own_code
from unskew.base.registry import METHODS
from unskew.cli import main

if sys.platform != "linux":
    pytest.skip("signals and /proc", allow_module_level=True)
pytest.importorskip("starlette")
pytest.importorskip("onnxruntime")

from unskew.serve.store import Store

EXAMPLE = Path(__file__).parents[2] / "examples" / "add_a_method.py"
LOAD = runpy.run_path(str(Path(__file__).parents[2] / "benchmarks" / "serve.py"))
Service, Client, Endurance = LOAD["Service"], LOAD["Client"], LOAD["Endurance"]
SHAPE = (50, 40)


@pytest.fixture
def start(ids_run, ids_model, tmp_path):
    """Start a service whose model is exported already, which takes seconds."""
    made = []

    def begin(*options):
        service = Service(tmp_path / "run", tmp_path / "state", options=options)
        shutil.copytree(ids_run, service.run)
        store = Store(service.state, 10)
        shutil.copy(ids_model, store.models)
        store.serve(ids_model.stem, json.dumps(["all", None]))
        store.close()
        service.start()
        made.append(service)
        return service

    yield begin
    for service in made:
        service.process.stdout.close()
        service.process.kill()
        service.process.wait()


def ask(service, *questions):
    async def talk():
        client = Client(service.port)
        answers = [await client.ask(*each) for each in questions]
        client.close()
        return [(status, json.loads(body)) for status, body in answers]

    return asyncio.run(talk())


def test_no_request_fails_and_no_outcome_is_lost_while_runs_change_and_the_service_is_killed(
    start, ids_run, other_run
):
    """Every answer is right and of the model that it names; every acknowledged outcome is counted once."""
    service, runs = start(), [ids_run, other_run]
    expected = {LOAD["name_of"](run): LOAD["expected_scores"](run, *SHAPE) for run in runs}
    load = Endurance(service, SHAPE, expected, requests=600, at_once=4, pause=0.01)
    found = asyncio.run(load.run(runs, reloads=3, kills=2))
    assert found["right"] == found["asked"] >= 600
    assert (found["reloads"], found["damaged, refused"], found["kills"]) == (3, 1, 2)
    assert found["broken connections"] > 0
    assert found["models"] == 2
    assert found["counted"] == found["acknowledged"] > 0
    assert service.end() == 0
    events = Counter(each["event"] for each in service.events())
    assert events["run loaded"] >= 1
    assert events["ended"] == 1
    assert "defect" not in events


def test_what_was_accepted_is_answered_at_the_end(start):
    service, rows = start(), 10_000
    pairs = [{"user": each % 50, "item": each % 40} for each in range(rows)]
    large = json.dumps({"rows": pairs}).encode()

    async def questions():
        clients = [Client(service.port) for _ in range(4)]
        await asyncio.gather(*(each.ask("GET", "/healthz") for each in clients))
        asked = [asyncio.create_task(each.ask("POST", "/score", large)) for each in clients]
        await asyncio.sleep(0)
        service.process.send_signal(signal.SIGTERM)
        answers = await asyncio.gather(*asked)
        for each in clients:
            each.close()
        return answers, sum(each.broken for each in clients)

    answers, broken = asyncio.run(questions())
    assert [status for status, _ in answers] == [200] * 4
    assert {len(json.loads(body)["scores"]) for _, body in answers} == {rows}
    assert broken == 0
    assert service.process.wait(timeout=60) == 0


@pytest.mark.parametrize("damage", ["cut", "fifo"])
def test_a_damaged_run_at_the_start_leaves_the_model_before(start, other_run, damage):
    """The last model that was served goes on, and the log says why; a pipe is not read."""
    service = start()
    name = LOAD["name_of"](service.run)
    assert service.end() == 0
    LOAD["put_in_place"](other_run, service.run, damaged=damage == "cut")
    if damage == "fifo":
        (service.run / "manifest.json").unlink()
        os.mkfifo(service.run / "manifest.json")
    service.start()
    assert ask(service, ("GET", "/model"))[0][1]["name"] == name
    refused = [each for each in service.events() if each["event"] == "run refused"]
    why = "model.safetensors is damaged" if damage == "cut" else "its manifest cannot be read"
    assert why in refused[-1]["why"]


def test_hostile_clients_cost_little_memory(start):
    """They pipeline, send slowly, too much, nonsense, and read nothing; others are served meanwhile."""
    service = start("--timeout", "1")
    found = LOAD["attack"](service, 4.0, 45, list(LOAD["HOSTILE"]))
    assert found["MiB more"] < 100
    ((status, answer),) = ask(service, ("POST", "/score", b'{"rows": [{"user": 1, "item": 2}]}'))
    assert (status, len(answer["scores"])) == (200, 1)
    events = Counter(each["event"] for each in service.events())
    assert "defect" not in events


@pytest.mark.parametrize("kind", ["slow head", "slow body", "pipelined probes"])
def test_a_connection_that_does_not_move_is_closed(start, kind):
    service = start("--timeout", "1")
    first, further = LOAD["HOSTILE"][kind]

    async def talk():
        client = Client(service.port)

        async def files():
            _, page = await client.ask("GET", "/metrics")
            return re.search(r"^process_open_fds (\S+)", page.decode(), re.MULTILINE)[1]

        before = await files()
        with socket.create_connection(("127.0.0.1", service.port), timeout=30) as connection:
            connection.sendall(first or further[: 1 << 16])
            connection.setblocking(False)
            opened = False
            for _ in range(3000):
                with suppress(BlockingIOError, ConnectionError):
                    connection.send(b"a" if first else further)
                now = await files()
                if opened and now == before:
                    break
                opened = opened or now != before
        client.close()
        await asyncio.sleep(0)
        return before, opened, now

    before, opened, after = asyncio.run(talk())
    assert opened
    assert after == before


def test_a_method_of_ones_own_is_exported_by_a_process_that_runs_its_file(tmp_path, capsys):
    load_own_code(EXAMPLE)
    try:
        log = us.load("synthetic", n_users=50, n_items=40, density=0.2, seed=3).train
        model = METHODS["damped-ips"](learner=us.MF(dim=4), epochs=1)
        model.fit(log, seeds=1, propensity=np.full(len(log), 0.2)).save(tmp_path / "run")
    finally:
        del METHODS["damped-ips"]

    class Own(Service):
        def command(self):
            first, *rest = super().command()[3:]
            return [sys.executable, "-m", "unskew", "--with", str(EXAMPLE), first, *rest]

    service = Own(tmp_path / "run", tmp_path / "state")
    service.start()
    assert ask(service, ("GET", "/model"))[0][1]["method"] == "damped-ips"
    assert service.end() == 0


def test_files_of_ones_own_are_not_run_by_the_service(ids_run, tmp_path, capsys):
    state = ["--port", "0", "--state", tmp_path / "state"]
    line = fails(["--with", tmp_path / "no.py", "serve", ids_run, *state], capsys)
    assert "there is no such file" in line
    broken = tmp_path / "broken.py"
    broken.write_text("import os\nraise RuntimeError(f'not {os.getpid()}')", encoding="utf-8")
    line = fails(["--with", broken, "serve", ids_run, *state], capsys)
    assert "RuntimeError: not " in line
    assert f"not {os.getpid()}" not in line


def test_what_cannot_be_served_is_one_line(ids_run, tmp_path, capsys, monkeypatch):
    run = tmp_path / "run"
    shutil.copytree(ids_run, run)
    state = ["--state", tmp_path / "state", "--port", "0"]
    assert "its manifest cannot be read" in fails(["serve", tmp_path / "no", *state], capsys)
    assert "holds no propensity" in fails(["serve", run, "--what", "propensity", *state], capsys)
    assert "would change" in fails(["serve", run, "--state", run / "state"], capsys)
    (tmp_path / "empty").mkdir()
    forget = ["serve", run, "--state", tmp_path / "empty", "--forget", "x"]
    assert "is no folder of a service" in fails(forget, capsys)
    monkeypatch.setenv("UNSKEW_TOKEN", "short")
    assert "a token of fewer than 8 characters is guessed" in fails(["serve", run, *state], capsys)


@pytest.mark.parametrize(
    ("make", "line"),
    [
        (lambda path: path.symlink_to("/dev/zero"), "is not a regular file"),
        (os.mkfifo, "is not a regular file"),
        (lambda path: path.write_bytes(b"x" * 10_000), "holds no token"),
        (lambda path: path.write_bytes(b"\n"), "holds no token"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "cannot be read"),
    ],
)
def test_a_token_file_without_a_token_is_one_line(tmp_path, capsys, make, line):
    make(tmp_path / "token")
    assert line in fails(["serve", tmp_path, "--token-file", tmp_path / "token"], capsys)


def test_a_token_file_that_others_can_read_is_told(tmp_path, capsys):
    token = tmp_path / "token"
    token.write_text("a token of some length")
    for mode, told in ((0o644, True), (0o600, False)):
        token.chmod(mode)
        main(["serve", str(tmp_path / "no"), "--token-file", str(token)])
        assert (f"other users can read {token}. To fix: chmod 600." in capsys.readouterr().err) is told


def test_an_address_that_is_taken_is_one_line(ids_run, tmp_path, capsys):
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


def test_it_serves_what_the_verb_scores_and_writes_into_its_folder_only(start, ids_run, ids_model):
    service = start()
    expected = LOAD["expected_scores"](ids_run, *SHAPE)
    user, item = np.indices(SHAPE).reshape(2, -1)
    pairs = [{"user": int(u), "item": int(i)} for u, i in zip(user, item, strict=True)]
    body = json.dumps({"rows": pairs}).encode()
    ((_, answer),) = ask(service, ("POST", "/score", body))
    np.testing.assert_allclose(answer["scores"], expected.reshape(-1), atol=1e-6)
    assert service.end() == 0
    assert sorted(os.listdir(service.run)) == sorted(os.listdir(ids_run))
    assert sorted(os.listdir(service.run.parent)) == ["run", "state", "state.log"]
    assert sorted(each.name for each in service.state.iterdir()) == ["models", "service.sqlite"]
    assert os.listdir(service.state / "models") == [ids_model.name]


def test_what_serves_loads_no_torch(features_model):
    code = (
        "import json, sys; from pathlib import Path\n"
        "from unskew.serve import server\n"
        "from unskew.serve.served_model import ServedModel\n"
        f"ServedModel(Path({str(features_model)!r}), None, 10)\n"
        "print(json.dumps([each for each in ('torch', 'safetensors.torch') if each in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == []
