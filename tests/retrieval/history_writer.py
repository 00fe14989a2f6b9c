"""A process that writes to a history until it is killed, and says what has been committed.

    python history_writer.py DIRECTORY (add | mix) NUMBER [network]

`add` stores jobs NUMBER, NUMBER + 1, ... singly and in batches and prints the last one after each
return; it begins when a line comes in. `mix` does all that writes, drawn by the seed NUMBER; it
prints a JSON list for each operation, its name and the jobs it concerned, and one that starts with
"begin" before.
"""

from __future__ import annotations

import json
import random
import sys
import time
from itertools import count
from pathlib import Path

from history_jobs import SmallEmbedder, job, often_saved, on_network

from schedmate.retrieval.history import JobHistory

FINISHED = {"state": "COMPLETED", "duration_s": 5.0, "end_time": 2000.0}
"""What `mix` finishes a job with."""


def tell(*what: object) -> None:
    print(json.dumps(what), flush=True)


def add(folder: Path, first: int) -> None:
    print("ready", flush=True)
    sys.stdin.readline()
    numbers = count(first)
    with JobHistory.open(folder, SmallEmbedder()) as history:
        for size in count():
            batch = [job(next(numbers)) for _ in range(1 + size % 30)]
            history.add_many(batch)
            print(batch[-1].job_id, flush=True)
            time.sleep(0.005)  # SQLite keeps no queue: who never pauses can make others wait long


def mix(folder: Path, seed: int) -> None:
    draw = random.Random(seed)
    numbers = count(100_000 * seed)
    with JobHistory.open(folder, SmallEmbedder()) as history:
        if history.mismatch():
            history.rebuild()
        for step in count():
            kind = draw.choice(["add", "add", "add_many", "finish", "replace", "rebuild"])
            if kind == "add":
                one = next(numbers)
                tell("begin", kind, [one])
                history.add(job(one))
                tell(kind, [one])
            elif kind == "add_many":
                several = [next(numbers) for _ in range(draw.randint(2, 10))]
                tell("begin", kind, several)
                history.add_many(job(one, state="RUNNING") for one in several)
                tell(kind, several)
            elif kind in ("finish", "replace"):
                running = history.list(limit=5, state="RUNNING")
                if not running:
                    continue
                one = int(draw.choice(running).job_id)
                tell("begin", kind, [one])
                if kind == "finish":
                    history.finish(f"{one:06}", **FINISHED)  # type: ignore[arg-type]
                else:
                    history.add(job(one, f"renamed{one}"))
                tell(kind, [one])
            elif step % 5 == 0:
                tell("begin", kind, [])
                if draw.random() < 0.5:
                    with JobHistory.open(folder, SmallEmbedder("other", dim=4)) as other:
                        other.rebuild()
                history.rebuild()
                history.rebuild_index()
                tell(kind, [])


if __name__ == "__main__":
    often_saved()
    place, what, number, *options = sys.argv[1:]
    if "network" in options:
        on_network(Path(place))
    {"add": add, "mix": mix}[what](Path(place), int(number))
