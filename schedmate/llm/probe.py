"""Which models an endpoint serves, and from where it can be reached."""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from pathlib import Path

from schedmate.errors import ModelError, SchedmateError
from schedmate.llm.endpoint import Endpoint, api_key
from schedmate.llm.failures import named

USABLE_BILLIONS = 7.0
"""Smaller models fail at reading repositories (SchedMate paper, section 5)."""
TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Served:
    """A model that a server offers; `context` is its context length [tokens], if stated."""

    name: str
    context: int | None
    owner: str


def served(where: Endpoint, *, timeout_s: float = TIMEOUT_S) -> list[Served]:
    """The models of a server, as `/v1/models` lists them; raises `ModelError`.

    `timeout_s` bounds the request [s]; it has no more than `TIMEOUT_S`.
    """
    import openai

    from schedmate.client import base_address, deadline, open_client

    key = api_key()
    try:
        with (
            openai.OpenAI(
                base_url=base_address(where.base_url),
                api_key=key or "none",
                max_retries=0,
                http_client=open_client(where.base_url, [key]),
            ) as client,
            deadline(time.monotonic() + min(timeout_s, TIMEOUT_S)),
        ):
            page = client.models.list()
        return [
            Served(str(one.id), _context(one.model_extra or {}), str(one.owned_by or ""))
            for one in page.data
        ]
    except SchedmateError:
        raise
    except Exception as error:  # noqa: BLE001 - whatever a client raises on such a reply
        raise named(error, where) from None


def _context(extra: dict[str, object]) -> int | None:
    meta = extra.get("meta")
    for known in (
        extra.get("max_model_len"),
        meta.get("n_ctx") if isinstance(meta, dict) else None,
    ):
        if isinstance(known, int):
            return known
    return None


def first_model(where: Endpoint, *, timeout_s: float = TIMEOUT_S) -> str:
    """The name of the first model that a server offers; see `served`."""
    models = served(where, timeout_s=timeout_s)
    if not models:
        raise ModelError("unavailable", f"{where.place} serves no model; name one with --model")
    return models[0].name


def billions(model: str) -> float | None:
    """Parameters stated in a model's name [10^9]: 7 for Qwen2.5-7B-Instruct."""
    sizes = re.findall(r"(?<![\w.])(\d+(?:\.\d+)?)([bBmM])(?![a-zA-Z])", model.replace("_", "-"))
    found = [float(number) * (1.0 if unit in "bB" else 0.001) for number, unit in sizes]
    return max(found) if found else None


def listens_openly(port: int) -> bool:
    """Whether a server of this machine accepts connections on that port from any network.

    False if unknown: only Linux shows it without privileges.
    """
    listening, anywhere = "0A", {"0" * 8, "0" * 32}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            rows = Path(table).read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for row in rows:
            _, local, _, state, *_ = row.split()
            address, _, number = local.partition(":")
            if state == listening and int(number, 16) == port and address in anywhere:
                return True
    return False
