"""How long training goes on, told by its loops."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedmate.agent.static import extract

_HEAD = """
import argparse
import torch
parser = argparse.ArgumentParser()
parser.add_argument('--n_epoch', type=int, default=10)
parser.add_argument('--train_steps', type=int, default=600)
parser.add_argument('--data', default='data/mnist.npy')
args = parser.parse_args()
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def train(batch):
    loss = model(batch).mean()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("loop", "length"),
    [
        ("for step in range(args.n_epoch):\n    train(args.data)", (10, "epoch")),
        ("for e in range(int('7')):\n    train(args.data)", (7, "epoch")),
        ("for step in range(args.train_steps + 1):\n    train(args.data)", (600, "step")),
        (
            (
                "rows = []\nfor line in open(args.data):\n    rows.append(line)\n"
                "total = args.n_epoch * len(rows)\nfor i in range(total):\n    train(rows[i])"
            ),
            (10, "epoch"),
        ),
        (
            (
                "for epoch in range(args.n_epoch):\n    train(args.data)\n"
                "for n_iter in range(3):\n    print(n_iter)"
            ),
            (10, "epoch"),
        ),
        (("def update_params(batch):\n    return model(batch)\n"
         "for i_iter in range(args.train_steps):\n    update_params(args.data)"), (600, "step")),
        (("for epoch in range(4000):\n    gathered = 0\n    while gathered < args.train_steps:\n"
         "        gathered += len(args.data)\n    train(args.data)"), (4000, "epoch")),
        (
            (
                "def fit(n_epoch):\n    for epoch in range(n_epoch):\n        train(args.data)\n"
                "def tune(n_epoch):\n    for epoch in range(n_epoch):\n        train(args.data)\n"
                "fit(1)\ntune(500)"
            ),
            (500, "epoch"),
        ),
        (("print \"%i of %i rows\" % (\n    1,\n    2,\n)\n"
         "for epoch in xrange(100):\n    train(args.data)"), (100, "epoch")),
    ],
)  # fmt: skip
def test_a_loop_tells_the_length(tmp_path: Path, loop: str, length: tuple[int, str]) -> None:
    (tmp_path / "main.py").write_text(f"{_HEAD}{loop}\n")
    found = extract(tmp_path, "python main.py").metadata
    assert (found.get("training_config.iters"), found.get("training_config.iter_type")) == length


def test_a_few_steps_inside_an_endless_loop_are_no_length(tmp_path: Path) -> None:
    flag = "parser.add_argument('--num_steps', type=int, default=20)\n"
    head = _HEAD.replace("parser.add_argument('--n_epoch', type=int, default=10)\n", flag)
    head = head.replace("parser.add_argument('--train_steps', type=int, default=600)\n", "")
    loop = "while 1:\n    for step in range(args.num_steps):\n        train(args.data)\n"
    (tmp_path / "main.py").write_text(head + loop)
    found = extract(tmp_path, "python main.py").metadata
    assert found.get("training_config.iters") is None


@pytest.mark.parametrize(
    ("loop", "length"),
    [
        ("for i in range(300):\n    model(args.data).backward()", (300, "step")),
        ("for i in range(5):\n    model(args.data).backward()", None),
        (
            (
                "for i in range(30):\n    for batch in load(args.data):\n"
                "        model(batch).backward()"
            ),
            (30, "epoch"),
        ),
        ("for i in range(5):\n    model.eval()", None),
        ("for seed in range(5):\n    model(args.data).backward()", None),
        (
            "for i, row in zip(range(args.iterations), load(args.data)):\n    train(row)",
            (70, "step"),
        ),
        ("for i in range(args.max_episode_length):\n    train(args.data)", None),
        (
            (
                "def ppo_update(rows, n_epochs=4):\n"
                "    for _ in range(n_epochs):\n        train(rows)\n"
                "for it in range(90):\n    ppo_update(args.data)"
            ),
            (90, "step"),
        ),
        (
            (
                "class Schedule:\n    def rate(self, iteration):\n"
                "        if iteration > 2 * args.iterations:\n            return 0.1\n"
                "for batch in load(args.data):\n    Schedule().rate(batch)\n    train(batch)"
            ),
            None,
        ),
        ("def draw():\n    for t in range(50):\n        sampler.step(t)\ndraw()", None),
    ],
)
def test_a_loop_that_takes_steps_of_training(
    tmp_path: Path, loop: str, length: tuple[int, str] | None
) -> None:
    head = (
        "import argparse\nimport torch\nfrom library import load, sampler\n"
        "parser = argparse.ArgumentParser()\nparser.add_argument('--data')\n"
        "parser.add_argument('--iterations', type=int, default=70)\n"
        "parser.add_argument('--max_episode_length', type=int, default=1000)\n"
        "args = parser.parse_args()\nmodel = torch.nn.Linear(4, 2)\n"
        "def train(batch):\n    model(batch).mean().backward()\n"
    )
    (tmp_path / "main.py").write_text(f"{head}{loop}\n")
    found = extract(tmp_path, "python main.py").metadata
    told = (found.get("training_config.iters"), found.get("training_config.iter_type"))
    assert told == (length or (70, "step"))  # else what the setting says


_OPTIMISED = "torch.optim.SGD(torch.nn.Linear(1, 1).parameters(), 0.1)\n"


@pytest.mark.parametrize(
    ("name", "body", "length"),
    [("val", "", None), ("val", _OPTIMISED, 40), ("train_val", "", 40), ("main", "", 40)],
)
def test_a_program_that_only_evaluates_has_no_length(
    tmp_path: Path, name: str, body: str, length: int | None
) -> None:
    (tmp_path / "x.yaml").write_text("epochs: 40\n")
    (tmp_path / f"{name}.py").write_text(
        f"import torch, yaml\nyaml.safe_load(open('x.yaml'))\n{body}"
    )
    found = extract(tmp_path, f"python {name}.py").metadata
    assert found.get("training_config.iters") == length


def test_a_demonstration_that_trains_in_processes_has_a_length(tmp_path: Path) -> None:
    (tmp_path / "demo.py").write_text(
        "import torch.multiprocessing as mp\nfrom agents import learn\n"
        "class Config:\n    def __init__(self):\n"
        "        self.start_steps = 200\n        self.max_steps = 80000\n"
        "def train_agent(args):\n    mp.Process(target=learn, args=(args,)).start()\n"
        "train_agent(Config())\n"
    )
    found = extract(tmp_path, "python demo.py").metadata
    assert found.get("training_config.iters") == 80000


def test_without_its_configuration_a_librarys_default_is_no_length(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        "import sys, lightning, yaml\nfor word in sys.argv:\n    print(word)\n"
        "lightning.Trainer(**yaml.safe_load(open(sys.argv[-1]))).fit(None)\n"
    )
    (tmp_path / "x.yaml").write_text("precision: 32\n")
    lengths = {
        command: extract(tmp_path, f"python main.py {command}").metadata.get(
            "training_config.iters"
        )
        for command in ("--config x.yaml", "--config /far/away.yaml", "--config=$CONFIG")
    }
    assert lengths == {
        "--config x.yaml": 1000,
        "--config /far/away.yaml": None,
        "--config=$CONFIG": None,
    }


def test_words_of_the_shell_beside_a_configuration(tmp_path: Path) -> None:
    """What the command does not set is the configuration's, whatever $OUT is."""
    (tmp_path / "main.py").write_text(
        _HEAD.replace(
            "parser.add_argument('--data'",
            "parser.add_argument('--out')\nparser.add_argument('--data'",
        )
        + "import json, os, sys\n"
        "given = {word[2:] for word in sys.argv if word.startswith('--')}\n"
        "name = 'x.json'\n"
        "if not os.path.exists(name):\n    name = os.path.join('configs', name)\n"
        "for key, value in json.load(open(name)).items():\n"
        "    if key not in given:\n        setattr(args, key, value)\n"
        "for epoch in range(args.n_epoch):\n    train(args.data)\n"
    )
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "x.json").write_text('{"n_epoch": 44}')
    found = extract(tmp_path, "python main.py --out $OUT").metadata
    assert found.get("training_config.iters") == 44


def test_the_limit_of_a_profiler_is_no_length(tmp_path: Path) -> None:
    (tmp_path / "x.yaml").write_text("profile:\n  max_steps: 110\nnum_epochs: 16\n")
    (tmp_path / "main.py").write_text("import yaml\nyaml.safe_load(open('x.yaml'))\n")
    assert extract(tmp_path, "python main.py").metadata.get("training_config.iters") == 16


@pytest.mark.parametrize(
    ("setting", "length"),
    [("total_timesteps: 10000000000", 10**10), ("max_iter: 9999999999", None)],
)
def test_a_number_that_stands_for_no_end(tmp_path: Path, setting: str, length: int | None) -> None:
    (tmp_path / "x.yaml").write_text(f"{setting}\n")
    (tmp_path / "main.py").write_text("import yaml\nyaml.safe_load(open('x.yaml'))\n")
    assert extract(tmp_path, "python main.py").metadata.get("training_config.iters") == length


def test_epochs_within_each_of_many_iterations_are_no_length(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text(
        _HEAD + "class Learner:\n"
        "    def learn(self, rows):\n"
        "        for epoch in range(10):\n            train(rows)\n"
        "learner = Learner()\n"
        "for i in range(1, args.train_steps + 1):\n    learner.learn(args.data)\n"
    )
    found = extract(tmp_path, "python main.py").metadata.training
    assert (found.iters, found.iter_type) == (600, "step")


@pytest.mark.parametrize(
    ("loop", "length"),
    [
        (
            (
                "import threading\ndef work(max_steps):\n    for step in range(max_steps):\n"
                "        train(args.data)\n"
                "threading.Thread(target=lambda: work(max_steps=20000), daemon=True).start()"
            ),
            (20000, "step"),
        ),
        (
            (
                "rows = torch.utils.data.DataLoader(args.data)\ndef fit(steps):\n"
                "    epochs = steps // len(rows) + 1\n    for e in range(1, epochs + 1):\n"
                "        for row in rows:\n            train(row)\n"
                "for rate, max_step in [(0.1, 10_000), (0.01, 350_000)]:\n"
                "    current_step = torch.load('last.pt')['step']\n"
                "    steps = max_step - current_step\n"
                "    if current_step >= max_step:\n        continue\n    fit(steps)"
            ),
            (350_000, "step"),
        ),
        (
            (
                "class Run:\n    def __init__(self, steps=int(1e7)):\n"
                "        self.steps, self.max_steps = 0, steps\n"
                "    def go(self):\n        while True:\n            train(args.data)\n"
                "            self.steps += 1\n"
                "            stop_training = self.steps >= self.max_steps\n"
                "            if stop_training:\n                break\neval('Run()').go()"
            ),
            (10_000_000, "step"),
        ),
    ],
)
def test_threads_schedules_and_named_ends(
    tmp_path: Path, loop: str, length: tuple[int, str]
) -> None:
    (tmp_path / "main.py").write_text(f"{_HEAD.replace('--n_epoch', '--n')}{loop}\n")
    found = extract(tmp_path, "python main.py").metadata
    assert (found.get("training_config.iters"), found.get("training_config.iter_type")) == length


def test_a_flag_of_a_field_that_a_library_s_class_has(tmp_path: Path) -> None:
    (tmp_path / "conf.yaml").write_text("steps: 300000\n")
    (tmp_path / "main.py").write_text(
        "import torch\nfrom dataclasses import dataclass\nfrom lerobot.configs import parser\n"
        "from lerobot.configs.train import TrainPipelineConfig\nmodel = torch.nn.Linear(4, 2)\n"
        "@dataclass\nclass Config(TrainPipelineConfig):\n    rate: float = 0.1\n"
        "@parser.wrap()\ndef train(cfg: Config):\n    for step in range(cfg.steps):\n"
        "        model(cfg.data).mean().backward()\ntrain()\n"
    )
    found = extract(tmp_path, "python main.py --config conf.yaml --steps 10").metadata
    assert found.get("training_config.iters") == 10


@pytest.mark.parametrize(
    "batch", ["float('nan')", "1e308", "float('inf')", "0", "-1", "True", "''"]
)
def test_a_batch_that_nothing_can_be_divided_by_gives_no_length(tmp_path: Path, batch: str) -> None:
    (tmp_path / "train.py").write_text(
        "import argparse\nimport torch\np = argparse.ArgumentParser()\n"
        "p.add_argument('--total_tokens', type=float, default=1e9)\n"
        f"p.add_argument('--global_batch_size', default={batch})\n"
        "p.add_argument('--seq_length', default=2048)\nargs = p.parse_args()\n"
        "model = torch.nn.Linear(4, 2)\nseen = 0\n"
        "while seen < args.total_tokens:\n    model(1).backward()\n    seen += 1\n"
    )
    assert extract(tmp_path, "python train.py").metadata.get("training_config.iters") is None


ENVIRONMENT = _HEAD.replace("n_epoch", "total_timesteps").replace("type=int", "type=float")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("", "more than any training has"),
        ("--total_timesteps 1e308", "for which no training can run"),
        ("--total_timesteps inf", "for which no training can run"),
        (f"--total_timesteps {'9' * 30}", "for which no training can run"),
    ],
)
def test_a_number_that_stands_for_no_limit_is_no_length(
    tmp_path: Path, given: str, says: str
) -> None:
    head = ENVIRONMENT.replace("default=10)", "default=1e308)")
    loop = "for step in range(int(args.total_timesteps)):\n    train(args.data)\n"
    (tmp_path / "train.py").write_text(head + loop)
    found = extract(tmp_path, f"python train.py {given}".strip())
    training = found.metadata.sections()["training_config"]
    assert training.get("iters") is None
    assert any(says in warning for warning in found.warnings)


@pytest.mark.parametrize("number", ["1e308", "inf"])
def test_rates_and_batches_without_limit_are_left_out(tmp_path: Path, number: str) -> None:
    source = _HEAD.replace("n_epoch", "batch_size").replace("train_steps", "lr")
    source = source.replace("type=int", "type=float").replace("lr=0.1", "lr=args.lr")
    (tmp_path / "train.py").write_text(source + "for epoch in range(3):\n    train(args.data)\n")
    found = extract(tmp_path, f"python train.py --batch_size {number} --lr {number}")
    training = found.metadata.sections()["training_config"]
    assert training.get("batch_size") is None
    assert training.get("lr") is None
    assert training["iters"] == 3
