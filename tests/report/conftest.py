"""A browser for the tests of one page."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from browser import Browser, browser


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with browser(tmp_path_factory.mktemp("browser")) as one:
        yield one
