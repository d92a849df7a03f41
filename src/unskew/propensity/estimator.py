"""The propensity estimator: a backbone over D, a calibrator, and a split that keeps them honest."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from unskew.errors import NotFittedError
from unskew.estimator import require
from unskew.log import Log, require_log
from unskew.log.shown import require_unknown_propensities
from unskew.metrics import CalibrationSketch
from unskew.metrics.clip import Clip
from unskew.metrics.collapse import warn_of_collapse
from unskew.progress import SILENT, Progress
from unskew.propensity.crossfitting import Scored, collapsed_networks, cross_calibrators, held_out_sketches
from unskew.propensity.design import OUT, STOP
from unskew.propensity.diagnosis import average, propensity_figures
from unskew.propensity.fitted import FittedPropensity
from unskew.propensity.fitting import Fitting
from unskew.propensity.negatives import logit_offset, resolve_ratio
from unskew.seeds import as_seeds
from unskew.training import Population, resolve_device

_READ_OFF = ("calibrator", "uncertainty", "calibrator_dropout", "calibrate_on", "judge_on")
"""Parameters that matter after training alone."""
_NO_DATA = "a loaded propensity keeps no data to diagnose"


@dataclass(kw_only=True)
class Propensity(FittedPropensity):
    """p̃(u, i) = q(σ(g_φ(u, i))): how likely each pair of the population was to be clicked.

    g_φ is ``backbone``, trained by L_g = −mean_D [o·log p̂ + (1 − o)·log(1 − p̂)] over the cells of D; q is
    ``calibrator``, fitted on cells that trained nothing. With ``crossfit=K`` every pair's propensity comes
    from a model and a calibrator that never saw it. Which of the K that is follows from a hash of the pair's
    ids and the seed, so that a copy or a part of the log, another order of its rows, a file that is read
    again and a propensity that was saved and loaded give the same numbers; all rows of a pair share a fold.
    With ``crossfit=None`` the propensities of training cells are in-sample: fine for a look, not for weights.

    Parameters
    ----------
    backbone
        The network.
    calibrator
        Maps scores to honest probabilities; None leaves the raw scores.
    uncertainty
        :class:`MCDropout`, :class:`DeepEnsemble`, :class:`BatchEnsembleMembers` or :class:`DualFocal`; its
        mean is the score that is calibrated, its spread is :meth:`predict_spread_each`.
    crossfit
        Number of folds; None for one 80/10/10 split into training, calibration and evaluation cells.
    fold_by
        What a fold holds together: pairs (``"cell"``), or all pairs of a user or an item.
    negatives
        None trains over all of D; k draws k unclicked cells per click and corrects by the logit offset
        log w (:func:`unskew.propensity.negatives.logit_offset`); ``"auto"`` samples only where D is huge.
    resample_negatives
        New negatives in each epoch.
    population
        ``"D"`` corrects the offset of sampled negatives; ``"sampled"`` leaves it, as published code does:
        such scores are no propensities over D and full-space methods refuse them.
    calibrate_on
        ``"held-out"`` cells; or ``"training"``, as published code does: the training clicks and as many
        fresh negatives per click.
    judge_on
        Where :meth:`diagnose` measures, likewise; None is where the calibrator is fitted. Only with both on
        ``"training"`` and without early stopping is nothing held out.
    spare_tenth
        Where nothing is held out: trains on nine tenths of the cells and counts the last tenth to the
        training cells all the same, as published code does.
    calibrator_dropout
        Leaves dropout on in the scores that the calibrator is fitted on and maps, as published code does:
        its output then has noise in it. Raw scores have none.
    label_smoothing
        Moves training targets so far toward ½ (0 in the paper's text, 0.1 in part of its code).
    epochs, batch_size, learning_rate, weight_decay, patience
        Training; early stopping is on the negative log-likelihood of held-out cells at the true base rate.
        ``patience=None`` trains all epochs, as published code does, and overfits. Weight decay is 0 as in the
        published code: at the paper's 10⁻⁴ NeuMF stays on a plateau of popularity for some 20 epochs of Coat.
    """

    name: ClassVar[str] = "propensity"

    def fit(
        self,
        log: Log,
        *,
        seeds: int | Sequence[int] = 1,
        device: str = "auto",
        progress: Progress = SILENT,
    ) -> Propensity:
        """Train one propensity per seed (times one per fold), all in one stacked loop, and calibrate them.

        Parameters
        ----------
        seeds
            How many independent propensities, or their seeds; debiasers pair them with their own seeds.
        """
        self._check()
        require_log(log)
        require_unknown_propensities(log.known_propensity)
        # Of a fit that fails nothing is kept.
        vars(self).update(
            vars(copy.copy(self)._fitted(log, as_seeds(seeds), resolve_device(device), progress))
        )
        warn_of_collapse("propensity", self.collapsed_, len(self.seeds_))
        return self

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write a folder of plain files that :func:`unskew.load_propensity` reads."""
        from unskew.propensity.storage import save_propensity

        save_propensity(self, folder, overwrite=overwrite)

    def _fitted(
        self, log: Log, seeds: tuple[int, ...], device: torch.device, progress: Progress
    ) -> Propensity:
        self.seeds_, self.device_ = seeds, device
        self.design_ = self.split_design()
        self.users_, self.items_, self.space_ = log.users, log.items, log.space
        self.use_log(log)
        self.offset_ = (
            logit_offset(self.ratio_, self.population_.n_clicks, self.population_.size)
            if self.ratio_ is not None and self.population == "D"
            else 0.0
        )
        fitting = Fitting(self)
        self.network_, self.history_ = fitting.train(progress)
        self._calibrate(fitting)
        return self

    def use_log(self, log: Log) -> None:
        """Take a log as the one to be fitted, or (after loading) as the one that was: for :meth:`reread`."""
        self.log_ = log
        self.population_ = Population(log, self.device_)
        self.ratio_ = resolve_ratio(self.negatives, self.population_.size)

    def reread(self, **params: Any) -> Propensity:
        """The same trained networks, read off and calibrated in another way.

        Parameters
        ----------
        params
            Those that do not change training: ``calibrator``, ``calibrator_dropout``, ``judge_on`` as far as
            cells were held out for it, and an ``uncertainty`` that works on one trained network (MC dropout).
        """
        self._require_fitted("network_")
        other = copy.copy(self).set_params(**params)
        other._check()
        trained, wanted = self.get_params(deep=False), other.get_params(deep=False)
        fixed = [name for name in wanted if name not in _READ_OFF and wanted[name] != trained[name]]
        same_network = self.method().same_training(other.method()) and other.holds_out() == self.holds_out()
        require(
            not fixed and same_network,
            f"{', '.join(fixed) or 'this uncertainty or hold-out'} changes how the networks are trained",
            "fit another Propensity",
        )
        other.method().check_network(self.network_)
        other._calibrate(Fitting(other))
        return other

    def _calibrate(self, fitting: Fitting) -> None:
        """Fit the calibrators, and sketch the cells they are judged on, raw and calibrated."""
        kinds = {self.calibrate_on, self.judged_on()}
        training = fitting.training_cells() if "training" in kinds else None
        judged = training if self.judged_on() == "training" else fitting.held_out(OUT)
        crossfitted = self.design_.folds is not None
        fit_on = (
            training if self.calibrate_on == "training" else judged if crossfitted else fitting.held_out(STOP)
        )
        assert judged is not None
        assert fit_on is not None
        noise = self.calibrator_noise()
        raw = self._scored(*judged)
        self.collapsed_ = collapsed_networks(raw, self.seeds_, self.design_.replicas)
        scored = self._scored(*judged, noise) if noise else raw
        replicas = self.design_.replicas
        self.calibrators_ = cross_calibrators(
            self.calibrator,
            scored if fit_on is judged else self._scored(*fit_on, noise),
            scored,
            replicas,
            crossfitted=crossfitted,
        )
        self._sketches_raw, self._sketches_calibrated = (
            held_out_sketches(each, self.calibrators_, replicas)[kind]
            for kind, each in enumerate((raw, scored))
        )

    def diagnose(self, log: Log | None = None, *, p_min: Clip = "auto") -> dict[str, Any]:
        """Figures of the raw and the calibrated propensities on held-out cells, means over seeds.

        Parameters
        ----------
        log
            Whose clicked rows' weights to check; by default the training log's.
        p_min
            The clip of the weights; ``"auto"`` is the one with the least error.

        Returns
        -------
        dict
            ``{"raw": {"ece", "ece_floor", "wce", "nll", "brier", "auc", …}, "calibrated": {…}}``;
            ``"collapsed"`` is the number of seeds with a network (of a fold) that learned nothing.
        """
        self._require_fitted("network_")
        log = log or self.log_
        if log is None:
            raise NotFittedError(_NO_DATA, remedy="fit it again")
        clicks = log.take(log.clicked)
        return {
            kind: average(
                [
                    propensity_figures(sketch, p, p_min=p_min, population_size=log.population_size)
                    for sketch, p in zip(
                        self.held_out_sketches(calibrated=calibrated),
                        self.predict_each(clicks, calibrated=calibrated),
                        strict=True,
                    )
                ]
            )
            | {"collapsed": len({each.seed for each in self.collapsed_})}
            for kind, calibrated in (("raw", False), ("calibrated", True))
        }

    def held_out_sketches(self, *, calibrated: bool) -> list[CalibrationSketch]:
        """One sketch per seed of held-out scores against clicks: what :meth:`diagnose` measures.

        With cross-fitting these are all cells of D, each scored out of fold; otherwise the 10 %
        evaluation cells.
        """
        self._require_fitted("network_")
        if self.log_ is None:
            raise NotFittedError(_NO_DATA, remedy="fit it again")
        return self._sketches_calibrated if calibrated else self._sketches_raw

    def _scored(self, cells: Tensor, weight: Tensor, noisy: bool = False) -> list[Scored]:
        """Score, outcome and weight of the held-out cells of each fold of each seed, padding removed."""
        score, _ = self._moments(self.population_.rows(cells), noisy)
        members = self.method().stacked_members()
        click = self.population_.click(cells)[::members].double().cpu().numpy()
        weights = weight[::members].double().cpu().numpy()
        return [(s[w > 0], o[w > 0], w[w > 0]) for s, o, w in zip(score, click, weights, strict=True)]
