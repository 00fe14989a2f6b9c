"""Many runs over one trace: every policy under every plan, in parallel.

A finished run is kept, and a comparison that was interrupted resumes after it. How many runs are
made at once, and where, does not change a result.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from schedmate.errors import SchedmateError
from schedmate.schedulers.sim import fingerprint
from schedmate.schedulers.sim.options import make_estimator
from schedmate.schedulers.sim.outcome.metrics import HOUR, paired_difference
from schedmate.schedulers.sim.outcome.results import Result, result_of
from schedmate.schedulers.sim.runs import Plan, check_plan, run_policy
from schedmate.schedulers.sim.workload import Workload
from schedmate.terminal import counted

Progress = Callable[[int, str], None]
"""Called with the number of jobs submitted so far in all runs, and the policy that is running."""


class _Task(NamedTuple):
    plan: Plan
    policy: str
    first: bool
    """Whether the plan's others are compared with this one."""
    folder: Path | None
    inputs: str


def compare(
    workload: Workload,
    plans: Sequence[Plan],
    *,
    out: Path | None = None,
    processes: int = 1,
    ray: str | None = None,
    progress: Progress | None = None,
) -> Iterator[Result]:
    """The result of each policy under each plan, in that order.

    From a plan's second policy on, the numbers hold `jct_less_first_h`: the mean over jobs of the
    JCT less that of the same job under the first policy, with its 95 % bootstrap interval [h]. With
    `out`, finished runs are written there, and a run that is there with the same inputs is not
    repeated. Runs use `processes` of this machine, or are tasks of the Ray cluster at the address
    `ray`. Raises before the first run for a policy or an estimator that does not exist.
    """
    for plan in plans:
        check_plan(plan)
        make_estimator(plan.estimator, workload, plan.seed)
    digest = "" if out is None else fingerprint.of_workload(workload)
    tasks = []
    for plan in plans:
        for policy in plan.policies:
            folder = None if out is None else _folder(out, plans, plan, policy)
            inputs = "" if out is None else fingerprint.of_run(digest, plan, policy)
            tasks.append(_Task(plan, policy, policy is plan.policies[0], folder, inputs))
    done: dict[int, Result] = {}
    position = 0
    first: Result | None = None
    for number, ended in _results(workload, tasks, processes, ray, progress):
        done[number] = ended
        while position in done:
            result = done.pop(position)
            if tasks[position].first:
                first = result
            else:
                assert first is not None
                result.numbers["jct_less_first_h"] = paired_difference(
                    result.jobs["jct_s"] / HOUR, first.jobs["jct_s"] / HOUR, result.numbers["seed"]
                )
            position += 1
            yield result


def over_seeds(runs: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean and standard deviation over seeds, where a run was made with several."""
    same: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for run in runs:
        same.setdefault((run["policy"], run["cluster"], run["estimator"]), []).append(run)
    return [
        {
            "policy": policy,
            "cluster": cluster,
            "estimator": estimator,
            "seeds": [run["seed"] for run in alike],
            **{
                key: [
                    float(np.mean([run[key] for run in alike])),
                    float(np.std([run[key] for run in alike], ddof=1)),
                ]
                for key in ("avg_jct_h", "p99_jct_h", "avg_queue_h", "makespan_h", "utilisation")
            },
        }
        for (policy, cluster, estimator), alike in same.items()
        if len(alike) > 1
    ]


def _results(
    workload: Workload,
    tasks: Sequence[_Task],
    processes: int,
    ray: str | None,
    progress: Progress | None,
) -> Iterator[tuple[int, Result]]:
    """Each task's number with its result: those that are kept, then the others as they end."""
    report = progress or (lambda _jobs, _text: None)
    size, ended = len(workload), 0
    left = []
    for number, task in enumerate(tasks):
        kept = _finished_run(task)
        if kept is not None:
            ended += 1
            yield number, kept
        else:
            left.append(number)
    if ray is None and min(processes, len(left)) < 2:
        for number in left:
            policy, before = tasks[number].policy, ended * size
            yield number, _run(tasks[number], workload, lambda n: report(before + n, policy))  # noqa: B023
            ended += 1
        return
    from schedmate.scale.spread import spread
    from schedmate.schedulers.sim.outcome.folder import write

    # a machine of the cluster may lack the folder: results are written on this one
    lost: list[str] = []
    items = [(n, tasks[n]._replace(folder=None) if ray else tasks[n]) for n in left]
    for (number, task), result in spread(
        _work, items, workload, processes=processes, ray=ray, most=1
    ):
        if result is None:
            lost.append(task.policy)
            continue
        folder = tasks[number].folder
        if ray is not None and folder is not None:
            write(result, folder, task.plan.cluster, task.inputs)
        ended += 1
        report(ended * size, task.policy)
        yield number, result
    if lost:
        runs = counted(len(lost), "run")
        raise SchedmateError(
            f"{runs} ended the process, alone and twice (of {', '.join(sorted(set(lost)))}); all "
            "others are finished. With --out they are not repeated; is there memory for these?"
        )


def _finished_run(task: _Task) -> Result | None:
    """The stored result of a run with the same inputs, if any."""
    if task.folder is None:
        return None
    from schedmate.schedulers.sim.outcome.folder import read_result

    found = read_result(task.folder)
    return found if found and found.numbers.pop("inputs", None) == task.inputs else None


def _work(item: tuple[int, _Task], workload: Workload) -> Result:
    return _run(item[1], workload, None)


def _run(task: _Task, workload: Workload, progress: Callable[[int], None] | None) -> Result:
    run = run_policy(workload, task.plan, task.policy, progress)
    result = result_of(run, workload)
    if task.folder is not None:
        from schedmate.schedulers.sim.outcome.folder import write

        write(result, task.folder, run.cluster, task.inputs)
    return result


def _folder(out: Path | None, plans: Sequence[Plan], plan: Plan, policy: str) -> Path | None:
    """`OUT/POLICY`; what differs between the plans is a folder above it."""
    if out is None:
        return None
    folder = out
    if len({one.cluster_name for one in plans}) > 1:
        folder /= _safe(plan.cluster_name)
    if len({one.estimator for one in plans}) > 1:
        folder /= _safe(plan.estimator)
    if len({one.seed for one in plans}) > 1:
        folder /= f"seed-{plan.seed}"
    return folder / _safe(policy)


def _safe(name: str) -> str:
    return "".join(one if one.isalnum() or one in "-=." else "_" for one in name)
