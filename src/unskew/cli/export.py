"""``unskew export``: a run's models as one ONNX file, the calibrator inside."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew.base.errors import ParameterError
from unskew.base.plain_text import plain


def export(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[str, typer.Option("--out", "-o", help="The ONNX file to write.")],
    what: Annotated[
        str,
        typer.Option(
            help="all (propensity, conversion and click_and_conversion, as far as the run has them),"
            " conversion, or propensity (calibrated; the mean over folds)."
        ),
    ] = "all",
    method: Annotated[str | None, typer.Option(help="Which of the run's models [its main one].")] = None,
    inputs: Annotated[
        str | None,
        typer.Option(help="raw (ids and values as in the log) or codes [raw with features, else codes]."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output file.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write a description of it to this file too.")] = None,
) -> None:
    """Write a model as ONNX: users, items and features in, probabilities out; the metadata tell of each."""
    if what not in ("all", "conversion", "propensity"):
        raise ParameterError(
            f"--what must be all, conversion or propensity, not {what!r}", remedy="give one of these"
        )
    if inputs not in (None, "raw", "codes"):
        raise ParameterError(f"--inputs must be raw or codes, not {inputs!r}", remedy="give one of these")
    if method is not None and what == "propensity":
        raise ParameterError("--method goes with a conversion model", remedy="leave out --what or --method")
    from unskew.cli.places import check_outputs, run_files

    check_outputs({"--out": Path(out), "--json": json}, folders={}, read=run_files(run))

    from unskew.serve.onnx_file import export_run

    exported = export_run(run, out, what=what, method=method, inputs=inputs, overwrite=overwrite)  # type: ignore[arg-type]
    if json is not None:
        from unskew.base.files import write_json

        write_json(json, exported)
    inside = [exported["method"]] if "method" in exported else []
    inside += [f"calibrated by {', '.join(exported['calibrators'])}"] if "calibrators" in exported else []
    seeds = f"{len(exported['seeds'])} seed{'s' if len(exported['seeds']) > 1 else ''}"
    answers = [name for name in exported["outputs"] if not name.startswith("known_")]
    print(
        f"{', '.join(answers)} ({', '.join(inside)}, mean of {seeds}) as ONNX, {exported['bytes']:,} bytes:"
        f" {plain(exported['file'])}"
    )
    print("Inputs: " + ", ".join(f"{plain(name)} ({held})" for name, held in exported["holds"].items()))
    if exported.get("folds", 1) > 1 and exported["space"] == "matrix":
        folds = f"the mean over {exported['folds']} folds"
        print(f"A pair gets {folds} as its propensity here, and that of its own fold from unskew score.")
