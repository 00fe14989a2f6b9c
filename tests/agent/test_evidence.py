"""Evidence is something that a reader finds: a line, a flag as written, or a named default."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from schedmate.agent.fields.candidates import Lines, line_states
from schedmate.agent.static import extract
from schedmate.agent.values import Place
from schedmate.jobs import Evidence, LaunchConfig

REPOS = Path(__file__).parent.parent / "fixtures" / "repos"
CASES = sorted(path.parent for path in REPOS.glob("*/*/case.yaml"))


def _problem(proof: Evidence, root: Path, command: str) -> str | None:
    """What a reader who looks the evidence up would miss."""
    if proof.file is None:
        match proof.source:
            case "command":
                return (
                    None if _squeezed(proof.text or "?") in _squeezed(command) else "no such flag"
                )
            case "library":
                return None if re.search(r"\w[ .]-*\w", proof.text or "") else "no named default"
            case "derived":
                return None if re.fullmatch(r"from \w+ .+", proof.note or "") else "from nothing"
            case "launch" | "environment":
                return None if proof.text else "nothing named"
            case _:
                return "no file"
    path = root / proof.file
    if not path.is_file():
        return "no such file"
    lines = path.read_text(errors="replace").splitlines()
    if proof.line is None or proof.line > len(lines):
        return "no such line"
    explained = proof.formula or proof.note or line_states(lines[proof.line - 1], proof.value)
    return None if explained else "the line does not state it"


def _squeezed(text: str) -> str:
    """A command without quotes and blanks."""
    return re.sub(r"[\s'\"\\]", "", text)


@pytest.mark.parametrize("root", [pytest.param(root, id=root.name) for root in CASES])
def test_what_is_cited_is_there(root: Path) -> None:
    case = yaml.safe_load((root / "case.yaml").read_text())
    found = extract(root, case["command"], LaunchConfig(**case.get("launch", {})))
    problems = {
        field: (problem, proof.where())
        for field, proof in found.metadata.evidence.items()
        if (problem := _problem(proof, root, case["command"])) is not None
    }
    assert not problems


_TRAIN = """import argparse, os, torch
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.001)
parser.add_argument("--epochs", type=int, default=4)
args = parser.parse_args()
world = int(os.environ["WORLD_SIZE"])
rate = args.lr * world
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=rate)
for epoch in range(args.epochs):
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
"""


def _proof(tmp_path: Path, command: str, field: str, code: str = _TRAIN, **launch: Any) -> Evidence:
    (tmp_path / "train.py").write_text(code)
    found = extract(tmp_path, command, LaunchConfig(**launch))
    return found.metadata.evidence[f"training_config.{field}"]


def test_a_rate_times_the_processes_is_not_said_by_the_launcher(tmp_path: Path) -> None:
    code = _TRAIN.replace('parser.add_argument("--lr", type=float, default=0.001)\n', "")
    code = code.replace("args.lr *", "0.25 *")
    proof = _proof(tmp_path, "torchrun --nproc_per_node 8 train.py", "lr", code)
    assert proof.value == 2.0
    assert proof.where() == "train.py:6 (rate = 0.25 * world)"


def test_processes_of_several_nodes_are_multiplied(tmp_path: Path) -> None:
    command = "torchrun --nnodes=2 --nproc_per_node 8 train.py"
    proof = _proof(tmp_path, command, "num_gpus")
    assert (proof.value, proof.text) == (16, "--nproc_per_node 8")
    assert proof.formula == "2 nodes (--nnodes=2) x 8 procs per node (--nproc_per_node 8)"
    assert _proof(tmp_path, "torchrun --nproc_per_node=8 train.py", "num_gpus").formula is None


def test_a_default_of_a_launcher_is_named(tmp_path: Path) -> None:
    proof = _proof(tmp_path, "torchrun --nproc_per_node 8 train.py", "num_nodes")
    assert proof.where() == "torchrun --nnodes default"


def test_what_the_scheduler_says_is_named(tmp_path: Path) -> None:
    proof = _proof(tmp_path, "python train.py", "num_gpus", gpus=4)
    assert proof.where() == "gpus=4 of the launch"


def test_a_unit_is_told_by_what_it_counts(tmp_path: Path) -> None:
    proof = _proof(tmp_path, "python train.py --epochs 9", "iter_type")
    assert (proof.value, proof.note) == ("epoch", "the unit of training_config.iters")


def test_lines_outside_the_repository_are_not_cited(tmp_path: Path) -> None:
    secret = tmp_path / "secret.yaml"
    secret.write_text("a line of somebody else\n")
    root = tmp_path / "repo"
    root.mkdir()
    (root / "own.yaml").write_text("lr: 0.1\n")
    (root / "link.yaml").symlink_to(secret)
    os.mkfifo(root / "pipe.yaml")
    lines = Lines(root)
    assert lines.at(Place("own.yaml", 1)) == "lr: 0.1"
    for file in ("link.yaml", "../secret.yaml", str(secret), "pipe.yaml", "a\0b"):
        assert lines.at(Place(file, 1)) is None
