"""Records of typed fields with a help text each; a wrong or unknown value is an error of one line.

The options of every verb, and the configuration of a run, are such records.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from unskew.base.errors import ParameterError, UnskewError

EXPECTED = {
    "int_parsing": "a whole number",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_parsing": "a number",
    "float_type": "a number",
    "finite_number": "a finite number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "text",
    "string_too_short": "a name",
    "tuple_type": "a list",
    "dict_type": "a table of names and values",
    "model_type": "a table of names and values",
}
"""The words for the kind of value that a field takes, by pydantic's kind of error."""

FORMER = {"backbone": "learner"}
"""The names of options that had another one, which messages to users of it tell."""

BOUNDS = {
    "greater_than_equal": ("ge", "at least"),
    "greater_than": ("gt", "above"),
    "less_than_equal": ("le", "at most"),
    "less_than": ("lt", "below"),
}


def option(
    default: Any,
    help: str | None = None,
    *,
    flag: str = "",
    shown: bool = True,
    group: str = "",
    metavar: str = "",
    writes: str = "",
    **limits: Any,
) -> Any:
    """Declare a field; its help text is the string below it.

    Parameters
    ----------
    help
        The help text of a type that several records share.
    flag
        Its name on the command line; by default the field's own. ``"--out -o"`` names two.
    shown
        Whether ``--help`` lists it; ``--help-all`` lists all fields.
    group
        The heading in the help.
    metavar
        What stands for the value in the help.
    writes
        ``"file"``, ``"folder"`` or ``"rows"`` (either) where the field is a place to write to.
    limits
        Bounds that pydantic checks, such as ``ge=1``.
    """
    named = {"flag": flag, "shown": shown, "group": group, "metavar": metavar, "writes": writes}
    extra: dict[str, Any] = {name: value for name, value in named.items() if value != ""}
    return Field(default, description=help, json_schema_extra=extra, **limits)


class Settings(BaseModel):
    """A frozen record of options; ``effects`` says which have none with, or without, another one."""

    effects: ClassVar[Mapping[str, str]] = {}

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, use_attribute_docstrings=True)

    @classmethod
    def read(
        cls, values: Mapping[str, Any], name_of: Callable[[Sequence[str]], str], where: str = ""
    ) -> Self:
        """Check values and return the record.

        Parameters
        ----------
        name_of
            Gives the name of a field in a message from its path.
        where
            The file that the values come from.
        """
        try:
            record = cls.model_validate(dict(values))
        except ValidationError as error:
            raise refusal(error, cls, name_of, where) from None
        require_effect(cls.effects, vars(record), record.model_fields_set, lambda name: name_of([name]))
        return record


def require_effect(
    effects: Mapping[str, str], values: Mapping[str, Any], given: Collection[str], flag: Callable[[str], str]
) -> None:
    """Raise for the first option that was given although it has no effect.

    Parameters
    ----------
    effects
        Names that have no effect ``"with NAME"`` or ``"without NAME"``.
    values
        All options by their names.
    """
    for condition, names in effects.items():
        word, _, other = condition.partition(" ")
        if bool(values[other]) == (word == "with"):
            for name in names.split():
                if name in given:
                    raise ParameterError(
                        f"{flag(name)} has no effect {word} {flag(other)}", remedy="leave it out"
                    )


def refusal(
    error: ValidationError, model: type[BaseModel], name_of: Callable[[Sequence[str]], str], where: str = ""
) -> UnskewError:
    """Return the first problem that pydantic found as an error of one line."""
    problems = error.errors()
    first = problems[0]
    path = [str(step) for step in first["loc"]]
    raised = first.get("ctx", {}).get("error")
    if isinstance(raised, UnskewError):
        return raised
    name = name_of(path)
    if first["type"] == "extra_forbidden":
        known = _names_at(model, path[:-1])
        near = difflib.get_close_matches(FORMER.get(path[-1], path[-1]), known, n=1)
        remedy = f"use {name_of([*path[:-1], near[0]])}" if near else f"use one of {', '.join(known)}"
        return ParameterError(f"there is no option {name}", where=where or None, remedy=remedy)
    if first["type"] == "missing":
        return ParameterError(f"{name} is missing", where=where or None, remedy=f"give {name}")
    # A field of several types has a problem for each of them.
    same = [each for each in problems if each["loc"][:-1] == first["loc"][:-1]] if len(path) > 1 else [first]
    expected = dict.fromkeys(_expected(each) for each in same if each["input"] is first["input"])
    value = first["input"] if first["type"] in BOUNDS else repr(first["input"])
    problem = f"{name} must be {' or '.join(expected)}, not {value}"
    return ParameterError(problem, where=where or None, remedy="give another value, or leave it out")


def _expected(problem: Mapping[str, Any]) -> str:
    """Say what a value should be."""
    kind, context = problem["type"], problem.get("ctx", {})
    if kind == "literal_error":
        return str(context["expected"]).replace("'", "")
    if kind in BOUNDS:
        limit, words = BOUNDS[kind]
        return f"{words} {context[limit]:,}"
    return EXPECTED.get(kind, str(problem["msg"]).removeprefix("Input should be "))


def _names_at(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    """Return the names of the fields of a record, or of one inside it."""
    for step in path:
        inner = model.model_fields[step].annotation if step in model.model_fields else None
        if not (isinstance(inner, type) and issubclass(inner, BaseModel)):
            break
        model = inner
    return list(model.model_fields)
