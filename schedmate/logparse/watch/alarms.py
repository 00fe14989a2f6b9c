"""Alarms about running jobs: each is raised once, and says when it is over.

A job's health is looked at again and again; a person is told twice at most: when a condition begins
and when it is over. What is over must stay so for some looks first, so that a job on the brink does
not ring again and again. Stalled and looping are one alarm: no progress. All of it is in a SQLite
file, so that nothing is told twice after a restart, and what could not be delivered is tried again.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from schedmate.base.errors import InputError
from schedmate.base.inputs import format_duration
from schedmate.base.journal import Connection, undamaged, upgrade
from schedmate.jobs.health import URGENCY, Condition, Health

EVENT_SCHEMA = "schedmate.alarm/v1"
CLEAR_LOOKS = 3
"""Looks in a row without a condition after which its alarm is over."""
KEPT_S = 30 * 86_400.0
"""Time for which jobs that are not looked at any more are remembered [s]."""
TRIED_AGAIN_S = 30.0
"""Pause before the second attempt to deliver an event, doubled with each [s]."""
GIVEN_UP_S = 86_400.0
"""Age of an event that is not delivered any more [s]."""

_ONE_ALARM = {"stalled": "no progress", "looping": "no progress"}

_TABLES = """
CREATE TABLE IF NOT EXISTS jobs (job TEXT PRIMARY KEY, at REAL, health TEXT, alarms TEXT);
CREATE TABLE IF NOT EXISTS events (
    id TEXT, action TEXT, at REAL, due REAL, attempts INTEGER, document TEXT,
    PRIMARY KEY (id, action));
"""


class Alarm(BaseModel):
    """A condition of a job that a person has been told of."""

    model_config = ConfigDict(extra="forbid")

    what: str = Field(description="Its kind; `no progress` for a job that is stalled or looping")
    began: float = Field(description="When it was raised [s since epoch]")
    condition: Condition = Field(description="As it was seen last")
    clear: int = Field(0, ge=0, description="Looks in a row without it")


class AlarmEvent(BaseModel):
    """That an alarm began, or is over: what is told, once."""

    model_config = ConfigDict(extra="forbid")

    id: str = Field(description="The same however often it is delivered")
    job: str
    log: str
    what: str = Field(description="Kind of the alarm")
    state: Literal["began", "over"]
    at: float = Field(description="When that was noticed [s since epoch]")
    summary: str = Field(description="What a person reads, in one line")
    condition: Condition


class _Remembered(BaseModel):
    alarms: list[Alarm]


class Alarms:
    """The alarms of jobs, in a file or, without a path, in memory. One process writes it."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        try:
            if path is not None:
                path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._db = sqlite3.connect(str(path or ":memory:"), timeout=30.0, factory=Connection)
            upgrade(self._db, path, (_TABLES,))
        except (sqlite3.Error, OSError) as error:
            raise InputError(
                f"cannot open the alarms in {path}: {error}; name another file with --state."
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def before(self, job: str, log: str) -> Health | None:
        """The health of a job at the last look."""
        row = self._row("health", job, log)
        if row is not None:
            with suppress(ValidationError):  # of another version
                return Health.model_validate_json(row[0])
        return None

    def _row(self, column: str, job: str, log: str) -> tuple[str] | None:
        key = json.dumps([job, log])
        with undamaged(self.path):
            row: tuple[str] | None = self._db.execute(
                f"SELECT {column} FROM jobs WHERE job = ?",  # noqa: S608 - one of two names of ours
                (key,),
            ).fetchone()
        return row

    def standing(self, job: str, log: str) -> list[Alarm]:
        """The alarms of a job that are not over, the most urgent first."""
        row = self._row("alarms", job, log)
        if row is not None:
            with suppress(ValidationError):
                return _Remembered.model_validate_json(row[0]).alarms
        return []

    def take(
        self, job: str, log: str, health: Health, actions: Iterable[str] = ()
    ) -> list[AlarmEvent]:
        """Take in a look at a job, and give what is to be told.

        Each event is kept for each of the `actions` until `deliver` has done it.
        """
        now = health.read_at
        standing = {alarm.what: alarm for alarm in self.standing(job, log)}
        present = {_ONE_ALARM.get(one.kind, one.kind): one for one in reversed(health.conditions)}
        events = []
        for what, condition in present.items():
            if what not in standing:
                standing[what] = Alarm(what=what, began=now, condition=condition, clear=0)
                events.append(_event(job, log, standing[what], "began", now))
            else:
                standing[what].condition, standing[what].clear = condition, 0
        ended = health.progress.ended is not None
        for what, alarm in list(standing.items()):
            if what in present:
                continue
            alarm.clear += 1
            if ended or alarm.clear >= CLEAR_LOOKS:
                del standing[what]
                why = "the job has ended" if ended else "it goes on as usual"
                events.append(_event(job, log, alarm, "over", now, why))
        ranked = sorted(standing.values(), key=lambda alarm: URGENCY[alarm.condition.kind])
        self._keep(json.dumps([job, log]), health, ranked, events, actions)
        return events

    def end(self, job: str, log: str, now: float, actions: Iterable[str] = ()) -> list[AlarmEvent]:
        """The job is not there any more: its alarms are over."""
        alarms = self.standing(job, log)
        events = [_event(job, log, each, "over", now, "the job has ended") for each in alarms]
        with undamaged(self.path), self._db:
            self._db.execute("DELETE FROM jobs WHERE job = ?", (json.dumps([job, log]),))
            self._put_events(events, actions)
        return events

    def _keep(
        self,
        key: str,
        health: Health,
        alarms: list[Alarm],
        events: list[AlarmEvent],
        actions: Iterable[str],
    ) -> None:
        with undamaged(self.path), self._db:
            self._db.execute("DELETE FROM jobs WHERE at < ?", (health.read_at - KEPT_S,))
            self._db.execute(
                "INSERT OR REPLACE INTO jobs VALUES (?, ?, ?, ?)",
                (
                    *(key, health.read_at, health.model_dump_json()),
                    _Remembered(alarms=alarms).model_dump_json(),
                ),
            )
            self._put_events(events, actions)

    def _put_events(self, events: list[AlarmEvent], actions: Iterable[str]) -> None:
        self._db.executemany(
            "INSERT OR IGNORE INTO events VALUES (?, ?, ?, 0, 0, ?)",
            [
                (event.id, action, event.at, event.model_dump_json())
                for event in events
                for action in actions
            ],
        )

    def deliver(self, actions: dict[str, Callable[[AlarmEvent], str | None]]) -> list[str]:
        """Carry out what is due, in order, and give what failed, in sentences.

        An action returns None when it is done, or why it failed; then it is tried again, after a
        pause that grows, for a day.
        """
        now, failures = time.time(), []
        with undamaged(self.path):
            rows = self._db.execute(
                "SELECT id, action, at, attempts, document FROM events WHERE due <= ? "
                "ORDER BY at, id",
                (now,),
            ).fetchall()
            events = [AlarmEvent.model_validate_json(row[-1]) for row in rows]
        for (id_, name, at, attempts, _), event in zip(rows, events, strict=True):
            problem = None
            if name in actions and now - at < GIVEN_UP_S:
                problem = actions[name](event)
            with self._db:
                if problem is None:
                    self._db.execute("DELETE FROM events WHERE id = ? AND action = ?", (id_, name))
                    continue
                pause_s = TRIED_AGAIN_S * 2 ** min(attempts, 10)
                self._db.execute(
                    "UPDATE events SET due = ?, attempts = attempts + 1 "
                    "WHERE id = ? AND action = ?",
                    (now + pause_s, id_, name),
                )
            failures.append(f"{problem}; it is tried again in {format_duration(pause_s)}")
        return failures


def _event(
    job: str, log: str, alarm: Alarm, state: Literal["began", "over"], now: float, why: str = ""
) -> AlarmEvent:
    summary = f"{job}: {alarm.condition.kind}: {alarm.condition.summary}"
    if state == "over":
        lasted = format_duration(max(0.0, now - alarm.began))
        summary = f"{job}: no longer {alarm.condition.kind}, after {lasted}: {why}"
    name = f"{job}\0{log}\0{alarm.what}\0{alarm.began!r}\0{state}"
    return AlarmEvent(
        id=sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:32],
        job=job,
        log=log,
        what=alarm.what,
        state=state,
        at=now,
        summary=summary,
        condition=alarm.condition,
    )
