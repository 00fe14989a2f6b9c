"""`schedmate watch`: one line a job by urgency, alarms once, webhooks, commands, restarts."""

from __future__ import annotations

import hmac
import json
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import jsonschema
import pytest
from cli_runner import Cli
from processes import ended_in_time

from schedmate.jobs.health import Health
from schedmate.logparse.reading import open_log
from schedmate.logparse.watch.alarms import CLEAR_LOOKS, AlarmEvent, Alarms
from schedmate.logparse.watch.health import WatchLimits, watch_log

SCHEMAS = Path(__file__).parent.parent / "docs" / "schemas"


def schema(name: str) -> dict[str, object]:
    return json.loads((SCHEMAS / f"{name}-v1.schema.json").read_text())  # type: ignore[no-any-return]


def write_log(
    path: Path, *, ended_s_ago: float = 0.0, every: float = 2.0, more: str = "", steps: int = 200
) -> Path:
    """A log of that many steps whose last line was written so long ago."""
    last = time.time() - ended_s_ago
    lines = []
    for n in range(1, steps + 1):
        at = datetime.fromtimestamp(last - (steps - n) * every, UTC)
        lines.append(f"{at:%Y-%m-%d %H:%M:%S} step {n}/9000 loss {4 - n / 100:.2f} lr 1e-4\n")
    path.write_text("".join(lines) + more)
    os.utime(path, (last, last))
    return path


@pytest.mark.parametrize("tracker", ["tensorboard", "csv"])
def test_a_run_is_followed_by_what_its_tracker_keeps(
    cli: Cli, tmp_path: Path, tracker: str
) -> None:
    last = time.time() - 3600
    times = [(n, last - 2.0 * (200 - n)) for n in range(1, 201)]
    run = tmp_path / "run"
    if tracker == "csv":
        run.mkdir()
        rows = [f"{n},{at:.3f},{4 - n / 100}\n" for n, at in times]
        (run / "metrics.csv").write_text("step,wall_time,train_loss\n" + "".join(rows))
        source = run / "metrics.csv"
    else:
        pytest.importorskip("tensorboard")
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.compat.proto.summary_pb2 import Summary
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        writer = EventFileWriter(str(run))
        for n, at in times:
            value = Summary.Value(tag="train/loss", simple_value=4 - n / 100)
            writer.add_event(Event(wall_time=at, step=n, summary=Summary(value=[value])))
        writer.close()
        source = run
    for file in run.iterdir():
        os.utime(file, (last, last))
    os.utime(run, (last, last))
    done = cli("watch", str(source))
    assert done.code == 0, done.err
    assert "stalled: last progress 1 h 00 min ago; usual interval 2 s" in done.out


def test_jobs_are_listed_by_urgency(cli: Cli, tmp_path: Path) -> None:
    write_log(tmp_path / "a.out")
    write_log(tmp_path / "b.out", ended_s_ago=3600)
    nan = "".join(f"step {n}/9000 loss nan lr 1e-4\n" for n in range(201, 240))
    write_log(tmp_path / "c.out", more=nan)
    write_log(tmp_path / "d.out", ended_s_ago=10 * 86_400)
    done = cli("watch", str(tmp_path), "--one-job-per-file")
    assert done.code == 0
    lines = done.out.splitlines()
    assert [line.split(":")[0] for line in lines] == ["c", "b", "a"]
    assert "diverged: the loss is NaN since iteration 201" in lines[0]
    assert "stalled: last progress 1 h 00 min ago; usual interval 2 s" in lines[1]
    assert "goes on: last progress" in lines[2]
    assert "1 logs were not written for longer than --idle" in done.err


def test_the_exit_code_says_whether_one_needs_attention(cli: Cli, tmp_path: Path) -> None:
    healthy = write_log(tmp_path / "a.out")
    assert cli("watch", str(healthy), "--exit-code").code == 0
    stalled = write_log(tmp_path / "b.out", ended_s_ago=3600)
    assert cli("watch", str(stalled)).code == 0
    assert cli("watch", str(stalled), "--exit-code").code == 8
    assert cli("watch", str(stalled), "--exit-code", "--least", "2h").code == 0
    assert cli("watch", str(tmp_path / "none")).code == 3
    assert cli("watch", str(healthy), "--follow", "--exit-code").code == 2


def test_the_document_fits_its_schema(cli: Cli, tmp_path: Path) -> None:
    write_log(tmp_path / "b.out", ended_s_ago=3600)
    document = json.loads(cli("watch", str(tmp_path), "--json", "--gpus", "8").out)
    jsonschema.validate(document, schema("watch"))
    (job,) = document["jobs"]
    assert job["health"]["conditions"][0]["gpu_hours"] == pytest.approx(8, rel=0.05)
    assert [event["state"] for event in document["events"]] == ["began"]


def test_a_list_says_when_jobs_are_ended(cli: Cli, tmp_path: Path) -> None:
    write_log(tmp_path / "a.out")
    ends = datetime.fromtimestamp(time.time() + 3600, UTC).isoformat(timespec="seconds")
    (tmp_path / "jobs.csv").write_text(f"job_id,log,gpus,ends\n4711,a.out,16,{ends}\n")
    done = cli("watch", str(tmp_path / "jobs.csv"))
    assert done.out.startswith("4711: late: will be killed 3 h 53 min before its end")
    alone = cli("watch", str(tmp_path / "a.out"), "--ends", "9h")
    assert "goes on" in alone.out


def test_what_cannot_be_delivered_is_an_error_at_once(cli: Cli, tmp_path: Path) -> None:
    log = str(write_log(tmp_path / "a.out"))
    for words in (
        ["--webhook", "ftp://x"],
        ["--webhook-key", str(tmp_path / "key")],
        ["--command", ""],
        ["--command", "'open"],
        ["--every", "0s", "--follow"],
    ):
        done = cli("watch", log, *words)
        assert done.code == 2, words
        assert "Traceback" not in done.err


def test_a_command_gets_each_alarm_once(cli: Cli, tmp_path: Path) -> None:
    log = write_log(tmp_path / "b.out", ended_s_ago=3600)
    told, script = tmp_path / "told", tmp_path / "tell.sh"
    script.write_text(f'#!/bin/sh\nprintf "%s\\n" "$ALARM_EVENT" >> {told}\n')
    script.chmod(0o700)
    words = ["watch", str(log), "--command", str(script), "--state", str(tmp_path / "s.sqlite")]
    for _ in range(3):
        assert cli(*words).code == 0
    (event,) = [json.loads(line) for line in told.read_text().splitlines()]
    jsonschema.validate(event, schema("alarm"))
    assert event["state"] == "began"
    write_log(log, steps=260)
    for _ in range(CLEAR_LOOKS + 1):
        cli(*words)
    states = [json.loads(line)["state"] for line in told.read_text().splitlines()]
    assert states == ["began", "over"]


def test_a_webhook_is_signed_and_tried_again(cli: Cli, tmp_path: Path) -> None:
    import threading
    from http.server import BaseHTTPRequestHandler, HTTPServer

    got: list[tuple[dict[str, str], bytes]] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((dict(self.headers), body))
            self.send_response(503 if len(got) == 1 else 204)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Receiver)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        log = write_log(tmp_path / "b.out", ended_s_ago=3600)
        key = tmp_path / "key"
        key.write_text("0123456789abcdef0123456789abcdef\n")
        state = tmp_path / "s.sqlite"
        words = [
            *("watch", str(log), "--webhook", f"http://127.0.0.1:{server.server_port}/hook"),
            *("--webhook-key", str(key), "--state", str(state)),
        ]
        first = cli(*words)
        assert "answered 503; it is tried again in 30 s" in first.err
        assert "/hook" not in first.err  # an address may hold a secret
        import sqlite3

        with sqlite3.connect(state) as db:
            db.execute("UPDATE events SET due = 0")
        db.close()
        cli(*words)
        cli(*words)
        assert len(got) == 2
        (_, one), (headers, body) = got
        assert one == body
        text = f"{headers['X-Schedmate-Time']}.".encode() + body
        digest = hmac.new(key.read_text().strip().encode(), text, sha256).hexdigest()
        assert headers["X-Schedmate-Signature"] == f"sha256={digest}"
    finally:
        server.shutdown()
        server.server_close()


def health(path: Path, now: float, before: Health | None = None) -> Health:
    with open_log(path) as log:
        written = path.stat().st_mtime
        return watch_log(log, now, written, limits=WatchLimits(least_s=0.0), before=before)


def test_alarms_survive_a_restart_and_have_hysteresis(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log", ended_s_ago=100)
    state = tmp_path / "alarms.sqlite"
    now = time.time()
    events: list[AlarmEvent] = []

    def look(at: float) -> list[str]:
        with Alarms(state) as alarms:  # a process each
            before = alarms.before("7", str(log))
            new = alarms.take("7", str(log), health(log, at, before))
        events.extend(new)
        return [event.state for event in new]

    assert look(now) == ["began"]
    assert look(now + 10) == []
    write_log(log, steps=260)
    for n in range(CLEAR_LOOKS - 1):
        assert look(now + 20 + n) == []
    assert look(now + 30) == ["over"]
    assert look(now + 31) == []
    assert events[0].id != events[1].id
    assert "no longer stalled, after 30 s: it goes on as usual" in events[1].summary


def test_the_end_of_a_job_ends_its_alarms_at_once(tmp_path: Path) -> None:
    log = write_log(tmp_path / "log", ended_s_ago=100)
    now = time.time()
    with Alarms(None) as alarms:
        assert len(alarms.take("7", "log", health(log, now))) == 1
        write_log(log, more="Training completed.\n")
        (event,) = alarms.take("7", "log", health(log, now + 1))
        assert "the job has ended" in event.summary
        write_log(log, ended_s_ago=100)
        alarms.take("7", "log", health(log, now + 2))
        assert [one.state for one in alarms.end("7", "log", now + 3)] == ["over"]
        assert alarms.standing("7", "log") == []


def test_following_prints_what_begins_and_what_is_over(tmp_path: Path) -> None:
    log = write_log(tmp_path / "job.out", every=0.2)
    command = [
        *(sys.executable, "-m", "schedmate", "watch", str(log), "--follow", "--every", "0.3s"),
        *("--least", "2s", "--state", str(tmp_path / "s.sqlite")),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    with ended_in_time(process):
        assert process.stdout is not None
        assert "goes on" in process.stdout.readline()
        assert "stalled: last progress" in process.stdout.readline()
        with log.open("a") as stream:
            for n in range(201, 2000):
                at = datetime.now(UTC)
                stream.write(f"{at:%Y-%m-%d %H:%M:%S} step {n}/9000 loss 1.9 lr 1e-4\n")
                stream.flush()
                time.sleep(0.2)
                if n > 240:
                    break
        assert "no longer stalled" in process.stdout.readline()
        process.terminate()
