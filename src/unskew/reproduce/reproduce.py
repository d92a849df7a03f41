"""``unskew reproduce``: presets from data to tables and figures beside the paper's, all in one folder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from unskew.backbones import NeuMF
from unskew.errors import RunFolderError
from unskew.estimator import require
from unskew.io.files import check_place
from unskew.progress import SILENT, Progress
from unskew.reproduce.beside import beside, comparisons, summarised
from unskew.reproduce.correlation_study import ece_against_performance
from unskew.reproduce.data_places import found_data
from unskew.reproduce.efficiency import show_efficiency, timings
from unskew.reproduce.paper_protocol import Paper, PaperProtocol
from unskew.reproduce.presets import SOURCES, Preset, chosen_presets, sources_of
from unskew.reproduce.reproduced import ReproduceConfig, Reproduced
from unskew.reproduce.reproduced_folder import facts_of, write_folder
from unskew.reproduce.reproduction import OTHER_TEST, Reproduction
from unskew.reproduce.reproduction_rows import method_rows, propensity_rows
from unskew.reproduce.switches import chosen_on_test_table, switch_table
from unskew.run.protocol import Protocol
from unskew.study.cells import LOCK, CellStore
from unskew.study.engine import GRID
from unskew.study.table import long_table

CELLS = "cells"
HONEST_FOLDS = 5


def reproduce(config: ReproduceConfig, progress: Progress = SILENT) -> Reproduced:
    """Run the presets and write the folder: tables, figures, and the long table they are made from."""
    data, root, notes = found_data(config.data, config.root)
    presets, left_out = chosen_presets(list(config.presets), data, config.protocol)
    settings = _settings(config, data, PaperProtocol().reversed(*config.reversed))
    _check_folder(config.out)
    require(config.seed >= 0, f"seed must be 0 or more, not {config.seed}", "give a seed from 0 on")
    store = CellStore(config.out / CELLS)

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
    protocol = work.settings.name
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
    protocol = work.settings.name
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
    own = work.settings.test_protocol
    kind = {"paper": "as shipped", "honest": "leak-free"}[own] if number == 0 else OTHER_TEST[own]
    return f"{work.settings.name} protocol, test set {kind}"


def _judged_on(work: Reproduction) -> str:
    if work.settings.name == "paper":
        return "paper protocol: ECE where its switches say"
    return "honest protocol: out-of-fold scores of every pair, at the true rate"


def _add_efficiency(result: Reproduced, work: Reproduction, preset: Preset) -> None:
    keys = list(dict.fromkeys((*sources_of(work.settings.name), "batch_ensemble")))
    found = timings(work, keys)
    assert result.table is not None
    extra = [
        {
            "dataset": work.dataset.name,
            "protocol": work.settings.name,
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

    protocol = work.settings.name
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
