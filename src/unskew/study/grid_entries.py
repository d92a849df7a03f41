"""The tables of a grid, one entry each: checked when it is read, made when it is run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from unskew.backbones import Backbone, make_backbone
from unskew.calibration import Calibrator, make_calibrator
from unskew.datasets import DATASETS, Dataset, load
from unskew.debias import METHODS, Debiaser, make_method
from unskew.errors import UnskewError
from unskew.propensity import Propensity, make_uncertainty
from unskew.study.protocol import ProtocolName, ProtocolSettings


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
        require_known(self.name, DATASETS, "dataset")
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
        self.make()
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

    key: str
    backbone: Annotated[BackboneEntry, word_for("name")] | None = None
    uncertainty: str = "none"
    uncertainty_params: dict[str, Any] = Field(default_factory=dict)
    params: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> PropensityEntry:
        made_or_told(lambda: make_uncertainty(self.uncertainty, **self.uncertainty_params), self.uncertainty)
        made_or_told(lambda: Propensity().set_params(**self.params), self.key)
        return self

    @property
    def is_trained(self) -> bool:
        """Whether there is a model to train and to calibrate."""
        return self.key not in ("constant", "true")

    def make(self, settings: ProtocolSettings, backbone: BackboneEntry) -> Propensity:
        """The estimator under a protocol, without a calibrator."""
        propensity = settings.propensity((self.backbone or backbone).make(), None)
        uncertainty = settings.uncertainty(self.uncertainty)
        if uncertainty is not None:
            propensity.set_params(uncertainty=uncertainty.set_params(**self.uncertainty_params))
        return propensity.set_params(**self.params)


class CalibratorEntry(Table):
    """A calibrator by name, with its parameters; ``"none"`` leaves the scores."""

    name: str
    key: str = ""
    params: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _check(self) -> CalibratorEntry:
        self.make()
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
        require_known(self.method, METHODS, "method")
        made = made_or_told(lambda: make_method(self.method).set_params(**self.params), self.method)
        if made.needs_propensity and not self.propensity:
            raise ValueError(f"{self.method} cannot do without propensities")
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

    def make(
        self, settings: ProtocolSettings, backbone: BackboneEntry, p_min: float | None, density: float
    ) -> Debiaser:
        """The debiaser under a protocol, for a log of which so many of all pairs are clicked."""
        options = settings.method_options(weighted=self.takes_propensity, method=self.method, density=density)
        if settings.name == "honest" and p_min is None:
            # Each method has a clip of its own, which the protocol leaves to it.
            options.pop("p_min", None)
        network = settings.method_backbone((self.backbone or backbone).make())
        method = make_method(self.method, backbone=network, **options)
        return method.set_params(**self.params)


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

    values: dict[str, list[Any]]
    trials: int | None = Field(default=None, ge=1)
    seeds: int = Field(default=1, ge=1)
    methods: list[str] | None = None
    draw: int = Field(default=0, ge=0)
