"""Writes the names of registered classes where type checkers read them: ``python docs/make_registered.py``.

That is the ``__init__.py`` of their packages and ``src/unskew/__init__.pyi``. The source is read, not
imported: a file that was moved or removed cannot be in the way. A test compares.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "unskew"
PACKAGES = ("calibration", "debias", "learners")
_MARKED = re.compile(r"# Registered[^\n]*\n.*?(?=# End of what is registered)", re.DOTALL)


def registered(package: str) -> list[tuple[str, str]]:
    """Modules and names of the classes that carry the decorator, in the order of modules."""
    return [
        (f"unskew.{package}.{path.stem}", statement.name)
        for path in sorted((SOURCE / package).glob("*.py"))
        for statement in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(statement, ast.ClassDef)
        and any(ast.unparse(each).startswith("register") for each in statement.decorator_list)
    ]


def written() -> dict[Path, str]:
    """Return the files with marks, and the text that each should have."""
    blocks = {SOURCE / package / "__init__.py": _exported(registered(package)) for package in PACKAGES}
    everything = [each for package in PACKAGES for each in registered(package)]
    blocks[SOURCE / "__init__.pyi"] = "".join(f"from {m} import {name} as {name}\n" for m, name in everything)
    return {
        path: _MARKED.sub(f"# Registered: written by `make docs`.\n{block}", path.read_text(encoding="utf-8"))
        for path, block in blocks.items()
    }


def _exported(names: list[tuple[str, str]]) -> str:
    imports = "".join(f"from {module} import {name}\n" for module, name in names)
    exports = "".join(f'    "{name}",\n' for name in sorted((name for _, name in names), key=_as_ruff_sorts))
    return f"{imports}\n__all__ += [\n{exports}]\n"


def _as_ruff_sorts(name: str) -> tuple[bool, str]:
    return not name.isupper(), name


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")
        print(f"written: {path.relative_to(SOURCE)}")
