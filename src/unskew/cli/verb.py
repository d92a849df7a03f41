"""A verb: a function of one record of options, whose fields are the options of the command line."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import typer
from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from unskew.base.errors import ParameterError
from unskew.base.settings import Settings

SIMPLE = (bool, int, float, Path)
"""Types that the command line reads itself; text that stands for others is read by the record."""


def add_verb(
    app: typer.Typer, run: Callable[..., Any], *, name: str | None = None, examples: Sequence[str] = ()
) -> None:
    """Add a verb to the application.

    Parameters
    ----------
    run
        Takes the record of options, and the files of ``--with`` if it has a second parameter. Its docstring
        is the help, and what it returns the exit code.
    examples
        Commands that the help ends with.
    """
    kind: type[Settings] = next(iter(typing.get_type_hints(run).values()))
    takes_code = len(inspect.signature(run).parameters) == 2
    flags = {field: flag_of(field, info) for field, info in kind.model_fields.items()}

    def command(context: typer.Context, **values: Any) -> Any:
        given = {key: value for key, value in values.items() if was_given(context, key)}
        options = kind.read(given, lambda path: flags.get(path[0], path[0]))
        return run(options, context.obj or ()) if takes_code else run(options)

    parameters = [parameter_of(field, info) for field, info in kind.model_fields.items()]
    register(app, command, name or run.__name__.replace("_", "-"), run.__doc__ or "", parameters, examples)


def register(
    app: typer.Typer,
    command: Callable[..., Any],
    name: str,
    about: str,
    parameters: Sequence[inspect.Parameter],
    examples: Sequence[str],
) -> None:
    """Add a function to the application under a signature that is made here."""
    context = inspect.Parameter("context", inspect.Parameter.KEYWORD_ONLY, annotation=typer.Context)
    hidden = sum(getattr(parameter.annotation.__metadata__[0], "hidden", False) for parameter in parameters)
    every = [context, *parameters, *([_help_all(hidden)] if hidden else [])]
    command.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
    command.__doc__ = about.replace("[", r"\[")
    app.command(name, epilog="\n\n".join(("Examples:", *examples)) if examples else None)(command)


def was_given(context: typer.Context, name: str) -> bool:
    """Return whether an option stood on the command line."""
    source = context.get_parameter_source(name)
    return source is not None and source.name == "COMMANDLINE"


def refuse(options: Settings, names: Sequence[str], because: str, remedy: str = "leave it out") -> None:
    """Raise for the first of some options that was given although it has no effect ``because``."""
    for name in names:
        if name in options.model_fields_set:
            flag = flag_of(name, type(options).model_fields[name])
            raise ParameterError(f"{flag} has no effect {because}", remedy=remedy)


def parameter_of(name: str, info: FieldInfo, group: str = "") -> inspect.Parameter:
    """Return the parameter of the command line for a field."""
    extra: Mapping[str, Any] = typing.cast("Mapping[str, Any]", info.json_schema_extra)
    # Text that the record itself reads, such as names parted by commas.
    is_text = any(isinstance(each, BeforeValidator) for each in info.metadata)
    kind, many = (str, False) if is_text else _kind_of(info.annotation)
    about = " ".join((info.description or "").split()).replace("[", r"\[")
    metavar, flag = extra.get("metavar"), str(extra.get("flag", ""))
    default: Any = info.default
    if many or isinstance(default, tuple):
        default = None
    if flag == "argument":
        declared: Any = typer.Argument(metavar=metavar, help=about, show_default=False)
        default = inspect.Parameter.empty if info.is_required() else default
    else:
        declared = typer.Option(
            *(flag or flag_of(name, info)).split(),
            metavar=metavar or _choices(info.annotation),
            help=about,
            hidden=not extra["shown"],
            rich_help_panel=group or extra.get("group") or None,
            show_default=bool(default),
        )
        default = ... if info.is_required() else default
    wanted = list[kind] if many else kind  # type: ignore[valid-type]
    if default is None:
        wanted = wanted | None  # type: ignore[assignment]
    if kind is str and not many and default not in (None, ..., inspect.Parameter.empty):
        default = str(default)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[wanted, declared]
    )


def flag_of(name: str, info: FieldInfo) -> str:
    """Return what a message calls a field."""
    extra: Mapping[str, Any] = typing.cast("Mapping[str, Any]", info.json_schema_extra)
    flag = str(extra.get("flag", ""))
    if flag == "argument":
        return str(extra.get("metavar") or name.upper())
    return flag.split()[0].split("/")[0] if flag else f"--{name.replace('_', '-')}"


def _kind_of(annotation: Any) -> tuple[type, bool]:
    """Return the type that the command line reads, and whether the option may be repeated."""
    if get_origin(annotation) in (typing.Union, types.UnionType):
        inner = [each for each in get_args(annotation) if each is not type(None)]
        return _kind_of(inner[0]) if len(inner) == 1 else (str, False)
    if get_origin(annotation) is Annotated:
        return str, False
    if get_origin(annotation) is dict:
        return str, True
    if get_origin(annotation) in (tuple, list):
        return _kind_of(get_args(annotation)[0])[0], True
    return (annotation if annotation in SIMPLE else str), False


def _choices(annotation: Any) -> str | None:
    """Return the values of a field that has few, parted by bars."""
    if get_origin(annotation) in (typing.Union, types.UnionType):
        found = [_choices(each) for each in get_args(annotation) if each is not type(None)]
        return found[0] if len(found) == 1 else None
    return "|".join(get_args(annotation)) if get_origin(annotation) is typing.Literal else None


def _help_all(hidden: int) -> inspect.Parameter:
    declared = typer.Option(
        "--help-all",
        is_eager=True,
        expose_value=False,
        callback=_show_all,
        help=f"Show {hidden} further options and exit.",
    )
    kind = inspect.Parameter.KEYWORD_ONLY
    return inspect.Parameter("help_all", kind, default=False, annotation=Annotated[bool, declared])


def _show_all(context: typer.Context, show: bool) -> None:
    if show:
        for parameter in context.command.params:
            if hasattr(parameter, "hidden"):
                parameter.hidden = False
        print(context.get_help())
        raise typer.Exit
