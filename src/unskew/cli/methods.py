"""``unskew methods``: what there is to choose from."""

from __future__ import annotations


def methods() -> None:
    """List debiasing methods (what each needs, when to use it), calibrators, backbones and datasets."""
    from rich.table import Table

    from unskew.cli.console import plain_console
    from unskew.registry import METHODS, REGISTRIES

    table = Table(title="Debiasing methods", title_justify="left")
    for title in ("name", "paper", "needs", "when to use it"):
        table.add_column(title)
    for name, method in METHODS.items():
        needs = [
            word
            for word, needed in (
                ("propensities", method.needs_propensity),
                ("all of D", method.needs_full_space),
                (f"imputation {method.imputation}", method.imputation is not None),
            )
            if needed
        ]
        table.add_row(name, method.paper, ", ".join(needs) or "clicks alone", method.when)
    console = plain_console()
    console.print(table)
    for registry in REGISTRIES:
        if registry is not METHODS:
            plural = (
                f"{registry.kind.removesuffix('y')}ies"
                if registry.kind.endswith("y")
                else f"{registry.kind}s"
            )
            console.print(f"{plural.capitalize()}: {', '.join(registry)}.")
