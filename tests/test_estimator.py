"""Parameters are stored as given, read back, set and cloned, also nested."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np
import pytest
from sklearn.base import clone

from unskew.base.errors import NotFittedError, ParameterError
from unskew.base.estimator import (
    Estimator,
    require_types,
)
from unskew.calibration import Platt


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
    with pytest.raises(NotFittedError, match=r"this Platt is not fitted yet\. To fix: call fit first"):
        Platt().predict([0.5])
    assert issubclass(NotFittedError, AttributeError)


@dataclass(kw_only=True)
class Typed(Estimator):
    name: ClassVar[str] = "typed"
    inner: Inner = field(default_factory=Inner)
    maybe: Inner | None = None
    count: int = 1
    rate: float | None = 0.5
    flag: bool = False
    way: Literal["here", "there"] = "here"
    ratio: float | Literal["auto"] = "auto"
    sizes: tuple[int, ...] = (1,)
    anything: Any = None


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({"count": "a"}, r"Typed: count must be a whole number, not 'a'\. To fix: leave it at 1"),
        ({"count": 2.5}, "count must be a whole number, not 2.5"),
        ({"count": True}, "count must be a whole number, not True"),
        ({"count": None}, "count must be a whole number, not None"),
        ({"rate": "a"}, "rate must be a number or None, not 'a'"),
        ({"rate": float("nan")}, "rate must be a number or None, not nan"),
        ({"flag": 1}, "flag must be True or False, not 1"),
        ({"way": "nowhere"}, "way must be 'here' or 'there', not 'nowhere'"),
        ({"ratio": "often"}, "ratio must be a number or 'auto', not 'often'"),
        ({"sizes": 3}, r"sizes must be a sequence \(a whole number each\), not 3"),
        ({"sizes": ("a",)}, "sizes must be a sequence"),
        ({"inner": "inner"}, r"inner must be an Inner object, not 'inner'\. To fix: give Inner\(\)"),
        ({"inner": Inner}, r"not the class Inner\. To fix: give Inner\(\)"),
        ({"maybe": "inner"}, r"maybe must be an Inner object or None, not 'inner'\. To fix: give Inner\(\)"),
        ({"inner": None}, r"not None\. To fix: give one, such as Inner\(\)"),
        ({"inner": Inner(size="a")}, "Inner: size must be a whole number, not 'a'"),
        ({"maybe": Inner(size=0.5)}, "Inner: size must be a whole number, not 0.5"),
    ],
)
def test_a_parameter_of_another_type_is_told(params, message):
    with pytest.raises(ParameterError, match=message):
        require_types(Typed(**params))


def test_numpy_numbers_whole_numbers_and_lists_are_as_good():
    given = Typed(
        count=np.int64(2), rate=1, flag=np.bool_(True), ratio=np.float32(2), sizes=[1, 2], anything=Typed
    )
    require_types(given)
    with pytest.raises(ParameterError, match="rate"):
        require_types(given.set_params(rate="1"))
