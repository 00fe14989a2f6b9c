"""Values that any reader takes, and the places that see to it."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Cli
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from schedmate.base.data import LARGEST, clipped, dumps, encodable, plain, whole_number
from schedmate.base.errors import INPUT, OK, USAGE
from schedmate.jobs import Evidence, JobRecord, LaunchConfig, WorkloadMetadata

PACKAGE = Path(__file__).parents[2] / "schedmate"
ANY_TEXT = st.text(st.characters())  # surrogates too
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner) | st.tuples(inner, inner),
)


def _no_constant(name: str) -> None:
    raise AssertionError(name)


@given(VALUES)
def test_any_value_is_json_that_others_read(value: Any) -> None:
    text = dumps({"value": value})
    read = json.loads(text, parse_constant=_no_constant)
    json.dumps(read, ensure_ascii=False).encode("utf-8")
    assert plain(read) == read


@given(ANY_TEXT)
def test_text_that_can_be_encoded_stays(text: str) -> None:
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        assert encodable(text) != text
        encodable(text).encode("utf-8")
    else:
        assert encodable(text) == text


def test_numbers() -> None:
    assert plain([LARGEST, -LARGEST, True, 0.5]) == [LARGEST, -LARGEST, True, 0.5]
    assert plain(10**30) == 1e30
    assert plain([10**5_000, math.nan, -math.inf]) == [None, None, None]
    assert clipped(10**24) == LARGEST
    assert whole_number("17") == 17
    assert whole_number("-" + "9" * 5_000) == -math.inf
    deep: Any = 1
    for _ in range(10_000):
        deep = [deep]
    assert len(dumps(deep)) < 1_000


def test_metadata_hold_what_can_be_stored() -> None:
    found = WorkloadMetadata.model_validate(
        {
            "model_config": {"model_name": "a\udcff", "n": 10**5_000},
            "training_config": {"iters": 10**25, "lr": math.nan, "x": [math.inf, "\ud800"]},
            "evidence": {"training_config.iters": {"value": 10**5_000, "source": "code"}},
        }
    )
    again = WorkloadMetadata.model_validate_json(found.model_dump_json(by_alias=True))
    assert again == found
    assert again.fingerprint() == found.fingerprint()
    assert found.get("training_config.iters") == 1e25
    assert Evidence(value="\ud800", source="code", file="\udcff").file == "\\udcff"


@pytest.mark.parametrize(
    "bad",
    [
        {"duration_s": math.inf},
        {"duration_s": math.nan},
        {"duration_s": 1e308},
        {"submit_time": -1e30},
        {"gpu_util": math.nan},
        {"gpu_mem_mb": math.inf},
        {"throughput": {"a100": math.nan}},
        {"launch": {"gpus": 10**5_000}},
        {"launch": {"gpus": 10**12}},
        {"launch": {"time_limit_s": math.inf}},
    ],
)
def test_a_record_holds_no_number_that_is_none(bad: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        JobRecord.model_validate({"job_id": "1", **bad})


def test_a_record_holds_text_that_can_be_stored() -> None:
    record = JobRecord(job_id="\ud800", name="\udcff", launch=LaunchConfig(gpu_type="\ud800"))
    assert JobRecord.model_validate_json(record.model_dump_json()) == record
    assert record.job_id == "\\ud800"


@pytest.mark.parametrize(
    "field",
    [
        "duration=nan",
        "duration=inf",
        "duration=1e308",
        "duration=" + "9" * 5_000,
        "duration=" + "9" * 5_000 + ":00:00",
        "duration=" + "9" * 5_000 + "h",
        "gpus=nan",
        "gpus=inf",
        "gpus=" + "9" * 5_000,
        "gpus=1e300",
        "nodes=1e18",
        "gpu_util=nan",
        "gpu_mem_mb=inf",
        "submit_time=1e300",
        "end_time=" + "9" * 5_000,
        "time_limit=inf",
    ],
)
def test_history_add_refuses_numbers_that_are_none(cli: Cli, tmp_path: Path, field: str) -> None:
    ran = cli("history", "add", "1", field, "--history", str(tmp_path / "h"))
    assert ran.code == USAGE
    assert len(ran.err) < 1_000


@pytest.mark.parametrize(
    "field",
    [
        "model=\ud800",
        "name=\udcff",
        "user=\ud800",
        "iters=" + "9" * 5_000,
        "lr=nan",
        "batch_size=inf",
        "metadata.training_config.x=1e999",
    ],
)
def test_history_add_stores_the_rest_so_that_it_can_be_read(
    cli: Cli, tmp_path: Path, field: str
) -> None:
    here = ("--history", str(tmp_path / "h"))
    for command in (
        ("add", "\udcff", field, "duration=2h", "--json"),
        ("list", "-n", str(10**24), "--offset", "0", "--json"),
        ("list", "--text", "\ud800", "--user", "\udcff", "--json"),
        ("show", "\udcff", "--json"),
        ("export",),
        ("finish", "\udcff", "--duration", "3h", "--json"),
    ):
        ran = cli("history", *command, *here)
        assert ran.code == OK, ran.err
        document = json.loads(ran.out, parse_constant=_no_constant)
        json.dumps(document, ensure_ascii=False).encode("utf-8")
    assert cli("history", "list", "--offset", str(10**24), *here).code == OK
    assert cli("history", "show", "\ud800", *here).code == INPUT


def test_file_names_that_are_no_text(cli: Cli, tmp_path: Path, monkeypatch: Any) -> None:
    folder = tmp_path / "d\udcff"
    folder.mkdir()
    (folder / "t\udcfe.py").write_text(
        "import torch\nprint('\\ud800')\nloss.backward()\noptimizer.step()\n"
    )
    (folder / "job\udcff.log").write_text("step 1/3 2 s/it\nKeyError: 'x'\n")
    (folder / "jobs.csv").write_bytes(b"log,job_id\njob\xff.log,\xff\n")
    monkeypatch.chdir(folder)
    for command in (
        ("analyze", ".", "-c", "python t\udcfe.py --name \udcff", "--job-id", "\udcff"),
        ("analyze", str(folder)),
        ("track", "job\udcff.log"),
        ("track", str(folder)),
        ("diagnose", "job\udcff.log"),
        ("diagnose", str(folder), "--node-logs", "job\udcff.log"),
        ("triage", str(folder), "--out", "r.html", "--csv", "v.csv", "--jobs", "1"),
        ("triage", "*.log", "--ledger", "l\udcff.sqlite", "--jobs", "1"),
    ):
        ran = cli(*command)
        assert ran.code == OK, ran.err
        ran = cli(*command, "--json")
        assert ran.code == OK, ran.err
        assert "internal error" not in ran.out
        document = json.loads(ran.out, parse_constant=_no_constant)
        json.dumps(document, ensure_ascii=False).encode("utf-8")
    assert "job\\udcff.log" in (folder / "r.html").read_text(encoding="utf-8")
    (folder / "v.csv").read_text(encoding="utf-8")


def test_commands_print_json_by_one_function() -> None:
    for path in (PACKAGE / "commands").glob("*.py"):
        assert not re.search(r"\bjson\.dumps?\(", path.read_text(encoding="utf-8")), path


def test_traces_and_histories_under_names_that_are_no_text(
    cli: Cli, tmp_path: Path, monkeypatch: Any
) -> None:
    folder = tmp_path / "d\udcff"
    folder.mkdir()
    monkeypatch.chdir(folder)
    Path("t\udcff.csv").write_text("job_id,submit_s,duration_s,gpus\na,0,60,1\nb,5,60,2\n")
    Path("j\udcff.csv").write_text("job_id,duration_s\n1,5\n")
    simulate = ("simulate", "t\udcff.csv", "--policy", "fifo,sjf", "--cluster", "1x4")
    for command in (
        (*simulate, "--report", "r\udcff.html", "--out", "o\udcff"),
        ("traces", "check", "t\udcff.csv"),
        ("traces", "convert", "t\udcff.csv", "-o", "s\udcff.csv"),
        ("traces", "sample", "t\udcff.csv", "--jobs", "1", "-o", "s\udcff.csv"),
        ("history", "import", "j\udcff.csv", "--prefix", "\udcff", "--history", "h\udcff"),
        ("history", "list", "--history", "h\udcff"),
    ):
        ran = cli(*command)
        assert ran.code == OK, ran.err
    for command in (simulate, ("history", "stats", "--history", "h\udcff")):
        ran = cli(*command, "--json")
        assert ran.code == OK, ran.err
        document = json.loads(ran.out, parse_constant=_no_constant)
        json.dumps(document, ensure_ascii=False).encode("utf-8")
    Path("r\udcff.html").read_text(encoding="utf-8")
