"""An audit with segments says whether a calibrator that reads them is worth it, on rows it never saw."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest

import unskew as us
from unskew.audit import Roles, write_weights
from unskew.base.errors import ParameterError
from unskew.report.audit_report import render_audit_report


def table(rows=8000, *, wrong=True, weight=False, seed=0):
    random = np.random.default_rng(seed)
    country = random.choice(["de", "fr", "it"], rows)
    device = random.integers(0, 2, rows)
    z = random.normal(-1.5, 1.0, rows)
    off = np.where(country == "de", 0.9, -0.7) + 0.8 * ((country == "it") & (device == 1))
    click = random.random(rows) < 1 / (1 + np.exp(-(z + off * wrong)))
    columns = {"p": 1 / (1 + np.exp(-z)), "clicked": click.astype(int), "country": country, "device": device}
    if weight:
        kept = click | (random.random(rows) < 0.5)
        columns = {name: each[kept] for name, each in columns.items()}
        columns["weight"] = np.where(columns["clicked"], 1.0, 2.0)
    return pa.table(columns)


@pytest.fixture(scope="module")
def off():
    return us.audit(table(), score="p", outcome="clicked", segments=["country", "device"])


def test_it_is_worth_it_where_segments_are_off(off):
    repair = off.repair
    assert repair.worth_it
    assert repair.rows == off.rows == 8000
    lines = {line.name: line for line in repair.lines}
    assert repair.lines[0].name == "multicalibrated"
    assert set(lines) == {"none", off.recommended, "multicalibrated"}
    assert lines["none"].nll == pytest.approx(off.nll, rel=1e-9)
    assert lines["none"].worst.column == "country"
    after = lines["multicalibrated"].worst
    assert after is None or after.wce_debiased < 0.3 * lines[off.recommended].worst.wce_debiased
    assert repair.sentence.startswith("Multicalibrated over country, device is worth it: held-out NLL ")
    assert repair.gain == pytest.approx(lines[repair.beside].nll - lines["multicalibrated"].nll)


def test_it_is_not_worth_it_where_nothing_is_wrong():
    result = us.audit(table(wrong=False), score="p", outcome="clicked", segments=["country", "device"])
    assert not result.repair.worth_it
    assert "is not worth it" in result.repair.sentence
    assert all(line.worst is None for line in result.repair.lines)


def test_json_and_the_report_tell_it(off):
    told = json.loads(json.dumps(off.to_dict()))["by_segment"]
    assert told["worth_it"] is True
    assert told["calibrators"][0]["name"] == "multicalibrated"
    page = render_audit_report(off)
    assert "Multicalibrated over country, device is worth it" in page
    assert "worst segment that is off" in page


def test_without_segments_or_with_too_few_clicks_nothing_is_compared():
    assert us.audit(table(), score="p", outcome="clicked").repair is None
    few = pa.table({"p": [0.01] * 400, "clicked": [1] + [0] * 399, "country": ["de"] * 400})
    assert us.audit(few, score="p", outcome="clicked", segments=["country"]).repair is None


def test_weights_by_segment_are_honest_for_each(tmp_path):
    import pyarrow.parquet as pq

    given = table(12_000)
    pq.write_table(given, tmp_path / "log.parquet")
    result = write_weights(
        tmp_path / "log.parquet",
        tmp_path / "out.parquet",
        Roles("p", "clicked", segments=("country", "device")),
        calibrator="multicalibrated",
    )
    assert result.chosen == ("multicalibrated",) * 5
    written = pq.read_table(tmp_path / "out.parquet").to_pandas()
    for _, rows in written.groupby(["country", "device"]):
        assert (rows.clicked / rows.propensity_calibrated).mean() == pytest.approx(1.0, abs=0.2)
    in_memory = us.weights(
        given, score="p", outcome="clicked", calibrator="multicalibrated", segments=["country", "device"]
    )
    np.testing.assert_array_equal(in_memory["weight"].to_numpy(), written["weight"].to_numpy())


def test_weights_by_segment_need_segments_and_no_others_do():
    for calibrator, segments, message in (
        ("multicalibrated", [], "multicalibrated reads columns of segments, and none is named"),
        ("platt", ["country"], "platt reads scores alone: segments have no effect"),
    ):
        with pytest.raises(ParameterError, match=message):
            us.weights(table(500), score="p", outcome="clicked", calibrator=calibrator, segments=segments)
