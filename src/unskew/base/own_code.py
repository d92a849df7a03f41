"""``--with FILE.py``: a user's file that is run before the verb, to register methods and the like."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from unskew.base.errors import ParameterError, UnskewError

PREFIX = "with_"
"""Before the names of such modules: a file may be called like a module that is there already."""


def require_own_code(path: Path) -> None:
    """Raise unless there is a Python file."""
    where = f"--with {path}"
    if path.suffix != ".py":
        raise ParameterError("is not a Python file", where=where, remedy="give a file that ends in .py")
    if not path.is_file():
        raise ParameterError("there is no such file", where=where, remedy="check the path")


def load_own_code(path: Path) -> None:
    """Run a file as a module; what it passes to :func:`unskew.register` is then known by name.

    Raises
    ------
    ParameterError
        There is no such file, it is no Python file, or it raises.
    """
    require_own_code(path)
    where = f"--with {path}"
    # What lies beside it can be imported, as if the file were run by itself; what is installed goes first.
    folder = str(path.resolve().parent)
    if folder not in sys.path:
        sys.path.append(folder)
    name = PREFIX + path.stem
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except UnskewError as error:
        del sys.modules[name]
        inside = where if error.where is None else f"{where}: {error.where}"
        raise ParameterError(error.problem, where=inside, remedy=error.remedy) from error
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ParameterError(
            f"{type(error).__name__}: {error}", where=where, remedy=f"run python {path} to see where"
        ) from error
