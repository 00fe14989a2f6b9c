"""Nothing outside the root is ever shown, whatever is asked and whatever is swapped meanwhile."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from schedmate.base.errors import InputError
from schedmate.tools import RepoFiles

SECRET = "outside-the-root-7719"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "elsewhere.txt").write_text(SECRET)
    (tmp_path / "repo-2").mkdir()  # has the root's name as a prefix
    (tmp_path / "repo-2" / "elsewhere.txt").write_text(SECRET)
    root = tmp_path / "repo"
    (root / "d").mkdir(parents=True)
    (root / "train.py").write_text("epochs = 3\n")
    (root / "d" / "a.py").write_text("lr = 0.1\n")
    return root


def _everything(files: RepoFiles, path: str) -> str:
    lines = files.lines(path)
    return files.file_read(path) + files.file_tree(path) + "".join(lines or ())


@pytest.mark.parametrize(
    "path",
    [
        "../outside/elsewhere.txt",
        "d/../../outside/elsewhere.txt",
        "d/./../../outside/elsewhere.txt",
        "../repo-2/elsewhere.txt",
        "/etc/passwd",
        "//etc/passwd",
        "~/.ssh/id_rsa",
        "..",
        "d/..",
        "train.py\0.txt",
        "..\\outside\\elsewhere.txt",
        "%2e%2e/outside/elsewhere.txt",
        "\uff0e\uff0e/outside/elsewhere.txt",
        "/proc/self/environ",
        "/dev/stdin",
        "file:///etc/passwd",
        "a" * 5000,
        "/".join("a" * 100),
        "x" * 300,
        "\ud800",
    ],
)
def test_a_path_that_leads_out_is_refused(root: Path, path: str) -> None:
    files = RepoFiles(root)
    assert files.file_read(path).startswith("error: ")
    assert files.file_tree(path).startswith("error: ")
    assert files.lines(path) is None
    assert SECRET not in _everything(files, path)


def test_the_absolute_path_of_a_file_inside_is_refused_too(root: Path) -> None:
    assert RepoFiles(root).file_read(str(root / "train.py")).startswith("error: ")


def test_links_are_leaves(root: Path) -> None:
    (root / "file").symlink_to("../outside/elsewhere.txt")
    (root / "directory").symlink_to("../outside")
    (root / "inside").symlink_to("train.py")
    (root / "loop").symlink_to("loop")
    (root / "dangling").symlink_to("nowhere")
    files = RepoFiles(root)
    listing = files.file_tree().splitlines()
    for name in ("file", "directory", "inside", "loop", "dangling"):
        assert f"{name} -> (link, not followed)" in listing
        assert files.file_read(name) == f"error: {name} is a link, and links are not followed."
    assert "not followed" in files.file_read("directory/elsewhere.txt")
    assert "not followed" in files.file_tree("directory")
    assert SECRET not in files.file_tree(depth=8)


def test_a_link_named_gitignore_is_not_read(root: Path) -> None:
    (root.parent / "outside" / "ignore").write_text("train.py\n")
    (root / ".gitignore").symlink_to("../outside/ignore")
    assert "train.py" in RepoFiles(root).file_tree().splitlines()


def test_the_root_may_be_given_through_a_link(root: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(root)
    files = RepoFiles(tmp_path / "link")
    assert files.root == root.resolve()
    assert "epochs = 3" in files.file_read("train.py")


@pytest.mark.parametrize("name", ["nowhere", "repo/train.py", "loop"])
def test_a_root_that_is_no_directory(root: Path, tmp_path: Path, name: str) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InputError, match="give a directory"):
        RepoFiles(tmp_path / name)


def test_another_directory_in_the_place_of_the_root_is_refused(root: Path) -> None:
    files = RepoFiles(root)
    root.rename(root.with_name("moved"))
    (root.parent / "outside").rename(root)
    assert files.file_read("elsewhere.txt") == (
        "error: the root is no longer the directory that it was."
    )
    root.rename(root.with_name("outside"))
    root.symlink_to("outside")
    assert SECRET not in _everything(files, "elsewhere.txt")


def test_pipes_sockets_and_devices_are_named_but_never_opened(root: Path) -> None:
    os.mkfifo(root / "pipe.py")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(root / "s"))
        files = RepoFiles(root)
        listing = files.file_tree().splitlines()
        assert "pipe.py (pipe, not readable)" in listing
        assert "s (socket, not readable)" in listing
        assert files.file_read("pipe.py") == "error: pipe.py is a pipe, not a file."
        assert files.file_read("s") == "error: s is a socket, not a file."
    for directory in ("/dev", "/proc"):
        if Path(directory).is_dir():
            assert "file_read" not in RepoFiles(Path(directory)).file_tree(depth=1)
    assert RepoFiles(Path("/dev")).file_read("zero") == "error: zero is a device, not a file."
    assert RepoFiles(Path("/dev")).file_read("urandom").startswith("error: ")


def test_a_gitignore_that_is_a_pipe_does_not_block(root: Path) -> None:
    os.mkfifo(root / ".gitignore")
    assert "train.py" in RepoFiles(root).file_tree().splitlines()


@pytest.fixture
def swapped(root: Path) -> Iterator[None]:
    """While the test runs, `d` and `train.py` are by turns what they were and links outside."""
    real, link = root / "d", root / "d.link"
    file, file_link = root / "train.py", root / "train.link"
    link.symlink_to("../outside")
    file_link.symlink_to("../outside/elsewhere.txt")
    (root / "d" / "elsewhere.txt").write_text("harmless\n")
    stop = threading.Event()

    def swap() -> None:
        aside, file_aside = root / "d.real", root / "train.real"
        while not stop.is_set():
            real.rename(aside)
            link.rename(real)
            file.rename(file_aside)
            file_link.rename(file)
            real.rename(link)
            aside.rename(real)
            file.rename(file_link)
            file_aside.rename(file)

    thread = threading.Thread(target=swap)
    thread.start()
    yield
    stop.set()
    thread.join()


@pytest.mark.usefixtures("swapped")
def test_a_component_swapped_for_a_link_between_check_and_open(root: Path) -> None:
    files = RepoFiles(root)
    seen = {"shown": 0, "refused": 0}
    for turn in range(50_000):
        for path in ("d/elsewhere.txt", "train.py"):
            text = files.file_read(path)
            assert SECRET not in text
            seen["refused" if text.startswith("error:") else "shown"] += 1
        assert SECRET not in "".join(files.lines("d/elsewhere.txt") or ())
        if turn >= 300 and min(seen.values()) > 20:
            break
    assert min(seen.values()) > 0, "the race was never met on both sides"


_NAMES = st.one_of(
    st.sampled_from(
        ["..", ".", "", "d", "a.py", "train.py", "link", "outside", "elsewhere.txt", "~"]
    ),
    st.text(max_size=5),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(_NAMES, max_size=7), st.sampled_from(["", "/", "//", "./", "../"]))
def test_no_path_at_all_shows_what_is_outside(root: Path, names: list[str], start: str) -> None:
    if not (root / "link").is_symlink():
        (root / "link").symlink_to("../outside")
    assert SECRET not in _everything(RepoFiles(root), start + "/".join(names))
