"""A Kubernetes API server: how it is reached, requests, lists and watches, fields of its
objects.

The official client handles addresses and credentials; requests and answers are plain JSON, since
custom resources have no models. Every request has a time limit and is throttled (`qps`); a server
that is overloaded is left alone for a while. `Mirror` is a local copy of all objects of one kind,
kept up to date by a watch.
"""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from schedmate.base.data import LARGEST, MOST_GPUS, encodable
from schedmate.base.errors import InputError, require
from schedmate.base.files import is_file
from schedmate.base.terminal import clean
from schedmate.cluster.adapter import ExecutorError, pause_s

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

    from schedmate.cluster.bounds import Bounds


MOST_CONNECTIONS = 64


def connect(kubeconfig: str | None = None, context: str | None = None) -> ApiClient:
    """A client for the cluster of a kubeconfig file, or the one in which this runs.

    Raises `MissingExtraError` without schedmate[k8s], and `InputError` if there is no cluster.
    """
    require("Kubernetes", "k8s", "kubernetes")
    import yaml
    from kubernetes import client, config

    configuration = client.Configuration()
    files = _kubeconfigs(kubeconfig)
    try:
        if kubeconfig is None and context is None:
            try:
                config.load_incluster_config(client_configuration=configuration)
            except config.ConfigException:
                _load_kubeconfig(files, None, configuration)
        else:
            _load_kubeconfig(files, context, configuration)
    except (config.ConfigException, OSError, ValueError, TypeError, yaml.YAMLError) as error:
        problem = f"{', '.join(files)}: {clean(error, 300).rstrip('.')}"
        raise InputError(f"no cluster is known: {problem}; {_NAME_A_FILE}.") from None
    configuration.connection_pool_maxsize = MOST_CONNECTIONS  # each watch keeps one
    configuration.retries = (
        False  # requests are retried by `Api`, which knows which may be repeated
    )
    return client.ApiClient(configuration)


_NAME_A_FILE = (
    "name a kubeconfig with --kubeconfig or KUBECONFIG, or run this in a pod with a service account"
)


def _kubeconfigs(named: str | None) -> list[str]:
    """The kubeconfig files, found as kubectl does."""
    paths = named or os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    return [paths] if named else [one for one in paths.split(os.pathsep) if one]


def _load_kubeconfig(files: list[str], context: str | None, into: Any) -> None:
    from kubernetes import config

    there = [one for one in files if is_file(Path(one))]
    if not there:
        raise InputError(f"no cluster is known: there is no {' or '.join(files)}; {_NAME_A_FILE}.")
    place = os.pathsep.join(there)
    config.load_kube_config(config_file=place, context=context, client_configuration=into)


# Events of a watch as they come, and what an API server's refusals say.


Json = dict[str, Any]

LONGEST_EVENT = 8 << 20
"""Bytes of one event of a watch at most; etcd keeps no object of more than 1.5 MiB."""


class KubernetesError(ExecutorError):
    """The API server refused a request (`code`, `reason`), or did not answer (`code` 0)."""

    def __init__(
        self, message: str, *, code: int = 0, reason: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.retry_after_s = code, reason, retry_after_s

    @property
    def passes(self) -> bool:
        """Whether the same request may be answered later."""
        return self.code in (0, 429) or self.code >= 500


class Watching:
    """Events of one watch; `close` may be called from another thread."""

    def __init__(self, answer: Any, path: str) -> None:
        self._answer, self._path = answer, path

    def __iter__(self) -> Iterator[tuple[str, Json]]:
        import urllib3

        left = b""
        try:
            for chunk in self._answer.stream(1 << 16):
                *lines, left = (left + chunk).split(b"\n")
                if len(left) > LONGEST_EVENT:
                    raise KubernetesError(f"an event of {self._path} is too long.")
                for line in lines:
                    if line.strip():
                        yield _event(line, self._path)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise KubernetesError(f"the watch of {self._path} broke: {clean(error)}.") from None
        finally:
            self._answer.close()

    def close(self) -> None:
        """End the watch and its readers."""
        self._answer.shutdown()


def _event(line: bytes, path: str) -> tuple[str, Json]:
    try:
        event = json.loads(line)
        kind, manifest = event["type"], event["object"]
    except (ValueError, RecursionError, TypeError, KeyError):
        raise KubernetesError(f"the watch of {path} sent something that is not an event.") from None
    if not isinstance(kind, str) or not isinstance(manifest, dict):
        raise KubernetesError(f"the watch of {path} sent something that is not an event.")
    if kind == "ERROR":
        raise KubernetesError(
            f"the watch of {path} ended: {clean(manifest.get('message'), 200)}.",
            code=int(manifest.get("code") or 500),
            reason=str(manifest.get("reason") or ""),
        )
    return kind, manifest


# Requests to a Kubernetes API server.
#
# The official client handles addresses and credentials; requests and answers are plain JSON, since
# custom resources have no models. Every request has a time limit and is throttled (`qps`); a
# server that is overloaded (429) or not ready (5xx) is asked again when it says so.


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
        """The address of the API server."""
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
        return self._json("POST", path, _dry_run_query(dry_run), body, waits=waits)

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
        """Change an object by a patch; return the object after the change."""
        return self._json("PATCH", path, _dry_run_query(dry_run), body, kind, timeout_s=timeout_s)

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
            document = json.loads(raw)
        except (ValueError, RecursionError):
            document = None
        if not isinstance(document, dict):
            raise KubernetesError(f"{self.server}{path} answered with something that is not JSON.")
        return document

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
            raise KubernetesError(
                f"{self.server} does not answer: {_network_reason(error)}."
            ) from None
        if not 200 <= answer.status < 300:
            raise self._refusal(method, path, answer)
        return answer

    def _read_body(self, answer: Any, path: str) -> bytes:
        import urllib3

        try:
            body = bytes(answer.read(LONGEST_ANSWER + 1))
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise KubernetesError(f"{self.server} broke off: {clean(error, 300)}.") from None
        if len(body) > LONGEST_ANSWER:
            answer.close()
            raise KubernetesError(f"{self.server}{path} answered with over {LONGEST_ANSWER} bytes.")
        answer.release_conn()
        return body

    def _refusal(self, method: Method, path: str, answer: Any) -> KubernetesError:
        try:
            status = json.loads(self._read_body(answer, path))
        except (ValueError, RecursionError, KubernetesError):
            status = {}
        status = status if isinstance(status, dict) else {}
        after = str(answer.headers.get("Retry-After", ""))
        reason = clean(status.get("message") or answer.reason or "no reason given", 400).rstrip(".")
        return KubernetesError(
            f"{self.server} refused {method} {path} ({answer.status}): {reason}.",
            code=answer.status,
            reason=str(status.get("reason") or ""),
            retry_after_s=min(60.0, float(after)) if after.isdigit() else None,
        )


def _network_reason(error: Exception) -> str:
    """Why a request was not answered: the system's reason, if there is one."""
    cause = error.__cause__ or error.__context__
    reason = cause.strerror if isinstance(cause, OSError) else None
    return clean(reason or error, 300).rstrip(".")


def _dry_run_query(dry_run: bool) -> Json:
    return {"dryRun": "All", "fieldValidation": "Strict"} if dry_run else {}


# A local copy of all objects of one kind that a selector names, updated by a watch.
#
# It is a list, then a watch from its version on, with bookmarks; it starts again if the server
# does not have that version any more (410), and every `RESYNC_S`. While it is not up to date,
# reading it is an error.


RESYNC_S = 3600.0
"""Interval after which everything is listed again, whatever the watch said [s]."""
WATCH_S = 240
"""How long one watch lasts; the server ends it then [s]."""
QUIET_S = 90.0
"""A watch without events for this long is broken: bookmarks come each minute [s]."""
ABSENT_S = 60.0
"""Interval of checking whether a kind that was not installed is now [s]."""
STALE_S = 180.0
"""Age after which the copy is not used any more [s]."""


class Mirror:
    """One list and watch, in a separate thread."""

    def __init__(
        self,
        api: Api,
        path: str,
        *,
        labels: str | None = None,
        slim: Callable[[Json], Json] = lambda one: one,
        changed: Callable[[], object] = lambda: None,
        optional: bool = False,
    ) -> None:
        """`slim` reduces an object to what is stored of it; `changed` is called after each change.

        An `optional` kind may not be installed: then there are no objects.
        """
        self.path = path
        self._api, self._labels, self._slim, self._changed = api, labels, slim, changed
        self._optional = optional
        self._objects: dict[str, Json] = {}
        self._lock = threading.Lock()
        self._synced = threading.Event()
        self._stopped = threading.Event()
        self._heard = 0.0
        self._problem = ""
        self._watching: Watching | None = None
        self._thread = threading.Thread(target=self._run, name=f"watch {path}", daemon=True)
        self.lists = 0
        """How often everything was listed."""
        self.version = ""
        """The version that it has reached, by events and bookmarks."""

    def start(self) -> None:
        """Start the thread that lists and watches."""
        self._thread.start()

    def stop(self) -> None:
        """End the watch, and wait a little for its thread."""
        self._stopped.set()
        watching = self._watching
        if watching is not None:
            with suppress(Exception):  # it has ended by itself meanwhile
                watching.close()
        self._thread.join(5.0)

    def items(self, wait_s: float = 30.0) -> list[Json]:
        """The objects. Raises `KubernetesError` if the copy is not up to date."""
        if not self._synced.wait(wait_s):
            raise KubernetesError(self._problem or f"{self.path} was not listed in {wait_s:g} s.")
        with self._lock:
            age = time.monotonic() - self._heard
            if age > STALE_S or self._problem:
                raise KubernetesError(
                    self._problem or f"nothing was heard of {self.path} for {age:.0f} s."
                )
            return list(self._objects.values())

    # -- its thread --------------------------------------------------------

    def _run(self) -> None:
        failures, until = 0, 0.0
        while not self._stopped.is_set():
            try:
                if not self.version or time.monotonic() > until:
                    self._list()
                    until = time.monotonic() + RESYNC_S
                began = time.monotonic()
                self._follow()
                failures = 0
                if time.monotonic() - began < 1.0:  # in case a server ends each watch immediately
                    self._stopped.wait(1.0)
            except KubernetesError as error:
                if self._stopped.is_set():
                    return
                if error.code == 404 and self._optional:
                    self._set({})
                    self.version = ""
                    self._stopped.wait(ABSENT_S)
                    continue
                if error.code == 410:  # what happened since that version is forgotten
                    self.version = ""
                else:
                    with self._lock:
                        self._problem = str(error)
                if not error.passes:
                    self.version = ""
                pause = pause_s(0.25, failures, random.random()) if failures else 0.0  # noqa: S311
                failures += 1
                self._stopped.wait(max(min(pause, 30.0), error.retry_after_s or 0.0))

    def _list(self) -> None:
        self.lists += 1
        items, version = self._api.list(self.path, labelSelector=self._labels)
        self._set({text_at(one, "metadata.uid"): self._slim(one) for one in items})
        self.version = version

    def _set(self, objects: dict[str, Json]) -> None:
        with self._lock:
            self._objects, self._problem, self._heard = objects, "", time.monotonic()
        self._synced.set()
        self._changed()

    def _follow(self) -> None:
        """One watch, from the version on that the last one came to, however that ended."""
        query = {"labelSelector": self._labels, "timeoutSeconds": WATCH_S}
        watching = self._api.watch(self.path, read_s=QUIET_S, resourceVersion=self.version, **query)
        self._watching = watching
        try:
            with self._lock:
                self._heard, self._problem = time.monotonic(), ""
            if self._stopped.is_set():
                return
            for kind, manifest in watching:
                uid = text_at(manifest, "metadata.uid")
                with self._lock:
                    self._heard, self._problem = time.monotonic(), ""
                    if kind == "DELETED":
                        self._objects.pop(uid, None)
                    elif kind in ("ADDED", "MODIFIED"):
                        self._objects[uid] = self._slim(manifest)
                # only now, so that an event that failed comes again
                self.version = text_at(manifest, "metadata.resourceVersion") or self.version
                if kind != "BOOKMARK":
                    self._changed()
        finally:
            self._watching = None
        with self._lock:
            self._heard = time.monotonic()


# The cluster that this machine, or this pod, belongs to.


_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def own_namespace() -> str:
    """The namespace of the pod that this runs in; `default` elsewhere."""
    try:
        return _OWN_NAMESPACE.read_text("ascii").strip() or "default"
    except (OSError, ValueError):
        return "default"


def reach_api(bounds: Bounds, kubeconfig: str | None = None, context: str | None = None) -> Api:
    """The cluster's API server, which has answered. Raises `InputError` where none does."""
    from schedmate import __version__

    client = connect(kubeconfig, context)
    api = Api(client, qps=bounds.kubernetes.qps, agent=f"schedmate/{__version__}")
    try:
        api.check()
    except InputError:
        api.close()
        raise
    return api


# Fields of objects that others wrote: what has another type than expected is not there.


def value_at(document: Any, path: str) -> Any:
    """The value at `a.b.c`, or None."""
    for name in path.split("."):
        if not isinstance(document, dict):
            return None
        document = document.get(name)
    return document


def object_at(document: Any, path: str) -> dict[str, Any]:
    """The mapping at `a.b.c`, or an empty one."""
    value = value_at(document, path)
    return value if isinstance(value, dict) else {}


def text_at(document: Any, path: str) -> str:
    """The text at `a.b.c`, or an empty one; lone surrogates are escapes in it."""
    value = value_at(document, path)
    return encodable(value) if isinstance(value, str) else ""


def list_at(document: Any, path: str) -> list[dict[str, Any]]:
    """The mappings in the list at `a.b.c`."""
    value = value_at(document, path)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def number_at(document: Any, path: str, default: int = 0) -> int:
    """The whole number at `a.b.c`, of at most 64 bits."""
    value = value_at(document, path)
    if not isinstance(value, int) or isinstance(value, bool):
        return default
    return value if abs(value) <= LARGEST else default


def device_count(value: Any) -> int:
    """A quantity of whole devices; 0 for anything that no cluster can have."""
    if isinstance(value, str):
        short = len(value) <= len(str(MOST_GPUS)) and value.isascii() and value.isdigit()
        value = int(value) if short else 0
    whole = isinstance(value, int) and not isinstance(value, bool)
    return value if whole and 0 <= value <= MOST_GPUS else 0


def mapping_at(document: Any, path: str) -> dict[str, str]:
    """The texts in the mapping at `a.b.c`: labels, annotations."""
    value = value_at(document, path)
    if not isinstance(value, dict):
        return {}
    return {name: encodable(text) for name, text in value.items() if isinstance(text, str)}


def time_at(document: Any, path: str) -> float | None:
    """The RFC 3339 time at `a.b.c` [s since epoch]."""
    try:
        return datetime.fromisoformat(text_at(document, path)).timestamp()
    except (ValueError, OverflowError):
        return None


def values_at(document: Any, path: str) -> Iterator[tuple[str, Any]]:
    """The values at a path, with their keys; `*` matches each entry of a mapping or list."""
    first, _, rest = path.partition(".")
    if first == "*":
        pairs = (
            document.items()
            if isinstance(document, dict)
            else enumerate(document)
            if isinstance(document, list)
            else ()
        )
        for key, value in pairs:
            if rest:
                for _, inner in values_at(value, rest):
                    yield str(key), inner
            else:
                yield str(key), value
        return
    if isinstance(document, dict) and first in document:
        yield from values_at(document[first], rest) if rest else iter([(first, document[first])])
