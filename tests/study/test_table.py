"""The long table: written and read back, summed up against NumPy and SciPy, rendered in three ways."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from unskew.base.errors import RunFolderError
from unskew.metrics.significance import holm
from unskew.report.table import Table
from unskew.study.grid import Row
from unskew.study.page import write_pages
from unskew.study.table import long_table, read_table, summary, write_tables

SEEDS = 6


RESAMPLES = np.random.default_rng(7).normal(0, 1, (2, 400))
"""Of test users: what all methods share, and what sets one apart."""


def users_of(method, mean, apart, *, calibrator="", propensity="", metric="auc"):
    """A mean over seeds that moves with the test users, by ``apart`` otherwise than the other methods' do."""
    row = rows_of(method, [0.0], calibrator=calibrator, propensity=propensity, metric=metric, part="users")[0]
    return {**row, "seed": None, "value": None, "users": mean + 0.05 * RESAMPLES[0] + apart * RESAMPLES[1]}


def rows_of(method, values, *, calibrator="", propensity="", metric="auc", part="method"):
    return [
        {
            "dataset": "d",
            "protocol": "honest",
            "propensity": propensity,
            "calibrator": calibrator,
            "method": method,
            "seed": seed,
            "metric": metric,
            "value": float(value),
            "part": part,
        }
        for seed, value in enumerate(values)
    ]


@pytest.fixture(scope="module")
def drawn():
    rng = np.random.default_rng(0)
    base = rng.normal(0.7, 0.01, SEEDS)
    noise = np.array([0.01, -0.01, 0.02, -0.02, 0.005, -0.004])
    return {"naive": base, "ips": base + 0.02 + noise / 10, "dr": base + noise}


@pytest.fixture(scope="module")
def table(drawn):
    rows = [*rows_of("naive", drawn["naive"]), users_of("naive", drawn["naive"].mean(), 0.0)]
    for name in ("ips", "dr"):
        rows += rows_of(name, drawn[name], propensity="p", calibrator="platt")
        rows.append(users_of(name, drawn[name].mean(), 0.002, propensity="p", calibrator="platt"))
    rows += rows_of("ips", [3.0], metric="train_seconds", part="timing")
    rows[-1]["seed"] = None
    return long_table(rows)


def test_the_table_is_read_back(table, tmp_path):
    write_tables(tmp_path, table)
    back = read_table(tmp_path)
    assert back.equals(table)
    assert summary(back, against={"method": "naive"}) == summary(table, against={"method": "naive"})
    text = (tmp_path / "table.csv").read_text(encoding="utf-8")
    assert "train_seconds" not in text
    assert "users" not in text
    with pytest.raises(RunFolderError, match="holds no study"):
        read_table(tmp_path / "elsewhere")


def test_means_deviations_and_tests_are_scipys_with_holm_over_the_family(table, drawn):
    made = summary(table, against={"method": "naive"})
    ips, dr = (made.rows[Row("d", "honest", "p", "platt", name)]["auc"] for name in ("ips", "dr"))
    raw = [stats.ttest_rel(drawn[name], drawn["naive"]).pvalue for name in ("ips", "dr")]
    assert (ips.mean, ips.std) == pytest.approx((drawn["ips"].mean(), drawn["ips"].std(ddof=1)))
    assert (ips.p_value, dr.p_value) == pytest.approx(raw)
    assert (ips.p_holm, dr.p_holm) == pytest.approx(holm(raw))
    assert (ips.is_significant, dr.is_significant) == (True, False)
    baseline = made.rows[Row("d", "honest", "", "", "naive")]["auc"]
    assert baseline.p_holm is None
    assert not baseline.is_significant


def test_a_star_needs_the_seeds_and_the_test_users(drawn):
    """Ten seeds on one test set agree on much that the next users would undo."""
    rows = [*rows_of("naive", drawn["naive"]), users_of("naive", drawn["naive"].mean(), 0.0)]
    stars = {}
    for apart in (0.002, 0.02, None):
        further = [] if apart is None else [users_of("ips", drawn["ips"].mean(), apart)]
        made = summary(long_table(rows + rows_of("ips", drawn["ips"]) + further), against={"method": "naive"})
        figure = made.rows[Row("d", "honest", "", "", "ips")]["auc"]
        assert figure.p_holm < 0.001
        stars[apart] = figure.is_significant
        if apart is not None:
            margin = 1.959964 * apart * RESAMPLES[1].std(ddof=1)
            ends = (figure.users_difference["low"], figure.users_difference["high"])
            assert ends == pytest.approx((figure.difference - margin, figure.difference + margin))
            assert figure.users["high"] - figure.users["low"] > 0.15, "what all share cancels in differences"
        assert "and 95 % interval of the difference over test users" in made.caption
    assert stars == {0.002: True, 0.02: False, None: False}


def test_propensities_are_judged_by_their_seeds_alone(drawn):
    rows = rows_of("", drawn["naive"], propensity="p", calibrator="none", part="propensity")
    rows += rows_of("", drawn["ips"], propensity="p", calibrator="platt", part="propensity")
    made = summary(long_table(rows), kind="propensity", against={"calibrator": "none"})
    assert made.rows[Row("d", "honest", "p", "platt", "")]["auc"].is_significant
    assert "test users" not in made.caption


def test_diverged_seeds_are_left_out_of_means_and_pairs(drawn):
    broken = drawn["ips"].copy()
    broken[2] = np.nan
    made = summary(
        long_table(rows_of("naive", drawn["naive"]) + rows_of("ips", broken)), against={"method": "naive"}
    )
    figure = made.rows[Row("d", "honest", "", "", "ips")]["auc"]
    kept = np.arange(SEEDS) != 2
    assert figure.seeds == SEEDS - 1
    assert figure.mean == pytest.approx(broken[kept].mean())
    assert figure.p_value == pytest.approx(stats.ttest_rel(broken[kept], drawn["naive"][kept]).pvalue)


def test_all_renderings_have_the_same_cells(table, drawn):
    shown = summary(table, against={"method": "naive"}, title="A & B").shown()
    mean, std = drawn["ips"].mean(), drawn["ips"].std(ddof=1)
    margin = 1.959964 * (0.05 * RESAMPLES[0] + 0.002 * RESAMPLES[1]).std(ddof=1)
    users = f"[{mean - margin:.3f}, {mean + margin:.3f}]"
    assert f"| p | platt | ips | {mean:.4f} ± {std:.4f} {users}* |" in shown.markdown()
    assert f'{mean:.4f}<span class="mark">*</span> <small>± {std:.4f} {users}</small></td>' in shown.html()
    assert "A &amp; B" in shown.html()
    cells = [[str(cell) for cell in column.cells] for column in shown.rich().columns]
    assert f"{mean:.4f}*\n± {std:.4f} {users}" in cells[-1]


def test_a_row_whose_network_collapsed_is_marked_in_all_renderings_with_a_footnote(drawn, tmp_path):
    rows = [*rows_of("naive", drawn["naive"]), *rows_of("dr-jl", drawn["dr"])]
    rows += rows_of("dr-jl", [1, 0, 1, 0, 0, float("nan")], metric="collapsed:imputation:no gain")
    made = summary(long_table(rows), against={"method": "naive"}, title="Models")
    shown = made.shown()
    footnote = "⚠ a network learned nothing: dr-jl (imputation, 2 of 6 seeds)"
    assert shown.columns == ("method", "auc")
    assert [row[0] for row in shown.rows] == ["naive", "dr-jl ⚠"]
    assert shown.caption.endswith(footnote)
    assert [str(cell) for cell in shown.rich().columns[0].cells] == ["naive", "dr-jl ⚠"]
    assert str(shown.rich().caption).endswith(footnote)
    write_pages(tmp_path, "t", [made.shown()], ())
    for name, cell in (("tables.md", "| dr-jl ⚠ |"), ("tables.html", ">dr-jl ⚠</th>")):
        text = (tmp_path / name).read_text(encoding="utf-8")
        assert cell in text
        assert footnote in text
        assert "naive ⚠" not in text
    marked = {line["method"]: line["collapsed"] for line in made.to_dict()}
    assert marked["naive"] == []
    assert marked["dr-jl"] == [{"network": "imputation", "reason": "no gain", "seeds": 2, "of": 6}]


def test_a_wide_table_is_cut_into_parts_that_fit_and_lose_nothing():
    wide = Table("t", ("name", *"abcdef"), (("row", *["0.1234"] * 6),))
    parts = wide.fitting(30)
    assert len(parts) > 1
    assert [name for part in parts for name in part.columns[1:]] == list("abcdef")
    assert all(part.columns[0] == "name" for part in parts)
    assert [part.columns for part in wide.fitting(200)] == [wide.columns]
