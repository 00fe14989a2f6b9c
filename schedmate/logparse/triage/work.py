"""The work on one job of a batch, in a separate process or on another machine."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from schedmate.confine.limits import bounded
from schedmate.errors import LimitError, SchedmateError
from schedmate.jobs import Diagnosis, EvidenceLine
from schedmate.logparse.failure import diagnose
from schedmate.logparse.reading import Log
from schedmate.logparse.reading.storage import BLOCK
from schedmate.logparse.templates import OTHER, Templates
from schedmate.logparse.triage.targets import Target
from schedmate.plain import dumps, encodable

BEFORE, AFTER = 100, 100
"""Lines around the failure whose templates are compared with those of earlier batches."""

MOST_CPU_S = 300.0
"""Limit for the CPU time of reading one log: a hundred times that of 150 MB [s]."""

Handler = Callable[[Log], Diagnosis]


@dataclass(frozen=True)
class Template:
    """A template near a failure: `number` identifies it, `line` is its first position."""

    number: int
    text: str
    line: int


@dataclass(frozen=True)
class Outcome:
    """The result for one log.

    `content` is the digest of what was read, None if nothing was. `document` is the `Diagnosis` as
    JSON, None if there is an `error` or the content already has a verdict.
    """

    content: bytes | None = None
    document: str | None = None
    error: str | None = None
    templates: tuple[Template, ...] = field(default=())


def examine(target: Target, known: Container[bytes], handler: Handler = diagnose) -> Outcome:
    """Read and diagnose the log of one job; errors are in the outcome, never raised.

    Contents with a `known` digest are not diagnosed. File names in the diagnosis are relative to
    the target's log, since the same content may be at another path next time.
    """
    try:
        with target.open() as log:
            content = digest(log, target.base)
            if content in known:
                return Outcome(content)
            found = handler(log)
            templates = _around(log, found)
        found = _moved(found, encodable(target.base), "")
        return Outcome(content, dumps(found.model_dump(mode="json")), None, templates)
    except SchedmateError as error:
        return Outcome(error=str(error))
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - one bad log must not end the others
        return Outcome(error=f"internal error, {type(error).__name__}: {error}")


def examine_within(target: Target, shared: tuple[Container[bytes], int]) -> Outcome:
    """`examine` within this much memory [MiB] and the CPU time `MOST_CPU_S`.

    In a process of a pool: reading that takes longer ends the process.
    """
    known, memory_mb = shared
    try:
        with bounded(f"the log {target.name}", memory_mb, MOST_CPU_S):
            return examine(target, known)
    except LimitError as error:
        return Outcome(error=str(error))


def restore(document: str, base: str) -> Diagnosis:
    """The diagnosis with the names of the files of this log, which begin with `base`."""
    return _moved(Diagnosis.model_validate_json(document), "", encodable(base))


def _moved(found: Diagnosis, old: str, new: str) -> Diagnosis:
    """A diagnosis whose files' names begin with `new` instead of `old`."""

    def name(file: str | None) -> str | None:
        return new + file[len(old) :] if file is not None and file.startswith(old) else file

    def lines(quoted: list[EvidenceLine]) -> list[EvidenceLine]:
        return [one.model_copy(update={"file": name(one.file)}) for one in quoted]

    saved = found.checkpoint
    return found.model_copy(
        update={
            "file": name(found.file),
            "evidence": lines(found.evidence),
            "ruled_out": lines(found.ruled_out),
            "checkpoint": saved and saved.model_copy(update={"file": name(saved.file)}),
            "warnings": [text.replace(old, "this log") if old else text for text in found.warnings],
        }
    )


def digest(log: Log, base: str) -> bytes:
    """A digest of everything a diagnosis depends on: files, their names below `base`, warnings."""
    whole = hashlib.sha256()
    for file in log.files:
        whole.update(f"\0{file.name.removeprefix(base)}\0{file.size}\0".encode(errors="replace"))
        for offset in range(0, file.size, BLOCK):
            whole.update(file.read(offset, BLOCK))
        file.close()
    for error in log.error_files:
        name = str(error.path).removeprefix(base)
        text = f"\0{name}\0{error.message}\0{error.time}\0{error.traceback}"
        whole.update(text.encode(errors="replace"))
    for warning in log.warnings:
        whole.update(f"\0{warning.replace(base, '')}".encode(errors="replace"))
    return whole.digest()


@cache
def version() -> str:
    """A digest of what verdicts depend on: rules, patterns and code of this installation."""
    whole = hashlib.sha256()
    root = Path(__file__).parent.parent
    for path in sorted(root.rglob("*")):
        if path.suffix in (".py", ".yaml") and path.is_file():
            whole.update(f"\0{path.relative_to(root)}\0".encode() + path.read_bytes())
    return whole.hexdigest()[:16]


def _around(log: Log, found: Diagnosis) -> tuple[Template, ...]:
    """The templates of the lines around the failure."""
    if found.error_type == "none" or found.line is None:
        return ()
    file = next((one for one in log.files if one.name == found.file), None)
    if file is None:
        return ()
    start = file.line_offset(max(1, found.line - BEFORE))
    end = file.line_offset(found.line + AFTER + 1)
    templates = Templates()
    seen: dict[int, Template] = {}
    for chunk in file.chunks(start, end):
        for place, number in enumerate(templates.numbers(chunk.data)):
            if number not in seen and number < len(templates.texts):
                text = templates.texts[number]
                if text and text != OTHER:
                    line = chunk.first_line + place
                    seen[number] = Template(template_number(text), text, line)
    return tuple(seen.values())


def template_number(text: str) -> int:
    """A number that identifies a template in every process (63 bits of its digest)."""
    digest = hashlib.blake2b(text.encode(errors="replace"), digest_size=8).digest()
    return int.from_bytes(digest) >> 1
