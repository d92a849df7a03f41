"""A log whose arrays lie in files trains what the log in memory trains, bit for bit."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

import unskew as us
from unskew.debias import METHODS
from unskew.training import samplers

USERS, ITEMS, ROWS = 40, 30, 1500
DCN = us.DCN(dim=3, layers=(6,))


@pytest.fixture(scope="module")
def log() -> us.Log:
    random = np.random.default_rng(4)
    user, item = random.integers(USERS, size=ROWS), random.integers(ITEMS, size=ROWS)
    p = 0.2 + 0.4 * (user % 3 == 0)
    click = (random.random(ROWS) < p).astype(int)
    return us.Log.from_frame(
        pa.table(
            {
                "user": user,
                "item": item,
                "click": click,
                "conversion": np.where(click == 1, random.random(ROWS) < 0.3 + 0.4 * (item % 2), 0).astype(
                    float
                ),
                "device": np.array(["tv", "pc", "car"])[random.integers(3, size=ROWS)],
                "price": random.normal(size=ROWS),
                "p": p,
            }
        ),
        space="impressions",
        features=["device", "price"],
        keep=["p"],
    )


@pytest.fixture(scope="module")
def mapped(log: us.Log, tmp_path_factory: pytest.TempPathFactory) -> us.Log:
    """The same rows in files."""
    folder = tmp_path_factory.mktemp("mapped")

    def in_file(name: str, values: np.ndarray) -> np.ndarray:
        np.save(folder / f"{name}.npy", values)
        return np.load(folder / f"{name}.npy", mmap_mode="r")

    values = {}
    for name, each in log.features.values.items():
        arrays = {part: array for part, array in vars(each).items() if array is not None and part != "texts"}
        values[name] = replace(each, **{part: in_file(f"{name} {part}", arrays[part]) for part in arrays})
    return replace(
        log,
        **{name: in_file(name, getattr(log, name)) for name in ("user", "item", "click", "conversion")},
        columns={name: in_file(name, values) for name, values in log.columns.items()},
        features=replace(log.features, values=values),
    )


@pytest.fixture(params=["one permutation", "windows"])
def order(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Epochs of one permutation, and of windows of blocks, as logs of more than 20 million rows have."""
    if request.param == "windows":
        monkeypatch.setattr(samplers, "FULL_ORDER", 200)
        monkeypatch.setattr(samplers, "BLOCK_ROWS", 32)
        monkeypatch.setattr(samplers, "WINDOW_BLOCKS", 4)


@pytest.mark.usefixtures("order")
@pytest.mark.parametrize("name", ["ips", "dr-jl", "escm2-dr"])
def test_the_model_is_the_same(log: us.Log, mapped: us.Log, name: str) -> None:
    models = []
    for rows in (log, mapped):
        method = METHODS[name](learner=DCN, epochs=2, batch_size=100, members=2)
        models.append(method.fit(rows, propensity="p" if method.needs_propensity else None, device="cpu"))
    np.testing.assert_array_equal(*(model.validation_rows(log) for model in models))
    np.testing.assert_array_equal(models[0].predict_members_each(log), models[1].predict_members_each(mapped))
    assert models[0].validation_loss_ == models[1].validation_loss_


@pytest.mark.usefixtures("order")
@pytest.mark.parametrize(
    "propensity",
    [
        us.Propensity(learner=DCN, epochs=2, batch_size=200, crossfit=2),
        us.Propensity(learner=us.MF(dim=2), epochs=2, batch_size=200, crossfit=3, negatives=1.0),
        us.Propensity(learner=us.Linear(), crossfit=2),
        us.Propensity(learner=us.Linear(), crossfit=2, negatives=1.0),
    ],
    ids=["network", "network on negatives", "linear", "linear on negatives"],
)
def test_propensities_and_folds_are_the_same(log: us.Log, mapped: us.Log, propensity: us.Propensity) -> None:
    fits = [copy.copy(propensity).fit(rows, seeds=2, device="cpu") for rows in (log, mapped)]
    for kind in ("raw", "calibrated"):
        found = [
            getattr(fit.predict_both_each(rows), kind) for fit, rows in zip(fits, (log, mapped), strict=True)
        ]
        np.testing.assert_array_equal(*found)
    ids = log.users.ids[log.user], log.items.ids[log.item]
    np.testing.assert_array_equal(*(fit.fold_of_pairs_each(*ids) for fit in fits))
    assert fits[0].diagnose() == fits[1].diagnose()
    # Negatives stand for all of D, whatever order they are drawn in.
    assert fits[0].predict(log).sum() == pytest.approx(log.n_clicks, rel=0.15)


def test_a_log_is_predicted_block_by_block_as_at_once(log: us.Log, mapped: us.Log) -> None:
    model = us.IPS(learner=DCN, epochs=1).fit(mapped, propensity="p", device="cpu")
    propensity = us.Propensity(learner=us.Linear(), crossfit=2).fit(mapped)
    for fitted in (model, propensity):
        parts = [fitted.predict_each(block) for block in mapped.blocks(400)]
        np.testing.assert_allclose(np.concatenate(parts, axis=1), fitted.predict_each(log), rtol=1e-5)
