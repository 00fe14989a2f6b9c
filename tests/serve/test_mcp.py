"""`schedmate mcp` as a client of the official SDK sees it, over its standard input and output."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest
from cli_runner import Cli

pytest.importorskip("mcp")

TOOLS = {"analyze", "track", "diagnose", "triage", "site_report", "search_history"}


@pytest.fixture
def site(tmp_path: Path, cli: Cli) -> Path:
    """A root with code, logs and a history of one job, and something outside of it."""
    root = tmp_path / "root"
    (root / "logs").mkdir(parents=True)
    (tmp_path / "secret.log").write_text("password\n")
    (root / "out").symlink_to(tmp_path)
    (root / "train.py").write_text("for epoch in range(3):\n    print(epoch)\n")
    steps = "".join(f"2026-03-02 08:00:{n:02d} step {n}/50 loss 1.5\n" for n in range(1, 31))
    (root / "logs" / "a.log").write_text(steps)
    (root / "logs" / "b.log").write_text(
        steps + "Traceback (most recent call last):\nKeyError: 1\n"
    )
    times = "2026-03-02T08:{0}:00,2026-03-02T08:{0}:01,2026-03-02T09:{0}:00"
    rows = [f"{n},COMPLETED,u,{times.format(n)}," for n in range(10, 50)]
    rows += [f"50,FAILED,u,{times.format(50)},{root / 'logs' / 'b.log'}"]
    (root / "jobs.csv").write_text("\n".join(["id,state,user,submit,start,end,log", *rows]))
    fields = ("model=resnet50", "dataset=imagenet", "duration=2h")
    assert cli("history", "add", "17", *fields, "--history", str(tmp_path / "history")).code == 0
    return root


async def converse(root: Path, calls: list[tuple[str, dict[str, Any]]]) -> tuple[Any, list[Any]]:
    from mcp import Client, StdioServerParameters

    words = ["-m", "schedmate", "mcp", "--root", str(root)]
    words += ["--history", str(root.parent / "history")]
    async with Client(StdioServerParameters(command=sys.executable, args=words)) as client:
        listed = await client.list_tools()
        return listed, [await client.call_tool(name, arguments) for name, arguments in calls]


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_tools(site: Path) -> None:
    a, b = str(site / "logs" / "a.log"), str(site / "logs" / "b.log")
    calls: list[tuple[str, dict[str, Any]]] = [
        ("analyze", {"repo": str(site), "command": "python train.py"}),
        ("track", {"log": a}),
        ("diagnose", {"logs": [b]}),
        ("triage", {"folder": str(site / "logs")}),
        ("search_history", {"text": "imagenet"}),
        ("site_report", {"accounting": str(site / "jobs.csv")}),
        ("diagnose", {"logs": [str(site.parent / "secret.log")]}),
        ("track", {"log": str(site / "out" / "secret.log")}),
        ("track", {"log": "logs/a.log"}),
        ("triage", {"folder": a}),
        ("track", {"log": str(site / "logs" / "c.log")}),
        ("search_history", {"limit": 10_000}),
    ]
    listed, answers = asyncio.run(converse(site, calls))
    tools = {tool.name: tool for tool in listed.tools}
    assert set(tools) == TOOLS
    assert all(tool.annotations.read_only_hint and tool.output_schema for tool in tools.values())
    good, refused = answers[:6], answers[6:]
    assert not any(answer.is_error for answer in good), good
    analysis, progress, diagnosis, triage, found, report = (one.structured_content for one in good)
    assert analysis["metadata"]["training_config"]["iters"] == 3
    assert analysis["estimate"]["abstained"] is True
    assert (progress["progress"]["iteration"], progress["progress"]["step_time_s"]) == (30, 1.0)
    assert diagnosis["diagnosis"]["error_name"] == "Key Error"
    assert [group["error_name"] for group in triage["groups"]] == ["Key Error"]
    assert [job["job_id"] for job in found["jobs"]] == ["17"]
    assert report["failures"]["logs_read"] == 0
    assert "KeyError" not in json.dumps(report)
    assert all(answer.is_error for answer in refused)
    told = [answer.content[0].text for answer in refused]
    assert all("is not below a directory that may be read" in one for one in told[:3])
    assert "password" not in json.dumps(told)
    assert "is not a directory" in told[3]
    assert "nothing of that name" in told[4]
    assert not (site.parent / "triage.sqlite").exists()


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "name at least one directory"),
        (("--root", "{}/none"), "is not a directory"),
        (("--root", "{}", "--deadline", "0"), "must be above zero"),
    ],
)
def test_what_is_missing_is_said(
    words: tuple[str, ...], told: str, tmp_path: Path, cli: Cli
) -> None:
    found = cli("mcp", *(word.format(tmp_path) for word in words))
    assert found.code in (2, 3)
    assert told in found.err
