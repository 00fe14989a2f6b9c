"""What a model's reading costs and adds, over the fixture repositories.

    python benchmarks/reading.py                                    # a scripted model that knows
    python benchmarks/reading.py --llm-base-url http://127.0.0.1:8000/v1 --model NAME
    python benchmarks/reading.py --llm-base-url ... --intensity 1,2,4,8,16,32

Without a server the model is a script made from each repository's expected metadata: it reads the
files that hold the answers to what it is asked, and reports these alone, also where no line proves
them. So what is not asked stays as static analysis has it, and what cannot be proved is refused. It
shows whom we ask and what we believe, and what readings cost in calls, tokens and time beside the
model's own; it says nothing about the quality of any model. With a server the same tables are made
for real (the paper's Figure 15), and `--intensity` sends that many jobs at once (Figure 14: mean
delay, jobs an hour).

The fixtures are small repositories written for this project; `--labels` with `--repos` takes public
ones, as benchmarks/extraction.py does, as far as their checkouts are there; `--per-repo` bounds how
many jobs of one repository count. The second table says why findings were refused. A scripted model
shows what asking could win at most, not what a real model wins: it is never wrong about what it is
asked, except that it also reports what no line proves.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, median
from typing import Any

import yaml
from _record import record
from public_benchmark import MANDATORY_FIELDS, verdict

from schedmate.agent.react.citations import ASKABLE_FIELDS, COMMAND, Citations, Finding
from schedmate.agent.react.extractor import fields_to_ask
from schedmate.agent.react.sources import files_of_job
from schedmate.agent.static import extract
from schedmate.base.errors import SchedmateError
from schedmate.jobs import Evidence, JobSpec, LaunchConfig, WorkloadMetadata
from schedmate.mate import Analysis, SchedMate
from schedmate.settings import load_settings
from schedmate.tools import RepoFiles

FIXTURES = Path(__file__).parent.parent / "tests" / "fixtures" / "repos"
MODES = ("static", "hybrid", "agent")


@dataclass(frozen=True)
class Job:
    """A repository and what is to be found in it, by dotted field."""

    name: str
    repo: Path
    command: str
    launch: LaunchConfig
    expected: dict[str, Any]


def fixtures(into: Path) -> Iterator[Job]:
    """The fixture repositories, copied without the file that holds the answers."""
    for case_file in sorted(FIXTURES.glob("*/*/case.yaml")):
        case = yaml.safe_load(case_file.read_text())
        root = into / case_file.parent.name
        shutil.copytree(
            case_file.parent, root, symlinks=True, ignore=shutil.ignore_patterns("case.yaml")
        )
        launch = LaunchConfig(**case.get("launch", {}))
        yield Job(root.name, root, case["command"], launch, case["expected"])


def labelled(labels: Path, repos: Path, per_repo: int | None) -> Iterator[Job]:
    """Public repositories with labels whose checkouts are there, as extraction.py reads them."""
    taken: Counter[str] = Counter()
    for line in labels.read_text().splitlines():
        row = json.loads(line)
        root = repos / row["repo"].replace("/", "+")
        if not row["expected"] or not root.is_dir() or taken[row["repo"]] == per_repo:
            continue
        taken[row["repo"]] += 1
        expected = {MANDATORY_FIELDS[name]: one for name, one in row["expected"].items()}
        launch = LaunchConfig(**row.get("launch", {}))
        yield Job(row["id"], root, row["command"], launch, expected)


def script(job: Job, mode: str, path: Path) -> str:
    """A scripted model that knows what is expected of `job` and reports what it is asked for."""
    files = RepoFiles(job.repo)
    static = extract(job.repo, job.command, job.launch)
    cited = [proof.file for proof in static.metadata.evidence.values() if proof.file]
    part = files_of_job(files, job.command, [*([static.entry] if static.entry else []), *cited])
    citations = Citations(files, part, job.command, static.metadata, static.entry)
    findings = []
    for field in ASKABLE_FIELDS if mode == "agent" else fields_to_ask(static):
        expected = job.expected.get(field)
        options = expected if isinstance(expected, list) else [expected]
        proof = next((p for o in options if (p := _where(citations, part, files, field, o))), None)
        if expected is not None:
            findings.append(
                {
                    "field": field,
                    "value": options[0] if proof is None else proof.value,
                    "file": COMMAND if proof is None else proof.file or COMMAND,
                    "line": 1 if proof is None else proof.line or 1,
                }
            )
    paths = sorted({str(one["file"]) for one in findings} - {COMMAND})
    reads = [
        {"name": "file_read", "args": {"path": one}} for one in paths[:8] if one != static.entry
    ]
    replies: list[dict[str, Any]] = [{"tool_calls": reads}] if reads else []
    replies.append({"content": json.dumps({"findings": findings}), "repeat": True})
    path.write_text(yaml.safe_dump({"schema": "schedmate.scripted/v1", "replies": replies}))
    return f"scripted:{path}"


def _where(
    citations: Citations, part: set[str], files: RepoFiles, field: str, value: Any
) -> Evidence | None:
    """The first line of the job's files that proves the value."""
    if value is None:
        return None
    for path in (COMMAND, *sorted(part)):
        length = 1 if path == COMMAND else len(files.lines(path) or ())
        for number in range(1, length + 1):
            found = citations.check(Finding(field=field, value=value, file=path, line=number))
            if isinstance(found, Evidence) and found.confidence > 0.6:
                return found
    return None


def analyse(job: Job, mode: str, options: argparse.Namespace, scratch: Path) -> Analysis | None:
    """One job in one mode; None when the repository cannot be analysed."""
    flags: dict[str, Any] = {"mode": mode, "trajectories": options.trajectories or scratch / "t"}
    spec = JobSpec(job_id=job.name, repo=str(job.repo), command=job.command, launch=job.launch)
    try:
        if mode != "static" and options.llm_base_url:
            flags |= {"llm_base_url": options.llm_base_url, "llm_model": options.model}
            flags |= {"llm_cache": False, "llm_context_tokens": options.context}
        elif mode != "static":
            flags["llm_model"] = script(job, mode, scratch / f"{job.name}-{mode}.yaml")
        with SchedMate(load_settings(**flags)) as mate:
            return mate.analyze(spec)
    except SchedmateError as error:
        print(f"{job.name}: {error}")
        return None


def summary(mode: str, jobs: list[Job], found: list[Analysis | None]) -> dict[str, Any]:
    """One row: accuracy and cost of a mode over all jobs."""
    outcomes = [
        verdict(None if one is None else one.metadata.get(field), job.expected.get(field))
        for job, one in zip(jobs, found, strict=True)
        for field in WorkloadMetadata.MANDATORY
        if field in job.expected
    ]
    uses = [one.model for one in found if one is not None and one.model is not None]
    calls = [use.calls for use in uses]
    row: dict[str, Any] = {
        "mode": mode,
        "jobs": len(jobs),
        "right": outcomes.count("right"),
        "wrong": outcomes.count("wrong") + outcomes.count("spurious"),
        "unknown": outcomes.count("missing"),
        "accuracy": round(outcomes.count("right") / len(outcomes), 3),
        "jobs without a call": len(jobs) - sum(1 for count in calls if count),
        "questions a job": round(sum(len(use.asked) for use in uses) / len(jobs), 2),
        "conflicts": sum(len(use.conflicts) for use in uses),
        "calls a job": round(sum(calls) / len(jobs), 2),
        "input tokens a job": round(sum(use.input_tokens for use in uses) / len(jobs)),
        "output tokens a job": round(sum(use.output_tokens for use in uses) / len(jobs)),
        "prefix-cached": round(sum(use.cached_tokens for use in uses) / len(jobs)),
        "accepted": sum(len(use.filled) for use in uses),
        "refused": sum(len(use.dropped) for use in uses),
        "readings that failed": sum(use.outcome not in ("ok", "not needed") for use in uses),
        "seconds a job": round(mean(one.timing_s["total"] for one in found if one is not None), 3),
        "median s": round(median(one.timing_s["total"] for one in found if one is not None), 3),
    }
    return row


def refusals(mode: str, found: list[Analysis | None]) -> list[dict[str, Any]]:
    """How often findings were refused, by field and reason; numbers and names are left out."""
    counts: Counter[tuple[str, str]] = Counter()
    for one in found:
        for text in one.model.dropped if one is not None and one.model is not None else ():
            field, _, rest = text.partition(" = ")
            reason = rest.rpartition(": ")[2]
            reason = re.sub(r"'[^']*'|\"[^\"]*\"|\S*\d\S*", "...", reason)
            counts[field, reason] += 1
    return [
        {"mode": mode, "field": field, "reason": reason, "refused": count}
        for (field, reason), count in counts.most_common()
    ]


def intensity(
    jobs: list[Job], mode: str, at_once: int, options: argparse.Namespace, scratch: Path
) -> dict[str, Any]:
    """Delay and throughput with `at_once` jobs submitted together (Figure 14)."""
    began = time.perf_counter()
    with ThreadPoolExecutor(at_once) as pool:
        found = list(pool.map(lambda job: analyse(job, mode, options, scratch), jobs))
    took = time.perf_counter() - began
    delays = [one.timing_s["total"] for one in found if one is not None]
    return {
        "mode": mode,
        "jobs at once": at_once,
        "mean delay s": round(mean(delays), 2),
        "jobs an hour": round(3600 * len(jobs) / took),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--llm-base-url", help="an OpenAI-compatible server; default: scripted")
    parser.add_argument("--model", help="model name there; default: the first it serves")
    parser.add_argument("--context", type=int, default=32_768, help="its context length [tokens]")
    parser.add_argument("--labels", type=Path, help="label file of public repositories")
    parser.add_argument("--repos", type=Path, help="their checkouts")
    parser.add_argument("--per-repo", type=int, help="most jobs of one public repository")
    parser.add_argument("--first", type=int, help="only so many jobs")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--intensity", help="numbers of jobs at once, comma-separated")
    parser.add_argument("--trajectories", type=Path, help="keep the records of readings there")
    parser.add_argument("--name", help="of the result; default: by model")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        source = fixtures(scratch)
        if options.labels:
            source = labelled(options.labels, options.repos, options.per_repo)
        jobs = list(source)[: options.first]
        analyse(jobs[0], "static", options, scratch)  # imports and the embedder, once
        rows, cases, refused = [], [], []
        for mode in options.modes.split(","):
            found = [analyse(job, mode, options, scratch) for job in jobs]
            rows.append(summary(mode, jobs, found))
            refused += refusals(mode, found)
            cases += [
                {
                    "job": job.name,
                    "mode": mode,
                    "model": one.model.model,
                    "outcome": one.model.outcome,
                    "asked": len(one.model.asked),
                    "filled": len(one.model.filled),
                    "dropped": len(one.model.dropped),
                    "calls": one.model.calls,
                    "seconds": one.model.seconds,
                    "reason": (one.model.reason or "")[:160],
                }
                for job, one in zip(jobs, found, strict=True)
                if one is not None and one.model is not None and one.model.calls
            ]
        named = {case.pop("model") for case in cases}  # the one that a server offered, unless named
        who = ", ".join(sorted(named)) if options.llm_base_url else "scripted"
        name = options.name or "reading_" + "".join(c if c.isalnum() else "_" for c in who)
        meta = {
            "repositories": options.labels.name if options.labels else "tests/fixtures/repos",
            "model": who,
            "fields": "mandatory ones only",
        }
        record(name, rows, **meta)
        if refused:
            record(f"{name}_refused", refused, **meta)
        if cases and options.llm_base_url:
            record(f"{name}_cases", cases, working=True, **meta)
        if options.intensity:
            loads = [int(one) for one in options.intensity.split(",")]
            record(
                f"{name}_intensity",
                [intensity(jobs, "agent", one, options, scratch) for one in loads],
                **meta,
            )


if __name__ == "__main__":
    main()
