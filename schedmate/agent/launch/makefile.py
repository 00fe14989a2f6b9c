"""Follows `make target`: the recipe lines of simple Makefiles, read without running make.

Understood: assignments (`=`, `:=`, `?=`, `+=`), variables on the command line, explicit rules,
prerequisites and line continuations; `include` is not. Functions such as `$(shell ...)` are
unknown.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from schedmate.agent.launch.plan import Call, Follower
from schedmate.agent.launch.scripts import run_text
from schedmate.agent.launch.shell_expansion import token
from schedmate.agent.launch.shell_operators import Decision

_MAKEFILE_NAMES = ("GNUmakefile", "makefile", "Makefile")
_MAKE_ASSIGNMENT = re.compile(r"(?:export\s++)?([\w.\-]++)\s*+(\?|:{1,3}|\+)?=\s*+(.*)")
_MAKE_RULE = re.compile(r"([^\s:#=][^:#=]*)::?(?!=)\s*+([^;]*)(?:;(.*))?")
_MAKE_REFERENCE = re.compile(r"\$\$|\$\(([^()\s]+)\)|\$\{([^{}\s]+)\}|\$([A-Za-z@<^*])")
MAX_REFERENCES = 10


@dataclass(slots=True)
class MakeRule:
    """Prerequisites and recipe lines, with line numbers."""

    prerequisites: list[str] = field(default_factory=list)
    recipe: list[tuple[int, str]] = field(default_factory=list)


@dataclass(slots=True)
class Makefile:
    """The variables and explicit rules of one file."""

    variables: dict[str, str] = field(default_factory=dict)
    rules: dict[str, MakeRule] = field(default_factory=dict)

    def expand(self, text: str, depth: int = 0) -> str:
        """Put variables in; what is unknown becomes a shell variable of the same name."""

        def value(match: re.Match[str]) -> str:
            name = match[1] or match[2] or match[3]
            if name is None:
                return "$"
            if name in self.variables and depth < MAX_REFERENCES:
                return self.expand(self.variables[name], depth + 1)
            return f"${{{name}}}" if re.fullmatch(r"\w+", name) else ""

        return _MAKE_REFERENCE.sub(value, text)[:20_000]


def parse_makefile(text: str) -> Makefile:
    """Read the text of a Makefile."""
    makefile = Makefile()
    current: list[MakeRule] = []
    for number, raw in _logical_lines(text):
        if raw.startswith("\t"):
            for rule in current:
                rule.recipe.append((number, raw[1:]))
            continue
        line = raw.split("#")[0].rstrip()
        if not line:
            continue
        current = []
        if assignment := _MAKE_ASSIGNMENT.match(line.strip()):
            name, kind, value = assignment.groups()
            if kind == "+":
                value = f"{makefile.variables.get(name, '')} {value}".strip()
            if kind != "?" or name not in makefile.variables:
                makefile.variables[name] = value
        elif match := _MAKE_RULE.match(line):
            for target in makefile.expand(match[1]).split():
                rule = makefile.rules.setdefault(target, MakeRule())
                rule.prerequisites += makefile.expand(match[2]).split()
                if match[3]:
                    rule.recipe.append((number, match[3].strip()))
                current.append(rule)
    return makefile


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Line numbers and lines, continued ones joined.

    A recipe keeps its continuations, so that its shell text has the true line numbers.
    """
    number = 1
    for line in re.split(r"(?<!\\)\n", text.replace("\r\n", "\n")):
        yield number, line if line.startswith("\t") else re.sub(r"\\\n\s*", " ", line)
        number += line.count("\n") + 1


def follow_make(follower: Follower, call: Call) -> Decision:
    """Follow `make [-C dir] [-f file] [NAME=value] [targets]`."""
    directory, name, targets = call.cwd, "", []
    variables: dict[str, str] = {}
    words = [token(word) for word in call.words[1:]]
    while words:
        word = words.pop(0)
        if word in ("-C", "--directory", "-f", "--file") and words:
            value = words.pop(0)
            if word in ("-C", "--directory"):
                directory = follower.repo.normalise(value, directory) or directory
            else:
                name = value
        elif word in ("-j", "-l", "-o", "-W") and words and words[0].isdigit():
            words.pop(0)
        elif assignment := re.fullmatch(r"(\w+)=(.*)", word, re.DOTALL):
            variables[assignment[1]] = assignment[2]
        elif not word.startswith("-"):
            targets.append(word)
    paths = [
        posixpath.normpath(posixpath.join(directory, n))
        for n in ([name] if name else _MAKEFILE_NAMES)
    ]
    path = next((path for path in paths if follower.repo.is_file(path)), None)
    text = follower.repo.read(path) if path else None
    if path is None or text is None:
        follower.warn(f"make in {directory}: no Makefile that can be read")
        return None
    makefile = parse_makefile(text)
    makefile.variables |= variables
    if not targets:
        targets = [target for target in makefile.rules if not target.startswith(".")][:1]
    call.cwd = directory
    done: set[str] = set()
    for target in targets:
        if target not in makefile.rules:
            follower.warn(f"{path} has no target {target}")
        _follow_target(follower, call, makefile, path, target, done)
    return True


def _follow_target(
    follower: Follower, call: Call, makefile: Makefile, path: str, target: str, done: set[str]
) -> None:
    follower.tick()
    rule = makefile.rules.get(target)
    if rule is None or target in done or len(done) > 500:
        return
    done.add(target)
    for prerequisite in rule.prerequisites:
        _follow_target(follower, call, makefile, path, prerequisite, done)
    local = Makefile(
        makefile.variables | {"@": target, "<": (rule.prerequisites or [""])[0]}, makefile.rules
    )
    for line, recipe in rule.recipe:
        text = local.expand(recipe.lstrip("@-+ \t"))
        run_text(follower, text, line, path, "make", [], call)
