"""Epochs over O and over D: what must come comes once, what is held out never, and D is never a table."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import stats

from unskew.data import Log
from unskew.data.vocabulary import Vocabulary
from unskew.training import (
    ClicksAndNegatives,
    EveryCell,
    ObservedAndFull,
    PartsOfEpochs,
    Population,
    ShuffledRows,
    Slots,
    samplers,
)

CPU = torch.device("cpu")
SEEDS = (2, 5, 11)


@pytest.fixture(params=["matrix", "impressions"])
def population(request) -> Population:
    return Population(request.getfixturevalue(f"{request.param}_log"), CPU)


@pytest.fixture
def held_out(population) -> tuple[Slots, torch.Tensor]:
    """Ten slots; replica k does not train on slots k and k + 1."""
    admitted = torch.ones(len(SEEDS), 10, dtype=torch.bool)
    for replica in range(len(SEEDS)):
        admitted[replica, replica : replica + 2] = False
    return population.slots(SEEDS, 10), admitted


def cells_of(sampler, epoch: int = 0) -> torch.Tensor:
    return torch.cat([block.cells.flatten(1) for block in sampler.epoch(epoch)], dim=1)


def admitted_cells(population, held_out, replica):
    slots, admitted = held_out
    cells = torch.arange(population.size)
    return cells[admitted[replica][slots.of(cells.unsqueeze(0))[replica]]]


@pytest.mark.parametrize("batch_size", [1, 97])
def test_shuffled_rows_visits_each_row_of_a_replica_once_an_epoch(batch_size):
    rows = torch.stack([torch.arange(100) + 1000 * replica for replica in range(3)])
    sampler = ShuffledRows(rows, SEEDS, batch_size)
    (block,) = sampler.epoch(0)
    assert block.observed.shape[1] == sampler.steps
    for replica, visited in enumerate(block.observed.flatten(1)):
        assert torch.equal(visited[:100].sort().values, rows[replica])
        assert torch.equal(visited[100:], visited[: len(visited) - 100])
        assert len(visited) - 100 < sampler.steps


def test_shuffled_rows_has_an_order_for_each_epoch_and_replica():
    rows = torch.arange(100).expand(3, -1)
    orders = [next(iter(ShuffledRows(rows, SEEDS, 100).epoch(e))).observed[:, 0] for e in range(4)]
    assert len(torch.cat(orders).unique(dim=0)) == 12
    again = next(iter(ShuffledRows(rows[:1], SEEDS[1:2], 100).epoch(2))).observed[:, 0]
    assert torch.equal(again[0], orders[2][1])


@pytest.mark.parametrize("block", [64, 1000, 1 << 20])
def test_every_cell_visits_all_of_the_population_once_an_epoch(population, block, monkeypatch):
    monkeypatch.setattr(samplers, "BLOCK", block)
    sampler = EveryCell(population, SEEDS, batch_size=50)
    for visited in cells_of(sampler):
        assert torch.equal(visited[: population.size].sort().values, torch.arange(population.size))
        assert len(visited) - population.size < sampler.steps


def test_every_cell_visits_admitted_cells_alone_and_each_once(population, held_out, monkeypatch):
    monkeypatch.setattr(samplers, "BLOCK", 64)
    slots, admitted = held_out
    sampler = EveryCell(population, SEEDS, 50, slots, admitted)
    for replica, visited in enumerate(cells_of(sampler)):
        expected = admitted_cells(population, held_out, replica)
        # Slots are hashed, so a replica has about, not exactly, its share of D: an epoch is that share.
        assert abs(len(visited) - len(expected)) < 4 * (0.16 * population.size) ** 0.5 + sampler.steps
        first = visited[: len(expected)]
        assert len(first.unique()) == len(first)
        assert torch.isin(visited, expected).all()


def test_blocks_change_nothing_but_memory(population, held_out, monkeypatch):
    slots, admitted = held_out
    whole = cells_of(EveryCell(population, SEEDS, 50, slots, admitted), epoch=3)
    monkeypatch.setattr(samplers, "BLOCK", 100)
    sampler = EveryCell(population, SEEDS, 50, slots, admitted)
    blocks = list(sampler.epoch(3))
    assert torch.equal(cells_of(sampler, epoch=3), whole)
    assert max(block.cells[0].numel() for block in blocks) <= 100 + 50
    assert sum(block.cells.shape[1] for block in blocks) == sampler.steps


def test_ten_billion_cells_are_not_materialised(monkeypatch):
    monkeypatch.setattr(samplers, "BLOCK", 4096)
    observed = np.arange(0, 10**10, 10**7 + 3)
    log = Log.from_arrays(
        user=observed // 10**5,
        item=observed % 10**5,
        users=Vocabulary.range(10**5, name="user"),
        items=Vocabulary.range(10**5, name="item"),
    )
    population = Population(log, CPU)
    slots = population.slots(SEEDS, 10)
    admitted = (torch.arange(10) < 8).expand(3, -1)
    sampler = EveryCell(population, SEEDS, 1000, slots, admitted)
    block = next(iter(sampler.epoch(0)))
    assert sampler.steps == pytest.approx(8_000_000, rel=1e-6)
    assert block.cells[0].numel() <= 4096
    assert (slots.of(block.cells.flatten(1)) < 8).all()
    assert stats.kstest(block.cells[0].flatten().double() / 10**10, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("ratio", [0.5, 4.0])
class TestClicksAndNegatives:
    def sampler(self, population, held_out, ratio, seeds=SEEDS, **options):
        return ClicksAndNegatives(population, seeds, 40, *held_out, ratio, **options)

    def test_clicks_and_negatives_stand_in_the_ratio_and_all_are_admitted(self, population, held_out, ratio):
        sampler = self.sampler(population, held_out, ratio)
        for replica, visited in enumerate(cells_of(sampler)):
            assert torch.isin(visited, admitted_cells(population, held_out, replica)).all()
            clicks = population.click(visited).sum()
            # Up to one row less than there are steps comes twice, to fill the last batch.
            assert float((len(visited) - clicks) / clicks) == pytest.approx(ratio, abs=0.15 * ratio)

    def test_an_epoch_has_the_share_of_clicks_and_none_twice_before_all_came(
        self, population, held_out, ratio
    ):
        wanted = round(0.8 * population.n_clicks)
        for replica, visited in enumerate(cells_of(self.sampler(population, held_out, ratio))):
            expected = admitted_cells(population, held_out, replica)
            expected = expected[population.click(expected) == 1]
            seen = visited[population.click(visited) == 1].unique()
            assert torch.isin(seen, expected).all()
            assert len(seen) == min(len(expected), wanted)

    def test_negatives_are_drawn_anew_in_each_epoch_or_kept(self, population, held_out, ratio):
        def negatives(sampler, epoch):
            visited = cells_of(sampler, epoch)[0]
            return set(visited[population.click(visited) == 0].tolist())

        anew = self.sampler(population, held_out, ratio)
        kept = self.sampler(population, held_out, ratio, resample=False)
        assert negatives(anew, 0) != negatives(anew, 1)
        assert negatives(kept, 0) == negatives(kept, 1) == negatives(anew, 0)

    def test_a_replica_depends_on_its_own_seed_alone(self, population, held_out, ratio):
        _, admitted = held_out
        shared = population.slots(SEEDS, 10), admitted[:1].expand(3, -1)
        stacked = cells_of(self.sampler(population, shared, ratio), 2)
        for position, seed in enumerate(SEEDS):
            own = population.slots([seed], 10), admitted[:1]
            alone = cells_of(self.sampler(population, own, ratio, seeds=[seed]), 2)
            assert torch.equal(alone[0], stacked[position])


def test_negatives_are_uniform_over_the_admitted_unclicked_cells(population, held_out):
    sampler = ClicksAndNegatives(population, SEEDS, 40, *held_out, 4.0)
    drawn = torch.cat([cells_of(sampler, epoch)[0] for epoch in range(60)])
    candidates = admitted_cells(population, held_out, 0)
    candidates = candidates[population.click(candidates) == 0]
    counts = torch.bincount(drawn, minlength=population.size)[candidates]
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("ratio", [0.5, 3.0])
def test_observed_and_full_adds_cells_drawn_uniformly_from_the_whole_space(population, ratio):
    rows = torch.arange(population.n_clicks).expand(3, -1)
    observed = ShuffledRows(rows, SEEDS, 64)
    sampler = ObservedAndFull(observed, population, ratio)
    drawn = []
    for epoch in range(40):
        (block,) = sampler.epoch(epoch)
        (alone,) = observed.epoch(epoch)
        assert torch.equal(block.observed, alone.observed)
        assert block.cells.shape[2] == round(ratio * block.observed.shape[2])
        assert block.cells.shape[:2] == block.observed.shape[:2]
        drawn.append(block.cells.flatten(1))
    every_draw = torch.cat(drawn, dim=1)
    for row in every_draw:
        assert stats.chisquare(torch.bincount(row, minlength=population.size)).pvalue > 1e-3
    alone = ObservedAndFull(ShuffledRows(rows[:1], SEEDS[1:2], 64), population, ratio)
    assert torch.equal(next(iter(alone.epoch(0))).cells.flatten(1)[0], drawn[0][1])


@pytest.mark.parametrize("parts", [1, 3])
def test_parts_of_an_epoch_are_its_steps_in_turn(population, parts, monkeypatch):
    monkeypatch.setattr("unskew.training.samplers.BLOCK", 64)
    whole = EveryCell(population, [0, 1], 16)
    cut = PartsOfEpochs(whole, parts)
    for epoch in (0, 1):
        of_parts = [list(cut.epoch(epoch * parts + part)) for part in range(parts)]
        steps = [sum(block.shape[1] for block in blocks) for blocks in of_parts]
        assert sum(steps) == whole.steps
        assert max(steps) == cut.steps
        together = torch.cat([block.cells for blocks in of_parts for block in blocks], dim=1)
        assert torch.equal(together, torch.cat([block.cells for block in whole.epoch(epoch)], dim=1))


class TestWindows:
    """Epochs of logs that are larger than one permutation: here from 100 rows on."""

    @pytest.fixture(autouse=True)
    def _small(self, monkeypatch):
        for name, value in {"FULL_ORDER": 100, "BLOCK_ROWS": 8, "WINDOW_BLOCKS": 4, "BLOCK": 64}.items():
            monkeypatch.setattr(samplers, name, value)

    @pytest.fixture
    def shown(self, impressions_log) -> Population:
        return Population(impressions_log, CPU)

    def test_each_row_comes_once_and_few_blocks_are_open_at_a_time(self):
        rows = torch.randperm(300).expand(3, -1)
        sampler = ShuffledRows(rows, SEEDS, 10)
        first, second = (
            torch.cat([block.observed.flatten(1) for block in sampler.epoch(e)], 1) for e in (0, 1)
        )
        for visited, later in zip(first, second, strict=True):
            assert sorted(visited.tolist()) == list(range(300))
            assert sorted(later.tolist()) == list(range(300))
            assert not torch.equal(visited, later)
            windows = [len((visited[start : start + 32] // 8).unique()) for start in range(0, 288, 32)]
            assert max(windows) <= 8 < len((rows[0][:32] // 8).unique())
        alone = ShuffledRows(rows[:1], SEEDS[1:2], 10)
        assert torch.equal(torch.cat([block.observed for block in alone.epoch(0)], 1).flatten(), first[1])

    def test_every_admitted_row_of_d_comes_once(self, shown):
        slots, admitted = shown.slots(SEEDS, 10), torch.arange(10).expand(3, -1) < 8
        visited = cells_of(EveryCell(shown, SEEDS, 10, slots, admitted))
        for replica, line in enumerate(visited):
            wanted = admitted_cells(shown, (slots, admitted), replica)
            assert torch.isin(line, wanted).all()
            assert line.unique().numel() > 0.9 * min(len(wanted), len(line))

    def test_a_share_of_the_unclicked_rows_is_drawn_anew_in_each_epoch(self, shown):
        sampler = EveryCell(shown, SEEDS[:1], 10, unclicked=0.3)
        drawn = [cells_of(sampler, epoch)[0] for epoch in range(40)]
        count = torch.bincount(
            torch.cat([line[shown.click(line) == 0] for line in drawn]), minlength=shown.size
        )
        unclicked = shown.click(torch.arange(shown.size)) == 0
        assert float(count[unclicked].float().mean()) == pytest.approx(0.3 * 40, rel=0.1)
        assert all(torch.isin(shown.observed, line).float().mean() > 0.9 for line in drawn)

    def test_cells_beside_clicks_are_uniform_over_all_rows(self, shown):
        sampler = ObservedAndFull(
            ShuffledRows(torch.arange(shown.n_clicks).expand(3, -1), SEEDS, 10), shown, 1.0
        )
        drawn = torch.cat([cells_of(sampler, epoch) for epoch in range(40)], dim=1)
        for line in drawn:
            assert stats.chisquare(torch.bincount(line, minlength=shown.size)).pvalue > 1e-4
