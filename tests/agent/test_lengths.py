"""How long training goes on, told by its loops."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedmate.agent.static import extract

_HEAD = """
import argparse
import torch
parser = argparse.ArgumentParser()
parser.add_argument('--n_epoch', type=int, default=10)
parser.add_argument('--train_steps', type=int, default=600)
parser.add_argument('--data', default='data/mnist.npy')
args = parser.parse_args()
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(batch):
    loss = model(batch).mean()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("loop", "length"),
    [
        ("for step in range(args.n_epoch):\n    train(args.data)", (10, "epoch")),
        ("for e in range(int('7')):\n    train(args.data)", (7, "epoch")),
        ("for step in range(args.train_steps + 1):\n    train(args.data)", (600, "step")),
        (
            (
                "rows = []\nfor line in open(args.data):\n    rows.append(line)\n"
                "total = args.n_epoch * len(rows)\nfor i in range(total):\n    train(rows[i])"
            ),
            (10, "epoch"),
        ),
        (
            (
                "for epoch in range(args.n_epoch):\n    train(args.data)\n"
                "for n_iter in range(3):\n    print(n_iter)"
            ),
            (10, "epoch"),
        ),
    ],
)
def test_a_loop_tells_the_length(tmp_path: Path, loop: str, length: tuple[int, str]) -> None:
    (tmp_path / "main.py").write_text(f"{_HEAD}{loop}\n")
    found = extract(tmp_path, "python main.py").metadata
    assert (found.get("training_config.iters"), found.get("training_config.iter_type")) == length
