"""How long ten thousand logs take: `schedmate triage` as a user runs it, beside `grep -c`.

All logs are synthetic: 2,000 lines of the progress that common trainers print, with start-up
chatter, warnings and checkpoints, no two files alike; three in four end with one of twelve
failures, the others end well. So the table is about speed alone; its failures are no measure of
accuracy. The second run finds everything in the ledger. `grep -c` counts lines with `error` in the
same files, on one core, as a yardstick of what merely reading them costs. On a machine that is busy
with other work the CPU time per log [ms] says more than the wall time: two idle cores do 2,000
divided by it in a second.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _record import record

STEPS = [
    (
        " iteration {n:8d}/ 500000 | consumed samples: {m:12d} | elapsed time per iteration"
        " (ms): {t:.1f} | learning rate: {x:.3E} | lm loss: {y:.6E} | grad norm: {x:.3f} |"
    ),
    "{{'loss': {y:.4f}, 'grad_norm': {x:.4f}, 'learning_rate': 4.8e-05, 'epoch': {x:.2f}}}",
    (
        "[2026-11-01 10:{a:02d}:{b:02d},{c:03d}][train][INFO] - step {n}/500000 loss={y:.4f}"
        " lr=0.0003 throughput={m} tokens/s"
    ),
    "Epoch: [3][{n}/9000]\tTime {x:.3f} ({y:.3f})\tData 0.001 (0.002)\tLoss {y:.4e}",
]
OTHERS = [
    (
        "[rank{r}]: UserWarning: The given NumPy array is not writable, error may follow (Triggered"
        " internally at ../torch/csrc/utils/tensor_numpy.cpp:{m}.)"
    ),
    "saved checkpoint at iteration {n} to /scratch/run{r}/ckpt",
    "NCCL INFO Channel {r:02d}/16 : {r}[{r}] -> {a}[{a}] via P2P/IPC",
    "evaluating: {n}/512 batches, accuracy {x:.3f}",
]
TRACE = "Traceback (most recent call last):\n" + "".join(
    f'  File "/opt/train/{name}.py", line {{n}}, in {name}\n    {name}(batch)\n'
    for name in ("main", "loop", "step", "forward")
)
ENDS = [
    TRACE + "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate {r}.00 GiB",
    TRACE + "KeyError: 'labels'",
    TRACE + "FileNotFoundError: [Errno 2] No such file or directory: '/data/shard-{n}.tar'",
    TRACE + "RuntimeError: CUDA error: uncorrectable ECC error encountered",
    TRACE + "ValueError: Expected input batch_size ({r}) to match target batch_size ({a}).",
    TRACE + "OSError: [Errno 116] Stale file handle",
    TRACE + "ModuleNotFoundError: No module named 'flash_attn'",
    (
        "[rank{r}]:[E ProcessGroupNCCL.cpp:{m}] [Rank {r}] Watchdog caught collective operation"
        " timeout: WorkNCCL(SeqNum={n}, OpType=ALLREDUCE, Timeout(ms)=600000) ran for 600{c} ms"
    ),
    "slurmstepd: error: *** JOB {n} ON gpu{r:02d} CANCELLED AT 2026-11-01T10:00 DUE TO TIME LIMIT",
    "NVRM: Xid (PCI:0000:{r:02d}:00): 79, pid={n}, GPU has fallen off the bus.",
    "srun: error: Node failure on gpu{r:02d}",
    (
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient"
        " shared memory (shm)."
    ),
]
DONE = "Training completed. Do not forget to share your model on huggingface.co/models =)"


def write(folder: Path, count: int, lines: int, seed: int) -> int:
    """The logs and their list; gives their size [bytes]."""
    rng = random.Random(seed)
    size = 0
    rows = ["job_id,log,duration,gpus,nodes"]
    for number in range(count):
        step, first = rng.choice(STEPS), rng.randrange(400_000)
        text = []
        for n in range(first, first + lines - 10):
            shape = step if rng.random() < 0.97 else rng.choice(OTHERS)
            text.append(_fill(shape, rng, n))
        end = rng.choice(ENDS) if rng.random() < 0.75 else DONE
        text.append(_fill(end, rng, first + lines))
        content = "\n".join(text) + "\n"
        (folder / f"{number}.log").write_text(content)
        size += len(content)
        node = f"gpu{rng.randrange(100):02d}"
        rows.append(f"{number},{number}.log,{rng.randrange(1, 3000)}m,{rng.choice([8, 16])},{node}")
    (folder / "jobs.csv").write_text("\n".join(rows) + "\n")
    return size


def _fill(shape: str, rng: random.Random, n: int) -> str:
    return shape.format(
        n=n, m=n * 512, t=900 + 300 * rng.random(), x=rng.random(), y=2 + rng.random(),
        a=n // 60 % 60, b=n % 60, c=n % 1000, r=n % 32,
    )  # fmt: skip


def timed(command: list[str]) -> tuple[float, float, float, str]:
    """Wall and CPU time [s] of a command and all that it started, memory and what it printed.

    The memory [MiB] is the peak of the largest process of all commands so far.
    """
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    wall, after = time.perf_counter() - start, resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode not in (0, 1):
        raise SystemExit(done.stderr)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall, cpu, after.ru_maxrss / 1024, done.stdout


def main() -> None:
    """Write the logs, triage them, print and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=int, default=10_000)
    parser.add_argument("--lines", type=int, default=2_000)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dry-run", action="store_true", help="print, record nothing")
    given = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="triage-") as name:
        folder = Path(name)
        size = write(folder, given.logs, given.lines, given.seed)
        triage = [
            *(sys.executable, "-m", "schedmate", "triage", str(folder / "jobs.csv"), "--json"),
            *("--jobs", str(given.jobs), "--ledger", str(folder / "ledger.sqlite")),
            *("--out", str(folder / "report.html")),
        ]
        grep = ["sh", "-c", f"cat {folder}/*[0-9].log | grep -ci error"]
        timed(grep)  # the files are in memory from here on
        for what, command in (("grep -ci error", grep), ("triage", triage), ("again", triage)):
            wall, cpu, peak, out = timed(command)
            row = {
                "run": what,
                "wall_s": round(wall, 1),
                "cpu_s": round(cpu, 1),
                "cpu_ms_per_log": round(1000 * cpu / given.logs, 2),
                "peak_MB": round(peak),
                "MB_per_s": round(size / wall / 1e6),
                "logs_per_s": round(given.logs / wall),
            }
            if command is triage:
                found = json.loads(out)
                row["failed"] = found["totals"]["failed"]
                row["groups"] = len(found["groups"])
                row["unreadable"] = found["totals"]["unreadable"]
                row["report_MB"] = round((folder / "report.html").stat().st_size / 1e6, 2)
                row["ledger_MB"] = round((folder / "ledger.sqlite").stat().st_size / 1e6, 1)
            rows.append(row)
    if given.dry_run:
        print(*rows, sep="\n")
        return
    load = os.getloadavg()[0]
    record(
        "triage",
        rows,
        logs=f"{given.logs:,} synthetic of {given.lines:,} lines, {size / 1e6:,.0f} MB",
        processes=given.jobs,
        seed=given.seed,
        load=f"{load:.1f} (mean number of running processes in the last minute)",
    )


if __name__ == "__main__":
    main()
