"""What is released: an sdist and a wheel that install and run, metadata that agree, a quick start."""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
from pathlib import Path

import pytest

import unskew

ROOT = Path(__file__).parents[1]
HELP_SECONDS = 0.4
"""Of the processor, for ``unskew --help``."""

BUILD = """
import os, sys
from setuptools import build_meta
os.chdir(sys.argv[1])
print(getattr(build_meta, f"build_{sys.argv[2]}")(sys.argv[3]))
"""


def build(source: Path, kind: str, target: Path) -> Path:
    """What ``python -m build`` makes, with the tools that are here."""
    done = subprocess.run(
        [sys.executable, "-c", BUILD, str(source), kind, str(target)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return target / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """A wheel, made from the sdist, which is made from the files of the repository."""
    pytest.importorskip("setuptools")
    folder = tmp_path_factory.mktemp("release")
    source = folder / "source"
    ignored = shutil.ignore_patterns("*.egg-info", "__pycache__")
    shutil.copytree(ROOT / "src", source / "src", ignore=ignored)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    sdist = build(source, "sdist", folder)
    with tarfile.open(sdist) as archive:
        # Python before 3.11.4 has no filters, and no argument for one.
        archive.extraction_filter = getattr(tarfile, "data_filter", None)
        archive.extractall(folder)
    return build(folder / sdist.name.removesuffix(".tar.gz"), "wheel", folder)


def test_the_wheel_runs_in_an_environment_of_its_own(wheel, tmp_path):
    """Nothing of the repository is there; what the library depends on is lent from this environment."""
    venv.create(tmp_path / "env", with_pip=False)
    python = tmp_path / "env" / "bin" / "python"
    install = [sys.executable, "-m", "pip", "--python", str(python), "install", "--no-deps", "--no-index"]
    subprocess.run([*install, "--quiet", "--disable-pip-version-check", str(wheel)], check=True)
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    # A path in a .pth is searched, and the .pth files in it are not read: an editable install stays behind.
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    run = {"cwd": tmp_path, "env": environment, "capture_output": True, "text": True, "check": False}
    where = subprocess.run([python, "-c", "import unskew; print(unskew.__file__)"], **run)
    assert Path(where.stdout.strip()).is_relative_to(site), where.stderr
    world = [f"--option={each}" for each in ("n_users=40", "n_items=30", "density=0.2")]
    quick = ["--learner", "mf", "--seeds", "2", "--crossfit", "0", "--propensity-epochs", "1"]
    quick += ["--method", "naive", "--members", "1", "--set", "method.epochs=2", "--out", "run"]
    script = [str(tmp_path / "env" / "bin" / "unskew"), "run", "--data", "synthetic", *world, *quick]
    done = subprocess.run(script, **run)
    assert done.returncode == 0, done.stderr
    assert {"report.html", "MODEL_CARD.md", "model.safetensors"} <= set(os.listdir(tmp_path / "run"))
    typed = subprocess.run(
        [
            python,
            "-c",
            "import unskew, pathlib; print((pathlib.Path(unskew.__file__).parent / 'py.typed').exists())",
        ],
        **run,
    )
    assert typed.stdout.strip() == "True"


def test_versions_and_metadata_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert project["version"] == unskew.__version__
    assert re.search(r"^version: (.*)$", citation, re.MULTILINE)[1] == unskew.__version__
    assert re.search(r"^license: (.*)$", citation, re.MULTILINE)[1] == project["license"]
    tested = re.search(r"python: \[(.*)\]", (ROOT / ".github" / "workflows" / "tests.yml").read_text())[1]
    classified = [each.rpartition(":: ")[2] for each in project["classifiers"] if "Python :: 3." in each]
    assert tested == ", ".join(f'"{each}"' for each in classified)


def test_the_help_is_there_at_once():
    """The best of several, since a busy machine can only make it slower."""

    def seconds() -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "unskew", "--help"], check=True, capture_output=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert min(seconds() for _ in range(4)) <= HELP_SECONDS
