"""Command lines: every verb with options that are odd, missing, doubled or not there."""

from __future__ import annotations

import shutil
from collections.abc import Sequence

from fuzz.odd import NUMBERS, PLACES, WORDS
from fuzz.trial import Trial

BASES: dict[str, list[str]] = {
    "audit": ["audit", "log.csv", "--score", "p", "--outcome", "o", "--no-report"],
    "weights": ["weights", "log.csv", "--score", "p", "--outcome", "o", "-o", "out.parquet"],
    "score": ["score", "run", "pairs.csv", "-o", "out.parquet", "--device", "cpu"],
    "export": ["export", "run", "-o", "out.onnx"],
    "compare": ["compare", "run", "--resamples", "50", "--device", "cpu"],
    "methods": ["methods"],
}
"""Whole command lines, quick ones, that work."""

TRAINING: dict[str, list[str]] = {
    "run": ["run", "--data", "missing.csv"],
    "study": ["study", "missing.toml"],
    "reproduce": ["reproduce", "table-none"],
}
"""Verbs that train for longer than a case may take: their lines have one fault already, which must be told
whatever else is odd."""

OPTIONS: dict[str, dict[str, Sequence[str]]] = {
    "audit": {
        **dict.fromkeys(("--score", "--outcome", "--weight", "--segments"), WORDS),
        **dict.fromkeys(("--tolerance", "--significance", "--p-min", "--seed"), NUMBERS),
        "--json": PLACES,
    },
    "weights": {
        **dict.fromkeys(
            ("--score", "--outcome", "--sample-weight", "--calibrator", "--user", "--device"), WORDS
        ),
        **dict.fromkeys(("--folds", "--p-min", "--seed"), NUMBERS),
        **dict.fromkeys(("--out", "--json"), PLACES),
    },
    "score": {
        **dict.fromkeys(("--user", "--item", "--method", "--unseen", "--device"), WORDS),
        "--out": PLACES,
    },
    "export": {**dict.fromkeys(("--what", "--method"), WORDS), **dict.fromkeys(("--out", "--json"), PLACES)},
    "compare": {
        **dict.fromkeys(("--model", "--metric", "--estimator", "--baseline", "--device"), WORDS),
        **dict.fromkeys(("--slate", "--resamples", "--level", "--seed"), NUMBERS),
        **dict.fromkeys(("--json", "--markdown"), PLACES),
    },
    "methods": {},
    "run": {
        **dict.fromkeys(("--option", "--user", "--click", "--space", "--duplicates", "--learner"), WORDS),
        **dict.fromkeys(("--calibrator", "--uncertainty", "--method", "--protocol", "--device"), WORDS),
        **dict.fromkeys(("--seeds", "--seed", "--crossfit", "--p-min"), NUMBERS),
        **dict.fromkeys(("--test", "--root", "--json"), PLACES),
    },
    "study": {
        **dict.fromkeys(("--protocol", "--device", "--data"), WORDS),
        "--seeds": NUMBERS,
        **dict.fromkeys(("--root", "--json"), PLACES),
    },
    "reproduce": {
        **dict.fromkeys(("--protocol", "--device", "--data", "--reverse"), WORDS),
        **dict.fromkeys(("--seeds", "--seed"), NUMBERS),
        **dict.fromkeys(("--root", "--json"), PLACES),
    },
}

MAY_WRITE = ("out", "out.parquet", "out.onnx", "out.json", "OUT.PARQUET", "out.csv", "ü.parquet", "audits")
"""Places of :data:`fuzz.odd.PLACES` that an output may take."""


def options(trial: Trial) -> None:
    """A command line with one to three faults."""
    for name in ("log.csv", "pairs.csv"):
        shutil.copy(trial.assets / name, trial.folder / name)
    shutil.copytree(trial.assets / "run", trial.folder / "run")
    verb = trial.pick([*BASES, *BASES, *TRAINING])
    arguments = list(BASES.get(verb) or TRAINING[verb])
    for _ in range(int(trial.rng.integers(1, 4))):
        arguments = _changed(trial, verb, arguments)
    if verb == "run":
        # Without it, or with the name of a dataset, it would train: a right command, and a long one.
        arguments.append("--data=missing.csv")
    named = [*arguments, *(each.partition("=")[2] for each in arguments)]
    # Names as they are on disk may be anything that was asked for.
    outputs = [
        *MAY_WRITE,
        *(each for each in named if _can_be(each) and each not in READ.get(verb, ())),
    ]
    trial.cli(
        arguments, outputs=outputs, codes=(2,) if verb in TRAINING and "--help" not in arguments else None
    )


READ = {
    "audit": ("log.csv",),
    "weights": ("log.csv",),
    "score": ("pairs.csv", "run", "run/config.toml"),
    **dict.fromkeys(("export", "compare"), ("run", "run/config.toml")),
}
"""What a verb reads, and may not change; a file that it does not read may be told to be replaced."""


def _can_be(name: str) -> bool:
    """Whether a name can be that of a file in the folder of the case."""
    return bool(name) and "\0" not in name and name not in (".", "..")


def _changed(trial: Trial, verb: str, arguments: list[str]) -> list[str]:
    kind = trial.pick(["value"] * 6 + ["drop", "twice", "unknown", "extra", "swap", "none"])
    table = OPTIONS[verb]
    if kind == "value" and table:
        option = trial.pick(list(table))
        if verb in TRAINING and option == "--help":
            return arguments
        return [*arguments, f"{option}={trial.pick(table[option])}"]
    if kind == "drop" and len(arguments) > 1:
        place = int(trial.rng.integers(1, len(arguments)))
        return arguments[:place] + arguments[place + 1 :]
    if kind == "twice":
        return arguments + arguments[1:]
    if kind == "unknown":
        return [*arguments, trial.pick(["--zzz", "--no-report=1", "-x", "--overwrite", "--json", "--"])]
    if kind == "extra":
        return [*arguments, trial.pick(PLACES)]
    if kind == "swap" and len(arguments) > 2:
        one, other = trial.rng.integers(1, len(arguments), 2)
        arguments[one], arguments[other] = arguments[other], arguments[one]
    return arguments
