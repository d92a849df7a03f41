"""What a trained propensity answers: probabilities and spreads of rows, pairs and the matrix, out of fold."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.special import expit, logit
from torch import Tensor

from unskew.backbones import Network
from unskew.calibration import Calibrator
from unskew.columns import require_same_length
from unskew.estimator import require
from unskew.log import Log, Space, require_log
from unskew.propensity.crossfitting import apply
from unskew.propensity.design import SplitDesign
from unskew.propensity.options import PropensityOptions
from unskew.propensity.uncertainty import DualFocal
from unskew.seeds import stream
from unskew.training import Population, Slots
from unskew.training.inference import probability_moments
from unskew.vocabulary import UNSEEN_CODE, Unseen, Vocabulary


class FittedPropensity(PropensityOptions):
    """Trained networks of all seeds, folds and members, and the calibrators of their scores."""

    seeds_: tuple[int, ...]
    device_: torch.device
    design_: SplitDesign
    users_: Vocabulary
    items_: Vocabulary
    space_: Space
    log_: Log | None
    """What it was fitted on; None for a loaded one."""
    population_: Population
    slots_: Slots
    network_: Network
    offset_: float
    """Added to logits that were learned from sampled negatives."""
    calibrators_: list[Calibrator | None]
    """One per seed and fold."""

    def predict(self, log: Log, *, calibrated: bool = True) -> NDArray[np.float64]:
        """Propensities of the rows of a log ``[n]``, averaged over seeds; out of fold where cross-fitted."""
        return np.asarray(self.predict_each(log, calibrated=calibrated).mean(axis=0))

    def predict_each(self, log: Log, *, calibrated: bool = True) -> NDArray[np.float64]:
        """Propensities ``[seeds, n]`` of the rows of a log, one line per seed."""
        self._require_fitted("network_")
        return self._predict_codes(*self._codes_of(log), calibrated)

    def predict_pairs_each(
        self, user: Any, item: Any, *, unseen: Unseen = "error", calibrated: bool = True
    ) -> NDArray[np.float64]:
        """Propensities ``[seeds, n]`` of pairs of ids; unknown ids are an error, or NaN."""
        self._require_fitted("network_")
        user_code = self.users_.encode(user, unseen=unseen)
        item_code = self.items_.encode(item, unseen=unseen)
        require_same_length(len(user_code), len(item_code), self.items_.name)
        known = (user_code != UNSEEN_CODE) & (item_code != UNSEEN_CODE)
        user_known, item_known = self._on_device(user_code[known]), self._on_device(item_code[known])
        cell = user_known * len(self.items_) + item_known if self.space_ == "matrix" else None
        result = np.full((len(self.seeds_), len(known)), np.nan)
        result[:, known] = self._predict_codes(user_known, item_known, cell, calibrated)
        return result

    def predict_spread_each(self, log: Log) -> NDArray[np.float64]:
        """Standard deviation ``[seeds, n]`` of the raw probability over members or passes, by row."""
        self._require_fitted("network_")
        user, item, cell = self._codes_of(log)
        _, variance = self._moments(user.unsqueeze(0), item.unsqueeze(0))
        return np.sqrt(self._out_of_fold(variance, cell))

    def predict_matrix_each(self, *, calibrated: bool = True) -> NDArray[np.float64]:
        """Propensities ``[seeds, users, items]`` of all of D, for small matrices; out of fold."""
        self._require_fitted("network_")
        require(
            self.space_ == "matrix",
            "only the space 'matrix' has a propensity for every pair",
            "ask for those of the log's rows with predict(log)",
        )
        cell = torch.arange(self.population_.size, device=self.device_)
        user, item = self.population_.pairs(cell)
        shape = (len(self.seeds_), len(self.users_), len(self.items_))
        return self._predict_codes(user, item, cell, calibrated).reshape(shape)

    def network_replicas(self) -> int:
        """Networks in the stack: seeds × folds × members."""
        return len(self.seeds_) * self.design_.replicas * self.method().stacked_members()

    def replica_split_seeds(self) -> list[int]:
        """Seeds of the partition of D, one per network; the networks of one seed share theirs."""
        per_seed = self.design_.replicas * self.method().stacked_members()
        return [stream(seed, "propensity split") for seed in self.seeds_ for _ in range(per_seed)]

    def replica_seeds(self, purpose: str) -> list[int]:
        """Seeds of one purpose, one per network."""
        folds, members = range(self.design_.replicas), range(self.method().stacked_members())
        return [stream(s, purpose, k, m) for s in self.seeds_ for k in folds for m in members]

    def _codes_of(self, log: Log) -> tuple[Tensor, Tensor, Tensor | None]:
        """Users, items and (where rows are cells of the population) cells of a log's rows, by their ids."""
        require_log(log, "what to predict", "give a Log, such as data.test, or ids to predict_pairs_each")
        user = self._on_device(self.users_.recode(log.user, log.users))
        item = self._on_device(self.items_.recode(log.item, log.items))
        if self.space_ == "matrix":
            return user, item, user * len(self.items_) + item
        return user, item, torch.arange(len(log), device=self.device_) if log is self.log_ else None

    def _on_device(self, codes: NDArray[np.int32]) -> Tensor:
        return torch.as_tensor(codes.astype(np.int64), device=self.device_)

    def _moments(
        self, user: Tensor, item: Tensor, noisy: bool = False
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and variance of the raw probabilities of pairs: ``[seeds · folds, n]``."""
        method = self.method()
        corrected = isinstance(method, DualFocal)
        mean, variance = probability_moments(
            self.network_,
            user,
            item,
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
        self, user: Tensor, item: Tensor, cell: Tensor | None, calibrated: bool
    ) -> NDArray[np.float64]:
        noisy = calibrated and self.calibrator_noise()
        score, _ = self._moments(user.unsqueeze(0), item.unsqueeze(0), noisy)
        if calibrated:
            score = np.stack([apply(c, line) for c, line in zip(self.calibrators_, score, strict=True)])
        return self._out_of_fold(score, cell)

    def _out_of_fold(self, of_fold: NDArray[np.float64], cell: Tensor | None) -> NDArray[np.float64]:
        """From ``[seeds · folds, n]`` to ``[seeds, n]``: the fold that held a cell out, or the average."""
        by_seed = of_fold.reshape(len(self.seeds_), self.design_.replicas, -1)
        if cell is None or self.design_.folds is None:
            return np.asarray(by_seed.mean(axis=1))
        per_seed = self.network_replicas() // len(self.seeds_)
        fold = self.design_.fold_of(self.slots_.of(cell.unsqueeze(0)))[::per_seed].cpu().numpy()
        return np.take_along_axis(by_seed, fold[:, None, :], axis=1)[:, 0, :]
