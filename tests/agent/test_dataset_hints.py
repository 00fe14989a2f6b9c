"""Datasets that only the launch, a file's name or the README names."""

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


def _train(folder: Path, command: str, readme: str = "", name: str = "main.py") -> object:
    repo = folder / "prot5x"
    repo.mkdir()
    (repo / name).write_text(_PROGRAM)
    if readme:
        (repo / "README.md").write_text(readme)
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


_README = """# A model

Pretrained on ImageNet.

## Training on speech

We train on the [FooBar2020](http://x.org) dataset. Get FooBar2020 first.

```bash
# ## not a heading
python main.py --dump-root data
```

## Results

MNIST works, too: MNIST, MNIST.
"""


@pytest.mark.parametrize(
    ("readme", "name"),
    [
        (_README, "FooBar2020"),
        ("# A model\n\n## Data\n\nGet CIFAR-10 here.\n", "CIFAR-10"),
        ("# A model\n\n## Data\n\nGet CIFAR-10 or SVHN here.\n", None),
        ("# GANs on CelebA\n\nNice.\n", "CelebA"),
        ("# A model\n\n## Data\n\nImageNet pretrained weights are needed.\n", None),
        ("# A model of the weather\n\nNice.\n", None),
        ("# A model\n\n## Data\n\nGet the ProT5X dataset.\n", None),
        ("# A model\n\n## Data\n\n```\ndata\nImageNet/  # scripts\n```\n", None),
    ],
)
def test_the_readme_names_it(tmp_path: Path, readme: str, name: str | None) -> None:
    assert _train(tmp_path, "python main.py --dump-root data", readme) == name


def test_what_the_code_says_goes_before_the_readme(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        "from torchvision import datasets\nimport trainlib\ntrainlib.fit(datasets.MNIST('data'))\n"
    )
    (tmp_path / "README.md").write_text(_README)
    found = extract(tmp_path, "python main.py").metadata
    assert found.get("dataset_config.train") == "MNIST"


@pytest.mark.parametrize(
    ("links", "name"),
    [
        (["acme/climb-400b"], "acme/climb-400b"),
        (["acme/climb-400b", "acme/other"], None),
        ([], None),
    ],
)
def test_the_one_address_in_the_source_names_it(
    tmp_path: Path, links: list[str], name: str | None
) -> None:
    lines = [f"URL = 'https://huggingface.co/datasets/{link}/resolve/main'" for link in links]
    (tmp_path / "shards.py").write_text("\n".join(lines) + "\n")
    (tmp_path / "main.py").write_text(f"import shards\n{_PROGRAM}")
    found = extract(tmp_path, "python main.py").metadata
    assert found.get("dataset_config.train") == name
    if name:
        assert found.evidence["dataset_config.train"].file == "shards.py"
        (tmp_path / "shards.py").rename(tmp_path / "testing_utils.py")
        (tmp_path / "main.py").write_text(f"import testing_utils\n{_PROGRAM}")
        found = extract(tmp_path, "python main.py").metadata
        assert found.get("dataset_config.train") is None  # data of tests


def test_the_programs_file_is_named_for_it(tmp_path: Path) -> None:
    assert _train(tmp_path, "python train_mnist.py", name="train_mnist.py") == "mnist"


def test_the_recipes_folder_is_named_for_it(tmp_path: Path) -> None:
    recipe = tmp_path / "egs" / "ljspeech" / "voc1"
    recipe.mkdir(parents=True)
    (tmp_path / "main.py").write_text(_PROGRAM)
    found = extract(tmp_path, "cd egs/ljspeech/voc1 && python ../../../main.py").metadata
    assert found.get("dataset_config.train") == "ljspeech"
