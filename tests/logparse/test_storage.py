"""Reading the bytes of logs: compressed, piped, damaged, hostile."""

from __future__ import annotations

import gzip
import io
import json
import os
from pathlib import Path

import pytest
import zstandard

from schedmate.logparse.reading import LogError, open_log, storage
from schedmate.logparse.reading.storage import LONG_LINE, TAIL, store_stream

TEXT = b"".join(b"step %d loss 0.5\n" % number for number in range(5000))


def content(path: Path) -> bytes:
    with open_log(path) as log:
        return b"".join(chunk.data for chunk in log.files[0].chunks())


@pytest.mark.parametrize(
    ("name", "packed"),
    [
        ("plain.log", TEXT),
        ("one.gz", gzip.compress(TEXT)),
        ("members.gz", gzip.compress(TEXT[:1000]) + gzip.compress(TEXT[1000:]) + b"\0" * 512),
        ("one.zst", zstandard.compress(TEXT)),
        ("frames.zst", zstandard.compress(TEXT[:1000]) + zstandard.compress(TEXT[1000:])),
        ("windows.log", b"\xff\xfe" + TEXT.decode().encode("utf-16-le")),
    ],
)
def test_every_packing_gives_the_same_lines(tmp_path: Path, name: str, packed: bytes) -> None:
    path = tmp_path / name
    path.write_bytes(packed)

    assert content(path) == TEXT


def test_what_is_packed_is_told_by_content_not_by_name(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_bytes(gzip.compress(TEXT))

    assert content(path) == TEXT


def test_a_large_unpacked_log_goes_to_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "IN_MEMORY", 10_000)
    path = tmp_path / "job.gz"
    path.write_bytes(gzip.compress(TEXT))
    opened, _ = storage.store(path)

    opened.close()

    assert isinstance(opened, storage.Unpacked)
    assert opened.read(0, opened.size) == TEXT
    assert content(path) == TEXT


def test_what_was_unpacked_to_disk_of_a_directory_is_read_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "IN_MEMORY", 10_000)
    (tmp_path / "rank0.log.gz").write_bytes(gzip.compress(TEXT))

    with open_log(tmp_path) as log:
        [file] = log.files
        file.close()  # as between two looks at many ranks
        assert file.read(0, file.size) == TEXT


@pytest.mark.parametrize("suffix", ["gz", "zst"])
def test_what_comes_before_the_damage_is_read(tmp_path: Path, suffix: str) -> None:
    noise = b"".join(b"%d\n" % (number**5 % 1_000_003) for number in range(40_000))
    packed = gzip.compress(noise) if suffix == "gz" else zstandard.compress(noise)
    path = tmp_path / f"job.{suffix}"
    path.write_bytes(packed[: len(packed) // 2] + b"\xff" * (100 if suffix == "zst" else 0))

    with open_log(path) as log:
        read = b"".join(chunk.data for chunk in log.files[0].chunks())
        assert read
        assert noise.startswith(read)
        if suffix == "gz":
            assert "it ends early" in log.warnings[0]


def test_a_gzip_bomb_is_refused_before_it_fills_anything(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "IN_MEMORY", 1 << 20)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"\0" * (1 << 24)))

    with pytest.raises(LogError, match="unpacks to more than 6 MiB, which no log should"):
        open_log(path)


def test_of_a_line_without_end_only_both_ends_are_unpacked() -> None:
    long = b"a" * 1000 + b"\0" * (3 * LONG_LINE) + b"z" * 1000
    text = b"step 1\n" + long + b"\nstep 2\n" + long

    opened, warning = store_stream(io.BytesIO(gzip.compress(text, 1)), "standard input")

    assert opened.size < 2 * (LONG_LINE + storage.BLOCK + TAIL)
    lines = opened.read(0, opened.size).split(b"\n")
    assert (lines[0], lines[2], len(lines), warning) == (b"step 1", b"step 2", 4, None)
    for line in (lines[1], lines[3]):
        assert line.startswith(b"a" * 1000 + b"\0")
        assert line.endswith(b"\0" + b"z" * 1000)


def test_much_that_is_all_alike_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "IN_MEMORY", 1 << 16)
    monkeypatch.setattr(storage, "MUCH", 1 << 20)
    path = tmp_path / "bomb.gz"
    path.write_bytes(gzip.compress(b"step 1 loss 0.5, and so on and on\n" * 100_000))

    with pytest.raises(LogError, match="unpacks to more than 1 MiB, which no log should"):
        open_log(path)


@pytest.mark.parametrize("size", [1 << 14, 1 << 20])
def test_nothing_but_zeros_is_no_log(tmp_path: Path, size: int) -> None:
    path = tmp_path / "hole.log"
    path.write_bytes(b"\0" * size)

    with pytest.raises(LogError, match="it is not text"):
        open_log(path)


def test_a_pipe_is_read_once_and_may_be_packed() -> None:
    for stream in (TEXT, gzip.compress(TEXT)):
        opened, warning = store_stream(io.BytesIO(stream), "standard input")
        assert opened.read(0, len(TEXT) + 1) == TEXT
        assert warning is None


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "it is empty"),
        (os.urandom(5000), "it is not text"),
        (b"\x7fELF" + bytes(range(32)) * 100, "it is not text"),
    ],
)
def test_what_is_no_log_is_refused(tmp_path: Path, data: bytes, message: str) -> None:
    path = tmp_path / "job.out"
    path.write_bytes(data)

    with pytest.raises(LogError, match=message):
        open_log(path)


@pytest.mark.parametrize(
    "data",
    [
        b"\0" * 20_000 + b"step 1\n",  # truncated while the job went on writing
        "d\xe9but de l'entra\xeenement\n".encode("latin-1") * 20,
        "训练开始\n".encode() * 2000,
        b"\x1b[32mINFO\x1b[0m\r 1%|\x08\x08\n" * 50,
    ],
)
def test_odd_text_is_text(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "job.out"
    path.write_bytes(data)

    assert content(path) == data


def test_an_empty_name_is_not_the_working_directory() -> None:
    with pytest.raises(LogError, match="name is empty"):
        open_log("")


def test_missing_unreadable_and_no_regular_file(tmp_path: Path) -> None:
    with pytest.raises(LogError, match="does not exist"):
        open_log(tmp_path / "nothing.log")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(LogError, match="is not a regular file"):
        open_log(tmp_path / "pipe")
    if os.geteuid() != 0:
        locked = tmp_path / "locked.log"
        locked.write_text("step 1\n")
        locked.chmod(0)
        with pytest.raises(LogError, match="Permission denied"):
            open_log(locked)


def test_a_log_that_shrinks_is_read_as_far_as_it_goes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(storage, "BLOCK", 16)  # a smaller one is held as it was
    path = tmp_path / "job.out"
    path.write_bytes(TEXT)
    with open_log(path) as log:
        os.truncate(path, 17)
        assert b"".join(chunk.data for chunk in log.files[0].chunks()) == TEXT[:17]


def test_a_log_that_is_deleted_is_still_read(tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_bytes(TEXT)
    with open_log(path) as log:
        path.unlink()
        assert b"".join(chunk.data for chunk in log.files[0].chunks()) == TEXT


def test_one_of_many_files_that_is_deleted_says_so(tmp_path: Path) -> None:
    (tmp_path / "rank_0.log").write_bytes(TEXT)
    with open_log(tmp_path) as log:
        (tmp_path / "rank_0.log").unlink()
        with pytest.raises(LogError, match="No such file"):
            log.files[0].read(0, 10)


def test_a_directory_is_one_log_with_a_file_per_rank(tmp_path: Path) -> None:
    run = tmp_path / "run" / "attempt_0"
    for rank in (10, 2, 0):
        (run / str(rank)).mkdir(parents=True)
        (run / str(rank) / "stderr.log").write_bytes(b"step %d\n" % rank)
    (run / "2" / "error.json").write_text(
        json.dumps(
            {
                "message": {
                    "message": "KeyError: \x1b[31m'x'",
                    "extraInfo": {"py_callstack": "Traceback ...", "timestamp": "1700000000"},
                }
            }
        )
    )
    (tmp_path / "core.bin").write_bytes(os.urandom(3000))
    (tmp_path / "empty.log").touch()
    (tmp_path / ".hidden").write_text("step 99\n")

    with open_log(tmp_path) as log:
        assert [file.rank for file in log.files] == [0, 2, 10]
        (error,) = log.error_files
        assert (error.rank, error.message, error.time) == (2, "KeyError: 'x'", 1.7e9)
        assert log.warnings == [f"1 file of {tmp_path} is not text and was left out."]


def test_more_rank_files_than_a_process_may_open(tmp_path: Path) -> None:
    for rank in range(1500):
        (tmp_path / f"rank_{rank}.log").write_bytes(b"step 1\n")

    with open_log(tmp_path) as log:
        assert [file.rank for file in log.files] == list(range(1500))


def test_a_directory_without_logs_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(os.urandom(3000))

    with pytest.raises(LogError, match="holds no log"):
        open_log(tmp_path)


def test_an_error_json_of_something_else_is_a_file_like_any_other(tmp_path: Path) -> None:
    (tmp_path / "error.json").write_text('{"code": 3}')

    with open_log(tmp_path) as log:
        assert not log.error_files
        assert len(log.files) == 1
