"""Time and memory of static extraction on large repositories, against the paper's nine seconds.

    python benchmarks/static_speed.py [--repos DIR] [--before CHECKOUT]

A made-up repository of 40,000 lines is always measured; DIR adds real checkouts, of which the
largest ten are analysed by the entry that is found in them. Each runs in a process of its own,
as a library (Python's collector as it is) and as the command line's processes do.
CHECKOUT is one of schedmate as it was before, run in turn with this one. Times are CPU time.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from _record import record

PAPER_S = 9.0
"""Mean latency of the paper's Scheduling Advisor per job (section 5.2) [s]."""
RUNS = 3
ROOT = Path(__file__).parent.parent

MEASURE = """
import json, resource, sys, time
from pathlib import Path
begin = time.process_time()
from schedmate.agent.static import extract
from schedmate.base import collect_seldom
if sys.argv[3] == "command":
    collect_seldom()
loaded = time.process_time()
found = extract(Path(sys.argv[1]), sys.argv[2] or None)
end = time.process_time()
print(json.dumps({
    "import_s": loaded - begin, "extract_s": end - loaded,
    "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    "fields": sum(v is not None for s in found.metadata.sections().values() for v in s.values()),
}))
"""

MODULE = '''
"""Block family {n}."""
import torch
from torch import nn

from zoo.registry import register

WIDTHS = [{n} + i for i in range(16)]


class Block{n}(nn.Module):
    def __init__(self, dim, depth=4, heads=8, ratio=4.0):
        super().__init__()
        self.norm = nn.LayerNorm(dim)
        self.layers = nn.ModuleList([nn.Linear(dim, dim) for _ in range(depth)])
        self.heads = heads

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(self.norm(x))
        return x

{functions}

@register("net{n}")
def net{n}(**kwargs):
    return Block{n}(dim=WIDTHS[0], **kwargs)
'''

FUNCTION = """
def helper{n}_{i}(value, scale=1.0, table=None):
    table = dict(table or {{}})
    if value > scale:
        table["a"] = value * scale
    else:
        table["b"] = [value, scale]
    return table
"""

TRAIN = """
import argparse

import torch
from torchvision import datasets

import zoo
from zoo.registry import MODELS

parser = argparse.ArgumentParser()
parser.add_argument("--model", default="net7")
parser.add_argument("--epochs", type=int, default=90)
parser.add_argument("--batch-size", type=int, default=256)
args = parser.parse_args()
train_set = datasets.CIFAR10("data", train=True)
loader = torch.utils.data.DataLoader(train_set, batch_size=args.batch_size)
model = MODELS[args.model]()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for epoch in range(args.epochs):
    for x, y in loader:
        model(x).backward()
        optimizer.step()
"""


def make_repository(root: Path, lines: int) -> int:
    """Write a repository whose entry imports every module; returns its number of lines."""
    package = root / "zoo"
    package.mkdir(parents=True)
    (package / "registry.py").write_text(
        "MODELS = {}\n\n\ndef register(name):\n    def wrap(f):\n        MODELS[name] = f\n"
        "        return f\n\n    return wrap\n"
    )
    (root / "train.py").write_text(TRAIN)
    total, number = 40, 0
    while total < lines:
        functions = "".join(FUNCTION.format(n=number, i=i) for i in range(12))
        text = MODULE.format(n=number, functions=functions)
        (package / f"family{number}.py").write_text(text)
        total += text.count("\n")
        number += 1
    imports = "".join(f"from zoo.family{i} import *\n" for i in range(number))
    (package / "__init__.py").write_text(imports)
    return total


def measure(root: Path, command: str, before: Path | None) -> dict[str, Any]:
    """The fastest of some runs, each way in turn, each in a fresh process."""
    ways: dict[str, tuple[str, Path]] = {"library": ("library", ROOT), "now": ("command", ROOT)}
    if before is not None:
        ways["before"] = ("command", before)
    runs: dict[str, list[dict[str, Any]]] = {way: [] for way in ways}
    for _ in range(RUNS):
        for way, (how, package) in ways.items():
            done = subprocess.run(
                [sys.executable, "-c", MEASURE, str(root), command, how],
                capture_output=True,
                text=True,
                check=False,
                cwd=package,
                env={**os.environ, "PYTHONPATH": str(package)},
            )
            if done.returncode:
                return {"note": done.stderr.strip().splitlines()[-1][:80]}
            runs[way].append(json.loads(done.stdout))
    best = {way: min(kept, key=lambda run: run["extract_s"]) for way, kept in runs.items()}
    now = best["now"]
    row = {
        "import_s": round(now["import_s"], 2),
        "library_extract_s": round(best["library"]["extract_s"], 2),
        "extract_s": round(now["extract_s"], 2),
        "library_rss_mb": best["library"]["rss_mb"],
        "rss_mb": now["rss_mb"],
        "fields": now["fields"],
        "times_faster_than_paper": round(PAPER_S / (now["import_s"] + now["extract_s"]), 1),
    }
    if before is not None:
        row["of_before"] = round(now["extract_s"] / best["before"]["extract_s"], 2)
        row["rss_of_before"] = round(now["rss_mb"] / best["before"]["rss_mb"], 2)
    return row


def count_lines(root: Path) -> int:
    return sum(path.read_bytes().count(b"\n") for path in root.rglob("*.py") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repos", type=Path, help="folder of checkouts")
    parser.add_argument("--largest", type=int, default=10)
    parser.add_argument("--before", type=Path, help="a checkout of schedmate as it was before")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "repo"
        lines = make_repository(root, 40_000)
        row = measure(root, "python train.py --model net123 --epochs 30", options.before)
    record("static_speed_synthetic", [{"repository": "made up", "lines": lines, **row}])
    if options.repos is not None:
        sizes = [(count_lines(path), path) for path in options.repos.iterdir() if path.is_dir()]
        rows = [
            {
                "repository": path.name.replace("+", "/"),
                "lines": lines,
                **measure(path, "", options.before),
            }
            for lines, path in sorted(sizes, reverse=True)[: options.largest]
        ]
        record("static_speed_real", rows)


if __name__ == "__main__":
    main()
