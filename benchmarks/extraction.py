"""How often static extraction gets the mandatory fields right on public repositories.

    python benchmarks/extraction.py benchmarks/labels/heldout.jsonl --repos DIR [--versions DIR ...]

DIR holds a plain checkout of every repository as OWNER+NAME, at the commit each label names
(`--list` prints them). A label file has one JSON object a line: id, repo, commit, command, launch,
expected (accepted forms of each mandatory field; null where the code does not say; a field that
was not labelled is left out and not counted), also (the same of further fields, counted apart),
kind where it was labelled (`kinds.py`) and why.

What counts as right: `public_benchmark.py`. The data set: docs/benchmark.md. Sure answers are those
of a confidence of at least `schedmate.jobs.metadata.SURE`. Seconds are of the CPU, a job.
`--versions` names trees of other commits of this repository, which then answer too; one table has
a row for each of them and for this one.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from _package import read_with
from _record import record
from public_benchmark import (
    FURTHER_FIELDS,
    MANDATORY_FIELDS,
    rows_by_field,
    share_interval,
    verdict,
)

from schedmate.jobs.metadata import SURE

PATHS = MANDATORY_FIELDS | FURTHER_FIELDS
ROOT = Path(__file__).parent.parent
PROGRAM = """
import json, sys, time
from pathlib import Path
from schedmate.agent.static import extract
from schedmate.jobs import LaunchConfig
labels, repos, *ids = sys.argv[1:]
for line in open(labels):
    job = json.loads(line)
    if ids and job["id"] not in ids:
        continue
    root = Path(repos, job["repo"].replace("/", "+"))
    started = time.process_time()
    row = {"id": job["id"], "evidence": {}, "warnings": []}
    try:
        found = extract(root, job["command"], LaunchConfig(**job.get("launch", {})))
        row["evidence"] = {
            field: {"value": proof.value, "confidence": proof.confidence, "where": proof.where()}
            for field, proof in found.metadata.evidence.items()
        }
        row["metadata"] = found.metadata.model_dump(mode="json", by_alias=True)
        row["warnings"] = found.warnings
    except Exception as error:
        row["warnings"] = [f"stopped early: {error}"]
    row["cpu_s"] = time.process_time() - started
    print(json.dumps(row, default=str))
"""
"""What is run with each version of the package."""


@dataclass
class Outcomes:
    """What one version of the package made of the labelled jobs."""

    fields: dict[str, Counter[str]] = field(
        default_factory=lambda: {name: Counter() for name in MANDATORY_FIELDS}
    )
    further: dict[str, Counter[str]] = field(default_factory=dict)
    sure: dict[float, Counter[str]] = field(default_factory=dict)
    """By tenths of confidence."""
    wrong_sure: int = 0
    by_repo: list[tuple[str, bool]] = field(default_factory=list)
    kinds: Counter[bool] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    cases: list[dict[str, Any]] = field(default_factory=list)

    def add(self, job: dict[str, Any], answer: dict[str, Any]) -> None:
        """Count one job's answers."""
        self.seconds.append(answer["cpu_s"])
        metadata, evidence = answer.get("metadata", {}), answer["evidence"]
        if "kind" in job:
            kinds = job["kind"] if isinstance(job["kind"], list) else [job["kind"]]
            self.kinds[metadata.get("job_kind") in kinds] += 1
        for name, accepted in (job["expected"] | job.get("also", {})).items():
            section, _, key = PATHS[name].partition(".")
            got, proof = metadata.get(section, {}).get(key), evidence.get(PATHS[name], {})
            outcome = verdict(got, accepted)
            if name in MANDATORY_FIELDS:
                self.fields[name][outcome] += 1
                self.by_repo.append((job["repo"], outcome == "right"))
                if got is not None and proof:
                    tenth = int(proof["confidence"] * 10) / 10
                    self.sure.setdefault(tenth, Counter())[outcome] += 1
                    self.wrong_sure += outcome != "right" and proof["confidence"] >= SURE
            else:
                self.further.setdefault(name, Counter())[outcome] += 1
            if outcome != "right":
                self.cases.append(
                    {
                        "job": job["id"],
                        "field": name,
                        "outcome": outcome,
                        "got": got,
                        "confidence": proof.get("confidence"),
                        "from": proof.get("where", ""),
                        "expected": accepted,
                    }
                )

    def sums(self) -> dict[str, Any]:
        """The sums over the mandatory fields, and what a job costs."""
        total = sum(self.fields.values(), Counter())
        return {
            **{name: total[name] for name in ("right", "wrong", "missing", "spurious")},
            "accuracy": round(total["right"] / total.total(), 3),
            "95 %": "{} to {}".format(*share_interval(self.by_repo)),
            "wrong and sure": self.wrong_sure,
            "kind right": f"{self.kinds[True]} of {self.kinds.total()}" if self.kinds else None,
            "CPU s median": round(median(self.seconds), 3),
            "CPU s worst": round(max(self.seconds), 3),
        }


def measure(tree: Path, jobs: list[dict[str, Any]], options: argparse.Namespace) -> Outcomes:
    """What the package of a tree makes of the jobs."""
    paths = [options.labels.resolve(), options.repos.resolve()]
    ids = [Path(job["id"]) for job in jobs] if options.only else []
    answers = {one["id"]: one for one in read_with(tree, PROGRAM, [*paths, *ids])}
    made = Outcomes()
    for job in jobs:
        answer = answers[job["id"]]
        for warning in answer["warnings"]:
            if "stopped early" in warning:
                print(f"{job['id']}: {warning}")
        made.add(job, answer)
    return made


def by_confidence(made: Outcomes) -> list[dict[str, Any]]:
    """How many answers of each tenth of confidence are right."""
    return [
        {
            "confidence from": tenth,
            "answers": counter.total(),
            "right": counter["right"],
            "share right": round(counter["right"] / counter.total(), 3),
        }
        for tenth, counter in sorted(made.sure.items())
    ]


def commit(tree: Path) -> dict[str, str]:
    """The commit of a tree, and its day."""
    command = ["git", "-C", str(tree), "log", "-1", "--format=%h %as"]
    short, day = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
    return {"commit": short, "date": day}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("labels", type=Path)
    parser.add_argument("--repos", type=Path, help="folder of checkouts named OWNER+NAME")
    parser.add_argument("--versions", type=Path, nargs="+", default=[], help="other trees")
    parser.add_argument("--only", help="ids to run, comma-separated")
    parser.add_argument("--list", action="store_true", help="print repositories and commits")
    parser.add_argument("--quiet", action="store_true", help="do not print the cases got wrong")
    parser.add_argument("--no-record", action="store_true")
    options = parser.parse_args()
    jobs = [json.loads(line) for line in options.labels.read_text().splitlines() if line.strip()]
    if options.list:
        for repo, at in sorted({(job["repo"], job["commit"]) for job in jobs}):
            print(repo, at)
        return
    if options.only:
        jobs = [job for job in jobs if job["id"] in options.only.split(",")]
    made = measure(ROOT, jobs, options)
    if not options.quiet:
        for case in made.cases:
            print(*(f"{name} {value!r}" for name, value in case.items()), sep=", ")
    meta = {
        "labels": options.labels.name,
        "jobs": len(jobs),
        "repositories": len({job["repo"] for job in jobs}),
        **made.sums(),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024,
    }
    name = f"extraction_{options.labels.stem}"
    tables: dict[str, list[Any]] = {name: rows_by_field(made.fields)}
    ordered = {one: made.further[one] for one in FURTHER_FIELDS if one in made.further}
    tables[f"{name}_further"] = rows_by_field(ordered) if ordered else []
    tables[f"{name}_confidence"] = by_confidence(made)
    tables[f"{name}_cases"] = made.cases
    if options.versions:
        rows = [commit(tree) | measure(tree, jobs, options).sums() for tree in options.versions]
        tables[f"{name}_versions"] = [*rows, commit(ROOT) | made.sums()]
    for table, rows in tables.items():
        if rows and options.no_record:
            print(table, *rows, meta, sep="\n")
        elif rows:
            record(table, rows, **meta)


if __name__ == "__main__":
    main()
