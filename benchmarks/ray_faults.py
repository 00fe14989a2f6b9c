"""The same faults on a Ray cluster with and without the Failure Handler.

    .venv/bin/python benchmarks/ray_faults.py

Ten jobs of one GPU on four nodes of two GPUs that are numbers, all on this machine: each counts
steps for half a minute and keeps its count in a file, which it goes on from. Meanwhile three print
an uncorrectable ECC error and fail, once; one has a bug and fails each time; a runner is killed;
all processes of a node are killed. The queue has `--restart` or not. Nobody looks at it.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from uuid import uuid4

from _record import record

JOBS, STEPS, STEP_S = 10, 150, 0.2
FAULTY, BUGGY = (2, 5, 8), 4
LEASE_S = 15.0
LONGEST_S = 420.0
TRAIN = """\
import os, pathlib, sys, time
job, run = os.environ["SCHEDMATE_JOB"], int(os.environ["SCHEDMATE_RUN"])
place = pathlib.Path(f"count-{job}")
begun = int(place.read_text()) if place.exists() else 0
pathlib.Path(f"pid-{job}").write_text(str(os.getpid()))
for step in range(begun, STEPS):
    time.sleep(STEP_S)
    place.with_suffix(".part").write_text(str(step + 1))
    place.with_suffix(".part").replace(place)
    if step % 5 == 0:
        print(f"step {step} loss {2.0 / (step + 1):.3f}", flush=True)
    if run == 0 and int(job) in FAULTY and step == 20:
        sys.exit('Traceback (most recent call last):\\n  File "train.py", line 9, in main\\n'
                 "torch.cuda.CudaError: CUDA error: uncorrectable ECC error encountered")
    if int(job) == BUGGY and step >= 30:
        sys.exit('Traceback (most recent call last):\\n  File "train.py", line 12, in main\\n'
                 "KeyError: 'lerning_rate'")
"""


def run(handler: bool) -> list[dict[str, Any]]:
    """One run; what became of each kind of job."""
    from schedmate.cluster.ray.backend import connect, prepare
    from schedmate.cluster.ray.local import LocalCluster
    from schedmate.schedulers.model import Cluster

    prepare()
    with LocalCluster(Cluster.parse("4x2")) as cluster:
        connect(cluster.address)
        import ray

        from schedmate.cluster.ray.store import OVER, Request, Store
        from schedmate.commands.ray_service import QueueActor, QueueSetup
        from schedmate.jobs import JobSpec, LaunchConfig

        folder = Path(tempfile.mkdtemp(prefix="ray-faults-"))
        names = {"STEPS": STEPS, "STEP_S": STEP_S, "FAULTY": FAULTY, "BUGGY": BUGGY}
        text = "".join(f"{name} = {value!r}\n" for name, value in names.items()) + TRAIN
        (folder / "train.py").write_text(text)
        setup = QueueSetup(
            name=f"f{uuid4().hex[:6]}",
            state=str(folder / "state"),
            policy="fifo:backfill=true",
            folder=str(folder / "shared"),
            estimate=False,
            restart=handler,
            meter=(),
            lease_s=LEASE_S,
        )
        remote = ray.remote(QueueActor)
        queue = remote.options(num_cpus=0, max_concurrency=8, resources={"head": 0.01}).remote(
            setup
        )
        ray.get(queue.ping.remote())
        command = f"exec {sys.executable} -I -S train.py"
        for _ in range(JOBS):
            spec = JobSpec(repo=str(folder), command=command, launch=LaunchConfig(gpus=1))
            request = Request(spec=spec, gpus=1)
            ray.get(queue.submit.remote(uuid4().hex, request.model_dump_json()))
        began, hit = time.time(), dict[str, Any]()
        with Store(folder / "state" / "queue.db") as store:
            while time.time() - began < LONGEST_S:
                jobs = [store.job(number) for number in range(1, JOBS + 1)]
                wait = handler and any(jobs[number - 1].state == "FAILED" for number in FAULTY)
                if all(one.state in OVER for one in jobs) and not wait:
                    break
                counts = {n: _count(folder, n) for n in range(1, JOBS + 1)}
                victims = [
                    n
                    for n in (1, 3, 6, 7, 9, 10)
                    if 40 < counts[n] < STEPS - 20
                    and jobs[n - 1].state == "RUNNING"
                    and n not in hit.values()
                ]
                if victims and "runner" not in hit:
                    hit["runner"] = victims.pop(0)
                    pid = int((folder / f"pid-{hit['runner']}").read_text())
                    os.kill(_parent(_parent(pid)), 9)
                elif victims and "node" not in hit:
                    hit["node"] = victims[0]
                    hit["place"] = store.runs_of(hit["node"])[-1].places[0].name
                    cluster.kill(hit["place"])
                time.sleep(0.2)
            runs = {n: store.runs_of(n) for n in range(1, JOBS + 1)}
        ray.get(queue.close.remote())
        ray.kill(queue)
    on_node = {
        n
        for n, some in runs.items()
        if any(one.outcome == "LOST" and one.places[0].name == hit.get("place") for one in some)
    }
    kinds = {
        "CUDA-like error": set(FAULTY),
        "a bug of its own": {BUGGY},
        "runner killed": {hit.get("runner")},
        "node lost": on_node - {hit.get("runner"), *FAULTY, BUGGY},
    }
    kinds["nothing"] = set(runs) - set().union(*kinds.values())
    return [
        _row(kind, handler, sorted(n for n in which if n), jobs, runs, folder, began)
        for kind, which in kinds.items()
    ]


def _row(
    kind: str, handler: bool, which: list[int], jobs: Any, runs: Any, folder: Path, began: float
) -> dict[str, Any]:
    states = [jobs[n - 1].state for n in which]
    ends = [max(run.ended or 0.0 for run in runs[n]) - began for n in which]
    steps = [_printed(runs[n]) for n in which]
    return {
        "what happened": kind,
        "Failure Handler": "restarts" if handler else "off",
        "jobs": len(which),
        "completed": states.count("COMPLETED"),
        "how runs ended": "; ".join(
            ", ".join(one.outcome.lower() for one in runs[n]) for n in which
        ),
        "over after [s]": ", ".join(f"{end:.0f}" for end in ends),
        "steps missing at the end": sum(STEPS - _count(folder, n) for n in which),
        "steps done twice": sum(steps),
    }


def _printed(runs: Any) -> int:
    """Steps, in fives, that more than one run of a job has printed."""
    seen: list[str] = []
    for one in runs:
        log = Path(one.folder) / "rank0.log"
        if log.exists():
            seen += [line.split()[1] for line in log.read_text().splitlines() if "loss" in line]
    return 5 * (len(seen) - len(set(seen)))


def _count(folder: Path, job: int) -> int:
    place = folder / f"count-{job}"
    return int(place.read_text()) if place.exists() else 0


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def main() -> None:
    rows = [row for handler in (False, True) for row in run(handler)]
    for row in rows:
        print(row)
    record("ray_faults", rows, cluster="4x2", jobs=JOBS, origin="synthetic, sleeping jobs")


if __name__ == "__main__":
    main()
