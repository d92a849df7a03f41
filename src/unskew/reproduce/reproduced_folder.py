"""The folder of a reproduction: tables, figures and what they were made with."""

from __future__ import annotations

import os
import platform
import sys
from datetime import UTC, datetime

import numpy as np

from unskew import __version__
from unskew.io.files import whole_file, write_json
from unskew.reproduce.reproduced import ReproduceConfig, Reproduced
from unskew.study.table import write_tables


def facts_of(config: ReproduceConfig) -> dict[str, str]:
    """Command, date, versions and machine, so that numbers can be traced."""
    import scipy
    import torch

    from unskew.training import resolve_device

    on_gpu = resolve_device(config.device).type == "cuda"
    machine = torch.cuda.get_device_name() if on_gpu else f"a CPU with {os.cpu_count()} cores"
    parts = ["unskew reproduce", *config.presets, f"--protocol {config.protocol} --seeds {config.seeds}"]
    if config.data:
        parts.insert(-1, f"--data {config.data}")
    parts += [f"--reverse {name}" for name in config.reversed]
    return {
        "command": " ".join(parts),
        "date": datetime.now(UTC).date().isoformat(),
        "versions": (
            f"unskew {__version__}, Python {sys.version.split()[0]}, torch {torch.__version__},"
            f" numpy {np.__version__}, scipy {scipy.__version__}"
        ),
        "machine": f"{machine} ({platform.machine()})",
    }


def write_folder(result: Reproduced) -> None:
    """Tables, figures, and the facts and comparisons as JSON."""
    out = result.config.out
    assert result.table is not None
    write_tables(out, result.table)
    for name, text in result.figures.items():
        with whole_file(out / f"{name}.svg") as beside_:
            beside_.write_text(text, encoding="utf-8")
    lines = [f"{name}: {value}" for name, value in result.facts.items()]
    parts = ["\n".join(f"- {line}" for line in [*lines, *result.labels, *result.notes])]
    for name, tables in result.tables.items():
        parts += [f"## {name}"]
        parts += [f"{shown.title}\n\n{shown.markdown()}\n\n{shown.caption}" for shown in tables]
    with whole_file(out / "tables.md") as beside_:
        beside_.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
    write_json(
        out / "reproduction.json",
        {
            "facts": result.facts,
            "dataset": result.dataset,
            "protocol": result.config.protocol,
            "labels": list(result.labels),
            "notes": result.notes,
            "comparisons": {
                name: [
                    {
                        "method": each.method,
                        "source": each.source,
                        "metric": each.metric,
                        "mean": each.ours.mean,
                        "std": each.ours.std,
                        "p_holm": each.ours.p_holm,
                        "users": each.ours.users,
                        "users_difference": each.ours.users_difference,
                        "paper_mean": None if each.paper is None else each.paper.mean,
                        "paper_std": None if each.paper is None else each.paper.std,
                        "deviation": each.deviation,
                    }
                    for each in of
                ]
                for name, of in result.comparisons.items()
            },
            "correlations": [vars(each) for each in result.correlations],
        },
    )
