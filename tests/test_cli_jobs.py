"""`schedmate jobs`: running and waiting jobs of one user, with progress, time left and health."""

from __future__ import annotations

import io
import json
import os
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

import pytest
from cli_runner import Cli
from prometheus_stand_in import answer_of, prometheus

from schedmate.base.terminal import Screen
from schedmate.cluster import ClusterKind, expected
from schedmate.cluster.adapter import (
    Description,
    EndedRun,
    LiveJob,
    LiveNode,
    Observer,
    Usage,
)
from schedmate.cluster.expected import MOST_WAITING, Runs, expected_starts, first_of
from schedmate.cluster.ray import note_cluster
from schedmate.cluster.ray.runs import log_of
from schedmate.cluster.ray.store import QUEUE_FILE, Place, Request, Store
from schedmate.cluster.slurm.reading import read_usage
from schedmate.commands import jobs as command
from schedmate.jobs import JobRecord, JobSpec, LaunchConfig

NOW = 1.8e9


class Queue(Observer):
    """A running job with a log, one whose log is elsewhere, one that waits, and another user's."""

    name = cluster = "alpha"

    def __init__(self, log: Path) -> None:
        self.log = log

    def jobs(self) -> list[LiveJob]:
        def job(id_: str, user: str, started: float | None, reason: str = "") -> LiveJob:
            state = "PENDING" if started is None else "RUNNING"
            nodes = () if started is None else ("gpu01",)
            planned = NOW + 500 if started is None else None
            return LiveJob(
                *(id_, id_, state, user, ("gpu",), NOW - 4000, started, nodes, False, reason),
                expected=planned,
            )  # type: ignore[arg-type]

        return [
            job("18", "ann", None, "Priority"),
            job("17", "ann", NOW - 1000),
            job("19", "bob", NOW - 1000),
            job("20", "ann", NOW - 1000),
        ]

    def describe(self, jobs: Sequence[str], *, scripts: bool = True) -> dict[str, Description]:
        launch = LaunchConfig(gpus=1, time_limit_s=1500)
        return {
            id_: Description(
                JobSpec(
                    job_id=id_,
                    name=f"work{id_}",
                    launch=launch,
                    repo=str(self.log.parent),
                    command=f"python train{id_}.py --epochs 3",
                ),
                "%j.log",
            )
            for id_ in jobs
        }

    def nodes(self) -> list[LiveNode]:
        return [LiveNode("gpu01", True, False, True, "", ("gpu",), gpus=3, gpus_used=3)]

    def log_path(self, job: object, pattern: str, spec: JobSpec) -> Path | None:
        if spec.job_id == "16":
            return Path(pattern) if pattern.startswith("/") else self.log
        assert pattern == "%j.log"
        return self.log if spec.job_id == "17" else self.log.with_name("elsewhere.log")

    def ended(self, since: float) -> list[EndedRun]:
        record = JobRecord(job_id="16", name="work16", state="FAILED")
        pattern = str(self.log.with_name("16.err"))
        return [EndedRun("16", "16", "16", record, ("gpu02",), "/", "%j.log", errors=pattern)]

    def describe_ended(self, run: EndedRun) -> Description | None:
        return None


class Kind(ClusterKind[Queue]):
    name = title = "alpha"

    def is_here(self) -> bool:
        return True

    def usage(self, adapter: Queue, jobs: Sequence[str], *, running: bool) -> dict[str, Usage]:
        asked = (
            "17|100|4|00:00.000|cpu=4,gres/gpu=1,mem=8G|||\n"
            "17.batch|100|4|00:00:00|||1000K|gres/gpuutil=80"
        )
        live = "17.batch|1|00:02:52|2G|gres/gpuutil=60\n"
        return read_usage(asked, live) if running and "17" in jobs else {}


@pytest.fixture
def queue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Queue:
    log = tmp_path / "17.log"
    log.write_text(
        "".join(
            f"[2027-01-15 08:{10 + n // 6:02d}:{10 * (n % 6):02d}] iteration {n}/ 400 | lm loss: "
            "2.0 | elapsed time per iteration (ms): 10000.0\n"
            for n in range(1, 101)
        )
    )
    os.utime(log, (NOW - 5, NOW - 5))
    made = Queue(log)
    monkeypatch.setattr(Kind, "adapter", lambda self, bounds: made)
    # these import it by name: before it is replaced, or they would keep what is only for this test
    for module in ("cli", "cluster.bounds", "commands.init", "commands.doctor"):
        import_module(f"schedmate.{module}")
    monkeypatch.setattr("schedmate.cluster.cluster_kind", lambda name: Kind())
    monkeypatch.setattr("schedmate.cluster.clusters", lambda: iter([Kind()]))
    monkeypatch.setattr(command.time, "time", lambda: NOW)
    return made


def test_own_jobs_running_ones_first(queue: Queue, cli: Cli) -> None:
    done = cli("jobs", "--cluster", "alpha", "--user", "ann", "--json")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert (document["schema"], document["cluster"]) == ("schedmate.jobs/v1", "alpha")
    running, elsewhere, waiting = document["jobs"]
    assert [one["job"] for one in document["jobs"]] == ["17", "20", "18"]
    assert running["done"] == pytest.approx(0.25)
    assert running["left_s"] == pytest.approx(3000, rel=0.2)
    assert running["left_p10_s"] <= running["left_s"] <= running["left_p90_s"]
    assert running["over_limit"]
    assert running["cpu"] == pytest.approx(0.43)
    assert (running["memory"], round(running["gpu"], 1)) == (0.25, 0.8)
    assert (running["ran_s"], running["waited_s"], running["limit_s"]) == (1000, 3000, 1500)
    assert elsewhere["note"] == "its log cannot be read here"
    assert (waiting["state"], waiting["note"], waiting["ran_s"]) == ("PENDING", "Priority", None)
    low, median, high = (waiting[f"starts_in{part}_s"] for part in ("_p10", "", "_p90"))
    assert 0 < low < median < high <= 500  # which is what the limits of running jobs leave
    assert (waiting["scheduler_in_s"], waiting["no_start"]) == (500, None)
    assert (running["starts_in_s"], running["scheduler_in_s"]) == (None, None)
    everybody = json.loads(cli("jobs", "--cluster", "alpha", "--all", "--json").out)
    assert {one["user"] for one in everybody["jobs"]} == {"ann", "bob"}


STEP = "cpu=00:16:40,energy=0,fs/disk=4096,gres/gpumem={}M,gres/gpuutil={},mem=1024K,pages=0"
"""TRESUsageInAve as `sacct` prints it where GPUs are tracked (AccountingStorageTRES=gres/gpu)."""


@pytest.mark.parametrize(
    ("gpus", "steps", "live", "use"),
    [
        # one task of torchrun drives eight GPUs: Slurm adds their use up
        (8, [("batch", 1000, 1, 640)], "", 0.8),
        # eight tasks of srun with one each, beside the script, which uses none
        (8, [("batch", 1000, 1, 0), ("0", 900, 8, 80)], "", 0.72),
        (4, [("0", 500, 1, 100), ("1", 500, 1, 300)], "", 0.5),
        (2, [], "17.0|2|00:02:52|2G|{}\n", 0.5),
        (1, [("batch", 1000, 1, 180)], "", None),  # more than its GPU can do
        (0, [("batch", 1000, 1, 50)], "", None),
    ],
)
def test_use_of_gpus_is_of_all_that_the_job_holds(
    gpus: int, steps: list[tuple[str, int, int, int]], live: str, use: float | None
) -> None:
    given = f"billing=4,cpu=4,gres/gpu={gpus},gres/gpu:a100={gpus},mem=8G,node=1"
    rows = [f"17|1000|4|00:00:00|{given}|||"] + [
        f"17.{name}|{length}|4|00:00:00|{given}|{tasks}|1000K|{STEP.format(9000, share)}"
        for name, length, tasks, share in steps
    ]
    found = read_usage("\n".join(rows), live.format(STEP.format(9000, 50)))["17"].gpu
    assert found == (None if use is None else pytest.approx(use))


def live(id_: str, priority: int, running: bool = False, **more: object) -> LiveJob:
    state, queues = "RUNNING" if running else "PENDING", more.pop("queues", ("a",))
    fields = {"held": False, "reason": "Priority", "priority": priority} | more
    return LiveJob(id_, id_, state, "ann", queues, 0.0, None, (), **fields)  # type: ignore[arg-type]


def test_a_start_is_expected_by_the_queue_run_forward() -> None:
    nodes = [
        LiveNode("n1", True, False, True, "", ("a",), gpus=2, gpus_used=1),
        LiveNode("n2", True, False, True, "", ("a", "b"), gpus=0),
        LiveNode("n3", True, True, False, "", ("b",), gpus=8),
        LiveNode("n4", True, False, False, "", ("c",), gpus=1),
    ]

    def takes(gpus: float, seconds: float, limit: float | None = None) -> Runs:
        return Runs(gpus, (seconds, seconds, seconds), limit)

    runs = {
        "runs": takes(1, 900, limit=100), "wide": takes(2, 300), "short": takes(1, 50),
        "long": takes(1, 200), "huge": takes(4, 10), "odd": Runs(1), "held": takes(1, 1),
        "cpus": takes(0, 1), "later": takes(1, 1), "unsure": Runs(1, limit=1000), "c": takes(1, 9),
        "hidden": takes(1, 1), "lost": takes(1, 1),
    }  # fmt: skip
    queue = [
        live("runs", 1, running=True), live("unsure", 1, running=True, queues=("b",)),
        live("short", 3, queues=("b",)), live("long", 2), live("wide", 4), live("huge", 9),
        live("odd", 9), live("held", 9, held=True), live("cpus", 9), live("c", 1, queues=("c",)),
        live("later", 9, reason="Dependency"), live("gone", 1, running=True, queues=("c",)),
        live("lost", 9, queues=("d",)),
    ]  # fmt: skip
    certain = [job for job in queue if job.id != "unsure"]
    starts = expected_starts(certain, runs, nodes, 0.0)
    # the short job fits before the wide one, which waits for the running job's limit
    assert [starts[job].p50 for job in ("short", "wide", "long")] == pytest.approx([0, 100, 400])
    assert starts["wide"].p10 == starts["wide"].p90
    assert starts["c"].p50 == 0
    for job, why in (
        *(("huge", "many GPUs"), ("odd", "neither"), ("held", "held"), ("cpus", "no GPU")),
        *(("later", "Dependency"), ("lost", "no partition")),
    ):
        assert starts[job].p50 is None
        assert why in starts[job].why
    nodes[0] = nodes[0]._replace(gpus_used=2)
    spread = expected_starts(queue, runs, nodes, 0.0)["long"]
    assert 0.0 < (spread.p10 or 0.0) < (spread.p90 or 0.0)
    many = [live(f"{n}", 5) for n in range(MOST_WAITING + 1)]
    crowded = expected_starts(many, {job.id: takes(1, 10) for job in many}, nodes[:1], 0.0)
    assert "jobs wait before it" in crowded[str(MOST_WAITING)].why
    full = [nodes[3]._replace(gpus_used=1)]
    hidden = expected_starts([live("hidden", 1, queues=("c",))], runs, full, 0.0)["hidden"]
    assert "nothing is known" in hidden.why


@pytest.mark.parametrize(
    ("known", "longer", "start"),
    [
        # free GPUs, so "now" by the queue, which counts for 600 / (600 + 400) / 2
        (Runs(1, (9, 9, 9)), 100, (0, 2936, 8707)),
        (Runs(1, (9, 9, 9)), 0, (0, 0, 0)),
        (Runs(1), 100, (1060, 5100, 9140)),
        (Runs(1), 2, (None, None, None)),
    ],
)
def test_waits_of_others_say_what_the_queue_does_not(
    known: Runs, longer: int, start: tuple[float | None, ...]
) -> None:
    starts = [(-float(n), 400.0 + 100 * n, f"user{n}") for n in range(1, longer + 1)]
    starts += [(-2000.0 - n, 1e6, "ann") for n in range(longer)] + [(0.0, 399.0, "bob")] * 500
    nodes = [LiveNode("n", True, False, True, "", ("a",), gpus=2)]
    before = [(start - wait, start, user) for start, wait, user in starts]
    found = expected_starts([live("j", 1)], {"j": known}, nodes, 400.0, before)["j"]
    assert found[:3] == pytest.approx(start, abs=5)
    assert ("neither" in found.why) == (found.p50 is None)


def test_of_a_long_queue_the_first_are_run_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expected, "MOST_QUEUED", 3)
    queue = [live("last", 1), live("first", 9), live("runs", 0, running=True), live("next", 5)]
    assert [job.id for job in first_of(queue)] == ["runs", "first", "next"]
    runs = {job.id: Runs(1, (9, 9, 9)) for job in first_of(queue)}
    nodes = [LiveNode("n", True, False, True, "", ("a",), gpus=2)]
    starts = expected_starts(queue, runs, nodes, 0.0)
    assert {job for job, start in starts.items() if start.p50 is not None} == {"first", "next"}
    assert "far back" in starts["last"].why


def test_the_table_says_what_matters(queue: Queue, cli: Cli) -> None:
    text = cli("jobs", "--cluster", "alpha", "--user", "ann").out
    first = next(line for line in text.splitlines() if line.startswith("17"))
    assert "25%" in first
    assert "ends after its time limit" in first
    assert "by the scheduler" in text
    assert "no running or waiting job of eve." in cli(
        "jobs", "--cluster", "alpha", "--user", "eve"
    ).out  # fmt: skip
    screen = io.StringIO()
    command._show([], None, Screen(screen))
    assert screen.getvalue() == "no running or waiting job.\n"


def test_users_exclude_each_other(cli: Cli) -> None:
    done = cli("jobs", "--cluster", "slurm", "--all", "--user", "ann")
    assert done.code == 2
    assert "exclude each other" in done.err


def test_an_id_stands_for_the_log_of_a_job(
    queue: Queue, cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "16.err").write_text("Traceback (most recent call last):\nKeyError: 'x'\n")
    followed = cli("track", "17", "--json")
    assert json.loads(followed.out)["iteration"] == 100, followed.err
    assert f"note: job 17 writes to {queue.log}." in followed.err
    used = "43% of 4 CPUs, 80% of its GPUs, 2.0 of 8.0 GiB memory (25%), 16 min 40 s of 25 min"
    assert f"note: it used {used}" in followed.err
    failed = cli("diagnose", "16", "--json")
    assert json.loads(failed.out)["error_name"] == "Key Error", failed.err
    assert f"job 16 writes to {queue.log}, {tmp_path / '16.err'}." in failed.err
    unknown = cli("diagnose", "15")
    assert (unknown.code, unknown.out) == (3, "")
    assert "no run of 15 is known" in unknown.err
    gone = cli("track", "20")
    assert gone.code == 3
    assert "elsewhere.log" in gone.err
    (tmp_path / "15").write_text("step 1 loss 2.0\n")
    assert cli("diagnose", "15").code == 0  # a file of that name is meant


def test_an_id_without_a_cluster_is_no_log(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("schedmate.cluster.clusters", lambda: iter([ClusterKind()]))
    done = cli("track", "4711")
    assert done.code == 3
    assert "belongs to no cluster whose job it could be" in done.err


def test_jobs_of_a_queue_on_ray_are_read_where_it_was_started(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refused = cli("jobs", "--cluster", "ray")
    assert refused.code == 2
    assert "run this where `schedmate ray up` was run" in refused.err
    place = tmp_path / "queue"
    with Store(place / QUEUE_FILE) as store:
        for name in ("trains", "failed", "waits"):
            spec = JobSpec(command="python train.py", repo=str(tmp_path), name=name, user="ann")
            store.submit(name, Request(spec=spec, gpus=1), time.time() - 900)
        for number, text in ((1, "Epoch [5/20], Loss: 2.3, time: 9.0 s\n"), (2, "KeyError: 'x'\n")):
            job = store.job(number)
            assert job is not None
            run = store.begin(job, "run", [Place("a", "a", 1)], f"{place}/{number}", 0.0)
            store.started(run.id, time.time() - 600)
            log_of(run).parent.mkdir(parents=True)
            log_of(run).write_text(text)
        store.ended(run.id, "FAILED", time.time(), {}, state="FAILED")
    note_cluster("auto", place)
    document = json.loads(cli("jobs", "--user", "ann", "--json").out)
    running, waiting = document["jobs"]
    assert (running["name"], running["done"], running["state"]) == ("trains", 0.25, "RUNNING")
    assert "ray queue" in waiting["no_start"]
    verdict = cli("diagnose", "2", "--json")
    assert verdict.code == 0, verdict.err
    assert json.loads(verdict.out)["error_name"] == "Key Error"


USED = {
    "gpu": 0.31, "gpu_memory_bytes": 12.5 * 2**30, "memory_bytes": 2**33, "cpu_s": 500,
    "memory_asked_bytes": 2**34, "cpus": 4,
}  # fmt: skip


def test_what_the_scheduler_does_not_measure_prometheus_may(
    queue: Queue, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Kind, "name", "slurm")
    monkeypatch.setattr(
        Queue, "measured_as", lambda self, jobs: {job: {"job": job} for job in jobs}, raising=False
    )
    answers = [answer_of(USED)]
    asked: list[dict[str, list[str]]] = []
    with prometheus(answers, asked) as address:
        monkeypatch.setenv("SCHEDMATE_PROMETHEUS", address.replace("//", "//ann:secret@"))
        rows = json.loads(cli("jobs", "--all", "--json").out)["jobs"]
        text = cli("jobs", "--all").out
        note = cli("track", "17").err
        answers[0] = {"status": "success", "data": {"result": [{"metric": [], "value": "x"}]}}
        bad = cli("jobs", "--all", "--json")
    ours, other = (next(row for row in rows if row["job"] == job) for job in ("17", "19"))
    assert (ours["gpu"], ours["cpu"]) == (0.8, 0.43)  # which Slurm knows
    assert ours["gpu_memory_mb"] == 12_800
    assert (other["gpu"], other["cpu"], other["memory"]) == (0.31, 0.125, 0.5)
    assert "12.5 GiB" in text
    assert "12.5 GiB memory of a GPU" in note
    query = asked[0]["query"][0]
    assert 'DCGM_FI_DEV_GPU_UTIL{hpc_job="17"}[1000s]' in query
    assert asked[0]["time"] == [f"{NOW:.3f}"]
    assert asked[0]["login"] == ["Basic YW5uOnNlY3JldA=="]
    assert bad.code == 0
    assert "its answer is none of Prometheus" in bad.err
    assert json.loads(bad.out)["jobs"][0]["gpu_memory_mb"] is None
    refused = cli("jobs", "--all", "--json")
    assert refused.code == 0
    assert "the Prometheus server" in refused.err
    assert "secret" not in bad.err + refused.err


def test_an_id_stands_for_the_code_of_a_job(queue: Queue, cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "train18.py").write_text(
        "import argparse, torch, torchvision\np = argparse.ArgumentParser()\n"
        "p.add_argument('--epochs', type=int)\na = p.parse_args()\n"
        "m = torchvision.models.resnet18()\nfor e in range(a.epochs):\n    m.train()\n"
    )
    done = cli("analyze", "18", "--json", "--gpus", "2")
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["metadata"]["training_config"]["iters"] == 3
    assert "note: job 18 runs `python train18.py --epochs 3`" in done.err
    assert "does not say what job 16 runs" in cli("analyze", "16").err
