"""The dashboard's further pages: one for a job, one for a node, a search, and a month's trends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from schedmate.base.inputs import format_duration, moment_of
from schedmate.base.reading import open_binary
from schedmate.cluster.record import PlanStatus
from schedmate.jobs import FAILURE_STATES, Estimate, JobRecord
from schedmate.logparse.triage.summary import NodeUse, exact_test
from schedmate.report import charts
from schedmate.serve.board import Board, Job
from schedmate.serve.service import DAY_S, MONTH

FOUND = 50
"""Jobs that a search shows."""
NEWEST = 20_000
"""Jobs of the history that a search looks through, the latest submitted ones."""
AROUND = 12
"""Lines of a log before and after the failing one."""
MOST_LOG = 64 << 20
"""Bytes of a log that are looked through for the failing line."""
LONGEST_LINE = 400
NEIGHBOURS = 12
NODES_FOUND = 20
"""Nodes that a search shows."""


def job_values(
    job_id: str,
    board: Board,
    stored: JobRecord | None,
    estimate: Estimate | None,
    plans: Sequence[PlanStatus],
    strip: Sequence[dict[str, Any]],
    now: float,
    *,
    used: dict[str, float | None] | None,
) -> dict[str, Any] | None:
    """Values of the page of a job; None if nobody has heard of it. `used` is what it uses now."""
    heard = board.job(job_id)
    if heard is None and stored is None:
        return None
    return {
        "job_id": job_id,
        "name": (heard or {}).get("name") or (stored and stored.name),
        "facts": [*_facts(heard or {}, stored, now), *([("Uses", uses(used))] if used else [])],
        "nodes": (heard or {}).get("nodes") or [],
        "wrong": wrong_with(heard, now) if heard is not None else "",
        "over": stored is not None and stored.ended,
        "metadata": _metadata(stored),
        "curves": _curves(board.readings(job_id)),
        "diagnosis": (heard or {}).get("diagnosis"),
        "strip": strip,
        "estimate": None if estimate is None else _estimate(estimate),
        "plans": [status for status in plans if status.plan.reason.job == job_id],
    }


def left_of(job: Job, now: float) -> tuple[float | None, str]:
    """How long a running job still takes [s], None where that is unknown, and by what."""
    progress = job["progress"] or {}
    eta, read = progress.get("eta_s"), job["tracked"]
    if progress.get("ended") is not None or progress.get("stalled"):
        return None, "from its log"
    if eta is not None:
        return max(0.0, eta - (now - read if read else 0.0)), "from its log"
    if job["estimate_s"] is not None and job["start_time"] is not None:
        return max(0.0, job["start_time"] + job["estimate_s"] - now), "by its estimate"
    return None, "from its log"


def wrong_with(job: Job, now: float) -> str:
    """What a person should know of a running job, in a sentence; empty for a healthy one."""
    if job["state"] != "RUNNING":
        return ""
    if job["conditions"]:
        return str(job["conditions"][0]["summary"])
    progress = job["progress"] or {}
    since = progress.get("silent_since")
    if progress.get("stalled"):
        return "no progress" + ("" if since is None else f" for {format_duration(now - since)}")
    if progress.get("ended") is not None:
        return ""
    left, _ = left_of(job, now)
    start, limit_s = job["start_time"], job["limit_s"]
    if left is not None and start is not None and limit_s and now + left > start + limit_s:
        return f"about {format_duration(now + left - start - limit_s)} too long for its time limit"
    return ""


def failed_at(job: Job) -> float:
    """When a job that was diagnosed ended, else when that was [s since epoch]."""
    return float(job["end_time"] or job["diagnosed"])


def _estimate_at_submission(heard: dict[str, Any], took: float | None) -> str | None:
    """The estimate at submission, and how the run time compares."""
    if heard.get("estimate_s") is None:
        return None
    text = format_duration(heard["estimate_s"])
    low, high = heard.get("p10_s"), heard.get("p90_s")
    if low is None or high is None:
        return text
    text += f" ({format_duration(low)} to {format_duration(high)})"
    if took is None or heard.get("state") != "COMPLETED":
        return text
    return f"{text}; it ended {'earlier' if took < low else 'later' if took > high else 'then'}"


def _facts(heard: dict[str, Any], stored: JobRecord | None, now: float) -> list[tuple[str, str]]:
    """What is known of a job, each with its name; what is not known is left out."""

    def first(name: str) -> Any:
        own = heard.get(name)
        return own if own is not None else getattr(stored, name, None)

    progress = heard.get("progress") or {}
    at, total = progress.get("iteration"), progress.get("total_iterations")
    step = progress.get("step_time_s")
    launch = stored.launch if stored is not None else None
    limit = heard.get("limit_s") or (launch.time_limit_s if launch is not None else None)
    took = first("duration_s")
    started = first("start_time")
    if took is None and started is not None and first("state") == "RUNNING":
        took = max(0.0, now - started)
    running = heard.get("state") == "RUNNING"
    left = left_of(heard, now)[0] if running else None
    loss = progress.get("loss_state") or progress.get("loss")
    read = heard.get("tracked") if running else None
    asked = heard.get("gpus") or (launch.gpus if launch is not None else None)
    diagnosis = heard.get("diagnosis") or {}
    shows_none = diagnosis.get("error_type") == "none"
    state = first("state")
    facts: dict[str, str | None] = {
        "State": None if shows_none and state == "PENDING" else state,
        "User": first("user"),
        "GPUs": None if asked is None else f"{asked:,}",
        "Submitted": _moment(first("submit_time")),
        "Started": _moment(started),
        "Ended": _moment(first("end_time")),
        "Run time": None if took is None else format_duration(took),
        "Progress": None if at is None else f"{at:,} of {total:,}" if total else f"{at:,}",
        "Time of a step": None if step is None else f"{step:.3g} s",
        "Left": None if left is None else format_duration(left),
        "Loss": f"{loss:.4g}" if isinstance(loss, float) else loss,
        "Log read": None if read is None else f"{format_duration(max(0.0, now - read))} ago",
        "Estimate at submission": _estimate_at_submission(heard, first("duration_s")),
        "By its log": progress.get("ended") or (diagnosis.get("reason") if shows_none else None),
        "Time limit": None if limit is None else format_duration(limit),
        "Limit used": None if not limit or took is None else f"{took / limit:.0%}",
        "GPU utilisation": None if stored is None else _percent(stored.gpu_util),
        "GPU memory": None
        if stored is None or stored.gpu_mem_mb is None
        else f"{stored.gpu_mem_mb:,.0f} MB",
        "Command": stored.command if stored is not None else None,
        "Log": heard.get("log"),
    }
    return [(name, value) for name, value in facts.items() if value]


def uses(used: dict[str, float | None] | None) -> str:
    """What a running job uses (`usage.USED`), as `GPU 31%, 12.5 GiB of a GPU, memory 50%`."""
    found = used or {}
    words = {
        name: f"{label} {share:.0%}"
        for name, label in (("gpu", "GPU"), ("memory", "memory"), ("cpu", "CPU"))
        if (share := found.get(name)) is not None
    }
    size = found.get("gpu_memory_mb")
    of_gpu = [] if size is None else [f"{size / 1024:.1f} GiB of a GPU"]
    return ", ".join([*([words.pop("gpu")] if "gpu" in words else []), *of_gpu, *words.values()])


def _metadata(stored: JobRecord | None) -> list[tuple[str, str]]:
    if stored is None:
        return []
    document = stored.metadata.model_dump(by_alias=True, exclude_none=True, mode="json")
    found = []
    for section in ("model_config", "training_config", "dataset_config"):
        for name, value in (document.get(section) or {}).items():
            if isinstance(value, str | int | float):
                found.append((name.replace("_", " "), str(value)))
    return found


def _curves(readings: Sequence[tuple[float, int | None, float | None, float | None]]) -> list[Any]:
    """Charts of loss and step time over time, of jobs whose log was read more than once."""
    drawn = []
    for name, column, label in (("Loss", 3, "loss"), ("Time of a step", 2, "step time [s]")):
        points = [(one[0], value) for one in readings if (value := one[column]) is not None]
        values = np.array([value for _, value in points], dtype=float)
        if len(points) < 2 or not np.isfinite(values).all():
            continue
        times = np.array([at for at, _ in points])
        x = charts.linear_axis("time (UTC)", float(times[0]), float(times[-1]), "time")
        low = min(0.0, float(values.min()))
        y = charts.linear_axis(label, low, float(values.max()), "count")
        series = [charts.Series(name, 0, times, values)]
        about = f"{name} over time, {len(points)} readings"
        drawn.append({"title": name, "chart": charts.line_chart(about, series, x, y)})
    return drawn


def _estimate(estimate: Estimate) -> dict[str, Any]:
    interval = None
    if estimate.duration_p10_s is not None and estimate.duration_p90_s is not None:
        low, high = map(format_duration, (estimate.duration_p10_s, estimate.duration_p90_s))
        interval = f"{low} to {high}"
    return {
        "abstained": estimate.abstained,
        "reason": estimate.reason,
        "about": None if estimate.duration_s is None else format_duration(estimate.duration_s),
        "interval": interval,
        "neighbours": [
            {
                "job_id": one.job_id,
                "similarity": one.similarity,
                "weight": one.weight,
                "took": format_duration(one.duration_s),
                "adjusted": format_duration(one.adjusted_duration_s),
                "state": one.state,
                "summary": one.summary,
            }
            for one in sorted(estimate.neighbours, key=lambda one: -one.weight)[:NEIGHBOURS]
        ],
    }


def log_strip(path: Path, line: int) -> list[dict[str, Any]]:
    """The lines of a log around the failing one; none where it cannot be read so far."""
    found = []
    try:
        with open_binary(path) as stream:
            left = MOST_LOG
            for number, raw in enumerate(iter(partial(stream.readline, 1 << 20), b""), 1):
                left -= len(raw)
                if number > line + AROUND or left < 0:
                    break
                if number >= line - AROUND:
                    text = raw[:LONGEST_LINE].decode("utf-8", "replace").rstrip("\r\n")
                    found.append({"line": number, "text": text, "failing": number == line})
    except (OSError, ValueError):
        return []
    return found if any(one["failing"] for one in found) else []


def node_values(
    node: str, board: Board, plans: Sequence[PlanStatus], now: float
) -> dict[str, Any] | None:
    """Values of the page of a node; None if no job of the month is known to have run on it."""
    own = board.on_node(node, 10 * FOUND)
    about = [status for status in plans if node in status.plan.isolates]
    if not own and not about:
        return None
    ended = board.ended_on_nodes()
    uses: Counter[str] = Counter()
    bad: Counter[str] = Counter()
    failures = 0
    for nodes, kind, named in ended:
        counts = _counts_against(nodes, kind, named)
        failures += bool(counts)
        for name in {*nodes, *counts}:
            uses[name] += 1
            bad[name] += name in counts
    test = exact_test(
        {name: NodeUse(uses[name], bad[name], None) for name in uses},
        len(ended),
        failures,
        unknown="Name the nodes of every job, successful ones too, when it is reported.",
        doubt="a log names the node of a job, not always the one at fault",
    )
    return {
        "node": node,
        "running": [job for job in own if job["state"] == "RUNNING"],
        "failed": [
            {**job, "failed_at": failed_at(job)} for job in own if job["diagnosis"] is not None
        ][:FOUND],
        "jobs": uses[node],
        "bad": bad[node],
        "expected": uses[node] * failures / len(ended) if ended else 0.0,
        "finding": next((one for one in test.nodes if one.node == node), None),
        "test": test,
        "plans": about,
        "now": now,
    }


def _counts_against(nodes: Sequence[str], kind: str | None, named: str | None) -> set[str]:
    """The nodes that a failure of the infrastructure counts against: the one that is named, else
    all that the job ran on."""
    if kind != "infrastructure":
        return set()
    return {named} if named is not None else set(nodes)


def search_values(text: str, board: Board, stored: Sequence[JobRecord]) -> dict[str, Any]:
    """Values of the page of a search: jobs of the month first, then those of the history."""
    rows: dict[str, dict[str, Any]] = {
        job["job_id"]: {key: job[key] for key in ("job_id", "name", "user", "state", "gpus")}
        | {"submitted": _moment(job["submit_time"]), "on": job["nodes"] or []}
        for job in board.find(text, FOUND)
    }
    for record in stored:
        row: dict[str, Any] = {"job_id": record.job_id, "name": record.name, "user": record.user}
        row |= {"state": record.state, "gpus": record.launch.gpus, "on": []}
        rows.setdefault(record.job_id, row | {"submitted": _moment(record.submit_time)})
    found = sorted(rows.values(), key=lambda row: (row["user"] or "").lower() != text.lower())
    return {"text": text, "found": found[:FOUND], "newest": NEWEST, "most": FOUND}


def trends(
    by_day: Sequence[tuple[int, str, int, float]],
    checked: Sequence[tuple[int, int, int]],
    since: float,
) -> list[dict[str, Any]]:
    """Charts of a month: ended jobs and their GPU hours a day by outcome, and how many run times
    were within their intervals. `since` is its first moment [s since epoch]."""
    edges = since + DAY_S * np.arange(MONTH + 1.0)
    x = charts.linear_axis("day (UTC)", float(edges[0]), float(edges[-1]), "time")
    drawn = []
    for title, label, column in (
        ("Ended jobs a day", "jobs", 2),
        ("GPU hours of ended jobs a day", "GPU hours", 3),
    ):
        layers = {name: np.zeros(MONTH) for name in ("completed", "failed", "other")}
        for row in by_day:
            if 0 <= row[0] < MONTH:
                value = row[2] if column == 2 else row[3] / 3600.0
                layers[_outcome(row[1])][row[0]] += value
        highest = float(sum(layers.values()).max())  # type: ignore[union-attr]
        if highest:
            y = charts.linear_axis(label, 0.0, highest, "count")
            stacked = [(name, f"o-{name}", heights) for name, heights in layers.items()]
            bars = charts.stacked_bars(f"{title}, by outcome", edges, stacked, x, y)
            drawn.append({"title": title, "chart": bars, "layers": list(layers)})
    days = [one for one in checked if 0 <= one[0] < MONTH]
    if len(days) > 1:
        at = np.array([since + DAY_S * (day + 0.5) for day, _, _ in days])
        share = np.array([within / count for _, count, within in days])
        y = charts.Axis("share of jobs", 0.0, 1.0, (0.0, 0.25, 0.5, 0.75, 1.0), "share")
        series = [charts.Series("within the interval", 0, at, share)]
        about = "Share of completed jobs within their 80 % interval, by day"
        chart = charts.line_chart(about, series, x, y)
        drawn.append({"title": "Run times within their interval", "chart": chart, "layers": []})
    return drawn


def _outcome(state: str) -> str:
    if state == "COMPLETED":
        return "completed"
    return "failed" if state in (*FAILURE_STATES, "TIMEOUT") else "other"


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else f"{moment_of(seconds):%Y-%m-%d %H:%M} UTC"


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{value:.0f} %"
