"""HTCondor: `condor_submit job.sub`, whose file describes one program and how often it runs.

Macros `$(NAME)` are filled in from the file, from `NAME=value` words and from `-append` lines; what
the queue would give each job is known for the first one only.
"""

from __future__ import annotations

import re
import shlex

from schedmate.agent.launch.conditions import Decision
from schedmate.agent.launch.following import Call, Follower
from schedmate.agent.launch.launchers import Options
from schedmate.agent.launch.state import token
from schedmate.agent.values import Origin, Value

_ASSIGNMENT = re.compile(r"\s*+([+\w.]++)\s*+=(?!=)\s*+((?:.*\S)?)\s*")
_QUEUE = re.compile(
    r"\s*queue\s+(?:\d+\s+)?(?P<names>\w+(?:\s*,\s*\w+)*)\s+(?P<how>in|from|matching(?:\s+files)?)\s+"
    r"\(?\s*(?P<items>.*?)\s*\)?\s*",
    re.IGNORECASE,
)
_MACRO = re.compile(r"\$\((\w+)(?::([^()]*))?\)")
_CONDITION = re.compile(r"\s*(if|elif|else|endif|include|use)\b.*", re.IGNORECASE)
_FACTS = {"request_gpus": "gpus", "requestgpus": "gpus", "machine_count": "nodes"}
MAX_MACROS = 20
MAX_TEXT = 10_000


def follow(follower: Follower, call: Call, options: Options) -> Decision:
    """Follow the program of the first description among the words."""
    words = [token(word) for word in call.words]
    path = next(
        (p for word in words if (p := follower.repo.normalise(word, call.cwd))
         and follower.repo.is_file(p)),
        None,
    )  # fmt: skip
    text = follower.repo.read(path) if path is not None else None
    if path is None or text is None:
        follower.warn(f"condor_submit: no description of the repository is among {words}")
        return None
    lines = dict(enumerate(_joined(text), start=1))
    later = [token(v) for o in options.given if o.name in ("append", "a") for v in o.values]
    for option, word in zip(["", *words], words, strict=False):
        if option in ("-append", "-a") or _ASSIGNMENT.fullmatch(word):
            later.append(word)
    told, where = _read(follower, call.cwd, {**lines, **{-n: t for n, t in enumerate(later, 1)}})
    program = _filled(told.get("executable", ""), told)
    if not program:
        follower.warn(f"{path} names no executable")
        return None
    arguments = _filled(told.get("arguments", told.get("args", "")), told)
    if arguments.startswith('"') and arguments.endswith('"'):
        arguments = arguments[1:-1].replace('""', '"').replace("''", "'")
    for key, fact in _FACTS.items():
        if told.get(key, "").isdigit():
            call.facts[fact] = Value(int(told[key]), Origin("script", path, where.get(key)))
    place = follower.repo.normalise(_filled(told.get("initialdir", "."), told), call.cwd)
    if place is not None and follower.repo.is_dir(place):
        call.cwd = place
    call.launchers.append("condor_submit")
    line = where.get("arguments") or where.get("executable") or 1
    return follower.run_text(f"{_word(program)} {arguments}", line, path, path, [], call)


def _joined(text: str) -> list[str]:
    """The lines of a description, continued ones joined where they begin."""
    lines: list[str] = []
    held = 0
    for raw in text.split("\n"):
        if held:
            lines[-held] += " " + raw.strip().removesuffix("\\")
            lines.append("")
            held += 1
        else:
            lines.append(raw.removesuffix("\\"))
        held = max(held, 1) if raw.endswith("\\") else 0
    return lines


def _read(
    follower: Follower, cwd: str, lines: dict[int, str]
) -> tuple[dict[str, str], dict[str, int]]:
    """What a description sets, names in lower case, and the lines; up to its first `queue`."""
    told: dict[str, str] = {"cluster": "1", "clusterid": "1", "process": "0", "procid": "0"}
    where: dict[str, int] = {}
    queued = False
    for number, line in lines.items():
        if line.lstrip().startswith("#") or _CONDITION.fullmatch(line):
            continue
        queue = _QUEUE.fullmatch(line)
        if queue is not None:
            names = [name.strip().lower() for name in queue["names"].split(",")]
            told |= dict(zip(names, _first_item(follower, cwd, queue), strict=False))
        queued = queued or line.strip().lower().startswith("queue")
        pair = _ASSIGNMENT.fullmatch(line)
        if pair is not None and queue is None and (not queued or number < 0):
            told[pair[1].lower()] = pair[2]
            where[pair[1].lower()] = max(number, 0)
    return told, where


def _first_item(follower: Follower, cwd: str, queue: re.Match[str]) -> list[str]:
    """The values that the first job of a queue has for its names."""
    items = queue["items"]
    if queue["how"].lower() == "from":
        path = follower.repo.normalise(items, cwd)
        text = follower.repo.read(path) if path and follower.repo.is_file(path) else items
        items = next((line for line in (text or "").split("\n") if line.strip()), "")
    count = len(queue["names"].split(","))
    return [part.strip() for part in re.split(r"\s*,\s*|\s+", items.strip(), maxsplit=count - 1)]


def _filled(text: str, told: dict[str, str]) -> str:
    """Text with its macros filled in; one that nothing sets becomes a variable of that name."""

    def value(match: re.Match[str]) -> str:
        default = match[2] if match[2] is not None else f"${{{match[1]}}}"
        return told.get(match[1].lower(), default)

    for _ in range(MAX_MACROS):
        text = _MACRO.sub(value, text)[:MAX_TEXT]
    return text


def _word(program: str) -> str:
    return program if "$" in program else shlex.quote(program)
