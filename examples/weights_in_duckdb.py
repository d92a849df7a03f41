"""Weights where the rows are: DuckDB counts old rows, and a calibrator becomes a query for new ones."""

import sys

import duckdb

import unskew as us

yesterday, today, out = sys.argv[1:]  # Parquet files with the columns p and clicked, and a file to write
database = duckdb.connect()

# Some thousand cells come back, whatever the number of rows. No row of today takes part in the fit.
sketch = us.sketch_of(database.read_parquet(yesterday), score="p", outcome="clicked")
calibrator = us.Platt().fit(sketch)

p = calibrator.to_sql("p", dialect="duckdb")
clip = 0.01  # a weight is at most 100
database.execute(f"""
    COPY (
        SELECT *, {p} AS propensity, CASE WHEN clicked = 1 THEN 1 / greatest({p}, {clip}) ELSE 0 END AS weight
        FROM read_parquet('{today}')
    ) TO '{out}' (FORMAT parquet)
""")
weighed = database.sql(f"SELECT sum(weight) / count(*) FROM read_parquet('{out}')").fetchall()[0][0]
print(f"The weights of clicks add up to {weighed:.2f} of the rows: 1 where propensities are honest.")
