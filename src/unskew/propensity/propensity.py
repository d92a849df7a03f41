"""The interface of every propensity; each kind makes its own models.

Which replica never saw a pair follows from the pair's ids (:class:`unskew.training.Slots`), so it does not
matter where the pair comes from: the training log, a copy, a part of it, a file that is read again.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from unskew.base.columns import is_frame
from unskew.base.errors import NotFittedError
from unskew.base.estimator import Estimator, plain_params, require, require_choice, require_types
from unskew.base.notebook import Figures
from unskew.base.progress import SILENT, Progress
from unskew.base.seeds import as_seeds
from unskew.base.tensors import Tensor, nn, torch
from unskew.calibration import AutoCalibrator, Calibrator
from unskew.data import Encoders, Log, Rows, Schema, Space, require_log
from unskew.data.checks import require_both_clicks, require_unknown_propensities
from unskew.data.vocabulary import Vocabulary
from unskew.metrics import CalibrationSketch
from unskew.metrics.collapse import Collapsed, warn_of_collapse
from unskew.metrics.weights import Clip, resolve_clip
from unskew.propensity.crossfit import (
    DEFAULT_FOLDS,
    OUT,
    STOP,
    Codes,
    DealtCells,
    Floats,
    Folds,
    Negatives,
    ScoredCells,
    Scorer,
    SplitDesign,
    apply,
    collapsed_replicas,
    cross_calibrators,
    judging_sketches,
    resolve_ratio,
)
from unskew.propensity.diagnosis import average as average_figures
from unskew.propensity.diagnosis import propensity_figures
from unskew.propensity.segments import MOST_CELLS as MOST_SEGMENT_CELLS
from unskew.propensity.segments import Columns, SegmentReader, Segments
from unskew.training import IdHashes, Population
from unskew.training.population import FoldBy
from unskew.training.reader import Asked, Reader, Unseen
from unskew.training.samplers import is_large, share_of_unclicked

ANY_FOLD = -1
"""The fold of pairs that no fold was trained on."""


class Predicted(NamedTuple):
    """Propensities of rows from one pass over them, ``[seeds, n]`` each."""

    raw: Floats
    calibrated: Floats
    spread: Floats | None
    """Standard deviation of the raw propensity over members or passes; None for kinds that have neither."""

    def one(self, *, calibrated: bool) -> Floats:
        """Return the raw or the calibrated propensities."""
        return self.calibrated if calibrated else self.raw


class OwnScores(NamedTuple):
    """The scores of one replica for the rows that it was asked for, ``[n]`` each."""

    mean: Floats
    to_map: Floats
    """What the calibrator gets."""
    variance: Floats | None
    features: Columns | None
    """What it reads beside the scores, if anything."""


class HeldOutCells(NamedTuple):
    """Cells that replicas never saw, ``[replicas, n]``; weighted sums estimate those over D."""

    rows: Rows
    click: Tensor
    weight: Tensor
    """0 is padding."""
    cell: Tensor | None = None
    """Their numbers in the log, where its rows are the cells."""


@dataclass(kw_only=True)
class BasePropensity(Estimator, ABC):
    """p̃(u, i) = q(g(u, i)): g is a kind's model of P(click), q the calibrator, each fitted fold by fold.

    With ``crossfit=K`` every pair's propensity comes from a model and a calibrator that never saw it. Which
    of the K that is follows from a hash of the pair's ids and the seed, so that a copy or a part of the log,
    another order of its rows, a file that is read again and a propensity that was saved and loaded give the
    same numbers; all rows of a pair share a fold. With ``crossfit=None`` the propensities of training cells
    are in-sample: fine for a look, not for weights.

    A kind says how its replicas are trained (:meth:`_train`), and what their models are made of in a file
    (:meth:`_untrained`, :meth:`_scorer_of`); the rest is here.

    Parameters
    ----------
    calibrator
        Maps scores to honest probabilities, fitted on cells that trained nothing; None leaves the raw scores.
        :class:`unskew.Multicalibrated` reads the log's features too, whatever the models read.
    crossfit
        Number of folds; None for one 80/10/10 split into training, calibration and evaluation cells.
    fold_by
        What a fold holds together: pairs (``"cell"``), or all pairs of a user or an item.
    negatives
        None trains over all of D; k on the clicks and k unclicked cells per click, with the logit offset
        that undoes it (:func:`unskew.propensity.logit_offset`); ``"auto"`` samples where D is huge.
    fields
        Which of the log's features its models read: names, or with a minus in front (``"-price"``) those that
        they do not read; None for all, ``()`` for the ids alone.

    Attributes
    ----------
    scorer_
        The fitted models of all seeds and folds.
    calibrators_
        One per seed and fold.
    collapsed_
        Models that learned nothing, by seed and fold; not kept by a saved propensity.
    log_, cells_
        What it was fitted on; a loaded propensity has neither (``log_`` is None).
    ratio_
        Negatives per click; None where it was trained over all of D.
    """

    calibrator: Calibrator | None = field(default_factory=AutoCalibrator)
    crossfit: int | None = DEFAULT_FOLDS
    fold_by: FoldBy = "cell"
    negatives: Negatives = "auto"
    fields: tuple[str, ...] | None = None

    most_cells: ClassVar[int]
    """Above so many cells of D, ``negatives="auto"`` samples."""
    reads: ClassVar[str] = ""
    """The field of rows with what a kind reads of them beside ids and features."""
    read_off: ClassVar[tuple[str, ...]] = ("calibrator",)
    """Parameters that matter after training alone."""
    saves: ClassVar[bool] = True
    """Whether files can hold what it learned."""
    may_collapse: ClassVar[bool] = False
    """Whether a model that learned nothing is warned of: training may have failed."""
    makers: ClassVar[Mapping[str, Callable[..., Any]]] = {}
    """What makes parameters that have parameters of their own, from a name: for :func:`load_propensity`."""
    facts: ClassVar[Mapping[str, type]] = {}
    """Learned attributes that are no tensors and that a saved folder keeps, and their types."""

    @abstractmethod
    def _train(self, progress: Progress) -> Scorer:
        """Fit the models of all replicas on their training cells (``cells_``)."""

    @abstractmethod
    def _untrained(self, schema: Schema) -> nn.Module:
        """Return room for the tensors of the models of all replicas."""

    @abstractmethod
    def _scorer_of(self, trained: nn.Module) -> Scorer:
        """Return the models from such tensors, filled with those of a saved folder."""

    def fit(
        self,
        log: Log,
        *,
        seeds: int | Sequence[int] = 1,
        device: str = "auto",
        progress: Progress = SILENT,
    ) -> Self:
        """Fit one model per seed and fold (networks in one stacked loop), and calibrate them.

        Parameters
        ----------
        seeds
            How many independent propensities, or their seeds; each has folds and negatives of its own, and
            debiasers pair them with their own seeds.
        device
            Where networks are trained; all other models run on the CPU.
        """
        self._check()
        fitted = copy.copy(self)
        require_log(log)
        require_unknown_propensities(log.known_propensity)
        require_both_clicks(log.n_clicks, log.population_size, log.space)
        rows = self._read_alone(log)
        fitted.encoders_ = rows.encoders
        fitted._place(as_seeds(seeds), rows.users, rows.items, rows.space, device)
        fitted.use_log(rows)
        fitted.given_log_ = log
        fitted._place_segments()
        fitted.scorer_ = fitted._train(progress)
        fitted._calibrate()
        # Of a fit that fails nothing is kept.
        vars(self).update(vars(fitted))
        warn_of_collapse("propensity", self.collapsed_ if self.may_collapse else (), len(self.seeds_))
        return self

    def about_training(self) -> dict[str, Any]:
        """Return what a checkpoint knows its training by."""
        assert self.log_ is not None
        return {
            "trains": self.name,
            "seeds": list(self.seeds_),
            "parameters": plain_params(self),
            "log": self.log_.digest,
            "device": self.device_.type,
        }

    def reread(self, **params: Any) -> Self:
        """Return the same fitted models, calibrated (or, by kind, read off) in another way.

        Parameters
        ----------
        params
            Those that do not change training, such as ``calibrator``.
        """
        self._require_fitted("scorer_")
        if self.log_ is None:
            raise NotFittedError("a loaded propensity keeps no data to calibrate on", remedy="fit it again")
        other = copy.copy(self).set_params(**params)
        other._check()
        before, after = self.get_params(deep=False), other.get_params(deep=False)
        fixed = [name for name in after if name not in self.read_off and after[name] != before[name]]
        require(
            not fixed, f"{', '.join(fixed)} changes how it is trained", f"fit another {type(self).__name__}"
        )
        other._read_off(self)
        other._place_segments()
        other._calibrate()
        return other

    def use_log(self, log: Log) -> None:
        """Take a log as the one to be fitted, or (after loading) as the one that was: for :meth:`reread`."""
        self.log_: Log | None = log
        self.given_log_ = log
        self.cells_ = DealtCells(Population(log, self.device_), self.folds_)
        population = self.cells_.population
        self.ratio_ = resolve_ratio(self.negatives, population.size, self._most_cells())
        if self.ratio_ is not None and is_large(population):
            # There are no more unclicked rows than these.
            self.ratio_ = self.ratio_ if share_of_unclicked(population, self.ratio_) < 1.0 else None

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write a folder of plain files that :func:`unskew.load_propensity` reads."""
        from unskew.propensity.storage import save_propensity

        save_propensity(self, folder, overwrite=overwrite)

    @property
    def reads_features(self) -> bool:
        """Return whether its models read more than the two ids."""
        return False

    def _read_alone(self, log: Log) -> Log:
        """Return the log with what its models read."""
        if self.reads_features:
            return log.reading(self.fields)
        return log if log.features is None else log.with_features(None)

    def reader(self) -> Reader:
        """Return what turns logs, pairs and frames into the rows that the models (and the calibrator)
        read."""
        reads = (self.users_, self.items_, self.encoders_, self.device_)
        if self.segments_ is not None and self.segments_.row_names:
            return SegmentReader(*reads, self.segments_)
        return Reader(*reads)

    @property
    def segment_encoders_(self) -> Encoders | None:
        """Return how the features that the calibrator reads are coded; None where it reads none."""
        return None if self.segments_ is None else self.segments_.encoders

    def predict(self, log: Any, *, calibrated: bool = True, average: bool = False) -> Floats:
        """Return propensities of the rows of a log ``[n]``, averaged over seeds; out of fold where
        cross-fitted.

        Parameters
        ----------
        log
            A log, or a data frame whose columns of ids are called as in training
            (:meth:`predict_frame_each` takes others).
        average
            The mean over folds instead of the one fold that never saw the pair. It is a little less noisy
            for pairs that came after training, and in-sample for those that were trained on: not for weights.
        """
        return np.asarray(self.predict_each(log, calibrated=calibrated, average=average).mean(axis=0))

    def weights(self, log: Any, *, p_min: Clip = "auto") -> Floats:
        """Return the weight 1/max(p, p_min) of each clicked row of a log, and 0 where there was no click.

        Rows that the propensity was fitted on get propensities of folds that they did not train.

        Parameters
        ----------
        p_min
            The clip; ``"auto"`` is the clip of least error (:func:`unskew.metrics.least_error_clip`).
        """
        p = self.predict(log)
        clicked = np.asarray(log.click) == 1
        weight = np.zeros(len(p))
        weight[clicked] = 1.0 / np.maximum(p[clicked], resolve_clip(p_min, propensity=p[clicked]))
        return weight

    def predict_each(self, log: Any, *, calibrated: bool = True, average: bool = False) -> Floats:
        """Return propensities ``[seeds, n]`` of a log's rows, a line per seed; all else as in
        :meth:`predict`."""
        if is_frame(log):
            return self.predict_frame_each(log, calibrated=calibrated, average=average)
        return self.predict_both_each(log, average=average).one(calibrated=calibrated)

    def predict_both_each(self, log: Log, *, average: bool = False) -> Predicted:
        """Return raw and calibrated propensities of a log's rows, and their spread, from one pass."""
        self._require_fitted("scorer_")
        require_log(log, "what to predict", "give a Log, such as data.test, or ids to predict_pairs_each")
        parts = [self._predict(self._rows_of(block), average) for block in log.blocks()]
        if len(parts) == 1:
            return parts[0]
        raw, calibrated = (np.concatenate([part[kind] for part in parts], axis=1) for kind in (0, 1))
        spreads = [part.spread for part in parts if part.spread is not None]
        return Predicted(raw, calibrated, np.concatenate(spreads, axis=1) if spreads else None)

    def predict_pairs_each(
        self,
        user: Any,
        item: Any,
        *,
        unseen: Unseen | None = None,
        calibrated: bool = True,
        average: bool = False,
    ) -> Floats:
        """Return propensities ``[seeds, n]`` of pairs of ids.

        Parameters
        ----------
        unseen
            What becomes of ids that were not there in training: ``"error"``, ``"nan"``, ``"other"`` or
            ``"average"``, as in :meth:`unskew.Debiaser.predict_each`.
        """
        self._require_fitted("scorer_")
        asked = self.reader().of_pairs(user, item, unseen)
        return self._predicted(asked, unseen, calibrated, average)

    def predict_frame_each(
        self,
        frame: Any,
        *,
        user: str | None = None,
        item: str | None = None,
        unseen: Unseen | None = None,
        calibrated: bool = True,
        average: bool = False,
    ) -> Floats:
        """Return propensities ``[seeds, n]`` of the rows of a data frame, with its columns of features.

        Parameters
        ----------
        user, item
            Columns of ids; by default those of training. Other columns are not looked at.
        unseen
            As in :meth:`predict_pairs_each`.
        """
        self._require_fitted("scorer_")
        asked = self.reader().of_frame(frame, user, item, unseen)
        return self._predicted(asked, unseen, calibrated, average)

    def predict_asked_each(self, asked: Asked, unseen: Unseen | None = None) -> Floats:
        """Return calibrated propensities ``[seeds, n]`` of rows that a reader with the same codes has looked
        up."""
        self._require_fitted("scorer_")
        return self._predicted(asked, unseen, True, False)

    def _predicted(self, asked: Asked, unseen: Unseen | None, calibrated: bool, average: bool) -> Floats:
        def predict(rows: Rows) -> Floats:
            return self._predict(rows, average).one(calibrated=calibrated)

        reader = self.reader()
        return reader.predictions(asked, reader.policy(unseen), predict)

    def predict_matrix_each(self, *, calibrated: bool = True) -> Floats:
        """Return propensities ``[seeds, users, items]`` of all of D, for small matrices; out of fold."""
        return self.predict_both_matrix_each().one(calibrated=calibrated)

    def predict_both_matrix_each(self) -> Predicted:
        """Return raw and calibrated propensities ``[seeds, users, items]`` of all of D, and their spread."""
        self._require_fitted("scorer_")
        require(
            self.space_ == "matrix",
            "only the space 'matrix' has a propensity for every pair",
            "ask for those of the log's rows with predict(log)",
        )
        shape = (len(self.seeds_), len(self.users_), len(self.items_))
        user, item = np.divmod(np.arange(shape[1] * shape[2]), shape[2])
        rows = self.reader().of_codes(user, item)
        return Predicted(*(each if each is None else each.reshape(shape) for each in self._predict(rows)))  # type: ignore[arg-type]

    def fold_of_pairs_each(self, user: Any, item: Any) -> Codes:
        """Return the fold ``[seeds, n]`` of pairs of ids: the number of the model that never saw them; 0
        without cross-fitting."""
        self._require_fitted("scorer_")
        ids = Reader(self.users_, self.items_, None, self.device_)
        return self.folds_.of(ids.of_pairs(user, item, "error").rows)

    def diagnose(
        self, log: Log | None = None, *, p_min: Clip = "auto", predicted: Predicted | None = None
    ) -> Figures:
        """Return figures of the raw and the calibrated propensities on held-out cells, means over seeds.

        Parameters
        ----------
        log
            Whose clicked rows' weights to check; by default the training log's.
        p_min
            The clip of the weights; ``"auto"`` is the one with the least error.
        predicted
            What :meth:`predict_both_each` gave for that log, so that it is not scored again.

        Returns
        -------
        dict
            ``{"raw": {"ece", "ece_floor", "wce", "nll", "brier", "auc", …}, "calibrated": {…}}``;
            ``"collapsed"`` is the number of seeds with a model (of a fold) that learned nothing.
        """
        raw_and_calibrated = self._sketches()
        # What is kept to train on may lack what the calibrator reads.
        rows = log
        if rows is None:
            rows = self.log_ if self.segments_ is None else self.given_log_
        assert rows is not None
        if predicted is None:
            on_clicks = self.predict_both_each(rows.take(rows.clicked))[:2]
        else:
            on_clicks = predicted.raw[:, rows.clicked], predicted.calibrated[:, rows.clicked]
        return Figures(
            {
                kind: average_figures(
                    [
                        propensity_figures(sketch, p, p_min=p_min, population_size=rows.population_size)
                        for sketch, p in zip(sketches, lines, strict=True)
                    ]
                )
                | {"collapsed": len({each.seed for each in self.collapsed_})}
                for kind, sketches, lines in zip(
                    ("raw", "calibrated"), raw_and_calibrated, on_clicks, strict=True
                )
            }
        )

    def held_out_sketches(self, *, calibrated: bool) -> list[CalibrationSketch]:
        """Return one sketch per seed of held-out scores against clicks: what :meth:`diagnose` measures.

        With cross-fitting these are all cells of D, each scored out of fold; otherwise the 10 %
        evaluation cells.
        """
        return self._sketches()[int(calibrated)]

    def _sketches(self) -> tuple[list[CalibrationSketch], list[CalibrationSketch]]:
        self._require_fitted("scorer_")
        if self.sketches_ is None:
            raise NotFittedError("a loaded propensity keeps no data to diagnose", remedy="fit it again")
        return self.sketches_

    def _check(self) -> None:
        """Raise a ParameterError for a parameter out of range."""
        require_types(self, choices=False)
        require_choice("fold_by", self.fold_by, ("cell", "user", "item"))
        require(
            self.fields is None or self.reads_features,
            f"fields are chosen, and this {type(self).__name__} reads no features of the log",
            "use one that does, such as Propensity(learner=DCN()), or leave fields out",
        )
        resolve_ratio(self.negatives, 1, self.most_cells)
        self._design()

    def _design(self) -> SplitDesign:
        """Return which cells have which role: nothing is stopped early."""
        return SplitDesign.of(self.crossfit, stops=False)

    def _most_cells(self) -> int:
        """Return the number of cells above which ``negatives="auto"`` samples."""
        return self.most_cells

    def _device(self, device: str) -> torch.device:
        """Return where the models are."""
        return torch.device("cpu")

    def _place(
        self, seeds: tuple[int, ...], users: Vocabulary, items: Vocabulary, space: Space, device: str
    ) -> None:
        """Set what there is before any model: seeds, ids and folds."""
        self.seeds_, self.users_, self.items_, self.space_ = seeds, users, items, space
        self.device_, self.design_ = self._device(device), self._design()
        self.folds_ = Folds(self.design_, seeds, self.fold_by, IdHashes.of(users, items, self.device_))
        self.log_ = None
        self.encoders_: Encoders | None
        self.segments_: Segments | None = None
        self.sketches_: tuple[list[CalibrationSketch], list[CalibrationSketch]] | None = None
        self.collapsed_: tuple[Collapsed, ...] = ()
        self.scorer_: Scorer

    @property
    def replicas_(self) -> int:
        """Return the number of models: seeds × folds."""
        return len(self.seeds_) * self.design_.replicas

    def _place_segments(self) -> None:
        """Set what the calibrator reads beside the scores; raise where the log does not have it."""
        reads = self.calibrator is not None and self.calibrator.reads_features
        self.segments_ = None
        if reads:
            assert self.calibrator is not None
            self.segments_ = Segments.of_log(self.given_log_, self.calibrator)

    def _calibrate(self) -> None:
        """Fit the calibrators, and sketch the cells they are judged on, raw and calibrated."""
        folds, crossfitted = self.design_.replicas, self.design_.folds is not None
        fits_on_out = crossfitted or self.calibrator is None
        judged = self._judged(OUT)
        raw = [each.sketch(to_map=False) for each in judged]
        cells = judged if fits_on_out else self._judged(STOP)
        parts = cells if self.segments_ is not None else [each.sketch(to_map=True) for each in cells]
        self.calibrators_ = cross_calibrators(self.calibrator, parts, folds, crossfitted=crossfitted)
        self.sketches_ = judging_sketches(judged, self.calibrators_, folds)
        self.collapsed_ = collapsed_replicas(raw, self.seeds_, folds)

    def _scored(
        self, rows: Rows, group: Sequence[int], asked: NDArray[np.bool_]
    ) -> Iterator[tuple[int, NDArray[np.intp], OwnScores]]:
        """Score, for each replica of a group, its rows ``asked [group, n]`` of rows ``[1, n]``, and their
        scores.

        Every replica scores its own rows alone: of K folds a K-th.
        """
        places = [np.flatnonzero(line) for line in asked]
        width = max(len(at) for at in places)
        if not width:
            return
        some = rows
        if not asked.all():
            filled = [np.resize(at, width) if len(at) else np.zeros(width, np.intp) for at in places]
            at = torch.as_tensor(np.stack(filled), device=rows.device)
            some = rows.map(lambda values: values[0][at])
        scores = self.scorer_.score(some, group)
        to_map = self._to_map(scores.mean, some, group)
        for line, (replica, own) in enumerate(zip(group, places, strict=True)):
            own_scores = (line, slice(0, len(own)))
            variance = None if scores.variance is None else scores.variance[own_scores]
            features = None if self.segments_ is None else self.segments_.columns(some, line, len(own))
            yield replica, own, OwnScores(scores.mean[own_scores], to_map[own_scores], variance, features)

    def _judged(self, role: int) -> list[ScoredCells]:
        """Return the cells that have a role for each replica, scored; padding removed."""
        scored = []
        for group in self.scorer_.groups():
            cells = self._held_out(role, group)
            raw = self.scorer_.score(cells.rows, group).mean
            to_map = self._to_map(raw, cells.rows, group)
            outcome, weight = (each.double().cpu().numpy() for each in (cells.click, cells.weight))
            for line, (r, m, o, w) in enumerate(zip(raw, to_map, outcome, weight, strict=True)):
                features = None
                if self.segments_ is not None:
                    rows = self.segments_.of_cells(cells.rows, cells.cell)
                    columns = self.segments_.columns(rows, line, len(w))
                    features = {name: column[w > 0] for name, column in columns.items()}
                scored.append(ScoredCells(r[w > 0], m[w > 0], o[w > 0], w[w > 0], features))
        return scored

    def _held_out(self, role: int, replicas: Sequence[int]) -> HeldOutCells:
        """Return the cells that have a role for each of some replicas."""
        population = self.cells_.population
        cells, weight = self._held_out_cells(role, replicas)
        rows = population.rows(cells)
        if self.reads:
            assert self.log_ is not None
            rows = self._joined(rows, torch.as_tensor(self._further(self.log_))[cells])
        return HeldOutCells(rows, population.click(cells), weight, cells)

    def _held_out_cells(self, role: int, replicas: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return numbers and weights ``[replicas, n]`` of such cells."""
        most = self._most_held_out()
        return self.cells_.held_out(
            role, replicas, most if self.segments_ is None else min(most, MOST_SEGMENT_CELLS)
        )

    def _most_held_out(self) -> int:
        """Return how many held-out cells are scored per replica; beyond it the unclicked are thinned and
        weighted."""
        return 1 << 22

    def _to_map(self, raw: Floats, rows: Rows, replicas: Sequence[int]) -> Floats:
        """Return the scores that calibrators are fitted on and map."""
        return raw

    def _read_off(self, trained: Self) -> None:
        """Take the models of a trained propensity; an error where they do not serve these parameters."""

    def predict_rows(self, rows: Rows, *, folds_of: Rows) -> Predicted:
        """Predict rows ``[1, n]`` as :meth:`reader` gives them, by the folds of others, from which they were
        made (by exchanging values between rows, for example)."""
        self._require_fitted("scorer_")
        return self._predict(rows, folds_of=folds_of)

    def _predict(self, rows: Rows, average: bool = False, *, folds_of: Rows | None = None) -> Predicted:
        """Predict rows ``[1, n]`` by the fold that never saw a pair, or by the mean over folds."""
        folds, n = self.design_.replicas, rows.shape[1]
        pairs = rows if folds_of is None else folds_of
        fold = None if average or self.design_.folds is None else self.folds_.of(pairs)
        if fold is not None:
            # Whom no model saw, all may judge.
            fold[:, self._unknown(pairs)] = ANY_FOLD
        raw, calibrated, variance = (np.zeros((len(self.seeds_), n)) for _ in range(3))
        spreads = False
        for group in self.scorer_.groups():
            asked = np.ones((len(group), n), dtype=bool)
            if fold is not None:
                mine_of = [fold[replica // folds] for replica in group]
                asked = np.stack(
                    [
                        (of == replica % folds) | (of == ANY_FOLD)
                        for of, replica in zip(mine_of, group, strict=True)
                    ]
                )
            for replica, at, scores in self._scored(rows, group, asked):
                seed = replica // folds
                raw[seed, at] += scores.mean
                calibrated[seed, at] += apply(self.calibrators_[replica], scores.to_map, scores.features)
                if scores.variance is not None:
                    spreads = True
                    variance[seed, at] += scores.variance
        by = folds if fold is None else np.where(fold == ANY_FOLD, folds, 1)
        raw, calibrated, variance = (each / by for each in (raw, calibrated, variance))
        return Predicted(raw, calibrated, np.sqrt(variance) if spreads else None)

    def _rows_of(self, log: Log) -> Rows:
        """Return the rows of a log, by their ids and features."""
        rows, further = self.reader().of_log(log).rows, self._further(log)
        return rows if further is None else self._joined(rows, torch.as_tensor(further)[None])

    def _joined(self, rows: Rows, further: Tensor) -> Rows:
        """Return rows with the field ``reads``."""
        return Rows(**{name: rows[name] for name in rows}, **{self.reads: further})

    def _further(self, log: Log) -> Floats | None:
        """Return what a kind reads of rows beside ids and features, its field ``reads``."""
        return None

    def _unknown(self, rows: Rows) -> NDArray[np.bool_]:
        """Return which rows ``[1, n]`` are of users or items that were not there in training."""
        unknown = (rows.user[0] == len(self.users_)) | (rows.item[0] == len(self.items_))
        return np.asarray(unknown.cpu().numpy())
