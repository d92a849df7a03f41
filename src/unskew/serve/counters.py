"""What a service counts of itself, and its page for Prometheus.

Counts are plain numbers that the one thread of the service adds to; they become metrics when they are asked
for, since those of the client's library cost a lock each, and a histogram of scores one for each row.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)

SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
"""Ends of the classes of latencies."""

SCORES = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
"""Ends of the classes of scores."""

AT_ONCE = 4096
"""Scores that are put into classes together: of few, the calls of NumPy cost more than the counting."""

_EDGES = np.array(SCORES)


class Counters:
    """Counts since the service began."""

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.seconds: dict[str, list[float]] = {}
        """By path: a count for each class and one beyond, and the sum."""
        self.scores = [0] * (len(SCORES) + 1)
        self.score_sum = 0.0
        self.unscored = 0
        self.rows = 0
        self.unknown: Counter[str] = Counter(user=0, item=0)
        self.outcomes: Counter[str] = Counter(counted=0, known=0, forgotten=0, unscored=0)
        self.reloads: Counter[str] = Counter(loaded=0, refused=0)
        self.in_flight = 0
        self.in_flight_bytes = 0
        self._scores: list[NDArray[np.float32]] = []
        self._rows_in_classes = 0

    def answered(self, path: str, status: int, seconds: float) -> None:
        """A request was answered."""
        self.requests[path, status] += 1
        classes = self.seconds.get(path)
        if classes is None:
            classes = self.seconds[path] = [0.0] * (len(SECONDS) + 2)
        classes[bisect_left(SECONDS, seconds)] += 1
        classes[-1] += seconds

    def scored(self, score: NDArray[np.float32]) -> None:
        """Rows were scored; NaN is no score."""
        self._scores.append(score)
        self.rows += len(score)
        if self.rows - self._rows_in_classes >= AT_ONCE:
            self.settle()

    def settle(self) -> None:
        """Put the latest scores into their classes, as whoever reads these must ask for first."""
        if not self._scores:
            return
        score = np.concatenate(self._scores)
        self._scores, self._rows_in_classes = [], self.rows
        known = score[~np.isnan(score)]
        self.unscored += len(score) - len(known)
        counts = np.bincount(np.searchsorted(_EDGES, known), minlength=len(self.scores))
        self.scores = (counts + self.scores).tolist()
        self.score_sum += float(known.sum(dtype=np.float64))


class Metrics:
    """The page of ``/metrics``.

    Parameters
    ----------
    counters
        What is counted.
    gauges
        What is looked up when the page is asked for: name → (help, value).
    model
        Facts of the model that is served.
    """

    def __init__(
        self,
        counters: Counters,
        gauges: Callable[[], dict[str, tuple[str, float]]],
        model: Callable[[], dict[str, str]],
    ) -> None:
        self._counters, self._gauges, self._model = counters, gauges, model
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)
        ProcessCollector(registry=self._registry)

    def page(self) -> bytes:
        """In the text format of Prometheus."""
        return generate_latest(self._registry)

    def collect(self) -> Iterator[Any]:
        """What the library asks for."""
        counted = self._counters
        yield InfoMetricFamily("unskew_model", "What is served.", self._model())
        requests = CounterMetricFamily("unskew_requests", "Requests answered.", labels=["path", "status"])
        for (path, status), count in list(counted.requests.items()):
            requests.add_metric([path, str(status)], count)
        yield requests
        latency = HistogramMetricFamily(
            "unskew_request_seconds", "From the head of a request to its answer.", labels=["path"]
        )
        for path, classes in list(counted.seconds.items()):
            latency.add_metric([path], _buckets(SECONDS, classes[:-1]), classes[-1])
        yield latency
        scores = HistogramMetricFamily("unskew_scores", "Scores given.")
        scores.add_metric([], _buckets(SCORES, counted.scores), counted.score_sum)
        yield scores
        for name, text, count in (
            ("rows", "Rows scored.", counted.rows),
            ("rows_without_score", "Rows that got null.", counted.unscored),
        ):
            yield CounterMetricFamily(f"unskew_{name}", text, count)
        for name, text, label, counts in (
            ("unknown_ids", "Ids that were not there in training.", "side", counted.unknown),
            ("outcomes", "Outcomes that came.", "result", counted.outcomes),
            ("reloads", "Run folders that came into place.", "result", counted.reloads),
        ):
            family = CounterMetricFamily(f"unskew_{name}", text, labels=[label])
            for key, count in list(counts.items()):
                family.add_metric([key], count)
            yield family
        yield GaugeMetricFamily("unskew_in_flight", "Requests not answered yet.", counted.in_flight)
        for name, (text, value) in self._gauges().items():
            yield GaugeMetricFamily(f"unskew_{name}", text, value)


def _buckets(ends: tuple[float, ...], counts: Any) -> list[tuple[str, float]]:
    """Cumulative, as Prometheus has them."""
    running = np.cumsum(counts).tolist()
    return list(zip([*(f"{end:g}" for end in ends), "+Inf"], running, strict=True))
