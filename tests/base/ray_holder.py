"""A Ray cluster on loopback, held by a process of its own until its standard input ends.

Prints the address. `lose` on standard input takes one of its two machines away, as a crash would.
"""

from __future__ import annotations

import os
import sys

os.environ.update(
    RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",  # else it takes 127.0.0.1 for this machine's address
    RAY_USAGE_STATS_ENABLED="0",
    RAY_health_check_period_ms="500",
    RAY_health_check_timeout_ms="1000",
    RAY_health_check_failure_threshold="6",
)


def main() -> None:
    """Start it, obey, and end it."""
    from ray.cluster_utils import Cluster

    here = {"node_ip_address": "127.0.0.1", "object_store_memory": 100 << 20}
    cluster = Cluster(
        initialize_head=True, head_node_args={**here, "num_cpus": 1, "include_dashboard": False}
    )
    other = cluster.add_node(**here, num_cpus=2)
    try:
        cluster.wait_for_nodes()
        print(cluster.address, flush=True)
        for line in sys.stdin:
            if line.strip() == "lose":
                cluster.remove_node(other, allow_graceful=False)
                print("lost", flush=True)
    finally:
        cluster.shutdown()


if __name__ == "__main__":
    main()
