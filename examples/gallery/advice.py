"""Print a line a job for what `schedmate analyze --batch` answers on standard input."""

import json
import sys

print(f"{'job':4} {'GPUs':>4}  {'p10 h':>6} {'p50 h':>6} {'p90 h':>6}  advice")
for answer in sorted(map(json.loads, sys.stdin), key=lambda answer: answer["index"]):
    estimate = answer["estimate"]
    hours = [estimate[f"duration_{part}_s"] for part in ("p10", "p50", "p90")]
    cells = " ".join(f"{'-' if value is None else f'{value / 3600:.2f}':>6}" for value in hours)
    advice = "no estimate: use the time limit" if estimate["abstained"] else "order by p50"
    print(f"{answer['job_id']:4} {answer['launch']['gpus']:>4}  {cells}  {advice}")
