"""A storm on a real Slurm: 5,000 jobs, 4,900 of them cancelled, 20 failures, outages in between.

    sudo .venv/bin/python benchmarks/slurm_storm.py        (root, and `.ci/install live`)

A private Slurm 22.05 (tests/live/slurm_testbed.py) with four nodes and accounting, and the agent as
its command, with the times of an installation (a pass every 10 s, accounting every 30 s). 5,000
jobs, arrays and single ones, are submitted as fast as the controller takes them; 4,900 are
cancelled at once, 60 complete, 20 only wait. 20 fail, some before the cancellation, some behind it,
some while the controller or the database is away. The agent is killed (SIGKILL) and started again;
a node is killed. What is
counted:

- the time from the end of each failed run, by accounting, to its verdict in the agent's record;
- the time from the submission of a newcomer behind the 5,000 to its estimate;
- estimates of jobs that wait through the storm, before and after it;
- what was done twice: verdicts, plans, records of the history.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT / "tests" / "live"))

from _record import record  # noqa: E402
from slurm_testbed import Testbed, missing  # noqa: E402
from storm import MORE, Storm, measure  # noqa: E402

STORM = Storm(jobs=5000, cancelled=4900, failed=20, waiting=20)
BOUNDS = {"poll": 10, "order": {"allowed": True}, "learn": {}, "follow": {}, "advise": {}}
"""As installed: nothing but the order is allowed, all times are those that are set by default."""


def main() -> None:
    parser = argparse.ArgumentParser(description="A storm of jobs on a private Slurm")
    parser.add_argument("--cancelled", type=int, help="Cancel fewer jobs, and keep no result")
    cancelled = parser.parse_args().cancelled
    why = missing()
    if why is not None:
        raise SystemExit(f"error: {why}")
    storm = STORM
    if cancelled is not None:
        storm = storm._replace(jobs=storm.jobs - storm.cancelled + cancelled, cancelled=cancelled)
    with tempfile.TemporaryDirectory(prefix="schedmate-storm-", dir="/tmp") as folder:
        root = Path(folder)
        root.chmod(0o755)
        with Testbed(root / "slurm", more=MORE, slurmd_timeout=15) as bed:
            os.environ["SLURM_CONF"] = str(bed.conf)
            os.environ["PATH"] = bed.environment["PATH"]
            bed.environment["SLURM_TIME_FORMAT"] = "%s"
            rows = measure(bed, root, storm, BOUNDS)
    record("slurm_storm", rows, working=storm != STORM)
    if any(one["holds"] == "no" for one in rows):
        raise SystemExit("error: a line above does not hold.")


if __name__ == "__main__":
    main()
