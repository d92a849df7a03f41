"""Scores of many cells without materialising more than a set number of logits at once."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from unskew.backbones.base import Network
from unskew.training import hashing
from unskew.training.loop import evaluating
from unskew.training.population import Population, Slots
from unskew.training.samplers import BLOCK

BUDGET = 1 << 17
"""Logits computed at once: at NeuMF's widths some 200 MB of activations."""


def logits(
    network: Network, user: Tensor, item: Tensor, *, tower: str | None = None, budget: int = BUDGET
) -> Tensor:
    """Logits ``[R, n]`` of pairs ``[R, n]`` (or ``[1, n]``, for all replicas), in ``eval`` mode."""
    tower = tower or network.towers[0]
    replicas = network.replicas
    chunk = max(1, budget // replicas)
    user, item = user.expand(replicas, -1), item.expand(replicas, -1)
    with evaluating([network]):
        parts = [
            network(user[:, start : start + chunk], item[:, start : start + chunk], tower)
            for start in range(0, user.shape[1], chunk)
        ]
    return torch.cat(parts, dim=1) if parts else torch.empty(replicas, 0, device=user.device)


def held_out_cells(
    population: Population, slots: Slots, admitted: Tensor, most: int
) -> tuple[Tensor, Tensor]:
    """The cells of D that each replica holds out, and their weights: ``[R, n]`` each.

    All clicked cells are kept. Where there are more than about ``most`` cells per replica, the unclicked
    are thinned by a hash of their number and weighted accordingly, so that weighted sums still estimate
    those over D. Rows are padded to one length with weight 0.
    """
    expected = population.size * float(admitted.float().mean())
    thinning = max(1, round(expected / most))
    kept: list[list[Tensor]] = [[] for _ in range(len(admitted))]
    weights: list[list[Tensor]] = [[] for _ in range(len(admitted))]
    for cell in _cells_in_order(population, thinning):
        click = population.click(cell)
        keep = admitted.gather(1, slots.of(cell.unsqueeze(0)))
        weight = torch.where(click == 1, 1.0, float(thinning))
        for replica, mask in enumerate(keep):
            kept[replica].append(cell[mask])
            weights[replica].append(weight[mask])
    cells = [torch.cat(parts) for parts in kept]
    of_cells = [torch.cat(parts) for parts in weights]
    return (
        torch.nn.utils.rnn.pad_sequence(cells, batch_first=True),
        torch.nn.utils.rnn.pad_sequence(of_cells, batch_first=True),
    )


def _cells_in_order(population: Population, thinning: int) -> Iterator[Tensor]:
    """All cells, or all clicked cells and every so-manyth of the others, by hash."""
    zero = torch.zeros((), dtype=torch.int64, device=population.device)
    for start in range(0, population.size, BLOCK):
        cell = torch.arange(start, min(start + BLOCK, population.size), device=population.device)
        if thinning > 1:
            keep = (hashing.uniform_int(cell, zero, thinning) == 0) | (population.click(cell) == 1)
            cell = cell[keep]
        yield cell
