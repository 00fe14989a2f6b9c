"""What looks like the name of a training dataset and is none."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedmate.agent.fields.dataset_names import class_dataset, dataset_name, dataset_of_path
from schedmate.agent.static import extract


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("DATASET_NAME", None),
        ("WHICH_DATASET", None),
        ("env_id", None),
        ("your_org/your_dataset", None),
        ("The input training data file (a text file).", None),
        ("*.ds", None),
        ("data-bin/wmt16_en_de_bpe32k", "wmt16_en_de_bpe32k"),
        ("./clue_11.py", "clue_11"),
        ("QQP_TRAIN", "QQP_TRAIN"),
        ("mnli squad", "mnli squad"),
    ],
)
def test_words_for_the_reader_to_replace_name_nothing(text: str, name: str | None) -> None:
    assert dataset_name(text) == name


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("$DATA_DIR/train.parquet", None),
        ("$IMAGENET_DIR/train", "IMAGENET"),
        ("$data/vox2_dev/${kind}.list", "vox2"),
        ("/data/your_train_csv", None),
        ("/x/your_kinetics400_train_csv", "your_kinetics400_train_csv"),
        ("filelists/train.list", None),
        ("out/scenes/shard-%06d.npz", "scenes"),
        ("/img/vqa_gt/feat_numbb100", "vqa_gt"),
    ],
)
def test_folders_of_the_machine_and_of_lists_name_nothing(path: str, name: str | None) -> None:
    assert dataset_of_path(path) == name


@pytest.mark.parametrize(
    ("cls", "name"),
    [
        ("DynamicDatasetIter", None),
        ("AspectRatioGroupedDataset", None),
        ("BucketingDataLoader", None),
        ("TextImageArrowStreamDataset", None),
        ("LRHRDataset", None),
        ("ImageCephDataset", None),
        ("M4Dataset", "M4"),
        ("SceneFlowDataset", "SceneFlow"),
        ("GlacierDataset", "GlacierDataset"),
    ],
)
def test_how_a_class_reads_names_nothing(cls: str, name: str | None) -> None:
    assert class_dataset(cls) == name


_ARGUMENTS = """
import argparse
import glob
import json
import os
import torch
parser = argparse.ArgumentParser()
parser.add_argument('--dataset')
parser.add_argument('--data_path')
parser.add_argument('--dataset_config')
parser.add_argument('--train_reader_path')
parser.add_argument('--task_name')
parser.add_argument('--output_dir')
args = parser.parse_args()
class {name}(torch.utils.data.Dataset):
    def __init__(self, options):
        self.options = options
"""
_LOOP = """
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for batch in data:
        model(batch).mean().backward()
        optimizer.step()
"""


def _train(folder: Path, flags: str, code: str, name: str = "GlacierDataset") -> object:
    program = _ARGUMENTS.format(name=name) + code + _LOOP
    (folder / "main.py").write_text(program)
    found = extract(folder, f"python main.py {flags}")
    return found.metadata.get("dataset_config.train")


_OWN = "data = {}(args)\n"
_RESUMED = "data = glob.glob(os.path.join(args.output_dir, 'train-*.pt'))\n"
_FILES = "data = glob.glob(args.data_path + '/imgs/*.png')\n"


@pytest.mark.parametrize(
    ("flags", "code", "name"),
    [
        # a path of this launch says more than a class that nobody knows, which says something
        ("--data_path data/moraine", _OWN.format("GlacierDataset"), "moraine"),
        ("--data_path data/train.json", _OWN.format("GlacierDataset"), "data/train.json"),
        ("", _OWN.format("GlacierDataset"), "GlacierDataset"),
        # the launch's words, where they are those of a well-known dataset
        ("--output_dir runs/qm9_default", _OWN.format("GlacierDataset"), "qm9"),
        # what lies below the output is no data
        ("--output_dir runs/model", _RESUMED, None),
        # what describes or reads the data
        ("--dataset_config gone/set.toml", _OWN.format("Own"), None),
        ("--train_reader_path criteo_reader --data_path ./d/moraine", "data = args\n", "moraine"),
        # the name of a run goes behind a folder of data
        ("--task_name run_b6x8 --data_path ./d/moraine", _FILES, "moraine"),
        ("--dataset=Video", _OWN.format("GlacierDataset"), "Video"),
    ],
)
def test_what_is_no_data_goes_behind_what_is(
    tmp_path: Path, flags: str, code: str, name: str | None
) -> None:
    assert _train(tmp_path, flags, code) == name


def test_what_puts_samples_together_is_no_dataset(tmp_path: Path) -> None:
    code = "data = DataCollatorForGlacierDataset(args)\n"
    assert _train(tmp_path, "", code, "DataCollatorForGlacierDataset") is None


def test_what_is_only_tried_on_is_not_trained_on(tmp_path: Path) -> None:
    code = "data = torch.load()\ntests = [json.loads(x) for x in open('hellaswag_val.jsonl')]\n"
    assert _train(tmp_path, "", code) is None


def test_a_parts_own_configuration_goes_behind_the_launched_one(tmp_path: Path) -> None:
    for file, text in (("configs/main.yml", "data_path: data/moraine"),
                       ("parts/bert/config.yml", "dataset: wikipedia_2020")):  # fmt: skip
        (tmp_path / file).parent.mkdir(parents=True)
        (tmp_path / file).write_text(text + "\n")
    (tmp_path / "main.py").write_text(
        "import argparse\nimport trainlib\nimport yaml\n"
        "parser = argparse.ArgumentParser()\nparser.add_argument('--config')\n"
        "part = yaml.safe_load(open('parts/bert/config.yml'))\n"
        "trainlib.run(yaml.safe_load(open(parser.parse_args().config)), part)\n"
    )
    found = extract(tmp_path, "python main.py --config configs/main.yml").metadata
    assert found.get("dataset_config.train") == "moraine"


def test_an_argument_that_is_not_known_stays_unknown(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        "import argparse\nimport trainlib\n"
        "extra = argparse.ArgumentParser().parse_args()\ntrainlib.fit(extra)\n"
    )
    found = extract(tmp_path, "python main.py --dataset $NOBODY_SETS_IT").metadata
    assert found.get("dataset_config.train") is None


def test_a_folder_in_braces_of_the_shell_is_no_reference_of_a_configuration(
    tmp_path: Path,
) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf/c.yaml").write_text("data: {train_files: null}\n")
    (tmp_path / "main.py").write_text(
        "import hydra\nimport trainlib\n@hydra.main(config_path='conf', config_name='c')\n"
        "def main(config):\n    trainlib.fit(config.data.train_files)\nmain()\n"
    )
    flags = "'data.train_files=${HOME}/data/moraine/train.parquet'".replace("'", "")
    found = extract(tmp_path, f"python main.py {flags}").metadata
    assert found.get("dataset_config.train") == "moraine"


def test_prose_names_no_data(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("# A net\n\n## Data\n\nWe train on CIFAR10.\n")
    (tmp_path / "data.py").write_text("HOME = 'https://huggingface.co/datasets/owner/moraine'\n")
    (tmp_path / "main.py").write_text("import data\nimport trainlib\ntrainlib.fit()\n")
    assert extract(tmp_path, "python main.py").metadata.get("dataset_config.train") is None


def test_the_authors_own_folder_goes_behind_a_name(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        "import argparse\nimport torch\nfrom torchvision.datasets import ImageFolder\n"
        "parser = argparse.ArgumentParser()\n"
        "parser.add_argument('--dataset', default='imagenet')\n"
        "parser.add_argument('--data_path', default='./data/image_generation')\n"
        "args = parser.parse_args()\nprint(args.dataset)\n"
        f"data = ImageFolder(args.data_path)\n{_LOOP}"
    )
    found = extract(tmp_path, "python main.py").metadata
    assert found.get("dataset_config.train") == "imagenet"
    found = extract(tmp_path, "python main.py --data_path ./data/moraine").metadata
    assert found.get("dataset_config.train") == "moraine"


def test_a_place_in_a_section_may_say_what_was_done_to_it(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("data: {train: {processed_path: data/moraine/x.wds}}\n")
    (tmp_path / "main.py").write_text(
        "import trainlib\nimport yaml\ntrainlib.fit(yaml.safe_load(open('c.yaml')))\n"
    )
    found = extract(tmp_path, "python main.py").metadata
    assert found.get("dataset_config.train") == "moraine"


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ("--data_path /srv/corpora/moraine/$UNSET", "moraine"),
        ("--data_path /srv/corpora/moraine/$KIND.list", "moraine"),
        ("--data_path corpora/$UNSET", None),
    ],
)
def test_a_path_is_read_as_far_as_it_is_known(tmp_path: Path, flags: str, name: str | None) -> None:
    assert _train(tmp_path, flags, "data = args\n") == name
