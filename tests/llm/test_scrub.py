"""A server that sends back the key: it is nowhere in what is printed, logged, cached or stored."""

from __future__ import annotations

import base64
import html
import json
import logging
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from cli_runner import Cli
from hypothesis import given
from hypothesis import strategies as st
from openai_server import Raw, Request, completion, serve
from socket_server import once, socket_server

from schedmate.base.errors import SchedmateError
from schedmate.base.http import SCRUBBED, BadReplyError, Scrubber, deadline, open_client
from schedmate.llm.endpoint import Endpoint
from schedmate.llm.probe import served_models

KEY = "sk-Xy7/q2+R9zw_KEY-81"


def escaped(text: str, form: str) -> str:
    return "".join(form.format(ord(character)) for character in text)


def base64_within(before: bytes) -> str:
    return base64.b64encode(before + KEY.encode() + b" and more").decode()


WRITINGS: dict[str, str] = {
    "as it is": KEY,
    "in capitals": KEY.upper(),
    "in a URL": quote(KEY, ""),
    "in HTML": html.escape(KEY),
    "in hexadecimal": KEY.encode().hex(),
    "in base64": base64.b64encode(KEY.encode()).decode(),
    "in base64 for URLs": base64.urlsafe_b64encode(KEY.encode()).decode(),
    "in base64 with a byte before": base64_within(b":"),
    "in base64 with two bytes before": base64_within(b"ab"),
    "in base64 of the whole header": base64_within(b"Authorization: Bearer "),
}
ESCAPES: dict[str, str] = {
    "one character in JSON": KEY.replace("y", "\\u0079"),
    "all characters in JSON": escaped(KEY, "\\u{:04x}"),
    "all characters in JSON in JSON": escaped(KEY, "\\\\u{:04X}"),
    "a slash in JSON": KEY.replace("/", "\\/"),
    "all characters in a URL": escaped(KEY, "%{:02x}"),
    "all characters in a URL twice": escaped(KEY, "%25{:02x}"),
    "all characters in Python": escaped(KEY, "\\x{:02x}"),
    "all characters in HTML": escaped(KEY, "&#{};"),
    "all characters in HTML, hexadecimal": escaped(KEY, "&#x{:x};"),
}


def traces(text: str) -> list[str]:
    """The forms of the key that are in a text, however it is written."""
    return [form for form in WRITINGS.values() if form.lower() in text.lower()]


@pytest.mark.parametrize("writing", WRITINGS)
def test_a_whole_key_is_replaced(writing: str) -> None:
    text = f"before {WRITINGS[writing]} after"
    scrubbed = Scrubber([KEY]).text(text)
    assert SCRUBBED in scrubbed
    assert not traces(scrubbed)
    assert scrubbed.startswith("before ")


@pytest.mark.parametrize("escape", ESCAPES)
def test_a_key_under_escapes_is_found(escape: str) -> None:
    assert Scrubber([KEY]).hides_one(f'{{"a": "{ESCAPES[escape]}"}}'.encode())


@pytest.mark.parametrize("key", ["none", "EMPTY", "test-7B", ""])
def test_what_keeps_nobody_out_is_left_alone(key: str) -> None:
    text = f"none of the EMPTY test-7B {key}"
    assert Scrubber([key]).text(text) == text
    assert not Scrubber([key]).hides_one(text.encode())


@given(st.text())
def test_other_text_stays(text: str) -> None:
    assert Scrubber([KEY]).text(text) == text


@pytest.mark.parametrize("unit", ["\\", "%", "&#", "\\u005c", KEY[:-1], "%25", "\\\\u"])
def test_a_reply_of_megabytes_does_not_hang(unit: str) -> None:
    data = (unit * (4_000_000 // len(unit))).encode()
    scrub = Scrubber([KEY, "k" * 4000, "a" * 300])
    assert scrub(data) == data
    assert not scrub.hides_one(data)


_SHOWN = ("as it is", "in base64 of the whole header", "all characters in JSON", "in a URL")
REPLIES: dict[str, Raw] = {
    f"{where}, {writing}": raw
    for writing, text in {**WRITINGS, **ESCAPES}.items()
    if writing in _SHOWN
    for where, raw in {
        "an error": Raw(401, f'{{"error": {{"message": "no such key: {text}"}}}}'.encode()),
        "a page": Raw(500, f"<pre>Authorization: Bearer {text}</pre>".encode()),
        "an answer": Raw(
            body=json.dumps(completion("PLACE")).replace("PLACE", text.replace('"', "")).encode()
        ),
    }.items()
}


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    root = tmp_path / "repo"
    root.mkdir()
    (root / "train.py").write_text("import sys\nprint(sys.argv)\n")
    return root


def everything_kept(home: Path) -> str:
    files = (path for path in home.rglob("*") if path.is_file())
    return "\n".join(path.read_bytes().decode("latin-1") for path in files)


@pytest.mark.parametrize("reply", REPLIES)
def test_nothing_shows_or_keeps_the_key(
    cli: Cli,
    repo: Path,
    clean_environment: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    reply: str,
) -> None:
    monkeypatch.setenv("SCHEDMATE_LLM_API_KEY", KEY)
    with serve(lambda request: REPLIES[reply]) as server, caplog.at_level(logging.DEBUG):
        where = ["--llm-base-url", server.url, "--model", "m"]
        done = cli("--debug", "analyze", str(repo), "-c", "python train.py", "--json", *where)
        assert server.headers[0]["authorization"] == f"Bearer {KEY}"
        ledger = cli("llm", "ledger", "--json")
        table = cli("llm", "ledger")
    assert done.code == 0, done.err
    shown = (done.out, done.err, ledger.out, table.out, caplog.text)
    for text in (*shown, everything_kept(clean_environment)):
        assert not traces(text)
        assert KEY not in json.dumps(text)
    assert json.loads(ledger.out)["calls"]


def test_the_list_of_models_does_not_show_the_key(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, clean_environment: Path
) -> None:
    monkeypatch.setenv("SCHEDMATE_LLM_API_KEY", KEY)
    with serve(lambda request: Raw(500, KEY.encode())) as server:
        server.models = [{"id": f"model-{KEY}", "object": "model", "owned_by": KEY}]
        monkeypatch.setenv("SCHEDMATE_LLM_BASE_URL", server.url)
        done = [cli("doctor"), cli("doctor", "--json"), cli("--debug", "doctor")]
    for one in done:
        assert not traces(one.out + one.err)
        assert SCRUBBED in one.out
    assert not traces(everything_kept(clean_environment))


def test_headers_and_reason_do_not_show_the_key(caplog: pytest.LogCaptureFixture) -> None:
    head = f"HTTP/1.1 200 {KEY}\r\nx-echo: Bearer {KEY}\r\ncontent-length: 2\r\n\r\n{{}}"
    with socket_server(once(head.encode())) as server, caplog.at_level(logging.DEBUG):
        url = f"http://127.0.0.1:{server.port}/"
        with open_client(url, [KEY]) as http, deadline(1e12):
            reply = http.get(url)
    assert reply.headers["x-echo"] == f"Bearer {SCRUBBED}"
    assert reply.reason_phrase == SCRUBBED
    assert "httpcore2" in caplog.text
    assert not traces(caplog.text)


@pytest.mark.parametrize(
    "text",
    [KEY.encode("utf-16"), KEY.encode("utf-16-le"), KEY.encode("utf-32")],
    ids=["utf-16", "utf-16-le", "utf-32"],
)
def test_a_reply_in_another_encoding_is_refused(text: bytes) -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(text)
    with socket_server(once(head, text)) as server:
        url = f"http://127.0.0.1:{server.port}/"
        with open_client(url, [KEY]) as http, deadline(1e12), pytest.raises(BadReplyError):
            http.get(url)


def test_no_encoding_of_the_servers_choice_is_used() -> None:
    text = "+" + base64.b64encode(KEY.encode("utf-16-be")).decode().rstrip("=") + "-"
    assert text.encode().decode("utf-7") == KEY
    head = (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-7\r\ncontent-length: %d\r\n\r\n"
    )
    with socket_server(once(head % len(text), text.encode())) as server:
        url = f"http://127.0.0.1:{server.port}/"
        with open_client(url, [KEY]) as http, deadline(1e12):
            reply = http.get(url)
    assert KEY not in reply.text
    assert reply.headers["content-type"] == "text/html"


def test_a_password_in_the_address_is_a_key(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    password = "correct/horse battery"
    seen: list[dict[str, str]] = []

    def answer(request: Request) -> Any:
        seen.append(request)
        return Raw(401, password.encode())

    with serve(answer) as server, caplog.at_level(logging.DEBUG):
        address = server.url.replace("//", f"//bob:{quote(password, '')}@")
        server.models = [{"id": password, "object": "model"}]
        [model] = served_models(Endpoint(address, ""))
    assert model.name == SCRUBBED
    assert quote(password, "") not in caplog.text
    assert password not in caplog.text


def test_an_embedding_server_does_not_show_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    from schedmate.retrieval.embedders import load_embedder

    monkeypatch.setenv("SCHEDMATE_EMBEDDER_API_KEY", KEY)
    body = f'{{"error": {{"message": "bad key {KEY}"}}}}'.encode()
    head = b"HTTP/1.1 401 No\r\ncontent-length: %d\r\n\r\n" % len(body)
    with socket_server(once(head, body)) as server:
        with pytest.raises(SchedmateError) as caught:
            load_embedder("openai", base_url=f"http://127.0.0.1:{server.port}/v1")
    assert f"bad key {SCRUBBED}" in str(caught.value)
