"""Features that give the outcome away: written after it, or a name of the row. Looked for before training."""

from unskew.leaks.check import Leak, check_leaks, require_no_leaks

__all__ = ["Leak", "check_leaks", "require_no_leaks"]
