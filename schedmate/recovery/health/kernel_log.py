"""Kernel logs (`dmesg`, `journalctl -k`): Xid and SXid lines of NVIDIA's drivers.

What a line means is the Failure Handler's (`logparse/failure/rules/xid.yaml`), and whether it
blames the hardware is its `innocent.yaml`: one table for verdicts and for diagnostics.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from schedmate.recovery.health.verdict import Complaint, Expected, Health, judged
from schedmate.schedulers.live.executor import Ran
from schedmate.terminal import clean

_XID = re.compile(
    r"(?P<kind>S?Xid) \(PCI:(?P<pci>[0-9a-fA-F:.]{4,32}+)[^)]{0,32}+\): (?P<code>\d{1,6}+)"
    r"(?:, pid='?(?P<pid>\d{1,10}+|<unknown>)'?)?(?:, name=(?P<name>[^,]{1,64}+))?,? ?(?P<rest>.*)"
)
_DRIVER = re.compile(r"NVRM|SXid|\bXid\b|fallen off the bus|nvidia-nvswitch")


class XidEvent(NamedTuple):
    """One line of the driver."""

    switch: bool
    """Of an NVSwitch (SXid), not of a GPU."""
    pci: str
    """Domain, bus and device in lower case, `0000:3b:00`, however the driver wrote it."""
    code: int
    pid: int | None
    process: str | None
    text: str


def parse_xid(line: str) -> XidEvent | None:
    """The Xid of a line of the kernel log, if it has one."""
    found = _XID.search(line)
    if found is None:
        return None
    pid = found["pid"]
    return XidEvent(
        switch=found["kind"] == "SXid",
        pci=pci_address(found["pci"]),
        code=int(found["code"]),
        pid=int(pid) if pid and pid.isdigit() else None,
        process=clean(found["name"], 60) if found["name"] else None,
        text=clean(found["rest"], 300),
    )


def pci_address(text: str) -> str:
    """`0000:3b:00` of `00000000:3B:00.0`, `0000:3b:00.0` and `3b:00`."""
    parts = text.lower().partition(".")[0].split(":")
    parts = ["0", *parts] if len(parts) == 2 else parts
    if len(parts) != 3:
        return text.lower()
    domain, bus, device = parts
    return f"{domain.lstrip('0').rjust(4, '0')}:{bus.rjust(2, '0')}:{device.rjust(2, '0')}"


def assess(ran: Ran, _expected: Expected) -> Health:
    """Faulty if a line reports what no program can cause; a log without errors of the driver is
    healthy, as far as a log can tell."""
    if ran.exit_code:
        said = clean(ran.output.strip()[-200:])
        return Health("unclear", f"exit code {ran.exit_code}: {said}")
    complaints = list(dict.fromkeys(_complaints(ran.output)))
    return judged(complaints, passed=1, otherwise="the kernel reports no fault of a GPU")


def _complaints(text: str) -> Iterator[Complaint]:
    from schedmate.logparse.failure.plans import doubts
    from schedmate.logparse.failure.rules import load_rules, match_text

    rules = load_rules()
    for line in text.splitlines():
        if not _DRIVER.search(line):
            continue
        rule = match_text(rules, line[:4000])
        event = parse_xid(line)
        if rule is None or (event is None and not doubts(rule.id).proof):
            continue
        # a contained memory error ended one program; the node is usable (docs/diagnose.md)
        blames = doubts(rule.id).proof and rule.id != "xid-94"
        part = event.pci if event else ""
        words = f"Xid {event.code}: {rule.why}" if event else rule.why
        yield Complaint(part, clean(words, 300), rule.component, blames)
