"""Methods, and ``auto``, as ensembles on worlds of known truth: ``python -m benchmarks.battery --out DIR``

The candidates of ``auto``, newer methods and IPS with multicalibrated propensities are trained in every
world of :mod:`benchmarks.battery_worlds`, and another regularisation of naive and of the methods that the
sample puts first. ``auto`` chooses with 5 % of the random pairs, and without; all are judged on the others.
A finished training is kept in DIR as its predictions, and found again.

``--small --epochs 3`` is a first look. ``--root DATA/coat`` adds the real Coat log. ``--write PAGE`` puts the
tables between the page's marks, and the picture into ``figures/`` beside it.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.battery_page import battery_svg, page
from benchmarks.battery_worlds import UNBIASED_SHARE, WORLDS, draw
from benchmarks.common import put
from unskew.base.errors import CollapseWarning, TrainingError
from unskew.calibration import Multicalibrated, Platt
from unskew.calibration.recalibration import Judged, recalibration
from unskew.data import Log
from unskew.data.datasets import Dataset, load
from unskew.data.datasets.dataset import with_unbiased_share
from unskew.debias.evaluation import evaluate
from unskew.learners import Linear, make_learner
from unskew.offpolicy.auto import CANDIDATES, Candidate, candidates_of, evidence_by_clicks
from unskew.offpolicy.decision import BASELINE, Decision, RandomSample, decide, mean_paired
from unskew.propensity import Propensity
from unskew.run.sizes import batch_size
from unskew.training.fitted import combined

Floats = NDArray[np.float64]
Trained = Mapping[str, NDArray[Any]]
"""Predictions of a training: ``test``, ``single``, ``sample``, ``log``; ``held_out`` rows; seconds, rates."""

REAL = "coat (real)"
NEWER = ("uips", "acdr", "dce-dr")
SINGLE, MULTICALIBRATED = "naive, one network", "ips, multicalibrated"
AUTO, AUTO_ALONE = "auto", "auto, no sample"
CRITERION = "auc"
METRICS = ("auc", "dcg@6", "nll", "mean_over_rate")
WIDTH = 16
"""Of embeddings, at most: with some 20 clicks a user there is nothing to learn in more numbers."""
PATIENCE = 5
OTHERS_TRIED = 3
"""Methods that the sample puts first and that are tried with another regularisation too, beside naive."""


@dataclass(frozen=True, eq=False)
class Fixed:
    """Predictions of a test log's rows as a model."""

    predictions: Floats
    predicts_rates: bool = True

    def predict_each(self, log: Log) -> Floats:
        """``[seeds, n]``."""
        assert len(log) == self.predictions.shape[1]
        return self.predictions


@dataclass
class WorldRun:
    """One world: its data, its trainings, what auto chooses there."""

    data: Dataset
    folder: Path
    methods: Sequence[str] | None
    shared: Mapping[str, Any]
    """Parameters of every method."""
    seeds: int
    device: str
    kept: dict[str, Trained] = field(default_factory=dict)
    fitted: Propensity | None = None

    def record(self) -> dict[str, Any]:
        """Train what is missing, decide, judge: plain values."""
        names = self.train()
        test = {name: of["test"].astype(np.float64) for name, of in self.kept.items()}
        decisions = self.decisions(names)
        for name, of_seeds in decisions.items():
            test[name] = shipped(of_seeds, test)
        test[AUTO] = self.at_level(decisions[AUTO], test[AUTO])
        test[SINGLE] = self.kept[BASELINE]["single"].astype(np.float64)
        log = clicked_of(self.data.test)
        judged = RandomSample(log.user, outcome_of(log), test)
        paired = {name: mean_paired(judged, name, BASELINE, CRITERION) for name in test}
        most = max(paired[name].advantage for name in self.kept)
        methods = {}
        for name in (SINGLE, *self.kept, *decisions):
            of = self.kept.get(name)
            found = evaluate(Fixed(test[name], of is None or bool(of["rates"])), log, ks=(2, 6))
            methods[name] = {
                "metrics": {metric: float(np.mean(found[metric])) for metric in METRICS if metric in found},
                "advantage": paired[name].advantage,
                "standard_error": paired[name].standard_error,
                "regret": most - paired[name].advantage,
                "seconds": None if of is None else float(of["seconds"]),
            }
        return {
            "clicks": self.data.train.n_clicks,
            "density": self.data.train.density,
            "sample": len(self.data.unbiased or ()),
            "test": 0 if self.data.test is None else len(self.data.test),
            "candidates": list(names),
            "methods": methods,
            "decisions": {name: [each.to_dict() for each in of] for name, of in decisions.items()},
        }

    def train(self) -> tuple[str, ...]:
        """Train what is missing; the names of those that auto chooses among."""
        log = self.data.train
        wanted = (*CANDIDATES, *NEWER) if self.methods is None else tuple(self.methods)
        candidates = candidates_of(log, wanted)
        usual = [each for each in candidates if not each.params]
        if self.methods is None and (log.features is not None or log.user_features is not None):
            usual.append(Candidate(MULTICALIBRATED, "ips", {}))
        for each in usual:
            self.keep(each)
        named = {BASELINE, *(CANDIDATES if self.methods is None else self.methods)}
        tried = [each.name for each in usual if each.name in named and each.name in self.kept]
        first = {BASELINE, *self.first_on_sample(tried)}
        for each in candidates:
            if each.params and each.method in first:
                # Under a name that is the same in every world.
                other = replace(each, name=f"{each.method}, other λ")
                tried += [other.name] if self.keep(other) else []
        return tuple(tried)

    def keep(self, candidate: Candidate) -> bool:
        """Whether there is a candidate's result, trained where it is missing; one that diverged is empty."""
        file = self.folder / f"{candidate.name}.npz"
        if not file.exists():
            trained = self.trained(candidate)
            beside = file.with_suffix(".part.npz")
            np.savez(beside, **trained)
            beside.replace(file)
        with np.load(file) as saved:
            found = dict(saved)
        if found:
            self.kept[candidate.name] = found
        return bool(found)

    def trained(self, candidate: Candidate) -> dict[str, Any]:
        """Train a candidate."""
        data, shared = self.data, {**self.shared, "batch_size": batch_size(self.data.train.n_clicks)}
        method = candidate.make(**shared)
        propensity = self.propensity() if method.needs_propensity else None
        if propensity is not None and candidate.name == MULTICALIBRATED:
            propensity = propensity.reread(calibrator=Multicalibrated())
        print(f"{data.name}: {candidate.name}", flush=True)
        start = time.perf_counter()
        try:
            model = method.fit(data.train, propensity=propensity, seeds=self.seeds, device=self.device)
        except TrainingError:
            if candidate.name == BASELINE:
                raise
            return {}
        seconds, test = time.perf_counter() - start, clicked_of(data.test)
        predictions = {
            "test": model.predict_each(test),
            "single": model.predict_members_each(test)[:, 0],
            "sample": model.predict_each(clicked_of(data.unbiased)),
            "log": model.predict_lines_each(data.train),
        }
        return {
            **{name: values.astype(np.float32) for name, values in predictions.items()},
            "held_out": model.validation_rows(data.train),
            "seconds": seconds,
            "rates": model.predicts_rates,
        }

    def propensity(self) -> Propensity:
        """Fitted once for all candidates and repetitions, which would differ in folds alone."""
        if self.fitted is None:
            self.fitted = Propensity(learner=Linear(), calibrator=Platt(), crossfit=5)
            self.fitted.fit(self.data.train, seeds=1, device=self.device)
        return self.fitted

    def first_on_sample(self, names: Sequence[str]) -> list[str]:
        """The candidates that are furthest ahead on the sample."""
        sample = self.sample(names, slice(None))
        ahead = {name: mean_paired(sample, name, BASELINE, CRITERION).advantage for name in names}
        return sorted(set(names) - {BASELINE}, key=lambda name: -ahead[name])[:OTHERS_TRIED]

    def sample(self, names: Sequence[str], seeds: slice) -> RandomSample:
        """The random sample, with predictions of some repetitions."""
        log = clicked_of(self.data.unbiased)
        lines = {name: self.kept[name]["sample"][seeds].astype(np.float64) for name in names}
        return RandomSample(log.user, outcome_of(log), lines)

    def decisions(self, names: Sequence[str]) -> dict[str, list[Decision]]:
        """What auto ships in each repetition, with and without the sample."""
        log, p = self.data.train, self.propensity().predict_each(self.data.train)[0]
        count = len(self.kept[BASELINE]["held_out"]) // self.seeds
        made: dict[str, list[Decision]] = {AUTO: [], AUTO_ALONE: []}
        for seed in range(self.seeds):
            lines = slice(seed * count, (seed + 1) * count)
            scores = {name: self.kept[name]["log"][lines].astype(np.float64) for name in names}
            held_out = self.kept[BASELINE]["held_out"][lines]
            evidence = evidence_by_clicks(scores, log, p, CRITERION, held_out=held_out)
            of: dict[str, Any] = {"candidates": tuple(names), "criterion": CRITERION}
            made[AUTO].append(decide(self.sample(names, slice(seed, seed + 1)), evidence, **of))
            made[AUTO_ALONE].append(decide(None, evidence, **of))
        return made

    def at_level(self, decisions: Sequence[Decision], lines: Floats) -> Floats:
        """What auto ships with its level set by the sample, as :class:`unskew.Auto` does; the order stays."""
        outcome = np.tile(outcome_of(clicked_of(self.data.unbiased)), (len(lines), 1))
        predicted = shipped(
            decisions, {name: of["sample"].astype(np.float64) for name, of in self.kept.items()}
        )
        rows = Judged(predicted, outcome, np.ones_like(outcome))
        return recalibration(rows, "auto", "clicks of a random sample").predict(lines)


def clicked_of(log: Log | None) -> Log:
    """The rows with a known conversion."""
    assert log is not None
    return log.take(log.clicked)


def outcome_of(log: Log) -> Floats:
    """Conversions as numbers."""
    return log.known_conversion().astype(np.float64)


def shipped(decisions: Sequence[Decision], lines: Mapping[str, Floats]) -> Floats:
    """What is shipped in each repetition: the chosen one, or the mean logit of several."""
    return np.stack(
        [
            combined(np.stack([lines[name][seed] for name in each.shipped])[None])[0]
            for seed, each in enumerate(decisions)
        ]
    )


def narrow(name: str) -> Any:
    """A learner with embeddings of the battery's width, at most."""
    usual = make_learner(name)
    dim = getattr(usual, "dim", None)
    return make_learner(name, dim=min(dim, WIDTH)) if isinstance(dim, int) else usual


def run(out: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Every world, or go on with it; ``battery.json``, ``battery.md`` and ``battery.svg`` in the folder."""
    of = ("small", "seeds", "members", "learner", "epochs", "method", "root")
    settings = {name: getattr(options, name) for name in of}
    out.mkdir(parents=True, exist_ok=True)
    noted = out / "settings.json"
    if noted.exists() and json.loads(noted.read_text()) != settings:
        raise SystemExit(f"{out} holds a battery with other settings. Choose another --out.")
    noted.write_text(json.dumps(settings))
    shared = {"learner": narrow(options.learner), "members": options.members, "patience": PATIENCE}
    shared |= {} if options.epochs is None else {"epochs": options.epochs}
    worlds = {}
    for world in (*(options.world or WORLDS), *([REAL] if options.root else [])):
        if world == REAL:
            data = with_unbiased_share(load("coat", options.root), UNBIASED_SHARE)
        else:
            data = draw(world, small=options.small)
        folder = out / world
        folder.mkdir(exist_ok=True)
        worlds[world] = WorldRun(
            replace(data, truth=None), folder, options.method, shared, options.seeds, options.device
        ).record()
    result = {"settings": settings, "criterion": CRITERION, "worlds": worlds}
    (out / "battery.json").write_text(json.dumps(result, indent=1) + "\n")
    (out / "battery.md").write_text(page(result) + "\n", encoding="utf-8")
    (out / "battery.svg").write_text(battery_svg(result), encoding="utf-8")
    return result


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=Path("studies/battery"))
    parser.add_argument("--world", action="append", choices=tuple(WORLDS), help="may be repeated [all]")
    parser.add_argument("--method", action="append", help="may be repeated [those of auto, newer ones]")
    parser.add_argument("--small", action="store_true", help="small worlds")
    parser.add_argument("--seeds", type=int, default=1, help="repetitions")
    parser.add_argument("--members", type=int, default=3, help="networks of an ensemble")
    parser.add_argument("--learner", default="neumf")
    parser.add_argument("--epochs", type=int, default=None, help="at most [the methods' own]")
    parser.add_argument("--root", default=None, help="the folder of Coat's files: one more world")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--write", type=Path, default=None, help="a page with marks for the tables")
    return parser.parse_args(arguments)


def main() -> None:
    options = parsed()
    # What learned nothing shows in its numbers.
    warnings.simplefilter("ignore", CollapseWarning)
    result = run(options.out, options)
    print(page(result))
    if options.write:
        put(options.write, "battery", page(result, picture="figures/battery.svg"))
        (options.write.parent / "figures" / "battery.svg").write_text(battery_svg(result), encoding="utf-8")


if __name__ == "__main__":
    main()
