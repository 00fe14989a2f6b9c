"""The scheduler's state as evidence, beside a log or without one."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedmate.jobs import Diagnosis, JobState
from schedmate.logparse.failure import diagnose, of_state, open_job

KEY_ERROR = """\
Epoch 1 loss 0.5
Traceback (most recent call last):
  File "train.py", line 3, in main
    config["lr"]
KeyError: 'lr'
"""


def read(tmp_path: Path, text: str) -> Diagnosis:
    (tmp_path / "job.out").write_text(text)
    with open_job([tmp_path / "job.out"]) as log:
        return diagnose(log)


@pytest.mark.parametrize("state", ["NODE_FAIL", "BOOT_FAIL"])
def test_a_lost_node_needs_no_log(state: JobState) -> None:
    found = of_state(None, state, job="17", nodes=["gpu-1"])
    assert found is not None
    assert (found.error_type, found.error_name) == ("infrastructure", "Node Failure")
    assert (found.faulty_component, found.node, found.origin) == ("node", "gpu-1", "scheduler")
    assert f"job 17 ended {state} on gpu-1" in found.evidence[0].text
    assert found.evidence[0].origin == "scheduler"
    assert found.plan is not None
    assert (found.plan.isolation, found.plan.isolate) == ("confirmed", "node gpu-1")
    assert found.plan.restart == "elsewhere from checkpoint"


def test_of_several_nodes_only_the_one_that_was_lost_is_accused() -> None:
    nodes = ["gpu-1", "gpu-2"]
    found = of_state(None, "NODE_FAIL", nodes=nodes, failed_nodes=["gpu-2"])
    assert found is not None
    assert found.node == "gpu-2"
    unsure = of_state(None, "NODE_FAIL", nodes=nodes)
    assert unsure is not None
    assert unsure.node is None
    assert unsure.plan is not None
    assert unsure.plan.isolation == "needs confirmation"
    assert unsure.plan.isolate is None
    assert "does not say which" in unsure.plan.summary
    both = of_state(None, "NODE_FAIL", nodes=nodes, failed_nodes=nodes)
    assert both is not None
    assert both.node is None
    assert "gpu-1, gpu-2" in both.reason


def test_a_lost_node_explains_what_the_job_printed(tmp_path: Path) -> None:
    text = "torch.distributed.DistBackendError: NCCL error: remote process exited\n"
    log = read(tmp_path, f"Epoch 1 loss 0.5\n{text}")
    found = of_state(log, "NODE_FAIL", nodes=["gpu-1", "gpu-2"], failed_nodes=["gpu-1"])
    assert found is not None
    assert (found.error_name, found.node) == ("Node Failure", "gpu-1")
    assert any("remote process exited" in one.text for one in found.evidence)


def test_a_nodes_own_log_says_more_than_that_it_was_lost() -> None:
    own = Diagnosis(error_type="infrastructure", error_name="ECC Error", origin="node_log")
    assert of_state(own, "NODE_FAIL", nodes=["gpu-1"]) is own


@pytest.mark.parametrize(
    ("state", "error_type", "name"),
    [
        ("OUT_OF_MEMORY", "framework", "Out of Memory"),
        ("TIMEOUT", "none", "Time Limit"),
        ("PREEMPTED", "none", "Preempted"),
        ("CANCELLED", "none", "Cancelled"),
    ],
)
def test_a_state_speaks_where_the_log_is_silent(
    tmp_path: Path, state: JobState, error_type: str, name: str
) -> None:
    for log in (None, read(tmp_path, "Epoch 1 loss 0.5\n"), read(tmp_path, "step 1\nKilled\n")):
        found = of_state(log, state, nodes=["gpu-1"])
        assert found is not None
        assert (found.error_type, found.error_name) == (error_type, name)
        assert found.node is None
        assert found.plan is not None
        assert found.plan.isolation == "none"
    # what the log shows happened first
    log = read(tmp_path, KEY_ERROR)
    assert of_state(log, state, nodes=["gpu-1"]) is log


def test_a_failure_that_the_log_does_not_show_is_unknown_not_none(tmp_path: Path) -> None:
    found = of_state(read(tmp_path, "Epoch 1 loss 0.5\n"), "FAILED", nodes=["gpu-1"])
    assert found is not None
    assert found.error_type == "unknown"
    assert found.plan is not None
    assert "ask the scheduler" not in found.plan.summary
    log = read(tmp_path, KEY_ERROR)
    assert of_state(log, "FAILED") is log
    assert of_state(None, "FAILED") is None
    assert of_state(None, "COMPLETED") is None
