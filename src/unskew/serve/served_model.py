"""An exported model: rows of a request to scores, by onnxruntime and without torch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import DataError, ParameterError, RunFolderError
from unskew.serve.requests import RowReader
from unskew.serve.settings import Unseen

KNOWN = ("known_user", "known_item")
"""Outputs of the graph that say whether training had rows of an id; every other output is a score."""


class Scored(NamedTuple):
    """The outputs of the graph by name, NaN where there is no score, and the number of unknown ids."""

    outputs: dict[str, NDArray[np.float32]]
    unknown_users: int
    unknown_items: int


class ServedModel:
    """An ONNX file, as ``unskew export`` writes it.

    Parameters
    ----------
    path
        The file; its stem is the name of the model.
    unseen
        The answer to unknown ids; None is the model's own rule.
    rows
        Rows of a request.
    """

    def __init__(self, path: Path, unseen: Unseen | None, rows: int) -> None:
        import onnxruntime

        self.name = path.stem
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self._session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.facts: dict[str, Any] = dict(self._session.get_modelmeta().custom_metadata_map)
        described = json.loads(self.facts["inputs"])
        if any("buckets" in item for item in described):
            raise RunFolderError(
                "its ids share codes by a hash, which a service cannot make",
                remedy="train with a code for each id, or use unskew score",
            )
        self.reader = RowReader(described, rows)
        self._names = [output.name for output in self._session.get_outputs()]
        self.outputs = [name for name in self._names if name not in KNOWN]
        self.main = self.outputs[0]
        """The output that outcomes are compared with."""
        features = any("kind" in item for item in described)
        if unseen == "other" and not features:
            raise ParameterError(
                "--unseen other is for models that read features; this one reads ids alone",
                remedy="give --unseen nan or error",
            )
        self.unseen: Unseen = unseen or ("other" if features else "nan")
        # A row without known values must get probabilities, or nothing.
        blank = {name: "" if field["kind"] == "id" else None for name, field in self.reader.fields.items()}
        inputs = self.reader.read(json.dumps({"rows": [blank]}).encode())
        for name, (score,) in zip(self._names, self._session.run(None, inputs), strict=True):
            if not (np.isnan(score) or 0 <= score <= 1):
                raise RunFolderError(
                    f"its output {name} is no probability", where=self.name, remedy="train it again"
                )

    def score(self, inputs: dict[str, NDArray[Any]]) -> Scored:
        """Return the scores of rows that :attr:`reader` has read."""
        answers = dict(zip(self._names, self._session.run(None, inputs), strict=True))
        unknown = [~answers.pop(name) for name in KNOWN]
        either = np.logical_or(*unknown)
        if self.unseen == "error" and either.any():
            raise DataError(
                "its user or item was not seen in training",
                where=f"row {int(np.flatnonzero(either)[0])}",
                remedy="leave it out, or serve with --unseen nan",
            )
        if self.unseen == "nan":
            answers = {name: np.where(either, np.float32(np.nan), score) for name, score in answers.items()}
        return Scored(answers, *(int(np.count_nonzero(side)) for side in unknown))
