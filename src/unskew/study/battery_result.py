"""What the battery found, by method and world, and what auto chose: as tables, a picture and figures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from unskew.io.files import write_json, write_text
from unskew.search.decision import Decision
from unskew.study.battery_plan import PATIENCE, WIDTH, Settings
from unskew.study.shown_table import Shown, write_pages

AUTO = "auto"
AUTO_ALONE = "auto, no sample"
NOISE = 1.96
"""Standard errors over test users beyond which a difference counts."""
NEGLIGIBLE = 0.001
"""A gap below it is none: models that are nearly the same differ beyond noise in the fourth decimal."""
SHOWN_METRICS = ("auc", "dcg@6", "nll", "mean_over_rate")


@dataclass(frozen=True)
class Standing:
    """One method in one world.

    Attributes
    ----------
    metrics
        On the random test log, averaged over seeds.
    advantage, standard_error
        Over the naive ensemble in the criterion, paired by test user.
    regret
        What the best of the world is ahead of it.
    seconds
        Of its training; None for what is chosen among trained ones.
    """

    metrics: Mapping[str, float]
    advantage: float
    standard_error: float
    regret: float
    seconds: float | None

    @property
    def loses(self) -> bool:
        """Whether it is worse than the naive ensemble beyond noise."""
        return self.advantage < -NOISE * self.standard_error

    @property
    def wins(self) -> bool:
        """Whether it is better beyond noise."""
        return self.advantage > NOISE * self.standard_error

    @property
    def mark(self) -> str:
        """▲ or ▼ beyond noise."""
        return " ▲" if self.wins else " ▼" if self.loses else ""


@dataclass(frozen=True, eq=False)
class WorldResult:
    """What the battery found in one world.

    Attributes
    ----------
    best
        Of the candidates that auto chooses among.
    others
        How many candidates there are beside the naive ensemble.
    """

    world: str
    facts: Mapping[str, Any]
    standings: Mapping[str, Standing]
    decisions: Mapping[str, tuple[Decision, ...]]
    best: str
    others: int

    @property
    def gap(self) -> float | None:
        """What the best candidate is ahead of the naive ensemble, where that is beyond noise, and matters.

        It was found to be the best on the test users that it is judged by, so that its advantage must stand a
        correction for so many candidates (Bonferroni's): the greatest of twelve that are all like naive is
        beyond 1.96 standard errors in one world of four.
        """
        best = self.standings[self.best]
        noise = -float(ndtri(ndtr(-NOISE) / max(self.others, 1))) * best.standard_error
        return best.advantage if best.advantage > noise and best.advantage >= NEGLIGIBLE else None

    def closed(self, name: str) -> float | None:
        """The share of the gap that a way of choosing closes; None where there is no gap."""
        return None if self.gap is None else self.standings[name].advantage / self.gap


@dataclass(frozen=True, eq=False)
class BatteryResult:
    """Tables, a picture and figures of a battery."""

    settings: Settings
    worlds: tuple[WorldResult, ...]

    @property
    def methods(self) -> list[str]:
        """Rows of the table."""
        found = dict.fromkeys(name for each in self.worlds for name in each.standings)
        return sorted(found, key=lambda name: name in (AUTO, AUTO_ALONE))

    def regret_table(self) -> Shown:
        """Method × world: regret, and in how many worlds it loses to the naive ensemble."""
        rows = []
        for name in self.methods:
            standings = [each.standings.get(name) for each in self.worlds]
            known = [standing for standing in standings if standing is not None]
            regrets = [standing.regret for standing in known]
            rows.append(
                (
                    name,
                    *(_regret_text(standing) for standing in standings),
                    f"{np.mean(regrets):.4f}",
                    f"{sum(standing.loses for standing in known)} of {len(known)}",
                )
            )
        return Shown(
            title=f"Regret in {self.settings.criterion} against the best of each world",
            columns=("method", *(each.world for each in self.worlds), "mean", "loses to naive"),
            rows=tuple(rows),
            caption="▲ better, ▼ worse than the naive ensemble beyond noise (paired by test user).",
        )

    def metric_table(self, name: str) -> Shown:
        """Method × world of one metric."""
        rows = tuple(
            (
                method,
                *(
                    "–"
                    if method not in each.standings
                    else f"{each.standings[method].metrics.get(name, np.nan):.4f}"
                    for each in self.worlds
                ),
            )
            for method in self.methods
        )
        return Shown(title=name, columns=("method", *(each.world for each in self.worlds)), rows=rows)

    def auto_table(self) -> Shown:
        """What auto chose in each world, and how much of the gap it closed."""
        rows = []
        for each in self.worlds:
            for name, decisions in each.decisions.items():
                closed = each.closed(name)
                standing = each.standings[name]
                rows.append(
                    (
                        each.world,
                        name,
                        ", ".join(dict.fromkeys(map(_chosen_text, decisions))),
                        f"{decisions[0].rows:,}",
                        f"{standing.advantage:+.4f}{standing.mark}",
                        f"{each.standings[each.best].advantage:+.4f} ({each.best})",
                        "no gap beyond noise" if closed is None else f"{100 * closed:.0f} %",
                    )
                )
        return Shown(
            title="What auto chose",
            columns=("world", "", "chose", "sample", "ahead of naive", "best ahead by", "closed"),
            rows=tuple(rows),
            caption="The best is the best candidate of auto, which may ship their mean. A gap is beyond"
            " noise where that advantage is, corrected for the number of candidates, and at least"
            f" {NEGLIGIBLE:g}.",
            text_columns=3,
        )

    def world_table(self) -> Shown:
        """Sizes and cost of each world."""
        rows = tuple(
            (
                each.world,
                f"{each.facts['clicks']:,}",
                f"{100 * each.facts['density']:.2g} %",
                f"{each.facts['sample']:,}",
                f"{each.facts['test']:,}",
                f"{each.facts['repetitions']} × {each.facts['members']}",
                f"{each.facts['seconds']:.0f} s",
            )
            for each in self.worlds
        )
        return Shown(
            title="The worlds",
            columns=("world", "clicks", "density", "sample", "test", "repetitions × members", "training"),
            rows=rows,
        )

    def tables(self) -> list[Shown]:
        """All tables."""
        of_metrics = map(self.metric_table, SHOWN_METRICS)
        return [self.regret_table(), self.auto_table(), self.world_table(), *of_metrics]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "settings": {name: getattr(self.settings, name) for name in self.settings.__dataclass_fields__},
            "worlds": {
                each.world: {
                    "facts": dict(each.facts),
                    "best": each.best,
                    "gap": each.gap,
                    "closed": {name: each.closed(name) for name in each.decisions},
                    "methods": {
                        name: {
                            "metrics": dict(standing.metrics),
                            "advantage": standing.advantage,
                            "standard_error": standing.standard_error,
                            "regret": standing.regret,
                            "loses": standing.loses,
                            "wins": standing.wins,
                            "seconds": standing.seconds,
                        }
                        for name, standing in each.standings.items()
                    },
                    "decisions": {
                        name: [decision.to_dict() for decision in decisions]
                        for name, decisions in each.decisions.items()
                    },
                }
                for each in self.worlds
            },
            "notes": self.notes,
            "tables": [asdict(each) for each in self.tables()],
        }

    def write(self, out: Path) -> None:
        """``battery.json``, ``battery.svg`` and the tables as pages."""
        from unskew.report.plots.battery import battery_svg

        figures = self.to_dict()
        write_json(out / "battery.json", figures)
        write_text(out / "battery.svg", battery_svg(figures))
        write_pages(out, "The battery", self.tables(), self.notes)

    @property
    def notes(self) -> list[str]:
        """What the numbers rest on."""
        of = self.settings
        return [
            f"{of.backbone} of width {WIDTH}, scale {of.scale}; ensembles by mean logit, early stopping"
            f" after {PATIENCE} epochs",
            f"auto looks at {100 * of.unbiased_share:g} % of the random pairs; all are judged on the others",
            "propensities by logistic regression, Platt-calibrated, 5 folds, one fit for all repetitions;"
            " nothing is chosen on the test",
            "other λ is tried for naive and for the three methods that the sample puts first; the level of"
            " auto is set by the sample",
        ]


def _chosen_text(decision: Decision) -> str:
    many = len(decision.shipped)
    return decision.chosen if many == 1 else f"the mean of {many}"


def _regret_text(standing: Standing | None) -> str:
    if standing is None:
        return "–"
    return f"{standing.regret:.4f}{standing.mark}"
