"""What another version of the package makes of the same logs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any


def read_with(package: Path, program: str, paths: Iterable[Path]) -> list[Any]:
    """The JSON lines that a program prints of `paths`, with schedmate from the tree `package`."""
    done = subprocess.run(
        [sys.executable, "-c", program, *map(str, paths)],
        env=os.environ | {"PYTHONPATH": str(package)}, cwd=package,
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in done.stdout.splitlines()]
