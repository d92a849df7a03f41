"""Help in groups of options: ``--help`` shows the one that most people need, ``--help-all`` all of them."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperCommand

USUAL = "Options that most people need"
"""The group that ``--help`` shows."""

GROUPS = {
    USUAL: "data user item click conversion space test test_is features method",
    "Data": "root option unbiased unbiased_share known_propensity actions duplicates time maturity",
    "Features": "numeric bag ignore propensity_features model_features allow_leak",
    "Propensities": "propensity calibrator uncertainty crossfit propensity_epochs p_min",
    "Training": "backbone seeds seed members ensemble recalibrate protocol split valid_from set_ from_ "
    "checkpoint every device",
    "Output": "out overwrite config save_config json log_json tensorboard mlflow help_all help",
}
"""The options of ``unskew run`` by group, parted by spaces."""

ALL = "unskew.all options"
"""Set in the meta of a context whose help shows all options."""


class BriefHelp(TyperCommand):
    """A command whose help has its options in groups, and all but the first only where they are asked for."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Write the help without panels."""
        self.rich_markup_mode = None
        super().format_help(ctx, formatter)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the group that most people need, and the names of the rest; or all groups."""
        records = {str(each.name): each.get_help_record(ctx) for each in self.get_params(ctx)}
        groups = {
            group: [line for name in names.split() if (line := records.get(name)) is not None]
            for group, names in GROUPS.items()
        }
        for group, lines in groups.items():
            if group == USUAL or ctx.meta.get(ALL):
                with formatter.section(group):
                    formatter.write_dl(lines)
        if not ctx.meta.get(ALL):
            with formatter.section("Further options, which --help-all shows"):
                formatter.write_dl(
                    [
                        (group, " ".join(flag.split()[0] for flag, _ in lines))
                        for group, lines in groups.items()
                        if group != USUAL
                    ]
                )


def _show_all(context: typer.Context, show: bool) -> None:
    if show:
        context.meta[ALL] = True
        print(context.get_help())
        raise typer.Exit


HelpAll = Annotated[
    bool,
    typer.Option(
        "--help-all", is_eager=True, expose_value=False, callback=_show_all, help="Show all options and exit."
    ),
]
