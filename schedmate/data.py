"""Tables, patterns and rules kept as YAML beside the code that uses them.

Reading YAML takes ten times as long as reading JSON, so what a file says is kept as JSON in the
user's cache, with the digest of the text it was read from: never code or pickles, and only in a
folder that nobody else can write to. The cache may be deleted at any time.
"""

from __future__ import annotations

import json
import os
import stat
from hashlib import sha256
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).parent


def load(name: str) -> Any:
    """The content of a YAML file that comes with schedmate, named relative to the package."""
    path = PACKAGE / name
    text = path.read_bytes()
    digest = sha256(text).hexdigest()
    kept = _folder() / f"{sha256(os.fsencode(path)).hexdigest()[:24]}.json"
    found = _read(kept)
    if isinstance(found, dict) and found.get("of") == digest:
        return found["says"]
    says = parse(text.decode("utf-8"))
    _write(kept, {"of": digest, "says": says})
    return says


def parse(text: str) -> Any:
    """The plain values that YAML text says; raises `yaml.YAMLError`."""
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load(text, Loader=loader)  # noqa: S506 - a safe loader, the fast one if built


def _folder() -> Path:
    home = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (home if home.is_absolute() else Path.home() / ".cache") / "schedmate" / "data"


def _read(path: Path) -> Any:
    """What is kept at a path; None where nothing is, or somebody else could have written it."""
    try:
        if not _ours(path.parent.stat()):
            return None
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        with os.fdopen(descriptor, "rb") as stream:
            return json.load(stream) if _ours(os.fstat(descriptor)) else None
    except (OSError, ValueError, RecursionError):
        return None


def _ours(found: os.stat_result) -> bool:
    mine = found.st_uid == os.geteuid()
    return mine and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _write(path: Path, document: dict[str, Any]) -> None:
    """Keep a document that JSON can say, if there is a place for it."""
    try:
        text = json.dumps(document, ensure_ascii=False, allow_nan=False)
        if json.loads(text) != document:  # a key that is not text, for example
            return
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = path.with_name(f"{path.name}.{os.getpid()}")
        descriptor = os.open(
            temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
        )
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)
            temporary.replace(path)
        except OSError:  # a full disk, or a process that may write no files
            temporary.unlink(missing_ok=True)
    except (OSError, TypeError, ValueError):
        return
