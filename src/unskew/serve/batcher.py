"""Small requests that came in at once, scored in one call of the model."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from unskew.serve.served_model import Parts, ServedModel

AT_ONCE = 1024
"""Rows of several requests that one call of the model takes."""

Scored = tuple[NDArray[np.float32], int]
"""Of one request: its scores, and the number of its first row."""

Tell = Callable[[Scored | Exception], None]


class Batcher:
    """What waits for one model.

    Parameters
    ----------
    model
        What scores.
    remember
        Called with the scores of each call; the number of their first row.
    """

    def __init__(
        self, model: ServedModel, remember: Callable[[ServedModel, NDArray[np.float32]], int]
    ) -> None:
        self.model, self._remember = model, remember
        self._loop = asyncio.get_running_loop()
        self._waiting: list[tuple[Parts, Tell]] = []

    def add(self, parts: Parts, tell: Tell) -> None:
        """Call ``tell`` with the scores, or with why there are none, at the end of this turn of the loop."""
        if not self._waiting:
            # After all that was read from connections in this turn.
            self._loop.call_soon(self.flush)
        self._waiting.append((parts, tell))

    def score(self, parts: Parts) -> asyncio.Future[Scored]:
        """The same for whoever awaits them."""
        future: asyncio.Future[Scored] = self._loop.create_future()

        def tell(found: Scored | Exception) -> None:
            if future.done():
                return
            if isinstance(found, Exception):
                future.set_exception(found)
            else:
                future.set_result(found)

        self.add(parts, tell)
        return future

    def flush(self) -> None:
        """Score what waits."""
        while self._waiting:
            taken, rows = 0, 0
            while taken < len(self._waiting) and (
                rows == 0 or rows + self._waiting[taken][0].rows <= AT_ONCE
            ):
                rows += self._waiting[taken][0].rows
                taken += 1
            now, self._waiting = self._waiting[:taken], self._waiting[taken:]
            self._score_together(now)

    def _score_together(self, requests: list[tuple[Parts, Tell]]) -> None:
        try:
            scores = self.model.score(Parts.joined([parts for parts, _ in requests]))
            first = self._remember(self.model, scores)
        except Exception as error:
            for _, tell in requests:
                tell(error)
            return
        start = 0
        for parts, tell in requests:
            end = start + parts.rows
            tell((scores[start:end], first + start))
            start = end
