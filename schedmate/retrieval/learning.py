"""Estimates from all experts, with what ended runs taught them kept in the history.

`RunTimes` joins the Scheduling Advisor's similar jobs (`advisor.py`), as one expert, with those
that go by user, work, size and time limit (`experts.py`) in the mixture (`mixture.py`). What they
learned lies in the history's database, in parts of a few kilobytes: an estimate reads the few that
concern it, and a run that ended changes as few, however many jobs there are.

A run is learned once, after it has ended, by whoever writes to the history next; the table
`unlearned` has those that wait. Where all wait (`history rebuild`), they are learned in order of
their ends, and the result is the same bit for bit.
"""

from __future__ import annotations

import json
import math
import re
import shlex
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from schedmate.base.terminal import counted
from schedmate.jobs import (
    Estimate,
    ExpertShare,
    JobRecord,
    JobSpec,
    LaunchConfig,
    WorkloadMetadata,
)
from schedmate.retrieval.advisor import SchedulingAdvisor
from schedmate.retrieval.database import SCHEMA_VERSION, Database, HistoryError
from schedmate.retrieval.experts import (
    ALL,
    LEVELS,
    P10,
    P50,
    P90,
    Errors,
    Group,
    Key,
    Part,
    Submission,
)
from schedmate.retrieval.fates import Checks, Fates, Odds, failed
from schedmate.retrieval.mixture import Forecast, Mixture, Shifts, Weights

if TYPE_CHECKING:
    from schedmate.retrieval.history import JobHistory
    from schedmate.settings import Settings

SIMILAR = "similar jobs"
"""The expert that is the Scheduling Advisor."""

SETTLED = 30
"""Completed runs that the mixture must have learned from before it speaks. Until then the advisor's
similar jobs are the estimate: fewer do not tell which expert is good here."""

BATCH = 50
"""Runs learned in one transaction; others can write between two of them."""

HELD = 20_000
"""Parts kept in memory."""

MENTIONED = 0.05
"""Least weight of an expert that is worth mentioning."""

_KINDS: dict[str, type[Part]] = {
    "group": Group,
    "errors": Errors,
    "all": Errors,
    "all shares": Errors,
    "weights": Weights,
    "shifts": Shifts,
    "fates": Fates,
    "checks": Checks,
}
"""What a part is, by the first word of its key."""


class RunTimes:
    """Estimates of how long jobs run, from one history. May be used from any thread.

    `widest` is the ratio of p90 to p10 from which on an estimate abstains as too uncertain.
    """

    def __init__(self, history: JobHistory, advisor: SchedulingAdvisor, widest: float) -> None:
        self._history = history
        self._advisor = advisor
        self._widest = widest
        self._parts = StoredParts(history.database)
        self._mixture = Mixture(self._parts)
        self._odds = Odds(self._parts)
        self._lock = threading.RLock()

    @classmethod
    def of(cls, history: JobHistory, settings: Settings) -> Self:
        """As the settings say: `method` (`experts`, or the advisor alone), threshold, widest."""
        alone = settings.method != "experts"
        advisor = SchedulingAdvisor(
            history,
            threshold=settings.threshold,
            k=settings.top_k,
            method="mean" if settings.method == "mean" else "weighted",
        )
        return cls(history, advisor, math.inf if alone else settings.widest_interval)

    def estimate(
        self,
        metadata: WorkloadMetadata,
        launch: LaunchConfig,
        now: float | None = None,
        job: JobSpec | JobRecord | None = None,
    ) -> Estimate:
        """Estimate a job from its metadata and launch, and from the user, name and command of
        `job`, as far as they are known.

        `now` [s since epoch] is the submission time: runs that ended later do not count, and
        without it every run does. Where no similar job and no run of the same user or work is
        there, it abstains; likewise where the interval is too wide to say anything, and for a
        server, which does not end by itself. It names the fields of `metadata` that are unsure.
        """
        estimate = self._estimated(metadata, launch, now, job)
        changes: dict[str, Any] = {}
        if estimate.abstained and estimate.reason is None:
            changes["reason"] = self._advisor.nothing_similar(metadata, now)
        if unsure := metadata.unsure():
            changes["unsure"] = unsure
        return estimate.model_copy(update=changes) if changes else estimate

    def _estimated(
        self,
        metadata: WorkloadMetadata,
        launch: LaunchConfig,
        now: float | None,
        job: JobSpec | JobRecord | None,
    ) -> Estimate:
        similar = self._advisor.estimate(metadata, launch, now, explain=False)
        if (
            similar.endless
            or math.isinf(self._widest)
            or (similar.extrapolated and similar.abstained)
        ):
            return similar
        with self._lock:
            self._parts.refresh()
            if self._learned() < SETTLED:
                return similar
            submitted = time.time() if now is None else now
            asked = _submission(metadata, launch, job or JobSpec(), submitted, similar)
            similar = similar.model_copy(update={"failure": self._odds.failing(asked)})
            forecast = self._mixture.predict(asked)
            typical = self._mixture.experts.typical_log_s()
            if forecast is None or typical is None:
                return similar
            place = min(forecast.opinions.finest, len(forecast.opinions.groups) - 1)
            kind, _ = forecast.opinions.groups[place]
            if similar.abstained and not _of_somebody(kind):
                return similar
            runs = self._mixture.experts.runs_behind(asked, place)
        return _estimate(forecast, similar, kind, runs, typical, self._widest)

    def learn(
        self,
        *,
        most_s: float = math.inf,
        on_progress: Callable[[int], None] | None = None,
    ) -> int:
        """Learn from the runs that ended since, for at most about `most_s` [s]; returns how many.

        `on_progress` gets that number as it grows. Another process may learn some of them.
        """
        until = time.monotonic() + most_s
        count = 0
        while time.monotonic() < until:
            batch = self._history.unlearned(BATCH)
            if not batch:
                break
            count += self._learn(batch)
            if on_progress is not None:
                on_progress(count)
        return count

    def forget(self) -> None:
        """Let the experts begin again, with all runs that have ended to learn from."""
        with self._lock:
            self._history.forget_learned()
            self._parts.forget()

    def _learn(self, batch: Sequence[tuple[str, JobRecord | None]]) -> int:
        asked = {}
        for _, record in batch:
            if record is None or record.metadata.endless:
                continue  # how long a server was left to run says nothing of other jobs
            if (submitted := _submitted(record)) is not None:
                metadata, launch = record.metadata, record.launch
                similar = self._advisor.estimate(metadata, launch, submitted, explain=False)
                asked[record.job_id] = _submission(metadata, launch, record, submitted, similar)
        with self._lock, self._history.database.writing():
            self._parts.refresh()
            left = self._history.still_unlearned([job_id for job_id, _ in batch])
            for job_id, record in batch:
                if job_id in left and record is not None and job_id in asked:
                    self._learn_one(record, asked[job_id])
            self._parts.save()
            self._history.learned(left)
        return len(left)

    def _learn_one(self, record: JobRecord, asked: Submission) -> None:
        assert record.duration_s is not None
        ended = record.end_time
        if ended is None:
            ended = asked.submitted + record.duration_s
        log_s = math.log(max(record.duration_s, 1.0))
        self._mixture.learn(asked, ended, log_s, record.censored, record.job_id)
        self._odds.learn(asked, record.duration_s, failed(record))

    def _learned(self) -> int:
        """Completed runs that were learned from, as far as they are kept."""
        runs: Errors | None = self._parts.get(ALL)
        return 0 if runs is None else runs.count


def _submitted(record: JobRecord) -> float | None:
    """When a run that counts was submitted [s since epoch]; None for one that does not count."""
    if not record.ended or not record.duration_s:
        return None
    ended = None if record.end_time is None else record.end_time - record.duration_s
    return next(
        (one for one in (record.submit_time, record.start_time, ended) if one is not None), None
    )


def _submission(
    metadata: WorkloadMetadata,
    launch: LaunchConfig,
    job: JobSpec | JobRecord,
    submitted: float,
    similar: Estimate,
) -> Submission:
    quantiles = np.full(len(LEVELS), np.nan)
    if similar.quantiles_s and not similar.abstained:
        quantiles = np.log(np.maximum(similar.quantiles_s, 1.0))
    return Submission(
        submitted,
        user=job.user,
        name=work_name(metadata, job.name, job.command),
        size=launch.gpus,
        request_s=launch.time_limit_s or None,
        kind=launch.gpu_type,
        extra={SIMILAR: quantiles},
    )


def work_name(metadata: WorkloadMetadata, name: str | None, command: str | None) -> str | None:
    """What runs of the same work have in common, as far as it is known.

    The fingerprint of what it trains, and for how long; else the job's name without numbers and the
    program that its command starts.
    """
    if metadata.model.model_name is not None or metadata.dataset.train is not None:
        return metadata.fingerprint()
    parts = [] if name is None else [re.sub(r"\d+", "#", name[:200])]
    if command is not None:
        try:
            words = shlex.split(command[:2000])
        except ValueError:
            words = command[:2000].split()
        program = next((word for word in words if word.endswith((".py", ".sh"))), None)
        parts += [program or words[0]] if words else []
    return " ".join(parts) or None


def _of_somebody(kind: str) -> bool:
    """Whether a kind of group (`Submission.groups`) is of a user or of a work."""
    return kind.startswith(("this work", "this user", "such work"))


def _estimate(
    forecast: Forecast,
    similar: Estimate,
    kind: str,
    runs: Sequence[str],
    typical: float,
    widest: float,
) -> Estimate:
    seconds = np.exp(forecast.quantiles)
    low, middle, high = (float(seconds[at]) for at in (P10, P50, P90))
    said = forecast.opinions
    experts = _shares(forecast, similar, kind, said.runs, runs)
    short = float(np.interp(typical, forecast.quantiles, LEVELS, left=0.0, right=1.0))
    estimate = similar.model_copy(
        update={
            "duration_s": math.exp(forecast.point),
            "duration_p10_s": low,
            "duration_p50_s": middle,
            "duration_p90_s": high,
            "quantiles_s": seconds.tolist(),
            "interval_basis": None,
            "experts": experts,
            "likely_short": short,
            "method": "experts",
            "abstained": False,
            "reason": None if similar.abstained else similar.reason,
        }
    )
    if high <= widest * low:
        return estimate
    text = "; ".join(one.text for one in experts)
    return estimate.model_copy(
        update={
            "duration_s": None,
            "abstained": True,
            "reason": f"too uncertain: p90 is {high / low:,.0f} times p10 ({text})",
        }
    )


_FAMILIES = {
    "this work": ("last", "typical"),
    "nested groups": ("groups, short", "groups, long", "groups, bounds"),
    "this user's last two": ("last two",),
    "time limit": ("request", "request, anybody's"),
    "all jobs": ("global",),
    SIMILAR: (SIMILAR,),
}


def _shares(
    forecast: Forecast, similar: Estimate, kind: str, count: int, runs: Sequence[str]
) -> list[ExpertShare]:
    """The experts that have weight, related ones together, the heaviest first."""
    weights = dict(zip(forecast.names, forecast.weights.tolist(), strict=True))
    latest = counted(count, "run")
    texts = {
        "this work": f"{latest} of {kind}",
        "nested groups": f"runs of {kind} and of wider groups",
        "this user's last two": "this user's last two runs",
        "time limit": "how much of their time limits jobs use",
        "all jobs": "all jobs",
        SIMILAR: counted(len(similar.neighbours), "similar job") + " by their code",
    }
    ids = {
        "this work": list(runs),
        "nested groups": list(runs),
        SIMILAR: [one.job_id for one in similar.neighbours],
    }
    shares = []
    for family, names in _FAMILIES.items():
        weight = sum(weights.get(name, 0.0) for name in names)
        if weight >= MENTIONED:
            text = f"{texts[family]} (weight {weight:.2f})"
            shares.append(
                ExpertShare(name=family, weight=weight, runs=ids.get(family, []), text=text)
            )
    return sorted(shares, key=lambda one: -one.weight)


# What was learned, in the history's database.


class StoredParts:
    """Parts by key, read when they are first needed; those that were made or asked for within a
    `writing` block are written by `save`."""

    def __init__(self, database: Database) -> None:
        self._db = database
        self._held: dict[Key, Part | None] = {}
        self._asked: dict[Key, Part] = {}
        self._version: int | None = None
        self._made = False

    def refresh(self) -> None:
        """Forget what others may have changed since."""
        version = int(self._db.query("PRAGMA data_version")[0][0])
        if version != self._version or len(self._held) > HELD:
            self._held.clear()
            self._version = version
        if not self._made:  # a history of an earlier schedmate that is only read has none or others
            self._made = self._db.query("PRAGMA user_version")[0][0] == SCHEMA_VERSION
        self._asked.clear()

    def forget(self) -> None:
        """Read all anew."""
        self._held.clear()
        self._asked.clear()

    def get(self, key: Key, /) -> Any:
        """The part of this key, or None."""
        if not self._made:
            return None
        if key not in self._held:
            rows = self._db.query("SELECT state FROM learned WHERE key = ?", (_text(key),))
            self._held[key] = self._load(key, rows[0][0]) if rows else None
        part = self._held[key]
        if part is not None:
            self._asked[key] = part
        return part

    def __setitem__(self, key: Key, part: Part, /) -> None:
        self._held[key] = self._asked[key] = part

    def save(self) -> None:
        """Write what was asked for since `refresh`; part of a `writing` block."""
        self._db.execute_many(
            "INSERT INTO learned (key, state) VALUES (?, ?) "
            "ON CONFLICT (key) DO UPDATE SET state = excluded.state",
            [(_text(key), dumped(part)) for key, part in self._asked.items()],
        )
        self._asked.clear()

    def _load(self, key: Key, state: bytes) -> Part:
        kind = _KINDS[str(key[0])]
        try:
            head, _, body = bytes(state).partition(b"\n")
            texts, lengths = json.loads(head)
            numbers = np.frombuffer(body, dtype=np.float64)
            if len(numbers) != sum(lengths):
                raise ValueError
            return kind.load(texts, np.split(numbers.copy(), np.cumsum(lengths)[:-1]))
        except (ValueError, TypeError, IndexError):
            raise HistoryError(
                f"{self._db.folder}: what was learned from past runs is damaged; run "
                "`schedmate history rebuild`"
            ) from None


def dumped(part: Part) -> bytes:
    """A part as it is stored: a line of JSON, then its numbers."""
    texts, numbers = part.dump()
    head = json.dumps([texts, [len(one) for one in numbers]])
    return head.encode() + b"\n" + np.concatenate(numbers).tobytes()


def _text(key: Key) -> str:
    return json.dumps(key)
