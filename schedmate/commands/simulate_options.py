"""What the options of `schedmate simulate` say, put into its terms."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from schedmate.commands import completing
from schedmate.durations import parse_duration
from schedmate.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from schedmate.schedulers.model import Cluster
    from schedmate.schedulers.sim.parameters import Parameters
    from schedmate.schedulers.sim.workload import Workload

LoadOption = Annotated[
    str,
    typer.Option(
        "--load",
        metavar="season|ga2m",
        help="How policies forecast submissions: the last hour and the same hour of past "
        "days, or Lucid's throughput model, fitted every week.",
    ),
]
ColocationOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE|NAME",
        help=(
            "How jobs that share GPUs slow each other down: a CSV of measured pairs; "
            "slices (they take turns); or gavel-v100, gavel-p100, gavel-k80, pairs "
            "measured by Gavel (docs/simulator.md). Default: a curve over utilisation."
        ),
    ),
]
NodeMtbfOption = Annotated[
    str | None,
    typer.Option(
        metavar="TIME",
        help="Make nodes fail: mean time between failures of one node, such as 264d.",
    ),
]
FailuresOption = Annotated[
    str | None,
    typer.Option(
        metavar="RATES",
        help=(
            "Make jobs fail: gpu_mtbf=2000d,bugs=0.2,user=2h (docs/adapters.md); '' for "
            "the defaults."
        ),
    ),
]
PhasesOption = Annotated[
    str | None,
    typer.Option(
        metavar="SETTINGS",
        help=(
            "Make the GPU use of some jobs rise once: share=0.2,rise=50,latest=0.5 (an "
            "assumption; docs/simulator.md); '' for the defaults."
        ),
    ),
]
PlacementOption = Annotated[
    str,
    typer.Option(
        metavar="best-fit|fgd|fgd-priced",
        autocompletion=completing.placements,
        help=(
            "Placement rule: the fullest node; fragmentation gradient descent, which "
            "wastes the fewest GPUs; or that with prices for the remainders of shared "
            "GPUs (docs/fleet.md)."
        ),
    ),
]
QuotaOption = Annotated[
    str | None,
    typer.Option(
        metavar="TENANT=GPUS[,...]",
        help="For policy spot: most GPUs that a tenant's jobs of high priority may hold.",
    ),
]
SwitchNodesOption = Annotated[
    int | None,
    typer.Option(min=1, metavar="N", help="Nodes of one GPU type under each access switch."),
]
CrossSwitchOption = Annotated[
    str | None,
    typer.Option(
        metavar="SETTINGS",
        help="Slow down jobs that span switches: longer=0.27,communication=0.2 "
        "(docs/simulator.md); '' for the defaults. Needs --switch-nodes.",
    ),
]


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
