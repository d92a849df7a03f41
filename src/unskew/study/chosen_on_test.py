"""``epoch_chosen_on_test``: a method that keeps each seed's epoch with the best *test* AUC, as published.

A diagnostic, not a protocol: the scripts of the paper's doubly robust methods did this (METHODS §0, 8), so
its numbers are what the test set says of a choice made on it. ``table-switches`` alone shows them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from unskew.data import Log
from unskew.debias import Debiaser, Setting
from unskew.debias.setting import Plan, State
from unskew.metrics import auc
from unskew.study.engine import Engine, StudyData
from unskew.study.grid import MethodEntry
from unskew.training.inference import logits
from unskew.training.reader import Reader

SWITCH = "epoch_chosen_on_test"


class Best(State):
    """The best epoch of each seed so far; its weights are beside it, by network and parameter."""

    test_auc: Tensor
    """``[R]``."""


def chosen_on_test(method: Debiaser, log: Log, test: Log) -> Debiaser:
    """The same method, whose networks end up with the weights of the epoch with the best AUC on ``test``.

    Parameters
    ----------
    log
        The training log, whose ids the networks know.
    """
    rows, outcome = test.take(test.clicked), test.known_conversion()
    pairs = Reader(log.users, log.items, None, torch.device("cpu")).of_log(rows).rows
    kind: Any = type(method)

    class ChosenOnTest(kind):  # type: ignore[misc]
        def plan(self) -> Plan:
            """The method's passes; what the epoch before them left is scored first."""
            first, *others = super().plan()

            def before(setting: Setting) -> None:
                self._look(setting)
                if first.before is not None:
                    first.before(setting)

            return (replace(first, before=before), *others)

        def finish(self, setting: Setting) -> None:
            """Score the last epoch, then go back to the best."""
            super().finish(setting)
            self._look(setting)
            kept = vars(setting.state(Best))
            with torch.no_grad():
                for name, weight in _weights(setting):
                    weight.copy_(kept[name])

        def _look(self, setting: Setting) -> None:
            best = setting.state(Best)
            weights = dict(_weights(setting))
            if best.is_empty:
                # Nothing is trained yet.
                replicas = setting.networks["prediction"].replicas
                least = torch.full((replicas,), -torch.inf, device=setting.clicks.conversion.device)
                best.write(test_auc=least, **weights)
                return
            device = best.test_auc.device
            score = logits(setting.networks["prediction"], pairs.to(device))
            found = _aucs(score, outcome).to(best.test_auc)
            better = found > best.test_auc
            for name, weight in weights.items():
                chosen = better.view(-1, *(1,) * (weight.dim() - 1))
                best.write(**{name: torch.where(chosen, weight, vars(best)[name])})
            best.write(test_auc=torch.where(better, found, best.test_auc))

    # Results are kept under this name: the method may have deviations of its own.
    ChosenOnTest.__qualname__ = f"{kind.__qualname__}, {SWITCH}"
    chosen: Debiaser = ChosenOnTest(**method.get_params(deep=False))
    return chosen


class ChoosingOnTest(Engine):
    """Runs a grid with every method so."""

    def method(
        self, data: StudyData, entry: MethodEntry, params: Mapping[str, Any] | None = None
    ) -> Debiaser:
        """A method that looks at the test log."""
        return chosen_on_test(super().method(data, entry, params), data.dataset.train, data.tests[""])


def _weights(setting: Setting) -> list[tuple[str, Tensor]]:
    return [
        (f"best {name}.{part}", weight)
        for name, network in setting.networks.items()
        for part, weight in network.named_parameters()
    ]


def _aucs(score: Tensor, outcome: Any) -> Tensor:
    return torch.tensor(
        [auc(score=line, outcome=outcome) for line in torch.sigmoid(score.double()).cpu().numpy()]
    )
