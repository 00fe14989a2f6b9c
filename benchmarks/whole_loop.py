"""One run with everything in the loop: code, extractor, history on disk, advisor, Lucid.

    python benchmarks/whole_loop.py --data DATA [--jobs 1000] [--seeds 1,2,3]

DATA has lucid/data/colocate_info.csv and lucid/single_data.csv. For each workload of the trace a
small project is written that trains what the recipe says: a script with options, one with a YAML
file, or one for the Trainer of transformers. The extractor reads it with its launch command, and
what it finds is the metadata of the workload's jobs. These projects are plainer than most; what
misreading costs is in studies_extraction.

The history in memory, that simulations use for speed, is held against the one on disk that
schedulers use (SQLite and FAISS): every job must start and end at the same time.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import yaml
from _bounds import StoredLucid  # noqa: F401 - policies name it
from _record import record
from _seeds import _world, trace_of
from public_benchmark import MANDATORY_FIELDS, verdict

from schedmate.agent.static import extract
from schedmate.jobs import LaunchConfig, WorkloadMetadata
from schedmate.schedulers.model import Cluster
from schedmate.schedulers.sim.runs import Plan, run_policy
from schedmate.schedulers.sim.traces.assign import GROUP
from schedmate.schedulers.sim.workload import Workload

RECIPE = "recurrence=0.9,early=0.46"

HEAD = """import torch
from data import load
from evaluation import validate
from nets import build

{settings}
train_set, val_set = load(args.dataset, "train"), load(args.dataset, "val")
loader = torch.utils.data.DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
val_loader = torch.utils.data.DataLoader(val_set, batch_size=args.batch_size)
model = build(args.model).cuda()
optimizer = torch.optim.{optimizer}(model.parameters(), lr=args.lr)
"""
LOOPS = {
    "epoch": """for epoch in range(args.epochs):
    for x, y in loader:
        step(x, y)
    validate(model, val_loader)
""",
    "step": """for step in range(args.max_steps):
    x, y = next(loader)
    train_step(x, y)
validate(model, val_loader)
""",
}
OPTIONS = """import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--model", type=str, default="resnet18")
parser.add_argument("--dataset", type=str, default="cifar10")
parser.add_argument("--batch-size", type=int, default=32)
parser.add_argument("--lr", type=float, default=0.1)
parser.add_argument("--epochs", type=int, default=10)
parser.add_argument("--max-steps", type=int, default=1000)
args = parser.parse_args()
"""
FILE = """import sys
import yaml
from types import SimpleNamespace
args = SimpleNamespace(**yaml.safe_load(open(sys.argv[1])))
"""
TRAINER = """from datasets import load_dataset
from transformers import AutoModel, HfArgumentParser, Trainer, TrainingArguments
from dataclasses import dataclass

@dataclass
class Data:
    dataset_name: str = "imdb"
    model_name_or_path: str = "bert"

data, training = HfArgumentParser((Data, TrainingArguments)).parse_args_into_dataclasses()
parts = load_dataset(data.dataset_name)
model = AutoModel.from_pretrained(data.model_name_or_path)
Trainer(model=model, args=training, train_dataset=parts["train"],
        eval_dataset=parts["validation"]).train()
"""


def project(root: Path, kind: int, said: WorkloadMetadata) -> str:
    """Write a project that trains what the metadata says; its launch command."""
    sections = said.sections()
    training, model, data = (
        sections["training_config"],
        sections["model_config"]["model_name"],
        sections["dataset_config"]["train"],
    )
    epochs = training["iter_type"] == "epoch"
    root.mkdir(parents=True)
    if kind == 2:
        (root / "train.py").write_text(TRAINER)
        length = ["--num_train_epochs" if epochs else "--max_steps", training["iters"]]
        words = ["--model_name_or_path", model, "--dataset_name", data, *length]
        words += ["--per_device_train_batch_size", training["batch_size"]]
        words += ["--learning_rate", training["lr"], "--output_dir", "out"]
    else:
        settings = (OPTIONS, FILE)[kind]
        code = HEAD.format(settings=settings, optimizer=training["optimizer"])
        (root / "train.py").write_text(code + LOOPS[training["iter_type"]])
        values = {
            "model": model,
            "dataset": data,
            "batch_size": training["batch_size"],
            "lr": training["lr"],
            "epochs" if epochs else "max_steps": training["iters"],
        }
        if kind == 1:
            (root / "config.yaml").write_text(yaml.safe_dump(values))
            words = ["config.yaml"]
        else:
            words = [x for k, v in values.items() for x in (f"--{k.replace('_', '-')}", v)]
    return "python train.py " + shlex.join(map(str, words))


def extracted(work: Workload) -> tuple[Workload, Counter[str]]:
    """The workload with what the extractor finds, and how often a field is right."""
    read: dict[Any, WorkloadMetadata] = {}
    counts: Counter[str] = Counter()
    with TemporaryDirectory(prefix="projects-") as folder:
        for job, group, said in zip(work.jobs, work.columns[GROUP], work.metadata, strict=True):
            if group in read or said is None:
                continue
            root = Path(folder) / f"{int(group or 0)}"
            command = project(root, int(group or 0) % 3, said)
            found = extract(root, command, LaunchConfig(gpus=job.gpus)).metadata
            read[group] = found
            for field, path in MANDATORY_FIELDS.items():
                outcome = verdict(found.get(path), said.get(path))
                counts[outcome] += 1
                if outcome != "right":
                    counts[f"{field} {outcome}, kind {int(group or 0) % 3}"] += 1
    return replace(work, metadata=[read[group] for group in work.columns[GROUP]]), counts


def main() -> None:
    """A row a seed, source of metadata and kind of history."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--jobs", type=int, default=1000)
    parser.add_argument("--seeds", default="1,2,3")
    given = parser.parse_args()
    rows = []
    for seed in map(int, given.seeds.split(",")):
        work, cluster = trace_of("Seren", given.data, given.jobs, seed, 1.2, RECIPE)
        by_code, counts = extracted(work)
        print(counts, file=sys.stderr)
        before: np.ndarray | None = None
        for metadata, jobs, policy in (
            ("recipe", work, "lucid+schedmate"),
            ("recipe", work, "_bounds:StoredLucid"),
            ("extractor", by_code, "lucid+schedmate"),
            ("extractor", by_code, "_bounds:StoredLucid"),
        ):
            settings = f"{policy}:gpu_memory_mb=81920"
            world = _world("pairs", given.data)
            plan = Plan((settings,), Cluster.parse(cluster), "user-mean", world, seed)
            run = run_policy(jobs, plan, settings)
            jct = run.per_job.jct_s
            stored = policy != "lucid+schedmate"
            counted = run.numbers["schedmate"]["advisor"]
            rows.append(
                {
                    "seed": seed,
                    "metadata from": metadata,
                    "history": "SQLite, FAISS" if stored else "memory",
                    "avg JCT h": round(run.numbers["avg_jct_h"], 4),
                    "jobs that end at another time": int((jct != before).sum()) if stored else "",
                    "estimated": counted["matched"],
                    "abstained": counted["abstained"],
                    "fields right": f"{counts['right']} of {6 * len(set(work.columns[GROUP]))}"
                    if metadata == "extractor"
                    else "",
                    "CPU s": run.numbers["cpu_s"],
                }
            )
            print(rows[-1], file=sys.stderr, flush=True)
            before = jct
    record("whole_loop", rows, trace=f"Seren (synthetic), {given.jobs} jobs, {RECIPE}")


if __name__ == "__main__":
    main()
