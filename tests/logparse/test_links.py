"""Directories of logs with links and other things that are no logs: what is read, what is not."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from schedmate.logparse.reading import LogError, open_log
from schedmate.logparse.reading.folder import Folder, open_regular
from schedmate.logparse.reading.log import open_files

LOG = "step 1 loss 2.5\nTraceback (most recent call last):\nKeyError: 'x'\n"
SECRET = "root:x:0:0:secret of the machine\n"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    path = tmp_path / "outside" / "passwd"
    path.parent.mkdir()
    path.write_text(SECRET)
    return path


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "rank0.log").write_text(LOG)
    return folder


def text_of(folder: Path, **options: bool) -> tuple[str, list[str]]:
    with open_log(folder, **options) as log:
        return "".join(file.read(0, 1 << 20).decode() for file in log.files), log.warnings


def a_link(logs: Path, outside: Path) -> Path:
    (logs / "job.log").symlink_to(outside)
    return logs / "job.log"


def a_relative_link(logs: Path, outside: Path) -> Path:
    (logs / "job.log").symlink_to("../outside/passwd")
    return logs / "job.log"


def a_link_to_a_link(logs: Path, outside: Path) -> Path:
    (logs / ".first").symlink_to(outside)
    (logs / "job.log").symlink_to(logs / ".first")
    return logs / "job.log"


def a_link_to_a_folder(logs: Path, outside: Path) -> Path:
    (logs / "more").symlink_to(outside.parent)
    return logs / "more"


def a_link_to_the_folder_above(logs: Path, outside: Path) -> Path:
    (logs / "up").symlink_to("..")
    return logs / "up"


def a_link_by_way_of_a_folder(logs: Path, outside: Path) -> Path:
    (logs / "sub").mkdir()
    (logs / "sub" / "job.log").symlink_to("../../outside/passwd")
    return logs / "sub" / "job.log"


def a_link_of_the_process(logs: Path, outside: Path) -> Path:
    (logs / "job.log").symlink_to(f"/proc/self/root{outside}")
    return logs / "job.log"


def an_error_file(logs: Path, outside: Path) -> Path:
    outside.write_text('{"message": {"message": "secret of the machine", "extraInfo": {}}}')
    (logs / "error.json").symlink_to(outside)
    return logs / "error.json"


LEADING_OUT = [
    a_link, a_relative_link, a_link_to_a_link, a_link_to_a_folder, a_link_to_the_folder_above,
    a_link_by_way_of_a_folder, a_link_of_the_process, an_error_file,
]  # fmt: skip


@pytest.mark.parametrize("make", LEADING_OUT)
def test_a_link_that_leads_out_is_named_and_not_read(
    make: Callable[[Path, Path], Path], logs: Path, outside: Path
) -> None:
    link = make(logs, outside)
    text, [warning] = text_of(logs)

    assert text == LOG
    assert warning.startswith(f"{link} is a link that leads out of {logs}, to ")
    assert warning.endswith("(--follow-links reads it); it was left out.")
    with open_log(logs) as log:
        assert not log.error_files


@pytest.mark.parametrize("make", [make for make in LEADING_OUT if make is not an_error_file])
def test_it_is_read_where_that_is_wanted(
    make: Callable[[Path, Path], Path], logs: Path, outside: Path
) -> None:
    make(logs, outside)
    text, _ = text_of(logs, follow_links=True)

    assert SECRET in text
    assert text.count(LOG) == 1


def test_links_within_the_directory_are_read_once(logs: Path) -> None:
    (logs / "latest.log").symlink_to("rank0.log")
    (logs / "loop").symlink_to(".")
    (logs / "sub").mkdir()
    (logs / "sub" / "back").symlink_to("..")

    for follow in (False, True):
        assert text_of(logs, follow_links=follow) == (LOG, [])


def test_a_link_to_what_is_hidden_within_the_directory_is_read(logs: Path) -> None:
    (logs / "..2026").mkdir()  # as Kubernetes mounts what it makes
    (logs / "..2026" / "rank1.log").write_text("more\n")
    (logs / "..data").symlink_to("..2026")
    (logs / "rank1.log").symlink_to("..data/rank1.log")

    assert text_of(logs) == (LOG + "more\n", [])


def test_links_to_nothing_and_in_circles_are_named(logs: Path) -> None:
    (logs / "a.log").symlink_to("b.log")
    (logs / "b.log").symlink_to("a.log")
    (logs / "gone.log").symlink_to("nowhere")
    text, warnings = text_of(logs)

    assert text == LOG
    assert [warning.partition("link that ")[2] for warning in warnings] == [
        "leads in a circle; it was left out.",
        "leads in a circle; it was left out.",
        "leads nowhere; it was left out.",
    ]


def test_what_is_no_file_is_named_and_nobody_waits_for_it(logs: Path) -> None:
    os.mkfifo(logs / "pipe.log")
    (logs / "zero.log").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as server:
        here = Path.cwd()
        os.chdir(logs)  # the name of a socket is short
        try:
            server.bind("socket.log")
        finally:
            os.chdir(here)
        _, warnings = text_of(logs)
        _, followed = text_of(logs, follow_links=True)

    assert [warning.split()[0].rpartition("/")[2] for warning in warnings] == [
        "pipe.log", "socket.log", "zero.log",
    ]  # fmt: skip
    assert "leads to no regular file" in followed[-1]


def test_many_of_them_are_counted(logs: Path, outside: Path) -> None:
    for n in range(50):
        (logs / f"{n}.log").symlink_to(outside)
    _, warnings = text_of(logs)

    assert len(warnings) == 21
    assert warnings[-1] == f"30 more of {logs} were left out for the like."


def test_a_directory_may_itself_be_a_link(logs: Path, tmp_path: Path) -> None:
    (tmp_path / "latest").symlink_to(logs)

    assert text_of(tmp_path / "latest") == (LOG, [])


def test_a_name_that_was_made_a_link_since_it_was_listed_is_not_read(
    logs: Path, outside: Path
) -> None:
    folder = Folder(logs)
    found = folder.files().paths
    with open_files("job", found, folder) as log:
        (logs / "rank0.log").unlink()
        (logs / "rank0.log").symlink_to(outside)
        with pytest.raises(LogError, match="leads out of"):
            log.files[0].read(0, 100)
    with pytest.raises(LogError, match="leads out of"):
        open_files("job", found, folder)


def test_a_folder_on_the_way_that_was_made_a_link_is_not_entered(
    logs: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (logs / "sub").mkdir()
    (logs / "sub" / "passwd").write_text(LOG)
    folder, path = Folder(logs), logs / "sub" / "passwd"
    real = os.path.realpath

    def swapped(name: object) -> str:
        found = real(str(name))
        if str(name) == str(path):  # after it was looked at, before it is opened
            path.unlink()
            path.parent.rmdir()
            path.parent.symlink_to(outside.parent)
        return found

    monkeypatch.setattr(os.path, "realpath", swapped)
    with pytest.raises(LogError, match="was made a link while it was read"):
        folder.open(path)


def test_a_file_that_was_made_a_pipe_is_not_waited_for(
    logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = logs / "rank0.log"
    whole = path.stat()
    path.unlink()
    os.mkfifo(path)
    monkeypatch.setattr(Path, "stat", lambda _self: whole)
    with pytest.raises(LogError, match="is not a regular file"):
        open_regular(path)


def test_of_a_directory_with_too_many_files_no_further_ones_are_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as `/`, which a list of jobs may name for a log."""
    monkeypatch.setattr("schedmate.logparse.reading.log.MAX_FILES", 3)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        for rank in range(4):
            (tmp_path / folder / f"rank_{rank}.log").write_text("step 1/2\n")
    looked: list[Path] = []
    real = os.scandir
    with monkeypatch.context() as watched:
        watched.setattr(os, "scandir", lambda path: looked.append(Path(path)) or real(path))
        with pytest.raises(LogError, match="holds more than 3 files; give the directory of one"):
            open_log(tmp_path)
    assert looked == [tmp_path, tmp_path / "a"]
