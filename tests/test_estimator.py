"""Parameters are stored as given, read back, set and cloned, also nested."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from sklearn.base import clone

from unskew.errors import NotFittedError, ParameterError
from unskew.estimator import Estimator, require


@dataclass(kw_only=True)
class Inner(Estimator):
    name: ClassVar[str] = "inner"
    size: int = 3


@dataclass(kw_only=True)
class Outer(Estimator):
    name: ClassVar[str] = "outer"
    inner: Inner | None = field(default_factory=Inner)
    rate: float = 0.5


def test_parameters_are_read_flat_and_deep():
    outer = Outer(inner=Inner(size=7))
    assert outer.get_params(deep=False) == {"inner": Inner(size=7), "rate": 0.5}
    assert outer.get_params() == {"inner": Inner(size=7), "inner__size": 7, "rate": 0.5}
    assert Outer(inner=None).get_params() == {"inner": None, "rate": 0.5}


def test_parameters_are_set_flat_and_nested():
    outer = Outer().set_params(rate=0.1, inner__size=9)
    assert (outer.rate, outer.inner.size) == (0.1, 9)
    assert outer.set_params() is outer


def test_defaults_are_not_shared():
    first, second = Outer(), Outer()
    first.set_params(inner__size=9)
    assert second.inner.size == 3


def test_a_clone_has_the_parameters_and_nothing_learned():
    outer = Outer(inner=Inner(size=7))
    outer.learned_ = 1
    copy = clone(outer)
    assert copy == outer
    assert copy.inner is not outer.inner
    assert not hasattr(copy, "learned_")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"speed": 1}, r"Outer has no parameter 'speed'\. To fix: use one of inner, rate"),
        ({"inner__speed": 1}, "Inner has no parameter 'speed'"),
        ({"rate__size": 1}, "Outer's rate is 0.5, which has no parameter 'size'"),
    ],
)
def test_unknown_parameters_are_told(params, message):
    with pytest.raises(ParameterError, match=message):
        Outer().set_params(**params)


def test_what_is_not_fitted_says_so_and_is_an_attribute_error_too():
    with pytest.raises(NotFittedError, match=r"this Outer is not fitted yet\. To fix: call fit first"):
        Outer()._require_fitted("learned_")
    assert issubclass(NotFittedError, AttributeError)


def test_require_raises_with_its_remedy():
    require(True, "never told")
    with pytest.raises(ParameterError, match=r"size must be odd\. To fix: add one"):
        require(False, "size must be odd", "add one")
