"""Names of datasets in paths, classes and the calls of libraries."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

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


def given(tmp_path: Path, path: str) -> str | None:
    """What a program trains on that is given a path of its training data."""
    (tmp_path / "main.py").write_text(
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--train_data')\nargs = parser.parse_args()\n"
        + _LOOP.format(data="args.train_data")
    )
    found = extract(tmp_path, f"python main.py --train_data {shlex.quote(path)}")
    name = found.metadata.get("dataset_config.train")
    assert name is None or isinstance(name, str)
    return name


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
        ("/data/ILSVRC/Data/CLS-LOC/train", "ILSVRC"),
        ("data/gov_report/train-00000-of-00001.parquet", "gov_report"),
        ("s3://bucket/dolma/part-0-00000.npy", "dolma"),
        ("dump/train_nodev/norm", None),
        ("/data/LIDC-IDRI/processed_data/", "LIDC-IDRI"),
        ("data/VariousImages/pickle/train_data.pkl", "VariousImages"),
        ("data/example.train", None),
        ("iwslt2016/segmented/train.de.bpe", "iwslt2016"),
        ("data/ptb/dev.conllx", "ptb"),
        ("data/ptbxl/ptbxl_database.csv", "ptbxl"),
        ("data/llava/llava_v1_5_mix665k.json", "llava_v1_5_mix665k"),
        ("tests/data/regression.csv", "regression"),
        ("DATA/UCF101/tasks/task_0/train.csv", "UCF101"),
        ("/path/to/shards/shard-{0000..0999}.tar", None),
        ("/data/COCO2017/annotations/instances_train2017.json", "COCO2017"),
        ("/data08/VoxCeleb1/veri_test2.txt", "VoxCeleb1"),
        # a file named after the folder of data that it is in
        ("/data/llava/text_files/llava_v1_5_mix665k.json", "llava_v1_5_mix665k"),
        ("data/train/synth/**/data.mdb", "synth"),
        ("./datasets/mrct/*/ct.nii.gz", "mrct"),
        ("results/metadata_1.pkl", None),
        ("/data/kits19/*_x.npy", "kits19"),
        ("data/shapes-*.npz", "shapes"),
        ("/home/someone/workspace/dataset", None),
        ("/Users/someone/data/train.csv", None),
        ("/scratch/someone/project/data", None),
        ("datasets/NER/chemicals/devel.tsv", "chemicals"),
        ("partition/Gaits-B_73_False1.npy", "Gaits-B"),
    ],
)
def test_a_path_names_its_dataset(tmp_path: Path, path: str, name: str | None) -> None:
    found = given(tmp_path, path)
    # at most the path itself where it names nothing
    assert found == name or (name is None and found is not None and path.endswith(found))


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        ("COCODataSet", "COCO"),
        ("LibriSpeechAsrDataModule", "LibriSpeech"),
        ("OurCIFAR10Dataset", "CIFAR10"),
        ("PytTrain", None),
        ("DUTSDataset", "DUTS"),
        ("UnalignedDataset", None),
        ("SEDataset", None),
        ("M4Dataset", "M4"),
    ],
)
def test_a_class_names_its_dataset(tmp_path: Path, cls: str, name: str | None) -> None:
    code = (
        f"from torch.utils.data import Dataset\nclass {cls}(Dataset):\n"
        "    def __init__(self):\n        self.items = []\n"
        f"    def __getitem__(self, index):\n        return self.items[index]\ndata = {cls}()\n"
    )
    (tmp_path / "main.py").write_text(code + _LOOP.format(data="data"))
    assert extract(tmp_path, "python main.py").metadata.get("dataset_config.train") == name


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("from torch_geometric.datasets import WebKB\ndata = WebKB('d', name='Texas')", "Texas"),
        ("import dgl\ndata = dgl.data.CoraGraphDataset()", "Cora"),
        ("from sklearn.datasets import fetch_openml\ndata = fetch_openml('adult')", "adult"),
        ("from sklearn.datasets import load_iris\ndata = load_iris()", "iris"),
        ("from sklearn.datasets import fetch_california_housing as f\ndata = f()",
         "california_housing"),
        ("from pl_bolts.datamodules import CIFAR10DataModule as M\ndata = M()", "CIFAR10"),
        ("from wilds import get_dataset\ndata = get_dataset(dataset='iwildcam')", "iwildcam"),
        ("from monai.apps import DecathlonDataset as D\ndata = D('d', 'Task09_Spleen', 'training')",
         "Task09_Spleen"),
        ("from tdc.single_pred import ADME\ndata = ADME(name='Caco2_Wang')", "Caco2_Wang"),
        ("import deepchem as dc\ndata = dc.molnet.load_tox21()", "tox21"),
        ("from gluonts.dataset.repository import get_dataset\ndata = get_dataset('electricity')",
         "electricity"),
        ("from surprise import Dataset\ndata = Dataset.load_builtin('ml-100k')", "ml-100k"),
        ("import datasets as d\ndata = d.load_dataset('csv', data_files={'train': 'nsmc.txt'})",
         "nsmc"),
        ("from datasets import load_dataset\ndata = load_dataset('json', data_files='train.json')",
         "train.json"),
        ("from dm_control import suite\ndata = suite.load('cheetah', 'run')", "cheetah_run"),
        ("from transformers import TextDataset\ndata = TextDataset(None, 'wiki.train.raw.txt')",
         "wiki"),
        ("from transformers import cached_path as c\ndata = open(c('https://x.org/personachat.json'))",
         "personachat"),
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


def test_a_launched_name_goes_before_what_it_is_built_from(tmp_path: Path) -> None:
    code = (
        "import argparse\nfrom torchvision.datasets import MNIST\n"
        "parser = argparse.ArgumentParser()\nparser.add_argument('--dataset')\n"
        "parser.add_argument('--data_dir')\nargs = parser.parse_args()\n"
        "class ColoredMNIST:\n    def __init__(self, root):\n        self.images = MNIST(root)\n"
        "data = vars()[args.dataset](args.data_dir)\n"
    )
    (tmp_path / "main.py").write_text(code + _LOOP.format(data="data"))
    command = "python main.py --dataset ColoredMNIST --data_dir ./data/MNIST/"
    found = extract(tmp_path, command).metadata
    assert found.get("dataset_config.train") == "ColoredMNIST"


@pytest.mark.parametrize(
    ("made", "name"),
    [
        ("DummyVecEnv([lambda: gym.make('Ant-v4')])", "Ant-v4"),
        ("SubprocVecEnv([make(rank) for rank in range(4)])", "RoadEnv"),
    ],
)
def test_environments_in_parallel_are_made_by_functions(
    tmp_path: Path, made: str, name: str
) -> None:
    code = (
        "import gymnasium as gym\nfrom stable_baselines3 import PPO\n"
        "from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv\n"
        "class RoadEnv(gym.Env):\n    def __init__(self, seed):\n        self.seed = seed\n"
        "def make(rank):\n    def start():\n        return RoadEnv(rank)\n    return start\n"
        f"PPO('MlpPolicy', {made}).learn(10_000)\n"
    )
    (tmp_path / "main.py").write_text(code)
    assert extract(tmp_path, "python main.py").metadata.get("dataset_config.train") == name


def test_the_repositorys_own_folder_names_no_dataset(tmp_path: Path) -> None:
    repo = tmp_path / "medical_entities"
    repo.mkdir()
    code = (
        "import argparse\nimport os\nroot_path = os.getcwd() + os.sep\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--train_file', default=os.path.join(root_path + 'data', 'x.train'))\n"
        "config = {'options': parser.parse_args()}\n"
    )
    (repo / "main.py").write_text(code + _LOOP.format(data="open(config['options'].train_file)"))
    assert extract(repo, "python main.py").metadata.get("dataset_config.train") == "x"


def test_a_record_of_behaviour_is_named_with_its_environment(tmp_path: Path) -> None:
    code = (
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--env', default='hopper')\n"
        "parser.add_argument('--dataset', default='medium')\nargs = parser.parse_args()\n"
    )
    (tmp_path / "main.py").write_text(code + _LOOP.format(data="args.dataset"))
    found = extract(tmp_path, "python main.py --dataset expert").metadata
    assert found.get("dataset_config.train") == "hopper-expert"


def test_a_section_names_its_class_by_import_path(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text(
        "data:\n  params:\n    train:\n      target: ldm.data.CracksTrain\n"
        "    validation:\n      target: ldm.data.CracksVal\n"
    )
    (tmp_path / "main.py").write_text("import trainlib\ntrainlib.run()\n")
    found = extract(tmp_path, "python main.py --config c.yaml").metadata
    assert found.get("dataset_config.train") == "Cracks"
    assert found.get("dataset_config.valid") == "Cracks"


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ("--dataset_type blender --datadir ./data/nerf_synthetic/lego", "lego"),
        ("--dataset_type blender", "blender"),
        ("--dataset KittiDataset", "Kitti"),
        ("--scenario simple_spread", "simple_spread"),
    ],
)
def test_a_setting_names_the_dataset(tmp_path: Path, flags: str, name: str) -> None:
    options = "".join(
        f"parser.add_argument('--{flag}')\n"
        for flag in ("dataset_type", "datadir", "dataset", "scenario")
    )
    (tmp_path / "main.py").write_text(
        f"import argparse\nparser = argparse.ArgumentParser()\n{options}"
        f"args = parser.parse_args()\n{_LOOP.format(data='args')}"
    )
    found = extract(tmp_path, f"python main.py {flags}").metadata
    assert found.get("dataset_config.train") == name


_OPTIONS = (
    "import argparse\nparser = argparse.ArgumentParser()\n"
    "parser.add_argument('--train_dataset_name')\nparser.add_argument('--data_dir')\n"
    "parser.add_argument('--template_dir')\nparser.add_argument('--task')\n"
    "parser.add_argument('--num_envs', default=64)\n"
    "parser.add_argument('--env_name', default='rlwrap')\n"
    "args = parser.parse_args()\n"
)
_KEPT = (  # what the program made of the data for the next time
    "from datasets import load_dataset, load_from_disk\n"
    "data = load_from_disk('./tmp_dataset_audio')\n"
    "if not data:\n    data = load_dataset(args.train_dataset_name)\n"
)
_BESIDE = (
    "from torch.utils.data import Dataset\n"
    "class ProteinDataset(Dataset):\n"
    "    def __init__(self, template_dir, data_dir):\n        self.data_dir = data_dir\n"
    "data = ProteinDataset(template_dir=args.template_dir, data_dir=args.data_dir)\n"
)


@pytest.mark.parametrize(
    ("code", "flags", "name"),
    [
        (_KEPT, "--train_dataset_name owner/speech_en", "owner/speech_en"),
        (_BESIDE, "--template_dir /d/template_mmcifs --data_dir /d/mmcifs", "mmcifs"),
        ("import simulator\ndata = simulator.make(args)\n", "--task Ant", "Ant"),
        ("import simulator\ndata = simulator.make(args)\n", "", "rlwrap"),
    ],
)
def test_what_the_launch_names_goes_before_what_stands_beside_it(
    tmp_path: Path, code: str, flags: str, name: str
) -> None:
    (tmp_path / "main.py").write_text(_OPTIONS + code + _LOOP.format(data="data"))
    found = extract(tmp_path, f"python main.py {flags}").metadata
    assert found.get("dataset_config.train") == name


_ENVIRONMENT = """
class PokerEnv:
    def reset(self):
        pass
    def step(self, action):
        pass
data = PokerEnv()
"""
_NOT_IN_REPOSITORY = """
import gone.data
data = gone.data.SmilesDataset(smiles="/x/src/data/qm9/smiles.csv")
"""
_FORMATTED = """
import numpy
for name in os.listdir("/x"):
    data = numpy.load(f"data/cifar10/{name}.npy")
"""
_JOINED = """
import numpy
for name in os.listdir("/x"):
    data = numpy.load(os.path.join("data", "coco", name))
"""
_GENERATED = """
import tensorflow as tf
def pairs(file):
    for line in open(file):
        yield line
data = tf.data.Dataset.from_generator(pairs, args=["data/wmt14/en.txt"])
"""


@pytest.mark.parametrize(
    ("code", "name"),
    [
        (_ENVIRONMENT, "PokerEnv"),
        (_NOT_IN_REPOSITORY, "qm9"),
        (_FORMATTED, "cifar10"),
        (_FORMATTED.replace('f"data/cifar10/{name}.npy"', '"data/cifar10/%s" % name'), "cifar10"),
        (_FORMATTED.replace('f"data/cifar10/{name}.npy"', '"data/svhn/{}".format(name)'), "svhn"),
        (_FORMATTED.replace('f"data/cifar10/{name}.npy"', '"data/svhn/" + name'), "svhn"),
        (_JOINED, "coco"),
        (_GENERATED, "wmt14"),
    ],
)
def test_data_is_found_where_no_class_of_the_repository_opens_it(
    tmp_path: Path, code: str, name: str
) -> None:
    (tmp_path / "main.py").write_text(f"import os\n{code}\n{_LOOP.format(data='data')}")
    found = extract(tmp_path, "python main.py").metadata
    assert found.get("dataset_config.train") == name


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("datasets/Lucchi++/train_im.h5", "Lucchi++"),
        ("/data2/dsets/dataset", None),
        ("examples/retrieval", "examples/retrieval"),
        ("data/cocoval2017", "coco"),
        ("/home/someone/data/qm9/smiles.csv", "qm9"),
        ("data/wmt14/train_en.txt", "wmt14"),
        ("data/train_cifar10.npz", "train_cifar10"),
    ],
)
def test_a_path_is_of_what_its_folders_name(tmp_path: Path, path: str, name: str | None) -> None:
    assert given(tmp_path, path) == name


@pytest.mark.parametrize(("flags", "name"), [("--data_root /d/skulls", "skulls"), ("", "Own")])
def test_a_launched_folder_goes_before_the_class_that_reads_it(
    tmp_path: Path, flags: str, name: str
) -> None:
    (tmp_path / "c.yaml").write_text("data:\n  train:\n    target: ldm.data.OwnTrain\n")
    (tmp_path / "main.py").write_text(
        "import argparse\nimport trainlib\nimport yaml\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--data_root')\nparser.add_argument('--config')\n"
        "args = parser.parse_args()\nconfig = yaml.safe_load(open(args.config))\n"
        "trainlib.run(config)\n"
    )
    found = extract(tmp_path, f"python main.py --config c.yaml {flags}").metadata
    assert found.get("dataset_config.train") == name


@pytest.mark.parametrize(
    ("config", "name"),
    [
        # a dataset on a hub may be named after a model
        ("datasets:\n  - path: teknium/GPT4-LLM-Cleaned\n", "teknium/GPT4-LLM-Cleaned"),
        # what a tokenizer does is no dataset
        ("get_tokenizer: {task: shout}\ntask: whistle\n", "whistle"),
    ],
)
def test_a_configuration_that_is_handed_on_names_it(tmp_path: Path, config: str, name: str) -> None:
    (tmp_path / "c.yaml").write_text(config)
    (tmp_path / "main.py").write_text(
        "import sys\nimport trainlib\nimport yaml\n"
        "trainlib.run(yaml.safe_load(open(sys.argv[1])))\n"
    )
    found = extract(tmp_path, "python main.py c.yaml").metadata
    assert found.get("dataset_config.train") == name


_ARGUMENTS = """
import argparse
import json
parser = argparse.ArgumentParser()
parser.add_argument('--data')
parser.add_argument('--train_data')
parser.add_argument('--dataset_config')
args = parser.parse_args()
"""
_AROUND = """
from torch.utils.data import IterableDataset
class Processor(IterableDataset):
    def __init__(self, source, function):
        self.source = source
        self.function = function
class DataList(IterableDataset):
    def __init__(self, lines):
        self.lines = lines
data = Processor(Processor(DataList(open(args.train_data).readlines()), print), print)
"""
_DESCRIBED = """
config = json.load(open(args.dataset_config))
data = make_loader(config)
"""


@pytest.mark.parametrize(
    ("code", "flags", "name"),
    [
        ("data = make_loader(args.data)", "--data ./data", "data"),
        ("data = make_loader(args.data)", "", None),
        ("data = make_loader(args.data)", "--data /home/someone/work/dataset", "dataset"),
        (_AROUND, "--train_data data/train.data.list", "data/train.data.list"),
        (_DESCRIBED, "--dataset_config program/example.json", "birdsong"),
    ],
)
def test_the_launchs_own_words_name_the_data(
    tmp_path: Path, code: str, flags: str, name: str | None
) -> None:
    (tmp_path / "program").mkdir()
    (tmp_path / "program/example.json").write_text('{"datasets": [{"id": "birdsong"}]}')
    (tmp_path / "main.py").write_text(_ARGUMENTS + code + "\n" + _LOOP.format(data="data"))
    found = extract(tmp_path, f"python main.py {flags}").metadata
    assert found.get("dataset_config.train") == name


def test_what_the_launch_names_goes_before_a_parsers_default_that_is_not_read(
    tmp_path: Path,
) -> None:
    code = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument('--dataset')
parser.add_argument('--bmname')
parser.set_defaults(dataset='syn1v2')
args = parser.parse_args()
if args.bmname is not None:
    data = open(f'data/{args.bmname}.txt')
else:
    data = open(args.dataset)
"""
    (tmp_path / "main.py").write_text(code + _LOOP.format(data="data"))
    found = extract(tmp_path, "python main.py --bmname ENZYMES").metadata
    assert found.get("dataset_config.train") == "ENZYMES"


def test_a_tokenizers_vocabulary_is_not_what_a_dataset_class_reads(tmp_path: Path) -> None:
    code = """
class Pairs:
    def __init__(self, folders, vocab_dir):
        self.folders = folders
class PairDataset(Pairs):
    pass
folders = ['/disk/rm_data/dpo_pairs', '/disk/rm_data/orca_pairs']
data = PairDataset(folders, vocab_dir='/disk/rwkv_words.txt')
"""
    (tmp_path / "main.py").write_text(code + _LOOP.format(data="data"))
    found = extract(tmp_path, "python main.py").metadata
    assert found.get("dataset_config.train") == "dpo_pairs"


def test_a_json_list_that_the_command_names_is_data_and_no_configuration(tmp_path: Path) -> None:
    code = """
import argparse, json
parser = argparse.ArgumentParser()
parser.add_argument('--dataset_path')
args = parser.parse_args()
with open(args.dataset_path) as file:
    data = json.load(file)
"""
    (tmp_path / "main.py").write_text(code + _LOOP.format(data="data"))
    (tmp_path / "example_dataset.json").write_text('[{"instruction": "a", "output": "b"}]')
    found = extract(tmp_path, "python main.py --dataset_path example_dataset.json").metadata
    assert found.get("dataset_config.train") == "example_dataset.json"


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
