"""Work for the machines of a Ray cluster, and a command that has it done.

python ray_work.py ADDRESS JOURNAL COUNT POISON,... SECONDS prints which items had a result.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

from schedmate.base.journal import Journal, Memo
from schedmate.base.spread import spread


def work(item: int, shared: tuple[frozenset[int], float]) -> int:
    """The item's square; poison ends the process."""
    poison, seconds = shared
    if item in poison:
        os._exit(9)
    time.sleep(seconds)
    return item * item


def main() -> None:
    """See the module."""
    address, path, count, bad, seconds = sys.argv[1:]
    poison = frozenset(int(one) for one in bad.split(",") if one)
    with Journal(Path(path), "squares") as journal:
        known = len(journal)
        memo: Memo[int, int] = Memo(journal, str, str, int)
        shared = (poison, float(seconds))
        found = {}
        for item, outcome in spread(work, range(int(count)), shared, ray=address, memo=memo):
            found[item] = outcome
            if len(found) == known + 20:
                print("going", flush=True)
    ended = sorted(item for item, outcome in found.items() if outcome is None)
    right = all(outcome in (None, item * item) for item, outcome in found.items())
    print(json.dumps({"done": len(found), "ended": ended, "right": right, "known": known}))


if __name__ == "__main__":
    main()
