"""The embedders: the bundled one as it ships, the others against a real server or without one."""

from __future__ import annotations

import importlib.util
import json
import logging
import socket
import string
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from processes import LONG_S

from schedmate.base.errors import UsageError
from schedmate.retrieval import embedders
from schedmate.retrieval import embedders as openai_backend
from schedmate.retrieval.embedders import (
    Embedder,
    EmbedderError,
    embed_ngrams,
    load_embedder,
    unit_vectors,
)

TEXTS = ["model resnet50; dataset cifar10; task cv", "model gpt2; dataset openwebtext; task nlp"]


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    """The bundled embedder."""
    return load_embedder()


def cosine(embedder: Embedder, one: str, other: str) -> float:
    first, second = embedder.embed([one, other])
    return float(first @ second)


class TestBundled:
    def test_shape_and_protocol(self, embedder: Embedder) -> None:
        vectors = embedder.embed(TEXTS)
        assert isinstance(embedder, Embedder)
        assert vectors.shape == (2, embedder.dim)
        assert vectors.dtype == np.float32
        assert embedder.embed([]).shape == (0, embedder.dim)

    @settings(max_examples=25)
    @given(texts=st.lists(st.text(max_size=60), min_size=1, max_size=4))
    def test_lengths_are_one_whatever_the_text(self, embedder: Embedder, texts: list[str]) -> None:
        lengths = np.linalg.norm(embedder.embed(texts), axis=1)
        assert lengths == pytest.approx(np.ones(len(texts)), abs=1e-5)

    def test_a_text_has_the_same_vector_alone_and_in_company(self, embedder: Embedder) -> None:
        together = embedder.embed([*TEXTS, "x " * 300])
        for text, row in zip(TEXTS, together, strict=False):
            assert embedder.embed([text])[0] == pytest.approx(row, abs=1e-6)

    def test_another_process_gives_the_same_vectors(self, embedder: Embedder) -> None:
        program = (
            "import sys, json; from schedmate.retrieval.embedders import load_embedder; "
            "print(json.dumps(load_embedder().embed(sys.argv[1:]).tolist()))"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, *TEXTS], capture_output=True, text=True, check=True
        )
        assert np.array(json.loads(done.stdout)) == pytest.approx(embedder.embed(TEXTS), abs=1e-6)

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            ("model resnet50; dataset cifar10", "model resnet 50; dataset cifar 10"),
            ("model vit base patch16 224", "model vit_base_patch16_224"),
        ],
    )
    def test_respellings_pass_the_threshold(self, embedder: Embedder, one: str, other: str) -> None:
        assert cosine(embedder, one, other) >= embedder.threshold

    @pytest.mark.parametrize(
        ("one", "other"),
        [
            (
                "model resnet18; dataset cifar10; task cv",
                "model resnet50; dataset cifar10; task cv",
            ),
            (
                "model resnet50; dataset cifar10; task cv",
                "model resnet50; dataset cifar100; task cv",
            ),
            ("model bert base uncased; task nlp", "model bert large uncased; task nlp"),
            (TEXTS[0], TEXTS[1]),
        ],
    )
    def test_siblings_do_not(self, embedder: Embedder, one: str, other: str) -> None:
        assert cosine(embedder, one, other) < embedder.threshold

    def test_loading_leaves_the_log_settings_alone(self) -> None:
        handlers = list(logging.getLogger().handlers)
        load_embedder()
        assert logging.getLogger().handlers == handlers

    def test_changed_weights_are_refused(self, tmp_path: Path) -> None:
        weights = tmp_path / "weights.safetensors"
        weights.write_bytes(b"other")
        with pytest.raises(EmbedderError, match="not the pinned weights.*reinstall wordllama"):
            embedders.verify_weights(weights)

    def test_missing_weights(self, tmp_path: Path) -> None:
        with pytest.raises(EmbedderError, match=r"cannot be read \(No such file.*reinstall"):
            embedders.verify_weights(tmp_path / "none")


class TestNgrams:
    @given(st.text(string.ascii_lowercase + string.digits, min_size=1, max_size=30))
    def test_spaces_and_case_do_not_count(self, name: str) -> None:
        plain, spaced = embed_ngrams([f"model {name}", f"model {' '.join(name.upper())}"], 64)
        assert plain == pytest.approx(spaced, abs=1e-6)

    def test_a_word_counts_for_its_field(self) -> None:
        model, dataset = embed_ngrams(["model imagenet", "dataset imagenet"], 256)
        assert abs(float(model @ dataset)) < 0.3

    def test_a_zero_row_stays_zero(self) -> None:
        assert unit_vectors(np.zeros((1, 3))).tolist() == [[0.0, 0.0, 0.0]]


class TestLoading:
    def test_an_unknown_name_lists_the_known_ones(self) -> None:
        with pytest.raises(UsageError, match="no embedder 'bert'; there are bundled, bge, openai"):
            load_embedder("bert")

    @pytest.mark.parametrize("name", ["no.such.Thing", "schedmate.jobs.NoSuchClass"])
    def test_a_path_that_leads_nowhere(self, name: str) -> None:
        with pytest.raises(UsageError, match=f"{name}.*cannot be loaded"):
            load_embedder(name)

    def test_a_dotted_path(self) -> None:
        path = "schedmate.retrieval.embedders.BundledEmbedder"
        assert load_embedder(path).id == load_embedder().id

    @pytest.mark.skipif(
        importlib.util.find_spec("FlagEmbedding") is not None, reason="FlagEmbedding is installed"
    )
    def test_bge_without_its_package(self) -> None:
        with pytest.raises(EmbedderError, match=r"pip install .*\[bge\]'"):
            load_embedder("bge")


Answer = Callable[[list[str]], tuple[int, object]]


def letters(texts: list[str]) -> tuple[int, object]:
    """What a sound server says: one vector a text, here not sorted and not of length 1."""
    data = [
        {"object": "embedding", "index": i, "embedding": [len(text), text.count("a"), 1.0]}
        for i, text in enumerate(texts)
    ]
    return 200, {"object": "list", "model": "m", "data": data[::-1], "usage": {}}


@contextmanager
def server(answer: Answer, requests: list[dict[str, Any]] | None = None) -> Iterator[str]:
    """A server of /v1/embeddings on this machine; gives its base URL."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if requests is not None:
                key = self.headers["authorization"]
                requests.append({"path": self.path, "key": key, **asked})
            status, body = answer(asked["input"])
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            # the client of a slow answer has gone
            with suppress(BrokenPipeError, ConnectionResetError):
                self.wfile.write(data)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    httpd: HTTPServer = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{httpd.server_port}/v1"
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


@pytest.fixture(autouse=True)
def no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody's key gets into a test."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)


class TestServer:
    def test_vectors_come_in_order_and_of_length_1(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("SCHEDMATE_EMBEDDER_API_KEY", "made-up")
        monkeypatch.setattr(openai_backend, "OPENAI_BATCH", 2)
        requests: list[dict[str, Any]] = []
        texts = ["a", "bb", "aaa", "cccc", "aaaaa"]
        with server(letters, requests) as url:
            embedder = load_embedder("openai", model="m", base_url=url)
            vectors = embedder.embed(texts)
            assert embedder.embed([]).shape == (0, 3)
        expected = unit_vectors([[len(text), text.count("a"), 1.0] for text in texts])
        assert vectors == pytest.approx(expected, abs=1e-6)
        assert (embedder.id, embedder.dim) == ("openai-m", 3)
        assert [one["input"] for one in requests[1:]] == [texts[:2], texts[2:4], texts[4:]]
        assert {(one["path"], one["key"]) for one in requests} == {
            ("/v1/embeddings", "Bearer made-up")
        }

    def test_too_few_vectors(self) -> None:
        def answer(texts: list[str]) -> tuple[int, object]:
            return letters(texts[:1])

        with server(answer) as url:
            embedder = load_embedder("openai", base_url=url)
            with pytest.raises(EmbedderError, match="returned 1 vector for 2 texts"):
                embedder.embed(["a", "b"])

    @pytest.mark.parametrize(
        "body",
        [
            "<html>a login page</html>",
            [],
            {},
            {"data": None},
            {"data": [{"index": 0, "embedding": "AAAA"}]},
            {"data": [{"index": 0, "embedding": []}]},
            {"data": [{"index": 0, "embedding": ["a", "b"]}]},
            {"data": [{"index": 0, "embedding": [[1.0], [2.0, 3.0]]}]},
            {"data": [{"index": 0}]},
        ],
    )
    def test_an_answer_that_is_no_vector(self, body: object) -> None:
        with server(lambda _: (200, body)) as url:
            with pytest.raises(EmbedderError) as caught:
                load_embedder("openai", model="m", base_url=url)
        assert url in str(caught.value)
        assert "\n" not in str(caught.value)

    @pytest.mark.parametrize("status", [401, 404, 500])
    def test_an_error_of_the_server(self, status: int) -> None:
        with server(lambda _: (status, {"error": {"message": "out of order"}})) as url:
            with pytest.raises(EmbedderError) as caught:
                load_embedder("openai", model="m", base_url=url)
        message = str(caught.value)
        assert url in message
        assert "out of order" in message
        assert "\n" not in message

    def test_a_slow_server(self, monkeypatch: pytest.MonkeyPatch) -> None:
        given_up = threading.Event()

        def answer(texts: list[str]) -> tuple[int, object]:
            given_up.wait(LONG_S)
            return letters(texts)

        monkeypatch.setattr(openai_backend, "OPENAI_TIMEOUT_S", 0.1)
        with server(answer) as url:
            with pytest.raises(EmbedderError, match=url):
                load_embedder("openai", base_url=url)
            given_up.set()

    def test_no_server(self) -> None:
        with socket.socket() as taken:  # but nobody listens there
            taken.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
            with pytest.raises(EmbedderError, match=url):
                load_embedder("openai", base_url=url)
