"""What Slurm's commands print is read in the shapes of every version, or refused."""

from __future__ import annotations

import json
import math
import os
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openapi_values import read, values

from schedmate.cluster.slurm.reading import (
    SACCT_COLUMNS,
    SETTLED_S,
    Job,
    LogRun,
    Node,
    OutageError,
    ShapeError,
    delimiter,
    hosts_of,
    is_complete,
    json_count,
    json_document,
    json_names,
    json_number,
    json_objects,
    known_columns,
    log_path,
    parse_factors,
    parse_rows,
    read_job,
    read_node,
    read_queued,
    submission_of,
    with_steps,
)

FIXTURES = Path(__file__).parent / "fixtures"


def fixture(name: str) -> str:
    return (FIXTURES / name).read_text(encoding="utf-8")


def parse_jobs(printed: str) -> list[Job]:
    return [read_job(row) for row in json_objects(json_document(printed, "squeue"), "jobs", "it")]


def parse_nodes(printed: str) -> list[Node]:
    return [read_node(row) for row in json_objects(json_document(printed, "sinfo"), "nodes", "it")]


# JSON


def test_jobs_of_22_05() -> None:
    jobs = {job.job: job for job in parse_jobs(fixture("squeue-22.05.json"))}
    assert set(jobs) == {"2", "3", "4", "6", "7", "9", "11", "12"}
    assert jobs["2"].state == "FAILED"
    assert jobs["2"].nodes == ("gpu02",)
    assert jobs["6"].nodes == ("gpu01", "gpu02", "gpu04")
    assert (jobs["7"].array, jobs["7"].task) == ("3", 0)
    assert (jobs["3"].array, jobs["3"].task) == ("3", None)
    assert jobs["2"].array is None
    assert jobs["12"].held
    assert not jobs["9"].held
    assert jobs["9"].started is None
    assert jobs["11"].name == "unicode-ü"
    assert jobs["11"].stdout == "/srv/testbed/jobs/out %j.txt"


def test_jobs_of_25_11() -> None:
    jobs = {job.job: job for job in parse_jobs(fixture("squeue-25.11.json"))}
    assert jobs["1"].priority == 10_000
    assert jobs["1"].array is None
    assert (jobs["2"].array, jobs["2"].task) == ("2", 0)
    assert jobs["2"].nodes == ("gpu01", "gpu02", "gpu04")
    assert jobs["3"].states == ("PENDING", "REQUEUE_HOLD")
    assert jobs["3"].held
    assert (jobs["3"].restarts, jobs["3"].excluded) == (1, ("gpu02",))
    assert jobs["4"].ended == 1_795_345_400


def test_an_empty_list_with_errors_is_an_outage_and_no_empty_queue() -> None:
    with pytest.raises(OutageError, match="Failed while looking for jobs"):
        parse_jobs(fixture("squeue-22.05-controller-down.json"))
    whole = json.loads(fixture("squeue-22.05-controller-down.json"))
    assert parse_jobs(json.dumps(whole | {"errors": []})) == []


def test_nodes_of_both_shapes() -> None:
    old = {node.name: node for node in parse_nodes(fixture("sinfo-22.05.json"))}
    assert old["gpu04"].drained
    assert old["gpu04"].busy
    assert not old["gpu04"].healthy
    assert old["gpu04"].reason == "schedmate: v1 xid79"
    assert (old["gpu03"].gpus, old["gpu03"].healthy) == (4, True)
    new = {node.name: node for node in parse_nodes(fixture("scontrol-nodes-25.11.json"))}
    assert new["gpu01"].healthy
    assert new["gpu01"].partitions == ("batch", "urgent")
    assert (new["gpu02"].drained, new["gpu02"].busy, new["gpu02"].gpus_used) == (True, True, 2)
    assert not new["gpu03"].healthy


@pytest.mark.parametrize(
    "printed",
    [
        "",
        "slurm_load_jobs error: Unable to contact slurm controller",
        "[]",
        "{}",
        '{"jobs": {}}',
        '{"jobs": [1]}',
        '{"jobs": [{"job_id": 1}]}',
        '{"jobs": [{"job_id": "x", "job_state": "RUNNING"}]}',
        '{"jobs": [{"job_id": 1, "job_state": {"current": "RUNNING"}}]}',
        '{"jobs": [{"job_id": 1, "job_state": "RUNNING", "nodes": "gpu[01-x]"}]}',
        '{"jobs": [], "errors": "all is lost"}',
        "[" * 100_000,
    ],
)
def test_what_no_version_prints_is_refused(printed: str) -> None:
    with pytest.raises(OutageError):
        parse_jobs(printed)


INT = st.integers(0, 2**32 - 2)


def wrapped(value: int | None) -> dict[str, Any]:
    return {"set": value is not None, "infinite": False, "number": value or 0}


@given(st.none() | INT)
def test_a_number_is_the_same_in_either_shape(value: int | None) -> None:
    assert json_count(value, "x") == json_count(wrapped(value), "x") == value


def test_a_number_without_limit_is_no_count() -> None:
    assert json_number({"set": True, "infinite": True, "number": 0}, "x") == math.inf
    assert json_count({"set": False, "infinite": True, "number": 0}, "x") is None
    for odd in (True, "5", [5], {"value": 5}):
        with pytest.raises(ShapeError):
            json_number(odd, "x")


@given(st.lists(st.sampled_from(["RUNNING", "DRAIN", "batch"]), min_size=1, max_size=3))
def test_names_are_the_same_in_either_shape(some: list[str]) -> None:
    assert json_names(",".join(some), "x") == json_names(some, "x") == tuple(some)


JOB = st.fixed_dictionaries(
    {
        "job_id": st.integers(1, 2**31),
        "job_state": st.sampled_from(["PENDING", "RUNNING", "FAILED"]),
        "restart_cnt": INT,
        "priority": INT,
        "name": st.text(max_size=20),
        "comment": st.text(max_size=20),
    }
)


@given(JOB)
def test_a_job_is_the_same_in_either_shape(job: dict[str, Any]) -> None:
    old = json.dumps({"jobs": [job], "errors": []})
    new = job | {"job_state": [job["job_state"]], "priority": wrapped(job["priority"])}
    assert parse_jobs(old) == parse_jobs(json.dumps({"jobs": [new], "warnings": []}))


DOCUMENTS = sorted(Path(os.environ.get("SLURM_OPENAPI", "/nonexistent")).glob("*.json*"))
"""SchedMD's own documents, where somebody has them: `SLURM_OPENAPI=FOLDER`."""


@pytest.mark.skipif(not DOCUMENTS, reason="SLURM_OPENAPI names no folder of OpenAPI documents")
@pytest.mark.parametrize("path", DOCUMENTS, ids=[path.name for path in DOCUMENTS])
@pytest.mark.parametrize("parse", [parse_jobs, parse_nodes])
def test_whatever_the_published_documents_allow_is_read_or_refused(path: Path, parse: Any) -> None:
    document = read(path)
    kind = "jobs" if parse is parse_jobs else "nodes"
    read_of_it = {
        "jobs": "array_job_id array_task_id job_state state_reason restart_cnt priority partition "
        "user_name name nodes excluded_nodes comment submit_time start_time end_time "
        "standard_output current_working_directory batch_flag requeue",
        "nodes": "state state_flags reason reason_set_by_user reason_changed_at partitions tres "
        "tres_used",
    }[kind]
    endings = {"jobs": ("_job_info", "_job_response_properties"), "nodes": ("_node",)}[kind]
    schemas = document["components"]["schemas"]
    found = [
        schema
        for name, schema in schemas.items()
        if name.endswith(endings) and re.match(r"v0\.0\.(38|4\d)_", name)
    ]
    assert found  # 22.05 prints v0.0.38; the document of two more versions lies beside it
    understood = 0

    @given(st.data())
    def of_one(data: st.DataObject) -> None:
        nonlocal understood
        schema = data.draw(st.sampled_from(found))
        one = data.draw(values(document, schema, frozenset(read_of_it.split())))
        known = {"job_id": 7} if kind == "jobs" else {"name": "gpu01"}
        one |= known | {key: "gpu[01-03]" for key in ("nodes", "excluded_nodes") if key in one}
        with suppress(ShapeError):  # a job without a state, a count that is not a whole number
            understood += len(parse(json.dumps({kind: [one], "errors": []})))

    of_one()
    assert understood > 20


# text


def test_the_queue_as_text() -> None:
    printed = (
        "4|4|0-5%2|PENDING|10000|1795362348|1826898349|alice|batch,urgent||Resources\n"
        "7|4|3|RUNNING|10000|1795362348|1795362349|alice|batch|gpu[01-02]|None\n"
        "8|8|N/A|PENDING|0|1795362348|N/A|bob|batch||JobHeldUser\n"
        "9|9|N/A|PENDING|1|N/A|N/A|bob|batch||Nodes | required (DOWN, DRAINED)\n"
    )
    array, task, held, odd = map(read_queued, printed.splitlines())
    assert (array.job, array.array, array.task) == ("4", "4", None)
    assert (array.started, array.expected) == (None, 1_826_898_349)  # the controller's guess
    assert array.partitions == ("batch", "urgent")
    assert (task.job, task.array, task.task, task.nodes) == ("7", "4", 3, ("gpu01", "gpu02"))
    assert (task.started, task.expected) == (1_795_362_349, None)
    assert held.held
    assert not odd.held
    assert odd.reason == "Nodes | required (DOWN, DRAINED)"


@pytest.mark.parametrize("line", ["slurm_load_jobs error: x", "1|2|3", "x|1|2|P|1|1|1|u|p|n|r"])
def test_a_line_that_is_no_job_is_refused(line: str) -> None:
    with pytest.raises(ShapeError):
        read_queued(line)


def test_factors() -> None:
    assert parse_factors("12 -3000\n4_[0-5%2] 0\n") == {"12": -3000, "4": 0}
    assert parse_factors("") == {}
    with pytest.raises(ShapeError):
        parse_factors("Unable to find jobs matching user/id(s) specified")


# accounting

ASKED = (*SACCT_COLUMNS, "Restarts")


def printed_rows(rows: list[dict[str, str]], between: str) -> str:
    return "".join(
        "".join(row.get(name.lower(), "") + between for name in ASKED) + "\n" for row in rows
    )


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "jobid": st.integers(1, 10**6).map(str),
                "jobname": st.text(max_size=30),
                "submitline": st.text(max_size=30),
            }
        ),
        max_size=4,
    ),
    st.integers(1, 2_000),
)
def test_no_name_or_submit_line_can_pretend_to_be_another_row(
    rows: list[dict[str, str]], size: int
) -> None:
    between = delimiter()
    printed = printed_rows(rows, between)
    # as it comes: a delimiter may stand on the border of two pieces
    pieces = [printed[at : at + size] for at in range(0, len(printed), size)]
    found = list(parse_rows(pieces, ASKED, between))
    assert [{key: row[key] for key in ("jobid", "jobname", "submitline")} for row in found] == rows


def test_a_row_that_is_cut_off_is_refused() -> None:
    between = delimiter()
    whole = printed_rows([{"jobid": "1", "submitline": "sbatch a"}], between)
    for end in range(1, len(whole) - 1):
        with pytest.raises(ShapeError):
            list(parse_rows([whole[:end]], ASKED, between))


def test_steps_belong_to_the_run_above_them() -> None:
    rows = [
        {"jobid": jobid, "jobidraw": raw}
        for jobid, raw in [
            ("3_0", "7"), ("3_0.batch", "7.batch"), ("3_0.0", "7.0"),
            ("3_[1-5]", "3"), ("2", "2"), ("2.batch", "2.batch"), ("2", "2"),
        ]
    ]  # fmt: skip
    found = [(row["jobid"], len(steps)) for row, steps in with_steps(rows)]
    assert found == [("3_0", 2), ("2", 1), ("2", 0)]


def test_a_row_is_incomplete_until_its_end_and_submit_line_are_there() -> None:
    row = {"submitline": "sbatch a.sh", "workdir": "/srv", "end": "1795362349"}
    soon, late = 1_795_362_350.0, 1_795_362_349.0 + SETTLED_S + 1
    assert is_complete(row, soon)
    assert not is_complete(row | {"submitline": ""}, soon)
    assert is_complete(row | {"submitline": ""}, late)
    assert not is_complete(row | {"end": "Unknown"}, late)


def test_only_columns_that_this_sacct_knows_are_asked_for() -> None:
    assert known_columns(" ".join(SACCT_COLUMNS)) == SACCT_COLUMNS
    assert known_columns("StdOut  Restarts\n" + " ".join(SACCT_COLUMNS))[-2:] == (
        "Restarts",
        "StdOut",
    )
    with pytest.raises(ShapeError, match="SubmitLine"):
        known_columns(" ".join(SACCT_COLUMNS[:-1]))


# lists of hosts


@pytest.mark.parametrize(
    ("hostlist", "hosts"),
    [
        ("", ()),
        ("(null)", ()),
        ("None assigned", ()),
        ("gpu01", ("gpu01",)),
        ("gpu[08-10],login2", ("gpu08", "gpu09", "gpu10", "login2")),
        ("gpu[1,3-4]", ("gpu1", "gpu3", "gpu4")),
        ("r[1-2]n[01-02]", ("r1n01", "r1n02", "r2n01", "r2n02")),
        ("a[1-2]-ib.site", ("a1-ib.site", "a2-ib.site")),
    ],
)
def test_a_list_of_hosts(hostlist: str, hosts: tuple[str, ...]) -> None:
    assert hosts_of(hostlist) == hosts


@pytest.mark.parametrize(
    "odd",
    [
        *("gpu[", "gpu[1-", "gpu[2-1]", "gpu[1-999999999]", "-x", "a b", "gpu[1-2]]", "ALL"),
        *("a[1-400]b[1-400]", "gpu[٣]"),
    ],
)
def test_what_is_no_list_of_hosts_is_refused(odd: str) -> None:
    with pytest.raises(ShapeError):
        hosts_of(odd)


@given(st.lists(st.integers(0, 999), min_size=1, max_size=20), st.integers(1, 4))
def test_numbers_keep_their_zeros(numbers: list[int], width: int) -> None:
    written = [str(one).zfill(width) for one in numbers]
    assert hosts_of(f"gpu[{','.join(written)}]") == tuple(f"gpu{one}" for one in written)


# logs

RUN = LogRun(job="17", name="train", user="alice", node="gpu01.site")
TASK = RUN._replace(array="12", task=3)


@pytest.mark.parametrize(
    ("pattern", "run", "path"),
    [
        ("", RUN, "/w/slurm-17.out"),
        ("", TASK, "/w/slurm-12_3.out"),
        ("log-%j.out", RUN, "/w/log-17.out"),
        ("%x/%A_%a.%N", TASK, "/w/train/12_3.gpu01"),
        ("/logs/%u-%5j-%4a-%b", TASK, "/logs/alice-00017-0003-3"),
        ("%%x-%%j-%5j-%x", RUN, "/w/%x-%j-00017-train"),
        ("x\\%j.out", RUN, "/w/x%j.out"),
        ("%n-%t-%s-%q%", RUN, "/w/0-0-batch-%q%"),
    ],
)
def test_a_log_s_pattern(pattern: str, run: LogRun, path: str) -> None:
    assert str(log_path(pattern, "/w", run)) == path


WRAPPED = "#!/bin/sh\n# This script was created by sbatch --wrap.\n\n"
SCRIPT = "#!/bin/sh\n#SBATCH -o 'a b-%j' # c\n\n#SBATCH -e f\nx\n#SBATCH -o no"


@pytest.mark.parametrize(
    ("line", "script", "stdout", "stderr", "command"),
    [
        ("sbatch -Qo../disk-%j.out -N1 t.sh gpt2 30", None, "../disk-%j.out", "", "t.sh gpt2 30"),
        ("sbatch --output=a/%x-%4j -e e-%j t.sh -o o", None, "a/%x-%4j", "e-%j", "t.sh -o o"),
        ("sbatch --out a.log --hold --err=b.log t.sh", None, "a.log", "b.log", "t.sh"),
        # of what follows a word that is no option, only a pattern of Slurm's counts
        ("sbatch --wrap python t.py -o out.bin -o ../d-%j.out", None, "../d-%j.out", "", ""),
        ("sbatch --job-name my job -o x-%j.out t.sh", None, "x-%j.out", "", "job -o x-%j.out t.sh"),
        # and not what the stored script shows to be the job's own
        ("sbatch -N 1 --wrap train -o o-%j.bin", WRAPPED + "train -o o-%j.bin\n", "", "", ""),
        ("sbatch --wrap train -o %j -o d", WRAPPED + "train -o %j\n", "d", "", ""),
        # the script says what the line does not
        ("sbatch -e e t.sh", SCRIPT, "a b-%j", "e", "t.sh"),
        ("sbatch -o", None, "", "", ""),
        ("", None, "", "", ""),
    ],
)
def test_a_submit_line_says_where_the_log_is(
    line: str, script: str | None, stdout: str, stderr: str, command: str
) -> None:
    assert submission_of(line, script) == (stdout, stderr, command)


@given(st.text(), st.none() | st.text())
def test_any_submit_line_is_read(line: str, script: str | None) -> None:
    submission_of(line, script)
