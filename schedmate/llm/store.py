"""Keeps the ledger of model calls, cached replies and what endpoints can do, in a SQLite file.

`Budget` is the limits on tokens and cost of a call, a job and a day, by what the ledger says was
used.
"""

from __future__ import annotations

import os
import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from schedmate.base.errors import InputError, ModelError, Verdict
from schedmate.base.journal import Connection, upgrade

STORE_FILE = "llm.sqlite"
KEPT_REPLIES = 20_000
"""Limit for the replies in the cache; the oldest are deleted first."""
CAPABILITY_AGE_S = 7 * 86_400
"""Time for which the known capabilities of an endpoint are used [s]: servers are upgraded."""
BUSY_S = 10.0


@dataclass(frozen=True, slots=True)
class Call:
    """One line of the ledger; see schema.sql for units."""

    time: float
    purpose: str
    job: str | None
    endpoint: str
    model: str
    verdict: Verdict
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    seconds: float = 0.0
    attempts: int = 0
    sent: int = 0
    cost: float = 0.0
    detail: str | None = None

    @property
    def counts(self) -> bool:
        """Whether it was a call: a server was reached, or the cache replied."""
        return self.sent > 0 or self.verdict == "ok"


class Store:
    """The ledger, the reply cache and endpoint capabilities. Safe from any thread or process."""

    def __init__(self, directory: Path) -> None:
        """Open or make `llm.sqlite` in `directory`; raises `InputError` when that fails."""
        self.path = directory / STORE_FILE
        self._lock = threading.Lock()
        try:
            directory.mkdir(parents=True, exist_ok=True)
            # Made before SQLite opens it, so that it is never readable by others, even briefly.
            os.close(os.open(self.path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            self._db = sqlite3.connect(
                self.path, timeout=BUSY_S, check_same_thread=False, factory=Connection
            )
            schema = resources.files(__package__).joinpath("schema.sql").read_text("utf-8")
            upgrade(self._db, self.path, (schema, _count_sent))
        except (OSError, sqlite3.Error) as error:
            raise InputError(
                f"cannot use {self.path} ({error}); set XDG_DATA_HOME to a directory that can be "
                "written, or remove the file: it holds only the record of model calls."
            ) from None

    def close(self) -> None:
        """Close the file; may be repeated."""
        with self._lock:
            self._db.close()

    @contextmanager
    def _using(self) -> Iterator[sqlite3.Connection]:
        """The database for one thread; what fails is a failure of the model, without whose budget
        nothing is asked."""
        with self._lock:
            try:
                yield self._db
            except sqlite3.Error as error:
                raise ModelError(
                    "unavailable", f"its ledger {self.path} cannot be used ({error}); make room"
                ) from None

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        with self._using() as database, database:
            yield database

    def secret(self) -> bytes:
        """Random bytes of this installation, always the same."""
        with self._writing() as db:
            db.execute("INSERT OR IGNORE INTO secret VALUES (0, ?)", (os.urandom(32),))
            return bytes(db.execute("SELECT bytes FROM secret").fetchone()[0])

    # -- ledger ------------------------------------------------------------

    def add(self, call: Call) -> None:
        """Append a call to the ledger."""
        row = asdict(call)
        names, marks = ", ".join(row), ", ".join(f":{name}" for name in row)
        with self._writing() as db:
            db.execute(f"INSERT INTO calls ({names}) VALUES ({marks})", row)  # noqa: S608

    def spent(self, *, job: str | None = None, since: float = 0.0) -> tuple[int, float]:
        """Tokens and cost of the calls of `job` (None: of all) since a time [s since epoch]."""
        with self._using():
            row = self._db.execute(
                "SELECT COALESCE(SUM(input_tokens + output_tokens), 0), COALESCE(SUM(cost), 0.0) "
                "FROM calls WHERE time >= ? AND attempts > 0 AND (? IS NULL OR job = ?)",
                (since, job, job),
            ).fetchone()
        return int(row[0]), float(row[1])

    def calls(self, *, since: float = 0.0) -> list[dict[str, Any]]:
        """The newest calls first."""
        with self._using():
            cursor = self._db.execute(
                "SELECT * FROM calls WHERE time >= ? ORDER BY id DESC", (since,)
            )
            names = [column[0] for column in cursor.description]
            return [dict(zip(names, row, strict=True)) for row in cursor]

    # -- replies -----------------------------------------------------------

    def reply(self, key: str) -> str | None:
        """The stored reply to an identical request, or None."""
        with self._using():
            row = self._db.execute("SELECT reply FROM replies WHERE key = ?", (key,)).fetchone()
        return None if row is None else str(row[0])

    def keep(self, key: str, reply: str) -> None:
        """Store a reply; the oldest are deleted beyond `KEPT_REPLIES`."""
        with self._writing() as db:
            db.execute(
                "INSERT OR REPLACE INTO replies (key, time, reply) VALUES (?, ?, ?)",
                (key, time.time(), reply),
            )
            db.execute(
                "DELETE FROM replies WHERE key IN "
                "(SELECT key FROM replies ORDER BY time DESC LIMIT -1 OFFSET ?)",
                (KEPT_REPLIES,),
            )

    # -- capabilities ------------------------------------------------------

    def method(self, endpoint: str, model: str) -> str | None:
        """The structured-output method that last worked there, if it is recent."""
        with self._using():
            row = self._db.execute(
                "SELECT method FROM capabilities WHERE endpoint = ? AND model = ? AND time > ?",
                (endpoint, model, time.time() - CAPABILITY_AGE_S),
            ).fetchone()
        return None if row is None else str(row[0])

    def learn(self, endpoint: str, model: str, method: str) -> None:
        """Store the structured-output method that worked."""
        with self._writing() as db:
            db.execute(
                "INSERT OR REPLACE INTO capabilities VALUES (?, ?, ?, ?)",
                (endpoint, model, method, time.time()),
            )


def recent_verdicts(directory: Path, since: float) -> dict[str, int]:
    """How many calls ended how since a time [s since epoch], by the ledger in a directory; none
    where it has no ledger or that cannot be read."""
    path = directory / STORE_FILE
    if not path.is_file():
        return {}
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=1.0)) as ledger:
            sql = "SELECT verdict, count(*) FROM calls WHERE time >= ? GROUP BY verdict"
            return dict(ledger.execute(sql, (since,)))
    except sqlite3.Error:
        return {}


def _count_sent(database: sqlite3.Connection) -> None:
    """Requests that reached a server, which were not told apart at first."""
    if "sent" not in {row[1] for row in database.execute("PRAGMA table_info(calls)")}:
        database.execute("ALTER TABLE calls ADD COLUMN sent INTEGER NOT NULL DEFAULT 0")
        database.execute("UPDATE calls SET sent = attempts")


# Limits on the tokens and cost of model calls, and what has been used.


CHARACTERS_PER_TOKEN = 3.0
"""For source code and logs; low, so that estimates are rather too high."""


@dataclass(frozen=True, slots=True)
class Budget:
    """Limits on tokens (input and output together) and cost, per call, job and day.

    None is no limit. Prices are per million tokens; cost is in their currency.
    """

    call_tokens: int | None = None
    job_tokens: int | None = None
    day_tokens: int | None = None
    call_cost: float | None = None
    job_cost: float | None = None
    day_cost: float | None = None
    price_input: float = 0.0
    price_output: float = 0.0

    def cost(self, input_tokens: int, output_tokens: int) -> float:
        """The cost of this many tokens."""
        return (input_tokens * self.price_input + output_tokens * self.price_output) / 1e6

    def check(self, store: Store, job: str | None, input_tokens: int, output_tokens: int) -> None:
        """Raise `ModelError` if a call of that size would exceed a limit.

        `output_tokens` is the limit for the reply. A day is the last 24 hours.
        """
        tokens, cost = input_tokens + output_tokens, self.cost(input_tokens, output_tokens)
        spent = {"call": (0, 0.0)}
        if job is not None and (self.job_tokens is not None or self.job_cost is not None):
            spent["job"] = store.spent(job=job)
        if self.day_tokens is not None or self.day_cost is not None:
            spent["day"] = store.spent(since=time.time() - 86_400)
        for unit, (used, paid) in spent.items():
            for limit, amount, what in (
                (getattr(self, f"{unit}_tokens"), used + tokens, "tokens"),
                (getattr(self, f"{unit}_cost"), paid + cost, "cost"),
            ):
                if limit is not None and amount > limit:
                    raise ModelError(
                        "budget",
                        f"a call of up to {tokens:,} tokens would pass the limit of {limit:,} "
                        f"{what} a {unit}; raise llm_{unit}_{what} if it should be made",
                    )


def estimate_tokens(characters: int) -> int:
    """An estimate of the tokens in that many characters, rather too high than too low."""
    return int(characters / CHARACTERS_PER_TOKEN) + 1
