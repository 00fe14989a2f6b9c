"""Batch sizes: which of them the headline `batch_size` is, and the other where it follows.

One optimiser step takes per-device batch x gradient accumulation x data-parallel devices samples,
the global batch. Programs state either, most often under the one name `batch_size`.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from schedmate.agent.fields import loaders
from schedmate.agent.fields.candidates import Candidate
from schedmate.agent.interp.trace import Trace
from schedmate.agent.values import Origin

HEADLINE, PER_DEVICE, GLOBAL = "batch_size", "per_device_batch_size", "global_batch_size"
OF_ONE, OF_ALL, OF_BOTH = "per device", "global", "per device and global"
"""What the headline counts, as its evidence notes it for people."""

COMPUTED = "computed"
"""Rule: it follows from the headline and the devices."""
_NOT_DATA = ("tensor_parallel", "pipeline_parallel")
_ACCUMULATION = "gradient_accumulation_steps"
_Factor = tuple[str, int, Candidate | None]
"""What a per-device batch is multiplied by: its name, its number, and what states it."""


def reconcile(
    found: dict[str, Candidate], trace: Trace, gpus: int | None, processes: int | None
) -> Candidate | None:
    """Say which batch the headline is, and add the other one where it can be computed.

    Args:
        found: the training fields, to which the missing batch is added.
        trace: what the program was seen to do.
        gpus: devices of the job; None where that is not known.
        processes: training processes that the launcher starts; None where that is not known.

    Returns:
        The samples of one optimiser step, None where only those of one device are known.
    """
    headline = found.get(HEADLINE)
    if headline is None or not isinstance(headline.data, int):
        return found.get(GLOBAL, headline)
    factors = _factors(found, gpus)
    kind = _kind(found, headline, factors, trace, gpus, processes)
    if kind is not None:
        found[HEADLINE] = headline = replace(headline, note=kind)
    if factors and kind in (OF_ONE, OF_ALL):
        _add_other(found, headline, kind, factors)
    return found.get(GLOBAL, headline if kind != OF_ONE else None)


def _kind(
    found: dict[str, Candidate],
    headline: Candidate,
    factors: list[_Factor] | None,
    trace: Trace,
    gpus: int | None,
    processes: int | None,
) -> str | None:
    """Which batch the headline is, None where nothing says it."""
    if factors is None:
        return _named(found, headline)
    if not factors:
        return OF_BOTH
    count = prod(factor for _, factor, _ in factors)
    several = gpus is not None and gpus > 1
    separate = not several or (processes is not None and processes > 1)
    kind = _named(found, headline) or (_loaded(headline, trace, count) if separate else None)
    return kind or (None if several else OF_ONE)  # of several that are accumulated


def _add_other(
    found: dict[str, Candidate], headline: Candidate, kind: str, factors: list[_Factor]
) -> None:
    """Add the batch that follows from the headline and the devices, if nothing states it."""
    count = prod(factor for _, factor, _ in factors)
    parts = [f"{n} {name}" for name, n, _ in factors]
    if kind == OF_ONE and GLOBAL not in found:
        formula = " x ".join([f"{headline.data} per device", *parts])
        found[GLOBAL] = _computed(headline, headline.data * count, formula, factors)
    elif kind == OF_ALL and PER_DEVICE not in found and headline.data % count == 0:
        formula = " / ".join([f"{headline.data} global", *parts])
        found[PER_DEVICE] = _computed(headline, headline.data // count, formula, factors)


def _named(found: dict[str, Candidate], headline: Candidate) -> str | None:
    """What the setting that the headline is from is called."""
    for name, kind in ((PER_DEVICE, OF_ONE), (GLOBAL, OF_ALL)):
        if name in found and found[name].origin == headline.origin:
            return kind
    return None


def _loaded(headline: Candidate, trace: Trace, count: int) -> str | None:
    """Which it is by what the loaders of a process with one device are given."""
    loaded = {
        size.data
        for event in trace.calls
        if (size := loaders.size_of(event)) is not None and size.number is not None
    }
    if headline.data in loaded:
        return OF_ONE
    shared = headline.data % count == 0 and headline.data // count in loaded
    return OF_ALL if shared else None


def _factors(found: dict[str, Candidate], gpus: int | None) -> list[_Factor] | None:
    """What a per-device batch is multiplied by, none of them 1; None where one is not known."""
    if gpus is None:
        return None
    factors: list[_Factor] = []
    accumulation = found.get(_ACCUMULATION)
    if accumulation is not None:
        if not isinstance(accumulation.data, int) or accumulation.data < 1:
            return None
        factors.append(("accumulation steps", accumulation.data, accumulation))
    split = [found[name].data for name in _NOT_DATA if name in found]
    one_model = prod(size for size in split if isinstance(size, int) and size > 0)
    devices = max(1, gpus)
    if devices % one_model:
        return None
    factors.append(("data-parallel devices", devices // one_model, None))
    return [factor for factor in factors if factor[1] != 1]


def _computed(headline: Candidate, data: int, formula: str, factors: list[_Factor]) -> Candidate:
    origin = (headline.origin or Origin("code"))._replace(computed=formula)
    scores = [headline.score, *(part.score for _, _, part in factors if part is not None)]
    return Candidate(data, origin, min(scores), rule=COMPUTED)
