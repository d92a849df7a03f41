"""Learners without a network against others: ``python -m benchmarks.learners [ROWS] [SEED]``.

Clicks, and conversions given a click, of synthetic impressions; the latest fifth of the log is the test, the
latest tenth of the rest chooses penalties and numbers of trees. Without LightGBM its lines are those of
a constant.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.preprocessing import OneHotEncoder, TargetEncoder

import unskew as us
from unskew.data.splitting import times_of
from unskew.learners.learner import TableLearner
from unskew.learners.table import EncodedTable, Examples, Floats, table_of
from unskew.training.reader import Reader


def main(rows: int = 200_000, seed: int = 21) -> None:
    """Print AUC, log-loss and CPU seconds of each model."""
    log = us.load("impressions", n_rows=rows, n_items=1000, features="auto", seed=seed).train
    order = np.argsort(times_of(log), kind="stable")
    parts = [np.sort(part) for part in np.split(order, [round(0.72 * rows), round(0.8 * rows)])]
    train = log.take(np.sort(np.concatenate(parts[:2])))
    reader = Reader(train.users, train.items, train.encoders, torch.device("cpu"))
    hashes = (np.append(train.users.hashes, 0), np.append(train.items.hashes, 0))
    conversion = np.zeros(rows)
    conversion[log.clicked] = log.known_conversion()
    for outcome in ("click", "conversion"):
        examples = []
        for part in parts:
            some = part if outcome == "click" else part[log.click[part] > 0]
            table = table_of(train.schema, reader.of_log(log.take(some)).rows, hashes)
            target = (log.click if outcome == "click" else conversion)[some].astype(np.float64)
            examples.append(Examples(table, target, np.ones(len(some))))
        for name, fit in models().items():
            start = time.process_time()
            predicted, seconds = fit(*examples), time.process_time() - start
            target = examples[2].target
            auc, loss = roc_auc_score(target, predicted), log_loss(target, predicted)
            print(
                f"{outcome:10} {name:24} AUC {auc:.4f}  log-loss {loss:.4f}  CPU {seconds:5.1f} s", flush=True
            )


def models() -> dict[str, Callable[[Examples, Examples, Examples], Floats]]:
    """Return what fits training examples, with held-out ones, and predicts the test."""

    def ours(learner: TableLearner) -> Callable[[Examples, Examples, Examples], Floats]:
        return lambda train, held_out, test: learner.fit(train, validation=held_out).predict(test.rows)

    found = {"linear": ours(us.Linear()), "trees": ours(us.Trees()), "blend": ours(us.Blend())}
    return {**found, "one-hot logistic": one_hot, "LightGBM, encoded": light_gbm}


def one_hot(train: Examples, held_out: Examples, test: Examples) -> Floats:
    """Fit scikit-learn's logistic regression on one-hot codes."""
    encoder = OneHotEncoder(handle_unknown="ignore").fit(train.rows.codes)
    model = LogisticRegression(max_iter=300).fit(encoder.transform(train.rows.codes), train.target)
    return np.asarray(model.predict_proba(encoder.transform(test.rows.codes))[:, 1])


def light_gbm(train: Examples, held_out: Examples, test: Examples) -> Floats:
    """Fit LightGBM on scikit-learn's target encodings and the numbers."""
    try:
        import lightgbm
    except ImportError:
        return np.full(len(test.target), train.target.mean())
    encoder = TargetEncoder()
    encoded = encoder.fit_transform(train.rows.codes, train.target)

    def inputs(rows: EncodedTable, codes: Any = None) -> Floats:
        return np.hstack([encoder.transform(rows.codes) if codes is None else codes, rows.numbers])

    model = lightgbm.LGBMClassifier(n_jobs=1, verbose=-1, n_estimators=1000, learning_rate=0.05)
    stop = lightgbm.early_stopping(20, verbose=False)
    held = [(inputs(held_out.rows), held_out.target)]
    model.fit(inputs(train.rows, encoded), train.target, eval_set=held, callbacks=[stop])
    return np.asarray(model.predict_proba(inputs(test.rows)))[:, 1]


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(*map(int, sys.argv[1:]))
