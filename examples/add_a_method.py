"""A debiasing method of your own is one class with its loss; the rest works as for built-in methods.

On the command line too: ``unskew --with examples/add_a_method.py study methods`` makes a table of it beside
every other method.
"""

from dataclasses import dataclass
from typing import ClassVar

import unskew as us
from unskew.training import cross_entropy


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
    config = us.RunConfig(method="damped-ips", backbone="mf", seeds=2, crossfit=2, propensity_epochs=5)
    run = us.run_job(config)
    print({name: metrics["auc"]["mean"] for name, metrics in run.metrics["methods"].items()})
