"""The rows of a stream that are kept in memory, as tensors: batches come as numbers, and look them up.

On a GPU the tensors are there, so that an epoch sends it numbers alone.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from unskew.data import Encoders, Rows, StreamedLog
from unskew.data.remembered import RememberedRows
from unskew.training.samplers import Known, Sample

if TYPE_CHECKING:
    from jaxtyping import Float, Int

DEVICE_SHARE = 0.1
"""Of a GPU's free memory, what the rows may take there at most; otherwise they stay in the CPU's."""

TYPES = {
    "user": torch.int64,
    "item": torch.int64,
    "click": torch.float32,
    "conversion": torch.float32,
    "codes": torch.int32,
    "numbers": torch.float32,
}
"""What rows are read as; they are kept in as few bytes as they need."""


@dataclass(frozen=True, eq=False)
class PropensityTable:
    """Propensities of rows, one line for all replicas, or lines that each replica has one of.

    Parameters
    ----------
    values
        ``[m, lines]``, of all rows or of some.
    lines
        Which line each replica reads; None where there is one.
    position
        Of all rows, their places in ``values``; None where it has all rows.
    """

    values: Tensor
    lines: Tensor | None = None
    position: Tensor | None = None

    def of(self, number: Int[Tensor, "1 ..."]) -> Float[Tensor, "_ ..."]:
        """Of rows by their numbers ``[1, …]``, for all replicas or for each."""
        at = number[0] if self.position is None else self.position[number[0]]
        found = self.values[at].movedim(-1, 0)
        return found if self.lines is None else found[self.lines]


@dataclass(frozen=True, eq=False)
class RowTable:
    """All rows of a stream.

    Parameters
    ----------
    columns
        What is known of each, by name; features have several columns.
    places
        Of the features that are read, among all: columns of codes, and of numbers; None for all of them.
    observed, everywhere
        Propensities for batches of O, and for those of D.
    """

    columns: dict[str, Tensor]
    places: dict[str, Tensor | None] = field(default_factory=dict)
    observed: PropensityTable | None = None
    everywhere: PropensityTable | None = None

    @classmethod
    def of(cls, source: StreamedLog, read: Encoders | None, device: torch.device) -> RowTable | None:
        """The rows of a stream that keeps them, with the features that are read; None for any other.

        All trainings on a stream share one.
        """
        rows = source.source
        if not isinstance(rows, RememberedRows):
            return None
        name = f"rows on {device}"
        if name not in source.found:
            source.found[name] = cls._moved(rows, device)
        table: RowTable = source.found[name]
        if source.encoders is None or read is None:
            return table
        places = read.places_in(source.encoders, "row")
        there: dict[str, Tensor | None] = {}
        for kind, at in places.items():
            if len(at):
                is_all = np.array_equal(at, np.arange(table.columns[kind].shape[1]))
                there[kind] = None if is_all else torch.as_tensor(at, device=table.device)
        return replace(table, places=there)

    @classmethod
    def _moved(cls, rows: RememberedRows, device: torch.device) -> RowTable:
        if device.type == "cuda" and rows.nbytes > DEVICE_SHARE * torch.cuda.mem_get_info(device)[0]:
            device = torch.device("cpu")
        kept = {name: values for name, values in rows.arrays().items() if name in TYPES}
        with warnings.catch_warnings():
            # Logs are frozen, and so is the table: it is only read.
            warnings.filterwarnings("ignore", "The given NumPy array is not writable")
            return cls({name: torch.from_numpy(values).to(device) for name, values in kept.items()})

    @property
    def device(self) -> torch.device:
        """Where the rows are."""
        return self.columns["user"].device

    def looked_up(self, sample: Sample) -> Sample:
        """Rows instead of their numbers ``[1, steps, B]``."""
        observed, cells = sample.observed, sample.cells
        assert not isinstance(observed, Known)
        assert not isinstance(cells, Known)
        return Sample(
            None if observed is None else self.known(observed, self.observed, conversion=True),
            None if cells is None else self.known(cells, self.everywhere),
        )

    def known(
        self,
        number: Int[Tensor, "1 ..."],
        propensity: PropensityTable | None = None,
        *,
        conversion: bool = False,
    ) -> Known:
        """Rows by their numbers, with what is known of them."""
        features = {name: self._column(name, number, at) for name, at in self.places.items()}
        return Known(
            rows=Rows(user=self._column("user", number), item=self._column("item", number), **features),
            click=self._column("click", number),
            conversion=self._column("conversion", number)
            if conversion and "conversion" in self.columns
            else None,
            propensity=None if propensity is None else propensity.of(number),
        )

    def _column(self, name: str, number: Tensor, at: Tensor | None = None) -> Tensor:
        found = self.columns[name][number]
        if at is not None:
            found = found.index_select(-1, at)
        return found.to(TYPES[name])
