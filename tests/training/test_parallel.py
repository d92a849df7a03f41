"""Two processes with one batch in parts train what one process does with the whole batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import unskew as us
from contracts.stages import short_stages
from contracts.streamed_contract import BLOCK, impressions
from ranks import together
from unskew import processes
from unskew.debias import METHODS
from unskew.debias.setting import Batch, drawn_again
from unskew.log import Rows, StreamedLog
from unskew.training import readings, streams
from unskew.training.parallel import together as in_step
from unskew.training.population import IdHashes, PoissonWeights
from unskew.training.samplers import Sample

PARTS = 2

KINDS = (
    "snips",
    "mrdr",
    "gpl",
    "acdr",
    "cdr",
    "dr-v2",
    "escm2-dr",
    "stable-dr",
    "tdr",
    "multi-dr",
    "att",
    "kb-dr",
)
"""Methods that between them take sums, means, shares, products of halves, kernels and masks of a batch."""


def many_users() -> us.Log:
    """So many ids that tables are trained by touched rows, which some batches share."""
    random = np.random.default_rng(5)
    user, item = random.integers(3_000, size=900), (3_000 * random.random(900) ** 4).astype(int)
    click = (random.random(900) < 0.5).astype(int)
    conversion = np.where(click == 1, (user + item) % 2, np.nan)
    users, items = (us.Vocabulary.range(3_000, name=name) for name in ("user", "item"))
    return us.Log.from_arrays(
        user=user, item=item, click=click, conversion=conversion, space="impressions",
        users=users, items=items, columns={"p": np.full(900, 0.5)},
    )  # fmt: skip


def plain_fits() -> Iterator[tuple[str, us.Debiaser]]:
    """Methods of every kind of loss, by a network without dropout."""
    stream = StreamedLog.of(impressions(), block_rows=BLOCK)
    options = {"learning_rate": 0.05, "p_min": 0.05, "epochs": 1, "batch_size": 32, "patience": 1}
    for name in KINDS:
        method = METHODS[name]
        yield name, _fit(method(backbone=us.MF(dim=2), **options, **short_stages(method)), stream)


def sparse_fits() -> Iterator[tuple[str, us.Debiaser]]:
    """Networks with dropout, on tables of many rows."""
    stream = StreamedLog.of(many_users(), block_rows=300)
    options = {"epochs": 2, "batch_size": 64, "learning_rate": 0.01, "weight_decay": 1e-3}
    for backbone in (us.NeuMF(dim=4), us.DCN(dim=4)):
        yield f"dr-jl by {backbone.name}", _fit(us.DRJL(backbone=backbone, **options), stream)
    for negatives in (None, 0.5):
        propensity = us.Propensity(backbone=us.NeuMF(dim=4), crossfit=None, negatives=negatives, **options)
        yield f"propensity with {negatives} negatives", propensity.fit(stream)


def _fit(model: us.Debiaser, rows: StreamedLog) -> us.Debiaser:
    return model.fit(rows, propensity="p" if model.needs_propensity else None, seeds=[3])


def _networks(model) -> dict[str, torch.nn.Module]:
    return model.networks_ if isinstance(model, us.Debiaser) else {"propensity": model.network_}


def _save(folder: Path) -> None:
    from safetensors.torch import save_file

    for name, model in (*plain_fits(), *sparse_fits()):
        tensors = {
            f"{network} {key}": value.contiguous()
            for network, each in _networks(model).items()
            for key, value in each.state_dict().items()
        }
        save_file(tensors, folder / f"{name} {processes.rank()}.safetensors")
        facts = {"history": model.history_.to_dict(), "validation": model.history_.validation}
        (folder / f"{name} {processes.rank()}.json").write_text(json.dumps(facts))


class InParts:
    """The batches of one process as those that several have in parts, side by side.

    Parameters
    ----------
    halves
        Whether the first halves of all parts come before the second ones: losses that multiply means of two
        halves of a batch take the halves of each part.
    """

    def __init__(self, monkeypatch, *, halves: bool) -> None:
        self.now, self.halves = 0, halves
        told = SimpleNamespace(parts=lambda: PARTS, part=lambda: self.now)
        monkeypatch.setattr(readings, "processes", told)
        for kind in (streams.StreamedClicks, streams.StreamedCells):
            of_one = kind.epoch
            monkeypatch.setattr(kind, "epoch", lambda *given, of_one=of_one: self.epoch(of_one, *given))

    def epoch(self, of_one, sampler, number: int):
        parts = []
        for self.now in range(PARTS):
            blocks = list(of_one(sampler, number))
            parts.append([step for block in blocks for step in block.steps()])
        for steps in zip(*parts, strict=False):
            tensors = [_as_mapped(step) for step in steps]
            joined = iter([self.joined(each) for each in zip(*tensors, strict=True)])
            yield steps[0].map(lambda _, joined=joined: next(joined).unsqueeze(1))

    def joined(self, tensors) -> torch.Tensor:
        if not self.halves:
            return torch.cat(tensors, 1)
        middle = tensors[0].shape[1] // 2
        return torch.cat(
            [*(each[:, :middle] for each in tensors), *(each[:, middle:] for each in tensors)], 1
        )


def _as_mapped(sample: Sample) -> list[torch.Tensor]:
    """The tensors of a sample in the order in which ``map`` comes to them."""
    found: list[torch.Tensor] = []
    sample.map(lambda each: found.append(each) or each)
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("two")
    outcome = together(__file__, "_save", folder)
    assert [code for code, _ in outcome] == [0, 0], outcome
    return folder


@pytest.mark.parametrize("halves", [True, False])
def test_two_processes_train_what_one_does_with_the_same_batches(folder, monkeypatch, tmp_path, halves):
    InParts(monkeypatch, halves=halves)
    from safetensors.torch import load_file

    for name, model in plain_fits() if halves else sparse_fits():
        found = json.loads((folder / f"{name} 0.json").read_text())
        expected = model.history_.to_dict()
        assert np.allclose(found["validation"], model.history_.validation, rtol=1e-4), name
        assert found["history"]["best_epoch"] == expected["best_epoch"], name
        for step, losses in expected["train"].items():
            assert np.allclose(found["history"]["train"][step], losses, rtol=1e-4, atol=1e-6), (name, step)
        weights = [load_file(folder / f"{name} {rank}.safetensors") for rank in range(PARTS)]
        for key, value in weights[0].items():
            network, _, inside = key.partition(" ")
            assert torch.equal(value, weights[1][key]), (name, key)
            own = _networks(model)[network].state_dict()[inside]
            # Where sums differ in their last bits, a weight may be rounded to the other neighbour, and Adam's
            # steps (of .05) are as large where gradients are small: a fiftieth of one may differ.
            rtol = 1e-3 if value.dtype == torch.float32 else 2e-2
            assert torch.allclose(value, own, rtol=rtol, atol=1e-3), (name, key, (value - own).abs().max())


def test_a_bootstrap_sample_of_a_batch_in_parts_is_that_of_the_whole(monkeypatch):
    """Each part of it may have rows of other parts: weights are those of the whole batch."""
    random = torch.Generator().manual_seed(1)
    ids = [torch.randint(50, (1, 12), generator=random) for _ in range(2)]
    known = [torch.rand(3, 12, generator=random) for _ in range(3)]
    whole = Batch(Rows(user=ids[0], item=ids[1]), conversion=known[0], propensity=known[1], click=known[2])
    hashes = IdHashes(*(torch.randint(2**40, (50,), generator=random) for _ in range(2)))
    weights = PoissonWeights(hashes, [1, 2, 3])
    wanted = drawn_again(whole, weights)
    found = []
    monkeypatch.setattr(processes, "in_parts", lambda: True)
    for part in range(PARTS):
        own = whole.map(lambda values, part=part: values[:, 6 * part : 6 * part + 6])
        tensors = iter(tensors_of(whole))
        monkeypatch.setattr(processes, "part", lambda part=part: part)
        monkeypatch.setattr(processes, "side_by_side", lambda values, dim, tensors=tensors: next(tensors))
        found.append(tensors_of(drawn_again(own, weights)))
    for parts, expected in zip(zip(*found, strict=True), tensors_of(wanted), strict=True):
        assert torch.equal(torch.cat(parts, 1), expected)


def tensors_of(batch: Batch) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []
    batch.map(lambda values: found.append(values) or values)
    return found


def test_processes_take_as_many_steps_as_the_one_with_fewest_rows(monkeypatch):
    """The other one has 3 + 2 steps, and then none."""
    least = iter([3, 1, 1, 0])
    seen = []

    def total(size, *, least=least, **_):
        seen.append(int(size))
        return torch.minimum(size, torch.tensor(next(least)))

    monkeypatch.setattr(processes, "total", lambda size, **_: total(size))
    blocks = [Sample(observed=torch.arange(8).view(1, 4, 2)), Sample(observed=torch.arange(4).view(1, 2, 2))]
    taken = [each.observed.tolist() for each in in_step(blocks)]
    assert taken == [[[[0, 1], [2, 3], [4, 5]]], [[[6, 7]]], [[[0, 1]]]]
    assert seen == [4, 1, 2, 1]
