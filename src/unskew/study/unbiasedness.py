"""Unbiasedness, measured: what each estimate of the ideal loss gives on average over many draws of clicks.

Pure arithmetic over a synthetic world whose propensities are known; nothing is trained.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from scipy.special import expit, logit

from unskew.datasets import Dataset, load
from unskew.estimator import require_at_least
from unskew.study.shown_table import Shown
from unskew.theory import ideal_loss
from unskew.theory.bias import ips_variance, snips_bias, snips_variance

Floats = NDArray[np.float64]

REDRAWS = 2000
CLEAR = 3.0
"""Standard errors of the mean beyond which an estimate counts as biased."""
ROUNDING = 1e-9
"""Relative size of a miss that is floating-point rounding: an estimate that cannot vary has no other."""
PREDICTOR_SLOPE, PREDICTOR_NOISE = 0.7, 1.0
"""The fixed predictor: so much of the true conversion logit, and normal noise of this deviation."""
CHUNK_CELLS = 1 << 22
"""Clicks drawn at once."""


@dataclass(frozen=True, eq=False)
class Estimate:
    """An estimate that is linear in clicks, constant + Σ_O weight, divided by Σ_O 1 where it is a mean of O.

    ``propensity`` and ``imputation`` say in words what was used, ``claim`` what theory says of it.
    """

    name: str
    propensity: str
    imputation: str
    claim: str
    weight: Floats
    constant: float = 0.0
    mean_of_clicks: bool = False
    expected: float = 0.0
    deviation: float = 0.0


def unbiasedness_study(*, redraws: int = REDRAWS, seed: int = 0, **world: Any) -> pa.Table:
    """Draw the clicks of a synthetic world ``redraws`` times and average each estimate of the ideal loss.

    The world (``world`` are options of the synthetic data), its conversions, the predictor, propensities
    and imputed errors stay as they are; only o ~ Bernoulli(p) is drawn anew. Wrong propensities are half-way
    to the mean, 1/p̂ = ½/p + ½/p̄; wrong imputed errors take r̃ = 1 − η, conversion upside down. The last
    two rows impute by a linear function of the features, once with the weights that minimise DR-JL's
    imputation loss over D, once with those that minimise MRDR's, the variance.

    Returns
    -------
    pyarrow.Table
        One row per estimate: ``estimate``, ``propensity``, ``imputation``, ``claim`` ("unbiased" or
        "biased"), ``mean`` over redraws, ``miss`` (mean − ideal loss), its ``standard_error`` and their ratio
        ``standard_errors_off`` (null where the estimate cannot vary), ``deviation`` of a single estimate,
        ``expected_miss`` and ``expected_deviation`` in closed form, and whether the claim ``holds``. The
        schema's metadata have ``ideal_loss`` and ``redraws``.

    Examples
    --------
    >>> table = unbiasedness_study(redraws=200, n_users=40, n_items=30)
    >>> table.num_rows, table.column("estimate")[1].as_py()
    (10, 'IPS')
    """
    require_at_least(2, redraws=redraws)
    data = load("synthetic", **{"seed": seed, **world})
    error, estimates = estimates_of(data, np.random.default_rng([seed, 1]))
    assert data.truth is not None
    values = redrawn(estimates, data.truth.propensity.ravel(), redraws, np.random.default_rng([seed, 2]))
    ideal = ideal_loss(error)
    rows = [_row(each, line, ideal) for each, line in zip(estimates, values.T, strict=True)]
    metadata = {"ideal_loss": repr(ideal), "redraws": str(redraws)}
    return pa.Table.from_pylist(rows).replace_schema_metadata(metadata)


def show_unbiasedness(table: pa.Table) -> Shown:
    """The result of :func:`unbiasedness_study` as a table to read."""
    ideal, redraws = (table.schema.metadata[key].decode() for key in (b"ideal_loss", b"redraws"))
    rows = []
    for row in table.to_pylist():
        off = row["standard_errors_off"]
        rows.append(
            (
                row["estimate"],
                row["propensity"],
                row["imputation"],
                f"{row['mean']:.4f}",
                f"{row['miss']:+.4f}",
                f"{row['standard_error']:.4f}",
                _standard_errors(off),
                f"{row['expected_miss']:+.4f}",
                f"{row['deviation']:.4f}",
                f"{row['claim']}: {'holds' if row['holds'] else 'does not hold'}",
            )
        )
    return Shown(
        title=f"Estimates of the ideal loss {float(ideal):.4f} over {int(redraws):,} draws of the clicks",
        columns=(
            "estimate",
            "propensity",
            "imputed errors",
            "mean",
            "miss",
            "± s.e.",
            "s.e. off",
            "miss in theory",
            "deviation of one",
            "claim",
        ),
        rows=tuple(rows),
        caption=f"biased: more than {CLEAR:g} standard errors off",
        text_columns=3,
    )


def _standard_errors(off: float | None) -> str:
    if off is None:
        return "cannot vary"
    return f"{off:+.1f}" if abs(off) < 100 else f"{off:+,.0f}"


def estimates_of(data: Dataset, random: np.random.Generator) -> tuple[Floats, list[Estimate]]:
    """The error of each pair, and the estimates of its mean."""
    truth = data.truth
    assert truth is not None
    p, label = truth.propensity.ravel(), truth.labels.ravel().astype(np.float64)
    conversion = truth.conversion.ravel()
    a = PREDICTOR_SLOPE * logit(conversion) + PREDICTOR_NOISE * random.standard_normal(len(p))
    error = _cross_entropy(label, a)
    wrong = 1.0 / (0.5 / p + 0.5 / p.mean())
    upside_down = _cross_entropy(1.0 - conversion, a)
    constant = _cross_entropy(np.full(len(p), conversion.mean()), a)
    features = _features(data)

    def doubly_robust(words: tuple[str, str, str, str], q: Floats, imputed: Floats) -> Estimate:
        return Estimate(
            *words,
            weight=(error - imputed) / q / len(p),
            constant=float(imputed.mean()),
            expected=float((imputed + p / q * (error - imputed)).mean()),
            deviation=float(
                np.sqrt(ips_variance(propensity_true=p, propensity_used=q, error=error - imputed))
            ),
        )

    ones, none = np.ones_like(p), np.zeros_like(p)
    off = snips_bias(propensity_true=p, propensity_used=ones, error=error).signed
    spread = snips_variance(propensity_true=p, propensity_used=ones, error=error)
    naive = Estimate(
        "naive",
        "–",
        "–",
        "biased",
        weight=error,
        mean_of_clicks=True,
        expected=float(error.mean()) - off,
        deviation=float(np.sqrt(spread)),
    )
    return error, [
        naive,
        doubly_robust(("IPS", "true", "–", "unbiased"), p, none),
        doubly_robust(("IPS", "wrong", "–", "biased"), wrong, none),
        doubly_robust(("EIB", "–", "wrong", "biased"), ones, upside_down),
        doubly_robust(("DR", "true", "one rate", "unbiased"), p, constant),
        doubly_robust(("DR", "true", "wrong", "unbiased"), p, upside_down),
        doubly_robust(("DR", "wrong", "true errors", "unbiased"), wrong, error),
        doubly_robust(("DR", "wrong", "wrong", "biased"), wrong, upside_down),
        doubly_robust(("DR", "true", "best for DR-JL", "unbiased"), p, _fitted(features, error, ones)),
        doubly_robust(("DR", "true", "best for MRDR", "unbiased"), p, _fitted(features, error, (1 - p) / p)),
    ]


def _cross_entropy(target: Floats, a: Floats) -> Floats:
    return np.asarray(-target * np.log(expit(a)) - (1.0 - target) * np.log(expit(-a)))


def _features(data: Dataset) -> Floats:
    """1 and the features of user and item, for every pair ``[|D|, k]``."""
    users, items = data.train.user_features, data.train.item_features
    assert users is not None
    assert items is not None
    rows = np.repeat(users.values, data.train.n_items, axis=0)
    columns = np.tile(items.values, (data.train.n_users, 1))
    return np.column_stack([np.ones(len(rows)), rows, columns]).astype(np.float64)


def _fitted(features: Floats, error: Floats, weight: Floats) -> Floats:
    """argmin over linear functions ê of the features of Σ_D weight·(e − ê)²."""
    weighted = features * weight[:, None]
    return np.asarray(features @ np.linalg.solve(weighted.T @ features, weighted.T @ error))


def redrawn(estimates: list[Estimate], p: Floats, redraws: int, random: np.random.Generator) -> Floats:
    """Each estimate on clicks that are drawn anew, ``[redraws, estimates]``."""
    weights = np.column_stack([*(each.weight for each in estimates), np.ones_like(p)])
    at_once = max(1, CHUNK_CELLS // len(p))
    sums = []
    for start in range(0, redraws, at_once):
        clicks = random.random((min(at_once, redraws - start), len(p))) < p
        sums.append(clicks.astype(np.float64) @ weights)
    total = np.concatenate(sums)
    count = total[:, -1]
    return np.column_stack(
        [
            each.constant + total[:, j] / (count if each.mean_of_clicks else 1.0)
            for j, each in enumerate(estimates)
        ]
    )


def _row(each: Estimate, values: Floats, ideal: float) -> dict[str, Any]:
    deviation = float(values.std(ddof=1))
    cannot_vary = deviation <= ROUNDING * ideal
    error = 0.0 if cannot_vary else deviation / np.sqrt(len(values))
    miss = float(values.mean()) - ideal
    is_biased = abs(miss) > CLEAR * error + ROUNDING * ideal
    return {
        "estimate": each.name,
        "propensity": each.propensity,
        "imputation": each.imputation,
        "claim": each.claim,
        "mean": ideal + miss,
        "miss": miss,
        "standard_error": float(error),
        "standard_errors_off": None if cannot_vary else float(miss / error),
        "deviation": 0.0 if cannot_vary else deviation,
        "expected_miss": each.expected - ideal,
        "expected_deviation": each.deviation,
        "holds": is_biased == (each.claim == "biased"),
    }
