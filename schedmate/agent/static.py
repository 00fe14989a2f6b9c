"""Extracts `WorkloadMetadata` from a repository and a launch command without running anything.

The launch command is planned, the program it starts is followed without running it, and the fields
are chosen from what was seen, each with its evidence (SchedMate paper, section 3.1, in place of the
first pass of the Metadata Extractor). Programs that the command runs before the training are
followed for the configurations they write, and paths are given as the job writes them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeAlias

from schedmate.agent import Extraction
from schedmate.agent.bounds import Budget
from schedmate.agent.configs.reader import read_changed
from schedmate.agent.fields import (
    confidence,
    extras,
    kinds,
    length,
    model,
    task,
    training,
    unread,
)
from schedmate.agent.fields.candidates import EXPLICIT, Candidate, Lines, evidence_of
from schedmate.agent.fields.dataset import find_datasets
from schedmate.agent.fields.settings import all_settings
from schedmate.agent.interp.objects import Instance, Limits
from schedmate.agent.interp.program import follow, follow_config
from schedmate.agent.interp.trace import Settings, Trace
from schedmate.agent.interp.values.files import place_in
from schedmate.agent.launch.plan import LaunchPlan
from schedmate.agent.launch.planning import find_entry, plan_launch
from schedmate.agent.launch.repo import Repo
from schedmate.agent.stated import (
    by_words,
    doubt_contradicted,
    laid_over,
    not_taken,
    overrides_followed,
    statements,
)
from schedmate.agent.units import ITERS, UNIT
from schedmate.agent.values import Data, Unknown, Value, stated, unknown
from schedmate.base.data import LONGEST_S, MOST_GPUS
from schedmate.base.errors import InputError, similar_file
from schedmate.base.files import exists, is_dir
from schedmate.jobs import Evidence, LaunchConfig, WorkloadMetadata
from schedmate.jobs.metadata import JobKind

_MAY_BE_MORE = 0.6
"""Most confidence in what was read of a program that was not followed to its end."""
_NEVER_CONTRADICTED = frozenset({*EXPLICIT, "library"})
"""Sources of values that nothing in the rest of a program contradicts."""
_FROM_LAUNCH = frozenset({"launch"})
"""Sources of values that nothing in the rest of a command contradicts."""


def extract(
    repo: Path,
    command: str | None = None,
    launch: LaunchConfig | None = None,
    budget_s: float = 10.0,
    wall_s: float | None = None,
) -> Extraction:
    """Read what a job trains from its source code, running none of it.

    Args:
        repo: the job's source code.
        command: the launch command as typed in `repo`; None to look for the likeliest entry.
        launch: resources known to the scheduler; the command's own flags fill what it leaves out.
        budget_s: CPU time limit [s]; past it the answer is partial, with a warning.
        wall_s: wall time limit [s], for a machine that is loaded or a file system that hangs;
            None for `bounds.PATIENCE` times the budget.

    Raises:
        InputError: no such repository, an empty one, or a command that names nothing in it.
    """
    start = time.monotonic()
    budget = Budget(budget_s, wall_s)
    launch = launch or LaunchConfig()
    opened = Repo(_checked_repository(repo))
    root = opened.root
    plan = plan_launch(command, opened, launch) if command else find_entry(opened)
    warnings = list(plan.warnings)
    completed = _completed_launch(launch, plan)
    plan.argv = [path_as_written(value) for value in plan.argv]
    trace = Trace()
    written = files_written_before(
        opened, plan, lambda earlier: _launch_facts(root, earlier, completed), budget
    )
    given = statements(plan)
    missed = given
    if plan.entry is not None:
        facts = _launch_facts(root, plan, completed)
        trace = follow(opened, plan, facts, Limits(time=budget), dict(written))
        missed = not_taken(given, trace)
        changed = laid_over(root, trace, missed)
        if changed and not budget.spent():
            trace = follow(opened, plan, facts, Limits(time=budget), {**written, **changed})
            missed = not_taken(given, trace)
    elif (config := unread.program_python_config(root, plan)) is not None:
        facts = _launch_facts(root, plan, completed)
        trace = follow_config(opened, plan, config, facts, Limits(time=budget))
    for started in trace.commands:  # first, as their environment says what their files mean
        if unread.library_program(started) is not None:
            unread.add_command_settings(opened, trace, started)
    unmatched = () if overrides_followed(trace) else {each.name for each in missed}
    unread.add_command_settings(opened, trace, plan, unmatched)
    if worded := by_words(given):
        trace.settings.append(Settings("command", Value(dict(worded)), "arguments"))
    add_written_settings(root, trace, plan, written)
    make_paths_relative(root, trace)
    warnings.extend(trace.warnings)
    warned = len(warnings)
    if trace.complete and plan.complete:
        warnings.extend(trace.refused)
    metadata = assemble(
        trace, plan, completed, Lines(root), warnings, task.read_readmes(root, plan.entry)
    )
    contradicted = doubt_contradicted(metadata, given, missed, warnings)
    stated = metadata.sections()["training_config"]
    found = any(map(stated.get, ("iters", "optimizer", "lr")))
    if metadata.family == "training" and not found and len(warnings) == warned:
        warnings.append(
            f"the kind of this job is {metadata.job_kind}, and neither a length, a learning rate "
            "nor an optimiser was found: is its configuration in the repository?"
        )
    complete = trace.complete and plan.complete
    # of a script that was not read to its end, another program may be the training
    stands = _NEVER_CONTRADICTED if plan.complete else _FROM_LAUNCH
    for field, proof in metadata.evidence.items():
        named = field == kinds.KIND and proof.source == "derived" and plan.complete
        if not complete and not named and proof.source not in stands:
            proof.lower(_MAY_BE_MORE, "the program was not read to its end")
    kinds.doubt_fields(metadata)
    took = time.monotonic() - start
    return Extraction(metadata, completed, warnings, took, plan.entry, not complete, contradicted)


def _checked_repository(repo: Path) -> Path:
    try:
        return _existing_repository(repo)
    except PermissionError as error:
        where = error.filename or repo
        raise InputError(
            f"cannot read {where}: Permission denied; let a group or an ACL read the job's code."
        ) from None


def _existing_repository(repo: Path) -> Path:
    with suppress(FileNotFoundError, NotADirectoryError, ValueError):
        repo.stat()  # what cannot be looked at is not what is missing
    if not exists(repo):
        hint = similar_file(repo) or "; give the path of the job's source code"
        raise InputError(f"{repo}: no such directory{hint}")
    if not is_dir(repo):
        raise InputError(f"{repo}: not a directory; give the folder that holds the source code")
    if not any(repo.iterdir()):
        raise InputError(f"{repo}: the directory is empty; give the job's source code")
    return repo.resolve()


def _count_in_plan(plan: LaunchPlan, name: str) -> int | None:
    value = plan.facts.get(name)
    number = value.integer if value is not None else None
    return number if number is not None and abs(number) <= MOST_GPUS else None


def _completed_launch(launch: LaunchConfig, plan: LaunchPlan) -> LaunchConfig:
    gpus, nodes = launch.gpus, launch.nodes
    limit = plan.facts.get("time_limit_s")
    gpu_type = plan.facts.get("gpu_type")
    return LaunchConfig(
        gpus=gpus if gpus is not None else _count_in_plan(plan, "gpus"),
        nodes=nodes if nodes is not None else _count_in_plan(plan, "nodes"),
        gpu_type=launch.gpu_type
        or (gpu_type.data if gpu_type is not None and isinstance(gpu_type.data, str) else None),
        time_limit_s=launch.time_limit_s
        if launch.time_limit_s is not None
        else float(limit.data)
        if limit is not None and isinstance(limit.data, int | float) and limit.data <= LONGEST_S
        else None,
    )


def _launch_facts(root: Path, plan: LaunchPlan, launch: LaunchConfig) -> dict[str, Data]:
    gpus, nodes = launch.gpus, launch.nodes
    per_node = _count_in_plan(plan, "gpus_per_node") or _count_in_plan(plan, "procs_per_node")
    if per_node is None and gpus is not None:
        per_node = gpus // (nodes or 1)
    return {
        "gpus": gpus,
        "gpus_per_node": per_node,
        "nodes": nodes or 1,
        "distributed": gpus > 1 if gpus is not None else None,
        "cwd": str(root if plan.cwd == "." else root / plan.cwd),
    }


def assemble(
    trace: Trace,
    plan: LaunchPlan,
    launch: LaunchConfig,
    lines: Lines,
    warnings: list[str],
    readmes: Sequence[task.About] = (),
) -> WorkloadMetadata:
    """Choose every field's value from what was seen, and from `readmes`.

    `lines` is the repository that the evidence is looked up in, `warnings` is added to.
    """
    settings = all_settings(trace)
    sections: dict[str, dict[str, Any]] = {
        "model_config": {},
        "training_config": {},
        "dataset_config": {},
    }
    evidence: dict[str, Evidence] = {}

    name = model.find_model(trace, settings, plan.entry)
    called = str(name.data) if name is not None else ""
    train, valid = find_datasets(trace, settings, plan, called)
    data = [train] if train is not None else []
    domain = task.find_task(trace, settings, name, data, unread.program_domain(plan), readmes)
    beside = extras.find_extras(trace, settings, lines)
    extras.drop_unfitting_sizes(beside, launch.gpus)
    devices = extras.find_devices(settings) if launch.gpus is None else {}
    gpus = devices["num_gpus"].data if "num_gpus" in devices else launch.gpus
    batch = training.reconcile_batch_sizes(beside, trace, gpus, _count_in_plan(plan, "procs"))
    answers: dict[str, Candidate | None] = {
        "model_config.model_name": name,
        "model_config.task_type": domain and domain[0],
        "dataset_config.train": train,
        "dataset_config.valid": valid,
    }
    of_length: list[str] = []
    total = length.choose_length(trace, settings, plan, of_length)
    if total is not None:
        counted = length.length_in_steps(*total, batch, beside.get("seq_length"))
        if isinstance(counted, str):
            of_length.append(counted)
        else:
            answers[ITERS], answers[UNIT] = counted
    for key, candidate in extras.find_model_sizes(trace, settings).items():
        answers[f"model_config.{key}"] = candidate
    for key, candidate in beside.items():
        section = "dataset_config" if key == "num_workers" else "training_config"
        answers[f"{section}.{key}"] = candidate
    for key, candidate in _resources(devices, plan, launch).items():
        answers[f"training_config.{key}"] = candidate
    answered = {field: candidate for field, candidate in answers.items() if candidate is not None}
    judged = confidence.judge_answers(answered, confidence.scene_of(trace, plan, lines))
    told = kinds.find_kind(trace, plan, judged)
    kind: JobKind = told.data
    judged, is_training = kinds.fields_of(kind, trace, plan, settings, judged)
    if is_training:
        warnings.extend(of_length)
    elif kind == "unknown":
        warnings.append(
            "what this job does is not known, and nothing that its program reaches trains a "
            "model: it has no fields of trainings"
        )
    for field, candidate in judged.items():
        section, _, key = field.partition(".")
        sections.setdefault(section, {})[key] = candidate.data
        unit_of = ITERS if field == UNIT else None
        evidence[field] = evidence_of(candidate, lines, unit_of)
    if kind != "unknown":
        evidence[kinds.KIND] = told.evidence()
    return WorkloadMetadata.model_validate({"job_kind": kind, **sections, "evidence": evidence})


def _resources(
    devices: dict[str, Candidate], plan: LaunchPlan, launch: LaunchConfig
) -> dict[str, Candidate]:
    """GPUs and nodes of the job: as the launch gives them, else as the program's settings do."""
    resources = {}
    for key, name, number in (
        ("num_gpus", "gpus", launch.gpus),
        ("num_nodes", "nodes", launch.nodes),
    ):
        if number is None:
            if key in devices:
                resources[key] = devices[key]
            continue
        fact = plan.facts.get(name)
        same = fact is not None and fact.data == number
        origin = fact.origin if fact is not None and same else None
        resources[key] = Candidate(number, origin or stated(name, number), 100, rule="launch")
    return resources


# Programs that a command runs before the training, for the configurations that they write.


LaunchFacts: TypeAlias = dict[str, Data]

_CONFIGURATIONS = (".yaml", ".yml", ".json", ".toml", ".cfg", ".ini")


def files_written_before(
    repo: Repo, plan: LaunchPlan, facts_of: Callable[[LaunchPlan], LaunchFacts], budget: Budget
) -> dict[str, Value]:
    """The files that the command and programs before a training write.

    Programs are followed only where the training names a file that is not there.

    Args:
        repo: the repository.
        plan: the training, with the programs before it.
        facts_of: what the launch says to a program.
        budget: the time for all of them and the training.
    """
    files = _files_made(repo, plan)
    words = [str(word.data).rpartition("=")[2] for word in plan.argv]
    named = [word for word in words if word.endswith(_CONFIGURATIONS)]
    if all(exists(repo.root / plan.cwd / word) for word in named):
        return files
    for earlier in plan.before:
        follow(repo, earlier, facts_of(earlier), Limits(time=budget), files)
    return files


def _files_made(repo: Repo, plan: LaunchPlan) -> dict[str, Value]:
    """The configurations that the command's own shell makes of others, by their path."""
    files: dict[str, Value] = {}
    for path, made in plan.made.items():
        if path.endswith(_CONFIGURATIONS):
            try:
                template = repo.root / made.template
                files[path] = read_changed(template, repo.root, made.versions, path)
            except InputError as error:
                plan.warnings.append(str(error))
    return files


def add_written_settings(
    root: Path, trace: Trace, plan: LaunchPlan, written: dict[str, Value]
) -> None:
    """The written files that the command names to a program that was not seen to read them."""
    read = {settings.name for settings in trace.settings}
    for word in plan.argv:
        place = place_in(str(root), str(root / plan.cwd), str(word.data).rpartition("=")[2])
        if place in written and place not in read:
            trace.settings.append(Settings(place, written[place], "config"))


# Paths of a job as its own command and repository write them, wherever they were unpacked.


MAX_TEXT = 300
"""Longest text that fields are chosen from [characters]: a path or a list of paths, not a file."""

_OWN_DEPTH = 4
"""Least parts of the repository's path at which the folder it is in is not a common one."""
_AS_WRITTEN = frozenset({"command", "script", "environment", "config"})
"""Sources of paths that stand as the job's people wrote them."""

_UNKNOWN_PLACE = r"([\"']?)(?:\$(?:\w+|\{\w+\})|\.{0,2}/[\w.@+-]+)(?:/[\w.@+${}-]+)+"
_BELOW_UNKNOWN = re.compile(
    rf"(?:-{{0,2}}[\w.-]+=)?(?:{_UNKNOWN_PLACE}\1|\[\s*{_UNKNOWN_PLACE}\2(?:\s*,\s*{_UNKNOWN_PLACE}\3)*\s*\])"
)


def make_paths_relative(root: Path, trace: Trace) -> None:
    """Write paths inside the repository (`os.getcwd()`, `__file__`) without what leads up to it.

    So are those beside it that the code computes (`dirname(dirname(__file__))`), as `../data`. The
    repository's folder is named for its code, not for the data of a run. Texts that are too long to
    name anything become unknown.
    """
    inside = f"{root}/"
    beside = f"{root.parent}/"
    shared = len(root.parts) < _OWN_DEPTH  # a folder such as /tmp, where others' places are too
    seen: set[int] = set()
    lists: dict[int, list[Value]] = {}  # made anew, by the old one, which the trace keeps alive

    def shown(value: Value) -> Value:
        data = value.data
        items = data.attrs if isinstance(data, Instance) else data
        if isinstance(items, dict) and id(items) not in seen:
            seen.add(id(items))
            items.update(
                {key: shown(item) for key, item in items.items() if isinstance(item, Value)}
            )
        if isinstance(data, str) and len(data) > MAX_TEXT:
            return unknown(origin=value.origin)
        if data == str(root):
            return Value(".", value.origin)
        if isinstance(data, str) and data.startswith(inside):
            return Value(f"./{data.removeprefix(inside)}", value.origin)
        if (
            isinstance(data, str)
            and data.startswith(beside)
            and not shared
            and not is_as_written(value)
        ):
            return Value(f"../{data.removeprefix(beside)}", value.origin)
        if isinstance(data, list) and any(
            isinstance(item.data, str)
            and (item.data.startswith(inside) or len(item.data) > MAX_TEXT)
            for item in data
        ):
            if id(data) not in lists:
                lists[id(data)] = []
                lists[id(data)].extend([shown(item) for item in data])
            return Value(lists[id(data)], value.origin)
        return value

    def is_as_written(value: Value) -> bool:
        return value.origin is not None and value.origin.source in _AS_WRITTEN

    for event in trace.calls:
        event.args = [shown(value) for value in event.args]
        event.kwargs = {key: shown(value) for key, value in event.kwargs.items()}
    for settings in trace.settings:
        settings.value = shown(settings.value)


def path_as_written(value: Value) -> Value:
    """An argument below a folder that only the machine knows, `$HOME/data/x.csv`, as written.

    So is a list of such places, `files=['$HOME/a.csv', '$HOME/b.csv']`.
    """
    text = value.data.text if isinstance(value.data, Unknown) else None
    if text is not None and _BELOW_UNKNOWN.fullmatch(text):
        # without braces, which are a configuration's own references
        return Value(re.sub(r"\$\{(\w+)\}", r"$\1", text), value.origin)
    return value
