"""A finding of a report, and the answer to a question that findings give."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from unskew.metrics.judgement import Level
from unskew.report.page import environment


@dataclass(frozen=True)
class Finding:
    """One thing that a run found: a key, how good it is, and the numbers of its sentence.

    The sentences of all keys are in ``templates/findings.toml``.
    """

    key: str
    level: Level = "undecided"
    numbers: Mapping[str, Any] = field(default_factory=dict)

    @property
    def sentence(self) -> str:
        """Return the finding in words."""
        subject, _, name = self.key.partition(".")
        template = _sentences()[subject][name]
        return environment(escape=False).from_string(template).render(self.numbers)


@cache
def _sentences() -> dict[str, dict[str, str]]:
    text = files("unskew.report").joinpath("templates/findings.toml").read_text(encoding="utf-8")
    return tomllib.loads(text)


def found(key: str, **numbers: Any) -> Finding:
    """Return a finding that decides nothing by itself."""
    return Finding(key, numbers=numbers)


@dataclass(frozen=True)
class Answer:
    """The answer to one question about a run: the finding that decides it, and those behind it."""

    question: str
    main: Finding
    details: tuple[Finding, ...] = ()

    @property
    def level(self) -> Level:
        """Return how good the answer is."""
        return self.main.level

    @property
    def tone(self) -> str:
        """Return how a page marks the answer: good, bad or open."""
        return self.level if self.level in ("good", "bad") else "open"

    @property
    def short(self) -> str:
        """Return the answer in one sentence."""
        return self.main.sentence

    @property
    def text(self) -> str:
        """Return the whole answer."""
        return " ".join((self.short, *(detail.sentence for detail in self.details)))
