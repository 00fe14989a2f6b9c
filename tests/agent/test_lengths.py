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
        (("def update_params(batch):\n    return model(batch)\n"
         "for i_iter in range(args.train_steps):\n    update_params(args.data)"), (600, "step")),
        (("for epoch in range(4000):\n    gathered = 0\n    while gathered < args.train_steps:\n"
         "        gathered += len(args.data)\n    train(args.data)"), (4000, "epoch")),
        (
            (
                "def fit(n_epoch):\n    for epoch in range(n_epoch):\n        train(args.data)\n"
                "def tune(n_epoch):\n    for epoch in range(n_epoch):\n        train(args.data)\n"
                "fit(1)\ntune(500)"
            ),
            (500, "epoch"),
        ),
        (("print \"%i of %i rows\" % (\n    1,\n    2,\n)\n"
         "for epoch in xrange(100):\n    train(args.data)"), (100, "epoch")),
    ],
)  # fmt: skip
def test_a_loop_tells_the_length(tmp_path: Path, loop: str, length: tuple[int, str]) -> None:
    (tmp_path / "main.py").write_text(f"{_HEAD}{loop}\n")
    found = extract(tmp_path, "python main.py").metadata
    assert (found.get("training_config.iters"), found.get("training_config.iter_type")) == length


def test_a_few_steps_inside_an_endless_loop_are_no_length(tmp_path: Path) -> None:
    flag = "parser.add_argument('--num_steps', type=int, default=20)\n"
    head = _HEAD.replace("parser.add_argument('--n_epoch', type=int, default=10)\n", flag)
    head = head.replace("parser.add_argument('--train_steps', type=int, default=600)\n", "")
    loop = "while 1:\n    for step in range(args.num_steps):\n        train(args.data)\n"
    (tmp_path / "main.py").write_text(head + loop)
    found = extract(tmp_path, "python main.py").metadata
    assert found.get("training_config.iters") is None
