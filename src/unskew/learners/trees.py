"""Histogram gradient boosting on numbers and cross-fitted target encodings. Importable without torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError
from unskew.base.estimator import require_above, require_whole
from unskew.base.registry import register
from unskew.learners.encoded import EncodedLearner
from unskew.learners.learner import Arrays
from unskew.learners.table import EncodedTable, Examples, Floats

MOST_BINS = 255
"""Bins of each input, the most that scikit-learn's trees have."""

NODE = ("feature_idx", "num_threshold", "missing_go_to_left", "left", "right", "is_leaf", "value")
"""What a prediction reads of the nodes of scikit-learn's trees."""

ROWS_AT_ONCE = 1 << 17
UNTOLD = 100
"""Trees where no held-out rows choose their number."""


@register(order=120)
@dataclass(kw_only=True)
class Trees(EncodedLearner):
    r"""Gradient boosting of p̂ = σ(Σ_m f_m(x)) with trees f_m, on numbers and smoothed means of the target.

    Numbers enter as they are, ids, categories and bags as :class:`EncodedLearner` has them. The number of
    trees is the best on held-out rows. Trees are scikit-learn's ``HistGradientBoosting``. Use it for logs
    with features; with ids alone take a network.

    Parameters
    ----------
    learning_rate, max_trees, leaves, min_leaf, l2
        Of boosting: the share of each tree that is added, the most trees, the most leaves of a tree, the
        fewest rows of a leaf and the penalty of leaf values.
    patience
        Boosting ends after so many trees without a lower loss of held-out rows.
    increasing, decreasing
        Numbers, by name, in which the prediction may only rise, or fall.
    """

    name: ClassVar[str] = "trees"
    learning_rate: float = 0.05
    max_trees: int = 1000
    leaves: int = 15
    min_leaf: int = 40
    l2: float = 1.0
    patience: int = 20
    increasing: tuple[str, ...] = ()
    decreasing: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise a ParameterError for a parameter out of range."""
        super().check()
        require_above(0, learning_rate=self.learning_rate)
        require_whole(1, max_trees=self.max_trees, min_leaf=self.min_leaf, patience=self.patience)
        require_whole(2, leaves=self.leaves)

    def _fit(self, examples: Examples, validation: Examples | None, seed: int) -> None:
        from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor

        target, weight = examples.target, examples.weight / examples.weight.mean()
        inputs = self._encoded(examples, seed)
        edges = [_edges(column) for column in inputs.T]
        held_out: dict[str, Any] = {}
        if validation is not None and len(validation.target):
            held_out = {
                "X_val": _binned(self._inputs(validation.rows), edges),
                "y_val": validation.target,
                "sample_weight_val": validation.weight / validation.weight.mean(),
            }
        kind = HistGradientBoostingClassifier if self.errors_ == "ce" else HistGradientBoostingRegressor
        model = kind(
            learning_rate=self.learning_rate,
            max_iter=self.max_trees if held_out else min(self.max_trees, UNTOLD),
            max_leaf_nodes=self.leaves,
            min_samples_leaf=self.min_leaf,
            l2_regularization=self.l2,
            early_stopping=bool(held_out),
            n_iter_no_change=self.patience,
            monotonic_cst=self._monotonic(examples.rows, inputs.shape[1]),
            random_state=seed % (1 << 32),
        )
        model.fit(_binned(inputs, edges), target, sample_weight=weight, **held_out)
        self._keep(model, edges)

    def _monotonic(self, rows: EncodedTable, width: int) -> list[int]:
        """Return 1, −1 or 0 for each column: whether the prediction may only rise or fall in it."""
        signs = []
        for field in rows.schema.features:
            if field.is_number:
                sign = (field.name in self.increasing) - (field.name in self.decreasing)
                signs += [sign] + [0] * (field.width - 1)
        return signs + [0] * (width - len(signs))

    def _keep(self, model: Any, edges: list[Floats]) -> None:
        """Keep the fitted trees as arrays, their thresholds as values of the inputs instead of bins."""
        trees = [predictor.nodes for (predictor,) in model._predictors]
        self.nodes_ = {name: np.concatenate([tree[name] for tree in trees]) for name in NODE}
        starts = np.cumsum([0, *map(len, edges)])
        splits = self.nodes_["is_leaf"] == 0
        edge = starts[self.nodes_["feature_idx"][splits]] + self.nodes_["num_threshold"][splits].astype(int)
        self.nodes_["num_threshold"][splits] = np.concatenate(edges)[edge]
        for side in ("left", "right"):
            self.nodes_[side] = self.nodes_[side].astype(np.int64)
        self.tree_sizes_ = np.array([len(tree) for tree in trees])
        self.baseline_ = float(np.ravel(model._baseline_prediction)[0])
        self._build()

    def _build(self) -> None:
        """Make scikit-learn's trees of the arrays."""
        from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
        from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor

        self._require_trees()
        nodes = np.zeros(len(self.nodes_["value"]), dtype=PREDICTOR_RECORD_DTYPE)
        for name in NODE:
            nodes[name] = self.nodes_[name]
        no_categories = np.zeros((0, 8), dtype=np.uint32)
        self._predictors = [
            TreePredictor(np.ascontiguousarray(tree), no_categories, no_categories)
            for tree in np.split(nodes, np.cumsum(self.tree_sizes_)[:-1])
        ]

    def _require_trees(self) -> None:
        """Raise a DataError for arrays that are no trees: walking them might never end, or leave memory."""
        size, start = (
            np.repeat(values, self.tree_sizes_)
            for values in (self.tree_sizes_, np.cumsum(self.tree_sizes_) - self.tree_sizes_)
        )
        own = np.arange(len(size)) - start
        splits = self.nodes_["is_leaf"] == 0
        whole = all(len(values) == len(size) for values in self.nodes_.values()) and len(size) > 0
        if not whole or not all(
            (own[splits] < child).all() and (child < size[splits]).all() and (feature >= 0).all()
            for side in ("left", "right")
            for child, feature in ((self.nodes_[side][splits], self.nodes_["feature_idx"][splits]),)
        ):
            raise DataError("the trees are damaged", remedy="save the model again")

    def _margin(self, rows: EncodedTable) -> Floats:
        margin = np.full(len(rows), self.baseline_)
        no_categories, no_places = np.zeros((0, 8), dtype=np.uint32), np.zeros(0, dtype=np.uint32)
        for at, block in rows.blocks(ROWS_AT_ONCE):
            inputs = np.ascontiguousarray(self._inputs(block))
            if self.nodes_["feature_idx"].max() >= inputs.shape[1]:
                raise DataError("the trees read other fields than these", remedy="save the model again")
            for tree in self._predictors:
                margin[at] += tree.predict(inputs, no_categories, no_places, 1)
        return margin

    def depth(self) -> int:
        """Return the number of splits on the longest way to a leaf."""
        depth = np.zeros(len(self.nodes_["value"]), dtype=int)
        starts = np.repeat(np.cumsum(self.tree_sizes_) - self.tree_sizes_, self.tree_sizes_)
        for node in np.flatnonzero(self.nodes_["is_leaf"] == 0):
            for side in ("left", "right"):
                depth[starts[node] + self.nodes_[side][node]] = depth[node] + 1
        return int(depth.max())

    def arrays(self) -> Arrays:
        """Return encodings and trees."""
        nodes = {f"node_{name}": values for name, values in self.nodes_.items()}
        trees = {"baseline": np.array(self.baseline_), "tree_sizes": self.tree_sizes_}
        return {**self._encoding_arrays(), **trees, **nodes}

    def _restore(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        self._restore_encodings(arrays)
        self.baseline_ = float(arrays["baseline"])
        self.nodes_ = {name: np.asarray(arrays[f"node_{name}"]) for name in NODE}
        self.tree_sizes_ = np.asarray(arrays["tree_sizes"])
        self._build()


def _edges(column: Floats) -> Floats:
    """Return the upper ends of the bins of a column but the last: quantiles, which are values of it."""
    quantiles = np.quantile(column, np.linspace(0, 1, MOST_BINS + 1)[1:-1], method="inverted_cdf")
    return np.asarray(np.unique(quantiles[quantiles < column.max()]))


def _binned(inputs: Floats, edges: list[Floats]) -> Floats:
    """Return the bin of each value. scikit-learn's own bins take seconds where rows have weights."""
    columns = [
        np.searchsorted(ends, column, side="left") for ends, column in zip(edges, inputs.T, strict=True)
    ]
    return np.column_stack(columns).astype(np.float64)
