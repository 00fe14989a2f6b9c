"""Records of the history as text for a person."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from schedmate.durations import format_duration
from schedmate.jobs import JobRecord
from schedmate.terminal import clean, counted
from schedmate.terminal.screen import Screen, Table

if TYPE_CHECKING:
    from schedmate.retrieval.history import HistoryStats


def show_jobs(records: list[JobRecord], screen: Screen) -> None:
    """Print a table with a row for each job."""
    table = Table("job", "state", "ran", "GPUs", "model", "dataset", "name", "user")
    for record in records:
        cells = (
            record.job_id,
            record.state,
            None if record.duration_s is None else format_duration(record.duration_s),
            record.launch.gpus,
            record.metadata.model.model_name,
            record.metadata.dataset.train,
            record.name,
            record.user,
        )
        table.add(*("" if cell is None else cell for cell in cells))
    screen.table(table)


def show_job(record: JobRecord, screen: Screen) -> None:
    """Print all that is stored of one job, a line for each field."""
    document = record.model_dump(mode="json", by_alias=True)
    document["fingerprint"] = record.metadata.fingerprint()
    document["metadata"].pop("evidence", None)
    for name, value in _flat(document):
        if value is not None:
            screen.line(value, label=f"{clean(name)} = ")


def show_stats(stats: HistoryStats, screen: Screen) -> None:
    """Print what a history holds, and how far estimates can use it."""
    states = ", ".join(f"{count:,} {state}" for state, count in stats["states"].items())
    screen.line(counted(stats["jobs"], "job") + f": {states}" * bool(states))
    if not stats["jobs"]:
        screen.line("to add past jobs: schedmate history import FILE")
        return
    if stats["workloads"]:
        screen.line(counted(stats["workloads"], "different workload"))
    else:
        screen.line(
            "no job says what it trained, so none is similar to a new one: import with --analyze, "
            "which reads their code, or with columns such as model and dataset (--map)",
            "doubtful",
        )
    first, last = stats["first_submit_time"], stats["last_submit_time"]
    if first is not None and last is not None:
        screen.line(f"submitted from {_utc(first)} to {_utc(last)}")
    manifest = stats["manifest"]
    screen.line(f"embedded by {manifest['embedder']}, {manifest['dim']} dimensions")


def _utc(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _flat(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
