"""What a method can do once it is trained: predict, tell what it held out, and be saved."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.debias.core.method import Method
from unskew.debias.core.split import Split
from unskew.debias.core.trained import Trained
from unskew.errors import ParameterError
from unskew.io.columns import require_same_length
from unskew.io.vocabulary import UNSEEN_CODE, Unseen
from unskew.log import Log, require_log
from unskew.metrics import WeightDiagnostics
from unskew.metrics.collapse import Collapsed
from unskew.seeds import as_seeds
from unskew.training import resolve_device, rows_of
from unskew.training.inference import probability_moments


class Fitted(Method):
    """A method with one trained conversion model per seed."""

    def _start(self, seeds: int | Sequence[int], device: str) -> None:
        self.seeds_ = as_seeds(seeds)
        self.device_ = resolve_device(device)
        self.clipping_: tuple[WeightDiagnostics, ...] | None = None

    def _keep(self, log: Log, trained: Trained) -> None:
        self.users_, self.items_ = log.users, log.items
        self.networks_ = trained.networks
        self.history_ = trained.history
        self.validation_loss_ = trained.validation_loss
        self.split_: Split | None = Split.of(log, self.seeds_, trained.held_out)
        self.collapsed_: tuple[Collapsed, ...] = trained.collapsed(self.seeds_)

    def predict(self, log: Log) -> NDArray[np.float64]:
        """Conversion probabilities of the rows of a log ``[n]``, averaged over seeds."""
        return np.asarray(self.predict_each(log).mean(axis=0))

    def predict_each(self, log: Log) -> NDArray[np.float64]:
        """Conversion probabilities ``[seeds, n]`` of the rows of a log."""
        self._require_fitted("networks_")
        require_log(log, "what to predict", "give a Log, such as data.test, or ids to predict_pairs_each")
        return self._predict_codes(
            self.users_.recode(log.user, log.users), self.items_.recode(log.item, log.items)
        )

    def predict_pairs_each(self, user: Any, item: Any, *, unseen: Unseen = "error") -> NDArray[np.float64]:
        """Conversion probabilities ``[seeds, n]`` of pairs of ids; unknown ids are an error, or NaN."""
        self._require_fitted("networks_")
        user_code = self.users_.encode(user, unseen=unseen)
        item_code = self.items_.encode(item, unseen=unseen)
        require_same_length(len(user_code), len(item_code), self.items_.name)
        known = (user_code != UNSEEN_CODE) & (item_code != UNSEEN_CODE)
        result = np.full((len(self.seeds_), len(known)), np.nan)
        result[:, known] = self._predict_codes(user_code[known], item_code[known])
        return result

    def validation_rows(self, log: Log) -> NDArray[np.int64]:
        """Numbers ``[seeds, n]`` of a log's rows that each seed held out to choose its epoch.

        Which clicks those are follows from the pairs' ids: the log may be the one of training, in any order,
        read again, or a part of it.
        """
        self._require_fitted("networks_")
        if self.split_ is None:
            raise ParameterError(
                f"this {self.name} does not tell which rows it held out", remedy="fit it with this version"
            )
        return self.split_.rows(log, self.seeds_)

    def save(self, folder: str | Path, *, overwrite: bool = False) -> None:
        """Write a folder of plain files that :func:`unskew.load_model` reads."""
        self._require_fitted("networks_")
        from unskew.debias.core.storage import save_model

        save_model(self, folder, overwrite=overwrite)

    def _predict_codes(self, user: NDArray[np.int32], item: NDArray[np.int32]) -> NDArray[np.float64]:
        # The first tower of the network that predicts; of members that share weights, all of them.
        mean, _ = probability_moments(self.networks_["prediction"], rows_of(user, item, self.device_))
        return np.asarray(mean.cpu().numpy())
