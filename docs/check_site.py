"""Looks at a built site: links and anchors inside it lead somewhere, and nothing is loaded from a network.

``python docs/check_site.py docs/_build/html``; ``make docs`` does so at its end. Links to other sites are not
followed.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

SHOWN = 20
"""Findings that are printed."""
NOT_LOADED = {"canonical", "search", "next", "prev", "index", "author", "copyright"}
"""What a ``<link>`` may be without anything being fetched for the page."""


@dataclass
class Page(HTMLParser):
    """What a page links to, what it loads, and the anchors that it has."""

    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__(convert_charrefs=True)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Sort the addresses of a tag."""
        found = {name: value for name, value in attrs if value is not None}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        elif tag == "link" and "href" in found and not set(found.get("rel", "").split()) & NOT_LOADED:
            self.loads.append(found["href"])
        elif "src" in found:
            self.loads.append(found["src"])


def pages_of(folder: Path) -> list[Path]:
    """Pages of the site, without templates that a theme leaves beside its scripts."""
    return sorted(path for path in folder.rglob("*.html") if "_static" not in path.relative_to(folder).parts)


def read(path: Path) -> Page:
    """Read a page of the site."""
    page = Page()
    page.feed(path.read_text(encoding="utf-8"))
    return page


def faults(folder: Path) -> list[str]:
    """Return what is wrong, one line each: ``page: address: what``."""
    pages = {path.resolve(): read(path) for path in pages_of(folder)}
    found = []
    for path, page in pages.items():
        name = path.relative_to(folder.resolve()).as_posix()
        remote = [address for address in page.loads if urlsplit(address).netloc]
        found += [f"{name}: {address}: loaded from a network" for address in remote]
        for address in dict.fromkeys([*page.links, *page.loads]):
            wrong = _fault(path, address, pages)
            if wrong:
                found.append(f"{name}: {address}: {wrong}")
    return found


def _fault(path: Path, address: str, pages: dict[Path, Page]) -> str:
    parts = urlsplit(address)
    if parts.scheme or parts.netloc:
        return ""
    target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
    if not target.is_file():
        return "no such file"
    anchor = unquote(parts.fragment)
    if anchor and target in pages and anchor not in pages[target].anchors | {"top"}:
        return "no such anchor"
    return ""


if __name__ == "__main__":
    site = Path(sys.argv[1])
    wrong = faults(site)
    for line in wrong[:SHOWN]:
        print(line, file=sys.stderr)
    count = len(pages_of(site))
    print(f"{site}: {count} pages, {len(wrong)} broken links or things from a network")
    sys.exit(bool(wrong) or not count)
