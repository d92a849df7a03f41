"""Scores of many cells without materialising more than a set number of logits at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from unskew.base.tensors import Tensor, torch
from unskew.data import Rows
from unskew.learners.network import DropoutLayers, Network
from unskew.training import hashing
from unskew.training.loop import evaluating
from unskew.training.population import Population, Slots
from unskew.training.samplers import BLOCK

if TYPE_CHECKING:
    from jaxtyping import Bool, Float, Float64, Int

BUDGET = 1 << 14
"""Logits computed at once on a CPU: some 70 MB of activations of a DCN with twelve features, and half the
time that eight times as many take, which no cache holds."""

GPU_BUDGET = 1 << 18
"""Logits computed at once on a GPU: some 400 MB of activations."""


THINNING = 7
"""What the permutation is for that thins held-out cells."""


def logits(
    network: Network, rows: Rows, *, tower: str | None = None, budget: int | None = None
) -> Float[Tensor, "R B"]:
    """Return logits ``[R, n]`` of rows ``[R, n]`` (or ``[1, n]``, for all replicas), in ``eval`` mode."""
    tower = tower or network.towers[0]
    replicas = network.replicas
    chunk = max(1, (budget or _budget(rows.device)) // replicas)
    with evaluating([network]):
        parts = [
            network(rows.between(start, start + chunk), tower) for start in range(0, rows.shape[1], chunk)
        ]
    return torch.cat(parts, dim=1) if parts else torch.empty(replicas, 0, device=rows.device)


def held_out_cells(
    population: Population,
    slots: Slots,
    admitted: Bool[Tensor, "R S"],
    most: int,
    sample: int | None = None,
) -> tuple[Int[Tensor, "R n"], Float[Tensor, "R n"]]:
    """Return the cells of D that each replica holds out, and their weights: ``[R, n]`` each.

    All clicked cells are kept. Where there are more than ``most`` cells per replica, the unclicked are about
    ``sample`` (by default as many), drawn from D without repetition and weighted accordingly, so that
    weighted sums still estimate those over D: what it takes does not grow with D. Rows are padded to one
    length with weight 0.
    """
    expected = population.size * float(admitted.float().mean())
    thinning = 1 if expected <= most else max(1, round(expected / (sample or most)))
    chosen_cells: list[list[Tensor]] = [[] for _ in range(len(admitted))]
    weights: list[list[Tensor]] = [[] for _ in range(len(admitted))]
    for cell, weight in _all_cells(population) if thinning == 1 else _thinned_cells(population, thinning):
        keep = admitted.gather(1, slots.of(cell.unsqueeze(0)))
        for replica, mask in enumerate(keep):
            chosen = cell[mask]
            chosen_cells[replica].append(chosen)
            weights[replica].append(torch.full(chosen.shape, weight, device=chosen.device))
    cells = [torch.cat(parts) for parts in chosen_cells]
    of_cells = [torch.cat(parts) for parts in weights]
    return (
        torch.nn.utils.rnn.pad_sequence(cells, batch_first=True),
        torch.nn.utils.rnn.pad_sequence(of_cells, batch_first=True),
    )


def _all_cells(population: Population) -> Iterator[tuple[Tensor, float]]:
    for start in range(0, population.size, BLOCK):
        yield torch.arange(start, min(start + BLOCK, population.size), device=population.device), 1.0


def _thinned_cells(population: Population, thinning: int) -> Iterator[tuple[Tensor, float]]:
    """Yield all clicked cells, and one of so many of the others: the first of a keyed permutation of D."""
    for start in range(0, population.n_clicks, BLOCK):
        yield population.observed[start : start + BLOCK], 1.0
    key = hashing.keys(torch.zeros(1, dtype=torch.int64, device=population.device), salt=THINNING)
    bits = hashing.permutation_bits(population.size)
    last = (1 << bits) // thinning
    for start in range(0, last, BLOCK):
        cell = hashing.permuted_range(start, min(start + BLOCK, last), key, bits)[0]
        cell = cell[cell < population.size]
        yield cell[population.click(cell) == 0], (1 << bits) / last


def probability_moments(
    network: Network,
    rows: Rows,
    *,
    offset: float = 0.0,
    passes: int = 0,
    layers: DropoutLayers = "all",
    stacked: int = 1,
    budget: int | None = None,
) -> tuple[Float64[Tensor, "G B"], Float64[Tensor, "G B"]]:
    """Return mean and variance ``[R / stacked, n]`` of the probabilities that members and passes give to
    rows.

    Parameters
    ----------
    rows
        ``[R, n]``, or ``[1, n]`` for all replicas.
    offset
        Added to the logits.
    passes
        Passes with dropout on (in ``layers`` alone); 0 makes one without.
    stacked
        So many replicas, side by side, are members of one ensemble.
    budget
        Logits computed at once, over replicas, members and passes.

    Returns
    -------
    mean, variance
        In float64; the variance (of the sample, not its mean) is 0 for a single pass of a single member.
    """
    copies = network.members * max(1, passes)
    chunk = max(1, (budget or _budget(rows.device)) // (network.replicas * copies))
    means, variances = [], []
    with evaluating([network]):
        network.noise.restart()
        for dropout in network.dropouts(layers) if passes else ():
            dropout.train()
        for start in range(0, rows.shape[1], chunk):
            mean, variance = network.moments(rows.between(start, start + chunk), passes, offset)
            if stacked > 1:
                mean, variance = (part.view(-1, stacked, part.shape[1]) for part in (mean, variance))
                mean, variance = mean.mean(1), variance.mean(1) + mean.var(1, correction=0)
            means.append(mean)
            variances.append(variance)
    if not means:
        empty = torch.empty(network.replicas // stacked, 0, dtype=torch.float64, device=rows.device)
        return empty, empty
    return torch.cat(means, dim=1), torch.cat(variances, dim=1)


def _budget(device: torch.device) -> int:
    return GPU_BUDGET if device.type == "cuda" else BUDGET
