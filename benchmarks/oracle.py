"""What a model that answers from the labels wins, and what one that is sometimes wrong spoils.

    python benchmarks/oracle.py                 # the fixture repositories
    python benchmarks/oracle.py --labels FILE --repos DIR

A scripted model gives for every field that it is asked for the label's value with a true line: the
line of the static answer where that has it, else the first line of the job's files whose text
has the value. The checker has no part in choosing it, so what it refuses is counted honestly. A
value that no line has (a length that is computed) is left out. With a share of wrong answers, a
finding is replaced by another value that also stands on the line it cites: another name or number
of the same file, another domain, the other unit. On the fixtures static analysis is right
throughout, since they are its tests; so there is also a row in which one field in five is taken
away from it.

Rows: fields right by static analysis alone (the baseline) and with the model, right findings that
were refused, right static fields that turned wrong, of those the ones that were at least 80 % sure,
and what a job took in calls and tokens (four characters each). Cited lines that the first message
does not show cost the model a call with `file_read`.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from _record import record
from public_benchmark import verdict
from reading import Job, fixtures, labelled

from schedmate.agent import Extraction
from schedmate.agent.react.citations import COMMAND
from schedmate.agent.react.extractor import DOUBTFUL_BELOW, MetadataExtractor, same_value
from schedmate.agent.react.sources import files_of_job
from schedmate.agent.static import extract
from schedmate.agent.units import ITERS, UNIT
from schedmate.base.errors import SchedmateError
from schedmate.jobs import JobSpec, ModelUse, WorkloadMetadata
from schedmate.llm import replay_llm
from schedmate.llm.scripted import Reply, Script, ToolCall
from schedmate.settings import load_settings
from schedmate.tools import RepoFiles

TASK, VALID = "model_config.task_type", "dataset_config.valid"
DOMAINS = ("NLP", "CV", "Audio", "RL", "Graph", "Tabular")
COMMENT = re.compile(r"\s*(#|//)")


@dataclass(frozen=True)
class Answered:
    """What one job's model was asked and gave, and what became of it."""

    before: WorkloadMetadata
    after: WorkloadMetadata
    use: ModelUse
    right: int
    """Right findings that the model gave."""
    refused: list[str]
    """Those of them that were refused."""


class Oracle:
    """The answers of one job by its labels, of which `wrong` is the share that is not."""

    def __init__(self, job: Job, static: Extraction, wrong: float, seed: int) -> None:
        self.job, self.static, self.wrong = job, static, wrong
        self.files = RepoFiles(job.repo)
        cited = [proof.file for proof in static.metadata.evidence.values() if proof.file]
        start = [*([static.entry] if static.entry else []), *cited]
        part = files_of_job(self.files, job.command, start)
        self.paths = dict.fromkeys([*start, *sorted(part)])
        self.random = random.Random(f"{seed} {job.name}")
        self.truths: dict[str, Any] = {}

    def findings(self, asked: list[str]) -> list[dict[str, Any]]:
        """One finding a field, where there is a line for it."""
        out = []
        for field in asked:
            if field not in self.job.expected:
                continue
            expected = self.job.expected[field]
            options = expected if isinstance(expected, list) else [expected]
            if options == [None]:
                if field == VALID:
                    out.append({"field": field, "value": None, "file": "", "line": 0,
                                "quote": None, "none_found": True})  # fmt: skip
                continue
            place = self._place(field, options)
            if place is None:
                continue
            value, file, line = place
            self.truths[field] = value
            if self.random.random() < self.wrong:
                value, file, line = self._decoy(field, value, file, line)
                del self.truths[field]
            finding = {"field": field, "value": value, "file": file, "line": line}
            if field == ITERS:
                unit = self.job.expected.get(UNIT)
                finding["unit"] = unit[0] if isinstance(unit, list) else unit
            out.append(finding)
        return out

    def _place(self, field: str, options: list[Any]) -> tuple[Any, str, int] | None:
        proof = self.static.metadata.evidence.get(field)
        if proof is not None and verdict(proof.value, options) == "right":
            lines = self.files.lines(proof.file) if proof.file else None
            if lines and proof.line and holds(lines[proof.line - 1], proof.value):
                return proof.value, str(proof.file), proof.line
            if proof.source == "command" and holds(self.job.command, proof.value):
                return proof.value, COMMAND, 1
        if field in (TASK, UNIT):  # by the line of what it follows from
            names = (
                ("dataset_config.train", "model_config.model_name") if field == TASK else (ITERS,)
            )
            for name in names:
                of = self.job.expected.get(name)
                if of is not None and (
                    found := self._line_of(of if isinstance(of, list) else [of])
                ):
                    return options[0], *found[1:]
            return None
        return self._line_of(options)

    def _line_of(self, options: list[Any]) -> tuple[Any, str, int] | None:
        for value in options:
            if value is None:
                continue
            if holds(self.job.command, value):
                return value, COMMAND, 1
            for path in self.paths:
                for number, line in enumerate(self.files.lines(path) or (), 1):
                    if not COMMENT.match(line) and holds(line, value):
                        return value, path, number
        return None

    def _decoy(self, field: str, value: Any, file: str, line: int) -> tuple[Any, str, int]:
        """Another value of the kind that stands on the line that is cited."""
        if field == TASK:
            return self.random.choice([one for one in DOMAINS if one != value]), file, line
        if field == UNIT:
            return ("step" if value == "epoch" else "epoch"), file, line
        kind = r"\b\d+\b" if isinstance(value, int | float) else r"[A-Za-z_]\w{3,}"
        path = next(iter(self.paths), file) if file == COMMAND else file
        there = [
            (found, path, number)
            for number, text in enumerate(self.files.lines(path) or (), 1)
            for found in re.findall(kind, text)
            if not same_value(found, value) and found != "0"
        ]
        return self.random.choice(there) if there else (value, file, line)


def holds(line: str, value: Any) -> bool:
    """Whether a text has a value, between other characters than those of a name or number."""
    text = re.escape(f"{value:.15g}" if isinstance(value, float) else str(value))
    return re.search(rf"(?<![\w.]){text}(?![\w])(?!\.\d)", line, re.IGNORECASE) is not None


def ask(job: Job, static: Extraction, wrong: float, seed: int, scratch: Path) -> Answered:
    """One job with the scripted model."""
    spec = JobSpec(job_id=job.name, repo=str(job.repo), command=job.command, launch=job.launch)
    settings = load_settings(trajectories=scratch / "t")
    oracle = Oracle(job, static, wrong, seed)
    idle = MetadataExtractor(replay_llm(settings, scratch / "none", Script(replies=[])), settings)
    request = idle.prompt(spec, static)
    findings = oracle.findings(list(idle.asked(static)))
    shown = request["messages"][1]["content"] if request is not None else ""
    unseen = sorted(
        {
            str(one["file"])
            for one in findings
            if one["file"] not in ("", COMMAND) and not is_shown(shown, one["file"], one["line"])
        }
    )
    reads = [ToolCall(name="file_read", args={"path": path}) for path in unseen[:8]]
    replies = [Reply(tool_calls=reads)] if reads else []
    replies.append(Reply(content=json.dumps({"findings": findings}), repeat=True))
    llm = replay_llm(settings, scratch / "script", Script(replies=replies))
    after, use = MetadataExtractor(llm, settings).extract(spec, static)
    llm.close()
    idle.llm.close()
    refused = [
        text
        for text in use.dropped
        if (field := text.partition(" = ")[0]) in oracle.truths
        and text.startswith(f"{field} = {oracle.truths[field]!r} ")
    ]
    return Answered(static.metadata, after, use, len(oracle.truths), refused)


def blinded(static: Extraction, share: float, seed: str) -> Extraction:
    """The extraction without a share of its mandatory fields, as of code that it cannot follow."""
    chance = random.Random(seed)
    gone = {path for path in WorkloadMetadata.MANDATORY if chance.random() < share}
    sections: dict[str, Any] = static.metadata.sections()
    for path in gone:
        section, _, key = path.partition(".")
        sections[section][key] = None
    evidence = {path: one for path, one in static.metadata.evidence.items() if path not in gone}
    left = {**sections, "job_kind": static.metadata.job_kind, "evidence": evidence}
    return replace(static, metadata=WorkloadMetadata.model_validate(left))


def is_shown(message: str, path: str, line: int) -> bool:
    """Whether the first message shows a line of a file."""
    _, found, rest = message.partition(f"\n{path} (")
    return bool(found) and f"\n{line}| " in rest.partition("\n\n")[0] + "\n"


def row(model: str, jobs: list[Job], answered: list[Answered]) -> dict[str, Any]:
    """The sums over all jobs."""
    before, after = (
        Counter(
            verdict(getattr(one, which).get(field), job.expected.get(field))
            for job, one in zip(jobs, answered, strict=True)
            for field in WorkloadMetadata.MANDATORY
            if field in job.expected
        )
        for which in ("before", "after")
    )
    turned = list(turned_wrong(jobs, answered))
    uses = [one.use for one in answered]
    right, refused = sum(one.right for one in answered), sum(len(one.refused) for one in answered)
    return {
        "model": model,
        "jobs": len(jobs),
        "fields": before.total(),
        "static right": before["right"],
        "hybrid right": after["right"],
        "hybrid wrong": after["wrong"] + after["spurious"],
        "static accuracy": round(before["right"] / before.total(), 3),
        "hybrid accuracy": round(after["right"] / after.total(), 3),
        "right findings": right,
        "right findings refused": refused,
        "share refused": round(refused / right, 3) if right else None,
        "right turned wrong": len(turned),
        "of those sure": sum(sure >= DOUBTFUL_BELOW for sure in turned),
        "calls a job": round(sum(use.calls for use in uses) / len(uses), 2),
        "input tokens a job": round(sum(use.input_tokens for use in uses) / len(uses)),
        "output tokens a job": round(sum(use.output_tokens for use in uses) / len(uses)),
    }


def turned_wrong(jobs: list[Job], answered: list[Answered]) -> Iterator[float]:
    """The static confidence of each right field that the model made wrong."""
    for job, one in zip(jobs, answered, strict=True):
        for field in WorkloadMetadata.MANDATORY:
            expected = job.expected.get(field)
            was = field in job.expected and verdict(one.before.get(field), expected) == "right"
            if was and verdict(one.after.get(field), expected) != "right":
                proof = one.before.evidence.get(field)
                yield proof.confidence if proof is not None else 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--labels", type=Path, help="label file of public repositories")
    parser.add_argument("--repos", type=Path, help="their checkouts")
    parser.add_argument("--every", type=int, default=1, help="take one job in so many")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--refused", action="store_true", help="print the right ones refused")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        source = (
            labelled(options.labels, options.repos, None) if options.labels else fixtures(scratch)
        )
        jobs, statics = [], []
        for job in list(source)[:: options.every]:
            try:
                statics.append(extract(job.repo, job.command, job.launch))
            except SchedmateError as error:
                print(f"{job.name}: {error}")
            else:
                jobs.append(job)
        rows = []
        for model, wrong, taken in (
            ("right", 0.0, 0.0),
            ("wrong one time in five", 0.2, 0.0),
            ("right, static blind in one field of five", 0.0, 0.2),
        ):
            answered = [
                ask(
                    job,
                    blinded(static, taken, f"{options.seed} {job.name}"),
                    wrong,
                    options.seed,
                    scratch,
                )
                for job, static in zip(jobs, statics, strict=True)
            ]
            rows.append(row(model, jobs, answered))
            if options.refused:
                for job, one in zip(jobs, answered, strict=True):
                    print(*(f"{job.name}: {text}" for text in one.refused), sep="\n", end="\n")
        record(
            f"oracle_{options.labels.stem}" if options.labels else "oracle",
            rows,
            repositories=options.labels.name if options.labels else "tests/fixtures/repos",
            every=options.every,
            fields="mandatory ones only",
        )


if __name__ == "__main__":
    main()
