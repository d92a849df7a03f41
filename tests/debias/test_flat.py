"""The package is flat: one file a method and six more, no class deeper than a family's method."""

from __future__ import annotations

from pathlib import Path

import pytest

import unskew.debias
from unskew.base.estimator import Estimator
from unskew.debias import METHODS

HOME = Path(unskew.debias.__file__).parent


def depth(kind: type) -> int:
    """Classes on the longest way up to :class:`Estimator`, both counted."""
    if kind is Estimator:
        return 1
    return 1 + max(depth(base) for base in kind.__bases__)


@pytest.mark.parametrize("name", METHODS.built_in)
def test_a_method_is_at_most_estimator_debiaser_family_method(name):
    kind = METHODS[name]
    assert len(kind.__bases__) == 1, "what a method shares it has, or takes from one family"
    assert depth(kind) <= 4


def test_beside_the_methods_there_are_at_most_six_files():
    methods = {kind.__module__.rsplit(".", 1)[-1] for kind in METHODS.built_in.values()}
    assert len(methods) == len(METHODS.built_in), "two methods in one file"
    assert not [path for path in HOME.iterdir() if path.is_dir() and path.name != "__pycache__"]
    others = {path.stem for path in HOME.glob("*.py")} - methods - {"__init__"}
    assert len(others) <= 6, sorted(others)


@pytest.mark.parametrize("name", METHODS.built_in)
def test_no_parameter_is_there_to_repeat_published_code(name):
    assert not [param for param in METHODS[name]().get_params() if "legacy" in param or param == "official"]
