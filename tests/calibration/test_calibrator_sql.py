"""Every calibrator's map in SQL is the map of ``predict``: on DuckDB to twelve digits."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from unskew import Multicalibrated
from unskew.base.errors import ParameterError
from unskew.calibration import CALIBRATORS, Calibrator, make_calibrator
from unskew.calibration.isotonic import Isotonic

ROWS = 20_000
RANDOM = np.random.default_rng(0)
SCORE = np.concatenate(
    [1 / (1 + np.exp(-RANDOM.normal(-3, 1.5, ROWS - 200))), np.repeat([0.0, 0.07, 0.25, 1.0], 50)]
)
OUTCOME = RANDOM.random(ROWS) < np.clip(SCORE**0.8, 0.01, 0.9)
ASKED = np.unique(
    np.concatenate([SCORE, np.nextafter(SCORE, 2.0).clip(0, 1), np.linspace(0, 1, 1001), [1e-320]])
)


def asked_of(expression: str, **columns: object) -> np.ndarray:
    duckdb = pytest.importorskip("duckdb")
    rows = pa.table({"p": ASKED, **columns})
    connection = duckdb.connect()
    connection.register("rows", rows)
    return connection.sql(f"SELECT {expression} AS q FROM rows").fetchnumpy()["q"]


@pytest.mark.parametrize("name", [*CALIBRATORS, "isotonic, linear"])
def test_a_map_in_sql_is_that_of_predict(name: str) -> None:
    fitted = (Isotonic(interpolation="linear") if name.endswith("linear") else make_calibrator(name)).fit(
        SCORE, OUTCOME
    )
    np.testing.assert_allclose(asked_of(fitted.to_sql("p")), fitted.predict(ASKED), rtol=1e-12, atol=0)


@pytest.mark.parametrize("monotone", [False, True])
def test_a_multicalibrated_map_in_sql_is_that_of_predict(monotone: bool) -> None:
    def columns(rows: int) -> dict[str, np.ndarray]:
        age = np.where(RANDOM.random(rows) < 0.1, np.nan, RANDOM.uniform(18, 60, rows))
        return {
            "my country": RANDOM.choice(["de", "it's", "fr"], rows),
            "slot": RANDOM.integers(0, 4, rows),
            "age": age,
        }

    given = columns(ROWS)
    off = np.where(
        (given["my country"] == "de") & (given["slot"] == 2), 0.3, np.where(given["age"] < 30, 0.6, 1.0)
    )
    outcome = RANDOM.random(ROWS) < (SCORE * off).clip(0.005)
    fitted = Multicalibrated(monotone=monotone).fit(SCORE, outcome, features=given)
    assert len(fitted.terms_) > 1
    asked = columns(len(ASKED))
    np.testing.assert_allclose(
        asked_of(fitted.to_sql("p"), **asked), fitted.predict(ASKED, asked), rtol=1e-12
    )


@pytest.mark.parametrize("dialect", ["duckdb", "spark", "bigquery", "snowflake", "postgres"])
def test_every_engine_has_its_types_and_quotes(dialect: str) -> None:
    expression = make_calibrator("platt").fit(SCORE, OUTCOME).to_sql("my score", dialect)
    assert ("FLOAT64" in expression) == (dialect == "bigquery")
    assert ("DOUBLE PRECISION" in expression) == (dialect == "postgres")
    assert ("`my score`" if dialect in ("spark", "bigquery") else '"my score"') in expression


def test_an_unknown_engine_is_refused() -> None:
    with pytest.raises(ParameterError, match="dialect"):
        make_calibrator("platt").fit(SCORE, OUTCOME).to_sql("p", "oracle")


def test_one_of_your_own_without_sql_says_so() -> None:
    class Halved(Calibrator):
        name = "halved"

        def _fit_points(self, score: np.ndarray, total: np.ndarray, positive: np.ndarray) -> None:
            """Learn nothing."""

        def _predict(self, score: np.ndarray) -> np.ndarray:
            return score / 2

    with pytest.raises(ParameterError, match="halved does not say its map in SQL"):
        Halved().fit(SCORE, OUTCOME).to_sql("p")
