"""Write SYNTHETIC logs to try schedmate with: `python examples/make_logs.py DIRECTORY`.

`running.log` is of a job that goes on, `failed.log` of one whose node was lost, and `failed/` has
sixty jobs with their list, `jobs.csv`. No cluster ran any of them.
"""

from __future__ import annotations

import random
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

START = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
STEP_S = 0.42
TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "/home/ada/lm/train.py", line 118, in <module>\n    main()\n'
    '  File "/home/ada/lm/train.py", line 94, in main\n    loss = model(batch)\n'
)
NODES = [f"gpu-{number:03d}" for number in range(1, 13)]
BAD_NODE = NODES[6]
"""Where the GPU errors of the sixty jobs come from."""
ENDINGS = {
    "oom": TRACEBACK + "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 "
    "GiB.\n",
    "key": TRACEBACK + "KeyError: 'attention_mask'\n",
    "file": TRACEBACK + "FileNotFoundError: [Errno 2] No such file or directory: "
    "'/data/pile/shard-00{n:02d}.jsonl'\n",
    "ecc": TRACEBACK + "RuntimeError: CUDA error: uncorrectable ECC error encountered\n",
    "done": "training is done, model saved to /ckpt/final\n",
}


def steps(first: int, last: int, total: int, rng: random.Random) -> str:
    """Lines of progress, one every ten steps."""
    lines = []
    for step in range(first, last, 10):
        moment = START + timedelta(seconds=step * STEP_S)
        loss = 2.1 + 6 / (1 + step / 80) + rng.uniform(-0.05, 0.05)
        lines.append(f"{moment:%Y-%m-%d %H:%M:%S} INFO step {step}/{total} loss {loss:.4f} lr 3e-4")
    return "\n".join(lines) + "\n"


def main(directory: Path) -> None:
    """Write everything below `directory`."""
    rng = random.Random(7)  # noqa: S311 - an example, not a secret
    folder = directory / "failed"
    folder.mkdir(parents=True, exist_ok=True)
    (directory / "running.log").write_text(steps(10, 6_210, 50_000, rng))
    (directory / "failed.log").write_text(
        steps(10, 1_410, 50_000, rng)
        + "srun: error: Node failure on gpu-017\n"
        + "srun: Job step aborted: Waiting up to 32 seconds for job step to finish.\n"
        + "[rank3]: torch.distributed.DistBackendError: NCCL error: remote process exited\n"
        + "slurmstepd: error: *** STEP 4711.0 ON gpu-016 CANCELLED AT 2026-03-02T08:09:58 ***\n"
    )
    rows = ["job_id,log,duration,gpus,nodes,state"]
    for number in range(60):
        node = NODES[number % len(NODES)]
        kinds = ["ecc"] if node == BAD_NODE else ["done", "done", "oom", "key", "file"]
        kind = kinds[number // len(NODES) % len(kinds)]
        name, length = f"failed/job-{number:02d}.log", rng.randrange(50, 400) * 10
        text = f"node {node}\n" + steps(10, length, 5_000, rng) + ENDINGS[kind].format(n=number)
        (directory / name).write_text(text)
        state = "COMPLETED" if kind == "done" else "FAILED"
        rows.append(f"{number},{name},{rng.randrange(30, 3000)}m,8,{node},{state}")
    (directory / "jobs.csv").write_text("\n".join(rows) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
