"""The debiaser: a method that fits itself, with one set of propensities or with many in one stack.

What a method declares is in :mod:`unskew.debias.core.method`, how it is trained in
:mod:`unskew.debias.core.fitting`, what it can do afterwards in :mod:`unskew.debias.core.fitted`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from unskew.debias.core.fitted import Fitted
from unskew.debias.core.fitting import Job, train_replicas, train_sets
from unskew.debias.core.given import GivenPropensities, propensities_for
from unskew.estimator import require
from unskew.log import Log, require_log
from unskew.metrics.collapse import warn_of_collapse
from unskew.progress import SILENT, Progress


@dataclass(kw_only=True)
class Debiaser(Fitted):
    """A conversion model and the losses that train it.

    A method subclasses this, names itself, and defines :meth:`loss`; with more than one network or step,
    also :meth:`networks` and :meth:`plan`.

    Parameters
    ----------
    backbone
        The conversion network f_θ (and the method's other networks).
    p_min
        Propensities below are raised to it before they become weights; what that did is in ``clipping_``.
        ``"auto"`` takes the clip with the least estimated error of the weights at hand
        (:func:`unskew.metrics.least_error_clip`), so that it follows the density of the log.
    epochs, batch_size, learning_rate, patience
        Training; early stopping is on the validation loss.
    weight_decay, regularisation
        A number is Adam's L2 coefficient. ``"auto"`` is λ/n with λ = ``regularisation``: training minimises
        Σ loss + (λ/2)·‖θ‖², a normal prior of variance 1/λ on every weight, whatever the size of the log. n
        is the number of rows that the loss is a mean of: |O| for losses of conversions, also where weights
        1/p make them means over D; |D| where it is a likelihood over all of D (click towers, ESMM, EIB).
        λ = 5 was settled on synthetic worlds from 0.2 % to 20 % density; 1 to 10 do as well there.
        A fixed coefficient holds for one size and one density alone: what a row of an embedding table
        learns per step falls with the number of users, what decay takes from it does not.
    validation_share
        Share of O that is held out, by pair, to choose the epoch.
    selection
        Validation loss: ``"snips"`` weights it by the method's own propensities, ``"ce"`` does not.

    Notes
    -----
    After ``fit``, ``collapsed_`` lists the networks and seeds that learned nothing (the rule is that of
    :func:`unskew.metrics.collapse.learned`), and a :class:`unskew.errors.CollapseWarning` told of them.
    """

    def fit(
        self,
        log: Log,
        *,
        propensity: Any = None,
        seeds: int | Sequence[int] = 1,
        validation: Log | None = None,
        device: str = "auto",
        progress: Progress = SILENT,
        label: str | None = None,
        calibrated: bool = True,
    ) -> Self:
        """Train one conversion model per seed, all in one stacked loop.

        Parameters
        ----------
        propensity
            A fitted :class:`unskew.Propensity` (its seeds are paired with these), an array aligned with the
            log's rows or of shape [users, items], a column's name, or one number.
        seeds
            How many repetitions, or their seeds. Each has its own split, weights and batch order; the same
            seed gives the same ones to every method.
        validation
            A log to choose the epoch on instead of a share of O.
        label
            What the progress bar calls this training.
        calibrated
            False takes the raw scores of a :class:`unskew.Propensity`.
        """
        self._check()
        self._start(seeds, device)
        given = self._given(log, propensity, calibrated)
        job = Job(log, self.seeds_, self.device_, validation, progress, label or self.name)
        trained = train_replicas(self, job, given)
        self._keep(log, trained)
        self.finish(trained.setting)
        warn_of_collapse(job.label, self.collapsed_, len(self.seeds_))
        return self

    def fit_many(
        self,
        log: Log,
        *,
        propensities: Mapping[str, Any],
        seeds: int | Sequence[int] = 1,
        validation: Log | None = None,
        device: str = "auto",
        progress: Progress = SILENT,
        label: str | None = None,
    ) -> dict[str, Self]:
        """Train one model per set of propensities and seed, all in one stacked loop.

        Every set has the same splits, first weights and batch orders, so that what differs between two of
        them is due to the propensities. A model's replicas are those that :meth:`fit` would have trained.

        Parameters
        ----------
        propensities
            What :meth:`fit` takes as ``propensity``, by a key of your own.
        seeds, validation, device, progress, label
            As in :meth:`fit`.

        Returns
        -------
        dict
            A fitted copy of this method for each key; this one stays as it was.
        """
        self._check()
        require(bool(propensities), "there are no propensities to fit with", "give at least one set")
        params = self.get_params(deep=False)
        parts, given = [type(self)(**params) for _ in propensities], []
        for part, propensity in zip(parts, propensities.values(), strict=True):
            part._start(seeds, device)
            given.append(part._given(log, propensity, True))
        job = Job(log, parts[0].seeds_, parts[0].device_, validation, progress, label or self.name)
        trained_sets = train_sets(type(self)(**params), job, given)
        for key, part, trained in zip(propensities, parts, trained_sets, strict=True):
            part._keep(log, trained)
            part.finish(trained.setting)
            warn_of_collapse(f"{job.label} ({key})", part.collapsed_, len(part.seeds_))
        return dict(zip(propensities, parts, strict=True))

    def _given(self, log: Log, propensity: Any, calibrated: bool) -> GivenPropensities | None:
        require_log(log)
        given = propensities_for(self, log, propensity, self.seeds_, calibrated=calibrated)
        if given is not None:
            self.clipping_ = given.diagnostics
        return given
