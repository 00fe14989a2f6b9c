"""What a user waits for: `schedmate simulate` from the trace's file to the summary, by CPU time.

    python benchmarks/simulator_command.py PHILLY.CSV whole --before DIR --commit C [--rounds N]
    python benchmarks/simulator_command.py PHILLY.CSV stages|growth
    python benchmarks/simulator_command.py PHILLY.CSV peer --peer DIR

`whole` runs the command beside that of an older commit, in turn, each in a process of its own:
`git archive C schedmate | tar x -C DIR`. `growth` uses synthetic traces of more jobs and more
nodes. `peer` is the FIFO of S-Lab-System-Group/HeliosArtifact (MIT): DIR is its folder
`framework/QSSF Service`; it advances second by second and needs pandas. On a busy machine all of it
takes longer: compare within one run.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from _record import record

ROOT = Path(__file__).parent.parent
CLUSTER = "80x8"
PEER_SIZES = ((500, 10), (2000, 10), (5000, 10), (2000, 40), (2000, 160))
"""Jobs and nodes beside the peer, whose time grows with the seconds that it simulates."""
_OCTOBER, _SHORT_S = 1_506_816_000.0, 6 * 3600.0
PEER = """
import json, logging, sys, tempfile
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from cluster import VC
from job import Job, Trace
from policies.fifo import FirstInFirstOut
import pandas as pd

frame = pd.DataFrame(json.load(open(sys.argv[2])), columns=["submit_time", "duration", "gpu_num"])
frame["vc"], frame["queue"] = "all", 0
trace = Trace()
for _, row in frame.iterrows():
    trace.append_job(Job(row))
for job in trace.job_list:
    for name in ("submit_time", "duration", "gpu_num"):
        job[name] = int(job[name])
nodes = int(sys.argv[3])
logger = logging.getLogger("peer")
with tempfile.TemporaryDirectory() as folder:
    policy = FirstInFirstOut(trace, VC("all", nodes, 8, 96), "consolidate", folder, logger, 0)
    policy.simulate()
jct = [job["end_time"] - job["submit_time"] for job in policy.trace.job_list]
print(sum(jct) / len(jct))
"""


def main() -> None:
    """The tables asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("tables", nargs="+", choices=["whole", "stages", "growth", "peer"])
    parser.add_argument("--before", type=Path, help="package of an older commit, unpacked")
    parser.add_argument("--commit", default="not said", help="which commit that is")
    parser.add_argument("--peer", type=Path, help="the folder `framework/QSSF Service`")
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    asked.trace = asked.trace.absolute()
    compileall.compile_dir(ROOT / "schedmate", quiet=1)  # as it is installed
    for name in asked.tables:
        {"whole": whole, "stages": stages, "growth": growth, "peer": peer}[name](asked)


def whole(asked: argparse.Namespace) -> None:
    """The command before and now."""
    if asked.before is None:
        sys.exit("--before DIR is missing: where an older commit is unpacked.")
    compileall.compile_dir(asked.before / "schedmate", quiet=1)
    rows = []
    for policy in ("fifo", "sjf", "tiresias", "lucid"):
        pairs, memory = [], (0, 0)
        for _ in range(asked.rounds):
            before = command(asked.trace, policy, package=asked.before)
            now = command(asked.trace, policy)
            pairs.append((before[0], now[0]))
            memory = before[1], now[1]
            assert before[2] == now[2], "the results differ"
        rows.append(
            {
                "policy": policy,
                "before, CPU s": round(min(one for one, _ in pairs), 2),
                "now, CPU s": round(min(two for _, two in pairs), 2),
                "times faster, median": round(statistics.median(a / b for a, b in pairs), 2),
                "lowest": round(min(a / b for a, b in pairs), 2),
                "highest": round(max(a / b for a, b in pairs), 2),
                "before, peak MB": memory[0],
                "now, peak MB": memory[1],
            }
        )
    record(
        "simulator_command_whole",
        rows,
        trace=f"Philly, {jobs_in(asked.trace):,} jobs, {CLUSTER}; real",
        what="processes from start to end, in turn, equal results; CPU time of user and system",
        before=asked.commit,
        rounds=asked.rounds,
    )


def stages(asked: argparse.Namespace) -> None:
    """Where the time goes, each stage the least of the rounds."""
    found: dict[str, list[float]] = {}
    for _ in range(asked.rounds):
        done = subprocess.run(
            [sys.executable, __file__, "--stages", str(asked.trace)],
            capture_output=True,
            text=True,
            check=True,
            env=environment(ROOT),
        )
        for name, took in json.loads(done.stdout).items():
            found.setdefault(name, []).append(took)
    imports = {
        "a process of Python": "pass",
        "NumPy": "import numpy",
        "the command line (Typer)": "import schedmate.cli",
        "Arrow": "import numpy, pyarrow.csv",
    }
    least: dict[str, float] = {}
    for name, code in imports.items():
        least[name] = min(cpu([sys.executable, "-c", code], ROOT)[0] for _ in range(asked.rounds))
    start = least["a process of Python"]
    rows = [{"stage": "a process of Python", "CPU s": round(start, 3)}]
    rows += [
        {"stage": f"import {name}", "CPU s": round(took - start, 3)}
        for name, took in least.items()
        if name not in ("a process of Python", "Arrow")
    ]
    rows.append({"stage": "import Arrow", "CPU s": round(least["Arrow"] - least["NumPy"], 3)})
    rows += [{"stage": name, "CPU s": round(min(took), 3)} for name, took in found.items()]
    record("simulator_command_stages", rows, trace=f"Philly, {CLUSTER}; real", policy="fifo")


def _stages(trace: Path) -> None:
    """The stages of one run, in this process."""
    from schedmate.schedulers.model import Cluster
    from schedmate.schedulers.registry import make
    from schedmate.schedulers.sim import static_queue
    from schedmate.schedulers.sim.engine import Simulation
    from schedmate.schedulers.sim.outcome.audit import audit
    from schedmate.schedulers.sim.outcome.metrics import PerJob, spent, summary
    from schedmate.schedulers.sim.parameters import HONEST
    from schedmate.schedulers.sim.runs import make_estimator
    from schedmate.schedulers.sim.traces import read_trace

    times: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        began = time.process_time()
        found = work()
        times[name] = time.process_time() - began
        return found

    cluster = Cluster.parse(CLUSTER)
    workload = timed("read the trace (with the import of Arrow)", lambda: read_trace(trace))
    told = make_estimator("user-mean", workload)
    assert told is not None
    policy = make("fifo:backfill=true")
    outcome = timed(
        "simulate: the short loop",
        lambda: static_queue.simulate_queue(workload, policy, cluster, told, HONEST),
    )
    timed("audit", lambda: audit(workload, cluster, outcome))

    def metrics() -> None:
        became = spent(workload, outcome, HONEST.restart)
        summary(workload, cluster, outcome, PerJob.of(workload, outcome), became)

    timed("metrics", metrics)
    workload.jobs = list(workload.jobs)
    engine = Simulation(workload, policy, cluster, estimator=told)
    timed("instead of the short loop, the engine", engine.run)
    print(json.dumps(times))


def growth(asked: argparse.Namespace) -> None:
    """More jobs on as many nodes, and as many jobs on more nodes."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "jobs.csv"
        sizes = ((10**4, 80), (10**5, 80), (10**6, 80), (10**5, 1000), (10**5, 10_000))
        runs = [(*size, "fifo") for size in sizes]
        runs += [(10**4, 80, "tiresias"), (10**5, 80, "tiresias"), (10**5, 10_000, "tiresias")]
        for count, nodes, policy in runs:
            synthetic(path, count, nodes)
            took, peak, _ = command(path, policy, cluster=f"{nodes}x8", origin=True)
            rows.append(
                {
                    "jobs": f"{count:,}",
                    "nodes": f"{nodes:,}",
                    "policy": policy,
                    "CPU s": round(took, 2),
                    "microseconds a job": round(took / count * 1e6, 1),
                    "peak MB": peak,
                }
            )
    record(
        "simulator_command_growth",
        rows,
        trace="synthetic: Poisson arrivals, log-normal durations, 2,000 users, load 0.85, seed 0",
    )


def synthetic(path: Path, count: int, nodes: int) -> None:
    """Write a trace that keeps this many nodes of eight GPUs at 0.85 load."""
    draw = np.random.default_rng(0)
    lengths = np.minimum(draw.lognormal(7.0, 1.8, count), 6e5).round(3)
    gpus = draw.choice([1, 1, 1, 1, 1, 1, 2, 2, 4, 8, 16], count)
    rate = 0.85 * nodes * 8 / (lengths * gpus).mean()
    times = np.cumsum(draw.exponential(1 / rate, count)).round(3)
    users = draw.integers(0, 2000, count)
    with path.open("w") as stream:
        stream.write("job_id,submit_s,duration_s,gpus,user\n")
        for row in zip(range(count), times, lengths, gpus, users, strict=True):
            stream.write("job{},{},{},{},u{}\n".format(*row))


def peer(asked: argparse.Namespace) -> None:
    """Strict FIFO over the first jobs of the trace, by both."""
    if asked.peer is None:
        sys.exit("--peer DIR is missing: the folder `framework/QSSF Service`.")
    from schedmate.schedulers.sim.traces import read_trace

    workload = read_trace(asked.trace)
    # One that ran for a month costs the peer a month of seconds.
    begin = np.searchsorted(workload.requests.submit_s, _OCTOBER)
    short = np.flatnonzero(np.array(workload.duration_s) <= _SHORT_S)
    short = short[short >= begin]
    rows = []
    for count, nodes in PEER_SIZES:
        part = workload.select(short[:count].tolist())
        first = int(part.requests.submit_s[0])
        jobs = [
            (int(at) - first, max(1, int(run)), min(int(gpus), 8 * nodes))
            for at, run, gpus in zip(
                part.requests.submit_s, part.duration_s, part.requests.gpus, strict=True
            )
        ]
        with tempfile.TemporaryDirectory() as folder:
            drawn, table = Path(folder) / "jobs.json", Path(folder) / "jobs.csv"
            drawn.write_text(json.dumps(jobs))
            lines = [f"j{n},{at},{run},{gpus}" for n, (at, run, gpus) in enumerate(jobs)]
            table.write_text("\n".join(["job_id,submit_s,duration_s,gpus", *lines]) + "\n")
            theirs = cpu(
                [sys.executable, "-c", PEER, str(asked.peer.absolute()), str(drawn), str(nodes)],
                ROOT,
            )
            ours = command(table, "fifo:backfill=false", cluster=f"{nodes}x8", origin=True)
        rows.append(
            {
                "jobs": f"{count:,}",
                "nodes": nodes,
                "simulated days": round(max(at + run for at, run, _ in jobs) / 86_400, 1),
                "HeliosArtifact, CPU s": round(theirs[0], 1),
                "schedmate, CPU s": round(ours[0], 2),
                "times faster": round(theirs[0] / ours[0]),
                "HeliosArtifact, mean JCT h": round(float(theirs[2]) / 3600, 3),
                "schedmate, mean JCT h": round(json.loads(ours[2])["avg_jct_h"], 3),
            }
        )
    record(
        "simulator_command_peer",
        rows,
        trace="the first jobs of Philly from October 2017 on that ran for at most six hours, times "
        "in whole seconds; real",
        peer="S-Lab-System-Group/HeliosArtifact @bdaae109, framework/QSSF Service, fifo",
        what="both from a file of jobs to the mean JCT, one process each",
    )


def command(
    trace: Path, policy: str, *, package: Path = ROOT, cluster: str = CLUSTER, origin: bool = False
) -> tuple[float, int, str]:
    """CPU time [s], peak memory [MB] and result of the whole command of a package."""
    made_up = ("--origin", "synthetic: drawn for a benchmark") if origin else ()
    arguments = ["simulate", str(trace), "--policy", policy, "--cluster", cluster, "--json"]
    took, peak, text = cpu([sys.executable, "-m", "schedmate", *arguments, *made_up], package)
    run = json.loads(text)["runs"][0]
    for name in ("cpu_s", "loop"):
        run.pop(name, None)
    return took, peak, json.dumps(run)


def cpu(arguments: list[str], package: Path) -> tuple[float, int, str]:
    """CPU time [s] and peak memory [MB] of a process, and what it prints."""
    with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(
            arguments, stdout=output, stderr=errors, env=environment(package), cwd=package
        )
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        for stream in (output, errors):
            stream.seek(0)
        if child.returncode:
            sys.exit(errors.read())
        return used.ru_utime + used.ru_stime, used.ru_maxrss // 1024, output.read()


def environment(package: Path) -> dict[str, str]:
    """As this process has it, with that package in front, and byte code kept."""
    kept = {name: text for name, text in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(package)}


def jobs_in(trace: Path) -> int:
    """The rows of a file."""
    with trace.open("rb") as stream:
        return sum(1 for line in stream if line.strip()) - 1


if __name__ == "__main__":
    if sys.argv[1:2] == ["--stages"]:
        _stages(Path(sys.argv[2]))
    else:
        main()
