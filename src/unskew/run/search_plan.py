"""What the search of a streamed run will train, and how often it reads the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from unskew.data import StreamedLog
from unskew.data.datasets.streams import StreamedDataset
from unskew.debias import Debiaser
from unskew.learners import BACKBONES
from unskew.offpolicy.auto import halves, kept_of
from unskew.propensity import PROPENSITIES, NaiveBayesPropensity, registered_name
from unskew.run.protocol import protocol_of
from unskew.run.run_search import candidate_method, left_out_words, run_candidates
from unskew.run.sizes import expected_epochs, sized, sizes_of

if TYPE_CHECKING:
    from unskew.run.run_config import RunConfig


def search_plan(config: RunConfig, dataset: StreamedDataset) -> list[str]:
    """Sentences on the search of a run: its candidates, what is left out and why, and its passes."""
    log, sampled = dataset.train, dataset.unbiased is not None
    own = sized(config, sizes_of(config, log))
    protocol = protocol_of(own)
    known = registered_name(config.propensity)
    chosen = config.propensity == "auto" or known in BACKBONES or known in PROPENSITIES
    candidates, left_out = run_candidates(
        config, log, sampled=sampled, everywhere=(chosen and known != NaiveBayesPropensity.name)
    )
    passes = [_passes(candidate_method(own, protocol, each, log), log) for each in candidates]
    many = len(candidates)
    each = "one network" if config.members == 1 else f"ensembles of {config.members}"
    how = f"as {each} a seed"
    reads = sum(passes)
    if sampled and halves(many, config.members):
        kept = 1 + kept_of(many - 1)
        how = f"with one member, then the better {kept - 1} on the sample and naive {how}"
        reads += round(reads * kept / many)
    sentences = [
        f"the search trains {many} candidates one after the other, each from the whole stream, {how}:"
        f" about {reads:,} passes over the rows, fewer by early stopping"
    ]
    sentences += left_out_words(left_out, config.propensity)
    if not sampled:
        sentences.append(
            "there is no random sample (--unbiased), so that naive is shipped whatever the search finds;"
            " --method naive trains it alone"
        )
    return sentences


def _passes(method: Debiaser, log: StreamedLog) -> int:
    """Passes over the rows of a candidate's training, about."""
    return sum(
        min(
            method.epochs if stage.epochs is None else stage.epochs,
            round(expected_epochs(log, log.n_clicks / method.batch_size)),
        )
        * len(stage.passes)
        for stage in method.stages()
    )
