"""A model in a batch: once for each group of like failures, within a budget, only with proof."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from cli_runner import Cli
from job_logs import log, write
from openai_server import Raw, completion, serve
from test_cli_triage import SCHEMA

from schedmate.report.markdown import escaped

OPEN = (
    "transport: lost peer gpu-{0} while 4 flows were open\n"
    "Traceback (most recent call last):\n"
    '  File "train.py", line 5, in <module>\n'
    "mylib.comm.StrangeError: flow 3 of peer {0}\n"
)


def answer(request: Any) -> Any:
    """Cites the very lines of the log that it is shown."""
    asked = request["messages"][1]["content"]
    what = re.search(r"(\d+:\d+)\| .*StrangeError: flow", asked)
    part = re.search(r"(\d+:\d+)\| .*lost peer", asked)
    assert what
    assert part
    cited = {
        "error_type": "infrastructure",
        "error_name": "Runtime Error",
        "line": what[1],
        "quote": "StrangeError: flow 3",
        "faulty_component": "network",
        "component_line": part[1],
        "component_quote": "while 4 flows",
    }
    return completion(json.dumps(cited))


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = write(tmp_path / "logs", "oom", "key", "key", "ok")
    for number in range(5):
        (folder / f"strange-{number}.log").write_text(log("ok", number)[:-90] + OPEN.format(number))
    return folder


def run(
    cli: Cli, logs: Path, reply: Callable[[Any], Any], *more: str
) -> tuple[dict[str, Any], int, str]:
    with serve(reply) as server:
        result = cli(
            *("triage", str(logs), "--jobs", "1", "--json", "--llm-base-url", server.url),
            *("--model", "m", *more),
        )
    assert result.code == 0, result.err
    document = json.loads(result.out)
    jsonschema.validate(document, SCHEMA)
    return document, len(server.requests), result.out


def test_one_of_each_group_is_asked_about_and_speaks_for_the_others(cli: Cli, logs: Path) -> None:
    without = json.loads(cli("triage", str(logs), "--jobs", "1", "--json").out)
    assert without["model"] is None
    found, requests, _ = run(cli, logs, answer)
    assert requests == 1  # of one log of five
    assert (found["model"]["asked"], found["model"]["settled"], found["model"]["jobs"]) == (1, 1, 5)
    assert found["model"]["tokens"] > 0
    strange = [job for job in found["jobs"] if job["job_id"].startswith("strange")]
    assert {job["diagnosis"]["error_type"] for job in strange} == {"infrastructure"}
    assert {job["diagnosis"]["faulty_component"] for job in strange} == {"network"}
    assert {job["diagnosis"]["source"] for job in strange} == {"model"}
    assert {job["diagnosis"]["plan"]["id"] for job in strange} == {"confirm"}
    assert len({job["group"] for job in strange}) == 1
    cited = [
        any("the model cites" in (line["note"] or "") for line in job["diagnosis"]["evidence"])
        for job in strange
    ]
    assert sum(cited) == 1
    others = [job["diagnosis"] for job in found["jobs"] if not job["job_id"].startswith("strange")]
    assert others == [
        job["diagnosis"] for job in without["jobs"] if not job["job_id"].startswith("strange")
    ]


def test_what_is_not_proved_changes_nothing(cli: Cli, logs: Path) -> None:
    lie = {"line": "1:1", "quote": "the GPU is broken", "error_type": "infrastructure"}
    lie |= {"error_name": "Runtime Error", "faulty_component": "unknown"}
    lie |= {"component_line": "", "component_quote": ""}
    without = json.loads(cli("triage", str(logs), "--jobs", "1", "--json").out)
    found, _, _ = run(cli, logs, lambda _request: completion(json.dumps(lie)))
    assert (found["model"]["asked"], found["model"]["settled"]) == (1, 0)
    assert [job["diagnosis"]["error_type"] for job in found["jobs"]] == [
        job["diagnosis"]["error_type"] for job in without["jobs"]
    ]


def test_a_server_that_is_down_ends_nothing_and_is_given_up(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    for number, name in enumerate(("Aa", "Bb", "Cc", "Dd", "Ee")):
        text = OPEN.format(number).replace("StrangeError", f"{name}Error")
        (folder / f"{name}.log").write_text(log("ok", number)[:-90] + text)
    found, _, _ = run(cli, folder, lambda _request: Raw(400, b"no"))
    assert (found["model"]["open_groups"], found["model"]["asked"]) == (5, 3)
    assert "No more was asked" in found["model"]["note"]
    assert found["totals"]["failed"] == 5


def test_the_budget_and_the_number_of_groups_hold(
    cli: Cli, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, requests, _ = run(cli, logs, answer, "--ask", "0")
    assert (requests, found["model"]) == (0, None)
    monkeypatch.setenv("SCHEDMATE_LLM_JOB_TOKENS", "100")
    found, requests, _ = run(cli, logs, answer)
    assert requests == 0
    assert "raise llm_job_tokens" in found["model"]["note"]


def test_the_reports_say_who_decided(cli: Cli, logs: Path, tmp_path: Path) -> None:
    page, table = tmp_path / "r.html", tmp_path / "t.csv"
    run(cli, logs, answer, "--out", str(page), "--csv", str(table))
    text = page.read_text()
    assert "m was asked about 1 of 1 groups" in text
    assert "every verdict here comes from rules" not in text
    with table.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["source"] for row in rows].count("model") == 5


def test_lines_come_with_the_final_verdict(cli: Cli, logs: Path) -> None:
    with serve(answer) as server:
        result = cli(
            *("triage", str(logs), "--jobs", "1", "--jsonl", "--llm-base-url", server.url),
            *("--model", "m"),
        )
    rows = [json.loads(line) for line in result.out.splitlines()]
    assert sum(row["diagnosis"]["source"] == "model" for row in rows) == 5


def test_a_cause_that_was_there_before_is_remembered(cli: Cli, tmp_path: Path) -> None:
    first = json.loads(
        cli("triage", str(write(tmp_path / "a", "oom", "oom", "key")), "--json", "--jobs", "1").out
    )
    assert [one["earlier"] for one in first["groups"]] == [None, None]
    again = write(tmp_path / "b", "oom", "ecc")
    second = json.loads(cli("triage", str(again), "--json", "--jobs", "1").out)
    earlier = {one["error_name"]: one["earlier"] for one in second["groups"]}
    assert earlier["ECC Error"] is None
    oom = earlier["Out of Memory"]
    assert (oom["batches"], oom["jobs"]) == (1, 2)
    assert Path(oom["log"]).parent == tmp_path / "a"
    page = tmp_path / "r.html"
    third = cli("triage", str(again), "--json", "--jobs", "1", "--out", str(page)).out
    earlier = {one["error_name"]: one["earlier"] for one in json.loads(third)["groups"]}
    assert (earlier["Out of Memory"]["batches"], earlier["Out of Memory"]["jobs"]) == (2, 3)
    assert "Seen before" in page.read_text()


def test_what_is_new_since_the_batch_before_and_as_markdown(cli: Cli, tmp_path: Path) -> None:
    args = ("--jobs", "1", "--since", "last")
    first = json.loads(cli("triage", str(write(tmp_path / "a", "oom", "key")), "--json", *args).out)
    assert first["since"] is None
    again = write(tmp_path / "b", "oom", "oom", "ecc")
    text = cli("triage", str(again), "--format", "markdown", *args).out
    assert text.startswith("**3 of 3 jobs failed")
    assert "1 new root cause (ECC Error" in text
    assert "1 grown root cause (Out of Memory" in text
    assert "1 gone" in text
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert len(rows) == 3
    assert "batch sizes" not in text
    assert rows[1].startswith("| 2 | ? | Out of Memory · framework | `job-001-oom:")
    assert "Tell the user; the job needs more memory" in rows[1]
    refused = cli("triage", str(again), "--format", "markdown", "--json")
    assert (refused.code, "exclude each other" in refused.err) == (2, True)


@pytest.mark.parametrize(
    "text", ["a `b` c", "@all <b>x</b> | y", "[x](http://y)", "``", "![i](javascript:z)", "# h"]
)
def test_text_of_a_log_is_not_formatted(text: str, cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_text(
        f"Traceback (most recent call last):\n  File 'a.py', line 1\nKeyError: {text}\n"
    )
    shown = cli("diagnose", str(path), "--format", "markdown").out
    assert shown.splitlines()[0] == "**Key Error · script**"
    quoted = next(line for line in shown.splitlines() if "KeyError" in line)
    fence = re.match(r"- 3: (`+)", quoted)
    assert fence is not None
    assert quoted.endswith(fence[1])
    assert fence[1] not in quoted[fence.end() : -len(fence[1])].split()
    assert escaped(text).count("\\") >= sum(letter in "`@<>|[]#" for letter in text)
    progress = cli("track", str(path), "--format", "markdown").out
    assert progress.startswith("**")


def test_a_table_holds_no_formulas(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "=cmd|x.log").write_text(log("key"))
    (folder / "-1.log").write_text(log("oom") + "\u202e\n")
    table = tmp_path / "t.csv"
    assert cli("triage", str(folder), "--jobs", "1", "--csv", str(table)).code == 0
    with table.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [row["job_id"] for row in rows] == ["'-1", "'=cmd|x"]
    assert rows[1]["error_name"] == "Key Error"
    assert rows[1]["evidence"].startswith("KeyError")
