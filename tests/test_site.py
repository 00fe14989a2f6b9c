"""The documentation site: built without a warning, every page in it, at home in any window."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

sys.path.insert(0, str(Path(__file__).parent / "report"))
from browser import MISSING, Browser, browser

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def build(folder: Path) -> Path:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html"]
    done = subprocess.run(
        [*command, "-d", folder / "trees", DOCS, folder / "site"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return folder / "site"


class Links(HTMLParser):
    """What a page leads to, and the places in it."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.ids: set[str] = set()
        self.feed(page.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.ids |= {str(named["id"])} if "id" in named else set()
        self.targets += [str(named[name]) for name in ("href", "src") if named.get(name)]


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_its_links_lead_somewhere(tmp_path: Path) -> None:
    site = build(tmp_path)
    pages = {
        path.resolve(): Links(path) for path in site.rglob("*.html") if "_static" not in path.parts
    }
    for page, links in pages.items():
        for target in links.targets:
            url = urlsplit(target)
            if url.scheme or url.netloc or target == "#":
                continue
            path = (page.parent / unquote(url.path)).resolve() if url.path else page
            assert path.is_file(), f"{page.name}: {target}"
            if url.fragment and path in pages and "://" not in target:
                assert unquote(url.fragment) in pages[path].ids, f"{page.name}: {target}"
    index = (site / "searchindex.js").read_text()
    assert all(f'"{word}"' in index for word in ("start/on-call", "THREAT_MODEL", "results/triage"))
    api = (site / "api.html").read_text()
    assert "schedmate.SchedMate.on_submit" in api
    assert "duration_p50_s" in api
    results = json.loads((ROOT / "benchmarks" / "results" / "triage.json").read_text())
    shown = f"{results['triage']['rows'][1]['logs_per_s']}"
    assert shown in (site / "results" / "triage.html").read_text()


@pytest.mark.parametrize("script", ["cli", "diagrams", "benchmarks", "modules"])
def test_what_is_generated_is_current(script: str) -> None:
    subprocess.run([sys.executable, DOCS / f"generate_{script}.py", "--check"], check=True)


def test_the_picture_of_a_terminal_shows_what_is_printed() -> None:
    subprocess.run([sys.executable, DOCS / "generate_pictures.py", "--check"], check=True)


def test_a_column_that_a_result_does_not_have_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    made = runpy.run_path(str(DOCS / "generate_benchmarks.py"))
    one = {"what": "x", "say": "{nonsense}", "result": "triage", "where": {"run": "triage"}}
    with pytest.raises(SystemExit, match="'nonsense' is not a column"):
        made["highlight"](one, "")
    with pytest.raises(SystemExit, match="no row of the result triage"):
        made["rows"]("triage", {"run": "nonsense"})


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if MISSING:
        pytest.skip(MISSING)
    with browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("site"))


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_pages_fit_a_narrow_window(site: Path, window: Browser, scheme: str) -> None:
    for page in sorted(site.rglob("*.html")):
        if re.search(r"/(genindex|search|index)\.html$|_static", page.as_posix()):
            continue
        window.resize(400, prefers_color_scheme=scheme)
        window.open(page)
        assert window.run("return document.documentElement.scrollWidth") <= 400, page
    assert window.run("return document.documentElement.dataset.theme") == scheme
