"""The propensity of a run: the one that was asked for, or the one that was chosen."""

from __future__ import annotations

import difflib
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from unskew.base.errors import ParameterError
from unskew.base.progress import Progress
from unskew.calibration import make_calibrator
from unskew.data import Log
from unskew.data.datasets import Dataset
from unskew.learners import BACKBONES, make_backbone
from unskew.propensity import (
    PROPENSITIES,
    ColumnPropensity,
    LogisticPropensity,
    NaiveBayesPropensity,
    PopularityPropensity,
    Propensity,
    choose_propensity,
    make_propensity,
    registered_name,
)
from unskew.propensity.choice import MOST_WORK, Choice
from unskew.propensity.propensity import BasePropensity
from unskew.run.protocol import Protocol, protocol_of
from unskew.run.run_parameters import changed
from unskew.training import resolve_device

if TYPE_CHECKING:
    from unskew.run.run_config import RunConfig

BAYES_SHARE = 0.05
"""Share of the random test set that naive Bayes may look at, as Schnabel et al. let it."""


def fitted_propensity(
    config: RunConfig, protocol: Protocol, dataset: Dataset, progress: Progress
) -> tuple[BasePropensity, dict[str, Any]]:
    """The propensity of a run, fitted for all its seeds, and how it came to be this one."""
    log = dataset.train
    propensity, choice, record = chosen_propensity(config, protocol, log, progress)
    if choice is not None and len(config.seed_list) == 1:
        return choice.propensity, record
    options = further_data(propensity, dataset)
    propensity.fit(log, seeds=config.seed_list, device=config.device, progress=progress, **options)
    return propensity, record


def chosen_propensity(
    config: RunConfig, protocol: Protocol, log: Log, progress: Progress
) -> tuple[BasePropensity, Choice | None, dict[str, Any]]:
    """Return the propensity of a run, unfitted; the choice, where there was one; and how it was chosen."""
    if config.propensity == "auto" and config.needs_network is None:
        simple = (LogisticPropensity, PopularityPropensity)
        candidates: dict[str, BasePropensity] = {
            kind.name: made(config, protocol, kind.name) for kind in simple
        }
        network = made(config, protocol, config.backbone)
        assert isinstance(network, Propensity)
        candidates[config.backbone] = network
        choice = choose_propensity(
            log,
            candidates,
            seed=config.seed,
            device=config.device,
            progress=progress,
            most_work=MOST_WORK[resolve_device(config.device).type],
        )
        record = {"asked": "auto", **choice.to_dict(), "sentence": choice.sentence}
        return candidates[choice.name], choice, record
    name = config.backbone if config.propensity == "auto" else config.propensity
    because = "" if config.propensity != "auto" else f", since {config.needs_network} is of a network"
    propensity = made(config, protocol, name, log.columns)
    called = f"column '{name}'" if isinstance(propensity, ColumnPropensity) else name
    return (
        propensity,
        None,
        {"asked": config.propensity, "chosen": name, "sentence": f"propensity by {called}{because}"},
    )


def may_try_network(config: RunConfig, log: Log) -> bool:
    """Whether the choice of the propensity would try a network on a log, of which no row is read."""
    network = made(config, protocol_of(config), config.backbone)
    assert isinstance(network, Propensity)
    return network.work(log) <= MOST_WORK[resolve_device(config.device).type]


def further_data(propensity: BasePropensity, dataset: Dataset) -> dict[str, Any]:
    """What a propensity is fitted on beside the log."""
    if isinstance(propensity, NaiveBayesPropensity):
        if dataset.test is None or dataset.test_is != "random":
            raise ParameterError(
                "naive Bayes needs a test set of pairs shown at random, a part of which it looks at",
                remedy="give --test FILE --test-is random, or another --propensity",
            )
        return {"random_sample": dataset.test}
    return {}


def made(config: RunConfig, protocol: Protocol, name: str, columns: Collection[str] = ()) -> BasePropensity:
    """A propensity by name, unfitted, with the fields that were chosen; a candidate may read none.

    Parameters
    ----------
    columns
        Of the log, each of which may be named too.
    """
    made = _plain(config, protocol, name, columns)
    if made.reads_features or config.propensity != "auto":
        made.fields = config.propensity_features
    return made


def _plain(config: RunConfig, protocol: Protocol, name: str, columns: Collection[str] = ()) -> BasePropensity:
    """A propensity by name: of a network as the protocol has it, of another kind, or a column."""
    calibrator = None
    if config.calibrator != "none":
        calibrator = changed(make_calibrator(config.calibrator), "calibrator", config.parameters)
    known = registered_name(name)
    if known is not None and known in BACKBONES:
        backbone = changed(make_backbone(known), "backbone", config.parameters)
        network = protocol.propensity(backbone, calibrator, config.uncertainty)
        if network.uncertainty is not None:
            changed(network.uncertainty, "uncertainty", config.parameters)
        return changed(network, "propensity", config.parameters)
    shared: dict[str, Any] = {"calibrator": calibrator, "crossfit": protocol.crossfit}
    if known is None:
        if name not in columns:
            raise unknown_propensity(name)
        return ColumnPropensity(column=name, **shared)
    if known == NaiveBayesPropensity.name:
        shared["sample_share"] = BAYES_SHARE
    return changed(make_propensity(known, **shared), "propensity", config.parameters)


def unknown_propensity(name: str) -> ParameterError:
    """The error for a name that is neither a propensity's nor a column's."""
    names = ("auto", *BACKBONES, *PROPENSITIES)
    close = "".join(f"{each}, or one of " for each in difflib.get_close_matches(name, names, n=1))
    return ParameterError(
        f"unknown propensity {name!r}", remedy=f"use {close}{', '.join(names)}, or a column of your files"
    )


def predicts_everywhere(propensity: BasePropensity) -> bool:
    """Whether it has a propensity for every pair of D."""
    return not isinstance(propensity, NaiveBayesPropensity | ColumnPropensity)


def require_everywhere(propensity: BasePropensity, method: str) -> None:
    """An error for a method that needs propensities where this one has none."""
    if not predicts_everywhere(propensity):
        raise ParameterError(
            f"{method} needs propensities of all of D: {propensity.name.replace('_', ' ')} has those of rows",
            remedy="give another --propensity, or a method such as ips",
        )


def run_labels(
    protocol: Protocol, propensity: BasePropensity, record: dict[str, Any], *, tested: bool, models: bool
) -> list[str]:
    """What was done, a line each: how the propensity was chosen, and what the protocol decides."""
    if protocol.name == "paper":
        # Every number of the paper's protocol carries its own labels alone.
        return [label for label in protocol.labels if tested or "test" not in label]
    labels = [record["sentence"]]
    if isinstance(propensity, NaiveBayesPropensity):
        labels.append(f"{propensity.message_}, as this run does")
    left_out = [] if isinstance(propensity, Propensity) else [protocol.stopping]
    if not models:
        labels.append("the propensity alone is trained: no conversion model, and nothing to test")
        left_out += [label for label in protocol.labels if "epoch chosen" in label]
    return labels + [
        label
        for label in protocol.labels
        if label not in left_out and ((tested and models) or "test" not in label)
    ]
