"""``unskew methods``: what there is to choose from."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from functools import reduce
from typing import Any

from unskew.base.errors import ParameterError
from unskew.base.registry import METHODS, REGISTRIES
from unskew.base.settings import Settings, option
from unskew.cli.console import plain_console

SECTION = re.compile(r"Parameters\n-+\n(.*?)(?:\n\n\S[^\n]*\n-+\n|\Z)", re.DOTALL)
"""What a docstring says of parameters, up to its next section."""

MARKUP = re.compile(r":\w+:`[~]?(?:unskew\.)?|`")


WITH_FEATURES = ("multicalibrated",)
"""Calibrators that read more than scores, and so are in no registry."""


class MethodsOptions(Settings):
    """The options of ``unskew methods``."""

    name: str | None = option(None, flag="argument", metavar="NAME")
    """One of them: its parameters, for unskew run --set."""


def methods(options: MethodsOptions) -> None:
    """List debiasing methods (what each needs, when to use it), calibrators, learners and datasets.

    With a NAME, the parameters of what is called so.
    """
    from rich.table import Table

    if options.name is not None:
        _show_parameters(options.name)
        return
    titles = ("name", "paper", "needs", "when to use it")
    table = Table(*titles, title="Debiasing methods", title_justify="left")
    for name, method in METHODS.items():
        words = {"propensities": method.needs_propensity, "all of D": method.needs_full_space}
        words[f"imputation {method.imputation}"] = method.imputation is not None
        needs = [word for word, needed in words.items() if needed]
        table.add_row(name, method.paper, ", ".join(needs) or "clicks alone", method.when)
    console = plain_console()
    console.print(table)
    for registry in REGISTRIES:
        if registry is not METHODS:
            plural = re.sub("y$", "ie", registry.kind) + "s"
            names = [*registry, *(WITH_FEATURES if registry.kind == "calibrator" else ())]
            console.print(f"{plural.capitalize()}: {', '.join(names)}.")


def _show_parameters(name: str) -> None:
    """Print a table of parameters for each thing of this name."""
    from rich.table import Column, Table

    found = list(_called(name))
    if not found:
        raise ParameterError(f"nothing is called {name!r}", remedy="use one of the names of unskew methods")
    console = plain_console()
    for part, kind in found:
        console.print(f"{name} ({part}): {(inspect.getdoc(kind) or '').partition(chr(10))[0]}")
        table = Table(Column("--set", overflow="fold", min_width=30), "default", "what it is")
        for key, default, about in _parameters(part, kind):
            table.add_row(key, default, about)
        console.print(table)


def _called(name: str) -> Iterator[tuple[str, Any]]:
    """Yield the parts of a run, and the datasets, of a name; a learner is one of a propensity too."""
    from unskew.propensity import UNCERTAINTIES, Propensity

    for registry in REGISTRIES:
        for each in (name, name.replace("-", "_")):
            if each in registry:
                yield registry.kind, registry[each]
                break
    if name in WITH_FEATURES:
        from unskew.calibration import make_calibrator

        yield "calibrator", type(make_calibrator(name))
    if name in UNCERTAINTIES:
        yield "uncertainty", UNCERTAINTIES[name]
    if name == "propensity":
        yield "propensity", Propensity


def _parameters(part: str, kind: Any) -> Iterator[tuple[str, str, str]]:
    """Yield name, default and meaning of each parameter; those with an option of their own by that."""
    about = _described(kind)
    if part == "dataset":
        from unskew.data.datasets import SHARED

        for name, each in inspect.signature(kind).parameters.items():
            if name not in SHARED:
                yield f"--option {name}", _plain(each.default), about.get(name, "")
        return
    from unskew.run.parameters import FLAGS, names_of

    made = kind()
    for key, flag in FLAGS.items():
        if key.startswith(f"{part}.") and hasattr(made, key.partition(".")[2]):
            yield flag, "", about.get(key.partition(".")[2], "")
    for key in names_of(part, made):
        path = key.split(".")[1:]
        owner = reduce(getattr, path[:-1], made)
        values = owner.get_params(deep=False) if hasattr(owner, "get_params") else vars(owner)
        meaning = about.get(path[0], "") if len(path) == 1 else f"of its {path[-2]}"
        yield key, _plain(values[path[-1]]), meaning


def _plain(value: Any) -> str:
    return "" if value is inspect.Parameter.empty else "none" if value is None else str(value)


def _described(kind: Any) -> dict[str, str]:
    """Return the first sentence on each parameter, from the docstrings of a class and of those it extends."""
    found: dict[str, str] = {}
    for each in reversed(getattr(kind, "__mro__", (kind,))):
        section = SECTION.search(inspect.getdoc(each) or "")
        if each is object or section is None:
            continue
        for names, text in re.findall(r"^(\S[^\n]*)\n((?:    [^\n]*\n?|\n)+)", section[1], re.MULTILINE):
            sentence = re.split(r"(?<=[.;])\s", MARKUP.sub("", " ".join(text.split())))[0].rstrip(";.")
            found |= dict.fromkeys((name.strip() for name in names.split(",")), sentence)
    return found
