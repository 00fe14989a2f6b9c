"""Whether a run validates, and on what, told by code and settings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from schedmate.agent.static import extract

_LOOP = """
import torch
from torchvision import datasets
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = datasets.MNIST('data')
for epoch in range(3):
    for batch in data:
        loss = model(batch).mean()
        loss.backward()
        optimizer.step()
"""

_TEST_LOADER = """
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader
rest, test_data = train_test_split(data, test_size=0.3)
test_set = datasets.MNIST('d')
test_loader = DataLoader(test_set)
"""


def _valid(repo: Path, code: str, command: str = "python main.py") -> object:
    (repo / "main.py").write_text(code)
    return extract(repo, command).metadata.get("dataset_config.valid")


@pytest.mark.parametrize(
    ("code", "valid"),
    [
        ("idx_val = torch.arange(5)", "MNIST"),
        ("val_loader = iter(data)", "MNIST"),
        ("def parts():\n    return object(), object()\nvalid, test = parts()", "MNIST"),
        ("def allowed():\n    return object()\nvalid = allowed()", None),
        ("test_data = datasets.MNIST('d')", None),
        ("test_data = datasets.MNIST('d')\nfor x in test_data:\n    model(x)", "MNIST"),
        ("valid_symbol_set = set('abc')", None),
        ("latest_iteration = max([3, 4])", None),
        ("valid_envs = sorted('abc')", None),
        ("def log_validation(prompt):\n    pass\nlog_validation('a cat')", None),
        ("def load_and_validate(path):\n    pass\nload_and_validate('weights')", None),
        ("def run_validation(path):\n    return score(path)\nrun_validation('weights')", "MNIST"),
        (
            "def evaluate(net):\n    return test(net)\ndef test(n):\n    n(1)\nevaluate(model)",
            "MNIST",
        ),
        ("def evaluate(net):\n    for s in []:\n        test(net, s)\nevaluate(model)", None),
        (
            "def test(n, output_dir):\n    save(n.state_dict(), output_dir)\ntest(model, 'd')",
            None,
        ),
        ("def validate_pose(pose):\n    assert pose.size\nvalidate_pose(data)", None),
        ("def split_train_val(x):\n    return x[2:], x[:2]\nsplit_train_val(data)", None),
        ("class Meter:\n    def val(self):\n        return self.sum / 2\nMeter().val()", None),
        ("valids = sorted('abc')", None),
        ("def resolve_val_data(results):\n    return results\nresolve_val_data(data)", None),
        (_TEST_LOADER, None),
        (f"{_TEST_LOADER}\nfor x in test_loader:\n    model(x)", "MNIST"),
        ("train_data, val_data = data[:9], data[9:]", "MNIST"),
        ("eval_datasets = {'test': iter(data)}\nfor split in eval_datasets:\n    pass", "MNIST"),
        ("val_data = {'path': 'x'}['path']", None),
        ("valid_datasets = {'mnist': lambda: datasets.MNIST('d')}", None),
        ("eval_dataset_config = dict(a=1)", None),
        ("class Pair:\n    def eval(self):\n        self.reward_model.eval()\nPair().eval()", None),
        ("test_assets_root = dict(a=1)", None),
        ("evalSet = open('data')\nfor x in evalSet:\n    model(x)", "MNIST"),
        ("import mlxu\nmlxu.define_flags_with_default(eval_dataset={'path': ''})", None),
        ("import lib\nlib.Trainer(eval_dataset={'path': ''})", "MNIST"),
        ("val_loader = iter(data)\nimport lib\nlib.Trainer(limit_val_batches=0)", None),
        ("val_loader = iter(data)\nimport lib\nlib.Trainer(limit_val_batches=9)", "MNIST"),
        ("def _init_eval_model(path):\n    pass\n_init_eval_model('weights')", None),
    ],
)
def test_names_tell_held_out_data(tmp_path: Path, code: str, valid: str | None) -> None:
    assert _valid(tmp_path, f"{_LOOP}{code}\n") == valid


_ELSEWHERE = """
import argparse
from torchvision import datasets
import trainlib
parser = argparse.ArgumentParser()
parser.add_argument('--eval_freq', type=int, default=5)
parser.add_argument('--num_eval_episodes', type=int, default=0)
parser.add_argument('--disable_eval', action='store_true')
args = parser.parse_args()
trainlib.run(datasets.MNIST('data'), args)
"""
_PYMARL = _ELSEWHERE.replace("num_eval_episodes", "test_nepisode").replace("disable_eval", "debug")


@pytest.mark.parametrize(
    ("code", "flags", "valid"),
    [
        (_ELSEWHERE, "", "MNIST"),  # there is a switch that would turn it off
        (_ELSEWHERE, "--disable_eval", None),
        (_ELSEWHERE.replace("disable_eval", "debug"), "", None),
        (_ELSEWHERE.replace("disable_eval", "debug"), "--eval_freq 10", "MNIST"),
        (_ELSEWHERE.replace("disable_eval", "debug"), "--num_eval_episodes 4", "MNIST"),
        (_ELSEWHERE.replace("disable_eval", "debug"), "--eval_freq -1", None),
        (_ELSEWHERE.replace("disable_eval", "use_eval"), "--num_eval_episodes 4", None),
        (_ELSEWHERE.replace("disable_eval", "use_eval"), "--use_eval", "MNIST"),
        (_PYMARL, "--test_nepisode 4", "MNIST"),
    ],
)
def test_settings_tell_of_an_evaluation_out_of_sight(
    tmp_path: Path, code: str, flags: str, valid: str | None
) -> None:
    assert _valid(tmp_path, code, f"python main.py {flags}") == valid


def test_an_interval_of_minus_one_is_never(tmp_path: Path) -> None:
    code = (
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--test-freq', type=int, default=-1)\nargs = parser.parse_args()\n"
        "def evaluate(model):\n    model(1)\n" + _LOOP + "evaluate(model)\n"
    )
    assert _valid(tmp_path, code) is None
    assert _valid(tmp_path, code, "python main.py --test-freq 5") == "MNIST"


def test_samples_of_a_generator_are_no_validation(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("evaluation_interval: 1000\n")
    code = (
        "import yaml\nconfig = yaml.safe_load(open('c.yaml'))\n"
        "from torchvision import datasets\nimport ganlib\n"
        "def calc_inception(generator):\n    pass\n"
        "ganlib.run(datasets.CIFAR10('data'), config, calc_inception(None))\n"
    )
    assert _valid(tmp_path, code) is None
    assert _valid(tmp_path, code.replace("calc_inception", "sketch")) == "CIFAR10"


def test_an_evaluation_strategy_turns_evaluation_on(tmp_path: Path) -> None:
    code = (
        "from datasets import load_dataset\n"
        "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"
        "args, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
        "data = load_dataset('squad')\n"
        "Trainer(args=args, train_dataset=data['train'],\n"
        "        eval_dataset=data['validation'] if args.do_eval else None).train()\n"
    )
    assert _valid(tmp_path, code, "python main.py --evaluation_strategy steps") == "squad"
    assert _valid(tmp_path, code) is None
    share = "import argparse\nparser = argparse.ArgumentParser()\n"
    share += "parser.add_argument('--val_size', type=int, default=9)\nparser.parse_args()\n"
    assert _valid(tmp_path, share + code) is None  # a share that is held out is not evaluated


def test_a_section_for_evaluation_names_the_validation_set(tmp_path: Path) -> None:
    sections = {
        "train_dataset_params": {"dataset_name": "FER2013", "dataset_path": "/d/FER2013"},
        "val_dataset_params": {"dataset_name": "RAFDB", "dataset_path": "/d/RAF-DB"},
    }
    (tmp_path / "config.json").write_text(json.dumps(sections))
    code = (
        "import json\nimport sys\nimport loaders\n"
        "config = json.load(open(sys.argv[1]))\n"
        "train_set = loaders.create(config['train_dataset_params'])\n"
        "val_set = loaders.create(config['val_dataset_params'])\n"
    )
    (tmp_path / "main.py").write_text(code)
    found = extract(tmp_path, "python main.py config.json").metadata
    assert found.get("dataset_config.train") == "FER2013"
    assert found.get("dataset_config.valid") == "RAFDB"


@pytest.mark.parametrize(
    "flag", ["validate_path", "eval_jsonl", "dev_prefix", "cv_data", "validation"]
)
def test_a_flag_for_validation_data_needs_no_usual_name(tmp_path: Path, flag: str) -> None:
    code = (
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--train_path')\n"
        f"parser.add_argument('--{flag}')\nargs = parser.parse_args()\n"
    )
    command = f"python main.py --train_path /d/pile03 --{flag} /d/pile04"
    assert _valid(tmp_path, code, command) == "pile04"


def test_a_share_of_zero_in_the_configuration_is_no_validation(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("val_set_size: 0.0\n")
    code = f"import yaml\nconfig = yaml.safe_load(open('c.yaml'))\n{_LOOP}val_loader = iter(data)\n"
    assert _valid(tmp_path, code) is None


def test_an_estimators_mode_decides_what_runs(tmp_path: Path) -> None:
    code = (
        "import argparse\nimport tensorflow as tf\n"
        "parser = argparse.ArgumentParser()\nparser.add_argument('--mode')\n"
        "args = parser.parse_args()\n"
        "def train():\n    tf.keras.datasets.mnist\n"
        "def evaluate():\n    pass\n"
        "if args.mode == tf.estimator.ModeKeys.TRAIN:\n    from torchvision import datasets\n"
        "    data = datasets.MNIST('data')\n"
        "elif args.mode == tf.estimator.ModeKeys.EVAL:\n    evaluate()\n"
    )
    assert _valid(tmp_path, code, "python main.py --mode train") is None


@pytest.mark.parametrize(
    ("arguments", "valid"), [("validation_split=0.2", "mnist"), ("validation_split=0.0", None)]
)
def test_fit_may_split_off_its_validation(
    tmp_path: Path, arguments: str, valid: str | None
) -> None:
    code = (
        "import keras\n(x, y), _ = keras.datasets.mnist.load_data()\n"
        "model = keras.Sequential([keras.layers.Dense(1)])\n"
        f"model.fit(x, y, epochs=3, {arguments})\n"
    )
    found = _valid(tmp_path, code)
    assert found == valid


def test_a_development_set_goes_before_a_test_set(tmp_path: Path) -> None:
    flags = ("train_file", "test_file", "dev_file")
    code = (
        "import argparse\nparser = argparse.ArgumentParser()\n"
        + "".join(f"parser.add_argument('--{flag}', default='d/{flag}s1')\n" for flag in flags)
        + "args = parser.parse_args()\n"
    )
    assert _valid(tmp_path, code) == "d/dev_files1"


def test_a_records_own_validation_is_none_of_the_model(tmp_path: Path) -> None:
    code = (
        "from dataclasses import dataclass\n@dataclass\nclass Config:\n    lr: float = 0.1\n"
        "    def validate(self):\n        assert self.lr > 0\nConfig().validate()\n"
    )
    assert _valid(tmp_path, f"{code}{_LOOP}") is None


@pytest.mark.parametrize(("flags", "valid"), [("", "MNIST"), ("--eval.steps -1", None)])
def test_an_interval_may_be_named_by_its_section(
    tmp_path: Path, flags: str, valid: str | None
) -> None:
    code = (
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--eval.steps', type=int, default=10)\nargs = parser.parse_args()\n"
        f"{_LOOP}def evaluate():\n    model(1)\nevaluate()\n"
    )
    assert _valid(tmp_path, code, f"python main.py {flags}") == valid


@pytest.mark.parametrize(
    ("flags", "valid"),
    [("--train_data_dir d/mm", None), ("--train_data_dir d/mm --val_data_dir d/pp", "d/pp")],
)
def test_a_validation_loader_needs_data(tmp_path: Path, flags: str, valid: str | None) -> None:
    code = (
        "import argparse\nimport pytorch_lightning as pl\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--train_data_dir')\nparser.add_argument('--val_data_dir')\n"
        "args = parser.parse_args()\n"
        "class Module(pl.LightningDataModule):\n"
        "    def __init__(self, args):\n        self.args = args\n"
        "    def val_dataloader(self):\n"
        "        return load(self.args.val_data_dir) if self.args.val_data_dir else None\n"
        "pl.Trainer(max_epochs=1).fit(None, datamodule=Module(args))\n"
    )
    assert _valid(tmp_path, code, f"python main.py {flags}") == valid


@pytest.mark.parametrize(("measure", "valid"), [("compute_fid", None), ("count_images", "MNIST")])
def test_what_samples_are_compared_with_is_no_validation_set(
    tmp_path: Path, measure: str, valid: str | None
) -> None:
    code = (
        f"import lib\n{_LOOP}def {measure}():\n    lib.count(datasets.MNIST('data', train=False))\n"
    )
    assert _valid(tmp_path, f"{code}{measure}()\n") == valid


@pytest.mark.parametrize(
    ("names", "valid"),
    [
        (["num_train_epochs"], "MNIST"),
        (["num_train_epochs", "per_device_train_batch_size"], None),
    ],
)
def test_one_name_alone_makes_no_training_arguments(
    tmp_path: Path, names: list[str], valid: str | None
) -> None:
    """Hugging Face's arguments leave evaluation off; others have a `num_train_epochs` too."""
    (tmp_path / "config.json").write_text(json.dumps(dict.fromkeys(names, 3)))
    read = "import json\nconfig = json.load(open('config.json'))\n"
    assert _valid(tmp_path, f"{read}{_LOOP}val_loader = iter(data)\n") == valid


@pytest.mark.parametrize(("interval", "valid"), [(0, None), (500, "MNIST")])
def test_an_interval_of_zero_is_no_validation(
    tmp_path: Path, interval: int, valid: str | None
) -> None:
    config = f"class Config:\n    def __init__(self):\n        self.eval_interval = {interval}\n"
    code = f"{config}config = Config()\n{_LOOP}eval_loader = iter(data)\n"
    assert _valid(tmp_path, code) == valid


@pytest.mark.parametrize(("apart", "valid"), [("val_ds, ", "d/birds"), ("", "d/fish")])
def test_a_test_sets_path_is_for_the_test_where_validation_data_is_apart(
    tmp_path: Path, apart: str, valid: str
) -> None:
    (tmp_path / "c.json").write_text('{"train_path": "d/birds", "test_path": "d/fish"}')
    found = _valid(
        tmp_path,
        "import json\nimport lib\nconfig = json.load(open('c.json'))\n"
        f"train_ds, {apart}test_ds = lib.load(config)\n"
        "model = lib.make()\nmodel.fit(train_ds)\nmodel.evaluate(test_ds)\n",
    )
    assert str(found) in (valid, valid.rpartition("/")[2])


def test_a_picture_to_look_at_and_a_column_are_no_data_sets(tmp_path: Path) -> None:
    code = (
        "import argparse\nimport polars\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--validation_image')\nargs = parser.parse_args()\n"
        f"{_LOOP}validation_image = open(args.validation_image)\n"
        "polars.scan_parquet('x').select('item_valid')\n"
    )
    assert _valid(tmp_path, code, "python main.py --validation_image a.png") is None


def test_a_share_of_the_data_set_may_be_split_off_by_the_launch(tmp_path: Path) -> None:
    assert _valid(tmp_path, _ELSEWHERE, "python main.py --disable_eval") is None
    code = _ELSEWHERE.replace("num_eval_episodes', type=int", "split_dataset_ratio', type=float")
    code = code.replace("disable_eval", "debug")
    assert _valid(tmp_path, code, "python main.py --split_dataset_ratio 0.01") == "MNIST"


def test_the_program_of_a_package_finds_a_library_before_its_sibling(tmp_path: Path) -> None:
    package = tmp_path / "app"
    (package / "datasets").mkdir(parents=True)
    (package / "configs.py").write_text("class squad:\n    split = 'train'\n")
    (package / "datasets" / "__init__.py").write_text("from app.datasets.squad import load\n")
    (package / "datasets" / "squad.py").write_text(
        "import datasets\ndef load(s):\n    return datasets.load_dataset('squad', split=s)\n"
    )
    (package / "train.py").write_text(
        "import inspect\nfrom app import configs\nfrom app.datasets import load\n"
        "chosen = {k: v for k, v in inspect.getmembers(configs, inspect.isclass)}['squad']()\n"
        "load(chosen.split)\n"
    )
    found = extract(tmp_path, "python -m app.train").metadata.get("dataset_config.train")
    assert found == "squad"


def test_a_study_runs_its_objective(tmp_path: Path) -> None:
    code = (
        "import optuna\n" + _LOOP + "def evaluate(net):\n    return net(1)\n"
        "def objective(trial):\n    return evaluate(model)\n"
        "study = optuna.create_study(direction='maximize')\nstudy.optimize(objective, n_trials=9)\n"
    )
    (tmp_path / "main.py").write_text(code)
    found = extract(tmp_path, "python main.py").metadata
    assert (found.job_kind, found.get("job_config.data")) == ("sweep", "MNIST")
