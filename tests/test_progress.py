"""A bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import pytest

import unskew as us
from unskew.progress import SILENT, Lines, progress_bars


def test_short_work_says_nothing_where_there_is_no_terminal(capsys):
    with progress_bars() as progress:
        tracker = progress.task("training", 3)
        tracker.advance()
        tracker.finish()
    assert capsys.readouterr() == ("", "")


def test_nothing_is_shown_on_request(capsys):
    with progress_bars(show=False) as progress:
        assert progress is SILENT


def test_long_work_says_a_line_now_and_then_where_there_is_no_terminal(capsys):
    lines = Lines(quiet=0.0, between=1e6)
    tracker = lines.task("study", 40)
    tracker.say("2 of 25: dr-jl\x1b[2J")
    tracker.advance(7)
    tracker.advance(7)
    out, error = capsys.readouterr()
    assert out == ""
    assert error.count("\n") == 1, "the second line came too soon"
    assert error.startswith("study · 2 of 25: dr-jl")
    assert ": 7 of 40, 18 %, after 0 s" in error
    assert "\x1b" not in error


def test_a_line_of_steps_beyond_counting_is_a_share(capsys):
    Lines(quiet=0.0).task("audit", 8_000_000).advance(4_000_000)
    assert capsys.readouterr().err == "audit: 50 %, after 0 s\n"


def test_bars_are_shown_on_standard_error_and_are_full_at_the_end(capsys):
    with progress_bars(show=True) as progress:
        tracker = progress.task("propensity", 40)
        tracker.advance(7)
        tracker.finish()
    out, error = capsys.readouterr()
    assert out == ""
    assert "propensity" in error
    assert "40/40" in error


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


def test_training_tells_its_epochs():
    class Recorder:
        def __init__(self):
            self.tasks = {}

        def task(self, description, total):
            self.tasks[description] = [total, 0]
            outer, name = self, description

            class Tracker:
                def advance(self, steps=1):
                    outer.tasks[name][1] += steps

                def finish(self):
                    outer.tasks[name].append("finished")

            return Tracker()

    log = us.load("synthetic", n_users=30, n_items=20, density=0.3).train
    progress = Recorder()
    us.Propensity(backbone=us.MF(dim=2), crossfit=None, epochs=4, patience=None).fit(log, progress=progress)
    us.Naive(backbone=us.MF(dim=2), epochs=3).fit(log, progress=progress, label="my model")
    assert progress.tasks == {"propensity": [4, 4, "finished"], "my model": [3, 3, "finished"]}


@pytest.mark.parametrize("show", [True, False])
def test_an_interrupt_inside_passes_through(show, capsys):
    def interrupted():
        with progress_bars(show=show) as progress:
            progress.task("training", 3).advance()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
