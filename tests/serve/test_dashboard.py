"""The dashboard: what it shows, who may decide, and how it looks in a real browser."""

from __future__ import annotations

import base64
import os
import re
import sys
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from served import TOKEN, Served, served, wait_until
from test_service import KNOWN

from schedmate.cluster.actions import Drain
from schedmate.cluster.memory import KnownJob, Memory
from schedmate.cluster.record import Plan, Reason, Record
from schedmate.cluster.report import Checked, Failed
from schedmate.jobs import (
    Diagnosis,
    Estimate,
    EvidenceLine,
    JobRecord,
    JobSpec,
    LaunchConfig,
    Neighbour,
    Progress,
    WorkloadMetadata,
)
from schedmate.serve import board

REPORT = Path(__file__).parent.parent / "report"
sys.path.insert(0, str(REPORT))
from browser import MISSING, Browser, browser  # noqa: E402

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>\u202e\x1b[31m"
MEASURE, CONTRAST = ((REPORT / f"{name}.js").read_text() for name in ("measure", "contrast"))
XID = "NVRM: Xid (PCI:0000:3b:00): 79, pid=4021, GPU has fallen off the bus."


def estimate(seconds: float) -> Estimate:
    near = Neighbour(job_id="old", similarity=1, weight=1, duration_s=1, adjusted_duration_s=1)
    return Estimate(
        duration_s=seconds, duration_p10_s=0.8 * seconds, duration_p50_s=seconds,
        duration_p90_s=1.3 * seconds, neighbours=[near] * 5, method="weighted", abstained=False,
    )  # fmt: skip


def updates(now: float) -> list[board.Update]:
    """A cluster's morning: jobs that wait, run, failed and ended, some with hostile names."""
    names = ["resnet50-imagenet", "llama-7b-sft", "gpt2-small", HOSTILE, "bert-large-squad"]
    found: list[board.Update] = []
    for n in range(9):
        job = JobSpec(
            job_id=f"48210{n}", name=names[n % 5], user=["ann", "bob", HOSTILE][n % 3],
            launch=LaunchConfig(gpus=2 ** (n % 6)), submit_time=now - 300.0 * (n + 1),
        )  # fmt: skip
        told = (
            estimate(3600.0 * (n + 1)) if n % 4 else Estimate(reason="no similar job: " + HOSTILE)
        )
        found.append(board.Advised(job, told, now))
    for n in range(4):
        job = JobSpec(job_id=f"48190{n}", name=names[n], user="carol", launch=LaunchConfig(gpus=8))
        progress = Progress(
            step_time_s=0.41 * (n + 1), iteration=1200 * (n + 1), total_iterations=10_000,
            eta_s=3600.0 * (4 - n), loss=None if n == 3 else 2.31,
            loss_state="nan" if n == 3 else None,
        )  # fmt: skip
        found.append(board.Tracked(job, progress, now - 5, "/logs/x.out", None, False))
    for n, (kind, name) in enumerate(
        [
            ("infrastructure", "NVLink Error"),
            ("framework", "Out of Memory"),
            ("script", "Key Error"),
        ]
    ):
        job = JobSpec(job_id=f"48170{n}", user="dan", node_names=["gpu-7", f"gpu-{n}"])
        lines = [
            EvidenceLine(file="/logs/rank3.out", line=8123 + n, text=XID, note="decided"),
            EvidenceLine(file="/logs/rank3.out", line=8130 + n, text=HOSTILE + " x" * 80),
        ]
        said = Diagnosis(
            error_type=kind, error_name=name, node="gpu-7" if n == 0 else None, line=8123 + n,  # type: ignore[arg-type]
            file="/logs/rank3.out", rank=3, evidence=lines, rule="xid-79",
            reason="The GPU fell off the bus, as the kernel of the node says.",
        )  # fmt: skip
        found.append(board.Diagnosed(job, said, now - 60.0 * n))
    for n in range(30):
        job = JobSpec(job_id=f"done-{n}", submit_time=now - 9_000)
        found.append(board.Advised(job, estimate(1_000.0), now - 8_000))
        record = JobRecord(
            job_id=f"done-{n}", state="COMPLETED", duration_s=600.0 + 40 * n, end_time=now - n
        )
        found.append(board.Heard(record, now))
    return found


def proposed(path: Path) -> Plan:
    evidence = EvidenceLine(file="kern.log", line=77, text=XID, origin="node_log")
    plan = Plan.of(
        "recovery", cluster="alpha", key="job 17 run 0", created=time.time(),
        reason=Reason(
            summary=f"GPU 3 of gpu-7 fell off the bus {HOSTILE}", verdict="NVLink Error",
            job="481700",
            confirmed_by="the kernel log of gpu-7", evidence=(evidence,),
        ),
        actions=[Drain(node="gpu-7", mark="nvlink-error")],
    )  # fmt: skip
    with Record(path) as record:
        record.propose(plan, by="agent")
    return plan


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A service with a token, over TCP, that has something to show."""
    folder = tmp_path_factory.mktemp("dashboard")
    proposed(folder / "record.db")
    with served(folder, port=0, token=TOKEN) as one:
        one.service.board.write(updates(time.time()))
        yield one


@contextmanager
def signed_in(one: Served) -> Iterator[Any]:
    """A client with a session."""
    with one.client() as client:
        answer = client.post("/login", data={"token": TOKEN})
        assert answer.status_code == 303
        cookie = answer.headers["set-cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=strict" in cookie
        yield client


def test_what_jobs_are_called_is_only_text(shown: Served) -> None:
    page = shown.get("/", token=TOKEN)
    assert page.status_code == 200
    assert "<img" not in page.text
    assert page.text.count("<script") == 1
    assert "&lt;script&gt;alert(1)" in page.text
    assert "\x1b" not in page.text
    assert "\u202e" not in page.text
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy


def test_it_shows_the_board(shown: Served) -> None:
    text = shown.get("/", token=TOKEN).text
    for words in (
        "4 running, 9 waiting, 1 plan to decide", "2 h 00 min", "1 h 36 min to 2 h 36 min",
        "no similar job", "1,200 of 10,000", "from its log", "NVLink Error", "8123",
        "take node gpu-7 out of service", "Confirmed by the kernel log", "ended within",
    ):  # fmt: skip
        assert words in text, words


def test_a_job_a_node_and_a_search_have_pages(tmp_path: Path) -> None:
    now = time.time()
    log = tmp_path / "logs" / "rank 3.out"
    log.parent.mkdir()
    log.write_text("".join(f"line {n} {HOSTILE if n == 49 else ''}\n" for n in range(1, 100)))
    plan = proposed(tmp_path / "record.db")
    with served(tmp_path, port=0, roots=(tmp_path / "logs",)) as one:
        said = Diagnosis(
            error_type="infrastructure", error_name="NVLink Error", node="gpu-7", line=50,
            file=str(log), reason="The GPU fell off the bus.",
        )  # fmt: skip
        told: list[board.Update] = []
        for n in range(24):
            nodes = ["gpu-7" if n < 8 else f"gpu-{n % 4}"]
            spec = JobSpec(job_id=f"c/{n}", name="train", node_names=nodes, submit_time=now - 99)
            if n < 6:
                told.append(board.Diagnosed(spec, said, now - n))
            else:
                told.append(board.Tracked(spec, Progress(iteration=1), now, None, None, False))
                done = JobRecord(job_id=f"c/{n}", state="COMPLETED", duration_s=9.0, end_time=now)
                told.append(board.Heard(done, now))
        told += [
            board.Tracked(
                JobSpec(job_id="c/7"), Progress(loss=3.0 / n, step_time_s=0.5, iteration=n),
                now - 60 + n, str(log), None, False,
            )
            for n in range(1, 900)
        ]  # fmt: skip
        told.append(board.Diagnosed(JobSpec(job_id="481700", name=HOSTILE), said, now))
        one.service.board.write(told)
        assert 200 <= len(one.service.board.readings("c/7")) <= board.MOST_READINGS
        past = {
            "job_id": "past", "metadata": KNOWN, "state": "COMPLETED", "duration_s": 100.0,
            "submit_time": now - 500, "end_time": now - 400, "user": "zoe", "launch": {"gpus": 8},
        }  # fmt: skip
        late = {"job_id": "recent", "submit_time": now - 300, "end_time": now - 180}
        jobs = [past, {**past, **late}]
        assert one.post("/v1/history", {"jobs": jobs}).status_code == 200

        failed = one.get("/jobs/481700").text
        assert '<tr class="failing" aria-current="true"><td class="n">50</td>' in failed
        assert HOSTILE not in failed
        assert f"Plan {plan.id}: proposed" in failed
        assert "/nodes/gpu-7" in failed
        course = one.get("/jobs/c%2F7").text
        assert course.count("<svg") == 2
        assert "Loss over time" in course
        stored = one.get("/jobs/recent").text
        assert 'href="/jobs/past"' in stored
        assert "resnet" in stored
        node = one.get("/nodes/gpu-7").text
        assert "Suspect: test it before jobs run on it." in node
        assert "6 of 8 jobs" in node or "7 of 9 jobs" in node
        assert "no more than chance explains" in one.get("/nodes/gpu-1").text
        for path, target in (("q=481700", "/jobs/481700"), ("q=gpu-7", "/nodes/gpu-7")):
            assert one.get(f"/search?{path}").headers["location"] == target
        assert 'href="/jobs/past"' in one.get("/search?q=ZOE").text
        assert 'href="/jobs/c%2F3"' in one.get("/search?q=trai").text
        assert one.get("/jobs/none").status_code == 404
        assert one.get("/nodes/none").status_code == 404
        one.service._count_month(time.time())
        first = one.get("/").text
        assert "Ended jobs a day, by outcome" in first
        assert "GPU hours of ended jobs a day" in first


def test_what_a_log_shows_is_no_queue_and_no_failure(tmp_path: Path) -> None:
    """A job of which only a log without a failure was read, and one whose log has ended."""
    now, good = time.time(), Diagnosis(error_type="none", reason="no failure was found")
    stopped = Progress(
        iteration=90, total_iterations=1_000, step_time_s=0.5, eta_s=0.0, ended="stopped"
    )
    with served(tmp_path) as one:
        one.service.board.write([
            board.Diagnosed(JobSpec(job_id="good"), good, now),
            board.Tracked(JobSpec(job_id="over"), stopped, now, "/logs/x.out", None, False),
        ])  # fmt: skip
        page, job = one.get("/").text, one.get("/jobs/over").text
        assert "1 running, 0 waiting" in page
        assert "no failure was found" not in page
        about = one.get("/jobs/good").text
        assert "no failure was found" in about
        assert "PENDING" not in about
        assert "stopped, by its log" in page
        assert "0 s" not in page
        assert "90 of 1,000" in job
        assert "0.5 s" in job


def test_a_job_is_dropped_a_month_after_it_was_heard_of(tmp_path: Path) -> None:
    day = 86_400.0
    with closing(board.Board(tmp_path)) as kept:
        for at in (0.0, 20 * day, 31 * day):
            kept.write([board.Heard(JobRecord(job_id=f"at-{at:.0f}", state="RUNNING"), at)])
        assert {one["job_id"] for one in kept.running()} == {f"at-{n * day:.0f}" for n in (20, 31)}


def test_it_shows_the_jobs_of_an_agent(tmp_path: Path) -> None:
    now, folder = time.time(), tmp_path / "agent"
    with Memory(folder / "memory.db") as memory:
        for n in (1, 2):
            spec = JobSpec(name=f"net{n}", user="ann", command="python train.py")
            known = KnownJob(f"{n}@5", now - 9, spec, WorkloadMetadata(), estimate(600.0), "")
            memory.remember(known)
        memory.keep_progress("2", "2@5", now - 5, Progress(iteration=7, step_time_s=0.5))
        ended = Checked(
            run="3@5", user="bob", ended=now - 3, state="COMPLETED", took_s=60.0, limit_s=None
        )
        memory.learned(["3@5"], now, {}, [ended])
        times = {"p10": now + 90, "p50": now + 630, "p90": now + 7300, "scheduler": now + 9030}
        memory.set_mark("starts", {"1": times})
        memory.set_mark("used", {"2": {"gpu": 0.31, "cpu": None, "gpu_memory_mb": 12_800.0}})
    said = Diagnosis(error_type="script", error_name="Key Error", reason="no such key")
    failed = Failed(job="4", run="4@5", state="FAILED", nodes=("gpu-1",), log=None, diagnosis=said)
    with Record(folder / "record.db") as record:
        document = failed.model_dump(mode="json", exclude_defaults=True)
        record.observe("failure", "4@5", by="agent", data=document)
    with served(tmp_path, agent=folder, follow_s=0.05) as one:
        kept = one.service.board
        wait_until(lambda: kept.job("4") is not None)
        states = {name: (kept.job(name) or {}).get("state") for name in "1234"}
        assert states == {"1": "PENDING", "2": "RUNNING", "3": "COMPLETED", "4": "FAILED"}
        page = one.get("/").text
        assert "10 min 00 s" in page
        assert re.search(r"10 min \d+ s \(1 min \d+ s to 2 h \d+ min\); by the scheduler 2 h", page)
        assert "Key Error" in page
        assert "GPU 31%, 12.5 GiB of a GPU" in page
        assert "GPU 31%, 12.5 GiB of a GPU" in one.get("/jobs/2").text
        assert "Uses" not in one.get("/jobs/1").text


def test_it_takes_a_session_of_its_own_to_decide(shown: Served, tmp_path: Path) -> None:
    [plan] = [one.plan.id for one in shown.service.plans.list() if one.state == "proposed"]
    with shown.client() as stranger:
        assert stranger.get("/").headers["location"] == "/login"
        assert stranger.post("/login", data={"token": "guess"}).status_code == 403
        refused = stranger.post(f"/plans/{plan}", data={"decision": "approve", "by": "eve"})
        assert refused.status_code == 401
    with signed_in(shown) as client:
        csrf = re.search(r'name="csrf" value="([^"]+)"', client.get("/").text)
        assert csrf is not None
        for form, origin, status in (
            ({"by": "ann", "decision": "approve"}, None, 403),
            ({"by": "ann", "decision": "approve", "csrf": "x"}, None, 403),
            ({"by": "ann", "decision": "approve", "csrf": csrf[1]}, "http://evil.example", 403),
            ({"by": " ", "decision": "approve", "csrf": csrf[1]}, None, 422),
            ({"by": "ann", "decision": "burn", "csrf": csrf[1]}, None, 422),
        ):
            headers = {"Origin": origin} if origin else {}
            answer = client.post(f"/plans/{plan}", data=form, headers=headers)
            assert answer.status_code == status
        assert client.get("/v1/plans").status_code == 401  # a session is for pages only
        assert client.post("/logout").status_code == 303
        assert client.get("/").status_code == 303
    assert shown.service.plans.list()[0].state == "proposed"


def test_an_empty_dashboard_without_a_token_says_what_to_do(tmp_path: Path) -> None:
    with served(tmp_path) as one:
        text = one.get("/").text
        assert "/v1/advise" in text
        assert "nothing to sign in with" in one.get("/login").text
        proposed(tmp_path / "record.db")
        assert "schedmate recover approve" in one.get("/").text
        with one.client() as client:
            form = {"decision": "approve", "by": "x"}
            refused = client.post("/plans/0123456789ab", data=form)
        assert refused.headers["location"] == "/login"


def test_followed_logs_are_read_again_until_the_job_ends(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("".join(f"step {n}/1000 loss 2.5 step_time 2.0 s\n" for n in range(1, 50)))
    with served(tmp_path, roots=(tmp_path.resolve(),), follow_s=0.05) as one:
        body = {"job": {"job_id": "5"}, "log": str(log), "follow": True}
        assert one.post("/v1/track", body).status_code == 200

        def at() -> int:
            running = one.service.board.running()
            return running[0]["progress"]["iteration"] if running else 0

        wait_until(lambda: at() == 49)
        with log.open("a") as stream:
            stream.write("".join(f"step {n}/1000 loss 2 step_time 2.0 s\n" for n in range(50, 90)))
        wait_until(lambda: at() == 89)
        ended = {"jobs": [{"job_id": "5", "state": "COMPLETED", "duration_s": 180.0}]}
        one.post("/v1/history", ended)
        wait_until(lambda: not one.service.board.running())
        assert one.service.board.followed(10) == []


def test_a_log_that_is_silent_for_long_is_no_job_that_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("".join(f"step {n}/1000 loss 2.5 step_time 2.0 s\n" for n in range(1, 50)))
    os.utime(log, (time.time() - 8 * 3600,) * 2)
    with served(tmp_path, roots=(tmp_path.resolve(),), follow_s=0.05) as one:
        body = {"job": {"job_id": "5"}, "log": str(log), "follow": True}
        assert one.post("/v1/track", body).status_code == 200
        wait_until(lambda: any(job["conditions"] for job in one.service.board.running()))
        for page in ("/", "/jobs/5"):
            text = one.get(page).text
            assert "last progress 8 h 00 min ago" in text
            assert "left, from its log" not in text


def test_what_a_person_should_know_of_a_job_is_on_the_board(tmp_path: Path) -> None:
    now = time.time()
    slow = Progress(iteration=10, total_iterations=1_000, step_time_s=60.0, eta_s=59_400.0)
    bug = Diagnosis(error_type="script", error_name="Key Error", node="gpu-18", reason="a key")
    launch = LaunchConfig(gpus=8, time_limit_s=7_200)
    late = JobSpec(job_id="late", launch=launch, node_names=["gpu-18"])
    begun = JobRecord(job_id="late", state="RUNNING", start_time=now - 3_600, launch=launch)
    lost = JobRecord(job_id="lost", state="NODE_FAIL", duration_s=9.0, end_time=now - 60)
    ended = JobRecord(job_id="bug", state="FAILED", duration_s=9.0, end_time=now - 7_200)
    with served(tmp_path) as one:
        one.service.board.write([
            board.Tracked(late, slow, now, "/logs/x.out", None, False), board.Heard(begun, now),
            board.Heard(lost, now), board.Heard(ended, now),
            board.Diagnosed(JobSpec(job_id="bug", node_names=["gpu-18"]), bug, now),
        ])  # fmt: skip
        page, node = one.get("/").text, one.get("/nodes/GPU-18").text
        assert "too long for its time limit" in page
        assert "1 h 00 min" in page
        assert "1 failed today without a diagnosis" in page
        assert 'href="/jobs/lost"' in page
        assert "2 h 00 min ago" in page, "when it failed, not when it was diagnosed"
        assert 'data-l="times the cause">0<' in page, "a user's bug is no node's"
        assert "is known to run" in node, "names of nodes are as they are written"
        assert one.get("/search?q=GPU-18").headers["location"] == "/nodes/gpu-18"
        node = one.get("/nodes/gpu-18").text
        assert "Jobs that run on it" in node
        assert "names this node" not in node
        missing = one.get("/jobs/none")
        assert missing.status_code == 404
        assert 'role="search"' in missing.text
        assert "Sign in" not in missing.text


@pytest.fixture(scope="module")
def window(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    if MISSING is not None:
        pytest.skip(f"{MISSING}; .ci/install browser installs it")
    with browser(tmp_path_factory.mktemp("browser")) as one:
        yield one


def visit(window: Browser, one: Served, page: str = "") -> None:
    window.call("POST", "/url", {"url": f"http://127.0.0.1:{one.address}/{page}"})
    if window.run("return location.pathname") == "/login":
        window.type("input[name=token]", TOKEN)
        window.click("button.yes")
        window.wait_for("return document.querySelector('#queue') !== null")


@pytest.mark.browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [400, 1280])
def test_it_fits_and_can_be_read(
    window: Browser, shown: Served, width: int, scheme: str, tmp_path: Path
) -> None:
    window.resize(width, prefers_color_scheme=scheme)
    for page in ("", "jobs/481701", "nodes/gpu-7", "search?q=gpu", ""):
        visit(window, shown, page)
        assert window.run(MEASURE, False) == [], page
        assert window.run(CONTRAST) == [], page
    # nothing was refused by the policy, and nothing hostile ran
    assert [one for one in window.messages() if "favicon" not in one] == []
    picture = window.devtools("Page.captureScreenshot", captureBeyondViewport=True)["data"]
    (tmp_path / f"dashboard-{width}-{scheme}.png").write_bytes(base64.b64decode(picture))


@pytest.mark.browser
def test_a_plan_is_approved_in_the_browser(window: Browser, tmp_path: Path) -> None:
    plan = proposed(tmp_path / "record.db")
    with served(tmp_path, port=0, token=TOKEN) as one:
        window.resize(1280)
        visit(window, one)
        window.type("input[name=by]", "ann")
        window.type("input[name=note]", "saw the Xid")
        window.click(f"#p-{plan.id} button[value=approve]")
        window.wait_for("return document.querySelector('article.plan') === null")
        [status] = one.service.plans.list()
    assert (status.state, status.by, status.note) == ("approved", "ann (dashboard)", "saw the Xid")


@pytest.mark.browser
def test_it_keeps_itself_up_to_date(window: Browser, tmp_path: Path) -> None:
    with served(tmp_path, port=0) as one:
        window.resize(1280)
        visit(window, one)
        one.service.board.write(updates(time.time()))
        window.run("return renew()")
        window.wait_for("return document.querySelectorAll('#queue tbody tr').length === 9")
        window.click("#queue thead th:nth-child(3) button")
        window.click("#failures details:nth-of-type(2) summary")
        window.run("return renew()")
        window.wait_for(
            "return document.querySelector('#queue th:nth-child(3)').getAttribute('aria-sort')"
            " === 'ascending' && document.querySelectorAll('#failures details[open]').length === 2"
        )
        for _ in range(2):  # the longest first, not the last in the alphabet
            window.click("#running thead th:nth-child(6) button")
        cells = "[...document.querySelectorAll('#running td:nth-child(6)')]"
        lengths = window.run(f"return {cells}.map(one => +one.dataset.v)")
        assert lengths == sorted(lengths, reverse=True)
        assert len(lengths) == 4
        window.run("document.querySelector('#queue tbody a').focus()")
        window.run("return renew()")
        window.wait_for("return document.activeElement?.matches('#queue tbody a') === true")
