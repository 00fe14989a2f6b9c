"""Names of datasets in paths, classes and the calls of libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedmate.agent.fields.words import class_dataset, from_path, library_dataset
from schedmate.agent.static import extract

_LOOP = """
import torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for batch in {data}:
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/data/coco/train2017", "coco"),
        ("/srv/NCF/ml-1m.train.rating", "ml-1m"),
        ("data/rt-polarity.pos", "rt-polarity"),
        ("fcu.xyz", "fcu"),
        ("../Market/pytorch", "Market"),
        ("./training/fill50k/prompt.json", "fill50k"),
        ("/home/someone/data/prompt.json", "prompt"),
        ("../MNIST_data", "MNIST"),
        ("filelists/ljs_audio_text_train_filelist.txt", "ljs_audio_text"),
        ("data/squad/train-v2.0.json", "squad"),
        ("configs/an4_train_manifest.csv", "an4"),
        ("./buffer", None),
        ("/path/to/shards/shard-{0000..0999}.tar", None),
    ],
)
def test_a_path_names_its_dataset(path: str, name: str | None) -> None:
    assert from_path(path) == name


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        ("COCODataSet", "COCO"),
        ("LibriSpeechAsrDataModule", "LibriSpeech"),
        ("OurCIFAR10Dataset", "CIFAR10"),
        ("PytTrain", None),
        ("DUTSDataset", "DUTS"),
    ],
)
def test_a_class_names_its_dataset(cls: str, name: str | None) -> None:
    assert class_dataset(cls) == name


def test_a_librarys_class_or_function_names_its_dataset() -> None:
    assert library_dataset("CoraGraphDataset") == "Cora"
    assert library_dataset("fetch_california_housing") == "california_housing"
    assert library_dataset("CIFAR10DataModule") == "CIFAR10"


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("from torch_geometric.datasets import WebKB\ndata = WebKB('d', name='Texas')", "Texas"),
        ("import dgl\ndata = dgl.data.CoraGraphDataset()", "Cora"),
        ("from sklearn.datasets import fetch_openml\ndata = fetch_openml('adult')", "adult"),
        ("from sklearn.datasets import load_iris\ndata = load_iris()", "iris"),
        ("from wilds import get_dataset\ndata = get_dataset(dataset='iwildcam')", "iwildcam"),
        ("from monai.apps import DecathlonDataset as D\ndata = D('d', 'Task09_Spleen', 'training')",
         "Task09_Spleen"),
        ("from tdc.single_pred import ADME\ndata = ADME(name='Caco2_Wang')", "Caco2_Wang"),
        ("import deepchem as dc\ndata = dc.molnet.load_tox21()", "tox21"),
        ("from gluonts.dataset.repository import get_dataset\ndata = get_dataset('electricity')",
         "electricity"),
        ("from surprise import Dataset\ndata = Dataset.load_builtin('ml-100k')", "ml-100k"),
        ("from dm_control import suite\ndata = suite.load('cheetah', 'run')", "cheetah_run"),
        ("from transformers import TextDataset\ndata = TextDataset(None, 'wiki.train.raw.txt')",
         "wiki"),
        ("import ir_datasets\ndata = ir_datasets.load('msmarco-passage/train')",
         "msmarco-passage/train"),
    ],
)  # fmt: skip
def test_a_librarys_call_names_the_dataset(tmp_path: Path, code: str, name: str) -> None:
    (tmp_path / "main.py").write_text(code + "\n" + _LOOP.format(data="data"))
    assert extract(tmp_path, "python main.py").metadata.get("dataset_config.train") == name


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("PPO('MlpPolicy', 'CartPole-v1').learn(10_000)", "CartPole-v1"),
        ("PPO('MlpPolicy', make_vec_env('Pendulum-v1', n_envs=4)).learn(10_000)", "Pendulum-v1"),
    ],
)
def test_an_agents_environment_is_its_dataset(tmp_path: Path, code: str, name: str) -> None:
    imports = (
        "from stable_baselines3 import PPO\n"
        "from stable_baselines3.common.env_util import make_vec_env\n"
    )
    (tmp_path / "main.py").write_text(imports + code + "\n")
    assert extract(tmp_path, "python main.py").metadata.get("dataset_config.train") == name


def test_a_place_may_be_named_for_its_dataset(tmp_path: Path) -> None:
    options = "".join(
        f"parser.add_argument('--{name}_dir', default='/path/to/')\n" for name in ("voc", "coco")
    )
    (tmp_path / "main.py").write_text(
        f"import argparse\nparser = argparse.ArgumentParser()\n{options}"
        f"args = parser.parse_args()\n{_LOOP.format(data='args.voc_dir')}"
    )
    named = extract(tmp_path, "python main.py --voc_dir /mnt/disk1/")
    assert named.metadata.get("dataset_config.train") == "voc"
    assert extract(tmp_path, "python main.py").metadata.get("dataset_config.train") is None


def test_a_folder_named_for_the_model_names_no_dataset(tmp_path: Path) -> None:
    code = (
        "import argparse\nimport os\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--model', default='tacotron')\nargs = parser.parse_args()\n"
        "lines = open(os.path.expanduser('~/tacotron/training/train.txt'))\n"
    )
    (tmp_path / "main.py").write_text(code + _LOOP.format(data="lines"))
    found = extract(tmp_path, "python main.py").metadata
    assert found.get("model_config.model_name") == "tacotron"
    assert found.get("dataset_config.train") != "tacotron"
