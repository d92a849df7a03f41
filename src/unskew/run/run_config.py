"""What to run: the data, the propensity, the method and how they are trained, checked before any work."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from unskew.base.estimator import require, require_at_least, require_choice, require_range
from unskew.base.seeds import require_count
from unskew.calibration import DEFAULT, make_calibrator
from unskew.calibration.recalibration import NONE, require_kind
from unskew.data.splitting import parse_duration
from unskew.debias import METHODS
from unskew.learners import BACKBONES, make_backbone
from unskew.metrics.clip import Clip, require_clip
from unskew.propensity import make_uncertainty, registered_name
from unskew.propensity.crossfit import MOST_FOLDS
from unskew.run.protocol import PROTOCOLS, ProtocolName
from unskew.run.run_parameters import checked
from unskew.run.run_parts import NO_METHOD
from unskew.run.run_search import AUTO, require_search
from unskew.run.run_split import validation_params
from unskew.training.ensemble import MOST_MEMBERS

PAPER_SEEDS = 10
"""Repetitions of the paper's tables."""

MOST_EPOCHS = 100_000
"""Epochs beyond which training would not end while anybody waits for it."""


@dataclass(frozen=True)
class RunConfig:
    """What to run.

    Parameters
    ----------
    data, root, options
        The dataset's name, its folder, and further options of its loader.
    propensity
        ``"auto"`` (:func:`unskew.choose_propensity` among logistic regression, popularity and the backbone;
        the backbone where an option that only a network has is given), the name of a backbone or of one of
        ``PROPENSITIES``, or a column of the log.
    method
        The debiaser to compare with the naive model, once with raw and once with calibrated propensities;
        ``"none"`` trains the propensity alone, which is all that a log without conversions allows;
        ``"auto"`` lets a random sample choose (:class:`unskew.Auto`), and ships the naive ensemble without.
    seeds, seed
        How many repetitions, numbered from ``seed``; None for one, or ten with the paper's protocol.
    members
        Networks of each seed, whose mean logit is the model.
    calibrator
        The map of the propensities, by name; ``"none"`` leaves them raw. Empty is ``"auto"``, and ``"platt"``
        with the paper's protocol.
    recalibrate
        After training, a map of the predictions of all models to the weighted outcomes of held-out clicks:
        ``"none"``, ``"auto"``, ``"shift"``, or a calibrator's name, as ``recalibrate`` of a method.
    crossfit
        Folds of the propensity; None for a single split.
    p_min
        Propensities below are raised to it; ``"auto"`` is the clip with the least error.
    propensity_epochs
        Train the propensity for exactly so many epochs, as published code does, instead of stopping early.
    split, valid_from
        Which clicks choose the epoch: ``"time:0.8"`` trains on the first 80 %, ``"user:0.2"`` holds out 20 %
        of the users, ``"group:COLUMN"`` groups; ``valid_from`` the clicks from a date on. By default the
        latest 10 % of impressions with a column of times, and 10 % of the pairs otherwise.
    time
        The column of times; by default the first that holds some.
    maturity
        Leave out training rows less than this before the last one (``"7d"``), too young to have converted.
    parameters
        Of the method, the backbone, the propensity, the calibrator or the uncertainty, by name:
        ``{"method.learning_rate": 0.01, "backbone.dim": 16}``; ``training.NAME`` is of method and propensity.
    propensity_features, model_features
        Which of the log's features the propensity, and the conversion models, read; names, or with a minus in
        front those that they do not read (``("-position",)``). None for all.
    allow_leak
        Columns that may be features though they give an outcome away (:func:`unskew.check_leaks`).
    unbiased_share
        Take this share of the random test pairs as the sample that chooses the method (``method="auto"``)
        and sets levels right (then, or with ``recalibrate``); the others are the test.
        ``options={"unbiased": FILE}`` gives the sample as a file, with files as data.
    """

    data: str = "synthetic"
    root: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    propensity: str = "auto"
    backbone: str = "neumf"
    calibrator: str = ""
    uncertainty: str = "none"
    method: str = "ips"
    seeds: int | None = None
    seed: int = 0
    members: int = 1
    recalibrate: str = NONE
    protocol: ProtocolName = "honest"
    crossfit: int | None = 2
    propensity_epochs: int | None = None
    p_min: Clip = "auto"
    device: str = "auto"
    split: str | None = None
    valid_from: str | None = None
    time: str | None = None
    maturity: str | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    propensity_features: tuple[str, ...] | None = None
    model_features: tuple[str, ...] | None = None
    allow_leak: tuple[str, ...] = ()
    unbiased_share: float | None = None

    def __post_init__(self) -> None:
        if self.seeds is None:
            object.__setattr__(self, "seeds", PAPER_SEEDS if self.protocol == "paper" else 1)
        assert self.seeds is not None
        if not self.calibrator:
            object.__setattr__(self, "calibrator", "platt" if self.protocol == "paper" else DEFAULT)
        require_count(self.seeds)
        require_range("members", self.members, 1, MOST_MEMBERS, "5, for example")
        require_kind(self.recalibrate)
        require_at_least(0, seed=self.seed)
        require(
            self.crossfit is None or 2 <= self.crossfit <= MOST_FOLDS,
            f"crossfit must be None (0) or from 2 to {MOST_FOLDS} folds, not {self.crossfit}",
            "give 5, for example",
        )
        require(
            self.propensity_epochs is None or 1 <= self.propensity_epochs <= MOST_EPOCHS,
            f"propensity_epochs must be from 1 to {MOST_EPOCHS:,}, not {self.propensity_epochs}",
            "give 30, for example",
        )
        require_clip(self.p_min)
        require_choice("protocol", self.protocol, PROTOCOLS)
        make_backbone(self.backbone)
        make_calibrator(self.calibrator)
        make_uncertainty(self.uncertainty)
        if self.method not in (NO_METHOD, AUTO):
            METHODS.require(self.method)
        require_search(self)
        if self.needs_network and self.propensity != "auto":
            require(
                registered_name(self.propensity) in BACKBONES,
                f"the propensity {self.propensity!r} has no {self.needs_network}, which is that of a network",
                f"leave it out, or use one of {', '.join(BACKBONES)}",
            )
        held_out = validation_params(self.split, self.valid_from, self.time)
        require(
            self.protocol == "honest" or not held_out,
            "the paper's protocol has a split of its own",
            "leave split, valid_from and time out",
        )
        if self.maturity is not None:
            parse_duration(self.maturity)
        object.__setattr__(self, "parameters", checked(self))

    @property
    def seed_list(self) -> range:
        """The seeds."""
        assert self.seeds is not None
        return range(self.seed, self.seed + self.seeds)

    @property
    def needs_network(self) -> str | None:
        """What only a propensity by a network has, where it is asked for."""
        asked = {
            "protocol 'paper'": self.protocol == "paper",
            "propensity_epochs": self.propensity_epochs is not None,
            "uncertainty": self.uncertainty != "none",
        }
        return next((name for name, given in asked.items() if given), None)

    def to_dict(self) -> dict[str, Any]:
        """As plain values."""
        return {**asdict(self), "options": dict(self.options), "parameters": dict(self.parameters)}
