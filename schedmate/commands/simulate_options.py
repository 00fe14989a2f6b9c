"""What the options of `schedmate simulate` say, put into its terms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from schedmate.durations import parse_duration
from schedmate.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from schedmate.schedulers.model import Cluster
    from schedmate.schedulers.sim.parameters import Parameters
    from schedmate.schedulers.sim.workload import Workload


def with_settings(names: tuple[str, ...], **values: float | None) -> tuple[str, ...]:
    """The policies with these settings where they have them.

    Raises `UsageError` for a setting that no policy has.
    """
    from schedmate.schedulers import registry

    for key, value in values.items():
        if value is None:
            continue
        having = [name for name in names if registry.has_setting(name, key)]
        if not having:
            raise UsageError(
                f"none of {', '.join(names)} has {key}; add a policy named +schedmate, such as "
                "lucid+schedmate."
            )
        names = tuple(f"{name}:{key}={value:g}" if name in having else name for name in names)
    return names


def check_quotas(cluster: Cluster, workload: Workload) -> None:
    """Refuse quotas of tenants that the trace does not have: a misspelt one would hold nobody."""
    tenants = {job.terms.tenant for job in workload.jobs if job.terms is not None} - {""}
    for tenant, _ in cluster.quotas:
        if tenant not in tenants:
            shown = ", ".join(sorted(tenants)[:8]) or "none"
            hint = did_you_mean(tenant, sorted(tenants)) or "."
            raise UsageError(f"--quota: no tenant {tenant!r} in the trace; it has {shown}{hint}")


def cluster_of(spec: str, quotas: str | None, switch_nodes: int | None) -> Cluster:
    """The cluster of this specification, with quotas as `ads=64,search=128`, and with its nodes of
    each GPU type under access switches of so many."""
    from dataclasses import replace

    from schedmate.schedulers.model import Cluster

    cluster = Cluster.parse(spec)
    if switch_nodes is not None:
        seen: dict[str, int] = {}
        wired = []
        for node in cluster.nodes:
            before = seen.get(node.gpu_type, 0)
            seen[node.gpu_type] = before + 1
            wired.append(node._replace(switch=f"{node.gpu_type}/{before // switch_nodes}"))
        cluster = replace(cluster, nodes=tuple(wired))
    found: dict[str, int] = {}
    for part in filter(None, (quotas or "").split(",")):
        tenant, equals, gpus = part.strip().rpartition("=")
        if not equals or not tenant or not gpus.isdigit():
            raise UsageError(f"--quota {part!r}: write tenants and GPUs as ads=64,search=128.")
        found[tenant] = int(gpus)
    return replace(cluster, quotas=tuple(found.items()))


def parameters_of(
    mode: str, colocation: Path | None, node_mtbf: str | None, cross_switch: str | None = None
) -> Parameters:
    """What running costs, as the options say it."""
    from dataclasses import replace

    from schedmate.schedulers.sim.parameters import ColocationTable, world
    from schedmate.schedulers.sim.world.failures import LEAST_MTBF_S

    parameters = world(mode)
    if colocation is not None:
        from schedmate.schedulers.sim.world import interference

        if str(colocation) in interference.NAMES:
            found = interference.named(str(colocation))
        else:
            found = ColocationTable.read(colocation, parameters.harmless)
        parameters = replace(parameters, interference=found)
    if node_mtbf is not None:
        mtbf = parse_duration(node_mtbf)
        if mtbf < LEAST_MTBF_S:
            raise UsageError(
                f"--node-mtbf {node_mtbf}: nodes that fail every {LEAST_MTBF_S:g} s or more often "
                "run nothing; write it as 264d."
            )
        parameters = replace(parameters, node_mtbf_s=mtbf)
    if cross_switch is not None:
        from schedmate.schedulers.sim.world.spanning import Spanning

        parameters = replace(parameters, spanning=Spanning.parse(cross_switch))
    return parameters


def seeds_of(text: str) -> list[int]:
    """The distinct seeds in `0,1,2`."""
    try:
        seeds = [int(part) for part in text.split(",")]
        if min(seeds) < 0:
            raise ValueError
    except ValueError:
        raise UsageError(f"--seed {text!r}: write whole numbers as 0 or 0,1,2.") from None
    return list(dict.fromkeys(seeds))


def window_of(text: str) -> tuple[float, float]:
    """The stretch of time [s] in `3d..3d12h`."""
    start, dots, end = text.partition("..")
    window = (parse_duration(start), parse_duration(end)) if dots else (0.0, 0.0)
    if window[0] >= window[1]:
        raise UsageError(f"--gantt {text!r}: write a stretch of time as 3d..3d12h.")
    return window
