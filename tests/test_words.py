"""Words that the glossary gave up are not in the source, its messages or the documentation."""

from __future__ import annotations

import ast
import re
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"
AVOIDED = re.findall(r'^\| "(.+?)" \| "', GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
FILES = [
    path
    for folder in ("src", "docs", "examples")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".md", ".html", ".css", ".js", ".svg")
    and path != GLOSSARY
    and not path.is_relative_to(ROOT / "docs" / "_build")
] + [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
TEXTS = {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in FILES}


def test_the_glossary_lists_phrases_to_avoid():
    assert "Promised ÷ kept" in AVOIDED


@pytest.mark.parametrize("phrase", AVOIDED)
def test_a_phrase_to_avoid_is_nowhere(phrase):
    pattern = re.compile(rf"\b{re.escape(phrase)}\b", re.IGNORECASE)
    found = [
        f"{path}:{text.count(chr(10), 0, match.start()) + 1}"
        for path, text in TEXTS.items()
        for match in pattern.finditer(text)
    ]
    assert found == []


def test_no_word_of_the_glossary_is_explained_twice():
    words = [
        word
        for row in re.findall(r"^\| ([^|\"]+?) \|", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
        for word in row.split(", ")
        if row not in ("word", "not") and not set(row) <= set("-")
    ]
    assert len(words) > 60
    assert sorted(words) == sorted(set(words))


def test_a_class_has_a_name_of_its_own():
    """But for those of the service, which knows no methods and no training."""
    names = Counter(
        node.name
        for path in (ROOT / "src" / "unskew").rglob("*.py")
        if "serve" not in path.parts
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    )
    assert {name for name, count in names.items() if count > 1} == set()
