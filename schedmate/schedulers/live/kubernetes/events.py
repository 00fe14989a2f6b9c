"""Warnings among the events of pods, as lines of a log.

Users who may create events in a namespace can forge them, so they are trusted as much as the log of
a pod of that namespace: they say what failed, and isolate no node.
"""

from __future__ import annotations

from collections.abc import Iterable

from schedmate.schedulers.live.kubernetes.api import Api, Json, KubernetesError
from schedmate.schedulers.live.kubernetes.fields import number_at, text_at, time_at
from schedmate.schedulers.live.kubernetes.kinds import path_of
from schedmate.schedulers.live.kubernetes.pods import Ended
from schedmate.terminal import clean

MOST_PODS = 8
"""Most pods of one run whose events are read, those that failed first."""
MOST_EVENTS = 50
"""Of one pod, the last."""


def warnings_of(api: Api, namespace: str, failures: Iterable[Ended]) -> dict[str, list[str]]:
    """The warnings of pods that failed, by pod, as far as they can be read; oldest first."""
    found: dict[str, list[str]] = {}
    pods = dict.fromkeys((one.pod, one.uid) for one in failures)
    for name, uid in list(pods)[:MOST_PODS]:
        try:
            events, _ = api.list(
                path_of("", "v1", "events", namespace),
                fieldSelector=f"involvedObject.uid={uid},type=Warning",
            )
        except KubernetesError:  # without them the diagnosis has less evidence, but is still made
            break
        events.sort(key=_when)
        if events:
            found[name] = [line_of(one) for one in events[-MOST_EVENTS:]]
    return found


def line_of(event: Json) -> str:
    """An event as `kubectl describe` has it, with its time in place of its age."""
    count = number_at(event, "count", 1)
    words = (
        text_at(event, "type"),
        text_at(event, "reason"),
        _stamp(event) + (f" (x{count})" if count > 1 else ""),
        text_at(event, "source.component") or text_at(event, "reportingComponent"),
        text_at(event, "message"),
    )
    return "  ".join(clean(word, 1000) for word in words)


def _stamp(event: Json) -> str:
    places = ("lastTimestamp", "series.lastObservedTime", "eventTime", "firstTimestamp")
    stamps = (text_at(event, place) for place in (*places, "metadata.creationTimestamp"))
    return next(filter(None, stamps), "")


def _when(event: Json) -> float:
    return time_at({"at": _stamp(event)}, "at") or 0.0
