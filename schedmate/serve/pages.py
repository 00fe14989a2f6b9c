"""The dashboard: one page, and signing in to decide on plans."""

from __future__ import annotations

import asyncio
import hmac
import time
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs

from fastapi import APIRouter, Request, Response
from fastapi.responses import HTMLResponse, RedirectResponse

from schedmate.errors import SchedmateError
from schedmate.report.page import digest, environment, shown
from schedmate.serve.access import COOKIE, SESSION_S, Access
from schedmate.serve.errors import status_of
from schedmate.serve.service import Service
from schedmate.serve.view import view

if TYPE_CHECKING:
    from jinja2 import Environment

FOLDER = Path(__file__).parent
SHARED = FOLDER.parent / "report" / "page.css"
"""The style of the reports."""


def pages(service: Service, access: Access) -> APIRouter:
    """The pages of one service; none of them is part of the API."""
    router = APIRouter(include_in_schema=False)

    @router.get("/")
    async def dashboard(request: Request) -> Response:
        session = access.session(request.headers.get("cookie"))
        if access.guarded and session is None:
            if not access.bears(request.headers.get("authorization")):
                return RedirectResponse("/login", 303)
        values = await asyncio.to_thread(view, service.board, service.plans, time.time())
        return _page("dashboard", session=session, **values)

    @router.get("/login")
    async def login() -> Response:
        return _page("login", guarded=access.guarded, problem=None)

    @router.post("/login")
    async def sign_in(request: Request) -> Response:
        token = _form(await request.body()).get("token", "")
        if not access.proves(token):
            await asyncio.sleep(0.5)  # guessing takes long
            problem = "That is not the token."
            return _page("login", 403, guarded=access.guarded, problem=problem)
        answer = RedirectResponse("/", 303)
        answer.set_cookie(
            COOKIE, access.sign_in(), max_age=int(SESSION_S), httponly=True, samesite="strict"
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
        by, decision = form.get("by", "").strip()[:100], form.get("decision")
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


def _form(body: bytes) -> dict[str, str]:
    """The fields of a form, the first of each name."""
    fields = parse_qs(body.decode("utf-8", "replace"), max_num_fields=20)
    return {name: values[0] for name, values in fields.items()}


def _message(status: int, sentence: str) -> Response:
    return _page("login", status, guarded=True, problem=shown(sentence))


def _page(name: str, status: int = 200, **values: Any) -> HTMLResponse:
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
    return SHARED.read_text("utf-8") + (FOLDER / "dashboard.css").read_text("utf-8")


@cache
def _script() -> str:
    return (FOLDER / "dashboard.js").read_text("utf-8")


@cache
def _environment() -> Environment:
    templates = environment(FOLDER)
    templates.filters["moment"] = lambda s: (
        f"{datetime.fromtimestamp(s, UTC):%Y-%m-%d %H:%M:%S} UTC"
    )
    return templates
