"""The documentation site: ``make docs`` builds it into ``docs/_build/html``, pages that open offline."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE)]
os.environ.setdefault("OMP_NUM_THREADS", "1")

import make_api  # noqa: E402
from public_names import resolve_reference  # noqa: E402

import unskew  # noqa: E402

project = "unskew"
author = "The unskew developers"
copyright = "The unskew developers. MIT licence"
version = release = unskew.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
    "svg_math",
]
exclude_patterns = ["_build", "gallery/**/*.ipynb", "gallery/**/*.py"]
nitpicky = True
highlight_language = "text"  # A block without a language is what a command printed.
suppress_warnings = [
    "config.cache",  # The order of the gallery is a class of this file.
    "sphinx_gallery.space_in_filename",  # Of the folder above, it means; links are checked after the build.
]

myst_enable_extensions = ["dollarmath", "colon_fence", "attrs_block"]
myst_fence_as_directive = ["math"]
myst_heading_anchors = 4
myst_dmath_double_inline = True

autodoc_typehints = "none"  # The signature of a class is long enough without; its docstring has the meaning.
autodoc_member_order = "bysource"
add_module_names = False
toc_object_entries_show_parents = "hide"


class QuickstartFirst:
    """The order of the gallery."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, file: str) -> tuple[bool, str]:
        """Return the key to sort a file by."""
        return file != "quickstart.py", file


sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"_(on|with|in)_(ray|spark|duckdb)\.py$",  # They need an engine.
    "within_subsection_order": QuickstartFirst,
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_signature": False,
    "min_reported_time": 1e9,  # How long an example took depends on the machine.
    "write_computation_times": False,  # Such a page would load scripts from a network.
    "image_srcset": ["2x"],
}

html_theme = "pydata_sphinx_theme"
html_title = "unskew"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_favicon = "images/logo.svg"
html_show_sourcelink = False
html_copy_source = False
html_theme_options = {
    "logo": {"text": "unskew", "image_light": "images/logo.svg", "image_dark": "images/logo.svg"},
    "header_links_before_dropdown": 7,
    "navigation_with_keys": False,
    "show_prev_next": False,
    "show_toc_level": 2,
    "collapse_navigation": True,  # Else each of 400 pages lists them all.
    "secondary_sidebar_items": ["page-toc"],
    "footer_start": ["copyright"],
    "footer_end": [],
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
WITHOUT_SIDEBAR = ["index", "changelog", "contributing"]
html_sidebars: dict[str, list[str]] = {page: [] for page in WITHOUT_SIDEBAR}

PAGES_OF_FILES = (
    (re.compile(r"\]\((?:\.\./)+CONTRIBUTING\.md"), "](/contributing.md"),
    (re.compile(r"\]\((?:\.\./)+CHANGELOG\.md"), "](/changelog.md"),
    (re.compile(r"\]\((?:\.\./)+examples/(\w+)\.py"), r"](/gallery/\1.rst"),
)
"""Links to files of the repository that have a page of the site, and the page."""


def as_page(app, docname, source) -> None:
    """On GitHub a link leads to a file, here to its page; a star in the contents is a name for each page."""
    for file, page in PAGES_OF_FILES:
        source[0] = file.sub(page, source[0])
    folder = (HERE / docname).parent
    names = sorted(path.stem for path in folder.glob("*.md") if path.stem != "index")
    listed = "\n".join(f"{name} <{name}>" for name in names)
    source[0] = source[0].replace("\n:glob:\n\n*\n", f"\n\n{listed}\n")


_BACK = re.compile(
    r'(api/(?P<full>[\w.]*?(?P<name>\w+))\.html)#(?!(?P=full)[."])[\w.]*?\.(?P=name)(?P<rest>[\w.]*)"'
)


def lead_back(app, pagename, templatename, context, doctree) -> None:
    """From a source to the page of a name: viewcode takes all names of a file for those of one module."""
    if pagename.startswith("_modules/"):
        context["body"] = _BACK.sub(r'\1#\g<full>\g<rest>"', context["body"])


def setup(app) -> None:
    """Pages of names are written before files are looked for; docstrings become reStructuredText."""
    make_api.write()
    app.connect("source-read", as_page)
    app.connect("html-page-context", lead_back)
    app.connect("autodoc-process-docstring", make_api.as_restructured_text)
    app.connect("autodoc-skip-member", make_api.is_left_out)
    app.connect("missing-reference", resolve_reference)
