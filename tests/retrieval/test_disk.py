"""Histories on network file systems: the table of mounts is made up, SQLite and files are real."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from history_jobs import SmallEmbedder, described, job, mounts

from schedmate.retrieval import database, index
from schedmate.retrieval.database import DATABASE, HistoryError, locked, network_filesystem
from schedmate.retrieval.history import JobHistory

SMALL = SmallEmbedder()


class TestNetworkFilesystem:
    @pytest.mark.parametrize(
        ("kind", "shared"),
        [
            *((kind, True) for kind in ("nfs", "nfs4", "cifs", "lustre", "gpfs", "fuse.sshfs")),
            *((kind, False) for kind in ("ext4", "xfs", "overlay", "tmpfs", "fuseblk")),
            ("fuse.fuse-overlayfs", False),
        ],
    )
    def test_by_type(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, shared: bool
    ) -> None:
        monkeypatch.setattr(database, "MOUNTS", mounts(tmp_path / "a", kind))
        for place in (tmp_path / "a", tmp_path / "a" / "not" / "there"):
            assert network_filesystem(place) == (kind if shared else None)
        assert network_filesystem(tmp_path / "ab") is None

    def test_the_innermost_and_latest_mount_counts(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        home = tmp_path / "my home"
        (tmp_path / "link").symlink_to(home)
        escaped = str(home).replace(" ", "\\040")
        table = tmp_path / "mounts"
        table.write_text(
            "22 1 254:1 / / rw - ext4 /dev/vda rw\n"
            f"23 22 0:45 / {escaped} rw,relatime shared:9 master:1 - xfs /dev/vdb rw\n"
            f"24 23 0:46 / {escaped} rw - nfs4 server:/home rw\n"
            f"25 24 0:47 / {escaped}/scratch rw - ext4 /dev/vdc rw\n"
            "half a line\n"
        )
        monkeypatch.setattr(database, "MOUNTS", table)
        assert network_filesystem(home / "history") == "nfs4"
        assert network_filesystem(tmp_path / "link" / "history") == "nfs4"
        assert network_filesystem(home / "scratch" / "history") is None

    def test_a_system_that_does_not_say(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(database, "MOUNTS", tmp_path / "none")
        assert network_filesystem(tmp_path) is None


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    with locked(tmp_path / "lock", wait=True) as first:
        with locked(tmp_path / "lock", wait=False) as second:
            assert (first, second) == (True, False)
    with locked(tmp_path / "lock", wait=False) as again:
        assert again


@pytest.fixture
def nfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory on NFS, or so it seems."""
    path = tmp_path / "nfs"
    path.mkdir()
    monkeypatch.setattr(database, "MOUNTS", mounts(path))
    return path


def journal_of(path: Path) -> str:
    with JobHistory.open(path, read_only=True) as history:
        return history._db.journal()


class TestOnANetwork:
    def test_nothing_is_shared_through_memory(
        self, nfs: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in (index, index):
            monkeypatch.setattr(module, "TAIL", 20)
        with JobHistory.open(nfs, SMALL) as history:
            history.add_many(job(number) for number in range(30))
            assert history.network == "nfs4"
            assert history.search(described("net7"), 1, 0.9)[0].record == job(7)
            names = {path.name for path in nfs.iterdir()}
            assert not names & {f"{DATABASE}-wal", f"{DATABASE}-shm"}
            maps = Path("/proc/self/maps").read_text()
            assert str(nfs) not in maps
        assert journal_of(nfs) == "delete"

    def test_a_local_disk_has_wal_and_a_mapped_index(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for module in (index, index):
            monkeypatch.setattr(module, "TAIL", 20)
        with JobHistory.open(tmp_path, SMALL) as history:
            history.add_many(job(number) for number in range(30))
            assert history.network is None
            assert history.search(described("net7"), 1, 0.9)
            maps = Path("/proc/self/maps").read_text()
            assert f"{tmp_path}/index-1-30-" in maps
        assert journal_of(tmp_path) == "wal"

    @pytest.mark.parametrize("read_only", [True, False])
    def test_one_that_came_from_a_local_disk(
        self, nfs: Path, tmp_path: Path, read_only: bool
    ) -> None:
        local = tmp_path / "local"
        with JobHistory.open(local, SMALL) as history:
            history.add_many(job(number) for number in range(5))
            # copied while in use, so that the last jobs are in the log only
            for path in local.glob(f"{DATABASE}*"):
                if not path.name.endswith("-shm"):
                    shutil.copy(path, nfs)
        assert (nfs / f"{DATABASE}-wal").stat().st_size
        with JobHistory.open(nfs, SMALL, read_only=read_only) as history:
            assert list(history.export()) == [job(number) for number in range(5)]
            assert not (nfs / f"{DATABASE}-wal").exists()
        assert journal_of(nfs) == "delete"

    def test_a_disk_that_cannot_share_memory_is_one_sentence(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Refusing(sqlite3.Connection):
            """As SQLite is where mmap of the shared memory fails."""

            def execute(self, sql: str, *values: object) -> sqlite3.Cursor:
                if "journal_mode = WAL" in sql:
                    error = sqlite3.OperationalError("disk I/O error")
                    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_SHMMAP
                    raise error
                return super().execute(sql, *values)  # type: ignore[arg-type]

        connect = sqlite3.connect
        monkeypatch.setattr(
            sqlite3, "connect", lambda *args, **kw: connect(*args, **{**kw, "factory": Refusing})
        )
        with pytest.raises(HistoryError, match=r"cannot share memory.*move the history to a local"):
            JobHistory.open(tmp_path / "history", SMALL)

    def test_one_that_goes_back_to_a_local_disk(self, nfs: Path, tmp_path: Path) -> None:
        with JobHistory.open(nfs, SMALL) as history:
            history.add(job(1))
        shutil.copytree(nfs, tmp_path / "local")
        with JobHistory.open(tmp_path / "local", SMALL) as history:
            history.add(job(2))
            assert history._db.journal() == "wal"
            assert len(history) == 2

    def test_a_reader_ends_what_a_killed_writer_began(self, nfs: Path, tmp_path: Path) -> None:
        with JobHistory.open(nfs, SMALL) as history:
            history.add(job(1))
        torn = tmp_path / "torn"
        with sqlite3.connect(nfs / DATABASE, isolation_level=None) as connection:
            connection.execute("PRAGMA cache_size = 1")  # so that it writes before it commits
            connection.execute("BEGIN")
            connection.execute("UPDATE jobs SET job_id = 'half done'")
            connection.execute("CREATE TABLE filling AS SELECT randomblob(500000)")
            shutil.copytree(nfs, torn)  # the files as a kill at this moment leaves them
            connection.execute("ROLLBACK")
        connection.close()
        assert (torn / f"{DATABASE}-journal").stat().st_size
        shutil.rmtree(nfs)
        torn.rename(nfs)
        with JobHistory.open(nfs, SMALL, read_only=True) as history:
            assert list(history.export()) == [job(1)]
