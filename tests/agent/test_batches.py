"""Which batch a batch size is, and the other one beside it."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedmate.agent.static import extract

_CODE = """import argparse, os, torch
parser = argparse.ArgumentParser()
parser.add_argument("--batch_size", type=int, default=32)
parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
args = parser.parse_args()
world = int(os.environ.get("WORLD_SIZE", 1))
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loader = torch.utils.data.DataLoader(open("x"), batch_size=args.batch_size)
for epoch in range(10):
    for batch in loader:
        model(batch).sum().backward()
        optimizer.step()
"""
_SHARED = _CODE.replace("=args.batch_size)", "=args.batch_size // world)")
_MANY = "torchrun --nproc_per_node=8 train.py --batch_size 16"


@pytest.mark.parametrize(
    ("code", "command", "kind", "sizes"),
    [
        (_CODE, _MANY, "per device", {"global": 128}),
        (_SHARED, _MANY, "global", {"per_device": 2}),
        (
            _CODE,
            f"{_MANY} --gradient_accumulation_steps 4",
            "per device",
            {"global": 512},
        ),
        (
            _CODE,
            "torchrun --nproc_per_node=1 train.py --gradient_accumulation_steps 4",
            "per device",
            {"global": 128},
        ),
        (_CODE, "torchrun --nproc_per_node=1 train.py", "per device and global", {}),
        # several devices that one process may share out among itself
        (_CODE, "CUDA_VISIBLE_DEVICES=0,1 python train.py", None, {}),
        (_CODE, "python train.py", None, {}),
    ],
)
def test_the_batch_of_a_device_and_of_all(
    tmp_path: Path, code: str, command: str, kind: str | None, sizes: dict[str, int]
) -> None:
    (tmp_path / "train.py").write_text(code)
    metadata = extract(tmp_path, command).metadata
    assert metadata.evidence["training_config.batch_size"].note == kind
    for name in ("global", "per_device"):
        assert metadata.get(f"training_config.{name}_batch_size") == sizes.get(name)


def test_the_other_batch_says_how_it_was_computed(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(_CODE)
    metadata = extract(tmp_path, f"{_MANY} --gradient_accumulation_steps 4").metadata
    proof = metadata.evidence["training_config.global_batch_size"]
    assert proof.where() == (
        "--batch_size on the command line "
        "(16 per device x 4 accumulation steps x 8 data-parallel devices)"
    )
