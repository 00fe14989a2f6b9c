"""A training repository that static analysis cannot read to the end, and models that can."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from schedmate.mate import SchedMate
from schedmate.settings import load_settings

TRAIN = '''"""Trains on imagenet21k, as the paper says."""

import sys

from thirdparty import build, fetch, loop
from settings import LENGTH  # dataset: cifar10

data = fetch("speech_commands_v2")
held_out = fetch("speech_commands_test")
model = build("conformer-large")
loop(model, data, held_out, total_updates=LENGTH)
'''
SETTINGS = "LENGTH = int(read_length('length.txt', default_updates=40_000))\n"


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    (root / "train.py").write_text(TRAIN)
    (root / "settings.py").write_text(SETTINGS)
    (root / "unrelated.py").write_text('dataset = "planted_dataset"\n')
    (root / "README.md").write_text("We train on planted_dataset with gpt-9 for 5 epochs.\n")
    return root


@pytest.fixture
def script(tmp_path: Path) -> Callable[..., str]:
    """Writes a scripted model from replies; gives its name for `llm_model`."""

    def write(*replies: dict[str, Any]) -> str:
        path = tmp_path / "script.yaml"
        document = {"schema": "schedmate.scripted/v1", "replies": list(replies)}
        path.write_text(yaml.safe_dump(document))
        return f"scripted:{path}"

    return write


@pytest.fixture
def open_mate() -> Callable[..., SchedMate]:
    """Makes a `SchedMate` from settings, closed at the end."""
    opened: list[SchedMate] = []

    def make(**settings: Any) -> SchedMate:
        opened.append(SchedMate(load_settings(**settings)))
        return opened[-1]

    yield make  # type: ignore[misc]
    for mate in opened:
        mate.close()
