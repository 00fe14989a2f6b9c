"""The dashboard: its pages, signing in to decide on plans, and the content of the first page.

The content comes from the board, the plans and the clock.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import statistics
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache, partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from schedmate.base.errors import SchedmateError
from schedmate.base.inputs import format_duration, moment_of
from schedmate.cluster.actions import Drain, Requeue
from schedmate.cluster.record import PlanStatus
from schedmate.report.page import digest, environment
from schedmate.serve import details
from schedmate.serve.board import Checked, Job
from schedmate.serve.guard import COOKIE, SESSION_S, Access
from schedmate.serve.models import status_of
from schedmate.serve.service import DAY_S, Service

if TYPE_CHECKING:
    from jinja2 import Environment


log = logging.getLogger("schedmate.serve")

FOLDER = Path(__file__).parent
SHARED = tuple(FOLDER.parent / "report" / name for name in ("page.css", "charts.css"))
"""The style of the reports and of their charts."""


def warm_pages(service: Service) -> None:
    """Make the first page now, so that who asks first need not wait for imports and templates."""
    try:
        _page("dashboard", session=None, **dashboard_values(service, time.time()))
    except SchedmateError as error:
        log.warning("the dashboard cannot be shown: %s", error)


def page_routes(service: Service, access: Access) -> APIRouter:
    """The pages of one service; none of them is part of the API."""
    router = APIRouter(include_in_schema=False)

    may_look = partial(_may_look, access)
    _detail_routes(router, service, may_look)

    @router.get("/")
    async def dashboard(request: Request) -> Response:
        if not may_look(request):
            return RedirectResponse("/login", 303)
        session = access.session(request.headers.get("cookie"))
        values = await asyncio.to_thread(dashboard_values, service, time.time())
        return _page("dashboard", session=session, **values)

    @router.get("/login")
    async def login() -> Response:
        return _page("login", guarded=access.guarded, problem=None)

    @router.post("/login")
    async def sign_in(request: Request) -> Response:
        person = access.owner(_form(await request.body()).get("token", ""))
        if person is None:
            await asyncio.sleep(0.5)  # guessing takes long
            problem = "That is not the token."
            return _page("login", 403, guarded=access.guarded, problem=problem)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            COOKIE, access.sign_in(person), max_age=int(SESSION_S), httponly=True, samesite="strict"
        )
        return answer

    @router.post("/logout")
    async def sign_out(request: Request) -> Response:
        access.sign_out(request.headers.get("cookie"))
        answer = RedirectResponse("/login", 303)
        answer.delete_cookie(COOKIE)
        return answer

    @router.post("/plans/{plan}")
    async def decide(plan: str, request: Request) -> Response:
        session = access.session(request.headers.get("cookie"))
        form = _form(await request.body())
        if session is None:
            return RedirectResponse("/login", 303)
        if not hmac.compare_digest(form.get("csrf", "").encode(), session.csrf.encode()):
            return _message(
                403, "This form is not of your session; go back and load the page again."
            )
        by, decision = session.person or form.get("by", "").strip()[:100], form.get("decision")
        if not by or decision not in ("approve", "reject"):
            return _message(422, "Enter your name, and approve or reject.")
        try:
            await asyncio.to_thread(
                service.plans.decide,
                plan,
                approve=decision == "approve",
                by=f"{by} (dashboard)",
                note=form.get("note", "").strip()[:500],
            )
        except SchedmateError as error:
            return _message(status_of(error), str(error))
        return RedirectResponse("/#plans", 303)

    return router


def _may_look(access: Access, request: Request) -> bool:
    """Whether whoever asks may see the pages."""
    known = access.session(request.headers.get("cookie")) is not None
    token = request.headers.get("authorization")
    return known or not access.guarded or access.bearer(token) is not None


def _detail_routes(
    router: APIRouter, service: Service, may_look: Callable[[Request], bool]
) -> None:
    """The pages of a job and of a node, and the search."""

    @router.get("/jobs/{job:path}")
    async def job_page(job: str, request: Request) -> Response:
        if not may_look(request):
            return RedirectResponse("/login", 303)
        stored, estimate = await service.known(job)

        def values() -> dict[str, Any] | None:
            strip = _strip(service, job)
            plans = service.plans.list(limit=1000)
            return details.job_values(
                *(job, service.board, stored, estimate, plans, strip, time.time()),
                used=service.used.get(job),
            )

        found = await asyncio.to_thread(values)
        if found is None:
            return _message(404, f"No job {job[:100]} is known here.")
        return _page("job", **found)

    @router.get("/nodes/{node:path}")
    async def node_page(node: str, request: Request) -> Response:
        if not may_look(request):
            return RedirectResponse("/login", 303)

        def values() -> dict[str, Any] | None:
            plans = service.plans.list(limit=1000)
            return details.node_values(node, service.board, plans, time.time())

        found = await asyncio.to_thread(values)
        if found is None:
            return _message(
                404, f"No job is known to run, or to have run in the last month, on {node[:100]}."
            )
        return _page("node", **found)

    @router.get("/search")
    async def search(request: Request, q: str = "") -> Response:
        text = q.strip()[:200]
        if not may_look(request):
            return RedirectResponse("/login", 303)
        if not text:
            return RedirectResponse("/", 303)

        found = await asyncio.to_thread(_found, service, text)
        if isinstance(found, str):
            return RedirectResponse(found, 303)
        return _page("search", **found)


def _found(service: Service, text: str) -> dict[str, Any] | str:
    """Values of the page of a search, or the page of the one job or node of this name."""
    board = service.board
    if board.job(text) is not None or service.browse.get(text) is not None:
        return f"/jobs/{quote(text, safe='')}"
    nodes = board.nodes_named(text, details.NODES_FOUND)
    if nodes and nodes[0].lower() == text.lower():
        return f"/nodes/{quote(nodes[0], safe='')}"
    stored = service.browse.find(text, details.FOUND, details.NEWEST)
    return details.search_values(text, board, stored) | {"nodes": nodes}


def _strip(service: Service, job_id: str) -> list[dict[str, Any]]:
    """The log of a failed job around the failing line, where the service may read it."""
    heard = service.board.job(job_id)
    diagnosis = heard["diagnosis"] if heard is not None else None
    if not diagnosis or not diagnosis.get("file") or not diagnosis.get("line"):
        return []
    try:
        path = service.reading.allowed(diagnosis["file"])
    except SchedmateError:
        return []
    return details.log_strip(Path(path), int(diagnosis["line"]))


def _form(body: bytes) -> dict[str, str]:
    """The fields of a form, the first of each name."""
    fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=20)
    return {name: values[0] for name, values in fields.items()}


def _message(status: int, sentence: str) -> Response:
    return _page("message", status, sentence=sentence)


def _page(name: str, status: int = 200, /, **values: Any) -> HTMLResponse:
    style, script = _style(), _script()
    policy = (
        f"default-src 'none'; style-src '{digest(style)}'; script-src '{digest(script)}'; "
        "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    page = _environment().get_template(f"{name}.html.j2")
    text = page.render(style=style, script=script, **values)
    return HTMLResponse(text, status, {"Content-Security-Policy": policy})


@cache
def _style() -> str:
    return "".join(file.read_text("utf-8") for file in (*SHARED, FOLDER / "dashboard.css"))


@cache
def _script() -> str:
    return (FOLDER / "dashboard.js").read_text("utf-8")


@cache
def _environment() -> Environment:
    templates = environment(FOLDER)
    templates.filters["moment"] = lambda s: f"{moment_of(s):%Y-%m-%d %H:%M:%S} UTC"
    templates.filters["path"] = lambda name: quote(str(name), safe="")
    return templates


# The content of the dashboard's page, from the board, the plans and the clock.


FAILURES_SHOWN = 50
"""Failures that have a card, the latest ones."""
NODE_FAILURES = 1_000
"""Latest failures that nodes are counted over."""
ACCURACY_BINS = (0.0, 0.25, 0.5, 0.8, 0.95, 1.05, 1.25, 2.0, 4.0, float("inf"))
"""Edges of the histogram of run time over estimate."""


def dashboard_values(service: Service, now: float) -> dict[str, Any]:
    """Values of the template; times are texts relative to `now` [s since epoch]."""
    board, plans = service.board, service.plans
    month = service.month
    failures = board.failures(NODE_FAILURES)
    statuses = plans.list(limit=100)
    counts = board.counts()
    return {
        "now": now,
        "pending": counts.get("PENDING", 0),
        "active": counts.get("RUNNING", 0),
        "queue": [_waiting_row(job, service.starts, now) for job in board.queue()],
        "running": [_running_row(job, service.used, now) for job in board.running()],
        "failures": [_failed_row(job, now) for job in failures[:FAILURES_SHOWN]],
        "failed": f"{NODE_FAILURES:,} or more" if len(failures) >= NODE_FAILURES else len(failures),
        "undiagnosed": [
            {**_job_name(job), "state": job["state"], "when": ago(job["end_time"], now)}
            for job in board.undiagnosed(now - DAY_S, FAILURES_SHOWN)
        ],
        "plans": [_plan_row(status, now) for status in statuses if status.state == "proposed"],
        "decided": [_plan_row(status, now) for status in statuses if status.state != "proposed"][
            :20
        ],
        "nodes": _node_rows(failures, statuses, now),
        "accuracy": _accuracy(board.checked()),
        "trends": details.trends(month.by_day, board.checked_by_day(month.since), month.since),
    }


def ago(then: float | None, now: float) -> str:
    """`5 min 00 s ago`; empty for an unknown time."""
    if then is None:
        return ""
    return f"{format_duration(max(0.0, now - then))} ago"


def _lasting(seconds: float | None) -> str:
    return "" if seconds is None else format_duration(seconds)


def _interval(job: Job) -> str:
    if job["p10_s"] is None or job["p90_s"] is None:
        return ""
    return f"{format_duration(job['p10_s'])} to {format_duration(job['p90_s'])}"


def _start(found: dict[str, float | None] | None, now: float) -> str:
    """When a job is expected to start, by the queue run forward and by the scheduler."""
    if found is None:
        return ""
    low, median, high, scheduler = (
        None if (at := found.get(name)) is None else format_duration(max(0.0, at - now))
        for name in ("p10", "p50", "p90", "scheduler")
    )
    ours = "unknown" if median is None else f"{median} ({low} to {high})"
    return ours if scheduler is None else f"{ours}; by the scheduler {scheduler}"


def _waiting_row(
    job: Job, starts: dict[str, dict[str, float | None]], now: float
) -> dict[str, Any]:
    waited = None if job["submit_time"] is None else max(0.0, now - job["submit_time"])
    return {
        **_job_name(job),
        "waited": _lasting(waited),
        "waited_s": waited,
        "estimate": _lasting(job["estimate_s"]),
        "estimate_s": job["estimate_s"],
        "interval": _interval(job),
        "p10_s": job["p10_s"],
        "runs": job["runs"] if job["estimate_s"] is not None else None,
        "starts": _start(starts.get(job["job_id"]), now),
        "starts_s": (starts.get(job["job_id"]) or {}).get("p50"),
        "reason": job["reason"],
    }


def _running_row(job: Job, used: dict[str, dict[str, float | None]], now: float) -> dict[str, Any]:
    progress = job["progress"] or {}
    total, at = progress.get("total_iterations"), progress.get("iteration")
    left, source = details.left_of(job, now)
    ran = None if job["start_time"] is None else max(0.0, now - job["start_time"])
    return {
        **_job_name(job),
        "ran": _lasting(ran),
        "ran_s": ran,
        "limit": _lasting(job["limit_s"]),
        "wrong": details.wrong_with(job, now),
        "step_time": progress.get("step_time_s"),
        "at": at,
        "total": total if total and at is not None and total >= at else None,
        "loss": progress.get("loss_state") or progress.get("loss"),
        "left": _lasting(left),
        "left_s": left,
        "source": source,
        "ended": progress.get("ended"),
        "read": ago(job["tracked"], now),
        "read_s": None if job["tracked"] is None else now - job["tracked"],
        "uses": details.uses(used.get(job["job_id"])),
        "reason": progress.get("reason"),
    }


def _failed_row(job: Job, now: float) -> dict[str, Any]:
    diagnosis = job["diagnosis"]
    plan = diagnosis.get("plan") or {}
    return {
        **_job_name(job),
        "state": job["state"],
        "when": ago(details.failed_at(job), now),
        "error_type": diagnosis["error_type"],
        "error_name": diagnosis.get("error_name"),
        "component": diagnosis.get("faulty_component"),
        "file": diagnosis.get("file"),
        "line": diagnosis.get("line"),
        "rank": diagnosis.get("rank"),
        "node": diagnosis.get("node"),
        "reason": diagnosis.get("reason", ""),
        "rule": diagnosis.get("rule"),
        "evidence": diagnosis.get("evidence", [])[:12],
        "advice": plan.get("summary"),
    }


def _job_name(job: Job) -> dict[str, Any]:
    return {key: job[key] for key in ("job_id", "name", "user", "gpus")}


def _plan_row(status: PlanStatus, now: float) -> dict[str, Any]:
    plan = status.plan
    return {
        "id": plan.id,
        "state": status.state,
        "since": ago(status.since.time, now),
        "by": status.by,
        "note": status.note,
        "cluster": plan.cluster,
        "purpose": plan.purpose,
        "summary": plan.reason.summary,
        "job": plan.reason.job,
        "confirmed_by": plan.reason.confirmed_by,
        "evidence": [line.model_dump() for line in plan.reason.evidence[:12]],
        "actions": [_action_text(action) for action in plan.actions],
        "expires": None if plan.expires is None else format_duration(max(0.0, plan.expires - now)),
    }


def _action_text(action: Any) -> str:
    if isinstance(action, Drain):
        return f"take node {action.node} out of service"
    if isinstance(action, Requeue):
        return f"put job {action.job} back into the queue"
    fields = action.model_dump(exclude_defaults=True)
    fields.pop("kind", None)
    words = ", ".join(f"{key} {value}" for key, value in fields.items())
    return f"{action.kind.replace('_', ' ')} {words}".strip()


def _node_rows(
    failures: Sequence[Job], plans: Sequence[PlanStatus], now: float
) -> list[dict[str, Any]]:
    """Nodes with failures, those first that most failures of the infrastructure name, and the plans
    for them."""
    times: Counter[str] = Counter()
    kinds: dict[str, Counter[str]] = {}
    latest: dict[str, float] = {}
    blamed: Counter[str] = Counter()
    for job in failures:
        diagnosis = job["diagnosis"]
        named = diagnosis.get("node")
        of_machine = diagnosis["error_type"] == "infrastructure"
        for node in dict.fromkeys([*([named] if named else []), *(job["nodes"] or [])]):
            times[node] += 1
            blamed[node] += of_machine and node == named
            kinds.setdefault(node, Counter())[
                diagnosis.get("error_name") or diagnosis["error_type"]
            ] += 1
            latest[node] = max(latest.get(node, 0.0), details.failed_at(job))
    planned: dict[str, str] = {}
    for status in reversed(plans):
        for node in status.plan.isolates:
            planned[node] = f"{status.state} {ago(status.since.time, now)}"
            times.setdefault(node, 0)
    order = sorted(times, key=lambda node: (-blamed[node], -times[node], node))
    return [
        {
            "node": node,
            "failures": times[node],
            "blamed": blamed[node],
            "kinds": [f"{kind} ({count})" for kind, count in kinds[node].most_common(3)]
            if node in kinds
            else [],
            "latest": ago(latest.get(node), now),
            "latest_s": None if node not in latest else now - latest[node],
            "planned": planned.get(node, ""),
        }
        for node in order[:100]
    ]


def _accuracy(checked: Sequence[Checked]) -> dict[str, Any] | None:
    """How run times compare with the estimates; None before any job has ended."""
    if not checked:
        return None
    ratios = [job.duration_s / job.estimate_s for job in checked]
    places = Counter(job.place for job in checked)
    errors = [abs(ratio - 1) for ratio in ratios]
    counts = [sum(low <= ratio < high for ratio in ratios) for low, high in pairwise(ACCURACY_BINS)]
    bars = [
        {
            "label": f"over {low:g}" if high == ACCURACY_BINS[-1] else f"{low:g} to {high:g}",
            "count": count,
            "part": 100 * count / max(counts),
        }
        for (low, high), count in zip(pairwise(ACCURACY_BINS), counts, strict=True)
    ]
    return {
        "jobs": len(checked),
        "median_error": 100 * statistics.median(errors),
        "median_ratio": statistics.median(ratios),
        "within": 100 * places["within"] / len(checked),
        "below": 100 * places["below"] / len(checked),
        "above": 100 * places["above"] / len(checked),
        "bars": bars,
    }
