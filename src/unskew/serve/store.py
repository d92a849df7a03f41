"""The folder of a service: exported models, and one SQLite file with what waits for outcomes and the cells.

Every change is one transaction in write-ahead mode: what was acknowledged survives ``kill -9``.
"""

from __future__ import annotations

import hashlib
import secrets
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from unskew.base.errors import DataError, ParameterError, RunFolderError
from unskew.base.files import Lock, check_place
from unskew.base.plain_text import listed
from unskew.metrics.cells import RESOLUTION, SUMS, Cells
from unskew.serve.requests import Outcome

DATABASE = "service.sqlite"

MOST_MODELS = 32
"""Models whose cells are kept, the latest."""

MOST_FILES = 3
"""Exported models that are kept: to put an earlier run back takes no time."""

MOST_INVERSE = 1e9
"""The largest weight ÷ score; one outcome beyond would decide every sum by itself."""

TABLES = f"""
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA foreign_keys = ON;
CREATE TABLE IF NOT EXISTS model (name TEXT PRIMARY KEY, kind TEXT, digest TEXT, served INTEGER);
CREATE TABLE IF NOT EXISTS answer (first INTEGER PRIMARY KEY, id TEXT UNIQUE, rows INTEGER, scores BLOB,
    model TEXT REFERENCES model ON DELETE CASCADE);
CREATE TABLE IF NOT EXISTS settled (first INTEGER REFERENCES answer ON DELETE CASCADE, row INTEGER,
    PRIMARY KEY (first, row)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cell (model TEXT REFERENCES model ON DELETE CASCADE, cell INTEGER,
    outcome INTEGER, {" REAL, ".join(SUMS)} REAL, PRIMARY KEY (model, cell, outcome)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS answers ON answer (model);
"""
"""``first`` of an answer counts the rows of all answers before it; ``settled`` has rows with an outcome."""

ADD_CELL = f"""
INSERT INTO cell VALUES (?, ?, ?{", ?" * len(SUMS)}) ON CONFLICT DO UPDATE
    SET {", ".join(f"{name} = {name} + excluded.{name}" for name in SUMS)}
"""

SERVE = """
INSERT INTO model (name, kind, digest, served)
    VALUES (?, ?, ?, (SELECT coalesce(max(served), 0) + 1 FROM model)) ON CONFLICT DO UPDATE
    SET kind = excluded.kind, digest = excluded.digest, served = excluded.served
"""


class UnknownRowError(DataError):
    """An outcome of a row that no answer waits for."""


class Store:
    """The folder of one service, locked until it is closed or the process ends.

    Parameters
    ----------
    folder
        The folder, made where it is not there.
    remember
        Rows that wait for outcomes, the latest.
    """

    def __init__(self, folder: Path, remember: int) -> None:
        check_place(folder)
        path = folder / DATABASE
        if folder.is_dir() and any(folder.iterdir()) and not path.is_file():
            raise RunFolderError(
                "is a folder with other things in it", where=str(folder), remedy="give another --state"
            )
        self.models = folder / "models"
        self.models.mkdir(parents=True, exist_ok=True)
        self._folder_lock = Lock(folder)
        if self._folder_lock.take() is False:
            raise RunFolderError(
                "another service has this state", where=str(folder), remedy="end it, or give another --state"
            )
        self._path, self._remember = path, remember
        self._lock = threading.Lock()
        try:
            self._db = sqlite3.connect(path, check_same_thread=False)
            self._db.executescript(TABLES)
            query = "SELECT coalesce(max(first + max(rows, 1)), 0) FROM answer"
            (self._next,) = self._db.execute(query).fetchone()
        except sqlite3.Error as error:
            self._folder_lock.close()
            raise RunFolderError(
                f"its database cannot be read ({error})", where=str(path), remedy="give another --state"
            ) from error

    def close(self) -> None:
        """Let another service have the folder."""
        with self._lock:
            self._db.close()
        self._folder_lock.close()

    def add(self, model: str, scores: NDArray[np.float32]) -> str:
        """Remember the scores of an answer, and return the id of its request, which nobody can guess."""
        request, rows = secrets.token_urlsafe(16), max(1, len(scores))
        with self._lock, self._db as db:
            values = (self._next, request, len(scores), scores.astype("<f4").tobytes(), model)
            db.execute("INSERT INTO answer VALUES (?, ?, ?, ?, ?)", values)
            self._next += rows
            oldest = self._next - self._remember
            db.execute("DELETE FROM answer WHERE first < ? AND first + rows <= ?", (oldest, oldest))
        return request

    def settle(self, outcomes: Sequence[Outcome]) -> dict[str, int]:
        """Count outcomes in the cells of their models: all of them in one transaction, or none."""
        counts = {"counted": 0, "known": 0, "unscored": 0}
        models: dict[str, list[tuple[float, float, float]]] = {}
        with self._lock, self._db as db:
            for number, outcome in enumerate(outcomes):
                model, first, score = self._waiting(db, number, outcome)
                key = (first, outcome.get("row", 0))
                if not db.execute("INSERT OR IGNORE INTO settled VALUES (?, ?)", key).rowcount:
                    counts["known"] += 1
                elif score != score:
                    counts["unscored"] += 1
                else:
                    counts["counted"] += 1
                    counted = (score, float(outcome["outcome"]), outcome.get("weight", 1.0))
                    models.setdefault(model, []).append(counted)
            for model, rows in models.items():
                _add_cells(db, model, np.array(rows))
        return counts

    def _waiting(self, db: sqlite3.Connection, number: int, outcome: Outcome) -> tuple[str, int, float]:
        """Return the model, the answer and the score of the row that an outcome is of."""
        row, weight = outcome.get("row", 0), outcome.get("weight", 1.0)
        query = "SELECT model, first, substr(scores, ?, 4) FROM answer WHERE id = ? AND rows > ?"
        answer = db.execute(query, (4 * row + 1, outcome["request"], row)).fetchone()
        if answer is None:
            raise UnknownRowError(
                f"no such row waits for its outcome; the latest {self._remember:,} rows do",
                where=f"outcome {number}",
                remedy="leave it out",
            )
        score = float(np.frombuffer(answer[2], "<f4")[0])
        if (score > 0 or outcome["outcome"]) and weight > MOST_INVERSE * score:
            raise DataError(
                f"weight ÷ score is above {MOST_INVERSE:.0e}",
                where=f"outcome {number}",
                remedy="leave it out, or give a smaller weight",
            )
        return answer[0], answer[1], score

    def cells(self, model: str) -> Cells:
        """Return the counts of a model, by a connection of its own: writers go on."""
        names = ("cell", "outcome", *SUMS)
        query = f"SELECT {', '.join(names)} FROM cell WHERE model = ?"
        with closing(sqlite3.connect(self._path)) as db:
            rows = db.execute(query, (model,)).fetchall()
        if not rows:
            return Cells()
        grid = Cells().grid
        table = pa.table(dict(zip(names, map(pa.array, zip(*rows, strict=True)), strict=True)))
        for name in RESOLUTION:
            table = table.append_column(name, pa.repeat(getattr(grid, name), len(table)))
        return Cells.from_cells(table)

    @property
    def served(self) -> list[str]:
        """Models that were served, the latest last."""
        with self._lock:
            return [name for (name,) in self._db.execute("SELECT name FROM model ORDER BY served")]

    def serve(self, name: str, kind: str) -> None:
        """Record that a model is served now; forget those before the latest."""
        digest = _digest(self.file(name))
        with self._lock, self._db as db:
            db.execute(SERVE, (name, kind, digest))
        names = self.served
        for old in names[:-MOST_MODELS]:
            self.forget(old)
        for path in self.models.iterdir():
            if path.name.partition(".")[0] not in names[-MOST_FILES:]:
                path.unlink(missing_ok=True)

    def file(self, name: str) -> Path:
        """Return the place of an exported model."""
        return self.models / f"{name}.onnx"

    def is_whole(self, name: str, kind: str | None = None) -> bool:
        """Return whether the file of a model is as it was when it was served, and of a kind."""
        with self._lock:
            row = self._db.execute("SELECT digest, kind FROM model WHERE name = ?", (name,)).fetchone()
        path = self.file(name)
        return row is not None and kind in (None, row[1]) and path.is_file() and _digest(path) == row[0]

    def forget(self, name: str) -> bool:
        """Delete a model, its cells and its waiting answers; return False where it was never served."""
        with self._lock, self._db as db:
            return bool(db.execute("DELETE FROM model WHERE name = ?", (name,)).rowcount)


def forget_model(folder: Path, name: str) -> None:
    """Delete the cells and the waiting answers of a model from the folder of a service that does not run."""
    if not (folder / DATABASE).is_file():
        raise RunFolderError("is no folder of a service", where=str(folder), remedy="give its --state")
    with closing(Store(folder, 1)) as store:
        if not store.forget(name):
            raise ParameterError(
                f"no model {name!r} was served from {folder}", remedy=f"give one of {listed(store.served)}"
            )


def _add_cells(db: sqlite3.Connection, model: str, rows: NDArray[np.float64]) -> None:
    score, outcome, weight = rows.T
    cells = Cells()
    cells.update(score, outcome, None if (weight == 1).all() else weight)
    columns = cells.columns()
    numbers = [columns[name].tolist() for name in ("cell", "outcome", *SUMS)]
    db.executemany(ADD_CELL, zip([model] * len(numbers[0]), *numbers, strict=True))


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
