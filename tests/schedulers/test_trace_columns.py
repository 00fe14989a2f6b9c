"""Reading by column says of every row what reading it alone says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schedmate.base.errors import InputError
from schedmate.schedulers.sim import tables as table
from schedmate.schedulers.sim.traces import read_trace, reader
from schedmate.schedulers.sim.workload import Workload

CELLS = {
    "job_id": ["a", "b", "c", "dd", "", " a", "7", "line3"],
    "submit_s": ["0", "1.5", "-3", " 4", "", "x", "nan", "2020-01-01", "2020-01-01T05:00:00+02:00"],
    "duration_s": ["5", "0", "-1", "", "1e300", "inf", "2.5e2", "2020-01-02 03:04:05.25"],
    "gpus": ["1", "2", "0", "-1", "1.5", "", "x", "1e16", "8"],
    "share": ["", "1", "0.5", "0", "2"],
    "vc": ["", "one", "two ", "dreißig"],
    "state": ["", "COMPLETED", "FAILED", "RUNNING", "CANCELLED by 7"],
    "priority": ["", "0", "-2", "1.5", "high"],
    "cpus": ["", "4", "0.5", "-1", "many"],
    "time_limit_s": ["", "60", "0", "soon"],
    "gpu_type": ["", "T4", "T4|A100", "V100 "],
    "gpu_util_pct": ["", "50", "x"],
    "gmem_mb": ["", "1000", "?"],
    "model": ["", "BERT", "ResNet"],
    "iterations": ["", "100", "1.5"],
    "iter_type": ["", "step", "Epoch", "lap"],
    "synthetic": ["", "lengths", "lengths; users"],
    "guess": ["", "1", " 2", "x", "nan"],
}
SLURM = {
    "JobID": ["1", "2", "1.batch", "3.0", ""],
    "Submit": ["2020-01-01T00:00:00", "2020-01-01T01:00:00", "Unknown", "x"],
    "Start": ["2020-01-01T01:00:00", "Unknown", "", "None"],
    "End": ["2020-01-01T02:00:00", "Unknown", "2020-01-01T00:30:00"],
    "State": ["COMPLETED", "RUNNING", "PENDING", "FAILED"],
    "AllocTRES": ["cpu=4,gres/gpu=2", "cpu=4", "gres/gpu:a100=3", "gres/gpu=0"],
    "TimelimitRaw": ["", "UNLIMITED", "30"],
}
PAI = {
    "job_name": ["a", "b", "c"],
    "inst_num": ["1", "2", "", "x"],
    "plan_gpu": ["100", "50", "250", "", "-25"],
    "start_time": ["10", "20.5", ""],
    "end_time": ["30", "25", "5", ""],
    "plan_cpu": ["600", ""],
    "status": ["Terminated", "Failed", "Running"],
}


def tables(cells: dict[str, list[str]]) -> st.SearchStrategy[str]:
    """CSV files of such columns, most rows of cells that make sense."""
    row = st.tuples(
        *(
            st.one_of(st.just(one[0]), st.just(one[-1]), st.sampled_from(one))
            for one in cells.values()
        )
    ).map(",".join)
    odd = st.sampled_from(["", ",", "1,2", " ", '"a', '"a,b",1', "x" * 20])
    rows = st.lists(st.one_of(row, row, row, row, odd), max_size=12)
    quoted = {"AllocTRES": 1}
    separator = "|" if quoted.keys() & cells.keys() else ","
    return rows.map(lambda found: "\n".join([",".join(cells), *found])).map(
        lambda text: text if separator == "," else text.replace(",", "|")
    )


def said(path: Path, *, skip_bad: bool) -> Any:
    """All that reading the file comes to."""
    try:
        found = read_trace(path, skip_bad=skip_bad)
    except InputError as error:
        return str(error)
    return contents(found)


def contents(workload: Workload) -> Any:
    metadata = [one and one.model_dump_json() for one in workload.metadata]
    rest = (workload.profiles, workload.states, workload.vcs, workload.configs, workload.notes)
    jobs = [asdict(job) for job in workload.jobs]
    return repr((jobs, workload.duration_s, *rest, metadata, workload.columns, workload.made_up))


def row_by_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take nothing from columns but which rows use no GPU."""
    times: Callable[..., Any] = reader._times

    def doubtful(*args: Any) -> Any:
        return np.ones_like(times(*args))

    monkeypatch.setattr(reader, "_times", doubtful)


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    text=st.one_of(tables(CELLS), tables(SLURM), tables(PAI)),
    skip_bad=st.booleans(),
    end=st.sampled_from(["", "\n", "\n\n"]),
)
def test_every_way_of_reading_says_the_same(
    tmp_path: Path, text: str, skip_bad: bool, end: str
) -> None:
    path = tmp_path / "trace.csv"
    path.write_text(text + end, encoding="utf-8")
    with pytest.MonkeyPatch.context() as alone:
        row_by_row(alone)
        expected = said(path, skip_bad=skip_bad)
    assert said(path, skip_bad=skip_bad) == expected
    with pytest.MonkeyPatch.context() as small:
        small.setattr(table, "_ROWS", 3)
        assert said(path, skip_bad=skip_bad) == expected
    with pytest.MonkeyPatch.context() as arrow:
        arrow.setattr(table, "_SMALL", 0)
        arrow.setattr(table, "_BYTES", 200)
        assert said(path, skip_bad=skip_bad) == expected


def test_arrow_reads_a_large_plain_file_and_python_what_it_cannot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "trace.csv"
    rows = [f"2020-01-01 00:{n // 60 % 60:02}:{n % 60:02},{n},1,vc{n % 3}" for n in range(20_000)]
    path.write_text("\r\n".join(["timestamp,duration,num_gpus,cluster", *rows]))
    with table.open_table(path) as opened:
        blocks = list(opened.blocks())
    assert {type(block).__name__ for block in blocks} == {"ArrowBlock"}
    assert sum(map(len, blocks)) == 20_000
    whole = contents(read_trace(path))
    monkeypatch.setattr(table, "_arrow_is_there", lambda: False)
    assert contents(read_trace(path)) == whole
    monkeypatch.undo()
    rows[15_000] += ",one cell more"
    path.write_text("\n".join(["timestamp,duration,num_gpus,cluster", *rows]))
    with pytest.raises(InputError, match="line 15002: it has 5 cells, the header 4"):
        read_trace(path)
    assert len(read_trace(path, skip_bad=True)) == 19_999


def test_a_pipe_is_read_once(tmp_path: Path) -> None:
    import os
    import threading

    path = tmp_path / "pipe.csv"
    os.mkfifo(path)
    text = "job_id,submit_s,duration_s,gpus\n" + "".join(f"j{n},{n},5,1\n" for n in range(50_000))
    writer = threading.Thread(target=path.write_text, args=(text,))
    writer.start()
    workload = read_trace(path)
    writer.join()
    assert len(workload) == 50_000


def test_jobs_are_made_once_and_then_count(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("job_id,submit_s,duration_s,gpus,user\na,0,5,1,ann\nb,1,5,2,\nc,2,5,1,\n")
    workload = read_trace(path)
    part = workload.select([0, 2])
    assert [job.id for job in part.jobs] == ["a", "c"]
    assert [job.index for job in part.jobs] == [0, 1]
    assert part.jobs[0].user == "ann"
    assert workload.jobs[1] is workload.jobs[1]
    workload.jobs[1].gpus = 7
    assert workload.requests.gpus.tolist() == [1, 7, 1]
    assert [job.gpus for job in workload.select([1]).jobs] == [7]
