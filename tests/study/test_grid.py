"""Grids: what a TOML file may say, and the one line that a mistake is answered with."""

from __future__ import annotations

import pytest

from unskew.errors import ParameterError
from unskew.study.grid import read_grid
from unskew.study.named import NAMED, grids, named_grid
from unskew.study.tuning import SUPPLEMENT, combinations

CONTRACT = """
name = "coat-small"
protocol = "honest"
seeds = [0, 1, 2]
datasets = [{ name = "coat", root = "somewhere" }]
propensities = [
  { key = "neumf", backbone = "neumf" },
  { key = "mc-dropout", uncertainty = "mc-dropout" },
  { key = "constant" },
]
calibrators = ["none", "platt", "isotonic"]
methods = ["naive", "ips", { key = "mrdr", method = "mrdr", params = { p_min = 0.05 } }]
"""

SMALL = {
    "name": "small",
    "seeds": 2,
    "datasets": ["synthetic"],
    "propensities": ["neumf"],
    "methods": ["naive", "ips"],
}


def test_a_file_says_everything_in_short_or_in_full(tmp_path):
    path = tmp_path / "grid.toml"
    path.write_text(CONTRACT, encoding="utf-8")
    grid = read_grid(path)
    assert grid.seed_list == (0, 1, 2)
    assert [each.label for each in grid.calibrators] == ["none", "platt", "isotonic"]
    assert grid.propensities[1].make(grid.settings, grid.backbone).uncertainty.name == "mc-dropout"
    assert [each.is_trained for each in grid.propensities] == [True, True, False]
    mrdr = grid.methods[2].make(grid.settings, grid.backbone, grid.p_min, 0.1)
    assert mrdr.p_min == 0.05
    assert read_grid(path, seeds=4).seed_list == (0, 1, 2, 3)


def test_without_a_clip_of_the_grid_each_method_keeps_its_own():
    own, told = read_grid(SMALL), read_grid({**SMALL, "p_min": 0.2})
    made = [g.methods[1].make(g.settings, g.backbone, g.p_min, 0.1).p_min for g in (own, told)]
    assert made == [0.01, 0.2]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"sedes": 3}, "sedes: no such key. To fix: use one of name, protocol, seeds"),
        ({"datasets": [{"name": "coat", "rot": "x"}]}, r"datasets\[0\]\.rot: no such key.*options"),
        ({"datasets": ["cot"]}, r"datasets\[0\]: no dataset is called 'cot'; use one of synthetic, coat"),
        ({"datasets": []}, "datasets: List should have at least 1 item"),
        ({"seeds": 0}, "seeds must be a positive count"),
        ({"seeds": [1, 1]}, "distinct"),
        ({"protocol": "mine"}, "protocol: Input should be 'honest' or 'paper'"),
        ({"calibrators": ["plat"]}, r"calibrators\[0\]: there is no calibrator 'plat'"),
        ({"methods": ["ipss"]}, r"methods\[0\]: no method is called 'ipss'"),
        (
            {"methods": [{"method": "ips", "params": {"pmin": 0.1}}]},
            r"methods\[0\]: IPS has no parameter 'pmin'",
        ),
        ({"methods": [{"method": "ips", "propensity": False}]}, "ips cannot do without propensities"),
        ({"methods": ["ips", "ips"]}, "methods has 'ips' twice; give one of them a key"),
        ({"propensities": []}, "a method needs propensities, and the grid has none"),
        ({"propensities": [{"key": "x", "uncertainty": "guess"}]}, "unknown uncertainty 'guess'"),
        ({"propensities": [{"key": "x", "params": {"epoch": 1}}]}, "Propensity has no parameter 'epoch'"),
        ({"backbone": "bert"}, "unknown backbone 'bert'"),
        ({"backbone": {"name": "mf", "params": {"depth": 2}}}, "mf: .*depth"),
        ({"crossfit": "many"}, "crossfit: Input should be a valid integer"),
        ({"p_min": 2.0}, "p_min: Input should be less than 1"),
        (
            {"tune": {"values": {"batch_size": [1]}, "methods": ["mrdr"]}},
            "no method of this grid is called 'mrdr'",
        ),
    ],
)
def test_a_mistake_is_one_line_that_names_its_key(change, line):
    with pytest.raises(ParameterError, match=line) as caught:
        read_grid({**SMALL, **change})
    assert "\n" not in str(caught.value)


def test_a_file_that_is_missing_or_not_toml_is_named(tmp_path):
    with pytest.raises(ParameterError, match=r"nothing\.toml: there is no such file"):
        read_grid(tmp_path / "nothing.toml")
    (tmp_path / "bad.toml").write_text("name = ", encoding="utf-8")
    with pytest.raises(ParameterError, match=r"bad\.toml: is not TOML"):
        read_grid(tmp_path / "bad.toml")


@pytest.mark.parametrize(
    ("entry", "takes"),
    [
        ("naive", False),
        ("ips", True),
        ("esmm", False),
        ("gpl", False),
        ("escm2-ips", True),
        ({"method": "escm2-ips", "propensity": False}, False),
        ({"method": "escm2-ips", "params": {"calibration": "in-loop"}}, False),
    ],
)
def test_a_method_is_given_propensities_where_it_can_use_them(entry, takes):
    assert read_grid({**SMALL, "methods": [entry]}).methods[0].takes_propensity is takes


@pytest.mark.parametrize("name", grids())
def test_every_named_grid_is_valid(name):
    grid = named_grid(name, "synthetic", None, seeds=2)
    assert grid.seed_list == (0, 1)
    assert NAMED[name].about


def test_the_study_of_methods_leaves_none_out():
    from unskew.debias import METHODS

    assert [each.label for each in named_grid("methods", "synthetic", None).methods] == list(METHODS)


def test_the_supplements_grid_has_720_combinations_and_draws_do_not_repeat():
    assert len(combinations(SUPPLEMENT, None, 0)) == 5 * 4 * 6 * 6
    drawn = combinations(SUPPLEMENT, 50, 3)
    assert len({tuple(each.items()) for each in drawn}) == 50
    assert drawn == combinations(SUPPLEMENT, 50, 3) != combinations(SUPPLEMENT, 50, 4)


def test_the_paper_protocol_reaches_propensities_and_methods():
    grid = read_grid({**SMALL, "protocol": "paper"})
    propensity = grid.propensities[0].make(grid.settings, grid.backbone)
    assert propensity.population == "sampled"
    assert propensity.patience is None
    ips = grid.methods[1].make(grid.settings, grid.backbone, grid.p_min, 0.1)
    assert ips.patience is None
    assert ips.p_min < 1e-6
