"""Batch size, image size, optimiser, parallelism and nodes, told from what is named alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from schedmate.agent.static import extract

_READ = "import yaml\nconfig = yaml.safe_load(open('x.yaml'))\n"


def _told(tmp_path: Path, config: str, field: str, code: str = _READ) -> Any:
    (tmp_path / "x.yaml").write_text(config)
    (tmp_path / "main.py").write_text(code)
    return extract(tmp_path, "python main.py").metadata.get(f"training_config.{field}")


@pytest.mark.parametrize(
    ("config", "size"),
    [
        ("input_size: 224", 224),
        ("encoder: {input_size: 768}", None),
        ("resolution: 9.0", None),
        ("planes: {resolution: [64, 64, 64, 25]}", None),
        ("crop_size: [480, 640]", 640),
        ("unet: {image_size: 32}\ndata: {image_size: 256}", 256),
    ],
)
def test_the_side_of_a_picture(tmp_path: Path, config: str, size: int | None) -> None:
    assert _told(tmp_path, config, "image_size") == size


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ("optimizer: 'adam,lr=0.0001'", "adam"),
        ("optimizer: torch.optim.AdamW", "AdamW"),
    ],
)
def test_an_optimiser_without_its_arguments(tmp_path: Path, config: str, name: str) -> None:
    assert _told(tmp_path, config, "optimizer") == name


def test_nodes_of_a_graph_are_no_machines(tmp_path: Path) -> None:
    assert _told(tmp_path, "num_nodes: 325", "num_nodes") is None
    assert _told(tmp_path, "num_nodes: 4\nnum_gpus: 8", "num_nodes") == 4
    assert _told(tmp_path, "nnodes: 4", "num_nodes") == 4
    assert _told(tmp_path, "trainer: {num_nodes: 1, devices: auto}", "num_nodes") == 1
    beside = "model: {num_nodes: 325}\ntrainer: {devices: auto}"
    assert _told(tmp_path, beside, "num_nodes") is None


def test_a_rollout_is_parallel_in_its_own_way(tmp_path: Path) -> None:
    rollout = "rollout: {tensor_model_parallel_size: 2}\n"
    assert _told(tmp_path, rollout, "tensor_parallel") is None
    actor = "actor: {tensor_model_parallel_size: 4}\n"
    assert _told(tmp_path, rollout + actor, "tensor_parallel") == 4


@pytest.mark.parametrize(
    ("loader", "size"),
    [
        ("loader = DataLoader(rows, batch_size=24)", 24),
        ("loader = DataLoader(rows, batch_size=1, shuffle=True)", 1),
        ("test_loader = DataLoader(rows, batch_size=24)", None),
        ("loader = DataLoader(rows, batch_size=1, shuffle=False)", None),
        ("train_loader = DataLoader(rows, batch_size=1)", 1),
        ("def evaluate():\n    loader = DataLoader(rows, batch_size=24)\nevaluate()", None),
    ],
)
def test_a_loader_for_evaluation_tells_no_batch_size(
    tmp_path: Path, loader: str, size: int | None
) -> None:
    code = f"from torch.utils.data import DataLoader\nrows = open('x.yaml')\n{loader}\n"
    code += "import trainlib\ntrainlib.fit()\n"
    assert _told(tmp_path, "x: 1", "batch_size", code) == size


@pytest.mark.parametrize(("depth", "layers"), [("0.33", None), ("24", 24), ("1e400", None)])
def test_a_factor_is_no_count_of_layers(tmp_path: Path, depth: str, layers: int | None) -> None:
    (tmp_path / "x.yaml").write_text(f"model: {{num_layers: {depth}}}")
    (tmp_path / "main.py").write_text(_READ)
    assert extract(tmp_path, "python main.py").metadata.get("model_config.n_layer") == layers


_OPTIONS = """
import argparse, torch
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type={kind}, default=0.1)
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--optimizer", default="")
args = parser.parse_args()
net, head = torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)
"""


def _pair(tmp_path: Path, code: str, flags: str = "", kind: str = "float") -> tuple[Any, Any]:
    (tmp_path / "main.py").write_text(_OPTIONS.format(kind=kind) + code)
    found = extract(tmp_path, f"python main.py {flags}").metadata
    return found.get("training_config.optimizer"), found.get("training_config.lr")


_ADAM = "torch.optim.Adam(net.parameters(), lr={})\n"
_SGD = "torch.optim.SGD(head.parameters(), lr={})\n"


@pytest.mark.parametrize(
    ("code", "flags", "pair"),
    [
        (_ADAM.format(0.3) + _SGD.format(0.5), "", ("Adam", 0.3)),
        (_ADAM.format("lookup()") + _SGD.format("args.lr"), "--lr 0.5", ("Adam", None)),
        (_ADAM.format(0.3) + _SGD.format("args.lr"), "--lr 0.5", ("Adam", 0.3)),
        (_ADAM.format("args.lr") + _SGD.format(0.5), "--lr 0.2", ("Adam", 0.2)),
        (_ADAM.format(0.3) + _SGD.format(0.5), "--optimizer sgd", ("sgd", 0.5)),
        (
            f"if lookup():\n    {_ADAM.format(0.3)}{_SGD.format(0.5)}",
            "",
            ("SGD", 0.5),
        ),
        # two of one kind are one pair, whichever of them has the rate that is stated
        (
            _ADAM.format(0.3) + _ADAM.format("args.lr"),
            "--lr 0.2",
            ("Adam", 0.2),
        ),
    ],
)
def test_the_rate_is_that_of_the_optimiser_that_is_named(
    tmp_path: Path, code: str, flags: str, pair: tuple[str, float | None]
) -> None:
    assert _pair(tmp_path, code, flags) == pair


@pytest.mark.parametrize("kind", ["float", "str"])
@pytest.mark.parametrize("rate", ["abc", "-1", "nan", "0"])
def test_a_rate_that_is_none_is_not_replaced_by_another(
    tmp_path: Path, kind: str, rate: str
) -> None:
    code = _ADAM.format("float(args.lr)") + _SGD.format(0.5)
    code += "def run(lr): print(lr)\nrun(lr=0.7)\n"
    assert _pair(tmp_path, code, f"--lr={rate}", kind) == ("Adam", None)


@pytest.mark.parametrize("size", ["many", "0.5"])
def test_a_batch_size_that_is_none_is_not_replaced_by_that_of_a_loader(
    tmp_path: Path, size: str
) -> None:
    code = "torch.utils.data.DataLoader(open('x'), batch_size=4)\n"
    (tmp_path / "main.py").write_text(_OPTIONS.format(kind="float") + code)
    found = extract(tmp_path, f"python main.py --batch-size {size}").metadata
    assert found.get("training_config.batch_size") is None
