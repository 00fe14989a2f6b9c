"""What the stand-in for an API server answers to one request."""

from __future__ import annotations

import base64
import copy
import json
import re
import time
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Protocol

import jsonpatch
import yaml
from api_discovery import discovery
from api_patches import json_merged, leaf, leaves, selected, selected_by
from api_rights import VERBS, Request, Rights
from api_schemas import WrongError, check, merged, resources, schema_of
from api_store import Key, Store

ADMIN = "admin"
BOOKMARKS_S = 0.5
"""How often a watch gets a bookmark [s]; a real server sends them each minute."""
PATH = re.compile(
    r"/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+)/(?P<version>[^/]+))"
    r"/(?:namespaces/(?P<namespace>[^/]+)/)?(?P<plural>[a-z]+)"
    r"(?:/(?P<name>[^/]+))?(?:/(?P<sub>[a-z]+))?/?"
)
TERMINAL = ("Succeeded", "Failed")


class Failure(Exception):  # noqa: N818 - the API's own word
    """An answer that is no success."""

    def __init__(
        self, code: int, reason: str, message: str, retry_after: int | None = None, **details: Any
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.retry_after, self.details = code, reason, retry_after, details

    @property
    def status(self) -> dict[str, Any]:
        return {
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": str(self), "reason": self.reason, "code": self.code, "details": self.details,
        }  # fmt: skip


class Server(Protocol):
    """What a call needs of its server."""

    store: Store
    rights: Rights | None
    logs: dict[tuple[str, str, str, bool], str]

    @property
    def stopping(self) -> bool: ...


class Call:
    """One request."""

    def __init__(
        self,
        server: Server,
        method: str,
        path: str,
        query: dict[str, str],
        who: str,
        raw: bytes,
        headers: Mapping[str, str],
    ) -> None:
        self.server, self.store = server, server.store
        self.method, self.path, self.query, self.who = method, path, query, who
        self.raw, self.kind = raw, (headers.get("Content-Type") or "").split(";")[0]
        self.dry = query.get("dryRun") == "All"

    def answer(self) -> tuple[int, Any]:
        found = discovery(self.path) if self.method == "GET" else None
        if found is not None:
            return 200, found
        match = PATH.fullmatch(self.path)
        if match is None:
            raise Failure(404, "NotFound", "the server could not find the requested resource")
        group, version = match["group"] or "", match["core"] or match["version"]
        plural, self.name, self.sub = match["plural"], match["name"] or "", match["sub"] or ""
        namespace = match["namespace"] or ""
        resource = resources().get((group, version, plural))
        if plural == "selfsubjectaccessreviews" and self.method == "POST":
            return 201, self._review()
        if resource is None or (self.sub and self.sub not in resource.subresources):
            raise Failure(404, "NotFound", "the server could not find the requested resource")
        self.resource, self.namespace = resource, namespace
        self.key: Key = (group, plural, namespace if resource.namespaced else "", self.name)
        self._may()
        with self.store.changed:
            return self._carried_out()

    def _carried_out(self) -> tuple[int, Any]:
        if self.method == "GET" and not self.name:
            if self.query.get("watch") in ("1", "true", "True"):
                return 200, self._watch()
            return 200, self._list()
        if self.method == "POST" and not self.name:
            return 201, self._create(self._body())
        found = self.store.get(self.key)
        applies = self.method == "PATCH" and self.kind.startswith("application/apply-patch")
        if found is None and not applies:
            message = f'{self.resource.plural} "{self.name}" not found'
            raise Failure(404, "NotFound", message, name=self.name, kind=self.resource.plural)
        if self.sub == "log":
            return 200, self._log(found)
        if self.sub == "eviction":
            return 201, self._evict(found, self._body())
        if self.method == "GET":
            return 200, found
        if self.method == "DELETE":
            return 200, found if self.dry else self.store.put(self.key, None)
        if self.method == "PUT":
            return 200, self._update(found, self._body())
        assert self.method == "PATCH"
        return (200 if found else 201), self._patch(found)

    def _may(self) -> None:
        rights = self.server.rights
        verb = VERBS[self.method]
        if verb == "get" and not self.name:
            verb = "watch" if self.query.get("watch") else "list"
        what = self.resource.plural + (f"/{self.sub}" if self.sub else "")
        request = Request(verb, self.resource.group, what, self.namespace, self.name)
        if rights is not None and self.who != ADMIN and not rights.allow(self.who, request):
            where = (
                f" in the namespace {self.namespace!r}"
                if self.namespace
                else " at the cluster scope"
            )
            raise Failure(
                403,
                "Forbidden",
                f"{what} is forbidden: User {self.who!r} cannot {verb} resource {what!r} in API "
                f"group {self.resource.group!r}{where}",
            )

    def _review(self) -> Any:
        body = self._body()
        says = body["spec"]["resourceAttributes"]
        what = says["resource"] + (f"/{says['subresource']}" if says.get("subresource") else "")
        request = Request(
            says["verb"],
            says.get("group", ""),
            what,
            says.get("namespace", ""),
            says.get("name", ""),
        )
        rights = self.server.rights
        allowed = rights is None or self.who == ADMIN or rights.allow(self.who, request)
        return {**body, "metadata": {}, "status": {"allowed": allowed}}

    def _body(self) -> Any:
        if "protobuf" in self.kind or "cbor" in self.kind:
            raise Failure(415, "UnsupportedMediaType", f"this server reads no {self.kind}")
        try:
            found = yaml.safe_load(self.raw) if "yaml" in self.kind else json.loads(self.raw)
        except ValueError as error:
            raise Failure(400, "BadRequest", f"the object provided is not JSON: {error}") from None
        return found

    # -- reading -----------------------------------------------------------

    def _fits(self, key: Key, found: dict[str, Any] | None) -> bool:
        if (
            found is None
            or key[:2] != self.key[:2]
            or (self.namespace and key[2] != self.namespace)
        ):
            return False
        labels = found["metadata"].get("labels") or {}
        return selected(self.query.get("labelSelector", ""), labels) and self._named(found)

    def _named(self, found: dict[str, Any]) -> bool:
        for term in filter(None, self.query.get("fieldSelector", "").split(",")):
            path, value = re.split(r"==?", term, maxsplit=1)
            here: Any = found
            for part in path.split("."):
                here = here.get(part) if isinstance(here, dict) else None
            if str(here or "") != value:
                return False
        return True

    def _list(self) -> Any:
        items = [one for _, one in self.store.select(self._fits)]
        version, begin = self.store.version, 0
        token = self.query.get("continue")
        if token:
            version, begin = map(int, base64.b64decode(token).decode().split(":"))
            if version < self.store.floor:
                raise Failure(410, "Expired", "The provided continue parameter is too old")
        about: dict[str, Any] = {"resourceVersion": str(version)}
        limit = int(self.query.get("limit") or 0)
        if limit and begin + limit < len(items):
            about["continue"] = base64.b64encode(f"{version}:{begin + limit}".encode()).decode()
            about["remainingItemCount"] = len(items) - begin - limit
        page = items[begin : begin + limit] if limit else items[begin:]
        return {
            "kind": f"{self.resource.kind}List",
            "apiVersion": self.resource.api_version,
            "metadata": about,
            "items": page,
        }

    def _watch(self) -> Callable[[], Any]:
        version = int(self.query.get("resourceVersion") or 0)
        until = time.monotonic() + float(self.query.get("timeoutSeconds") or 300)
        marks = self.query.get("allowWatchBookmarks") in ("true", "True")
        first = [] if version else [one for _, one in self.store.select(self._fits)]
        begun_at = version or self.store.version
        expired = bool(version) and version < self.store.floor

        def events() -> Any:
            if expired:
                message = f"too old resource version: {version} ({self.store.floor})"
                yield "ERROR", Failure(410, "Expired", message).status
                return
            yield from (("ADDED", one) for one in first)
            marked, seen = time.monotonic(), begun_at
            for event in self.store.follow(begun_at, until, lambda: self.server.stopping):
                if event is not None:
                    seen = event.version
                    now, before = (
                        self._fits(event.key, event.found),
                        self._fits(event.key, event.before),
                    )
                    if now:
                        kind = event.type if event.type != "MODIFIED" or before else "ADDED"
                        yield kind, event.found
                    elif before:  # it no longer has the label
                        yield "DELETED", event.found
                elif marks and time.monotonic() - marked > BOOKMARKS_S:
                    marked = time.monotonic()
                    about = {"resourceVersion": str(seen), "creationTimestamp": None}
                    yield (
                        "BOOKMARK",
                        {
                            "kind": self.resource.kind,
                            "apiVersion": self.resource.api_version,
                            "metadata": about,
                        },
                    )

        return events

    def _log(self, pod: Any) -> bytes:
        names = [one["name"] for one in pod["spec"]["containers"]]
        container = self.query.get("container") or names[0]
        if container not in names:
            raise Failure(
                400, "BadRequest", f"container {container} is not valid for pod {self.name}"
            )
        previous = self.query.get("previous") in ("true", "True")
        text = self.server.logs.get((self.namespace, self.name, container, previous))
        if text is None:
            which = "previous terminated " if previous else ""
            raise Failure(
                400, "BadRequest", f'{which}container "{container}" in pod "{self.name}" not found'
            )
        lines = text.splitlines(keepends=True)
        if self.query.get("tailLines"):
            lines = lines[-int(self.query["tailLines"]) :]
        return "".join(lines).encode()[: int(self.query.get("limitBytes") or 1 << 40)]

    # -- writing -----------------------------------------------------------

    def _checked(self, found: Any) -> None:
        try:
            check(self.resource, found)
        except WrongError as error:
            code, reason = (400, "BadRequest") if "Additional" in str(error) else (422, "Invalid")
            raise Failure(code, reason, f"{self.resource.kind} is invalid: {error}") from None

    def _create(self, found: Any) -> Any:
        if not isinstance(found, dict):
            raise Failure(400, "BadRequest", "an object was expected")
        about = found.setdefault("metadata", {})
        if self.resource.namespaced:
            if about.setdefault("namespace", self.namespace) != self.namespace:
                raise Failure(
                    400, "BadRequest", "the namespace of the object is not that of the request"
                )
        if not about.get("name") and about.get("generateName"):
            about["name"] = about["generateName"] + uuid.uuid4().hex[:5]
        self._checked(found)
        key = (*self.key[:3], about["name"])
        if self.store.get(key) is not None:
            raise Failure(
                409, "AlreadyExists", f'{self.resource.plural} "{about["name"]}" already exists'
            )
        about |= {"uid": str(uuid.uuid4()), "generation": 1}
        about.setdefault("creationTimestamp", now())
        return found if self.dry else self.store.put(key, found)

    def _update(self, before: Any, found: Any) -> Any:
        about = found.setdefault("metadata", {})
        mine = before["metadata"] if before else {}
        if before and about.get("resourceVersion") not in (None, "", mine["resourceVersion"]):
            raise Failure(
                409,
                "Conflict",
                f'Operation cannot be fulfilled on {self.resource.plural} "{self.name}": the '
                "object has been modified; please apply your changes to the latest version "
                "and try again",
            )
        if before and about.get("uid") not in (None, "", mine["uid"]):
            raise Failure(
                409,
                "Conflict",
                f"Precondition failed: UID in precondition: {about['uid']}, UID in object meta: "
                f"{mine['uid']}",
            )
        about |= {k: mine[k] for k in ("uid", "creationTimestamp", "resourceVersion") if k in mine}
        found.setdefault("apiVersion", self.resource.api_version)
        found.setdefault("kind", self.resource.kind)
        if before and self.sub == "status":
            found = {**before, "status": found.get("status", {})}
        elif before and "status" in self.resource.subresources:
            found = (
                {**found, "status": before["status"]}
                if "status" in before
                else {k: v for k, v in found.items() if k != "status"}
            )
        self._checked(found)
        if before == found or self.dry:
            return found
        return self.store.put(self.key, found)

    def _patch(self, before: Any) -> Any:
        change = self._body()
        found = copy.deepcopy(before)
        if self.kind == "application/json-patch+json":
            try:
                found = jsonpatch.apply_patch(found, change)
            except (jsonpatch.JsonPatchException, jsonpatch.JsonPointerException) as error:
                raise Failure(
                    422,
                    "Invalid",
                    f"the server rejected our request due to an error in our request: {error}"[
                        :300
                    ],
                ) from None
        elif self.kind == "application/merge-patch+json":
            found = json_merged(found, change)
        elif self.kind == "application/strategic-merge-patch+json":
            if self.resource.custom:
                raise Failure(
                    415,
                    "UnsupportedMediaType",
                    "strategic merge patches are not for custom resources",
                )
            found = merged(schema_of(self.resource), found, change)
        elif self.kind.startswith("application/apply-patch"):
            found = self._applied(found, change)
        else:
            raise Failure(
                415,
                "UnsupportedMediaType",
                f"the body of the request was in an unknown format: {self.kind}",
            )
        if before is None:
            return self._create(found)
        return self._update(before, found)

    def _applied(self, before: Any, change: Any) -> Any:
        manager = self.query.get("fieldManager")
        if not manager:
            raise Failure(400, "BadRequest", "fieldManager is required for apply patch")
        owners = self.store.owners.setdefault(self.key, {})
        mine = dict(leaves(change))
        clashes = [
            p
            for p, value in mine.items()
            for other, fields in owners.items()
            if other != manager and p in fields and leaf(before, p) != value
        ]
        if clashes and self.query.get("force") not in ("true", "True"):
            raise Failure(409, "Conflict", f"Apply failed with {len(clashes)} conflict: {clashes}")
        found = merged(schema_of(self.resource), before or {}, change)
        if not self.dry:
            for other, fields in owners.items():
                if other != manager:
                    fields -= set(clashes)
            owners[manager] = set(mine)
        return found

    def _evict(self, pod: Any, body: Any) -> Any:
        if body.get("kind") != "Eviction" or body.get("apiVersion") != "policy/v1":
            raise Failure(400, "BadRequest", "an Eviction of policy/v1 was expected")
        options = body.get("deleteOptions") or {}
        dry = self.dry or options.get("dryRun") == ["All"]
        wanted = (options.get("preconditions") or {}).get("uid")
        if wanted and wanted != pod["metadata"]["uid"]:
            raise Failure(
                409,
                "Conflict",
                f"Precondition failed: UID in precondition: {wanted}, UID in object meta: "
                f"{pod['metadata']['uid']}",
            )
        labels = pod["metadata"].get("labels") or {}
        budgets = [
            (key, one)
            for key, one in self.store.select(
                lambda k, _: k[:3] == ("policy", "poddisruptionbudgets", self.namespace)
            )
            if selected_by(one["spec"].get("selector") or {}, labels)
        ]
        if pod["status"].get("phase") not in TERMINAL:
            if len(budgets) > 1:
                raise Failure(
                    500,
                    "InternalError",
                    "This pod has more than one PodDisruptionBudget, which the eviction "
                    "subresource does not support.",
                )
            for key, one in budgets:
                left = one.get("status", {}).get("disruptionsAllowed", 0)
                if left <= 0:
                    raise Failure(
                        429,
                        "TooManyRequests",
                        "Cannot evict pod as it would violate the pod's disruption budget.",
                        10,
                        causes=[{"reason": "DisruptionBudget", "message": key[3]}],
                    )
                if not dry:
                    one["status"]["disruptionsAllowed"] = left - 1
                    self.store.put(key, one)
        if not dry:
            self.store.put(self.key, None)
        return {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Success",
            "code": 201,
        }


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
