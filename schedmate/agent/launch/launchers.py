"""Reads the options of launchers: what they run, and the GPUs, nodes, processes and times they
state.

launchers.yaml has a table of options for each program that starts other programs. From these
options, from `#SBATCH` lines and from launcher configs come the facts of a launch; totals and the
variables that launchers set follow from them.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from functools import cache
from typing import Any, NamedTuple

from schedmate.agent.launch.repo import Repo
from schedmate.agent.launch.shell_expansion import token
from schedmate.agent.values import Origin, Unknown, Value, stated
from schedmate.base.data import load
from schedmate.base.errors import InputError
from schedmate.jobs import LaunchConfig
from schedmate.jobs.metadata import JobKind


@dataclass(frozen=True, slots=True)
class TrainingSign:
    """A pattern that speaks for or against a run being the training."""

    where: str
    pattern: re.Pattern[str]
    points: int


@dataclass(frozen=True, slots=True)
class Table:
    """One launcher's command line. Option names have no dashes and no underscores."""

    name: str
    run: str | None = None
    arity: dict[str, int] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)
    flags: dict[str, dict[str, Any]] = field(default_factory=dict)
    boolean: frozenset[str] = frozenset()
    module: frozenset[str] = frozenset()
    command: frozenset[str] = frozenset()
    env: frozenset[str] = frozenset()
    env_list: frozenset[str] = frozenset()
    chdir: frozenset[str] = frozenset()
    wrap: frozenset[str] = frozenset()
    defaults: dict[str, Any] = field(default_factory=dict)
    sets: dict[str, str] = field(default_factory=dict)
    subcommands: dict[str, Table] = field(default_factory=dict)
    skip: int = 0
    assignments: bool = False
    plain: bool = False
    program: frozenset[str] = frozenset()
    binary: frozenset[str] = frozenset()
    tasks: Sequence[str] = ()
    files: Sequence[str] = ()
    main: dict[str, str] = field(default_factory=dict)

    def setting(self, fact: str) -> str:
        """The launcher and its option for a fact: `torchrun --nnodes`."""
        option = next((name for name, states in self.facts.items() if states == fact), None)
        dashes = "" if option is None else "-" if len(option) == 1 else "--"
        return f"{self.name} {dashes}{option or fact}"


_OPTION_SETS = (
    "boolean", "module", "command", "env", "env_list", "chdir", "wrap", "program", "binary"
)  # fmt: skip
_TAKEN_AS_IS = {field.name for field in fields(Table)} - {
    "name",
    "arity",
    "subcommands",
    *_OPTION_SETS,
}
"""What a table takes from launchers.yaml as it stands there."""


class Option(NamedTuple):
    """One option: its name, its values, and the word it stands in."""

    name: str
    values: list[Value]
    word: Value


@dataclass(slots=True)
class Options:
    """A parsed command line: the options in order, and the words that follow."""

    given: list[Option]
    rest: list[Value]


@dataclass(frozen=True, slots=True)
class Rules:
    """The content of launchers.yaml: launchers, modules, shells, utilities and their options."""

    launchers: dict[str, Table]
    modules: dict[str, Table]
    provided: dict[str, str | None]
    allocation: dict[str, str]
    utilities: frozenset[str]
    utility_modules: frozenset[str]
    uncertain: frozenset[str]
    not_followed: dict[str, str]
    shells: frozenset[str]
    evidence: tuple[TrainingSign, ...]
    accelerate: dict[str, str]
    precisions: dict[str, str]


@cache
def launch_rules() -> Rules:
    """The rules of launchers.yaml, read once."""
    data = load("agent/launch/launchers.yaml")
    launchers: dict[str, Table] = {}
    modules: dict[str, Table] = {}
    for name, entry in data["launchers"].items():
        table = _read_table(name, entry)
        for alias in (name, *entry.get("names", ())):
            launchers[alias] = table
        for module in entry.get("modules", ()):
            modules[module] = table
        for word, inner in entry.get("subcommands", {}).items():
            for module in inner.get("modules", ()):
                modules[module] = table.subcommands[word]
    return Rules(
        launchers=launchers,
        modules=modules,
        provided=data["provided"],
        allocation=data["allocation"],
        utilities=frozenset(data["utilities"].split()),
        utility_modules=frozenset(data["utility_modules"]),
        uncertain=frozenset(data["uncertain"]),
        not_followed=data["not_followed"],
        shells=frozenset(data["shells"]),
        accelerate=data["accelerate"],
        precisions=data["precisions"],
        evidence=tuple(
            TrainingSign(item["where"], re.compile(item["pattern"], re.IGNORECASE), item["points"])
            for item in data["evidence"]
        ),
    )


def _read_table(name: str, entry: dict[str, Any]) -> Table:
    sets = {key: frozenset(map(str, entry.get(key, ()))) for key in _OPTION_SETS}
    arity: dict[str, int] = {}
    for item in entry.get("values", ()):
        arity |= item if isinstance(item, dict) else {str(item): 1}
    facts: dict[str, str] = entry.get("facts", {})
    valued = (sets[key] for key in ("env", "env_list", "chdir", "wrap", "program", "binary"))
    arity |= dict.fromkeys((*facts, *(name for names in valued for name in names)), 1)
    # `--wait` of srun takes a time, of sbatch, which shares its table of values, none
    arity = {option: count for option, count in arity.items() if option not in sets["boolean"]}
    own: dict[str, Any] = {key: entry[key] for key in _TAKEN_AS_IS & entry.keys()} | sets
    inner = {word: _read_table(name, table) for word, table in entry.get("subcommands", {}).items()}
    return Table(name=name, arity=arity, subcommands=inner, **own)


def parse_options(table: Table, words: Sequence[Value]) -> Options:
    """Split the words after a launcher's name into its own options and what it runs.

    An option missing from the table takes a value only where that value cannot be the program:
    before a `.py` file that follows.
    """
    options: list[Option] = []
    position = 0
    while position < len(words):
        word = words[position]
        text = token(word)
        if text == "--":
            position += 1
            break
        if not text.startswith("-") or text == "-":
            break
        position += 1
        option, equals, attached = text.partition("=")
        name = option.lstrip("-").replace("_", "-")
        if not text.startswith("--") and name not in table.arity and name not in table.boolean:
            glued = _split_glued(table, text)
            if glued is not None:
                name, attached = glued
                equals = "="
        name = _full_name(table, name)
        if equals:
            options.append(Option(name, [_part_of_word(word, attached)], word))
            continue
        if (name in table.module or name in table.command) and name not in table.program:
            options.append(Option(name, [], word))
            continue
        count = table.arity.get(name)
        if count is None and any(option.name in table.program for option in options):
            position -= 1
            break  # the program's own
        if count is None:
            count = int(_unlisted_takes_value(table, name, words[position:]))
        options.append(Option(name, list(words[position : position + count]), word))
        position += count
    return Options(options, list(words[position:]))


def _split_glued(table: Table, text: str) -> tuple[str, str] | None:
    """`-N2`, `-np8` as option and value."""
    body = text[1:]
    for length in (2, 1):
        if table.arity.get(body[:length]) == 1 and len(body) > length:
            return body[:length], body[length:].removeprefix("=")
    return None


def _full_name(table: Table, name: str) -> str:
    """The option that `name` abbreviates, as argparse and getopt_long allow."""
    names = {*table.arity, *table.boolean, *table.flags, *table.module, *table.command}
    if name in names or len(name) < 4:
        return name
    longer = [option for option in names if option.startswith(name)]
    return longer[0] if len(longer) == 1 else name


def _unlisted_takes_value(table: Table, name: str, following: Sequence[Value]) -> bool:
    if table.run != "python" or name in table.boolean or name in table.flags or not following:
        return False
    first = token(following[0])
    if first.startswith("-") or first.endswith(".py"):
        return False
    return any(token(word).endswith(".py") for word in following[1:])


def _part_of_word(value: Value, text: str) -> Value:
    """The piece `text` of a token, with the token's origin and known-ness."""
    is_known = not isinstance(value.data, Unknown) or ("$" not in text and "`" not in text)
    return Value(text if is_known else Unknown(text), value.origin)


def option_origin(option: Option) -> Origin | None:
    """The origin of an option's value, whose text is option and value as they are written."""
    value = option.values[0]
    origin = value.origin
    if origin is None or origin.source not in ("command", "script"):
        return origin
    word, text = token(option.word), token(value)
    attached = option.word is not value and word.endswith(text) and len(word) > len(text) + 1
    return origin._replace(text=word if attached else f"{word} {text}")


# Programs that are known by their name, with the kind of job that they are.


@dataclass(frozen=True, slots=True)
class KnownProgram:
    """What programs.yaml says of a program: the job's kind, and what its words and options name."""

    kind: JobKind
    name: str
    positional: Sequence[str] = ()
    pairs: Sequence[str] = ()
    model: Sequence[str] = ()


_FOLLOWING = 2
"""Most words after a program's name that are part of it."""


@cache
def _known_programs() -> tuple[dict[str, KnownProgram], dict[str, KnownProgram]]:
    """The programs by their plain names, and those whose names have wild cards."""
    plain: dict[str, KnownProgram] = {}
    wild: dict[str, KnownProgram] = {}
    for entry in load("agent/launch/programs.yaml"):
        own = {key: value for key, value in entry.items() if key != "names"}
        for name in entry["names"]:
            table = wild if re.search(r"[*?\[]", name) else plain
            table.setdefault(name, KnownProgram(name=name, **own))
    return plain, wild


def known_program(words: Sequence[str]) -> KnownProgram | None:
    """What is known of the program that the first words name: `vllm serve`, `lm_eval`."""
    if not words or not words[0]:
        return None
    plain, wild = _known_programs()
    head = posixpath.basename(words[0]).removesuffix(".__main__")
    following = [word for word in words[1:] if not word.startswith("-")][:_FOLLOWING]
    for count in range(len(following), -1, -1):
        name = " ".join([head, *following[:count]])
        if name in plain:
            return plain[name]
        for pattern, program in wild.items():
            if fnmatchcase(name, pattern):
                return program
    return None


# What launch options, `#SBATCH` lines and launcher configs say about resources.


Facts = dict[str, Value]


def facts_from_options(table: Table, options: Options, repo: Repo, cwd: str) -> Facts:
    """The facts that a launcher's options state. What is unknown states nothing."""
    facts: Facts = {}
    config: Facts = {}
    for option in options.given:
        name, values, word = option
        for fact, data in table.flags.get(name, {}).items():
            facts[fact] = Value(data, word.origin)
        if name not in table.facts or not values or isinstance(values[0].data, Unknown):
            continue
        fact, text = table.facts[name], token(values[0])
        origin = option_origin(option)
        if fact in ("hostfile", "accelerate_config"):
            path = repo.normalise(text, cwd) or repo.by_suffix(text)
            content = repo.read(path) if path else None
            if fact == "accelerate_config":
                facts[fact] = Value(path or text, origin)
                config = _facts_of_accelerate(repo, path) if path is not None else {}
            elif content is not None:
                facts |= _facts_of_hostfile(content, path)
        else:
            known = re.fullmatch(r"[\w.,:/%+=@-]+", text)
            plain = _read_fact(fact, text) if fact in FACT_READERS or known else {}
            facts |= {key: Value(data, origin) for key, data in plain.items()}
    return config | facts


def _read_fact(fact: str, text: str) -> PlainFacts:
    return FACT_READERS[fact](text) if fact in FACT_READERS else {fact: text}


def _facts_of_hostfile(content: str, path: str | None) -> Facts:
    """Lines such as `worker-1 slots=8`."""
    lines = [line.split("#")[0].strip() for line in content.splitlines()]
    hosts = [line for line in lines if line]
    slots = {match[1] for line in hosts if (match := re.search(r"slots\s*=\s*(\d{1,4})", line))}
    if not hosts:
        return {}
    origin = Origin("config", path)
    facts: Facts = {"nodes": Value(len(hosts), origin)}
    if len(slots) == 1:
        facts["gpus_per_node"] = Value(int(slots.pop()), origin)
    return facts


def _facts_of_accelerate(repo: Repo, path: str) -> Facts:
    """What an `accelerate config` file states, at its top or in its `deepspeed_config`."""
    try:
        items = repo.config(path).mapping or {}
    except InputError:
        return {}
    facts: Facts = {}
    inner = items.get("deepspeed_config", Value(None)).mapping or {}
    for key, fact in launch_rules().accelerate.items():
        value = inner.get(key) or items.get(key) or Value(None)
        if value.origin is None or not isinstance(value.data, bool | int | float | str):
            continue
        text = "no" if value.data is False else str(value.data)
        origin = value.origin._replace(text=key)
        facts |= {name: Value(data, origin) for name, data in _read_fact(fact, text).items()}
    return facts


def facts_from_batch_lines(text: str, file: str, repo: Repo) -> Facts:
    """The `#SBATCH` lines of a batch script; they end at the first command (sbatch(1))."""
    table = launch_rules().launchers["sbatch"]
    facts: Facts = {}
    for number, line in enumerate(text.splitlines(), start=1):
        match = re.match(r"#SBATCH\s+(.*)", line)
        if match is None:
            if line.strip() and not line.lstrip().startswith("#"):
                break
            continue
        try:
            words = shlex.split(match[1], comments=True)
        except ValueError:
            words = match[1].split()
        origin = Origin("script", file, number)
        options = parse_options(table, [Value(word, origin) for word in words])
        facts |= facts_from_options(table, options, repo, ".")
    return facts


# What follows from the facts of a launch: totals, and the variables that launchers set.


def fact_product(facts: Facts, *names: str) -> int | None:
    """The product of counts, or None when one is not known."""
    result = 1
    for name in names:
        count = facts[name].integer if name in facts else None
        if count is None:
            return None
        result *= count
    return result


def _set_total(facts: Facts, total: str, factors: tuple[str, ...]) -> None:
    """Set a total where it is not stated and its factors are known."""
    if total not in facts and (count := fact_product(facts, *factors)) is not None:
        facts[total] = Value(count, _origin_of_product(facts, factors))


def _origin_of_product(facts: Facts, factors: tuple[str, ...]) -> Origin | None:
    """The origin of a product: where its last factor is, and the others where they count."""
    origin = facts[factors[-1]].origin
    others = [name for name in factors[:-1] if facts[name].data != 1]
    if origin is None or not others:
        return origin
    return origin._replace(
        computed=" x ".join(_fact_in_words(facts, name) for name in (*others, factors[-1]))
    )


def _fact_in_words(facts: Facts, name: str) -> str:
    """A fact in words: `2 nodes (--nnodes 2)`."""
    origin = facts[name].origin
    text = origin.text if origin is not None and origin.source != "library" else None
    words = f"{facts[name].plain()} {name.replace('_per_', ' per ')}"
    return f"{words} ({text})" if text else words


def _set_nodes(facts: Facts, launch: LaunchConfig) -> None:
    """The nodes that the tasks fill, where none are stated."""
    tasks, each = fact_product(facts, "tasks"), fact_product(facts, "tasks_per_node")
    if tasks and each and tasks > each and launch.nodes is None and "nodes" not in facts:
        facts["nodes"] = Value(-(-tasks // each), facts["tasks"].origin)


def _times_computed(value: Value, nodes: int) -> Value:
    """The GPUs of all nodes, given those of one; the origin says how they were computed."""
    count, origin = int(value.number or 0), value.origin
    if origin is not None and nodes != 1:
        origin = origin._replace(computed=f"{count} per node x {nodes} nodes")
    return Value(count * nodes, origin)


def complete_facts(
    facts: Facts, env: dict[str, Value], launch: LaunchConfig, warnings: list[str]
) -> Facts:
    """Totals that follow from the facts; the launch configuration given by the user wins.

    GPUs: what the allocation says, else one for each process of a launcher (a bare Slurm task is
    none), else the visible devices.
    """
    facts = dict(facts)
    _set_nodes(facts, launch)
    nodes = fact_product(facts, "nodes") or launch.nodes or 1
    _set_total(facts, "procs", ("nodes", "procs_per_node"))
    _set_total(facts, "tasks", ("nodes", "tasks_per_node"))
    if "gpus_per_node" in facts and "gpus" not in facts:
        facts["gpus"] = _times_computed(facts["gpus_per_node"], nodes)
    _set_total(facts, "gpus", ("gpus_per_task", "tasks"))
    _set_total(facts, "gpus", ("gpus_per_task", "procs"))
    _set_total(facts, "gpus", ("procs",))
    _set_total(facts, "procs", ("tasks",))
    visible = env.get("CUDA_VISIBLE_DEVICES")
    if "gpus" not in facts and visible is not None and not isinstance(visible.data, Unknown):
        count = count_devices(token(visible))
        if count is not None:
            facts["gpus"] = _times_computed(Value(count, visible.origin), nodes)
    configured: dict[str, int | float | str | None] = {
        "gpus": launch.gpus,
        "nodes": launch.nodes,
        "gpu_type": launch.gpu_type,
        "time_limit_s": launch.time_limit_s,
    }
    for name, data in configured.items():
        if data is None:
            continue
        of_command = facts[name].plain() if name in facts else data
        if name in ("gpus", "nodes") and of_command != data:
            warnings.append(
                f"the launch configuration says {data} {name}, the command {of_command}: "
                f"the launch configuration is used"
            )
        facts[name] = Value(data, stated(name, data))
    return facts


def launcher_variables(sets: dict[str, str], facts: Facts) -> dict[str, Value]:
    """The variables that launchers set for the first process; unknown where the fact is."""
    variables: dict[str, Value] = {}
    for name, text in sets.items():
        fact = facts.get(text.removeprefix("$")) if text.startswith("$") else None
        if fact is not None:
            # the origin is the launch as a whole: what a program computes from it is its own
            variables[name] = Value(str(fact.data), stated(name, fact.data))
        else:
            known = not text.startswith("$")
            origin = stated(name, text)
            variables[name] = Value(text if known else Unknown(f"${name}"), origin)
    return variables


# Counts, devices and times as launchers write them.
#
# Units: counts are numbers of GPUs, processes or nodes; times are seconds.


PlainFacts = dict[str, int | float | str]

_COUNT_FACTS = ("nodes", "procs", "procs_per_node", "tasks", "tasks_per_node", "cpus_per_task")


def time_limit_seconds(text: str) -> float | None:
    """A Slurm time limit (`M`, `M:S`, `H:M:S`, `D-H`, `D-H:M`, `D-H:M:S`) [s]; sbatch(1)."""
    match = re.fullmatch(r"(?:(\d{1,5})-)?(\d{1,7}(?::\d{1,7}){0,2})", text.strip())
    if match is None:
        return None
    fields = [int(field) for field in match[2].split(":")]
    if match[1] is not None:
        hours, minutes, secs = [*fields, 0, 0][:3]
        return float(int(match[1]) * 86_400 + hours * 3_600 + minutes * 60 + secs)
    if len(fields) == 3:
        return float(fields[0] * 3_600 + fields[1] * 60 + fields[2])
    return float(fields[0] * 60 + (fields[1] if len(fields) == 2 else 0))


def count_devices(text: str) -> int | None:
    """How many devices a list such as `0,1,2` names; an empty list or -1 names none."""
    items = [item.strip() for item in text.strip().strip("\"'").split(",") if item.strip()]
    if "-1" in items or not items:
        return 0
    count = 0
    for item in items:
        ends = re.fullmatch(r"(\d{1,4})-(\d{1,4})", item)
        if ends and int(ends[2]) >= int(ends[1]):
            count += int(ends[2]) - int(ends[1]) + 1
        elif re.fullmatch(r"\d{1,4}|(GPU|MIG)-[\w-]+", item):
            count += 1
        else:
            return None
    return count


def _matching(pattern: str) -> Callable[[str], PlainFacts]:
    """A reader of the facts that the groups of a pattern are named after, numbers among them."""
    compiled = re.compile(pattern)

    def read(text: str) -> PlainFacts:
        match = compiled.fullmatch(text.strip())
        given = match.groupdict() if match is not None else {}
        return {name: int(part) if part.isdigit() else part for name, part in given.items() if part}

    return read


def _gres(text: str) -> PlainFacts:
    """`gpu:8`, `gpu:a100:8`, `gpu`; other generic resources are passed over."""
    for item in text.split(","):
        match = re.fullmatch(r"(?:gres/)?gpu(?::([A-Za-z][\w.\-]*))?(?:[:=](\d{1,6}))?", item)
        if match:
            facts: PlainFacts = {"gpus_per_node": int(match[2] or 1)}
            return facts | ({"gpu_type": match[1]} if match[1] else {})
    return {}


def _devices(text: str) -> PlainFacts:
    count = count_devices(text)
    return {} if count is None else {"gpus_per_node": count}


def _deepspeed_devices(text: str) -> PlainFacts:
    """`localhost:0,1@worker-2:2,3`."""
    hosts = [host for host in text.split("@") if host]
    counts = [count_devices(host.partition(":")[2]) for host in hosts]
    counted = [count for count in counts if count]
    if len(counted) != len(hosts) or not hosts:
        return {"nodes": len(hosts)} if hosts else {}
    facts: PlainFacts = {"nodes": len(hosts), "gpus": sum(counted)}
    return facts | ({"gpus_per_node": counted[0]} if len(set(counted)) == 1 else {})


_LISTED = re.compile(r"device=([\w,-]+)")
# `1:4` (elastic torchrun) and `2-4` (Slurm) ask for at least the first number
_WHOLE = {
    name: _matching(rf"(?P<{name}>\d{{1,6}})(?:[:-]\d{{1,6}})?")
    for name in (
        *_COUNT_FACTS,
        "zero_stage",
        "gradient_accumulation_steps",
        "gpus_per_node",
        "gpus",
    )
}
# `8`, `a100:8` (Slurm)
_TYPED = {
    name: _matching(rf"(?:(?P<gpu_type>[A-Za-z][\w.\-]*):)?(?P<{name}>\d{{1,6}})")
    for name in ("gpus", "gpus_per_node", "gpus_per_task")
}
# TorchX's `2x8`, nodes by processes of each; `8` is one node
_REPLICAS = _matching(r"(?:(?P<nodes>\d{1,5})(?::\d{1,5})?x)?(?P<procs_per_node>\d{1,4})")

FACT_READERS: dict[str, Callable[[str], PlainFacts]] = {
    **_WHOLE,
    **_TYPED,
    "gres": _gres,
    "devices": _devices,
    # Lightning's `--devices`: a number, or a list when it holds a comma
    "devices_or_count": lambda text: (_devices if "," in text else _WHOLE["gpus_per_node"])(text),
    "deepspeed_devices": _deepspeed_devices,
    # `host1:4,host2:4`
    "hosts": lambda text: {"nodes": len({h.partition(":")[0] for h in text.split(",") if h})},
    "docker_gpus": lambda text: (
        _devices(listed[1]) if (listed := _LISTED.search(text)) else _WHOLE["gpus"](text)
    ),
    "replicas": lambda text: {"nodes": 1} | found if (found := _REPLICAS(text)) else {},
    "time": lambda text: (
        {"time_limit_s": limit} if (limit := time_limit_seconds(text)) is not None else {}
    ),
    "precision": lambda text: {
        "precision": launch_rules().precisions.get(text.lower(), text.lower())
    },
}
