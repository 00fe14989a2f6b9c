"""`schedmate analyze` on repositories whose obvious answer is the wrong one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_runner import Cli

REPOS = Path(__file__).parent / "fixtures" / "repos"


@pytest.mark.parametrize(
    ("repo", "field", "answer", "says"),
    [
        ("command_line/rate_scaled_by_devices", "lr", 0.0015625, "args.lr * 0.5 * world_size"),
        ("command_line/rate_scaled_by_an_unknown", "lr", None, "args.lr * 0.5 * world_size"),
        ("models/two_optimisers", "optimizer", "Muon", "Muon (also AdamW (train.py:28))"),
        ("configurations/key_that_nobody_reads", "image_size", 512, "flowers.yaml:5"),
        ("configurations/section_for_each_model", "batch_size", 512, "default at train.py:14"),
        ("data/loader_factory", "batch_size", 64, "train.py"),
        ("launchers/configuration_beside_the_repository", "lr", 0.3, "make_config.py"),
    ],
)
def test_the_answer_and_what_is_said_of_it(
    cli: Cli, repo: str, field: str, answer: Any, says: str
) -> None:
    command = yaml.safe_load((REPOS / repo / "case.yaml").read_text())["command"]
    output = cli("analyze", str(REPOS / repo), "--command", command, "--json")
    assert output.code == 0, output.err
    parsed = json.loads(output.out)
    assert parsed["metadata"]["training_config"][field] == answer
    assert str(REPOS) not in output.out.replace(str(REPOS / repo), "")
    text = cli("analyze", str(REPOS / repo), "--command", command).out
    row = next(line for line in text.splitlines() if f"training_config.{field} " in line)
    assert says in row
