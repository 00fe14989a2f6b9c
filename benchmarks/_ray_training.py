"""Training that takes its time: what the jobs of `ray_fidelity.py` run instead of `python`.

It reads its step time, its use of the GPU and the format of its log from a file beside it, sleeps
as long as the steps take, slower beside a partner on the same GPUs, prints progress, and goes on
from its last checkpoint. It needs the standard library alone, so that a start costs nothing.
"""
# `pathlib` takes longer to import than all the rest
# ruff: noqa: PTH100, PTH103, PTH105, PTH108, PTH110, PTH120, PTH123, PTH208

import json
import os
import sys
import time

FOLDER = os.path.dirname(os.path.abspath(__file__))
CHECKPOINT_S = 5.0


def ancestor() -> int:
    """The runner: whoever started the supervisor above us."""
    pid = os.getppid()
    while True:
        with open(f"/proc/{pid}/cmdline") as stream:
            supervises = "supervise.py" in stream.read()
        with open(f"/proc/{pid}/stat") as stream:
            parent = int(stream.read().rpartition(")")[2].split()[1])
        if supervises:
            return parent
        pid = parent


def main() -> None:
    """Train."""
    words = sys.argv[1:]
    model = words[words.index("--model") + 1]
    total = int(words[words.index("--max-steps") + 1])
    with open(f"{FOLDER}/models.json") as stream:
        known = json.load(stream)
    one = known["models"][model]
    job, step_s = os.environ["SCHEDMATE_JOB"], one["step_s"]
    fault = f"{FOLDER}/fault-{job}-{os.environ['SCHEDMATE_RUN']}"
    saved = f"{os.environ['STATE']}/checkpoint-{job}"
    here = f"{os.environ['STATE']}/gpus-{ancestor()}"
    os.makedirs(here, exist_ok=True)
    mine = f"{here}/{job}"
    with open(mine + ".part", "w") as stream:
        stream.write(f"{one['util']},{one['util'] / 2},{one['memory_mb']}\n{os.getpid()} {model}\n")
    os.replace(mine + ".part", mine)
    step = 0
    if os.path.exists(saved):
        with open(saved) as stream:
            step = int(stream.read())
    if one["head"]:
        print(one["head"])
    due = began = time.time()
    saved_at, last, last_step = began, began, step
    try:
        while step < total:
            due += step_s * slow(here, job, model, known)
            step += 1
            time.sleep(max(0.0, due - time.time()))
            now = time.time()
            if step % one["every"] == 0:
                s = (now - last) / (step - last_step)
                last, last_step = now, step
                print(line(one["line"], step, total, s), flush=True)
            if now - saved_at >= CHECKPOINT_S:
                saved_at = now
                with open(saved + ".part", "w") as stream:
                    stream.write(str(step))
                os.replace(saved + ".part", saved)
            if os.path.exists(fault) and step > 30:
                with open(fault) as stream:
                    sys.stderr.write(stream.read())
                os.unlink(fault)
                sys.exit(1)
    finally:
        os.unlink(mine)


def slow(here: str, job: str, model: str, known: dict) -> float:
    """How many times longer a step takes now."""
    for name in os.listdir(here):
        if name == job or name.endswith(".part"):
            continue
        try:
            with open(f"{here}/{name}") as stream:
                pid, other = stream.read().split("\n")[1].split()
            os.kill(int(pid), 0)
        except (OSError, IndexError, ValueError):
            continue
        return known["slow"][model][other]
    return 1.0


def line(layout: str, step: int, total: int, s: float) -> str:
    """One line of the log."""
    now = time.time()
    clock = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(now)) + f",{int(now % 1 * 1000):03d}"
    return layout.format(
        step=step,
        total=total,
        s=s,
        ms=1000 * s,
        rate=32 / s,
        seen=32 * step,
        batch=32,
        norm=1.0,
        loss=8 / (1 + step) + 0.01,
        lr=3e-4,
        clock=clock,
    )


main()
