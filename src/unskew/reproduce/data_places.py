"""Where the paper's datasets are: found beside the work, or told how to get."""

from __future__ import annotations

import os
from pathlib import Path

from unskew.errors import ParameterError

WHERE = {
    "coat": "download coat.zip from https://www.cs.cornell.edu/~schnabts/mnar/ and unpack it",
    "yahoo_r3": "ask for R3 at Yahoo! Webscope (https://webscope.sandbox.yahoo.com) and unpack it",
    "kuairand": "download KuaiRand-Pure from https://kuairand.com and unpack it",
}
"""Where a user gets the data, which may not be shipped."""

DATA_FOLDERS = ("../shared/data",)
"""Where datasets are looked for beside ``$UNSKEW_DATA``."""


def found_data(data: str | None, root: Path | None) -> tuple[str, Path | None, list[str]]:
    """The dataset, its folder, and what a reader should know about the choice."""
    if data is None:
        coat = root or _folder_of("coat")
        if coat is not None:
            return "coat", coat, []
        note = (
            "no dataset was named and Coat was not found ($UNSKEW_DATA/coat, ../shared/data/coat): these are"
            f" numbers of the synthetic world, not of the paper's data; for those, {WHERE['coat']}, and give"
            " --data coat --root FOLDER"
        )
        return "synthetic", None, [note]
    if data in WHERE and root is None:
        root = _folder_of(data)
        if root is None:
            raise ParameterError(
                f"the folder of {data} is needed", remedy=f"{WHERE[data]}; then give --root FOLDER"
            )
    return data, root, []


def _folder_of(name: str) -> Path | None:
    places = [os.environ["UNSKEW_DATA"]] if "UNSKEW_DATA" in os.environ else []
    for place in (*places, *DATA_FOLDERS):
        if (Path(place) / name).is_dir():
            return Path(place) / name
    return None
