"""Static extraction: from a repository and a launch command to `WorkloadMetadata`.

The launch command is planned, the program it starts is followed without running it, and the fields
are chosen from what was seen, each with its evidence (SchedMate paper, section 3.1, in place of the
first pass of the Metadata Extractor).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from schedmate.agent.budget import Budget
from schedmate.agent.earlier import add_written, written_before
from schedmate.agent.extraction import Extraction
from schedmate.agent.fields import (
    about,
    agreement,
    batches,
    confidence,
    dataset,
    devices,
    extras,
    flags,
    length,
    model,
    outside,
    task,
)
from schedmate.agent.fields.candidates import EXPLICIT, Candidate
from schedmate.agent.fields.leaves import leaves
from schedmate.agent.fields.proofs import Lines, evidence_of
from schedmate.agent.interp.machine import Limits
from schedmate.agent.interp.program import follow, follow_config
from schedmate.agent.interp.trace import Trace
from schedmate.agent.launch.guess import find_entry
from schedmate.agent.launch.plan import LaunchPlan
from schedmate.agent.launch.planning import plan_launch
from schedmate.agent.launch.repo import Repo
from schedmate.agent.own_paths import as_written, relative_to
from schedmate.agent.values import Data, stated
from schedmate.errors import InputError, similar_file
from schedmate.jobs import Evidence, LaunchConfig, WorkloadMetadata
from schedmate.paths import exists, is_dir
from schedmate.plain import LONGEST_S, MOST_GPUS

_MAY_BE_MORE = 0.6
"""Most confidence in what was read of a program that was not followed to its end."""
_GIVEN = frozenset({*EXPLICIT, "library"})
"""Sources of values that nothing in the rest of a program contradicts."""
_STATED = frozenset({"launch"})
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
            None for `budget.PATIENCE` times the budget.

    Raises:
        InputError: no such repository, an empty one, or a command that names nothing in it.
    """
    start = time.monotonic()
    budget = Budget(budget_s, wall_s)
    launch = launch or LaunchConfig()
    opened = Repo(_repository(repo))
    root = opened.root
    plan = plan_launch(command, opened, launch) if command else find_entry(opened)
    warnings = list(plan.warnings)
    completed = _complete(launch, plan)
    plan.argv = [as_written(value) for value in plan.argv]
    trace = Trace()
    written = written_before(opened, plan, lambda earlier: _facts(root, earlier, completed), budget)
    if plan.entry is not None:
        facts = _facts(root, plan, completed)
        trace = follow(opened, plan, facts, Limits(time=budget), dict(written))
    elif (config := outside.python_config(root, plan)) is not None:
        facts = _facts(root, plan, completed)
        trace = follow_config(opened, plan, config, facts, Limits(time=budget))
    for started in trace.commands:  # first, as their environment says what their files mean
        if outside.known(started) is not None:
            flags.add_settings(opened, trace, started)
    flags.add_settings(opened, trace, plan)
    add_written(root, trace, plan, written)
    relative_to(root, trace)
    warnings.extend(trace.warnings)
    told = len(warnings)
    if trace.complete and plan.complete:
        warnings.extend(trace.refused)
    metadata = assemble(
        trace, plan, completed, Lines(root), warnings, about.read_readmes(root, plan.entry)
    )
    training = metadata.sections()["training_config"]
    if not metadata.sections()["model_config"].get("model_name") and not trace.calls:
        warnings.append("nothing in the repository that this command runs looks like training")
    elif len(warnings) == told and not any(map(training.get, ("iters", "optimizer", "lr"))):
        warnings.append(
            "neither a length, a learning rate nor an optimiser was found: "
            "is this the command of a training, and is its configuration in the repository?"
        )
    complete = trace.complete and plan.complete
    # of a script that was not read to its end, another program may be the training
    stands = _GIVEN if plan.complete else _STATED
    for proof in metadata.evidence.values():
        if not complete and proof.source not in stands:
            proof.confidence = min(proof.confidence, _MAY_BE_MORE)
    took = time.monotonic() - start
    return Extraction(metadata, completed, warnings, took, plan.entry, not complete)


def _repository(repo: Path) -> Path:
    if not exists(repo):
        hint = similar_file(repo) or "; give the path of the job's source code"
        raise InputError(f"{repo}: no such directory{hint}")
    if not is_dir(repo):
        raise InputError(f"{repo}: not a directory; give the folder that holds the source code")
    if not any(repo.iterdir()):
        raise InputError(f"{repo}: the directory is empty; give the job's source code")
    return repo.resolve()


def _number(plan: LaunchPlan, name: str) -> int | None:
    value = plan.facts.get(name)
    number = value.integer if value is not None else None
    return number if number is not None and abs(number) <= MOST_GPUS else None


def _complete(launch: LaunchConfig, plan: LaunchPlan) -> LaunchConfig:
    gpus, nodes = launch.gpus, launch.nodes
    limit = plan.facts.get("time_limit_s")
    gpu_type = plan.facts.get("gpu_type")
    return LaunchConfig(
        gpus=gpus if gpus is not None else _number(plan, "gpus"),
        nodes=nodes if nodes is not None else _number(plan, "nodes"),
        gpu_type=launch.gpu_type
        or (gpu_type.data if gpu_type is not None and isinstance(gpu_type.data, str) else None),
        time_limit_s=launch.time_limit_s
        if launch.time_limit_s is not None
        else float(limit.data)
        if limit is not None and isinstance(limit.data, int | float) and limit.data <= LONGEST_S
        else None,
    )


def _facts(root: Path, plan: LaunchPlan, launch: LaunchConfig) -> dict[str, Data]:
    gpus, nodes = launch.gpus, launch.nodes
    per_node = _number(plan, "gpus_per_node") or _number(plan, "procs_per_node")
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
    said: Sequence[about.About] = (),
) -> WorkloadMetadata:
    """Choose every field's value from what was seen, and `said`, what READMEs say.

    `lines` is the repository that the evidence is looked up in, `warnings` is added to.
    """
    settings = leaves(trace)
    sections: dict[str, dict[str, Any]] = {
        "model_config": {},
        "training_config": {},
        "dataset_config": {},
    }
    evidence: dict[str, Evidence] = {}

    name = model.find(trace, settings, plan.entry, said)
    called = str(name.data) if name is not None else ""
    train, valid = dataset.find(trace, settings, plan, said, called)
    data = [train] if train is not None else []
    domain = task.find(trace, settings, name, data, said, outside.domain(plan))
    beside = extras.find(trace, settings, lines)
    agreement.parallel_sizes(beside, launch.gpus)
    told = devices.find(settings) if launch.gpus is None else {}
    gpus = told["num_gpus"].data if "num_gpus" in told else launch.gpus
    batch = batches.reconcile(beside, trace, gpus, _number(plan, "procs"))
    answers: dict[str, Candidate | None] = {
        "model_config.model_name": name,
        "model_config.task_type": domain and domain[0],
        "dataset_config.train": train,
        "dataset_config.valid": valid,
    }
    total = length.choose_length(trace, settings, plan, warnings)
    if total is not None:
        counted = length.in_steps(*total, batch, beside.get("seq_length"))
        if isinstance(counted, str):
            warnings.append(counted)
        else:
            answers["training_config.iters"], answers["training_config.iter_type"] = counted
    for key, candidate in extras.architecture(trace, settings).items():
        answers[f"model_config.{key}"] = candidate
    for key, candidate in beside.items():
        section = "dataset_config" if key == "num_workers" else "training_config"
        answers[f"{section}.{key}"] = candidate
    for key, candidate in _resources(told, plan, launch).items():
        answers[f"training_config.{key}"] = candidate
    given = {field: candidate for field, candidate in answers.items() if candidate is not None}
    for field, candidate in confidence.judge(given, confidence.scene(trace, plan, lines)).items():
        section, _, key = field.partition(".")
        sections[section][key] = candidate.data
        unit_of = "training_config.iters" if key == "iter_type" else None
        evidence[field] = evidence_of(candidate, lines, unit_of)
    return WorkloadMetadata.model_validate({**sections, "evidence": evidence})


def _resources(
    told: dict[str, Candidate], plan: LaunchPlan, launch: LaunchConfig
) -> dict[str, Candidate]:
    """GPUs and nodes of the job: as the launch gives them, else as the program's settings do."""
    found = {}
    for key, name, given in (
        ("num_gpus", "gpus", launch.gpus),
        ("num_nodes", "nodes", launch.nodes),
    ):
        if given is None:
            if key in told:
                found[key] = told[key]
            continue
        fact = plan.facts.get(name)
        same = fact is not None and fact.data == given
        origin = fact.origin if fact is not None and same else None
        found[key] = Candidate(given, origin or stated(name, given), 100, rule="launch")
    return found
