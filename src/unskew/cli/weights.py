"""``unskew weights``: calibrated, clipped, cross-fitted propensities and weights back into Parquet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar

from unskew.base.errors import ParameterError
from unskew.base.progress import Progress, progress_bars
from unskew.base.settings import Settings, option
from unskew.cli import options as shared
from unskew.cli.audit import ENGINE
from unskew.cli.console import Shown, show
from unskew.cli.verb import refuse
from unskew.run.config import Names

if TYPE_CHECKING:
    from unskew.audit import WeightsResult

TO_TRAIN = ("user", "item", "propensity", "features", "ignore", "allow_leak", "device")
"""Options of a propensity that is trained."""

OF_QUERY = {
    "source", "table", "fold_by", "boolean_outcome", "score", "outcome", "calibrator", "p_min", "weight_all",
}  # fmt: skip
"""Options of a query."""

SCORED, TRAINED = "With a score", "Without a score"


class WeightsOptions(Settings):
    """The options of ``unskew weights``."""

    effects: ClassVar[Mapping[str, str]] = {
        "without sql": "source table fold_by boolean_outcome",
        "with sql": (
            "files out sample_weight segments user item propensity features ignore allow_leak folds overwrite"
            " json_file seed device log_json"
        ),
        "with score": "user item propensity features ignore allow_leak device",
        "without score": "sample_weight segments",
        "without features": "ignore",
    }

    files: shared.Rows = ()
    out: str | None = option(None, flag="--out -o", group=shared.OUTPUT, writes="rows")
    """The Parquet file, or the folder (NAME/), to write."""
    score: str | None = option(None, group=SCORED)
    """The column of the propensity; without it one is trained."""
    outcome: str | None = option(None, group=SCORED)
    """The column of clicks, 0 or 1; without --score it may be left out."""
    sample_weight: str | None = option(None, shown=False, group=SCORED)
    """The column of sample weights: how many rows each row stands for."""
    segments: tuple[str, ...] = option((), group=SCORED)
    """With --calibrator multicalibrated: a column that it reads; may be repeated."""
    user: str | None = option(None, group=TRAINED)
    """The column of user ids."""
    item: str | None = option(None, group=TRAINED)
    """The column of item ids."""
    propensity: str = option("auto", group=TRAINED)
    """auto (the best of linear, popularity, a network and, with features, trees and their blend on held-out
    clicks), linear, trees, blend, popularity, or a network such as neumf."""
    features: Names | None = option(None, group=TRAINED)
    """Columns that the propensity reads beside the ids, parted by commas, or auto: all others, by their
    types."""
    ignore: Names = option((), shown=False, group=TRAINED)
    """With --features auto: columns to leave out."""
    allow_leak: tuple[str, ...] = option((), shown=False, group=TRAINED)
    """A feature that may give the click away, because it is known before; may be repeated."""
    calibrator: str = option("auto")
    """The calibrator; auto chooses one, multicalibrated reads --segments."""
    folds: int = option(5, shown=False)
    """Each row is calibrated without the rows of its fold."""
    p_min: shared.Clip = option("auto", shown=False)
    """The clip, to which lower propensities are raised: auto or a number."""
    weight_all: bool = option(False, shown=False)
    """Give rows without a click 1/p too; their weight is 0 otherwise."""
    overwrite: shared.Overwrite = False
    json_file: shared.JsonFile = None
    seed: shared.Seed = 0
    device: shared.Device = "auto"
    sql: str | None = option(None, metavar="ENGINE", group=ENGINE)
    """Print the query that adds weights by --from to --table where it lies: duckdb, spark, bigquery,
    snowflake or postgres."""
    source: str | None = option(None, flag="--from", metavar="CELLS|RUN", shown=False, group=ENGINE)
    """With --sql, what calibrates: cells of unskew audit --sql --fold-by, the folder of a run, or a saved
    calibrator."""
    table: str | None = option(None, shown=False, group=ENGINE)
    """With --sql, the table; for DuckDB files and globs too."""
    fold_by: str | None = option(None, shown=False, group=ENGINE)
    """With --sql, the column of ids by which cells were counted: no id has a say in its own weight."""
    boolean_outcome: bool = option(False, shown=False, group=ENGINE)
    """With --sql, the outcome is true and false."""
    log_json: shared.LogJson = None


def weights(options: WeightsOptions) -> None:
    """Add propensity_calibrated, weight, fold and clipped to every row; other columns stay as they are."""
    if options.sql is not None:
        print(_query(options))
        return
    if not options.files or options.out is None:
        raise ParameterError("FILE... or --out is missing", remedy="give FILE... and --out, or --sql ENGINE")
    if options.score is not None:
        if options.outcome is None:
            raise ParameterError("--score needs --outcome", remedy="name the column of clicks")
    elif options.user is None or options.item is None:
        raise ParameterError(
            "there is no propensity", remedy="give --score COLUMN, or --user and --item to train one"
        )
    shared.check_outputs(options, read=shared.table_files(options.files))
    with progress_bars(log_json=options.log_json) as progress:
        result = _written(options, options.out, progress)
    shared.write_figures(options.json_file, result.to_dict())
    show(*_shown(result, options.out))


def _shown(result: WeightsResult, out: str) -> Iterator[Shown]:
    """Yield what the weights are, before and after; where the clip decides, that before anything else."""
    from rich.text import Text

    from unskew.report.audit_tables import weights_table

    if result.clip_decides:
        yield Text.assemble(("✗", "bold red"), " ", result.verdict)
    yield weights_table(result)
    yield from (f"{result.calibrators[0].name}: {message}" for message in result.messages)
    if result.trained is not None:
        yield f"{result.trained[0].upper()}{result.trained[1:]}."
    names = ", ".join(dict.fromkeys(result.chosen))
    yield f"{result.rows:,} rows in {result.folds} folds, calibrated by {names}: {out}"


def _query(options: WeightsOptions) -> str:
    """Return the query that adds weights to a table."""
    from unskew.audit import weights_query

    needed = {"--from": options.source, "--table": options.table}
    needed |= {"--score": options.score, "--outcome": options.outcome}
    for flag, value in needed.items():
        if value is None:
            raise ParameterError(f"{flag} is missing", remedy=f"give {', '.join(needed)}")
    return weights_query(**options.model_dump(include=OF_QUERY), dialect=options.sql)  # type: ignore[arg-type]


def _written(options: WeightsOptions, out: str, progress: Progress) -> WeightsResult:
    """Calibrate the scores of the files, or train a propensity on them; write the weights."""
    from unskew.audit import Trained, write_weights
    from unskew.data.stream import Roles

    asked = options.model_dump(include={"calibrator", "folds", "p_min", "weight_all", "seed", "overwrite"})
    if options.score is not None:
        segments = tuple(dict.fromkeys(options.segments))
        columns: Roles | Trained = Roles(options.score, str(options.outcome), options.sample_weight, segments)
    else:
        if options.features != ("auto",):
            refuse(options, ("ignore",), "without --features auto")
        to_train = options.model_dump(include={*TO_TRAIN, "outcome"})
        to_train["features"] = "auto" if options.features == ("auto",) else options.features
        columns = Trained(**to_train)
    return write_weights(list(options.files), out, columns, **asked, progress=progress)
