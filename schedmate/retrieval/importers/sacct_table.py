"""`sacct --parsable2`: a header, then one line a job or job step, fields separated by `|`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import IO

from schedmate.errors import InputError
from schedmate.jobs import JobRecord, LaunchConfig
from schedmate.retrieval.importers.report import Analyse, ImportReport, reason
from schedmate.retrieval.importers.sacct_json import mean_util
from schedmate.retrieval.importers.values import (
    count_hosts,
    gpus_of,
    is_missing,
    parse_duration,
    parse_size,
    parse_state,
    parse_time,
    parse_tres,
)

ADVICE = (
    "sacct --parsable2 --format=JobID,JobName,User,State,Submit,Start,End,ElapsedRaw,"
    "TimelimitRaw,AllocTRES,ReqTRES,NNodes,TRESUsageInAve,TRESUsageInMax,WorkDir,SubmitLine"
)
"""The sacct call that gives the importer everything it can use."""

DELIMITER = "|"

Row = dict[str, str]


def import_sacct_parsable(
    stream: IO[str],
    report: ImportReport | None = None,
    analyse: Analyse | None = None,
) -> Iterator[JobRecord]:
    """Job records from `sacct --parsable2` (or `--parsable`), any columns in any order.

    Needs the header, `JobID` or `JobIDRaw`, and `State`. The steps of a job (`17.batch`, `17.0`)
    follow it; their GPU utilisation and memory are folded into the job. Times without a zone are
    in this machine's zone. Raises `InputError` when the header is missing or lacks those columns.
    """
    report = report or ImportReport()
    lines = enumerate(stream, start=1)
    header = _header(lines)
    for number, job, steps in _grouped(lines, header):
        report.rows += 1
        if job is None:
            report.reject(f"line {number}", f"not {len(header)} fields as in the header")
            continue
        try:
            record = record_of(job, steps)
        except ValueError as error:
            report.reject(f"line {number}", reason(error))
            continue
        yield analyse(record, job.get("workdir")) if analyse else record


def _grouped(
    lines: Iterator[tuple[int, str]], header: list[str]
) -> Iterator[tuple[int, Row | None, list[Row]]]:
    """Line number, job and steps; the job is None where the line does not fit the header."""
    job: tuple[int, Row | None] | None = None
    steps: list[Row] = []
    for number, line in lines:
        text = line.rstrip("\r\n")
        if not text.strip():
            continue
        row = _row(text, header)
        job_id = _id(row) if row else ""
        if "[" in job_id:
            continue  # what is still pending of a job array: not a job of its own yet
        if row and "." in job_id:
            parent = job[1] if job else None
            if parent and job_id.partition(".")[0] in (parent.get("jobid"), parent.get("jobidraw")):
                steps.append(row)
            continue
        if job:
            yield *job, steps
        job, steps = (number, row), []
    if job:
        yield *job, steps


def _header(lines: Iterator[tuple[int, str]]) -> list[str]:
    first = next((line for _, line in lines if line.strip()), "")
    header = [name.strip().lower() for name in first.strip().lstrip("\ufeff").split(DELIMITER)]
    if header and not header[-1]:
        header.pop()  # --parsable ends every line with the delimiter
    if not {"jobid", "jobidraw"} & set(header) or "state" not in header:
        raise InputError(
            "the first line is not a sacct header with JobID and State "
            f"(it begins {first.strip()[:60]!r}); export with `{ADVICE}`."
        )
    return header


def _row(text: str, header: list[str]) -> Row | None:
    cells = text.split(DELIMITER)
    if len(cells) == len(header) + 1 and not cells[-1]:
        cells.pop()
    extra = len(cells) - len(header)
    if extra > 0 and "submitline" in header:
        # `python train.py | tee log`: the delimiter inside the one column that holds a command.
        at = header.index("submitline")
        cells[at : at + extra + 1] = [DELIMITER.join(cells[at : at + extra + 1])]
    if len(cells) != len(header):
        return None
    return dict(zip(header, cells, strict=True))


def _id(row: Row) -> str:
    return (row.get("jobid") or row.get("jobidraw") or "").strip()


def record_of(row: Row, steps: list[Row]) -> JobRecord:
    """The record of one run: its row, and those of its steps, keys in lower case.

    Raises `ValueError` for what cannot be used.
    """
    if not _id(row):
        raise ValueError("no JobID")
    start = parse_time(row.get("start"))
    # Without a Start column, an elapsed time above zero is proof enough that the job ran.
    elapsed = parse_duration(row.get("elapsedraw")) or parse_duration(row.get("elapsed"))
    started = start is not None if "start" in row else bool(elapsed)
    gpus, gpu_type = _gpus(row)
    util, memory = _usage(steps)
    end = parse_time(row.get("end"))
    duration = (elapsed or 0.0) if started and _has_elapsed(row) else None
    if duration is None and start is not None and end is not None:
        duration = max(0.0, end - start)  # the export has no elapsed time
    return JobRecord(
        job_id=_id(row),
        name=_text(row, "jobname"),
        user=_text(row, "user"),
        command=_text(row, "submitline"),
        launch=LaunchConfig(
            gpus=gpus, nodes=_nodes(row), gpu_type=gpu_type, time_limit_s=_time_limit(row)
        ),
        state=parse_state(row["state"]),
        submit_time=parse_time(row.get("submit")),
        start_time=start,
        end_time=end,
        duration_s=duration,
        gpu_util=util,
        gpu_mem_mb=memory,
    )


def _has_elapsed(row: Row) -> bool:
    return not (is_missing(row.get("elapsedraw")) and is_missing(row.get("elapsed")))


def _text(row: Row, column: str) -> str | None:
    return " ".join(row.get(column, "").split()) or None


def _gpus(row: Row) -> tuple[int | None, str | None]:
    for column in ("alloctres", "reqtres"):
        found = gpus_of(parse_tres(row.get(column)))
        if found[0] is not None:
            return found
    return None, None


def _nodes(row: Row) -> int | None:
    for text in (
        row.get("nnodes"),
        row.get("allocnodes"),
        parse_tres(row.get("alloctres")).get("node"),
    ):
        if text and re.fullmatch(r"\s*\d{1,9}\s*", text) and int(text):
            return int(text)
    return count_hosts(row.get("nodelist"))


def _time_limit(row: Row) -> float | None:
    minutes = row.get("timelimitraw")
    if minutes is not None and not is_missing(minutes):
        return float(minutes) * 60
    return parse_duration(row.get("timelimit"))


def _usage(steps: list[Row]) -> tuple[float | None, float | None]:
    """Mean GPU utilisation [%] weighted by step length, and the peak GPU memory [MB]."""
    shares: list[tuple[float, float]] = []
    peaks: list[float] = []
    for step in steps:
        average = parse_tres(step.get("tresusageinave"))
        most = parse_tres(step.get("tresusageinmax"))
        length = parse_duration(step.get("elapsedraw")) or parse_duration(step.get("elapsed"))
        if "gres/gpuutil" in average:
            shares.append((float(average["gres/gpuutil"].rstrip("%")), max(length or 0.0, 1.0)))
        memory = parse_size(most.get("gres/gpumem") or average.get("gres/gpumem"))
        if memory is not None:
            peaks.append(memory / 2**20)
    return mean_util(shares), max(peaks, default=None)
