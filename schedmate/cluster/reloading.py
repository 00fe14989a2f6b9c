"""When an agent is to read its bounds anew, without a restart."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from schedmate.base.errors import SchedmateError
from schedmate.cluster.bounds import load_bounds
from schedmate.cluster.recovery.configuration import load_configuration


class Reload:
    """Whether the bounds are to be read anew: their file or that of recovery changed, or SIGHUP.

    Files with a fault are named once and not taken: the agent goes on with what it has.
    """

    def __init__(
        self,
        bounds: Path | None,
        recovery: Path | None = None,
        *,
        tell: Callable[[str], object],
    ) -> None:
        """`recovery`: in place of the file that the bounds name. `tell` gets what was done."""
        self._bounds, self._recovery, self._tell = bounds, recovery, tell
        self._asked = False
        self._seen = self._stamps()
        self._is_due = False

    def _stamps(self) -> list[tuple[int, int, int] | None]:
        files = [self._bounds] if self._bounds is not None else []
        with suppress(SchedmateError):
            recovery = self._recovery or load_bounds(self._bounds).recovery
            files += [recovery] if recovery is not None else []
        stamps: list[tuple[int, int, int] | None] = []
        for file in files:
            try:
                status = file.stat()
                stamps.append((status.st_mtime_ns, status.st_ino, status.st_size))
            except OSError:
                stamps.append(None)
        return stamps

    def due(self) -> bool:
        """Whether there is something new that can be used."""
        if self._is_due:
            return True
        stamps = self._stamps()
        if not self._asked and stamps == self._seen:
            return False
        self._asked, self._seen = False, stamps
        self._is_due = self._can_be_used()
        return self._is_due

    def _can_be_used(self) -> bool:
        try:
            recovery = load_bounds(self._bounds).recovery
            load_configuration(self._recovery or recovery)
        except SchedmateError as error:
            self._tell(f"{error} The agent goes on with the bounds from before.")
            return False
        self._tell("the bounds are read anew.")
        return True

    def until(self, goes_on: Callable[[], bool]) -> Callable[[], bool]:
        """`goes_on`, until this is due."""
        return lambda: goes_on() and not self.due()

    def taken(self) -> bool:
        """Whether it was due, which it is not any more."""
        was, self._is_due = self._is_due, False
        return was

    def ask(self, *_: object) -> None:
        """Have the bounds read anew although their files are as before."""
        self._asked = True
