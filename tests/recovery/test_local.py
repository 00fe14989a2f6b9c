"""Commands of a site: ended in time, bounded, and never read by a shell."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
from processes import ends

from schedmate.cluster.actions import Diagnose, Drain, Hold, Notify, Release, Requeue
from schedmate.cluster.adapter import ExecutorError
from schedmate.cluster.recovery import local
from schedmate.cluster.recovery.configuration import Commands, Configuration
from schedmate.cluster.recovery.diagnosing import Diagnosing, fill_command
from schedmate.cluster.recovery.local import LocalExecutor, run_command


def executor(tmp_path: Path, **outputs: str) -> LocalExecutor:
    """Commands that print what they are told to."""
    made = {}
    for name, text in outputs.items():
        (tmp_path / name).write_text(text)
        made[name] = ("cat", str(tmp_path / name))
    return LocalExecutor(Commands.model_validate(made))


def test_what_a_command_starts_ends_with_it(tmp_path: Path) -> None:
    script = f"sleep 300 >/dev/null 2>&1 & echo $! > {tmp_path / 'pid'}; echo ready"
    ran = run_command(("sh", "-c", script), 60.0)
    assert (ran.exit_code, ran.output) == (0, "ready\n")
    assert ends(int((tmp_path / "pid").read_text()))


def test_a_command_has_its_time() -> None:
    ran = run_command(("sleep", "300"), 0.3)
    assert ran.exit_code is None
    assert ran.detail == "sleep did not end within 0.3 s"


def test_endless_output_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "LONGEST_OUTPUT", 1000)
    ran = run_command((sys.executable, "-c", "print('x' * 1000000)"), 60.0)
    assert (ran.exit_code, len(ran.output)) == (0, 1000)


@pytest.mark.parametrize("command", [("/no/such/program",), ("/etc/passwd",), ("a\0b",)])
def test_what_cannot_be_started_is_known_not_to_have_run(command: tuple[str, ...]) -> None:
    assert run_command(command, 1.0).exit_code == 127


def test_nothing_is_read_by_a_shell(tmp_path: Path) -> None:
    words = fill_command(
        ("echo", "{text}", "{node}"), text=f"$(touch {tmp_path / 'ran'})", node="{text}"
    )
    assert run_command(words, 10.0).output == f"$(touch {tmp_path / 'ran'}) {{text}}\n"
    assert os.listdir(tmp_path) == []  # noqa: PTH208


@pytest.mark.parametrize(
    ("line", "state"),
    [
        ("gpu-7 train up", "ready"),
        ("gpu-7 train drained schedmate: x-1", "done"),
        ("gpu-7 train drained schedmate: x-2", "moot"),
        ("gpu-7 train down", "moot"),
        ("gpu-8 train up", "changed"),
    ],
)
def test_a_node_is_looked_up(tmp_path: Path, line: str, state: str) -> None:
    found = executor(tmp_path, nodes=f"\n{line}\ngpu-9 train,debug up\n")
    drain = Drain(node="gpu-7", mark="x-1")
    assert found.probe(drain).state == state
    back = {"ready": "moot", "done": "ready", "moot": "changed", "changed": "changed"}[state]
    undo = drain.undo()
    assert undo is not None
    assert found.probe(undo).state == back
    inventory = found.inventory()
    assert inventory.partitions["debug"] == {"gpu-9"}
    assert ("gpu-7" in inventory.out) is ("up" not in line)
    assert ("gpu-7" in inventory.ours) is ("schedmate" in line)


@pytest.mark.parametrize(
    ("said", "requeue", "hold", "release"),
    [
        ("0 FAILED", "ready", "changed", "changed"),
        ("1 PENDING", "done", "ready", "done"),
        ("0 PENDING", "moot", "ready", "done"),
        ("2 RUNNING", "changed", "changed", "changed"),
        ("0 HELD", "ready", "done", "ready"),
    ],
)
def test_a_job_is_looked_up(
    tmp_path: Path, said: str, requeue: str, hold: str, release: str
) -> None:
    found = executor(tmp_path, job=said)
    assert found.probe(Requeue(job="17", run=0)).state == requeue
    assert found.probe(Hold(job="17")).state == hold
    assert found.probe(Release(job="17")).state == release


@pytest.mark.parametrize("text", ["", "nonsense", "gpu-7 train sideways", "\0"])
def test_what_cannot_be_read_is_no_answer(tmp_path: Path, text: str) -> None:
    found = executor(tmp_path, nodes=text or "x", job=text)
    with pytest.raises(ExecutorError):
        found.probe(Drain(node="gpu-7", mark="x-1"))
    with pytest.raises(ExecutorError):
        found.probe(Requeue(job="17", run=0))


def test_what_a_site_cannot_do_has_not_been_done(tmp_path: Path) -> None:
    found = executor(tmp_path, nodes="gpu-7 train up\n")
    answer = found.act(Drain(node="gpu-7", mark="x-1"), key="k", timeout_s=1.0)
    assert (answer.outcome, answer.detail) == ("failed", "recovery.yaml names no command drain")
    told = found.act(Notify(to="operator", text="x"), key="k", timeout_s=1.0)
    assert told.outcome == "failed"


def test_diagnostics_that_do_not_run_blame_nobody(tmp_path: Path) -> None:
    configuration = Configuration.model_validate(
        {"diagnostics": {"gpu": {"command": ["/no/dcgmi", "{node}"], "reads": "dcgm"}}}
    )
    inner = executor(tmp_path)
    found = Diagnosing(inner, inner, configuration)
    answer = found.act(Diagnose(diagnostic="gpu", nodes=("a1", "a2")), key="k", timeout_s=1.0)
    assert {one["state"] for one in answer.data["nodes"].values()} == {"unclear"}
    assert found.probe(Diagnose(diagnostic="other", nodes=("a1",))).state == "changed"
