"""One decorator makes a thing known; what follows from it is in the source."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import ClassVar

import pytest
from make_registered import written

import unskew as us
from unskew.base.errors import ParameterError
from unskew.base.registry import CALIBRATORS, DATASETS, LEARNERS, METHODS, REGISTRIES, register

ORDER = (
    (METHODS, "naive ips snips eib dr dr-jl mrdr gpl cdr ips-v2 dr-v2 esmm escm2-ips escm2-dr dr-bias dr-mse"
              " stable-dr tdr multi-ipw multi-dr ddpo att kb-ips kb-dr"),
    (CALIBRATORS, "none platt temperature beta spline isotonic histogram venn_abers scaling_binning ic_ipw"
                  " auto"),
    (LEARNERS, "neumf mf"),
    (DATASETS, "synthetic coat yahoo_r3 kuairand files"),
)  # fmt: skip
"""Of entries that published tables have; another may stand among them."""


@pytest.mark.parametrize(("registry", "names"), ORDER, ids=lambda each: getattr(each, "kind", ""))
def test_the_order_of_tables(registry, names):
    assert " ".join(name for name in registry if name in names.split()) == names


@pytest.mark.parametrize("registry", REGISTRIES, ids=lambda each: each.kind)
def test_an_unknown_name_is_answered_with_the_closest_and_with_all(registry):
    known = next(iter(registry))
    with pytest.raises(ParameterError) as told:
        registry[f"{known}x"]
    assert str(told.value) == (
        f"unknown {registry.kind} '{known}x'. To fix: use {known}, or one of {', '.join(registry)}."
    )
    with pytest.raises(KeyError, match=r"'@'\. To fix: use one of"):
        registry["@"]
    assert registry.get("@") is None
    assert "@" not in registry


def test_what_is_registered_is_public_and_written_in_the_source():
    for path, text in written().items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: run make pages"
    for registry in (METHODS, CALIBRATORS, LEARNERS):
        for kind in registry.built_in.values():
            assert getattr(us, kind.__name__) is kind
            assert kind.__name__ in sys.modules[registry.package].__all__


@dataclass(kw_only=True, eq=False, repr=False)
class Halved(us.Platt):
    """No better than Platt."""

    name: ClassVar[str] = "halved"


def test_an_entry_of_ones_own_comes_last_and_is_replaced_by_itself():
    register(Halved)
    again = type("Halved", (us.Platt,), {"name": "halved", "__module__": __name__})
    try:
        assert list(CALIBRATORS)[-1] == "halved"
        assert "halved" not in CALIBRATORS.built_in
        assert register(again) is again
        assert CALIBRATORS["halved"] is again
    finally:
        del CALIBRATORS["halved"]
    assert "halved" not in CALIBRATORS


def test_a_name_that_is_taken_or_cannot_be_one_is_refused():
    with pytest.raises(ParameterError, match=r"a calibrator 'beta' is there already \(Beta\).*rename yours"):
        register(type("Mine", (us.Platt,), {"name": "beta"}))
    for name in ("../x", "a b", "Mine", "", "-x"):
        with pytest.raises(ParameterError, match="cannot be the name of a calibrator"):
            register(type("Mine", (us.Platt,), {"name": name}))
    with pytest.raises(ParameterError, match="with the parameters root and protocol"):
        register(lambda folder: None)
