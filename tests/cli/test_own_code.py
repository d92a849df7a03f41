"""unskew --with FILE.py: a method of the user's own is one file."""

from __future__ import annotations

import pytest

from unskew.cli import main


def test_without_the_file_it_is_not_known(capsys):
    assert main(["run", "--data", "synthetic", "--method", "damped-ips"]) == 2
    assert "damped-ips" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("mine.txt", "", "is not a Python file"),
        ("mine.py", None, "there is no such file"),
        ("mine.py", "import does_not_exist_anywhere", "ModuleNotFoundError"),
        ("mine.py", "def broken(:", "SyntaxError"),
        ("mine.py", "import sys; sys.exit(7)", "SystemExit: 7"),
        (
            "mine.py",
            "import unskew as us\nus.register(dict)",
            "is neither a Debiaser, Calibrator",
        ),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line_and_exit_code_2(tmp_path, capsys, name, text, told):
    path = tmp_path / name
    if text is not None:
        path.write_text(text, encoding="utf-8")
    assert main(["--with", str(path), "methods"]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert str(path) in error
    assert error.count("To fix:") == 1
    assert error.count("\n") == 1
