"""``unskew export``: a run's models as one ONNX file, the calibrator inside."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from unskew.base.errors import ParameterError
from unskew.base.plain_text import plain
from unskew.base.settings import Settings, option
from unskew.cli import options as shared


class ExportOptions(Settings):
    """The options of ``unskew export``."""

    run: Path = option(..., flag="argument", metavar="RUN")
    """A run folder."""
    out: str = option(..., flag="--out -o", writes="file")
    """The ONNX file to write."""
    what: Literal["all", "conversion", "propensity"] = option("all")
    """all writes propensity, conversion and click_and_conversion, as far as the run has them. A
    propensity is calibrated, and the mean over folds."""
    method: str | None = option(None)
    """Which of the run's models [its main one]."""
    overwrite: shared.Overwrite = False
    json_file: shared.JsonFile = None


def export(options: ExportOptions) -> None:
    """Write a model as ONNX: users, items and features in, probabilities out, described in the metadata."""
    if options.method is not None and options.what == "propensity":
        raise ParameterError("--method goes with a conversion model", remedy="leave out --what or --method")
    shared.check_outputs(options, read=shared.run_files(options.run))

    from unskew.serve.onnx_file import export_run

    asked = options.model_dump(include={"what", "method", "overwrite"})
    exported = export_run(options.run, options.out, **asked)
    shared.write_figures(options.json_file, exported)
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
