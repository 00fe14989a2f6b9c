"""The routes under /v1: parse, ask the service, answer."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request, Response
from pydantic import BaseModel

from schedmate.jobs import JobRecord, JobState
from schedmate.schedulers.live.statuses import PlanStatus
from schedmate.serve.access import Access
from schedmate.serve.errors import ForbiddenError
from schedmate.serve.models import (
    LONGEST_ID,
    Advice,
    AdviseRequest,
    Decision,
    Diagnosed,
    DiagnoseRequest,
    FinishRequest,
    History,
    PlanList,
    PlanState,
    Problem,
    Stored,
    StoreRequest,
    Tracked,
    TrackRequest,
)
from schedmate.serve.service import Service

_REFUSED = {
    401: "The token was not shown",
    403: "Not allowed: a path outside the roots, or another site's page",
    413: "The body is too large",
    415: "The body is not JSON",
    421: "The service is not called that",
    422: "The request is invalid",
    429: "Too many requests a second",
    500: "An error of the service",
    503: "Too much is going on, or the history cannot be used; try again",
    504: "Not answered before the deadline",
}


def _refused(*more: int) -> dict[int | str, dict[str, Any]]:
    told = {**_REFUSED, 404: "There is no such thing", 409: "Its state does not allow that"}
    return {
        status: {"model": Problem, "description": told[status]}
        for status in sorted({*_REFUSED, *more})
    }


PlanId = Annotated[str, Path(pattern=r"^[0-9a-f]{12}$", description="Id of the plan")]


def routes(service: Service, access: Access) -> APIRouter:
    """All of them, on one service."""
    router = APIRouter(prefix="/v1", responses=_refused())
    limits = service.options.limits

    @router.post("/advise", response_model=Advice)
    async def advise(request: AdviseRequest) -> Response:
        """Estimate a job's run time and utilisation."""
        longest = limits.advice_s if request.metadata is not None else limits.deadline_s
        return _json(await service.advise(request, _deadline(request.deadline_s, longest)))

    @router.post("/track", response_model=Tracked)
    async def track(request: TrackRequest) -> Response:
        """How a running job is going, by its log."""
        deadline = _deadline(request.deadline_s, limits.deadline_s)
        progress = await service.track(request, deadline)
        return _json(Tracked(job_id=request.job.job_id, progress=progress))

    @router.post("/diagnose", response_model=Diagnosed)
    async def diagnose(request: DiagnoseRequest) -> Response:
        """What failed first in a job, its type and a plan."""
        deadline = _deadline(request.deadline_s, limits.deadline_s)
        diagnosis = await service.diagnose(request, deadline)
        return _json(Diagnosed(job_id=request.job.job_id, diagnosis=diagnosis))

    @router.get("/history", response_model=History, responses=_refused(404))
    async def history(
        job_id: Annotated[str | None, Query(max_length=LONGEST_ID)] = None,
        state: JobState | None = None,
        user: Annotated[str | None, Query(max_length=LONGEST_ID)] = None,
        limit: Annotated[int, Query(ge=1, le=1_000)] = 50,
        offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
    ) -> Response:
        """Stored jobs, the latest submitted first, or the one with an id."""
        size, jobs = await service.jobs(job_id, limit=limit, offset=offset, state=state, user=user)
        return _json(History(size=size, jobs=jobs))

    @router.post("/history", response_model=Stored)
    async def store(request: StoreRequest) -> Response:
        """Store jobs, or replace them. Once this is answered they survive a crash."""
        done = await service.store(request.jobs, _deadline(None, limits.deadline_s))
        return _json(Stored(stored=done))

    @router.post("/history/finish", response_model=JobRecord, responses=_refused(404))
    async def finish(request: FinishRequest) -> Response:
        """Say how a stored job ended."""
        return _json(await service.finish(request, _deadline(None, limits.deadline_s)))

    @router.get("/plans", response_model=PlanList)
    def plans(
        open_only: Annotated[bool, Query(description="Only those with something to come")] = False,
    ) -> Response:
        """Plans for the cluster, pending and carried out."""
        return _json(
            PlanList(plans=[_plan(one) for one in service.plans.list(open_only=open_only)])
        )

    def decide(plan: str, decision: Decision, request: Request, *, approve: bool) -> Response:
        if not access.bears(request.headers.get("authorization")):
            raise ForbiddenError(
                "plans are decided with the token of --token-file only, also on this machine; or "
                "use `schedmate recover approve`."
            )
        by = f"{decision.by} (token)"
        return _json(_plan(service.plans.decide(plan, approve=approve, by=by, note=decision.note)))

    @router.post("/plans/{plan}/approve", response_model=PlanState, responses=_refused(404, 409))
    def approve(plan: PlanId, decision: Decision, request: Request) -> Response:
        """Let a proposed plan be carried out; the agent does that."""
        return decide(plan, decision, request, approve=True)

    @router.post("/plans/{plan}/reject", response_model=PlanState, responses=_refused(404, 409))
    def reject(plan: PlanId, decision: Decision, request: Request) -> Response:
        """Say no to a plan; the same is not proposed again."""
        return decide(plan, decision, request, approve=False)

    return router


def _deadline(wanted_s: float | None, longest_s: float) -> float:
    return time.monotonic() + min(longest_s, wanted_s or longest_s)


def _plan(one: PlanStatus) -> PlanState:
    return PlanState(
        id=one.plan.id,
        state=one.state,
        since=one.since.time,
        by=one.by,
        note=one.note,
        plan=one.plan.model_dump(mode="json"),
    )


def _json(answer: BaseModel) -> Response:
    # a model needs no second validation
    return Response(answer.model_dump_json(by_alias=True), media_type="application/json")
