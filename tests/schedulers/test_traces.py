"""Reading traces: formats by their columns, every bad row named by line and reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedmate.errors import InputError, UsageError
from schedmate.schedulers.sim.traces import TraceError, read_trace


def write(folder: Path, text: str) -> Path:
    path = folder / "trace.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_philly_is_sorted_and_keeps_its_virtual_clusters(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "timestamp,duration,num_gpus,gpu_time,cluster\n"
        "2017-10-09 07:01:55,66.0,1,66.0,11cb48\n"
        "2017-10-09 06:13:03,2951.0,8,2951.0,6214e9\n",
    )
    workload = read_trace(path)
    assert [job.gpus for job in workload.jobs] == [8, 1]
    assert workload.vcs == ["6214e9", "11cb48"]
    assert workload.jobs[1].submit_time - workload.jobs[0].submit_time == 48 * 60 + 52
    assert workload.notes == ["rows put in order of submission"]


def test_a_table_with_what_each_job_uses_and_a_prediction(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "job_id,submit_s,duration_s,gpus,model,dataset,batchsize,amp,gpu_util_pct,gmem_util_pct,"
        "gmem_mb,predicted\na,0,89,1,DCGAN,LSUN,64,1,47.5,17.2,2330,97\n",
    )
    workload = read_trace(path)
    assert workload.profiles[0] == (47.5, 17.2, 2330.0, True)
    assert workload.configs == ["DCGAN/LSUN/64/1"]
    assert workload.columns["predicted"] == [97.0]


def test_slurm_accounting_with_typed_gpus_and_a_cancelled_job(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "JobID|Submit|Start|End|State|AllocTRES|User|Partition|TimelimitRaw\n"
        "7|2026-01-01T00:00:00|2026-01-01T01:00:00|2026-01-01T03:00:00|CANCELLED by 0|"
        "cpu=8,gres/gpu:a100=4,gres/gpu=4|ann|gpu|120\n"
        "7.batch|2026-01-01T00:00:00|2026-01-01T01:00:00|2026-01-01T03:00:00|CANCELLED|"
        "cpu=8,gres/gpu=4|||\n"
        "8|2026-01-01T00:00:00|2026-01-01T01:00:00|2026-01-01T03:00:00|COMPLETED|cpu=8|ann|gpu|\n",
    )
    workload = read_trace(path)
    (job,) = workload.jobs
    assert (job.gpus, job.user, job.time_limit_s) == (4, "ann", 7200.0)
    assert workload.duration_s == [7200.0]
    assert workload.states == ["CANCELLED"]
    assert workload.notes == [
        "2 rows left out: no GPU, not a job of its own, never ran or not over"
    ]


def test_fractions_of_a_gpu(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
        "deletion_time,scheduled_time\np,6000,12288,1,460,,LS,Running,100,500,200\n",
    )
    workload = read_trace(path)
    assert workload.jobs[0].share == 0.46
    assert workload.jobs[0].cpus == 6.0
    assert workload.duration_s == [300.0]


def test_columns_of_an_unknown_format_can_be_named(tmp_path: Path) -> None:
    path = write(tmp_path, "t0,len,n\n5,10,2\n")
    workload = read_trace(path, columns={"submit": "t0", "duration": "len", "gpus": "n"})
    assert (workload.jobs[0].submit_time, workload.jobs[0].gpus) == (5.0, 2)
    with pytest.raises(UsageError, match="no column 'size'"):
        read_trace(path, columns={"submit": "t0", "duration": "len", "gpus": "size"})


HEADER = "job_id,submit_s,duration_s,gpus\n"


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ("b,1,-5,1", "line 3: the duration is negative"),
        ("b,1,x,1", "line 3: duration is 'x', neither seconds nor a date"),
        ("b,,5,1", "line 3: submission is missing"),
        ("b,nan,5,1", "line 3: submission is 'nan'"),
        ("b,1,5,1.5", "line 3: gpus is '1.5', not a whole number"),
        ("b,1,5,-1", "line 3: gpus is '-1'"),
        ("b,1,5", "line 3: it has 3 cells, the header 4"),
        ("b,1,5,", "line 3: gpus is ''"),
        ("a,1,5,1", "line 3: job a is already on line 2"),
    ],
)
def test_a_bad_row_is_named_by_line_and_can_be_left_out(
    tmp_path: Path, row: str, reason: str
) -> None:
    path = write(tmp_path, HEADER + "a,0,5,1\n" + row + "\n")
    with pytest.raises(TraceError, match=reason):
        read_trace(path)
    assert len(read_trace(path, skip_bad=True)) == 1


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "has the columns none"),
        (HEADER, "has no job that used a GPU"),
        ("a,b\n1,2\n", "has the columns a, b, which are those of no known trace"),
    ],
)
def test_a_file_that_is_no_trace(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        read_trace(write(tmp_path, text))


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot read"):
        read_trace(tmp_path / "absent.csv")
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(InputError, match="no text in UTF-8"):
        read_trace(binary)
