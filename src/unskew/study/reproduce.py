"""``unskew reproduce``: presets from data to tables and figures beside the paper's, all in one folder."""

from __future__ import annotations

import os
import platform
import sys
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from unskew import __version__
from unskew.base.errors import ParameterError, RunFolderError
from unskew.base.files import check_place, write_json, write_text
from unskew.base.progress import SILENT, Progress
from unskew.report.style import svg
from unskew.report.table import Table
from unskew.study.beside import PaperComparison, beside, comparisons, summarised
from unskew.study.correlation import Correlation, ece_against_performance
from unskew.study.efficiency import efficiency_table
from unskew.study.engine import GRID, OTHER_TEST, RESULTS, Engine
from unskew.study.page import first_screen, write_pages
from unskew.study.presets import PRESETS, SOURCES, Preset, chosen_presets, sources_of, wanted
from unskew.study.reproduction import ReproduceConfig, Reproduction
from unskew.study.results import ResultStore
from unskew.study.switches import chosen_on_test_table, switch_table
from unskew.study.table import summary, write_tables

WHERE = {
    "coat": "download coat.zip from https://www.cs.cornell.edu/~schnabts/mnar/ and unpack it",
    "yahoo_r3": "ask for R3 at Yahoo! Webscope (https://webscope.sandbox.yahoo.com) and unpack it",
    "kuairand": "download KuaiRand-Pure from https://kuairand.com and unpack it",
}
"""Where a user gets the data, which may not be shipped."""

DATA_FOLDERS = ("../shared/data",)
"""Where datasets are looked for beside ``$UNSKEW_DATA``."""


def found_data(data: str | None, root: Path | None) -> tuple[str, Path | None, list[str]]:
    """Return the dataset, its folder, and notes on the choice for the reader."""
    if data is None:
        coat = root or _folder_of("coat")
        if coat is not None:
            return "coat", coat, []
        note = (
            "no dataset was named and Coat was not found ($UNSKEW_DATA/coat, ../shared/data/coat): these are"
            f" numbers of the synthetic world, not of the paper's data; for those, {WHERE['coat']}, and give"
            " --data coat --root FOLDER"
        )
        return "synthetic", None, [note]
    if data in WHERE and root is None:
        root = _folder_of(data)
        if root is None:
            raise ParameterError(
                f"the folder of {data} is needed", remedy=f"{WHERE[data]}; then give --root FOLDER"
            )
    return data, root, []


def _folder_of(name: str) -> Path | None:
    places = [os.environ["UNSKEW_DATA"]] if "UNSKEW_DATA" in os.environ else []
    for place in (*places, *DATA_FOLDERS):
        if (Path(place) / name).is_dir():
            return Path(place) / name
    return None


@dataclass
class Reproduced:
    """What came out; the folder holds the same."""

    config: ReproduceConfig
    dataset: str
    facts: dict[str, str]
    """Command, date, versions, machine."""
    labels: tuple[str, ...]
    notes: list[str]
    table: pa.Table
    tables: dict[str, list[Table]] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    """SVG by preset."""
    comparisons: dict[str, list[PaperComparison]] = field(default_factory=dict)
    correlations: list[Correlation] = field(default_factory=list)


JUDGED_ON = {
    "paper": "paper protocol: ECE where its switches say",
    "honest": "honest protocol: out-of-fold scores of every pair, at the true rate",
}
"""How captions say where propensities are judged."""


def reproduce(config: ReproduceConfig, progress: Progress = SILENT) -> Reproduced:
    """Run the presets and write the folder: tables, figures, and the long table they are made from."""
    data, root, notes = found_data(config.data, config.root)
    presets, left_out = chosen_presets(list(config.presets), data, config.protocol)
    _check_folder(config.out)
    work = Reproduction(config, data, root, ResultStore(config.out / RESULTS), progress)
    # Both look at the data and the device: nothing is written before.
    engine, facts = work.engine(work.grid(*wanted(presets, config.protocol))), facts_of(config)
    engine.check()
    labels = engine.grid.protocol_for(data).labels
    with work.store.opened():
        result = Reproduced(config, data, facts, labels, notes + left_out, engine.run(progress))
        for preset in presets:
            if preset.kind in ("propensities", "methods"):
                _add_tables(result, engine, preset)
            elif preset.kind == "efficiency":
                machine = result.facts["machine"]
                shown = efficiency_table(result.table, config.protocol, preset.title, machine)
                result.tables[preset.name] = [shown]
            elif preset.kind == "switches":
                result.tables[preset.name] = [switch_table(work, preset), chosen_on_test_table(work)]
            else:
                _add_figure(result, work, engine, preset)
    write_folder(result)
    return result


def _check_folder(out: Path) -> None:
    """Raise an error if the folder holds other things than a reproduction, finished or not."""
    check_place(out)
    if not out.exists() or not any(out.iterdir()):
        return
    if (out / GRID).exists():
        raise RunFolderError("holds a study", where=str(out), remedy="choose another --out")
    if not (out / RESULTS).is_dir() and not (out / "reproduction.json").is_file():
        raise RunFolderError(
            "is a folder with other things in it", where=str(out), remedy="choose another --out"
        )


def _add_tables(result: Reproduced, engine: Engine, preset: Preset) -> None:
    protocol, (data,) = engine.grid.protocol, engine.data
    part = "propensity" if preset.kind == "propensities" else "method"
    own = engine.grid.protocol_for(data.entry.name).test_protocol
    for test in data.tests if part == "method" else ("",):
        found = summarised(result.table, preset, protocol, data.label(test), part)
        if not test:
            result.comparisons[preset.name] = comparisons(found, preset)
        kind = test or OTHER_TEST["honest" if own == "paper" else "paper"]
        measured = f"{protocol} protocol, test set {kind}" if part == "method" else JUDGED_ON[protocol]
        if preset.name == "table-sota" and protocol == "paper":
            measured += "; methods without published code keep their own defaults, the epoch chosen on clicks"
        shown = beside(found, preset, note=measured, with_paper=not test or protocol == "honest")
        result.tables.setdefault(preset.name, []).append(shown)


def _add_figure(result: Reproduced, work: Reproduction, engine: Engine, preset: Preset) -> None:
    from unskew.report.plots.reproduction import ece_performance_figures, histogram_grid, reliability_grid

    protocol = work.config.protocol
    if preset.name == "fig-ece-vs-performance":
        study = ece_against_performance(work, result.table)
        result.correlations = study.correlations
        result.tables[preset.name] = [study.shown(preset.title)]
        figures = ece_performance_figures(study.clouds, study.notes, connected=protocol == "paper")
    else:
        given = {each.name: each for each in engine.data[0].given}
        sources = [SOURCES[key] for key in sources_of(protocol)]
        sketches = {source.title: given[source.name].sketch(work.store) for source in sources}
        if preset.name == "fig-reliability":
            figures = reliability_grid(sketches)
        else:
            # A constant has one bar, in which nothing can be seen.
            sketches.pop(SOURCES["constant"].title, None)
            figures = histogram_grid(sketches)
    result.figures[preset.name] = figures


def facts_of(config: ReproduceConfig) -> dict[str, str]:
    """Return command, date, versions and machine, so that numbers can be traced."""
    import scipy
    import torch

    from unskew.training import resolve_device

    on_gpu = resolve_device(config.device).type == "cuda"
    machine = torch.cuda.get_device_name() if on_gpu else f"a CPU with {os.cpu_count()} cores"
    parts = ["unskew reproduce", *config.presets, f"--protocol {config.protocol} --seeds {config.seeds}"]
    if config.data:
        parts.insert(-1, f"--data {config.data}")
    parts += [f"--reverse {name}" for name in config.reversed]
    return {
        "command": " ".join(parts),
        "date": datetime.now(UTC).date().isoformat(),
        "versions": (
            f"unskew {__version__}, Python {sys.version.split()[0]}, torch {torch.__version__},"
            f" numpy {np.__version__}, scipy {scipy.__version__}"
        ),
        "machine": f"{machine} ({platform.machine()})",
    }


def write_folder(result: Reproduced) -> None:
    """Write tables, figures, and the facts and comparisons as JSON."""
    out = result.config.out
    write_tables(out, result.table)
    for name, figures in result.figures.items():
        title = f"{PRESETS[name].title} ({result.dataset}, {result.config.protocol} protocol)"
        write_text(out / f"{name}.svg", svg(*figures, name=name, title=title))
    lines = [f"{name}: {value}" for name, value in result.facts.items()]
    shown = [each for tables in result.tables.values() for each in tables]
    methods = summary(result.table, against={"method": "naive"})
    first = replace(first_screen(methods if methods.rows else None, None, "naive"), figures=result.figures)
    write_pages(out, "The paper's tables", shown, [*lines, *result.labels, *result.notes], first)
    write_json(
        out / "reproduction.json",
        {
            "facts": result.facts,
            "dataset": result.dataset,
            "protocol": result.config.protocol,
            "labels": list(result.labels),
            "notes": result.notes,
            "seeds": result.config.seeds,
            "tables": {
                name: [f"{table.markdown()}\n\n*{table.caption}*" for table in tables]
                for name, tables in result.tables.items()
            },
            "comparisons": {name: [each.to_dict() for each in of] for name, of in result.comparisons.items()},
            "correlations": [vars(each) for each in result.correlations],
        },
    )
