"""One verdict from the events of all files: the first failure, and what only followed from it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

from schedmate.logparse.failure.elastic import summary
from schedmate.logparse.failure.events import Event
from schedmate.logparse.failure.locate import Verdict, apart_s, in_order, judge, role_of
from schedmate.logparse.failure.meanwhile import meanwhile
from schedmate.logparse.failure.rules import load_rules
from schedmate.logparse.failure.scan import FileScan
from schedmate.logparse.failure.waiting import mismatch


def decide(scans: list[FileScan], kernel: Iterable[Event] = ()) -> Verdict:
    """The first failure among all files of a job and, if given, the kernel logs of its nodes."""
    events = in_order([event for scan in scans for event in scan.events])
    known = summary(events)
    if known is not None:  # the launcher saw which worker was first
        events.sort(key=lambda event: event.rank != known.rank)
    ranks = {scan.file.rank for scan in scans} - {None}
    verdict = judge(events, list(kernel), ranks)
    verdict.elastic = known
    if verdict.root is not None and role_of(verdict.root) == "symptom":
        _before_the_symptoms(verdict, verdict.root, scans)
    return verdict


def _before_the_symptoms(verdict: Verdict, root: Event, scans: list[FileScan]) -> None:
    """What caused the ranks to lose each other, if a log states it.

    The ranks may wait in different collectives; the job may have been asked to end earlier, even if
    training continued for a while; or the missing rank was busy with something else.
    """
    symptoms = [root, *(event for event in verdict.cascade if role_of(event) == "symptom")]
    apart = mismatch(symptoms)
    if apart is not None:
        verdict.root = replace(root, rule=load_rules().by_id[MISMATCH], rank=None)
        verdict.reason = f"the ranks wait for each other in different collectives, {apart}"
        return
    told = [event for one in scans for event in one.background if role_of(event) == "stop"]
    told = [event for event in told if event.weight >= 1 and _shortly_before(event, root)]
    if told:
        verdict.root, verdict.missing = told[-1], []
        verdict.cascade = [root, *verdict.cascade]
        verdict.reason = "the job was told to end before its ranks lost each other"
        return
    if root.rule is not None and (root.rule.name == "NCCL Timeout" or _TIMED_OUT.search(root.text)):
        verdict.doing = meanwhile(symptoms, verdict.missing, scans)


def _shortly_before(event: Event, symptom: Event) -> bool:
    gap = apart_s(event, symptom)
    if gap is not None:
        return -NOTICE_S <= gap <= 0
    return event.file is symptom.file and 0 < symptom.number - event.number <= NOTICE_LINES


_TIMED_OUT = re.compile(r"(?i:time[sd]?[- ]?out|waiting)")
MISMATCH = "nccl-desync"
NOTICE_S, NOTICE_LINES = 3600.0, 2000
"""A stop or notice explains lost peers if it is at most this old [s], or this many lines above."""
