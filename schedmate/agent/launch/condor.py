"""HTCondor: `condor_submit job.sub`, whose file describes one program.

Macros `$(NAME)` are filled in from the file and from `NAME=value` words. The values that a `queue`
statement gives each job are not read: they are shell variables that are not set.
"""

from __future__ import annotations

import re
import shlex

from schedmate.agent.launch.conditions import Decision
from schedmate.agent.launch.following import Call, Follower
from schedmate.agent.launch.launchers import Options
from schedmate.agent.launch.scripts import run_text
from schedmate.agent.launch.state import token
from schedmate.agent.values import Origin, Value

_ASSIGNMENT = re.compile(r"\s*+([+\w.]++)\s*+=(?!=)\s*+((?:.*\S)?)\s*", re.DOTALL)
_MACRO = re.compile(r"\$\((\w+)(?::([^()]*))?\)")
_FACTS = {"request_gpus": "gpus", "requestgpus": "gpus", "machine_count": "nodes"}
MAX_MACROS = 20
MAX_TEXT = 10_000


def follow(follower: Follower, call: Call, options: Options) -> Decision:
    """Follow the program of the first description among the words."""
    words = [token(word) for word in call.words]
    paths = [follower.repo.normalise(word, call.cwd) for word in words]
    path = next((path for path in paths if path and follower.repo.is_file(path)), None)
    text = follower.repo.read(path) if path is not None else None
    if path is None or text is None:
        follower.warn(f"condor_submit: no description of the repository is among {words}")
        return None
    settings, lines = _settings(text)
    words += [token(v) for o in options.given if o.name in ("append", "a") for v in o.values]
    pairs = [_ASSIGNMENT.fullmatch(word) for word in words]
    settings |= {pair[1].lower(): pair[2] for pair in pairs if pair is not None}
    program = _filled("executable", settings)
    if not program:
        follower.warn(f"{path} names no executable")
        return None
    arguments = _filled("arguments", settings) or _filled("args", settings)
    if arguments.startswith('"') and arguments.endswith('"'):
        arguments = arguments[1:-1].replace('""', '"').replace("''", "'")
    for key, fact in _FACTS.items():
        if settings.get(key, "").isdigit():
            call.facts[fact] = Value(int(settings[key]), Origin("script", path, lines.get(key)))
    folder = follower.repo.normalise(_filled("initialdir", settings) or ".", call.cwd)
    if folder is not None and follower.repo.is_dir(folder):
        call.cwd = folder
    call.launchers.append("condor_submit")
    line = lines.get("arguments") or lines.get("executable") or 1
    quoted = program if "$" in program else shlex.quote(program)
    return run_text(follower, f"{quoted} {arguments}", line, path, path, [], call)


def _settings(text: str) -> tuple[dict[str, str], dict[str, int]]:
    """What a description sets up to its first `queue`, by names in lower case, and the lines."""
    settings: dict[str, str] = {"cluster": "1", "clusterid": "1", "process": "0", "procid": "0"}
    lines: dict[str, int] = {}
    statements = re.split(r"(?<!\\)\n", text)
    number = 1
    for statement in statements:
        if re.match(r"\s*queue\b", statement, re.IGNORECASE):
            break
        pair = _ASSIGNMENT.fullmatch(re.sub(r"\\\n\s*", " ", statement))
        if pair is not None:
            settings[pair[1].lower()] = pair[2]
            lines[pair[1].lower()] = number
        number += statement.count("\n") + 1
    return settings, lines


def _filled(name: str, settings: dict[str, str]) -> str:
    """A setting with its macros filled in; one that is not set becomes a variable of that name."""

    def value(match: re.Match[str]) -> str:
        default = match[2] if match[2] is not None else f"${{{match[1]}}}"
        return settings.get(match[1].lower(), default)

    text = settings.get(name, "")
    for _ in range(MAX_MACROS):
        text = _MACRO.sub(value, text)[:MAX_TEXT]
    return text
