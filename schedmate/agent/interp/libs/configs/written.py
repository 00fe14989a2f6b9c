"""Configurations that a program dumps into a file."""

from __future__ import annotations

from schedmate.agent.interp.invocation import Invocation
from schedmate.agent.interp.machine import Machine
from schedmate.agent.interp.objects import WriteHandle
from schedmate.agent.interp.plugins import Plugin
from schedmate.agent.interp.values.written import keep
from schedmate.agent.values import Value


def dump(machine: Machine, call: Invocation) -> Value | None:
    """`yaml.dump(data, stream)`; None, a call like any other, for text that goes nowhere yet."""
    stream = call.argument(1, "stream", "fp", "f")
    if stream is None or not isinstance(stream.data, WriteHandle):
        return None
    keep(machine, stream, call.first)
    return Value(None)


def save(machine: Machine, call: Invocation) -> Value:
    """`OmegaConf.save(config, path)`."""
    target = call.argument(1, "f")
    if target is not None:
        keep(machine, target, call.argument(0, "config") or Value(None))
    return Value(None)


PLUGIN = Plugin(
    calls={
        **dict.fromkeys(("json.dump", "yaml.dump", "yaml.safe_dump", "toml.dump"), dump),
        "omegaconf.OmegaConf.save": save,
    }
)
