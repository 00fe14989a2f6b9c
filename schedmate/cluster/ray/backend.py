"""Runners as Ray actors: each holds whole GPUs of one node, or a part of one, as Ray's resource.

Actors are detached and named, so that they outlive the queue and are found again. One actor runs
one job, or the two that share its GPUs: what an actor holds cannot change later, and Ray divides
single GPUs only.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from schedmate.base import pool
from schedmate.base.pool import ray_error_line
from schedmate.cluster.ray.runner import Runner
from schedmate.cluster.ray.seats import NodeSeen, SeatDeadError, SeatMethodError, SeatSilentError

NAMESPACE = "schedmate"
CALLS_AT_ONCE = 4
"""Calls that one runner serves at the same time: one waits for news."""
TYPE = "accelerator_type:"


class RayRunner(Runner):
    """A runner that gets its GPUs from Ray."""

    def __init__(self, meter: tuple[str, ...] | None) -> None:
        import ray

        super().__init__([str(gpu) for gpu in ray.get_gpu_ids()], meter)


class RayBackend:
    """Actors of the Ray cluster that this process is connected to (`queue.backend.Backend`)."""

    def __init__(self, prefix: str, meter: tuple[str, ...] | None = None) -> None:
        """`prefix`: prefix of the names of this queue's actors; `meter`: see `Meter`."""
        import ray

        self._prefix, self._meter = prefix, meter
        self._actor = ray.remote(RayRunner)

    def nodes(self) -> list[NodeSeen]:
        """See `Backend.nodes`."""
        import ray

        nodes, names = [], set()
        for node in ray.nodes():
            resources = node["Resources"]
            if not node["Alive"] or resources.get("GPU", 0) < 1:
                continue
            name = str(node["NodeName"])
            if name in names:  # several on one machine
                name = f"{name}-{node['NodeID'][:6]}"
            names.add(name)
            types = [key.removeprefix(TYPE) for key in resources if key.startswith(TYPE)]
            nodes.append(
                NodeSeen(
                    node["NodeID"],
                    name,
                    int(resources["GPU"]),
                    types[0] if types else "",
                    float(resources.get("CPU", 0)),
                    float(resources.get("memory", 0)) / 2**20,
                )
            )
        return nodes

    def create(self, name: str, node: str, gpus: float) -> Any:
        """See `Backend.create`."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        return self._actor.options(
            name=name,
            namespace=NAMESPACE,
            lifetime="detached",
            num_gpus=gpus,
            num_cpus=0,
            max_concurrency=CALLS_AT_ONCE,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        ).remote(self._meter)

    def existing(self) -> dict[str, Any]:
        """See `Backend.existing`."""
        import ray

        handles = {}
        for actor in ray.util.list_named_actors(all_namespaces=True):
            if actor["namespace"] == NAMESPACE and actor["name"].startswith(f"{self._prefix}."):
                try:
                    handles[actor["name"]] = ray.get_actor(actor["name"], namespace=NAMESPACE)
                except ValueError:  # it has just ended
                    continue
        return handles

    def call(self, handle: Any, method: str, *arguments: Any) -> Any:
        """See `Backend.call`."""
        return getattr(handle, method).remote(*arguments)

    def ready(self, references: Sequence[Any], timeout_s: float) -> list[Any]:
        """See `Backend.ready`."""
        import ray

        some, _ = ray.wait(list(references), num_returns=1, timeout=timeout_s)
        if some and len(references) > 1:
            some, _ = ray.wait(list(references), num_returns=len(references), timeout=0)
        return list(some)

    def answer(self, reference: Any) -> Any:
        """See `Backend.answer`."""
        import ray

        try:
            return ray.get(reference)
        except (ray.exceptions.ActorUnavailableError, ray.exceptions.GetTimeoutError) as error:
            raise SeatSilentError(ray_error_line(error)) from None
        except ray.exceptions.RayTaskError as error:  # what the method raised
            raise SeatMethodError(ray_error_line(error.cause or error)) from None
        except ray.exceptions.RayError as error:
            raise SeatDeadError(ray_error_line(error)) from None

    def kill(self, handle: Any) -> None:
        """See `Backend.kill`."""
        import ray

        ray.kill(handle, no_restart=True)


def prepare() -> None:
    """Set the environment before Ray is imported. Raises `MissingExtraError` without Ray."""
    pool.require_ray("schedmate ray")
    # else Ray looks for a cluster on 127.0.0.1 at the machine's address
    os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")


def connect(address: str) -> None:
    """Connect this process to a Ray cluster: `auto`, `HOST:PORT` or `ray://HOST:PORT`.

    Raises `InputError` if there is none.
    """
    prepare()
    hint = ", name another with --address, or try `schedmate ray up --local 2x4`"
    pool.connect_to_ray(address, hint, namespace=NAMESPACE, ignore_reinit_error=True)
