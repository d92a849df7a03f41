"""A sample of ``make fuzz``: some cases of every class, always the same ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz.suite import CLASSES, cases, make_assets, run_case

SEED = 0
SAMPLE = 80
"""Cases of all classes together; ``make fuzz`` runs thousands, with another seed each time."""


@pytest.fixture(scope="module")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("fuzz") / "assets"
    make_assets(folder)
    return folder


@pytest.mark.parametrize("kind", CLASSES)
def test_whatever_the_input_the_rules_hold(kind: str, assets: Path, tmp_path: Path) -> None:
    for number in [number for each, number in cases(SAMPLE) if each == kind]:
        result = run_case(kind, number, SEED, tmp_path, assets)
        assert not result.problems, f"ONLY='{kind}:{number}' SEED={SEED}: {result.story}"
