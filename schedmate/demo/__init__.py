"""What `schedmate demo` leaves in a folder: a training repository, a history, logs and a trace.

All of it is SYNTHETIC, no cluster ran these jobs: `history.jsonl` was made by
`examples/make_history.py`, the logs and the trace are drawn here.
"""

from __future__ import annotations

import random
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

from schedmate.base.errors import InputError
from schedmate.base.reading import read_text

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


USERS = ("ada", "grace", "alan", "edsger")


def prepare(directory: Path) -> None:
    """Write the files of the demonstration; a history that is there already is left alone.

    Raises `InputError` where `directory` holds something else, or cannot be written.
    """
    readme = directory / "README.txt"
    try:
        ours = readme.is_file() and read_text(readme, errors="replace") == README
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

        write_logs(directory)
        write_trace(directory / "trace.csv")
    except OSError as error:
        raise InputError(
            f"cannot write {error.filename or directory}: {error.strerror}; name another folder: "
            "schedmate demo FOLDER."
        ) from None


# SYNTHETIC logs and a SYNTHETIC trace to try schedmate with; no cluster ran any of these jobs.


LOG_START = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
STEP_S = 0.42
TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "/home/ada/lm/train.py", line 118, in <module>\n    main()\n'
    '  File "/home/ada/lm/train.py", line 94, in main\n    loss = model(batch)\n'
)
NODE_NAMES = [f"gpu-{number:03d}" for number in range(1, 13)]
BAD_NODE = NODE_NAMES[6]
"""Where the GPU errors of the sixty jobs come from."""
LOG_ENDINGS = {
    "oom": TRACEBACK + "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 "
    "GiB.\n",
    "key": TRACEBACK + "KeyError: 'attention_mask'\n",
    "file": TRACEBACK + "FileNotFoundError: [Errno 2] No such file or directory: "
    "'/data/pile/shard-00{n:02d}.jsonl'\n",
    "ecc": TRACEBACK + "RuntimeError: CUDA error: uncorrectable ECC error encountered\n",
    "done": "training is done, model saved to /ckpt/final\n",
}
TRACE_KINDS = [
    ("debug", 300, 1, 30),
    ("finetune", 5_400, 1, 22),
    ("finetune-large", 9_000, 2, 14),
    ("pretrain", 43_200, 8, 6),
    ("sweep", 2_400, 1, 20),
    ("evaluate", 600, 1, 20),
    ("pretrain-large", 64_800, 16, 2),
]
"""Jobs of the trace: name, usual run time [s], GPUs, how many of 114 are such."""


def progress_lines(first: int, last: int, total: int, rng: random.Random) -> str:
    """Lines of progress, one every ten steps."""
    lines = []
    for step in range(first, last, 10):
        moment = LOG_START + timedelta(seconds=step * STEP_S)
        loss = 2.1 + 6 / (1 + step / 80) + rng.uniform(-0.05, 0.05)
        lines.append(f"{moment:%Y-%m-%d %H:%M:%S} INFO step {step}/{total} loss {loss:.4f} lr 3e-4")
    return "\n".join(lines) + "\n"


def write_logs(directory: Path) -> None:
    """Write the log of a running job, of one whose node was lost, and of sixty with their list.

    `running.log`, `failed.log`, `failed/` and `jobs.csv`.
    """
    rng = random.Random(7)  # noqa: S311 - an example, not a secret
    folder = directory / "failed"
    folder.mkdir(parents=True, exist_ok=True)
    (directory / "running.log").write_text(progress_lines(10, 6_210, 50_000, rng))
    (directory / "failed.log").write_text(
        progress_lines(10, 1_410, 50_000, rng)
        + "srun: error: Node failure on gpu-017\n"
        + "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
        + "[rank3]: torch.distributed.DistBackendError: NCCL error: remote process exited\n"
        + "slurmstepd: error: *** STEP 4711.0 ON gpu-016 CANCELLED AT 2026-03-02T08:09:58 ***\n"
    )
    rows = ["job_id,log,duration,gpus,nodes,state,user"]
    for number in range(60):
        node = NODE_NAMES[number % len(NODE_NAMES)]
        kinds = ["ecc"] if node == BAD_NODE else ["done", "done", "oom", "key", "file"]
        kind = kinds[number // len(NODE_NAMES) % len(kinds)]
        name, length = f"failed/job-{number:02d}.log", rng.randrange(50, 400) * 10
        text = (
            f"node {node}\n"
            + progress_lines(10, length, 5_000, rng)
            + LOG_ENDINGS[kind].format(n=number)
        )
        (directory / name).write_text(text)
        state = "COMPLETED" if kind == "done" else "FAILED"
        user = USERS[number % len(USERS)]
        rows.append(f"{number},{name},{rng.randrange(30, 3000)}m,8,{node},{state},{user}")
    (directory / "jobs.csv").write_text("\n".join(rows) + "\n")


def write_trace(path: Path) -> None:
    """Write a trace of 240 jobs of five users over about a day, in CSV."""
    rng = random.Random(11)  # noqa: S311 - an example, not a secret
    rows = ["job_id,submit_s,duration_s,gpus,user,name,state,synthetic"]
    submit_s = 0.0
    for number in range(240):
        submit_s += rng.expovariate(1 / 420)
        [kind] = rng.choices(range(len(TRACE_KINDS)), [share for *_, share in TRACE_KINDS])
        name, usual_s, gpus, _ = TRACE_KINDS[kind]
        duration_s = usual_s * rng.lognormvariate(0, 0.35)
        cells = (number, f"{submit_s:.0f}", f"{duration_s:.0f}", gpus, f"user-{kind % 5}", name)
        rows.append(",".join(map(str, (*cells, "COMPLETED", "made up for the demonstration"))))
    path.write_text("\n".join(rows) + "\n")
