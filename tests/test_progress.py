"""A bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import json
import sys
import types

import pytest

from unskew.base.errors import ParameterError
from unskew.base.progress import Views, lines, progress_bars


def test_short_work_says_nothing_where_there_is_no_terminal(capsys):
    with progress_bars() as progress:
        tracker = progress.task("training", 3)
        tracker.advance()
        tracker.finish()
    assert capsys.readouterr() == ("", "")


def test_long_work_says_a_line_now_and_then_where_there_is_no_terminal(capsys):
    tracker = Views(lines(quiet=0.0, between=1e6)).task("study", 40)
    tracker.say("2 of 25: dr-jl\x1b[2J")
    tracker.advance(7)
    tracker.advance(7)
    out, error = capsys.readouterr()
    assert out == ""
    assert error.count("\n") == 1, "the second line came too soon"
    assert error.startswith("study · 2 of 25: dr-jl")
    assert ": 7 of 40, 18 %, after 0 s, 0 s left" in error
    assert "\x1b" not in error


def test_bars_are_shown_on_standard_error_and_are_full_at_the_end(capsys):
    with progress_bars(show=True) as progress:
        tracker = progress.task("propensity", 40)
        tracker.advance(7)
        tracker.finish()
    out, error = capsys.readouterr()
    assert out == ""
    assert "propensity" in error
    assert "done" in error


def test_steps_beyond_counting_are_a_share_and_a_bar_says_what_it_is_about(capsys):
    with progress_bars(show=True) as progress:
        tracker = progress.task("study", 8_000_000)
        tracker.say("2 of 25: dr-jl [/b]")
        tracker.advance(4_000_000)
        progress.task("other", 3).finish()
    error = capsys.readouterr().err
    assert "study · 2 of 25: dr-jl [/b]" in error
    assert "50 %" in error
    assert "4000000" not in error


def test_a_line_tells_rows_a_second_the_loss_and_memory(capsys):
    tracker = Views(lines(quiet=0.0)).task("ips", 4)
    tracker.observe(0.5, 1000, {"loss": 0.25, "epoch": 1})
    error = capsys.readouterr().err
    assert error.startswith("ips: 0 of 4, 12 %, after 0 s, 0 s left, ")
    assert " rows/s, loss 0.25, " in error
    assert error.endswith(" GB\n")


def test_the_log_for_machines_has_a_json_object_a_line_and_is_appended_to(tmp_path):
    path = tmp_path / "log.jsonl"
    for _ in range(2):
        with progress_bars(False, log_json=path) as progress:
            tracker = progress.task("ips", 2)
            tracker.observe(1.0, 500, {"loss": float("nan"), "epoch": 1})
            tracker.advance()
            tracker.finish()
    records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [each["event"] for each in records] == ["start", "progress", "end"] * 2
    reported = records[1]
    assert (reported["phase"], reported["done"], reported["total"], reported["rows"]) == ("ips", 1, 2, 500)
    assert reported["loss"] is None
    assert reported["share"] == 0.5
    assert reported["rows_per_second"] > 0
    assert reported["memory_mb"] > 1
    assert "about" not in reported
    assert reported["time"].endswith("+00:00")


def test_what_may_end_early_tells_the_least_that_is_left_and_no_share(capsys, monkeypatch):
    clock = [0.0]
    monkeypatch.setattr("unskew.base.progress.time", types.SimpleNamespace(monotonic=lambda: clock[0]))
    tracker = Views(lines(quiet=0.0, between=0.0)).task("ips", 200)
    tracker.go_on(20)
    tracker.may_end(11)
    clock[0] = 30.0
    tracker.advance(3)
    assert capsys.readouterr().err.startswith("ips: 23 of at most 200, after 30 s, at least 80 s left, ")


@pytest.mark.parametrize(("option", "package"), [("tensorboard", "TensorBoard"), ("mlflow", "MLflow")])
def test_what_is_not_installed_is_reported_in_a_line(option, package, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    opened = progress_bars(False, **{option: tmp_path})
    with pytest.raises(ParameterError, match=f"{package} is not installed. To fix: pip install {option}"):
        opened.__enter__()


def test_mlflow_gets_the_figures_of_each_step(monkeypatch):
    logged = []
    fake = types.ModuleType("mlflow")
    fake.active_run = lambda: "a run of the user's"
    fake.log_metric = lambda name, value, step: logged.append((name, value, step))
    monkeypatch.setitem(sys.modules, "mlflow", fake)
    with progress_bars(False, mlflow=True) as progress:
        tracker = progress.task("ips", 2)
        tracker.observe(1.0, 0, {"loss": 0.5})
        tracker.advance()
    assert logged == [("ips/loss", 0.5, 1)]
