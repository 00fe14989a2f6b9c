"""Requests to a Kubernetes API server.

The official client handles addresses and credentials; requests and answers are plain JSON, since
custom resources have no models. Every request has a time limit and is throttled (`qps`); a server
that is overloaded (429) or not ready (5xx) is asked again when it says so.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from schedmate.errors import InputError
from schedmate.schedulers.live.kubernetes.watching import Json, KubernetesError, Watching
from schedmate.terminal import clean

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

__all__ = ["Api", "Json", "KubernetesError", "Pace", "Watching"]

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"

TIMEOUT_S = 30.0
"""Time limit of a request, with its retries [s]."""
CONNECT_S = (3.0, 5.0)
"""How long the first request may take to reach the server, and to be answered [s]."""
PAGE = 500
"""Objects in one answer of a list."""
LONGEST_ANSWER = 64 << 20
"""Bytes of one answer at most."""


class Pace:
    """A rate limit of `qps` requests per second, with a burst of the same number."""

    def __init__(self, qps: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._qps, self._clock = qps, clock
        self._free_at = clock() - 1.0
        self._lock = threading.Lock()

    def turn_s(self) -> float:
        """Take a turn; return the time to wait for it [s]."""
        with self._lock:
            now = self._clock()
            self._free_at = max(self._free_at + 1.0 / self._qps, now - 1.0 + 1.0 / self._qps)
            return max(0.0, self._free_at - now)


class Api:
    """One API server, from any number of threads."""

    def __init__(self, client: ApiClient, *, qps: float = 50.0, agent: str = "schedmate") -> None:
        client.user_agent = agent
        self._client = client
        self._pace = Pace(qps)

    @property
    def server(self) -> str:
        """Its address."""
        return str(self._client.configuration.host)

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def check(self) -> None:
        """Raise `InputError` immediately if no API server answers, or it rejects our
        credentials."""
        try:
            self._read_body(self._open("GET", "/version", {}, None, "", CONNECT_S), "/version")
        except KubernetesError as error:
            if error.code not in (0, 401):  # it is there; what may be done is another matter
                return
            raise InputError(
                f"{str(error).rstrip('.')}; `kubectl version` tells whether the cluster is there, "
                "--kubeconfig and --context name another one."
            ) from None

    def get(self, path: str, **query: Any) -> Json:
        """The object at a path, or information about the server."""
        return self._json("GET", path, query)

    def list(self, path: str, **query: Any) -> tuple[list[Json], str]:
        """All objects of a list, page by page, and the version of the list.

        A list whose pages expire (410) is read again, in one page.
        """
        items: list[Json] = []
        more: Json = {"limit": PAGE}
        while True:
            try:
                page = self._json("GET", path, {**query, **more})
            except KubernetesError as error:
                if error.code != 410 or "continue" not in more:
                    raise
                items, more = [], {}
                continue
            items += page.get("items") or ()
            about = page.get("metadata") or {}
            if not about.get("continue"):
                return items, str(about.get("resourceVersion") or "")
            more = {"limit": PAGE, "continue": about["continue"]}

    def create(self, path: str, body: Json, *, dry_run: bool = False, waits: bool = True) -> Json:
        """Create an object, or a subresource such as an eviction.

        It is not repeated if it may have been done; `waits`: whether to wait when the server is
        overloaded (429).
        """
        return self._json("POST", path, _dry(dry_run), body, waits=waits)

    def replace(self, path: str, body: Json) -> Json:
        """Replace an object; refused (409) when its resourceVersion is not the last one."""
        return self._json("PUT", path, {}, body)

    def patch(
        self,
        path: str,
        body: Any,
        kind: str,
        *,
        dry_run: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> Json:
        """Change an object."""
        return self._json("PATCH", path, _dry(dry_run), body, kind, timeout_s=timeout_s)

    def text(self, path: str, *, timeout_s: float = TIMEOUT_S, **query: Any) -> bytes:
        """The text at a path, such as a log."""
        return self._request("GET", path, query, timeout_s=timeout_s)

    def watch(self, path: str, *, read_s: float, **query: Any) -> Watching:
        """Events of a list as they come, until the connection ends.

        Raises `KubernetesError` if nothing comes for `read_s` [s].
        """
        query = {**query, "watch": "true", "allowWatchBookmarks": "true"}
        return Watching(self._open("GET", path, query, None, "", (10.0, read_s)), path)

    # -- one request -------------------------------------------------------

    def _json(
        self,
        method: Method,
        path: str,
        query: Json,
        body: Any = None,
        kind: str = "application/json",
        *,
        waits: bool = True,
        timeout_s: float = TIMEOUT_S,
    ) -> Json:
        raw = self._request(method, path, query, body, kind, waits=waits, timeout_s=timeout_s)
        try:
            found = json.loads(raw)
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, dict):
            raise KubernetesError(f"{self.server}{path} answered with something that is not JSON.")
        return found

    def _request(
        self,
        method: Method,
        path: str,
        query: Json,
        body: Any = None,
        kind: str = "application/json",
        *,
        waits: bool = True,
        timeout_s: float = TIMEOUT_S,
    ) -> bytes:
        deadline, tries = time.monotonic() + timeout_s, 0
        while True:
            left = max(1.0, deadline - time.monotonic())
            try:
                answer = self._open(method, path, query, body, kind, left)
                return self._read_body(answer, path)
            except KubernetesError as error:
                # 429 and 503 say that it was not done; without an answer only reading is safe
                again = error.code in (429, 503) if waits else False
                if not again and not (method == "GET" and error.passes):
                    raise
                pause = error.retry_after_s or min(8.0, 0.25 * 2.0**tries)
                if time.monotonic() + pause >= deadline:
                    raise
                time.sleep(pause)
                tries += 1

    def _open(
        self, method: Method, path: str, query: Json, body: Any, kind: str, timeout: Any
    ) -> Any:
        import urllib3

        time.sleep(self._pace.turn_s())
        pairs = [(name, value) for name, value in query.items() if value is not None]
        headers = {"Accept": "application/json, */*", "Content-Type": kind}
        method_, url, headers, sent, _ = self._client.param_serialize(
            *(method, path),
            query_params=pairs,
            header_params=headers,
            body=body,
            auth_settings=["BearerToken"],
        )
        try:
            answer = self._client.rest_client.pool_manager.request(
                *(method_, url),
                body=None if sent is None else json.dumps(sent),
                headers=headers,
                timeout=urllib3.Timeout(*timeout) if isinstance(timeout, tuple) else timeout,
                preload_content=False,
                redirect=False,
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise KubernetesError(f"{self.server} does not answer: {_reason(error)}.") from None
        if not 200 <= answer.status < 300:
            raise self._refusal(method, path, answer)
        return answer

    def _read_body(self, answer: Any, path: str) -> bytes:
        import urllib3

        try:
            found = bytes(answer.read(LONGEST_ANSWER + 1))
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise KubernetesError(f"{self.server} broke off: {clean(error, 300)}.") from None
        if len(found) > LONGEST_ANSWER:
            answer.close()
            raise KubernetesError(f"{self.server}{path} answered with over {LONGEST_ANSWER} bytes.")
        answer.release_conn()
        return found

    def _refusal(self, method: Method, path: str, answer: Any) -> KubernetesError:
        try:
            status = json.loads(self._read_body(answer, path))
        except (ValueError, RecursionError, KubernetesError):
            status = {}
        status = status if isinstance(status, dict) else {}
        after = str(answer.headers.get("Retry-After", ""))
        said = clean(status.get("message") or answer.reason or "no reason given", 400).rstrip(".")
        return KubernetesError(
            f"{self.server} refused {method} {path} ({answer.status}): {said}.",
            code=answer.status,
            reason=str(status.get("reason") or ""),
            retry_after_s=min(60.0, float(after)) if after.isdigit() else None,
        )


def _reason(error: Exception) -> str:
    """Why a request was not answered: the system's reason, if there is one."""
    cause = error.__cause__ or error.__context__
    said = cause.strerror if isinstance(cause, OSError) else None
    return clean(said or error, 300).rstrip(".")


def _dry(dry_run: bool) -> Json:
    return {"dryRun": "All", "fieldValidation": "Strict"} if dry_run else {}
