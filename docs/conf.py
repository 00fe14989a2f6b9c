"""Sphinx's configuration of the documentation site: `make docs-site`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from pydantic import BaseModel

import schedmate

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS))

project = "schedmate"
author = "the schedmate authors"
version = release = schedmate.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
exclude_patterns = ["_build", "generate_*.py"]
myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 4
myst_linkify_fuzzy_links = False
suppress_warnings = ["misc.highlighting_failure"]  # quotes that go on over several lines
RESULT = re.compile(r"\]\((?:\.\./)+benchmarks/results/(?:\w+\.json#)?(\w+?)(?:\.json)?\)")
OVERVIEW = re.compile(r"\]\((?:\.\./)*benchmarks/(?:README\.md)?\)")
FOLDER = re.compile(r"\[([^]\n]+)\]\(((?:\.\./)+[\w/-]+)\)")

html_theme = "pydata_sphinx_theme"
html_title = "schedmate"
html_static_path = ["site"]
smartquotes_action = "qe"  # quotes and ellipses; `--flag` keeps its dashes
html_css_files = ["site.css"]
html_js_files = ["copy.js"]
html_theme_options = {
    "navigation_with_keys": False,
    "show_prev_next": True,
    "show_toc_level": 2,
    "navbar_align": "left",
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_show_sourcelink = False
default_role = "code"
autodoc_typehints = "description"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_class_signature = "separated"


def with_fields(app: Any, what: str, name: str, thing: Any, options: Any, lines: list[str]) -> None:
    """Append the fields of a pydantic model to its docstring."""
    if what != "class" or not issubclass(thing, BaseModel) or thing is schedmate.Settings:
        return
    lines += ["", ".. list-table::", "   :header-rows: 1", "", "   * - field", "     - type"]
    lines += ["     - meaning"]
    for field, about in thing.model_fields.items():
        kind = _type(about.annotation)
        lines += [f"   * - ``{about.alias or field}``", f"     - ``{kind}``"]
        lines += [f"     - {(about.description or '').replace('*', chr(92) + '*')}"]


def _type(annotation: Any) -> str:
    text = annotation.__name__ if isinstance(annotation, type) else str(annotation)
    if getattr(annotation, "__args__", None) and isinstance(annotation, type):
        text = str(annotation)
    for long in ("typing.", "schedmate.jobs.", "pathlib."):
        text = text.replace(long, "")
    return text if len(text) < 80 else text[:77] + "..."


def results(app: Any) -> None:
    """Write the pages of recorded results, one for each benchmark."""
    from generate_results import write

    write(DOCS / "results")


def within_the_site(app: Any, name: str, source: list[str]) -> None:
    """Lead links to recorded results to their pages here; folders of the repository have none."""
    from generate_results import page_of

    up = "../" * name.count("/")
    text = RESULT.sub(lambda found: f"]({up}results/{page_of(found[1])}.md#{found[1]})", source[0])
    text = OVERVIEW.sub(f"]({up}results/index.md)", text)
    source[0] = FOLDER.sub(r"\1", text)


def setup(app: Any) -> None:
    """Register what is generated."""
    app.connect("builder-inited", results)
    app.connect("source-read", within_the_site)
    app.connect("include-read", lambda app, path, name, source: within_the_site(app, name, source))
    app.connect("autodoc-process-docstring", with_fields)
