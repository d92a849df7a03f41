"""What a trained propensity answers: probabilities and spreads of rows, pairs and the matrix, out of fold.

Which network never saw a pair follows from the pair's ids (:class:`unskew.training.Slots`), so it does not
matter where the pair comes from: the training log, a copy, a part of it, a file that is read again.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, logit

from unskew.backbones import Network
from unskew.calibration import Calibrator
from unskew.estimator import require
from unskew.io.columns import require_same_length
from unskew.io.vocabulary import UNSEEN_CODE, Unseen, Vocabulary
from unskew.log import Log, Rows, Space, require_log
from unskew.metrics.collapse import Collapsed
from unskew.propensity.crossfitting import apply
from unskew.propensity.design import SplitDesign
from unskew.propensity.options import PropensityOptions
from unskew.propensity.uncertainty import DualFocal
from unskew.seeds import stream
from unskew.training import IdHashes, Population, Slots, rows_of
from unskew.training.inference import probability_moments

Codes = NDArray[np.integer[Any]]


class FittedPropensity(PropensityOptions):
    """Trained networks of all seeds, folds and members, and the calibrators of their scores."""

    seeds_: tuple[int, ...]
    device_: torch.device
    design_: SplitDesign
    users_: Vocabulary
    items_: Vocabulary
    space_: Space
    log_: Log | None
    """What it was fitted on, for :meth:`diagnose`; None for a loaded one."""
    population_: Population
    """Of that log; a loaded propensity has none."""
    network_: Network
    offset_: float
    """Added to logits that were learned from sampled negatives."""
    collapsed_: tuple[Collapsed, ...]
    """Networks that learned nothing, by seed and fold; not kept by a saved propensity."""
    calibrators_: list[Calibrator | None]
    """One per seed and fold."""

    def predict(self, log: Log, *, calibrated: bool = True, average: bool = False) -> NDArray[np.float64]:
        """Propensities of the rows of a log ``[n]``, averaged over seeds; out of fold where cross-fitted.

        Parameters
        ----------
        average
            The mean over folds instead of the one fold that never saw the pair. It is a little less noisy
            for pairs that came after training, and in-sample for those that were trained on: not for weights.
        """
        return np.asarray(self.predict_each(log, calibrated=calibrated, average=average).mean(axis=0))

    def predict_each(
        self, log: Log, *, calibrated: bool = True, average: bool = False
    ) -> NDArray[np.float64]:
        """Propensities ``[seeds, n]`` of a log's rows, a line per seed; ``average`` as in :meth:`predict`."""
        self._require_fitted("network_")
        return self._predict_codes(*self._codes_of(log), calibrated, average)

    def predict_pairs_each(
        self,
        user: Any,
        item: Any,
        *,
        unseen: Unseen = "error",
        calibrated: bool = True,
        average: bool = False,
    ) -> NDArray[np.float64]:
        """Propensities ``[seeds, n]`` of pairs of ids; unknown ids are an error, or NaN."""
        self._require_fitted("network_")
        user_code, item_code, known = self._codes_of_pairs(user, item, unseen)
        result = np.full((len(self.seeds_), len(known)), np.nan)
        result[:, known] = self._predict_codes(user_code[known], item_code[known], calibrated, average)
        return result

    def fold_of_pairs_each(self, user: Any, item: Any) -> NDArray[np.int64]:
        """The fold ``[seeds, n]`` of pairs of ids: the number of the network that never saw them; 0 without
        cross-fitting."""
        self._require_fitted("network_")
        return self._fold(*self._codes_of_pairs(user, item, "error")[:2])

    def predict_spread_each(self, log: Log) -> NDArray[np.float64]:
        """Standard deviation ``[seeds, n]`` of the raw probability over members or passes, by row."""
        self._require_fitted("network_")
        user, item = self._codes_of(log)
        _, variance = self._moments(rows_of(user, item, self.device_))
        return np.sqrt(self._out_of_fold(variance, user, item))

    def predict_matrix_each(self, *, calibrated: bool = True) -> NDArray[np.float64]:
        """Propensities ``[seeds, users, items]`` of all of D, for small matrices; out of fold."""
        self._require_fitted("network_")
        require(
            self.space_ == "matrix",
            "only the space 'matrix' has a propensity for every pair",
            "ask for those of the log's rows with predict(log)",
        )
        shape = (len(self.seeds_), len(self.users_), len(self.items_))
        user, item = np.divmod(np.arange(shape[1] * shape[2]), shape[2])
        return self._predict_codes(user, item, calibrated).reshape(shape)

    def network_replicas(self) -> int:
        """Networks in the stack: seeds × folds × members."""
        return len(self.seeds_) * self.design_.replicas * self.method().stacked_members()

    def split_seeds(self) -> list[int]:
        """Seeds of the partition of D, one per seed."""
        return [stream(seed, "propensity split") for seed in self.seeds_]

    def replica_split_seeds(self) -> list[int]:
        """Seeds of the partition of D, one per network; the networks of one seed share theirs."""
        per_seed = self.network_replicas() // len(self.seeds_)
        return [seed for seed in self.split_seeds() for _ in range(per_seed)]

    def replica_seeds(self, purpose: str) -> list[int]:
        """Seeds of one purpose, one per network."""
        folds, members = range(self.design_.replicas), range(self.method().stacked_members())
        return [stream(s, purpose, k, m) for s in self.seeds_ for k in folds for m in members]

    def _codes_of(self, log: Log) -> tuple[Codes, Codes]:
        """Users and items of a log's rows, by their ids."""
        require_log(log, "what to predict", "give a Log, such as data.test, or ids to predict_pairs_each")
        return self.users_.recode(log.user, log.users), self.items_.recode(log.item, log.items)

    def _codes_of_pairs(self, user: Any, item: Any, unseen: Unseen) -> tuple[Codes, Codes, NDArray[np.bool_]]:
        """Codes of pairs of ids, and which of them are known."""
        user_code = self.users_.encode(user, unseen=unseen)
        item_code = self.items_.encode(item, unseen=unseen)
        require_same_length(len(user_code), len(item_code), self.items_.name)
        return user_code, item_code, (user_code != UNSEEN_CODE) & (item_code != UNSEEN_CODE)

    def _moments(self, rows: Rows, noisy: bool = False) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and variance of the raw probabilities of rows: ``[seeds · folds, n]``."""
        method = self.method()
        corrected = isinstance(method, DualFocal)
        mean, variance = probability_moments(
            self.network_,
            rows,
            offset=0.0 if corrected else self.offset_,
            passes=method.passes() or int(noisy),
            layers=method.dropout_layers(),
            stacked=method.stacked_members(),
        )
        score: NDArray[np.float64] = mean.cpu().numpy()
        if corrected:
            # The offset is one of odds, so it comes after the link has made a probability of the score.
            score = expit(logit(method.probability(score)) + self.offset_)
        return score, variance.cpu().numpy()

    def _predict_codes(
        self, user: Codes, item: Codes, calibrated: bool, average: bool = False
    ) -> NDArray[np.float64]:
        noisy = calibrated and self.calibrator_noise()
        score, _ = self._moments(rows_of(user, item, self.device_), noisy)
        if calibrated:
            score = np.stack([apply(c, line) for c, line in zip(self.calibrators_, score, strict=True)])
        return self._by_seed(score).mean(axis=1) if average else self._out_of_fold(score, user, item)

    def _out_of_fold(self, of_fold: NDArray[np.float64], user: Codes, item: Codes) -> NDArray[np.float64]:
        """From ``[seeds · folds, n]`` to ``[seeds, n]``: the fold that never saw a pair."""
        if self.design_.folds is None:
            return of_fold
        fold = self._fold(user, item)
        return np.take_along_axis(self._by_seed(of_fold), fold[:, None, :], axis=1)[:, 0, :]

    def _fold(self, user: Codes, item: Codes) -> NDArray[np.int64]:
        hashes = IdHashes.of(self.users_, self.items_, self.device_)
        slots = Slots(hashes, self.split_seeds(), self.design_.slots, self.fold_by)
        fold: NDArray[np.int64] = (
            self.design_.fold_of(slots.of_rows(rows_of(user, item, self.device_))).cpu().numpy()
        )
        return fold

    def _by_seed(self, of_fold: NDArray[np.float64]) -> NDArray[np.float64]:
        return of_fold.reshape(len(self.seeds_), self.design_.replicas, -1)
