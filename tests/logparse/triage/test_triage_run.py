"""Batches from beginning to end: the ledger, kills, bad files, Ray."""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest
from job_logs import log, write
from processes import all_ended

from schedmate.base.spread import spread
from schedmate.jobs import Diagnosis
from schedmate.logparse.reading import open_log
from schedmate.logparse.triage import Ledger, Triage, find_targets, summarise, triage
from schedmate.logparse.triage.run import ENDED, LedgerError, Outcome, examine
from schedmate.logparse.triage.strip import strip
from schedmate.logparse.triage.targets import Target


def run(source: Path, ledger: Path | None, processes: int = 1) -> Triage:
    batch = find_targets(str(source))
    with Ledger(ledger, str(source)) as store:
        results = list(triage(batch.targets, store, processes=processes))
        shown = Counter(number for _, numbers in results for number in numbers)
        found = summarise(str(source), [one for one, _ in results], shown, store)
        store.finish()
    return found


def test_a_batch_with_everything(tmp_path: Path) -> None:
    logs = write(tmp_path / "logs", "ok", "oom", "oom", "key", "ecc")
    ranks = logs / "many-ranks"
    ranks.mkdir()
    for rank in range(2):
        (ranks / f"rank{rank}.log").write_text(log("key" if rank else "ok"))
    (logs / "empty.log").touch()
    (logs / "noise.bin").write_bytes(random.Random(3).randbytes(5000))
    packed = gzip.compress(log("oom", steps=3000).encode())
    (logs / "whole.log.gz").write_bytes(packed)
    (logs / "cut.log.gz").write_bytes(packed[: len(packed) // 2])
    (logs / "gone.log").symlink_to(tmp_path / "nowhere")
    found = run(logs, None, processes=2)
    jobs = {job.job_id: job for job in found.jobs}
    assert [job.index for job in found.jobs] == list(range(len(jobs)))
    assert {name for name, job in jobs.items() if job.error} == {"empty", "noise"}
    assert "it is empty" in (jobs["empty"].error or "")
    assert {name for name, job in jobs.items() if job.failed} == {
        "job-002-oom", "job-003-oom", "job-004-key", "job-005-ecc", "many-ranks", "whole",
    }  # fmt: skip
    ranked = jobs["many-ranks"].diagnosis
    assert ranked is not None
    assert ranked.file == str(ranks / "rank1.log")
    assert all(line.file.startswith(str(ranks)) for line in ranked.evidence)
    assert any("damaged" in text for text in jobs["cut"].diagnosis.warnings)  # type: ignore[union-attr]
    causes = {(one.error_name, len(one.jobs)) for one in found.groups}
    assert causes == {("Out of Memory", 3), ("Key Error", 2), ("ECC Error", 1)}
    assert (found.totals.failed, found.totals.not_failed, found.totals.unreadable) == (6, 2, 2)


def test_a_second_run_reads_the_ledger_by_content_wherever_the_file_is(tmp_path: Path) -> None:
    first = run(write(tmp_path / "one", "oom", "key"), tmp_path / "ledger")
    (tmp_path / "one").rename(tmp_path / "two")
    (tmp_path / "two" / "job-003-new.log").write_text(log("ecc"))
    second = run(tmp_path / "two", tmp_path / "ledger")
    assert [job.cached for job in second.jobs] == [True, True, False]
    for old, new in zip(first.jobs, second.jobs, strict=False):
        assert old.diagnosis is not None
        assert new.diagnosis is not None
        assert new.diagnosis.file == old.diagnosis.file.replace("/one/", "/two/")  # type: ignore[union-attr]
        assert new.diagnosis.evidence[-1].text == old.diagnosis.evidence[-1].text


def test_a_changed_file_is_read_anew(tmp_path: Path) -> None:
    logs = write(tmp_path / "logs", "ok")
    run(logs, tmp_path / "ledger")
    (logs / "job-001-ok.log").write_text(log("key"))
    assert [(job.cached, job.failed) for job in run(logs, tmp_path / "ledger").jobs] == [
        (False, True)
    ]


def test_other_rules_mean_other_verdicts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = write(tmp_path / "logs", "oom")
    run(logs, tmp_path / "ledger")
    monkeypatch.setattr("schedmate.logparse.triage.run.version", lambda: "newer")
    assert not run(logs, tmp_path / "ledger").jobs[0].cached
    assert run(logs, tmp_path / "ledger").jobs[0].cached


def test_new_templates_are_those_of_no_earlier_batch(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    assert not run(write(tmp_path / "first", "oom", "key"), ledger).novelty.compared
    again = write(tmp_path / "second", "oom", "key", "ok", "ecc")
    novelty = run(again, ledger).novelty
    assert novelty.compared
    assert [one.template for one in novelty.templates] == [
        "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    ]
    assert (novelty.templates[0].jobs, novelty.templates[0].line) == (1, 31)
    last = run(again, ledger).novelty
    assert last.total == 0
    assert last.reason.startswith("0 templates near failures not seen in 2 earlier batches (")


def test_what_an_unfinished_batch_learned_is_still_new_when_it_goes_on(tmp_path: Path) -> None:
    ledger = tmp_path / "ledger"
    run(write(tmp_path / "first", "oom"), ledger)
    second = write(tmp_path / "second", "ecc", "key")
    with Ledger(ledger, str(second)) as store:
        next(triage(find_targets(str(second)).targets, store))
    found = run(second, ledger)
    assert [job.cached for job in found.jobs].count(True) >= 1
    assert {one.template for one in found.novelty.templates} >= {
        "RuntimeError: CUDA error: uncorrectable ECC error encountered",
        "KeyError: 'labels'",
    }


@pytest.mark.slow
def test_a_batch_killed_at_any_time_goes_on(tmp_path: Path) -> None:
    logs = write(tmp_path / "logs", *["oom", "key", "ecc", "ok"] * 50)
    command = [
        *(sys.executable, "-m", "schedmate", "triage", str(logs), "--json", "--jobs", "2"),
        *("--ledger", str(tmp_path / "ledger"), "--out", str(tmp_path / "report.html")),
    ]
    stored = 0
    for _ in range(3):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, start_new_session=True)
        while process.poll() is None and _verdicts(tmp_path / "ledger") <= stored:
            time.sleep(0.02)
        process.kill()  # the process alone: those it started must end by themselves
        process.wait()
        assert all_ended(process.pid)
        assert _verdicts(tmp_path / "ledger") >= stored
        stored = _verdicts(tmp_path / "ledger")
    assert stored > 0
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    assert sum(job["cached"] for job in found["jobs"]) == stored
    assert found["totals"]["failed"] == 150
    assert sorted(len(one["jobs"]) for one in found["groups"]) == [50, 50, 50]
    assert (tmp_path / "report.html").read_text().endswith("</html>\n")
    # a kill while the report is synced to disk leaves its hidden beginning, under a name of its own
    left = {path.name for path in tmp_path.iterdir() if not path.name.startswith(".report.html.")}
    assert left == {"logs", "ledger", "report.html"}


def _verdicts(ledger: Path) -> int:
    """Stored verdicts, read from a copy so as not to take part."""
    copy, journal = ledger.with_name("copy"), ledger.with_name("copy-journal")
    try:
        copy.write_bytes(ledger.read_bytes())
        if (hot := ledger.with_name("ledger-journal")).exists():
            journal.write_bytes(hot.read_bytes())  # of a commit that was killed
        with sqlite3.connect(copy) as database:
            count = int(database.execute("SELECT count(*) FROM verdict").fetchone()[0])
    except (OSError, sqlite3.Error):
        return 0
    finally:
        copy.unlink(missing_ok=True)
        journal.unlink(missing_ok=True)
    return count


# `schedmate`, but that the last log of a batch is never done.
UNENDING = """
import time
from schedmate.logparse.triage import run

within = run.examine_within

def examine(target, shared):
    if target.index == 250:
        time.sleep(3600)
    return within(target, shared)

if __name__ == "__main__":
    from schedmate.cli import main
    run.examine_within = examine
    main()
"""


def test_ctrl_c_leaves_no_half_written_report(tmp_path: Path) -> None:
    logs = write(tmp_path / "logs", *["oom", "key"] * 125, "ok")
    (tmp_path / "report.html").write_text("the old one")
    (tmp_path / "unending.py").write_text(UNENDING)
    process = subprocess.Popen(
        [
            *(sys.executable, str(tmp_path / "unending.py"), "triage", str(logs), "--jobs", "2"),
            *("--ledger", str(tmp_path / "ledger"), "--out", str(tmp_path / "report.html")),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while process.poll() is None and not _verdicts(tmp_path / "ledger"):
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in out + err
    assert (tmp_path / "report.html").read_text() == "the old one"
    left = {path.name for path in tmp_path.iterdir()}
    assert left == {"logs", "ledger", "report.html", "unending.py"}
    assert all_ended(process.pid)


def test_two_batches_do_not_share_a_ledger(tmp_path: Path) -> None:
    with Ledger(tmp_path / "ledger", "a"):
        with pytest.raises(LedgerError, match="another triage is using it"):
            Ledger(tmp_path / "ledger", "b")
    with Ledger(tmp_path / "ledger", "b"):
        pass


@pytest.mark.parametrize("documents", [1, 1000])
def test_a_full_disk_is_one_sentence(tmp_path: Path, documents: int) -> None:
    [target] = find_targets(str(write(tmp_path / "logs", "ok"))).targets
    ledger = Ledger(tmp_path / "ledger", "a")
    [[pages]] = ledger._db.execute("PRAGMA page_count")
    ledger._db.execute(f"PRAGMA max_page_count = {pages}")
    with pytest.raises(LedgerError, match="is full; name another file"), ledger:  # noqa: PT012
        for number in range(documents):
            ledger.add_verdict(target, Outcome(number.to_bytes(4), "x" * 9000))


def test_a_ledger_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "ledger").write_text("something else, and long enough to be no new database\n" * 50)
    with pytest.raises(LedgerError, match="name another file with --ledger"):
        Ledger(tmp_path / "ledger", "a")


def _die_on_oom(target: Target, known: frozenset[bytes]) -> Outcome:
    if "oom" in target.job_id:
        os._exit(9)
    return examine(target, known)


def test_a_log_that_kills_its_process_ends_nothing_else(tmp_path: Path) -> None:
    targets = find_targets(str(write(tmp_path / "logs", "key", "oom", "ecc", "ok"))).targets
    results = dict(spread(_die_on_oom, targets, frozenset(), processes=2))
    assert {target.job_id for target, one in results.items() if one is None} == {"job-002-oom"}
    with Ledger(None, "a") as store:
        from schedmate.logparse.triage.run import _verdict

        verdict, _ = _verdict(targets[1], Outcome(error=ENDED), store)
    assert verdict.error == ENDED


def test_a_handler_that_fails_is_an_error_of_its_job(tmp_path: Path) -> None:
    def handler(_log: object) -> Diagnosis:
        raise ZeroDivisionError("oops")

    target = find_targets(str(write(tmp_path / "logs", "key"))).targets[0]
    assert examine(target, frozenset(), handler).error == "internal error, ZeroDivisionError: oops"


@pytest.mark.slow
@pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed")
def test_the_same_on_ray(tmp_path: Path) -> None:
    logs = write(tmp_path / "logs", "oom", "key", "ecc", "ok")
    (logs / "empty.log").touch()
    documents = []
    for how in (("--ray", "local"), ("--jobs", "1")):
        done = subprocess.run(
            [
                *(sys.executable, "-m", "schedmate", "triage", str(logs), "--json", *how),
                *("--ledger", str(tmp_path / how[0])),
            ],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
        )
        documents.append(json.loads(done.stdout))
    assert documents[0] == documents[1]
    assert documents[0]["totals"]["failed"] == 3


def test_the_strip_shows_what_each_stretch_holds_and_where_the_failure_is(tmp_path: Path) -> None:
    logs = write(tmp_path / "logs", "oom")
    path = logs / "job-001-oom.log"
    path.write_text(log("oom", steps=2000) + "[rank1]: more after it\n" * 3)
    found = run(logs, None).jobs[0].diagnosis
    assert found is not None
    with open_log(path) as opened:
        shown = strip(opened, found)
    assert shown is not None
    kinds = [cell.kind for cell in shown.cells]
    assert kinds[2:-2] == ["progress"] * (len(kinds) - 4)
    assert shown.located is not None
    assert kinds[shown.located] == "error"
    lines = [cell.line for cell in shown.cells] + [10**9]
    assert lines[0] == 1
    assert lines == sorted(set(lines))
    assert lines[shown.located] <= (found.line or 0) < lines[shown.located + 1]


def test_a_log_that_takes_too_long_is_one_error(tmp_path: Path) -> None:
    """Its process is ended; the others' verdicts are there."""
    logs = write(tmp_path / "logs", "oom", "key", "ok")
    script = tmp_path / "endless.py"
    script.write_text(ENDLESS)
    done = subprocess.run(
        [sys.executable, str(script), "triage", str(logs), "--jobs", "2", "--json"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SCHEDMATE_MEMORY_MB": "512"},
    )
    jobs = {Path(job["log"]).name: job for job in json.loads(done.stdout)["jobs"]}
    assert len(jobs) == 3, done.stderr
    errors = [job["error"] for job in jobs.values() if job["error"]]
    assert len(errors) == 2
    assert any("killed or crashed" in one for one in errors)
    assert any("takes more than 512 MiB of memory" in one for one in errors)


# `schedmate`, but that one log is never read to its end, and one takes all memory.
ENDLESS = """
from schedmate.logparse.triage import run

examine_within = run.examine_within

def examine(target, shared):
    within = run.examine
    def hostile(target, known):
        if target.index == 1:
            while True:
                pass
        if target.index == 2:
            bytes(1 << 30)
        return within(target, known)
    run.examine, run.MOST_CPU_S = hostile, 0.5
    try:
        return examine_within(target, shared)
    finally:
        run.examine = within

if __name__ == "__main__":
    from schedmate.cli import main
    run.examine_within = examine
    main()
"""
