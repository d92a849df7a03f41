"""How long propensities take to train and to read off, as ratios to the raw ones."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from unskew.report.table import Table
from unskew.run.protocol import ProtocolName
from unskew.study.presets import SOURCES, timed_sources
from unskew.study.published import published_row

TRAINING, INFERENCE = "training_s", "inference_s"
"""Names of the paper's columns."""


def efficiency_table(table: pa.Table, protocol: ProtocolName, title: str, machine: str) -> Table:
    """Return seconds and ratios to raw from the timings of a long table, beside the paper's ratios."""
    known = table.filter(pc.and_(pc.equal(table["part"], "timing"), pc.equal(table["method"], "")))
    seconds = {
        (row["propensity"], row["calibrator"], row["metric"]): row["value"]
        for row in known.select(["propensity", "calibrator", "metric", "value"]).to_pylist()
    }
    raw = SOURCES["raw"]
    alone = seconds[raw.propensity, "", "train_seconds"]
    rows, first = [], dict[str, float]()
    for key in timed_sources(protocol):
        source = SOURCES[key]
        # What only reads the raw networks off has no training of its own.
        trained = seconds.get((source.propensity, "", "train_seconds"), alone)
        if source.calibrator != "none":
            trained += seconds[source.propensity, source.calibrator, "calibrate_seconds"]
        read = seconds[source.propensity, source.calibrator, "predict_seconds"]
        cells = [source.title]
        for column, value in ((TRAINING, trained), (INFERENCE, read)):
            paper, base = (published_row("efficiency", "coat", "", name, column) for name in (key, raw.key))
            ratio = f"{paper.mean / base.mean:.2f}" if paper and base else "–"
            cells += [f"{value:.3g}", f"{value / first.setdefault(column, value):.2f}", ratio]
        rows.append(tuple(cells))
    ratios = ("÷ raw", "paper's ÷ raw")
    return Table(
        title=title,
        columns=("", "training, s", *ratios, "inference, s", *ratios),
        rows=tuple(rows),
        caption=f"all seeds at once, on {machine}; inference scores the cells on which propensities are"
        " judged; the paper's is of a RTX 3090",
    )
