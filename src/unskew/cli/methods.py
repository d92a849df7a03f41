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
from unskew.cli.console import show

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
    from unskew.report.table import Table

    if options.name is not None:
        _show_parameters(options.name)
        return
    rows = []
    for name, method in METHODS.items():
        words = {"propensities": method.needs_propensity, "all of D": method.needs_full_space}
        words[f"imputation {method.imputation}"] = method.imputation is not None
        needs = [word for word, needed in words.items() if needed]
        rows.append((name, method.paper, ", ".join(needs) or "clicks alone", method.when))
    show(Table("Debiasing methods", ("name", "paper", "needs", "when to use it"), rows, words=4))
    for registry in REGISTRIES:
        if registry is not METHODS:
            plural = re.sub("y$", "ie", registry.kind) + "s"
            names = [*registry, *(WITH_FEATURES if registry.kind == "calibrator" else ())]
            show(f"{plural.capitalize()}: {', '.join(names)}.")


def _show_parameters(name: str) -> None:
    """Print a table of parameters for each thing of this name."""
    from unskew.report.table import Table

    things = list(_called(name))
    if not things:
        raise ParameterError(f"nothing is called {name!r}", remedy="use one of the names of unskew methods")
    for kind, thing in things:
        meanings = _described(thing)
        rows = [
            (key, default, meanings.get(what, what if " " in what else ""))
            for key, default, what in _parameters(kind, thing)
        ]
        title = f"{name} ({kind}): {(inspect.getdoc(thing) or '').partition(chr(10))[0]}"
        show(Table(title, ("--set", "default", "what it is"), rows, words=3))


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


def _parameters(kind: str, thing: Any) -> Iterator[tuple[str, str, str]]:
    """Yield the option, the default and the name of each parameter."""
    if kind == "dataset":
        from unskew.data.datasets import SHARED

        for name, parameter in inspect.signature(thing).parameters.items():
            if name not in SHARED:
                yield f"--option {name}", _plain(parameter.default), name
        return
    from unskew.run.parameters import FLAGS, names_of

    made = thing()
    for key, flag in FLAGS.items():
        name = key.partition(".")[2]
        if key.startswith(f"{kind}.") and hasattr(made, name):
            yield flag, "", name
    for key in names_of(kind, made):
        *inner, name = key.split(".")[1:]
        owner = reduce(getattr, inner, made)
        values = owner.get_params(deep=False) if hasattr(owner, "get_params") else vars(owner)
        yield key, _plain(values[name]), f"of its {inner[-1]}" if inner else name


def _plain(value: Any) -> str:
    return "" if value is inspect.Parameter.empty else "none" if value is None else str(value)


def _described(kind: Any) -> dict[str, str]:
    """Return the first sentence on each parameter, from the docstrings of a class and of those it extends."""
    meanings: dict[str, str] = {}
    for parent in reversed(getattr(kind, "__mro__", (kind,))):
        section = SECTION.search(inspect.getdoc(parent) or "")
        if parent is object or section is None:
            continue
        for names, text in re.findall(r"^(\S[^\n]*)\n((?:    [^\n]*\n?|\n)+)", section[1], re.MULTILINE):
            sentence = re.split(r"(?<=[.;])\s", MARKUP.sub("", " ".join(text.split())))[0].rstrip(";.")
            meanings |= dict.fromkeys((name.strip() for name in names.split(",")), sentence)
    return meanings
