"""What was read of a job whose command or program was not followed to its end."""

from __future__ import annotations

from pathlib import Path

from schedmate.agent.static import extract

_TRAIN = """import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=3)
args = parser.parse_args()
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(args.epochs):
    model(torch.randn(2, 4)).sum().backward()
    optimizer.step()
"""
_SCRIPT = "python train.py --epochs 9\n"
_LONG = "true\n" * 21_000
"""More commands than are followed."""


def test_a_script_that_is_too_long_to_be_followed_lowers_what_it_could_change(
    tmp_path: Path,
) -> None:
    (tmp_path / "train.py").write_text(_TRAIN)
    (tmp_path / "run.sh").write_text(_SCRIPT + _LONG + "python train.py --epochs 90\n")
    (tmp_path / "short.sh").write_text(_SCRIPT)
    whole, part = (extract(tmp_path, f"bash {name}") for name in ("short.sh", "run.sh"))
    assert (whole.cut_off, part.cut_off) == (False, True)
    sure, doubted = (
        found.metadata.evidence["training_config.iters"].confidence for found in (whole, part)
    )
    assert sure > 0.8 > doubted


def test_the_same_input_gives_the_same_answer_however_often(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_TRAIN)
    answers = [extract(tmp_path, "python train.py").metadata for _ in range(3)]
    assert answers[0] == answers[1] == answers[2]
