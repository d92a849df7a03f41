"""Words of the user's (names, values, what a library says of them) as they may be shown: on one line, without
control characters, and no longer than a person reads."""

from __future__ import annotations

import re
from collections.abc import Iterable

LONGEST = 600
"""Characters of one text that are shown; of a longer one the beginning and the end."""

MOST_LISTED = 12
"""Names of a list that are shown."""

_BLANK = re.compile(r"[ \t\n\v\f\r\x1c-\x1f\x85\u2028\u2029]+")
_UNSEEN = re.compile(
    r"[\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufeff]"
)
"""What a terminal obeys, or a page hides, instead of showing it: C0, C1, and the marks of direction."""


def plain(text: object, longest: int = LONGEST) -> str:
    """Return a text on one line: blanks joined, control characters as codes, shortened in its middle.

    Codes, and not nothing: two names that differ in such a character alone stay two.

    Examples
    --------
    >>> print(plain("a\\x1b[31mb\\r\\nc"))
    a\\x1b[31mb c
    >>> plain("x" * 100, longest=9)
    'xxxx…xxxx'
    """
    shown = str(text)
    if len(shown) > 4 * longest:
        # Before the work on every character: a value may be as large as its file.
        shown = shown[: 2 * longest] + shown[-2 * longest :]
    shown = _UNSEEN.sub(_code, _BLANK.sub(" ", shown))
    if len(shown) <= longest:
        return shown
    half = (longest - 1) // 2
    return f"{shown[:half]}…{shown[-half:]}"


def listed(names: Iterable[object], most: int = MOST_LISTED) -> str:
    """Return names parted by commas; of many, the first and how many more there are.

    Examples
    --------
    >>> listed("abcde", most=3)
    'a, b, c and 2 more'
    """
    shown = [plain(name, longest=60) for name in names]
    more = f" and {len(shown) - most:,} more" if len(shown) > most else ""
    return ", ".join(shown[:most]) + more


def _code(character: re.Match[str]) -> str:
    number = ord(character[0])
    return f"\\x{number:02x}" if number < 256 else f"\\u{number:04x}"
