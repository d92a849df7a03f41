"""Words of the user's reach a terminal and a page without what these would obey, and in one line."""

from __future__ import annotations

import inspect
import string

import pytest

from unskew.base import errors
from unskew.base.plain_text import plain
from unskew.cli import main
from unskew.report.table import Table

HOSTILE = "\x1b]0;owned\x07\x1b[31mred\x9b2J\u202egnp\r$x$\x00"
COLUMNS = ["--score", "p", "--outcome", "o"]


def obeyed(text: str) -> set[str]:
    """Characters that a terminal or a page does not show but obeys; line ends are ours."""
    return {each for each in text if (ord(each) < 32 and each != "\n") or 127 <= ord(each) < 160} | (
        set(text) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200f")
    )


def test_control_characters_become_their_codes_and_distinct_names_stay_distinct():
    assert obeyed(plain(HOSTILE)) == set()
    assert "\n" not in plain("a\nb\u2028c\x85d")
    controls = [chr(number) for number in (*range(9), *range(14, 28), *range(127, 133), 0x202E, 0x2066)]
    assert len({plain(f"a{each}b") for each in controls}) == len(controls)
    assert plain(string.printable.strip()) == string.printable.strip()
    assert plain("Zürich 東京 🎈") == "Zürich 東京 🎈"


def test_every_error_has_a_remedy_by_its_type():
    kinds = [kind for kind in vars(errors).values() if inspect.isclass(kind) and issubclass(kind, ValueError)]
    assert len(kinds) >= 6
    for kind in kinds:
        remedy = inspect.signature(kind).parameters["remedy"]
        assert remedy.default is inspect.Parameter.empty, kind
        assert remedy.annotation == "str", kind


def test_a_table_of_a_study_shows_no_controls():
    shown = Table(HOSTILE, (HOSTILE, "n"), ((HOSTILE, "1"),), caption=HOSTILE)
    for text in (shown.html(), shown.markdown()):
        assert obeyed(text) == set()


@pytest.fixture
def hostile_log(tmp_path, monkeypatch):
    """A CSV whose segments and one of whose column names are hostile."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    names = [HOSTILE.replace("\r", " "), "$\\frac{$", "plain", "東京 🎈"]
    rows = [f"{0.5 if n % 3 else 0.9},{n % 2},{names[n // 2 % 4]}" for n in range(3000)]
    path = tmp_path / "a.csv"
    path.write_text("\n".join(["p,o,seg\x1b[1m", *rows]), encoding="utf-8")
    return path


def test_segments_reach_terminal_and_report_without_controls(hostile_log, capsys):
    assert main(["audit", "a.csv", *COLUMNS, "--segments", "seg\x1b[1m", "--out", "out"]) == 1
    told = capsys.readouterr()
    assert obeyed(told.out) == set()
    assert r"\x1b[31mred" in told.out
    assert told.err == ""
    report = (hostile_log.parent / "out" / "report.html").read_text(encoding="utf-8")
    assert obeyed(report) == set()
    assert "\\frac{" in report


@pytest.mark.parametrize("value", ["\x1b[31mx", "x" * 3_000_000])
def test_what_a_csv_holds_reaches_the_terminal_as_one_short_line(hostile_log, capsys, value):
    with hostile_log.open("a", encoding="utf-8") as file:
        file.write(f"\n{value},1,plain")
    assert main(["audit", "a.csv", *COLUMNS]) == 2
    said = capsys.readouterr().err
    assert obeyed(said) == set()
    assert said.count("\n") == 1
    assert len(said) < 2200
    assert "To fix: " in said


def test_a_wide_file_names_some_of_its_columns(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = ",".join(f"column_{number}" for number in range(20_000))
    (tmp_path / "wide.csv").write_text(f"{names}\n{','.join(['1'] * 20_000)}\n")
    assert main(["audit", "wide.csv", *COLUMNS]) == 2
    said = capsys.readouterr().err
    assert "column 'p' is missing" in said
    assert "column_11 and 19,988 more" in said
    assert len(said) < 1000
