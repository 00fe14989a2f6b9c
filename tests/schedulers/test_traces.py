"""Reading traces: formats by their columns, every bad row named by line and reason."""

from __future__ import annotations

import csv
import gzip
import json
import math
import re
import statistics
from dataclasses import asdict
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from schedmate.base.errors import InputError, UsageError
from schedmate.cli import application
from schedmate.schedulers.sim.traces import TraceError, read_trace
from schedmate.schedulers.sim.traces.assign import assign
from schedmate.schedulers.sim.traces.recipe import parse_recipe
from schedmate.schedulers.sim.traces.writer import (
    cut_to_gpus,
    cut_window,
    draw_jobs,
    draw_share,
    trace_facts,
    write_trace,
)
from schedmate.schedulers.sim.workload import Workload

app = application("simulate", "traces")


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
        ("", "is empty; a trace has a header"),
        (HEADER, "has no job: it has no rows"),
        (HEADER + "1,0,5,0\n", "none of its 1 rows is a job that used"),
        (HEADER + "1,0,-5,1\n", "has a bad row: line 2: the duration is negative"),
        ("job_id,submit_s,gpus\n1,0,1\n", "the format schedmate needs duration_s too"),
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
    with pytest.raises(InputError, match="not text in UTF-8"):
        read_trace(binary)


def test_a_packed_trace_reads_the_same(tmp_path: Path) -> None:
    rows = "".join(f"j{n},{n},{60 + n},1\n" for n in range(30_000))  # more than Python reads alone
    plain = write(tmp_path, f"job_id,submit_s,duration_s,gpus\n{rows}")
    packed = tmp_path / "trace.csv.gz"
    packed.write_bytes(gzip.compress(plain.read_bytes()))
    both = [
        [(job.id, job.submit_time, job.gpus) for job in read_trace(one).jobs]
        for one in (packed, plain)
    ]
    assert both[0] == both[1]
    assert read_trace(packed).duration_s == read_trace(plain).duration_s
    write_trace(read_trace(plain), packed)
    assert read_trace(packed).duration_s == read_trace(plain).duration_s
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(InputError, match="damaged"):
        read_trace(packed)
    packed.write_text("not packed")
    with pytest.raises(InputError, match="damaged"):
        read_trace(packed)


HELIOS = (
    "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
    "1425511,uXBbc,vcJkd,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,"
    "2020-06-10 04:55:09,36848,0\n"
    "1425512,uVMrF,vchbv,4,16,1,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,"
    "2020-06-09 18:45:36,249,0\n"
    "1425513,uzqls,vcpDC,0,1,1,CANCELLED,2020-06-09 18:41:28,2020-06-09 18:41:28,"
    "2020-06-17 14:15:21,675233,0\n"
)


def test_the_sample_rows_of_helios(tmp_path: Path) -> None:
    workload = read_trace(write(tmp_path, HELIOS))
    assert [job.id for job in workload.jobs] == ["1425511", "1425512"]
    assert workload.duration_s == [36848.0, 249.0]
    assert workload.states == ["COMPLETED", "FAILED"]
    assert workload.vcs == ["vcJkd", "vchbv"]
    assert workload.jobs[1].user == "uVMrF"
    assert workload.jobs[1].cpus == 16
    assert workload.notes == ["1 row left out: no GPU, not a job of its own, never ran or not over"]


def test_the_sample_rows_of_acme_whose_durations_count_the_wait_in_kalos(tmp_path: Path) -> None:
    seren = read_trace(
        write(
            tmp_path,
            "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,"
            "duration,queue,gpu_time\n"
            "5778432,u5907,1,8,128,Other,FAILED,2023-03-01 00:18:22+08:00,"
            "2023-03-01 00:18:54+08:00,2023-03-01 00:20:51+08:00,117,32,936.0\n",
        )
    )
    assert seren.duration_s == [117.0]
    assert seren.jobs[0].submit_time == 1677601102.0
    assert seren.jobs[0].name == "Other"
    kalos = read_trace(
        write(
            tmp_path,
            "job_id,user,node_num,gpu_num,cpu_num,mem_per_pod_GB,shared_mem_per_pod,type,state,"
            "submit_time,start_time,end_time,fail_time,stop_time,duration,queue,gpu_time\n"
            "dlctk,uf794,8,64,960,1000,100.0,Other,FAILED,2023-05-17 11:00:58+00:00,"
            "2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,2023-05-17 11:01:16+00:00,,18,"
            "10.0,1152.0\n"
            "dlc2,uf794,8,64,960,1000,100.0,Other,CANCELLED,2023-05-17 11:00:59+00:00,,"
            "2023-05-17 11:01:16+00:00,,,18,10.0,1152.0\n",
        )
    )
    assert kalos.duration_s == [8.0]
    assert "1 row left out" in kalos.notes[0]


def test_tasks_of_pai_add_up_to_jobs(tmp_path: Path) -> None:
    workload = read_trace(
        write(
            tmp_path,
            "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,"
            "gpu_type\n"
            "a,tensorflow,1.0,Terminated,1739162.0,1739200.0,600.0,29.3,50.0,MISC\n"
            "b,ps,1.0,Terminated,2000000.0,2000100.0,600.0,29.3,,MISC\n"
            "b,worker,2.0,Terminated,2000010.0,2000100.0,400.0,29.3,100.0,T4\n"
            "b,evaluator,1.0,Failed,2000020.0,2000090.0,400.0,29.3,50.0,T4\n"
            "c,worker,1.0,Running,2000020.0,,400.0,29.3,50.0,T4\n",
        )
    )
    first, second = workload.jobs
    assert (first.gpus, first.share, first.cpus) == (1, 0.5, 6.0)
    assert (second.gpus, second.share, second.cpus) == (3, 1.0, 12.0)
    assert workload.duration_s == [38.0, 90.0]
    assert workload.states == ["COMPLETED", "FAILED"]
    assert "1 jobs with a part of a further GPU were given all of it" in workload.notes


def test_the_file_of_pais_simulator(tmp_path: Path) -> None:
    workload = read_trace(
        write(
            tmp_path,
            "job_id,user,num_gpu,num_cpu,submit_time,duration,gpu_type\n"
            "1,u,0.25,6,10,100,V100\n2,u,2,6,20,50,T4\n",
        )
    )
    assert [(job.gpus, job.share) for job in workload.jobs] == [(1, 0.25), (2, 1.0)]
    with pytest.raises(TraceError, match="line 2: it asks for -1 GPUs"):
        read_trace(write(tmp_path, "job_id,num_gpu,num_cpu,submit_time,duration\n1,-1,6,10,100\n"))


def test_chronus_counts_minutes_and_names_models(tmp_path: Path) -> None:
    workload = read_trace(
        write(
            tmp_path,
            "job_id,user,num_gpu,submit_time,iterations,model_name,duration,interval,"
            "expect_time_list,expect_value_list,best_effort,job_type\n"
            "0,vc_6214e9,1,8555,5049,vgg16,747,14,1105,10,0,strict\n",
        )
    )
    assert (workload.jobs[0].submit_time, workload.duration_s) == (8555 * 60, [747 * 60])
    assert workload.vcs == ["vc_6214e9"]
    metadata = workload.metadata[0]
    assert metadata is not None
    assert metadata.get("model_config.model_name") == "vgg16"
    assert metadata.get("training_config.iters") == 5049


def test_a_pod_that_never_ran_has_no_duration(tmp_path: Path) -> None:
    header = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
        "deletion_time,scheduled_time\n"
    )
    ran = "a,6000,12288,1,460,,LS,Failed,100,500,200\n"
    workload = read_trace(write(tmp_path, header + ran + "b,6,1,1,460,,LS,Pending,100,500,\n"))
    assert len(workload) == 1
    assert "1 row left out" in workload.notes[0]


def test_running_and_pending_jobs_of_slurm_are_left_out(tmp_path: Path) -> None:
    workload = read_trace(
        write(
            tmp_path,
            "JobID|Submit|Start|End|State|AllocTRES|TimelimitRaw|\n"
            "7|2026-01-01T00:00:00|2026-01-01T01:00:00|2026-01-01T03:00:00|TIMEOUT|"
            "gres/gpu=4|UNLIMITED|\n"
            "8|2026-01-01T00:00:00|2026-01-01T01:00:00|Unknown|RUNNING|gres/gpu=4|60|\n"
            "9|2026-01-01T00:00:00|Unknown|Unknown|PENDING|gres/gpu=4|60|\n",
        )
    )
    assert [(job.id, job.time_limit_s) for job in workload.jobs] == [("7", None)]


def test_a_mapping_says_units_and_its_own_mistakes(tmp_path: Path) -> None:
    path = write(tmp_path, "t0;len;n\n5;1.5;2\n")
    workload = read_trace(path, columns={"submit": "t0:m", "duration": "len:h", "gpus": "n"})
    assert (workload.jobs[0].submit_time, workload.duration_s) == (300.0, [5400.0])
    for columns, message in (
        ({"submit": "t0", "length": "len"}, "no field 'length'"),
        ({"submit": "t0", "gpus": "n"}, "names no column for duration"),
        ({"submit": "t0", "duration": "len"}, "names no column for gpus"),
        ({"submit": "t0", "duration": "len:x", "gpus": "n"}, "no column 'len:x'"),
    ):
        with pytest.raises(UsageError, match=message):
            read_trace(path, columns=columns)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@settings(
    max_examples=15,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_what_is_written_reads_back_the_same(
    tmp_path: Path, ending: str, data: st.DataObject
) -> None:
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    seconds = st.floats(0, 1e9, allow_nan=False)
    one = st.tuples(seconds, seconds, st.integers(1, 99))
    rows = data.draw(st.lists(one, min_size=1, max_size=8))
    letters = st.sampled_from("=+-@'") | st.characters(exclude_categories=["Cs", "Cc", "Z"])
    text = st.text(letters, max_size=8)
    workload = Workload.of(rows)
    for job in workload.jobs:
        job.user, job.name = data.draw(text), data.draw(text)
        job.share = data.draw(st.sampled_from([1.0, 0.25])) if job.gpus == 1 else 1.0
        job.priority, job.vc = data.draw(st.integers(-3, 3)), data.draw(st.sampled_from("ab"))
    workload.vcs = [job.vc for job in workload.jobs]
    workload.states = [data.draw(st.sampled_from(["COMPLETED", "TIMEOUT"])) for _ in rows]
    if data.draw(st.booleans()):
        workload = assign(workload, *parse_recipe(f"lucid:seed={data.draw(st.integers(0, 9))}"))
    path = tmp_path / f"trace.{ending}"
    write_trace(workload, path)
    if ending == "csv":
        with path.open(newline="") as stream:
            cells = (
                cell
                for row in csv.DictReader(stream)
                for cell in (row.get("user"), row.get("name"))
            )
            assert not any(cell and cell[0] in "=+-@" for cell in cells)  # no formulas
    again = read_trace(path)
    assert [asdict(job) for job in again.jobs] == [asdict(job) for job in workload.jobs]
    for name in ("duration_s", "profiles", "states", "vcs", "columns", "made_up", "synthetic"):
        assert getattr(again, name) == getattr(workload, name), name
    assert again.metadata == workload.metadata
    assert again.configs == workload.configs


def test_parts_of_a_trace_keep_whole_users_windows_and_counts() -> None:
    workload = Workload.of([(float(at), 10.0, 1) for at in range(1000)])
    for job in workload.jobs:
        job.user = f"u{job.index % 10}"
    part = cut_window(workload, 100, 200)
    assert [job.submit_time for job in part.jobs] == [float(at) for at in range(100, 200)]
    assert part.jobs[0].index == 0
    some = draw_share(workload, [job.user for job in workload.jobs], 0.3, seed=5)
    assert len({job.user for job in some.jobs}) == 3
    assert len(some) == 300
    few = draw_jobs(workload, 250, seed=1)
    assert len(few) == 250
    assert [job.id for job in few.jobs] == [job.id for job in draw_jobs(workload, 250, 1).jobs]
    workload.jobs[5].gpus = 16
    assert [len(cut_to_gpus(workload, 16)), len(cut_to_gpus(workload, 8))] == [1000, 999]
    assert 400 < statistics.median(job.submit_time for job in few.jobs) < 600
    for wrong in (
        lambda: cut_window(workload, 5000, 6000),
        lambda: draw_share(workload, [""] * 1000, 0.5, 0),
        lambda: draw_share(workload, ["a"] * 1000, 0, 0),
        lambda: draw_jobs(workload, 1001, 0),
        lambda: cut_to_gpus(workload, 0.5),
    ):
        with pytest.raises(UsageError):
            wrong()


def test_how_often_jobs_of_a_real_trace_recur() -> None:
    workload = Workload.of([(0, 10, 1), (1, 20, 1), (2, 10, 2), (3, 40, 1)])
    assert "recurrence" not in trace_facts(workload)
    for job in workload.jobs:
        job.user, job.name = "ann", "train"
    found = trace_facts(workload)
    assert found["recurrence"] == 0.5
    assert found["spread"] == pytest.approx(math.log(2))


def test_convert_and_sample_commands(tmp_path: Path) -> None:
    source = write(tmp_path, HELIOS)
    run = CliRunner().invoke(app, ["traces", "convert", str(source)])
    assert run.exit_code == 0, run.output
    assert run.stdout.splitlines()[0].startswith("job_id,submit_s,duration_s,gpus,vc,user,state")
    out = tmp_path / "out.csv"
    command = ["traces", "convert", str(source), "--workloads", "lucid:seed=3", "-o", str(out)]
    run = CliRunner().invoke(app, command)
    assert "2 jobs written" in run.stderr
    assert "synthetic: workloads by lucid, seed 3" in run.stderr
    run = CliRunner().invoke(app, ["traces", "check", str(out)])
    assert "origin = synthetic; workloads by lucid, seed 3" in run.stdout
    run = CliRunner().invoke(app, ["traces", "check", str(out), "--json"])
    document = json.loads(run.stdout)
    assert document["schema"] == "schedmate.trace/v1"
    assert (document["jobs"], document["synthetic"], document["recurrence"]) == (2, True, 0.0)
    run = CliRunner().invoke(app, ["traces", "sample", str(out), "--users", "0.5"])
    assert "jobs: 1 (of 2)" in run.stderr
    assert len(run.stdout.splitlines()) == 2
    before = out.read_text()
    run = CliRunner().invoke(app, ["traces", "convert", str(tmp_path / "no"), "-o", str(out)])
    assert isinstance(run.exception, InputError)
    assert out.read_text() == before


PLAIN = "job_id,submit_s,duration_s,gpus\n1,0,10,1\n2,5,10,2\n"


def test_what_nobody_says_of_its_origin_is_unstated(tmp_path: Path) -> None:
    path = write(tmp_path, PLAIN)
    workload = read_trace(path)
    assert (workload.origin, workload.synthetic) == ("unstated", False)
    assert "nothing says whether these jobs are recorded" in workload.notes[0]
    assert read_trace(write(tmp_path, HELIOS)).origin == "recorded"
    chronus = "num_gpu,submit_time,duration,expect_time_list,job_id\n1,0,5,3,a\n"
    assert read_trace(write(tmp_path, chronus)).made_up[0].startswith("models, iterations")


@pytest.mark.parametrize("origin", ["recorded", "synthetic: durations scaled by 3"])
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_a_label_given_once_stays(tmp_path: Path, origin: str, ending: str) -> None:
    if ending == "parquet":
        pytest.importorskip("pyarrow")
    out = tmp_path / f"labelled.{ending}"
    path = write(tmp_path, PLAIN)
    command = ["traces", "convert", str(path), "-o", str(out), "--origin", origin]
    assert CliRunner().invoke(app, command).exit_code == 0
    kind, _, what = origin.partition(": ")
    back = read_trace(out)
    assert (back.origin, back.made_up) == (kind, (what,) if what else ())
    assert read_trace(out, origin="synthetic: more").made_up == (*filter(None, (what,)), "more")
    # Without a label, none is invented on the way.
    write_trace(read_trace(path), out)
    assert read_trace(out).origin == "unstated"


def test_gpu_types_that_are_not_taken_are_counted(tmp_path: Path) -> None:
    workload = read_trace(
        write(tmp_path, "job_id,submit_s,duration_s,gpus,gpu_type\n1,0,1,1,T4|A10\n")
    )
    assert workload.jobs[0].gpu_type == "T4"
    assert "1 jobs that take any of several GPU types ask for the first only" in workload.notes


def test_a_row_that_was_made_up_labels_the_whole(tmp_path: Path) -> None:
    path = write(tmp_path, "job_id,submit_s,duration_s,gpus,synthetic\n1,0,1,1,\n2,0,1,1,drawn\n")
    assert read_trace(path).made_up == ("drawn",)
    with pytest.raises(UsageError, match="states that it is synthetic"):
        read_trace(path, origin="recorded")


@pytest.mark.parametrize("origin", ["real", "synthetic", "synthetic:", "recorded: yes", ""])
def test_a_label_that_is_none_is_refused(tmp_path: Path, origin: str) -> None:
    with pytest.raises(UsageError, match="write recorded, or what is synthetic"):
        read_trace(write(tmp_path, PLAIN), origin=origin)


def test_every_result_says_what_its_trace_is(tmp_path: Path) -> None:
    path, out = write(tmp_path, PLAIN), tmp_path / "out"
    base = ["simulate", str(path), "--policy", "fifo", "--cluster", "1x4", "--out", str(out)]
    summary = out / "fifo" / "summary.json"
    for arguments, origin, said, badge in (
        ([], "unstated", "a trace of unstated origin", "origin unstated"),
        (["--origin", "recorded"], "recorded", "a recorded trace", None),
        (["--origin", "synthetic: all"], "synthetic", "not a recorded one", "synthetic trace"),
    ):
        # A kept run of another label is not taken for this one.
        run = CliRunner().invoke(app, [*base, *arguments])
        assert said in run.stdout
        assert json.loads(summary.read_text())["origin"] == origin
        page = (out / "report.html").read_text()
        title = page[page.index("<h1>") : page.index("</h1>")]
        assert (badge in title) if badge else "badge" not in title


@pytest.mark.parametrize(
    ("row", "cluster", "message"),
    [
        ("a,0,5,16,,", "1x8", "job a asks for 16 GPUs: more than its nodes can .* --max-gpus 15`"),
        ("a,0,5,16,,\nb,0,5,9,,\nc,0,5,1,,", "1x8", "job a .* .1 more cannot run there either"),
        ("a,0,5,1,,H100", "1x8:A100", "job a asks for 1 GPU of type H100: the cluster's GPUs are"),
        ("a,0,5,4,x,", "1x2@x,1x8@y", "job a asks for 4 GPUs in virtual cluster 'x': more than"),
        ("a,0,5,4,x,", "1x8@y", "in virtual cluster 'x': no node is open to it: .* are of y"),
        ("a,0,5,4,,H100", "1x8:A100", "4 GPUs of type H100: the cluster's GPUs are of type A100"),
    ],
)
def test_a_job_that_the_cluster_can_never_hold_is_named_with_the_reason(
    tmp_path: Path, row: str, cluster: str, message: str
) -> None:
    path = write(tmp_path, f"job_id,submit_s,duration_s,gpus,vc,gpu_type\n{row}\n")
    out = tmp_path / "out"
    command = ["simulate", str(path), "--policy", "fifo", "--cluster", cluster, "--out", str(out)]
    run = CliRunner().invoke(app, command)
    assert isinstance(run.exception, InputError)
    assert re.search(message, str(run.exception))
    assert not out.exists()
