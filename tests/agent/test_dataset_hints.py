"""Datasets that only the launch or a file's name names."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedmate.agent.static import extract

_PROGRAM = """
import argparse
import trainlib
parser = argparse.ArgumentParser()
parser.add_argument('--dump-root', default='data')
parser.add_argument('--output', default='out')
parser.add_argument('--resume')
args = parser.parse_args()
trainlib.fit(args.dump_root)
"""


def _train(folder: Path, command: str, name: str = "main.py") -> object:
    repo = folder / "prot5x"
    repo.mkdir()
    (repo / name).write_text(_PROGRAM)
    return extract(repo, command).metadata.get("dataset_config.train")


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ("--dump-root ./feats/LJSpeech-1.1/dump", "LJSpeech-1.1"),
        ("--dump-root ./data/parrots/dump", "parrots"),
        ("--output runs/cifar10_long", "cifar10"),
        ("--resume runs/cifar10.pt", None),
        ("--dump-root ${IMAGENET_DIR}", "IMAGENET"),
        ("--dump-root ${DATA_DIR}", None),
        ("--resume ${IMAGENET_DIR}", None),
        ("", None),
    ],
)
def test_a_flag_of_the_launch_names_it(tmp_path: Path, flags: str, name: str | None) -> None:
    assert _train(tmp_path, f"python main.py {flags}") == name


def test_the_programs_file_is_named_for_it(tmp_path: Path) -> None:
    assert _train(tmp_path, "python train_mnist.py", name="train_mnist.py") == "mnist"


def test_the_recipes_folder_is_named_for_it(tmp_path: Path) -> None:
    recipe = tmp_path / "egs" / "ljspeech" / "voc1"
    recipe.mkdir(parents=True)
    (tmp_path / "main.py").write_text(_PROGRAM)
    found = extract(tmp_path, "cd egs/ljspeech/voc1 && python ../../../main.py").metadata
    assert found.get("dataset_config.train") == "ljspeech"
