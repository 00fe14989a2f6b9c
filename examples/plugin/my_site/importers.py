"""A format of accounting data: `schedmate history import jobs.txt --format my-site`."""

from __future__ import annotations

from schedmate.jobs import JobRecord


def import_lines(stream, report, analyse):
    """Job records from lines such as `4711 resnet50 3600`: id, name and run time [s]."""
    for number, line in enumerate(stream, start=1):
        report.rows += 1
        try:
            job, name, seconds = line.split()
            record = JobRecord(job_id=job, name=name, state="COMPLETED", duration_s=float(seconds))
        except ValueError as error:
            report.reject(f"line {number}", str(error))
        else:  # `analyse(record, directory)` if the line said where the job was submitted
            yield analyse(record, None) if analyse else record
