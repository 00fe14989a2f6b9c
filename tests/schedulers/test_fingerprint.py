"""What makes a run another one: everything that its result depends on, and nothing else."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from copy import deepcopy
from dataclasses import fields, replace
from pathlib import Path

import elastic_tables
import pytest

from schedmate.jobs import WorkloadMetadata
from schedmate.schedulers.model import Cluster, Constraints, Profile, Terms
from schedmate.schedulers.sim.comparison import compare, package_digest, run_digest, workload_digest
from schedmate.schedulers.sim.interference import named
from schedmate.schedulers.sim.parameters import HONEST
from schedmate.schedulers.sim.runs import Plan
from schedmate.schedulers.sim.traces import read_trace
from schedmate.schedulers.sim.workload import Phase, Workload, request_defaults


def jobs() -> Workload:
    use = Profile(50.0, 10.0, 1000.0)
    found = Workload.of([(0.0, 10.0, 2), (5.0, 20.0, 1)], profiles=[use, use])
    found.metadata = [WorkloadMetadata(), None]
    return found


OTHER = {
    "constraints": Constraints(pods=2),
    "terms": Terms(deadline=99.0),
    "preemptible": False,
    "migratable": False,
    "time_limit_s": 7.0,
    "share": 0.5,
}


@pytest.mark.parametrize(
    "name", ["id", "submit_time", "gpus", *sorted({*request_defaults()} - {"vc"})]
)
def test_every_request_of_a_job_counts(name: str) -> None:
    changed = jobs()
    before = getattr(changed.jobs[1], name)
    value = OTHER.get(name, f"{before}x" if isinstance(before, str) else 3)
    assert value != before
    changed.jobs[1] = replace(changed.jobs[1], **{name: value})  # type: ignore[index]
    assert workload_digest(changed) != workload_digest(jobs())


CHANGES: dict[str, Callable[[Workload], object]] = {
    "name": lambda one: setattr(one, "name", "others"),
    "jobs": lambda one: one.jobs.pop(),  # type: ignore[attr-defined]
    "duration_s": lambda one: one.duration_s.__setitem__(0, 11.0),
    "profiles": lambda one: one.profiles.__setitem__(0, None),
    "states": lambda one: one.states.extend(["FAILED", "COMPLETED"]),
    "vcs": lambda one: one.vcs.extend(["a", "b"]),
    "configs": lambda one: one.configs.extend(["a", "b"]),
    "metadata": lambda one: one.metadata.__setitem__(1, WorkloadMetadata()),
    "categories": lambda one: one.categories.extend(["rigid", "adaptive"]),
    "columns": lambda one: one.columns.update(guess=[1.0, 2.0]),
    "tables": lambda one: setattr(one, "tables", Path("traces")),
    "made_up": lambda one: setattr(one, "made_up", ("durations",)),
    "recorded": lambda one: setattr(one, "recorded", True),
    "standby": lambda one: one.standby.update({0: [(1.0, 2.0)]}),
    "phases": lambda one: one.phases.update({0: (Phase(1.0, 1),)}),
    "initial": lambda one: one.initial.update({0: ((0, 3),)}),
    "notes": lambda one: None,
}


def test_every_field_of_a_workload_counts_but_remarks() -> None:
    assert set(CHANGES) == {one.name for one in fields(Workload)}
    seen = {workload_digest(jobs())}
    for name, change in CHANGES.items():
        changed = jobs()
        change(changed)
        changed.notes.append("rows were left out")
        assert (workload_digest(changed) in seen) == (name == "notes"), name
        seen.add(workload_digest(changed))
    again = deepcopy(jobs())
    assert workload_digest(again) == workload_digest(jobs())


def plan(**more: object) -> Plan:
    return Plan(("fifo",), Cluster.parse("2x4"), "oracle", HONEST, **more)  # type: ignore[arg-type]


def test_settings_count_and_so_do_the_files_that_they_name(tmp_path: Path) -> None:
    table = tmp_path / "history.csv"
    table.write_text("gpu_s\n1\n")
    policy = f"tiresias:history={table}"
    found = run_digest("w", plan(), policy)
    assert found == run_digest("w", plan(), policy)
    table.write_text("gpu_s\n2\n")
    assert run_digest("w", plan(), policy) != found
    others = {
        run_digest("w", one, "tiresias")
        for one in (
            *(plan(), plan(seed=1), plan(load="ga2m"), plan(check=False)),
            replace(plan(), parameters=replace(HONEST, restart_s=1.0)),
            replace(plan(), cluster=Cluster.parse("1x8")),
            replace(plan(), estimator="none"),
        )
    }
    assert len(others) == 7
    assert run_digest("w", plan(cluster_name="big"), "tiresias") in others
    assert run_digest("other", plan(), "tiresias") not in others


_OF_GAVEL = """
from dataclasses import replace
from schedmate.schedulers.model import Cluster
from schedmate.schedulers.sim.comparison import run_digest as of_run
from schedmate.schedulers.sim.parameters import HONEST
from schedmate.schedulers.sim.runs import Plan
from schedmate.schedulers.sim.interference import named

parameters = replace(HONEST, interference=named("gavel-v100"))
print(of_run("w", Plan(("fifo",), Cluster.parse("2x4"), "oracle", parameters), "fifo"))
"""


def test_the_code_that_a_policy_of_ones_own_uses_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "fpackage" / "deep").mkdir(parents=True)
    files = {
        "fpackage/__init__.py": "",
        "fpackage/deep/late.py": "",  # loaded by nobody yet
        "fpackage/policy.py": "import numpy\nfrom fhelper import key\n"
        "from schedmate.schedulers.policies.queues import Fifo\n"
        "import festimators\n"
        "class Own(Fifo):\n    pass\n",
        "fhelper.py": "def key(job):\n    return 1\n",
        "festimators.py": "from schedmate.schedulers.estimators import Estimator\n"
        "class Mine(Estimator):\n    pass\n",
        "fothers.py": "",
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    try:
        importlib.import_module("fothers")
        before = run_digest("w", plan(), "fpackage.policy:Own")
        assert before == run_digest("w", plan(), "fpackage.policy:Own")
        for name, text in files.items():
            (tmp_path / name).write_text(text + "# changed\n")
            found = run_digest("w", plan(), "fpackage.policy:Own")
            assert (found == before) == (name == "fothers.py"), name
            before = found
    finally:
        for module in [
            one for one in sys.modules if one.startswith(("fpackage", "fhelper", "fes", "fothers"))
        ]:
            del sys.modules[module]


def test_another_process_knows_the_run_again() -> None:
    # The pairs are an object of no dataclass, whose name in memory is another each time.
    interference = named("gavel-v100")
    here = run_digest(
        "w", replace(plan(), parameters=replace(HONEST, interference=interference)), "fifo"
    )
    done = subprocess.run(
        [sys.executable, "-c", _OF_GAVEL], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == here
    interference.pairs[next(iter(interference.pairs))] = (0.1, 0.1)  # type: ignore[attr-defined]
    assert here != run_digest(
        "w", replace(plan(), parameters=replace(HONEST, interference=interference)), "fifo"
    )


def test_data_beside_the_code_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import schedmate

    package = tmp_path / "schedmate"
    package.mkdir()
    (package / "code.py").write_text("")
    (package / "pairs.csv").write_text("1")
    monkeypatch.setattr(schedmate, "__path__", [str(package)])
    digests = [package_digest.__wrapped__()]
    (package / "pairs.csv").write_text("2")
    digests.append(package_digest.__wrapped__())
    (package / "__pycache__").mkdir()
    (package / "__pycache__" / "code.pyc").write_text("compiled")
    digests.append(package_digest.__wrapped__())
    assert digests[0] != digests[1] == digests[2]


def test_what_cannot_be_read_is_never_known_again() -> None:
    opaque = replace(plan(), load=(one for one in ()))  # type: ignore[arg-type]
    assert run_digest("w", opaque, "fifo") != run_digest("w", opaque, "fifo")


def test_measured_tables_count(tmp_path: Path) -> None:
    elastic_tables.write(tmp_path / "traces")
    toys = elastic_tables.workload(tmp_path / "workloads" / "toys.csv")
    digest = workload_digest(read_trace(toys))
    assert workload_digest(read_trace(toys)) == digest
    table = next((tmp_path / "traces").rglob("placements-*.csv"))
    table.write_text(table.read_text().replace("1", "2"))
    assert workload_digest(read_trace(toys)) != digest


def test_a_kept_run_of_other_constraints_or_loans_is_not_taken(tmp_path: Path) -> None:
    one_node = replace(plan(), cluster=Cluster.parse("1x4"))

    def ends(workload: Workload) -> list[float]:
        (found,) = compare(workload, [one_node], out=tmp_path)
        return [float(one) for one in found.jobs["end_s"]]

    assert ends(jobs()) == [10.0, 25.0]
    apart = jobs()
    apart.jobs[0].constraints = Constraints(group="b")
    apart.jobs[1].constraints = Constraints(group="a", avoid=frozenset({"b"}))
    assert ends(apart) == [10.0, 30.0]
    assert ends(jobs()) == [10.0, 25.0]
    holding = jobs()
    holding.jobs[0].constraints = Constraints(group="b")
    holding.initial = {0: ((0, 3),)}
    assert ends(holding) == [10.0, 25.0]


def test_jobs_count_by_what_they_ask_for_not_by_what_became_of_them() -> None:
    used = jobs()
    used.vcs = ["a", "b"]
    before = workload_digest(used)
    run = replace(plan(), policies=("srtf",), cluster=Cluster.parse("1x4@a,1x4@b"))
    # The engine writes into jobs, the short loops for simpler policies do not.
    found = next(iter(compare(used, [run])))
    assert found.numbers["loop"] == "events"
    assert used.jobs[1].vc == "b"
    assert used.jobs[0].forecast is not None
    assert workload_digest(used) == before
