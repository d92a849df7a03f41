"""Damaged run folders: one line names the folder, the file and the fault.

Where the manifest no longer fits, it tells the file. Where it was written anew, what files say is checked.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from safetensors.torch import load_file, save_file

import unskew as us
from unskew.base.errors import RunFolderError
from unskew.base.manifest import FOR_PEOPLE, MANIFEST, write_manifest
from unskew.debias.storage import write_models
from unskew.offpolicy.run_folder import compare_run
from unskew.propensity.storage import write_propensity
from unskew.training.saved import write_config


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    log = us.load("synthetic", n_users=12, n_items=20, density=0.3).train
    learner = us.MF(dim=2)
    propensity = us.Propensity(
        calibrator=us.Platt(), learner=learner, crossfit=2, epochs=1, uncertainty=us.DualFocal()
    )
    propensity.fit(log, seeds=2)
    model = us.IPS(learner=learner, epochs=1).fit(log, propensity=propensity, seeds=2)
    folder = tmp_path_factory.mktemp("whole")
    write_config(
        folder,
        {"main": "ips", **write_models(folder, {"ips": model}), **write_propensity(folder, propensity)},
    )
    for name in (*FOR_PEOPLE, "metrics.json"):
        (folder / name).write_text("{}", encoding="utf-8")
    write_manifest(folder)
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "run")


def load(folder):
    return us.load_model(folder), us.load_propensity(folder)


def refused(folder, file, fault=""):
    """A folder that somebody changed and gave another manifest."""
    write_manifest(folder)
    with pytest.raises(RunFolderError, match=f"^{folder}: {file} is damaged .*{fault}.*To fix: ") as caught:
        load(folder)
    assert "\n" not in str(caught.value)


def test_the_whole_folder_loads(folder):
    model, propensity = load(folder)
    assert model.seeds_ == propensity.seeds_ == (0, 1)
    density = us.load("synthetic", n_users=12, n_items=20, density=0.3).train.density
    assert propensity.predict_matrix_each().mean() == pytest.approx(density, rel=0.1)


READ = [
    "calibrator.json",
    "config.toml",
    "items.parquet",
    "manifest.json",
    "metrics.json",
    "model.safetensors",
]
READ += ["propensity.safetensors", "schema.json", "users.parquet"]


def told_of(folder):
    """What every reader of a folder says of it, which is the same line."""
    lines = set()
    for read in (us.load_model, us.load_propensity, compare_run):
        with pytest.raises(RunFolderError, match=f"^{re.escape(str(folder))}: .* To fix: ") as caught:
            read(folder)
        lines.add(str(caught.value))
    (line,) = lines
    assert "\n" not in line
    return line


def test_these_are_the_files_that_are_read(folder):
    assert sorted(path.name for path in folder.iterdir() if path.name not in FOR_PEOPLE) == READ


@pytest.mark.parametrize("name", READ)
class TestManifest:
    @pytest.mark.parametrize("share", [0.0, 0.25, 0.5, 0.75, 1.0])
    def test_a_file_that_was_cut_is_named_wherever_it_was_cut(self, folder, name, share):
        whole = (folder / name).read_bytes()
        (folder / name).write_bytes(whole[: min(int(share * len(whole)), len(whole.rstrip()) - 1)])
        assert f"{name} is damaged (" in told_of(folder)

    def test_a_file_with_one_bit_turned_is_named(self, folder, name):
        content = bytearray((folder / name).read_bytes())
        content[len(content) // 3] ^= 1
        (folder / name).write_bytes(content)
        assert f"{name} is damaged (" in told_of(folder)

    def test_a_file_that_is_missing_is_named(self, folder, name):
        (folder / name).unlink()
        assert f"{name} is missing" in told_of(folder)


def test_a_file_of_a_known_name_that_was_put_there_later_is_named(folder):
    (folder / "propensities.parquet").write_bytes(b"from another run")
    assert "propensities.parquet was put there later" in told_of(folder)


@pytest.mark.parametrize("text", ["[]", "{}", '{"files": {}}', "[" * 100_000, '{"files": {"../x": {}}}'])
def test_a_manifest_that_is_none_is_told(folder, text):
    (folder / MANIFEST).write_text(text, encoding="utf-8")
    assert "manifest.json is damaged (" in told_of(folder)


def test_digests_are_those_of_sha256sum(folder):
    told = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))["files"]
    assert told.keys() == {path.name for path in folder.iterdir()} - {MANIFEST}
    for name, of_file in told.items():
        content = (folder / name).read_bytes()
        assert of_file == {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("seeds = [0, 1]", "seeds = []", r"methods\.ips\.seeds is \[\]"),
        ("seeds = [0, 1]", 'seeds = ["a", 1]', r"methods\.ips\.seeds is"),
        ("seeds = [0, 1]", "seeds = 2", r"methods\.ips\.seeds is 2"),
        ("seeds = [0, 1]", "", r"it has no methods\.ips\.seeds"),
        ('method = "ips"', "", r"it has no methods\.ips\.method"),
        ('method = "ips"', "method = 3", r"methods\.ips\.method is 3"),
        ("[methods.ips.params]", "[methods.ips.parms]", "has no list 'none'"),
        ("none = []", "", "has no list 'none'"),
        ('p_min = "auto"', 'p_mim = "auto"', "p_mim"),
        ('p_min = "auto"', 'p_min = "low"', "p_min must be a number or 'auto', not 'low'"),
        ('selection = "snips"', 'selection = "zzz"', "selection must be 'snips' or 'ce', not 'zzz'"),
        ('name = "mf"', "", "learner has no name"),
        ('name = "mf"', 'name = "mg"', "unknown learner 'mg'"),
        ("dim = 2", 'dim = "two"', "dim must be a whole number"),
        ("dim = 2", "dime = 2", "dime"),
        ("held_out", "kept_out", r"it has no methods\.ips\.split\.held_out"),
        ('fold_by = "cell"', 'fold_by = "zzz"', "fold_by must be 'cell', 'user' or 'item', not 'zzz'"),
        ('space = "matrix"', 'space = "zzz"', r"propensity\.space is 'zzz'"),
        ('space = "matrix"', "", r"it has no propensity\.space"),
        ("offset = 0.0", 'offset = "a"', r"propensity\.offset is 'a'"),
        ('name = "dual-focal"', 'name = "guess"', "unknown uncertainty 'guess'"),
        ("gamma = 2.0", "gama = 2.0", "gama"),
        ('name = "platt"', 'name = "plat"', "unknown calibrator 'plat'"),
        ("[propensity.params.calibrator]", "[propensity.params.calibrater]", "no parameter 'calibrater'"),
    ],
)
def test_a_config_with_a_key_that_is_missing_or_wrong(folder, old, new, fault):
    path = folder / "config.toml"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")
    refused(folder, "config.toml", fault)


def test_a_config_cut_anywhere_is_never_a_traceback(folder):
    path = folder / "config.toml"
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    refusals = []
    for stop in range(len(lines)):
        path.write_text("".join(lines[:stop]), encoding="utf-8")
        write_manifest(folder)
        try:
            load(folder)
        except RunFolderError as error:
            refusals.append(str(error))
    assert len(refusals) > len(lines) // 2
    assert not [told for told in refusals if "\n" in told or "To fix: " not in told]


def test_a_method_of_ones_own_is_asked_for(folder):
    path = folder / "config.toml"
    text = path.read_text(encoding="utf-8").replace("methods.ips", "methods.mine")
    path.write_text(text.replace('"ips"', '"mine"'), encoding="utf-8")
    write_manifest(folder)
    with pytest.raises(RunFolderError, match=r"its method 'mine' is none of unskew's.*--with"):
        us.load_model(folder)


def without_last(table):
    return table.slice(0, len(table) - 1)


def with_null(table):
    ids = [*table["id"].to_pylist()[:-1], None]
    return pa.table({"id": pa.array(ids, table["id"].type)}, schema=table.schema)


@pytest.mark.parametrize(
    ("change", "file", "fault"),
    [
        (without_last, "users.parquet", "11 ids, where schema.json says 12"),
        (with_null, "users.parquet", "ids are missing"),
        (lambda table: table.replace_schema_metadata(None), "users.parquet", "no name"),
        (lambda table: table.rename_columns(["x"]), "users.parquet", "no column 'id'"),
        (lambda table: table.slice(0, 0), "users.parquet", "ids are missing"),
        (lambda table: table.take(list(range(len(table)))[::-1]), "users.parquet", "out of order"),
        (lambda table: table.set_column(0, "id", pa.array([0.5] * len(table))), "users.parquet", "double"),
    ],
)
def test_ids_that_cannot_be(folder, change, file, fault):
    path = folder / "users.parquet"
    pq.write_table(change(pq.read_table(path)), path)
    refused(folder, file, fault)


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ('"size": 12', '"size": 0', "the kind 'id' cannot have the size 0"),
        ('"size": 12', '"size": "12"', "the kind 'id' cannot have the size '12'"),
        ('"kind": "id"', '"kind": "word"', "kind is 'word'"),
        ('"name": "user"', '"name": "item"', "have one name"),
        ('"name": "user"', '"name": "visitor"', "the ids are"),
        ('"role"', '"rule"', "not a schema"),
        ('"fields"', '"columns"', "not a schema"),
        ("{", "[", "Expecting|delimiter"),
    ],
)
def test_a_schema_that_cannot_be(folder, old, new, fault):
    path = folder / "schema.json"
    path.write_text(path.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    refused(folder, "schema.json", fault)


def nan(tensors, name):
    tensors[name] = torch.full_like(tensors[name], torch.nan)


def shorter(tensors, name):
    tensors[name] = tensors[name][:, 1:].contiguous()


def halves(tensors, name):
    tensors[name] = tensors[name].half()


@pytest.mark.parametrize(
    ("file", "name"),
    [("model.safetensors", "ips/prediction/user.weight"), ("propensity.safetensors", "model/user.weight")],
)
@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda tensors, name: tensors.pop(name), "is missing"),
        (lambda tensors, name: tensors.clear(), "is missing"),
        (lambda tensors, name: tensors.update({name + "x": tensors[name].clone()}), "is unknown"),
        (nan, "holds NaN or infinity"),
        (shorter, "has shape"),
        (halves, "is torch.float16, not torch.float32"),
    ],
)
def test_weights_that_cannot_be(folder, file, name, change, fault):
    tensors = load_file(folder / file)
    assert name in tensors
    change(tensors, name)
    save_file(tensors, folder / file)
    refused(folder, file, fault)


@pytest.mark.parametrize("value", ["a", None, ["a"], {}, True])
@pytest.mark.parametrize("part", ["learned", "parameters"])
def test_a_calibrator_with_a_value_that_cannot_be(folder, part, value):
    path = folder / "calibrator.json"
    calibrators = json.loads(path.read_text(encoding="utf-8"))
    for name in calibrators[1][part]:
        if (name, value) in (("message_", "a"), ("target_smoothing", True)):
            continue
        damaged = json.loads(json.dumps(calibrators))
        damaged[1][part][name] = value
        path.write_text(json.dumps(damaged), encoding="utf-8")
        refused(folder, "calibrator.json", name)


@pytest.mark.parametrize(
    ("told", "fault"),
    [
        ("[]", "p_min is None"),
        ("null", "p_min is None"),
        ('{"data": {"space": "matrix"}}', "p_min is None"),
        ('{"p_min": "low", "data": {"space": "matrix"}}', "p_min is 'low'"),
        ('{"p_min": 7, "data": {"space": "matrix"}}', "p_min is 7"),
        ('{"p_min": 0.01}', "data.space is None"),
        ('{"p_min": 0.01, "data": []}', "data.space is None"),
        ('{"p_min": 0.01, "data": {"space": "zzz"}}', "data.space is 'zzz'"),
        ('{"p_min": 0.01, "data": {"space": []}}', "data.space is"),
        ("\x00", ""),
    ],
)
def test_metrics_that_cannot_be(folder, told, fault):
    (folder / "metrics.json").write_text(told, encoding="utf-8")
    write_manifest(folder)
    with pytest.raises(RunFolderError, match=rf"metrics\.json is damaged .*{fault}.*To fix: "):
        compare_run(folder)


@pytest.mark.parametrize("dim", [50_000_000_000, 10**17, 10**30])
@pytest.mark.parametrize("which", ["methods.ips", "propensity"])
def test_a_size_beyond_all_memory_is_refused_before_any_is_taken(folder, which, dim):
    config = (folder / "config.toml").read_text(encoding="utf-8")
    table = f"[{which}.params.learner]"
    start = config.index(table)
    head, tail = config[:start], config[start:]
    (folder / "config.toml").write_text(head + tail.replace("dim = 2", f"dim = {dim}", 1), encoding="utf-8")
    write_manifest(folder)
    with pytest.raises(RunFolderError, match=r"is damaged .*(has shape \[|such sizes|integer)"):
        load(folder)


def test_a_vocabulary_of_more_rows_than_the_model_has_is_refused_by_its_declared_size(folder, monkeypatch):
    schema = pq.read_schema(folder / "users.parquet")
    with pq.ParquetWriter(folder / "users.parquet", schema) as writer:
        for _ in range(10):
            writer.write_table(pa.table([pa.nulls(1_000_000, schema.field("id").type)], schema=schema))
    monkeypatch.setattr(pq.ParquetFile, "iter_batches", None)
    refused(folder, "users.parquet", "10000000 ids, where schema.json says 12")


@pytest.mark.parametrize("where", ["hashlib.file_digest", "pathlib.Path.read_text"])
def test_a_file_that_may_not_be_read_is_not_called_damaged(folder, monkeypatch, where):
    def refuse(*_, **__):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(where, refuse)
    with pytest.raises(
        RunFolderError, match=r"cannot be read \(Permission denied\).*see to the permissions"
    ) as told:
        us.load_model(folder)
    assert "damaged" not in str(told.value)


@pytest.mark.parametrize(
    "told", ['[["prediction"]]', '["prediction"]', '[["prediction", 0, "tired"]]', "[1]"]
)
def test_a_collapse_that_cannot_be_is_told(folder, told):
    config = (folder / "config.toml").read_text(encoding="utf-8")
    changed, count = re.subn(r"(?m)^collapsed = .*$", f"collapsed = {told}", config)
    assert count
    (folder / "config.toml").write_text(changed, encoding="utf-8")
    refused(folder, "config.toml", r"methods\.ips\.collapsed is ")
