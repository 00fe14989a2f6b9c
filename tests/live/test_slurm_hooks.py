"""What runs inside Slurm's own daemons: the submit script and the epilog of examples/slurm."""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from agents import EXAMPLES, AgentFiles
from processes import LONG_S
from slurm_testbed import SUBMIT, Testbed, until
from training_jobs import TrainingJob, submit

pytestmark = [pytest.mark.live, pytest.mark.slow]


class Service:
    """A server on a unix socket that answers every request in one way."""

    def __init__(self, path: Path, answer: Callable[[dict[str, Any]], bytes]) -> None:
        self.requests: list[dict[str, Any]] = []
        self._answer = answer
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        path.chmod(0o666)
        self._listener.listen()
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            with connection:
                self._one(connection)

    def _one(self, connection: socket.socket) -> None:
        received = b""
        while b"\r\n\r\n" not in received:
            part = connection.recv(65_536)
            if not part:
                return
            received += part
        head, _, body = received.partition(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length:")[2].split()[0])
        while len(body) < length:
            part = connection.recv(65_536)
            if not part:
                return
            body += part
        assert head.startswith(b"POST /v1/advise HTTP/1.1\r\n")
        self.requests.append(json.loads(body))
        with suppress(OSError):  # it has given up
            connection.sendall(self._answer(self.requests[-1]))

    def close(self) -> None:
        """Stop."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()


def advice(seconds: float | None, summary: str) -> bytes:
    body = json.dumps({"duration_s": seconds, "summary": summary, "job_id": None}).encode()
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


@contextmanager
def submitting(bed: Testbed, deadline_s: float = 5.0) -> Iterator[Path]:
    """The controller asks a socket on submission; gives where."""
    file = bed.root / "etc" / "job_submit.lua"
    place = bed.root / "run" / "serve.sock"
    place.unlink(missing_ok=True)
    text = (EXAMPLES / "job_submit.lua").read_text()
    assert '"/run/schedmate/serve.sock"' in text
    time.sleep(1.0)  # the controller tells a change by the second in which it was made
    assert "DEADLINE_S = 0.05" in text
    text = text.replace("DEADLINE_S = 0.05", f"DEADLINE_S = {deadline_s}")
    file.write_text(text.replace("/run/schedmate/serve.sock", str(place)))
    try:
        yield place
    finally:
        time.sleep(1.0)
        file.write_text(SUBMIT)


def admin_comment(bed: Testbed, job: str) -> str:
    (found,) = [
        one
        for one in json.loads(bed.run("squeue", "--json").stdout)["jobs"]
        if str(one["job_id"]) == job
    ]
    return str(found["admin_comment"])


def test_a_submission_does_not_wait_for_a_slow_service(slurm: Testbed) -> None:
    with submitting(slurm, deadline_s=0.05) as place:
        submitted = threading.Event()

        def answer(_: object) -> bytes:
            assert submitted.wait(LONG_S)  # an answer would come only after the submission
            return advice(1.0, "too late")

        slow = Service(place, answer)
        late = slurm.submit("sleep 1")
        submitted.set()
        slow.close()
        assert slow.requests
        assert admin_comment(slurm, late) == ""


def test_after_three_submissions_without_an_answer_nobody_is_asked_for_a_minute(
    slurm: Testbed,
) -> None:
    with submitting(slurm, deadline_s=0.2) as place:
        service = Service(place, lambda _: time.sleep(0.3) or b"")
        for _ in range(5):
            slurm.submit("sleep 1")
            time.sleep(0.5)  # the service answers one after the other
        service.close()
        assert len(service.requests) == 3


def test_a_submission_asks_the_service_and_goes_on_without_it(slurm: Testbed) -> None:
    with submitting(slurm) as place:
        # nobody is there
        assert admin_comment(slurm, slurm.submit("sleep 1")) == ""

        service = Service(place, lambda _: advice(7200.0, "about 2 h, from 3 past runs"))
        odd = "echo 'it''s \"quoted\"' \\n $HOME\nsleep 1"
        job = slurm.submit(odd, '--job-name=na"me')
        assert admin_comment(slurm, job) == "schedmate: about 2 h, from 3 past runs"
        asked = service.requests[-1]["job"]
        assert asked["repo"] == str(slurm.jobs_folder)
        assert asked["name"] == 'na"me'
        assert odd in asked["command"].replace("'\\''", "'")
        service.close()

        place.unlink()
        for answer in (
            advice(None, "nothing is similar"),
            b"HTTP/1.1 503 Service Unavailable\r\n\r\n",
            b"nonsense",
            b"",
        ):
            service = Service(place, lambda _, answer=answer: answer)  # type: ignore[misc]
            assert admin_comment(slurm, slurm.submit("sleep 1")) == ""
            service.close()
            place.unlink()


def test_an_epilog_tells_the_agent_at_once(
    slurm: Testbed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = slurm.root / "run" / "spool"
    spool.mkdir()
    spool.chmod(0o1777)
    epilog = slurm.root / "etc" / "epilog"
    text = (EXAMPLES / "epilog-schedmate").read_text()
    epilog.write_text(text.replace("/var/spool/schedmate}", f"{spool}}}"))
    try:
        files = AgentFiles(slurm, tmp_path)
        # accounting is asked once an hour, but for what the epilog says
        files.allow(learn={"every": "1h", "spool": str(spool)})
        with files.opened() as setup:
            setup.agent.once()
            job = slurm.submit("exit 3")
            until("the epilog", 30, (spool / f"{job}.0").exists)
            assert (spool / f"{job}.0").read_text() == "3:0\n"
            until("the run", 30, lambda: setup.agent.once().learned > 0)
            setup.agent.once()
            assert not list(spool.iterdir())
            # something else in it does no harm
            (spool / "..x").write_text("x")
            (spool / "999999.0").write_text("x")
            assert not setup.agent.once().problems
    finally:
        epilog.write_text("#!/bin/sh\nexit 0\n")
        shutil.rmtree(spool)


def test_a_submission_gets_the_estimate_of_a_running_service(
    slurm: Testbed, files: AgentFiles, repository: Path
) -> None:
    files.know(repository)
    with submitting(slurm, deadline_s=60.0) as place:
        service = subprocess.Popen(
            [
                *(sys.executable, "-m", "schedmate", "serve", "--socket", str(place)),
                *("--socket-mode", "666", "--root", str(slurm.jobs_folder)),
                *("--history", str(files.history), "--state", str(files.folder / "serve")),
            ],
            env={**os.environ, "HOME": str(files.folder)},
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert service.stderr is not None
            for line in service.stderr:
                if json.loads(line)["message"] == "ready":
                    break
            job = submit(slurm, repository, TrainingJob("gpt2", 10), "--hold")
            said = admin_comment(slurm, job)
            slurm.run("scancel", job)
            estimate = slurm.run(
                "env", f"HOME={files.folder}", f"SCHEDMATE_HISTORY={files.history}",
                f"PATH={Path(sys.executable).parent}:{slurm.environment['PATH']}",
                "sh", str(EXAMPLES / "sbatch-estimate"), "--hold", "--parsable",
                f"--chdir={repository}", str(repository / "train.sh"), "gpt2", "10",
            )  # fmt: skip
            assert estimate.stdout.strip().isdecimal()
            slurm.run("scancel", estimate.stdout.strip())
        finally:
            service.terminate()
            assert service.wait(LONG_S) == 0
            assert service.stderr is not None
            service.stderr.close()
    assert said.startswith("schedmate: 3 s ("), said
    assert said.endswith("from 5 past runs")


def test_what_the_set_up_installs_works_as_its_user(slurm: Testbed, tmp_path: Path) -> None:
    if slurm.run("unshare", "-m", "true", check=False).returncode:
        pytest.skip("no mount namespaces here")
    # the controller, outside of the namespace, has to know the user, too
    made = slurm.run("id", "schedmate", check=False).returncode != 0
    if made:
        slurm.run("useradd", "--system", "--home-dir", "/var/lib/schedmate", "schedmate")
    slurm.run("sacctmgr", "-i", "delete", "user", "schedmate", check=False)
    try:
        done = slurm.run(
            *("unshare", "-m", "bash", str(Path(__file__).with_name("installed.sh"))),
            *(str(EXAMPLES), str(slurm.conf), str(tmp_path)),
            *(str(Path(sys.executable).parent / "schedmate"), sys.base_prefix),
            timeout=300,
        )
    finally:
        if made:
            slurm.run("userdel", "schedmate", check=False)
    said = done.stdout
    assert "may drain up to 4 nodes" in said
    assert "drained|schedmate: ecc-error-0123456789ab" in said
    assert "sudo allows anything" not in said
    assert "sudo lets the environment through" not in said
    assert "valid" in said.partition("== unit")[2].partition("==")[0], done.stderr
    doctor = json.loads(said.partition("== doctor")[2].partition("== agent")[0])
    checks = {one["name"]: one["status"] for one in doctor["checks"]}
    assert checks["agent"] == "ok", doctor
    assert "failed" not in checks.values(), doctor
    passed = json.JSONDecoder().raw_decode(said.partition("== agent")[2].lstrip())[0]
    assert (passed["cluster"], passed["problems"]) == ("testbed", [])
    assert re.search(r"-rw-r--r-- .* root +root .*bounds.yaml", said)
    assert re.search(r"drwxrws--- .* slurm +schedmate .*/var/spool/schedmate", said)
