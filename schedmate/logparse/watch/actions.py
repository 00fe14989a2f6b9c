"""What a site has done when an alarm begins or is over: a request to its webhook, or a command.

The body of a request is the event as JSON. With a key it is signed: `X-Schedmate-Signature` is
`sha256=` and the HMAC of the `X-Schedmate-Time` header, a full stop and the body, so that neither
can be changed and an old request can be told. A command gets the event in its environment; nothing
of a log is ever a word of a command line.
"""

from __future__ import annotations

import hmac
import os
import shlex
import time
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlsplit

from schedmate.base.data import dumps
from schedmate.base.errors import UsageError
from schedmate.base.http import base_address, deadline, open_client
from schedmate.base.reading import read_bytes
from schedmate.base.running import run
from schedmate.base.terminal import clean
from schedmate.logparse.watch.alarms import EVENT_SCHEMA, AlarmEvent

REQUEST_S = 10.0
"""Time that a webhook has to answer [s]."""
COMMAND_S = 60.0
"""Time that a command may take [s]."""
FEWEST_KEY_BYTES = 16

Act = Callable[[AlarmEvent], str | None]
"""Carries out an event; gives None, or why it failed."""


def event_body(event: AlarmEvent) -> bytes:
    """An event as the JSON document that is sent."""
    return dumps({"schema": EVENT_SCHEMA, **event.model_dump(mode="json")}).encode("utf-8")


def signature(key: bytes, sent: str, body: bytes) -> str:
    """The signature of a request, for its receiver to compare."""
    return "sha256=" + hmac.new(key, sent.encode() + b"." + body, sha256).hexdigest()


def read_key(path: Path) -> bytes:
    """The key of signatures from a file, without white space at its ends."""
    key = read_bytes(path, most=4096).strip()
    if len(key) < FEWEST_KEY_BYTES:
        raise UsageError(
            f"{path} has fewer than {FEWEST_KEY_BYTES} bytes; write a longer key, such as by "
            "`openssl rand -hex 32`."
        )
    return key


def webhook(url: str, key: bytes | None) -> Act:
    """An action that posts events to an address. Raises `UsageError` for one that is none."""
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise UsageError("--webhook takes an address that begins with https:// or http://.")
    address = base_address(url)

    def post(event: AlarmEvent) -> str | None:
        import httpx2

        body, sent = event_body(event), str(int(time.time()))
        headers = {"Content-Type": "application/json", "X-Schedmate-Time": sent}
        if key is not None:
            headers["X-Schedmate-Signature"] = signature(key, sent, body)
        try:
            with open_client(url, []) as client, deadline(time.monotonic() + REQUEST_S):
                reply = client.post(address, content=body, headers=headers)
        except (httpx2.HTTPError, OSError) as error:
            return f"the webhook at {parts.hostname} was not reached ({clean(error, 200)})"
        if reply.is_success:
            return None
        return f"the webhook at {parts.hostname} answered {reply.status_code}"

    return post


def command(text: str) -> Act:
    """An action that runs a command; its words are split as by a shell, which does not run it."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise UsageError(f"--command cannot be split into words: {error}; correct it.") from None
    if not words:
        raise UsageError("--command names no program.")

    def act(event: AlarmEvent) -> str | None:
        environment = {
            **os.environ,
            "ALARM_JOB": clean(event.job),
            "ALARM_LOG": clean(event.log),
            "ALARM_KIND": event.condition.kind,
            "ALARM_STATE": event.state,
            "ALARM_SUMMARY": clean(event.summary),
            "ALARM_EVENT": event_body(event).decode("utf-8"),
        }
        try:
            finished = run(words, timeout_s=COMMAND_S, drop=True, environment=environment)
        except (OSError, ValueError) as error:
            return f"the command {words[0]} cannot be started ({clean(error, 200)})"
        if finished.code == 0:
            return None
        return f"the command {words[0]} ended with {finished.code}"

    return act
