"""Who may do what, by the Roles and bindings that manifests say, as RBAC decides."""

from __future__ import annotations

from typing import Any, NamedTuple

VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class Request(NamedTuple):
    verb: str
    group: str
    resource: str
    """`pods`, `pods/log`."""
    namespace: str
    name: str


class Rights:
    """Rules of manifests. `subject` is `NAMESPACE/NAME` of a service account."""

    def __init__(self, manifests: list[dict[str, Any]]) -> None:
        self._roles: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
        self._bindings: list[tuple[str, dict[str, Any]]] = []
        for one in manifests:
            kind, about = one["kind"], one["metadata"]
            if kind in ("Role", "ClusterRole"):
                self._roles[kind, about.get("namespace", ""), about["name"]] = (
                    one.get("rules") or []
                )
            elif kind in ("RoleBinding", "ClusterRoleBinding"):
                self._bindings.append((about.get("namespace", ""), one))

    def allow(self, subject: str, request: Request) -> bool:
        for namespace, binding in self._bindings:
            subjects = {
                f"{one.get('namespace', namespace)}/{one['name']}"
                for one in binding.get("subjects") or ()
                if one["kind"] == "ServiceAccount"
            }
            if subject not in subjects:
                continue
            if binding["kind"] == "RoleBinding" and request.namespace != namespace:
                continue
            role = binding["roleRef"]
            place = "" if role["kind"] == "ClusterRole" else namespace
            rules = self._roles.get((role["kind"], place, role["name"]), [])
            if any(fits(rule, request) for rule in rules):
                return True
        return False


def fits(rule: dict[str, Any], request: Request) -> bool:
    names = rule.get("resourceNames")
    # who may create, or list all, names nothing yet
    named = not names or (request.name in names and request.verb not in ("create", "list", "watch"))
    return (
        (request.verb in rule.get("verbs", ()) or "*" in rule.get("verbs", ()))
        and (request.group in rule.get("apiGroups", ()) or "*" in rule.get("apiGroups", ()))
        and (request.resource in rule.get("resources", ()) or "*" in rule.get("resources", ()))
        and named
    )
