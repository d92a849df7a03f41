"""Two processes that share replicas: each has afterwards what one process would; a failure is told once."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import unskew as us
from ranks import commanded, together, torchrun
from unskew.base import processes
from unskew.base.errors import DataError, ProcessError
from unskew.propensity.storage import save_propensity

WORLD = {"n_users": 40, "n_items": 30, "density": 0.2}
SHORT = {"epochs": 2, "batch_size": 64}


# What several processes do; each function is called in every one of them.


def the_work(folder: Path) -> None:
    """All that is checked, one after the other, since a start takes longer than all of it."""
    told = {"messages": _messages(), "errors": _errors(), "written": _written(folder)}
    (folder / f"told {processes.rank()}.json").write_text(json.dumps(told))
    _fits(folder)


def _messages() -> list:
    tensors = {
        "none": torch.empty(0, 3),
        "one": torch.tensor(2.5 + processes.rank(), dtype=torch.float64),
        "cut": torch.arange(6).view(2, 3)[:, processes.rank()][:1],
        "yes": torch.tensor([True, False]),
        "half": torch.full((2, 2), 0.5, dtype=torch.bfloat16),
    }
    found = processes.exchange(lambda: ({"rank": processes.rank(), "x": float("inf")}, tensors))
    return [
        [value, {name: [str(each.dtype), each.tolist()] for name, each in tensors.items()}]
        for value, tensors in found
    ]


def _errors() -> list[str]:
    """An error of one is one of both, and both go on."""

    def fails_on_one() -> processes.Packed:
        if processes.rank() == 1:
            raise DataError("a value is wrong", where="column 'x'", remedy="mend it")
        return None, {}

    with pytest.raises(DataError) as told:
        processes.exchange(fails_on_one)
    return [str(told.value), *(value for value, _ in processes.exchange(lambda: ("goes on", {})))]


def _written(folder: Path) -> list[str]:
    processes.write(lambda: (folder / f"by {processes.rank()}.txt").write_text("x") and None)
    return sorted(each.name for each in folder.glob("by *.txt"))


def _fits(folder: Path) -> None:
    """What is fitted, saved by the one that writes."""
    log = us.load("synthetic", **WORLD).train
    small = us.NeuMF(dim=4)
    for crossfit, seeds in ((2, 1), (3, 2)):
        propensity = us.Propensity(learner=small, crossfit=crossfit, **SHORT).fit(log, seeds=seeds)
        save_propensity(propensity, folder / f"propensity {crossfit}", overwrite=True)
        _save_history(folder / f"propensity {crossfit}.json", propensity)
    for kind in (us.Propensity(learner=us.Linear(), crossfit=3), us.PopularityPropensity(crossfit=3)):
        save_propensity(kind.fit(log), folder / kind.name, overwrite=True)
    # Methods that keep states between steps, train in stages, and select; with one seed a process idles.
    for method in (
        us.Naive(learner=small, epochs=12, patience=1, learning_rate=0.05),
        us.StableDR(learner=small, **SHORT),
        us.TDR(learner=small, **SHORT),
        us.ESCM2IPS(learner=us.MMoE(dim=4), click_warm_up=2, **SHORT),
    ):
        for seeds in (1, 3):
            given = None if not method.needs_propensity else 0.3
            model = us.debias.METHODS[method.name](**method.get_params(deep=False))
            model.fit(log, propensity=given, seeds=seeds)
            model.save(folder / f"{method.name} {seeds}", overwrite=True)
            _save_history(folder / f"{method.name} {seeds}.json", model)
    # Members of one seed on different processes.
    many = us.IPS(learner=small, members=3, **SHORT).fit_many(
        log, propensities={"a": 0.3, "b": propensity}, seeds=2
    )
    for key, model in many.items():
        model.save(folder / f"ips {key}", overwrite=True)
        _save_history(folder / f"ips {key}.json", model)


def _save_history(path: Path, model) -> None:
    facts = {"history": model.history_.to_dict(), "collapsed": [list(each) for each in model.collapsed_]}
    if hasattr(model, "validation_loss_"):
        facts["validation"] = model.validation_loss_
    if hasattr(model, "click_propensity_"):
        facts["click tower"] = model.click_propensity_
    # From every process: all have the whole of it.
    gathered = processes.exchange(lambda: (facts, {}))
    assert all(value == gathered[0][0] for value, _ in gathered)
    processes.write(lambda: path.write_text(json.dumps(facts)) and None)


def exchanges(folder: Path) -> None:
    """Messages of each, by rank."""
    (folder / f"told {processes.rank()}.json").write_text(json.dumps([processes.world(), _messages()]))


def one_dies(folder: Path) -> None:
    """Rank 1 is killed while the other waits for it."""
    if processes.rank() == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    try:
        processes.exchange(lambda: (None, {}))
    except ProcessError as error:
        (folder / "told.txt").write_text(str(error))
        raise


def one_fails(folder: Path) -> None:
    """Rank 1 meets an error of its own while the other waits for it."""
    if processes.rank() == 1:
        raise DataError("the file is not there", remedy="copy it")
    try:
        processes.exchange(lambda: (None, {}))
    except ProcessError as error:
        (folder / "told.txt").write_text(str(error))


def one_cache(folder: Path) -> None:
    """Both read the same large file at the same moment."""
    from unskew.data import cache, read, two_passes

    cache.HELD_BYTES = two_passes.MAPPED_BYTES = 0
    encode, encoded = read.log_of, []

    def counted(*given, **named):
        encoded.append(processes.rank())
        return encode(*given, **named)

    read.log_of = counted
    processes.exchange(lambda: (None, {}))
    log = us.read_log(folder / "log.parquet", space="impressions", features="auto", cache=folder / "cache")
    assert isinstance(log.user, np.memmap)
    told = {"encoded": encoded, "file": str(log.user.filename), "digest": log.digest}
    told["sum"] = int(log.user.sum())
    (folder / f"told {processes.rank()}.json").write_text(json.dumps(told))


# The tests.


@pytest.fixture(scope="module")
def folders(tmp_path_factory) -> tuple[Path, Path]:
    """What one process makes, and what two do."""
    one, two = tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")
    outcome = together(__file__, "the_work", two)
    assert [code for code, _ in outcome] == [0, 0], outcome
    _fits(one)
    return one, two


def test_each_process_has_what_all_sent(folders):
    told = [json.loads((folders[1] / f"told {rank}.json").read_text()) for rank in range(2)]
    assert told[0] == told[1]
    for rank, (value, tensors) in enumerate(told[0]["messages"]):
        assert value == {"rank": rank, "x": float("inf")}
        assert tensors == {
            "none": ["torch.float32", []],
            "one": ["torch.float64", 2.5 + rank],
            "cut": ["torch.int64", [rank]],
            "yes": ["torch.bool", [True, False]],
            "half": ["torch.bfloat16", [[0.5, 0.5], [0.5, 0.5]]],
        }


def test_a_process_group_that_is_there_is_joined_and_left_there(tmp_path):
    """As Ray Train, Lightning and Spark's TorchDistributor start it."""
    outcome = together(__file__, "exchanges", tmp_path, joined=True)
    assert [code for code, _ in outcome] == [0, 0], outcome
    told = [json.loads((tmp_path / f"told {rank}.json").read_text()) for rank in range(2)]
    assert told[0] == told[1]
    assert told[0][0] == len(told[0][1]) == 2


def test_an_error_of_one_is_raised_by_all_with_its_rank_and_none_waits(folders):
    told = json.loads((folders[1] / "told 0.json").read_text())["errors"]
    assert told == [
        "rank 1 of 2, column 'x': a value is wrong. To fix: mend it.",
        "goes on",
        "goes on",
    ]


def test_one_process_writes_and_all_wait_for_it(folders):
    told = [json.loads((folders[1] / f"told {rank}.json").read_text()) for rank in range(2)]
    assert [each["written"] for each in told] == [["by 0.txt"]] * 2


def test_two_processes_train_what_one_does(folders):
    from safetensors.torch import load_file

    one, two = folders
    names = sorted(each.name for each in one.iterdir())
    assert len(names) > 15
    assert [name for name in names if not (two / name).exists()] == []
    for weights in one.rglob("*.safetensors"):
        expected, found = load_file(weights), load_file(two / weights.relative_to(one))
        assert sorted(expected) == sorted(found)
        for name, each in expected.items():
            np.testing.assert_allclose(
                found[name].float(), each.float(), rtol=2e-4, atol=2e-6, err_msg=f"{weights} {name}"
            )
    for facts in (each for each in one.glob("*.json")):
        expected, found = (json.loads((folder / facts.name).read_text()) for folder in folders)
        assert _plain(found) == pytest.approx(_plain(expected), rel=1e-4, abs=1e-6, nan_ok=True), facts


def _plain(value) -> list[float]:
    """All numbers of a document, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [number for each in value for number in _plain(each)]
    return [float(value)] if isinstance(value, int | float) else []


def test_a_process_that_is_killed_ends_the_others_with_a_line(tmp_path):
    (code, line), (killed, _) = together(__file__, "one_dies", tmp_path)
    assert killed == -signal.SIGKILL
    assert code != 0
    assert "ProcessError" in line
    assert (tmp_path / "told.txt").read_text() == (
        "another process was killed, or its machine ran out of memory. To fix: start the same command again."
    )


def test_the_error_of_one_is_what_the_others_are_told(tmp_path):
    (code, _), (failed, _) = together(__file__, "one_fails", tmp_path)
    assert (code, failed) == (0, 1)
    assert (tmp_path / "told.txt").read_text().startswith("rank 1 of 2 failed: the file is not there.")


def test_one_process_writes_the_cache_and_all_map_it(tmp_path):
    random = np.random.default_rng(5)
    click = random.integers(2, size=300_000)
    columns = {
        "user": random.integers(5_000, size=300_000),
        "item": random.integers(400, size=300_000),
        "click": click,
        "conversion": click * random.integers(2, size=300_000),
    }
    pq.write_table(pa.table(columns), tmp_path / "log.parquet", row_group_size=20_000)
    outcome = together(__file__, "one_cache", tmp_path)
    assert [code for code, _ in outcome] == [0, 0], outcome
    told = [json.loads((tmp_path / f"told {rank}.json").read_text()) for rank in range(2)]
    assert len(told[0]["encoded"] + told[1]["encoded"]) == 1
    assert {**told[0], "encoded": None} == {**told[1], "encoded": None}
    (log,) = [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]
    assert Path(told[0]["file"]).parent == log
    assert told[0]["sum"] == columns["user"].sum()  # All ids occur, and so are codes.


@pytest.mark.parametrize("verb", ["audit", "weights", "score"])
def test_verbs_over_files_are_the_work_of_one_process(monkeypatch, capsys, verb):
    from unskew.cli import main

    monkeypatch.setattr(processes, "_group", processes.Processes(0, 2, None))
    monkeypatch.setattr(processes, "leave", lambda **_: None)
    monkeypatch.setattr(processes, "failed", lambda line: True)
    assert main([verb, "rows.parquet"]) == 2
    assert capsys.readouterr().err == (
        f"unskew: rank 0 of 2: unskew {verb} is the work of one process, and torchrun started 2."
        " To fix: start it without torchrun; for larger data use DuckDB or Spark.\n"
    )


UNDRAWN = """
import unskew.report
unskew.report.render_run_report = lambda **told: "<html></html>"
unskew.report.overview_svg = lambda **told: "<svg/>"
"""


@pytest.mark.usefixtures("undrawn")
def test_the_command_gives_the_folder_of_one_process_and_tells_an_error_once(tmp_path):
    from safetensors.numpy import load_file

    from unskew.cli import main

    job = ["run", "--data", "synthetic", "--propensity", "popularity", "--seeds", "2", "--crossfit", "2"]
    job += [part for name, value in WORLD.items() for part in ("--option", f"{name}={value}")]
    job += ["--method", "ips", "--set", "method.epochs=2", "--learner", "mf"]
    (tmp_path / "undrawn.py").write_text(UNDRAWN)
    done = commanded("--with", str(tmp_path / "undrawn.py"), *job, "--out", str(tmp_path / "two"))
    assert [code for code, _, _ in done] == [0, 0], done
    assert ["The report:" in said for _, said, _ in done] == [True, False]
    assert main([*job, "--out", str(tmp_path / "one")]) == 0
    files = sorted(each.name for each in (tmp_path / "one").iterdir())
    assert files == sorted(each.name for each in (tmp_path / "two").iterdir())
    models = [load_file(tmp_path / each / "model.safetensors") for each in ("one", "two")]
    for name, each in models[0].items():
        np.testing.assert_allclose(models[1][name], each, rtol=1e-5, atol=1e-7, err_msg=name)
    metrics = [_plain(json.loads((tmp_path / each / "metrics.json").read_text())) for each in ("one", "two")]
    assert metrics[1] == pytest.approx(metrics[0], rel=1e-6, nan_ok=True)
    again = torchrun(*job, "--out", str(tmp_path / "two"))
    assert again.returncode != 0
    assert again.stderr.count("unskew: ") == 1
    assert "rank " in again.stderr


def test_alone_there_is_one_process_and_nothing_to_wait_for():
    start = time.monotonic()
    with us.torchrun():
        assert (processes.rank(), processes.world(), processes.is_writer()) == (0, 1, True)
        assert processes.exchange(lambda: ("mine", {})) == [("mine", {})]
        assert processes.share(7) == slice(0, 7)
    assert time.monotonic() - start < 5


def test_half_an_environment_of_torchrun_is_refused(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.delenv("MASTER_ADDR", raising=False)
    with pytest.raises(us.UnskewError, match="MASTER_ADDR"), us.torchrun():
        pass


KILLER = """
import os, signal
from pathlib import Path
from unskew.base import processes
from unskew.training import checkpoint, steps

mark, taken, take = Path(__file__).with_name("killed"), [], steps.EagerSteps.take

def counted(self, sample):
    taken.append(None)
    if processes.rank() == 1 and len(taken) == 12 and not mark.exists():
        mark.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return take(self, sample)

steps.EagerSteps.take = counted
checkpoint.Checkpoint.is_due = property(lambda self: True)
"""


@pytest.mark.hostile
def test_a_rank_that_is_killed_is_started_again_and_the_job_goes_on_to_the_same_end(tmp_path):
    """It is killed in the midst of a training of its replicas."""
    from safetensors.numpy import load_file

    random = np.random.default_rng(1)
    click = (random.random(2_000) < 0.4).astype(int)
    columns = {
        "user": random.integers(60, size=2_000),
        "item": random.integers(40, size=2_000),
        "click": click,
        "conversion": click * random.integers(2, size=2_000),
    }
    pq.write_table(pa.table(columns), tmp_path / "log.parquet", row_group_size=300)
    (tmp_path / "killer.py").write_text(KILLER)
    job = ["run", "--data", str(tmp_path / "log.parquet"), "--space", "impressions"]
    job += ["--seeds", "2", "--crossfit", "2", "--propensity", "mf", "--learner", "mf"]
    job += ["--set", "method.epochs=3", "--set", "propensity.epochs=2", "--set", "method.batch_size=64"]
    wanted = torchrun(*job, "--out", str(tmp_path / "plain"))
    assert wanted.returncode == 0, wanted.stderr
    killed = torchrun(
        *("--with", str(tmp_path / "killer.py"), *job, "--checkpoint", str(tmp_path / "night")),
        *("--out", str(tmp_path / "killed run")),
        options=("--max-restarts", "1"),
    )
    assert (tmp_path / "killed").exists()
    assert killed.returncode == 0, killed.stderr
    assert killed.stderr.count("unskew: rank 0 of 2: another process was killed") == 1
    assert "unskew: going on from" in killed.stderr
    for name in ("model.safetensors", "propensity.safetensors"):
        expected, found = (load_file(tmp_path / run / name) for run in ("plain", "killed run"))
        for key, value in expected.items():
            np.testing.assert_array_equal(found[key], value, err_msg=f"{name} {key}")


def test_ranks_that_read_other_data_are_told(monkeypatch):
    """As on a machine with an old copy of the files."""
    from unskew.run import job

    dataset = us.load("synthetic", **WORLD)
    own = job.contents_of(dataset)
    job.require_same_data(dataset)
    monkeypatch.setattr(processes, "world", lambda: 3)
    for other in ({"train": "old"}, {"train": "old", "test": None}):
        ranks = [(own, {}), (own, {}), ({**own, **other}, {})]
        monkeypatch.setattr(processes, "exchange", lambda work, ranks=ranks: ranks)
        with pytest.raises(DataError, match=rf"rank 2 of 3 .* other data than rank 0 \({', '.join(other)}\)"):
            job.require_same_data(dataset)


def test_a_signal_is_heard_while_others_are_waited_for():
    def fails():
        raise ValueError("no connection")

    assert processes.waited_for(lambda: 7) == 7
    with pytest.raises(ValueError, match="no connection"):
        processes.waited_for(fails)
    ended = threading.Event()
    before = signal.signal(signal.SIGALRM, lambda *_: ended.set())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        # Released by the handler, which runs in the thread that waits.
        processes.waited_for(ended.wait)
    finally:
        signal.signal(signal.SIGALRM, before)
