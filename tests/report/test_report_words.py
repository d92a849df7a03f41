"""Numbers and names as readers see them."""

from __future__ import annotations

from unskew.metrics.collapse import Collapsed, collapse_message, counts


def test_a_network_that_learned_nothing_is_counted_once_a_seed() -> None:
    folds = [Collapsed(f"propensity, fold {fold}", 0, "flat") for fold in range(5)]
    assert counts(folds) == [("propensity", "flat", 1)]
    seeds = [Collapsed("prediction", 0, "flat"), Collapsed("prediction", 3, "flat")]
    assert counts(seeds) == [("prediction", "flat", 2)]
    said = collapse_message("dr-jl", "imputation", "flat", 3, 10)
    assert said.startswith("dr-jl: the network 'imputation' learned nothing in 3 of 10 seeds: it")
