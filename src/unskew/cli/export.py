"""``unskew export``: a run's model as one ONNX file, the calibrator inside, or as a model of Triton's."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from unskew.errors import ParameterError
from unskew.plain_text import plain


def export(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    out: Annotated[str | None, typer.Option("--out", "-o", help="The ONNX file to write.")] = None,
    triton: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write it into this Triton model repository instead."),
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Of the model in the repository [that of the run folder].")
    ] = None,
    what: Annotated[
        str, typer.Option(help="conversion, or propensity (calibrated; the mean over folds).")
    ] = "conversion",
    method: Annotated[str | None, typer.Option(help="Which of the run's models [its main one].")] = None,
    inputs: Annotated[
        str | None,
        typer.Option(
            help="raw (ids and values as in the log) or codes [raw with features or --triton, else codes]."
        ),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace the output file.")] = False,
    json: Annotated[Path | None, typer.Option(help="Write a description of it to this file too.")] = None,
) -> None:
    """Write a model as ONNX: users, items and features in, probabilities out; the metadata tell of each."""
    if what not in ("conversion", "propensity"):
        raise ParameterError(
            f"--what must be conversion or propensity, not {what!r}", remedy="give one of these"
        )
    if inputs not in (None, "raw", "codes"):
        raise ParameterError(f"--inputs must be raw or codes, not {inputs!r}", remedy="give one of these")
    if method is not None and what == "propensity":
        raise ParameterError("--method goes with --what conversion", remedy="leave one of them out")
    if (out is None) == (triton is None):
        raise ParameterError("give one of -o FILE and --triton DIR", remedy="say where the model goes")
    if name is not None and triton is None:
        raise ParameterError("--name goes with --triton", remedy="leave it out")
    from unskew.cli.places import check_outputs, run_files

    folders = {} if triton is None else {"--triton": triton}
    file = None if out is None else Path(out)
    check_outputs({"--out": file, "--json": json}, folders=folders, read=run_files(run))

    from unskew.export import export_run, export_triton

    asked = {"what": what, "method": method, "inputs": inputs, "overwrite": overwrite}
    if out is not None:
        exported = export_run(run, out, **asked)  # type: ignore[arg-type]
    else:
        assert triton is not None
        exported = export_triton(run, triton, name=name, **asked)  # type: ignore[arg-type]
    if json is not None:
        from unskew.io.files import write_json

        write_json(json, exported)
    inside = (
        f"calibrated by {', '.join(exported['calibrators'])}" if what == "propensity" else exported["method"]
    )
    seeds = f"{len(exported['seeds'])} seed{'s' if len(exported['seeds']) > 1 else ''}"
    where = plain(exported.get("folder", exported["file"]))
    print(f"{what} ({inside}, mean of {seeds}) as ONNX, {exported['bytes']:,} bytes: {where}")
    print("Inputs: " + ", ".join(f"{plain(name)} ({held})" for name, held in exported["holds"].items()))
    if exported.get("folds", 1) > 1 and exported["space"] == "matrix":
        folds = f"the mean over {exported['folds']} folds"
        print(f"A pair gets {folds} here, and that of its own fold from unskew score.")
