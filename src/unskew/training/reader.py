"""The reader of a fitted model: its own codes of ids, and features by its encoders."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from unskew.base.columns import column_of, frame_of, is_frame, require_same_length
from unskew.base.errors import DataError, ParameterError
from unskew.base.estimator import require_choice
from unskew.base.tensors import Tensor, torch
from unskew.data import Block, Encoders, Log, Rows, require_log
from unskew.data.described import NO_ROWS, ROWS_REMEDY
from unskew.data.encoder import ROLES
from unskew.data.schema import Role
from unskew.data.values import Values, values_in
from unskew.data.vocabulary import UNSEEN_CODE, Vocabulary

Unseen = Literal["error", "nan", "other", "average"]
"""What becomes of a user or item that was not there in training: an error, NaN, what a model with features
says of somebody whom it does not know, or the mean over those that it knows."""

AVERAGE_OVER = 256
"""Known users (or items) whose mean stands for one that is not known, with ``unseen="average"``."""

Codes = NDArray[np.int64]
Predict = Callable[[Rows], NDArray[np.float64]]


def on_device(values: NDArray[Any], device: torch.device) -> Tensor:
    """Return an array as a tensor, which is only read: on a CPU the array itself, mapped or not."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        return torch.from_numpy(values).to(device)


class Tables:
    """Features on a device: by user, by item and by row."""

    def __init__(self, blocks: Mapping[Role, Block], device: torch.device) -> None:
        self._codes, self._numbers = (
            [on_device(getattr(blocks[role], kind), device) for role in ROLES]
            for kind in ("codes", "numbers")
        )

    @classmethod
    def of(cls, log: Log, device: torch.device) -> Tables | None:
        """Return the tables of a training log; None where it has the ids alone."""
        encoders = log.encoders
        if encoders is None or log.features is None:
            return None
        if log.space == "matrix" and encoders.of_role("row"):
            name = encoders.of_role("row")[0].feature.name
            raise DataError(f"feature '{name}' is of single rows, and {NO_ROWS}", remedy=ROWS_REMEDY)
        return cls({**encoders.tables, "row": log.encoded_rows()}, device)

    @property
    def columns(self) -> int:
        """Return the number of columns of all features."""
        return sum(each.shape[1] for each in (*self._codes, *self._numbers))

    def added(self, rows: Rows, row: Tensor) -> Rows:
        """Return rows with the columns of users, then of items, then of rows by their numbers in the log."""
        sides, joined = (rows.user, rows.item, row), {}
        for name, tables in (("codes", self._codes), ("numbers", self._numbers)):
            parts = [table[at] for table, at in zip(tables, sides, strict=True) if table.shape[1]]
            if parts:
                joined[name] = parts[0] if len(parts) == 1 else torch.cat(parts, dim=-1)
        return Rows(user=rows.user, item=rows.item, **joined)


class Asked(NamedTuple):
    """Rows ``[1, n]`` to predict, and which of them are of users and items that the model does not know."""

    rows: Rows
    unseen_user: NDArray[np.bool_]
    unseen_item: NDArray[np.bool_]

    @property
    def known(self) -> NDArray[np.bool_]:
        """Return where both are known."""
        return ~(self.unseen_user | self.unseen_item)


@dataclass(frozen=True)
class Reader:
    """From ids and features to the rows of a fitted model.

    Parameters
    ----------
    encoders
        None for a model that reads the ids alone.
    """

    users: Vocabulary
    items: Vocabulary
    encoders: Encoders | None
    device: torch.device

    def policy(self, unseen: Unseen | None) -> Unseen:
        """Return what is done with what is not known; None is ``"other"`` with features and ``"error"``
        without."""
        if unseen is None:
            return "error" if self.encoders is None else "other"
        require_choice("unseen", unseen, ("error", "nan", "other", "average"))
        if unseen == "other" and self.encoders is None:
            raise ParameterError(
                "unseen='other' is for models that read features; this one reads ids alone",
                remedy="use unseen='average' or 'nan', or train with features and --learner dcn",
            )
        if unseen == "average" and self.encoders is not None:
            raise ParameterError(
                "unseen='average' is for models that read ids alone; this one reads features",
                remedy="use unseen='other', which says what the features tell",
            )
        return unseen

    def parts_of(self, log: Any, unseen: Unseen | None = None) -> Iterator[Asked]:
        """Yield the rows of a log, a block at a time, or those of a data frame."""
        if is_frame(log):
            yield self.of_frame(log, None, None, unseen)
            return
        require_log(log, "what to predict", "give a Log, such as data.test, or ids to predict_pairs_each")
        yield from (self.of_log(block, unseen) for block in log.blocks())

    def of_log(self, log: Log, unseen: Unseen | None = None) -> Asked:
        """Return the rows of a log; its features are coded as those of training were."""
        policy = self.policy(unseen)
        strict: Literal["error", "nan"] = "error" if policy == "error" else "nan"
        user = self.users.recode(log.user, log.users, unseen=strict)
        item = self.items.recode(log.item, log.items, unseen=strict)
        blocks = None
        if self.encoders is not None and log.features is not None:
            own = self._coded(log) or self.encoders.encode(log)
            blocks = {
                "user": own["user"].take(log.user),
                "item": own["item"].take(log.item),
                "row": own["row"],
            }
        return self._asked(user, item, policy, blocks)  # type: ignore[arg-type]

    def _coded(self, log: Log) -> dict[Role, Block] | None:
        """Return the features of a log that codes them as training did; None for other logs."""
        assert log.features is not None
        assert self.encoders is not None
        coded_by = log.features.encoders
        if coded_by is None:
            return None
        if coded_by not in (self.encoders, self.encoders.whole):
            return None
        return {**self.encoders.tables, "row": self.encoders.part_of(coded_by, log.encoded_rows())}

    def of_pairs(self, user: Any, item: Any, unseen: Unseen | None = None) -> Asked:
        """Return rows of pairs of ids, with what was known of them in training."""
        policy = self.policy(unseen)
        return self._asked(*self._codes(user, item, policy), policy, None)

    def of_rows(self, log: Log, values: Mapping[str, Values]) -> Asked:
        """Return the rows of a log of known users and items with values of the features of rows, by name.

        Features of users and items are those of training.
        """
        assert self.encoders is not None
        user = self.users.recode(log.user, log.users).astype(np.int64)
        item = self.items.recode(log.item, log.items).astype(np.int64)
        tables = self.encoders.tables
        blocks: dict[Role, Block] = {
            "user": tables["user"].take(user),
            "item": tables["item"].take(item),
            "row": self.encoders.block("row", len(log), values),
        }
        return self._asked(user, item, "error", blocks)

    def of_codes(self, user: NDArray[Any], item: NDArray[Any]) -> Rows:
        """Return rows of pairs of codes, with what was known of them in training."""
        return self._asked(user, item, "error", None).rows

    def of_frame(
        self, frame: Any, user: str | None = None, item: str | None = None, unseen: Unseen | None = None
    ) -> Asked:
        """Return the rows of a data frame, by the names of its id columns (those of training by default).

        Columns of features are read where they are there; what was known of a user or item in training stands
        in for those that are not. Other columns are not looked at.
        """
        policy = self.policy(unseen)
        table = frame_of(frame)
        ids = (column_of(table, user or self.users.name), column_of(table, item or self.items.name))
        codes = self._codes(*ids, policy)
        if self.encoders is None:
            return self._asked(*codes, policy, None)
        blocks = {}
        for role, code in zip(ROLES, (*codes, None), strict=True):
            columns: dict[str, Any] = {}
            if code is not None:
                known = np.where(code == UNSEEN_CODE, len(self.encoders.tables[role].codes) - 1, code)
                columns = dict(self.encoders.table_columns(role, known))
            columns |= values_in(table, (encoder.feature for encoder in self.encoders.of_role(role)))
            blocks[role] = self.encoders.block(role, len(codes[0]), columns)
        return self._asked(*codes, policy, blocks)

    def _codes(self, user: Any, item: Any, policy: Unseen) -> tuple[Codes, Codes]:
        strict: Literal["error", "nan"] = "error" if policy == "error" else "nan"
        codes = self.users.encode(user, unseen=strict), self.items.encode(item, unseen=strict)
        require_same_length(len(codes[0]), len(codes[1]), self.items.name)
        return codes[0].astype(np.int64), codes[1].astype(np.int64)

    def _asked(self, user: Codes, item: Codes, policy: Unseen, blocks: Mapping[Role, Block] | None) -> Asked:
        """Return rows from codes, of which the last is for those that are not known."""
        if self.encoders is not None and policy == "other":
            # Ids of the vocabulary that no row of training had are as good as unknown.
            seen = self.encoders.seen
            user = np.where((user != UNSEEN_CODE) & seen["user"][user], user, UNSEEN_CODE)
            item = np.where((item != UNSEEN_CODE) & seen["item"][item], item, UNSEEN_CODE)
        unseen_user, unseen_item = user == UNSEEN_CODE, item == UNSEEN_CODE
        # Without a code of their own they get anybody's, and no prediction from it.
        stand_in = (len(self.users), len(self.items)) if policy == "other" else (0, 0)
        user, item = (
            np.where(code == UNSEEN_CODE, other, code).astype(np.int64)
            for code, other in zip((user, item), stand_in, strict=True)
        )
        rows = {"user": user, "item": item}
        if self.encoders is not None:
            rows |= self._features(user, item, blocks)
        return Asked(
            Rows(**{name: torch.as_tensor(each, device=self.device)[None] for name, each in rows.items()}),
            unseen_user,
            unseen_item,
        )

    def _features(
        self, user: Codes, item: Codes, blocks: Mapping[Role, Block] | None
    ) -> dict[str, NDArray[Any]]:
        assert self.encoders is not None
        if blocks is None:
            of_rows = [each.feature.source for each in self.encoders.of_role("row")]
            if of_rows:
                raise DataError(
                    f"the model reads '{of_rows[0]}' of each row, which pairs of ids do not have",
                    remedy="give a log with these features, or a data frame to predict_frame_each",
                )
            tables = self.encoders.tables
            blocks = {"user": tables["user"].take(user), "item": tables["item"].take(item)}
        joined = {
            kind: np.hstack([getattr(blocks[role], kind) for role in ROLES if role in blocks])
            for kind in ("codes", "numbers")
        }
        return {kind: columns for kind, columns in joined.items() if columns.shape[1]}

    def predictions(self, asked: Asked, policy: Unseen, predict: Predict) -> NDArray[np.float64]:
        """Predict ``[seeds, n]`` by ``predict``, with the policy's value for those that are not known."""
        if asked.known.all() or policy == "other":
            return predict(asked.rows)
        known = np.flatnonzero(asked.known)
        some = predict(taken(asked.rows, known))
        result = np.full((len(some), len(asked.known)), np.nan)
        result[:, known] = some
        if policy == "average":
            for missing, by in ((asked.unseen_user, "item"), (asked.unseen_item, "user")):
                self._fill_averages(result, asked, np.flatnonzero(missing), by, predict)
        return result

    def _fill_averages(
        self, result: NDArray[np.float64], asked: Asked, at: NDArray[np.intp], by: str, predict: Predict
    ) -> None:
        """Return the mean over some known users of each item's prediction (``by="item"``), or the reverse."""
        if not len(at):
            return
        both = (asked.unseen_user & asked.unseen_item)[at]
        code = np.asarray(asked.rows[by][0].cpu().numpy())[at]
        others = _spread(len(self.users if by == "item" else self.items))
        distinct, position = np.unique(code, return_inverse=True)
        mean = np.empty((len(result), len(distinct)))
        for number, known in enumerate(distinct):
            mean[:, number] = self._mean(by, np.full(len(others), known), others, predict)
        result[:, at] = mean[:, position]
        if both.any():
            users, items = _spread(len(self.users)), _spread(len(self.items))
            width = max(len(users), len(items))
            pairs = np.resize(users, width), np.resize(np.random.default_rng(0).permutation(items), width)
            result[:, at[both]] = self._mean("item", pairs[1], pairs[0], predict)[:, None]

    def _mean(self, by: str, code: Codes, others: Codes, predict: Predict) -> NDArray[np.float64]:
        pair = {by: code, "user" if by == "item" else "item": others}
        rows = {name: torch.as_tensor(pair[name], device=self.device)[None] for name in ("user", "item")}
        return np.asarray(predict(Rows(**rows)).mean(axis=1))


def _spread(size: int) -> Codes:
    """Return codes from the first to the last, at most :data:`AVERAGE_OVER`."""
    return np.unique(np.linspace(0, size - 1, AVERAGE_OVER).round().astype(np.int64))


def taken(rows: Rows, places: NDArray[np.intp]) -> Rows:
    """Return some of the rows, by their places."""
    at = torch.as_tensor(places, device=rows.device)
    return rows.map(lambda values: values[:, at])
