"""Records: those that a command fills, and tables of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedmate.agent.fields.settings import all_settings
from schedmate.agent.interp.trace import Settings, Trace
from schedmate.agent.static import extract
from schedmate.agent.values import Value, lifted


def test_the_command_line_is_seen_beside_a_table_of_records() -> None:
    fields = {f"field_{number}": "" for number in range(20)}
    table = [
        Settings("WeightsConfig", lifted({**fields, "url": f"https://x/{number}"}), "dataclass")
        for number in range(1000)
    ]
    command = Settings("arguments", Value({"epochs": Value(150)}), "arguments")

    found = all_settings(Trace(settings=[*table, command]))

    assert any(setting.path == ("epochs",) and setting.value.data == 150 for setting in found)
    urls = [setting.value.data for setting in found if setting.path == ("url",)]
    assert urls[0] == "https://x/999"
    assert "https://x/0" not in urls


_RECORDS = """
from dataclasses import dataclass, field

@dataclass
class Optim:
    lr: float = 0.1

@dataclass
class Base:
    epochs: int = 5
    batch_size: int = 16
    optim: Optim = field(default_factory=Optim)

@dataclass
class Large(Base):
    epochs: int = 50

def train(config):
    for epoch in range(config.epochs):
        step(config.batch_size, config.optim.lr)

"""

_CLASS_OF_COMMANDS = """
from jsonargparse import CLI

class Job:
    def __init__(self, config: Large): self.config = config
    def run(self): train(self.config)

CLI(Job)
"""


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import tyro\ntrain(tyro.cli(Large))", "--batch-size 32 --optim.lr 0.5"),
        (
            "import tyro\ndef main(config: Large): train(config)\ntyro.cli(main)",
            "--config.batch-size 32 --config.optim.lr 0.5",
        ),
        (
            "import chz\ndef main(config: Large): train(config)\nchz.nested_entrypoint(main)",
            "batch_size=32 optim.lr=0.5",
        ),
        (
            "import draccus\n@draccus.wrap()\ndef main(config: Large): train(config)\nmain()",
            "--batch_size 32 --optim.lr 0.5",
        ),
        (
            "from lab import entry\n@entry\ndef main(config: Large): train(config)\nmain()",
            "--batch_size=32 --optim.lr=0.5",
        ),
        (
            "from lab import parse_config\ntrain(parse_config(Large))",
            "--batch_size 32 --optim.lr 0.5",
        ),
        (
            "from jsonargparse import CLI\ndef main(config: Large): train(config)\nCLI(main)",
            "--config.batch_size 32 --config.optim.lr 0.5",
        ),
        (
            _CLASS_OF_COMMANDS,
            "--config.batch_size 32 --config.optim.lr 0.5 run",
        ),
    ],
)
def test_the_command_fills_a_record_whatever_builds_it(
    tmp_path: Path, program: str, words: str
) -> None:
    """A subclass's default stands before its base's, and the command before both."""
    (tmp_path / "train.py").write_text(f"{_RECORDS}{program}\n")
    training = extract(tmp_path, f"python train.py {words}").metadata.sections()["training_config"]
    assert (training["iters"], training["iter_type"]) == (50, "epoch")
    assert (training["batch_size"], training["lr"]) == (32, 0.5)
