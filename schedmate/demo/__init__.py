"""What `schedmate demo` leaves in a folder: a training repository, a history, logs and a trace.

All of it is made up: `history.jsonl` by `examples/make_history.py`, the logs and the trace by
`samples.py`. No cluster ran these jobs.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from schedmate.errors import InputError

SOURCES = Path(__file__).parent
README = """Made by `schedmate demo`: everything here is synthetic, no cluster ran these jobs.

train_repo/    source code of an image classifier, trained with Hydra configurations
history.jsonl  forty finished jobs, as `schedmate history import` reads them
history/       the job history that was made of them
running.log    log of a job that is running
failed.log     log of a job whose node was lost
failed/        logs of sixty jobs, listed in jobs.csv with durations, GPUs and nodes
trace.csv      240 jobs to simulate schedulers with

This folder may be deleted at any time.
"""


def prepare(directory: Path) -> None:
    """Write the files of the demonstration; a history that is there already is left alone.

    Raises `InputError` where `directory` holds something else, or cannot be written.
    """
    readme = directory / "README.txt"
    try:
        ours = readme.is_file() and readme.read_text(errors="replace") == README
        if not ours and directory.exists() and any(directory.iterdir()):
            raise InputError(
                f"{directory} holds other files, which the demonstration leaves alone; name "
                "another folder: schedmate demo FOLDER."
            )
        directory.mkdir(parents=True, exist_ok=True)
        readme.write_text(README)
        shutil.copytree(
            SOURCES / "train_repo",
            directory / "train_repo",
            dirs_exist_ok=True,
            ignore=shutil.ignore_patterns("__pycache__"),
        )
        shutil.copyfile(SOURCES / "history.jsonl", directory / "history.jsonl")
        from schedmate.demo.samples import write_logs, write_trace

        write_logs(directory)
        write_trace(directory / "trace.csv")
    except OSError as error:
        raise InputError(
            f"cannot write {error.filename or directory}: {error.strerror}; name another folder: "
            "schedmate demo FOLDER."
        ) from None
