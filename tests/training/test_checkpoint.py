"""Checkpoints: killed after any state, the same lines go on and end with the same bits."""

from __future__ import annotations

import shutil
import stat
import subprocess
import sys
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import unskew as us
from unskew.base.errors import CheckpointWarning, ParameterError, RunFolderError
from unskew.debias import Debiaser
from unskew.training import checkpoint
from unskew.training.checkpoint import Checkpoint
from unskew.training.state import DamagedStateError, read_state
from unskew.training.tensor_files import write_tensors

SMALL = us.NeuMF(dim=2, layers=(4,), dropout=0.3)


class KilledError(BaseException):
    """What ends a process at once: nothing catches it."""


class Killing(Checkpoint):
    """Dies at its n-th state: before it is in place, or right after."""

    def __init__(self, folder, *, at: int | None, before: bool = False, every: float = 0.0) -> None:
        super().__init__(folder, every=every)
        self.at, self.before, self.states = at, before, 0

    def write(self, name, facts, tensors):
        dies = self.states == self.at
        self.states += 1
        if dies and self.before:
            # Half of what is written to disk, as a kill leaves it.
            (self.folder / f".{name}.partial").write_bytes(b"half")
            raise KilledError
        written = super().write(name, facts, tensors)
        if dies:
            raise KilledError
        return written


@pytest.fixture(scope="module")
def log():
    return us.load("synthetic", n_users=30, n_items=20, density=0.2, seed=1).train


@pytest.fixture(scope="module")
def wide():
    """More users than a batch touches: tables are trained by touched rows."""
    draw = np.random.default_rng(0)
    return us.Log.from_arrays(
        user=draw.integers(600, size=450),
        item=draw.integers(500, size=450),
        click=np.tile([1, 1, 0], 150),
        conversion=draw.integers(2, size=450),
        space="impressions",
    )


@dataclass(kw_only=True)
class Drawing(Debiaser):
    """A method of one's own that draws from PyTorch's generator."""

    name: ClassVar[str] = "drawing"

    def loss(self, setting, observed, full):
        logit = setting.logit(observed)
        return (torch.rand(logit.shape) * (logit - observed.conversion) ** 2).mean(-1)


def fit_ips(log):
    model = us.IPS(learner=SMALL, epochs=4, patience=1, batch_size=40)
    return model.fit(log, propensity=0.2, seeds=2, device="cpu")


def fit_lazy(log):
    model = us.IPS(learner=us.MF(dim=3), epochs=2, batch_size=50)
    return model.fit(log, propensity=0.5, seeds=2, device="cpu")


def fit_tower(log):
    """Two stages, a click tower with its map and clip, imputation: all kinds of state."""
    model = us.ESCM2DR(learner=us.MF(dim=2), epochs=2, click_warm_up=2, batch_size=60)
    return model.fit(log, seeds=2, device="cpu")


def fit_folds(log):
    return us.Propensity(learner=SMALL, epochs=2, crossfit=2, batch_size=200).fit(log, seeds=2, device="cpu")


def fit_logistic(log):
    return us.Propensity(learner=us.Linear(), crossfit=3).fit(log, seeds=2, device="cpu")


def fit_drawing(log):
    torch.manual_seed(3)
    return Drawing(learner=us.MF(dim=2), epochs=2, batch_size=60).fit(log, device="cpu")


FITS = {
    "early stopping and dropout": fit_ips,
    "a tower in two stages": fit_tower,
    "folds": fit_folds,
    "a method that draws": fit_drawing,
}


def bits(model, log):
    """All that a fit left: weights, histories, what is predicted."""
    networks = model.networks_ if hasattr(model, "networks_") else {"propensity": model.network_}
    weights = [each.clone() for network in networks.values() for each in network.state_dict().values()]
    clip = (
        []
        if model.name == "propensity"
        else [str(model.clipping_), str(getattr(model, "click_propensity_", ""))]
    )
    return [*weights, torch.as_tensor(model.predict_each(log))], [str(model.history_.to_dict()), *clip]


def assert_same(found, wanted):
    assert found[1] == wanted[1]
    assert len(found[0]) == len(wanted[0])
    assert all(torch.equal(one, other) for one, other in zip(found[0], wanted[0], strict=True))


def all_states(folder, fit, log) -> int:
    """How many states an uninterrupted training writes."""
    counting = Killing(folder, at=None)
    with counting:
        fit(log)
    return counting.states


def resumed_at_every_state(tmp_path, fit, log, *, before):
    wanted = bits(fit(log), log)
    states = all_states(tmp_path / "all", fit, log)
    assert states > 4
    for at in range(states):
        folder = tmp_path / f"at {at}"
        with pytest.raises(KilledError), Killing(folder, at=at, before=before):
            fit(log)
        with Checkpoint(folder, every="5m"):
            found = bits(fit(log), log)
        assert_same(found, wanted)


@pytest.mark.parametrize("kind", FITS)
def test_killed_after_any_state_it_ends_with_the_same_bits(tmp_path, log, kind):
    resumed_at_every_state(tmp_path, FITS[kind], log, before=False)


@pytest.mark.parametrize("kind", ["a tower in two stages"])
def test_killed_while_any_state_is_written_it_ends_with_the_same_bits(tmp_path, log, kind):
    resumed_at_every_state(tmp_path, FITS[kind], log, before=True)


def test_tables_that_are_trained_by_touched_rows_go_on_in_the_middle_of_an_epoch(tmp_path, wide):
    resumed_at_every_state(tmp_path, fit_lazy, wide, before=False)


def test_a_propensity_without_a_network_is_fitted_once_for_each_replica(tmp_path, log, monkeypatch):
    wanted = fit_logistic(log)
    with pytest.raises(KilledError), Killing(tmp_path, at=4):
        fit_logistic(log)
    fits = []
    fit = us.Linear.fit

    def counted(self, *examples, **options):
        fits.append(self)
        return fit(self, *examples, **options)

    monkeypatch.setattr(us.Linear, "fit", counted)
    with Checkpoint(tmp_path):
        found = fit_logistic(log)
    assert len(fits) == 6 - 5
    np.testing.assert_array_equal(found.predict_each(log), wanted.predict_each(log))


def test_what_was_done_is_not_trained_again(tmp_path, log, monkeypatch):
    last = all_states(tmp_path / "all", fit_ips, log) - 1
    with pytest.raises(KilledError), Killing(tmp_path / "c", at=last):
        fit_ips(log)
    monkeypatch.setattr("unskew.training.steps.EagerSteps.take", lambda *_: pytest.fail("a step was taken"))
    with Checkpoint(tmp_path / "c"):
        assert len(fit_ips(log).history_.validation) > 0


def test_a_finished_checkpoint_holds_no_states_and_begins_anew(tmp_path, log):
    with Checkpoint(tmp_path / "c", every=0):
        fit_ips(log)
        assert len(list((tmp_path / "c").iterdir())) > 1
    assert [path.name for path in (tmp_path / "c").iterdir()] == ["job.safetensors"]
    with Checkpoint(tmp_path / "c", every=0):
        # Other data than before: nothing of it is left to differ.
        us.Naive(learner=us.MF(dim=2), epochs=1).fit(log, device="cpu")


def interrupted(folder, fit, log, at=3):
    with pytest.raises(KilledError), Killing(folder, at=at):
        fit(log)
    return sorted(folder.glob("training-*"))


@pytest.mark.parametrize("damage", ["cut", "changed tensors", "changed facts"])
def test_a_damaged_state_is_left_out_and_the_one_before_is_used(tmp_path, log, damage):
    wanted = bits(fit_ips(log), log)
    *_, earlier, last = interrupted(tmp_path, fit_ips, log)
    content = bytearray(last.read_bytes())
    if damage == "cut":
        del content[-20:]
    else:
        content[-20 if damage == "changed tensors" else content.index(b"epoch") + 9] ^= 1
    last.write_bytes(content)
    with pytest.raises(DamagedStateError):
        read_state(last)
    assert read_state(earlier).facts["epoch"] >= 0
    with pytest.warns(CheckpointWarning, match=f"{last.name}.* it is left out"), Checkpoint(tmp_path):
        found = bits(fit_ips(log), log)
    assert_same(found, wanted)


def test_a_damaged_job_is_an_error(tmp_path, log):
    interrupted(tmp_path, fit_ips, log)
    (tmp_path / "job.safetensors").write_bytes(b"{}")
    with pytest.raises(
        RunFolderError, match=r"is damaged: job.safetensors cannot be read. To fix: remove the"
    ):
        Checkpoint(tmp_path).open()


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        (lambda log: us.Naive(learner=SMALL).fit(log, device="cpu"), "another training: "),
        (lambda log: us.IPS(learner=SMALL, epochs=5, patience=1, batch_size=40).fit(
            log, propensity=0.2, seeds=2, device="cpu"), "schedule.epochs was 4 and is 5"),
        (lambda log: us.IPS(learner=SMALL, epochs=4, patience=1, batch_size=40).fit(
            log, propensity=0.3, seeds=2, device="cpu"), "propensities differs"),
        (lambda log: us.IPS(learner=SMALL, epochs=4, patience=1, batch_size=40).fit(
            log, propensity=0.2, seeds=[0, 2], device="cpu"), r"seeds was \[0, 1\] and is \[0, 2\]"),
    ],
)  # fmt: skip
def test_the_checkpoint_of_another_training_is_refused(tmp_path, log, other, differs):
    interrupted(tmp_path, fit_ips, log)
    with pytest.raises(RunFolderError, match=differs) as caught, Checkpoint(tmp_path):
        other(log)
    assert "To fix: repeat the job as it was, or remove the folder" in str(caught.value)
    assert "\n" not in str(caught.value)
    with Checkpoint(tmp_path):
        fit_ips(log)


def test_other_data_are_refused(tmp_path, log):
    interrupted(tmp_path, fit_ips, log)
    conversion = log.conversion.copy()
    conversion[np.flatnonzero(log.click == 1)[:1]] = 1 - conversion[np.flatnonzero(log.click == 1)[:1]]
    other = us.Log(log.user, log.item, log.click, conversion, log.users, log.items)
    with pytest.raises(RunFolderError, match="log differs"), Checkpoint(tmp_path):
        fit_ips(other)


def test_only_one_process_at_a_time(tmp_path):
    code = (
        "import sys; from unskew.training.checkpoint import Checkpoint\n"
        "try:\n    Checkpoint(sys.argv[1]).open()\nexcept Exception as error:\n    sys.exit(str(error))\n"
    )

    mine = Checkpoint(tmp_path / "c")
    mine.open()
    command = [sys.executable, "-c", code, str(tmp_path / "c")]
    other = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "another process is using this checkpoint. To fix: wait for it, or give another f" in other.stderr
    mine.close()
    next_one = Checkpoint(tmp_path / "c")
    next_one.open()
    next_one.close()


def test_a_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunFolderError, match="is a folder with other things in it"):
        Checkpoint(tmp_path).open()
    (tmp_path / "notes.txt").rename(tmp_path / "package.json")
    with pytest.raises(RunFolderError, match="is a folder with other things in it"):
        Checkpoint(tmp_path).open()
    with pytest.raises(RunFolderError, match="cannot be written"):
        Checkpoint(tmp_path / "package.json").open()
    assert [path.name for path in tmp_path.iterdir()] == ["package.json"]


def test_a_full_disk_is_a_warning_and_training_goes_on(tmp_path, log, monkeypatch):
    wanted = bits(fit_ips(log), log)

    def full(*_):
        raise OSError(28, "No space left on device")

    with Checkpoint(tmp_path, every=0):
        monkeypatch.setattr("unskew.training.state.write_tensors", full)
        with pytest.warns(CheckpointWarning, match=r"\(No space left on device\); training goes on"):
            found = bits(fit_ips(log), log)
        monkeypatch.undo()
    assert_same(found, wanted)


@pytest.mark.parametrize("what", ["a full disk", "a folder that is gone"])
def test_a_run_is_saved_though_its_checkpoint_can_no_longer_say_so(tmp_path, log, monkeypatch, what):
    folder, out = tmp_path / "states", tmp_path / "run"
    journal = Checkpoint(folder, every=0)
    journal.open()
    with journal.in_effect():
        fit_ips(log)
    if what == "a full disk":
        # Until the states are gone.
        plain = checkpoint.write_state

        def full(path, *given):
            if len(list(path.parent.iterdir())) > 1:
                raise OSError(28, "No space left on device")
            plain(path, *given)

        monkeypatch.setattr(checkpoint, "write_state", full)
    else:
        shutil.rmtree(folder)
    with pytest.warns(CheckpointWarning, match="cannot be written"), journal.saving(out):
        out.mkdir()
    assert out.is_dir()
    if what == "a full disk":
        assert read_state(folder / "job.safetensors").facts["status"] == "done"


@pytest.mark.parametrize("every", ["often", "5", "-1m"])
def test_a_length_of_time_that_is_none(tmp_path, every):
    with pytest.raises(ParameterError, match="is not a length of time"):
        Checkpoint(tmp_path, every=every)


@pytest.mark.gpu
@pytest.mark.parametrize("wide_tables", [False, True])
def test_on_a_gpu_captured_steps_go_on_to_the_same_weights_but_for_rounding(tmp_path, wide_tables):
    """In the middle of an epoch, with dense tables and with those that are trained by touched rows."""
    draw = np.random.default_rng(0)
    users = 20_000 if wide_tables else 300
    log = us.Log.from_arrays(
        user=draw.integers(users, size=4000),
        item=draw.integers(200, size=4000),
        click=np.tile([1, 1, 1, 0], 1000),
        conversion=draw.integers(2, size=4000),
        space="impressions",
    )

    def fit():
        learner = us.DCN(dim=8, layers=(8,))
        model = us.DRJL(learner=learner, epochs=3, batch_size=100)
        return model.fit(log, propensity=0.5, seeds=2, device="cuda")

    wanted = fit().predict_each(log)
    for at in (0, 5, 17, 40):
        folder = tmp_path / str(at)
        with pytest.raises(KilledError), Killing(folder, at=at):
            fit()
        with Checkpoint(folder):
            np.testing.assert_allclose(fit().predict_each(log), wanted, atol=2e-3)


def test_a_checkpoint_says_how_far_its_job_had_got(log, tmp_path):
    with pytest.raises(KilledError), Killing(tmp_path, at=5):
        fit_tower(log)
    assert len([*tmp_path.glob("training-*-done.*")]) == 1
    last = read_state(max(tmp_path.glob("training-0002-0*"))).facts
    assert Checkpoint(tmp_path).so_far == f"1 training done, 'escm2-dr' at epoch {last['epoch'] + 1}"


def test_views_numbers_and_empty_tensors_of_every_type_are_written_whole(tmp_path):
    whole = torch.arange(24.0).view(4, 6)
    tensors = {"left": whole[:, :3], "down": whole.t(), "one": whole[2:3, 5], "again": whole}
    tensors |= {"none": torch.empty(0, 4), "number": torch.tensor(3.5), 'größe "1"': torch.ones(2)}
    for dtype in (torch.int64, torch.float64, torch.float16, torch.int32, torch.uint8, torch.bool):
        tensors[str(dtype)] = (torch.arange(21) % 2).to(dtype).view(3, 7)
    write_tensors(tmp_path / "file", tensors)
    found = load_file(tmp_path / "file")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].shape == tensor.shape
        assert torch.equal(found[name], tensor), name
    write_tensors(tmp_path / "turned", dict(reversed(tensors.items())))
    assert (tmp_path / "turned").read_bytes() == (tmp_path / "file").read_bytes()
    (tmp_path / "other").touch()
    modes = {stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("file", "other")}
    assert len(modes) == 1
