"""A storm on the private Slurm: very many jobs, a mass cancellation, failures and outages in
between.

`measure` runs it and gives a line for each property that an agent must keep; it is a live test in
small (`test_slurm_storm.py`) and a benchmark in large (`benchmarks/slurm_storm.py`).
"""

from __future__ import annotations

import json
import signal
import subprocess
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

from agents import AgentFiles
from slurm_testbed import USER, Testbed, until
from training_jobs import NODE_FAULT, TrainingJob, make_repository, submit

from schedmate.cluster import MEMORY_FILE
from schedmate.cluster.memory import Memory
from schedmate.jobs import FAILURE_STATES
from schedmate.mate import embedder_of
from schedmate.retrieval.shared import open_history
from schedmate.settings import load_settings

VERDICT_S = 120.0
"""Within this time of its end every failure is to have a verdict [s]."""
MORE = """\
MaxJobCount=20000
MaxArraySize=2001
# failures and short jobs run here, whatever waits in the other partition
PartitionName=quick Nodes=ALL MaxTime=INFINITE State=UP PriorityJobFactor=1 PreemptMode=OFF
"""
NAME_ERROR = """\
Traceback (most recent call last):
  File "train.py", line 21, in <module>
    main()
  File "train.py", line 14, in main
    trainer = Trainr(model)
NameError: name 'Trainr' is not defined
"""


class Storm(NamedTuple):
    """How large it is: all jobs, and of these how many are cancelled, fail, and only wait.

    The others complete.
    """

    jobs: int
    cancelled: int
    failed: int
    waiting: int

    @property
    def complete(self) -> int:
        """How many complete."""
        return self.jobs - self.cancelled - self.failed - self.waiting


class AgentProcess:
    """The agent as its command; its passes, with the times at which they were printed."""

    def __init__(self, files: AgentFiles) -> None:
        self.files = files
        self.estimated: dict[str, float] = {}
        self.passes: list[dict[str, Any]] = []
        self.start()

    def start(self) -> None:
        self._process = self.files.start("--json")
        assert self._process.stderr is not None
        works = (lambda: self._read(self._process), self._process.stderr.read)
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in self._threads:
            thread.start()

    def _read(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("{"):
                document = json.loads(line)
                for one in document["estimated"]:
                    self.estimated.setdefault(one["job"], time.time())
                self.passes.append(document)

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        self._process.send_signal(how)
        self._process.wait(60)
        for thread in self._threads:
            thread.join(60)
        for stream in (self._process.stdout, self._process.stderr):
            assert stream is not None
            stream.close()


def measure(
    bed: Testbed, folder: Path, storm: Storm, bounds: dict[str, Any]
) -> list[dict[str, Any]]:
    """The storm, and what came of it, a line for each property; `bounds` are the agent's times."""
    repository = make_repository(bed.jobs_folder / "storm")
    (bed.jobs_folder / "node.txt").write_text(NODE_FAULT)
    (bed.jobs_folder / "name.txt").write_text(NAME_ERROR)
    files = AgentFiles(bed, folder)
    files.allow(recover=True, **bounds)
    files.know(repository)
    agent = AgentProcess(files)
    try:
        until("its first pass", 120, lambda: agent.passes)
        waiting = [
            submit(bed, repository, TrainingJob("gpt2", 30 + n), "-H") for n in range(storm.waiting)
        ]
        until("their estimates", 300, lambda: set(waiting) <= agent.estimated.keys())
        before = estimates_of(files, waiting)
        faults: list[str] = []
        began = time.time()
        arrays = 2 * (storm.cancelled // 5)
        submit_arrays(bed, repository, arrays)
        faults += fail(bed, storm.failed * 2 // 5)
        submit_singles(bed, repository, storm.cancelled - arrays)
        quick = ("-p", "quick", "-J", "quick")
        complete = [
            submit(bed, repository, TrainingJob("resnet18", 20 + n % 20), *quick, gpus=0)
            for n in range(storm.complete)
        ]
        submitted_s = time.time() - began
        newcomer_at = time.time()
        newcomer = submit(bed, repository, TrainingJob("resnet18", 30), "-H")
        until(
            "its estimate, with all of them in the queue", 300, lambda: newcomer in agent.estimated
        )
        bed.run("scancel", "-n", "storm", timeout=300)
        faults += fail(bed, storm.failed // 5)
        bed.stop("slurmctld")  # killed, it would forget what it had not saved yet
        time.sleep(3.0)
        bed.start("slurmctld")
        faults += fail(bed, storm.failed // 5)
        agent.stop(signal.SIGKILL)
        bed.stop("slurmdbd", how=signal.SIGKILL)
        faults += fail(bed, storm.failed - len(faults) - 1)
        agent.start()
        time.sleep(10.0)
        bed.start("slurmdbd")
        faults.append(kill_node(bed))
        ended = wait_for_verdicts(bed, files, faults)
        until("those that complete", 300, lambda: completed(bed, complete))
        # one more look after all is over: nothing may come again
        passes = len(agent.passes)
        until("further passes", 300, lambda: len(agent.passes) > passes + 3
              and not agent.passes[-1]["unlearned"])  # fmt: skip
    finally:
        agent.stop()
    after = estimates_of(files, waiting)
    return findings(bed, files, agent, storm, faults, ended, {
        "submission [s]": submitted_s,
        "newcomer [s]": agent.estimated[newcomer] - newcomer_at,
        "before": before,
        "after": after,
        "complete": complete,
    })  # fmt: skip


def submit_arrays(bed: Testbed, repository: Path, tasks: int) -> None:
    """Arrays of as many tasks in all, that would run for long."""
    for part in range(2):
        count = tasks // 2 + (tasks % 2 if part else 0)
        script = repository / "train.sh"
        options = ("-J", "storm", "--gres=gpu:4", f"--array=1-{count}", path_of(repository))
        bed.submit_file(script, "gpt2", "2000", options=options)


def submit_singles(bed: Testbed, repository: Path, count: int) -> None:
    """Single jobs of fifty variants, four submissions at a time."""
    options = f"-Q -J storm --gres=gpu:4 {path_of(repository)}"
    line = f"sbatch {options} {repository}/train.sh gpt2 $((2000 + $0 % 50))"
    loop = f"seq {count} | xargs -P 4 -n 1 sh -c '{line}'"
    bed.run("sh", "-c", f"cd {repository}; {loop}", user=USER, timeout=900)


def path_of(repository: Path) -> str:
    """The option that puts the stand-in for Python on a job's path."""
    return f"--export=ALL,PATH={repository / 'bin'}:/usr/bin:/bin"


def fail(bed: Testbed, count: int) -> list[str]:
    """Jobs that fail at once, by the node's fault and by the user's, with logs of all kinds of
    names."""
    ways = (
        ("node.txt", ("-o", "../jobs/disk-%j.out")),
        ("name.txt", ("--output=%x-%j.log", "-e", "%x-%j.err")),
        ("node.txt", ()),
    )
    made = []
    for at in range(count):
        text, options = ways[at % len(ways)]
        script = f"cat {bed.jobs_folder}/{text} >&2; exit 1"
        made.append(bed.submit(script, "-p", "quick", *options, gpus=0))
    return made


def kill_node(bed: Testbed) -> str:
    """A job on a node that dies: the job, once Slurm has ended it."""
    job = bed.submit("sleep 600", "-p", "quick", "-w", "gpu04", "--no-requeue", gpus=0)
    until("its start", 120, lambda: [job, "RUNNING"] in bed.queue("%A %T"))
    bed.stop("slurmd", "gpu04", how=signal.SIGKILL)
    until("its end", 300, lambda: bed.ended_as(job) == "NODE_FAIL")
    return job


def wait_for_verdicts(bed: Testbed, files: AgentFiles, jobs: list[str]) -> dict[str, float]:
    """When each failed job ended [s since epoch], once each has a verdict or it is too late."""
    ends: dict[str, float] = {}

    def ended() -> bool:
        for row in bed.accounting(",".join(jobs), "JobIDRaw,State,End"):
            if row[1] in FAILURE_STATES and row[2].isdigit():
                ends[row[0]] = float(row[2])
        return set(ends) == set(jobs)

    until("the ends of all", 300, ended)
    late = max(ends.values()) + 2 * VERDICT_S
    while time.time() < late and len(verdicts(files)) < len(jobs):
        time.sleep(2.0)
    return ends


def completed(bed: Testbed, jobs: list[str]) -> bool:
    """Whether all have completed, by accounting."""
    rows = bed.accounting(",".join(jobs), "JobIDRaw,State")
    return {job for job, state in rows if state == "COMPLETED"} >= set(jobs)


def verdicts(files: AgentFiles) -> dict[str, tuple[float, dict[str, Any]]]:
    """When each failed run was looked into, and what was found, by job."""
    with files.kept() as record:
        return {one.body["job"]: (one.at.time, one.body) for one in record.entries(kind="failure")}


def estimates_of(files: AgentFiles, jobs: list[str]) -> dict[str, float | None]:
    """The estimates [s] that an agent has of jobs in the queue."""
    with (
        files.opened(dry_run=True) as setup,
        Memory(files.state / MEMORY_FILE, read_only=True) as memory,
    ):
        keys = {one.key: one.id for one in setup.adapter.jobs() if one.id in jobs}
        return {
            keys[key]: None if one.abstained else one.duration_s
            for key, one in memory.estimates(keys).items()
        }


def findings(
    bed: Testbed,
    files: AgentFiles,
    agent: AgentProcess,
    storm: Storm,
    faults: list[str],
    ended: dict[str, float],
    measured: dict[str, Any],
) -> list[dict[str, Any]]:
    """A line for each property: what was measured, and whether it holds."""
    found = verdicts(files)
    took = sorted(found[job][0] - ended[job] for job in faults if job in found)
    named = [job for job in faults if job in found and found[job][1].get("diagnosis")]
    with files.kept() as kept:
        failures = Counter(one.about for one in kept.entries(kind="failure"))
        plans = kept.plans()
        broken = kept.verify().broken
    keys = Counter((one.plan.purpose, one.plan.id) for one in plans)
    cases = Counter(
        (one.plan.reason.job, one.plan.reason.run)
        for one in plans
        if one.plan.purpose == "recovery"
    )
    history = history_of(files)
    runs = Counter(history)
    before, after = measured["before"], measured["after"]
    learned = {one.partition("/")[2].partition("@")[0] for one in history}
    unlearned = set(measured["complete"]) - learned
    lost = [job for job, value in before.items() if value and not after.get(job)]
    twice = sum(
        count - 1 for each in (failures, keys, cases, runs) for count in each.values() if count > 1
    )
    longest = max((one["took_s"] for one in agent.passes), default=0.0)
    done = f"{len(failures)} verdicts, {len(plans)} plans, {len(history)} records of the history"
    slowest, median = (f"{took[at]:.0f} s" if took else "-" for at in (-1, len(took) // 2))
    newcomer_s = measured["newcomer [s]"]
    soon = bool(took) and took[-1] <= VERDICT_S
    return [
        line("jobs submitted", storm.jobs, f"in {measured['submission [s]']:.0f} s"),
        line("cancelled before and while they ran", storm.cancelled, "by name"),
        line("failed runs with a verdict", f"{len(took)} of {len(faults)}",
             f"{len(named)} by their logs", len(took) == len(faults)),
        line("slowest verdict after its run's end", slowest, f"median {median}", soon),
        line("estimate of a newcomer behind the backlog", f"{newcomer_s:.0f} s",
             "after its submission", newcomer_s <= VERDICT_S),
        line("estimates lost", f"{len(lost)} of {len(before)}", "jobs that waited through it",
             not lost and all(before.values())),
        line("completed runs learned", f"{len(measured['complete']) - len(unlearned)} of "
             f"{len(measured['complete'])}", "into the history", not unlearned),
        line("done twice", twice, done, not twice),
        line("record", "intact" if broken is None else "broken", "chain of hashes", not broken),
        line("longest pass", f"{longest:.0f} s", f"{len(agent.passes)} passes"),
    ]  # fmt: skip


def line(what: str, value: Any, more: str, holds: bool | None = None) -> dict[str, Any]:
    """One line of the table."""
    shown = "" if holds is None else "yes" if holds else "no"
    return {"what": what, "measured": value, "of what": more, "holds": shown}


def history_of(files: AgentFiles) -> list[str]:
    """Ids of the records of the history that came from the cluster."""
    settings = load_settings(history=files.history)
    history = open_history(files.history, embedder_of(settings), create=False, read_only=True)
    try:
        return [one.job_id for one in history.export() if one.job_id.startswith("testbed/")]
    finally:
        history.close()
