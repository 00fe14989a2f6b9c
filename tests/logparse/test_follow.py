"""Following a growing log through rotation and truncation."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedmate.logparse.reading import LogError
from schedmate.logparse.reading.log import follow


class Script:
    """Does one thing to the file at each look that found nothing new."""

    def __init__(self, *actions: object) -> None:
        self.actions = list(actions)

    def __call__(self, _seconds: float) -> bool:
        if not self.actions:
            return False
        self.actions.pop(0)()  # type: ignore[operator]
        return True


def append(path: Path, data: bytes) -> None:
    with path.open("ab") as stream:
        stream.write(data)


def test_rotation_truncation_and_half_lines(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_bytes(b"one\ntw")
    script = Script(
        lambda: append(path, b"o\nthree\n"),
        lambda: append(path, b"last of the old"),
        lambda: path.rename(tmp_path / "job.out.1"),
        lambda: path.write_bytes(b"first of the new\n"),
        lambda: path.write_bytes(b"cut\n"),  # shorter than before: truncated in place
        lambda: append(path, b"on\n"),
    )

    found = b"".join(follow(path, poll_s=0, wait=script))

    assert found == b"one\ntwo\nthree\nlast of the old\nfirst of the new\ncut\non\n"


def test_following_may_begin_anywhere(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_bytes(b"one\ntwo\n")

    assert b"".join(follow(path, start=4, poll_s=0, wait=Script())) == b"two\n"


def test_nothing_to_follow(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="cannot follow"):
        next(follow(tmp_path / "nothing"))
