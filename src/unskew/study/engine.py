"""Runs a study: what is missing of its list of configurations, in one process or several; one long table.

What a run found is in :mod:`unskew.study.workshop`.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from unskew.base.errors import RunFolderError
from unskew.base.files import write_json
from unskew.base.own_code import PREFIX, load_own_code
from unskew.base.progress import SILENT, Progress
from unskew.metrics.collapse import collapse_message
from unskew.report.facts import COLLAPSED_MARK
from unskew.run.config import UNTRAINED, Config
from unskew.run.protocol import protocol_of
from unskew.study.grid import Row, Study
from unskew.study.page import first_screen, write_pages
from unskew.study.table import (
    StudySummary,
    learned_nothing,
    long_table,
    seeds_of,
    summary,
    write_tables,
)
from unskew.study.workshop import Workshop

RESULTS, GRID = "results", "grid.json"
"""The folder of a study's results, and the file that marks the folder of a study."""


@dataclass(frozen=True)
class StudyResult:
    """The result of a study."""

    study: Study
    table: pa.Table
    folder: Path
    notes: tuple[str, ...]
    """Remarks for the reader: the labels of the protocol, what diverged, and what learned nothing."""

    def summaries(self) -> dict[str, StudySummary]:
        """Return the propensities, each against its own raw one, and the methods against the baseline."""
        made = {
            "propensities": summary(
                self.table,
                kind="propensity",
                against={"calibrator": "none"},
                title="Propensities on held-out cells",
            ),
            "methods": summary(
                self.table,
                metrics=self.study.metrics,
                against={"method": self.study.baseline},
                title="Conversion models on randomly shown pairs",
            ),
        }
        return {name: found for name, found in made.items() if found.rows and found.metrics}

    def write_pages(self) -> None:
        """Write ``tables.md`` and ``tables.html`` into the study's folder."""
        made = self.summaries()
        first = first_screen(made.get("methods"), made.get("propensities"), self.study.baseline)
        write_pages(self.folder, self.study.name, [each.shown() for each in made.values()], self.notes, first)


def run_study(study: Study, out: Path, *, jobs: int = 1, progress: Progress = SILENT) -> StudyResult:
    """Run what is missing of a study, and write its tables.

    Runs that are finished, of equal configurations, data and code, are taken as they are; a killed study
    goes on with the run that it was in, and its table is the same to the last digit (on a CPU).

    Parameters
    ----------
    out
        The folder of the study: ``results/``, ``grid.json``, ``table.parquet``, ``table.csv``.
    jobs
        Processes that run configurations side by side.
    """
    if out.exists() and not (out.is_dir() and ((out / GRID).is_file() or is_unused(out))):
        raise RunFolderError("holds other things than a study", where=str(out), remedy="choose another --out")
    configs, workshop = study.configs, Workshop(out / RESULTS, study.both_tests)
    # Reads all data: nothing is written before they are known to be good.
    keys = [workshop.key(config) for config in configs]
    with workshop.opened():
        write_json(out / GRID, study.model_dump(mode="json"))
        complete(workshop, dict(zip(keys, configs, strict=True)), study.name, jobs, progress)
        table = table_of(workshop, dict(zip(keys, study.rows, strict=True)))
    write_tables(out, table)
    return StudyResult(study, table, out, tuple(notes(configs, table)))


def is_unused(out: Path) -> bool:
    """Return whether a folder is empty, but for results of which none is finished."""
    inside = list(out.iterdir())
    return not inside or (inside == [out / RESULTS] and not any((out / RESULTS).glob("[!.]*")))


def complete(
    workshop: Workshop, runs: Mapping[str, Config], name: str, jobs: int = 1, progress: Progress = SILENT
) -> None:
    """Run the configurations whose results are missing, by their hashes."""
    missing = {key: config for key, config in runs.items() if workshop.read(key) is None}
    bar = progress.task(f"study {name}", len(missing))
    # What shares the models of a propensity waits for the first that trains them.
    first = {propensity_of(config): key for key, config in reversed(missing.items())}
    rounds = [first.values(), missing.keys() - first.values()] if jobs > 1 else [missing.keys()]
    for keys in rounds:
        for label in _finished(
            workshop, [(key, missing[key]) for key in missing if key in keys], jobs, progress
        ):
            bar.say(label)
            bar.advance()
    bar.finish()


def _finished(
    workshop: Workshop, runs: Sequence[tuple[str, Config]], jobs: int, progress: Progress
) -> Iterator[str]:
    """Run configurations; yield what each was as it ends."""
    if jobs == 1 or len(runs) < 2:
        for key, config in runs:
            workshop.finish(config, key, progress)
            yield config.method
        return
    context = multiprocessing.get_context("spawn")
    threads = max(1, (os.cpu_count() or 1) // jobs)
    own = [Path(str(module.__file__)) for name, module in sys.modules.items() if name.startswith(PREFIX)]
    arguments = workshop.folder, workshop.both_tests, threads, own
    with ProcessPoolExecutor(jobs, context, _begin, arguments) as pool:
        futures = {pool.submit(_finish, config, key): config for key, config in runs}
        for future in as_completed(futures):
            future.result()
            yield futures[future].method


_own: list[Workshop] = []
"""The workshop of a worker process."""


def _begin(folder: Path, both_tests: bool, threads: int, own_code: Sequence[Path]) -> None:
    """Prepare a worker, which ends when the study that started it is killed."""
    import torch

    def end_with_the_study() -> None:
        parent = multiprocessing.parent_process()
        assert parent is not None
        parent.join()
        os._exit(1)

    threading.Thread(target=end_with_the_study, daemon=True).start()
    torch.set_num_threads(threads)
    for path in own_code:
        load_own_code(path)
    _own.append(Workshop(folder, both_tests))


def _finish(config: Config, key: str) -> None:
    _own[0].finish(config, key)


def propensity_of(config: Config) -> str:
    """Return what decides which models a propensity has: runs that agree in it share them."""
    plain = config.model_dump(mode="json", exclude={"output": True, "propensity": {"calibrator", "p_min"}})
    parameters = plain["model"]["parameters"]
    plain["model"] = (
        plain["model"]["learner"],
        {
            name: value
            for name, value in parameters.items()
            if name.split(".")[0] not in ("method", "calibrator")
        },
    )
    return repr(plain)


def table_of(workshop: Workshop, rows: Mapping[str, Row]) -> pa.Table:
    """Return the long table of runs by their hashes; propensities that several runs share stand once."""
    lines, known = [], set[Row]()
    for key, row in rows.items():
        result = workshop.read(key)
        assert result is not None, key
        of_propensity = row._replace(method="")
        for line in result.to_pylist():
            test = line.pop("test")
            if line["part"] == "propensity":
                if of_propensity not in known:
                    lines.append({**line, **of_propensity._asdict()})
                continue
            named = row._replace(dataset=f"{row.dataset} ({test})") if test else row
            lines.append({**line, **named._asdict()})
        known.add(of_propensity)
    return long_table(lines)


def notes(configs: Sequence[Config], table: pa.Table) -> Iterator[str]:
    """Yield the labels of the protocols, what diverged, and which networks learned nothing."""
    # Of a run without a trained propensity, the folds say nothing.
    trained = [config for config in configs if config.propensity.kind not in UNTRAINED] or configs[:1]
    yield from dict.fromkeys(label for config in trained for label in protocol_of(config).labels)
    for kind in ("propensity", "method"):
        for row, by_metric in seeds_of(table, kind).items():
            name = " ".join(filter(None, (row.method, row.propensity, row.calibrator)))
            diverged = by_metric.get("diverged", {})
            if count := sum(diverged.values()):
                yield f"{name}: {count:.0f} of {len(diverged)} seeds diverged and are left out"
            for network, reason, seeds, of_seeds in learned_nothing(by_metric):
                message = collapse_message(f"{name} on {row.dataset}", network, reason, seeds, of_seeds)
                yield f"{COLLAPSED_MARK} {message}"
