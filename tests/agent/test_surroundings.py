"""What lines stand in, what ends a training loop, and that both make answers surer or less so."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedmate.agent.fields.confidence import BATCH, GPUS, ITERS, RATE, enclosing_blocks
from schedmate.agent.static import extract
from schedmate.jobs import LaunchConfig

PROGRAM = """\
import argparse
import torch
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=700)
args = parser.parse_args()
model = torch.nn.Linear(4, 2)

def main():
    {rate}
    optimizer = torch.optim.SGD(model.parameters(), lr=rate)
    for step in range({bound}):
        loss = model()
        loss.backward()
        optimizer.step()

main()
"""


def sure(folder: Path, rate: str = "rate = 0.2", bound: str = "args.steps") -> dict[str, float]:
    (folder / "train.py").write_text(PROGRAM.format(rate=rate, bound=bound))
    found = extract(folder, "python train.py", LaunchConfig(gpus=2)).metadata
    return {field: proof.confidence for field, proof in found.evidence.items()}


def test_the_blocks_that_a_line_stands_in_are_told_innermost_first() -> None:
    text = ["class A:", "    def run(self):", "        if x:", "            y = (", "  1,", ")"]
    assert enclosing_blocks(text, 4) == [("if", " x:"), ("def", " run(self):"), ("class", " A:")]
    assert enclosing_blocks(text, 1) == []
    assert enclosing_blocks(text, 0) == enclosing_blocks(text, 99) == []


@given(st.lists(st.text(" \tiferlswhd:()\n", max_size=12), max_size=12), st.integers(-2, 14))
def test_any_text_has_fewer_blocks_around_a_line_than_lines_above_it(
    text: list[str], line: int
) -> None:
    assert len(enclosing_blocks(text, line)) <= max(0, line - 1)


def test_a_length_that_the_training_loop_counts_up_to_is_surer(tmp_path: Path) -> None:
    assert sure(tmp_path)[ITERS] > sure(tmp_path, bound="len(open('x').readlines())")[ITERS]


def test_a_rate_in_a_branch_is_less_sure(tmp_path: Path) -> None:
    branch = "if torch.cuda.is_available():\n        rate = 0.2\n    else:\n        rate = 0.2"
    assert sure(tmp_path, branch)[RATE] < sure(tmp_path)[RATE]


def test_every_answer_has_the_fitted_confidence_and_none_is_certain(tmp_path: Path) -> None:
    found = sure(tmp_path)
    assert {RATE, GPUS, ITERS} <= found.keys()
    assert all(0.05 <= share < 1 for share in found.values())


def test_a_batch_that_is_computed_is_no_surer_than_the_one_it_follows_from(tmp_path: Path) -> None:
    source = PROGRAM.format(rate="rate = 0.2", bound="args.steps").replace(
        "--steps", "--batch_size"
    )
    loader = "loader = torch.utils.data.DataLoader([1], batch_size=args.batch_size)\n"
    source = source.replace("args.steps", "900").replace("def main", f"{loader}def main")
    (tmp_path / "train.py").write_text(source)
    command = "torchrun --nproc_per_node 2 train.py --batch_size 8"
    proofs = extract(tmp_path, command, LaunchConfig(gpus=2)).metadata.evidence
    whole = proofs["training_config.global_batch_size"]
    assert whole.value == 16
    assert whole.confidence <= proofs[BATCH].confidence


@pytest.mark.parametrize("number", ["2", "4"])
def test_gpus_of_the_launch_are_sure(tmp_path: Path, number: str) -> None:
    (tmp_path / "train.py").write_text(PROGRAM.format(rate="rate = 0.2", bound="args.steps"))
    found = extract(tmp_path, "python train.py", LaunchConfig(gpus=int(number))).metadata
    assert found.evidence[GPUS].confidence > 0.7
