"""``epoch_chosen_on_test``: a method that keeps each seed's epoch with the best *test* AUC, as published.

A diagnostic, not a protocol: the scripts of the paper's doubly robust methods did this (METHODS §0, 8), so
its numbers are what the test set says of a choice made on it. ``table-switches`` alone shows them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from unskew.base.tensors import Tensor, torch
from unskew.data import Log
from unskew.debias import Debiaser, Setting
from unskew.debias.evaluation import evaluate
from unskew.debias.setting import Plan, State
from unskew.metrics import auc
from unskew.report.table import Table
from unskew.run.models import method_of
from unskew.run.protocol import protocol_of
from unskew.study.paper_tables import ROWS, spread_text
from unskew.study.presets import PAPER_NAMES, SOURCES
from unskew.study.published import published_row
from unskew.study.workshop import digest_of
from unskew.training.inference import logits
from unskew.training.reader import Reader

if TYPE_CHECKING:
    from unskew.study.reproduce import Reproduction

SWITCH = "epoch_chosen_on_test"
DOUBLY_ROBUST = ("dr-jl", "mrdr")
"""Methods whose epoch the published scripts chose on the test set."""


class Best(State):
    """The best epoch of each seed so far; its weights are beside it, by network and parameter."""

    test_auc: Tensor
    """``[R]``."""


def chosen_on_test(method: Debiaser, log: Log, test: Log) -> Debiaser:
    """Return a method whose networks end up with the weights of the epoch with the best AUC on ``test``.

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
            """Return the method's passes; what the epoch before them left is scored first."""
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
            best = vars(setting.state(Best))
            with torch.no_grad():
                for name, weight in _weights(setting):
                    weight.copy_(best[name])

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
            now = _aucs(score, outcome).to(best.test_auc)
            better = now > best.test_auc
            for name, weight in weights.items():
                chosen = better.view(-1, *(1,) * (weight.dim() - 1))
                best.write(**{name: torch.where(chosen, weight, vars(best)[name])})
            best.write(test_auc=torch.where(better, now, best.test_auc))

    ChosenOnTest.__qualname__ = f"{kind.__qualname__}, {SWITCH}"
    chosen: Debiaser = ChosenOnTest(**method.get_params(deep=False))
    return chosen


def chosen_on_test_table(work: Reproduction) -> Table:
    """Return the AUC of the doubly robust methods at the last epoch, and at the epoch that the test set
    chooses."""
    rows = []
    for name in DOUBLY_ROBUST:
        for key in ROWS:
            (last,) = work.values([work.config(key, name)])
            before, after = (
                np.asarray(values) for values in (last["auc"], auc_chosen_on_test(work, key, name))
            )
            paper = published_row("dr", work.data, PAPER_NAMES[name], key, "auc")
            rows.append(
                (
                    f"{name} {SOURCES[key].title}",
                    spread_text(before),
                    spread_text(after),
                    "–" if paper is None else f"{paper.mean:.4f} ± {paper.std:.4f}",
                    *("–" if paper is None else f"{paper.deviation(x.mean()):+.1f}" for x in (before, after)),
                )
            )
    return Table(
        title=f"A diagnostic, no result: {SWITCH}",
        columns=("AUC", "last epoch", SWITCH, "paper", "off, in its s.d.", f"… with {SWITCH}"),
        rows=tuple(rows),
        caption=f"{SWITCH}: the published doubly robust scripts keep the epoch with the best AUC on the test"
        " set that they then report. It is off in every other table, and no model should be chosen so.",
    )


def auc_chosen_on_test(work: Reproduction, source: str, name: str) -> list[float]:
    """Return the test AUC of each seed at the epoch that the test set chooses."""
    config = work.config(source, name)

    def train() -> list[float]:
        data = work.workshop.load(config)
        assert data.test is not None
        p = work.result(work.config(source)).rows["calibrated"]
        method = method_of(config, protocol_of(config), name, data.train.density)
        model = chosen_on_test(method, data.train, data.test).fit(
            data.train, propensity=p, seeds=list(config.seeds), device=config.compute.device
        )
        return [float(value) for value in evaluate(model, data.test)["auc"]]

    aucs: list[float] = work.workshop.kept(digest_of(switch=SWITCH, run=work.workshop.key(config)), train)
    return aucs


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
