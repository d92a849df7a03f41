"""Writes the site's pages of public names and of the command line: ``api/``, which git ignores.

What a name does is said in its docstring, and what a verb does in its help; nothing is said here.
"""

from __future__ import annotations

import ast
import inspect
import re
from functools import cache
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any

from import_graph import parsed
from public_names import SECTIONS, home, names_of

import unskew
from unskew.base import registry
from unskew.cli.app import VERBS, command

FOLDER = Path(__file__).with_name("api")
MOST_PARAMETERS = 6
"""More are cut short: a table is for finding a name, its page for calling it."""
COLUMNS = 88
"""Width of the help of a verb."""


def write() -> None:
    """Write all pages; those of names that are gone are removed."""
    made = pages()
    for old in FOLDER.glob("*"):
        if old.name not in made:
            old.unlink()
    FOLDER.mkdir(exist_ok=True)
    for name, text in made.items():
        path = FOLDER / name
        # Sphinx reads again what is newer.
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def pages() -> dict[str, str]:
    """Texts by the name of their file."""
    made = {f"{module}.module.md": _section(module) for module in SECTIONS}
    for module in SECTIONS:
        for name in names_of(module):
            file = _file_of(module, name)
            if file not in made and home(module, name) == f"{module}.{name}":
                made[file] = _page_of(module, name)
    return {**made, "command-line.md": _command_line()}


def _file_of(module: str, name: str) -> str:
    thing, full = getattr(import_module(module), name), home(module, name)
    is_module = inspect.ismodule(thing) and not callable(thing)
    return f"{thing.__name__}.module.md" if is_module else f"{full}.rst"


def described(module: str, name: str) -> str:
    """Return the first sentence of a name's docstring; empty if it has none."""
    first = " ".join(_text_of(module, name).strip().split("\n\n")[0].split())
    return first.partition(". ")[0].rstrip(".")


def _text_of(module: str, name: str) -> str:
    thing = _called(getattr(import_module(module), name))
    is_code = inspect.isclass(thing) or inspect.isroutine(thing) or inspect.ismodule(thing)
    return _own_docstring(thing) if is_code else _said_below(module, name)


def _called(thing: Any) -> Any:
    """Of a package that is called, such as unskew.run, what is called."""
    return type(thing).__call__ if inspect.ismodule(thing) and callable(thing) else thing


def _own_docstring(thing: Any) -> str:
    text = thing.__doc__ or ""
    # A dataclass without a docstring is given its signature as one.
    made = inspect.isclass(thing) and text.startswith(f"{thing.__name__}(")
    return "" if made else inspect.cleandoc(text)


def _said_below(module: str, name: str) -> str:
    """Return the string below the assignment of a constant, in its package or where registries are."""
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
                    found.setdefault(target.id, inspect.cleandoc(str(following.value.value)))
    return found


def _section(module: str) -> str:
    rows = [
        f"| [`{_call(module, name)}`]({_file_of(module, name)}) | {_cell(described(module, name))} |"
        for name in names_of(module)
    ]
    own = [name for name in names_of(module) if home(module, name) == f"{module}.{name}"]
    files = [_file_of(module, name) for name in own]
    listed = [f"{name} <{file}>" for name, file in zip(own, files, strict=True) if file.endswith(".rst")]
    return "\n".join(
        [
            *(f"# {module}", "", SECTIONS[module], "", "| name | what it is |", "|---|---|", *rows, ""),
            *("```{toctree}", ":hidden:", "", *listed, "```", ""),
        ]
    )


def _call(module: str, name: str) -> str:
    thing = _called(getattr(import_module(module), name))
    if not callable(thing) or (inspect.isclass(thing) and issubclass(thing, Exception)):
        return name
    parameters = _parameters(thing)
    if len(parameters) > MOST_PARAMETERS:
        parameters[MOST_PARAMETERS:] = ["…"]
    return f"{name}({', '.join(parameters)})"


def _parameters(thing: Any) -> list[str]:
    """Names of parameters, without those that all debiasers share."""
    shared = {"self"}
    if inspect.isclass(thing) and thing is not unskew.Debiaser and issubclass(thing, unskew.Debiaser):
        shared |= set(inspect.signature(unskew.Debiaser).parameters)
    names = []
    for name, parameter in inspect.signature(thing).parameters.items():
        if name not in shared:
            stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
            names.append(f"{stars}{name}")
    return names


def _page_of(module: str, name: str) -> str:
    """Return the page of a name; autodoc reads its docstring, but for what has none of its own in Python."""
    thing, full = getattr(import_module(module), name), f"{module}.{name}"
    head = [name, "=" * len(name), "", f".. currentmodule:: {module}", ""]
    if inspect.isclass(thing):
        body = [f".. autoclass:: {full}", "   :members:"]
        body += ["   :show-inheritance:"] if thing.__bases__ != (object,) else []
    elif inspect.isroutine(thing):
        body = [f".. autofunction:: {full}"]
    else:
        is_called = inspect.ismodule(thing)
        kind, said = ("function", _call(module, name)) if is_called else ("data", name)
        text = escaped(_text_of(module, name)).splitlines()
        body = [f".. py:{kind}:: {said}", "", *(f"   {line}".rstrip() for line in text)]
    return "\n".join([*head, *body, *_page_with_formula(module, name), ""])


def _page_with_formula(module: str, name: str) -> list[str]:
    """Return a link to the page of a method, a calibrator or a metric."""
    thing = getattr(import_module(module), name)
    own = [(f"{kind}/{getattr(thing, 'name', '')}") for kind in ("methods", "calibrators")]
    found = [page for page in own if (FOLDER.parent / f"{page}.md").is_file()]
    if f"\n## {name}\n" in (FOLDER.parent / "reference" / "metrics.md").read_text(encoding="utf-8"):
        found.append("reference/metrics")
    return [line for page in found for line in ("", f"Formula, use and pitfalls: :doc:`/{page}`.")]


_KEPT = re.compile(
    r"``.+?``"
    r"|(?::[a-z:]+:)?`[^`]+`"
    r"|(?<![\w*])\*\*?\w(?:[^*\n]*\w)?\*\*?(?![\w*])"
    r"|^[ ]*\*[ ]"
    r"|^[ ]*\.\.[ ]\w+::[^\n]*(?:\n[ ]+\S[^\n]*|\n[ ]*(?=\n))*"
    r"|^[ ]*>>>.*?(?:\n[ ]*\n|\Z)",
    re.DOTALL | re.MULTILINE,
)
"""Literals, roles, emphasis, bullets, directives and examples."""


def escaped(text: str) -> str:
    """Escape formulas in a docstring (|D|, slope_, a*b), lest they be marks of reStructuredText."""
    parts, end = [], 0
    for kept in _KEPT.finditer(text):
        parts += [_plain(text[end : kept.start()]), kept[0]]
        end = kept.end()
    return "".join([*parts, _plain(text[end:])])


def _plain(text: str) -> str:
    return re.sub(r"[|*]|(?<=\w)_(?!\w)", lambda found: f"\\{found[0]}", text)


def as_restructured_text(app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Sphinx's hook for each docstring: numpydoc, whose attributes have no type before a colon."""
    from sphinx.ext.napoleon import Config, NumpyDocstring

    kind = "" if what in ("attribute", "property", "data") else what
    text = escaped("\n".join(lines))
    lines[:] = NumpyDocstring(text, Config(napoleon_use_rtype=False), app, kind, name, obj, options).lines()


def is_left_out(app: Any, what: str, name: str, obj: Any, skip: bool, options: Any) -> bool | None:
    """Sphinx's hook for each member: what scikit-learn puts into a class is described there."""
    return True if str(getattr(obj, "__module__", "")).startswith("sklearn.") else None


def _command_line() -> str:
    parts = ["# Command line", "", "What `unskew VERB --help` says.", ""]
    for name in VERBS:
        verb = command.get_command(None, name)
        assert verb is not None
        for parameter in verb.params:
            # The page has all options, as --help-all.
            parameter.hidden = False  # type: ignore[attr-defined]
        with verb.make_context(
            f"unskew {name}", [], max_content_width=COLUMNS, terminal_width=COLUMNS
        ) as context:
            parts += [f"## `unskew {name}`", "", "```text", verb.get_help(context), "```", ""]
    return "\n".join(parts)


def _cell(text: str) -> str:
    """Markdown of a table cell: bars would end it, and roles of reStructuredText mean nothing."""
    text = re.sub(r":[a-z]+:(?=`)", "", text).replace("``", "`")
    return text.replace("|", "\\|")


if __name__ == "__main__":
    write()
    print(f"written: {FOLDER.name}/")
