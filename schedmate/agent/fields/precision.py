"""Precision on a device that has less of it: mixed precision is most often meant for GPUs."""

from __future__ import annotations

from dataclasses import replace

from schedmate.agent.fields import called, prior
from schedmate.agent.fields.candidates import Candidate, rules
from schedmate.agent.fields.leaves import Setting, named
from schedmate.agent.interp.trace import CallEvent, Trace

_REDUCED = ("fp16", "bf16", "amp", "fp8")
_NOTHING = "contextlib.nullcontext"


def on_cpu(trace: Trace, settings: list[Setting], found: dict[str, Candidate]) -> None:
    """Doubt a reduced precision where the user chose the CPU, or follow the code that does.

    A program that enters `nullcontext()` where it would cast, and casts nothing, computes in full
    precision.
    """
    stated = found.get("precision")
    if stated is None or stated.data not in _REDUCED or not _chosen(settings):
        return
    if any(_casts(event) for event in trace.calls):
        return
    nothing = next((e for e in trace.calls if e.certain and e.path == _NOTHING), None)
    if nothing is not None:
        note = "the job runs on the CPU, where the program casts nothing"
        found["precision"] = Candidate(
            "fp32", called.place(nothing), prior.further["nothing cast"], note
        )
    else:
        note = "the job runs on the CPU, where nothing was seen to use it"
        score = min(stated.score, prior.further["on the CPU at most"])
        found["precision"] = replace(stated, score=score, note=note, doubted=True)


def _chosen(settings: list[Setting]) -> bool:
    """Whether the launch says that the CPU is used."""
    table = rules("names")["cpu"]
    devices = [s for _, s in named(settings, table["devices"]) if s.explicit]
    flags = [s for _, s in named(settings, table["flags"]) if s.explicit]
    switches = [s for _, s in named(settings, table["gpu_flags"]) if s.explicit]
    return (
        any(str(s.value.data).lower().partition(":")[0] == "cpu" for s in devices)
        or any(s.value.data is True for s in flags)
        or any(s.value.data is False for s in switches)
    )


def _casts(event: CallEvent) -> bool:
    """Whether this computes in a reduced precision."""
    if event.path in called.AUTOCAST:
        enabled = event.kwargs.get("enabled")
        return enabled is None or enabled.data is not False
    if event.path == "torch.nn.Module.to" and event.args:
        return called.precision(event.args[0]) in _REDUCED
    return event.path.endswith((".half", ".bfloat16"))
