"""How far simple methods come on the public benchmark of launch commands (docs/benchmark.md).

    python benchmarks/baselines.py --repos DIR [heldout] [dev] [unread] [--answers DIR]
                                   [--model-url URL --sample N]

DIR holds a plain checkout of repositories as OWNER+NAME; labelled jobs without one are left out,
and the result says how many there were. Three methods answer: `static`, the package's extraction
without a language model; `pattern`, regular expressions over the command and the script it starts;
`search`, the same, and what they do not find is looked for in all files of the repository, in the
order of their paths. The package was worked on with all of dev.jsonl at hand, so that its row there
is no estimate for other repositories; heldout.jsonl and results/extraction_first_sight.json are.
The patterns were written down once and not changed after they had been scored. With `--model-url`
a language model is shown the command and the scripts that `pattern` reads, up to 6,000 characters,
for N jobs of heldout.jsonl drawn by seed, and answers once under a schema; the others are scored on
that sample as well. Intervals are a bootstrap over repositories. `--answers` keeps the answers as
`public_benchmark.py score` reads them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from _bootstrap import bootstrap
from _model import Model, choice, number, words
from _record import record, recorded
from public_benchmark import FURTHER_FIELDS, MANDATORY_FIELDS, Label, job_labels, judge, score

from schedmate.agent.static import extract
from schedmate.base.errors import SchedmateError

LABELS = Path(__file__).parent / "labels"
READABLE = (".py", ".sh", ".yaml", ".yml", ".json", ".toml", ".cfg", ".slurm", ".sbatch")
MOST = 1_000_000
"""Characters that `search` reads of a repository."""
SEED = 0
NUMBER = r"(\d+(?:\.\d+)?(?:e-?\d+)?)"
NAME = r"""['"]?([A-Za-z][\w./-]*)"""
TO = r"""\b['"]?(?:\s*[=:]\s*|\s+|\s*,[^\n]{0,80}?default\s*=\s*)"""
"""Between a name and its value: of a flag, an assignment, a key, or an argparse default."""
PATTERNS = {
    "model_name": rf"(?:model_name_or_path|base_model|model_name|model|arch|net){TO}{NAME}",
    "train": rf"(?:train_file|train_data|dataset_name|dataset|data_path|data_dir|data){TO}{NAME}",
    "valid": rf"(?:valid|val|validation|eval|test)_(?:file|data|dataset|path|dir){TO}{NAME}",
    "optimizer": r"optim\.(\w+)\(|\b(AdamW|Adam|SGD|Adafactor|RMSprop|Lion)\b",
    "precision": r"\b(bf16|fp16|float16|bfloat16)\b",
    "lr": rf"(?:learning_rate|base_lr|lr){TO}{NUMBER}",
    "batch_size": rf"(?:train_batch_size|batch_size|batch-size|bs){TO}{NUMBER}",
    "per_device_batch_size": rf"per_device_train_batch_size{TO}{NUMBER}",
    "gradient_accumulation_steps": rf"gradient_accumulation_steps{TO}{NUMBER}",
    "tensor_parallel": rf"tensor[-_]model[-_]parallel[-_]size{TO}{NUMBER}",
    "pipeline_parallel": rf"pipeline[-_]model[-_]parallel[-_]size{TO}{NUMBER}",
    "num_gpus": rf"(?:nproc[-_]per[-_]node|num[-_]gpus|gpus){TO}{NUMBER}",
    "num_nodes": rf"(?:nnodes|num_nodes){TO}{NUMBER}",
}
STEPS = rf"(?:max_steps|num_steps|total_steps|train_steps|max_iters|iterations|iters){TO}{NUMBER}"
EPOCHS = rf"(?:num_train_epochs|num_epochs|max_epochs|n_epochs|epochs|epoch){TO}{NUMBER}"
TASKS = {
    "NLP": r"tokeniz|bert\b|gpt|llama|language|translation|transformers",
    "CV": r"image|torchvision|cifar|resnet|segment|detection",
    "Audio": r"audio|speech|wav|mel_",
    "RL": r"\bgym\b|reward|replay_buffer|rollout",
    "Graph": r"\bgraph|\bdgl\b|torch_geometric|\bgcn\b",
    "TimeSeries": r"time_?series|forecast|seq_len|pred_len",
    "Multimodal": r"\bvqa\b|\bclip\b|vision_language|caption",
    "Recommendation": r"recommend|user_id|item_id|click",
    "Science": r"protein|molecul|physics|\bpde\b|weather",
    "Tabular": r"tabular|xgboost|lightgbm",
}


def pattern(texts: list[str]) -> dict[str, Any]:
    """What the expressions find, each in the first of the texts that has it."""
    found: dict[str, Any] = {}
    for field, expression in PATTERNS.items():
        found[field] = first(expression, texts)
    for text in texts:  # the nearest text that says a length
        steps, epochs = first(STEPS, [text]), first(EPOCHS, [text])
        if steps is not None or epochs is not None:
            found["iters"] = epochs if steps is None else steps
            found["iter_type"] = "epoch" if steps is None else "step"
            break
    if found["valid"] is None and any(re.search(r"(?i)valid|eval|test", text) for text in texts):
        found["valid"] = found["train"]
    counts = {
        task: sum(len(re.findall(f"(?i){words}", text[:200_000])) for text in texts)
        for task, words in TASKS.items()
    }
    best = max(counts, key=counts.__getitem__)
    found["task_type"] = best if counts[best] else None
    return found


def first(expression: str, texts: list[str]) -> str | int | float | None:
    """What the group of an expression holds where it first fits."""
    for text in texts:
        match = re.search(rf"(?i)(?<![a-z]){expression}", text)
        if match is not None:
            value = next(group for group in match.groups() if group)
            if not re.fullmatch(NUMBER, value):
                return value[:300]
            return int(value) if value.isdigit() else float(value)
    return None


def scripts(root: Path, command: str) -> Iterator[str]:
    """The texts of the files that a command names, and of the scripts that those name."""
    folders = [root, *(root / word for word in re.findall(r"\bcd\s+([\w./-]+)", command))]
    modules = re.findall(r"-m\s+([\w.]+)", command)
    words = re.findall(r"[\w./-]+\.(?:py|sh|slurm|sbatch|ya?ml|json)\b", command)
    seen: set[Path] = set()
    for word in [*words, *(module.replace(".", "/") + ".py" for module in modules)]:
        for path in (folder / word.lstrip("/") for folder in folders):
            if path.is_file() and path not in seen:
                seen.add(path)
                text = path.read_text(errors="replace")[:MOST]
                yield text
                if path.suffix in (".sh", ".slurm", ".sbatch"):
                    for inner in re.findall(r"[\w./-]+\.py\b", text)[:3]:
                        if (root / inner.lstrip("/")).is_file():
                            yield (root / inner.lstrip("/")).read_text(errors="replace")[:MOST]


def everything(root: Path) -> str:
    """The files of a repository by path, up to MOST characters."""
    parts, room = [], MOST
    for folder, folders, names in os.walk(root):
        folders.sort()
        for name in sorted(names):
            if name.endswith(READABLE) and room > 0 and (Path(folder) / name).is_file():
                with (Path(folder) / name).open(errors="replace") as file:
                    parts.append(file.read(min(room, 100_000)))
                room -= len(parts[-1])
    return "\n".join(parts)


def static(root: Path, label: Label) -> dict[str, Any]:
    """What the package's extraction says."""
    try:
        metadata = extract(root, label.command, label.launch).metadata
    except SchedmateError:
        return {}
    return {
        field: metadata.get(path) for field, path in (MANDATORY_FIELDS | FURTHER_FIELDS).items()
    }


def answer(method: str, root: Path, label: Label) -> dict[str, Any]:
    if method == "static":
        return static(root, label)
    texts = [label.command, *scripts(root, label.command)]
    return pattern([*texts, everything(root)] if method == "search" else texts)


TASK = """The launch command of a training job and the scripts that it starts follow. Answer in \
JSON: model_name (the model or its architecture); task_type; iters (how many epochs or steps it \
trains); iter_type (epoch or step); train and valid (the data sets). Null where the code does not \
tell."""


def asked(model: Model, root: Path, label: Label) -> dict[str, Any]:
    """What a language model says of the command and its scripts."""
    fields = {
        "model_name": words(60),
        "task_type": choice(*TASKS, null=True),
        "iters": number(),
        "iter_type": choice("epoch", "step", null=True),
        "train": words(60),
        "valid": words(60),
    }
    shown = "\n\n".join([label.command, *scripts(root, label.command)])
    return model.answer(TASK, shown, fields)


Method = Callable[[Path, Label], dict[str, Any]]


def row(
    name: str, method: str, run: Method, labels: dict[str, Label], roots: dict[str, Path]
) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
    """The score of a method on the labels whose ids have a root, and its answers."""
    started = time.process_time()
    answers = {job: run(root, labels[job]) for job, root in roots.items()}
    spent = time.process_time() - started
    scored = score(labels, answers, names=(f"{name}.jsonl", method), answered_only=True)
    judged = judge((labels[job] for job in roots), answers)
    outcomes = [
        (repo, case["verdict"] == "right")
        for repo, case in judged
        if case["field"] in MANDATORY_FIELDS
    ]
    total = scored["fields"][-1]
    made = {
        "labels": f"{name}.jsonl",
        "method": method,
        "jobs": f"{scored['jobs']} of {len(labels)}",
        "repositories": scored["repositories"],
        **{one["field"]: one["accuracy"] for one in scored["fields"]},
        "95 %": bootstrap(outcomes),
        **{key: total[key] for key in ("right", "wrong", "missing", "spurious")},
        "further": scored["further"][-1]["accuracy"] if scored["further"] else None,
        "CPU s a job": round(spent / max(1, len(roots)), 3),
    }
    return made, answers


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("labels", nargs="*", choices=("heldout", "unread", "dev"), help="else all")
    parser.add_argument("--repos", type=Path, required=True, help="checkouts named OWNER+NAME")
    parser.add_argument("--answers", type=Path, help="folder to keep the answers in")
    parser.add_argument("--model-url", help="OpenAI-compatible server of a language model")
    parser.add_argument("--sample", type=int, default=20, help="jobs that the model is asked about")
    options = parser.parse_args()
    methods: dict[str, Method] = {
        name: partial(answer, name) for name in ("pattern", "search", "static")
    }
    wanted = options.labels or ["heldout", "unread", "dev"]
    last = recorded("baselines")["rows"]  # rows stay where their labels are not asked for now
    rows = [one for one in last if one["labels"].removesuffix(".jsonl") not in wanted]
    meta: dict[str, Any] = {}
    if rows:
        meta["kept"] = (
            "rows of other labels are of an earlier commit, and of the interval of its time"
        )
    for name in wanted:
        labels = job_labels(LABELS / f"{name}.jsonl")
        roots = {one.id: options.repos / one.repo.replace("/", "+") for one in labels.values()}
        roots = {job: root for job, root in roots.items() if root.is_dir()}
        for method, run in methods.items():
            made, answers = row(name, method, run, labels, roots)
            rows.append(made)
            if options.answers is not None:
                lines = [json.dumps({"id": job, "answers": one}) for job, one in answers.items()]
                kept = options.answers / f"{method}_{name}.jsonl"
                kept.write_text("\n".join(lines) + "\n")
        if name == "heldout" and options.model_url:
            model = Model(options.model_url)
            drawn = random.Random(SEED).sample(sorted(roots), min(options.sample, len(roots)))
            few = {job: roots[job] for job in drawn}
            started = time.monotonic()
            rows.append(row(name, f"model {model.name}", partial(asked, model), labels, few)[0])
            meta["model wall s"] = round(time.monotonic() - started)
            if len(few) < len(roots):
                rows += [row(name, method, run, labels, few)[0] for method, run in methods.items()]
    rows.sort(key=lambda one: one["labels"], reverse=True)
    record("baselines", rows, what="labelled jobs whose repository was at hand", seed=SEED, **meta)


if __name__ == "__main__":
    main()
