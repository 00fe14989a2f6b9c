"""The agent's files: what it may do, what it remembers; and how long it waits."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_stand_in import answer_of, prometheus

from schedmate.base.errors import SettingsError
from schedmate.cluster.adapter import (
    LONGEST_WAIT_S,
    Description,
    EndedRun,
    LiveJob,
    Observer,
    pause_s,
)
from schedmate.cluster.advising import newest_first
from schedmate.cluster.bounds import Bounds, load_bounds
from schedmate.cluster.ended import GIVEN_UP_S
from schedmate.cluster.loop import Agent
from schedmate.cluster.memory import KEPT_S, KnownJob, Memory
from schedmate.cluster.record import Record
from schedmate.cluster.recovery.configuration import load_configuration
from schedmate.cluster.reloading import Reload
from schedmate.cluster.report import Pass
from schedmate.commands import agents
from schedmate.commands.agents import keep_running
from schedmate.jobs import Estimate, JobRecord, JobSpec, WorkloadMetadata
from schedmate.mate import SchedMate
from schedmate.settings import load_settings

EXAMPLES = Path(__file__).parents[2] / "examples" / "slurm"


def test_without_a_file_nothing_but_looking_is_allowed() -> None:
    bounds = load_bounds(None)
    assert bounds == Bounds()
    assert not bounds.order.allowed
    assert bounds.annotate.where == "off"
    assert bounds.recovery is None
    assert not bounds.slurm.drain


def test_the_example_is_read(tmp_path: Path) -> None:
    for name in ("bounds.yaml", "recovery.yaml"):
        (tmp_path / name).write_text((EXAMPLES / name).read_text())
        (tmp_path / name).chmod(0o644)
    bounds = load_bounds(tmp_path / "bounds.yaml")
    assert bounds.order.allowed
    assert bounds.order.ageing == 3 * 86_400.0
    assert bounds.recovery == tmp_path / "recovery.yaml"
    assert load_configuration(bounds.recovery).automatic == {"notify"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("order: {allowd: true}", "there is no key order.allowd; did you mean allowed?"),
        ("order: {lowest: 5}", "order.lowest: 5 is given; it has to be at most 0"),
        ("order: {shortest: 7d, longest: 5m}", "'shortest' must be less"),
        ("order: {lowest: 0, highest: 0}", "'lowest' must be less"),
        ("order: {ageing: soon}", "soon"),
        ("annotate: {where: title}", "annotate.where: 'title' is given"),
        ("[1", "not YAML"),
        ("- 1", "it: [1] is given; it has to be an object with keys and values"),
        ("poll: -1", "poll: -1 is given; it has to be"),
        ("poll: .nan", "poll"),
    ],
)
def test_a_file_that_is_wrong_is_refused_in_one_sentence(
    tmp_path: Path, text: str, says: str
) -> None:
    path = tmp_path / "bounds.yaml"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(Exception, match="bounds.yaml|duration") as caught:
        load_bounds(path)
    assert getattr(caught.value, "exit_code", None) == 2
    assert says in str(caught.value)


def test_a_file_that_others_can_write_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bounds.yaml"
    path.write_text("poll: 5")
    path.chmod(0o666)
    with pytest.raises(SettingsError, match="chmod go-w"):
        load_bounds(path)
    with pytest.raises(SettingsError, match="cannot read"):
        load_bounds(tmp_path / "none.yaml")


def known(key: str, at: float = 1.0) -> KnownJob:
    spec = JobSpec(job_id="1", user="alice", repo="/w", command="python train.py")
    estimate = Estimate(duration_s=5.0, duration_p90_s=9.0, abstained=False)
    return KnownJob(key, at, spec, WorkloadMetadata(), estimate, "log-%j.out")


def test_what_is_remembered_is_there_after_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "state" / "memory.db"
    with Memory(path) as memory:
        memory.remember(known("1@5"))
        memory.give({"1": 500}, {"1": 0}, sure=False)
        memory.learned(["1@5"], 1.0, {"alice": (0.8, 1)})
        memory.diagnosed("3@5", 1.0)
    with Memory(path) as memory:
        assert memory.known("1@5") == known("1@5")
        assert set(memory.estimates(["1@5", "2@5"])) == {"1@5"}
        assert memory.ordering() == {"1": (500, 0)}
        assert memory.surely_given() == {}
        memory.give({"1": 500}, {"1": 0}, sure=True)
        assert memory.surely_given() == {"1": 500}
        assert memory.unlearned(["1@5", "2@5"]) == {"2@5"}
        assert memory.undiagnosed(["1@5", "3@5"]) == {"1@5"}
        assert memory.trust() == {"alice": 0.8}
        memory.forget(KEPT_S + 2.0)
        assert memory.known("1@5") is None
        assert memory.trust() == {"alice": 0.8}


def test_a_dry_run_works_on_a_copy(tmp_path: Path) -> None:
    path = tmp_path / "memory.db"
    with Memory(path, scratch=True) as memory:
        memory.remember(known("1@5"))
    assert not path.exists()
    with Memory(path) as memory:
        memory.remember(known("1@5"))
    with Memory(path, scratch=True) as memory:
        assert memory.known("1@5") is not None
        memory.remember(known("2@5"))
    with Memory(path, read_only=True) as memory:
        assert memory.known("2@5") is None


@given(st.floats(0.1, 1e4), st.integers(0, 10_000), st.floats(0.0, 1.0))
def test_pauses_grow_and_are_bounded(poll_s: float, failures: int, chance: float) -> None:
    pause = pause_s(poll_s, failures, chance)
    if failures == 0:
        assert pause == poll_s
    assert 0 < pause <= max(poll_s, LONGEST_WAIT_S)
    assert pause_s(poll_s, failures + 1, chance) >= 0.75 * min(pause, LONGEST_WAIT_S)


def waiting(id_: str, user: str, submitted: float, state: str = "PENDING") -> LiveJob:
    return LiveJob(id_, id_, state, user, (), submitted, None, (), held=False, reason="")  # type: ignore[arg-type]


def test_code_is_read_of_everybody_s_newest_job_first() -> None:
    jobs = [waiting(f"a{n}", "alice", n) for n in range(5)]
    jobs += [waiting("b0", "bob", 1.5), waiting("r", "carol", 99.0, "RUNNING")]
    assert [job.id for job in newest_first(jobs)] == ["a4", "b0", "a3", "a2", "a1", "a0", "r"]


class Ended(Observer):
    """A cluster of runs that have ended; of one of them nothing can be read."""

    def __init__(self, runs: list[EndedRun]) -> None:
        self.runs = runs

    def ended(self, since: float) -> list[EndedRun]:
        return self.runs

    def describe(self, jobs: Sequence[str], *, scripts: bool = True) -> dict[str, Description]:
        if "odd" in jobs:
            raise OSError(5, "Input/output error")
        return {}


def ended_run(job: str, state: str, end: float, log: str = "", node: str = "n1") -> EndedRun:
    record = JobRecord.model_validate(
        {"job_id": job, "user": "alice", "state": state, "submit_time": end - 9.0, "end_time": end}
    )
    return EndedRun(job, job, job, record, (node,) if node else (), "", log)


def test_a_run_that_cannot_be_read_holds_up_no_other_and_is_given_up(tmp_path: Path) -> None:
    log = tmp_path / "job.out"
    log.write_text("Traceback (most recent call last):\nNameError: name 'x' is not defined\n")
    now = [1000.0]
    with (
        SchedMate(load_settings(history=str(tmp_path / "history"), mode="static")) as mate,
        Memory(tmp_path / "memory.db") as memory,
        Record(tmp_path / "record.db") as record,
    ):
        cluster = Ended([])
        bounds = Bounds.model_validate({"learn": {"every": 1e-3}, "kill_switch": tmp_path / "stop"})
        agent = Agent(cluster, mate, memory, record, bounds, clock=lambda: now[0])
        agent.once()
        cluster.runs = [
            ended_run("odd", "FAILED", 1010.0),
            *(ended_run(f"c{n}", "COMPLETED", 1001.0 + n) for n in range(5)),
            *(ended_run(f"x{n}", "CANCELLED", 1009.0, node="") for n in range(5)),
            ended_run("f", "FAILED", 1002.0, str(log)),
        ]
        now[0] = 1020.0
        found = agent.once()
        assert [one.job for one in found.failed] == ["f"]
        assert found.failed[0].diagnosis is not None
        assert found.failed[0].diagnosis.error_name == "Name Error"
        assert (found.learned, found.undiagnosed, found.unlearned) == (6, 1, 1)
        assert "odd@1001" in found.problems[0]
        time.sleep(0.01)
        again = agent.once()
        assert (len(again.failed), again.learned, again.unlearned) == (0, 0, 1)
        now[0] = 1010.0 + GIVEN_UP_S
        time.sleep(0.01)
        assert "odd@1001" in agent.once().problems[0]
        time.sleep(0.01)
        last = agent.once()
        assert (last.problems, last.undiagnosed, last.unlearned) == ([], 0, 0)
        opened = mate._advice.open(create=False)
        assert opened is not None
        stored = {one.job_id for one in opened[0].export()}
        assert stored == {*(f"c{n}" for n in range(5)), "f"}


def test_use_of_gpus_is_learned_from_prometheus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of runs of which the scheduler does not know it; without an answer they are learned too."""
    monkeypatch.setattr(Ended, "name", "slurm")
    monkeypatch.setattr(
        Ended, "measured_as", lambda self, jobs: {job: {"job": job} for job in jobs}, raising=False
    )
    asked: list[dict[str, list[str]]] = []
    answers = [answer_of({"gpu": 0.31, "gpu_memory_bytes": 2**33})]

    def run(job: str, **known: float) -> EndedRun:
        found = ended_run(job, "COMPLETED", 1009.0)
        return found._replace(record=found.record.model_copy(update={"duration_s": 300.0, **known}))

    with (
        prometheus(answers, asked) as address,
        SchedMate(
            load_settings(
                history=str(tmp_path / "history"), mode="static", prometheus=f"{address}/"
            )
        ) as mate,
        Memory(tmp_path / "memory.db") as memory,
        Record(tmp_path / "record.db") as record,
    ):
        cluster, now = Ended([]), [1000.0]
        runs = waiting("r", "ann", 800.0, "RUNNING")._replace(started=900.0)
        monkeypatch.setattr(cluster, "jobs", lambda: [runs])
        bounds = Bounds.model_validate({"learn": {"every": 1e-3}, "kill_switch": tmp_path / "stop"})
        agent = Agent(cluster, mate, memory, record, bounds, clock=lambda: now[0])
        agent.once()
        now[0], cluster.runs = 1020.0, [run("a"), run("b", gpu_util=77.0)]
        assert agent.once().problems == []
        answers[0] = None
        time.sleep(0.01)
        now[0], cluster.runs = 1030.0, [run("c"), run("d")]
        (problem,) = agent.once().problems
        assert "its answer is none of Prometheus" in problem
        opened = mate._advice.open(create=False)
        assert opened is not None
        stored = {one.job_id: (one.gpu_util, one.gpu_mem_mb) for one in opened[0].export()}
        marked = memory.mark("used")
    assert marked == {"r": {"gpu": 0.31, "cpu": None, "memory": None, "gpu_memory_mb": 8192}}
    assert stored == {"a": (31, 8192), "b": (77, 8192), "c": (None, None), "d": (None, None)}
    assert [one["time"][0] for one in asked] == ["1000.000", "1009.000", "1009.000", "1009.000"]


def test_bounds_are_read_anew_when_they_change_and_can_be_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bounds.yaml"
    path.write_text("poll: 5")
    path.chmod(0o600)
    polls: list[float] = []

    def run(reload: Reload) -> None:
        polls.append(load_bounds(path).poll)
        goes_on = reload.until(lambda: True)
        assert goes_on()
        if len(polls) == 1:
            path.write_text("poll: nonsense")
            assert goes_on()  # named once, and the agent goes on with what it has
            assert goes_on()
            path.write_text("poll: 77")
            assert not goes_on()
        elif len(polls) == 2:
            os.kill(os.getpid(), signal.SIGHUP)
            assert not goes_on()

    keep_running(run, path, "text")
    assert polls == [5.0, 77.0, 77.0]
    told = capsys.readouterr().err
    assert told.count("goes on with the bounds from before") == 1
    assert told.count("the bounds are read anew") == 2


def test_a_log_of_json_has_a_line_a_pass(capsys: pytest.CaptureFixture[str]) -> None:
    def run(_: Reload) -> None:
        agents._log_pass(Pass(cluster="a", time=1.0, pending=3, problems=["x: y"]))

    keep_running(run, None, "json")
    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(one["level"], one["message"]) for one in lines] == [
        ("info", "pass"),
        ("warning", "x: y"),
    ]
    assert (lines[0]["cluster"], lines[0]["pending"], lines[0]["problems"]) == ("a", 3, 1)
