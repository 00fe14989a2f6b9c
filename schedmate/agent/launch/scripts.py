"""Follows shell text wherever it stands: typed, in scripts, here-documents, Makefiles, and in job
descriptions.

Jobs described in YAML files (`kubectl apply -f job.yaml`, `sky launch task.yaml` ...) differ in
their keys, not in what they say: a command, its arguments, variables, GPUs and nodes.
jobfiles.yaml says which keys mean what; the first job of the file that starts a program of the
repository counts. HTCondor's file (`condor_submit job.sub`) describes one program; its macros
`$(NAME)` are filled in from the file and from `NAME=value` words, and what a `queue` statement
gives each job is not read: those are shell variables that are not set.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import pairwise
from typing import Any

from schedmate.agent.launch.launchers import (
    Facts,
    Options,
    Table,
    facts_from_batch_lines,
    parse_options,
)
from schedmate.agent.launch.plan import (
    MAX_SCRIPTS,
    Call,
    Follower,
    MadeFile,
    OutOfBudgetError,
    find_file,
    record_missing,
)
from schedmate.agent.launch.repo import MAX_BYTES
from schedmate.agent.launch.shell import Shell, apply_sed
from schedmate.agent.launch.shell_expansion import Piece, State, from_value, to_value, token
from schedmate.agent.launch.shell_operators import Decision
from schedmate.agent.values import Items, Origin, Unknown, Value
from schedmate.base.data import load


def run_command(follower: Follower, command: str) -> None:
    """Follow a command as typed in the root of the repository."""
    state = State()
    follower.enter(state, ".")
    try:
        Shell(follower, state).script(command)
    except OutOfBudgetError:
        follower.complete = False
        follower.warn("the scripts do more than is followed: what comes later was not read")
    except RecursionError:
        follower.complete = False
        follower.warn("the scripts are nested too deeply: what comes later was not read")


def run_text(
    follower: Follower,
    text: str,
    line: int,
    file: str | None,
    name: str,
    arguments: list[Value],
    call: Call,
) -> Decision:
    """Follow shell text in a new shell that inherits what the call exports."""
    if call.depth >= MAX_SCRIPTS:
        return None
    here = call.state.origin(call.line)
    state = State(file=file, name=name, facts=dict(call.facts))
    state.typed = call.state.file is None
    state.launchers, state.sets = tuple(call.launchers), dict(call.sets)
    state.positional = [from_value(value, here) for value in arguments]
    for variable, value in call.env.items():
        state.assign(variable, from_value(value, here))
        state.exported.add(variable)
    follower.enter(state, call.cwd)
    state.variables.pop("OLDPWD", None)
    if file is not None:
        state.assign("BASH_SOURCE", (Piece(name, Origin("script", file)),))
    return Shell(follower, state, call.depth + 1).script(text, line)


def run_script(
    follower: Follower, path: str, name: str, arguments: list[Value], call: Call
) -> Decision:
    """Follow a shell script of the repository in a new shell."""
    text = follower.repo.read(path)
    if text is None:
        follower.warn(f"{path} is larger than {MAX_BYTES // 1_000_000} MB and was not read")
        return None
    if len(follower.scripts) >= MAX_SCRIPTS or follower.scripts.count(path) > 1:
        follower.warn(f"{path} starts itself again and again: it was followed twice")
        return None
    call.facts = facts_from_batch_lines(text, path, follower.repo) | call.facts
    follower.scripts.append(path)
    try:
        return run_text(follower, text, 1, path, name, arguments, call)
    finally:
        follower.scripts.pop()


def follow_shell(follower: Follower, call: Call) -> Decision:
    """`bash [options] file args`, `bash -c text`, or a shell that reads a here-document."""
    words = call.words[1:]
    is_text = False
    while words and token(words[0])[:1] in ("-", "+") and token(words[0]) != "-":
        option = token(words[0])
        words = words[1:]
        if option == "--":
            break
        if not option.startswith("--") and "c" in option:
            is_text = True
        elif option in ("-o", "+o", "-O", "--rcfile", "--init-file"):
            words = words[1:]
    if not words:
        return follow_heredoc(follower, call) if call.heredoc is not None else True
    if is_text:
        return follow_inline(follower, call, words[0], words[1:])
    return follow_named_script(follower, call, words)


def follow_inline(follower: Follower, call: Call, text: Value, arguments: list[Value]) -> Decision:
    """`sh -c text name args`."""
    line = text.origin.line if text.origin is not None and text.origin.line else call.line
    name = token(arguments[0]) if arguments else "bash"
    file = call.state.file
    return run_text(follower, token(text), line, file, name, arguments[1:], call)


def follow_heredoc(follower: Follower, call: Call) -> Decision:
    """A script on standard input; the shell around it fills in its variables."""
    assert call.heredoc is not None
    here, call.heredoc = call.heredoc, None
    for name, variable in call.state.variables.items():
        if name not in ("PWD", "OLDPWD") and not variable.array:
            call.env.setdefault(name, to_value(variable.items.get("0", ())))
    file = call.state.file
    return run_text(follower, here.text, here.line, file, "bash", [], call)


def follow_named_script(follower: Follower, call: Call, words: list[Value]) -> Decision:
    path = find_file(follower, call, words[0])
    if path is None:
        return record_missing(follower, call, token(words[0]))
    return run_script(follower, path, token(words[0]), words[1:], call)


def follow_batch(follower: Follower, call: Call, table: Table, options: Options) -> Decision:
    """`sbatch [options] script args` and `sbatch --wrap text`."""
    for option in options.given:
        if option.name in table.wrap and option.values:
            return follow_inline(follower, call, option.values[0], [])
    return follow_named_script(follower, call, options.rest)


# Jobs described in YAML files: `kubectl apply -f job.yaml`, `sky launch task.yaml` ...
#
# The systems differ in their keys, not in what they say: a command, its arguments, variables, GPUs
# and nodes. jobfiles.yaml says which keys mean what; the first job of the file that starts a
# program of the repository counts.


MAX_JOBS = 20
MAX_DEPTH = 20
_NO_VALUE = Value(None)


@dataclass(frozen=True, slots=True)
class DescribedJob:
    """What a mapping and those around it say: a job where there is `text`, its shell text."""

    name: str = ""
    env: dict[str, Value] = field(default_factory=dict)
    facts: Facts = field(default_factory=dict)
    text: Value | None = None


@cache
def _job_keys() -> dict[str, Any]:
    data: dict[str, Any] = load("agent/launch/jobfiles.yaml")
    return data


def find_job_file(follower: Follower, call: Call, options: Options, table: Table) -> str | None:
    """The job description that a launcher's words name, else the system's usual one.

    Takes variables that options after the file set.
    """
    rest = parse_options(table, call.words[1:]).given if call.words else []
    for option in rest:
        if option.name in table.env and option.values:
            name, _, text = token(option.values[0]).partition("=")
            call.env[name] = Value(text, option.values[0].origin)
    values = [value for option in (*options.given, *rest) for value in option.values]
    texts = [token(word).rpartition("=")[2] for word in (*values, *call.words)]
    for text in (*(t for t in texts if t.endswith((".yaml", ".yml"))), *table.files):
        for folder in dict.fromkeys((call.cwd, ".")):
            path = follower.repo.normalise(text, folder)
            if path is not None and follower.repo.is_file(path):
                return path
    return None


def follow_job_file(follower: Follower, call: Call, path: str) -> Decision:
    """Follow the jobs of a file; of several, those that a word of the call names."""
    config = follower.config(path)
    if config is None:
        return None
    jobs = list(_described_jobs(config, DescribedJob(), 0))[:MAX_JOBS]
    if not jobs:
        follower.warn(f"{path} has no command that is understood")
    words = [token(word) for word in call.words]
    outer_env, outer_facts = dict(call.env), dict(call.facts)
    for job in [job for job in jobs if job.name in words] or jobs:
        text = job.text or _NO_VALUE
        command = words[words.index(job.name) + 1 :] if job.name in words else []
        script = shlex.join(command) if command else str(text.data)
        call.env = job.env | outer_env
        call.facts = outer_facts | job.facts
        line = (text.origin.line if text.origin is not None else None) or 1
        line += script.endswith("\n") and "\n" in script.rstrip("\n")  # a block begins a line later
        run_text(follower, script, line, path, job.name, [], call)
    return True


def _described_jobs(value: Value, around: DescribedJob, depth: int) -> Iterator[DescribedJob]:
    if depth > MAX_DEPTH:
        return
    for item in value.sequence or ():
        yield from _described_jobs(item, around, depth + 1)
    items = value.mapping or {}
    name = items.get("name", _NO_VALUE).text
    env, facts = around.env | _job_variables(items), around.facts | _job_facts(items)
    here = DescribedJob(name or around.name, env, facts, _command_text(items))
    if here.text is not None:
        yield here
    for key, item in items.items():
        if key in _job_keys()["passed_over"]:
            continue
        inside = here
        if (
            re.fullmatch(_job_keys()["replicas"], str(key))
            and (count := _replica_count(item)) is not None
        ):
            inside = replace(inside, facts=facts | {"nodes": count})
        if name is None and item.mapping is not None:
            inside = replace(inside, name=str(key))
        yield from _described_jobs(item, inside, depth + 1)


def _command_text(items: Items) -> Value | None:
    """The command of a mapping as shell text, None where it has none."""
    keys = _job_keys()
    for key in keys["text"]:
        text = items.get(key, _NO_VALUE)
        if text.text is not None:
            return Value(" ".join([text.text, *_flag_words(items)]), text.origin)
    for key in keys["lines"]:
        lines = items.get(key, _NO_VALUE).elements
        if lines and all(line.text is not None for line in lines):
            return Value("\n".join(str(line.data) for line in lines), lines[0].origin)
    parts: list[Value] = []
    for key in keys["words"]:
        part = items.get(key, _NO_VALUE)
        words = part.elements
        if words is not None and all(isinstance(word.data, str | int | float) for word in words):
            origin = words[0].origin if words else None
            parts.append(Value(shlex.join(str(word.data) for word in words), origin))
        elif part.text is not None:
            parts.append(part)
    if not any(" " in str(part.data) or ".py" in str(part.data) for part in parts):
        return None
    return Value(" ".join(str(part.data) for part in parts), parts[0].origin)


def _flag_words(items: Items) -> list[str]:
    """The words of flags that stand apart from the command; one that is on has no value."""
    words: list[str] = []
    for key in _job_keys()["flags"]:
        for name, value in (_first_item(items.get(key, _NO_VALUE)).mapping or {}).items():
            data = _first_item(value).data
            if re.fullmatch(r"[A-Za-z]\w*", str(name)) and data not in (False, None):
                words += [f"--{name}"] if data is True else [f"--{name}", shlex.quote(str(data))]
    return words


def _first_item(value: Value) -> Value:
    """The first item of a list; anything else is itself."""
    if value.elements is None:
        return value
    return value.elements[0] if value.elements else _NO_VALUE


def _job_variables(items: Items) -> dict[str, Value]:
    variables: dict[str, Value] = {}
    for key in _job_keys()["variables"]:
        table = items.get(key, _NO_VALUE)
        for name, value in (table.mapping or {}).items():
            if isinstance(value.data, str | int | float) and re.fullmatch(r"\w+", str(name)):
                variables[str(name)] = Value(str(value.data), value.origin)
        for item in table.elements or ():
            entry = item.mapping or {}
            if match := re.fullmatch(r"(\w+)=(.*)", item.text or "", re.DOTALL):
                variables[match[1]] = Value(match[2], item.origin)
            elif "name" in entry and "value" in entry:
                value = entry["value"]
                variables[str(entry["name"].data)] = Value(str(value.data), value.origin)
    return variables


def _job_facts(items: Items) -> Facts:
    """GPUs and nodes that a mapping states, itself or in what describes its resources."""
    keys, facts = _job_keys(), Facts()
    for key in keys["resources"]:
        resources = items.get(key, _NO_VALUE).mapping
        if resources:
            facts |= _job_facts(resources)
    for fact in ("gpus_per_node", "nodes"):
        for key in keys[fact]:
            count = _gpu_count(items[key]) if key in items else None
            if count is not None:
                facts[fact] = Value(count, items[key].origin)
    return facts


def _gpu_count(value: Value) -> int | None:
    """`8`, `A100:8`, `{A100: 8}`, `{name: A100, count: 8}`, the first of several."""
    value = _first_item(value)
    if value.mapping is not None:
        return _gpu_count(value.mapping.get("count", next(iter(value.mapping.values()), _NO_VALUE)))
    match = re.fullmatch(r"(?:.*:)?(\d{1,5})", str(value.data))
    return int(match[1]) if match and not isinstance(value.data, bool) else None


def _replica_count(value: Value) -> Value | None:
    """How many nodes the roles of a distributed job are, together."""
    roles = value.mapping.values() if value.mapping is not None else value.sequence or ()
    stated = [(role.mapping or {}).get("replicas") for role in roles]
    counts = [count for count in stated if count is not None]
    numbers = [count.data for count in counts if type(count.data) is int]
    if not numbers or len(numbers) < len(counts):
        return None
    return Value(sum(numbers), counts[0].origin)


# HTCondor: `condor_submit job.sub`, whose file describes one program.
#
# Macros `$(NAME)` are filled in from the file and from `NAME=value` words. The values that a
# `queue` statement gives each job are not read: they are shell variables that are not set.


_CONDOR_ASSIGNMENT = re.compile(r"\s*+([+\w.]++)\s*+=(?!=)\s*+((?:.*\S)?)\s*", re.DOTALL)
_CONDOR_MACRO = re.compile(r"\$\((\w+)(?::([^()]*))?\)")
_CONDOR_FACTS = {"request_gpus": "gpus", "requestgpus": "gpus", "machine_count": "nodes"}
MAX_MACROS = 20
MAX_MACRO_TEXT = 10_000


def follow_condor(follower: Follower, call: Call, options: Options) -> Decision:
    """Follow the program of the first description among the words."""
    words = [token(word) for word in call.words]
    paths = [follower.repo.normalise(word, call.cwd) for word in words]
    path = next((path for path in paths if path and follower.repo.is_file(path)), None)
    text = follower.repo.read(path) if path is not None else None
    if path is None or text is None:
        follower.warn(f"condor_submit: no description of the repository is among {words}")
        return None
    settings, lines = _condor_settings(text)
    words += [token(v) for o in options.given if o.name in ("append", "a") for v in o.values]
    pairs = [_CONDOR_ASSIGNMENT.fullmatch(word) for word in words]
    settings |= {pair[1].lower(): pair[2] for pair in pairs if pair is not None}
    program = _fill_macros("executable", settings)
    if not program:
        follower.warn(f"{path} names no executable")
        return None
    arguments = _fill_macros("arguments", settings) or _fill_macros("args", settings)
    if arguments.startswith('"') and arguments.endswith('"'):
        arguments = arguments[1:-1].replace('""', '"').replace("''", "'")
    for key, fact in _CONDOR_FACTS.items():
        if settings.get(key, "").isdigit():
            call.facts[fact] = Value(int(settings[key]), Origin("script", path, lines.get(key)))
    folder = follower.repo.normalise(_fill_macros("initialdir", settings) or ".", call.cwd)
    if folder is not None and follower.repo.is_dir(folder):
        call.cwd = folder
    call.launchers.append("condor_submit")
    line = lines.get("arguments") or lines.get("executable") or 1
    quoted = program if "$" in program else shlex.quote(program)
    return run_text(follower, f"{quoted} {arguments}", line, path, path, [], call)


def _condor_settings(text: str) -> tuple[dict[str, str], dict[str, int]]:
    """What a description sets up to its first `queue`, by names in lower case, and the lines."""
    settings: dict[str, str] = {"cluster": "1", "clusterid": "1", "process": "0", "procid": "0"}
    lines: dict[str, int] = {}
    statements = re.split(r"(?<!\\)\n", text)
    number = 1
    for statement in statements:
        if re.match(r"\s*queue\b", statement, re.IGNORECASE):
            break
        pair = _CONDOR_ASSIGNMENT.fullmatch(re.sub(r"\\\n\s*", " ", statement))
        if pair is not None:
            settings[pair[1].lower()] = pair[2]
            lines[pair[1].lower()] = number
        number += statement.count("\n") + 1
    return settings, lines


def _fill_macros(name: str, settings: dict[str, str]) -> str:
    """A setting with its macros filled in; one that is not set becomes a variable of that name."""

    def value(match: re.Match[str]) -> str:
        default = match[2] if match[2] is not None else f"${{{match[1]}}}"
        return settings.get(match[1].lower(), default)

    text = settings.get(name, "")
    for _ in range(MAX_MACROS):
        text = _CONDOR_MACRO.sub(value, text)[:MAX_MACRO_TEXT]
    return text


# Files that a script makes of others of the repository, before it starts a program with them.


def make_file(follower: Follower, call: Call) -> Decision:
    """`cp A B` and `sed -i s/a/b/ B`: what then stands in B; a warning where that is not known."""
    if any(isinstance(word.data, Unknown) for word in call.words):
        return True
    words = [token(word) for word in call.words[1:]]
    if call.name == "cp":
        names = [word for word in words if not word.startswith("-")]
        if len(names) == 2:
            _copy_file(follower, call.cwd, *names)
        return True
    if not any(re.match(r"-[A-Za-z]*i|--in-place", word) for word in words):
        return True
    programs = [after for word, after in pairwise(words) if word in _SED_PROGRAM]
    rest = [
        word
        for before, word in pairwise(["", *words])
        if not word.startswith("-") and before not in _SED_PROGRAM
    ]
    if not programs:
        programs, rest = rest[:1], rest[1:]
    for name in rest:
        _change_file(follower, call, name, programs)
    return True


_SED_PROGRAM = ("-e", "--expression")


def _made_file(follower: Follower, path: str | None) -> MadeFile | None:
    if path is None or path in follower.made:
        return follower.made.get(path or "")
    return MadeFile(path) if follower.repo.is_file(path) else None


def _copy_file(follower: Follower, cwd: str, source: str, target: str) -> None:
    file = _made_file(follower, follower.repo.normalise(source, cwd))
    path = follower.repo.normalise(target, cwd)
    if file is None or path is None:
        return
    if target.endswith("/") or follower.repo.is_dir(path):
        path = posixpath.join(path, posixpath.basename(source))
    follower.made[posixpath.normpath(path)] = file


def _change_file(follower: Follower, call: Call, name: str, programs: Sequence[str]) -> None:
    path = follower.repo.normalise(name, call.cwd)
    file = _made_file(follower, path)
    if path is None or file is None:
        return
    text = file.versions[-1][0] if file.versions else follower.repo.read(file.template)
    for program in programs:
        text = text and apply_sed(text, program, extended=False)
    if text is None:
        follower.warn(f"`sed` changes {name} in a way that is not followed: {programs[0]}")
        return
    origin = call.words[0].origin or Origin("command")
    follower.made[path] = replace(file, versions=(*file.versions, (text, origin)))


# `make target`: the recipe lines of simple Makefiles, read without running make.
#
# Understood: assignments (`=`, `:=`, `?=`, `+=`), variables on the command line, explicit rules,
# prerequisites and line continuations; `include` is not. Functions such as `$(shell ...)` are
# unknown.


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
