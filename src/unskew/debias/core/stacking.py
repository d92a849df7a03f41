"""Several sets of propensities in one stack of replicas, and each set's share of it afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unskew.backbones import Network
from unskew.debias.core.given import GivenPropensities
from unskew.debias.core.held_out import HeldOut
from unskew.debias.core.setting import Batch, Setting
from unskew.errors import ParameterError
from unskew.log import Rows
from unskew.training import History


def stacked_propensities(given: Sequence[GivenPropensities | None]) -> GivenPropensities | None:
    """Propensities of all replicas, set after set; None where no set has any."""
    known = [each for each in given if each is not None]
    if not known:
        return None
    if len(known) != len(given):
        raise ParameterError(
            "some of the propensities are None, others are not", remedy="fit the method without them apart"
        )
    everywhere = [each.everywhere for each in known if each.everywhere is not None]
    return GivenPropensities(
        clicked=np.concatenate([each.clicked for each in known]),
        everywhere=np.concatenate(everywhere) if everywhere else None,
        diagnostics=tuple(each for one in known for each in one.diagnostics),
        floors=tuple(floor for one in known for floor in one.floors),
    )


def share_of_propensities(given: GivenPropensities | None, replicas: slice) -> GivenPropensities | None:
    """The propensities of some replicas."""
    if given is None:
        return None
    return GivenPropensities(
        clicked=given.clicked[replicas],
        everywhere=None if given.everywhere is None else given.everywhere[replicas],
        diagnostics=given.diagnostics[replicas],
        floors=given.floors[replicas],
    )


def share_of_network(network: Network, fresh: Network, replicas: slice) -> Network:
    """A fresh network of as many replicas, with their weights."""
    fresh.load_state_dict({name: value[replicas] for name, value in network.state_dict().items()})
    return fresh


def share_of_history(history: History, replicas: slice) -> History:
    """The losses of some replicas."""
    return History(
        train={name: [line[replicas] for line in losses] for name, losses in history.train.items()},
        validation=[line[replicas] for line in history.validation],
        best_epoch=history.best_epoch[replicas],
    )


def share_of_setting(
    setting: Setting, networks: dict[str, Network], replicas: slice, seeds: tuple[int, ...]
) -> Setting:
    """The setting that a share of the replicas would have had alone."""
    return _of_replicas([setting], lambda values: values[0][replicas], networks, seeds)


def joined_setting(parts: Sequence[Setting], networks: dict[str, Network], seeds: tuple[int, ...]) -> Setting:
    """The setting that the replicas of all parts would have had together."""
    return _of_replicas(parts, torch.cat, networks, seeds)


def _of_replicas(
    parts: Sequence[Setting],
    combine: Callable[[list[Tensor]], Tensor],
    networks: dict[str, Network],
    seeds: tuple[int, ...],
) -> Setting:
    """The setting of other replicas, each of its tensors combined from those of the parts."""
    first = parts[0]
    assert first.held_out is not None
    clicks: dict[str, Any] = {}
    rows = [part.clicks.rows for part in parts]
    for each in fields(Batch)[1:]:
        values = [getattr(part.clicks, each.name) for part in parts]
        clicks[each.name] = None if values[0] is None else combine(values)
    return Setting(
        networks=networks,
        density=first.density,
        clicks=Batch(Rows(**{name: combine([r[name] for r in rows]) for name in rows[0]}), **clicks),
        state={name: combine([part.state[name] for part in parts]) for name in first.state},
        given=first.given,
        held_out=HeldOut(first.held_out.population, seeds),
    )
