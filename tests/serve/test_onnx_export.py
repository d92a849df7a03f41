"""Exported models: a runtime's answers are those of ``predict``, for every learner and uncertainty."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import unskew as us
from unskew.base.errors import NotFittedError, ParameterError, RunFolderError, UnskewError
from unskew.calibration import make_calibrator
from unskew.data import Schema
from unskew.learners import BatchEnsemble
from unskew.propensity.storage import save_propensity
from unskew.serve.onnx_file import export_run
from unskew.study.legacy_propensity import DualFocalOnProbabilities, LegacyPropensity

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

PAGE = Path(__file__).parents[2] / "docs" / "guides" / "export.md"

FLOAT32 = 1e-5
"""What rounding in float32 may change; a thousand times less in practice."""

WIDE = {"neumf": us.NeuMF(dim=4, layers=(6, 5), init_std=0.7), "mf": us.MF(dim=3, init_std=0.7)}
QUICK = {"epochs": 2, "batch_size": 256, "learning_rate": 0.02}


@pytest.fixture(scope="module")
def log():
    return us.load("synthetic", n_users=40, n_items=30, density=0.2, seed=1).train


@pytest.fixture(scope="module")
def model():
    """A conversion model whose users are known by text, whose items by numbers."""
    pairs = [(user, item) for user in range(12) for item in range(9) if (user + item) % 3]
    random = np.random.default_rng(1)
    log = us.Log.from_arrays(
        user=[f"u{user}" for user, _ in pairs],
        item=[item * 10 for _, item in pairs],
        conversion=random.integers(2, size=len(pairs)),
        names={"user": "who", "item": "what"},
    )
    return us.Naive(learner=WIDE["neumf"], **QUICK).fit(log, seeds=2)


def session(path):
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def served(path, user, item) -> np.ndarray:
    """What a server would do: one call with the ids."""
    runtime = session(path)
    text = {given.name: given.type == "tensor(string)" for given in runtime.get_inputs()}
    ids = {
        name: np.array(values, dtype=object if text[name] else np.int64)
        for name, values in (("user", user), ("item", item))
    }
    (answer,) = runtime.run([runtime.get_modelmeta().custom_metadata_map["what"]], ids)
    assert answer.dtype == np.float32
    return answer


def every_pair(model):
    """All pairs of the ids that a model knows."""
    users, items = model.users_.ids, model.items_.ids
    return users.repeat(len(items)).tolist(), np.tile(items, len(users)).tolist()


def as_new_pairs(propensity, *pairs) -> np.ndarray:
    """Propensities as of pairs that no fold held out: the mean over folds (and seeds)."""
    return propensity.predict_pairs_each(*pairs, average=True).mean(axis=0)


class TestConversion:
    @pytest.mark.parametrize("learner", WIDE.values(), ids=WIDE)
    @pytest.mark.parametrize("seeds", [1, 3])
    def test_it_is_the_mean_over_seeds_of_what_is_predicted(self, log, tmp_path, learner, seeds):
        model = us.Naive(learner=learner, **QUICK).fit(log, seeds=seeds)
        told = us.export_onnx(model, tmp_path / "model.onnx")
        assert (told["what"], told["outputs"][:1], told["method"]) == ("conversion", ["conversion"], "naive")
        assert told["seeds"] == list(range(seeds))
        pairs = every_pair(model)
        expected = model.predict_pairs_each(*pairs).mean(axis=0)
        np.testing.assert_allclose(
            served(tmp_path / "model.onnx", *pairs), expected, rtol=FLOAT32, atol=FLOAT32
        )
        assert expected.std() > 0.01, "pairs that all get one answer would test nothing"

    @pytest.mark.parametrize(
        "learner", [WIDE["neumf"], BatchEnsemble(base=us.MF(dim=3), members=2)], ids=["neumf", "shared"]
    )
    def test_of_an_ensemble_it_is_the_mean_logit_of_its_members(self, log, tmp_path, learner):
        model = us.Naive(learner=learner, members=3, **QUICK).fit(log, seeds=2)
        us.export_onnx(model, tmp_path / "model.onnx")
        pairs = every_pair(model)
        expected = model.predict_pairs_each(*pairs).mean(axis=0)
        answer = served(tmp_path / "model.onnx", *pairs)
        np.testing.assert_allclose(answer, expected, rtol=FLOAT32, atol=FLOAT32)


class TestPropensity:
    @pytest.mark.parametrize(
        "uncertainty",
        [
            us.DeepEnsemble(members=3),
            us.BatchEnsembleMembers(members=3),
            us.BatchEnsembleMembers(members=2, init="normal"),
            us.DualFocal(),
            us.DualFocal(gamma=1.0),
            us.DualFocal(link="none"),
            DualFocalOnProbabilities(),
        ],
        ids=str,
    )
    @pytest.mark.parametrize("learner", WIDE.values(), ids=WIDE)
    def test_members_are_averaged_and_links_undone_before_the_calibrator(
        self, log, tmp_path, uncertainty, learner
    ):
        p = us.Propensity(learner=learner, uncertainty=uncertainty, crossfit=2, negatives=2.0, **QUICK).fit(
            log, seeds=2
        )
        assert p.offset_ < 0
        us.export_onnx(p, tmp_path / "p.onnx")
        pairs = every_pair(p)
        np.testing.assert_allclose(served(tmp_path / "p.onnx", *pairs), as_new_pairs(p, *pairs), rtol=FLOAT32)

    def test_noise_is_refused_and_what_to_do_instead_works(self, log, tmp_path):
        noisy = us.Propensity(
            learner=WIDE["neumf"], uncertainty=us.MCDropout(samples=2), crossfit=None, **QUICK
        ).fit(log)
        with pytest.raises(UnskewError, match=r"MC dropout.*reread\(uncertainty=None\)"):
            us.export_onnx(noisy, tmp_path / "p.onnx")
        paper = LegacyPropensity(learner=WIDE["neumf"], calibrator_dropout=True, crossfit=None, **QUICK).fit(
            log
        )
        with pytest.raises(UnskewError, match=r"dropout noise.*reread\(calibrator_dropout=False\)"):
            us.export_onnx(paper, tmp_path / "p.onnx")
        assert list(tmp_path.iterdir()) == []
        for still in (noisy.reread(uncertainty=None), paper.reread(calibrator_dropout=False)):
            us.export_onnx(still, tmp_path / "p.onnx", overwrite=True)
            pairs = every_pair(still)
            np.testing.assert_allclose(
                served(tmp_path / "p.onnx", *pairs), as_new_pairs(still, *pairs), rtol=FLOAT32
            )


class TestFile:
    @pytest.fixture
    def file(self, model, tmp_path):
        us.export_onnx(model, tmp_path / "model.onnx")
        return tmp_path / "model.onnx"

    def test_it_is_valid_and_takes_any_number_of_pairs(self, file, model):
        onnx.checker.check_model(onnx.load(file), full_check=True)
        runtime = session(file)
        assert [(i.name, i.type, i.shape) for i in runtime.get_inputs()] == [
            ("user", "tensor(string)", ["n"]),
            ("item", "tensor(int64)", ["n"]),
        ]
        assert [(o.name, o.type, o.shape) for o in runtime.get_outputs()] == [
            ("conversion", "tensor(float)", ["n"]),
            ("known_user", "tensor(bool)", ["n"]),
            ("known_item", "tensor(bool)", ["n"]),
        ]
        users, items = every_pair(model)
        whole = served(file, users, items)
        for count in (0, 1, 7):
            part = served(file, users[:count], items[:count])
            assert part.shape == (count,)
            np.testing.assert_allclose(part, whole[:count], rtol=1e-6)

    def test_an_unknown_id_gets_nan_as_in_scoring(self, file, model):
        users, items = ["u0", "nobody", "u1", "u2"], [0, 0, 5, 10]
        answer = served(file, users, items)
        expected = model.predict_pairs_each(users, items, unseen="nan").mean(axis=0)
        assert np.isnan(expected).tolist() == [False, True, True, False]
        np.testing.assert_allclose(answer, expected, rtol=FLOAT32)

    def test_the_metadata_tell_what_it_is(self, file, model):
        told = session(file).get_modelmeta().custom_metadata_map
        assert (told["user_column"], told["item_column"]) == ("who", "what")
        assert (told["unskew"], told["what"], told["method"]) == (us.__version__, "conversion", "naive")
        assert json.loads(told["seeds"]) == [0, 1]
        schema = Schema.from_dict(json.loads(told["schema"]))
        assert schema == Schema.of_ids(len(model.users_), len(model.items_))
        assert [each.name for each in session(file).get_inputs()] == [field.name for field in schema]

    def test_it_is_replaced_only_on_request(self, file, model):
        file.write_text("mine")
        with pytest.raises(RunFolderError, match=r"exists already.*--overwrite"):
            us.export_onnx(model, file)
        assert file.read_text() == "mine"
        assert us.export_onnx(model, file, overwrite=True)["bytes"] == file.stat().st_size
        assert [each.name for each in file.parent.iterdir()] == ["model.onnx"]

    def test_without_the_package_one_line_tells_how_to_install_it(self, model, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "onnx", None)
        with pytest.raises(UnskewError, match=r"package onnx.*pip install 'unskew\[onnx\]'"):
            us.export_onnx(model, tmp_path / "model.onnx")

    def test_what_is_not_fitted_or_no_model_is_told(self, tmp_path):
        for unfitted in (us.Naive(), us.Propensity()):
            with pytest.raises(NotFittedError, match="is not fitted yet"):
                us.export_onnx(unfitted, tmp_path / "model.onnx")
        with pytest.raises(ParameterError, match="a str is not a fitted model"):
            us.export_onnx("runs/demo", tmp_path / "model.onnx")

    def test_a_module_of_your_own_is_refused(self, log, tmp_path):
        class Dot(torch.nn.Module):
            def __init__(self, n_users, n_items):
                super().__init__()
                self.user, self.item = torch.nn.Embedding(n_users, 2), torch.nn.Embedding(n_items, 2)

            def forward(self, user, item):
                return (self.user(user) * self.item(item)).sum(-1)

        model = us.Naive(learner=us.Custom(module=Dot), **QUICK).fit(log)
        with pytest.raises(UnskewError, match=r"cannot write this model as ONNX.*torch\.onnx\.export"):
            us.export_onnx(model, tmp_path / "model.onnx")

    def test_a_method_that_predicts_in_its_own_way_is_refused(self, log, tmp_path):
        class Halved(us.Naive):
            def predict_pairs_each(self, *arguments, **options):
                return super().predict_pairs_each(*arguments, **options) / 2

        model = Halved(learner=WIDE["mf"], **QUICK).fit(log)
        with pytest.raises(UnskewError, match="Halved has a predict_pairs_each of its own"):
            us.export_onnx(model, tmp_path / "model.onnx")

    def test_a_learner_of_your_own_is_traced(self, log, tmp_path):
        class Mine(us.MF):
            name = "mine"

        model = us.Naive(learner=Mine(dim=2), **QUICK).fit(log)
        us.export_onnx(model, tmp_path / "model.onnx")
        expected = model.predict_pairs_each([0, 1], [2, 3]).mean(axis=0)
        np.testing.assert_allclose(served(tmp_path / "model.onnx", [0, 1], [2, 3]), expected, rtol=FLOAT32)


def test_a_saved_propensity_is_exported_to_the_same_bytes(log, tmp_path):
    p = us.Propensity(
        learner=WIDE["neumf"],
        calibrator=make_calibrator("isotonic"),
        uncertainty=us.BatchEnsembleMembers(members=2),
        crossfit=2,
        **QUICK,
    ).fit(log, seeds=2)
    save_propensity(p, tmp_path / "run")
    us.export_onnx(p, tmp_path / "one.onnx")
    export_run(tmp_path / "run", tmp_path / "two.onnx", what="propensity")
    assert (tmp_path / "one.onnx").read_bytes() == (tmp_path / "two.onnx").read_bytes()


def test_the_lines_of_the_page_serve_a_model(log, tmp_path, monkeypatch):
    code, _ = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len([line for line in code.splitlines() if line]) <= 7
    model = us.Naive(learner=WIDE["mf"], **QUICK).fit(log)
    us.export_onnx(model, tmp_path / "model.onnx")
    monkeypatch.chdir(tmp_path)
    space: dict[str, np.ndarray] = {}
    exec(compile(code, PAGE.name, "exec"), space)
    expected = model.predict_pairs_each([17, 17, 99_999], [3, 8, 3], unseen="nan").mean(axis=0)
    np.testing.assert_allclose(space["conversion"], expected, rtol=FLOAT32)


def lower_limit(monkeypatch, whole):
    """A file holds no more than the graph and half of the tables."""
    file = onnx.load(str(whole))
    tables = sum(len(each.raw_data) for each in file.graph.initializer)
    monkeypatch.setattr("unskew.serve.onnx_file.LARGEST_BYTES", file.ByteSize() - tables // 2)


def test_a_model_beyond_the_size_of_a_file_has_its_tables_beside_it(model, tmp_path, monkeypatch):
    """With a lower limit: the answers are those of one file, and both files are needed."""
    whole, parted = tmp_path / "whole.onnx", tmp_path / "parted.onnx"
    us.export_onnx(model, whole)
    lower_limit(monkeypatch, whole)
    told = us.export_onnx(model, parted)
    tables = tmp_path / "parted.onnx.data"
    assert told["tables"] == str(tables)
    assert told["bytes"] == parted.stat().st_size + tables.stat().st_size
    pairs = {"user": np.array([f"u{k}" for k in range(8)], dtype=object), "item": np.arange(8) * 10}
    answers = [onnxruntime.InferenceSession(str(each)).run(None, pairs)[0] for each in (whole, parted)]
    np.testing.assert_array_equal(*answers)
    with pytest.raises(RunFolderError, match="exists already"):
        us.export_onnx(model, parted)
    us.export_onnx(model, parted, overwrite=True)
    tables.unlink()
    with pytest.raises(Exception, match="data"):
        onnxruntime.InferenceSession(str(parted))


def test_of_two_files_nothing_is_left_if_the_second_fails(model, tmp_path, monkeypatch):
    us.export_onnx(model, tmp_path / "whole.onnx")
    lower_limit(monkeypatch, tmp_path / "whole.onnx")

    def fails(*arguments, **options):
        raise UnskewError("no", remedy="none")

    monkeypatch.setattr("onnx.checker.check_model", fails)
    with pytest.raises(UnskewError):
        us.export_onnx(model, tmp_path / "model.onnx")
    assert [each.name for each in tmp_path.iterdir()] == ["whole.onnx"]
