"""Fields that have to agree with one another: values that cannot all hold are not reported."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from schedmate.agent.fields.candidates import EXPLICIT, Candidate

PARALLEL = ("tensor_parallel", "pipeline_parallel", "data_parallel")


def parallel_sizes(found: dict[str, Candidate], gpus: int | None) -> None:
    """Remove from `found` the parallel sizes that do not fit on `gpus` beside the surer ones.

    What the launch gives stands, as its count of GPUs may be that of one node. What configurations
    and defaults state counts only where it divides, as a whole, the GPUs that are left: of several
    that contradict one another none is known to be the one in use.
    """
    sizes = {name: found[name] for name in PARALLEL if name in found}
    if gpus is None or not sizes:
        return
    taken = _product(c for c in sizes.values() if c.source in EXPLICIT)
    for source in ("config", "code", "default", "library"):
        stated = {name: c for name, c in sizes.items() if c.source == source}
        together = taken * _product(stated.values())
        if gpus % together == 0:
            taken = together
        else:
            for name in stated:
                del found[name]


def _product(candidates: Iterable[Candidate]) -> int:
    return prod(c.data for c in candidates if isinstance(c.data, int) and c.data > 0)
