"""What every dataset must do. A dataset's tests inherit this class and say how to load it."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
import pytest

from unskew.data.datasets import DATASETS, Dataset

Load = Callable[..., Dataset]


class DatasetContract:
    """Override the fixture ``load``: a function of ``protocol=`` that loads the dataset.

    ``events`` is True where a row is an event of its own: a pair may then be shown, and clicked, in both.
    """

    name: str
    events = False

    @pytest.fixture
    def load(self) -> Load:
        raise NotImplementedError

    def test_it_is_in_the_table_of_datasets_by_its_name(self, load: Load):
        assert load().name == self.name
        assert self.name in DATASETS

    def test_all_logs_share_vocabularies_and_space(self, load: Load):
        data = load()
        for log in held_out(data):
            assert log.users is data.train.users
            assert log.items is data.train.items
            assert log.space == data.train.space

    def test_held_out_logs_know_every_conversion(self, load: Load):
        for log in held_out(load()):
            assert self.events or log.n_clicks == len(log)
            assert not np.isnan(log.known_conversion()).any()

    def test_no_held_out_cell_was_clicked_in_training_under_the_honest_protocol(self, load: Load):
        data = load(protocol="honest")
        for log in held_out(data):
            assert self.events or not np.isin(log.cell, data.train.cell[data.train.clicked]).any()
        assert data.facts["leaked_cells_dropped"] == data.facts["leaked_cells_found"]

    def test_the_paper_protocol_keeps_just_the_cells_that_the_honest_one_drops(self, load: Load):
        honest, paper = load(protocol="honest"), load(protocol="paper")
        assert paper.facts["leaked_cells_dropped"] == 0
        assert paper.facts["leaked_cells_found"] == honest.facts["leaked_cells_found"]
        kept = sum(len(log) for log in held_out(paper)) - sum(len(log) for log in held_out(honest))
        assert kept == honest.facts["leaked_cells_dropped"]
        np.testing.assert_array_equal(paper.train.cell, honest.train.cell)

    def test_no_cell_is_in_both_validation_and_test(self, load: Load):
        data = load(protocol="paper")
        if data.validation is not None and data.test is not None:
            assert not np.isin(data.validation.cell, data.test.cell).any()

    def test_loading_twice_gives_the_same_logs(self, load: Load):
        first, second = load(), load()
        for a, b in zip((first.train, *held_out(first)), (second.train, *held_out(second)), strict=True):
            np.testing.assert_array_equal(a.cell, b.cell)
            np.testing.assert_array_equal(a.conversion, b.conversion)

    def test_facts_are_ready_for_json_and_name_the_protocol(self, load: Load):
        for protocol in ("honest", "paper"):
            facts = dict(load(protocol=protocol).facts)
            assert json.loads(json.dumps(facts)) == facts
            assert facts["protocol"] == protocol


def held_out(data: Dataset):
    return [log for log in (data.test, data.validation) if log is not None]
