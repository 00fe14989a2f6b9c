"""Runs that have been: as experiment trackers keep them (TensorBoard, W&B, MLflow, Lightning,
Keras, Trainer), or as the log of an ended job shows them.

`find_runs` says what of a path is a run, by content and not by name where the content tells;
`read_run` reads one to a `Run`: its curve, its length, its settings. `Run.progress` is what
`track` shows of it. Names of columns and settings are in `experiments.yaml`. TensorBoard's event
files are read by the library `tensorboard` (the extra of that name), W&B's `.wandb` files by
`wandb.py` (extra `wandb`), without which the summary and settings beside them are read.
"""

from __future__ import annotations

import csv
import math
import os
import re
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, suppress
from datetime import datetime
from functools import cache
from itertools import islice, pairwise
from pathlib import Path
from statistics import quantiles
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from schedmate.base.data import load
from schedmate.base.errors import InputError, require
from schedmate.base.inputs import format_duration, moment_of
from schedmate.base.reading import open_text, parse_document, parse_json, read_text
from schedmate.jobs import JobState, Progress
from schedmate.logparse.reading import Log, LogFile
from schedmate.logparse.reading.lines import seconds_apart
from schedmate.logparse.reading.storage import Memory
from schedmate.logparse.wandb import has_protobuf, item_values, read_records, wandb_file

MOST_POINTS = 200_000
"""Points of a curve that are kept; more are thinned while they are read, every second one."""
CURVE_LINES = 2_000
"""Lines of a log, from its end, of which a curve is made."""
MOST_RUNS = 10_000
"""Runs of a folder that are found."""
MOST_FILES = 200_000
"""Files and folders that are looked at for runs."""
DEEPEST = 8
"""Levels of folders that are looked through for runs."""

Format = Literal["tensorboard", "wandb", "mlflow", "trainer_state", "csv", "jsonl", "log"]


class Point(BaseModel):
    """What a tracker kept of one moment."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=True)

    step: float | None = None
    epoch: float | None = None
    time: float | None = Field(None, description="[s since epoch]")
    elapsed_s: float | None = Field(None, description="Since the start of the run [s]")
    loss: float | None = None
    step_time_s: float | None = Field(None, description="Of a step, as stated [s]")


class Run(BaseModel):
    """One run of an experiment tracker. What the tracker does not say is None."""

    model_config = ConfigDict(extra="forbid", allow_inf_nan=True)

    format: Format
    name: str
    path: str
    points: list[Point] = Field(default_factory=list)
    total_steps: float | None = None
    total_epochs: float | None = None
    steps_done: float | None = Field(None, description="By its end, where it is complete")
    start_time: float | None = Field(None, description="[s since epoch]")
    end_time: float | None = Field(None, description="[s since epoch]")
    stated_duration_s: float | None = Field(None, description="As the tracker states it [s]")
    state: JobState | None = None
    notes: list[str] = Field(default_factory=list, description="What is open to doubt, and why")
    settings: dict[str, str | int | float | bool] = Field(default_factory=dict)
    gpus: int | None = None
    gpu_type: str | None = None
    command: str | None = None
    user: str | None = None

    def duration_s(self) -> tuple[float, str] | None:
        """The run time [s] and how it is known, None where nothing states it."""
        if self.stated_duration_s:
            return self.stated_duration_s, "as the run states it"
        if self.start_time is not None and self.end_time is not None:
            if self.end_time > self.start_time:
                return self.end_time - self.start_time, "from its start to its end"
        if elapsed := [p.elapsed_s for p in self.points if p.elapsed_s]:
            return max(elapsed), "by the elapsed time of its last entry"
        times = [p.time for p in self.points if p.time is not None]
        if times and max(times) > min(times):
            return max(times) - min(times), "from its first entry to its last"
        return None

    def conclude(self) -> None:
        """Settle run time and outcome by the curve, with a note on what that rests on."""
        duration = self.duration_s()
        if duration is not None:
            self.stated_duration_s = duration[0]
            self.notes.append(f"run time {duration[1]}")
        if self.state is None:
            done = max((p.step for p in self.points if p.step is not None), default=None)
            if done and self.total_steps and done < THROUGH * self.total_steps:
                self.state = "CANCELLED"
                self.notes.append("it ends before its last step: its run time is a lower bound")
            else:
                self.state = "COMPLETED"
                self.steps_done = done
                self.notes.append(_END_UNKNOWN)

    def setting(self, field: str) -> str | int | float | bool | None:
        """A setting by its field of the metadata, such as `training_config.lr`; a number where
        its text is one."""
        value: str | int | float | bool | None = _first(self.settings, _names()["settings"][field])
        if isinstance(value, str):
            for kind in (int, float):
                with suppress(ValueError):
                    return kind(value)
        return value

    def progress(self) -> Progress:
        """The progress of the run by its curve; abstains where no entry has a time."""
        rows = [p for p in self.points if p.step is not None]
        progress = Progress(reason="the run keeps no time of its steps", reader=self.format)
        last = self.points[-1] if self.points else None
        if rows:
            progress.iteration = int(rows[-1].step or 0)
        if self.total_steps is not None and self.total_steps >= (progress.iteration or 0):
            progress.total_iterations = int(self.total_steps)
        if last is not None:
            epochs = [p.epoch for p in self.points if p.epoch is not None]
            progress.epoch = epochs[-1] if epochs else None
            progress.updated = last.time
        if self.total_epochs is not None:
            progress.total_epochs = int(self.total_epochs)
        losses = [p.loss for p in self.points if p.loss is not None]
        if losses and math.isfinite(losses[-1]):
            progress.loss = losses[-1]
        elif losses:
            progress.loss_state = "nan" if math.isnan(losses[-1]) else "inf"
        self._time_steps(progress, rows)
        if self.state in ("COMPLETED", "FAILED", "CANCELLED") or (
            progress.iteration and progress.iteration == progress.total_iterations
        ):
            progress.ended = "finished" if self.state in (None, "COMPLETED") else "stopped"
            progress.eta_s = 0.0 if progress.step_time_s else None
        return progress

    def _time_steps(self, progress: Progress, rows: list[Point]) -> None:
        for name in ("time", "elapsed_s"):
            timed: list[tuple[float, float]] = [
                (at, p.step)
                for p in rows
                if p.step is not None and (at := getattr(p, name)) is not None
            ]
            gaps = [
                (after - before) / (there - here)
                for (before, here), (after, there) in pairwise(timed)
                if there > here and after > before
            ]
            if gaps:
                low, *_, high = quantiles(gaps, n=10) if len(gaps) > 1 else (gaps[0], gaps[0])
                progress.step_time_s = sorted(gaps)[len(gaps) // 2]
                progress.step_time_p10_s, progress.step_time_p90_s = low, high
                progress.readings = len(gaps)
                progress.source = "timestamps" if name == "time" else "elapsed"
                progress.steps_seen = int(timed[-1][1] - timed[0][1]) + 1
                break
        else:
            taken = self.duration_s()
            if taken is None or not progress.iteration:
                return
            progress.step_time_s = taken[0] / progress.iteration
            progress.readings, progress.source = 1, "summary"
        progress.reason = None
        progress.throughput = 1 / progress.step_time_s
        progress.throughput_unit = "iterations/s"
        if progress.total_iterations is not None and progress.iteration is not None:
            progress.eta_s = (progress.total_iterations - progress.iteration) * progress.step_time_s


def kind_of(path: Path) -> Format | None:
    """The format of a run at this path, None where it is none of them."""
    if path.is_dir():
        return _kind_of_folder(path)
    name = path.name
    if name.endswith(".wandb"):
        return "wandb"
    if ".tfevents." in name or name.startswith("events.out.tfevents"):
        return "tensorboard"
    if name == "wandb-summary.json":
        return "wandb"
    if name.endswith((".json", ".jsonl", ".ndjson", ".csv", ".tsv")) and path.is_file():
        with open_text(path, errors="replace", longest_line=None) as stream:
            head = stream.read(1 << 16)
        if name.endswith(".json"):
            return "trainer_state" if '"log_history"' in head else None
        if name.endswith((".csv", ".tsv")):
            columns = [_plain(one) for one in re.split("[,;\t]", head.partition("\n")[0])]
            is_curve = any(_is("step", one) or _is("epoch", one) for one in columns)
            return "csv" if is_curve and any("loss" in one for one in columns) else None
        first = head.partition("\n")[0]
        return "jsonl" if first.startswith("{") and _is_curve_line(first, path) else None
    return None


def _is_curve_line(text: str, path: Path) -> bool:
    try:
        row = parse_json(text, path)
    except InputError:
        return False
    return isinstance(row, dict) and any(_is("step", _plain(one)) for one in row)


def _kind_of_folder(path: Path) -> Format | None:
    if wandb_file(path) or _wandb_summary(path):
        return "wandb"
    if (path / "meta.yaml").is_file() and (
        (path / "metrics").is_dir() or (path / "params").is_dir()
    ):
        return "mlflow"
    if _trainer_state(path) is not None:
        return "trainer_state"
    if any(path.glob("*tfevents*")):
        return "tensorboard"
    if (path / "metrics.csv").is_file():
        return "csv"
    return None


def find_runs(path: Path) -> list[Path]:
    """The runs at a path: itself, or those of a folder of runs, in order of their names.

    Links are not followed. Raises `InputError` for a folder with more than `MOST_RUNS`.
    """
    found: list[Path] = []
    seen = 0
    waiting = [(path, 0)]
    while waiting:
        folder, depth = waiting.pop()
        if kind_of(folder) is not None or _is_mlflow_database(folder):
            found.append(folder)
            if len(found) > MOST_RUNS:
                raise InputError(f"{path} has more than {MOST_RUNS:,} runs; name a part of it.")
            continue
        if depth > DEEPEST or not folder.is_dir():
            continue
        for entry in sorted(os.scandir(folder), key=lambda one: one.name, reverse=True):
            seen += 1
            if seen > MOST_FILES:
                raise InputError(f"{path} has more than {MOST_FILES:,} files; name a part of it.")
            if entry.is_symlink() or entry.name.startswith("."):
                continue
            if entry.is_dir() or entry.name == "trainer_state.json" or entry.name == "mlflow.db":
                waiting.append((Path(entry.path), depth + 1))
    return sorted(found)


def read_runs(path: Path) -> list[Run]:
    """Every run at a path: of a tracker, or else the logs of ended jobs.

    Raises `InputError` where there is none.
    """
    found = find_runs(path)
    if not found and path.is_dir():
        found = [one for one in sorted(path.iterdir()) if one.suffix in LOGS and one.is_file()]
        if not found:
            raise InputError(
                f"{path} has no run of TensorBoard, W&B, MLflow, Lightning, Keras or Trainer, and "
                f"no log ({', '.join(LOGS)}); {_unread(path)}."
            )
    runs: list[Run] = []
    for one in found or [path]:
        if _is_mlflow_database(one):
            runs += _read_mlflow_database(one)
        elif (kind := kind_of(one)) is not None:
            runs.append(_READERS[kind](one))
        else:
            runs.append(read_log(one))
    return runs


def _unread(path: Path) -> str:
    """What to name instead of a folder without a run that can be read."""
    if path.name == ".aim" or (path / ".aim").is_dir():
        return "Aim's store is not read; export the metrics as CSV with the columns step and loss"
    return "name the file or folder of a run"


def curve_progress(path: Path) -> Progress | None:
    """The progress of a run that is no text of lines: event files, or a tracker's folder.

    None for what is read as a log, as is the output that a tracker stored.
    """
    run = _curve(path)
    return None if run is None else run.progress()


def is_curve(path: Path) -> bool:
    """Whether a path is the curve of one run that trains, with no log of it beside that."""
    if not path.is_dir():
        return path.is_file() and kind_of(path) in ("tensorboard", "csv", "wandb")
    if any(one.suffix in LOGS for one in path.iterdir()) or _has_output(path):
        return False
    return kind_of(path) in ("tensorboard", "csv", "mlflow", "wandb")


def _has_output(path: Path) -> bool:
    """Whether W&B stored the output of the run in this folder, which then says more."""
    return (path / "files" / "output.log").is_file()


def curve_log(path: Path) -> Log | None:
    """The curve of such a run as the lines of a log, for what follows a job by its log."""
    run = _curve(path)
    if run is None:
        return None
    total = "" if run.total_steps is None else f"/{int(run.total_steps)}"
    lines = [
        f"{moment_of(point.time):%Y-%m-%dT%H:%M:%S.%fZ} step {int(point.step)}{total}"
        + ("" if point.loss is None else f" loss {point.loss:.6g}")
        for point in run.points
        if point.time is not None and point.step is not None
    ]
    text = "".join(f"{line}\n" for line in lines)
    return Log(str(path), [LogFile(path.name, Memory(text.encode()))])


def _curve(path: Path) -> Run | None:
    kind = kind_of(path)
    binary = kind == "tensorboard" or path.suffix == ".wandb"
    if kind is None or not (binary or path.is_dir()) or _has_output(path):
        return None
    return _READERS[kind](path)


def read_curve(path: Path, *, follow_links: bool = False) -> list[Point]:
    """What a tracker, or the latest lines of a log, say of the course of a run, oldest first.

    Within epochs, a line that counts its epoch's iterations is placed by that share of the epoch.
    """
    from schedmate.logparse.progress.series import one_stream
    from schedmate.logparse.progress.tracker import track_log, track_series
    from schedmate.logparse.reading import open_log

    if (run := _curve(path)) is not None:
        return run.points
    with open_log(path, follow_links=follow_links) as log:
        _, file = track_log(log)
        _, used = track_series(file, enough=CURVE_LINES)
    points = []
    for sample in reversed(one_stream(used)):
        step, epoch = sample.iteration, sample.epoch
        if sample.in_epoch:
            if step is not None and epoch is not None and sample.total:
                epoch = math.floor(epoch) + step / sample.total
            step = None
        points.append(
            Point(
                step=step,
                epoch=epoch,
                time=sample.time,
                elapsed_s=sample.elapsed_s,
                loss=sample.loss,
                step_time_s=sample.step_time_s,
            )
        )
    return points


# The log of a job that has ended.

LOGS = (".out", ".log", ".txt")
"""Endings of files that are logs in a folder without runs of a tracker."""
EDGE = 2_000
"""Lines at either end of a log in which its first and last time are looked for."""
THROUGH = 0.98
"""A log that ends before this share of what it counts to is not that of a completed run."""


_END_UNKNOWN = "how it ended is not stated: taken as completed; if it was not, say state=CANCELLED"


def read_log(path: Path) -> Run:
    """What the log of an ended job says of its run: its time, its length, how it ended.

    The run time is what the log states, else from its first time to its last, else iterations
    times step time. Raises `LogError` for what is no log.
    """
    from schedmate.logparse.failure import diagnose
    from schedmate.logparse.progress.tracker import track_log
    from schedmate.logparse.reading import open_log

    run = Run(format="log", name=path.name.partition(".")[0] or path.name, path=str(path))
    with open_log(path) as log:
        progress, file = track_log(log)
        count = file.line_count()
        begin = next((t for line in file.lines(1, EDGE) if (t := line.time) is not None), None)
        end = [t for line in file.lines(max(1, count - EDGE)) if (t := line.time) is not None]
        verdict = diagnose(log)
    if progress.source == "summary" and progress.step_time_s and progress.iteration:
        run.stated_duration_s = progress.step_time_s * progress.iteration
    elif begin is not None and end and (apart := seconds_apart(end[-1], begin) or 0.0) > 0:
        run.stated_duration_s = apart
        run.notes.append("the run time is from the first to the last time in the log")
    elif progress.step_time_s and progress.iteration and not progress.in_epoch:
        run.stated_duration_s = progress.step_time_s * progress.iteration
        run.notes.append("the run time is that of its iterations alone: the log has no times")
    run.end_time = progress.updated
    if not progress.in_epoch:
        run.total_steps = progress.total_iterations
    run.total_epochs = progress.total_epochs
    done, total = progress.iteration, progress.total_iterations
    if verdict.error_type not in ("none", "unknown"):
        run.state = "FAILED"
        run.notes.append(f"the job failed ({verdict.error_name}), so its run time is a lower bound")
    elif progress.ended == "stopped" or (done and total and done < THROUGH * total):
        run.state = "CANCELLED"
        run.notes.append("the log ends before the training did: its run time is a lower bound")
    else:
        run.state = "COMPLETED"
        run.steps_done = None if progress.in_epoch else done
        if progress.ended is None and not verdict.finished:
            run.notes.append(_END_UNKNOWN)
    if run.state != "COMPLETED":
        _note_pace(run, progress)
    return run


def _note_pace(run: Run, progress: Progress) -> None:
    """How long a run that ended early would have taken, and how to estimate from that."""
    if progress.in_epoch or not (progress.iteration and progress.total_iterations):
        done, total, what = progress.epoch, progress.total_epochs, "epochs"
    else:
        done, total, what = progress.iteration, progress.total_iterations, "iterations"
    if run.stated_duration_s and done and total and done < total:
        whole_s = run.stated_duration_s * total / done
        run.notes.append(
            f"{done:,.0f} of {total:,} {what}: at this pace all would take "
            f"{format_duration(whole_s)}; to estimate from that, add it again with "
            f"duration={whole_s:.0f} state=COMPLETED"
        )


# Names.


@cache
def _names() -> dict[str, Any]:
    names: dict[str, Any] = load("logparse/experiments.yaml")
    return names


def _plain(name: str) -> str:
    return name.strip().strip('"').lower()


def _is(kind: str, name: str) -> bool:
    names = _names()[kind]
    return name in names or name.rpartition("/")[2] in names


def _first(values: Mapping[str, Any], names: Iterable[str]) -> Any:
    last: dict[str, str] = {
        key.lower().rpartition("/")[2].rpartition(".")[2]: key for key in reversed(list(values))
    }
    return next((values[last[name]] for name in names if name in last), None)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or value is None:
        return None
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return None


def _moment(value: Any) -> float | None:
    """A time [s since epoch] from a number or ISO text; milliseconds are told by their size."""
    number = _number(value)
    if number is None and isinstance(value, str):
        try:
            return datetime.fromisoformat(value).timestamp()
        except (ValueError, OverflowError):
            return None
    if number is not None and number > 1e11:
        number /= 1000
    return number if number is None or number > 1e8 else None


def _point(row: Mapping[str, Any]) -> Point:
    point: dict[str, float | None] = {}
    for name, value in row.items():
        plain = _plain(str(name))
        for kind in ("step", "epoch", "loss"):
            if not _is(kind, plain) or (number := _number(value)) is None:
                continue
            if kind not in point or plain in _names()[kind]:  # `train/loss` before `eval/loss`
                point[kind] = number
        if _is("time", plain) and (at := _moment(value)) is not None:
            point.setdefault("time", at)
        if _is("elapsed", plain) and (number := _number(value)) is not None:
            point.setdefault("elapsed_s", number)
    return Point.model_validate(point)


def _read_points(
    rows: Iterable[Mapping[str, Any]],
) -> tuple[list[Point], dict[str, str | int | float | bool]]:
    """The points of the entries, and the lengths that they state (`max_steps`)."""
    names = {name for kind in _names()["totals"].values() for name in kind}
    totals: dict[str, str | int | float | bool] = {}

    def points() -> Iterator[Point]:
        for row in rows:
            for name in names & row.keys():
                if (number := _number(row[name])) is not None:
                    totals[name] = number
            yield _point(row)

    return _thinned(points()), totals


def _thinned(points: Iterable[Point]) -> list[Point]:
    """At most `MOST_POINTS` points, evenly, with the last one."""
    kept: list[Point] = []
    every, last = 1, None
    for number, point in enumerate(points):
        last = point
        if number % every == 0:
            kept.append(point)
            if len(kept) >= MOST_POINTS:
                kept, every = kept[::2], every * 2
    if last is not None and kept[-1] is not last:
        kept.append(last)
    return kept


def _settle(run: Run) -> Run:
    """Fill what the settings and the curve say of the run's length and GPUs."""
    totals = _names()["totals"]
    for kind in ("step", "epoch"):
        stated = _number(_first(run.settings, totals[kind]))
        if stated is not None and stated > 0 and getattr(run, f"total_{kind}s") is None:
            setattr(run, f"total_{kind}s", stated)
    gpus = _number(_first(run.settings, _names()["gpus"]))
    if run.gpus is None and gpus is not None and 0 < gpus < 1e6:
        run.gpus = int(gpus)
    return run


def _scalars(values: Any, prefix: str = "") -> dict[str, str | int | float | bool]:
    """The plain values of nested settings, by dotted names."""
    found: dict[str, str | int | float | bool] = {}
    if isinstance(values, Mapping):
        for key, value in values.items():
            found.update(_scalars(value, f"{prefix}.{key}" if prefix else str(key)))
    elif isinstance(values, str | int | float | bool) and len(str(values)) < 1000:
        found[prefix] = values
    return found


# One reader for each format.


def _trainer_state(path: Path) -> Path | None:
    """The latest `trainer_state.json` of a folder of Hugging Face's Trainer."""
    own = path / "trainer_state.json"
    if own.is_file():
        return own

    def step(folder: Path) -> int:
        digits = folder.name.rpartition("-")[2]
        return int(digits) if digits.isdigit() else -1

    states = [one / own.name for one in path.glob("checkpoint-*") if (one / own.name).is_file()]
    return max(states, key=lambda one: step(one.parent), default=None)


def _read_trainer_state(path: Path) -> Run:
    file = _trainer_state(path) if path.is_dir() else path
    assert file is not None
    document = parse_json(read_text(file, errors="replace", most=256 << 20), file)
    history = document.get("log_history") if isinstance(document, dict) else None
    if not isinstance(history, list):
        raise InputError(f"{file} has no `log_history`; name a trainer_state.json of Trainer.")
    rows = [row for row in history if isinstance(row, dict)]
    folder = file.parent if not file.parent.name.startswith("checkpoint-") else file.parent.parent
    run = Run(
        format="trainer_state",
        name=folder.absolute().name,
        path=str(file),
        points=_thinned(_point(row) for row in rows if "train_runtime" not in row),
        total_steps=_number(document.get("max_steps")) or None,
        total_epochs=_number(document.get("num_train_epochs")),
    )
    for row in rows:
        run.stated_duration_s = _number(row.get("train_runtime")) or run.stated_duration_s
    if (size := _number(document.get("train_batch_size"))) is not None:
        run.settings["per_device_train_batch_size"] = int(size)
    if run.stated_duration_s is not None:
        run.state = "COMPLETED"
    return run


def wandb_output(path: Path) -> Run | None:
    """What W&B keeps beside the output of a run, `run-*/files/output.log`; None for other files."""
    files = path.parent
    if path.name != "output.log" or _WANDB_RUN.match(files.parent.name) is None:
        return None
    run = Run(format="wandb", name=_WANDB_RUN.sub("", files.parent.name), path=str(files.parent))
    about = files / "wandb-metadata.json"
    with suppress(InputError):
        if about.is_file():
            _read_wandb_metadata(run, parse_json(read_text(about, errors="replace"), about))
    return run


_WANDB_RUN = re.compile(r"^(?:offline-)?run-\d+_\d+-")


def _wandb_summary(folder: Path) -> Path | None:
    """The folder of the text files beside a run of W&B, None where it has no summary."""
    for files in (folder / "files", folder):
        if (files / "wandb-summary.json").is_file():
            return files
    return None


def _read_wandb(path: Path) -> Run:
    folder = path if path.is_dir() else path.parent
    file = wandb_file(folder) if path.suffix != ".wandb" else path
    files = _wandb_summary(folder)
    if file is not None and (files is None or has_protobuf()):
        return _read_wandb_file(file)
    assert files is not None
    top = files.parent if files.name == "files" else files
    summary = parse_json(read_text(files / "wandb-summary.json"), files / "wandb-summary.json")
    summary = summary if isinstance(summary, dict) else {}
    own = summary.get("_wandb")
    run = Run(
        format="wandb",
        name=_WANDB_RUN.sub("", top.absolute().name),
        path=str(top),
        points=[_point(summary)],
        end_time=_moment(summary.get("_timestamp")),
        stated_duration_s=_number(summary.get("_runtime"))
        or _number(own.get("runtime") if isinstance(own, dict) else None),
    )
    if (config := files / "config.yaml").is_file():
        settings = parse_document(read_text(config, errors="replace"), config)
        if isinstance(settings, dict):
            run.settings = _scalars(
                {
                    key: value.get("value") if isinstance(value, dict) else value
                    for key, value in settings.items()
                    if key not in ("_wandb", "wandb_version")
                }
            )
    if (about := files / "wandb-metadata.json").is_file():
        _read_wandb_metadata(run, parse_json(read_text(about, errors="replace"), about))
    return _settle(run)


def _read_wandb_file(path: Path) -> Run:
    """The whole of a run from its binary file: curve, settings, machine, and how it ended."""
    run = Run(format="wandb", name=path.stem.removeprefix("run-"), path=str(path))
    settings: dict[str, Any] = {}
    summary: dict[str, Any] = {}

    def points() -> Iterator[Point]:
        for record in records:
            if record.HasField("history"):
                values = item_values(record.history.item, path)
                yield _point({"_step": record.history.step.num, **values})
            elif record.HasField("summary"):
                summary.update(item_values(record.summary.update, path))
            elif record.HasField("environment"):
                about = record.environment
                stated = {
                    "gpu_count": about.gpu_count,
                    "gpu": about.gpu_type,
                    "username": about.username,
                    "program": about.code_path or about.program,
                    "args": list(about.args),
                }
                if about.program:
                    _read_wandb_metadata(run, {k: v for k, v in stated.items() if v or k == "args"})
            elif record.HasField("run") or record.HasField("config"):
                update = record.run.config if record.HasField("run") else record.config
                settings.update(item_values(update.update, path))
                if record.run.HasField("start_time"):
                    run.start_time = record.run.start_time.ToNanoseconds() / 1e9
            elif record.HasField("exit"):
                run.state = _WANDB_ENDS.get(record.exit.exit_code, "FAILED")
                run.stated_duration_s = float(record.exit.runtime) or None

    records = read_records(path)
    if (text := path.parent / "files" / "wandb-metadata.json").is_file():
        _read_wandb_metadata(run, parse_json(read_text(text, errors="replace"), text))
    run.points = _thinned(points())
    run.settings = _scalars({k: v for k, v in settings.items() if k != "_wandb"})
    run.stated_duration_s = _number(summary.get("_runtime")) or run.stated_duration_s
    if run.points and run.stated_duration_s is None:
        run.end_time = run.points[-1].time
    return _settle(run)


_WANDB_ENDS: dict[int, JobState] = {0: "COMPLETED", 255: "CANCELLED"}
"""By the exit code that W&B keeps; 255 stands for Ctrl-C (`wandb/sdk/lib/exit_hooks.py`)."""


def _read_wandb_metadata(run: Run, about: Any) -> None:
    if not isinstance(about, dict):
        return
    run.start_time = _moment(about.get("startedAt")) or run.start_time
    gpus = _number(about.get("gpu_count"))
    run.gpus = int(gpus) if gpus is not None and 0 <= gpus < 1e6 else None
    run.gpu_type = about["gpu"] if isinstance(about.get("gpu"), str) else None
    run.user = about["username"] if isinstance(about.get("username"), str) else None
    program, arguments = about.get("codePath") or about.get("program"), about.get("args")
    if isinstance(program, str) and isinstance(arguments, list):
        from shlex import join

        run.command = join(["python", program, *(str(one) for one in arguments)])


def _read_mlflow(path: Path) -> Run:
    about = parse_document(read_text(path / "meta.yaml", errors="replace"), path / "meta.yaml")
    if not isinstance(about, dict):
        raise InputError(f"{path / 'meta.yaml'} does not describe a run of MLflow.")
    run = Run(
        format="mlflow",
        name=str(about.get("run_id") or about.get("run_uuid") or path.absolute().name),
        path=str(path),
        start_time=_moment(about.get("start_time")),
        end_time=_moment(about.get("end_time")),
        state=_names()["mlflow"].get(str(about.get("status"))),
        user=str(about["user_id"]) if about.get("user_id") else None,
    )
    for folder in ("params", "tags"):
        for file in islice(_files_below(path / folder), 1000):
            if file.stat().st_size <= 1000:
                name = file.relative_to(path / folder).as_posix()
                run.settings[name] = read_text(file, errors="replace").strip()
    curves: dict[float, dict[str, Any]] = {}
    for file in islice(_files_below(path / "metrics"), 1000):
        name = _plain(file.relative_to(path / "metrics").as_posix())
        if not any(_is(kind, name) for kind in ("loss", "epoch")):
            continue
        with open_text(file, errors="replace") as stream:
            for line in islice(stream, MOST_POINTS):
                words = line.split()
                if len(words) >= 3 and (step := _number(words[2])) is not None:
                    row = curves.setdefault(step, {"step": step, "timestamp": words[0]})
                    row.setdefault(name, words[1])
    run.points = _thinned(_point(curves[step]) for step in sorted(curves))
    return _settle(run)


def _files_below(folder: Path) -> Iterator[Path]:
    return (one for one in sorted(folder.rglob("*")) if one.is_file() and not one.is_symlink())


def _is_mlflow_database(path: Path) -> bool:
    return path.suffix == ".db" and path.name.startswith("mlflow") and path.is_file()


def _read_mlflow_database(path: Path) -> list[Run]:
    """The runs of an MLflow SQLite store, read without writing to it."""
    address = f"file:{os.fspath(path.absolute()).replace('?', '%3f').replace('#', '%23')}"
    try:
        with closing(sqlite3.connect(f"{address}?mode=ro&immutable=1", uri=True)) as database:
            rows = database.execute(
                "SELECT run_uuid, status, start_time, end_time, user_id FROM runs "
                "WHERE lifecycle_stage = 'active' ORDER BY start_time LIMIT ?",
                (MOST_RUNS,),
            ).fetchall()
            return [_mlflow_row(database, path, row) for row in rows]
    except sqlite3.Error as error:
        raise InputError(
            f"{path} is no database of MLflow that can be read ({error}); name a copy of it, or "
            "a folder mlruns."
        ) from None


def _mlflow_row(database: sqlite3.Connection, path: Path, row: tuple[Any, ...]) -> Run:
    name, status, start, end, user = row
    settings = database.execute("SELECT key, value FROM params WHERE run_uuid = ?", (name,))
    run = Run(
        format="mlflow",
        name=str(name),
        path=str(path),
        start_time=_moment(start),
        end_time=_moment(end),
        state=_names()["mlflow"].get(str(status)),
        user=user or None,
        settings={str(key): str(value)[:1000] for key, value in islice(settings, 1000)},
    )
    curves: dict[float, dict[str, Any]] = {}
    metrics = database.execute(
        "SELECT key, value, step, timestamp FROM metrics WHERE run_uuid = ? ORDER BY step LIMIT ?",
        (name, MOST_POINTS),
    )
    for key, value, step, time in metrics:
        if any(_is(kind, _plain(str(key))) for kind in ("loss", "epoch")):
            found = curves.setdefault(step, {"step": step, "timestamp": time})
            found.setdefault(str(key), value)
    run.points = _thinned(_point(curves[step]) for step in sorted(curves))
    return _settle(run)


def _read_csv(path: Path) -> Run:
    file = path / "metrics.csv" if path.is_dir() else path
    with open_text(file, errors="replace") as stream:
        first = stream.readline()
        header = next(csv.reader([first], delimiter=max(",;\t", key=first.count)), [])
        rows = csv.DictReader(stream, header, delimiter=max(",;\t", key=first.count))
        try:
            points, totals = _read_points({k: v for k, v in row.items() if k and v} for row in rows)
        except csv.Error as error:
            raise InputError(f"{file} is not CSV: {error}; name another file.") from None
    run = Run(format="csv", name=_run_name(file), path=str(file), points=points, settings=totals)
    if (settings := file.parent / "hparams.yaml").is_file() and file.name == "metrics.csv":
        run.settings |= _scalars(parse_document(read_text(settings, errors="replace"), settings))
    return _settle(run)


def _run_name(file: Path) -> str:
    """`name/version_3` of Lightning's logs, else the folder's name or the file's."""
    folder = file.absolute().parent
    if file.name != "metrics.csv":
        return file.stem
    return f"{folder.parent.name}/{folder.name}" if "version_" in folder.name else folder.name


def _read_jsonl(path: Path) -> Run:
    def rows(stream: Iterable[str]) -> Iterator[dict[str, Any]]:
        for number, line in enumerate(stream, start=1):
            if line.lstrip().startswith("{"):
                try:
                    row = parse_json(line, f"{path}:{number}")
                except InputError:
                    continue  # the last line of a run that is being written
                if isinstance(row, dict):
                    yield row

    with open_text(path, errors="replace") as stream:
        points, totals = _read_points(rows(stream))
    run = Run(format="jsonl", name=path.stem, path=str(path), points=points, settings=totals)
    return _settle(run)


def _read_tensorboard(path: Path) -> Run:
    require(f"reading {path}", "tensorboard", "tensorboard")
    from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
    from tensorboard.util import tensor_util

    files = sorted(path.glob("*tfevents*")) if path.is_dir() else [path]

    def points() -> Iterator[Point]:
        row: dict[str, Any] = {}
        for file in files:
            for event in EventFileLoader(str(file)).Load():
                for value in event.summary.value:
                    name = _plain(value.tag)
                    if not any(_is(kind, name) for kind in ("loss", "epoch")):
                        continue
                    if value.tensor.ByteSize() > 1000:
                        continue
                    number = tensor_util.make_ndarray(value.tensor)
                    if number.size != 1:
                        continue
                    if row and row["step"] != event.step:
                        yield _point(row)
                        row = {}
                    row.setdefault("step", event.step)
                    row.setdefault("timestamp", event.wall_time)
                    row.setdefault(name, number.item())
        if row:
            yield _point(row)

    first = next((event.wall_time for event in EventFileLoader(str(files[0])).Load()), None)
    try:
        found = _thinned(points())
    except Exception as error:  # noqa: BLE001 - whatever the library raises for a damaged file
        raise InputError(f"{path}: {type(error).__name__}: {error}; name another run.") from None
    folder = (path if path.is_dir() else path.parent).absolute()
    version = "version_" in folder.name
    run = Run(
        format="tensorboard",
        name=f"{folder.parent.name}/{folder.name}" if version else folder.name,
        path=str(path),
        points=found,
        start_time=first,
        end_time=found[-1].time if found else None,
    )
    if (settings := folder / "hparams.yaml").is_file():
        run.settings = _scalars(parse_document(read_text(settings, errors="replace"), settings))
    return _settle(run)


_READERS: dict[str, Callable[[Path], Run]] = {
    "trainer_state": _read_trainer_state,
    "wandb": _read_wandb,
    "mlflow": _read_mlflow,
    "csv": _read_csv,
    "jsonl": _read_jsonl,
    "tensorboard": _read_tensorboard,
}
