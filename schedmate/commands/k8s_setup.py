"""What the commands of `schedmate k8s` share: the cluster, and an agent on it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from schedmate import __version__
from schedmate.commands.agents import Setup, assembled, state_dir
from schedmate.errors import InputError
from schedmate.schedulers.live.bounds import Bounds, KubernetesBounds, load_bounds

if TYPE_CHECKING:
    from schedmate.mate import SchedMate
    from schedmate.schedulers.live.kubernetes.adapter import KubernetesAdapter
    from schedmate.schedulers.live.kubernetes.api import Api

KubeconfigOption = Annotated[
    str | None,
    typer.Option(
        "--kubeconfig",
        metavar="FILE",
        help="Kubeconfig file. Default: this pod's service account, or kubectl's configuration.",
    ),
]
ContextOption = Annotated[
    str | None, typer.Option("--context", metavar="NAME", help="Context of the kubeconfig.")
]
NamespaceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--namespace",
        "-n",
        metavar="NAME",
        help="Watch only this namespace. Repeatable. Default: those of the bounds, or all.",
    ),
]

_OWN_NAMESPACE = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


def own_namespace() -> str:
    """The namespace of the pod that this runs in; `default` elsewhere."""
    try:
        return _OWN_NAMESPACE.read_text("ascii").strip() or "default"
    except (OSError, ValueError):
        return "default"


def limited(bounds: Bounds, namespaces: list[str] | None) -> Bounds:
    """The bounds, for the namespaces of the command line if there are any."""
    if not namespaces:
        return bounds
    section = bounds.kubernetes.model_dump() | {"namespaces": tuple(namespaces)}
    return bounds.model_copy(update={"kubernetes": KubernetesBounds.model_validate(section)})


def reach(bounds: Bounds, kubeconfig: str | None, context: str | None) -> Api:
    """The cluster's API server, which has answered. Raises `InputError` where none does."""
    from schedmate.schedulers.live.kubernetes.api import Api
    from schedmate.schedulers.live.kubernetes.connecting import connect

    client = connect(kubeconfig, context)
    api = Api(client, qps=bounds.kubernetes.qps, agent=f"schedmate/{__version__}")
    try:
        api.check()
    except InputError:
        api.close()
        raise
    return api


@contextmanager
def opened(
    bounds: Path | None,
    state: Path | None,
    history: str | None,
    *,
    kubeconfig: str | None = None,
    context: str | None = None,
    namespaces: list[str] | None = None,
    dry_run: bool = False,
    watches: bool = True,
    mate: SchedMate | None = None,
) -> Iterator[Setup[KubernetesAdapter]]:
    """An agent with everything that it needs, closed afterwards; it watches from here on.

    One that does not (`watches`) is for a person who takes plans back: no Lease is needed for that.
    `mate` as of `assembled`.
    """
    from schedmate.recovery.cluster import NoRunner
    from schedmate.schedulers.live.kubernetes.adapter import KubernetesAdapter
    from schedmate.schedulers.live.kubernetes.lease import Leadership

    allowed = limited(load_bounds(bounds), namespaces)
    section = allowed.kubernetes
    with closing(reach(allowed, kubeconfig, context)) as api:
        place = section.lease_namespace or own_namespace()
        leadership = Leadership(api, place, section.lease)
        logs = state_dir(state) / "logs"
        may_act = (lambda: leadership.held) if watches else (lambda: True)
        adapter = KubernetesAdapter(api, section, logs, may_act=may_act)
        kept = (state, history, NoRunner("Kubernetes"))
        with assembled(adapter, allowed, *kept, dry_run=dry_run, mate=mate) as setup:
            if not watches:
                yield setup
                return
            adapter.start()
            try:
                yield replace(
                    setup,
                    lease=leadership.holding,
                    pause=adapter.wait,
                    goes_on=lambda: leadership.held,
                )
            finally:
                adapter.stop()
