"""How do the first commands of four kinds of newcomers go, end to end?

    python benchmarks/newcomers.py [--command FOLDER] [--only WALK]

Clones this repository, as a newcomer would, and runs in the clone, with an empty home, the commands
of each walk one after the other by the installed `schedmate` of `--command` (default: beside this
Python). On call, researcher and author type `schedmate demo`, what their page in `docs/start/`
shows, and what `WALKS` adds. The engineer has no page, but a repository and logs of their own.

Of each command: wall and CPU time [s], its exit code, whether it printed an error or a warning, and
whether its output names a next step (another command, or what to do about a failure). `first_s` is
the time from the first command to the end of the first answer that is not the demonstration's.
Reading the pages, thinking and installing are not measured, so these are no minutes of people, and
what people find hard is not counted.
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _record import record

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "docs"))
from generate_samples import PYTHON, blocks  # noqa: E402 - beside the documents

LAUNCH = "python train.py --epochs 30"
SCRIPT = """\
import argparse
import torch, torchvision
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=90)
parser.add_argument("--batch-size", type=int, default=256)
args = parser.parse_args()
model = torchvision.models.resnet50()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
train = torchvision.datasets.CIFAR10("data", train=True)
for epoch in range(args.epochs):
    for x, y in torch.utils.data.DataLoader(train, batch_size=args.batch_size):
        loss = torch.nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
"""
RUNNING = "".join(
    f"2026-03-01 10:{n // 60:02}:{n % 60:02} step {n}/1000 | loss {3 / n:.4f}\n"
    for n in range(1, 601)
)
FINISHED = RUNNING.replace("/1000", "/600") + "2026-03-01 10:10:01 Training finished\n"
FAILED = f"""\
{RUNNING}Traceback (most recent call last):
  File "train.py", line 13, in <module>
    loss.backward()
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.
"""
MIXED = {
    "README.md": "# Notes\n\nIf you see CUDA out of memory, ask ada.\n",
    "index.csv": "job,node,note\n1,gpu-001,OOM\n2,gpu-002,CUDA error\n",
    "summary.json": '{"_runtime": 12}\n',
    "run-17.log": RUNNING,
    "run-18.log": FINISHED,
    "run-19.log": FAILED,
}
"""Beside logs of the demonstration: notes, a table, a summary, and logs that run, end and fail."""
WALKS = {
    "engineer": [
        f'schedmate analyze mine --command "{LAUNCH}"',
        "{add}",
        f'schedmate analyze mine --command "{LAUNCH.replace("30", "60")}"',
        "schedmate track running.log",
        "schedmate diagnose failed.log",
    ],
    "on-call": [
        "schedmate diagnose examples/logs/idefics.out",
        "cp demo/failed/job-0*.log mixed",
        "schedmate triage mixed --out mixed.html",
    ],
    "researcher": [
        "schedmate traces check demo/trace.csv",
        "schedmate traces synthesize venus --jobs 2000 --seed 1 -o venus.csv",
        "schedmate simulate venus.csv --policy fifo,sjf,lucid --cluster {cluster}",
        "schedmate reproduce",
    ],
    "author": [
        "PYTHONPATH=mine schedmate simulate demo/trace.csv --policy own:FewestGpus --cluster 4x8",
    ],
}
"""The commands of a walk, after the demonstration and those of its page in `docs/start/` if it has
one: a mixed folder, a trace, a policy of one's own. In braces is what an earlier answer told."""
TOLD = {
    "add": re.compile(r"^  (schedmate history add .*)$", re.MULTILINE),
    "cluster": re.compile(r"^--cluster (\S+)$", re.MULTILINE),
}
NEXT = re.compile(
    r"\bschedmate [a-z]|^Plan: |^report: |  plan$|^--cluster |--policy \w+:\w+=VALUE", re.MULTILINE
)
"""A command, what to do about a failure, a report to open, an option to use."""


def commands(walk: str) -> Iterator[str]:
    """What is typed in a walk, in order."""
    page = ROOT / "docs" / "start" / f"{walk}.md"
    if page.exists():
        yield "schedmate demo"
        for block in blocks(page):
            yield from block.commands
    yield from WALKS[walk]


def filled(line: str, printed: str) -> str:
    """A command with what has been printed in place of a name in braces.

    Ends the program where that was not printed.
    """
    for name, pattern in TOLD.items():
        if f"{{{name}}}" in line:
            told = pattern.search(printed)
            if told is None:
                raise SystemExit(f"error: no answer says what {line!r} needs.")
            line = line.replace(f"{{{name}}}", told[1].replace(" RUN ", " finished.log "))
    return line


def prepare(clone: Path) -> None:
    """Write what people bring with them: a repository, logs, a mixed folder, a policy."""
    files = {
        "mine/train.py": SCRIPT,
        "running.log": RUNNING,
        "finished.log": FINISHED,
        "failed.log": FAILED,
        **{f"mixed/{name}": text for name, text in MIXED.items()},
    }
    source = PYTHON.search((clone / "docs" / "policies.md").read_text())
    files["mine/own.py"] = source[1] if source else ""
    for name, text in files.items():
        (clone / name).parent.mkdir(exist_ok=True)
        (clone / name).write_text(text)


def walked(walk: str, clone: Path, command: Path) -> list[dict[str, Any]]:
    """Run a walk in a clone; gives a row for each command, with what it printed as `output`."""
    home = clone / "home"
    home.mkdir()
    kept = {name: os.environ[name] for name in ("LANG", "TMPDIR") if name in os.environ}
    path = f"{command}{os.pathsep}{os.environ['PATH']}"
    environment = {**kept, "PATH": path, "HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    rows: list[dict[str, Any]] = []
    printed = ""
    for typed in commands(walk):
        line = filled(typed, printed)
        before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", line],
            cwd=clone, env=environment, capture_output=True, text=True, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        wall, after = time.monotonic() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
        answer = done.stdout + done.stderr
        printed += answer
        if line == "schedmate demo":  # the line that it prints to go on in this shell
            environment["SCHEDMATE_HISTORY"] = str(clone / "demo" / "history")
        if line.startswith(("cp ", "echo ")):  # files that a person would have
            continue
        said = [one.partition(":")[0] for one in done.stderr.splitlines()]
        rows.append(
            {
                "walk": walk,
                "command": typed,
                "wall_s": round(wall, 2),
                "cpu_s": round(
                    after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, 2
                ),
                # a pipe that `head` closes ends its writer by SIGPIPE
                "exit": 0 if done.returncode == 141 and "| head" in line else done.returncode,
                "errors": said.count("error") + done.stderr.count("Traceback (most"),
                "warnings": said.count("warning"),
                "next": bool(NEXT.search(answer.replace(line, ""))),
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--command", type=Path, default=Path(sys.executable).parent)
    parser.add_argument("--only", choices=WALKS, help="run one walk and print its commands")
    options = parser.parse_args()
    every, rows = [], []
    for walk in [options.only] if options.only else WALKS:
        with tempfile.TemporaryDirectory() as name:
            clone = Path(name).resolve() / "schedmate"
            subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
            prepare(clone)
            found = walked(walk, clone, options.command.resolve())
        every += found
        after_demo = next(i for i, row in enumerate(found) if row["command"] != "schedmate demo")
        rows.append(
            {
                "walk": walk,
                "commands": len(found),
                "wall_s": round(sum(row["wall_s"] for row in found), 1),
                "cpu_s": round(sum(row["cpu_s"] for row in found), 1),
                "first_s": round(sum(row["wall_s"] for row in found[: after_demo + 1]), 1),
                "failed": sum(row["exit"] != 0 for row in found),
                "errors": sum(row["errors"] > 0 for row in found),
                "warnings": sum(row["warnings"] > 0 for row in found),
                "next_named": sum(row["next"] for row in found),
            }
        )
    record("newcomers_commands", every, working=options.only is not None)
    if not options.only:
        record("newcomers", rows)


if __name__ == "__main__":
    main()
