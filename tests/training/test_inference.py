"""Scores in chunks, and the cells that replicas hold out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from unskew.data import Log, Rows, Schema
from unskew.data.vocabulary import Vocabulary
from unskew.learners import NeuMF
from unskew.training import Population, inference
from unskew.training.inference import held_out_cells, logits

CPU = torch.device("cpu")
SEEDS = (2, 5)


@pytest.fixture(params=["matrix", "impressions"])
def population(request) -> Population:
    return Population(request.getfixturevalue(f"{request.param}_log"), CPU)


class TestLogits:
    network = NeuMF(dim=8, layers=(8,), init_std=0.5).build(Schema.of_ids(40, 30), (1, 2, 3))
    rows = Rows(user=torch.arange(40).repeat(5)[None], item=(torch.arange(200) % 30)[None])

    @pytest.mark.parametrize("budget", [1, 3, 100, 599, 600, 1 << 20])
    def test_the_budget_changes_nothing_but_memory(self, budget):
        whole = logits(self.network, self.rows)
        assert whole.shape == (3, 200)
        chunked = logits(self.network, self.rows, budget=budget)
        torch.testing.assert_close(chunked, whole, rtol=0, atol=1e-6)

    def test_dropout_is_off_and_the_network_is_put_back_to_training(self):
        self.network.train()
        first = logits(self.network, self.rows)
        assert torch.equal(logits(self.network, self.rows), first)
        assert self.network.training
        assert not first.requires_grad


class TestHeldOutCells:
    admitted = torch.tensor([[True, False, True, False], [False, True, False, False]])

    def expected(self, population, slots):
        of_cells = slots.of(torch.arange(population.size).unsqueeze(0))
        return [torch.nonzero(keep)[:, 0] for keep in self.admitted.gather(1, of_cells)]

    @pytest.mark.parametrize("block", [100, 1 << 20])
    def test_all_admitted_cells_with_weight_one_where_they_are_few(self, population, block, monkeypatch):
        monkeypatch.setattr(inference, "BLOCK", block)
        slots = population.slots(SEEDS, 4)
        cells, weight = held_out_cells(population, slots, self.admitted, most=10**6)
        for row, of_row, expected in zip(cells, weight, self.expected(population, slots), strict=True):
            assert torch.equal(row[of_row > 0], expected)
            assert set(of_row.tolist()) <= {0.0, 1.0}
            assert (of_row[len(expected) :] == 0).all()

    def test_thinning_keeps_every_click_and_about_as_many_cells_as_asked(self, population):
        slots = population.slots(SEEDS, 4)
        cells, weight = held_out_cells(population, slots, self.admitted, most=80)
        for row, of_row, expected in zip(cells, weight, self.expected(population, slots), strict=True):
            kept, of_kept = row[of_row > 0], of_row[of_row > 0]
            assert torch.isin(kept, expected).all()
            clicked = population.click(kept) == 1
            assert torch.equal(kept[clicked], expected[population.click(expected) == 1])
            assert (of_kept[clicked] == 1).all()
            assert len(of_kept[~clicked].unique()) == 1
            assert (~clicked).sum() < len(expected) / 3

    def test_weighted_sums_of_thinned_cells_estimate_those_over_all(self):
        cells = np.arange(0, 90_000, 11)
        population = Population(Log.from_arrays(user=cells // 300, item=cells % 300), torch.device("cpu"))
        slots = population.slots(SEEDS, 4)
        cells, weight = held_out_cells(population, slots, self.admitted, most=4000)
        thinning = float(weight.max())
        assert thinning > 5
        for row, of_row, expected in zip(cells, weight, self.expected(population, slots), strict=True):
            for f in (torch.ones_like, lambda c: c.double() / 9e4, lambda c: torch.sin(c / 500.0) + 1.2):
                values = f(expected).double()
                estimate = float((f(row) * of_row).sum())
                unclicked = population.click(expected) == 0
                standard_error = float((values[unclicked] ** 2).sum() * (thinning - 1)) ** 0.5
                assert abs(estimate - float(values.sum())) < 3 * standard_error
                assert standard_error < 0.05 * float(values.sum())

    def test_a_matrix_of_a_billion_pairs_is_not_gone_through(self):
        cells = np.arange(0, 10**9, 10**6)
        log = Log(
            user=(cells // 10**4).astype(np.int32),
            item=(cells % 10**4).astype(np.int32),
            click=np.ones(len(cells), dtype=np.uint8),
            conversion=None,
            users=Vocabulary.range(10**5, name="user"),
            items=Vocabulary.range(10**4, name="item"),
        )
        population = Population(log, torch.device("cpu"))
        found, weight = held_out_cells(population, population.slots(SEEDS, 4), self.admitted, most=10**5)
        for row, of_row in zip(found, weight, strict=True):
            assert len(row[of_row > 0].unique()) == (of_row > 0).sum() < 2 * 10**5
        assert weight.sum(1).tolist() == pytest.approx([0.5e9, 0.25e9], rel=0.02)
