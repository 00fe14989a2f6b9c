"""A browser for the tests of one page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import MISSING, Browser, browser
from made import Pages


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as one:
        yield one


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    return Pages(tmp_path_factory)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what needs a browser where there is none."""
    for item in items:
        if MISSING is not None and item.get_closest_marker("browser") is not None:
            item.add_marker(pytest.mark.skip(reason=f"{MISSING}; .ci/install browser installs it"))
