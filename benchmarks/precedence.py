"""Would a strict order of kinds of evidence choose better than the points do?

    python benchmarks/precedence.py --repos DIR [LABELS ...]

DIR holds checkouts as for `extraction.py`; LABELS are label files (all that are at hand by
default), and jobs whose repository is not in DIR are left out. For every answer, all candidates
that it was chosen from are put in the order of seven levels: proved on the path of the training
call, the command, the file that it chose, a default that is reached, what the code constructs,
names of classes and files, prose. The first level that has a candidate wins, within it the points.
The unit of a length is left out, as it goes with the length. Nothing is fitted, so no repository is
kept apart.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

from _record import record
from public_benchmark import FURTHER_FIELDS, MANDATORY_FIELDS, verdict

from schedmate.agent import static
from schedmate.agent.fields import confidence
from schedmate.agent.fields.candidates import Candidate
from schedmate.agent.units import UNIT
from schedmate.base.errors import SchedmateError
from schedmate.jobs import LaunchConfig

LABELS = Path(__file__).parent / "labels"
NAMED = {path: field for field, path in (MANDATORY_FIELDS | FURTHER_FIELDS).items()}
OF_SOURCE = {
    **dict.fromkeys(("command", "script", "environment", "launch"), 2),
    "config": 3,
    **dict.fromkeys(("default", "library"), 4),
}
OF_RULE = {
    "loop": 1,
    **dict.fromkeys(("script", "file name", "name in the launch"), 6),
    "README": 7,
}
"""Levels by the rule that found a candidate, which come before those by its source."""


def level(candidate: Candidate) -> int:
    """The level of a candidate, 1 to 7."""
    return OF_RULE.get(candidate.rule, OF_SOURCE.get(candidate.source, 5))


def chosen_from(job: dict[str, Any], root: Path) -> dict[str, Candidate]:
    """The answers of a job by field, each with the candidates that it was chosen from."""
    found: dict[str, Candidate] = {}
    judge = confidence.judge_answers

    def listening(answers: Any, scene: Any) -> Any:
        found.update(answers)
        return judge(answers, scene)

    confidence.judge_answers = listening
    try:
        static.extract(root, job["command"], LaunchConfig(**job.get("launch", {})))
    except SchedmateError as error:
        print(f"{job['id']}: {error}")
    finally:
        confidence.judge_answers = judge
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("labels", type=Path, nargs="*")
    parser.add_argument("--repos", type=Path, required=True, help="folder of checkouts")
    options = parser.parse_args()
    files = options.labels or [LABELS / f"{name}.jsonl" for name in ("dev", "heldout", "unseen")]
    counts: dict[str, Counter[str]] = {}
    jobs: list[dict[str, Any]] = []
    for line in (line for file in files for line in file.read_text().splitlines()):
        job = json.loads(line)
        root = options.repos / job["repo"].replace("/", "+")
        if not root.is_dir():
            continue
        jobs.append(job)
        labels = job["expected"] | job.get("also", {})
        for path, answer in chosen_from(job, root).items():
            field = NAMED.get(path)
            if field not in labels or not answer.considered or path == UNIT:
                continue
            options_at_hand = [answer, *answer.considered]
            first = min(options_at_hand, key=lambda one: (level(one), -one.score))
            right = verdict(answer.data, labels[field]) == "right"
            strict = verdict(first.data, labels[field]) == "right"
            counts.setdefault(field, Counter()).update(
                {
                    "answers": 1,
                    "right candidate at hand": any(
                        verdict(one.data, labels[field]) == "right" for one in options_at_hand
                    ),
                    "right by points": right,
                    "right by levels": strict,
                    "mended": strict and not right,
                    "lost": right and not strict,
                }
            )
    total: Counter[str] = Counter()
    for counter in counts.values():
        total.update(counter)
    columns = list(total)
    rows = [
        {"field": field, **{name: counter[name] for name in columns}}
        for field, counter in [*sorted(counts.items()), ("all", total)]
    ]
    repositories = len({job["repo"] for job in jobs})
    names = ", ".join(file.name for file in files)
    record("extraction_precedence", rows, labels=names, jobs=len(jobs), repositories=repositories)


if __name__ == "__main__":
    main()
