"""Training that starts from another day's model: rows of known ids and values are taken over, others are new.

Tables of embeddings are mapped by what their rows stand for (ids, values of categories), all other weights
are taken as they are, and optimisers start anew. Replicas are paired by their seeds and members.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from unskew.base.errors import ParameterError
from unskew.base.estimator import plain_params
from unskew.base.plain_text import listed
from unskew.base.seeds import Replica
from unskew.base.tensors import Tensor, torch
from unskew.data import Encoders, Field, Log, Schema
from unskew.data.digest import digest_of
from unskew.data.distinct import ValueIndex, as_arrow
from unskew.data.encoder import FIRST_CODE, CodeEncoder, Encoder
from unskew.data.splitting import SplitBy
from unskew.data.vocabulary import UNSEEN_CODE, Vocabulary
from unskew.learners import Learner, Network
from unskew.learners.fields import embedding_width
from unskew.learners.layers import ReplicaEmbedding
from unskew.training.checkpoint import difference
from unskew.training.fitted import FittedModel
from unskew.training.held_out import Ends, Split

COMPARED_ROWS = 1 << 16
"""Rows of a log, evenly spaced, on which the predictions of two models are compared."""

REMEDY = "train without it, or as it was trained"


@dataclass(frozen=True)
class Carried:
    """Counts of a field's ids or values: with a row in both models, in the new one alone, no longer."""

    kept: int
    new: int
    gone: int


@dataclass(frozen=True)
class CodeMap:
    """A map from each code of a field to the code that it had, −1 for a new one."""

    before: NDArray[np.int64]
    carried: Carried


def without_seed(missing: int, has: Sequence[int], called: str) -> ParameterError:
    """Return the error for a model that was not trained with a seed."""
    return ParameterError(
        f"has no seed {missing}: it was trained with {listed(map(str, has))}",
        where=called,
        remedy="give seeds that it has (--seeds, --seed)",
    )


@dataclass(frozen=True, eq=False)
class WarmStart:
    """A trained model that another one starts from.

    Parameters
    ----------
    maps
        By field: which rows of its tables are taken over.
    called
        What the model is called in messages.
    """

    model: FittedModel
    maps: Mapping[str, CodeMap]
    called: str

    @classmethod
    def of(cls, model: FittedModel, method: FittedModel, log: Log, called: str = "start") -> WarmStart:
        """Return a start from a fitted model, for a method on a log that has what its networks read."""
        missing = [seed for seed in method.seeds_ if seed not in model.seeds_]
        if missing:
            raise without_seed(missing[0], model.seeds_, called)
        has, wanted = model.members, method.members
        if wanted > has:
            raise ParameterError(
                f"has {has} members a seed, and {wanted} are to start from it",
                where=called,
                remedy=f"give members={has}",
            )
        if type(model.learner) is not type(method.learner):
            raise cls(model, {}, called)._unlike(method)
        return cls(model, code_maps(model, log, called), called)

    def asked(self, validation_by: str) -> str:
        """Return ``validation_by`` of a method that starts from this model: ``"auto"`` follows the model."""
        split = self.model.split_
        if split.by.kind == "time" or validation_by.partition(":")[0] != "auto":
            return validation_by
        return str(split.by)

    def parts(self, replicas: Sequence[Replica]) -> tuple[Replica, ...]:
        """Return replicas that hold out the parts of those that they start from."""
        own = self.model.split_.lines > 1
        return tuple(replica._replace(part=replica.member if own else 0) for replica in replicas)

    def require_split(self, method: FittedModel, by: SplitBy) -> Split:
        """Return how the model held out clicks; an error where a method would hold out others.

        What is held out now must not have trained the model. That is sure where both hold out one share in
        one way, since keys of pairs, users and groups follow from ids and seeds, and where both hold out the
        latest clicks from some moment on (:meth:`ends` compares the moments).
        """
        split, share = self.model.split_, self.model.validation_share
        anew = "or start anew"
        if not split.held_out:
            raise self._trained_on_held_out("held out no click", f"give validation_share=0, {anew}")
        same = split.by.kind == by.kind and split.by.column == by.column
        if not same or (by.kind != "time" and share != method.validation_share):
            was = f"held out {_held_out_words(split.by, share)}"
            now = _held_out_words(by, method.validation_share)
            give = f"give validation_by='{split.by}' and validation_share={share:g} (--split), {anew}"
            raise self._trained_on_held_out(f"{was}, and this training would hold out {now}", give)
        return split

    def ends(
        self,
        method: FittedModel,
        log: Log,
        replicas: Sequence[Replica],
        by: SplitBy,
        held_out: int,
    ) -> tuple[int, dict[int, Ends]]:
        """Return how many clicks each replica holds out, and where the parts of each seed end.

        Pairs, users and groups are held out between the ends of the model's own parts, wherever the log ends:
        at most as many clicks as each replica has there. The latest clicks must not begin before the model's.
        """
        split = self.require_split(method, by)
        if by.kind == "time":
            ((end, *_),) = Split.of(log, (0,), held_out, by).ends
            before = split.ends[0][0]
            if end > before:
                then, now = (np.datetime64(-key, "us").astype("datetime64[s]") for key in (before, end))
                raise self._trained_on_held_out(
                    f"held out the clicks from {then} on, and this one would hold out those from {now} on",
                    f"hold out later ones (--valid-from {then}, validation_by='from:{then}'), or start anew",
                )
            return held_out, {}
        of_model = dict(zip(self.model.seeds_, split.ends, strict=True))
        ends = {seed: of_model[seed] for seed in dict.fromkeys(each.seed for each in replicas)}
        lines = 1 + max(each.part for each in replicas)
        rows = replace(split, ends=tuple(ends.values()), lines=lines).rows(log, list(ends))
        return min(held_out, rows.shape[1]), ends

    def _trained_on_held_out(self, problem: str, remedy: str) -> ParameterError:
        return ParameterError(
            f"{problem}: clicks that are held out now may have trained it", where=self.called, remedy=remedy
        )

    @property
    def digest(self) -> str:
        """Return a digest of its weights."""
        weights = (each for name in self.model.networks_ for each in self.model.networks_[name].parameters())
        return digest_of(*(each.detach().float().cpu().numpy() for each in weights))

    def learner(self, method: FittedModel, schema: Schema) -> Learner:
        """Return the learner of a method; a width that follows from the number of ids stays what it was."""
        learner, before = method.learner, self.model.learner
        if type(learner) is not type(before) or getattr(learner, "dim", 0) is not None:
            return learner
        width = getattr(before, "dim", None) or embedding_width(_schema(self.model))
        return learner if width == embedding_width(schema) else replace(learner, dim=width)  # type: ignore[call-arg]

    def check(self, networks: Mapping[str, Network], method: FittedModel) -> None:
        """Raise an error where networks of the method are not of the shapes that it has, but for rows of
        tables."""
        for name, network in networks.items():
            before = self.model.networks_.get(name)
            if before is None:
                continue
            old, old_tables, tables = dict(before.named_parameters()), _tables(before), _tables(network)
            for key, weight in network.named_parameters():
                first = 1
                if key in tables and key in old_tables:
                    # Rows may be more or fewer, of the same fields.
                    first = 2 if tables[key].rows_of.keys() == old_tables[key].rows_of.keys() else 1
                if key not in old or old[key].shape[first:] != weight.shape[first:]:
                    raise self._unlike(method)

    def fill(self, networks: Mapping[str, Network], replicas: Sequence[Replica], method: FittedModel) -> None:
        """Give new networks the weights that they start from: of the same member of the same seed."""
        self.check(networks, method)
        known = [(each.seed, each.member) for each in self.model.replicas()]
        places = torch.tensor([known.index((each.seed, each.member)) for each in replicas])
        with torch.no_grad():
            for name, network in networks.items():
                before = self.model.networks_.get(name)
                if before is not None:
                    self._fill(network, before, places)

    def _fill(self, network: Network, before: Network, places: Tensor) -> None:
        old_tables, tables = _tables(before), _tables(network)
        old = dict(before.named_parameters())
        known = {"user": len(self.model.users_), "item": len(self.model.items_)}
        for name, weight in network.named_parameters():
            source = old[name].detach()[places.to(old[name].device)].to(weight)
            if name not in tables:
                weight.copy_(source)
                continue
            for field, rows in tables[name].rows_of.items():
                old_rows = old_tables[name].rows_of[field]
                wanted = _with_other(self.maps[field].before, rows, old_rows, known.get(field, 0))
                new = torch.as_tensor(np.flatnonzero(wanted >= 0), device=weight.device)
                taken = torch.as_tensor(wanted[wanted >= 0], device=weight.device)
                weight[:, rows.start + new] = source[:, old_rows.start + taken]

    def _unlike(self, method: FittedModel) -> ParameterError:
        """Return the error for networks of other shapes: what differs."""
        differs = difference(plain_params(self.model.learner), plain_params(method.learner))
        problem = f"is of another learner: {differs}"
        if differs is None:
            problem = f"has networks of other shapes: it is of {self.model.name}, and this is {method.name}"
        return ParameterError(problem, where=self.called, remedy=REMEDY)

    def changes(self, after: FittedModel, log: Log) -> dict[str, Any]:
        """Return what changed, in plain values: ids and values of each field, and predictions.

        Predictions are those of the log's rows whose user and item both models know, at most
        :data:`COMPARED_ROWS` of them: the mean absolute change, Spearman's rank correlation, and the mean
        before and after, of which the level is the ratio.
        """
        known = [self.maps[role].before >= 0 for role in ("user", "item")]
        rows = np.flatnonzero(known[0][log.user] & known[1][log.item])
        rows = rows[:: max(1, -(-len(rows) // COMPARED_ROWS))]
        changes: dict[str, Any] = {"fields": {name: asdict(each.carried) for name, each in self.maps.items()}}
        if len(rows):
            sample = log.take(rows)
            old, new = (model.predict(sample) for model in (self.model, after))
            changes |= {
                "rows": len(rows),
                "mean_absolute_change": float(np.abs(new - old).mean()),
                "rank_correlation": _rank_correlation(old, new),
                "mean_before": float(old.mean()),
                "mean_after": float(new.mean()),
                "level": float(new.mean() / old.mean()),
            }
        return changes


def _held_out_words(by: SplitBy, share: float) -> str:
    """Return what was held out, in words."""
    if by.kind == "time":
        return "the latest clicks"
    return f"{100 * share:g} % by {by}"


def _rank_correlation(old: NDArray[np.float64], new: NDArray[np.float64]) -> float | None:
    """Return the rank correlation; None where one is constant, so that there is no order to compare."""
    if len(old) < 2 or np.ptp(old) == 0 or np.ptp(new) == 0:
        return None
    # It takes a second to import.
    from scipy.stats import spearmanr

    return float(spearmanr(old, new).statistic)


def code_maps(before: Any, log: Log, called: str) -> dict[str, CodeMap]:
    """Return the codes that those of a log had for a fitted model, for each field that has codes."""
    maps = {
        "user": _of_ids(before.users_, log.users),
        "item": _of_ids(before.items_, log.items),
    }
    _require_same_fields(_schema(before), log.schema, called)
    old = _coded(before.encoders_)
    return maps | {
        name: _of_values(old[name], encoder, called) for name, encoder in _coded(log.encoders).items()
    }


def _of_ids(old: Vocabulary, new: Vocabulary) -> CodeMap:
    at = old.encode(new.ids, unseen="nan").astype(np.int64)
    own = (at != UNSEEN_CODE) & (at < len(old.ids))
    shared = np.full(new.buckets, UNSEEN_CODE, dtype=np.int64)
    if new.buckets == old.buckets:
        shared = len(old.ids) + np.arange(new.buckets)
    taken_over = int(own.sum())
    return CodeMap(
        np.append(at, shared), Carried(taken_over, len(new.ids) - taken_over, len(old.ids) - taken_over)
    )


def _of_values(old: CodeEncoder, new: CodeEncoder, called: str) -> CodeMap:
    if old.buckets != new.buckets:
        raise ParameterError(
            f"hashes the field '{new.feature.name}' to {old.buckets} codes, not {new.buckets}",
            where=called,
            remedy=REMEDY,
        )
    if new.buckets is not None:
        return CodeMap(np.arange(FIRST_CODE + new.buckets), Carried(new.buckets, 0, 0))
    at = np.empty(0, dtype=np.int64)
    if len(new.vocabulary):
        at = np.full(len(new.vocabulary), UNSEEN_CODE, dtype=np.int64)
        if len(old.vocabulary):
            at = ValueIndex(as_arrow(old.vocabulary)).find(as_arrow(new.vocabulary))
    taken_over = int((at != UNSEEN_CODE).sum())
    codes = np.append(np.arange(FIRST_CODE), np.where(at == UNSEEN_CODE, UNSEEN_CODE, at + FIRST_CODE))
    return CodeMap(codes, Carried(taken_over, len(at) - taken_over, len(old.vocabulary) - taken_over))


def _coded(encoders: Encoders | None) -> dict[str, CodeEncoder]:
    all_encoders: Sequence[Encoder] = () if encoders is None else encoders.encoders
    return {each.feature.name: each for each in all_encoders if isinstance(each, CodeEncoder)}


def _with_other(codes: NDArray[np.int64], rows: slice, old_rows: slice, known: int) -> NDArray[np.int64]:
    """Add the row of ids that are not known, where the table has one after those that are.

    Parameters
    ----------
    known
        Ids that the other table had rows for.
    """
    if rows.stop - rows.start == len(codes):
        return codes
    return np.append(codes, known if old_rows.stop - old_rows.start > known else UNSEEN_CODE)


def _tables(network: Network) -> dict[str, ReplicaEmbedding]:
    return {
        f"{name}.weight": module
        for name, module in network.named_modules()
        if isinstance(module, ReplicaEmbedding)
    }


def _schema(model: Any) -> Schema:
    """Return the schema of what a fitted model reads."""
    if model.encoders_ is None:
        return Schema.of_ids(len(model.users_), len(model.items_))
    schema: Schema = model.encoders_.schema
    return schema


def _require_same_fields(old: Schema, new: Schema, called: str) -> None:
    """Raise an error that names the first field that one of two schemas lacks, or has otherwise."""
    before, now = ({each.name: each for each in schema.features} for schema in (old, new))
    for name in (*now, *before):
        if name not in before:
            problem = f"does not read the field '{name}'"
        elif name not in now:
            problem = f"reads the field '{name}', which is not there"
        elif before[name].kind != now[name].kind:
            problem = f"reads the field '{name}' as a {before[name].kind}, not as a {now[name].kind}"
        elif now[name].is_number and before[name].width != now[name].width:
            problem = f"'{name}' had {_missing(before[name])}, and has {_missing(now[name])} now"
        else:
            continue
        raise ParameterError(problem, where=called, remedy=REMEDY)
    if list(before) != list(now):
        raise ParameterError("reads the fields in another order", where=called, remedy=REMEDY)


def _missing(field: Field) -> str:
    return "missing values" if field.width > 1 else "no missing values"
