"""The service as an ASGI application."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from schedmate import __version__
from schedmate.errors import SchedmateError
from schedmate.serve import metrics
from schedmate.serve.access import Access
from schedmate.serve.api import routes
from schedmate.serve.errors import status_of
from schedmate.serve.guard import App, Guard
from schedmate.serve.models import Health
from schedmate.serve.pages import pages
from schedmate.serve.service import Service
from schedmate.terminal import clean

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
    api.include_router(routes(service, access))
    api.include_router(pages(service, access))
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
