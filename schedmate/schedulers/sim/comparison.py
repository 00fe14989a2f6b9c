"""Many runs over one trace: every policy under every plan, in parallel.

A finished run is kept with a digest of everything that it depends on, and a comparison that was
interrupted resumes after it. How many runs are made at once, and where, does not change a result.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import pickle
import sys
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from pydantic import BaseModel

from schedmate.base.errors import SchedmateError
from schedmate.base.reading import read_bytes
from schedmate.base.terminal import counted
from schedmate.schedulers import registry
from schedmate.schedulers.sim.outcome.metrics import HOUR, paired_difference
from schedmate.schedulers.sim.outcome.results import Result, result_of
from schedmate.schedulers.sim.runs import Plan, check_plan, make_estimator, run_policy
from schedmate.schedulers.sim.workload import Workload, request_defaults

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
    JCT less that of the same job under the first policy, with its 95 % bootstrap interval [h], of
    jobs that end under both. With
    `out`, finished runs are written there, and a run that is there with the same inputs is not
    repeated. Runs use `processes` of this machine, or are tasks of the Ray cluster at the address
    `ray`. Raises before the first run for a policy or an estimator that does not exist.
    """
    for plan in plans:
        check_plan(plan)
        make_estimator(plan.estimator, workload, plan.seed)
    digest = "" if out is None else workload_digest(workload)
    tasks = []
    for plan in plans:
        for policy in plan.policies:
            folder = None if out is None else _folder(out, plans, plan, policy)
            inputs = "" if out is None else run_digest(digest, plan, policy)
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
                one, other = result.jobs["jct_s"] / HOUR, first.jobs["jct_s"] / HOUR
                end_in_both = np.isfinite(one) & np.isfinite(other)
                if end_in_both.any():
                    result.numbers["jct_less_first_h"] = paired_difference(
                        one[end_in_both], other[end_in_both], result.numbers["seed"]
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
        stored = _finished_run(task)
        if stored is not None:
            ended += 1
            yield number, stored
        else:
            left.append(number)
    if ray is None and min(processes, len(left)) < 2:
        for number in left:
            policy, before = tasks[number].policy, ended * size
            yield number, _run(tasks[number], workload, lambda n: report(before + n, policy))  # noqa: B023
            ended += 1
        return
    from schedmate.base.spread import spread
    from schedmate.schedulers.sim.outcome.results import write_result

    # a machine of the cluster may lack the folder: results are written on this one
    lost: list[str] = []
    items = [(n, tasks[n]._replace(folder=None) if ray else tasks[n]) for n in left]
    for (number, task), result in spread(
        _run_apart, items, workload, processes=processes, ray=ray, most=1
    ):
        if result is None:
            lost.append(task.policy)
            continue
        folder = tasks[number].folder
        if ray is not None and folder is not None:
            write_result(result, folder, task.plan.cluster, task.inputs)
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
    from schedmate.schedulers.sim.outcome.results import read_result

    result = read_result(task.folder)
    return result if result and result.numbers.pop("inputs", None) == task.inputs else None


def _run_apart(item: tuple[int, _Task], workload: Workload) -> Result:
    return _run(item[1], workload, None)


def _run(task: _Task, workload: Workload, progress: Callable[[int], None] | None) -> Result:
    run = run_policy(workload, task.plan, task.policy, progress)
    result = result_of(run, workload)
    if task.folder is not None:
        from schedmate.schedulers.sim.outcome.results import write_result

        write_result(result, task.folder, run.cluster, task.inputs)
    return result


def _folder(out: Path | None, plans: Sequence[Plan], plan: Plan, policy: str) -> Path | None:
    """`OUT/POLICY`; what differs between the plans is a folder above it."""
    if out is None:
        return None
    folder = out
    if len({each.cluster_name for each in plans}) > 1:
        folder /= _safe_name(plan.cluster_name)
    if len({each.estimator for each in plans}) > 1:
        folder /= _safe_name(plan.estimator)
    if len({each.seed for each in plans}) > 1:
        folder /= f"seed-{plan.seed}"
    return folder / _safe_name(policy)


def _safe_name(name: str) -> str:
    return "".join(one if one.isalnum() or one in "-=." else "_" for one in name)


# A digest of everything that a run depends on, to tell whether a kept run can be used.
#
# Everything that is not listed here as irrelevant is included, so that additions to a workload, a
# plan or a job are covered. Objects that cannot be read in full never have the same digest twice,
# so that the run is repeated.


_PLAIN = (type(None), bool, int, float, complex, str, bytes)
_NO_PART = {"policies", "cluster_name", "notes", "jobs"}
"""Irrelevant fields of a plan or a workload: compared policies, the run's name, remarks of an
importer; jobs count by their requests."""


def workload_digest(workload: Workload) -> str:
    """A digest of all that a simulation reads of a trace."""
    requests = workload.requests
    # Each run sets their virtual clusters again, from those of the workload.
    asked = {name: requests.values(name) for name in request_defaults() if name != "vc"}
    jobs = (requests.names(), requests.submit_s, requests.gpus, asked)
    return _digest((jobs, _fields(workload))).hex()


def run_digest(workload: str, plan: Plan, policy: str) -> str:
    """A digest of one run: the digest of its trace, its settings, and the code."""
    asked = registry.PolicySpec.parse(policy)
    named = [*plan.parameters.settings_of(asked.name).values(), *asked.settings.values()]
    files = [Path(file) for file in named if file and "\0" not in file and Path(file).is_file()]
    parts = (workload, policy, _fields(plan), [(str(file), read_bytes(file)) for file in files])
    return _digest((parts, package_digest(), _policy_code(policy))).hex()[:16]


@cache
def package_digest() -> bytes:
    """A digest of schedmate: its code, and the data beside it."""
    import schedmate

    digest = hashlib.sha256()
    root = Path(schedmate.__path__[0])
    for file in sorted(root.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            digest.update(f"{file.relative_to(root)}\0".encode(errors="replace"))
            digest.update(file.read_bytes())
    return digest.digest()


def _policy_code(policy: str) -> bytes:
    """The code of a custom policy and its helpers and estimator.

    All of its package, and of the packages that it imports, except installed ones and Python's.
    """
    made = registry.make(policy)
    own = _package(made)
    left = {own, *map(_package, getattr(made, "__dict__", {}).values())}
    seen: set[str] = set()
    files: set[Path] = set()
    while left:
        name = left.pop()
        seen.add(name)
        if name in _KNOWN:
            continue
        loaded = [
            module
            for key, module in list(sys.modules.items())
            if isinstance(module, ModuleType) and key.partition(".")[0] == name
        ]
        if name == own or not any(map(_is_installed, loaded)):
            files |= {file for module in loaded for file in _files(module)}
            left |= {_package(value) for module in loaded for value in [*vars(module).values()]}
            left -= seen
    digest = hashlib.sha256()
    for file in sorted(files):
        code = file.read_bytes()
        digest.update(f"{file}\0{len(code)}\0".encode(errors="replace") + code)
    return digest.digest()


_KNOWN = {"", "schedmate", "__main__", *sys.builtin_module_names, *sys.stdlib_module_names}
"""Packages that are digested elsewhere, or of Python itself."""
_LIBRARY = {Path(sysconfig.get_path(name)) for name in ("purelib", "platlib")}
"""Where packages are installed to."""


def _package(value: object) -> str:
    """The package at the top that a module, class or function is of, or the class of an object."""
    if isinstance(value, ModuleType):
        name: object = value.__name__
    elif isinstance(value, type) or inspect.isroutine(value):
        name = getattr(value, "__module__", "")
    else:
        name = type(value).__module__
    return name.partition(".")[0] if isinstance(name, str) else ""


def _is_installed(module: ModuleType) -> bool:
    places = [getattr(module, "__file__", None) or "", *getattr(module, "__path__", ())]
    return any(Path(place).is_relative_to(root) for place in places for root in _LIBRARY)


def _files(module: ModuleType) -> Iterable[Path]:
    """A module's file, or, of a package, every module in it: some are imported later."""
    file = getattr(module, "__file__", None)
    if file and Path(file).is_file():
        yield Path(file)
    for folder in getattr(module, "__path__", ()):
        yield from (file for file in Path(folder).rglob("*.py") if file.is_file())


def _fields(value: Workload | Plan) -> dict[str, Any]:
    return {
        field.name: getattr(value, field.name)
        for field in fields(value)
        if field.name not in _NO_PART
    }


def _digest(value: object) -> bytes:
    return _Digester().digest(value)


class _Digester:
    """Digests of nested values; each object is read once."""

    def __init__(self) -> None:
        # The object is kept, so that no other gets its id meanwhile.
        self._seen: dict[int, tuple[object, bytes]] = {}

    def digest(self, value: object) -> bytes:
        """Equal for equal values, in any process."""
        if isinstance(value, _PLAIN):
            return hashlib.sha256(_plain_bytes(value)).digest()
        if id(value) not in self._seen:
            self._seen[id(value)] = (value, b"above")  # within itself
            whole = hashlib.sha256(f"{type(value).__module__}.{type(value).__qualname__}".encode())
            for part in self._parts(value):
                whole.update(part)
            self._seen[id(value)] = (value, whole.digest())
        return self._seen[id(value)][1]

    def _parts(self, value: object) -> Iterable[bytes]:
        if isinstance(value, np.ndarray):
            if value.dtype.kind in "biufc":
                return [f"{value.dtype} {value.shape}".encode(), value.tobytes()]
            return [self.digest(value.tolist())]
        if isinstance(value, BaseModel):
            return [value.model_dump_json().encode()]
        if isinstance(value, Mapping):
            pairs = sorted((self.digest(key), self.digest(one)) for key, one in value.items())
            return [part for pair in pairs for part in pair]
        if isinstance(value, AbstractSet):
            return sorted(map(self.digest, value))
        if isinstance(value, Sequence):
            if all(isinstance(one, _PLAIN) for one in value):
                return [_plain_bytes(list(value))]
            return map(self.digest, value)
        if isinstance(value, Path):
            return [_plain_bytes(str(value))]
        if isinstance(value, type) or inspect.isroutine(value):
            return [f"{value.__module__}.{value.__qualname__}".encode()]
        return self._of_object(value)

    def _of_object(self, value: object) -> Iterable[bytes]:
        if is_dataclass(value):
            names = {one.name: getattr(value, one.name) for one in fields(value)}
            return [self.digest(names)]
        if hasattr(value, "__dict__"):
            return [self.digest(vars(value))]
        try:
            return [pickle.dumps(value)]
        except (pickle.PicklingError, TypeError, AttributeError):
            # An unknown kind of object: whether it is unchanged cannot be determined.
            return [os.urandom(16)]


def _plain_bytes(value: object) -> bytes:
    return f"{type(value).__name__} {value!r}".encode(errors="replace")
