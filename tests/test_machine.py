"""Tests do not depend on the machine's site: neither its files nor its cluster are touched."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SITE = ("stop", "recovery.stop", "bounds.yaml", "recovery.yaml")
"""Files of `/etc/schedmate`: two stop everything, and the others are not even YAML."""
CLUSTER = ("sacct", "sbatch", "scontrol", "sinfo", "squeue", "kubectl", "nvidia-smi", "ollama")
ASKING = ("test_next_steps.py", "test_doctor.py", "hostile/test_tampered_record.py")
"""Tests of commands that look for both."""


def can_mount() -> bool:
    """Whether this user may have another `/etc` of its own."""
    ran = subprocess.run(
        ["unshare", "-rm", "mount", "--bind", "/tmp", "/mnt"], capture_output=True, check=False
    )
    return ran.returncode == 0


@pytest.mark.skipif(
    shutil.which("unshare") is None or not can_mount(), reason="needs a namespace of mounts"
)
def test_a_site_and_a_cluster_of_the_machine_change_nothing(tmp_path: Path) -> None:
    etc, programs, calls = tmp_path / "etc", tmp_path / "programs", tmp_path / "calls"
    with suppress(shutil.Error):  # of files that are not this user's to read
        shutil.copytree("/etc", etc, symlinks=True)
    (etc / "schedmate").mkdir(exist_ok=True)
    for name in SITE:
        (etc / "schedmate" / name).write_text("[not: {a file of settings\n")
    programs.mkdir()
    for name in CLUSTER:
        program = programs / name
        program.write_text(f"#!/bin/sh\necho $0 $* >>{calls}\nexit 97\n")
        program.chmod(0o755)

    tests = [str(ROOT / "tests" / name) for name in ASKING]
    pytest_ = [sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    ran = subprocess.run(
        ["unshare", "-rm", "sh", "-c", 'mount --bind "$0" /etc && exec "$@"', str(etc), *pytest_],
        env={**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-2000:]
    assert not calls.exists(), calls.read_text()
