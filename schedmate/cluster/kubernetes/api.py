"""A Kubernetes API server: requests, lists and watches, and fields of its objects.

Requests and answers are plain JSON, since custom resources have no models. Every request has a time
limit and is throttled (`qps`); a server that is overloaded is left alone for a while. `Mirror` is a
local copy of all objects of one kind, kept up to date by a watch. Objects pass one boundary as they
are read (`wrong_with`): what is no object of a cluster is skipped and counted.
"""

from __future__ import annotations

import random
import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from schedmate.base.data import LARGEST, MOST_GPUS, encodable
from schedmate.base.errors import InputError
from schedmate.base.terminal import clean
from schedmate.cluster.adapter import Skipped, pause_s
from schedmate.cluster.kubernetes.connection import (
    Connection,
    Json,
    KubernetesError,
    NoRoomError,
    Room,
    Streaming,
    connect,
    parsed,
    size_of,
    texts_of,
)

if TYPE_CHECKING:
    from schedmate.cluster.bounds import Bounds

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]

JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"

TIMEOUT_S = 30.0
"""Time limit of a request, with its retries [s]."""
CONNECT_S = 8.0
"""How long the first request may take [s]."""
LIST_S = 300.0
"""Time limit of a list, with all of its pages [s]."""
PAGE = 500
"""Objects in one answer of a list."""
LONGEST_ANSWER = 8 << 20
"""Bytes of one answer at most; a page of a list that is longer is asked for in smaller ones."""
LONGEST_TEXT = 33 << 20
"""Bytes of a text at most, such as a log."""
LONGEST_EVENT = 4 << 20
"""Bytes of one event of a watch at most; etcd keeps no object of more than 1.5 MiB."""
LONGEST_WATCH = 256 << 20
"""Bytes of one watch at most; then it is begun anew."""
LONGEST_TOKEN = 8192
"""Characters of a place in a list, or of a version, at most."""
LISTED_MB = 256
"""Memory that a list which is no mirror's may take [MiB]."""
MEMORY_MB = 512
"""Memory that all mirrors of a server may take together, by default [MiB]."""


class Watching:
    """Events of one watch; `close` may be called from another thread."""

    def __init__(self, api: Api, answer: Streaming, path: str) -> None:
        self._api, self._answer, self._path = api, answer, path

    def __iter__(self) -> Iterator[tuple[str, Json]]:
        left = bytearray()  # a server may send it byte by byte
        for part in self._answer.parts():
            left += part
            if b"\n" in part:
                *lines, rest = bytes(left).split(b"\n")
                left = bytearray(rest)
                for line in lines:
                    if line.strip():
                        yield self._event(line)
            if len(left) > LONGEST_EVENT:
                raise KubernetesError(f"an event of {self._path} is too long.")

    def _event(self, line: bytes) -> tuple[str, Json]:
        with self._api.parsing:
            event = parsed(line)
        kind, manifest = (event or {}).get("type"), (event or {}).get("object")
        if not isinstance(kind, str) or not isinstance(manifest, dict):
            raise KubernetesError(f"the watch of {self._path} sent something that is not an event.")
        if kind == "ERROR":
            message = self._api.connection.scrubbed(text_at(manifest, "message"))
            raise KubernetesError(
                f"the watch of {self._path} ended: {clean(message, 200)}.",
                code=number_at(manifest, "code", 500),
                reason=clean(text_at(manifest, "reason"), 100),
            )
        return kind, manifest

    def close(self) -> None:
        """End the watch and its readers."""
        self._answer.end()


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

    def __init__(
        self,
        connection: Connection,
        *,
        qps: float = 50.0,
        agent: str = "schedmate",
        memory_mb: int = MEMORY_MB,
    ) -> None:
        """`memory_mb` is what mirrors may take [MiB]."""
        connection.agent = agent
        self.connection = connection
        self._pace = Pace(qps)
        self.room = Room(memory_mb << 20)
        """For the objects of all mirrors."""
        self.parsing = threading.Lock()
        """Answers are unpacked one at a time: each may take many times its length."""
        self.skipped = Skipped()
        """Objects that were not taken."""

    @property
    def server(self) -> str:
        """The address of the API server."""
        return self.connection.server

    def close(self) -> None:
        """Close the connections."""
        self.connection.close()

    def check(self) -> None:
        """Raise `InputError` immediately if no API server answers, or it rejects our
        credentials."""
        try:
            self._once("GET", "/version", {}, None, "", time.monotonic() + CONNECT_S)
        except KubernetesError as error:
            if error.code not in (0, 401):  # it is there; what may be done is another matter
                return
            raise InputError(
                f"{str(error).rstrip('.')}; `kubectl version` tells whether the cluster is there, "
                "--kubeconfig and --context name another one."
            ) from None

    def get(self, path: str, **query: Any) -> Json:
        """The object at a path, or information about the server.

        Raises `KubernetesError` for one that no cluster has, as the boundary of all objects.
        """
        manifest = self._json("GET", path, query)
        if "metadata" in manifest and (problem := wrong_with(manifest)):
            raise KubernetesError(f"{self.server}{path}: {problem}.", code=500)
        return manifest

    def list(
        self,
        path: str,
        *,
        slim: Callable[[Json], Json] = lambda one: one,
        keep: Callable[[Json, int], None] | None = None,
        **query: Any,
    ) -> tuple[list[Json], str]:
        """All objects of a list, page by page, and the version of the list.

        `slim` reduces an object to what is needed of it; `keep` is called with each and its size in
        memory [bytes] instead of a list being made. A list whose pages expire (410) is read again,
        except where what was kept of it is not here.
        """
        items: list[Json] = []
        room = Room(LISTED_MB << 20)
        ends = time.monotonic() + LIST_S
        limit, place = PAGE, ""
        while True:
            more = {"limit": limit, "continue": place or None}
            left = min(TIMEOUT_S, ends - time.monotonic())
            if left <= 0.0:
                raise KubernetesError(f"{self.server}{path} was not listed in {LIST_S:g} s.")
            try:
                raw = self._request("GET", path, {**query, **more}, timeout_s=left)
                with self.parsing:
                    page = self._document(raw, path)
                    del raw
                    for manifest, size in self._taken(page.get("items"), path, slim):
                        if keep is not None:
                            keep(manifest, size)
                            continue
                        room.take(size, path)
                        items.append(manifest)
            except KubernetesError as error:
                if error.too_large and limit > 1:
                    limit = max(1, limit // 4)
                    continue
                if error.code != 410 or not place or keep is not None:
                    raise
                items, room, place = [], Room(LISTED_MB << 20), ""
                continue
            before, place = place, text_at(page, "metadata.continue")
            if not place:
                return items, version_at(page)
            if place == before or len(place) > LONGEST_TOKEN:
                raise KubernetesError(f"{self.server}{path} lists without an end.")

    def _taken(
        self, manifests: Any, path: str, slim: Callable[[Json], Json]
    ) -> Iterator[tuple[Json, int]]:
        """The objects of a page, reduced, with their sizes [bytes]."""
        for manifest in manifests if isinstance(manifests, list) else ():
            kept = self.accept(manifest, path, slim)
            if kept is not None:
                yield kept

    def accept(
        self, manifest: Any, path: str, slim: Callable[[Json], Json]
    ) -> tuple[Json, int] | None:
        """An object, reduced, and its size in memory [bytes]; None if it is skipped."""
        problem = wrong_with(manifest)
        if not problem:
            try:
                kept = slim(manifest)
                size = size_of(kept)
                if any(self._holds_token(text) for text in texts_of(kept)):
                    problem = "it holds our own token"
                else:
                    self.skipped.drop(f"an object of {path}", _identity(manifest))
                    return kept, size
            except (ValueError, TypeError, RecursionError) as error:
                problem = clean(error, 200)
        self.skipped.add(f"an object of {path}", _identity(manifest), problem)
        return None

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
        return self._request("GET", path, query, timeout_s=timeout_s, text=True)

    def watch(self, path: str, *, read_s: float, **query: Any) -> Watching:
        """Events of a list as they come, until the connection ends, at the latest a minute after
        the `timeoutSeconds` of the query.

        Raises `KubernetesError` if nothing comes for `read_s` [s].
        """
        time.sleep(self._pace.turn_s())
        query = {**query, "watch": "true", "allowWatchBookmarks": "true"}
        ends = time.monotonic() + float(query.get("timeoutSeconds") or WATCH_S) + 60.0
        answer = self.connection.stream(
            path, query, ends=ends, limit=LONGEST_WATCH, silence_s=read_s
        )
        return Watching(self, answer, path)

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
        with self.parsing:
            document = self._document(raw, path)
        if any(self._holds_token(text) for text in texts_of(document)):
            raise KubernetesError(f"{self.server}{path} answered with our own token.")
        return document

    def _holds_token(self, text: str) -> bool:
        return len(text) >= SHORTEST_TOKEN and self.connection.hidden_in(text)

    def _document(self, raw: bytes, path: str) -> Json:
        document = parsed(raw)
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
        text: bool = False,
    ) -> bytes:
        """The body of an answer within a time limit that all attempts share."""
        ends, tries = time.monotonic() + timeout_s, 0
        while True:
            try:
                return self._once(method, path, query, body, kind, ends, text=text)
            except KubernetesError as error:
                # 429 and 503 say that it was not done; without an answer only reading is safe
                again = error.code in (429, 503) if waits else False
                if error.too_large or (not again and not (method == "GET" and error.passes)):
                    raise
                pause = error.retry_after_s or min(8.0, 0.25 * 2.0**tries)
                if time.monotonic() + pause >= ends:
                    raise
                time.sleep(pause)
                tries += 1

    def _once(
        self,
        method: Method,
        path: str,
        query: Json,
        body: Any,
        kind: str,
        ends: float,
        *,
        text: bool = False,
    ) -> bytes:
        time.sleep(self._pace.turn_s())
        limit = LONGEST_TEXT if text else LONGEST_ANSWER
        return self.connection.send(
            *(method, path, query, body, kind), ends=ends, limit=limit, opaque=True
        )


def _dry_run_query(dry_run: bool) -> Json:
    return {"dryRun": "All", "fieldValidation": "Strict"} if dry_run else {}


# What is an object of a cluster: the one boundary that all of them pass as they are read. Names
# become parts of paths, of requests and of ids, so they are those that Kubernetes allows.


SHORTEST_TOKEN = 8
"""Characters of the shortest text that could hold a token of ours."""

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?\Z")
_LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\Z")
_LABEL_VALUE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\Z")
_UID = re.compile(r"[A-Za-z0-9._:-]{1,128}\Z")
_VERSION = re.compile(r"[A-Za-z0-9._:-]{0,128}\Z")


def is_name(text: Any) -> bool:
    """Whether a text is a name by Kubernetes' rules for objects (a DNS subdomain)."""
    if not isinstance(text, str) or _NAME.match(text) is None:
        return False
    return not any(pair in text for pair in ("..", ".-", "-."))


def is_short_name(text: Any) -> bool:
    """Whether a text is a name of a namespace or a container (a DNS label)."""
    return isinstance(text, str) and _LABEL.match(text) is not None


def is_label_value(text: Any) -> bool:
    """Whether a text may be the value of a label, and so a term of a selector."""
    return isinstance(text, str) and _LABEL_VALUE.match(text) is not None


def wrong_with(manifest: Any) -> str:
    """What keeps a value from being an object of a cluster; empty if nothing does."""
    about = manifest.get("metadata") if isinstance(manifest, dict) else None
    if not isinstance(about, dict):
        return "it has no metadata"
    if not is_name(about.get("name")):
        return f"{_shown(about.get('name'))} cannot be its name"
    if about.get("namespace") and not is_short_name(about["namespace"]):
        return f"{_shown(about['namespace'])} cannot be its namespace"
    if not isinstance(about.get("uid"), str) or _UID.match(about["uid"]) is None:
        return f"{_shown(about.get('uid'))} cannot be its uid"
    version = about.get("resourceVersion", "")
    if not isinstance(version, str) or _VERSION.match(version) is None:
        return f"{_shown(version)} cannot be its version"
    node = value_at(manifest, "spec.nodeName")
    if node and not is_name(node):
        return f"{_shown(node)} cannot be the name of its node"
    for place in ("spec.containers", "status.containerStatuses"):
        for container in list_at(manifest, place):
            if not is_short_name(container.get("name")):
                return f"{_shown(container.get('name'))} cannot be the name of a container"
    return ""


def version_at(manifest: Any) -> str:
    """The version of an object or a list; empty for what is none."""
    version = value_at(manifest, "metadata.resourceVersion")
    return version if isinstance(version, str) and _VERSION.match(version) else ""


def _shown(value: Any) -> str:
    """A value that should have been a name, for people."""
    return repr(clean(value, 60)) if isinstance(value, str) else f"a {type(value).__name__}"


def _identity(manifest: Any) -> str:
    uid, name = value_at(manifest, "metadata.uid"), value_at(manifest, "metadata.name")
    return f"{str(uid)[:130]} {str(name)[:260]}"


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
        self._sizes: dict[str, int] = {}
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
                    self._set({}, {})
                    self.version = ""
                    self._stopped.wait(ABSENT_S)
                    continue
                if error.code == 410:  # what happened since that version is forgotten
                    self.version = ""
                else:
                    if isinstance(error, NoRoomError):  # what is left is for the others
                        self._set({}, {})
                        self.version = ""
                    with self._lock:
                        self._problem = str(error)
                if not error.passes:
                    self.version = ""
                pause = pause_s(0.25, failures, random.random()) if failures else 0.0  # noqa: S311
                failures += 1
                self._stopped.wait(max(min(pause, 30.0), error.retry_after_s or 0.0))

    def _list(self) -> None:
        self.lists += 1
        objects: dict[str, Json] = {}
        sizes: dict[str, int] = {}

        def keep(manifest: Json, size: int) -> None:
            uid = text_at(manifest, "metadata.uid")
            self._api.room.take(size - sizes.get(uid, self._sizes.get(uid, 0)), self.path)
            objects[uid], sizes[uid] = manifest, size

        try:
            _, version = self._api.list(
                self.path, slim=self._slim, keep=keep, labelSelector=self._labels
            )
        except BaseException:
            taken = sum(size - self._sizes.get(uid, 0) for uid, size in sizes.items())
            self._api.room.take(-taken, self.path)
            raise
        self._set(objects, sizes)
        self.version = version

    def _set(self, objects: dict[str, Json], sizes: dict[str, int]) -> None:
        """Replace the copy; what is new in `sizes` was taken from the room."""
        gone = sum(size for uid, size in self._sizes.items() if uid not in sizes)
        self._api.room.take(-gone, self.path)
        with self._lock:
            self._objects, self._problem, self._heard = objects, "", time.monotonic()
            self._sizes = sizes
        self._synced.set()
        self._changed()

    def _take(self, kind: str, manifest: Json) -> None:
        """What an event says of one object."""
        uid = text_at(manifest, "metadata.uid")
        kept = None
        if kind in ("ADDED", "MODIFIED"):
            kept = self._api.accept(manifest, self.path, self._slim)
        size = kept[1] if kept is not None else 0
        self._api.room.take(size - self._sizes.get(uid, 0), self.path)
        with self._lock:
            if kept is not None:
                self._objects[uid], self._sizes[uid] = kept
            else:
                self._objects.pop(uid, None)
                self._sizes.pop(uid, None)

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
                with self._lock:
                    self._heard, self._problem = time.monotonic(), ""
                if kind in ("ADDED", "MODIFIED", "DELETED"):
                    self._take(kind, manifest)
                # only now, so that an event that failed comes again
                self.version = version_at(manifest) or self.version
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

    section = bounds.kubernetes
    api = Api(
        connect(kubeconfig, context),
        qps=section.qps,
        agent=f"schedmate/{__version__}",
        memory_mb=section.memory_mb,
    )
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
