"""Sizes that a run takes from its data: batches, embeddings, folds and members; and how long it may take.

Logs of up to 2·10⁵ rows and 50,000 ids have the sizes of the paper. What is set by hand stays. How many
replicas are trained at a time follows from free memory
(:func:`unskew.training.memory.replicas_at_once`), and so does whether a log is streamed.
``docs/defaults.md`` argues for each rule.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch

from unskew.backbones import BACKBONES, make_backbone
from unskew.backbones.layers import tables_of
from unskew.debias import METHODS
from unskew.log import Log, StreamedLog
from unskew.progress import duration_in_words
from unskew.propensity import registered_name
from unskew.propensity.crossfit import AUTO_RATIO, DEFAULT_FOLDS
from unskew.propensity.per_replica import MOST_CELLS
from unskew.propensity.streamed import ROUND_CLICKS
from unskew.run.run_parameters import changed
from unskew.run.run_parts import NO_METHOD
from unskew.run.run_propensity import may_try_network
from unskew.training import resolve_device
from unskew.training.ensemble import APART, CYCLE_PARTS
from unskew.training.readings import Rounds, most_epochs

if TYPE_CHECKING:
    from unskew.run.run_config import RunConfig

SMALLEST_BATCH, LARGEST_BATCH = 1024, 8192
"""The paper's, and the one beyond which a step takes as many times longer."""

LARGEST_BATCH_OF_FEATURES = 2048
"""The same of a network that reads features, on a CPU: there is nothing to gain from larger ones, whose
activations take memory (DR-JL by a DCN with 14 fields: 33 s of processor time an epoch at 1,024, 32 s at
4,096 and at 8,192, and 0.8 GB more)."""

STEPS_PER_EPOCH = 1000
"""About so many from 10⁶ rows on, until batches are the largest. A model that fits a large log after an epoch
or two would hardly be trained by then with fewer."""

MANY_IDS = 50_000
"""Users and items up to which embeddings have the width of the backbone's default."""

NARROW = 16
"""The width beyond them."""

FOLDS = ((3_000_000, DEFAULT_FOLDS), (30_000_000, 3))
"""Rows up to which so many folds; two beyond."""

ROW_SECONDS = {"cpu": 1.2e-5, "cuda": 6e-8}
"""Of one row of one replica of a network in one epoch: measured on two cores and on an H200, where NeuMF of
dimension 64 and DCN with eight features differ by a factor of 2."""

WIDE = 100_000
"""Weights of a network beside its tables from which on a row takes as many times longer on a CPU, by its
matrix products: on one core a row takes 37 µs with a DCN of 281,000 (13 features of width 32), 15 with a
DeepFM of 25,000 and 8 with a NeuMF of 11,000."""

SMALL = 1 / 6
"""What a row takes on a CPU, beside :data:`ROW_SECONDS`, where a network reads ids alone and they are few, so
that its tables stay in the cache: 2.1 µs with a NeuMF on Coat, 1.4 where ten are trained at once."""

EPOCHS = 20
"""After which early stopping ends, where it does not end earlier."""

LEAST_EPOCHS = 11
"""After which a training with early stopping ends at the earliest, of a conversion model in memory; of a
propensity half as many."""

SAID_SECONDS = 5.0
"""From which estimate on a run says how long training takes: on cores that others use too that is several
times as long, and before it rows are read."""

SEARCHED = 7
"""Models that a search trains as ensembles, about."""

FIRST_ROUND = 2.0
"""What a search trains with one member before these, in as many models with one member, about."""

MEMBERS = 5
"""Networks of a seed where time does not matter: on a GPU they cost little more than one."""

MEMBER_SECONDS = 30.0
"""What the members beyond the first may add to the training on a CPU, by the estimate."""

MODELS = {
    "seeds": "each model is the mean logit of {} members",
    "bootstrap": "each model is the mean logit of {} members, each with Poisson weights of the pairs",
    "snapshot": "each model is the mean logit of {} members, left in turn by one training",
    "swa": "each model has the mean of {} sets of weights, left in turn by one training",
    "batch": "each model is the mean of {} members that share weights",
}
"""What a run says of an ensemble."""

NAMES = {"method.batch_size", "propensity.batch_size", "training.batch_size"}


@dataclass(frozen=True)
class Sizes:
    """What a run is trained with.

    Attributes
    ----------
    parameters
        By name, as ``RunConfig.parameters`` has them; only those that differ from the defaults.
    crossfit, fewer_folds
        Folds of the propensity, and whether they are fewer than usual because of the data.
    members, of_members
        Networks of each seed, and what is said about them.
    seconds
        What training may take, about.
    """

    parameters: dict[str, Any]
    crossfit: int | None
    fewer_folds: bool
    members: int
    of_members: list[str]
    seconds: float
    sentence: str

    @property
    def label(self) -> list[str]:
        """What was chosen by the data, for the labels of a run; nothing where all is as by default."""
        named = [f"{name} = {value}" for name, value in self.parameters.items()]
        named += [f"crossfit = {self.crossfit}"] if self.fewer_folds else []
        return [f"sizes by the data: {', '.join(named)}"] if named else []


def batch_size(rows: int, largest: int = LARGEST_BATCH) -> int:
    """A power of two: about a thousandth of the rows, from 1,024 to the largest.

    Examples
    --------
    >>> batch_size(7_000), batch_size(3_000_000), batch_size(10**8)
    (1024, 2048, 8192)
    """
    return min(max(1 << (max(rows // STEPS_PER_EPOCH, 1)).bit_length() - 1, SMALLEST_BATCH), largest)


def width(ids: int, usual: int) -> int:
    """Of embeddings: as the backbone has it, and at most 16 for more than 50,000 users and items."""
    return usual if ids <= MANY_IDS else min(usual, NARROW)


def folds(rows: int) -> int:
    """Five up to 3 million rows, three up to 30 million, then two."""
    return next((number for most, number in FOLDS if rows <= most), 2)


def sizes_of(config: RunConfig, log: Log | StreamedLog) -> Sizes:
    """The sizes of a run on a log; those set by hand stay, and the paper's protocol has its own."""
    paper = config.protocol == "paper"
    cells = len(log) if log.space == "impressions" else log.population_size
    if log.space == "matrix" and cells > MOST_CELLS:
        cells = round((1 + AUTO_RATIO) * log.n_clicks)
    crossfit: int | None = config.crossfit if config.crossfit != "auto" else folds(cells)
    if paper and config.crossfit == "auto":
        crossfit = DEFAULT_FOLDS
    wanted: dict[str, Any] = {}
    if not paper:
        by_network = config.propensity == "auto" or registered_name(config.propensity) in BACKBONES
        rows_of = {"method": log.n_clicks} if config.method != NO_METHOD else {}
        rows_of |= {"propensity": cells} if by_network else {}
        backbone = make_backbone(config.backbone)
        on_cpu = resolve_device(config.device).type == "cpu"
        largest = LARGEST_BATCH_OF_FEATURES if on_cpu and backbone.reads_features else LARGEST_BATCH
        for part, rows in rows_of.items():
            if batch_size(rows, largest) != SMALLEST_BATCH:
                wanted[f"{part}.batch_size"] = batch_size(rows, largest)
        usual = getattr(backbone, "dim", None)
        if isinstance(usual, int) and width(log.n_users + log.n_items, usual) != usual:
            wanted["backbone.dim"] = width(log.n_users + log.n_items, usual)
    given = set(config.parameters)
    if "training.batch_size" in given:
        given |= NAMES
    parameters = {name: value for name, value in wanted.items() if name not in given}
    device = resolve_device(config.device).type
    wider = _wider({**parameters, **config.parameters}, config, log) if device == "cpu" else 1.0
    of_models = _model_rows(config, log) * ROW_SECONDS[device] * wider
    members = members_for(config, device, of_models)
    trainings = members if config.ensemble in APART else 1.0
    if config.method == "auto":
        # With one member there is one round, of all candidates.
        trainings = trainings + FIRST_ROUND if members > 1 else FIRST_ROUND
    if config.ensemble in ("snapshot", "swa"):
        trainings += (members - 1) * CYCLE_PARTS / EPOCHS
    of_models *= trainings
    in_use = replace(config, parameters={**parameters, **config.parameters}, crossfit=crossfit)
    quickest, of_propensity = _propensity_seconds(in_use, log, cells, wider, device)
    least, seconds = of_models * _least_share(log) + quickest, of_models + of_propensity
    fewer = config.crossfit == "auto" and crossfit != DEFAULT_FOLDS
    sentence = _sentence(config, log, parameters, crossfit, members, (least, seconds))
    return Sizes(
        parameters, crossfit, fewer, members, _of_members(config, device, members), seconds, sentence
    )


def members_for(config: RunConfig, device: str, seconds: float) -> int:
    """Networks of each seed, where those of one member take so many seconds on a device.

    Five on a GPU, and of one training; on a CPU as many, up to five, as add half a minute to the training.
    """
    if config.members != "auto":
        return config.members
    if config.protocol == "paper" or config.method == NO_METHOD:
        return 1
    if device != "cpu" or config.ensemble not in APART:
        return MEMBERS
    return min(MEMBERS, 1 + int(MEMBER_SECONDS / max(seconds, 1e-9)))


def _of_members(config: RunConfig, device: str, members: int) -> list[str]:
    """What a run says of its members; nothing where the paper's protocol has none."""
    if config.protocol == "paper" or config.method == NO_METHOD:
        return []
    model = MODELS[config.ensemble].format(members) if members > 1 else "one network a seed"
    by_time = config.members == "auto" and members < MEMBERS and device == "cpu"
    return [f"{model}, as the time on a CPU allows (--members 5 for more)" if by_time else model]


def sized(config: RunConfig, sizes: Sizes) -> RunConfig:
    """The configuration with its sizes; what was set by hand comes last, and wins."""
    parameters = {**sizes.parameters, **config.parameters}
    return replace(config, parameters=parameters, crossfit=sizes.crossfit, members=sizes.members)


def epochs_of(log: Log | StreamedLog) -> int:
    """After which the training of a conversion model most often ends; a stream has a limit."""
    return min(EPOCHS, most_epochs(log.n_clicks)) if isinstance(log, StreamedLog) else EPOCHS


def _least_share(log: Log | StreamedLog) -> float:
    """Of the epochs of :func:`epochs_of`, those after which early stopping ends at the earliest."""
    if not isinstance(log, StreamedLog):
        return LEAST_EPOCHS / EPOCHS
    rounds = Rounds.of(log, log.n_clicks, ROUND_CLICKS)
    patience = rounds.patience(LEAST_EPOCHS - 1) or 0
    return min(1.0, (patience + 1) / rounds.per_epoch / epochs_of(log))


def _model_rows(config: RunConfig, log: Log | StreamedLog) -> float:
    """Rows × replicas × epochs of the conversion models, of one member each."""
    if config.method == NO_METHOD:
        return 0.0
    if config.method == "auto":
        return SEARCHED * 2 * log.n_clicks * config.seeds * epochs_of(log)
    models = 1 if config.method == "naive" else 3
    reads = 2 if METHODS[config.method].needs_full_space else 1
    return models * reads * log.n_clicks * config.seeds * epochs_of(log)


def _wider(parameters: dict[str, Any], config: RunConfig, log: Log | StreamedLog) -> float:
    """How many times longer a row takes with a network as wide as the features make it; less than once with
    ids alone, where they are few."""
    backbone = changed(make_backbone(config.backbone), "backbone", parameters)
    if not backbone.reads_features:
        return SMALL if log.n_users + log.n_items <= MANY_IDS else 1.0
    with torch.device("meta"):
        network = backbone.build(log.schema, [0])
    tables = sum(table.weight.numel() for table in tables_of(network))
    return max(1.0, (sum(each.numel() for each in network.parameters()) - tables) / WIDE)


def _propensity_seconds(
    config: RunConfig, log: Log | StreamedLog, cells: int, wider: float, device: str
) -> tuple[float, float]:
    """Of the propensity: at the least, by early stopping or where a plain kind is chosen, and at most."""
    assert config.crossfit != "auto"
    of_epoch = cells * config.seeds * (config.crossfit or 1) * ROW_SECONDS[device]
    network = wider * of_epoch * (config.propensity_epochs or EPOCHS)
    # Logistic regression: some 30 passes over a fold's rows, each at a hundredth of a network's cost.
    plain = 0.3 * of_epoch
    if registered_name(config.propensity) in BACKBONES or config.needs_network is not None:
        return network if config.propensity_epochs else LEAST_EPOCHS / 2 / EPOCHS * network, network
    is_tried = config.propensity == "auto" and may_try_network(config, log)
    return plain, plain + network if is_tried else plain


def _sentence(
    config: RunConfig,
    log: Log | StreamedLog,
    parameters: dict[str, Any],
    crossfit: int | None,
    members: int,
    seconds: tuple[float, float],
) -> str:
    named = [f"{name} = {value}" for name, value in parameters.items()]
    held_out = "one split" if crossfit is None else f"{crossfit} folds"
    by_data = f"; by the data: {', '.join(named)} (--set changes them)" if named else ""
    ids = log.n_users + log.n_items
    seeds = f"{config.seeds} seed{'' if config.seeds == 1 else 's'}"
    seeds += f" of {members} members" if members > 1 else ""
    least, most = map(duration_in_words, seconds)
    takes = f"about {most}" if least == most else f"some {least} to {most}, as early stopping ends it"
    return f"{log.n_clicks:,} clicks of {ids:,} ids: {seeds}, {held_out}{by_data}; training takes {takes}"
