"""Only schedmate's own processes collect garbage less often than Python does by itself."""

from __future__ import annotations

import gc
import subprocess
import sys

from schedmate.base.spread import spread


def _threshold(_item: int, _shared: None) -> tuple[int, int, int]:
    return gc.get_threshold()


def test_the_library_leaves_its_hosts_collector_alone() -> None:
    program = (
        "import gc; before = gc.get_threshold(); "
        "import schedmate, schedmate.mate, schedmate.cli, schedmate.base.spread; "
        "raise SystemExit(gc.get_threshold() != before)"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_processes_of_the_pool_collect_seldom() -> None:
    ((_, threshold),) = spread(_threshold, [1], None)
    assert threshold is not None
    assert threshold[0] > 10_000
