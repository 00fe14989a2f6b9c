"""The directory of a job's code on this machine, and the command that starts it.

A job's owner may name a directory below one of the administrator's roots only, after links were
resolved. Otherwise the administrator's map from images to directories applies. The code is read in
confined processes, and never run.
"""

from __future__ import annotations

import fnmatch
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from schedmate.paths import is_dir, resolved
from schedmate.schedulers.live.bounds import CodeBounds, ImageCode
from schedmate.schedulers.live.kubernetes.fields import list_at, text_at
from schedmate.schedulers.live.kubernetes.kinds import CODE

_VARIABLE = re.compile(r"\$(\$|\((?P<name>[A-Za-z_][A-Za-z0-9_.-]*)\))")
LONGEST_COMMAND = 1 << 16
"""Characters of a command that is read."""


def folder_of(
    bounds: CodeBounds, namespace: str, said: str, image: str
) -> tuple[Path | None, ImageCode | None, str]:
    """The directory of a job's code, its entry of the map, and why there is none.

    `said` is the owner's annotation, empty without one, which takes precedence over the map.
    """
    if said:
        roots = [Path(str(root).replace("{namespace}", namespace)) for root in bounds.roots]
        found = below(roots, said)
        return found, None, "" if found else _refused(roots, said)
    for one in bounds.images:
        if fnmatch.fnmatchcase(image, one.image):
            return one.path, one, "" if is_dir(one.path) else f"{one.path} is not a directory"
    return (
        None,
        None,
        f"neither its annotation {CODE} nor kubernetes: code: images says where its code is",
    )


def _refused(roots: Sequence[Path], said: str) -> str:
    """Why a directory named by an owner is not read; nothing is revealed about directories outside
    the roots."""
    if not roots:
        return f"{CODE} names {said!r}, and the bounds allow no directory (kubernetes: code: roots)"
    places = ", ".join(map(str, roots))
    inside = "\0" not in said and any(
        resolved(root / said).is_relative_to(resolved(root)) for root in roots
    )
    what = "not a directory below" if inside else "outside"
    return f"{CODE} names {said!r}, which is {what} {places} (kubernetes: code: roots)"


def below(roots: Sequence[Path], said: str) -> Path | None:
    """The directory that a text names, absolute or below a root, if it is in one after all links
    were followed; else None."""
    if "\0" in said or len(said) > 4096:
        return None
    for root in roots:
        base = resolved(root)
        found = resolved(base / said)
        if found.is_relative_to(base) and is_dir(found):
            return found
    return None


def command_of(container: Mapping[str, Any], entry: ImageCode | None, path: Path | None) -> str:
    """A container's command as one would type it in the directory of its code.

    `$(NAME)` is replaced by the container's plain variables, as Kubernetes does; values from
    secrets and config maps stay names. If the map has the place of the code in the image (`at`),
    paths below it become paths of the directory.
    """
    words = [
        word
        for part in ("command", "args")
        for word in _listed(container.get(part))
        if isinstance(word, str)
    ]
    known = {
        text_at(one, "name"): one["value"] for one in list_at(container, "env") if "value" in one
    }
    words = [_expanded(word, known) for word in words]
    if entry is not None and entry.at is not None and path is not None:
        place = str(entry.at).rstrip("/")
        words = [_moved(word, place, str(path)) for word in words]
    return shlex.join(words)[:LONGEST_COMMAND]


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _expanded(word: str, known: Mapping[str, Any]) -> str:
    def value(match: re.Match[str]) -> str:
        if match[1] == "$":
            return "$"
        found = known.get(match["name"])
        return found if isinstance(found, str) else match[0]

    return _VARIABLE.sub(value, word)


def _moved(word: str, place: str, path: str) -> str:
    pattern = rf"(?<![\w./-]){re.escape(place)}(?=/|[\s\"';)&|]|$)"
    return re.sub(pattern, lambda _: path, word)
