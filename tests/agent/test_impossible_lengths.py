"""A length that no training can have is said to be wrong, and no other takes its place."""

from __future__ import annotations

import json
import re
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


@pytest.mark.parametrize("text", ["1e11", "-5", "nan", "1e308", "inf"])
def test_a_number_that_no_training_runs_for_gives_no_length(analyzed: Any, text: str) -> None:
    length, notes = analyzed(f"--epochs={text}")

    assert length is None
    (said,) = notes
    assert re.match(
        r"--epochs is '.+', for which no training can run|.* it would end at once", said
    )


def test_a_word_of_the_programs_own_is_not_called_impossible(analyzed: Any) -> None:
    length, notes = analyzed("--epochs=chinchilla")

    assert length is None
    (said,) = notes
    refused = "train.py takes a whole number for --epochs, not 'chinchilla': it would end at once"
    unknown = "--epochs is 'chinchilla'; how many epochs that stands for is not known"
    assert said == refused or said.startswith(unknown)


@pytest.mark.parametrize("text", ["1", "20000"])
def test_a_length_that_can_be_is_not_spoken_of(analyzed: Any, text: str) -> None:
    assert analyzed(f"--epochs={text}") == (int(text), [])


def test_another_length_that_the_launch_sets_stands(analyzed: Any) -> None:
    length, notes = analyzed("--epochs=1e11 --max-steps 500")

    assert length == 500
    assert len(notes) == 1


@pytest.mark.parametrize("analyzed", ["int"], indirect=True)
@pytest.mark.parametrize("text", ["0", "-1"])
def test_a_loop_that_ends_at_once_has_no_length(analyzed: Any, text: str) -> None:
    length, notes = analyzed(f"--epochs={text} --max-steps 500")

    assert length is None
    assert notes == [
        f"--epochs is '{text}', at which the training loop (train.py:10) ends before its first step"
    ]


_LOOPS = {
    "while step < args.max_steps": True,
    "while step < args.max_steps and not done()": True,
    "while args.max_steps < 0 or step < args.max_steps": False,
    "for epoch in range(args.epochs)": False,
}


@pytest.mark.parametrize("loop", _LOOPS)
def test_a_limit_of_minus_one(cli: Cli, tmp_path: Path, loop: str) -> None:
    """It ends a loop that goes on below it, and elsewhere switches the limit off."""
    start = TRAIN.format(kind="int").partition("for epoch")[0]
    body = "    model(torch.rand(8, 4)).sum().backward()\n    optimizer.step()\n    step += 1\n"
    leave = "    if 0 < args.max_steps <= step:\n        break\n"
    (tmp_path / "train.py").write_text(f"{start}step = 0\n{loop}:\n{body}{leave}")

    command = "python train.py --max-steps -1"
    document = json.loads(cli("analyze", str(tmp_path), "--json", "--command", command).out)
    ended = [note for note in document["warnings"] if "ends before its first step" in note]
    assert bool(ended) == _LOOPS[loop]
    if ended:
        assert document["metadata"]["training_config"].get("iters") is None
