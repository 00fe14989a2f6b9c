"""Timeouts and lost peers are what ranks notice: what brought them about, or that nothing says."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedmate.base.data import load
from schedmate.jobs import Diagnosis
from schedmate.logparse.failure import diagnose
from schedmate.logparse.failure.locate import ACTIVITY_REACH
from schedmate.logparse.reading import Log, LogFile, open_log
from schedmate.logparse.reading.storage import Memory

ACTIVITIES = load("logparse/failure/meanwhile.yaml")["activities"]
STEPS = "".join(f"iteration {n}/ 900 | lm loss: 2.{n} | 0.12 s/it\n" for n in range(1, 9))


def of(text: str) -> Diagnosis:
    return diagnose(Log("job.out", [LogFile("job.out", Memory(text.encode()))]))


def waits(rank: int, number: int = 12, kind: str = "ALLREDUCE") -> str:
    return (
        f"[rank{rank}]:[E1101 10:00:00.1 ProcessGroupNCCL.cpp:563] [Rank {rank}] Watchdog caught "
        f"collective operation timeout: WorkNCCL(SeqNum={number}, OpType={kind}, NumelIn=4, "
        f"NumelOut=4, Timeout(ms)=600000) ran for 600004 milliseconds before timing out.\n"
    )


def enqueued(rank: int, number: int) -> str:
    return (
        f"[rank{rank}]:[E1101 10:00:00.1 a.cpp:6] [PG 0 Rank {rank}] Timeout at NCCL work: 101, "
        f"last enqueued NCCL work: {number}, last completed NCCL work: 98.\n"
    )


@pytest.mark.parametrize("activity", ACTIVITIES, ids=lambda one: one["id"])
def test_what_the_missing_rank_was_doing(activity: dict[str, str]) -> None:
    others = waits(1) + waits(2) + waits(3)
    found = of(f"[rank0]: {activity['example']}\n{others}")
    assert found.meanwhile == activity["id"]
    assert (found.error_name, found.leaning) == ("NCCL Timeout", activity["type"])
    assert (found.rank, found.missing_ranks) == (0, [0])
    assert found.plan is not None
    assert found.plan.isolation == "none"
    assert activity["id"] in found.plan.summary
    assert any(line.note == "what the others waited for" for line in found.evidence)
    # who reports the timeout was not the one that was busy
    busy = of(f"[rank1]: {activity['example']}\n{others}")
    assert busy.meanwhile is None
    # nor was work that is over, or that training went on after
    over = of(f"[rank0]: {activity['example']}\n[rank0]: done in 3 s\n{others}")
    assert over.meanwhile is None
    trained = of(f"[rank0]: {activity['example']}\n{STEPS}{others}")
    assert trained.meanwhile is None


def test_work_long_before_is_not_what_they_waited_for() -> None:
    text = "Scanning images in /data/train\n" + "hello there\n" * (ACTIVITY_REACH + 1)
    assert of(text + waits(1) + waits(2)).meanwhile is None


def test_the_missing_rank_s_own_file_says_it(tmp_path: Path) -> None:
    for rank in range(4):
        last = "Tokenizing the corpus: 42%\n" if rank == 2 else waits(rank)
        (tmp_path / f"rank-{rank}.log").write_text(STEPS + last)
    with open_log(tmp_path) as log:
        found = diagnose(log)
    assert (found.rank, found.meanwhile, found.error_type) == (2, "preparing the data", "script")


def test_a_lost_peer_did_not_wait_for_anybody() -> None:
    gone = "RuntimeError: NCCL error: remote process exited or there was a network error\n"
    assert of(STEPS + "Compiling the model with inductor\n" + gone).meanwhile is None


def test_different_collectives_under_one_number_are_the_program_s() -> None:
    found = of(STEPS + waits(0, 45) + waits(1, 45, "_ALLGATHER_BASE"))
    assert (found.error_type, found.rule, found.rank) == ("script", "nccl-desync", None)
    assert "rank 0 in ALLREDUCE and rank 1 in _ALLGATHER_BASE" in found.reason


@pytest.mark.parametrize(
    "reports",
    [
        "".join(waits(rank, 44 if rank == 2 else 45) for rank in range(5)),
        "".join(enqueued(rank, 99 if rank == 2 else 102) for rank in range(5)),
        "".join(waits(rank) for rank in range(5) if rank != 2),
    ],
)
def test_the_rank_behind_is_the_one_to_look_at_not_the_reporter(reports: str) -> None:
    found = of(STEPS + reports)
    assert (found.missing_ranks, found.rank, found.undecided) == ([2], 2, True)


@pytest.mark.parametrize(
    "report",
    [
        waits(0) + waits(1),
        (
            "[rank3]: torch.distributed.DistBackendError: NCCL error in: x.cpp:1970, remote "
            "process exited or there was a network error, NCCL version 2.20.5\n"
        ),
        "[gpu-7:3]: [Rank 3] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1\n",
        "srun: error: gpu-7: task 3: NCCL WARN socketProgress: Connection closed by remote peer\n",
        "EI0002: The wait execution of the Notify register times out.\n",
        "HcclAllReduce: the execution of the task timed out\n",
        "RuntimeError: HCCL function error: HcclGetRootInfo(&id), error code is 9\n",
        "[ERROR] HCCL(12,python): Task run failed, taskType[Notify Wait], tag[AllReduce]\n",
    ],
)
def test_where_nothing_says_it_is_undecided_and_the_plan_is_a_check(report: str) -> None:
    found = of(STEPS + report)
    assert (found.error_type, found.likely) == ("unknown", "infrastructure")
    assert found.undecided
    assert (found.rank, found.node) == (None, None), "the reporter is not the culprit"
    assert found.plan is not None
    assert found.plan.steps[0].action == "check"
    assert found.plan.steps[0].commands
    assert found.plan.isolation == "none"


@pytest.mark.parametrize(
    ("line", "kind", "name"),
    [
        ("[scheduler] preemption notice received for gpu-7, 60 s left", "none", "Preempted"),
        ("Received SIGTERM: 15", "none", "Cancelled"),
        ("node gpu-7 drained by operator jd: replace PSU", "none", "Cancelled"),
        ("+ kubectl drain gpu-7 --ignore-daemonsets", "none", "Cancelled"),
        ("[monitor] gpu-7: health check failed: GPU 3 gone", "infrastructure", "Node Failure"),
        ("ERROR:  nhc:  Health check failed: check_hw_ib", "infrastructure", "Node Failure"),
    ],
)
def test_what_was_done_to_the_job_before_counts_before_what_ranks_notice(
    line: str, kind: str, name: str
) -> None:
    found = of(STEPS + line + "\n" + "saying nothing\n" * 30 + waits(0) + waits(1))
    assert (found.error_type, found.error_name, found.line) == (kind, name, 9)


def test_a_notice_counts_although_training_went_on_for_a_while() -> None:
    text = "started\npreemption notice received, 60 s left\n" + STEPS + waits(0) + waits(1)
    found = of(text)
    assert (found.error_type, found.error_name, found.line) == ("none", "Preempted", 2)
    assert of(text.replace(waits(0) + waits(1), "")).error_type == "none"


def test_a_signal_after_the_timeout_is_the_launcher_s() -> None:
    found = of(STEPS + waits(0) + waits(1) + "Received SIGTERM: 15\n")
    assert (found.leaning, found.error_name) == ("infrastructure", "NCCL Timeout")
