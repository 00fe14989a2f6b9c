"""What the command states wins: a change of it shows in the answer, or the answer says so."""

from __future__ import annotations

from pathlib import Path

import metamorphic
import pytest

from schedmate.agent.static import extract

JOBS = {job.name: job for job in metamorphic.fixture_jobs()}
FILES = {
    "train.py": """
import argparse, yaml, torch
from torchvision import datasets, models
parser = argparse.ArgumentParser()
parser.add_argument("--config", default="run.yaml")
parser.add_argument("--epochs", type=int, default=3)
args, rest = parser.parse_known_args()
config = {**vars(args), **yaml.safe_load(open(args.config))}
model = models.resnet18()
optimizer = torch.optim.SGD(model.parameters(), lr=config["lr"])
loader = torch.utils.data.DataLoader(datasets.CIFAR10("data"), batch_size=16)
for epoch in range(config["epochs"]):
    for x, y in loader:
        model(x).sum().backward()
        optimizer.step()
""",
    "run.yaml": "epochs: 20\nlr: 0.1\nother:\n  depth: 3\n",
}


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize("name", JOBS)
def test_no_value_of_the_command_is_lost_in_silence(name: str) -> None:
    lost = [
        f"{kind}: {change.setting} {change.old} -> {change.new}: {answers}"
        for kind, change, verdict, answers in metamorphic.outcomes(JOBS[name])
        if verdict == "lost"
    ]
    assert not lost


@pytest.mark.parametrize("kind", metamorphic.DISTURBANCES)
def test_what_no_program_reads_moves_no_sure_answer(kind: str) -> None:
    some = sorted(JOBS)[::4]  # each costs two extractions
    if kind == "no README":
        some = [name for name, job in JOBS.items() if any(job.root.glob("README*"))]
    moved = {name: m for name in some if (m := metamorphic.moved_answers(JOBS[name], kind))}

    assert not moved


def test_the_check_sees_a_loss(repo: Path) -> None:
    before = extract(repo, "python train.py --lr 0.5")
    [change] = metamorphic.changes_of(
        metamorphic.Job("x", repo, "python train.py --lr 0.5", metamorphic.LaunchConfig())
    )

    assert metamorphic.verdict(change, before, before) != "lost"  # it is of the command
    proof = before.metadata.evidence["training_config.lr"]
    proof.source, proof.confidence = "config", 0.9  # as if it were a file's, whatever is changed
    assert metamorphic.verdict(change, before, before) == "lost"


def test_a_flag_that_no_parser_declares_is_laid_over_the_file_that_is_read(repo: Path) -> None:
    found = extract(repo, "python train.py --lr 0.5")

    assert found.metadata.get("training_config.lr") == 0.5
    assert found.metadata.evidence["training_config.lr"].source == "command"


def test_a_flag_that_the_programs_file_overrules_is_warned_of(repo: Path) -> None:
    found = extract(repo, "python train.py --epochs 7")

    assert found.metadata.get("training_config.iters") == 20
    [warning] = [text for text in found.warnings if "epochs=7" in text]
    assert "iters 20 (run.yaml:1)" in warning


def test_a_name_of_known_words_states_its_field(repo: Path) -> None:
    found = extract(repo, "python train.py tune.train_global_batch_size=640")

    assert found.metadata.get("training_config.global_batch_size") == 640


def test_sed_that_is_not_followed_is_warned_of(repo: Path) -> None:
    (repo / "go.sh").write_text(
        "sed -i -E 's/(epochs): [0-9]+/\\1: 9/' run.yaml\npython train.py\n"
    )

    found = extract(repo, "bash go.sh")

    assert any("sed" in text and "run.yaml" in text for text in found.warnings)
