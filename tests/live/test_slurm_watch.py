"""`schedmate watch` on jobs of a real Slurm: stopped by a signal, slowed down, diverged."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from processes import ended_in_time
from slurm_testbed import Testbed, missing, until

pytestmark = pytest.mark.live

STEPS = (
    "for n in $(seq 4000); do s=0.1; loss=2.5; "
    "[ -e {mark}.slowed ] && s=0.4; [ -e {mark}.diverged ] && loss=nan; "
    'sleep $s; echo "step $n/4000 loss $loss lr 1e-4, $s s/step"; done'
)


@pytest.fixture(scope="module")
def bed() -> Iterator[Testbed]:
    """A Slurm of its own."""
    why = missing()
    if why is not None:
        pytest.skip(why)
    root = Path(tempfile.mkdtemp(prefix="schedmate-watch-"))
    root.rmdir()
    with Testbed(root) as testbed:
        yield testbed
    shutil.rmtree(root, ignore_errors=True)


@pytest.mark.parametrize("kind", ["stalled", "slowed", "diverged"])
def test_what_befalls_a_job_is_told_once(bed: Testbed, tmp_path: Path, kind: str) -> None:
    mark = bed.jobs_folder / f"watch-{kind}"
    script = STEPS.format(mark=mark)
    job = bed.submit(script, "-o", f"{mark}-%j.out", gpus=1)
    log = bed.jobs_folder / f"watch-{kind}-{job}.out"
    until("fifty steps", 120, lambda: log.exists() and "step 50/" in log.read_text())
    command = [
        *(sys.executable, "-m", "schedmate", "watch", str(log), "--follow", "--every", "0.3s"),
        *("--least", "0s", "--patience", "1", "--json", "--state", str(tmp_path / "s.sqlite")),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        with ended_in_time(process):
            assert process.stdout is not None
            first = json.loads(process.stdout.readline())
            assert first["events"] == []
            if kind == "stalled":
                bed.run("scancel", "--signal=STOP", "--full", job)
            else:
                mark.with_name(f"{mark.name}.{kind}").touch()
            event = json.loads(process.stdout.readline())
            assert (event["condition"]["kind"], event["state"]) == (kind, "began")
            if kind == "stalled":
                bed.run("scancel", "--signal=CONT", "--full", job)
                over = json.loads(process.stdout.readline())
                assert (over["what"], over["state"]) == ("no progress", "over")
            process.terminate()
    finally:
        bed.run("scancel", job)
