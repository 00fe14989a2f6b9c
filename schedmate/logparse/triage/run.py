"""Diagnoses the jobs of a batch; work that the ledger has recorded is not repeated.

Each log is read and diagnosed in a separate process or on another machine. The ledger keeps
verdicts by content, so that a killed batch can be resumed, and what earlier batches showed.
"""

from __future__ import annotations

import hashlib
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple

from schedmate.base.confine.limits import MEMORY_MB, bounded
from schedmate.base.data import dumps, encodable
from schedmate.base.errors import InputError, SchedmateError
from schedmate.base.journal import Memo, OwnedFile
from schedmate.base.reading import read_bytes
from schedmate.base.spread import spread
from schedmate.jobs import Diagnosis, EvidenceLine
from schedmate.logparse.failure import diagnose, site_rules
from schedmate.logparse.failure.rules import site_files, site_folder
from schedmate.logparse.reading import Log
from schedmate.logparse.reading.storage import BLOCK
from schedmate.logparse.templates import OTHER, Templates
from schedmate.logparse.triage.document import JobVerdict
from schedmate.logparse.triage.targets import Target

LINES_BEFORE, LINES_AFTER = 100, 100
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


ENDED = (
    "the process that read it was killed or crashed, or took more than "
    f"{MOST_CPU_S:.0f} s of CPU time; is the log too large for this machine?"
)


def triage(
    targets: Sequence[Target],
    ledger: Ledger,
    *,
    processes: int = 1,
    ray: str | None = None,
    memory_mb: int = MEMORY_MB,
) -> Iterator[tuple[JobVerdict, array[int]]]:
    """The verdict on each job in order of completion, with the numbers of its templates.

    The work runs on `processes` of this machine, or as tasks of the Ray cluster at the address
    `ray`, whose nodes must see the logs under the same paths or URLs. A log that cannot be read
    gives a verdict with an `error`, and the others continue. Each process may use `memory_mb` [MiB]
    to read a log, and knows the site's rules of this context (`site_rules`).
    """
    shared = ledger.known(), memory_mb, site_folder()
    memo: Memo[Target, Outcome] = Memo(
        ledger, lambda target: target.key, _pack, partial(_unpack, ledger)
    )
    results = spread(examine_within, targets, shared, processes=processes, ray=ray, memo=memo)
    for target, outcome in results:
        yield _verdict(target, outcome or Outcome(error=ENDED), ledger)


def _verdict(target: Target, outcome: Outcome, ledger: Ledger) -> tuple[JobVerdict, array[int]]:
    diagnosis, numbers = None, array("q")
    if outcome.document is not None:
        diagnosis = Diagnosis.model_validate_json(outcome.document)
        numbers = ledger.add_verdict(target, outcome)
    elif outcome.content is not None:
        diagnosis, numbers = ledger.verdict(outcome.content)
    files = [*target.objects] or [str(path) for path in target.files]
    verdict = JobVerdict(
        index=target.index,
        job_id=target.job_id,
        log=target.name,
        files=files if len(files) > 1 else [],
        merged=target.merged,
        workload=target.workload,
        state=target.state,
        user=target.user,
        nodes=list(target.nodes),
        duration_s=target.duration_s,
        gpus=target.gpus,
        gpu_hours=target.gpu_hours,
        error=outcome.error,
        diagnosis=diagnosis and _with_base(diagnosis, "", encodable(target.base)),
        cached=outcome.content is not None and outcome.document is None,
    )
    return verdict, numbers


def _pack(outcome: Outcome) -> str | None:
    """The reference to a verdict in the ledger; errors are not stored, as they may be temporary."""
    return None if outcome.content is None else outcome.content.hex()


def _unpack(ledger: Ledger, text: str) -> Outcome | None:
    content = bytes.fromhex(text)
    return Outcome(content) if ledger.has(content) else None


# One log: read, diagnosed and identified by its content.


def examine(target: Target, known: Container[bytes], handler: Handler = diagnose) -> Outcome:
    """Read and diagnose the log of one job; errors are in the outcome, never raised.

    Contents with a `known` digest are not diagnosed. File names in the diagnosis are relative to
    the target's log, since the same content may be at another path next time.
    """
    try:
        with target.open() as log:
            content = content_digest(log, target.base)
            if content in known:
                return Outcome(content)
            diagnosis = handler(log)
            templates = _templates_around(log, diagnosis)
        diagnosis = _with_base(diagnosis, encodable(target.base), "")
        return Outcome(content, dumps(diagnosis.model_dump(mode="json")), None, templates)
    except SchedmateError as error:
        return Outcome(error=str(error))
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001 - one bad log must not end the others
        return Outcome(error=f"internal error, {type(error).__name__}: {error}")


def examine_within(target: Target, shared: tuple[Container[bytes], int, Path | None]) -> Outcome:
    """`examine` within this much memory [MiB] and the CPU time `MOST_CPU_S`, by a site's rules too.

    In a process of a pool: reading that takes longer ends the process.
    """
    known, memory_mb, rules_folder = shared
    try:
        with (
            bounded(f"the log {target.name}", memory_mb, MOST_CPU_S),
            site_rules(rules_folder),
        ):
            return examine(target, known)
    except SchedmateError as error:  # a limit, or rules that another machine does not have
        return Outcome(error=str(error))


def _with_base(diagnosis: Diagnosis, old: str, new: str) -> Diagnosis:
    """A diagnosis whose files' names begin with `new` instead of `old`."""

    def name(file: str | None) -> str | None:
        return new + file[len(old) :] if file is not None and file.startswith(old) else file

    def lines(quoted: list[EvidenceLine]) -> list[EvidenceLine]:
        return [line.model_copy(update={"file": name(line.file)}) for line in quoted]

    saved = diagnosis.checkpoint
    return diagnosis.model_copy(
        update={
            "file": name(diagnosis.file),
            "evidence": lines(diagnosis.evidence),
            "ruled_out": lines(diagnosis.ruled_out),
            "checkpoint": saved and saved.model_copy(update={"file": name(saved.file)}),
            "warnings": [
                text.replace(old, "this log") if old else text for text in diagnosis.warnings
            ],
        }
    )


def content_digest(log: Log, base: str) -> bytes:
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


def version() -> str:
    """A digest of what verdicts depend on: code, patterns, and the rules of the site, too."""
    return _version(site_folder())


@cache
def _version(rules_folder: Path | None) -> str:
    whole = hashlib.sha256()
    root = Path(__file__).parent.parent
    for path in sorted(root.rglob("*")):
        if path.suffix in (".py", ".yaml") and path.is_file():
            whole.update(f"\0{path.relative_to(root)}\0".encode() + path.read_bytes())
    for path in site_files(rules_folder):
        whole.update(f"\0{path.name}\0".encode() + read_bytes(path))
    return whole.hexdigest()[:16]


def _templates_around(log: Log, diagnosis: Diagnosis) -> tuple[Template, ...]:
    """The templates of the lines around the failure."""
    if diagnosis.error_type == "none" or diagnosis.line is None:
        return ()
    file = next((one for one in log.files if one.name == diagnosis.file), None)
    if file is None:
        return ()
    start = file.line_offset(max(1, diagnosis.line - LINES_BEFORE))
    end = file.line_offset(diagnosis.line + LINES_AFTER + 1)
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


# The ledger: verdicts by content, so that a killed batch can be resumed.


DIGEST_SIZE = 32
"""Bytes of a content digest."""


class LedgerError(InputError):
    """The ledger cannot be used."""


class SeenTemplate(NamedTuple):
    """A template that no earlier batch showed, and where it was seen first."""

    text: str
    log: str
    line: int


class RootCause(NamedTuple):
    """A root cause of a batch: its group, how many jobs it failed, and an example."""

    id: str
    jobs: int
    log: str
    line: int | None


class PastCause(NamedTuple):
    """What earlier batches showed of a root cause; the example is from the last one."""

    batches: int
    jobs: int
    last: float
    """When that batch ended [s since epoch]."""
    log: str
    line: int | None


class ContentSet:
    """A compact set of content digests, small enough to send a million to each process."""

    def __init__(self, ordered: Iterable[bytes] = ()) -> None:
        self._packed = b"".join(ordered)

    def __len__(self) -> int:
        return len(self._packed) // DIGEST_SIZE

    def __contains__(self, content: object) -> bool:
        if not isinstance(content, bytes):
            return False
        low = bisect_left(range(len(self)), content, key=self._at)
        return low < len(self) and self._at(low) == content

    def _at(self, place: int) -> bytes:
        return self._packed[place * DIGEST_SIZE : (place + 1) * DIGEST_SIZE]


class Ledger(OwnedFile):
    """A SQLite file with a rollback journal; one process at a time uses it.

    Its results by key are those of the logs of this batch that have been read. An unfinished batch
    of the same `source` is resumed, and the templates it added still count as new. Two batches in
    one ledger would each count the other's. Raises `LedgerError`.
    """

    error = LedgerError
    noun = "ledger"
    busy = "another triage is using it"
    instead = "name another file with --ledger"

    def __init__(self, path: Path | None, source: str) -> None:
        self._source = encodable(source)
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                self.path = path
                raise self._unusable(error) from None
        super().__init__(path)

    def _prepare(self) -> None:
        for statement in _schema():
            self._db.execute(statement)
        self._db.execute("DELETE FROM verdict WHERE version <> ?", (version(),))
        self.batch = self._begin_batch(self._source)

    def _begin_batch(self, source: str) -> int:
        row = self._db.execute("SELECT id, source, finished FROM batch ORDER BY id DESC").fetchone()
        if row is not None and row[1] == source and row[2] is None:
            return int(row[0])
        self._db.execute("DELETE FROM done")
        statement = "INSERT INTO batch (source, started) VALUES (?, ?)"
        return int(self._db.execute(statement, (source, time.time())).lastrowid or 0)

    def known(self) -> ContentSet:
        """Digests of the contents that have a verdict."""
        rows = self._db.execute("SELECT content FROM verdict ORDER BY content")
        return ContentSet(row[0] for row in rows)

    def has(self, content: bytes) -> bool:
        """Whether a content has a verdict."""
        row = self._db.execute("SELECT 1 FROM verdict WHERE content = ?", (content,)).fetchone()
        return row is not None

    def verdict(self, content: bytes) -> tuple[Diagnosis, array[int]]:
        """The diagnosis of a known content, and the numbers of its templates.

        File names in the diagnosis are relative to the log. Raises `LedgerError` if the file is
        damaged.
        """
        row = self._db.execute(
            "SELECT document, templates FROM verdict WHERE content = ?", (content,)
        ).fetchone()
        numbers = array("q")
        try:
            numbers.frombytes(row[1])
            return Diagnosis.model_validate_json(row[0]), numbers
        except (ValueError, TypeError):
            damaged = ValueError("a verdict in it is damaged")
            raise self._unusable(damaged) from None

    def add_verdict(self, target: Target, outcome: Outcome) -> array[int]:
        """Store a verdict; returns the numbers of its templates."""
        numbers = array("q", [template.number for template in outcome.templates])
        self._begin_changes()
        self._db.executemany(
            "INSERT OR IGNORE INTO template VALUES (?, ?, ?, ?, ?)",
            [
                (one.number, one.text, self.batch, target.name, one.line)
                for one in outcome.templates
            ],
        )
        self._store(
            "INSERT OR REPLACE INTO verdict VALUES (?, ?, ?, ?)",
            (outcome.content, version(), outcome.document, numbers.tobytes()),
        )
        return numbers

    def new_templates(self) -> dict[int, SeenTemplate]:
        """The templates that no earlier batch showed, by number."""
        rows = self._db.execute(
            "SELECT id, text, log, line FROM template WHERE batch = ?", (self.batch,)
        )
        return {row[0]: SeenTemplate(*row[1:]) for row in rows}

    def earlier(self) -> tuple[int, int]:
        """How many batches came before this one, and how many templates they showed."""
        batches = self._db.execute(
            "SELECT count(*) FROM batch WHERE id < ? AND finished IS NOT NULL", (self.batch,)
        ).fetchone()[0]
        templates = self._db.execute(
            "SELECT count(*) FROM template WHERE batch < ?", (self.batch,)
        ).fetchone()[0]
        return int(batches), int(templates)

    def causes(self) -> dict[str, PastCause]:
        """The root causes of earlier batches, by group."""
        rows = self._db.execute(
            # the columns beside max() are those of its row
            "SELECT cause.id, count(*), sum(jobs), max(finished), log, line FROM cause "
            "JOIN batch ON batch.id = cause.batch WHERE batch < ? AND finished IS NOT NULL "
            "GROUP BY cause.id",
            (self.batch,),
        )
        return {row[0]: PastCause(*row[1:]) for row in rows}

    def last_batch(self) -> tuple[float, dict[str, int]] | None:
        """When the batch before this one of the same source ended, and its causes with their jobs.

        Without one of the same source the latest of any; None without any.
        """
        row = self._db.execute(
            "SELECT id, finished FROM batch WHERE id < ? AND finished IS NOT NULL "
            "ORDER BY source = ? DESC, id DESC",
            (self.batch, self._source),
        ).fetchone()
        if row is None:
            return None
        rows = self._db.execute("SELECT id, jobs FROM cause WHERE batch = ?", (row[0],))
        return float(row[1]), {name: int(jobs) for name, jobs in rows}

    def finish(self, causes: Iterable[RootCause] = ()) -> None:
        """End the batch: its templates and causes count as known from now on."""
        self._commit()
        self._db.execute("BEGIN IMMEDIATE")
        self._db.executemany(
            "INSERT OR REPLACE INTO cause VALUES (?, ?, ?, ?, ?)",
            [(cause.id, self.batch, cause.jobs, cause.log, cause.line) for cause in causes],
        )
        self._db.execute("UPDATE batch SET finished = ? WHERE id = ?", (time.time(), self.batch))
        self._db.execute("DELETE FROM done")
        self._db.execute("COMMIT")


def _schema() -> list[str]:
    text = (Path(__file__).parent / "ledger.sql").read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith("--")]
    return [part for part in "\n".join(lines).split(";") if part.strip()]
