"""`schedmate doctor`: checks that everything is in place, and says how to mend what is not.

It looks at the installation, the settings, the embedder, the history, the language model and
the cluster's scheduler. `slurm doctor` and `k8s doctor` print their findings the same way.
"""

from __future__ import annotations

import os
import re
import stat
import sys
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import asdict
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import typer

from schedmate.base.data import dumps
from schedmate.base.errors import (
    INTERNAL,
    MissingExtraError,
    ModelError,
    SchedmateError,
    installing,
)
from schedmate.base.files import without_password, without_query
from schedmate.base.inputs import format_duration
from schedmate.base.terminal import Screen, counted
from schedmate.cluster import Check, cluster_kind
from schedmate.commands.options import JsonOption

if TYPE_CHECKING:
    from schedmate.base.files import Place
    from schedmate.base.terminal import Tone
    from schedmate.llm import LLM
    from schedmate.llm.endpoint import Endpoint
    from schedmate.retrieval.embedders import Embedder
    from schedmate.retrieval.history import JobHistory
    from schedmate.settings import Settings


SCHEMA = "schedmate.doctor/v1"
MINIMUM_PYTHON = (3, 11)
T = TypeVar("T")
MARKS = {"ok": "✓", "warning": "!", "failed": "✗"}
TONES: dict[str, Tone] = {"warning": "doubtful", "failed": "bad"}


def doctor(
    as_json: JsonOption = False,
) -> None:
    """Check the installation and what the settings name.

    Each finding says what to do. Exits with 1 when a check failed (✗); a warning (!) leaves the
    exit code at 0.
    """
    print_checks(list(examine_installation()), SCHEMA, as_json=as_json)


def print_checks(
    checks: Sequence[Check],
    schema: str,
    *,
    as_json: bool,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """Print what was found, in JSON with `more`; ends the command with 1 when a check failed."""
    failed = any(check.status == "failed" for check in checks)
    if as_json:
        found = [asdict(one) for one in checks]
        document = {"schema": schema, "ok": not failed, **more, "checks": found}
        typer.echo(dumps(document, indent=2))
    else:
        screen = Screen(sys.stdout)
        for check in checks:
            mark, tone = MARKS[check.status], TONES.get(check.status)
            screen.line(f"{mark} {check.name}: {check.fact}", tone)
            if check.fix:
                screen.line(check.fix, label="    to mend: ")
    if failed:
        raise typer.Exit(INTERNAL)


SET_MODEL = (
    "set llm_base_url to the server's address and llm_model to a model it serves, for example: "
    "export SCHEDMATE_LLM_BASE_URL=http://127.0.0.1:8000/v1"
)


def examine_installation() -> Iterator[Check]:
    """Every check, in the order in which a fault would be looked for."""
    yield _python()
    yield from _packages()
    from schedmate.settings import explain_settings

    try:
        settings, origins = explain_settings()
    except SchedmateError as error:
        yield Check("settings", "failed", str(error), "correct that, then run this again")
        return
    yield from _settings(settings, origins)
    yield from _extras(settings)

    embedder = yield from guarded(
        "embedder", "choose another with the setting `embedder`", _embedder(settings)
    )
    yield from guarded(
        "history",
        "check its name, owner and rights; if it is damaged, restore a copy or import again",
        examine_history(settings.history, embedder),
    )
    yield from guarded("scheduler", REACH_HINT, examine_scheduler(settings))
    yield from guarded("model", SET_MODEL, examine_model(settings))


def guarded(
    name: str, fix: str, checks: Generator[Check, None, T]
) -> Generator[Check, None, T | None]:
    """The findings of `checks` and what they return; an exception is a finding too."""
    try:
        return (yield from checks)
    except MissingExtraError as error:
        yield Check(name, "failed", str(error), installing(error.extra))
    except SchedmateError as error:
        yield Check(name, "failed", str(error), fix)
    except Exception as error:  # noqa: BLE001 - a doctor reports whatever is broken
        yield Check(name, "failed", f"{type(error).__name__}: {error}", fix)
    return None


def _python() -> Check:
    version = ".".join(map(str, sys.version_info[:3]))
    if tuple(sys.version_info[:2]) < MINIMUM_PYTHON:
        return Check("python", "failed", version, "install Python 3.11 or newer")
    return Check("python", "ok", version)


def _requirements() -> dict[str | None, list[str]]:
    """Distribution names by extra; None is the base."""
    from importlib import metadata

    names_by_extra: dict[str | None, list[str]] = {None: []}
    for requirement in metadata.requires("schedmate") or []:
        name = re.match(r"[\w.-]+", requirement)
        extra = re.search(r"extra\s*==\s*['\"]([\w-]+)['\"]", requirement)
        if name:
            names_by_extra.setdefault(extra[1] if extra else None, []).append(name[0])
    return names_by_extra


def _version(distribution: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def _packages() -> Iterator[Check]:
    versions = {name: _version(name) for name in _requirements()[None]}
    missing = [name for name, version in versions.items() if version is None]
    if missing:
        yield Check("packages", "failed", f"missing: {', '.join(missing)}", "pip install schedmate")
    else:
        yield Check("packages", "ok", ", ".join(f"{n} {v}" for n, v in versions.items()))


def _extras(settings: Settings) -> Iterator[Check]:
    absent = []
    for extra, names in _requirements().items():
        if extra is None or extra == "dev":
            continue
        missing = [name for name in names if _version(name) is None]
        if not missing:
            yield Check(f"extra {extra}", "ok", ", ".join(f"{n} {_version(n)}" for n in names))
            continue
        asking = [name for name, needed in _asked_for(settings).items() if needed == extra]
        if not asking:
            absent.append(extra)
            continue
        yield Check(
            f"extra {extra}",
            "failed",
            f"not installed ({', '.join(missing)}), but the setting `{asking[0]}` asks for it",
            installing(extra),
        )
    if absent:
        one = installing("EXTRA")
        fact = f"{', '.join(absent)}; the settings need none of them (to add one: {one})"
        yield Check("extras not installed", "ok", fact)


def _asked_for(settings: Settings) -> dict[str, str]:
    """The extra that each setting needs as it is, if it needs one."""
    needed = {"embedder": "llm" if settings.embedder == "openai" else settings.embedder}
    if settings.llm_base_url or settings.llm_model:
        needed["llm_base_url" if settings.llm_base_url else "llm_model"] = "llm"
    return needed


def _settings(settings: Settings, origins: dict[str, str]) -> Iterator[Check]:
    from schedmate.settings import (
        ADDRESSES,
        ENV_PREFIX,
        config_dir,
        data_dir,
        nearest_variable,
        unknown_variables,
    )

    for name in unknown_variables():
        near = nearest_variable(name)
        fix = f"unset it, or rename it to {near}" if near else "see `schedmate config show`"
        yield Check("settings", "warning", f"{name} names no setting", fix)
    for name in ADDRESSES:
        address = getattr(settings, name)
        variable = f"{ENV_PREFIX}{name.upper()}"
        if address and without_password(address) != address and variable not in origins[name]:
            fact = f"{name} in {origins[name]} holds a password: {without_password(address)}"
            fix = f"move the address into the variable {variable}"
            if name.endswith("_base_url"):
                key = f"{ENV_PREFIX}{name.partition('_')[0].upper()}_API_KEY"
                fix = f"{fix}, or use a key in {key}"
            yield Check("settings", "warning", fact, fix)
    for what, directory in (("configuration", config_dir()), ("data", data_dir())):
        place = directory
        while not place.exists() and place != place.parent:
            place = place.parent
        if place.is_dir() and os.access(place, os.W_OK | os.X_OK):
            yield Check(f"{what} directory", "ok", f"{directory} can be written")
        else:
            variable = "XDG_CONFIG_HOME" if what == "configuration" else "XDG_DATA_HOME"
            yield Check(
                f"{what} directory",
                "warning",
                f"{directory} cannot be written",
                f"set {variable} to a directory that can",
            )


def _embedder(settings: Settings) -> Generator[Check, None, Embedder | None]:
    from schedmate.mate import embedder_of
    from schedmate.retrieval.embedders import UNMEASURED

    began = time.perf_counter()
    embedder = embedder_of(settings)
    width = embedder.embed(["model resnet50; dataset imagenet"]).shape[1]
    took = time.perf_counter() - began
    if width != embedder.dim:
        yield Check(
            "embedder",
            "failed",
            f"{embedder.id} returns {width} numbers, not {embedder.dim}",
            "give its right dimension, or choose another embedder",
        )
        return None
    yield Check(
        "embedder", "ok", f"{embedder.id}, {embedder.dim} dimensions, ready in {took:.1f} s"
    )
    if settings.threshold is None and embedder.threshold == UNMEASURED:
        yield Check(
            "threshold",
            "warning",
            f"which similarity means alike was not measured for {embedder.id}; {UNMEASURED} is "
            "used, which finds hardly more than equal names",
            "run `schedmate history calibrate` and set `threshold` to its result",
        )
    return embedder


# `schedmate doctor` on the job history.


def examine_history(place: Place, embedder: Embedder | None) -> Generator[Check, None, None]:
    """Its records, index and rights, as findings."""
    from schedmate.retrieval.database import DATABASE
    from schedmate.retrieval.history import JobHistory

    if isinstance(place, str):
        yield from _shared_history(place, embedder)
        return
    if not (place / DATABASE).exists():
        fix = "schedmate history import FILE, or schedmate analyze --record"
        yield Check("history", "warning", f"there is none at {place} yet", fix)
        return
    with JobHistory.open(place, embedder, create=False, read_only=True) as history:
        mismatch = history.mismatch() if embedder else None
        stats = history.stats()
        if mismatch is not None:
            yield Check("history", "failed", mismatch, "schedmate history rebuild")
        else:
            different = counted(stats["workloads"], "different workload")
            fact = f"{place}: {counted(stats['jobs'], 'record')}, {different}"
            yield Check("history", "ok", fact)
        yield _history_index(history, stats["workloads"])
        yield _history_disk(history)
    if not os.access(place, os.W_OK):
        yield Check(
            "history rights",
            "warning",
            f"{place} can be read but not written",
            "ask its owner for write access, if you want to use --record",
        )
    elif place.stat().st_mode & stat.S_IWOTH:
        yield Check(
            "history rights",
            "warning",
            f"anybody can write to {place}, and so change estimates",
            f"chmod o-w {place}",
        )
    else:
        yield Check("history rights", "ok", f"{place} can be read and written")


def _shared_history(url: str, embedder: Embedder | None) -> Iterator[Check]:
    """A history in PostgreSQL: whether it answers, and how old the copy of it is."""
    from schedmate.retrieval.shared import SharedHistory

    with SharedHistory.connect(url, embedder, create=False, poll=False) as history:
        stats = history.stats()
        records = counted(stats["jobs"], "record")
        fact = f"{without_query(url)}: {records}, read from a copy at {history.path}"
        mismatch = history.mismatch() if embedder else None
        if history.reached:
            yield Check("history", "ok", fact)
        else:
            fix = "see that the database runs and can be reached; advice goes on meanwhile"
            yield Check("history", "warning", f"{fact}; the database does not answer", fix)
        if mismatch is not None:
            yield Check("vectors", "failed", mismatch, "schedmate history rebuild")
        yield _history_index(history, stats["workloads"])


def _history_index(history: JobHistory, workloads: int) -> Check:
    """How old the saved index is; it is derived data that every search completes."""
    from schedmate.retrieval.index import EXACT_UP_TO

    saved = history.snapshot()
    if saved is not None:
        age = format_duration(max(0.0, time.time() - saved.stat().st_mtime))
        return Check("index", "ok", f"saved {age} ago; searches add what is newer")
    fact = f"not saved; a search builds it from {workloads:,} vectors"
    if workloads > EXACT_UP_TO:
        return Check("index", "warning", fact, "schedmate history rebuild --index")
    return Check("index", "ok", fact)


def _history_disk(history: JobHistory) -> Check:
    """Whether the history is on a local disk, as SQLite's write-ahead log needs it."""
    if history.network is None:
        return Check("history disk", "ok", "local; one may write while others read")
    return Check(
        "history disk",
        "warning",
        f"{history.path} is on a network file system ({history.network}): SQLite keeps a rollback "
        "journal there, so readers and a writer wait for each other, and it relies on that file "
        "system's locks",
        "if one machine alone uses the history, move it to a local disk",
    )


# `schedmate doctor` on a language model: whether it answers, and can read repositories.


SERVE_HINT = (
    "serve one, for example: vllm serve Qwen/Qwen2.5-7B-Instruct --host 127.0.0.1 "
    "--enable-auto-tool-choice --tool-call-parser hermes"
)


def examine_model(settings: Settings) -> Generator[Check, None, None]:
    """Everything that can be found out about the endpoint with a few small requests."""
    from schedmate.llm import open_llm

    llm = open_llm(settings)
    if llm is None:
        yield Check("model", "ok", "none is set; everything works without one")
        return
    from schedmate.llm.probe import ASK_DOCTOR

    try:
        if llm.endpoint.scripted is not None:
            llm.chat("doctor")
            yield Check("model", "ok", f"{llm.endpoint.model} can be read")
            return
        yield from _server_exposure(llm.endpoint)
        try:
            yield from _served_models(llm.endpoint, settings)
        except ModelError as error:
            yield Check("model", "failed", str(error).removesuffix(ASK_DOCTOR), SERVE_HINT)
            return
        llm.cached = False  # a check is worth nothing when its answer is remembered
        yield from _ask_model("model tools", _tool_calls, llm)
        yield from _ask_model("model schema", _structured_output, llm)
        yield from _ask_model("model prefix cache", _prefix_cache, llm)
    finally:
        llm.close()


def _served_models(where: Endpoint, settings: Settings) -> Iterator[Check]:
    from schedmate.llm.probe import USABLE_BILLIONS, billions_in_name, served_models

    began = time.perf_counter()
    models = served_models(where, timeout_s=settings.llm_timeout_s)
    took = time.perf_counter() - began
    names = [model.name for model in models]
    wanted = where.model or (names[0] if names else "")
    served = next((model for model in models if model.name == wanted), None)
    if served is None:
        listed = ", ".join(names[:5]) or "none"
        yield Check(
            "model",
            "failed",
            f"{where.place} answers in {took:.2f} s but does not serve {wanted or 'any model'}",
            f"set llm_model to one that it serves: {listed}",
        )
        return
    yield Check("model", "ok", f"{served.name} at {where.place}, answers in {took:.2f} s")
    context = served.context
    if context is not None and context < settings.llm_context_tokens:
        yield Check(
            "model context",
            "warning",
            f"{context:,} tokens, but llm_context_tokens says {settings.llm_context_tokens:,}",
            f"set llm_context_tokens to {context}, or serve the model with a longer context",
        )
    elif context is not None:
        yield Check("model context", "ok", f"{context:,} tokens")
    size = billions_in_name(served.name)
    if size is not None and size < USABLE_BILLIONS:
        yield Check(
            "model size",
            "warning",
            f"{served.name} has about {size:g} thousand million parameters; models of less than "
            f"{USABLE_BILLIONS:g} were found too weak to read repositories",
            "serve a larger one, for example Qwen/Qwen2.5-7B-Instruct; until then what it cannot "
            "prove is dropped and static analysis stands",
        )


def _server_exposure(where: Endpoint) -> Iterator[Check]:
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


def _ask_model(name: str, check: object, llm: LLM) -> Iterator[Check]:
    assert callable(check)
    try:
        yield check(name, llm)
    except ModelError as error:
        yield Check(name, "warning", str(error), "static analysis stands wherever the model fails")


def _tool_calls(name: str, llm: LLM) -> Check:
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


def _structured_output(name: str, llm: LLM) -> Check:
    from langchain_core.messages import HumanMessage
    from pydantic import BaseModel

    from schedmate.llm.chat import METHODS, ask

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
    prefix = SystemMessage(load("metadata.system.v3"))
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


# `schedmate doctor` on the cluster's scheduler: whether it answers.


REACH_HINT = (
    "run schedmate where that scheduler's commands work, or choose another one: "
    "schedmate init --replace"
)


def examine_scheduler(settings: Settings) -> Generator[Check, None, None]:
    """Whether the scheduler of the settings can be reached from here; nothing is changed."""
    from schedmate.cluster.bounds import load_bounds

    if settings.scheduler is None:
        return
    kind = cluster_kind(settings.scheduler)
    yield Check("scheduler", "ok", f"{kind.fact(load_bounds(None))}; {kind.further}")
