"""``unskew weights``: calibrated, clipped, cross-fitted propensities and weights back into Parquet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from unskew.base.errors import ParameterError
from unskew.base.settings import Settings, option
from unskew.cli.audit import ENGINE
from unskew.cli.options import OUTPUT, Clip, Device, JsonFile, LogJson, Overwrite, Rows, Seed, write_figures
from unskew.cli.verb import refuse
from unskew.run.config import Names

if TYPE_CHECKING:
    from unskew.audit import WeightsResult
    from unskew.base.progress import Progress

TO_TRAIN = ("user", "item", "propensity", "features", "ignore", "allow_leak", "device")
"""Options of a propensity that is trained."""

OF_SQL = ("source", "table", "fold_by", "boolean_outcome")
OF_QUERY = {*OF_SQL, "score", "outcome", "calibrator", "p_min", "weight_all"}
"""Options of a query."""

SCORED, TRAINED = "With a score", "Without a score"


class WeightsOptions(Settings):
    """The options of ``unskew weights``."""

    files: Rows = ()
    out: str | None = option(None, flag="--out -o", group=OUTPUT)
    """The Parquet file, or the folder (NAME/), to write."""
    score: str | None = option(None, group=SCORED)
    """The column of the propensity; without it one is trained."""
    outcome: str | None = option(None, group=SCORED)
    """The column of clicks, 0 or 1; without --score it may be left out."""
    sample_weight: str | None = option(None, shown=False, group=SCORED)
    """The column of sample weights: how many rows each row stands for."""
    segment: tuple[str, ...] = option((), group=SCORED)
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
    """The calibrator; auto chooses one, multicalibrated reads --segment."""
    folds: int = option(5, shown=False)
    """Each row is calibrated without the rows of its fold."""
    p_min: Clip = option("auto", shown=False)
    """The clip, to which lower propensities are raised: auto or a number."""
    weight_all: bool = option(False, shown=False)
    """Give rows without a click 1/p too; their weight is 0 otherwise."""
    overwrite: Overwrite = False
    json_file: JsonFile = None
    seed: Seed = 0
    device: Device = "auto"
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
    log_json: LogJson = None


def weights(options: WeightsOptions) -> None:
    """Add propensity_calibrated, weight, fold and clipped to every row; other columns stay as they are."""
    if options.sql is not None:
        print(_query(options))
        return
    refuse(options, OF_SQL, "without --sql")
    if not options.files or options.out is None:
        raise ParameterError("FILE... or --out is missing", remedy="give FILE... and --out, or --sql ENGINE")
    if options.score is not None:
        refuse(options, TO_TRAIN, "with --score, which brings a propensity: none is trained")
        if options.outcome is None:
            raise ParameterError("--score needs --outcome", remedy="name the column of clicks")
    elif options.user is None or options.item is None:
        raise ParameterError(
            "there is no propensity", remedy="give --score COLUMN, or --user and --item to train one"
        )
    else:
        refuse(options, ("sample_weight", "segment"), "without --score")
    from unskew.cli.places import check_outputs, rows_outputs, table_files

    file, folder = rows_outputs(options.out)
    outputs: dict[str, Path | None] = {**file, "--json": options.json_file, "--log-json": options.log_json}
    check_outputs(outputs, folders=folder, read=table_files(options.files))

    from unskew.base.progress import progress_bars

    with progress_bars(log_json=options.log_json) as progress:
        result = _written(options, options.out, progress)
    write_figures(options.json_file, result.to_dict())
    from unskew.cli.audit_tables import print_weights

    print_weights(result, options.out)


def _query(options: WeightsOptions) -> str:
    """Return the query that adds weights to a table."""
    from unskew.audit import weights_query

    refuse(options, sorted(options.model_fields_set - OF_QUERY - {"sql"}), "with --sql, which prints a query")
    for name in ("source", "table", "score", "outcome"):
        if getattr(options, name) is None:
            raise ParameterError(
                f"--{'from' if name == 'source' else name} is missing",
                remedy="give --from, --table, --score and --outcome",
            )
    return weights_query(**options.model_dump(include=OF_QUERY), dialect=options.sql)  # type: ignore[arg-type]


def _written(options: WeightsOptions, out: str, progress: Progress) -> WeightsResult:
    """Calibrate the scores of the files, or train a propensity on them; write the weights."""
    files = list(options.files)
    both = {"outcome", "calibrator", "folds", "p_min", "weight_all", "seed", "overwrite"}
    asked: dict[str, Any] = options.model_dump(include=both)
    if options.score is not None:
        from unskew.audit import write_weights

        asked |= {"sample_weight": options.sample_weight, "segments": options.segment}
        return write_weights(files, out, score=options.score, **asked, progress=progress)
    from unskew.audit.weights_trained import train_weights

    if options.features != ("auto",):
        refuse(options, ("ignore",), "without --features auto")
    to_train = {"user", "item", "propensity", "features", "ignore", "allow_leak", "device"}
    asked |= options.model_dump(include=to_train)
    asked["features"] = "auto" if options.features == ("auto",) else options.features
    return train_weights(files, out, **asked, progress=progress)
