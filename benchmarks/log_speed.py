"""How fast logs are read, masked, searched for attempts and tracked, beside `grep -c`.

    python benchmarks/log_speed.py

A synthetic log of 1,000,000 lines (150 MB) in the form of Megatron-LM, a second one whose last half
is NCCL noise after a failure, and one whose lines have nothing in common (random words), the worst
case for templates. Each measurement is a process of its own, so that its peak memory is its own.
"""

from __future__ import annotations

import json
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from _record import record

LINES = 1_000_000
SEED = 0
TASKS = ("read", "count lines", "attempts", "templates", "track", "schedmate track")


def main() -> None:
    """Make the logs, run each task on each, record."""
    if len(sys.argv) == 3:
        print(json.dumps(_measure(sys.argv[1], Path(sys.argv[2]))))
        return
    rows = []
    with tempfile.TemporaryDirectory(prefix="schedmate-logs-") as folder:
        for kind, write in (
            ("training", _training),
            ("noise at the end", _noise),
            ("words", _words),
        ):
            path = Path(folder) / f"{kind.replace(' ', '_')}.log"
            write(path)
            yardstick = _grep(path)
            for task in TASKS:
                done = subprocess.run(
                    [sys.executable, __file__, task, str(path)],
                    capture_output=True, text=True, check=True,
                )  # fmt: skip
                measured = json.loads(done.stdout)
                rows.append({
                    "log": kind, "MB": round(path.stat().st_size / 1e6), "task": task,
                    "seconds": round(measured["seconds"], 3),
                    "times grep -c": round(measured["seconds"] / yardstick, 1) if yardstick else "",
                    "peak MB": round(measured["peak_mb"]), "result": measured["result"],
                })  # fmt: skip
    record("log_speed", rows, lines=LINES, seed=SEED, yardstick="grep -c error on the same bytes")


def _measure(task: str, path: Path) -> dict[str, Any]:
    from schedmate.logparse.progress.tracker import track
    from schedmate.logparse.reading import open_log
    from schedmate.logparse.reading.blocks import attempts
    from schedmate.logparse.templates import Templates

    began = time.perf_counter()
    if task == "schedmate track":
        shown = subprocess.run(
            [sys.executable, "-m", "schedmate", "track", str(path)], capture_output=True, check=True
        )
        result: Any = shown.stdout.decode().splitlines()[1]
    else:
        with open_log(path) as log:
            file = log.files[0]
            if task == "read":
                result = sum(chunk.data.count(b"\n") for chunk in file.chunks())
            elif task == "count lines":
                result = file.line_count()
            elif task == "attempts":
                result = len(attempts(file))
            elif task == "templates":
                templates = Templates()
                for chunk in file.chunks():
                    templates.numbers(chunk.data)
                result = len(templates)
            else:
                result = track(file).step_time_s
    who = resource.RUSAGE_CHILDREN if task == "schedmate track" else resource.RUSAGE_SELF
    seconds = time.perf_counter() - began
    return {
        "seconds": seconds,
        "peak_mb": resource.getrusage(who).ru_maxrss / 1024,
        "result": result,
    }


def _grep(path: Path) -> float | None:
    if shutil.which("grep") is None:
        return None
    times = []
    for _ in range(3):
        began = time.perf_counter()
        subprocess.run(["grep", "-c", "error", str(path)], capture_output=True, check=False)
        times.append(time.perf_counter() - began)
    return min(times)


def _training(path: Path) -> None:
    noise = random.Random(SEED)
    with path.open("w") as stream:
        for n in range(LINES):
            stream.write(
                f" iteration {n:8d}/ {LINES} | consumed samples: {n * 512:12d} | elapsed time per "
                f"iteration (ms): {1234 + noise.random():.1f} | learning rate: 1.0E-04 | lm loss: "
                f"{2 + noise.random():.6E} |\n"
            )


def _noise(path: Path) -> None:
    noise = random.Random(SEED)
    with path.open("w") as stream:
        for n in range(LINES // 2):
            stream.write(
                f" iteration {n:8d}/ {LINES} | consumed samples: {n * 512:12d} | elapsed time per "
                f"iteration (ms): {1234 + noise.random():.1f} | loss: {2 + noise.random():.6E} |\n"
            )
        for n in range(LINES // 2):
            stream.write(
                f"node{n % 64}:{1000 + n % 8}:{n} [{n % 8}] NCCL INFO Channel {n % 32:02d}/32 : "
                f"{n % 512}[{n % 8}] -> {(n + 1) % 512}[{(n + 1) % 8}] [send] via NET/IB/{n % 4}\n"
            )


def _words(path: Path) -> None:
    noise = random.Random(SEED)
    words = ["".join(noise.choices("abcdefghijklmnop", k=6)) for _ in range(5000)]
    with path.open("w") as stream:
        for _ in range(LINES):
            stream.write(" ".join(noise.choices(words, k=20)) + "\n")


if __name__ == "__main__":
    main()
