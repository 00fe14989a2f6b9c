"""What jobs used of what they asked for: by the scheduler, and by a Prometheus server.

Slurm knows what its gatherers write down, which on many sites is no use of GPUs at all. What
exporters measure by DCGM, NVML and control groups is in Prometheus: the setting `prometheus` names
one, and `usage.yaml` has what it is asked. The scheduler's own numbers come first.
"""

from __future__ import annotations

import base64
import json
import math
import time
from collections.abc import Mapping
from http.client import HTTPException
from string import Template
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import unquote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from schedmate.base.data import load
from schedmate.base.errors import InputError
from schedmate.base.files import without_password
from schedmate.base.terminal import clean
from schedmate.cluster.adapter import MOST_USE, Usage

USED = "used"
"""The mark in an agent's memory: by job `cpu`, `gpu`, `memory` [0 to 1] and `gpu_memory_mb`;
null: unknown."""
ANSWER_S = 5.0
"""Time for one answer of the server [s]."""
MOST_BYTES = 1 << 20
"""Bytes of one answer that are read."""
SHORTEST_S = 60.0
"""Time that is asked for at least, since measurements are some seconds apart [s]."""


class Stretch(NamedTuple):
    """The time in which a job ran [s since epoch]."""

    began: float
    until: float


def completed(
    known: Mapping[str, Usage],
    prometheus: str | None,
    kind: str,
    labels: Mapping[str, Mapping[str, str]],
    ran: Mapping[str, Stretch],
    *,
    within_s: float = math.inf,
) -> tuple[dict[str, Usage], str]:
    """What jobs used, by id: what the scheduler knows, then what Prometheus has; and what kept it
    from being asked, in a sentence, or an empty text.

    `labels` are those that exporters give a job of this kind of cluster (`measured_as` of an
    adapter), `ran` when it ran. After the first answer that fails, or after `within_s`, no more are
    asked for.
    """
    found, end = dict(known), time.monotonic() + within_s
    if prometheus is None:
        return found, ""
    for job, stretch in ran.items():
        if not labels.get(job):
            continue
        if time.monotonic() > end:
            break
        try:
            measured = measured_usage(prometheus, kind, labels[job], stretch)
        except InputError as error:
            return found, str(error)
        own = found.get(job, Usage())
        whole = {
            name: value if value is not None else getattr(measured, name)
            for name, value in own._asdict().items()
        }
        if any(value is not None for value in whole.values()):
            found[job] = Usage(**whole)
    return found, ""


def shares_of(used: Usage) -> dict[str, float | None]:
    """What people are shown of it: shares, and the memory of a GPU [MiB]."""
    memory = used.gpu_memory_bytes
    return {
        "cpu": used.cpu,
        "gpu": used.gpu,
        "memory": used.memory,
        "gpu_memory_mb": None if memory is None else memory / 2**20,
    }


def measured_usage(prometheus: str, kind: str, labels: Mapping[str, str], ran: Stretch) -> Usage:
    """What a Prometheus server has measured of a job; raises `InputError` where it does not
    answer."""
    took = ran.until - ran.began
    values = _ask(prometheus, query_of(kind, labels, took), ran.until)
    cpus, cpu_s = values.get("cpus"), values.get("cpu_s")
    cpu = cpu_s / (cpus * took) if cpus and cpu_s is not None and took > 0 else None
    gpu = values.get("gpu")
    return Usage(
        cpus=None if cpus is None else max(1, round(cpus)),
        cpu=None if cpu is None or cpu > MOST_USE else min(1.0, cpu),
        memory_bytes=values.get("memory_bytes"),
        memory_asked_bytes=values.get("memory_asked_bytes"),
        gpu=None if gpu is None or gpu > MOST_USE else min(1.0, gpu),
        gpu_memory_bytes=values.get("gpu_memory_bytes"),
    )


def query_of(kind: str, labels: Mapping[str, str], took_s: float) -> str:
    """All that is asked of one job, as one expression; each value has the label `quantity`."""
    over = f"{math.ceil(max(SHORTEST_S, took_s))}s"
    parts = []
    for quantity, expressions in load("cluster/usage.yaml")[kind].items():
        either = " or ".join(
            f"({Template(one).substitute(labels, over=over)})" for one in expressions
        )
        parts.append(f'label_replace({either}, "quantity", "{quantity}", "", "")')
    return " or ".join(parts)


class _NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        """A server that points elsewhere is not the one that was named."""


def _ask(prometheus: str, query: str, at: float) -> dict[str, float]:
    """The values of an expression by their label `quantity`."""
    parts = urlsplit(prometheus)
    place = without_password(prometheus)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise InputError(f"{place} is no address of a Prometheus server; it begins with https://.")
    address = parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl().rstrip("/")
    body = urlencode({"query": query, "time": f"{at:.3f}", "timeout": f"{ANSWER_S:g}s"})
    request = Request(f"{address}/api/v1/query", data=body.encode())  # noqa: S310 - checked above
    if parts.username is not None:
        login = f"{unquote(parts.username)}:{unquote(parts.password or '')}"
        request.add_header("Authorization", f"Basic {base64.b64encode(login.encode()).decode()}")
    end, raw = time.monotonic() + ANSWER_S, b""
    try:
        with build_opener(_NoRedirect).open(request, timeout=ANSWER_S) as reply:
            while (piece := reply.read1(1 << 16)) and len(raw) <= MOST_BYTES:
                raw += piece
                if time.monotonic() > end:
                    raise TimeoutError(f"its answer takes longer than {ANSWER_S:g} s")
        document = json.loads(raw)
        return dict(_values(document["data"]["result"]))
    except HTTPError as error:
        why = f"it answered {error.code}: {clean(error.read(2000).decode(errors='replace'), 200)}"
    except (OSError, HTTPException) as error:
        why = clean(getattr(error, "reason", error), 200)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        why = "its answer is none of Prometheus"
    raise InputError(f"the Prometheus server {place} was not of use: {why}.") from None


def _values(result: Any) -> list[tuple[str, float]]:
    found = []
    for sample in result:
        name, value = sample["metric"].get("quantity"), float(sample["value"][1])
        if isinstance(name, str) and math.isfinite(value) and value >= 0:
            found.append((name, value))
    return found
