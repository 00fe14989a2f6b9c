"""Past jobs from sacct, CSV and JSON lines."""

from __future__ import annotations

import csv
import gzip
import io
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Cli
from hypothesis import given
from hypothesis import strategies as st

from schedmate.base.errors import InputError, UsageError
from schedmate.commands.history_analysis import RepositoryAnalysis
from schedmate.jobs import JobRecord, LaunchConfig
from schedmate.retrieval.importers import (
    detect_format,
    import_csv,
    import_jsonl,
    open_source,
    parse_assignments,
    parse_mapping,
    read_mapping,
)
from schedmate.retrieval.sacct import (
    ImportReport,
    count_hosts,
    gpus_of,
    import_sacct_json,
    import_sacct_parsable,
    parse_duration,
    parse_size,
    parse_state,
    parse_time,
    parse_tres,
)

HEADER = (
    "JobID|JobName|User|State|Submit|Start|End|ElapsedRaw|TimelimitRaw|AllocTRES|NNodes"
    "|TRESUsageInAve|TRESUsageInMax|WorkDir|SubmitLine"
)


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def table(*rows: str, header: str = HEADER) -> io.StringIO:
    return io.StringIO("\n".join((header, *rows)) + "\n")


class TestValues:
    @pytest.mark.parametrize("text", [None, "", "Unknown", "None", "N/A", " unknown ", "UNLIMITED"])
    def test_no_value(self, text: str | None) -> None:
        assert parse_time(text) is None
        assert parse_duration(text) is None
        assert parse_size(text) is None

    def test_time(self) -> None:
        assert parse_time("2024-01-01T00:00:00") == 1704067200
        assert parse_time("2024-01-01T01:00:00+01:00") == 1704067200
        assert parse_time("1704067200") == 1704067200
        for bad in ("soon", "nan", "inf"):
            with pytest.raises(ValueError, match="is not a time"):
                parse_time(bad)

    def test_time_without_zone_is_local(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("TZ", "JST-9")
        time.tzset()
        assert parse_time("2024-01-01T09:00:00") == 1704067200

    def test_duration(self) -> None:
        assert parse_duration("1-02:03:04") == 93784
        assert parse_duration("02:03:04") == 7384
        assert parse_duration("3600") == 3600
        with pytest.raises(ValueError, match="not a duration"):
            parse_duration("-5")

    def test_size(self) -> None:
        assert parse_size("2K") == 2048
        assert parse_size("1.5G") == 1.5 * 2**30
        assert parse_size("512") == 512
        with pytest.raises(ValueError, match="is not a size"):
            parse_size("much")

    def test_state(self) -> None:
        assert parse_state("CANCELLED by 1000") == "CANCELLED"
        assert parse_state("OUT_OF_ME+") == "OUT_OF_MEMORY"
        assert parse_state("TO") == "TIMEOUT"
        assert parse_state("DEADLINE") == "TIMEOUT"
        for bad in ("", "DONE", "+", "REQUEUE_+X"):
            with pytest.raises(ValueError, match="no Slurm job state"):
                parse_state(bad)

    def test_gpus(self) -> None:
        assert gpus_of(parse_tres("cpu=8,gres/gpu=8,gres/gpu:a100=8,node=1")) == (8, "a100")
        assert gpus_of(parse_tres("gres/gpu:a100=2,gres/gpu:h100=1")) == (3, None)
        assert gpus_of(parse_tres("cpu=8,mem=5G")) == (None, None)
        for text in ("gres/gpu=inf", "gres/gpu:a100=1e400", "gres/gpu=nan"):
            with pytest.raises(ValueError, match="is not a number of GPUs"):
                gpus_of(parse_tres(text))

    @pytest.mark.parametrize(
        ("nodes", "count"),
        [
            ("gpu01", 1),
            ("gpu[01-04,07],login2", 6),
            ("rack[1-2]n[1-3]", 6),
            ("None assigned", None),
            ("", None),
        ],
    )
    def test_hosts(self, nodes: str, count: int | None) -> None:
        assert count_hosts(nodes) == count


class TestSacctTable:
    def test_job_with_steps(self) -> None:
        rows = (
            (
                "17|train|ann|COMPLETED|2024-01-01T00:00:00|2024-01-01T01:00:00"
                "|2024-01-01T03:00:00|7200|1440|billing=8,cpu=64,gres/gpu=8,gres/gpu:a100=8,node=2"
                "|2|||/home/ann/x|sbatch  --gpus=8 train.sh"
            ),
            "17.batch|batch||COMPLETED|||||||1|cpu=00:00:01|||",
            "17.extern|extern||COMPLETED||||7200|||2||||",
            (
                "17.0|python||COMPLETED||||6000|||2|gres/gpumem=30G,gres/gpuutil=90"
                "|gres/gpumem=38G,gres/gpuutil=99||"
            ),
            "17.1|python||COMPLETED||||2000|||2|gres/gpuutil=50|gres/gpumem=1G||",
        )
        (job,) = import_sacct_parsable(table(*rows))
        assert job == JobRecord(
            job_id="17",
            name="train",
            user="ann",
            command="sbatch --gpus=8 train.sh",
            launch=LaunchConfig(gpus=8, nodes=2, gpu_type="a100", time_limit_s=86400),
            state="COMPLETED",
            submit_time=1704067200,
            start_time=1704070800,
            end_time=1704078000,
            duration_s=7200,
            gpu_util=80,
            gpu_mem_mb=38 * 1024,
        )

    def test_any_columns_in_any_order(self) -> None:
        stream = table("FAILED|02:00:00|9_4", header="State|Elapsed|JobID")
        (job,) = import_sacct_parsable(stream)
        assert (job.job_id, job.state, job.duration_s, job.launch.gpus) == (
            "9_4",
            "FAILED",
            7200,
            None,
        )

    def test_trailing_delimiter_and_crlf(self) -> None:
        stream = io.StringIO("JobIDRaw|State|ElapsedRaw|\r\n3|COMPLETED|60|\r\n")
        assert [(job.job_id, job.duration_s) for job in import_sacct_parsable(stream)] == [
            ("3", 60)
        ]

    def test_a_run_time_without_a_column_of_its_own(self) -> None:
        text = (
            "JobID|State|Start|End\n1|COMPLETED|2024-01-01T00:00:00|2024-01-01T02:00:00\n"
            "2|CANCELLED|Unknown|2024-01-01T02:00:00\n3|COMPLETED|2024-01-01T00:00:00|Unknown\n"
        )
        records = import_sacct_parsable(io.StringIO(text))
        assert [one.duration_s for one in records] == [7200.0, None, None]

    def test_pipe_in_the_command(self) -> None:
        header = "JobID|SubmitLine|State|ElapsedRaw"
        (job,) = import_sacct_parsable(
            table("5|sbatch --wrap=python a.py | tee log|COMPLETED|10", header=header)
        )
        assert job.command == "sbatch --wrap=python a.py | tee log"
        assert job.duration_s == 10

    def test_cancelled_before_it_started_has_no_duration(self) -> None:
        stream = table(
            "5|CANCELLED by 1000|2024-01-01T00:00:00|Unknown|2024-01-01T00:05:00|0|Partition_Limit",
            header="JobID|State|Submit|Start|End|ElapsedRaw|Timelimit",
        )
        (job,) = import_sacct_parsable(stream)
        assert (job.state, job.duration_s, job.launch.time_limit_s) == ("CANCELLED", None, None)

    def test_pending_array_is_not_a_job(self) -> None:
        stream = table("8_[3-9]|PENDING", "8_2|RUNNING", header="JobID|State")
        assert [job.job_id for job in import_sacct_parsable(stream)] == ["8_2"]

    def test_bad_rows_are_counted_with_their_line(self) -> None:
        report = ImportReport()
        stream = table(
            "1|COMPLETED|60",
            "2|WHAT|60",
            "3|COMPLETED",
            "",
            "4|COMPLETED|soon",
            "5|FAILED|1",
            header="JobID|State|ElapsedRaw",
        )
        assert [job.job_id for job in import_sacct_parsable(stream, report)] == ["1", "5"]
        assert (report.rows, report.bad) == (5, 3)
        assert [problem.partition(":")[0] for problem in report.problems] == [
            "line 3",
            "line 4",
            "line 6",
        ]

    def test_steps_do_not_leak_over_a_bad_row(self) -> None:
        stream = table(
            "1|COMPLETED|60|",
            "2|COMPLETED|60||x",
            "2.0|COMPLETED|60|gres/gpuutil=10",
            header="JobID|State|ElapsedRaw|TRESUsageInAve",
        )
        (job,) = import_sacct_parsable(stream)
        assert (job.job_id, job.gpu_util) == ("1", None)

    def test_summed_utilisation_is_not_believed(self) -> None:
        stream = table(
            "1|COMPLETED|60|",
            "1.0|COMPLETED|60|gres/gpuutil=640",
            header="JobID|State|ElapsedRaw|TRESUsageInAve",
        )
        (job,) = import_sacct_parsable(stream)
        assert job.gpu_util is None

    @pytest.mark.parametrize("text", ["", "17|COMPLETED\n", "JobID|Elapsed\n17|60\n"])
    def test_header_is_needed(self, text: str) -> None:
        with pytest.raises(InputError, match="not a sacct header"):
            list(import_sacct_parsable(io.StringIO(text)))


def number(value: float | None, infinite: bool = False) -> dict[str, Any]:
    return {"set": value is not None, "infinite": infinite, "number": value or 0}


def sacct_job(**changes: Any) -> dict[str, Any]:
    return {
        "job_id": 17,
        "array": {"job_id": 0, "task_id": number(None), "task": ""},
        "het": {"job_id": 0, "job_offset": number(None)},
        "name": "train",
        "user": "ann",
        "association": {"user": "ann"},
        "allocation_nodes": 2,
        "nodes": "gpu[1-2]",
        "submit_line": "sbatch train.sh",
        "working_directory": "/home/ann/x",
        "state": {"current": ["COMPLETED"], "reason": "None"},
        "time": {
            "elapsed": 7200,
            "submission": 1704067200,
            "start": 1704070800,
            "end": 1704078000,
            "limit": number(1440),
        },
        "tres": {
            "allocated": [
                {"type": "cpu", "name": "", "id": 1, "count": 64},
                {"type": "gres", "name": "gpu", "id": 1001, "count": 8},
                {"type": "gres", "name": "gpu:a100", "id": 1002, "count": 8},
            ]
        },
        "steps": [
            {
                "time": {"elapsed": 7000},
                "tres": {
                    "requested": {
                        "average": [{"type": "gres", "name": "gpuutil", "id": 3, "count": 90}],
                        "max": [{"type": "gres", "name": "gpumem", "id": 4, "count": 38 * 2**30}],
                    }
                },
            }
        ],
        **changes,
    }


def document(*jobs: Any, **more: Any) -> io.StringIO:
    return io.StringIO(json.dumps({**more, "jobs": jobs, "errors": []}, indent=1))


class Trickle(io.StringIO):
    """A stream that gives one character a read, as a slow pipe might."""

    def read(self, size: int | None = -1, /) -> str:
        return super().read(1)


class TestSacctJson:
    def test_same_job_as_the_table(self) -> None:
        (job,) = import_sacct_json(document(sacct_job(), meta={"plugins": {"x": [1, {"y": "]}"}]}}))
        assert job == JobRecord(
            job_id="17",
            name="train",
            user="ann",
            command="sbatch train.sh",
            launch=LaunchConfig(gpus=8, nodes=2, gpu_type="a100", time_limit_s=86400),
            state="COMPLETED",
            submit_time=1704067200,
            start_time=1704070800,
            end_time=1704078000,
            duration_s=7200,
            gpu_util=90,
            gpu_mem_mb=38 * 1024,
        )

    @pytest.mark.parametrize(
        "bad", [float("inf"), float("nan"), -1, 10**40, "", "x", None, [], {}, True]
    )
    def test_whatever_stands_in_a_field_ends_no_import(self, bad: object) -> None:
        def places(value: object, *path: object) -> Iterator[tuple[object, ...]]:
            yield path
            items = value.items() if isinstance(value, dict) else ()
            items = enumerate(value) if isinstance(value, list) else items
            for key, inner in items:
                yield from places(inner, *path, key)

        for *parents, last in list(places(sacct_job()))[1:]:
            job: Any = sacct_job()
            inner = job
            for key in parents:
                inner = inner[key]
            inner[last] = bad
            report = ImportReport()
            records = list(import_sacct_json(document(job, sacct_job()), report))
            assert 1 <= len(records) == report.rows - report.bad
            for problem in report.problems:
                assert "\n" not in problem
                assert "validation error" not in problem

    def test_plain_numbers_and_state_string_of_old_parsers(self) -> None:
        job = sacct_job(state={"current": "TIMEOUT", "reason": "None"})
        job["time"]["limit"] = 60
        job["array"] = {"job_id": 12, "task_id": 3}
        del job["steps"], job["het"]
        (record,) = import_sacct_json(document(job))
        assert (record.job_id, record.state, record.launch.time_limit_s) == (
            "12_3",
            "TIMEOUT",
            3600,
        )

    def test_wrapped_times_infinite_limit_and_flags(self) -> None:
        job = sacct_job(state={"current": ["CANCELLED", "COMPLETING"], "reason": ""})
        job["time"] = {
            "elapsed": number(5),
            "submission": number(1704067200),
            "start": number(1704067300),
            "end": number(0),
            "limit": number(0, infinite=True),
        }
        (record,) = import_sacct_json(document(job))
        assert record.launch.time_limit_s is None
        assert (record.end_time, record.duration_s, record.state) == (None, 5, "CANCELLED")

    def test_never_started(self) -> None:
        job = sacct_job(state={"current": ["CANCELLED"]})
        job["time"] |= {"start": 0, "elapsed": 0}
        (record,) = import_sacct_json(document(job))
        assert record.duration_s is None

    def test_requested_gpus_while_pending(self) -> None:
        job = sacct_job(state={"current": ["PENDING"]})
        job["tres"] = {
            "allocated": [],
            "requested": [{"type": "gres", "name": "gpu", "id": 1, "count": 4}],
        }
        (record,) = import_sacct_json(document(job))
        assert record.launch.gpus == 4

    def test_array_het_and_pending_tasks(self) -> None:
        task = sacct_job(array={"job_id": 12, "task_id": number(0) | {"set": True}, "task": ""})
        rest = sacct_job(array={"job_id": 12, "task_id": number(None), "task": "1-9"})
        het = sacct_job(het={"job_id": 20, "job_offset": number(1)})
        report = ImportReport()
        records = import_sacct_json(document(task, rest, het), report)
        assert [record.job_id for record in records] == ["12_0", "20+1"]
        assert report.rows == 2

    def test_bad_jobs_are_counted(self) -> None:
        report = ImportReport()
        jobs = (sacct_job(), "x", sacct_job(state={"current": ["NEW"]}), {"state": "COMPLETED"})
        assert len(list(import_sacct_json(document(*jobs), report))) == 1
        assert (report.rows, report.bad) == (4, 3)
        assert report.problems[2] == "job 4 (None): no job_id"

    def test_any_chunking(self) -> None:
        text = document(sacct_job(), sacct_job(job_id=123456), meta={"a": 1}).getvalue()
        assert [job.job_id for job in import_sacct_json(Trickle(text))] == ["17", "123456"]

    @pytest.mark.parametrize(
        "text", ["", "[]", "{}", '{"meta": 1}', '{"jobs": {}}', '{"jobs": [1 2]}', "{" * 10]
    )
    def test_not_such_a_document(self, text: str) -> None:
        with pytest.raises(InputError):
            list(import_sacct_json(io.StringIO(text)))

    def test_cut_off_file_gives_what_is_whole_first(self) -> None:
        text = document(sacct_job(), sacct_job(job_id=18)).getvalue()
        records = import_sacct_json(io.StringIO(text[: text.rindex('"elapsed"')]))
        assert next(records).job_id == "17"
        with pytest.raises(InputError, match="ends or breaks early"):
            next(records)

    def test_deep_nesting_is_refused(self) -> None:
        with pytest.raises(InputError):
            list(import_sacct_json(io.StringIO('{"jobs": [' + "[" * 100_000)))


class TestCsv:
    def test_mapping_with_units(self) -> None:
        stream = io.StringIO(
            'id;hours;net;data;util;mem;when;n\na;1.5;ResNet-50;"Image;Net";0.5;2;1704067200000;8\n'
        )
        mapping = parse_mapping(
            [
                "job_id=id", "duration=hours:h", "model=net", "dataset=data",
                "gpu_util=util:fraction", "gpu_mem=mem:GB", "submit=when:ms", "gpus=n",
                "metadata.training_config.hidden=n",
            ]
        )  # fmt: skip
        (job,) = import_csv(stream, mapping)
        assert job.job_id == "a"
        assert job.duration_s == 5400
        assert job.state == "COMPLETED"
        assert job.metadata.model.model_name == "ResNet-50"
        assert job.metadata.dataset.train == "Image;Net"
        assert (job.gpu_util, job.gpu_mem_mb, job.submit_time) == (50, 2048, 1704067200)
        assert job.launch.gpus == 8
        assert job.metadata.get("training_config.hidden") == 8

    def test_columns_named_as_fields_need_no_mapping(self) -> None:
        stream = io.StringIO("job_id,duration_s,state,launch.gpus\n1,60,CANCELLED by 5,2\n2,,,\n")
        first, second = import_csv(stream)
        assert (first.duration_s, first.state, first.launch.gpus) == (60, "CANCELLED", 2)
        assert (second.duration_s, second.state) == (None, "PENDING")

    def test_row_numbers_as_ids(self) -> None:
        stream = io.StringIO("duration_s\n5\n6\n")
        jobs = import_csv(stream, parse_mapping(["job_id=#"]))
        assert [(job.job_id, job.duration_s) for job in jobs] == [("1", 5), ("2", 6)]

    def test_unknown_column_is_named_with_those_there(self) -> None:
        with pytest.raises(
            InputError, match=r"no column hrs in the file; correct --map: the file has id, hours\."
        ):
            list(import_csv(io.StringIO("id,hours\n"), parse_mapping(["duration=hrs", "id=id"])))

    def test_no_job_id(self) -> None:
        with pytest.raises(InputError, match="no column gives the job id"):
            list(import_csv(io.StringIO("duration_s\n5\n")))

    def test_bad_rows(self) -> None:
        report = ImportReport()
        stream = io.StringIO("job_id,duration_s,launch.gpus\n1,x,1\n2,5\n3,5,0.5\n4,-5,1\n5,5,1\n")
        assert [job.job_id for job in import_csv(stream, None, report)] == ["5"]
        assert report.bad == 4
        assert report.problems[0].startswith("line 2: duration_s: 'x' is not a duration")
        assert report.problems[2].startswith("line 4: launch.gpus:")

    @pytest.mark.parametrize(
        ("item", "message"),
        [
            ("duration", "write FIELD=COLUMN"),
            ("lenght=x", "not a field of a job record"),
            ("duration=x:fortnight", "no unit of duration_s"),
            ("metadata.evidence.x=y", "not a field"),
        ],
    )
    def test_bad_mapping(self, item: str, message: str) -> None:
        with pytest.raises(UsageError, match=message):
            parse_mapping([item])

    def test_mapping_file(self, tmp_path: Path) -> None:
        path = tmp_path / "map.yaml"
        path.write_text("job_id: id\nduration: hours:h\n")
        assert read_mapping(path) == parse_mapping(["job_id=id", "duration=hours:h"])
        for text in ("- x\n", "a: [1]\n", "!!python/object:os.system x\n"):
            path.write_text(text)
            with pytest.raises(InputError):
                read_mapping(path)

    def test_assignments(self) -> None:
        record = parse_assignments(["job_id=1", "model=gpt2", "duration=2h", "iters=3.5"])
        assert record.duration_s == 7200
        assert record.metadata.training.iters == 3.5
        for item in ("model", "x=1", "duration=long", "gpus=half"):
            with pytest.raises(UsageError):
                parse_assignments(["job_id=1", item])


class TestJsonLines:
    def test_what_export_writes(self) -> None:
        record = JobRecord(job_id="1", duration_s=5, state="FAILED")
        report = ImportReport()
        text = record.model_dump_json(by_alias=True) + '\n\n{"job_id": 1}\nno\n{"jobid": "2"}\n'
        assert list(import_jsonl(io.StringIO(text), report)) == [record]
        assert (report.rows, report.bad) == (4, 3)
        assert report.problems[0].startswith("line 3: job_id:")

    @given(st.text())
    def test_any_text_is_only_counted(self, text: str) -> None:
        report = ImportReport()
        assert len(list(import_jsonl(io.StringIO(text), report))) + report.bad == report.rows


class TestSource:
    @pytest.mark.parametrize(
        ("head", "expected"),
        [
            ('{"jobs": [', "sacct-json"),
            ('{\n  "meta": {', "sacct-json"),
            ("{\n", "sacct-json"),
            ('{"job_id": "1"}\n', "jsonl"),
            ('{"metadata": {"jobs": 1}, "job_id": "1"}\n', "jsonl"),
            ("Account|JobID|State\n", "sacct"),
            ("\ufeffJobIDRaw|State|\n", "sacct"),
            ("job_id,duration_s\n", "csv"),
            ("a|b|c\n", "csv"),
        ],
    )
    def test_detection(self, head: str, expected: str) -> None:
        assert detect_format(head) == expected

    @pytest.mark.parametrize("head", ["", "\n\n", "hello\n"])
    def test_nothing_to_detect(self, head: str) -> None:
        with pytest.raises(InputError):
            detect_format(head)

    def test_file_and_gz(self, tmp_path: Path) -> None:
        text = b'job_id,name\n1,caf\xe9\n2,"two\nlines"\n'
        plain, packed = tmp_path / "jobs.csv", tmp_path / "jobs.csv.gz"
        plain.write_bytes(text)
        packed.write_bytes(gzip.compress(text))
        for path in (plain, packed):
            with open_source(path) as source:
                assert [job.name for job in source.records()] == ["caf\ufffd", "two\nlines"]
                assert source.position() == source.size == path.stat().st_size

    def test_damaged_gz(self, tmp_path: Path) -> None:
        packed = tmp_path / "jobs.csv.gz"
        packed.write_bytes(gzip.compress(os.urandom(200_000).hex().encode())[:100_000])
        with pytest.raises(InputError, match="damaged"), open_source(packed) as source:
            list(source.records("jsonl"))

    def test_missing_file_and_directory(self, tmp_path: Path) -> None:
        for path in (tmp_path / "none", tmp_path):
            with pytest.raises(InputError, match="cannot read"), open_source(path):
                pass

    def test_rows_are_read_as_they_are_drawn(self) -> None:
        def lines() -> Iterator[str]:
            yield "JobID|State|ElapsedRaw\n"
            for job in range(3):
                yield f"{job}|COMPLETED|5\n"
            raise AssertionError("read ahead")

        records = import_sacct_parsable(lines())  # type: ignore[arg-type]
        assert [next(records).job_id, next(records).job_id] == ["0", "1"]


class TestAnalyser:
    def test_directory_that_is_not_here_is_skipped(self, tmp_path: Path) -> None:
        one, two = (JobRecord(job_id=name, command="python train.py") for name in "12")
        with RepositoryAnalysis(512) as analysis:
            found = list(analysis([(one, str(tmp_path / "gone")), (two, None)]))
            assert sorted(found, key=lambda record: record.job_id) == [one, two]
            assert (analysis.analysed, analysis.skipped) == (0, 2)

    def test_of_several_rows_of_one_job_the_last_one_counts(self, tmp_path: Path) -> None:
        rows = [
            (JobRecord(job_id="1", command="python train.py", duration_s=n), str(tmp_path))
            for n in range(40)
        ]
        with RepositoryAnalysis(512, at_once=4) as analysis:
            assert list(analysis(rows))[-1].duration_s == 39

    def test_called_with_the_working_directory(self) -> None:
        seen: list[tuple[str, str | None]] = []

        def analyse(record: JobRecord, workdir: str | None) -> JobRecord:
            seen.append((record.job_id, workdir))
            return record

        list(import_sacct_json(document(sacct_job()), analyse=analyse))
        list(
            import_sacct_parsable(
                table("1|COMPLETED|/x", header="JobID|State|WorkDir"), analyse=analyse
            )
        )
        stream = io.StringIO("job_id,workdir\n3,/y\n")
        list(import_csv(stream, analyse=analyse))
        assert seen == [("17", "/home/ann/x"), ("1", "/x"), ("3", "/y")]


def test_a_trace_keeps_its_gpus_and_says_what_of_it_is_synthetic(tmp_path: Path, cli: Cli) -> None:
    trace, history = tmp_path / "trace.csv", str(tmp_path / "history")
    made = cli("traces", "synthesize", "venus", "--jobs", "100", "--seed", "1", "--out", str(trace))
    assert made.code == 0, made.err
    found = cli("history", "import", str(trace), "--history", history, "--json")
    assert found.code == 0, found.err
    assert json.loads(found.out)["synthetic"] == 100
    assert "100 synthetic jobs" in found.err
    exported = [
        json.loads(one) for one in cli("history", "export", "--history", history).out.splitlines()
    ]
    rows = {row["job_id"]: row for row in csv.DictReader(io.StringIO(trace.read_text()))}
    assert {one["job_id"]: one["launch"]["gpus"] for one in exported} == {
        id_: int(row["gpus"]) for id_, row in rows.items()
    }
    assert {one["synthetic"] for one in exported} == {rows[exported[0]["job_id"]]["synthetic"]}


def test_columns_of_other_files_are_not_taken_for_those_of_a_trace() -> None:
    (record,) = import_csv(table("1,5,9", header="job_id,submit_s,duration_s"))
    assert record.submit_time is None
    (record,) = import_csv(table("1,0,9,4", header="job_id,submit_s,duration_s,gpus"))
    assert record.launch.gpus == 4
    assert record.synthetic is None


def test_columns_of_job_lists_are_read_and_named(tmp_path: Path, cli: Cli) -> None:
    """The names that `triage` reads; a cell that does not fit leaves its field open."""
    file, history = tmp_path / "jobs.csv", str(tmp_path / "history")
    file.write_text(
        "Job ID,Elapsed,gpus,NodeList,state\n1,90m,8,gpu[01-03],COMPLETED\n2,5,A100:4,gpu07,\n"
    )
    said = cli("history", "import", str(file), "--history", history).err
    assert "read Job ID as job_id, Elapsed as duration_s, gpus as launch.gpus" in said
    assert "a run time without a unit is in seconds" in said
    one, two = import_csv(io.StringIO(file.read_text()))
    assert (one.duration_s, one.launch.gpus, one.launch.nodes) == (5400, 8, 3)
    assert (two.duration_s, two.launch.gpus, two.launch.nodes) == (5, None, 1)
    for header in ("id,start,end,run_s\n1,100,400,300", "id,start_time,end_time\n1,0,300"):
        (one,) = import_csv(io.StringIO(f"{header}\n"))
        assert (one.duration_s, one.state) == (300, "COMPLETED")
    hours = ("--map", "duration=Elapsed:s", "--map", "gpus=gpus", "--map", "job_id=Job ID")
    assert "Elapsed as" not in cli("history", "import", str(file), "--history", history, *hours).err


@pytest.mark.parametrize(
    ("text", "without", "waiting"),
    [
        ("JobID|State\n1|COMPLETED\n2|FAILED\n", 2, 0),
        ("JobID|State|Elapsed\n1|COMPLETED|01:00:00\n2|COMPLETED|\n3|CANCELLED|\n", 1, 0),
        ("JobID|State|Elapsed\n1|PENDING|00:00:00\n2|RUNNING|01:00:00\n", 0, 2),
        ("job_id,user\n1,me\n", 1, 0),
        ("job_id,state,duration_s\n1,COMPLETED,60\n2,PENDING,\n", 0, 1),
        ("job_id,state,duration_s\n1,PENDING,\n2,RUNNING,\n", 0, 2),
        ("job_id,state,duration_s\n1,PENDING,\n2,COMPLETED,\n", 1, 1),
    ],
)
def test_jobs_without_a_run_time_are_counted(
    tmp_path: Path, cli: Cli, text: str, without: int, waiting: int
) -> None:
    file = tmp_path / "jobs"
    file.write_text(text)
    done = cli("history", "import", str(file), "--json", "--history", str(tmp_path / "history"))
    assert done.code == 0, done.err
    assert json.loads(done.out)["without_run_time"] == without
    assert ("without a run time" in done.err) == bool(without)
    said = f"note: {waiting} job{'s' * (waiting != 1)} of the file had not ended"
    assert (said in done.err) == bool(waiting)
    assert ("had not ended" in done.err) == bool(waiting)


KUBERNETES = {
    "apiVersion": "v1",
    "items": [
        {
            "kind": "Job",
            "metadata": {
                "name": "train",
                "namespace": "a",
                "creationTimestamp": "2026-03-01T09:00:00Z",
            },
            "spec": {
                "parallelism": 2,
                "template": {
                    "spec": {
                        "nodeSelector": {"nvidia.com/gpu.product": "A100"},
                        "containers": [
                            {
                                "command": ["python", "train.py"],
                                "resources": {"limits": {"nvidia.com/gpu": "4", "cpu": "8"}},
                            }
                        ],
                    }
                },
            },
            "status": {
                "startTime": "2026-03-01T10:00:00Z",
                "completionTime": "2026-03-01T11:00:00Z",
                "conditions": [{"type": "Complete", "status": "True"}],
            },
        },
        {
            "kind": "PyTorchJob",
            "metadata": {"name": "p"},
            "spec": {
                "pytorchReplicaSpecs": {
                    role: {
                        "replicas": count,
                        "template": {
                            "spec": {
                                "containers": [{"resources": {"limits": {"nvidia.com/gpu": 8}}}]
                            }
                        },
                    }
                    for role, count in (("Master", 1), ("Worker", 3))
                }
            },
            "status": {
                "startTime": "2026-03-01T10:00:00Z",
                "conditions": [
                    {
                        "type": "Failed",
                        "status": "True",
                        "lastTransitionTime": "2026-03-01T10:30:00Z",
                    }
                ],
            },
        },
        {"kind": "Job", "metadata": {"name": "waits"}, "status": {}},
        {"kind": "Job"},
    ],
}
RAY = [
    {"submission_id": "raysubmit_1", "status": "SUCCEEDED", "entrypoint": "python t.py",
     "start_time": 1_700_000_000_000, "end_time": 1_700_000_060_000},
    {"job_id": "02", "submission_id": None, "status": "RUNNING", "start_time": 1_700_000_000_000},
]  # fmt: skip
SQUEUE = {
    "jobs": [
        {
            "job_id": 7,
            "job_state": ["RUNNING"],
            "name": "t",
            "user_name": "ann",
            "start_time": {"set": True, "number": 1_700_000_000},
            "time_limit": {"set": True, "number": 60},
            "tres_alloc_str": "cpu=8,gres/gpu:a100=4",
            "nodes": "gpu[1-2]",
        }
    ]
}


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        (
            KUBERNETES,
            [
                ("a/job/train", "COMPLETED", 3600, 8, "A100"),
                ("default/pytorchjob/p", "FAILED", 1800, 32, None),
                ("default/job/waits", "PENDING", None, None, None),
            ],
        ),
        (RAY, [("raysubmit_1", "COMPLETED", 60, None, None), ("02", "RUNNING", None, None, None)]),
        (SQUEUE, [("7", "RUNNING", None, 4, "a100")]),
    ],
    ids=["kubectl", "ray", "squeue"],
)
def test_lists_of_jobs(document: Any, expected: list[tuple[Any, ...]], tmp_path: Path) -> None:
    file = tmp_path / "jobs.json"
    file.write_text(json.dumps(document, indent=2))
    report = ImportReport()
    with open_source(file) as source:
        records = list(source.records(report=report))
    got = [
        (one.job_id, one.state, one.duration_s, one.launch.gpus, one.launch.gpu_type)
        for one in records
    ]
    assert got == expected
    assert report.bad == (document is KUBERNETES)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("apiVersion: v1\nitems: []\n", "the YAML of kubectl"),
        ("NAME   STATUS   COMPLETIONS\nx  Complete 1/1\n", "the table of kubectl"),
        ("[JobDetails(type=<JobType.SUBMISSION>)]\n", "ray list jobs --format json"),
        ("   JOBID PARTITION     NAME\n 7 gpu x\n", "the table of squeue"),
    ],
)
def test_lists_that_say_too_little_are_refused_by_name(text: str, told: str) -> None:
    with pytest.raises(InputError, match=told):
        detect_format(text)
