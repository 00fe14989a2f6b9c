"""The directories below which a service may read, for clients that name paths."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from schedmate.base.errors import InputError
from schedmate.base.files import exists, resolved
from schedmate.base.terminal import clean
from schedmate.serve.models import OutsideError


def checked_roots(paths: Sequence[Path]) -> tuple[Path, ...]:
    """Directories that may be read, links resolved; raises `InputError` if one is not a
    directory."""
    for path in paths:
        if not path.is_dir():
            raise InputError(f"--root {path} is not a directory; name one that holds code or logs.")
    return tuple(path.resolve() for path in paths)


def allowed_path(path: str, roots: Sequence[Path]) -> str:
    """The path without links; raises `OutsideError` if it is not below a root."""
    place = resolved(Path(path)) if Path(path).is_absolute() and "\0" not in path else None
    if place is not None and any(place.is_relative_to(root) for root in roots):
        # what exists outside the roots is not revealed
        if exists(place):
            return str(place)
        raise InputError(f"{clean(path, 200)}: there is nothing of that name; correct the path.")
    names = ", ".join(map(str, roots))
    raise OutsideError(
        f"{clean(path, 200)!r} is not below a directory that may be read ({names}), or leads out "
        "of it by a link; the service is told which by --root."
        if names
        else "the service reads no code and no logs: it was started without --root DIR."
    )
