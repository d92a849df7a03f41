"""A verb: a function of one record of options, whose fields are the options of the command line."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

import click
from click.core import ParameterSource
from pydantic import BeforeValidator
from pydantic.fields import FieldInfo

from unskew.base.errors import ParameterError
from unskew.base.settings import Settings

METAVARS: Mapping[Any, str] = {int: "N", float: "NUMBER", Path: "PATH"}
"""What stands for a value in the help; text for all others."""


class Verb(click.Command):
    """A command with a text of its own for its arguments, its options in groups, and ``--help-all``."""

    def __init__(
        self,
        name: str,
        about: str | None,
        act: Callable[[dict[str, Any], Any], Any],
        fields: Sequence[tuple[str, FieldInfo, str]],
        examples: Sequence[str] = (),
    ) -> None:
        self.act = act
        parameters = [parameter_of(*field) for field in fields]
        self.groups = {
            name: "Arguments" if isinstance(parameter, click.Argument) else group or _extra(info, "group")
            for (name, info, group), parameter in zip(fields, parameters, strict=True)
        }
        self.abouts = {name: _about(info) for name, info, _ in fields}
        hidden = sum(getattr(parameter, "hidden", False) for parameter in parameters)
        if hidden:
            text = f"Show {hidden} further options and exit."
            show = {"is_flag": True, "is_eager": True, "expose_value": False, "callback": _show_all}
            parameters.append(click.Option(["--help-all"], help=text, **show))  # type: ignore[arg-type]
        listed = "\b\n" + "\n".join(("Examples:", *(f"  {line}" for line in examples)))
        super().__init__(name, params=parameters, help=about, epilog=listed if examples else None)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb with the values that stood on the command line, and with the files of ``--with``."""
        given = {
            name: value
            for name, value in ctx.params.items()
            if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE and value != ()
        }
        return self.act(given, ctx.obj or ())

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a list of options for each group."""
        groups: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            record = parameter.get_help_record(ctx)
            if isinstance(parameter, click.Argument):
                record = parameter.make_metavar(ctx), self.abouts[str(parameter.name)]
            if record is not None:
                groups.setdefault(self.groups.get(str(parameter.name), ""), []).append(record)
        for title, records in groups.items():
            with formatter.section(title or "Options"):
                formatter.write_dl(records)


def verb_of(run: Callable[..., Any], name: str) -> Verb:
    """Return the command of a function of one record, and of the files of ``--with`` if it has a second one.

    Its docstring is the help, and what it returns the exit code.
    """
    kind: type[Settings] = next(iter(typing.get_type_hints(run).values()))
    takes_code = len(inspect.signature(run).parameters) == 2
    flags = {field: flag_of(field, info) for field, info in kind.model_fields.items()}

    def act(given: dict[str, Any], own_code: Any) -> Any:
        options = kind.read(given, lambda path: flags.get(path[0], path[0]))
        return run(options, own_code) if takes_code else run(options)

    return Verb(name, run.__doc__, act, [(field, info, "") for field, info in kind.model_fields.items()])


def parameter_of(name: str, info: FieldInfo, group: str = "") -> click.Parameter:
    """Return the parameter of the command line for a field; values are text, which the record reads."""
    flag, many, choices = _extra(info, "flag"), _is_many(info), _choices(info.annotation)
    if flag == "argument":
        metavar = _extra(info, "metavar") or name.upper()
        return click.Argument([name], nargs=-1 if many else 1, required=False, metavar=metavar)
    default = "" if not info.default or info.is_required() or many else f" [{info.default}]"
    metavar = _extra(info, "metavar") or choices or _metavar(info.annotation)
    value: dict[str, Any] = {"multiple": many, "metavar": metavar}
    if info.annotation is bool:
        default, value = "", {"is_flag": True}
    return click.Option(
        [*(flag or flag_of(name, info)).split(), name],
        help=_about(info) + default,
        hidden=not _extra(info, "shown"),
        **value,
    )


def flag_of(name: str, info: FieldInfo) -> str:
    """Return what a message calls a field."""
    flag = _extra(info, "flag")
    if flag == "argument":
        return str(_extra(info, "metavar") or name.upper()).rstrip(".")
    return str(flag).split()[0] if flag else f"--{name.replace('_', '-')}"


def refuse(options: Settings, names: Sequence[str], because: str) -> None:
    """Raise for the first of some options that was given although it has no effect ``because``."""
    for name in names:
        if name in options.model_fields_set:
            flag = flag_of(name, type(options).model_fields[name])
            raise ParameterError(f"{flag} has no effect {because}", remedy="leave it out")


def _extra(info: FieldInfo, name: str) -> Any:
    return typing.cast("Mapping[str, Any]", info.json_schema_extra or {}).get(name, "")


def _about(info: FieldInfo) -> str:
    return " ".join((info.description or "").split())


def _is_many(info: FieldInfo) -> bool:
    """Return whether an option may be repeated; text that the record itself splits may not."""
    kinds = get_args(info.annotation) if _is_union(info.annotation) else (info.annotation,)
    kinds = tuple(kind for kind in kinds if kind is not type(None))
    splits = any(isinstance(entry, BeforeValidator) for entry in info.metadata)
    return not splits and len(kinds) == 1 and get_origin(kinds[0]) in (tuple, dict)


def _choices(annotation: Any) -> str | None:
    """Return the values of a field that has few, parted by bars."""
    if _is_union(annotation):
        choices = [_choices(kind) for kind in get_args(annotation) if kind is not type(None)]
        return choices[0] if len(choices) == 1 else None
    return "|".join(get_args(annotation)) if get_origin(annotation) is typing.Literal else None


def _metavar(annotation: Any) -> str:
    """Return what stands for the value of an option."""
    kinds = get_args(annotation) if _is_union(annotation) else (annotation,)
    return next((METAVARS[kind] for kind in kinds if kind in METAVARS), "TEXT")


def _is_union(annotation: Any) -> bool:
    return get_origin(annotation) in (typing.Union, types.UnionType)


def _show_all(context: click.Context, _: click.Parameter, show: bool) -> None:
    if show:
        for parameter in context.command.params:
            if isinstance(parameter, click.Option):
                parameter.hidden = False
        print(context.get_help())
        context.exit()
