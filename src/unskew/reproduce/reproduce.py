"""``unskew reproduce``: presets from data to tables and figures beside the paper's, all in one folder."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from unskew import __version__
from unskew.backbones import NeuMF
from unskew.datasets import DATASETS
from unskew.errors import ParameterError, RunFolderError
from unskew.estimator import require
from unskew.io.files import check_place, whole_file, write_json
from unskew.progress import SILENT, Progress
from unskew.reproduce.beside import PaperComparison, beside, comparisons, summarised
from unskew.reproduce.correlation import ece_against_performance
from unskew.reproduce.efficiency import show_efficiency, timings
from unskew.reproduce.paper_protocol import Paper, PaperProtocol
from unskew.reproduce.presets import SOURCES, Preset, chosen_presets, sources_of
from unskew.reproduce.reproduction import OTHER_TEST, Reproduction, method_rows, propensity_rows
from unskew.reproduce.switches import chosen_on_test_table, switch_table
from unskew.run.protocol import Protocol, ProtocolName
from unskew.seeds import require_count
from unskew.study.engine import GRID
from unskew.study.results import LOCK, ResultStore
from unskew.study.shown import Shown
from unskew.study.table import long_table, write_tables

WHERE = {
    "coat": "download coat.zip from https://www.cs.cornell.edu/~schnabts/mnar/ and unpack it",
    "yahoo_r3": "ask for R3 at Yahoo! Webscope (https://webscope.sandbox.yahoo.com) and unpack it",
    "kuairand": "download KuaiRand-Pure from https://kuairand.com and unpack it",
}
"""Where a user gets the data, which may not be shipped."""

DATA_FOLDERS = ("../shared/data",)
"""Where datasets are looked for beside ``$UNSKEW_DATA``."""


def found_data(data: str | None, root: Path | None) -> tuple[str, Path | None, list[str]]:
    """The dataset, its folder, and what a reader should know about the choice."""
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


@dataclass(frozen=True)
class ReproduceConfig:
    """What to reproduce.

    Parameters
    ----------
    data, root
        The dataset and its folder; None looks for Coat and else takes the synthetic world.
    reversed
        Switches of the paper protocol to turn over.
    options, backbone_params, propensity_epochs, method_params
        For small tests: options of the dataset's loader, a smaller NeuMF, shorter training.
    """

    presets: tuple[str, ...]
    out: Path
    data: str | None = None
    root: Path | None = None
    protocol: ProtocolName = "honest"
    seeds: int = 10
    seed: int = 0
    device: str = "auto"
    reversed: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    backbone_params: Mapping[str, Any] = field(default_factory=dict)
    propensity_epochs: int | None = None
    method_params: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_count(self.seeds)
        require(
            self.protocol in ("honest", "paper"),
            f"protocol must be 'honest' or 'paper', not {self.protocol!r}",
            "give one of these",
        )
        require(
            not self.reversed or self.protocol == "paper",
            "only the paper protocol has switches to reverse",
            "give --protocol paper",
        )
        if self.data is not None:
            DATASETS.require(self.data)
        PaperProtocol().reversed(*self.reversed)

    @property
    def seed_list(self) -> list[int]:
        """The seeds."""
        return list(range(self.seed, self.seed + self.seeds))


@dataclass
class Reproduced:
    """What came out; the folder holds the same."""

    config: ReproduceConfig
    dataset: str
    facts: dict[str, str]
    """Command, date, versions, machine."""
    labels: tuple[str, ...]
    notes: list[str]
    tables: dict[str, list[Shown]] = field(default_factory=dict)
    figures: dict[str, str] = field(default_factory=dict)
    """SVG by preset."""
    comparisons: dict[str, list[PaperComparison]] = field(default_factory=dict)
    correlations: list[Any] = field(default_factory=list)
    table: pa.Table | None = None


CELLS = "cells"
HONEST_FOLDS = 5


def reproduce(config: ReproduceConfig, progress: Progress = SILENT) -> Reproduced:
    """Run the presets and write the folder: tables, figures, and the long table they are made from."""
    data, root, notes = found_data(config.data, config.root)
    presets, left_out = chosen_presets(list(config.presets), data, config.protocol)
    settings = _settings(config, data, PaperProtocol().reversed(*config.reversed))
    _check_folder(config.out)
    require(config.seed >= 0, f"seed must be 0 or more, not {config.seed}", "give a seed from 0 on")
    store = ResultStore(config.out / CELLS)

    def work_with(chosen: Protocol) -> Reproduction:
        return Reproduction(
            data,
            root,
            chosen,
            store,
            seeds=config.seed_list,
            options=config.options,
            backbone=NeuMF(**config.backbone_params),
            method_params=config.method_params,
            device=config.device,
            progress=progress,
        )

    # Both look at the data and the device: nothing is written before.
    work, facts = work_with(settings), facts_of(config)
    result = Reproduced(config, work.dataset.name, facts, settings.labels, notes + left_out)
    with store.opened():
        rows = list(_rows(work, presets))
        result.table = long_table(rows)
        for preset in presets:
            if preset.kind in ("propensities", "methods"):
                _add_tables(result, work, preset)
            elif preset.kind == "efficiency":
                _add_efficiency(result, work, preset)
            elif preset.kind == "switches":
                assert isinstance(settings, Paper)
                switched = switch_table(
                    lambda switches: work_with(_settings(config, data, switches)), settings.switches, preset
                )
                result.tables[preset.name] = [switched, chosen_on_test_table(work)]
            else:
                _add_figure(result, work, preset)
    write_folder(result)
    return result


def _check_folder(out: Path) -> None:
    """An error if the folder holds other things than a reproduction, finished or not."""
    check_place(out)
    if not out.exists() or not any(out.iterdir()):
        return
    ours = (out / CELLS / LOCK).is_file() or (out / "reproduction.json").is_file()
    if (out / GRID).exists() or not ours:
        holds = "holds a study" if (out / GRID).exists() else "is a folder with other things in it"
        raise RunFolderError(holds, where=str(out), remedy="choose another --out")


def _settings(config: ReproduceConfig, data: str, switches: PaperProtocol) -> Protocol:
    if config.protocol == "paper":
        return Paper(propensity_epochs=config.propensity_epochs, data=data, switches=switches)
    return Protocol(crossfit=HONEST_FOLDS, propensity_epochs=config.propensity_epochs, data=data)


def _rows(work: Reproduction, presets: Sequence[Preset]) -> Iterator[dict[str, Any]]:
    """The long table's rows of all presets, each once."""
    protocol = work.protocol.name
    if any(preset.kind in ("propensities", "methods", "figure") for preset in presets):
        yield from propensity_rows(work, sources_of(protocol))
    wanted: dict[str, dict[str, None]] = {}
    for preset in presets:
        for method in preset.methods if preset.kind == "methods" else ():
            wanted.setdefault(method, {}).update(dict.fromkeys(preset.rows_of(method, protocol)))
    for method, chosen in wanted.items():
        yield from method_rows(work, method, list(chosen))


def _add_tables(result: Reproduced, work: Reproduction, preset: Preset) -> None:
    assert result.table is not None
    protocol = work.protocol.name
    part = "propensity" if preset.kind == "propensities" else "method"
    names = [work.dataset.name]
    if part == "method":
        names += [f"{work.dataset.name} ({test})" for test in work.tests if test]
    for number, name in enumerate(names):
        found = summarised(result.table, preset, protocol, name, part)
        if number == 0:
            result.comparisons[preset.name] = comparisons(found, preset)
        measured = _measured_on(work, number) if part == "method" else _judged_on(work)
        if preset.name == "table-sota" and protocol == "paper":
            measured += "; methods without published code keep their own defaults, the epoch chosen on clicks"
        with_paper = number == 0 or protocol == "honest"
        shown = beside(found, preset, note=measured, with_paper=with_paper)
        result.tables.setdefault(preset.name, []).append(shown)


def _measured_on(work: Reproduction, number: int) -> str:
    own = work.protocol.test_protocol
    kind = {"paper": "as shipped", "honest": "leak-free"}[own] if number == 0 else OTHER_TEST[own]
    return f"{work.protocol.name} protocol, test set {kind}"


def _judged_on(work: Reproduction) -> str:
    if work.protocol.name == "paper":
        return "paper protocol: ECE where its switches say"
    return "honest protocol: out-of-fold scores of every pair, at the true rate"


def _add_efficiency(result: Reproduced, work: Reproduction, preset: Preset) -> None:
    keys = list(dict.fromkeys((*sources_of(work.protocol.name), "batch_ensemble")))
    found = timings(work, keys)
    assert result.table is not None
    extra = [
        {
            "dataset": work.dataset.name,
            "protocol": work.protocol.name,
            "propensity": each.source.propensity,
            "calibrator": each.source.calibrator,
            "method": "",
            "seed": work.seeds[0],
            "metric": f"{what}_seconds",
            "value": getattr(each, what),
            "part": "timing",
        }
        for each in found
        for what in ("training", "inference")
    ]
    result.table = pa.concat_tables([result.table, long_table(extra)])
    result.tables[preset.name] = [show_efficiency(found, preset.title, result.facts["machine"])]


def _add_figure(result: Reproduced, work: Reproduction, preset: Preset) -> None:
    from unskew.report.plots.reproduction import ece_performance_figure, histogram_grid, reliability_grid
    from unskew.report.style import svg

    protocol = work.protocol.name
    title = f"{preset.title} ({work.dataset.name}, {protocol} protocol)"
    if preset.name == "fig-ece-vs-performance":
        study = ece_against_performance(work)
        result.correlations = study.correlations
        result.tables[preset.name] = [study.shown(preset.title)]
        figure = ece_performance_figure(study.clouds, study.notes, connected=protocol == "paper")
    else:
        sketches = {
            SOURCES[key].title: each.sketch for key, each in work.estimated(sources_of(protocol)).items()
        }
        if preset.name == "fig-reliability":
            figure = reliability_grid(sketches)
        else:
            # A constant has one bar, in which nothing can be seen.
            sketches.pop(SOURCES["constant"].title, None)
            figure = histogram_grid(sketches)
    result.figures[preset.name] = svg(figure, name=preset.name, title=title, standalone=True)


def facts_of(config: ReproduceConfig) -> dict[str, str]:
    """Command, date, versions and machine, so that numbers can be traced."""
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
    """Tables, figures, and the facts and comparisons as JSON."""
    out = result.config.out
    assert result.table is not None
    write_tables(out, result.table)
    for name, text in result.figures.items():
        with whole_file(out / f"{name}.svg") as beside_:
            beside_.write_text(text, encoding="utf-8")
    lines = [f"{name}: {value}" for name, value in result.facts.items()]
    parts = ["\n".join(f"- {line}" for line in [*lines, *result.labels, *result.notes])]
    for name, tables in result.tables.items():
        parts += [f"## {name}"]
        parts += [f"{shown.title}\n\n{shown.markdown()}\n\n{shown.caption}" for shown in tables]
    with whole_file(out / "tables.md") as beside_:
        beside_.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    write_json(
        out / "reproduction.json",
        {
            "facts": result.facts,
            "dataset": result.dataset,
            "protocol": result.config.protocol,
            "labels": list(result.labels),
            "notes": result.notes,
            "seeds": result.config.seeds,
            "tables": {name: [asdict(shown) for shown in tables] for name, tables in result.tables.items()},
            "comparisons": {
                name: [
                    {
                        "method": each.method,
                        "source": each.source,
                        "metric": each.metric,
                        "mean": each.ours.mean,
                        "std": each.ours.std,
                        "p_holm": each.ours.p_holm,
                        "is_significant": each.ours.is_significant,
                        "users": each.ours.users,
                        "users_difference": each.ours.users_difference,
                        "paper_mean": None if each.paper is None else each.paper.mean,
                        "paper_std": None if each.paper is None else each.paper.std,
                        "deviation": each.deviation,
                    }
                    for each in of
                ]
                for name, of in result.comparisons.items()
            },
            "correlations": [vars(each) for each in result.correlations],
        },
    )
