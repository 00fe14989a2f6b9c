"""Which of several things that a program reads names its training data, and its validation data."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedmate.agent.fields.dataset_names import dataset_name
from schedmate.agent.static import extract

_LOOP = """
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for batch in data:
        model(batch).mean().backward()
        optimizer.step()
"""
_CLASS = """
import argparse
import pandas
import torch
parser = argparse.ArgumentParser()
parser.add_argument('--data_dir')
args = parser.parse_args()
class GlacierDataset(torch.utils.data.Dataset):
    def __init__(self, name):
        self.name = name
class GlacierIterator(torch.utils.data.IterableDataset):
    def __init__(self, rows):
        self.rows = rows
class Lasot(torch.utils.data.Dataset):
    def __init__(self, split):
        self.rows = pandas.read_csv('lists/lasot_train_split.txt')
"""


def _found(folder: Path, code: str, field: str, flags: str = "") -> object:
    (folder / "main.py").write_text(_CLASS + code + _LOOP)
    return extract(folder, f"python main.py {flags}").metadata.get(f"dataset_config.{field}")


@pytest.mark.parametrize(
    ("code", "flags", "name"),
    [
        # a name that only the code knows goes behind the class, as it did before the class
        # went behind what the launch says
        ("data = GlacierDataset(name='addition')\n", "", "GlacierDataset"),
        ("data = GlacierDataset(name=args.data_dir)\n", "--data_dir /d/esker", "esker"),
        # what hands out a dataset's rows goes behind the dataset
        (
            "class PlainDataset: pass\ndata = GlacierIterator(PlainDataset())\n",
            "",
            "PlainDataset",
        ),
        # a list of the samples of a part goes behind the class that reads it
        ("data = Lasot('all')\n", "", "Lasot"),
    ],
)
def test_what_names_the_data_best(tmp_path: Path, code: str, flags: str, name: str) -> None:
    assert _found(tmp_path, code, "train", flags) == name


def test_edges_that_are_held_out(tmp_path: Path) -> None:
    split = "data = GlacierDataset(name='addition')\nedges, {} = split(data)\n"
    assert _found(tmp_path, split.format("val_edges"), "valid")
    assert _found(tmp_path, split.format("more_edges"), "valid") is None


def test_a_folder_of_training_data_names_nothing() -> None:
    assert dataset_name("./data/TrainDataset", path=True) is None
