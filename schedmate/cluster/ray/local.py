"""A Ray cluster of several nodes with simulated GPUs on this machine, for trials.

`python -m schedmate.cluster.ray.local NODESxGPUS` holds one until its standard input ends.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Self

from schedmate.base.errors import InputError, SchedmateError
from schedmate.base.terminal import clean
from schedmate.cluster.ray.backend import prepare
from schedmate.schedulers.model import Cluster

LOOPBACK = "127.0.0.1"
MB = 1 << 20
QUICK = {
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "500",
    "RAY_health_check_failure_threshold": "8",
    "RAY_health_check_initial_delay_ms": "1000",
}
"""A node that is gone is found to be so within four seconds instead of half a minute."""


class LocalCluster:
    """Head and nodes on 127.0.0.1, ended with the block."""

    def __init__(self, cluster: Cluster, environment: Mapping[str, str] = QUICK) -> None:
        prepare()
        for name, value in environment.items():
            os.environ.setdefault(name, value)
        self._shape = cluster
        self.nodes: dict[str, Any] = {}
        self._cluster: Any = None

    def __enter__(self) -> Self:
        try:
            self._begin()
        except Exception as error:  # noqa: BLE001 - Ray raises no kind of its own
            self.__exit__()
            reason = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise InputError(
                f"Ray cannot be started here: {reason} Try again when the machine is less busy, or "
                "with fewer nodes."
            ) from None
        return self

    def _begin(self) -> None:
        from ray.cluster_utils import Cluster as RayCluster

        self._cluster = RayCluster(
            initialize_head=True,
            head_node_args={
                "node_ip_address": LOOPBACK,
                "node_name": "head",
                "num_cpus": 1,
                "num_gpus": 0,
                "resources": {"head": 1},
                "include_dashboard": False,
                "object_store_memory": 100 * MB,
            },
        )
        for node in self._shape.nodes:
            self.add(node.name, node.gpus)

    def __exit__(self, *_: object) -> None:
        import ray

        with suppress(Exception):
            ray.shutdown()
        if self._cluster is not None:
            self._cluster.shutdown()

    @property
    def address(self) -> str:
        """HOST:PORT for `connect`."""
        return str(self._cluster.address)

    def add(self, name: str, gpus: int) -> None:
        """Start one more node of the local cluster."""
        self.nodes[name] = self._cluster.add_node(
            node_ip_address=LOOPBACK,
            node_name=name,
            num_cpus=1,
            num_gpus=gpus,
            object_store_memory=80 * MB,
        )

    def kill(self, name: str) -> None:
        """Kill all processes of a node at once."""
        self._cluster.remove_node(self.nodes.pop(name), allow_graceful=False)


class Held(NamedTuple):
    """A cluster, and the process that holds it."""

    address: str
    holder: subprocess.Popen[str]

    @property
    def is_there(self) -> bool:
        """Whether it has not ended by itself."""
        return self.holder.poll() is None


@contextmanager
def local_cluster(shape: str) -> Iterator[Held]:
    """A local cluster, started by a separate process in its own session.

    A signal to our process group thus ends nothing of Ray before we have ended what uses it, and
    the cluster ends with us in any case.
    """
    holder = subprocess.Popen(
        # -P: no module is taken from the current directory
        [sys.executable, "-P", "-m", __name__, shape],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
        text=True,
    )
    with holder:  # closes its input, and waits for its end
        assert holder.stdout is not None
        yield Held(_address(holder.stdout.readline()), holder)


def _address(line: str) -> str:
    """The address from the holder's first line; raises `InputError` for anything else."""
    try:
        answer = json.loads(line)
    except (ValueError, RecursionError):
        answer = None
    if isinstance(answer, dict) and isinstance(answer.get("error"), str):
        raise InputError(answer["error"])
    if not isinstance(answer, dict) or not isinstance(answer.get("address"), str):
        what = f"it printed {clean(line, 100)!r}" if line.strip() else "it ended while it started"
        raise InputError(
            f"Ray cannot be started here: {what}. Try again when the machine is less busy, or "
            "`schedmate doctor` to check the installation."
        )
    return str(answer["address"])


def _hold(shape: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    logging.getLogger("ray").setLevel(logging.ERROR)
    try:
        with LocalCluster(Cluster.parse(shape)) as made:
            print(json.dumps({"address": made.address}), flush=True)
            sys.stdin.read()
    except SchedmateError as error:
        print(json.dumps({"error": str(error)}), flush=True)


if __name__ == "__main__":
    _hold(sys.argv[1])
