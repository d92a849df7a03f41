"""Unclicked cells of D, and batches that mix them with clicks: sampled negatives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unskew.training import hashing
from unskew.training.draws import Draw, batches, endless_blocks, in_batches
from unskew.training.population import Population, Slots

if TYPE_CHECKING:
    from jaxtyping import Int


@dataclass
class ClicksAndNegatives:
    """Admitted cells of O and ``ratio`` times as many unclicked cells of D, drawn uniformly.

    The sample's odds are 1/w times those of D, with w = ratio · |O| / (|D| − |O|): whoever trains on it
    must add log w to the logit before using it as a propensity over D (METHODS §2.3).

    Parameters
    ----------
    resample
        Draw new negatives in each epoch; otherwise each replica keeps those of its first.
    """

    population: Population
    seeds: Sequence[int]
    batch_size: int
    slots: Slots
    admitted: Tensor
    ratio: float
    resample: bool = True

    def __post_init__(self) -> None:
        population = self.population
        self._seeds = torch.tensor(self.seeds, device=population.device)
        observed = population.observed.unsqueeze(0).expand(len(self.seeds), -1)
        keep = self.admitted.gather(1, self.slots.of(observed))
        self._clicks = [cells[kept] for cells, kept in zip(observed, keep, strict=True)]
        # Not the least of the replicas' own numbers: what one draws must not depend on the others.
        share = float(self.admitted.float().mean(1).max())
        clicks = max(1, round(share * population.n_clicks))
        self._sizes = clicks, max(1, round(self.ratio * clicks))
        self.steps, self._batch = batches(sum(self._sizes), self.batch_size)

    def epoch(self, number: int) -> Iterator[Draw]:
        """One block: clicks and negatives, shuffled together."""
        n_clicks, n_negatives = self._sizes
        draw = number if self.resample else 0
        clicks = torch.stack(self._clicks_of(number, n_clicks))
        cells = torch.cat((clicks, self._negatives(draw, n_negatives)), dim=1)
        order = hashing.shuffled(hashing.keys(self._seeds, salt=2 * number), cells.shape[1])
        cells = cells.gather(1, order)
        yield Draw(cells=in_batches(cells, self.steps, self._batch))

    def _clicks_of(self, number: int, count: int) -> list[Tensor]:
        # Slots are even in expectation only: some clicks are left out at random, or come twice.
        key = hashing.keys(self._seeds, salt=2 * number + 1)
        wanted = torch.arange(count, device=key.device)
        return [
            cells[hashing.shuffled(k.unsqueeze(0), len(cells))[0, wanted % len(cells)]]
            for k, cells in zip(key, self._clicks, strict=True)
        ]

    def _negatives(self, draw: int, count: int) -> Tensor:
        return unclicked_cells(
            self.population,
            self._seeds,
            salt=(draw << 8) + 3,
            count=count,
            admit=lambda cell: self.admitted.gather(1, self.slots.of(cell)),
        )


def unclicked_cells(
    population: Population,
    seeds: Int[Tensor, " R"],
    *,
    salt: int,
    count: int,
    admit: Callable[[Tensor], Tensor] | None = None,
) -> Int[Tensor, "R count"]:
    """``[R, count]`` unclicked cells of D that ``admit`` lets in, drawn uniformly for each seed.

    None comes twice, unless more are asked for than there are.
    """
    key = hashing.keys(seeds, salt=salt)
    bits = hashing.permutation_bits(population.size)
    step = min(2 * count + 64, 1 << bits)
    pending = [torch.empty(0, dtype=torch.int64, device=population.device) for _ in range(len(seeds))]
    for start in endless_blocks(1 << bits, step=step):
        cell = hashing.permuted_range(start, min(start + step, 1 << bits), key, bits)
        keep = cell < population.size
        cell = cell.clamp(max=population.size - 1)
        keep &= population.click(cell) == 0
        if admit is not None:
            keep &= admit(cell)
        pending = [torch.cat((old, new[kept])) for old, new, kept in zip(pending, cell, keep, strict=True)]
        if min(len(cells) for cells in pending) >= count:
            break
    return torch.stack([cells[:count] for cells in pending])
