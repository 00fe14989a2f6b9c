"""The service over a real socket: its answers, what it refuses, and what it never does."""

from __future__ import annotations

import json
import shutil
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from served import TOKEN, Served, served, wait_until

from schedmate.base.errors import InputError, UsageError
from schedmate.cluster.actions import Drain
from schedmate.cluster.record import Plan, Reason, Record
from schedmate.serve.options import Limits, ServeOptions, read_token

EXAMPLES = Path(__file__).parent.parent.parent / "schedmate" / "demo"
REPO = str(EXAMPLES / "train_repo")
COMMAND = "torchrun --nproc_per_node=4 train.py model=resnet50 trainer.epochs=60"
KNOWN = {
    "model_config": {"model_name": "resnet50", "task_type": "CV"},
    "training_config": {"iters": 60, "iter_type": "epoch"},
    "dataset_config": {"train": "CIFAR10", "valid": "CIFAR10"},
}
NEW = {**KNOWN, "model_config": {"model_name": "zyqx"}, "dataset_config": {"train": "wvu"}}
OOM = "step 1 loss 2\ntorch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
STEPS = "".join(f"step {n}/1000 loss 2.5 step_time 2.0 s\n" for n in range(1, 90))


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("logs").resolve()
    (folder / "oom.log").write_text(OOM)
    (folder / "run.log").write_text(STEPS)
    return folder


@pytest.fixture(scope="module")
def one(
    tmp_path_factory: pytest.TempPathFactory, logs: Path, _built_history: Path
) -> Iterator[Served]:
    """The service of the whole module, on the forty jobs of the examples and what tests add."""
    folder = tmp_path_factory.mktemp("serve")
    history = Path(shutil.copytree(_built_history, folder / "history"))
    with served(folder, history, roots=(EXAMPLES.resolve(), logs)) as running:
        yield running


def advise(one: Served, **body: Any) -> Any:
    answer = one.post("/v1/advise", body)
    assert answer.status_code == 200, answer.text
    return answer.json()


class TestAnswers:
    def test_advice_from_metadata_and_from_code_agree(self, one: Served) -> None:
        job = {"job_id": "17", "repo": REPO, "command": COMMAND, "launch": {"gpus": 4}}
        read = advise(one, job=job)
        assert read["source"] == "static"
        assert read["metadata"]["model_config"]["model_name"] == "resnet50"
        given = advise(one, job={"launch": {"gpus": 4}}, metadata=read["metadata"])
        assert (given["source"], given["metadata"]) == ("metadata", None)
        assert given["estimate"]["duration_p50_s"] == pytest.approx(
            read["estimate"]["duration_p50_s"]
        )
        assert 300 < given["duration_s"] < 1500  # the example history has it at 660 to 700 s
        assert given["summary"].endswith("past runs")
        assert given["history_size"] >= 40

    def test_it_abstains_from_what_it_does_not_know(self, one: Served) -> None:
        answer = advise(one, job={}, metadata=NEW)
        assert answer["estimate"]["abstained"]
        assert answer["duration_s"] is None
        assert answer["summary"].startswith("no estimate: no similar job")

    def test_progress_and_diagnosis(self, one: Served, logs: Path) -> None:
        log = str(logs / "run.log")
        answer = one.post("/v1/track", {"job": {"job_id": "3"}, "log": log}).json()
        assert answer["progress"]["step_time_s"] == pytest.approx(2.0)
        failed = [str(logs / "oom.log")]
        answer = one.post("/v1/diagnose", {"job": {"job_id": "3"}, "logs": failed}).json()
        assert answer["diagnosis"]["error_name"] == "Out of Memory"
        assert answer["diagnosis"]["line"] == 2

    def test_how_long_a_job_still_takes(self, one: Served, logs: Path) -> None:
        job = {"job_id": "still runs"}
        advise(one, job=job, metadata=KNOWN, record=True)
        body = {"job": job, "log": str(logs / "run.log")}
        assert one.post("/v1/track", body).json()["remaining"] is None
        early = one.post("/v1/track", {**body, "elapsed_s": 60.0}).json()["remaining"]
        assert "estimate" in early["sources"]
        assert early["remaining_p10_s"] < early["remaining_s"] < early["remaining_p90_s"]
        assert not early["unusual"]
        late = one.post("/v1/track", {**body, "elapsed_s": 1e7}).json()["remaining"]
        assert late["unusual"]
        unknown = {**body, "job": {"job_id": "nobody's"}, "elapsed_s": 60.0}
        assert "estimate" not in one.post("/v1/track", unknown).json()["remaining"]["sources"]
        assert one.post("/v1/track", {**body, "elapsed_s": -1.0}).status_code == 422

    def test_the_life_of_a_job(self, one: Served) -> None:
        size = one.get("/v1/history").json()["size"]
        advise(one, job={"job_id": "new", "user": "ann"}, metadata=KNOWN, record=True)
        stored = one.get("/v1/history?job_id=new").json()
        assert stored["size"] == size + 1
        assert stored["jobs"][0]["state"] == "PENDING"
        ended = {"job_id": "new", "state": "COMPLETED", "duration_s": 700.0}
        assert one.post("/v1/history/finish", ended).json()["duration_s"] == 700.0
        again = one.post(
            "/v1/advise", {"job": {"job_id": "new"}, "metadata": KNOWN, "record": True}
        )
        assert again.status_code == 409
        assert "COMPLETED" in again.json()["error"]
        wait_until(one.service.board.checked)
        [checked] = one.service.board.checked()
        assert (checked.duration_s, checked.place) == (700.0, "within")
        text = one.get("/metrics").text
        assert 'schedmate_estimates_checked_total{place="within"} 1.0' in text
        assert f"schedmate_history_jobs {size + 1}.0" in text

    def test_what_is_stored_is_known_to_the_next_estimate(self, one: Served) -> None:
        assert advise(one, job={}, metadata=NEW)["estimate"]["abstained"]
        jobs = [
            {"job_id": f"n{n}", "metadata": NEW, "state": "COMPLETED", "duration_s": 100.0,
             "submit_time": 1e9, "end_time": 1e9 + 100}
            for n in range(3)
        ]  # fmt: skip
        assert one.post("/v1/history", {"jobs": jobs}).json() == {"stored": 3}
        assert advise(one, job={}, metadata=NEW)["duration_s"] == pytest.approx(100.0)

    def test_many_at_once_are_all_stored(self, one: Served) -> None:
        def store(number: int) -> int:
            return one.post("/v1/history", {"jobs": [{"job_id": f"j{number}"}]}).status_code

        size = one.get("/v1/history").json()["size"]
        with ThreadPoolExecutor(16) as pool:
            assert set(pool.map(store, range(100))) == {200}
        assert one.get("/v1/history?job_id=j99").json()["size"] == size + 100

    def test_jobs_are_listed_by_state_and_user(self, one: Served) -> None:
        jobs = [{"job_id": "a", "user": "ann", "state": "RUNNING"}, {"job_id": "b", "user": "bob"}]
        one.post("/v1/history", {"jobs": jobs})
        ids = [job["job_id"] for job in one.get("/v1/history?state=RUNNING").json()["jobs"]]
        assert ids == ["a"]
        assert len(one.get("/v1/history?limit=7&offset=3").json()["jobs"]) == 7


class TestRefusals:
    @pytest.mark.parametrize(
        ("path", "body", "status", "words"),
        [
            ("/v1/advise", {"job": {}}, 422, "names no repository"),
            ("/v1/advise", {"job": {"repo": "/etc"}}, 403, "not below a directory"),
            ("/v1/advise", {"job": {"repo": f"{REPO}/../../schedmate"}}, 403, "not below"),
            ("/v1/advise", {"job": {"repo": f"{REPO}/nothing"}}, 422, "nothing"),
            ("/v1/advise", {"job": {"repo": "relative"}}, 403, "not below"),
            ("/v1/advise", {"job": {"repo": "/\0"}}, 403, "not below"),
            ("/v1/advise", {"job": {"colour": 1}}, 422, "body.job.colour"),
            ("/v1/advise", {"job": {}, "metadata": KNOWN, "record": True}, 422, "job_id"),
            ("/v1/track", {"job": {}, "log": "/dev/zero"}, 403, "not below"),
            ("/v1/diagnose", {"job": {}, "logs": []}, 422, "body.logs"),
            ("/v1/diagnose", {"job": {}, "logs": [REPO], "node_logs": ["/etc/shadow"]}, 403, "not"),
            ("/v1/history/finish", {"job_id": "nobody"}, 404, "no job 'nobody'"),
            ("/v1/history", {"jobs": [{"job_id": "x", "duration_s": -1}]}, 422, "duration_s"),
            ("/v1/nothing", {}, 404, "/openapi.json"),
        ],
    )
    def test_one_sentence_says_why(
        self, one: Served, path: str, body: Any, status: int, words: str
    ) -> None:
        answer = one.post(path, body)
        assert answer.status_code == status, answer.text
        assert words in answer.json()["error"]
        assert "\n" not in answer.json()["error"]

    def test_a_link_out_of_the_roots_is_not_followed(
        self, one: Served, logs: Path, tmp_path: Path
    ) -> None:
        (tmp_path / "secret.log").write_text(OOM)
        link = logs / "link.log"
        link.symlink_to(tmp_path / "secret.log")
        answer = one.post("/v1/diagnose", {"job": {}, "logs": [str(link)]})
        assert answer.status_code == 403

    def test_without_roots_nothing_is_read(self, tmp_path: Path) -> None:
        with served(tmp_path) as bare:
            answer = bare.post("/v1/advise", {"job": {"repo": REPO}})
        assert answer.status_code == 403
        assert "--root" in answer.json()["error"]

    def test_a_body_that_is_too_large_is_not_read(self, tmp_path: Path) -> None:
        with served(tmp_path, limits=Limits(body=1_000)) as small, small.client() as client:
            assert client.post("/v1/advise", json={"job": {"name": "x" * 2_000}}).status_code == 413

            chunks = (b"x" * 100 for _ in range(20))  # of a length that is not said
            chunked = client.post(
                "/v1/advise", content=chunks, headers={"Content-Type": "application/json"}
            )
            assert chunked.status_code == 413

    def test_only_json_is_taken(self, one: Served) -> None:
        with one.client() as client:
            plain = client.post("/v1/history", content='{"jobs": []}')
            broken = client.post(
                "/v1/history", content="{", headers={"Content-Type": "application/json"}
            )
        assert plain.status_code == 415
        assert broken.status_code == 422

    def test_a_client_that_asks_too_often_waits(self, tmp_path: Path) -> None:
        with served(tmp_path, limits=Limits(rate=0.001)) as slow, slow.client() as client:
            answers = [client.get("/v1/history") for _ in range(3)]
            assert client.get("/healthz").status_code == 200
        assert answers[-1].status_code == 429
        assert answers[-1].headers["Retry-After"] == "1"


class TestLoad:
    def test_beyond_what_is_taken_on_it_refuses_at_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        begun, go = threading.Semaphore(0), threading.Event()

        def hold(_: object) -> dict[str, int]:
            begun.release()
            go.wait()
            return {}

        with served(tmp_path, limits=Limits(in_flight=2)) as busy:
            monkeypatch.setattr(busy.service.plans, "list", lambda **_: hold(0) or [])
            with ThreadPoolExecutor(2) as pool:
                held = [pool.submit(busy.get, "/v1/plans") for _ in range(2)]
                for _ in held:
                    begun.acquire()
                refused = busy.get("/v1/history")
                assert busy.get("/healthz").status_code == 200
                go.set()
                assert [one.result().status_code for one in held] == [200, 200]
        assert refused.status_code == 503
        assert refused.headers["Retry-After"] == "1"

    def test_reading_that_hangs_delays_nobody_else(
        self, one: Served, logs: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("schedmate.readers.TRACK", "confined_work:sleep_deaf")

        def answers(deadline_s: float) -> tuple[bool, list[int]]:
            """Whether advice came before them, and the statuses of twelve that hang."""
            body = {"job": {}, "log": str(logs / "run.log"), "deadline_s": deadline_s}
            with ThreadPoolExecutor(12) as pool:
                hanging = [pool.submit(one.post, "/v1/track", body) for _ in range(12)]
                wait_until(lambda: not one.service.reading.idle or hanging[0].done())
                assert advise(one, job={}, metadata=KNOWN)["duration_s"] > 0
                before = not all(answer.done() for answer in hanging)
                return before, sorted(answer.result().status_code for answer in hanging)

        # four are read and four wait until their deadline; there is no room for the others
        expected = (True, [503] * 4 + [504] * 8)
        # a busy machine may not send twelve within the first deadline
        assert answers(3.0) == expected or answers(20.0) == expected

    def test_a_deadline_that_is_too_short_is_one(self, one: Served) -> None:
        answer = one.post("/v1/advise", {"job": {"repo": REPO}, "deadline_s": 1e-4})
        assert answer.status_code == 504
        assert advise(one, job={}, metadata=KNOWN)["duration_s"] > 0


class TestAccess:
    def test_with_a_token_everything_but_health_needs_it(self, tmp_path: Path) -> None:
        with served(tmp_path, token=TOKEN) as one:
            for path in ("/v1/history", "/v1/plans", "/metrics", "/openapi.json", "/nothing"):
                assert one.get(path).status_code == 401
                assert one.get(path, token="wrong").status_code == 401
            assert one.post("/v1/advise", {"job": {}}).status_code == 401
            assert one.get("/v1/history", token=TOKEN).status_code == 200
            assert {one.get(path).status_code for path in ("/healthz", "/readyz")} == {200}

    def test_other_names_and_other_sites_are_refused(self, tmp_path: Path) -> None:
        with served(tmp_path, port=0, names=frozenset({"gpu-login"})) as one:
            for host, status in (
                ("evil.example", 421), ("localhost", 200), ("GPU-Login:8765", 200), ("", 421),
            ):  # fmt: skip
                assert one.get("/v1/history", Host=host).status_code == status
            with socket.create_connection(("127.0.0.1", one.address)) as plain:
                twice = b"Host: evil.example\r\nHost: localhost\r\n"
                plain.sendall(b"GET /v1/history HTTP/1.1\r\n" + twice + b"\r\n")
                assert plain.recv(100).startswith(b"HTTP/1.1 400")
            jobs = {"jobs": [{"job_id": "1"}]}
            origin = f"http://127.0.0.1:{one.address}"
            for other in ("http://evil.example", "http://[", "null"):
                assert one.post("/v1/history", jobs, Origin=other).status_code == 403
            assert one.post("/v1/history", jobs, Origin=origin).status_code == 200
            site = {"Sec-Fetch-Site": "cross-site"}
            assert one.post("/v1/history", jobs, **site).status_code == 403

    def test_another_address_needs_a_token(self) -> None:
        for host in ("0.0.0.0", "::", "10.0.0.1", "gpu-login"):
            with pytest.raises(UsageError, match="--token-file"):
                ServeOptions(host=host)
            assert ServeOptions(host=host, token=TOKEN).token == TOKEN
        assert ServeOptions(host="::1").token is None
        assert TOKEN not in repr(ServeOptions(token=TOKEN))

    def test_a_token_file_is_secret(self, tmp_path: Path) -> None:
        path = tmp_path / "token"
        path.write_text(f"{TOKEN}\n")
        path.chmod(0o644)
        with pytest.raises(UsageError, match="chmod 600"):
            read_token(path)
        path.chmod(0o600)
        assert read_token(path) == TOKEN
        path.write_text("short")
        with pytest.raises(UsageError, match="at least 16"):
            read_token(path)
        for nothing in (tmp_path / "none", tmp_path):
            with pytest.raises((InputError, UsageError)):
                read_token(nothing)

    def test_a_token_file_names_people(self, tmp_path: Path) -> None:
        path = tmp_path / "token"
        path.touch(0o600)
        other = TOKEN[::-1]
        path.write_text(f"ann {TOKEN}\nbob {other}\n")
        assert read_token(path) == {"ann": TOKEN, "bob": other}
        for wrong in (f"ann {TOKEN}\nann {other}\n", f"ann {TOKEN}\nbob {TOKEN}\n", f"a b {TOKEN}"):
            path.write_text(wrong)
            with pytest.raises(UsageError):
                read_token(path)

    def test_what_a_person_decides_is_kept_under_their_name(self, tmp_path: Path) -> None:
        plan = proposed(tmp_path / "record.db")
        with served(tmp_path, token={"ann": TOKEN, "bob": TOKEN[::-1]}) as one:
            answer = one.post(
                f"/v1/plans/{plan.id}/approve", {"by": "bob"}, Authorization=f"Bearer {TOKEN}"
            )
            assert answer.status_code == 200
        with Record(tmp_path / "record.db") as record:
            (status,) = record.plans()
            assert "ann (own token)" in [entry.actor for entry in record.entries(about=plan.id)]
            assert status.state == "approved"


def proposed(path: Path, key: str = "job 17 run 0") -> Plan:
    plan = Plan.of(
        "recovery", cluster="alpha", key=key, created=1e9,
        reason=Reason(summary="ECC Error on gpu-7", verdict="ECC Error", job="17"),
        actions=[Drain(node="gpu-7", mark="ecc-error")],
    )  # fmt: skip
    with Record(path) as record:
        record.propose(plan, by="agent")
    return plan


class TestPlans:
    def test_without_a_record_there_are_none(self, one: Served) -> None:
        assert one.get("/v1/plans").json() == {"plans": []}

    def test_they_are_decided_with_the_token_only(self, tmp_path: Path) -> None:
        plan = proposed(tmp_path / "record.db")
        other = proposed(tmp_path / "record.db", "job 18 run 0")
        body = {"by": "ann", "note": "seen it"}
        with served(tmp_path) as bare:
            [shown, _] = bare.get("/v1/plans").json()["plans"]
            assert shown["state"] == "proposed"
            assert bare.post(f"/v1/plans/{plan.id}/approve", body).status_code == 403
        with served(tmp_path, token=TOKEN) as one:
            approved = one.post(f"/v1/plans/{plan.id}/approve", body, token=TOKEN)
            assert (approved.status_code, approved.json()["state"]) == (200, "approved")
            assert approved.json()["by"] == "ann (token)"
            again = one.post(f"/v1/plans/{plan.id}/approve", body, token=TOKEN)
            assert again.status_code == 409
            rejected = one.post(f"/v1/plans/{other.id}/reject", body, token=TOKEN)
            assert rejected.json()["state"] == "rejected"
            missing = one.post("/v1/plans/0123456789ab/approve", body, token=TOKEN)
            assert missing.status_code == 404
            text = one.get("/metrics", token=TOKEN).text
        assert 'schedmate_plans{state="approved"} 1.0' in text
        with Record(tmp_path / "record.db", read_only=True) as record:
            assert record.plan(plan.id).state == "approved"
            assert record.verify().broken is None


def test_metrics_have_no_label_that_a_user_can_choose(one: Served) -> None:
    for name in ("bandit\n", "x" * 300, "évil"):
        advise(one, job={"job_id": name, "user": name}, metadata=KNOWN)
        one.get(f"/v1/{name.encode().hex()}")
    text = one.get("/metrics").text
    assert "bandit" not in text
    assert b"bandit".hex() not in text
    series = [line for line in text.splitlines() if not line.startswith("#")]
    assert len(series) < 200


def test_logs_are_json_and_say_nothing_of_the_query() -> None:
    import logging

    from schedmate.base.logs import JsonFormatter

    record = logging.LogRecord("schedmate.serve", 20, "f", 1, "a \x1b[31m%s", ("b\nc",), None)
    record.fields = {"status": 200}
    line = JsonFormatter().format(record)
    document = json.loads(line)
    assert (document["message"], document["status"]) == ("a b c", 200)
    assert "\n" not in line


def test_what_nobody_foresaw_is_logged_and_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with served(tmp_path) as one:
        monkeypatch.setattr(one.service.plans, "list", lambda **_: 1 // 0)
        answer = one.get("/v1/plans")
        assert one.get("/v1/history").status_code == 200
    assert (answer.status_code, set(answer.json())) == (500, {"error"})
    assert "ZeroDivisionError" in caplog.text
