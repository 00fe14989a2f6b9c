"""itertools, and progress bars around what is gone through."""

from __future__ import annotations

import itertools

from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.natives import identity
from schedmate.agent.interp.objects import RangeOf
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.base import iterate
from schedmate.agent.sizes import VALUE
from schedmate.agent.values import Value, unknown

MAX_COMBINATIONS = 64


def product(machine: Machine, call: Invocation) -> Value:
    """`itertools.product(...)` of short lists; of long ones, the first combinations."""
    machine.charge(MAX_COMBINATIONS * len(call.args))
    columns = [iterate(argument) for argument in call.args]
    if any(column is None for column in columns) or call.kwargs:
        return unknown()
    rows = itertools.islice(itertools.product(*(c or [] for c in columns)), MAX_COMBINATIONS)
    return Value([Value(tuple(row)) for row in rows])


def chain(machine: Machine, call: Invocation) -> Value:
    """`itertools.chain(a, b)`, and of one iterable of them."""
    parts = iterate(call.first) if call.path.endswith("from_iterable") else call.args
    columns = []
    for part in parts or []:
        columns.append(iterate(part))
        machine.charge(VALUE + len(columns[-1] or ()))
    if parts is None or any(column is None for column in columns):
        return unknown()
    return Value([item for column in columns for item in column or []])


def count(machine: Machine, call: Invocation) -> Value:
    start = call.args[0] if call.args else Value(0)
    return Value(RangeOf(start, unknown("count"), Value(1)))


def islice(machine: Machine, call: Invocation) -> Value:
    if len(call.args) < 2:
        return unknown()
    stop = call.args[2] if len(call.args) > 2 else call.args[1]
    return Value(RangeOf(Value(0), stop, Value(1)), stop.origin)


def trange(machine: Machine, call: Invocation) -> Value:
    if not call.args:
        return unknown()
    start, stop = (call.args[0], call.args[1]) if len(call.args) > 1 else (Value(0), call.args[0])
    return Value(RangeOf(start, stop, Value(1)), stop.origin)


def progress(machine: Machine, call: Invocation) -> Value:
    """`tqdm(iterable)`; with only `total=`, a counter up to it."""
    source = call.argument(0, "iterable", "sequence", "gen")
    if source is not None:
        return source
    total = call.kwargs.get("total")
    if total is not None:
        return Value(RangeOf(call.kwargs.get("initial", Value(0)), total, Value(1)), total.origin)
    return unknown()


_PROGRESS = (
    "tqdm.tqdm", "tqdm.auto.tqdm", "tqdm.notebook.tqdm", "tqdm.rich.tqdm", "tqdm.asyncio.tqdm",
    "rich.progress.track", "fastprogress.master_bar", "fastprogress.progress_bar",
    "alive_progress.alive_it", "mmcv.track_iter_progress", "progressbar.progressbar",
    "tqdm.autonotebook.tqdm", "fastprogress.fastprogress.master_bar",
)  # fmt: skip

PLUGIN = Plugin(
    calls={
        "itertools.count": count,
        "itertools.islice": islice,
        "itertools.cycle": identity,
        "itertools.product": product,
        "itertools.chain": chain,
        "itertools.chain.from_iterable": chain,
        "tqdm.trange": trange,
        "tqdm.auto.trange": trange,
        "tqdm.notebook.trange": trange,
        **dict.fromkeys(_PROGRESS, progress),
    }
)
