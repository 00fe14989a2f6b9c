"""Records of Slurm that no version should print: each is skipped and counted, the others stay."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedmate.cluster.adapter import Skipped
from schedmate.cluster.slurm.adapter import Commands, SlurmAdapter
from schedmate.cluster.slurm.reading import (
    NEWER_COLUMNS,
    SACCT_COLUMNS,
    ShapeError,
    is_complete,
    read_job,
    read_node,
    read_queued,
    with_steps,
)

ROW = {
    **dict.fromkeys([name.lower() for name in (*SACCT_COLUMNS, *NEWER_COLUMNS)], ""),
    "jobid": "7",
    "jobidraw": "7",
    "state": "FAILED",
    "jobname": "train",
    "user": "ann",
    "submit": "1795362000",
    "start": "1795362100",
    "end": "1795362349",
    "elapsedraw": "249",
    "timelimitraw": "60",
    "exitcode": "1:0",
    "nnodes": "1",
    "nodelist": "gpu01",
    "alloctres": "cpu=8,gres/gpu=4,mem=64G,node=1",
    "workdir": "/home/ann",
    "submitline": "sbatch train.sh",
    "restarts": "0",
    "stdout": "/home/ann/slurm-7.out",
}
QUEUED = "7|7|N/A|RUNNING|100|1795362000|1795362100|ann|batch|gpu01|None"
JOB = {
    "job_id": 7,
    "job_state": ["RUNNING"],
    "nodes": "gpu01",
    "partition": "batch",
    "submit_time": {"set": True, "infinite": False, "number": 1795362000},
    "name": "train",
    "user_name": "ann",
    "restart_cnt": 0,
    "gres_detail": ["gpu:4"],
    "excluded_nodes": "",
}
NODE = {
    "name": "gpu01",
    "state": ["IDLE"],
    "gres": "gpu:4",
    "cpus": 8,
    "real_memory": 64_000,
    "partitions": ["batch"],
    "reason": "",
    "tres": "cpu=8,gres/gpu=4",
}
ODD = (
    *("nan", "inf", "-inf", "1e999", "-1", "9" * 4_400, "", "N/A", "Unknown", "HIBERNATING", "\0"),
    *("gpu[1-999999999]", "gpu[", "[", "99-99:99:99:99", "4294967295", "\ud800", "a" * 100_000),
)
odd_text = st.sampled_from(ODD) | st.text(max_size=30)
odd_value: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | odd_text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(odd_text, inner, max_size=3),
    max_leaves=6,
)


def adapter() -> SlurmAdapter:
    return SlurmAdapter(Commands(), cluster="alpha")


@given(st.dictionaries(st.sampled_from(sorted(ROW)), odd_text, min_size=1, max_size=4))
def test_a_row_of_accounting_is_read_or_skipped(damage: dict[str, str]) -> None:
    cluster, whole = adapter(), {**ROW, "jobid": "8", "jobidraw": "8"}
    runs = [run for run in with_steps([{**ROW, **damage}, whole]) if is_complete(run[0], 1.8e9)]
    read = list(
        cluster.unread.sound(runs, lambda run: cluster._ended(*run), "a row", lambda run: "x")
    )
    assert len(read) + cluster.unread.count == len(runs)
    assert [one.raw for one in read][-1] == "8"
    assert bool(cluster.unread.count) == bool(cluster.skipped())


@given(st.dictionaries(st.integers(0, 10), odd_text, min_size=1, max_size=3))
def test_a_line_of_the_queue_is_read_or_skipped(damage: dict[int, str]) -> None:
    cells = QUEUED.split("|")
    for place, text in damage.items():
        cells[place] = text
    unread = Skipped()
    read = list(unread.sound(["|".join(cells), QUEUED], read_queued, "a job", str))
    assert len(read) + unread.count == 2
    assert read[-1] == read_queued(QUEUED)


@pytest.mark.parametrize(("whole", "read"), [(JOB, read_job), (NODE, read_node)])
def test_an_object_is_read_or_skipped(whole: dict[str, Any], read: Any) -> None:
    @given(st.dictionaries(st.sampled_from(sorted(whole)), odd_value, min_size=1, max_size=3))
    def holds(damage: dict[str, Any]) -> None:
        unread = Skipped()
        found = list(unread.sound([{**whole, **damage}, whole], read, "one", str))
        assert len(found) + unread.count == 2
        assert found[-1] == read(whole)

    holds()


def test_a_state_of_a_newer_slurm_costs_its_own_row_only() -> None:
    cluster = adapter()
    rows = [ROW, {**ROW, "jobid": "8", "jobidraw": "8", "state": "HIBERNATED"}]
    runs = with_steps(rows)
    read = list(
        cluster.unread.sound(
            runs, lambda run: cluster._ended(*run), "a row of sacct", lambda run: run[0]["jobid"]
        )
    )
    assert [one.raw for one in read] == ["7"]
    assert cluster.skipped() == ["a row of sacct is skipped: 'HIBERNATED' is no Slurm job state"]
    assert cluster.skipped() == []


def test_output_of_which_nothing_can_be_read_is_refused() -> None:
    unread = Skipped()
    with pytest.raises(ShapeError):
        list(
            unread.sound(
                ["slurm_load_jobs error"], read_queued, "a job", str, none_is_an_error=True
            )
        )
    assert list(unread.sound([], read_queued, "a job", str, none_is_an_error=True)) == []


def test_what_is_wrong_with_another_job_does_not_hide_one(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = adapter()
    monkeypatch.setattr(cluster, "version", lambda: (22, 5))
    odd = {"job_id": {"set": True, "number": "x"}}
    printed = json.dumps({"jobs": [odd, {**JOB, "job_id": 6, "nodes": "["}, JOB]})
    monkeypatch.setattr(cluster.commands, "run", lambda *_, **__: printed)
    found = cluster.job("7")
    assert found is not None
    assert found.user == "ann"
    with pytest.raises(ShapeError):  # but one that is asked for is not taken for gone
        cluster.job("6")
