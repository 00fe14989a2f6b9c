"""Write `history.jsonl`: forty SYNTHETIC finished jobs to try schedmate with.

No cluster ran these jobs. Durations follow a plain rule (seconds per pass, passes, GPUs, noise)
chosen to look plausible; do not draw conclusions about hardware from them.
"""

from __future__ import annotations

import json
import random
from pathlib import Path

DOMAINS = {
    "image-classification": "CV",
    "object-detection": "CV",
    "sequence-classification": "NLP",
    "language-modeling": "NLP",
    "speech-recognition": "Audio",
}
# model, task, dataset, unit of length, choices of length, GPUs, and the GPU seconds
# that one unit of length takes
FAMILIES = [
    ("resnet18", "image-classification", "cifar10", "epoch", (30, 100), (1, 2), 11.0),
    ("resnet50", "image-classification", "cifar10", "epoch", (30, 60, 90), (1, 4), 42.0),
    ("resnet50", "image-classification", "imagenet", "epoch", (90,), (8, 16), 2900.0),
    ("vit_small_patch16_224", "image-classification", "imagenet", "epoch", (100,), (8,), 3600.0),
    ("bert-base-uncased", "sequence-classification", "glue/mnli", "epoch", (3, 5), (1, 2), 2100.0),
    ("gpt2", "language-modeling", "openwebtext", "step", (100_000, 300_000), (8,), 1.9),
    ("yolov8m", "object-detection", "coco", "epoch", (100, 300), (4, 8), 1500.0),
    ("whisper-small", "speech-recognition", "librispeech_asr", "step", (5_000, 10_000), (2,), 2.4),
]  # fmt: skip
STATES = ["COMPLETED"] * 8 + ["FAILED", "CANCELLED"]
START = 1_767_225_600  # 2026-01-01T00:00:00Z


def job(number: int, rng: random.Random) -> dict[str, object]:
    """One record in the form that `schedmate history import --format jsonl` reads."""
    model, task, dataset, unit, lengths, gpu_counts, cost_s = FAMILIES[number % len(FAMILIES)]
    iters, gpus = rng.choice(lengths), rng.choice(gpu_counts)
    state = rng.choice(STATES)
    whole_s = 60 + cost_s * iters / gpus**0.93 * rng.lognormvariate(0, 0.08)
    duration_s = round(whole_s if state == "COMPLETED" else whole_s * rng.uniform(0.05, 0.8), 1)
    submit = START + number * 21_600 + rng.randrange(3_600)
    start = submit + rng.randrange(30, 5_400)
    return {
        "job_id": f"example-{number:04d}",
        "name": f"{model}-{dataset}".replace("/", "-"),
        "user": f"example-user-{rng.randrange(4)}",
        "launch": {"gpus": gpus, "nodes": 1 if gpus <= 8 else 2, "gpu_type": "A100"},
        "metadata": {
            "model_config": {"model_name": model, "task_type": DOMAINS[task], "task": task},
            "training_config": {"iters": iters, "iter_type": unit, "num_gpus": gpus},
            "dataset_config": {"train": dataset, "valid": dataset},
        },
        "state": state,
        "submit_time": submit,
        "start_time": start,
        "end_time": round(start + duration_s, 1),
        "duration_s": duration_s,
        "gpu_util": round(rng.uniform(62, 97), 1),
        "gpu_mem_mb": round(rng.uniform(9_000, 38_000)),
    }


def main() -> None:
    """Write the file beside this script; the seed is fixed, so it never changes."""
    rng = random.Random(20260101)  # noqa: S311 - example data, not a secret
    lines = [json.dumps(job(number, rng)) for number in range(1, 41)]
    Path(__file__).with_name("history.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
