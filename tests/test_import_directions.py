"""Imports point one way, and what must be light loads no torch."""

from __future__ import annotations

import pytest
from import_graph import LAYERS, SOURCE, home_of, imported, modules

import unskew

WITHOUT_TORCH = ("base", "metrics", "calibration", "theory", "data", "audit", "report", "serve", "cli")
"""Accept tensors by their duck type, and import torch, if at all, inside a function."""

HEAVY = ("torch", "safetensors")

LAYER_OF = {name: level for level, names in enumerate(LAYERS) for name in names}


def test_every_module_has_its_layer():
    assert {home_of(path) for path in modules()} <= set(LAYER_OF), "place the new module in LAYERS"


@pytest.mark.parametrize("home", LAYER_OF)
def test_imports_point_to_the_same_layer_or_below(home):
    wrong = [
        f"{path.relative_to(SOURCE)}:{line} imports {name}"
        for path in modules()
        if home_of(path) == home
        for name, line in imported(path, inside_functions=True)
        if name.startswith("unskew.") and LAYER_OF[name.split(".")[1]] > LAYER_OF[home]
    ]
    assert wrong == []


@pytest.mark.parametrize("home", WITHOUT_TORCH)
def test_what_must_be_light_imports_no_torch(home):
    wrong = [
        f"{path.relative_to(SOURCE)}:{line} imports {name}"
        for path in modules()
        if home_of(path) == home
        for name, line in imported(path, inside_functions=False)
        if name.split(".")[0] in HEAVY and path.relative_to(SOURCE).as_posix() != "base/tensors.py"
    ]
    assert wrong == []


def test_what_is_slow_to_import_is_imported_by_those_who_use_it():
    """`scipy.stats` is a fifth of what a run takes to start."""
    found = [
        path.relative_to(SOURCE).as_posix()
        for path in modules()
        for name, _ in imported(path, inside_functions=False)
        if name.startswith("scipy.stats")
    ]
    assert set(found) <= {"study/correlation.py"}


def test_packages_of_one_layer_have_no_cycles():
    needs: dict[str, set[str]] = {name: set() for name in LAYER_OF}
    for path in modules():
        home = home_of(path)
        for name, _ in imported(path, inside_functions=False):
            if name.startswith("unskew."):
                needs[home].add(name.split(".")[1])
        needs[home].discard(home)
    settled: set[str] = set()
    while ready := {name for name, others in needs.items() if others <= settled and name not in settled}:
        settled |= ready
    assert settled == set(needs), f"these import one another: {set(needs) - settled}"


def test_every_promised_name_is_there():
    for name in unskew.__all__:
        found = getattr(unskew, name)
        assert getattr(found, "__name__", name).rpartition(".")[2] == name
    with pytest.raises(AttributeError, match="has no attribute 'Magic'"):
        _ = unskew.Magic


def test_the_library_imports_no_benchmark():
    wrong = [
        f"{path.relative_to(SOURCE)}:{line} imports {name}"
        for path in modules()
        for name, line in imported(path, inside_functions=True)
        if name.split(".")[0] == "benchmarks"
    ]
    assert wrong == []
