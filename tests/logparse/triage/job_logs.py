"""Small logs of jobs that failed in known ways, and whole directories of them."""

from __future__ import annotations

from pathlib import Path

PROGRESS = "iteration {0}/ 1000 | lm loss: 2.{0:04d} | elapsed time per iteration (ms): 500.0\n"
ENDINGS = {
    "ok": "Training completed. Do not forget to share your model on huggingface.co/models =)\n",
    "oom": "Traceback (most recent call last):\n"
    '  File "train.py", line {0}, in <module>\n'
    "    loss.backward()\n"
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate {0}.00 GiB\n",
    "key": "Traceback (most recent call last):\n"
    '  File "train.py", line {0}, in <module>\n'
    "    batch['labels']\n"
    "KeyError: 'labels'\n",
    "ecc": "RuntimeError: CUDA error: uncorrectable ECC error encountered\n",
}


def log(kind: str, number: int = 1, steps: int = 30) -> str:
    """A log that ends as `kind` says; `number` tells it from others of its kind."""
    steps_text = "".join(PROGRESS.format(step) for step in range(1, steps))
    return f"starting run {number}\n" + steps_text + ENDINGS[kind].format(number)


def write(folder: Path, *kinds: str) -> Path:
    """A directory with a log for each of `kinds`."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, kind in enumerate(kinds, start=1):
        (folder / f"job-{number:03d}-{kind}.log").write_text(log(kind, number))
    return folder
