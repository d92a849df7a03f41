"""ECE against the performance of IPS: along one Platt optimisation (paper), or over rows × seeds (honest)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from unskew.metrics.registry import RANKING
from unskew.report.plots.reproduction import Cloud
from unskew.reproduce.correlation import (
    Correlation,
    platt_path,
    rank_correlation,
    scaled,
    scaled_ece,
)
from unskew.reproduce.paper_protocol import Paper
from unskew.reproduce.presets import NOISY, SOURCES, sources_of
from unskew.reproduce.reproduction import Reproduction
from unskew.study.shown import Shown


@dataclass(frozen=True)
class CorrelationStudy:
    """Points, and their correlations raw and partial."""

    clouds: list[Cloud]
    correlations: list[Correlation]
    about: str

    @property
    def notes(self) -> dict[str, str]:
        """What the panel of each metric is titled with: the raw correlation."""
        return {
            each.metric: f"ρ = {each.rho:+.2f} [{each.low:+.2f}, {each.high:+.2f}]"
            for each in self.correlations
            if not each.partial
        }

    def shown(self, title: str) -> Shown:
        """The correlations as a table."""
        rows = []
        for metric in RANKING:
            cells = [metric]
            for partial in (False, True):
                found = [c for c in self.correlations if c.metric == metric and c.partial == partial]
                cells += [f"{c.rho:+.2f} [{c.low:+.2f}, {c.high:+.2f}]" for c in found] or ["–"]
            rows.append(tuple(cells))
        heads = ("", "Spearman's ρ of ECE with it", "… without mean weight and ESS")
        return Shown(title=title, columns=heads, rows=tuple(rows), caption=self.about)


def ece_against_performance(work: Reproduction) -> CorrelationStudy:
    """The study of the supplement under ``paper``, and its unconfounded counterpart under ``honest``."""
    return _along_platt(work) if work.settings.name == "paper" else _over_rows(work)


def _along_platt(work: Reproduction) -> CorrelationStudy:
    assert isinstance(work.settings, Paper)
    key = NOISY.key if work.settings.switches.platt_dropout else "raw"
    start = work.estimated([key])[key]
    path = platt_path(start.sketch)
    given = {
        f"evaluation {number}": np.repeat(scaled(start.rows[:1], slope, intercept), len(work.seeds), axis=0)
        for number, slope, intercept in path
    }
    found = work.scores_with("ips", given)
    eces = [scaled_ece(start.sketch, slope, intercept) for _, slope, intercept in path]
    metrics = {
        metric: [float(np.mean(found[name].facts["metrics"][""][metric])) for name in given]
        for metric in RANKING
    }
    log = work.dataset.train
    weights = [1.0 / rows[0, log.clicked] for rows in given.values()]
    controls = {
        "mean weight": [float(w.mean()) for w in weights],
        "ess": [float(w.sum() ** 2 / (w**2).sum()) for w in weights],
    }
    cluster = list(range(len(eces)))
    return CorrelationStudy(
        clouds=[Cloud("Platt's optimisation", eces, metrics)],
        correlations=[
            *rank_correlation(eces, metrics, cluster=cluster),
            *rank_correlation(eces, metrics, cluster=cluster, controls=controls),
        ],
        about=(
            f"one optimisation of Platt scaling on seed {work.seeds[0]}, a checkpoint every 10 evaluations"
            f" ({len(path)} in all); IPS trained with each, mean of {len(work.seeds)} seeds; 95 % intervals"
            " by a bootstrap over checkpoints, which follow one another and so are too narrow"
        ),
    )


def _over_rows(work: Reproduction) -> CorrelationStudy:
    keys = sources_of(work.settings.name)
    estimated, found = work.estimated(keys), work.scores("ips", keys)
    clouds = [
        Cloud(
            SOURCES[key].title,
            list(estimated[key].figures["ece"]),
            {metric: found[key].facts["metrics"][""][metric] for metric in RANKING},
        )
        for key in keys
    ]
    judged = [(key, cloud) for key, cloud in zip(keys, clouds, strict=True) if key != "constant"]
    eces = [value for _, cloud in judged for value in cloud.ece]
    metrics = {
        metric: [value for _, cloud in judged for value in cloud.metrics[metric]] for metric in RANKING
    }
    controls = {
        name: [value for key, _ in judged for value in estimated[key].figures[figure]]
        for name, figure in (("mean weight", "weight_check"), ("ess", "effective_sample_size"))
    }
    cluster = [seed for _ in judged for seed in work.seeds]
    return CorrelationStudy(
        clouds=clouds,
        correlations=[
            *rank_correlation(eces, metrics, cluster=cluster),
            *rank_correlation(eces, metrics, cluster=cluster, controls=controls),
        ],
        about=(
            f"{len(judged)} rows × {len(work.seeds)} seeds, without the constant, which has an ECE of 0 by"
            " construction; 95 % intervals by a bootstrap over seeds"
        ),
    )
