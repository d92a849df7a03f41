"""The paper's numbers as package data: what is there, how it is named, and how far a value is from it."""

from __future__ import annotations

from collections import Counter

import pytest

from unskew.base.errors import ParameterError
from unskew.data.datasets import DATASETS
from unskew.study.presets import PAPER_NAMES, PRESETS, SOURCES
from unskew.study.published import TABLES, published, published_row


def test_every_table_is_there_and_every_place_is_printed_once():
    assert {row.table for row in published()} == set(TABLES)
    places = Counter((r.table, r.dataset, r.debiaser, r.calibrator, r.metric) for r in published())
    assert max(places.values()) == 1


def test_names_are_those_of_the_library_and_of_the_presets():
    rows = published()
    assert {row.dataset for row in rows} <= set(DATASETS)
    assert {row.debiaser for row in rows if row.debiaser} == set(PAPER_NAMES.values())
    assert {row.calibrator for row in rows} <= {*SOURCES, "none"}
    assert {preset.published for preset in PRESETS.values() if preset.published} == set(TABLES)


def test_some_numbers_of_the_paper():
    raw = published_row("ece", "coat", "", "raw", "ece@100")
    assert raw is not None
    assert (raw.mean, raw.std, raw.significant) == (0.1458, None, None)
    platt = published_row("dr", "coat", "mrdr", "platt", "hits@6")
    assert platt is not None
    assert (platt.mean, platt.std, platt.significant) == (1.9957, 0.0395, True)
    assert published_row("ece", "coat", "", "dual_focal", "ece@100") is None


def test_the_table_of_later_methods_repeats_calibrated_mrdr():
    for row in published():
        if (row.table, row.debiaser, row.dataset) == ("sota", "mrdr", "coat"):
            again = published_row("dr", "coat", "mrdr", "platt", row.metric)
            assert again is not None
            assert again.mean == row.mean


def test_deviation_is_in_printed_standard_deviations():
    base = published_row("overall_ips", "coat", "naive", "none", "dcg@2")
    assert base is not None
    assert base.deviation(base.mean - 2 * base.std) == pytest.approx(-2)
    raw = published_row("ece", "coat", "", "raw", "ece@100")
    assert raw is not None
    assert raw.deviation(0.2) is None


def test_a_table_that_the_paper_does_not_have_is_told():
    with pytest.raises(ParameterError, match=r"no table 'ips'\. To fix: use one of ece"):
        published_row("ips", "coat", "ips", "raw", "auc")
