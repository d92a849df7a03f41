"""Fixtures that every test may use, and the path to the contract suites."""

from __future__ import annotations

import dataclasses
import gc
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

TESTS = Path(__file__).parent

# Modules and collected tests are objects by the million, and no garbage: looking for it takes a tenth.
gc.set_threshold(50_000)

# Contract suites are imported as `contracts.…`; importlib mode puts no test folder on the path by itself.
# What makes the pages of the documentation is tested too.
sys.path[:0] = [str(TESTS), *(str(TESTS.parent / name) for name in ("docs", "tools"))]
pytest.register_assert_rewrite("contracts")

pytest_plugins = ["measured"]

# Workers that compile a function at the same time would overwrite each other's code in one cache of numba.
if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    os.environ.setdefault("NUMBA_CACHE_DIR", str(TESTS.parent / ".pytest_cache" / f"numba-{worker}"))

try:
    import hypothesis
except ModuleNotFoundError:
    HAS_HYPOTHESIS = False
else:
    HAS_HYPOTHESIS = True
    # Neither earlier runs (a database of examples) nor a busy machine (deadlines) decide a test.
    hypothesis.settings.register_profile(
        "unskew",
        database=None,
        deadline=None,
        suppress_health_check=[hypothesis.HealthCheck.too_slow],
    )
    hypothesis.settings.load_profile("unskew")


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Without hypothesis (``pytest -m gpu`` on a bare machine) the files that draw are left out."""
    if HAS_HYPOTHESIS or collection_path.suffix != ".py":
        return None
    return "\nfrom hypothesis import" in collection_path.read_text(encoding="utf-8") or None


@pytest.fixture(scope="session")
def coat_root() -> Path:
    """The folder of the real Coat data; without it the test is skipped."""
    shared = TESTS.parent.parent / "shared" / "data"
    folder = Path(os.environ.get("UNSKEW_DATA", shared)) / "coat"
    if not (folder / "train.ascii").is_file():
        pytest.skip("the Coat data are not there: put them in $UNSKEW_DATA/coat or ../shared/data/coat")
    return folder


@pytest.fixture(scope="module")
def undrawn() -> Iterator[None]:
    """Make figures, but do not lay them out and write them, which takes a second; tests/report does it."""

    def svg(*figures: object, title: str, **_: object) -> str:
        return f"<svg><title>{title}</title></svg>"

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("unskew.report.plots.methods.svg", svg)
        patched.setattr("unskew.report.page.inline_svg", svg)
        yield


MOST = {"epochs": 10}
"""Of a training where tests ask for :func:`briefly`."""


@pytest.fixture(scope="module")
def briefly() -> Iterator[None]:
    """Trainings end after a few epochs: the smallest worlds never stop early, and 200 epochs take seconds."""
    from unskew.debias import fit
    from unskew.propensity import network

    def shortened(train: Callable[..., object]) -> Callable[..., object]:
        def trained(networks: object, passes: object, schedule: Any, **further: Any) -> object:
            epochs = min(schedule.epochs, MOST["epochs"])
            return train(networks, passes, dataclasses.replace(schedule, epochs=epochs), **further)

        return trained

    with pytest.MonkeyPatch.context() as patched:
        for place in (fit, network):
            patched.setattr(place, "train", shortened(place.train))
        yield


@pytest.fixture
def at_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test of what is learned, among those that train briefly."""
    monkeypatch.setitem(MOST, "epochs", 10_000)


def pytest_collection_finish() -> None:
    """What was collected stays to the end: whoever looks for garbage need not go through it, for a second."""
    gc.collect()
    gc.freeze()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Tests marked ``gpu`` are skipped where there is none."""
    if item.get_closest_marker("gpu") is not None:
        import torch

        if not torch.cuda.is_available():
            pytest.skip("there is no CUDA device")
