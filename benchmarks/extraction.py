"""How often static extraction gets the mandatory fields right on public repositories.

    python benchmarks/extraction.py benchmarks/labels/heldout.jsonl --repos DIR

DIR holds a plain checkout of every repository as OWNER+NAME, at the commit each label names
(`--list` prints them). A label file has one JSON object a line: id, repo, commit, command, launch,
expected (accepted forms of each mandatory field; null where the code does not say; a field that
was not labelled is left out and not counted), also (the same of further fields, counted apart)
and why.

What counts as right: `public_benchmark.py`. The data set: docs/benchmark.md.
"""

from __future__ import annotations

import argparse
import json
import resource
import time
from collections import Counter
from pathlib import Path
from typing import Any

from _record import record
from public_benchmark import FURTHER_FIELDS, MANDATORY_FIELDS, FieldRow, rows_by_field, verdict

from schedmate.agent.static import extract
from schedmate.base.errors import SchedmateError
from schedmate.jobs import LaunchConfig

PATHS = MANDATORY_FIELDS | FURTHER_FIELDS


def by_confidence(labels: Path, sure: dict[float, Counter[str]]) -> None:
    """Record how many answers of each tenth of confidence are right."""
    record(
        f"extraction_confidence_{labels.stem}",
        [
            {
                "confidence from": tenth,
                "answers": sum(counter.values()),
                "right": counter["right"],
                "share right": round(counter["right"] / sum(counter.values()), 3),
            }
            for tenth, counter in sorted(sure.items())
        ],
        labels=labels.name,
    )


def report(
    options: argparse.Namespace,
    table: list[FieldRow],
    further: dict[str, Counter[str]],
    cases: list[dict[str, Any]],
    meta: dict[str, Any],
) -> None:
    """Print the tables, or record them."""
    if options.no_record:
        for line in [*table, *(rows_by_field(further) if further else [])]:
            print(line)
        print(meta)
    else:
        if further:
            ordered = {field: further[field] for field in FURTHER_FIELDS if field in further}
            record(f"extraction_{options.labels.stem}_further", rows_by_field(ordered), **meta)
        record(f"extraction_{options.labels.stem}", table, **meta)
        if cases:
            record(f"extraction_{options.labels.stem}_cases", cases, labels=options.labels.name)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("labels", type=Path)
    parser.add_argument("--repos", type=Path, help="folder of checkouts named OWNER+NAME")
    parser.add_argument("--only", help="ids to run, comma-separated")
    parser.add_argument("--list", action="store_true", help="print repositories and commits")
    parser.add_argument("--quiet", action="store_true", help="do not print the cases got wrong")
    parser.add_argument(
        "--confidence",
        action="store_true",
        help="count right and wrong answers by their confidence, nothing else",
    )
    parser.add_argument("--no-record", action="store_true")
    options = parser.parse_args()
    rows = [json.loads(line) for line in options.labels.read_text().splitlines() if line.strip()]
    if options.list:
        for repo, commit in sorted({(row["repo"], row["commit"]) for row in rows}):
            print(repo, commit)
        return
    if options.only:
        rows = [row for row in rows if row["id"] in options.only.split(",")]
    counts: dict[str, Counter[str]] = {field: Counter() for field in MANDATORY_FIELDS}
    further: dict[str, Counter[str]] = {}
    times: list[float] = []
    cases: list[dict[str, Any]] = []
    sure: dict[float, Counter[str]] = {}
    for row in rows:
        root = options.repos / row["repo"].replace("/", "+")
        started = time.perf_counter()
        try:
            found = extract(root, row["command"], LaunchConfig(**row.get("launch", {})))
            metadata = found.metadata
            got = {field: metadata.get(path) for field, path in PATHS.items()}
            evidence = metadata.evidence
            for warning in found.warnings:
                if "stopped early" in warning:
                    print(f"{row['id']}: {warning}")
        except SchedmateError as error:
            print(f"{row['id']}: {error}")
            got, evidence = dict.fromkeys(PATHS), {}
        times.append(time.perf_counter() - started)
        for field, accepted in (row["expected"] | row.get("also", {})).items():
            path = PATHS[field]
            outcome = verdict(got[field], accepted)
            counter = (
                counts[field] if field in MANDATORY_FIELDS else further.setdefault(field, Counter())
            )
            counter[outcome] += 1
            if field in MANDATORY_FIELDS and got[field] is not None and path in evidence:
                tenth = int(evidence[path].confidence * 10) / 10
                sure.setdefault(tenth, Counter())[outcome] += 1
            if outcome != "right" and not (options.quiet or options.confidence):
                where = evidence[path].where() if path in evidence else ""
                print(
                    f"{row['id']}: {field} {outcome}: got {got[field]!r} [{where}], "
                    f"expected {accepted}"
                )
                cases.append(
                    {
                        "job": row["id"],
                        "field": field,
                        "outcome": outcome,
                        "got": got[field],
                        "from": where,
                        "expected": accepted,
                    }
                )
    if options.confidence:
        by_confidence(options.labels, sure)
        return
    table = rows_by_field(counts)
    times.sort()
    meta = {
        "labels": options.labels.name,
        "jobs": len(rows),
        "repositories": len({row["repo"] for row in rows}),
        "median_s": round(times[len(times) // 2], 3),
        "max_s": round(times[-1], 3),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }
    report(options, table, further, cases, meta)


if __name__ == "__main__":
    main()
