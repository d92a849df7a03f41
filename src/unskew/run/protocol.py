"""Protocols, which decide how a run is done and label every number of it; here the honest one.

Others live above this package and are known by name (:data:`PROTOCOLS`); the two are never mixed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import numpy as np

from unskew.base.errors import ParameterError
from unskew.calibration import Calibrator
from unskew.data import Log
from unskew.data.datasets import Dataset
from unskew.data.splitting import SplitBy, mature_rows, times_of
from unskew.debias import Debiaser, make_method
from unskew.learners import Learner
from unskew.metrics.weights import Clip
from unskew.propensity import Propensity, Uncertainty, make_uncertainty
from unskew.training.held_out import Split, outcome_words

if TYPE_CHECKING:
    from unskew.run.config import Config


ProtocolName = Literal["honest", "paper"]

PROTOCOLS = {"honest": "unskew.run.protocol:Protocol", "paper": "unskew.study.paper_protocol:Paper"}
"""Where the class of each protocol is; loaded when it is asked for."""

WITHOUT_CLICKED = "test pairs that were clicked in training are dropped"
"""The label of what is done with pairs; rows of impressions, each an event of its own, all stay."""


PATIENCE = 3
"""Checks without improvement after which a run's training stops; ``--set training.patience=10`` waits longer.
A waiting epoch costs as much as one that learns, and the best epoch is kept either way."""


@dataclass(frozen=True)
class Protocol:
    """The honest protocol; subclasses override what they do otherwise.

    Parameters
    ----------
    crossfit
        Folds of the propensity; None for a single split.
    patience
        Epochs without improvement after which early stopping ends a training; None leaves each class its own.
    propensity_epochs
        Train the propensity for exactly so many epochs instead of stopping early.
    p_min
        The clip of every method and of the figures of weights; None leaves each method its own.
    data
        The dataset's name: the published code trains longer on Coat than on larger ones.
    """

    name: ClassVar[ProtocolName] = "honest"

    crossfit: int | None = 5
    propensity_epochs: int | None = None
    p_min: Clip | None = None
    data: str = "coat"
    patience: int | None = None

    @property
    def clip(self) -> Clip:
        """The clip that figures of weights tell of."""
        return "auto" if self.p_min is None else self.p_min

    @property
    def test_protocol(self) -> ProtocolName:
        """The protocol by which the test set is read."""
        return self.name

    @property
    def stopping(self) -> str:
        """How long the network of a propensity is trained."""
        if self.propensity_epochs is None:
            return "propensity stopped early on held-out likelihood"
        return (
            f"propensity trained for {self.propensity_epochs} epochs without early stopping, as published"
            " code does: expect overconfident raw scores"
        )

    @property
    def labels(self) -> tuple[str, ...]:
        """The decisions of the protocol, a line each."""
        folds = "one 80/10/10 split; weights are in-sample"
        if self.crossfit:
            folds = f"{self.crossfit}-fold cross-fitted"
        clipping = "at each method's own p_min; figures of weights at the clip of least error"
        if self.p_min is not None:
            least = self.p_min == "auto"
            clipping = "where their estimated error is least" if least else f"at p = {self.p_min:g}"
        return (
            "propensities over all of D at the true base rate",
            self.stopping,
            f"model and calibrator held out: {folds}",
            f"weights clipped {clipping}",
            "epoch chosen on a validation split of the clicks",
            "the test set is touched once",
            WITHOUT_CLICKED,
        )

    def propensity(
        self, learner: Learner, calibrator: Calibrator | None = None, uncertainty: str = "none"
    ) -> Propensity:
        """Return the propensity estimator, untrained."""
        propensity = Propensity(learner=learner, calibrator=calibrator, crossfit=self.crossfit)
        if self.patience is not None:
            propensity.set_params(patience=self.patience)
        if self.propensity_epochs is not None:
            propensity.set_params(epochs=self.propensity_epochs, patience=None)
        return propensity.set_params(uncertainty=self.uncertainty(uncertainty))

    def uncertainty(self, name: str) -> Uncertainty | None:
        """Return an uncertainty method; None for ``"none"``."""
        return make_uncertainty(name)

    def further_figures(self, propensity: Propensity, log: Log) -> dict[str, list[float]]:
        """Return figures by seed beside those of ``Propensity.diagnose``; here none."""
        return {}

    def method(self, name: str, learner: Learner, density: float) -> Debiaser:
        """Return a debiaser, untrained, for a log with ``density`` = |O| / |D|."""
        options: dict[str, Any] = {} if self.p_min is None else {"p_min": self.p_min}
        method = make_method(name, learner=learner, **options)
        # A method that waits longer than others, as GPL, needs it.
        if self.patience is not None and method.patience == Debiaser.patience:
            method.set_params(patience=self.patience)
        return method

    def validation(self, data: Dataset) -> Log | None:
        """Return the log on which the epoch is chosen; None takes a share of the clicks, if any."""
        return data.validation


def protocol_of(config: Config) -> Protocol:
    """Return the protocol of a run."""
    return protocol_named(
        config.evaluation.protocol,
        **({"reverse": config.evaluation.reverse} if config.evaluation.reverse else {}),
        crossfit=config.crossfit,
        propensity_epochs=config.propensity.exact_epochs,
        p_min=config.propensity.p_min,
        data=str(config.data.source),
        patience=PATIENCE,
    )


def protocol_named(name: ProtocolName, **settings: Any) -> Protocol:
    """Return a protocol by its name, with its settings."""
    module, _, kind = PROTOCOLS[name].partition(":")
    return cast("Protocol", getattr(import_module(module), kind)(**settings))


BY_PAIRS = tuple(f"epoch chosen on a validation split of the {what}" for what in ("clicks", "rows"))
"""Labels of a split by pairs, which others replace."""


SPLIT = re.compile(r"(?:(?P<kind>time|user|pair)|group:(?P<column>.+?))(?::(?P<share>0?\.\d+))?")
"""A split, with the share that trains (by time) or that is held out."""


def validation_params(split: str | None, valid_from: str | None, time: str | None) -> dict[str, Any]:
    """Return the parameters of a debiaser from what ``--split``, ``--valid-from`` and ``--time`` say.

    Examples
    --------
    >>> validation_params("time:0.8", None, "when")
    {'validation_by': 'time:when', 'validation_share': 0.2}
    >>> validation_params("group:session", None, None)
    {'validation_by': 'group:session', 'validation_share': 0.2}
    """
    if valid_from is not None:
        if split is not None:
            raise ParameterError("split and valid_from both say what is held out", remedy="give one of them")
        by = f"from:{valid_from}" + (f"@{time}" if time else "")
        SplitBy.parse(by)
        return {"validation_by": by}
    if split in (None, "auto"):
        return {} if time is None else {"validation_by": f"auto:{time}"}
    found = SPLIT.fullmatch(str(split))
    share = 0.2 if found is None or not found["share"] else float(found["share"])
    if found is None or share == 0.0:
        raise ParameterError(
            f"{split!r} is not a split",
            remedy="give time:0.8 (train on the first 80 %), user:0.2 (hold out 20 % of users), pair:0.1,"
            " group:COLUMN, group:COLUMN:0.1 or auto",
        )
    if found["kind"] == "time":
        by = "time" if time is None else f"time:{time}"
        return {"validation_by": by, "validation_share": round(1.0 - share, 12) if found["share"] else share}
    return {"validation_by": found["kind"] or f"group:{found['column']}", "validation_share": share}


def mature_dataset(dataset: Dataset, maturity: str | None, time: str | None) -> Dataset:
    """Return a dataset without training rows too young to have converted; ``facts`` count them."""
    if maturity is None:
        return dataset
    truth = dict(dataset.row_truth.get("train", {}))
    found = mature_rows(dataset.train, maturity, time=time, conversion_time=truth.get("conversion_time"))
    return replace(
        dataset,
        train=found.log,
        row_truth={
            **dataset.row_truth,
            **({"train": {name: values[found.kept] for name, values in truth.items()}} if truth else {}),
        },
        facts={
            **dataset.facts,
            "maturity": maturity,
            "immature_rows_dropped": found.dropped,
            "late_conversions_censored": found.censored,
            "mature_until": str(found.until.astype("datetime64[s]")),
        },
    )


def split_labels(labels: list[str], models: Mapping[str, Debiaser], dataset: Dataset) -> list[str]:
    """Return the labels of a protocol, with what was held out and left out in this run."""
    model = next(iter(models.values()), None)
    if model is not None and model.split_.held_out:
        log = dataset.train
        asked = SplitBy.of(model.validation_by, log)
        split, counted = model.split_, outcome_words(log, model.validation_rows(log))
        labels = [
            f"{split_words(split, log.n_clicks, asked) or each}; {counted}" if each in BY_PAIRS else each
            for each in labels
        ]
    if dataset.train.space == "impressions":
        labels = [each for each in labels if each != WITHOUT_CLICKED]
    facts, further = dataset.facts, []
    if "immature_rows_dropped" in facts:
        late = facts["late_conversions_censored"]
        further.append(
            f"{facts['immature_rows_dropped']:,} rows after {facts['mature_until']} dropped: less than"
            f" {facts['maturity']} to convert"
            + (f"; {late:,} conversions that came later than that count as none" if late else "")
        )
    if wrong := facts.get("unclicked_conversions"):
        done = "dropped" if facts["unclicked"] == "drop" else "counted as clicks"
        further.append(f"{wrong:,} rows that converted without a click: {done}")
    if absent := facts.get("features_left_out"):
        further.append(f"no features, since files to be scored lack them: {', '.join(absent)}")
    return [*labels, *further]


def split_words(split: Split, clicks: int, asked: SplitBy) -> str:
    """Say what a split held out of so many clicks; none for pairs that were asked for."""
    share = f"{100 * split.held_out / max(clicks, 1):.2g} % of the clicks"
    each = "" if split.lines == 1 else " of each member"
    if split.by.kind == "pair":
        instead = f"epoch{each} chosen on {share}: by pair, since the latest all had one outcome"
        return instead if asked.kind == "time" else ""
    if split.by.kind == "time":
        first = np.datetime64(-split.ends[0][0], "us").astype("datetime64[s]")
        return f"epoch chosen on the latest {share}: by time, from {first} on (column '{split.by.column}')"
    if split.by.kind == "user":
        return f"epoch{each} chosen on {share}: by user, none of whom trained it"
    return f"epoch{each} chosen on {share}: by groups of column '{split.by.column}', none of which trained it"


def split_columns(models: Mapping[str, Debiaser], log: Log) -> dict[str, Any]:
    """Return the column that the split of a run goes by, which tells later what was held out."""
    split = next(iter(models.values())).split_ if models else None
    if split is None or split.by.column is None:
        return {}
    values = times_of(log, split.by.column) if split.by.kind == "time" else log.columns[split.by.column]
    return {split.by.column: values}
