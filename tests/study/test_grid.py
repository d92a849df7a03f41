"""Grids: what a TOML file may say, and the one line that a mistake is answered with."""

from __future__ import annotations

import pytest

from unskew.base.errors import ParameterError
from unskew.study.grid import read_grid
from unskew.study.named import NAMED, named_grid
from unskew.study.tuning import SUPPLEMENT, combinations

CONTRACT = """
name = "coat-small"
protocol = "honest"
seeds = [0, 1, 2]
datasets = [{ name = "coat", root = "somewhere" }]
propensities = [
  { key = "neumf", learner = "neumf" },
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
    assert grid.propensities[1].make(grid.protocol_for("coat"), grid.learner).uncertainty.name == "mc-dropout"
    assert [each.is_trained for each in grid.propensities] == [True, True, False]
    mrdr = grid.methods[2].make(grid.protocol_for("coat"), grid.learner, 0.1)
    assert mrdr.p_min == 0.05
    assert read_grid(path, seeds=4).seed_list == (0, 1, 2, 3)


def test_without_a_clip_of_the_grid_each_method_keeps_its_own():
    own, told = read_grid(SMALL), read_grid({**SMALL, "p_min": 0.2})
    made = [g.methods[1].make(g.protocol_for("synthetic"), g.learner, 0.1).p_min for g in (own, told)]
    assert made == ["auto", 0.2]


@pytest.mark.parametrize(
    ("change", "line"),
    [
        ({"sedes": 3}, "sedes: no such key. To fix: use one of name, protocol, seeds"),
        ({"datasets": [{"root": "x"}]}, r"datasets\[0\]\.name: the key is missing. To fix: add it"),
        (
            {"datasets": ["cot"]},
            r"datasets\[0\]: unknown dataset 'cot'. To fix: use coat, or one of synthetic, coat",
        ),
        ({"seeds": 0}, "seeds must be from 1 to 10,000"),
        ({"seeds": [1, 1]}, "distinct"),
        ({"protocol": "mine"}, "protocol: Input should be 'honest' or 'paper'"),
        ({"calibrators": ["plat"]}, r"calibrators\[0\]: unknown calibrator 'plat'"),
        ({"methods": ["ipss"]}, r"methods\[0\]: unknown method 'ipss'"),
        (
            {"methods": [{"method": "ips", "params": {"pmin": 0.1}}]},
            r"methods\[0\]: IPS has no parameter 'pmin'",
        ),
        ({"methods": [{"method": "ips", "propensity": False}]}, "ips cannot do without propensities"),
        ({"methods": ["ips", "ips"]}, "methods has 'ips' twice. To fix: give one of them a key"),
        ({"propensities": []}, "a method needs propensities, and the grid has none"),
        ({"propensities": [{"key": "x", "uncertainty": "guess"}]}, "unknown uncertainty 'guess'"),
        ({"learner": "bert"}, "unknown learner 'bert'"),
        ({"learner": {"name": "mf", "params": {"depth": 2}}}, "mf: .*depth"),
        ({"crossfit": "many"}, "crossfit: Input should be a valid integer"),
        ({"name": ".."}, r"name: '\.\.' cannot be a study's name"),
        ({"name": "x" * 300}, "use up to 100 letters"),
        ({"seeds": True}, "seeds: True is no count and no list of seeds. To fix: give seeds = 10"),
        ({"propensities": [{"key": "p", "uncertainty_params": {"members": 3}}]}, "are of no uncertainty"),
        ({"metrics": ["zzz"]}, "no metric is called 'zzz'. To fix: use one of auc, user_auc, mean_over_rate"),
        (
            {"baseline": "zzz"},
            r"no method of this grid \(the baseline\) is called 'zzz'. To fix: use one of naive",
        ),
        ({"propensities": [{"key": ""}]}, r"propensities\[0\]\.key: String should have at least 1 char"),
        (
            {"datasets": [{"name": "synthetic", "options": {"protocol": "paper"}}]},
            r"datasets\[0\]: protocol is set elsewhere in a grid. To fix: write protocol",
        ),
        (
            {"learner": {"name": "mf", "params": {"dim": "a"}}},
            "learner: MF: dim must be a whole number, not 'a'",
        ),
        ({"calibrators": [{"name": "histogram", "params": {"bins": 0}}]}, r"calibrators\[0\]: bins must be"),
        ({"propensities": [{"key": "p", "params": {"calibrator": "platt"}}]}, "write calibrators ="),
        (
            {"methods": [{"method": "ips", "params": {"learner": "mf"}}]},
            "write it beside params, by its name",
        ),
        ({"tune": {"values": {"p_min": []}}}, r"tune\.values\.p_min: List should have at least 1 item"),
        (
            {"tune": {"values": {"validation_share": [0.1, 0.2]}}},
            "validation_share cannot be tuned: trials would be judged on different clicks",
        ),
        (
            {"methods": [{"method": "naive", "propensity": ["p platt"]}]},
            "no propensity of this grid is called 'p platt'",
        ),
        ({"reverse": ["no_clip"]}, "only the paper protocol has switches to reverse. To fix: write protocol"),
        ({"protocol": "paper", "reverse": ["x"]}, "the paper protocol has no switch 'x'"),
        ({"propensities": [{"key": "p", "calibrators": ["x"]}]}, r"propensities\[0\]\.calibrators\[0\]"),
        ({"tune": {"values": {"learner__dim": [4, "a"]}}}, "NeuMF: dim must be a whole number, not 'a'"),
        ({"p_min": 2.0}, "p_min must be 'auto' or a number in"),
    ],
)
def test_a_mistake_is_one_line_that_names_its_key(change, line):
    with pytest.raises(ParameterError, match=line) as caught:
        read_grid({**SMALL, **change})
    assert "\n" not in str(caught.value)


def test_a_baseline_need_not_be_there_unless_it_is_named():
    assert read_grid({**SMALL, "methods": ["ips"]}).baseline == "naive"
    assert read_grid({**SMALL, "baseline": "ips"}).baseline == "ips"


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


@pytest.mark.parametrize("name", NAMED)
def test_every_named_grid_is_valid(name):
    grid = named_grid(name, "synthetic", None, seeds=2)
    assert grid.seed_list == (0, 1)
    assert NAMED[name]


def test_the_supplements_grid_has_720_combinations_and_draws_do_not_repeat():
    assert len(combinations(SUPPLEMENT, None, 0)) == 5 * 4 * 6 * 6
    drawn = combinations(SUPPLEMENT, 50, 3)
    assert len({tuple(each.items()) for each in drawn}) == 50
    assert drawn == combinations(SUPPLEMENT, 50, 3) != combinations(SUPPLEMENT, 50, 4)


def test_the_paper_protocol_reaches_propensities_and_methods():
    grid = read_grid({**SMALL, "protocol": "paper"})
    propensity = grid.propensities[0].make(grid.protocol_for("coat"), grid.learner)
    assert propensity.population == "sampled"
    assert propensity.patience is None
    ips = grid.methods[1].make(grid.protocol_for("coat"), grid.learner, 0.1)
    assert ips.patience is None
    assert ips.p_min < 1e-6
