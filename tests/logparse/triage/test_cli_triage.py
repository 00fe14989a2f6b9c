"""`schedmate triage` as a user sees it."""

from __future__ import annotations

import json
import os
from importlib.util import find_spec
from pathlib import Path

import jsonschema
import pytest
from cli_runner import Cli
from job_logs import log, write

from schedmate.base.errors import USAGE
from schedmate.logparse.triage import json_schema

SCHEMA = json.loads(
    (Path(__file__).parents[3] / "docs" / "schemas" / "triage-v1.schema.json").read_text()
)


def test_the_published_schema_is_that_of_the_code() -> None:
    assert json_schema() == SCHEMA, "write docs/schemas anew: make docs"
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_three_lines_first(cli: Cli, tmp_path: Path) -> None:
    logs = write(tmp_path / "logs", "ok", "oom", "oom", "key")
    (logs / "empty.log").touch()
    result = cli("triage", str(logs), "--jobs", "1")
    assert result.code == 0, result.err
    first, second, third = result.out.splitlines()[:3]
    assert first == "3 of 5 jobs failed (2 framework, 1 script), 1 could not be read"
    assert second.startswith("2 root causes; the costliest: Out of Memory · framework, 2 jobs, 67%")
    assert third.startswith("Nodes: Not tested")
    assert "CUDA out of memory" in result.out


def test_more_root_causes_than_a_screen_holds_are_told_by_kind(cli: Cli, tmp_path: Path) -> None:
    logs = write(tmp_path / "logs", *["oom"] * 3, *["ok"] * 13)
    for path, letter in zip(sorted(logs.glob("*-ok.log")), "abcdefghijklm", strict=True):
        name = letter * 5
        started = log("ok").rpartition("Training")[0]
        path.write_text(started + f"ModuleNotFoundError: No module named '{name}'\n")
    rows = "".join(f"logs/{path.name},2h,8\n" for path in sorted(logs.iterdir()))
    (tmp_path / "jobs.csv").write_text("log,duration,gpus\n" + rows)
    out = tmp_path / "report.html"
    result = cli("triage", str(tmp_path / "jobs.csv"), "--jobs", "1", "--out", str(out))
    assert result.code == 0, result.err
    first, second = result.out.splitlines()[:2]
    assert first == "16 of 16 jobs failed (13 script, 3 framework), 256.0 GPU-hours lost"
    assert second == (
        "14 root causes of 2 kinds; the costliest: Import Error · script, 13 jobs, "
        "208.0 GPU-hours (81% of the loss)"
    )
    rows = [line.split() for line in result.out.splitlines() if " · " in line][1:]
    assert [row[:3] for row in rows] == [["13", "13", "208.0"], ["3", "1", "48.0"]]
    assert "Each of the 14 root causes: see --out FILE or --json." in result.out
    assert "By kind of failure" in out.read_text()


def test_json(cli: Cli, tmp_path: Path) -> None:
    logs = write(tmp_path / "logs", "ok", "oom", "key")
    (logs / "empty.log").touch()
    (tmp_path / "jobs.csv").write_text(
        "job_id,log,duration,gpus,nodes\n"
        "1,logs/job-001-ok.log,1h,8,a\n2,logs/job-002-oom.log,2h,8,a\n"
        "3,logs/job-003-key.log,30m,4,b\n4,logs/empty.log,1h,1,b\n5,logs/none.log,,,\n"
    )
    result = cli("triage", str(tmp_path / "jobs.csv"), "--json", "--jobs", "1")
    assert result.code == 0, result.err
    found = json.loads(result.out)
    jsonschema.validate(found, SCHEMA)
    assert found["pareto"]["basis"] == "gpu_hours"
    assert found["totals"]["gpu_hours_lost"] == 18
    assert [bar["value"] for bar in found["pareto"]["bars"]] == [16, 2]
    assert [bool(job["error"]) for job in found["jobs"]] == [False, False, False, True, True]
    assert found["jobs"][1]["diagnosis"]["error_name"] == "Out of Memory"


def test_a_line_for_each_job(cli: Cli, tmp_path: Path) -> None:
    logs = write(tmp_path / "logs", "ok", "oom")
    result = cli("triage", str(logs), "--jsonl", "--jobs", "1", "--out", str(tmp_path / "r.html"))
    lines = [json.loads(line) for line in result.out.splitlines()]
    assert {line["schema"] for line in lines} == {"schedmate.triage-job/v1"}
    assert sorted(line["index"] for line in lines) == [0, 1]
    assert (tmp_path / "r.html").read_text().startswith("<!doctype html>")


def test_none_could_be_read_is_3_and_the_rows_are_there(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "a.log").touch()
    result = cli("triage", str(tmp_path / "logs"), "--json", "--jobs", "1")
    assert result.code == 3
    assert "none of the logs" in result.err
    assert json.loads(result.out)["totals"]["unreadable"] == 1


def test_bad_input(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert cli("triage", str(tmp_path / "empty")).code == 3
    assert cli("triage", str(tmp_path / "missing")).code == 3
    logs = write(tmp_path / "logs", "ok")
    missing = cli("triage", str(logs), "--out", str(tmp_path / "no" / "r.html"))
    assert missing.code == 3
    assert "no such directory" in missing.err
    assert cli("triage", str(logs), "--json", "--jsonl").code == 2
    assert cli("triage", str(logs), "--jobs", "2", "--ray", "auto").code == 2
    assert cli("triage", str(logs), "--jobs", "0").code == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_no_permission(cli: Cli, tmp_path: Path) -> None:
    logs = write(tmp_path / "logs", "ok")
    logs.chmod(0)
    result = cli("triage", str(logs))
    logs.chmod(0o700)
    assert result.code == 3
    assert "check its rights" in result.err


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_ray_that_is_not_installed(cli: Cli, tmp_path: Path) -> None:
    result = cli("triage", str(write(tmp_path / "logs", "ok")), "--ray", "auto")
    assert result.code == 2
    assert "[ray]" in result.err


def test_what_a_log_prints_changes_nothing_else(cli: Cli, tmp_path: Path) -> None:
    """A log that imitates our own report, with escapes for the terminal."""
    mine = cli("triage", str(write(tmp_path / "a", "oom")), "--jobs", "1").out
    logs = write(tmp_path / "logs", "key")
    imitation = mine + '\x1b]0;pwned\x07\x1b[2J{"schema": "schedmate.triage/v1"}\n\u202eevil\n'
    (logs / "job-001-key.log").write_text(imitation + log("key"))
    result = cli("triage", str(logs), "--jobs", "1")
    assert result.out.splitlines()[0] == "1 of 1 jobs failed (1 script)"
    assert not set(result.out) & {"\x1b", "\x07", "\u202e"}


@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "127.0.0.1:99999"])
def test_no_ray_cluster_there(cli: Cli, tmp_path: Path, address: str) -> None:
    result = cli("triage", str(write(tmp_path / "logs", "ok")), "--ray", address)
    assert result.code == 3
    assert "no Ray cluster at" in result.err


@pytest.mark.parametrize(
    ("paths", "pattern"),
    [
        (["logs/a.log", "logs/b.log", "logs/c.log"], "'logs/*.log'"),
        (["a.out", "b.out"], "'*.out'"),
        (["a.log", "other/b.log"], "'DIR/*.log'"),
    ],
)
def test_an_expanded_pattern_is_to_be_quoted(cli: Cli, paths: list[str], pattern: str) -> None:
    done = cli("triage", *paths, "--json")
    assert done.code == USAGE
    [line] = done.err.splitlines()
    assert f"got {len(paths)}; put a pattern in quotes" in line
    assert line.endswith(f": schedmate triage {pattern}")
