"""A model behind a real server, with a ledger of its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import LONG_S

from schedmate.llm import LLM
from schedmate.llm.endpoint import Endpoint
from schedmate.llm.store import Budget, Store


@pytest.fixture
def open_model(tmp_path: Path) -> Callable[..., LLM]:
    """Makes an `LLM` for a base URL; keyword arguments are its own."""
    opened: list[LLM] = []

    def make(base_url: str, model: str = "test-7B", **options: Any) -> LLM:
        store = opened[0].store if opened else Store(tmp_path / "data")
        settings = {"budget": Budget(), "timeout_s": LONG_S, "max_tokens": 256} | options
        opened.append(LLM(endpoint=Endpoint(base_url, model), store=store, **settings))
        return opened[-1]

    yield make  # type: ignore[misc]
    for llm in opened:
        llm.close()
