"""The tables of a grid, one entry each: checked when it is read, made when it is run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, model_validator

from unskew.backbones import Backbone, make_backbone
from unskew.calibration import Calibrator, make_calibrator
from unskew.datasets import DATASETS, Dataset, load
from unskew.debias import METHODS, Debiaser, make_method
from unskew.errors import UnskewError
from unskew.estimator import Estimator, require_types
from unskew.metrics.clip import require_clip
from unskew.propensity import Propensity, make_uncertainty
from unskew.run.protocol import Protocol, ProtocolName


def word_for(field: str) -> Any:
    """A word stands for a table with that word under ``field``."""
    return BeforeValidator(lambda given: {field: given} if isinstance(given, str) else given)


def require_known(name: str, names: Any, what: str) -> None:
    """Refuse a name that is none of the names."""
    if name not in names:
        raise ValueError(f"no {what} is called {name!r}; use one of {', '.join(names)}")


def made_or_told(make: Any, name: str) -> Any:
    """What ``make`` makes; an error of ours as one that pydantic tells the place of."""
    try:
        return make()
    except UnskewError as error:
        raise ValueError(str(error)) from error
    except TypeError as error:
        raise ValueError(f"{name}: {error}") from error


def of_right_types(estimator: Estimator, **params: Any) -> Estimator:
    """An estimator with other parameters, whose types are right; the ranges are checked before it runs."""
    require_types(estimator.set_params(**params), choices=False)
    if hasattr(estimator, "p_min"):
        require_clip(estimator.p_min)
    return estimator


def refuse_keys(params: dict[str, Any], places: dict[str, str]) -> None:
    """Refuse parameters that a grid tells elsewhere."""
    for name, place in places.items():
        if name in params:
            raise ValueError(f"{name} is told elsewhere in a grid; {place}")


class Table(BaseModel):
    """A table of the file: no other keys than its own."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class DatasetEntry(Table):
    """A dataset: its name, the folder of its files, options of its loader; ``key`` is its name in tables."""

    name: str
    key: str = ""
    root: str | None = None
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> DatasetEntry:
        made_or_told(lambda: DATASETS.require(self.name), self.name)
        refuse_keys(
            self.options,
            {
                "protocol": 'write protocol = "…" at the top',
                "root": "write root beside the dataset's name",
                "name": "it is the dataset's, beside its options",
            },
        )
        return self

    @property
    def label(self) -> str:
        """Its name in tables."""
        return self.key or self.name

    def load(self, protocol: ProtocolName) -> Dataset:
        """Read it."""
        root = None if self.root is None else Path(self.root).expanduser()
        return load(self.name, root, protocol=protocol, **self.options)


class BackboneEntry(Table):
    """A network by name, with its parameters."""

    name: str = "neumf"
    params: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> BackboneEntry:
        made_or_told(lambda: require_types(self.make()), self.name)
        return self

    def make(self) -> Backbone:
        """The backbone."""
        made: Backbone = made_or_told(lambda: make_backbone(self.name, **self.params), self.name)
        return made


class PropensityEntry(Table):
    """A propensity model.

    ``key = "constant"`` gives every pair the share of clicks, ``key = "true"`` the true propensity of a
    synthetic world; neither is trained nor calibrated.
    """

    key: str = Field(min_length=1)
    backbone: Annotated[BackboneEntry, word_for("name")] | None = None
    uncertainty: str = "none"
    uncertainty_params: dict[str, Any] = Field(default_factory=dict)
    params: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> PropensityEntry:
        beside = "write it beside params, by its name"
        calibrators = "write calibrators = […] at the top"
        refuse_keys(self.params, {"backbone": beside, "uncertainty": beside, "calibrator": calibrators})
        made_or_told(self._typed_uncertainty, self.uncertainty)
        made_or_told(lambda: of_right_types(Propensity(), **self.params), self.key)
        return self

    def _typed_uncertainty(self) -> None:
        named = self.uncertainty_params if self.uncertainty != "none" else {}
        made = make_uncertainty(self.uncertainty, **named)
        if made is not None:
            require_types(made)
        elif self.uncertainty_params:
            raise ValueError("uncertainty_params are of no uncertainty; name one, or leave them out")

    @property
    def is_trained(self) -> bool:
        """Whether there is a model to train and to calibrate."""
        return self.key not in ("constant", "true")

    def make(self, protocol: Protocol, backbone: BackboneEntry) -> Propensity:
        """The estimator under a protocol, without a calibrator."""
        made = protocol.propensity((self.backbone or backbone).make(), uncertainty=self.uncertainty)
        if made.uncertainty is not None:
            made.uncertainty.set_params(**self.uncertainty_params)
        return made.set_params(**self.params)


class CalibratorEntry(Table):
    """A calibrator by name, with its parameters; ``"none"`` leaves the scores."""

    name: str
    key: str = ""
    params: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> CalibratorEntry:
        made_or_told(lambda: make_calibrator(self.name, **self.params)._check_parameters(), self.name)
        return self

    @property
    def label(self) -> str:
        """Its name in tables."""
        return self.key or self.name

    def make(self) -> Calibrator | None:
        """The calibrator; None for ``"none"``."""
        made = made_or_told(lambda: make_calibrator(self.name, **self.params), self.name)
        return None if self.name == "none" else made


class MethodEntry(Table):
    """A debiaser by name, with its parameters; ``propensity = false`` runs it without given propensities."""

    method: str
    key: str = ""
    backbone: Annotated[BackboneEntry, word_for("name")] | None = None
    params: dict[str, Any] = Field(default_factory=dict)
    propensity: bool = True

    @model_validator(mode="after")
    def _check(self) -> MethodEntry:
        made_or_told(lambda: METHODS.require(self.method), self.method)
        refuse_keys(self.params, {"backbone": "write it beside params, by its name"})
        made = made_or_told(lambda: of_right_types(make_method(self.method), **self.params), self.method)
        if made.needs_propensity and not self.propensity:
            raise ValueError(f"{self.method} cannot do without propensities; name some")
        return self

    @property
    def label(self) -> str:
        """Its name in tables."""
        return self.key or self.method

    @property
    def takes_propensity(self) -> bool:
        """Whether it is given the grid's propensities: it needs them, or uses them where there are any."""
        kind = METHODS[self.method]
        if kind.needs_propensity or not self.propensity:
            return kind.needs_propensity
        chosen = self.params.get("calibration", "auto")
        return "external" in getattr(kind, "sources", ()) and chosen in ("auto", "external")

    @property
    def needs_full_space(self) -> bool:
        """Whether it sums over D."""
        return METHODS[self.method].needs_full_space

    def make(self, protocol: Protocol, backbone: BackboneEntry, density: float) -> Debiaser:
        """The debiaser under a protocol, for a log of which so many of all pairs are clicked."""
        made = protocol.method(self.method, (self.backbone or backbone).make(), density)
        return made.set_params(**self.params)


class TuneTable(Table):
    """Hyper-parameters to choose for each method on validation loss.

    Parameters
    ----------
    values
        The values of each parameter, nested ones as ``backbone__dim``.
    trials
        So many combinations, drawn at random without repetition; None tries all.
    seeds
        Repetitions of each trial, the first of the study's; the loss is averaged over them.
    methods
        Which methods to tune, by their names in the grid; all by default.
    """

    values: dict[str, Annotated[list[Any], Field(min_length=1)]] = Field(min_length=1)
    trials: StrictInt | None = Field(default=None, ge=1)
    seeds: StrictInt = Field(default=1, ge=1)
    methods: list[str] | None = None
    draw: StrictInt = Field(default=0, ge=0)

    @model_validator(mode="after")
    def _check(self) -> TuneTable:
        if "validation_share" in self.values:
            raise ValueError(
                "values.validation_share cannot be tuned: trials would be judged on different clicks."
                " To fix: set it in the method's params"
            )
        return self

    def tunes(self, label: str) -> bool:
        """Whether a method of the grid is tuned."""
        return self.methods is None or label in self.methods

    def single_values(self) -> list[dict[str, Any]]:
        """Every value by itself: what is wrong with one is seen without trying all combinations."""
        return [{name: value} for name, values in self.values.items() for value in values]
