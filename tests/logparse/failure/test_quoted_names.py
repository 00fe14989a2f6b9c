"""An exception's class counts before the names and phrases that its message only mentions."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedmate.logparse.failure import diagnose
from schedmate.logparse.reading import open_log

STEPS = "".join(f"step {n}/5000 loss {3 - n / 1000:.3f}\n" for n in range(1, 13))
RETRIED = (
    "RuntimeError: failed after KeyboardInterrupt-safe retry:"
    " Connection error while parsing header, corrupt zip"
)
TRACE = 'Traceback (most recent call last):\n  File "a.py", line 1, in f\n    g()\n'


@pytest.mark.parametrize("above", [TRACE, ""])
@pytest.mark.parametrize(
    ("last", "name"),
    [
        (RETRIED, "Runtime Error"),
        (
            "RuntimeError: DataLoader worker (pid 12) exited after KeyboardInterrupt in it",
            "Runtime Error",
        ),
        ("ValueError: bad KeyboardInterrupt", "Value Error"),
        ('KeyError: "Connection refused"', "Key Error"),
        ("KeyError: 'CUDA out of memory'", "Key Error"),
        ("KeyboardInterrupt", "Interrupted"),
        ("RuntimeError: KeyboardInterrupt()", "Interrupted"),
    ],
)
def test_the_class_decides(last: str, name: str, above: str, tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_text(STEPS + above + last + "\n")
    with open_log(path) as log:
        assert diagnose(log).error_name == name
