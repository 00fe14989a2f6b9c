"""Whether answers follow the command: change one value that it sets, and look at what is answered.

    python benchmarks/metamorphic.py --labels benchmarks/labels/dev.jsonl --repos DIR

Needs no labels: the commands of the labelled jobs whose repositories are in DIR (as OWNER+NAME) and
of the tests' fixture repositories are changed one value at a time, and the answer of the field that
the value's name says has to follow, or be null, or be below 0.6, or a warning has to name the
setting. Everything else is a silent loss: the user states one thing and is shown another. A setting
that is given twice has to count with its last value. Files that no program reads (a README under
another name, an unused configuration, an unrelated folder) may change no answer.

What a name says is taken from `agent/fields/names.yaml`; a value is only changed where the command
or a shell script that it names states it as a plain number or name.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from _record import record
from rich.progress import track

from schedmate.agent import Extraction
from schedmate.agent.fields.candidates import rules
from schedmate.agent.fields.settings import normal_name
from schedmate.agent.static import extract
from schedmate.base.errors import SchedmateError
from schedmate.jobs import LaunchConfig

FIXTURES = Path(__file__).parents[1] / "tests" / "fixtures" / "repos"
UNSURE = 0.6
"""Below this confidence an answer is marked as one that may be wrong."""
VERDICTS = (
    "followed",
    "null",
    "unsure",
    "warned",
    "other setting of the command",
    "lost",
    "refused",
)
_BATCHES = ("per_device_batch_size", "global_batch_size", "batch_size")
_NUMBER = r"\d+(?:\.\d+)?(?:[eE]-?\d+)?"
_PAIR = re.compile(
    rf"(?P<lead>(?:^|(?<=\s))(?P<name>-{{0,2}}[A-Za-z_][\w./-]*)(?:=|\s+)[\"']?)(?P<value>{_NUMBER})"
    r"(?=[\"']?(?:\s|$))"
)


@dataclass(frozen=True, slots=True)
class Job:
    """A command in a repository."""

    name: str
    root: Path
    command: str
    launch: LaunchConfig


@dataclass(frozen=True, slots=True)
class Change:
    """One value of a command or script that is another one now.

    `fields` are those that the setting's name says, by their key.
    """

    setting: str
    fields: tuple[str, ...]
    old: str
    new: str
    command: str
    script: tuple[str, str] | None = None
    """Path of a script in the repository and its new text."""


def fields_by_name() -> dict[str, tuple[str, ...]]:
    """The fields that a number under each normalised name states."""
    names = rules("names")
    by_name: dict[str, tuple[str, ...]] = {}
    for table in ("steps", "epochs"):
        by_name |= {normal_name(alias): ("iters",) for alias in names[table] if "." not in alias}
    for field in ("lr", "gradient_accumulation", *_BATCHES):
        for alias in names["extras"].get(field, ()):
            if "." not in alias:
                key = normal_name(alias)
                by_name[key] = _BATCHES if field in _BATCHES else (field,)
    return by_name


def other_number(text: str) -> str:
    """Another number of the same form, that hardly stands elsewhere in a repository."""
    if re.fullmatch(r"\d+", text):
        return str(int(text) * 3 + 7)
    return repr(float(text) * 0.73)


def changes_of(job: Job) -> Iterator[Change]:
    """Every number of the command, and of scripts that it names, under the name of a field."""
    by_name = fields_by_name()
    for match in _PAIR.finditer(job.command):
        if (change := _changed(match, by_name)) is not None:
            start, end = match.span("value")
            yield Change(*change, job.command[:start] + change[3] + job.command[end:])
    for word in re.findall(r"[\w./-]+\.sh\b", job.command)[:1]:
        path = job.root / word
        if path.is_file():
            text = path.read_text(errors="replace")
            for match in _PAIR.finditer(text):
                before = text[: match.start()]
                line = before[before.rfind("\n") + 1 :]
                continued = before[: -len(line) or None].endswith("\\\n")
                indented = line.startswith((" ", "\t")) and not continued
                if "#" in line or "\n" in match["lead"] or indented:
                    continue  # a comment, or inside a branch that this job may not take
                if len(re.findall(rf"\b{re.escape(match['name'].lstrip('-'))}\b", text)) > 1:
                    continue  # several programs of one script
                if (change := _changed(match, by_name)) is not None:
                    start, end = match.span("value")
                    new_text = text[:start] + change[3] + text[end:]
                    yield Change(*change, job.command, (word, new_text))


def _changed(
    match: re.Match[str], by_name: dict[str, tuple[str, ...]]
) -> tuple[str, tuple[str, ...], str, str] | None:
    name = match["name"].lstrip("-")
    if not (match["name"].startswith("-") or "=" in match["lead"] or "." in name):
        return None
    fields = by_name.get(normal_name(re.split(r"[./]", name)[-1]))
    if fields is None:
        return None
    return name, fields, match["value"], other_number(match["value"])


def repeated(job: Job, change: Change) -> str | None:
    """The command with the setting once more at its end, in its new value."""
    if change.script is not None or re.search(r"[|;&>]|--\s", job.command):
        return None
    flag = re.search(rf"(?:^|\s)(-{{0,2}}){re.escape(change.setting)}(=|\s)", job.command)
    if flag is None:
        return None
    return f"{job.command} {flag[1]}{change.setting}{flag[2]}{change.new}"


def verdict(change: Change, before: Extraction, after: Extraction) -> str:
    """What became of the change: followed, null, unsure, warned, other or lost."""
    old, new = answers(before, change.fields), answers(after, change.fields)
    if not any(value is not None for value in new.values()):
        return "null"
    if old != new or any(_same(value, change.new) for value in new.values()):
        return "followed"
    if any(_words(change.setting) in _words(text) for text in after.warnings):
        return "warned"
    evidence = [after.metadata.evidence.get(f"training_config.{field}") for field in new]
    proofs = [proof for proof in evidence if proof is not None]
    if proofs and min(proof.confidence for proof in proofs) < UNSURE:
        return "unsure"
    if all(proof.source in ("command", "script", "environment", "launch") for proof in proofs):
        return "other setting of the command"
    return "lost"


def answers(extraction: Extraction, fields: tuple[str, ...]) -> dict[str, Any]:
    return {field: extraction.metadata.get(f"training_config.{field}") for field in fields}


def _same(value: object, text: str) -> bool:
    return isinstance(value, int | float) and abs(value - float(text)) <= 1e-9 * abs(float(text))


def _words(text: str) -> str:
    return normal_name(text).lstrip("-")


def extracted(job: Job, command: str, root: Path | None = None) -> Extraction | None:
    try:
        return extract(root or job.root, command, job.launch)
    except SchedmateError:
        return None


def with_script(job: Job, script: tuple[str, str], folder: Path) -> Path:
    """A copy of the repository whose script has another text; unchanged files are links."""
    copy = folder / "repo"
    shutil.copytree(job.root, copy, symlinks=True, copy_function=_link)
    path = copy / script[0]
    path.unlink()
    path.write_text(script[1])
    return copy


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def fixture_jobs(folder: Path = FIXTURES) -> list[Job]:
    """The commands of the tests' fixture repositories."""
    jobs = []
    for path in sorted(folder.glob("*/*/case.yaml")):
        case = yaml.safe_load(path.read_text())
        launch = LaunchConfig(**case.get("launch", {}))
        jobs.append(Job(f"fixtures/{path.parent.name}", path.parent, case["command"], launch))
    return jobs


def labelled_jobs(labels: Path, repos: Path) -> list[Job]:
    """The labelled commands whose repositories are at hand."""
    jobs = []
    for line in labels.read_text().splitlines():
        case = json.loads(line)
        root = repos / case["repo"].replace("/", "+")
        if root.is_dir():
            launch = LaunchConfig(**case.get("launch", {}))
            jobs.append(Job(case["id"], root, case["command"], launch))
    return jobs


_PROGRAM = re.compile(
    r"(?:[A-Z_]+=\S+ )*"
    r"(?:python3?|torchrun|accelerate launch|deepspeed|bash|sh|srun|uv run|composer) \S"
)
_PER_README = 4
"""Most commands of one README."""


def readme_jobs(root: Path) -> list[Job]:
    """The first commands of a repository's README that start one of its files with a number."""
    jobs: list[Job] = []
    names = sorted(root.glob("[Rr][Ee][Aa][Dd][Mm][Ee]*"))[:1]
    text = names[0].read_text(errors="replace") if names else ""
    text = re.sub(r"\\\s*\n\s*", " ", text)
    for line in text.splitlines():
        command = line.strip().lstrip("$> `").rstrip("`").strip()
        if not _PROGRAM.match(command) or "<" in command or "[" in command or "..." in command:
            continue
        words = command.split()
        named = any((root / word).is_file() for word in words if "/" in word or "." in word)
        job = Job(f"{root.name} README {len(jobs) + 1}", root, command, LaunchConfig())
        if (
            named
            and any(True for _ in changes_of(job))
            and command not in {j.command for j in jobs}
        ):
            jobs.append(job)
        if len(jobs) == _PER_README:
            break
    return jobs


def outcomes(job: Job) -> Iterator[tuple[str, Change, str, Extraction | None]]:
    """Each change of a job: its kind, the change, its verdict and what was answered."""
    before = extracted(job, job.command)
    if before is None:
        return
    for change in changes_of(job):
        if change.script is None:
            after = extracted(job, change.command)
        else:
            with tempfile.TemporaryDirectory() as folder:
                after = extracted(
                    job, change.command, with_script(job, change.script, Path(folder))
                )
        yield "change", change, verdict(change, before, after) if after else "refused", after
        if (command := repeated(job, change)) is not None:
            after = extracted(job, command)
            yield "repeat", change, verdict(change, before, after) if after else "refused", after


def disturbed(root: Path, kind: str) -> None:
    """Change what no program of a copied repository reads."""
    if kind == "no README":
        for path in root.glob("[Rr][Ee][Aa][Dd][Mm][Ee]*"):
            path.unlink()
    elif kind == "unused configuration":
        (root / "zz_unrelated").mkdir()
        text = "model_name: zz-none-7b\nepochs: 977\nlearning_rate: 0.123\nbatch_size: 991\n"
        (root / "zz_unrelated" / "config.yaml").write_text(text)
    else:
        for path in root.rglob("*.py"):
            text = path.read_text(errors="surrogateescape")
            path.unlink()
            path.write_text(f"{text}\n# num_epochs = 977\n", errors="surrogateescape")


_COPIED = 400
"""Most files of a repository that is copied."""
DISTURBANCES = ("no README", "unused configuration", "comments")


def sure_answers(extraction: Extraction) -> dict[str, Any]:
    """The answers that are not marked as unsure, by field."""
    proofs = extraction.metadata.evidence
    return {field: proof.value for field, proof in proofs.items() if proof.confidence > UNSURE}


def moved_answers(job: Job, kind: str) -> dict[str, tuple[Any, Any]]:
    """The sure answers that a change of what no program reads moves, with both values."""
    before = extracted(job, job.command)
    if before is None:
        return {}
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / job.root.name
        shutil.copytree(job.root, copy, symlinks=True, copy_function=_link)
        disturbed(copy, kind)
        after = extracted(job, job.command, copy)
    if after is None:
        return {"everything": ("answered", "refused")}
    old, new = sure_answers(before), sure_answers(after)
    return {
        field: (old.get(field), after.metadata.get(field))
        for field in old.keys() | new.keys()
        if old.get(field) != after.metadata.get(field)
        and new.get(field) != before.metadata.get(field)
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--labels", type=Path, default=None)
    parser.add_argument("--repos", type=Path, default=None)
    parser.add_argument("--no-record", action="store_true")
    options = parser.parse_args()
    jobs = fixture_jobs()
    if options.labels and options.repos:
        jobs += labelled_jobs(options.labels, options.repos)
    if options.repos:
        seen = {(job.root, job.command) for job in jobs}
        for root in sorted(path for path in options.repos.iterdir() if path.is_dir()):
            jobs += [job for job in readme_jobs(root) if (job.root, job.command) not in seen]
    counts: dict[str, Counter[str]] = {"change": Counter(), "repeat": Counter()}
    losses = []
    for job in track(jobs, "changing commands"):
        for kind, change, found, after in outcomes(job):
            counts[kind][found] += 1
            if found == "lost" and after is not None:
                row = {"job": job.name, "kind": kind, "setting": change.setting}
                shown = {f: a for f, a in answers(after, change.fields).items() if a is not None}
                losses.append({**row, "from": change.old, "to": change.new, "answer": shown})
    rows = [
        {"kind": kind, **{verdict: counter[verdict] for verdict in VERDICTS}, "of": counter.total()}
        for kind, counter in counts.items()
    ]
    small = {job.root: job for job in jobs if sum(1 for _ in job.root.rglob("*")) <= _COPIED}
    for kind in DISTURBANCES:
        some = list(small.values())
        moved = {job.name: m for job in track(some, kind) if (m := moved_answers(job, kind))}
        rows.append({"kind": kind, "moved": len(moved), "of": len(some)})
        losses += [{"job": name, "kind": kind, "answer": str(m)} for name, m in moved.items()]
    meta = {"commands": len(jobs), "repositories": len({job.root for job in jobs})}
    if options.no_record:
        print(*rows, *losses, meta, sep="\n")
    else:
        record("metamorphic", rows, **meta)
        record("metamorphic_cases", losses, working=True, **meta)


if __name__ == "__main__":
    main()
