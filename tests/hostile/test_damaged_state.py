"""Files that schedmate keeps, damaged: each command answers, or says so in one sentence."""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from cli_runner import Cli

from schedmate.base.errors import InputError
from schedmate.cluster.actions import Drain
from schedmate.cluster.claims import ClaimedError, claim
from schedmate.cluster.ray.store import Request, Store
from schedmate.cluster.record import Plan, Reason, Record
from schedmate.jobs import JobSpec

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
JOBS, REPO = EXAMPLES / "history.jsonl", EXAMPLES / "train_repo"
LOG = "\n".join(
    [f"2026-01-05 10:00:{n:02d} step {n}/5000 loss 2.{n}" for n in range(40)]
    + ["Traceback (most recent call last):", '  File "train.py", line 3, in f', "KeyError: 'x'", ""]
)

Damage = Callable[[Path, random.Random], object]


def _flip(path: Path, rng: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(30):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def _directory(path: Path, _: random.Random) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: dict[str, Damage] = {
    "empty": lambda path, _: path.write_bytes(b""),
    "cut in half": lambda path, _: os.truncate(path, path.stat().st_size // 2),
    "zeros": lambda path, _: path.write_bytes(bytes(path.stat().st_size)),
    "noise": lambda path, rng: path.write_bytes(rng.randbytes(path.stat().st_size)),
    "a few bits": _flip,
    "other bits": _flip,
    "still other bits": _flip,
    "gone": lambda path, _: path.unlink(),
    "a directory": _directory,
}


def _history(folder: Path, cli: Cli) -> list[list[str]]:
    at = ["--history", str(folder)]
    assert cli("history", "import", str(JOBS), *at).code == 0
    repo = ["analyze", str(REPO), *at, "--json", "-c", "python train.py"]
    return [["history", "stats", *at], ["history", "list", "--json", *at], repo]


def _record(folder: Path, _: Cli) -> list[list[str]]:
    with Record(folder / "record.db") as record:
        reason, drain = Reason(summary="ECC Error"), Drain(node="gpu-1", mark="ecc-1")
        plan = Plan.of(
            "recovery", cluster="alpha", key="job 17", created=1.0, reason=reason, actions=[drain]
        )
        record.propose(plan, by="agent")
    at = ["--record", str(folder / "record.db")]
    return [["recover", "status", "--verify", *at], ["recover", "status", "--json", *at]]


def _ledger(folder: Path, cli: Cli) -> list[list[str]]:
    logs = folder.parent / "logs"
    logs.mkdir()
    for number in range(6):
        (logs / f"job-{number}.log").write_text(LOG.replace("'x'", f"'x{number}'"))
    command = ["triage", str(logs), "--json", "--ledger", str(folder / "ledger.db")]
    assert cli(*command).code == 0
    return [command]


def _alarms(folder: Path, cli: Cli) -> list[list[str]]:
    log = folder.parent / "job.log"
    log.write_text(LOG)
    command = ["watch", str(log), "--json", "--state", str(folder / "alarms.db")]
    assert cli(*command).code == 0
    return [command]


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("kept", [_history, _record, _ledger, _alarms])
def test_a_damaged_file_is_answered_in_a_sentence(
    kept: Callable[[Path, Cli], list[list[str]]], damage: str, tmp_path: Path, cli: Cli
) -> None:
    folder = tmp_path / "kept"
    folder.mkdir()
    commands = kept(folder, cli)
    (file,) = (path for path in folder.iterdir() if path.suffix == ".db")
    DAMAGES[damage](file, random.Random(f"{kept.__name__} {damage}"))
    for command in commands:
        done = cli(*command)
        assert done.code in (0, 2, 3, 7), done.err
        assert "internal error" not in done.err
        assert "Traceback" not in done.err
        assert done.code == 0 or len(done.err.strip().splitlines()) == 1


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_queue_leaves_no_job_out(damage: str, tmp_path: Path) -> None:
    path = tmp_path / "queue.db"
    with Store(path) as store:
        for number in range(20):
            spec = JobSpec(repo="/tmp", command="sleep 1", name="é" * number)
            store.submit(f"m{number}", Request(spec=spec, gpus=1), 1e9 + number)
    for seed in range(10):
        tried = tmp_path / f"queue{seed}.db"
        shutil.copy(path, tried)
        DAMAGES[damage](tried, random.Random(seed))
        with suppress(InputError), Store(tried) as store:
            assert len(store.jobs()) in (0, 20)


@pytest.mark.parametrize("placed", ["a link", "a directory"])
def test_a_lock_that_somebody_else_put_there_is_not_taken(placed: str, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.write_text("kept")
    folder = tmp_path / "claims"
    folder.mkdir()
    if placed == "a link":
        (folder / "apply").symlink_to(other)
    else:
        (folder / "apply").mkdir()
    with pytest.raises(ClaimedError, match="apply"), claim(folder, "apply"):
        pass
    assert other.read_text() == "kept"


@pytest.mark.parametrize("years", [-60, -1, 1, 200])
def test_a_log_of_another_time_raises_no_alarm_of_silence(
    years: int, tmp_path: Path, cli: Cli
) -> None:
    """A clock that jumped, or a file system with a clock of its own."""
    log = tmp_path / "job.log"
    log.write_text(LOG.partition("Traceback")[0])
    then = max(1.0, log.stat().st_mtime + years * 365.25 * 86400)
    os.utime(log, (then, then))
    done = cli("watch", str(log), "--json")
    assert done.code == 0, done.err
    assert years < 0 or '"stalled": true' not in done.out
