"""Answers written by `_answers.py`, with facts and whether they are right, for `fit_fields.py`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import field as default
from pathlib import Path
from typing import Any

from public_benchmark import FURTHER_FIELDS, is_right

from schedmate.agent.fields.confidence import (
    FIELDS,
    ITERS,
    MODEL,
    TASK,
    TRAIN,
    UNIT,
    VALID,
    Scene,
    Weighed,
    facts_about,
)

GROUPS = {MODEL: "model", TASK: "task", ITERS: "length", UNIT: "length", TRAIN: "dataset",
          VALID: "dataset"}  # fmt: skip
"""Where the candidates of a field are made; those of further fields are told apart by field."""
RANKED = (MODEL, ITERS, TRAIN)
"""Fields whose answer is the best of their candidates."""
_MODEL_RULES = {
    "built": "network",
    "_training_module": "network",
    "_around_networks": "around networks",
    "_from_entry": "script",
    "_from_folder": "script",
    "_file_names": "file name",
    "_folder_names": "file name",
    "_experiment_names": "file name",
    "_config_classes": "configured class",
    "config_classes": "configured class",
    "_assembled": "part of an assembly",
    "_named_by": "call",
}
_DATA_RULES = {
    "from_settings": "setting",
    "bare_place": "folder",
    "from_sections": "section",
    "from_loaders": "section",
    "from_components": "section",
    "find": "split",
    "_choose": "split",
    "_from_launch": "name in the launch",
    "_from_files": "file name",
}
_TASK_RULES = ("model", "dataset", "program", "names", "setting", "import")


_FURTHER_RULES = {
    "_candidates": "setting",
    "_counts": "setting",
    "_of_section": "setting",
    "_precision": "setting",
    "_parameters": "parameter",
    "_computed": "computed",
}


@dataclass(slots=True)
class Made:
    """A candidate as it was written down."""

    data: Any
    source: str
    place: tuple[str | None, int | None]
    score: float
    rule: str
    flow: dict[str, float] = default(default_factory=dict)


@dataclass(slots=True)
class Answer:
    """An answer to a field of a job; `right` with `data` None tells a silence that was right."""

    job: str
    repo: str
    field: str
    data: Any
    right: bool
    hand: float = 0.0
    """The confidence that was set by hand."""
    prior: float = 0.0
    rule: str = ""
    facts: dict[str, float] = default(default_factory=dict)
    others: list[tuple[Made, dict[str, float], bool]] = default(default_factory=list)
    """The candidates with their facts, and whether they are right."""


def _rule(group: str, function: str, note: str) -> str:
    """The rule by which today's code would have found a candidate of older code."""
    if ":" in group or group == "batches":
        return _FURTHER_RULES.get(function, "call")
    if group == "task":
        reason = note.removeprefix("from ")
        for rule in _TASK_RULES:
            if reason.startswith(f"{rule} "):
                return rule
        if reason.startswith("the environment"):
            return "environment"
        return "README" if "readme" in reason.lower() else "call"
    if group == "length":
        if note.startswith(("loop", "leaves")):
            return "loop"
        return "setting" if "settings" in function or "durations" in function else "call"
    if group == "model":
        if function in ("_generic", "_by_output"):
            return "library class" if note == "class constructed" else "nameless network"
        if "script" in note or "README" in note:
            return "script" if "script" in note else "README"
        named = {"the backbone": "backbone of a section", "a backbone": "backbone"}
        return _MODEL_RULES.get(function) or named.get(note, "setting")
    if note == "the name of its class":
        return note
    return _DATA_RULES.get(function, "opened")


def group_of(field: str) -> str:
    """The name that the candidates of a field are written down under."""
    return GROUPS.get(field) or f"extras: {field.partition('.')[2]}"


def read(folder: Path, jobs: dict[str, dict[str, Any]]) -> list[Answer]:
    """The answers in a folder's files to the `fields` of the jobs, by id."""
    found: list[Answer] = []
    for path in sorted(folder.glob("*.jsonl")):
        for line in path.read_text().splitlines():
            written = json.loads(line)
            job = jobs.get(written["id"])
            if job is not None and "error" not in written:
                found.extend(_answers(written, job))
    return found


def _answers(written: dict[str, Any], job: dict[str, Any]) -> Iterator[Answer]:
    considered = {
        group: [
            Made(*row[:2], (row[2], row[3]), row[4], _rule(group, row[5], row[6] or ""), row[7])
            for row in rows
        ]
        for group, rows in written["candidates"].items()
    }
    known = {table: set(names) for table, names in written["known"].items()}
    scene = Scene(
        known=lambda name, table: name in known[table],
        around=lambda answer: answer.flow if isinstance(answer, Made) else {},
        **written["seen"],
    )
    answers: dict[str, Weighed] = {}
    for name in (*FIELDS, *FURTHER_FIELDS.values()):
        chosen = _chosen(name, written["evidence"].get(name), considered, answers)
        if chosen is not None:
            answers[name] = chosen
    scene.answers = answers
    for name in (*FIELDS, *FURTHER_FIELDS.values()):
        label = name.partition(".")[2]
        if label not in job["labels"]:
            continue
        expected, answer = job["labels"][label], answers.get(name)
        row = Answer(job["id"], job["repo"], name, None, expected is None)
        if answer is not None:
            weighed = considered.get(group_of(name), [])
            row.data, row.right = answer.data, bool(is_right(answer.data, expected))
            row.hand, row.prior = written["evidence"][name][4], answer.score
            row.rule, row.facts = answer.rule, facts_about(name, answer, weighed, scene)
            if name in RANKED:
                row.others = [
                    (
                        other,
                        facts_about(name, other, weighed, scene),
                        bool(is_right(other.data, expected)),
                    )
                    for other in weighed
                ]
        yield row


def _chosen(
    name: str,
    evidence: list[Any] | None,
    considered: dict[str, list[Made]],
    answers: dict[str, Weighed],
) -> Made | None:
    """The candidate that became an answer."""
    if evidence is None or evidence[0] is None:
        return None
    data, source, file, line, hand, note, flow = evidence
    if name == UNIT:
        length = answers.get(ITERS)
        rule = length.rule if length else "setting"
        around = length.flow if isinstance(length, Made) else flow
        return Made(data, source, (file, line), 100 * hand, rule, around)
    same = [c for c in considered.get(group_of(name), []) if str(c.data) == str(data)]
    unmade = "launch" if name not in FIELDS and hand == 1 else "setting"
    like = max(
        same,
        key=lambda c: (c.source == source and c.place == (file, line), c.score),
        default=Made(data, source, (file, line), 100 * hand, unmade, flow),
    )
    score = like.score if abs(like.score / 100 - hand) < 0.4 else 100 * hand
    rule = "split" if name == VALID and "split" in (note or "") else like.rule
    return Made(data, source, (file, line), score, rule, like.flow)
