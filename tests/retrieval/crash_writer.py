"""Writes to a history until it is killed, and says on its output what has been committed.

Each line is a JSON list: the operation, then the ids it concerned. A line "begin" precedes each.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

from toy_embedder import OtherEmbedder, ToyEmbedder, job

from schedmate.retrieval import history as module
from schedmate.retrieval import index, vectors
from schedmate.retrieval.history import JobHistory


def tell(*what: object) -> None:
    print(json.dumps(what), flush=True)


def main(folder: Path, seed: int) -> None:
    # small sizes, so that every kind of file is being written most of the time
    index.TAIL = vectors.TAIL = 7
    index.EXACT_UP_TO = 150
    module.BATCH = 10
    draw = random.Random(seed)
    with JobHistory.open(folder, ToyEmbedder()) as history:
        if history.mismatch():
            history.rebuild()
        for step in range(10**6):
            name = f"{seed}.{step}"
            kind = draw.choice(["add", "add", "add_many", "finish", "replace", "rebuild"])
            if kind == "add":
                tell("begin", "add", [name])
                history.add(job(name, f"net {name}"))
                tell("add", [name])
            elif kind == "add_many":
                names = [f"{name}.{i}" for i in range(draw.randint(2, 10))]
                tell("begin", "add_many", names)
                history.add_many(job(n, f"net {n}", state="RUNNING") for n in names)
                tell("add_many", names)
            elif kind in ("finish", "replace"):
                open_jobs = history.list(limit=5, state="RUNNING")
                if not open_jobs:
                    continue
                target = draw.choice(open_jobs).job_id
                tell("begin", kind, [target])
                if kind == "finish":
                    history.finish(target, duration_s=5.0, end_time=2000.0)
                else:
                    history.add(job(target, f"renamed {target}"))
                tell(kind, [target])
            elif step % 5 == 0:
                tell("begin", "rebuild", [])
                if draw.random() < 0.5:
                    with JobHistory.open(folder, OtherEmbedder()) as other:
                        other.rebuild()
                history.rebuild()
                tell("rebuild", [])


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
