"""A length that no training can have is said to be wrong, and no other takes its place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Cli

TRAIN = """
import argparse
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type={kind}, default=90)
parser.add_argument("--max-steps", type=int, default=1000)
args = parser.parse_args()
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(args.epochs):
    model(torch.rand(8, 4)).sum().backward()
    optimizer.step()
"""


@pytest.fixture(params=["int", "str"])
def analyzed(request: pytest.FixtureRequest, cli: Cli, tmp_path: Path) -> Any:
    """What `schedmate analyze --json` says of a program with these arguments."""
    repo = tmp_path / "repo"
    repo.mkdir()
    (repo / "train.py").write_text(TRAIN.format(kind=request.param))

    def run(arguments: str) -> tuple[Any, list[str]]:
        output = cli("analyze", str(repo), "--json", "--command", f"python train.py {arguments}")
        assert output.code == 0, output.err
        document = json.loads(output.out)
        return document["metadata"]["training_config"].get("iters"), document["warnings"]

    return run


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("1e11", "1e"),
        ("-5", "-5"),
        ("abc", "abc"),
        ("nan", "nan"),
        ("1e308", "1e"),
    ],
)
def test_an_impossible_length_is_said_and_gives_none(analyzed: Any, text: str, shown: str) -> None:
    length, notes = analyzed(f"--epochs={text}")

    assert length is None
    assert any(
        note.startswith(f"--epochs is {shown}") and "no training's length can be" in note
        for note in notes
    ), notes


@pytest.mark.parametrize("text", ["0", "-1", "20000"])
def test_a_length_that_can_be_is_not_spoken_of(analyzed: Any, text: str) -> None:
    _, notes = analyzed(f"--epochs={text}")

    assert not any("no training's length" in note for note in notes)


def test_another_length_that_the_launch_sets_stands(analyzed: Any) -> None:
    length, notes = analyzed("--epochs=1e11 --max-steps 500")

    assert length == 500
    assert any(note.startswith("--epochs is 1e") for note in notes)
