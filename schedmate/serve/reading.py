"""Reads repositories and logs for requests in a bounded number of confined processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from schedmate.errors import InputError
from schedmate.paths import exists, resolved
from schedmate.readers import Readers
from schedmate.serve.errors import BusyError, OutsideError
from schedmate.terminal import clean

T = TypeVar("T")


class Reading:
    """At most `at_once` processes; the same number of requests may wait, and more are refused.

    `roots` are the directories that may be read, links resolved; a path counts by the target of its
    links.
    """

    def __init__(self, readers: Readers, roots: Sequence[Path], at_once: int) -> None:
        self.readers = readers
        self._roots = tuple(roots)
        self._at_once = at_once
        self._threads = ThreadPoolExecutor(at_once, thread_name_prefix="schedmate-reading")
        self._taken = 0

    def close(self) -> None:
        """Cancel all reads in progress."""
        self.readers.close()
        self._threads.shutdown(wait=True, cancel_futures=True)

    @property
    def idle(self) -> bool:
        """Whether a request would start at once."""
        return self._taken < self._at_once

    async def do(self, work: Callable[[Readers, float], T], deadline: float) -> T:
        """The result of `work(readers, left_s)`; raises `BusyError`, or `TimeoutError` past the
        deadline [s, `time.monotonic`]."""
        if self._taken >= 2 * self._at_once:
            raise BusyError("as many repositories and logs as allowed are being read; try again.")
        self._taken += 1
        loop = asyncio.get_running_loop()
        try:
            task = loop.run_in_executor(self._threads, self._work, work, deadline)
        except BaseException:
            self._taken -= 1
            raise
        # a reading process counts until it has ended, even if its request has timed out
        task.add_done_callback(self._done)
        async with asyncio.timeout(max(0.0, deadline - time.monotonic())):
            return await asyncio.shield(task)

    def _done(self, task: asyncio.Future[T]) -> None:
        self._taken -= 1
        if not task.cancelled():
            task.exception()  # the client may be gone

    def _work(self, work: Callable[[Readers, float], T], deadline: float) -> T:
        left_s = deadline - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return work(self.readers, left_s)

    def allowed(self, path: str) -> str:
        """The path without links; raises `OutsideError` if it is not below a root."""
        place = resolved(Path(path)) if Path(path).is_absolute() and "\0" not in path else None
        if place is not None and any(place.is_relative_to(root) for root in self._roots):
            # what exists outside the roots is not revealed
            if exists(place):
                return str(place)
            raise InputError(
                f"{clean(path, 200)}: there is nothing of that name; correct the path."
            )
        roots = ", ".join(map(str, self._roots))
        raise OutsideError(
            f"{clean(path, 200)!r} is not below a directory that may be read ({roots}); the "
            "service is told which by --root."
            if roots
            else "the service reads no code and no logs: it was started without --root DIR."
        )
