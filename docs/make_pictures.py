"""Draw the figures of docs/start/propensity.md and print its numbers: ``python docs/make_pictures.py``.

The world is drawn here, with NumPy alone, so that every probability is known.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from scipy.special import expit, logit

import unskew as us
from unskew.metrics import auc, ece, reliability_curve

mpl.use("svg")
import matplotlib.pyplot as plt

FOLDER = Path(__file__).parent / "start" / "figures"
BLUE, ORANGE, GREY = "#2b6cb0", "#dd6b20", "#718096"
Matrix = NDArray[Any]
USERS, ITEMS = 400, 300
CLIP = 0.002
"""The smallest propensity that may become a weight."""


def save(name: str, xlabel: str, ylabel: str) -> None:
    """Label the axes and write the current figure."""
    plt.xlabel(xlabel)
    plt.ylabel(ylabel)
    plt.legend(frameon=False)
    plt.gca().spines[["top", "right"]].set_visible(False)
    plt.tight_layout()
    plt.savefig(FOLDER / f"{name}.svg", metadata={"Date": None})
    plt.close()


def main() -> None:
    """Draw the world, then one figure after the other."""
    FOLDER.mkdir(exist_ok=True)
    mpl.rcParams.update({"svg.hashsalt": "unskew", "figure.figsize": (5.2, 3.2), "font.size": 10})
    random = np.random.default_rng(7)
    interest = random.normal(size=(USERS, 3)) @ random.normal(size=(3, ITEMS)) / np.sqrt(3)
    fame = random.normal(size=ITEMS)
    likes = expit(1.3 * interest - 1.5)
    propensity = expit(1.4 * interest + 0.8 * fame - 3.5)
    clicked = random.random(propensity.shape) < propensity
    converted = random.random(likes.shape) < likes

    bins = np.linspace(0, 1, 26)
    plt.hist(likes.ravel(), bins, density=True, color=GREY, alpha=0.6, label="all pairs")
    plt.hist(likes[clicked], bins, density=True, histtype="step", color=ORANGE, lw=2, label="clicked pairs")
    save("clicked", "true probability of a conversion", "density")
    print(f"conversion rate: all pairs {likes.mean():.3f}, clicked pairs {likes[clicked].mean():.3f}")

    for decile, colour in ((0.1, ORANGE), (0.9, BLUE)):
        rows = np.quantile(fame, [decile - 0.1, decile + 0.1])
        items = (fame >= rows[0]) & (fame <= rows[1])
        label = f"the {'least' if decile < 0.5 else 'most'} popular fifth of items"
        plt.hist(logit(propensity[:, items]).ravel(), 40, density=True, color=colour, alpha=0.6, label=label)
    plt.xticks(logit([0.001, 0.01, 0.1, 0.5]), ["0.1 %", "1 %", "10 %", "50 %"])
    plt.ylim(0, 0.48)
    save("propensities", "true propensity", "density")

    ordered = propensity[:, np.argsort(fame)]
    low, high = ordered[:, : ITEMS // 5].mean(), ordered[:, -ITEMS // 5 :].mean()
    print(f"mean propensity: least popular fifth {low:.4f}, most popular fifth {high:.4f}")
    judge(propensity, likes, clicked, converted, random)


def judge(propensity: Matrix, likes: Matrix, clicked: Matrix, converted: Matrix, random: Generator) -> None:
    """Estimate propensities, calibrate them, and draw what the weights amount to."""
    score = expit(1.6 * logit(propensity) + 1.2 + 0.3 * random.normal(size=propensity.shape))
    half = random.random(clicked.shape) < 0.5
    calibrator = us.Platt().fit(score[half], clicked[half])
    calibrated = calibrator.predict(score.ravel()).reshape(score.shape)
    for name, p, colour in (("raw", score, ORANGE), ("calibrated", calibrated, BLUE)):
        curve = reliability_curve(score=p[~half], outcome=clicked[~half], spacing="mass", bins=12)
        plt.plot(curve.score, curve.frequency, "o-", color=colour, label=name)
    plt.axline((0.002, 0.002), (0.4, 0.4), color=GREY, lw=1, label="honest")
    plt.loglog()
    ticks = [0.001, 0.01, 0.1]
    plt.xticks(ticks, [f"{tick:.1%}" for tick in ticks])
    plt.yticks(ticks, [f"{tick:.1%}" for tick in ticks])
    save("reliability", "predicted propensity", "share that was clicked")

    constant = np.full_like(score, clicked[half].mean())
    shown = {"naive": None, "raw": score, "constant": constant, "calibrated": calibrated, "true": propensity}
    estimates = []
    for p in shown.values():
        weight = np.ones_like(likes) if p is None else 1 / np.maximum(p, CLIP)
        estimates.append(np.average(converted[clicked], weights=weight[clicked]))
    plt.bar(list(shown), estimates, color=[GREY, ORANGE, GREY, BLUE, BLUE])
    plt.axhline(likes.mean(), color="black", lw=1, ls="--", label="truth")
    save("estimates", "weights 1/propensity", "estimated conversion rate")
    for (name, p), estimate in zip(shown.items(), estimates, strict=True):
        quality = "" if p is None else f", ECE {ece(score=p.ravel(), outcome=clicked.ravel()):.4f}"
        quality += "" if p is None else f", AUC {auc(score=p.ravel(), outcome=clicked.ravel()):.3f}"
        print(f"{name}: estimate {estimate:.3f}{quality}")

    weight = np.sort(1 / np.maximum(calibrated[clicked], CLIP))[::-1]
    share = np.cumsum(weight) / weight.sum()
    plt.plot(np.arange(1, len(weight) + 1) / len(weight), share, color=BLUE, label="calibrated weights")
    plt.plot([0, 1], [0, 1], color=GREY, lw=1, label="equal weights")
    save("weights", "share of the clicks, largest weights first", "share of the total weight")
    tenth = share[len(weight) // 10]
    effective = weight.sum() ** 2 / (weight**2).sum()
    print(
        f"the largest tenth of the weights has {tenth:.0%}; {len(weight):,} clicks count as {effective:,.0f}"
    )


if __name__ == "__main__":
    main()
