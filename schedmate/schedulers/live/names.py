"""The names in actions, validated here once so that no command can read them as an option, a
pattern or a list."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, Field

from schedmate.hosts import host_name
from schedmate.terminal import clean

REASON_PREFIX = "schedmate:"
"""How the reason of every node that schedmate takes out of service begins."""

LONGEST_NOTE = 255
"""Characters of an annotation at most."""

_JOB = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/:+-]{0,399}\Z")
_MARK = re.compile(r"[a-z0-9][a-z0-9.-]{0,58}[a-z0-9]\Z")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,39}\Z")


def _job_id(text: str) -> str:
    if not text.isascii() or _JOB.match(text) is None:
        raise ValueError(f"{clean(text, 40)!r} cannot be the id of a job")
    return text


def _node_name(text: str) -> str:
    if host_name(text) is None:
        raise ValueError(f"{clean(text, 40)!r} cannot be the name of a node")
    return text


def _mark(text: str) -> str:
    if _MARK.match(text) is None:
        raise ValueError(f"{clean(text, 40)!r} cannot mark a drain: a-z, 0-9, '-' and '.' only")
    return text


def _diagnostic(text: str) -> str:
    if _NAME.match(text) is None:
        raise ValueError(f"{clean(text, 40)!r} cannot be the name of a diagnostic")
    return text


JobId = Annotated[str, AfterValidator(_job_id)]
"""Slurm's `17` and `17_4`, Kubernetes' `namespace/kind/name`, Ray's `raysubmit_x`; never a list."""

NodeName = Annotated[str, AfterValidator(_node_name)]
"""One machine, by the rules of host names (`schedmate.hosts`)."""

Mark = Annotated[str, AfterValidator(_mark)]
"""Identifies the drain of a plan: `ecc-error-1f0c2a9b7d3e`."""

Note = Annotated[str, AfterValidator(lambda text: clean(text, LONGEST_NOTE))]
"""One line of printable text."""

DiagnosticName = Annotated[str, AfterValidator(_diagnostic)]
"""A diagnostic of recovery.yaml."""

Seconds = Annotated[float, Field(gt=0, le=86_400)]
