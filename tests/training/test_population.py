"""Cells of D by number, their clicks, and their partition into slots."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

import unskew as us
from unskew.data.vocabulary import Vocabulary
from unskew.training import Population, population

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
    rows = matrix.rows(cells)
    assert matrix.size == clicks.size
    assert matrix.n_clicks == matrix_log.n_clicks
    np.testing.assert_array_equal(clicks[rows.user, rows.item], matrix.click(cells))
    np.testing.assert_array_equal(clicks.ravel(), matrix.click(cells))


def test_clicks_are_found_the_same_by_table_and_by_search(matrix, matrix_log, monkeypatch):
    monkeypatch.setattr(population, "TABLE_CELLS", matrix.size - 1)
    searched = Population(matrix_log, CPU)
    cells = torch.arange(matrix.size).view(2, -1)
    assert torch.equal(searched.click(cells), matrix.click(cells))
    slots, expected = (each.slots(SEEDS, 7) for each in (searched, matrix))
    assert torch.equal(slots.of(cells[:1]), expected.of(cells[:1]))


def test_cells_of_impressions_are_its_rows(impressions, impressions_log):
    cells = torch.arange(impressions.size)
    rows = impressions.rows(cells)
    np.testing.assert_array_equal(rows.user, impressions_log.user)
    np.testing.assert_array_equal(rows.item, impressions_log.item)
    np.testing.assert_array_equal(impressions.click(cells), impressions_log.click)


@pytest.mark.parametrize("space", ["matrix", "impressions"])
@pytest.mark.parametrize("count", [2, 7, 20])
def test_slots_are_about_even_for_pairs_clicked_or_not(space, count, request):
    population = request.getfixturevalue(space)
    cells = torch.arange(population.size)
    _, first = np.unique(
        np.stack([population.rows(cells).user, population.rows(cells).item]), axis=1, return_index=True
    )
    for clicked in (0, 1):
        mine = cells[first][population.click(cells[first]) == clicked]
        for row in population.slots(SEEDS, count).of(mine[None]):
            dealt = torch.bincount(row, minlength=count)
            assert len(dealt) == count
            assert stats.chisquare(dealt).pvalue > 1e-4


@pytest.mark.parametrize("space", ["matrix", "impressions"])
@pytest.mark.parametrize("by", ["user", "item"])
def test_slots_by_user_or_item_hold_them_together(space, by, request):
    population = request.getfixturevalue(space)
    cells = torch.arange(population.size)
    slots = population.slots(SEEDS, 5, by=by).of(cells.unsqueeze(0))
    holder = population.rows(cells)[by]
    for row in slots:
        for each in holder.unique():
            assert len(row[holder == each].unique()) == 1
        assert len(row.unique()) == 5


class TestIdsAlone:
    """A pair's slot follows from its ids and the seed; nothing else of a log matters."""

    def rows(self) -> dict[str, np.ndarray]:
        random = np.random.default_rng(8)
        return {
            "user": random.integers(1000, 1060, size=500),
            "item": random.integers(20, size=500),
            "click": random.integers(2, size=500),
        }

    def slots_by_ids(self, log, by="cell"):
        """``{(user id, item id): slots}`` of a log's rows."""
        population = Population(log, CPU)
        cells = torch.as_tensor(log.cell) if log.space == "matrix" else torch.arange(len(log))
        slots = population.slots(SEEDS, 9, by).of(cells[None]).T.tolist()
        ids = zip(log.users.ids[log.user], log.items.ids[log.item], strict=True)
        found = {}
        for (user, item), slot in zip(ids, slots, strict=True):
            assert found.setdefault((str(user), str(item)), slot) == slot, "rows of a pair share a slot"
        return found

    @pytest.mark.parametrize("by", ["cell", "user", "item"])
    @pytest.mark.parametrize("space", ["matrix", "impressions"])
    def test_order_subset_vocabulary_clicks_and_type_of_ids_do_not_matter(self, space, by):
        rows = self.rows()
        options = {"space": space, "duplicates": "max"}
        expected = self.slots_by_ids(us.Log.from_arrays(**rows, **options), by)
        turned = {name: values[::-1] for name, values in rows.items()}
        half = {name: values[::2] for name, values in rows.items()}
        others = {**rows, "click": 1 - rows["click"]}
        text = {**rows, "user": rows["user"].astype(str), "item": rows["item"].astype(str)}
        larger = Vocabulary.of(np.arange(5000), name="user")
        for log in (
            us.Log.from_arrays(**turned, **options),
            us.Log.from_arrays(**half, **options),
            us.Log.from_arrays(**others, **options),
            us.Log.from_arrays(**text, **options),
            us.Log.from_arrays(**rows, users=larger, **options),
        ):
            found = self.slots_by_ids(log, by)
            assert found == {pair: expected[pair] for pair in found}
            assert len(found) > 200

    def test_all_users_and_items_of_one_id_do_not_share_a_slot(self):
        same = np.arange(400)
        log = us.Log.from_arrays(user=same, item=same, click=same % 2, space="impressions")
        slots = Population(log, CPU).slots([1], 5).of(torch.arange(400)[None])[0]
        assert stats.chisquare(torch.bincount(slots, minlength=5)).pvalue > 1e-4


def test_clicks_of_a_large_matrix_are_found_though_cells_share_places(matrix, matrix_log, monkeypatch):
    """A table tells most cells without a click; with far fewer places than cells it tells hardly any."""
    monkeypatch.setattr(population, "TABLE_CELLS", 32)
    large = Population(matrix_log, CPU)
    cells = torch.arange(matrix.size)
    assert torch.equal(large.click(cells), matrix.click(cells))
    assert torch.equal(large.click(cells.view(-1, 1)), matrix.click(cells.view(-1, 1)))
