"""Errors that say what a user did wrong, where, and how to fix it. Users can cause no others."""

from __future__ import annotations

from unskew.base.plain_text import plain


class UnskewError(ValueError):
    """A problem with a place and a remedy, in one line.

    Parameters
    ----------
    problem
        What is wrong, as a clause: ``"value 2 is not 0 or 1"``.
    where
        The file, column and row, as far as known: ``"column 'clicked', row 3"``.
    remedy
        What to do about it, as an imperative: ``"encode clicks as 0 and 1"``. Always given.

    Notes
    -----
    All three are shown as :func:`unskew.base.plain_text.plain` gives them: names and values of the user's are
    in them, and may hold line breaks, terminal escapes or a megabyte.

    Examples
    --------
    >>> print(DataError("value 2 is not 0 or 1", where="column 'clicked', row 3", remedy="encode as 0/1"))
    column 'clicked', row 3: value 2 is not 0 or 1. To fix: encode as 0/1.
    """

    def __init__(self, problem: str, *, where: str | None = None, remedy: str) -> None:
        self.problem = plain(problem)
        self.where = None if where is None else plain(where)
        self.remedy = plain(remedy)
        line = f"{self.where}: {self.problem}" if self.where else self.problem
        stop = "" if line.endswith("?") else "."
        super().__init__(f"{line.rstrip('.')}{stop} To fix: {self.remedy.rstrip('.')}.")

    def record(self) -> dict[str, str | None]:
        """Return its parts, as the constructor takes them."""
        return {"problem": self.problem, "where": self.where, "remedy": self.remedy}


class DataError(UnskewError):
    """The data do not say what they should: a column, a value, a file."""


class ParameterError(UnskewError):
    """A parameter is outside what the object accepts."""


class NotFittedError(UnskewError, AttributeError):
    """Something was asked of an estimator before ``fit``."""


class MissingPackageError(UnskewError, ImportError):
    """A package of an extra is not installed."""


class TrainingError(UnskewError):
    """Training failed: a loss became NaN, the data cannot be split, a device is missing."""


class CollapseWarning(UserWarning):
    """A trained network learned nothing that holds beyond its training rows."""


class HeldOutWarning(UserWarning):
    """Held-out clicks cannot choose an epoch, or lack conversions."""


class LeakWarning(UserWarning):
    """A feature may have been written after the outcome."""


class CheckpointWarning(UserWarning):
    """A state of a checkpoint is damaged and was left out, or could not be written."""


class RunFolderError(UnskewError):
    """A run folder is missing, incomplete, already there, or of another version."""


class ProcessError(UnskewError):
    """One of several processes that work together failed, or is gone."""
