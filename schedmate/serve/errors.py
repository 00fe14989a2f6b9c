"""What a request is refused with."""

from __future__ import annotations

from schedmate.errors import InputError, LimitError, SchedmateError, UsageError
from schedmate.retrieval.history import HistoryError


class BusyError(SchedmateError):
    """As much as the service takes on is going on already."""


class OutsideError(InputError):
    """A path that may not be read."""


class ForbiddenError(SchedmateError):
    """It takes a right that was not shown."""


class AbsentError(InputError):
    """No object of that name exists."""


class ConflictError(InputError):
    """The stored state does not allow it."""


_STATUS: tuple[tuple[type[Exception], int], ...] = (
    (BusyError, 503),
    (OutsideError, 403),
    (ForbiddenError, 403),
    (AbsentError, 404),
    (ConflictError, 409),
    (LimitError, 504),
    (TimeoutError, 504),
    (HistoryError, 503),
    (InputError, 422),
    (UsageError, 422),
)


def status_of(error: Exception) -> int:
    """The HTTP status for a kind of failure."""
    return next((status for kind, status in _STATUS if isinstance(error, kind)), 500)
