"""Output files appear whole or not at all."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from schedmate.base.errors import InputError
from schedmate.base.files import open_output


def test_a_file_is_written(tmp_path: Path) -> None:
    with open_output(tmp_path / "out") as stream:
        stream.write("text")
    assert (tmp_path / "out").read_text() == "text"
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_a_failure_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, error: type[BaseException]
) -> None:
    (tmp_path / "out").write_text("old")
    with pytest.raises(error), open_output(tmp_path / "out") as stream:  # noqa: PT012
        stream.write("half")
        stream.flush()
        raise error
    assert (tmp_path / "out").read_text() == "old"
    assert list(tmp_path.iterdir()) == [tmp_path / "out"]


def test_the_permissions_stay(tmp_path: Path) -> None:
    path = tmp_path / "out"
    path.write_text("old")
    path.chmod(0o640)
    with open_output(path) as stream:
        stream.write("new")
    assert path.stat().st_mode & 0o777 == 0o640


def test_a_new_file_obeys_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o027)
    try:
        with open_output(tmp_path / "out") as stream:
            stream.write("new")
    finally:
        os.umask(before)
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o640


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with open_output(tmp_path / "link") as stream:
        stream.write("text")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "target").read_text() == "text"


def test_a_device_stays_a_device() -> None:
    with open_output(Path("/dev/null")) as stream:
        stream.write("text")
    assert Path("/dev/null").is_char_device()


@pytest.mark.parametrize("path", [None, Path("-")])
def test_standard_output(path: Path | None, capsys: pytest.CaptureFixture[str]) -> None:
    with open_output(path) as stream:
        stream.write("text")
    assert capsys.readouterr().out == "text"


@pytest.fixture
def killed(tmp_path: Path) -> Path:
    """The temporary file of a process that was killed while it wrote to `out`."""
    code = (
        "import os, pathlib, signal, sys; from schedmate.base.files import open_output\n"
        "with open_output(pathlib.Path(sys.argv[1])) as stream:\n"
        "    print('half', file=stream, flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path / "out"], check=False)
    [left] = tmp_path.iterdir()
    assert left.read_text() == "half\n"
    return left


def test_what_a_killed_process_left_is_removed_later(tmp_path: Path, killed: Path) -> None:
    def write(name: str) -> set[str]:
        with open_output(tmp_path / name) as stream:
            stream.write("whole")
        return {path.name for path in tmp_path.iterdir()}

    assert write("out") == {"out", killed.name}  # it could be another's that has just begun
    os.utime(killed, (0, 0))
    assert write("other") == {"out", "other", killed.name}
    with killed.open() as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        assert killed.name in write("out")
    assert write("out") == {"out", "other"}


def test_two_that_write_to_one_place_leave_each_other_alone(tmp_path: Path) -> None:
    with open_output(tmp_path / "out") as first:
        first.write("first")
        for path in tmp_path.iterdir():
            os.utime(path, (0, 0))
        with open_output(tmp_path / "out") as second:
            second.write("second")
        assert (tmp_path / "out").read_text() == "second"
    assert (tmp_path / "out").read_text() == "first"


@pytest.mark.parametrize("path", ["missing/out", "."])
def test_a_place_that_cannot_be_written(tmp_path: Path, path: str) -> None:
    with pytest.raises(InputError, match="cannot write .*; choose another place with -o"):
        with open_output(tmp_path / path):
            pass
