"""Model servers on one's own machine: which run, which are installed, and what fits its memory.

`runtimes.yaml` says where each listens, how it is installed and started, and what it calls the
models. Nothing is started or installed here: the lines are for the user to run.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from schedmate.base.data import load
from schedmate.base.errors import ModelError
from schedmate.base.running import run
from schedmate.llm.endpoint import Endpoint
from schedmate.llm.probe import USABLE_BILLIONS, ServedModel, billions_in_name, served_models
from schedmate.llm.serving import model_size

PROBE_S = 3.0
"""Time for a server of this machine to list its models [s]."""
SHARE_OF_MEMORY = {"gpu": 0.9, "cpu": 0.6}
"""Share of the memory that a model may take: others need some of a machine's own."""
WORKSPACE_BYTES = 1e9


@dataclass(frozen=True, slots=True)
class Memory:
    """Where a model would run, and with how much memory [bytes]."""

    device: str
    """`gpu` or `cpu`."""
    bytes: float
    name: str


@dataclass(frozen=True, slots=True)
class Running:
    """A server that answers, and the models that it serves."""

    runtime: str
    base_url: str
    models: list[ServedModel]


@dataclass(frozen=True, slots=True)
class Choice:
    """A model that fits: its key in `runtimes.yaml`, its memory [bytes] and context [tokens]."""

    model: str
    bytes: float
    context: int


def memory_here() -> Memory:
    """The memory of the largest GPU that nvidia-smi lists, else that of the machine."""
    if shutil.which("nvidia-smi"):
        words = ["nvidia-smi", "--query-gpu=memory.total,name", "--format=csv,noheader,nounits"]
        gpus = []
        for line in run(words, timeout_s=10.0).text().splitlines():
            size, _, name = line.partition(",")
            if size.strip().isdigit():
                gpus.append((float(size) * 2**20, name.strip()))
        if gpus:
            return Memory("gpu", *max(gpus))
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return Memory("cpu", float(pages), "processors")


def usual_places() -> dict[str, str]:
    """The address of each runtime, unless it was told another."""
    table: dict[str, dict[str, Any]] = load("llm/runtimes.yaml")["runtimes"]
    return {name: f"http://127.0.0.1:{one['port']}/v1" for name, one in table.items()}


def running(places: Mapping[str, str]) -> Iterator[Running]:
    """The servers among `places`, addresses by runtime, that list their models."""
    for name, base_url in places.items():
        try:
            models = served_models(Endpoint(base_url, ""), timeout_s=PROBE_S)
        except ModelError:
            continue
        yield Running(name, base_url, models)


def installed() -> list[str]:
    """The runtimes whose command is found."""
    table: dict[str, dict[str, Any]] = load("llm/runtimes.yaml")["runtimes"]
    return [name for name, one in table.items() if shutil.which(one["program"])]


def choose(memory: Memory) -> Choice | None:
    """The largest model that fits, with the longest context; None if none does."""
    table = load("llm/runtimes.yaml")
    room = SHARE_OF_MEMORY[memory.device] * memory.bytes - WORKSPACE_BYTES
    for key, one in table["models"].items():
        if one.get("gpu") and memory.device != "gpu":
            continue
        size = model_size(one["size"])
        weights = size.parameters * one["weight_bytes"]
        for context in table["contexts"]:
            needed = weights + context * size.cache_per_token
            if needed <= room:
                return Choice(key, needed + WORKSPACE_BYTES, context)
    return None


def lines_to_start(runtime: str, choice: Choice, *, install: bool) -> list[str]:
    """The commands that serve the model with a runtime, after those that install it."""
    one = load("llm/runtimes.yaml")["runtimes"][runtime]
    name = one["names"][choice.model]
    starts = [line.format(model=name, context=choice.context) for line in one["start"]]
    return [*(one["install"] if install else ()), *starts]


def runtime_to_start(found: Sequence[str], memory: Memory) -> str:
    """The runtime to start: the first that is installed and runs here, else Ollama."""
    table: dict[str, dict[str, Any]] = load("llm/runtimes.yaml")["runtimes"]
    fit = (name for name in found if memory.device == "gpu" or not table[name].get("gpu"))
    return next(fit, "Ollama")


def best_model(models: Sequence[ServedModel]) -> ServedModel | None:
    """Of the models that a server offers, the one to ask: a coder that is large enough, if any."""
    chats = [one for one in models if "embed" not in one.name.lower()]

    def rank(one: ServedModel) -> tuple[bool, bool, bool]:
        name, size = one.name.lower(), billions_in_name(one.name)
        enough = size is None or size >= USABLE_BILLIONS
        return not enough, "code" not in name, "instruct" not in name and "chat" not in name

    return min(chats, key=rank, default=None)


def settings_for(server: Running, model: ServedModel, memory: Memory) -> dict[str, Any]:
    """The settings with which this server is asked: address, model, context, times and mode."""
    table = load("llm/runtimes.yaml")
    choice = choose(memory)
    context = model.context or (choice.context if choice is not None else min(table["contexts"]))
    size = billions_in_name(model.name)
    weak = memory.device == "cpu" or (size is not None and size < USABLE_BILLIONS)
    return {
        "llm_base_url": server.base_url,
        "llm_model": model.name,
        "llm_context_tokens": min(context, max(table["contexts"])),
        "mode": "opening" if weak else "hybrid",
        **table["seconds"][memory.device],
    }
