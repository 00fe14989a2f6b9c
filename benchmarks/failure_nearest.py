"""From which similarity on is the nearest labelled example right? Each rule's own left out.

python benchmarks/failure_nearest.py
"""

from __future__ import annotations

import numpy as np
from _record import record

from schedmate.logparse.failure.describe import labelled_examples, word_vectors
from schedmate.logparse.failure.rules import load_rules

THRESHOLDS = (0.4, 0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9)


def main() -> None:
    """For each threshold, how many have a neighbour, how many a right one."""
    pairs = labelled_examples(load_rules())
    points = word_vectors([text for text, _ in pairs])
    rules = [rule for _, rule in pairs]
    same = np.array([[one.id == other.id for other in rules] for one in rules])
    similar = np.where(same, -1.0, points @ points.T)
    best, highest = similar.argmax(axis=1), similar.max(axis=1)
    rows = []
    for threshold in THRESHOLDS:
        chosen = [n for n in range(len(rules)) if highest[n] >= threshold]
        types = sum(rules[best[n]].type == rules[n].type for n in chosen)
        names = sum(rules[best[n]].name == rules[n].name for n in chosen)
        rows.append({
            "threshold": threshold, "examples": len(rules), "decided": len(chosen),
            "type right": f"{types}/{len(chosen)}", "name right": f"{names}/{len(chosen)}",
        })  # fmt: skip
    record("failure_nearest", rows)


if __name__ == "__main__":
    main()
