"""Writes ``api.md``, the table of all public names, from the docstrings: ``python docs/make_api.py``.

What a name does is said in its docstring; nothing is said here. A test compares the page with the code.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

import typer
from import_graph import parsed

import unskew
from unskew import registry
from unskew.cli.app import app

PAGE = Path(__file__).with_name("api.md")

SECTIONS = {
    "unskew": "Everything most people need; `import unskew as us`. Loaded when first used.",
    "unskew.losses": "Estimators as functions of tensors; [bring your own model](bring-your-own-model.md).",
    "unskew.calibration": "Calibrators, NumPy in and NumPy out; [a page each](calibrators/index.md).",
    "unskew.metrics": "Calibration, ranking, weights, significance; [a page each](metrics/index.md).",
    "unskew.theory": "Bias, its two parts and bounds; [what holds and what does not](theory.md).",
    "unskew.audit": "What `unskew audit` and `unskew weights` do, from Python.",
}
"""Modules in the order of the page, with what they are for."""

HEAD = """# API

Every public name with its first parameters and the first sentence of its docstring; `help(us.IPS)` has the
rest: all parameters, when to use it, an example. Parameters that all debiasers share are omitted.
Written by `python docs/make_api.py`; a test compares it with the code.
"""


MOST_PARAMETERS = 6
"""More are cut short: the page is for finding a name, ``help`` for calling it."""


def page() -> str:
    """The text of ``api.md``."""
    parts = [HEAD, *map(_section, SECTIONS), _verbs()]
    return "\n".join(parts)


def described(module: str, name: str) -> str:
    """The first sentence of a name's docstring; empty if it has none."""
    thing = getattr(import_module(module), name)
    if inspect.ismodule(thing) and callable(thing):  # A package that is called, such as unskew.run.
        thing = type(thing).__call__
    is_code = inspect.isclass(thing) or inspect.isroutine(thing) or inspect.ismodule(thing)
    text = _own_docstring(thing) if is_code else _said_below(module, name)
    first = " ".join(text.strip().split("\n\n")[0].split())
    return first.partition(". ")[0].rstrip(".")


def _own_docstring(thing: Any) -> str:
    text = thing.__doc__ or ""
    # A dataclass without a docstring is given its signature as one.
    made = inspect.isclass(thing) and text.startswith(f"{thing.__name__}(")
    return "" if made else text


def _said_below(module: str, name: str) -> str:
    """The string below the assignment of a constant, anywhere in its package, or where registries are."""
    file = Path(str(import_module(module).__file__))
    files = [Path(registry.__file__), *file.parent.rglob("*.py")]
    return next((said[name] for source in sorted(files) if name in (said := _constants(source))), "")


@cache
def _constants(source: Path) -> dict[str, str]:
    """Constants of a file that have a string below them, with the first such string."""
    found: dict[str, str] = {}
    for statement, following in pairwise(parsed(source).body):
        if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
            for target in getattr(statement, "targets", [getattr(statement, "target", None)]):
                if isinstance(target, ast.Name):
                    found.setdefault(target.id, str(following.value.value))
    return found


def _section(module: str) -> str:
    names = sorted(import_module(module).__all__, key=str.lower)
    rows = [f"| `{_call(module, name)}` | {_cell(described(module, name))} |" for name in names]
    return "\n".join(
        [f"## `{module}`", "", SECTIONS[module], "", "| name | what it is |", "|---|---|", *rows, ""]
    )


def _call(module: str, name: str) -> str:
    thing = getattr(import_module(module), name)
    if not callable(thing) or (inspect.isclass(thing) and issubclass(thing, Exception)):
        return name
    parameters = list(_parameters(thing))
    if len(parameters) > MOST_PARAMETERS:
        parameters[MOST_PARAMETERS:] = ["…"]
    return f"{name}({', '.join(parameters)})"


def _parameters(thing: Any) -> Iterator[str]:
    """Names of parameters, without those that all debiasers share."""
    shared: set[str] = set()
    if inspect.isclass(thing) and thing is not unskew.Debiaser and issubclass(thing, unskew.Debiaser):
        shared = set(inspect.signature(unskew.Debiaser).parameters)
    for name, parameter in inspect.signature(thing).parameters.items():
        if name not in shared:
            stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
            yield f"{stars}{name}"


def _verbs() -> str:
    rows = []
    for verb in app.registered_commands:
        assert verb.callback is not None
        first = (inspect.getdoc(verb.callback) or "").splitlines()[0].rstrip(".")
        arguments = [
            _metavar(name, parameter)
            for name, parameter in inspect.signature(verb.callback, eval_str=True).parameters.items()
            if any(
                isinstance(said, typer.models.ArgumentInfo)
                for said in getattr(parameter.annotation, "__metadata__", ())
            )
        ]
        called = " ".join([f"unskew {verb.name or verb.callback.__name__}", *arguments])
        rows.append(f"| `{_cell(called)}` | {_cell(first)} |")
    intro = "`unskew VERB --help` lists the options."
    return "\n".join(["## Command line", "", intro, "", "| verb | what it does |", "|---|---|", *rows, ""])


def _metavar(name: str, parameter: inspect.Parameter) -> str:
    (said,) = (s for s in parameter.annotation.__metadata__ if isinstance(s, typer.models.ArgumentInfo))
    return said.metavar or name.upper()


def _cell(text: str) -> str:
    """Markdown of a table cell: bars would end it, and roles of reStructuredText mean nothing."""
    for role in (":class:", ":func:", ":mod:", ":meth:", ":data:"):
        text = text.replace(role, "")
    return text.replace("``", "`").replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"written: {PAGE.name}")
