"""Names of networks that look like those of other things, and what is built around them."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedmate.agent.static import extract

_NETWORKS = """
from torch import nn

class MultiLoss(nn.Module):
    pass

class Points(MultiLoss):
    def __init__(self, norm):
        super().__init__()
        self.norm = norm

class Head(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.project = nn.Linear(net.width, 3)

def make_head(net):
    return Head(net)

class AsymmetricStereo(nn.Module):
    def __init__(self):
        super().__init__()
        self.width = 8
        self.head = make_head(self)
"""
_PROGRAM = """
import torch
from networks import AsymmetricStereo, Points

stereo = AsymmetricStereo()
points = Points("mean")
optimizer = torch.optim.Adam(stereo.parameters())
for epoch in range(3):
    for batch in loader:
        points(stereo(batch)).backward()
        optimizer.step()
"""
_GATHERED = """
import numpy as np
import torch
from networks import AsymmetricStereo

def gather(sizes):
    found = []
    while True:
        stop = np.searchsorted(sizes, 4)
        if stop == 0:
            break
        found.append(np.arange(stop))
    return found

EPOCHS = 7
total_steps = EPOCHS * len([batch[::2] for batch in gather(np.load("sizes.npy"))])
model = AsymmetricStereo()
step = 0
for epoch in range(EPOCHS):
    for batch in loader:
        step += 1
        if step > total_steps:
            break
        model(batch).backward()
"""


def _read(folder: Path, program: str) -> object:
    (folder / "networks.py").write_text(_NETWORKS)
    (folder / "train.py").write_text(program)
    return extract(folder, "python train.py").metadata


def test_a_metric_is_a_word_and_a_part_made_for_the_whole_leaves_it_whole(tmp_path: Path) -> None:
    assert _read(tmp_path, _PROGRAM).get("model_config.model_name") == "AsymmetricStereo"


def test_a_list_made_of_a_gathered_one_is_as_long_as_that(tmp_path: Path) -> None:
    found = _read(tmp_path, _GATHERED)
    assert found.get("training_config.iters") == 7
    assert found.get("training_config.iter_type") == "epoch"


_READS = """
import sys
import yaml
import trainlib
config = yaml.safe_load(open(sys.argv[1]))
trainlib.train(config)
"""


@pytest.mark.parametrize(
    ("config", "name"),
    [
        ("process: [{network: {type: lora}, model: {name_or_path: owner/painter-1}}]",
         "owner/painter-1"),
        ("model_type: wave_diffuser\nmodel: {pretransform: {type: autoencoder}, body: {type: dit}}",
         "wave_diffuser"),
        ("model: {body: {type: dit}}", "dit"),
        ("model_type: SharpModel\nnetwork_g: {type: RRDBNet}", "RRDBNet"),
    ],
)  # fmt: skip
def test_the_whole_goes_before_the_types_of_its_parts(
    tmp_path: Path, config: str, name: str
) -> None:
    (tmp_path / "c.yaml").write_text(config)
    (tmp_path / "train.py").write_text(_READS)
    found = extract(tmp_path, "python train.py c.yaml").metadata
    assert found.get("model_config.model_name") == name


@pytest.mark.parametrize(
    ("role", "trained"),
    [
        ("teacher_model", "student"),
        ("ref_model", "actor"),
        ("reward_model_name", "policy_path"),
        ("text_encoder", "vla_path"),
        ("tokenizer_name", "net"),
    ],
)
def test_what_serves_the_trained_model_is_not_the_model(
    tmp_path: Path, role: str, trained: str
) -> None:
    """Neither the better known name nor the order in which they are loaded matters."""
    (tmp_path / "train.py").write_text(
        f"""
import argparse, torch
from transformers import AutoModel
parser = argparse.ArgumentParser()
parser.add_argument("--{role}")
parser.add_argument("--{trained}")
args = parser.parse_args()
{role} = AutoModel.from_pretrained(args.{role})
model = AutoModel.from_pretrained(args.{trained} or args.{role})
for step in range(9):
    model(1).mean().backward()
"""
    )
    command = f"python train.py --{role} bert-base-uncased"
    assert extract(tmp_path, command).metadata.model.model_name == "bert-base-uncased"
    same = f"{command} --{trained} bert-base-uncased"
    assert extract(tmp_path, same).metadata.model.model_name == "bert-base-uncased"
    command += f" --{trained} org/small-1b"
    assert extract(tmp_path, command).metadata.model.model_name == "org/small-1b"
