"""
A method of your own is one class
=================================

As a table: ``unskew --with examples/add_a_method.py study methods``.
"""

from dataclasses import dataclass
from typing import ClassVar

import matplotlib.pyplot as plt

import unskew as us
from unskew.debias.losses import cross_entropy


@us.register
@dataclass(kw_only=True)
class DampedIPS(us.Debiaser):
    """L = mean_B p^(−1/2)·CE(r, r̂)."""

    name: ClassVar[str] = "damped-ips"
    needs_propensity: ClassVar[bool] = True

    def loss(self, setting, observed, full):
        error = cross_entropy(observed.conversion, setting.logit(observed))
        return (observed.propensity**-0.5 * error).mean(-1)


if __name__ == "__main__":
    training = {"crossfit": 2, "propensity_epochs": 5, "parameters": {"method.learning_rate": 0.05}}
    run = us.Config(method="damped-ips", learner="mf", seeds=3, **training)
    auc = {name: of["auc"]["mean"] for name, of in us.run(run).metrics["methods"].items()}
    print(auc)
    plt.barh(list(auc), list(auc.values()))
    plt.xlim(0.5)
    plt.xlabel("AUC on pairs shown at random")
    plt.tight_layout()
    plt.show()
