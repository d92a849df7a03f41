"""Learners without a network beside scikit-learn's logistic regression and LightGBM.

``taskset -c 1 python -m benchmarks.learners --seed 21`` predicts clicks, and conversions given a click, of
synthetic impressions. The latest fifth of the log is the test; the latest tenth of the rest is the
validation, which stops the boosting and chooses the penalty of ``Linear``. Columns: AUC, log-loss, ECE (100
bins), and CPU seconds to fit and predict. ``--choose`` compares leaves and learning rates of both kinds of
trees on the validation instead, and never reads the test.
"""

from __future__ import annotations

import argparse
import os
import time
import warnings
from collections.abc import Callable
from itertools import product
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch
from scipy.sparse import csr_matrix, hstack
from scipy.special import xlogy
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.preprocessing import OneHotEncoder, StandardScaler, TargetEncoder

import unskew as us
from benchmarks.common import markdown
from unskew.data.splitting import times_of
from unskew.learners.learner import TableLearner
from unskew.learners.table import EncodedTable, Examples, Floats, table_of
from unskew.training.reader import Reader

Fit = Callable[[Examples, Examples, EncodedTable], Floats]
"""Fit the first examples, with held-out ones, and predict rows."""

OUTCOMES = ("click", "conversion")
TEST, VALIDATION = 0.2, 0.08
"""Shares of the log, latest rows first."""
LIGHT_GBM, TREES = "LightGBM, cross-fitted target encodings", "`Trees`"
LEAVES, RATES = (15, 31, 63), (0.05, 0.1)
CHOSEN_ON = (5, 6)
"""Seeds of the worlds of ``--choose``. The tables show others."""


def parts_of(rows: int, seed: int, confounding: float) -> dict[str, list[Examples]]:
    """Return training, validation and test examples of each outcome."""
    data = us.load(
        "impressions", n_rows=rows, n_items=1000, features="auto", seed=seed, confounding=confounding
    )
    log = data.train
    order = np.argsort(times_of(log), kind="stable")
    cuts = [round((1 - TEST - VALIDATION) * rows), round((1 - TEST) * rows)]
    parts = [np.sort(part) for part in np.split(order, cuts)]
    train = log.take(np.sort(np.concatenate(parts[:2])))
    reader = Reader(train.users, train.items, train.encoders, torch.device("cpu"))
    hashes = (np.append(train.users.hashes, 0), np.append(train.items.hashes, 0))
    conversion = np.zeros(rows)
    conversion[log.clicked] = log.known_conversion()
    targets = {"click": log.click.astype(np.float64), "conversion": conversion}

    def examples(rows: Any, target: Floats) -> Examples:
        table = table_of(train.schema, reader.of_log(log.take(rows)).rows, hashes)
        return Examples(table, target[rows], np.ones(len(rows)))

    return {
        outcome: [
            examples(part if outcome == "click" else part[log.click[part] > 0], targets[outcome])
            for part in parts
        ]
        for outcome in OUTCOMES
    }


def compare(rows: int, seed: int, confounding: float) -> str:
    """Return the table of all models on the test, and how sure it is."""
    models: dict[str, Fit] = {
        "scikit-learn, one-hot logistic regression": one_hot,
        LIGHT_GBM: light_gbm(),
        "`Linear`": ours(us.Linear()),
        TREES: ours(us.Trees()),
        "`Blend`": ours(us.Blend()),
    }
    lines = {name: [name] for name in models}
    notes = []
    for outcome, (train, held_out, test) in parts_of(rows, seed, confounding).items():
        target, predicted = test.target, {}
        for name, fit in models.items():
            fit(held_out, held_out, held_out.rows)  # imports what the clock shall not count
            start = time.process_time()
            predicted[name] = p = fit(train, held_out, test.rows)
            seconds = time.process_time() - start
            figures = roc_auc_score(target, p), log_loss(target, p), us.metrics.ece(score=p, outcome=target)
            lines[name] += [*(f"{figure:.4f}" for figure in figures), f"{seconds:.1f}"]
        floor = us.metrics.noise_floor(score=predicted[TREES], outcome=target)
        trees, other = (
            -xlogy(target, predicted[name]) - xlogy(1 - target, 1 - predicted[name])
            for name in (TREES, LIGHT_GBM)
        )
        gap, error = (trees - other).mean(), (trees - other).std() / len(target) ** 0.5
        notes.append(
            f"{outcome}s: log-loss of {TREES} less that of LightGBM {gap:.4f} ± {error:.4f} (one standard "
            f"error over {len(target):,} rows), noise floor of ECE {floor:.4f}"
        )
    head = ["AUC", "log-loss", "ECE", "CPU s"]
    columns = ["", *(f"{outcome}s: {name}" for outcome in OUTCOMES for name in head)]
    return "\n".join([markdown(columns, list(lines.values())), "", "; ".join(notes)])


def choose(rows: int) -> str:
    """Return validation log-losses of trees, by leaves and learning rate, in the worlds of no table."""
    settings = list(product(LEAVES, RATES))
    losses = np.zeros((2, len(settings), len(CHOSEN_ON) * len(OUTCOMES)))
    for place, seed in enumerate(CHOSEN_ON):
        for number, (train, held_out, _) in enumerate(parts_of(rows, seed, 0.0).values()):
            for k, (leaves, rate) in enumerate(settings):
                fits = ours(us.Trees(leaves=leaves, learning_rate=rate)), light_gbm(leaves, rate)
                for kind, fit in enumerate(fits):
                    p = fit(train, held_out, held_out.rows)
                    losses[kind, k, 2 * place + number] = log_loss(held_out.target, p)
    columns = ["", "leaves", "rate", *(f"{seed}, {name}" for seed in CHOSEN_ON for name in OUTCOMES), "mean"]
    return markdown(
        columns,
        [
            [name, str(leaves), str(rate), *(f"{loss:.4f}" for loss in line), f"{line.mean():.5f}"]
            for name, table in zip(("`Trees`", "LightGBM"), losses, strict=True)
            for (leaves, rate), line in zip(settings, table, strict=True)
        ],
    )


def ours(learner: TableLearner) -> Fit:
    """Return the fit of one of our learners."""
    return lambda train, held_out, rows: learner.fit(train, validation=held_out).predict(rows)


def one_hot(train: Examples, held_out: Examples, rows: EncodedTable) -> Floats:
    """Fit scikit-learn's logistic regression (C = 1) on one-hot codes and standardised numbers."""
    scaler = StandardScaler().fit(train.rows.numbers)

    def inputs(rows: EncodedTable) -> csr_matrix:
        blocks = [csr_matrix(scaler.transform(rows.numbers))]
        for coded in rows.coded:
            encoder = OneHotEncoder(categories=[range(coded.field.size)], handle_unknown="ignore")
            encoder.fit([[0]])
            # A bag has several codes a row, and -1 where it has no more.
            blocks.append(sum(encoder.transform(column[:, None]) for column in coded.codes.T))
        return hstack(blocks).tocsr()

    model = LogisticRegression(max_iter=1000).fit(inputs(train.rows), train.target)
    return np.asarray(model.predict_proba(inputs(rows))[:, 1])


def light_gbm(leaves: int = 15, rate: float = 0.1) -> Fit:
    """Return the fit of LightGBM on scikit-learn's cross-fitted target encodings and the numbers.

    The defaults are what ``--choose`` preferred.
    """
    try:
        import lightgbm
    except ImportError:
        raise SystemExit(
            "benchmarks.learners: LightGBM is not installed. Install it: pip install lightgbm"
        ) from None

    def fit(train: Examples, held_out: Examples, rows: EncodedTable) -> Floats:
        encoder = TargetEncoder(random_state=0)
        encoded = np.hstack([encoder.fit_transform(train.rows.codes, train.target), train.rows.numbers])

        def inputs(rows: EncodedTable) -> Floats:
            return np.hstack([encoder.transform(rows.codes), rows.numbers])

        model = lightgbm.LGBMClassifier(
            n_jobs=1, verbose=-1, n_estimators=1000, num_leaves=leaves, learning_rate=rate
        )
        stop = lightgbm.early_stopping(20, verbose=False)
        held = [(inputs(held_out.rows), held_out.target)]
        model.fit(encoded, train.target, eval_set=held, callbacks=[stop])
        return np.asarray(model.predict_proba(inputs(rows)))[:, 1]

    return fit


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=21)
    parser.add_argument("--confounding", type=float, default=0.0)
    parser.add_argument("--choose", action="store_true", help="leaves and rates of trees, on validation")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.choose:
        print(choose(options.rows))
    else:
        print(compare(options.rows, options.seed, options.confounding))


if __name__ == "__main__":
    main()
