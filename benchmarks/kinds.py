"""How often static extraction tells the kind of a job, and whether it keeps to that kind's fields.

    python benchmarks/kinds.py benchmarks/labels/kinds_heldout.jsonl --repos DIR

DIR holds a plain checkout of every repository as OWNER+NAME, at the commit each label names
(`--list` prints them). A label file has one JSON object a line: id, repo, commit, command, kind
(one, or several where the kinds' definitions leave it open) and fields: accepted values of the
kind's own fields; null where the code does not say; a field that was not labelled is left out and
not counted. What counts as a right value: `public_benchmark.py`.

Beside schedmate's row is a keyword baseline: the first kind of which a common word stands in the
command or in the script that it names, with no look at the program.

Label files of trainings (`heldout.jsonl`, `dev.jsonl`) can be given too: there each kind of
training is right, and no fields are scored.
"""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

from _record import record
from public_benchmark import verdict

from schedmate.agent.static import extract
from schedmate.base.errors import SchedmateError
from schedmate.jobs import LaunchConfig, WorkloadMetadata
from schedmate.jobs.metadata import family

TRAININGS = ("training", "fine-tuning", "RL post-training")
WORDS = {
    "sweep": r"sweep|optuna|hparam|tune\b",
    "serving": r"\bserve|server|api|\bweb|gradio|worker|controller",
    "evaluation": r"eval|test|bench|score|lm_eval",
    "batch inference": r"infer|generat|sampl|predict|detect|demo",
    "data processing": r"prep|data|convert|download|tokeniz",
    "compile or test": r"make|pytest|build|export|setup",
    "RL post-training": r"grpo|ppo|rlhf",
    "fine-tuning": r"fine_?tun|sft|lora|dpo",
    "training": r"train",
}
"""The keyword baseline: written before it was scored, trainings last as most commands hold data."""
SERVED = {"model": "model_config.model_name"}


def by_keyword(command: str, root: Path) -> str:
    """The kind by the first common word of the command, or of a shell script that it names."""
    text = command
    for word in command.split():
        script = root / word
        if word.endswith((".sh", ".slurm")) and script.is_file():
            text += " " + script.read_text(errors="replace")
    return next((kind for kind, words in WORDS.items() if re.search(words, text)), "unknown")


def others_fields(metadata: WorkloadMetadata) -> list[str]:
    """Fields of trainings that a job of another kind was given."""
    if metadata.family == "training":
        return []
    return [
        f"{section}.{key}"
        for section in ("training_config", "dataset_config")
        for key, value in metadata.sections()[section].items()
        if value is not None
    ]


def same_names(got: Any, accepted: Any) -> str:
    """The verdict on a field; several names are compared as they are joined by commas."""
    forms = accepted if isinstance(accepted, list) else [accepted]
    if None in forms and got is None:
        return "right"
    return verdict(got, [form for form in forms if form is not None] or None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("labels", type=Path, nargs="+")
    parser.add_argument("--repos", type=Path, help="folder of checkouts named OWNER+NAME")
    parser.add_argument("--list", action="store_true", help="print repositories and commits")
    parser.add_argument("--quiet", action="store_true", help="do not print what was got wrong")
    parser.add_argument("--no-record", action="store_true")
    options = parser.parse_args()
    rows = [
        json.loads(line)
        for labels in options.labels
        for line in labels.read_text().splitlines()
        if line.strip()
    ]
    if options.list:
        for repo, commit in sorted({(row["repo"], row["commit"]) for row in rows}):
            print(repo, commit)
        return
    rows = [row for row in rows if (options.repos / row["repo"].replace("/", "+")).is_dir()]
    right: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    keyword: Counter[str] = Counter()
    confusion: Counter[tuple[str, str]] = Counter()
    fields: Counter[str] = Counter()
    sure: dict[float, Counter[bool]] = {}
    foreign, wrong_family = [], []
    for row in rows:
        root = options.repos / row["repo"].replace("/", "+")
        kinds = row.get("kind", list(TRAININGS))
        kinds = kinds if isinstance(kinds, list) else [kinds]
        try:
            found = extract(root, row["command"], LaunchConfig(**row.get("launch", {})))
            metadata = found.metadata
        except SchedmateError as error:
            if not options.quiet:
                print(f"{row['id']}: {error}")
            metadata = WorkloadMetadata()
        labelled = kinds[0] if "kind" in row else "training"
        told = metadata.job_kind
        is_right = told in kinds
        counts[labelled] += 1
        right[labelled] += is_right
        keyword[labelled] += by_keyword(row["command"], root) in kinds
        confusion[labelled, labelled if is_right and "kind" in row else told] += 1
        if (proof := metadata.evidence.get("job_kind")) is not None:
            sure.setdefault(proof.confidence, Counter())[is_right] += 1
        if not options.quiet and not is_right:
            note = metadata.evidence["job_kind"].note if "job_kind" in metadata.evidence else ""
            expected = " or ".join(kinds)
            print(f"{row['id']}: {told} ({note}), expected {expected}: {row['command'][:110]}")
        if family(told) != "training" or family(kinds[0]) == "training":
            foreign += [f"{row['id']}: {name}" for name in others_fields(metadata)]
        elif any(metadata.sections()["training_config"].values()):
            wrong_family.append(row["id"])  # a training's fields under the wrong kind
        for name, accepted in row.get("fields", {}).items():
            got = metadata.get(SERVED.get(name, f"job_config.{name}"))
            outcome = same_names(got, accepted)
            fields[outcome] += 1
            fields[f"{name}: {outcome}"] += 1
            if outcome != "right" and not options.quiet:
                print(f"{row['id']}: {name} {outcome}: got {got!r}, expected {accepted!r}")
    table = [
        {
            "kind": kind,
            "jobs": counts[kind],
            "right": right[kind],
            "share right": round(right[kind] / counts[kind], 3),
            "keyword baseline right": keyword[kind],
            "told as": ", ".join(
                f"{told} {count}"
                for (labelled, told), count in sorted(confusion.items(), key=lambda one: -one[1])
                if labelled == kind
            ),
        }
        for kind in [*counts, "all"]
        if kind != "all"
    ]
    others = sum(count for kind, count in counts.items() if family(kind) != "training")
    table.append(
        {
            "kind": "all",
            "jobs": len(rows),
            "right": sum(right.values()),
            "share right": round(sum(right.values()) / max(1, len(rows)), 3),
            "keyword baseline right": sum(keyword.values()),
            "told as": "",
        }
    )
    outcomes = ("right", "wrong", "missing", "spurious")
    meta = {
        "labels": ", ".join(labels.name for labels in options.labels),
        "repositories": len({row["repo"] for row in rows}),
        "jobs that are no trainings": others,
        "of these with a field of trainings": len(wrong_family)
        + len({f.split(":")[0] for f in foreign}),
        "own fields": {outcome: fields[outcome] for outcome in outcomes},
        "right by confidence": {
            str(level): f"{seen[True]} of {sum(seen.values())}"
            for level, seen in sorted(sure.items())
        },
    }
    if options.no_record:
        for line in table:
            print(line)
        print(meta)
        print({name: count for name, count in sorted(fields.items()) if ":" in name})
    else:
        record(f"kinds_{options.labels[0].stem.removeprefix('kinds_')}", table, **meta)


if __name__ == "__main__":
    main()
