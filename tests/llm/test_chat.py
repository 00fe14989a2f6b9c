"""The guarded chat model against a real server: what is sent, retried, bounded and written down."""

from __future__ import annotations

import json
import stat
import threading
import time
from collections.abc import Callable
from contextlib import suppress

import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from openai_server import Raw, completion, serve

from schedmate.base.errors import InputError, ModelError
from schedmate.llm import LLM
from schedmate.llm.store import Budget, Call, Store

HELLO = [SystemMessage("You are terse."), HumanMessage("hello")]
OpenModel = Callable[..., LLM]


def test_reply_usage_and_ledger(open_model: OpenModel) -> None:
    with serve(lambda request: completion("hi", cached=64)) as server:
        llm = open_model(server.url, budget=Budget(price_input=2.0, price_output=10.0))
        reply = llm.chat("test", job="job-1").invoke(HELLO)
    assert reply.text == "hi"
    [sent] = server.requests
    assert [one["role"] for one in sent["messages"]] == ["system", "user"]
    assert (sent["model"], sent["max_tokens"], sent["temperature"]) == ("test-7B", 256, 0.0)
    [call] = llm.store.calls()
    assert (call["purpose"], call["job"], call["verdict"]) == ("test", "job-1", "ok")
    assert (call["input_tokens"], call["output_tokens"], call["cached_tokens"]) == (100, 10, 64)
    assert call["cost"] == pytest.approx((100 * 2 + 10 * 10) / 1e6)
    assert call["attempts"] == 1


def test_ledger_is_for_its_owner_only(open_model: OpenModel) -> None:
    llm = open_model("http://127.0.0.1:9/v1")
    assert stat.S_IMODE(llm.store.path.stat().st_mode) == 0o600


def test_same_request_is_answered_from_the_cache(open_model: OpenModel) -> None:
    with serve(lambda request: completion(f"reply {len(server.requests)}")) as server:
        llm = open_model(server.url)
        first = llm.chat("test").invoke(HELLO)
        again = llm.chat("test").invoke(HELLO)
        other = llm.chat("test").invoke([*HELLO, HumanMessage("more")])
        fresh = open_model(server.url, cached=False).chat("test").invoke(HELLO)
    assert (first.text, again.text, other.text, fresh.text) == (
        "reply 1",
        "reply 1",
        "reply 2",
        "reply 3",
    )
    attempts = [call["attempts"] for call in llm.store.calls()]
    assert sorted(attempts) == [0, 1, 1, 1]
    assert llm.store.spent() == (330, 0.0)


def test_secrets_are_redacted_in_every_kind_of_message(open_model: OpenModel) -> None:
    secret = "AKIA" + "IOSFODNN7EXAMPLQ"
    with serve(lambda request: completion("ok")) as server:
        open_model(server.url).chat("test").invoke(
            [
                SystemMessage(f"key {secret}"),
                HumanMessage([{"type": "text", "text": f"aws_access_key_id = {secret}"}]),
                AIMessage("", tool_calls=[{"name": "file_read", "args": {}, "id": "c1"}]),
                ToolMessage(f"3\tKEY = '{secret}'", tool_call_id="c1"),
            ]
        )
    assert secret not in json.dumps(server.requests)
    called = server.requests[0]["messages"][2]
    assert called["content"], "llama.cpp's server refuses a tool call whose content is null"


def test_busy_server_is_asked_again(open_model: OpenModel) -> None:
    def answer(request: object) -> object:
        busy = len(server.requests) < 3
        return Raw(503, b"{}", {"retry-after": "0"}) if busy else completion("at last")

    with serve(answer) as server:  # type: ignore[arg-type]
        llm = open_model(server.url)
        assert llm.chat("test").invoke(HELLO).text == "at last"
    assert [call["attempts"] for call in llm.store.calls()] == [3]


@pytest.mark.parametrize(
    ("raw", "verdict", "attempts"),
    [
        (Raw(400, b'{"error": {"message": "no such option"}}'), "rejected", 1),
        (Raw(401, b'{"error": {"message": "bad key"}}'), "rejected", 1),
        (Raw(404, b"not here"), "rejected", 1),
        (Raw(500, b"json_schema?"), "rejected", 1),
        (Raw(429, b"{}", {"retry-after": "0"}), "unavailable", 3),
        (Raw(200, b"<html>login</html>", {"content-type": "text/html"}), "malformed", 1),
        (Raw(200, b"{"), "malformed", 1),
        (Raw(200, b"[]"), "malformed", 1),
        (Raw(200, b"null"), "malformed", 1),
        (Raw(200, b'{"choices": []}'), "malformed", 1),
        (Raw(200, b'{"choices": "x"}'), "malformed", 1),
        (Raw(200, b'{"choices": [{"message": {"content": 7}}]}'), "malformed", 1),
        (Raw(200, b'{"choices": [{"message": 7}]}'), "malformed", 1),
        (Raw(200, b"\xff\xfe\x00garbage"), "malformed", 1),
        (Raw(200, b"x" * 10_000_000), "malformed", 1),
    ],
)
def test_bad_replies_are_named(
    open_model: OpenModel, raw: Raw, verdict: str, attempts: int
) -> None:
    with serve(lambda request: raw) as server:
        llm = open_model(server.url)
        with pytest.raises(ModelError) as caught:
            llm.chat("test").invoke(HELLO)
    assert caught.value.verdict == verdict
    assert "\n" not in str(caught.value)
    [call] = llm.store.calls()
    assert (call["verdict"], call["attempts"]) == (verdict, attempts)


def test_nobody_listens(open_model: OpenModel) -> None:
    with serve(lambda request: completion("")) as server:
        pass
    llm = open_model(server.url)
    with pytest.raises(ModelError, match="no connection") as caught:
        llm.chat("test").invoke(HELLO)
    assert caught.value.verdict == "unavailable"


def test_cut_off_reply_is_a_failure(open_model: OpenModel) -> None:
    with serve(lambda request: completion("half of", finish="length")) as server:
        llm = open_model(server.url)
        with pytest.raises(ModelError) as caught:
            llm.chat("test").invoke(HELLO)
    assert caught.value.verdict == "length"
    assert llm.store.calls()[0]["output_tokens"] == 10


@pytest.mark.parametrize("drip", [False, True], ids=["silent", "dripping"])
def test_slow_server_ends_at_the_deadline(open_model: OpenModel, drip: bool) -> None:
    gone = threading.Event()

    def write(stream: object) -> None:
        while not gone.wait(0.05):
            if drip:
                stream.write(b" ")  # type: ignore[attr-defined]
                stream.flush()  # type: ignore[attr-defined]

    with serve(lambda request: Raw(write=write)) as server:
        llm = open_model(server.url, timeout_s=0.5)
        with pytest.raises(ModelError) as caught:  # or it would wait for ever
            llm.chat("test").invoke(HELLO)
        gone.set()
    assert caught.value.verdict == "timeout"


def test_deadline_of_a_job_covers_all_its_calls(open_model: OpenModel) -> None:
    with serve(lambda request: completion("ok")) as server:
        chat = open_model(server.url).chat("test", deadline_s=-1.0)
        with pytest.raises(ModelError) as caught:
            chat.invoke(HELLO)
    assert caught.value.verdict == "timeout"
    assert server.requests == []


@pytest.mark.parametrize(
    ("budget", "allowed"),
    [
        (Budget(call_tokens=100), 0),
        (Budget(job_tokens=600), 4),
        (Budget(day_tokens=600), 4),
        (Budget(call_cost=0.0001, price_output=1.0), 0),
        (Budget(job_cost=0.0006, price_input=1.0, price_output=1.0), 4),
        (Budget(day_cost=0.0006, price_input=1.0, price_output=1.0), 4),
        (Budget(), 6),
    ],
)
def test_budgets_stop_calls_before_they_are_sent(
    open_model: OpenModel, budget: Budget, allowed: int
) -> None:
    # A call is estimated at some 263 tokens, 256 of them reply, and then counted as 110.
    with serve(lambda request: completion("ok")) as server:
        llm = open_model(server.url, budget=budget, cached=False)
        for _ in range(allowed):
            llm.chat("test", job="j").invoke(HELLO)
        if allowed < 6:
            with pytest.raises(ModelError, match="raise llm_") as caught:
                llm.chat("test", job="j").invoke(HELLO)
            assert caught.value.verdict == "budget"
    assert len(server.requests) == allowed


def test_budget_of_one_job_leaves_others_alone(open_model: OpenModel) -> None:
    with serve(lambda request: completion("ok")) as server:
        llm = open_model(server.url, budget=Budget(job_tokens=300), cached=False)
        llm.chat("test", job="a").invoke(HELLO)
        with pytest.raises(ModelError):
            llm.chat("test", job="a").invoke(HELLO)
        llm.chat("test", job="b").invoke(HELLO)
    assert len(server.requests) == 2


def test_key_comes_from_the_environment(
    open_model: OpenModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCHEDMATE_LLM_API_KEY", "k-123")
    with serve(lambda request: completion("ok")) as server:
        open_model(server.url).chat("test").invoke(HELLO)
    assert server.headers[0]["authorization"].endswith("k-123")


def test_first_served_model_is_taken_when_none_is_named(open_model: OpenModel) -> None:
    with serve(lambda request: completion("ok")) as server:
        llm = open_model(server.url, model="")
        llm.chat("test").invoke(HELLO)
    assert server.requests[0]["model"] == "test-7B"


def test_ledger_survives_many_threads_and_reopening(tmp_path: object) -> None:
    from pathlib import Path

    directory = Path(str(tmp_path)) / "data"
    stores = [Store(directory) for _ in range(4)]
    call = Call(time.time(), "test", None, "here", "m", "ok", 1, 2, 0, 0.1, 1)
    threads = [
        threading.Thread(target=lambda s=store: [s.add(call) for _ in range(25)])
        for store in stores
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for store in stores:
        store.close()
    again = Store(directory)
    assert again.spent() == (300, 0.0)
    assert again.secret() == again.secret()
    again.close()


def test_a_ledger_that_cannot_grow_is_a_failure_of_the_model(open_model: OpenModel) -> None:
    with serve(lambda request: completion("ok")) as server:
        llm = open_model(server.url, cached=False)
        llm.chat("test").invoke(HELLO)
        [[pages]] = llm.store._db.execute("PRAGMA page_count")
        llm.store._db.execute(f"PRAGMA max_page_count = {pages}")
        for _ in range(100):  # until the last page is full
            with suppress(ModelError):
                llm.chat("test").invoke(HELLO)
        with pytest.raises(ModelError, match=r"llm\.sqlite cannot be used .* is full") as caught:
            llm.chat("test").invoke(HELLO)
    assert caught.value.verdict == "unavailable"


def test_unusable_ledger_is_one_sentence(tmp_path: object) -> None:
    from pathlib import Path

    directory = Path(str(tmp_path)) / "data"
    directory.mkdir()
    (directory / "llm.sqlite").write_bytes(b"this is not a database, whatever its name says" * 50)
    with pytest.raises(InputError, match="llm.sqlite"):
        Store(directory)
