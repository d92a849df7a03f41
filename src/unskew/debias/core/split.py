"""Which clicks of a log a model did not train on: told by their ids and its seeds, for any log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from unskew.errors import DataError
from unskew.log import Log
from unskew.seeds import splitmix64, stream


def pair_keys(log: Log, seed: int) -> NDArray[np.int64]:
    """A hash of 63 bits of each click's user id, item id and the seed: those with the least are held out."""
    clicked = log.clicked
    user, item = (ids.hashes.view(np.uint64) for ids in (log.users, log.items))
    # Mixed once more, so that a user and an item of one id do not cancel.
    pair = user[log.user[clicked]] + splitmix64(item)[log.item[clicked]]
    mixed = splitmix64(pair + np.uint64(stream(seed, "validation")))
    return (mixed >> np.uint64(1)).astype(np.int64)


def split_clicks(log: Log, seed: int, held_out: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Positions in O that train (one order of a seed's own), and those that are held out.

    No pair is in both: where several rows of a pair lie across the border, those on the training side are
    left out, and others come twice in their place, so that every seed has as many.
    """
    key = pair_keys(log, seed)
    order = np.argsort(key, kind="stable")
    held, rest = order[:held_out], order[held_out:]
    if held_out:
        rest = rest[key[rest] > key[held[-1]]]
    if not len(rest):
        raise DataError(
            f"{len(order)} clicked rows are of too few pairs to split",
            remedy="give more data, or validation_share=0",
        )
    return np.resize(rest, len(order) - held_out), held


@dataclass(frozen=True)
class Split:
    """Which clicks were held out.

    Attributes
    ----------
    held_out
        How many for each seed; 0 if every click trained.
    thresholds
        For each seed the greatest key (:func:`pair_keys`) of a held-out click.
    """

    held_out: int
    thresholds: tuple[int, ...]

    @classmethod
    def of(cls, log: Log, seeds: Sequence[int], held_out: int) -> Split:
        """The split of a log."""
        if not held_out:
            return cls(0, ())
        keys = (pair_keys(log, seed) for seed in seeds)
        return cls(held_out, tuple(int(np.partition(key, held_out - 1)[held_out - 1]) for key in keys))

    def rows(self, log: Log, seeds: Sequence[int]) -> NDArray[np.int64]:
        """Numbers ``[seeds, n]`` of a log's clicked rows that trained nothing, n the same for all seeds.

        The log may be the training log, in any order, or a part of it: a pair below the threshold trained
        nothing, wherever it comes from. Where a part has more such rows of one seed than of another, those
        with the least keys are told.
        """
        clicked = log.clicked
        if not self.held_out:
            return np.empty((len(seeds), 0), dtype=np.int64)
        found = []
        for seed, threshold in zip(seeds, self.thresholds, strict=True):
            key = pair_keys(log, seed)
            order = np.argsort(key, kind="stable")
            found.append(clicked[order[key[order] <= threshold]])
        count = min(len(each) for each in found)
        if not count:
            raise DataError(
                "none of these clicks was held out from training, for some seed",
                remedy="give the training log, or more of it; or say which rows trained no model"
                " (held_out='all' for a new log)",
            )
        return np.stack([each[:count] for each in found])
