"""Files that are nested deeper than a parser goes are damaged files, not defects of unskew."""

from __future__ import annotations

import pytest

from unskew.cli import main

DEEP_TOML = "a = " + "[" * 50_000
DEEP_JSON = "[" * 200_000


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text("p,o\n" + "0.5,1\n0.5,0\n" * 50)
    for name in ("run", "audit"):
        (tmp_path / name).mkdir()
    (tmp_path / "run" / "config.toml").write_text(DEEP_TOML)
    (tmp_path / "audit" / "audit.json").write_text(DEEP_JSON)
    (tmp_path / "deep.toml").write_text(DEEP_TOML)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("score run a.csv -o x.parquet", "config.toml is damaged"),
        ("export run -o x.onnx", "config.toml is damaged"),
        ("compare run", "config.toml is damaged"),
        ("run --data synthetic --out run --overwrite", "is a folder with other things in it"),
        ("audit a.csv --score p --outcome o --out audit --overwrite", "is a folder with other things in it"),
        ("study deep.toml", "deep.toml: is not TOML"),
    ],
)
def test_a_deep_file_is_one_line(capsys, command, words):
    assert main(command.split()) == 2
    said = capsys.readouterr().err
    assert words in said
    assert "To fix: " in said
    assert said.count("\n") == 1
    assert len(said) < 1000
