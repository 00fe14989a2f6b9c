"""Lines of a node's log that the node itself wrote, and which node that is (`node_side.yaml`)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from schedmate.base.data import load
from schedmate.base.inputs import host_name, same_host
from schedmate.jobs import Origin
from schedmate.logparse.failure.plans import isolation_doubt
from schedmate.logparse.failure.rules import RuleSet
from schedmate.logparse.failure.scan import Event, scan
from schedmate.logparse.reading import Attempt, Log, LogFile
from schedmate.logparse.reading.lines import plain

# The stamps of `dmesg`, in all of its forms, and of a kernel that puts its own behind syslog's.
_STAMP = re.compile(
    r"(?:<\d{1,3}>|\w++ *+:\w++ *+: )?"
    r"(?:\[ *[\w :.,+-]{3,40}\] ?|\d{4}-\d\d-\d\dT[\d:,.]++\S*+ )?"
)
SAMPLE = 1 << 14
"""Bytes from which the header format of a file's lines is recognised."""

MOST_NAMED = 5
"""Limit for nodes or faults in one warning."""


class LineWriter(NamedTuple):
    """The writer of a line in a node's log; `host` is None if the line does not name one."""

    host: str | None
    by_node: bool


def node_events(logs: Sequence[Log], nodes: Sequence[str], rules: RuleSet) -> list[Event]:
    """Events in the logs of a job's nodes, each with its node if known.

    `nodes` are the names of all nodes of the job, as far as the caller knows. If a line names
    another machine than the caller, the event counts, and `given_as` is the caller's name.
    """
    files = [file for log in logs for file in log.files]
    sole = nodes[0] if len(nodes) == 1 and len(files) == 1 else None
    return [event for file in files for event in _events(file, nodes, sole, rules)]


def _events(
    file: LogFile, nodes: Sequence[str], sole: str | None, rules: RuleSet
) -> Iterator[Event]:
    headed = has_headers(file.read(0, SAMPLE))
    named = host_name(file.node) or _named_by(file, nodes) or sole
    whole = Attempt(1, max(1, file.line_count()), 0, file.size, "")
    for event in scan(file, whole, rules).events:
        line = next((one for one in event.lines if one.number == event.known_at), event.lines[0])
        host, by_node = writer_of(line.raw, headed=headed)
        origin: Origin = "node_log" if by_node else "job_log"
        if host is not None and named is not None and not same_host(host, named):
            yield replace(event, node=host, origin=origin, given_as=named)
        else:
            yield replace(event, node=named or host, origin=origin)


def warn_of_misplaced(events: Sequence[Event]) -> list[str]:
    """A warning for each log that was given for one node while its lines name another."""
    hosts_of_log: dict[tuple[str, str], list[str]] = {}
    for event in events:
        if event.given_as is not None and event.node is not None:
            hosts = hosts_of_log.setdefault((event.file.name, event.given_as), [])
            if event.node not in hosts:
                hosts.append(event.node)
    return [
        f"{file} was given as the log of {node}, but lines of it that report faults are of "
        f"{', '.join(hosts[:MOST_NAMED])}{' and others' if len(hosts) > MOST_NAMED else ''}; "
        f"nothing is isolated on them. Where that machine ran the job, give it as "
        f"{hosts[0]}={file} and name it in --nodes."
        for (file, node), hosts in hosts_of_log.items()
    ]


def warn_of_unheeded(events: Sequence[Event], root: Event | None) -> list[str]:
    """A warning for each fault that a node's own log proves and that is not in the verdict."""
    faults: dict[tuple[str | None, str], str] = {}
    for event in events:
        if (
            event.rule is None
            or event.origin != "node_log"
            or not isolation_doubt(event.rule.id).proof
        ):
            continue
        if event.given_as is not None:
            continue  # `warn_of_misplaced` reports these
        same = root is not None and root.rule is not None and root.rule.id == event.rule.id
        if same and root is not None and root.node == event.node:
            continue
        who = f"node {event.node}'s own log" if event.node else "the log of a node"
        faults.setdefault(
            (event.node, event.rule.id),
            f"{who} reports a fault of its hardware, whatever ended the job "
            f"({event.file.name}:{event.known_at}): {event.text.strip()[:200]}",
        )
    warnings = list(faults.values())
    more = len(warnings) - MOST_NAMED
    return [
        *warnings[:MOST_NAMED],
        *([f"{more} more faults stand in logs of nodes."] if more > 0 else []),
    ]


def _named_by(file: LogFile, nodes: Sequence[str]) -> str | None:
    """The one of `nodes` whose name is in the name of a file or of its folder."""
    parts = "/".join(file.path.parts[-2:]) if file.path is not None else file.name
    named = [
        node
        for node in nodes
        if re.search(rf"(?<![A-Za-z0-9]){re.escape(node)}(?![A-Za-z0-9]|-\d)", parts)
    ]
    return max(named, key=len, default=None)


def has_headers(sample: bytes) -> bool:
    """Whether a logger put a header before each line of a file, unlike `dmesg`."""
    lines = [plain(raw) for raw in sample.split(b"\n") if raw.strip()]
    headers, _, _ = _forms()
    headed = sum(line.startswith("{") or any(one.match(line) for one in headers) for line in lines)
    return headed * 2 > len(lines)


def writer_of(raw: bytes, *, headed: bool = False) -> LineWriter:
    """Whether the kernel or a daemon of the node wrote a line, and on which machine.

    In a file with headers (`headed`), a line without one continues the message above it.
    """
    text = plain(raw)
    headers, kernel, daemons = _forms()
    if text.startswith("{"):
        return _of_journal(text, kernel)
    for header in headers:
        match = header.match(text)
        if match is not None:
            writer = match["writer"].rpartition("/")[2]
            by_node = writer in daemons
            if writer == "kernel":
                by_node = _is_of_kernel(kernel, text[match.end() :])
            return LineWriter(host_name(match["host"]), by_node)
    return LineWriter(None, not headed and _is_of_kernel(kernel, text))


def _of_journal(text: str, kernel: re.Pattern[str]) -> LineWriter:
    """The writer of a line of `journalctl -o json`."""
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        return LineWriter(None, False)
    if not isinstance(fields, dict):
        return LineWriter(None, False)
    host, message = fields.get("_HOSTNAME"), fields.get("MESSAGE")
    by_kernel = fields.get("_TRANSPORT") == "kernel" and isinstance(message, str)
    return LineWriter(
        host_name(host) if isinstance(host, str) else None,
        by_kernel and _is_of_kernel(kernel, str(message)),
    )


def _is_of_kernel(kernel: re.Pattern[str], text: str) -> bool:
    stamp = _STAMP.match(text)
    return kernel.match(text[stamp.end() :] if stamp else text) is not None


@cache
def _forms() -> tuple[list[re.Pattern[str]], re.Pattern[str], frozenset[str]]:
    data = load("logparse/failure/node_side.yaml")
    return (
        [re.compile(one["pattern"]) for one in data["headers"]],
        re.compile("|".join(f"(?:{one['pattern']})" for one in data["kernel"])),
        frozenset(data["daemons"]),
    )
