"""Cells of D by number, their clicks, and their partition into slots."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unskew.training import Population, Slots, population

CPU = torch.device("cpu")
SEEDS = (2, 5, 2**62)


@pytest.fixture
def matrix(matrix_log) -> Population:
    return Population(matrix_log, CPU)


@pytest.fixture
def impressions(impressions_log) -> Population:
    return Population(impressions_log, CPU)


def test_cells_of_a_matrix_are_its_pairs_and_know_their_clicks(matrix, matrix_log):
    clicks = np.zeros((matrix_log.n_users, matrix_log.n_items))
    clicks[matrix_log.user, matrix_log.item] = matrix_log.click
    cells = torch.arange(matrix.size)
    user, item = matrix.pairs(cells)
    assert matrix.size == clicks.size
    assert matrix.n_clicks == matrix_log.n_clicks
    np.testing.assert_array_equal(clicks[user, item], matrix.click(cells))
    np.testing.assert_array_equal(clicks.ravel(), matrix.click(cells))


def test_clicks_are_found_the_same_by_table_and_by_search(matrix, matrix_log, monkeypatch):
    monkeypatch.setattr(population, "TABLE_CELLS", matrix.size - 1)
    searched = Population(matrix_log, CPU)
    cells = torch.arange(matrix.size).view(2, -1)
    assert torch.equal(searched.click(cells), matrix.click(cells))
    slots, expected = (Slots(each, SEEDS, 7) for each in (searched, matrix))
    assert torch.equal(slots.of(cells[:1]), expected.of(cells[:1]))


def test_cells_of_impressions_are_its_rows(impressions, impressions_log):
    cells = torch.arange(impressions.size)
    user, item = impressions.pairs(cells)
    np.testing.assert_array_equal(user, impressions_log.user)
    np.testing.assert_array_equal(item, impressions_log.item)
    np.testing.assert_array_equal(impressions.click(cells), impressions_log.click)


def test_a_population_from_its_clicked_cells_is_the_same(matrix, matrix_log):
    again = Population.of_cells(matrix.observed, matrix_log.n_users, matrix_log.n_items)
    cells = torch.arange(matrix.size)
    assert again.size == matrix.size
    assert torch.equal(again.click(cells), matrix.click(cells))
    assert torch.equal(again.pairs(cells)[1], matrix.pairs(cells)[1])


@pytest.mark.parametrize("space", ["matrix", "impressions"])
@pytest.mark.parametrize("count", [1, 7, 10, 20])
def test_slots_deal_clicked_cells_out_evenly(space, count, request):
    population = request.getfixturevalue(space)
    slots = Slots(population, SEEDS, count).of(population.observed.unsqueeze(0))
    assert slots.shape == (len(SEEDS), population.n_clicks)
    for row in slots:
        dealt = torch.bincount(row, minlength=count)
        assert len(dealt) == count
        assert dealt.max() - dealt.min() <= 1


def test_slots_of_unclicked_cells_are_about_even(matrix):
    slots = Slots(matrix, SEEDS, 4).of(torch.arange(matrix.size).unsqueeze(0))
    for row in slots:
        dealt = torch.bincount(row[matrix.click(torch.arange(matrix.size)) == 0], minlength=4)
        expected = (matrix.size - matrix.n_clicks) / 4
        assert float((dealt - expected).abs().max()) < 4 * (expected * 0.75) ** 0.5


@pytest.mark.parametrize("space", ["matrix", "impressions"])
@pytest.mark.parametrize("by", ["user", "item"])
def test_slots_by_user_or_item_hold_them_together(space, by, request):
    population = request.getfixturevalue(space)
    cells = torch.arange(population.size)
    slots = Slots(population, SEEDS, 5, by=by).of(cells.unsqueeze(0))
    holder = population.pairs(cells)[0 if by == "user" else 1]
    for row in slots:
        for each in holder.unique():
            assert len(row[holder == each].unique()) == 1
        assert len(row.unique()) == 5


@pytest.mark.parametrize("by", ["cell", "user", "item"])
def test_the_slots_of_a_replica_depend_on_its_own_seed_alone(matrix, by):
    cells = torch.arange(matrix.size).unsqueeze(0)
    stacked = Slots(matrix, SEEDS, 6, by=by).of(cells)
    for position, seed in enumerate(SEEDS):
        assert torch.equal(Slots(matrix, [seed], 6, by=by).of(cells)[0], stacked[position])
    assert len(stacked.unique(dim=0)) == len(SEEDS)


def test_slots_are_the_same_in_any_chunks_and_for_cells_of_each_replica(matrix):
    slots = Slots(matrix, SEEDS, 6)
    cells = torch.arange(matrix.size)
    whole = slots.of(cells.unsqueeze(0))
    parts = torch.cat([slots.of(part.unsqueeze(0)) for part in cells.split(131)], dim=1)
    assert torch.equal(whole, parts)
    own_order = torch.stack([cells.roll(k) for k in range(len(SEEDS))])
    rolled = torch.stack([row.roll(k) for k, row in enumerate(whole)])
    assert torch.equal(slots.of(own_order), rolled)
