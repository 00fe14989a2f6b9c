"""Events of a watch as they come, and what an API server's refusals say."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from schedmate.schedulers.live.executor import ExecutorError
from schedmate.terminal import clean

Json = dict[str, Any]

LONGEST_EVENT = 8 << 20
"""Bytes of one event of a watch at most; etcd keeps no object of more than 1.5 MiB."""


class KubernetesError(ExecutorError):
    """The API server refused a request (`code`, `reason`), or did not answer (`code` 0)."""

    def __init__(
        self, message: str, *, code: int = 0, reason: str = "", retry_after_s: float | None = None
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.retry_after_s = code, reason, retry_after_s

    @property
    def passes(self) -> bool:
        """Whether the same request may be answered later."""
        return self.code in (0, 429) or self.code >= 500


class Watching:
    """Events of one watch; `close` may be called from another thread."""

    def __init__(self, answer: Any, path: str) -> None:
        self._answer, self._path = answer, path

    def __iter__(self) -> Iterator[tuple[str, Json]]:
        import urllib3

        left = b""
        try:
            for chunk in self._answer.stream(1 << 16):
                *lines, left = (left + chunk).split(b"\n")
                if len(left) > LONGEST_EVENT:
                    raise KubernetesError(f"an event of {self._path} is too long.")
                for line in lines:
                    if line.strip():
                        yield _event(line, self._path)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise KubernetesError(f"the watch of {self._path} broke: {clean(error)}.") from None
        finally:
            self._answer.close()

    def close(self) -> None:
        """End the watch and its readers."""
        self._answer.shutdown()


def _event(line: bytes, path: str) -> tuple[str, Json]:
    try:
        event = json.loads(line)
        kind, found = event["type"], event["object"]
    except (ValueError, RecursionError, TypeError, KeyError):
        raise KubernetesError(f"the watch of {path} sent something that is not an event.") from None
    if not isinstance(kind, str) or not isinstance(found, dict):
        raise KubernetesError(f"the watch of {path} sent something that is not an event.")
    if kind == "ERROR":
        raise KubernetesError(
            f"the watch of {path} ended: {clean(found.get('message'), 200)}.",
            code=int(found.get("code") or 500),
            reason=str(found.get("reason") or ""),
        )
    return kind, found
