"""Resource requests of a job in text: `8G128C`, `0.25G2C`, `128x1G12C@switch`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from schedmate.errors import UsageError
from schedmate.schedulers.fleet.snapshot import MILLI

_FORM = re.compile(
    r"(?:(\d{1,6})x)?(\d{1,5}(?:\.\d{1,3})?)g(?:(\d{1,6}(?:\.\d{1,3})?)c)?"
    r"(?:(\d{1,8}(?:\.\d{1,3})?)m)?(@switch)?",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Request:
    """Pods that are placed together: each on one node, all on GPUs of one type."""

    pods: int
    gpus: int
    """Of a pod [milli-GPUs]."""
    cpus: int
    """Of a pod [milli-cores]."""
    memory: int = 0
    """Of a pod [kB]."""
    within_switch: bool = False
    """All pods under one access switch."""

    @classmethod
    def parse(cls, text: str) -> Request:
        """A request from `[PODSx]GPUSg[CPUSc][MEMORY_GBm][@switch]`; raises `UsageError`."""
        match = _FORM.fullmatch(text.strip())
        if match is None:
            raise UsageError(
                f"{text!r} is not a request; write GPUs and CPUs of a pod as 8G128C or 0.25G2C, "
                "with memory in GB as 8G128C900M, pods before it as 16x8G96C, @switch after it."
            )
        pods, gpus = int(match[1] or 1), round(float(match[2]) * MILLI)
        if not pods or not gpus:
            raise UsageError(f"{text!r} requests no GPU; write at least 0.001G, or 1x1G.")
        if gpus > MILLI and gpus % MILLI:
            raise UsageError(f"{text!r}: a pod has whole GPUs, or less than one.")
        return cls(
            pods,
            gpus,
            round(float(match[3] or 0) * MILLI),
            round(float(match[4] or 0) * 1e6),
            match[5] is not None,
        )

    def __str__(self) -> str:
        pods = f"{self.pods}x" if self.pods > 1 else ""
        memory = f"{self.memory / 1e6:g}M" if self.memory else ""
        place = "@switch" if self.within_switch else ""
        return f"{pods}{self.gpus / MILLI:g}G{self.cpus / MILLI:g}C{memory}{place}"


SHAPES = tuple(map(Request.parse, ("1G8C", "2G16C", "4G32C", "8G64C", "8G128C")))
"""Figure 13."""
FRACTIONS = (Request.parse("0.5G4C"),)
LARGE = tuple(
    map(Request.parse, ("128x1G12C", "128x1G12C@switch", "256x1G12C", "256x1G12C@switch"))
)
"""Figure 14: 128 and 256 GPUs with 12 CPUs each, across access switches and within one."""
DEFAULT = (*FRACTIONS, *SHAPES, *LARGE)
