"""``unskew reproduce``: presets from data to tables and figures beside the paper's, all in one folder."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterable, Mapping, Sequence
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
from unskew.base.registry import DATASETS
from unskew.report.style import svg
from unskew.report.table import Table
from unskew.run.config import NO_METHOD, NO_PROPENSITY, Config
from unskew.run.protocol import ProtocolName, protocol_of
from unskew.run.result import Result
from unskew.study.engine import GRID, RESULTS, complete, table_of
from unskew.study.grid import row_of, run_of
from unskew.study.page import first_screen, write_pages
from unskew.study.paper_tables import (
    PaperComparison,
    beside,
    comparisons,
    efficiency_table,
    summarised,
    switch_table,
)
from unskew.study.presets import NOISY, PRESETS, SOURCES, Preset, chosen_presets, sources_of, wanted
from unskew.study.table import Kind, seeds_of, summary, write_tables
from unskew.study.workshop import OTHER_TEST, Workshop

WHERE = {
    "coat": "download coat.zip from https://www.cs.cornell.edu/~schnabts/mnar/ and unpack it",
    "yahoo_r3": "ask for R3 at Yahoo! Webscope (https://webscope.sandbox.yahoo.com) and unpack it",
    "kuairand": "download KuaiRand-Pure from https://kuairand.com and unpack it",
}
"""Where a user gets the data, which may not be shipped."""


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
    DATASETS.require(data)
    if data in WHERE and root is None:
        root = _folder_of(data)
        if root is None:
            raise ParameterError(
                f"the folder of {data} is needed", remedy=f"{WHERE[data]}; then give --root FOLDER"
            )
    return data, root, []


def _folder_of(name: str) -> Path | None:
    folders = [Path(folder) / name for folder in (os.environ.get("UNSKEW_DATA"), "../shared/data") if folder]
    return next((folder for folder in folders if folder.is_dir()), None)


@dataclass
class Reproduction:
    """The runs of a reproduction: what they all have, and where their results are kept."""

    base: Mapping[str, Any]
    """The fields of every run, by their sections."""
    workshop: Workshop
    jobs: int = 1
    progress: Progress = SILENT

    @property
    def plain(self) -> Config:
        """Return the run that all are changes of."""
        return run_of(self.base, {"model.method": NO_METHOD})

    @property
    def protocol(self) -> ProtocolName:
        """Return the protocol."""
        return self.plain.evaluation.protocol

    @property
    def data(self) -> str:
        """Return the name of the dataset."""
        return str(self.plain.data.source)

    def config(self, source: str, method: str = "", *, reverse: Sequence[str] | None = None) -> Config:
        """Return the run of a row: a method, or the propensity alone, with the propensities of a source."""
        known = {**SOURCES, NOISY.key: NOISY}
        fields = known[source].fields if source else {"propensity": NO_PROPENSITY}
        switches = {} if reverse is None else {"evaluation.reverse": tuple(reverse)}
        return run_of(self.base, {**fields, **switches, "model.method": method or NO_METHOD})

    def table(self, configs: Iterable[Config]) -> pa.Table:
        """Return the long table of runs; what is missing of them is run."""
        runs = {self.workshop.key(config): config for config in configs}
        complete(self.workshop, runs, f"reproduce-{self.protocol}", self.jobs, self.progress)
        return table_of(self.workshop, {key: row_of(config) for key, config in runs.items()})

    def values(self, configs: Iterable[Config], kind: Kind = "method") -> list[dict[str, list[float]]]:
        """Return each run's metrics, one value for each seed, on the dataset's own test set."""
        return [
            {
                metric: list(by_seed.values())
                for metric, by_seed in seeds_of(self.table([config]), kind)[
                    row_of(config)._replace(**({"method": ""} if kind == "propensity" else {}))
                ].items()
            }
            for config in configs
        ]

    def result(self, config: Config) -> Result:
        """Run a configuration whose propensity is kept, for its propensities row by row."""
        return self.workshop.run(config, self.progress)


@dataclass
class Reproduced:
    """The result of a reproduction; the folder holds the same."""

    work: Reproduction
    out: Path
    facts: dict[str, str]
    """Command, date, versions, machine."""
    labels: tuple[str, ...]
    notes: list[str]
    table: pa.Table
    tables: dict[str, list[Table]] = field(default_factory=dict)
    figures: dict[str, Any] = field(default_factory=dict)
    comparisons: dict[str, list[PaperComparison]] = field(default_factory=dict)
    correlations: list[Any] = field(default_factory=list)


JUDGED_ON = {
    "paper": "paper protocol: ECE where its switches say",
    "honest": "honest protocol: out-of-fold scores of every pair, at the true rate",
}
"""How captions say where propensities are judged."""


def reproduce(
    presets: Sequence[str],
    base: Mapping[str, Any],
    out: Path,
    *,
    jobs: int = 1,
    progress: Progress = SILENT,
) -> Reproduced:
    """Run the presets and write the folder: tables, figures, and the long table they are made from.

    Parameters
    ----------
    base
        The fields of every run, such as ``{"data": "coat", "protocol": "paper", "seeds": 10}``; without data,
        Coat where it is found, and else the synthetic world.
    """
    asked = run_of({"data": "synthetic", **base}, {"model.method": NO_METHOD})
    named = str(asked.data.source) if {"data", "data.source"} & {*base} else None
    data, root, notes = found_data(named, None if asked.data.root is None else Path(asked.data.root))
    chosen, left_out = chosen_presets(list(presets), data, asked.evaluation.protocol)
    _check_folder(out)
    where = {} if root is None else {"data.root": str(root)}
    work = Reproduction(
        {**base, "data.source": data, **where}, Workshop(out / RESULTS, both_tests=True), jobs, progress
    )
    rows = wanted(chosen, work.protocol)
    # Both look at the data and the device: nothing is written before.
    facts, labels = facts_of(presets, work.plain), protocol_of(work.plain).labels
    work.workshop.key(work.plain)
    with work.workshop.opened():
        table = work.table([work.config(source, method) for source, method in rows])
        result = Reproduced(work, out, facts, labels, notes + left_out, table)
        for preset in chosen:
            if preset.kind in ("propensities", "methods"):
                _add_tables(result, preset)
            elif preset.kind == "efficiency":
                shown = efficiency_table(table, work.protocol, preset.title, facts["machine"])
                result.tables[preset.name] = [shown]
            elif preset.kind == "switches":
                from unskew.study.chosen_on_test import chosen_on_test_table

                result.tables[preset.name] = [switch_table(work, preset), chosen_on_test_table(work)]
            else:
                _add_figure(result, preset)
    write_folder(result)
    return result


def _check_folder(out: Path) -> None:
    """Raise an error if the folder holds other things than a reproduction, finished or not."""
    check_place(out)
    if (out / GRID).exists():
        raise RunFolderError("holds a study", where=str(out), remedy="choose another --out")
    is_own = (out / RESULTS).is_dir() or (out / "reproduction.json").is_file()
    if out.exists() and any(out.iterdir()) and not is_own:
        problem = "is a folder with other things in it"
        raise RunFolderError(problem, where=str(out), remedy="choose another --out")


def _add_tables(result: Reproduced, preset: Preset) -> None:
    protocol, data = result.work.protocol, result.work.data
    kind: Kind = "propensity" if preset.kind == "propensities" else "method"
    own = protocol_of(result.work.plain).test_protocol
    names = [name for name in result.table["dataset"].unique().to_pylist() if name != data]
    for name in (data, *names) if kind == "method" else (data,):
        summed = summarised(result.table, preset, protocol, name, kind)
        if name == data:
            result.comparisons[preset.name] = comparisons(summed, preset)
        other = OTHER_TEST[own if name != data else "honest" if own == "paper" else "paper"]
        measured = f"{protocol} protocol, test set {other}" if kind == "method" else JUDGED_ON[protocol]
        if preset.name == "table-sota" and protocol == "paper":
            measured += "; methods without published code keep their own defaults, the epoch chosen on clicks"
        shown = beside(summed, preset, note=measured, with_paper=name == data or protocol == "honest")
        result.tables.setdefault(preset.name, []).append(shown)


def _add_figure(result: Reproduced, preset: Preset) -> None:
    from unskew.report.plots.reproduction import ece_performance_figures, histogram_grid, reliability_grid
    from unskew.study.correlation import ece_against_performance

    work = result.work
    if preset.name == "fig-ece-vs-performance":
        study = ece_against_performance(work)
        result.correlations = study.correlations
        result.tables[preset.name] = [study.shown(preset.title)]
        connected = work.protocol == "paper"
        result.figures[preset.name] = ece_performance_figures(study.clouds, study.notes, connected=connected)
        return
    keys = sources_of(work.protocol)
    # A constant has one bar, in which nothing can be seen.
    shown = [key for key in keys if preset.name == "fig-reliability" or key != "constant"]
    sketches = {SOURCES[key].title: work.result(work.config(key)).sketches["calibrated"] for key in shown}
    draw = reliability_grid if preset.name == "fig-reliability" else histogram_grid
    result.figures[preset.name] = draw(sketches)


def facts_of(presets: Sequence[str], config: Config) -> dict[str, str]:
    """Return command, date, versions and machine, so that numbers can be traced."""
    import scipy
    import torch

    from unskew.training import resolve_device

    evaluation = config.evaluation
    on_gpu = resolve_device(config.compute.device).type == "cuda"
    machine = torch.cuda.get_device_name() if on_gpu else f"a CPU with {os.cpu_count()} cores"
    parts = ["unskew reproduce", *presets, f"--data {config.data.source}"]
    parts += [f"--protocol {evaluation.protocol} --seeds {len(config.seeds)}"]
    parts += [f"--reverse {name}" for name in evaluation.reverse]
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
    out = result.out
    write_tables(out, result.table)
    for name, figures in result.figures.items():
        title = f"{PRESETS[name].title} ({result.work.data}, {result.work.protocol} protocol)"
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
            "dataset": result.work.data,
            "protocol": result.work.protocol,
            "labels": list(result.labels),
            "notes": result.notes,
            "seeds": len(result.work.plain.seeds),
            "tables": {
                name: [f"{table.markdown()}\n\n*{table.caption}*" for table in tables]
                for name, tables in result.tables.items()
            },
            "comparisons": {name: [each.to_dict() for each in of] for name, of in result.comparisons.items()},
            "correlations": [vars(each) for each in result.correlations],
        },
    )
