"""A toy shortest-job-first scheduler that asks schedmate how long each job will run.

python toy_scheduler.py [HISTORY [REPO]]: the history of the settings and the `train_repo` beside
this file, unless others are named. `schedmate demo` leaves both: demo/history demo/train_repo.
"""

import logging
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
    named = [Path(name) for name in sys.argv[1:]]
    repo = named[1] if len(named) > 1 else Path(__file__).with_name("train_repo")
    if not (repo / "train.py").is_file():
        sys.exit(
            f"error: {repo} has no train.py, so no job can be estimated; name the repository: "
            f"python {sys.argv[0]} demo/history demo/train_repo (`schedmate demo` makes both)."
        )
    day = LaunchConfig(gpus=4, nodes=1, time_limit_s=86_400)
    queue = [
        JobSpec(name=name, repo=str(repo), command=command, launch=day)
        for name, command in {
            "long": "torchrun --nproc_per_node=4 train.py model=resnet50 trainer.epochs=90",
            "unknown": "python missing.py",
            "short": "torchrun --nproc_per_node=4 train.py model=resnet18",
        }.items()
    ]
    logging.basicConfig(format="%(message)s")
    logging.getLogger("schedmate").setLevel(logging.INFO)  # says why a job has no estimate
    with SchedMate(load_settings(history=named[0] if named else None)) as schedmate:
        schedmate.prepare()  # else the first job waits for code and model, and may be too late
        print(*(spec.name for spec in order(queue, schedmate)))
