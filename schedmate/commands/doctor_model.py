"""`schedmate doctor` on a language model: is it there, and can it do what reading needs."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from schedmate.commands.checks import Check
from schedmate.errors import ModelError

if TYPE_CHECKING:
    from schedmate.llm import LLM
    from schedmate.llm.endpoint import Endpoint
    from schedmate.settings import Settings

SERVE = (
    "serve one, for example: vllm serve Qwen/Qwen2.5-7B-Instruct --host 127.0.0.1 "
    "--enable-auto-tool-choice --tool-call-parser hermes"
)


def examine_model(settings: Settings) -> Generator[Check, None, None]:
    """Everything that can be found out about the endpoint with a few small requests."""
    from schedmate.llm import open_llm
    from schedmate.llm.failures import ASK_DOCTOR

    llm = open_llm(settings)
    if llm is None:
        yield Check("model", "ok", "none is set; everything works without one")
        return
    try:
        if llm.endpoint.scripted is not None:
            llm.chat("doctor")
            yield Check("model", "ok", f"{llm.endpoint.model} can be read")
            return
        yield from _exposure(llm.endpoint)
        try:
            yield from _served(llm.endpoint, settings)
        except ModelError as error:
            yield Check("model", "failed", str(error).removesuffix(ASK_DOCTOR), SERVE)
            return
        llm.cached = False  # a check is worth nothing when its answer is remembered
        yield from _asked("model tools", _tools, llm)
        yield from _asked("model schema", _structured, llm)
        yield from _asked("model prefix cache", _prefix_cache, llm)
    finally:
        llm.close()


def _served(where: Endpoint, settings: Settings) -> Iterator[Check]:
    from schedmate.llm.probe import USABLE_BILLIONS, billions, served

    began = time.perf_counter()
    models = served(where, timeout_s=settings.llm_timeout_s)
    took = time.perf_counter() - began
    names = [one.name for one in models]
    wanted = where.model or (names[0] if names else "")
    found = next((one for one in models if one.name == wanted), None)
    if found is None:
        listed = ", ".join(names[:5]) or "none"
        yield Check(
            "model",
            "failed",
            f"{where.place} answers in {took:.2f} s but does not serve {wanted or 'any model'}",
            f"set llm_model to one that it serves: {listed}",
        )
        return
    yield Check("model", "ok", f"{found.name} at {where.place}, answers in {took:.2f} s")
    context = found.context
    if context is not None and context < settings.llm_context_tokens:
        yield Check(
            "model context",
            "warning",
            f"{context:,} tokens, but llm_context_tokens says {settings.llm_context_tokens:,}",
            f"set llm_context_tokens to {context}, or serve the model with a longer context",
        )
    elif context is not None:
        yield Check("model context", "ok", f"{context:,} tokens")
    size = billions(found.name)
    if size is not None and size < USABLE_BILLIONS:
        yield Check(
            "model size",
            "warning",
            f"{found.name} has about {size:g} thousand million parameters; models of less than "
            f"{USABLE_BILLIONS:g} were found too weak to read repositories",
            "serve a larger one, for example Qwen/Qwen2.5-7B-Instruct; until then what it cannot "
            "prove is dropped and static analysis stands",
        )


def _exposure(where: Endpoint) -> Iterator[Check]:
    """Who else could use the server, or read what is sent to it."""
    from schedmate.llm.endpoint import KEYS, api_key
    from schedmate.llm.probe import listens_openly

    parts = urlsplit(where.base_url)
    if where.local:
        if listens_openly(parts.port or 80):
            yield Check(
                "model access",
                "warning",
                f"port {parts.port or 80} of this machine listens on all networks",
                "start the server with --host 127.0.0.1, or behind a proxy that asks for a key",
            )
        return
    if parts.scheme == "http":
        yield Check(
            "model access",
            "warning",
            f"{where.place} is reached without encryption, and source code is sent to it",
            "use https, or a tunnel to a port of this machine",
        )
    if api_key() is None:
        yield Check(
            "model access",
            "warning",
            f"no key is set for {where.place}: if it answers, it answers anybody",
            f"start the server with a key (vllm serve --api-key) and set {KEYS[0]}",
        )


def _asked(name: str, check: object, llm: LLM) -> Iterator[Check]:
    assert callable(check)
    try:
        yield check(name, llm)
    except ModelError as error:
        yield Check(name, "warning", str(error), "static analysis stands wherever the model fails")


def _tools(name: str, llm: LLM) -> Check:
    from langchain_core.messages import HumanMessage

    function = {
        "name": "note_word",
        "description": "Takes down one word.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string"}},
            "required": ["word"],
        },
    }
    chat = llm.chat("doctor", deadline_s=llm.timeout_s).bind_tools(
        [{"type": "function", "function": function}]
    )
    reply = chat.invoke([HumanMessage("Take down the word `ready` with the tool note_word.")])
    if reply.tool_calls:
        return Check(name, "ok", "the model calls tools")
    return Check(
        name,
        "warning",
        "asked to call a tool, the model wrote text instead",
        "start vLLM with --enable-auto-tool-choice --tool-call-parser hermes (for Qwen2.5; other "
        "families have parsers of their own), llama.cpp with --chat_format "
        "chatml-function-calling; very small models fail here",
    )


def _structured(name: str, llm: LLM) -> Check:
    from langchain_core.messages import HumanMessage
    from pydantic import BaseModel

    from schedmate.llm.structured import METHODS, ask

    class Answer(BaseModel):
        """A city and its country."""

        city: str
        country: str

    ask(
        llm.chat("doctor", deadline_s=llm.timeout_s),
        [HumanMessage("Which country is the city Paris in?")],
        Answer,
    )
    method = llm.store.method(llm.endpoint.place, llm.endpoint.model)
    if method == METHODS[-1]:
        return Check(
            name,
            "warning",
            "answers fit a schema only by asking for it in words",
            "use a server with response_format json_schema, such as vLLM",
        )
    return Check(name, "ok", f"answers fit a schema by {method}")


def _prefix_cache(name: str, llm: LLM) -> Check:
    from langchain_core.messages import HumanMessage, SystemMessage

    from schedmate.prompts import load

    chat = llm.chat("doctor", deadline_s=llm.timeout_s)
    prefix = SystemMessage(load("metadata.system.v2"))
    for word in ("one", "two"):
        try:
            chat.invoke([prefix, HumanMessage(f"Say the word {word}.")], max_tokens=16)
        except ModelError as error:
            if error.verdict != "length":  # what it says does not matter here
                raise
    cached = chat.calls[-1].cached_tokens
    if cached:
        return Check(name, "ok", f"{cached:,} tokens of the common prefix were found in it")
    return Check(
        name,
        "warning",
        "the server does not say that it reuses the common start of requests",
        "start vLLM with --enable-prefix-caching --enable-prompt-tokens-details; without it every "
        "job pays for the same instructions again",
    )
