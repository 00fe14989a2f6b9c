"""A toy shortest-job-first scheduler that asks schedmate how long each job will run."""

import sys
from pathlib import Path

from schedmate import JobSpec, LaunchConfig, SchedMate, load_settings


def order(specs: list[JobSpec], mate: SchedMate) -> list[JobSpec]:
    """Shortest first; a job without an estimate is taken at its time limit."""

    def expected_s(spec: JobSpec) -> float:
        estimate = mate.on_submit(spec)  # within the deadline, or None; never raises
        return (estimate and estimate.duration_p50_s) or spec.launch.time_limit_s or float("inf")

    return sorted(specs, key=expected_s)


if __name__ == "__main__":
    repo = str(Path(__file__).with_name("train_repo"))
    day = LaunchConfig(gpus=4, nodes=1, time_limit_s=86_400)
    queue = [
        JobSpec(name=name, repo=repo, command=command, launch=day)
        for name, command in {
            "long": "torchrun --nproc_per_node=4 train.py model=resnet50 trainer.epochs=90",
            "unknown": "python missing.py",
            "short": "torchrun --nproc_per_node=4 train.py model=resnet18",
        }.items()
    ]
    # The history of the settings, or the one that is named.
    history = Path(sys.argv[1]) if sys.argv[1:] else None
    with SchedMate(load_settings(history=history)) as schedmate:
        print(*(spec.name for spec in order(queue, schedmate)))
