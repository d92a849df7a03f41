"""A pytest plugin: which tests are slow, as measured: those in ``slow.json``, which ``make times`` writes.

Costs are time of the processor, with that of child processes, so that a busy machine changes little. A test
is slow (it gets the marker) if a case of it costs more than ``LIMIT``, or if it uses a shared fixture that
does; one that is not in the file, a new one, is not slow. Such a test is named at the end of ``make quick``:
run ``make times`` after adding some, and commit the file. ``make test`` is to take 7 minutes on two cores and
``make quick`` one: a test prefers pairs of parameters to all combinations, and marks the others ``thorough``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

LIMIT = 0.1
"""Seconds of the processor up to which a test is fast."""

FILE = Path(__file__).with_name("slow.json")

COST, SHARED = "processor seconds", "processor seconds of "


def spent() -> float:
    """Seconds of the processor that this process and its children took."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def of_test(nodeid: str) -> str:
    """A test without its parameters, which come and go."""
    return nodeid.partition("[")[0]


def file_of(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def of_fixture(fixture: pytest.FixtureDef[Any]) -> str:
    return f"{fixture.baseid}::{fixture.argname}"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record-slow", action="store_true", help="write tests/slow.json for what was run")


def pytest_configure(config: pytest.Config) -> None:
    measured = Measured(config)
    config.pluginmanager.register(measured, "unskew-measured")
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(LongestFirst(measured.known), "unskew-longest-first")


class Measured:
    """Marks, measures, and tells or writes at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.known: dict[str, float] = json.loads(FILE.read_text(encoding="utf-8")) if FILE.is_file() else {}
        self.costs: dict[str, float] = {}
        self.shared: list[tuple[str, str]] = []

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            info = getattr(item, "_fixtureinfo", None)
            fixtures = info.name2fixturedefs.values() if info is not None else ()
            names = {of_test(item.nodeid), *(of_fixture(each[-1]) for each in fixtures if each)}
            if names & self.known.keys():
                item.add_marker("slow")

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: Any
    ) -> Generator[None, Any, Any]:
        start = spent()
        try:
            return (yield)
        finally:
            if fixturedef.scope != "function":
                cost = (SHARED + of_fixture(fixturedef), spent() - start)
                request.node.session.stash.setdefault(SHARED_COSTS, []).append(cost)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        item.session.stash[SHARED_COSTS] = []
        item.stash[STARTED] = spent()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        try:
            return (yield)
        finally:
            shared = item.session.stash[SHARED_COSTS]
            own = spent() - item.stash[STARTED] - sum(cost for _, cost in shared)
            # Properties travel with the report from a worker to the process that writes.
            item.user_properties += [*shared, (COST, own)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "teardown":
            return
        for name, value in report.user_properties:
            if name == COST or name.startswith(SHARED):
                key = of_test(report.nodeid) if name == COST else name.removeprefix(SHARED)
                self.costs[key] = max(self.costs.get(key, 0.0), float(value))  # type: ignore[arg-type]

    def pytest_sessionfinish(self) -> None:
        if self.config.getoption("--record-slow") and not hasattr(self.config, "workerinput"):
            slow = {key: round(cost, 2) for key, cost in self.costs.items() if cost > LIMIT}
            kept = {key: cost for key, cost in self.known.items() if key not in self.costs}
            text = json.dumps(dict(sorted((kept | slow).items())), indent=0)
            FILE.write_text(text + "\n", encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        if "not slow" not in self.config.getoption("-m"):
            return
        new = sorted(((cost, key) for key, cost in self.costs.items() if cost > 2 * LIMIT), reverse=True)
        if new:
            told = ", ".join(f"{key} ({cost:.1f} s)" for cost, key in new[:10])
            terminalreporter.write_line(f"{len(new)} slow and not in tests/slow.json (make times): {told}")


class LongestFirst:
    """Files are dealt to workers in this order: a long one at the end would leave the others idle."""

    def __init__(self, known: dict[str, float]) -> None:
        self.known = known

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        of_file: dict[str, float] = {}
        for item in items:
            cost = self.known.get(of_test(item.nodeid), LIMIT / 10)
            of_file[file_of(item)] = of_file.get(file_of(item), 0.0) + cost
        items.sort(key=lambda item: -of_file[file_of(item)])


SHARED_COSTS = pytest.StashKey[list[tuple[str, float]]]()
STARTED = pytest.StashKey[float]()
