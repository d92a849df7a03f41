"""Measure the house and hold it to its budget: ``python tools/house.py [--lower]``.

Prints lines of code (no docstrings, comments or blank lines), files and budget of every package of
``src/unskew``. Exits with 1 where a package is above its budget, where a function has too many parameters, or
where a file that ``pyproject.toml`` excuses no longer needs the excuse. ``--lower`` lowers the budgets to the
present size and removes excuses that are no longer needed. Only an edit by hand raises a budget.
"""

from __future__ import annotations

import ast
import io
import json
import subprocess
import sys
import tokenize
import tomllib
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src" / "unskew"
PROJECT = ROOT / "pyproject.toml"

MOST_PARAMETERS = 10
MOST_OF_METHODS = 16
"""Constructors of debiasing methods may have more: each parameter is one of its paper."""

COMPLEXITY_RULES = "C901,PLR0912,PLR0915"
SLACK = 25
"""Lines that a package may stay below its budget."""

NOT_CODE = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENDMARKER,
    tokenize.ENCODING,
}


def code_lines(text: str) -> int:
    """Count the lines that hold code."""
    documentation = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(getattr(node, "body", None), list)
        for statement in node.body  # type: ignore[attr-defined]
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
        if isinstance(statement.value.value, str)
        for line in range(statement.lineno, statement.end_lineno + 1)  # type: ignore[operator]
    }
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    lines = {
        line
        for token in tokens
        if token.type not in NOT_CODE
        for line in range(token.start[0], token.end[0] + 1)
    }
    return len(lines - documentation)


def package_of(path: Path) -> str:
    """Return the package of a file, or ``top`` for the files beside the packages."""
    parts = path.relative_to(SOURCE).parts
    return parts[0] if len(parts) > 1 else "top"


def sizes() -> dict[str, tuple[int, int]]:
    """Return the lines of code and the number of files of every package."""
    table: dict[str, tuple[int, int]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        lines, files = table.get(package_of(path), (0, 0))
        table[package_of(path)] = lines + code_lines(path.read_text(encoding="utf-8")), files + 1
    return table


def long_signatures() -> Iterator[tuple[str, str]]:
    """Yield the file and the name of every function with too many parameters."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                count = len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs])
                is_method = package_of(path) == "debias" and node.name == "__init__"
                if count > (MOST_OF_METHODS if is_method else MOST_PARAMETERS):
                    yield path.relative_to(ROOT).as_posix(), f"{node.name} has {count} parameters"


def complex_files() -> set[str]:
    """Return the files in which ruff finds a function that is too complex, excuses aside."""
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--select", COMPLEXITY_RULES]
    command += ["--config", "lint.mccabe.max-complexity=12", "--output-format", "json", str(SOURCE)]
    found = json.loads(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    return {Path(row["filename"]).relative_to(ROOT).as_posix() for row in found}


def table_of(now: dict[str, tuple[int, int]], budgets: dict[str, int]) -> str:
    """Return the table of packages, the largest first."""
    rows = [f"{'package':14}{'files':>7}{'code':>9}{'budget':>9}"]
    for name, (lines, files) in sorted(now.items(), key=lambda row: -row[1][0]):
        rows.append(f"{name:14}{files:7}{lines:9,}{budgets.get(name, 0):9,}")
    lines, files = (sum(column) for column in zip(*now.values(), strict=True))
    rows.append(f"{'all':14}{files:7}{lines:9,}{sum(budgets.values()):9,}")
    return "\n".join(rows)


def lower(now: dict[str, tuple[int, int]], budgets: dict[str, int], excuses: list[str]) -> None:
    """Write budgets that fit the present size, and drop the excuses that are not needed."""
    text = PROJECT.read_text(encoding="utf-8")
    for name, budget in budgets.items():
        lines, _ = now.get(name, (0, 0))
        if lines < budget:
            text = text.replace(f"\n{name} = {budget}\n", f"\n{name} = {lines}\n" if lines else "\n")
    for excuse in excuses:
        text = text.replace(f"\n{excuse}\n", "\n")
    PROJECT.write_text(text, encoding="utf-8")


def main() -> int:
    """Print the table and return 1 where the house is above its budget."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["tool"]
    budgets: dict[str, int] = project["house"]["budget"]
    may_be_long = set(project["house"]["long_signatures"])
    may_be_complex = {
        path
        for path, rules in project["ruff"]["lint"]["per-file-ignores"].items()
        if path.startswith("src/") and "C901" in rules
    }
    now = sizes()
    long = list(long_signatures())
    excuses = [f'    "{path}",' for path in may_be_long - {path for path, _ in long}]
    excuses += [f'"{path}" = ["C901", "PLR0912", "PLR0915"]' for path in may_be_complex - complex_files()]
    if "--lower" in sys.argv[1:]:
        lower(now, budgets, excuses)
        return 0
    print(table_of(now, budgets))
    gaps = {name: budgets.get(name, 0) - lines for name, (lines, _) in now.items()}
    problems = [
        f"{name} is {-gap} lines above its budget: make it smaller" for name, gap in gaps.items() if gap < 0
    ]
    problems += [f"{path}: {what}: pass an object instead" for path, what in long if path not in may_be_long]
    if excuses or any(gap > SLACK for gap in gaps.values()) or budgets.keys() - now.keys():
        problems.append("budgets or excuses are larger than needed: run python tools/house.py --lower")
    print("\n".join(problems))
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
