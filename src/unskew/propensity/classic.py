"""What propensities without a network share: fitting by fold, calibration, prediction, figures.

A model itself is one method of a subclass, ``_fit_replica``; which cells it sees is :mod:`.cells`.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import expit, logit

from unskew.calibration import Calibrator, Platt
from unskew.estimator import Estimator, require
from unskew.io.columns import require_same_length
from unskew.io.vocabulary import UNSEEN_CODE, Unseen
from unskew.log import Log, require_log
from unskew.log.shown import require_unknown_propensities
from unskew.metrics import CalibrationSketch
from unskew.metrics.clip import Clip
from unskew.progress import SILENT, Progress
from unskew.propensity.cells import BLOCK, Floats, FoldedCells, HeldOut, Pairs, Replica, Scorer
from unskew.propensity.crossfitting import Scored, apply, cross_calibrators, held_out_sketches
from unskew.propensity.design import DEFAULT_FOLDS, OUT, STOP
from unskew.propensity.diagnosis import average, propensity_figures
from unskew.propensity.negatives import Negatives, resolve_ratio
from unskew.seeds import as_seeds
from unskew.training.population import FoldBy

MOST_CELLS = 5_000_000
"""Above so many cells of D, ``negatives="auto"`` samples: a fit holds its rows in memory."""

SMALLEST_SCORE = 1e-12
"""Scores are read no closer than this to 0 and 1 where an offset is added to their logit."""


@dataclass(kw_only=True)
class ClassicPropensity(Estimator, ABC):
    """p̃(u, i) = q(g(u, i)) with g any model of P(click) that is fitted at once; q is the calibrator.

    It has the face of :class:`unskew.Propensity` (``fit``, ``predict``, ``diagnose``, …), so every debiaser
    takes it. With ``crossfit=K`` a pair's propensity comes from a model and a calibrator that never saw it;
    which of the K that is follows from a hash of the pair's ids and the seed, wherever the pair comes from.

    Parameters
    ----------
    calibrator
        Maps scores to honest probabilities; None leaves the raw scores.
    crossfit
        Number of folds; None for one 80/10/10 split into training, calibration and evaluation cells, where
        propensities of training cells are in-sample: for a look, not for weights.
    fold_by
        What a fold holds together: pairs (``"cell"``), or all pairs of a user or an item.
    negatives
        None fits on all training cells; k on the clicks and k unclicked cells per click, with
        log w = log(k·|O| / (|D| − |O|)) added to the logit; ``"auto"`` samples above :data:`MOST_CELLS`.
    """

    population: ClassVar[str] = "D"
    """Sampled negatives are always corrected, so scores are propensities over all of D."""

    calibrator: Calibrator | None = field(default_factory=Platt)
    crossfit: int | None = DEFAULT_FOLDS
    fold_by: FoldBy = "cell"
    negatives: Negatives = "auto"

    @abstractmethod
    def _fit_replica(self, replica: Replica) -> Scorer:
        """Fit the model on the cells that a replica trains on."""

    def fit(
        self,
        log: Log,
        *,
        seeds: int | Sequence[int] = 1,
        device: str = "auto",
        progress: Progress = SILENT,
    ) -> Self:
        """Fit one model per seed (times one per fold), and calibrate them.

        Parameters
        ----------
        seeds
            How many repetitions, or their seeds; each has its own folds and negatives.
        device
            As :meth:`unskew.Propensity.fit` has it; these models run on the CPU.
        """
        self._check()
        require_log(log)
        require_unknown_propensities(log.known_propensity)
        self.seeds_ = as_seeds(seeds)
        self.users_, self.items_, self.space_ = log.users, log.items, log.space
        self.log_ = log
        self.cells_ = FoldedCells(log, self.seeds_, crossfit=self.crossfit, fold_by=self.fold_by)
        self.ratio_ = resolve_ratio(self.negatives, self.cells_.size, most_cells=MOST_CELLS)
        self._use(log)
        self.offsets_: list[float] = []
        self.scorers_: list[Scorer] = []
        replicas = list(self.cells_.replicas(self.name))
        tracker = progress.task(self.name, len(replicas))
        for replica in replicas:
            self.offsets_.append(self.cells_.offset(replica, self.ratio_))
            self.scorers_.append(self._fit_replica(replica))
            tracker.advance()
        tracker.finish()
        self._calibrate()
        return self

    def reread(self, **params: Any) -> Self:
        """The same fitted models, calibrated in another way: ``reread(calibrator=…)``."""
        self._require_fitted("calibrators_")
        fixed = [name for name in params if name != "calibrator"]
        require(not fixed, f"{', '.join(fixed)} changes how the models are fitted", "fit another propensity")
        other = copy.copy(self).set_params(**params)
        other._calibrate()
        return other

    def _calibrate(self) -> None:
        """Fit the calibrators, and sketch the cells they are judged on, raw and calibrated."""
        numbers, folds = range(len(self.scorers_)), self.cells_.design.replicas
        out = [self._scored(number, OUT) for number in numbers]
        stop = [] if self.crossfit else [self._scored(number, STOP) for number in numbers]
        self.calibrators_ = cross_calibrators(
            self.calibrator, stop, out, folds, crossfitted=self.crossfit is not None
        )
        self._sketches = held_out_sketches(out, self.calibrators_, folds)

    def predict(self, log: Log, *, calibrated: bool = True, average: bool = False) -> Floats:
        """Propensities of the rows of a log ``[n]``, averaged over seeds; out of fold where cross-fitted.

        Parameters
        ----------
        average
            The mean over folds instead of the one fold that never saw the pair: in-sample for pairs that
            were trained on, so not for weights.
        """
        return np.asarray(self.predict_each(log, calibrated=calibrated, average=average).mean(axis=0))

    def predict_each(self, log: Log, *, calibrated: bool = True, average: bool = False) -> Floats:
        """Propensities ``[seeds, n]`` of a log's rows, a line per seed; ``average`` as in :meth:`predict`."""
        self._require_fitted("calibrators_")
        require_log(log, "what to predict", "give a Log, such as data.test, or ids to predict_pairs_each")
        user, item = self.users_.recode(log.user, log.users), self.items_.recode(log.item, log.items)
        conversion = None if log.conversion is None else log.conversion.astype(np.float64)
        rows = Pairs(user.astype(np.int64), item.astype(np.int64), conversion)
        return self._predict(rows, calibrated, average)

    def predict_pairs_each(
        self,
        user: Any,
        item: Any,
        *,
        unseen: Unseen = "error",
        calibrated: bool = True,
        average: bool = False,
    ) -> Floats:
        """Propensities ``[seeds, n]`` of pairs of ids; unknown ids are an error, or NaN."""
        self._require_fitted("calibrators_")
        user_code = self.users_.encode(user, unseen=unseen).astype(np.int64)
        item_code = self.items_.encode(item, unseen=unseen).astype(np.int64)
        require_same_length(len(user_code), len(item_code), self.items_.name)
        known = (user_code != UNSEEN_CODE) & (item_code != UNSEEN_CODE)
        result = np.full((len(self.seeds_), len(known)), np.nan)
        result[:, known] = self._predict(Pairs(user_code[known], item_code[known]), calibrated, average)
        return result

    def predict_matrix_each(self, *, calibrated: bool = True) -> Floats:
        """Propensities ``[seeds, users, items]`` of all of D, for small matrices; out of fold."""
        self._require_fitted("calibrators_")
        require(
            self.space_ == "matrix",
            "only the space 'matrix' has a propensity for every pair",
            "ask for those of the log's rows with predict(log)",
        )
        shape = (len(self.seeds_), len(self.users_), len(self.items_))
        user, item = np.divmod(np.arange(shape[1] * shape[2]), shape[2])
        return self._predict(Pairs(user, item), calibrated).reshape(shape)

    def diagnose(self, log: Log | None = None, *, p_min: Clip = "auto") -> dict[str, Any]:
        """Figures of the raw and the calibrated propensities on held-out cells, means over seeds.

        As :meth:`unskew.Propensity.diagnose`: ``{"raw": {"ece", "wce", "nll", …}, "calibrated": {…}}``.
        """
        self._require_fitted("calibrators_")
        rows = self.log_ if log is None else log
        return {
            kind: average(
                [
                    propensity_figures(
                        sketch, p[rows.clicked], p_min=p_min, population_size=rows.population_size
                    )
                    for sketch, p in zip(
                        self.held_out_sketches(calibrated=calibrated),
                        self.predict_each(rows, calibrated=calibrated),
                        strict=True,
                    )
                ]
            )
            for kind, calibrated in (("raw", False), ("calibrated", True))
        }

    def held_out_sketches(self, *, calibrated: bool) -> list[CalibrationSketch]:
        """One sketch per seed of held-out scores against clicks: what :meth:`diagnose` measures.

        With cross-fitting these are all cells of D, each scored out of fold; otherwise the 10 %
        evaluation cells.
        """
        self._require_fitted("calibrators_")
        return self._sketches[1 if calibrated else 0]

    def _check(self) -> None:
        """Raise a ParameterError for a parameter out of range."""
        require(
            self.fold_by in ("cell", "user", "item"),
            f"fold_by must be 'cell', 'user' or 'item', not {self.fold_by!r}",
            "give one of these",
        )

    def _use(self, log: Log) -> None:
        """What a model wants to know of a log before it is fitted on its cells; by default nothing."""

    def _held_out(self, number: int, role: int) -> HeldOut:
        """Cells that have a role for a replica."""
        return self.cells_.held_out(number, role)

    def _scored(self, number: int, role: int) -> Scored:
        cells = self._held_out(number, role)
        return self._score(number, cells.pairs), cells.click, cells.weight

    def _score(self, number: int, rows: Pairs) -> Floats:
        """Raw propensities over D from one replica's model, in blocks."""
        score, offset = np.empty(len(rows.user)), self.offsets_[number]
        for start in range(0, len(score), BLOCK):
            block = slice(start, start + BLOCK)
            p = self.scorers_[number](rows.take(block))
            score[block] = (
                expit(logit(np.clip(p, SMALLEST_SCORE, 1 - SMALLEST_SCORE)) + offset) if offset else p
            )
        return score

    def _mapped(self, number: int, rows: Pairs, calibrated: bool) -> Floats:
        score = self._score(number, rows)
        return apply(self.calibrators_[number], score) if calibrated else score

    def _predict(self, rows: Pairs, calibrated: bool, average: bool = False) -> Floats:
        """``[seeds, n]``: by the fold that never saw a pair, or the mean over folds."""
        replicas = self.cells_.design.replicas
        result = np.zeros((len(self.seeds_), len(rows.user)))
        for seed, line in enumerate(result):
            numbers = range(seed * replicas, (seed + 1) * replicas)
            if average or self.crossfit is None:
                line += np.mean([self._mapped(number, rows, calibrated) for number in numbers], axis=0)
                continue
            fold = self.cells_.fold(seed, rows)
            for replica, number in enumerate(numbers):
                mine = np.flatnonzero(fold == replica)
                line[mine] = self._mapped(number, rows.take(mine), calibrated)
        return result
