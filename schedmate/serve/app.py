"""The service as an ASGI application, and its routes under /v1.

`create_app` makes the application; each route parses, asks the `Service` and answers.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from schedmate import __version__
from schedmate.base.errors import SchedmateError
from schedmate.base.terminal import clean
from schedmate.cluster.record import PlanStatus
from schedmate.jobs import JobRecord, JobState
from schedmate.serve import metrics
from schedmate.serve.guard import Access, App, Guard
from schedmate.serve.models import (
    LONGEST_ID,
    Advice,
    AdviseRequest,
    Decision,
    Diagnosed,
    DiagnoseRequest,
    FinishRequest,
    ForbiddenError,
    Health,
    History,
    PlanList,
    PlanState,
    Problem,
    ProgressRequest,
    Stored,
    StoreRequest,
    Tracked,
    TrackRequest,
    status_of,
)
from schedmate.serve.pages import page_routes, warm_pages
from schedmate.serve.service import Service

log = logging.getLogger("schedmate.serve")

_ABOUT = """How long jobs will run, how running ones go, why others failed; what is stored of them,
and what would be done. Every error is `{"error": "one sentence"}`."""


def create_app(service: Service) -> App:
    """The application; the service starts and ends with it."""
    access = Access(service.options.token)
    api = FastAPI(
        title="schedmate",
        version=__version__,
        description=_ABOUT,
        lifespan=_life(service),
        docs_url=None,  # they would load scripts from elsewhere
        redoc_url=None,
        openapi_url="/openapi.json",
    )
    api.include_router(api_routes(service, access))
    api.include_router(page_routes(service, access))
    _health(api, service)
    for kind in (SchedmateError, TimeoutError, OSError):
        api.add_exception_handler(kind, _failed)
    api.add_exception_handler(Exception, _broken)
    api.add_exception_handler(RequestValidationError, _invalid)
    api.add_exception_handler(HTTPException, _not_found)
    return Guard(api, service.options, access, service.metrics, service.unavailable)


def _life(service: Service):  # type: ignore[no-untyped-def]
    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        starting = asyncio.create_task(asyncio.to_thread(service.start))
        looking = asyncio.create_task(_look(service, starting))
        try:
            yield
        finally:
            service.stopping = True
            looking.cancel()
            with suppress(asyncio.CancelledError, SchedmateError):
                await looking
            with suppress(SchedmateError):
                await starting
            await asyncio.to_thread(service.close)

    return life


async def _look(service: Service, starting: asyncio.Task[None]) -> None:
    try:
        await asyncio.shield(starting)
    except SchedmateError as error:
        service.failure = str(error)
        log.error("the service cannot start: %s", error)
        return
    await asyncio.to_thread(warm_pages, service)
    log.info("ready")
    while True:
        await asyncio.sleep(service.options.follow_s)
        try:
            await service.look_again()
        except SchedmateError as error:
            log.warning("the dashboard is not up to date: %s", error)


def _health(api: FastAPI, service: Service) -> None:
    @api.get("/healthz", response_model=Health)
    async def healthz() -> Health:
        """Whether the process answers."""
        return Health(status="ok")

    @api.get("/readyz", response_model=Health, responses={503: {"model": Health}})
    async def readyz(response: Response) -> Health:
        """Whether requests would be answered."""
        why_not = service.unavailable()
        if why_not is not None:
            response.status_code = 503
        return Health(status="ok" if why_not is None else "unavailable", detail=why_not)

    @api.get(
        "/metrics",
        responses={200: {"content": {"text/plain": {}}, "description": "For Prometheus"}},
        response_class=Response,
    )
    def show_metrics() -> Response:
        """The service's metrics."""
        return Response(service.text_of_metrics(), media_type=metrics.CONTENT_TYPE)


def _problem(status: int, sentence: str) -> JSONResponse:
    headers = {"Retry-After": "1"} if status == 503 else None
    return JSONResponse({"error": sentence}, status, headers)


async def _failed(_: Request, error: Exception) -> Response:
    status = status_of(error)
    sentence = clean(error, 1_000) or "the answer was not ready before the deadline."
    if status >= 500 and status not in (503, 504):
        log.error("a request failed: %s", sentence)
    return _problem(status, sentence)


async def _broken(_: Request, _error: Exception) -> Response:
    return _problem(500, "internal error; the service's log has more.")


async def _invalid(_: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    first = error.errors()[0]
    place = ".".join(str(part) for part in first["loc"])
    return _problem(422, clean(f"{place}: {first['msg']}", 500))


async def _not_found(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return JSONResponse(
        {"error": f"{error.detail}; GET /openapi.json lists what exists."},
        error.status_code,
        error.headers,
    )


# The routes under /v1: parse, ask the service, answer.


_REFUSAL_TEXTS = {
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


def _refusals(*more: int) -> dict[int | str, dict[str, Any]]:
    descriptions = {
        **_REFUSAL_TEXTS,
        404: "There is no such thing",
        409: "Its state does not allow that",
    }
    return {
        status: {"model": Problem, "description": descriptions[status]}
        for status in sorted({*_REFUSAL_TEXTS, *more})
    }


PlanId = Annotated[str, Path(pattern=r"^[0-9a-f]{12}$", description="Id of the plan")]


def api_routes(service: Service, access: Access) -> APIRouter:
    """The routes under /v1, which answer by `service`; `access` decides on rights."""
    router = APIRouter(prefix="/v1", responses=_refusals())
    limits = service.options.limits

    @router.post("/advise", response_model=Advice)
    async def advise(request: AdviseRequest) -> Response:
        """Estimate a job's run time and utilisation."""
        longest = limits.advice_s if request.metadata is not None else limits.deadline_s
        return _json_response(await service.advise(request, _deadline(request.deadline_s, longest)))

    @router.post("/track", response_model=Tracked)
    async def track(request: TrackRequest) -> Response:
        """How a running job is going, by its log."""
        deadline = _deadline(request.deadline_s, limits.deadline_s)
        progress = await service.track(request, deadline)
        remaining = await service.remaining(request, progress, deadline)
        return _json_response(
            Tracked(job_id=request.job.job_id, progress=progress, remaining=remaining)
        )

    @router.post("/progress", response_model=Tracked)
    def progress(request: ProgressRequest) -> Response:
        """Take what a training program says of its own progress, for the dashboard."""
        return _json_response(
            Tracked(job_id=request.job.job_id, progress=service.report(request), remaining=None)
        )

    @router.post("/diagnose", response_model=Diagnosed)
    async def diagnose(request: DiagnoseRequest) -> Response:
        """What failed first in a job, its type and a plan."""
        deadline = _deadline(request.deadline_s, limits.deadline_s)
        diagnosis = await service.diagnose(request, deadline)
        return _json_response(Diagnosed(job_id=request.job.job_id, diagnosis=diagnosis))

    @router.get("/history", response_model=History, responses=_refusals(404))
    async def history(
        job_id: Annotated[str | None, Query(max_length=LONGEST_ID)] = None,
        state: JobState | None = None,
        user: Annotated[str | None, Query(max_length=LONGEST_ID)] = None,
        limit: Annotated[int, Query(ge=1, le=1_000)] = 50,
        offset: Annotated[int, Query(ge=0, le=10**9)] = 0,
    ) -> Response:
        """Stored jobs, the latest submitted first, or the one with an id."""
        size, jobs = await service.jobs(job_id, limit=limit, offset=offset, state=state, user=user)
        return _json_response(History(size=size, jobs=jobs))

    @router.post("/history", response_model=Stored)
    async def store(request: StoreRequest) -> Response:
        """Store jobs, or replace them. Once this is answered they survive a crash."""
        done = await service.store(request.jobs, _deadline(None, limits.deadline_s))
        return _json_response(Stored(stored=done))

    @router.post("/history/finish", response_model=JobRecord, responses=_refusals(404))
    async def finish(request: FinishRequest) -> Response:
        """Say how a stored job ended."""
        return _json_response(await service.finish(request, _deadline(None, limits.deadline_s)))

    @router.get("/plans", response_model=PlanList)
    def plans(
        open_only: Annotated[bool, Query(description="Only those with something to come")] = False,
    ) -> Response:
        """Plans for the cluster, pending and carried out."""
        return _json_response(
            PlanList(plans=[_plan_state(one) for one in service.plans.list(open_only=open_only)])
        )

    def decide(plan: str, decision: Decision, request: Request, *, approve: bool) -> Response:
        person = access.bearer(request.headers.get("authorization"))
        if person is None:
            raise ForbiddenError(
                "plans are decided with the token of --token-file only, also on this machine; or "
                "use `schedmate recover approve`."
            )
        by = f"{person} (own token)" if person else f"{decision.by} (token)"
        return _json_response(
            _plan_state(service.plans.decide(plan, approve=approve, by=by, note=decision.note))
        )

    @router.post("/plans/{plan}/approve", response_model=PlanState, responses=_refusals(404, 409))
    def approve(plan: PlanId, decision: Decision, request: Request) -> Response:
        """Let a proposed plan be carried out; the agent does that."""
        return decide(plan, decision, request, approve=True)

    @router.post("/plans/{plan}/reject", response_model=PlanState, responses=_refusals(404, 409))
    def reject(plan: PlanId, decision: Decision, request: Request) -> Response:
        """Say no to a plan; the same is not proposed again."""
        return decide(plan, decision, request, approve=False)

    return router


def _deadline(wanted_s: float | None, longest_s: float) -> float:
    return time.monotonic() + min(longest_s, wanted_s or longest_s)


def _plan_state(status: PlanStatus) -> PlanState:
    return PlanState(
        id=status.plan.id,
        state=status.state,
        since=status.since.time,
        by=status.by,
        note=status.note,
        plan=status.plan.model_dump(mode="json"),
    )


def _json_response(answer: BaseModel) -> Response:
    # a model needs no second validation
    return Response(answer.model_dump_json(by_alias=True), media_type="application/json")
