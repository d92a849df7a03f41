"""``ensemble="batch"``: members inside one network, which share its large weights."""

from __future__ import annotations

import numpy as np
import pytest

import unskew as us
from unskew.backbones import BatchEnsemble, Intercept
from unskew.errors import ParameterError

pytestmark = pytest.mark.filterwarnings("ignore::unskew.errors.CollapseWarning")

FIT = {"seeds": 2, "device": "cpu"}


@pytest.fixture(scope="module")
def data():
    return us.load("synthetic", n_users=30, n_items=20, density=0.3)


def method(kind, **changes):
    return kind(**{"backbone": us.NeuMF(dim=4), "members": 3, "ensemble": "batch", "epochs": 2, **changes})


@pytest.fixture(scope="module")
def model(data):
    return method(us.DRJL).fit(data.train, propensity=0.3, **FIT)


def test_it_is_the_backbone_that_has_members(data, model):
    backbone = BatchEnsemble(base=us.NeuMF(dim=4), members=3)
    same = us.DRJL(backbone=backbone, epochs=2).fit(data.train, propensity=0.3, **FIT)
    np.testing.assert_array_equal(model.predict_each(data.test), same.predict_each(data.test))
    assert {each.members for each in model.networks_.values()} == {3}


def test_it_is_one_network_a_seed_of_little_more_weights(data, model):
    one = method(us.DRJL, members=1).fit(data.train, propensity=0.3, **FIT)
    assert model.predict_members_each(data.test).shape == (2, 1, len(data.test))
    apart = method(us.DRJL, ensemble="seeds", epochs=1).fit(data.train, propensity=0.3, **FIT)
    networks = [each.networks_["prediction"] for each in (one, model, apart)]
    sizes = [sum(weight.numel() for weight in each.parameters()) for each in networks]
    assert sizes[0] < sizes[1] < sizes[2]
    assert us.evaluate(model, data.test)["auc"].shape == (2,)


def test_it_is_saved_loaded_and_exported(data, model, tmp_path):
    model.save(tmp_path / "model")
    loaded = us.load_model(tmp_path / "model", device="cpu")
    expected = model.predict_each(data.test)
    np.testing.assert_array_equal(loaded.predict_each(data.test), expected)
    runtime = pytest.importorskip("onnxruntime")
    us.export_onnx(model, tmp_path / "model.onnx")
    session = runtime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    asked = {"user": data.test.user.astype(np.int64), "item": data.test.item.astype(np.int64)}
    np.testing.assert_allclose(session.run(None, asked)[0], expected.mean(axis=0), atol=1e-5)


def test_a_backbone_without_layers_to_share_is_refused_in_one_line(data):
    with pytest.raises(ParameterError, match=r"backbone 'intercept' has no layers .*ensemble='seeds'"):
        method(us.Naive, backbone=Intercept()).fit(data.train)
