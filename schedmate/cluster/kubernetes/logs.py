"""Logs of pods as files, and warnings among their events as lines of a log.

Each run of a job has a folder with a file for each container (`POD.CONTAINER.log`), as for ranks,
which confined processes read. The size is limited, and old folders are removed when there are too
many.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from schedmate.base.files import children, replaced
from schedmate.base.terminal import clean
from schedmate.cluster.kubernetes.api import (
    Api,
    is_name,
    is_short_name,
    number_at,
    text_at,
    time_at,
)
from schedmate.cluster.kubernetes.connection import Json, KubernetesError
from schedmate.cluster.kubernetes.workloads import ContainerEnd, path_of

TAIL_LINES = 3000
"""Lines that are fetched of the log of a running job."""
LONGEST_TAIL = 2 << 20
"""Bytes of these at most."""
LONGEST = 32 << 20
"""Bytes that are fetched of a failed container's log."""
LOG_TIMEOUT_S = 15.0
"""How long fetching one log may take [s]."""
MOST_UNREACHABLE = 3
"""Logs of a run that their nodes do not deliver, after which no more are requested."""
MOST_LOGS = 64
"""Logs that are fetched of one run."""
KEPT_FOLDERS = 200
"""Folders that are kept; then the oldest go."""


class LogSource(NamedTuple):
    """The log of a container, or of the one before it in the same pod."""

    namespace: str
    pod: str
    container: str
    previous: bool = False


class Logs:
    """A folder of logs."""

    def __init__(self, api: Api, folder: Path, *, kept: int | None = KEPT_FOLDERS) -> None:
        """`kept` folders are kept, or all of them for None."""
        self._api, self._folder, self._kept = api, folder, kept

    def fetch(
        self,
        name: str,
        sources: Iterable[LogSource],
        *,
        tail: bool,
        warnings: Mapping[str, Sequence[str]] | None = None,
    ) -> tuple[Path | None, str]:
        """The folder with the logs of one run, named `name`; None without any, and why.

        `tail` fetches the end of the logs, else all that is stored. `warnings` are the cluster's
        warnings by pod, which are appended to the log of the pod.
        """
        short = re.sub(r"[^A-Za-z0-9@.-]", "_", name)[:120]
        folder = self._folder / f"{short}-{sha256(name.encode()).hexdigest()[:12]}"
        warnings_text = {
            pod: "".join(f"{one}\n" for one in lines) for pod, lines in (warnings or {}).items()
        }
        why = "no pod of it is left"
        unreachable, fetched = 0, set()
        for source in list(sources)[:MOST_LOGS]:
            if not (is_name(source.pod) and is_short_name(source.container)):
                why = f"{clean(source.pod, 60)!r} cannot be the name of a pod"
                continue  # names are parts of paths, here and at the server
            text = b""
            if unreachable < MOST_UNREACHABLE:
                try:
                    text = self._text(source, tail=tail)
                    why = why if text else "its log is empty"
                except KubernetesError as error:
                    if error.code in (0, 429, 503):  # the API server itself
                        raise
                    why = str(error)  # the container or its node is gone
                    unreachable += error.code >= 500
            if source.pod in warnings_text:
                end = b"" if not text or text.endswith(b"\n") else b"\n"
                text += end + warnings_text.pop(source.pod).encode("utf-8", "backslashreplace")
            if not text:
                continue
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            fetched.add(folder / f"{source.pod}.{source.container}.log")
            with replaced(folder / f"{source.pod}.{source.container}.log") as file:
                file.write_bytes(text)
        if not fetched:
            return None, why
        for old in set(children(folder)) - fetched:  # of pods that were replaced
            old.unlink(missing_ok=True)
        self._prune()
        return folder, ""

    def _text(self, source: LogSource, *, tail: bool) -> bytes:
        path = path_of("", "v1", "pods", source.namespace, source.pod)
        return self._api.text(
            f"{path}/log",
            container=source.container,
            previous="true" if source.previous else None,
            tailLines=TAIL_LINES if tail else None,
            limitBytes=LONGEST_TAIL if tail else LONGEST,
            timeout_s=LOG_TIMEOUT_S,
        )

    def of_nodes(self, name: str, faults: Mapping[str, Iterable[str]]) -> list[Path]:
        """Files with the nodes' reports, named after the nodes only, as a job's owner chooses other
        names."""
        folder = self._folder / f"nodes-{sha256(name.encode()).hexdigest()[:24]}"
        paths = []
        for node, lines in faults.items():
            if not is_name(node):
                continue
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            paths.append(folder / f"{node}.log")
            with replaced(paths[-1]) as file:
                text = "".join(f"{line}\n" for line in lines)
                file.write_text(text, "utf-8", "backslashreplace")
        return paths

    def _prune(self) -> None:
        folders = sorted(
            (one for one in children(self._folder) if one.is_dir()),
            key=lambda one: one.stat().st_mtime,
        )
        for folder in folders[: -self._kept] if self._kept else ():
            shutil.rmtree(folder, ignore_errors=True)


# Warnings among the events of pods, as lines of a log.
#
# Users who may create events in a namespace can forge them, so they are trusted as much as the log
# of a pod of that namespace: they say what failed, and isolate no node.


MOST_PODS = 8
"""Most pods of one run whose events are read, those that failed first."""
MOST_EVENTS = 50
"""Of one pod, the last."""


def warnings_of(api: Api, namespace: str, failures: Iterable[ContainerEnd]) -> dict[str, list[str]]:
    """The warnings of pods that failed, by pod, as far as they can be read; oldest first."""
    warnings: dict[str, list[str]] = {}
    pods = dict.fromkeys((one.pod, one.uid) for one in failures)
    for name, uid in list(pods)[:MOST_PODS]:
        try:
            events, _ = api.list(
                path_of("", "v1", "events", namespace),
                fieldSelector=f"involvedObject.uid={uid},type=Warning",
            )
        except KubernetesError:  # without them the diagnosis has less evidence, but is still made
            break
        events.sort(key=_event_time)
        if events:
            warnings[name] = [event_line(one) for one in events[-MOST_EVENTS:]]
    return warnings


def event_line(event: Json) -> str:
    """An event as `kubectl describe` has it, with its time in place of its age."""
    count = number_at(event, "count", 1)
    words = (
        text_at(event, "type"),
        text_at(event, "reason"),
        _event_stamp(event) + (f" (x{count})" if count > 1 else ""),
        text_at(event, "source.component") or text_at(event, "reportingComponent"),
        text_at(event, "message"),
    )
    return "  ".join(clean(word, 1000) for word in words)


def _event_stamp(event: Json) -> str:
    places = ("lastTimestamp", "series.lastObservedTime", "eventTime", "firstTimestamp")
    stamps = (text_at(event, place) for place in (*places, "metadata.creationTimestamp"))
    return next(filter(None, stamps), "")


def _event_time(event: Json) -> float:
    return time_at({"at": _event_stamp(event)}, "at") or 0.0
