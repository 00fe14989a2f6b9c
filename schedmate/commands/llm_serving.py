"""`schedmate llm serve-command` and `capacity`: which server to start, and what it would carry."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from typing import Annotated, Any

import typer

from schedmate.commands.options import JsonOption
from schedmate.commands.parallel_options import say_which
from schedmate.errors import InputError, UsageError
from schedmate.llm.serving import ModelSize
from schedmate.plain import dumps

SERVE_SCHEMA = "schedmate.serve-command/v1"
CAPACITY_SCHEMA = "schedmate.capacity/v1"
_GB = 1e9

GpuOption = Annotated[
    str,
    typer.Option(
        "--gpu",
        metavar="TYPE",
        help="GPU type (see `schedmate parallel devices`), or its datasheet values.",
    ),
]
GpusOption = Annotated[int, typer.Option(min=1, max=64, help="GPUs of that type.")]
ContextOption = Annotated[
    int | None,
    typer.Option(
        min=1024,
        max=1 << 20,
        help="Context length [tokens]. Default: the setting llm_context_tokens.",
    ),
]
ParametersOption = Annotated[
    float | None,
    typer.Option(
        min=0.01,
        max=2000,
        metavar="B",
        help="Billions of parameters, if the model's name does not say.",
    ),
]


def serve_command(
    model: Annotated[str, typer.Argument(help="Name of the model on a hub, or its folder.")],
    gpu: GpuOption,
    gpus: GpusOption = 1,
    context: ContextOption = None,
    parameters: ParametersOption = None,
    as_json: JsonOption = False,
) -> None:
    """Print the command that serves a model, and its memory.

    The command is vLLM's. Memory is computed from published sizes; nothing is started.
    """
    from schedmate.llm.serving import SMALLEST_B, command, fit

    size, device, tokens = _size(model, parameters), _device(gpu), _context(context)
    room = fit(size, device.memory_bytes, gpus, tokens)
    words = command(size, gpus, tokens)
    if size.heads is not None and size.heads % gpus:
        divisors = ", ".join(str(n) for n in range(1, size.heads + 1) if not size.heads % n)
        raise UsageError(
            f"--gpus {gpus} does not divide the {size.heads} attention heads of {model}, among "
            f"which vLLM shares it out; these do: {divisors}."
        )
    notes = []
    if size.heads is None and gpus > 1:
        notes.append("its attention heads are not known, which the GPUs have to divide")
    if size.parser is None:
        notes.append("the parser of its tool calls is not known: add --tool-call-parser")
    if not size.published:
        notes.append("its layers are not known: the cache's memory is guessed from its parameters")
    if size.parameters < SMALLEST_B * 1e9:
        notes.append(f"models below {SMALLEST_B:g} thousand million parameters answer poorly")
    if room.readings < 1:
        notes.append(_too_small(size, device.memory_bytes, tokens))
    if as_json:
        document = {
            "schema": SERVE_SCHEMA,
            "command": words,
            "model": asdict(size),
            "gpu": device.name,
            "gpus": gpus,
            "context": tokens,
            "memory_bytes": asdict(room),
            "fits": room.readings >= 1,
            "notes": notes,
        }
        typer.echo(dumps(document, indent=2))
        return
    typer.echo(shlex.join(words))
    typer.echo(
        f"# weights {room.weights / _GB:.1f} GB, cache {room.cache / _GB:.1f} GB of "
        f"{room.available / _GB:.1f} GB usable on {gpus} x {device.name}: "
        f"{room.readings} readings of {tokens:,} tokens at once"
    )
    for note in notes:
        typer.echo(f"# {note}")
    typer.echo("# then: export SCHEDMATE_LLM_BASE_URL=http://127.0.0.1:8000/v1; schedmate doctor")


def capacity(
    model: Annotated[str, typer.Argument(help="Name of the model.")],
    gpu: GpuOption,
    gpus: GpusOption = 1,
    context: ContextOption = None,
    parameters: ParametersOption = None,
    since: Annotated[
        str | None,
        typer.Option(help="Only readings of this most recent time span, for example 24h."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Estimate how many jobs per hour a GPU can read.

    From the tokens of earlier readings in the ledger and the GPU's datasheet.
    """
    from schedmate.llm.serving import MOST_AT_ONCE, fit, jobs_an_hour

    size, device, tokens = _size(model, parameters), _device(gpu), _context(context)
    reading, jobs, seconds = _readings(since)
    room = fit(size, device.memory_bytes, gpus, tokens)
    estimated = jobs_an_hour(size, reading, room, gpus, device.peak("fp16"), device.bandwidth)
    alone = 3600 * jobs / seconds if seconds else None
    if as_json:
        document: dict[str, Any] = {
            "schema": CAPACITY_SCHEMA,
            "model": asdict(size),
            "gpu": device.name,
            "gpus": gpus,
            "jobs_read": jobs,
            "a_job": asdict(reading),
            "cached_share": reading.cached / reading.prompt if reading.prompt else None,
            "readings_at_once": min(room.readings, MOST_AT_ONCE),
            "jobs_an_hour_estimate": estimated,
            "jobs_an_hour_one_at_a_time": alone,
        }
        typer.echo(dumps(document, indent=2))
        return
    share = reading.cached / reading.prompt if reading.prompt else 0.0
    typer.echo(
        f"a job takes {reading.calls:.1f} calls, {reading.prompt:,.0f} prompt tokens "
        f"({share:.0%} from the server's cache) and {reading.reply:,.0f} reply tokens "
        f"({jobs:,} read)"
    )
    if alone is not None:
        typer.echo(f"one at a time, as measured:  {alone:,.0f} jobs an hour")
    if estimated:
        typer.echo(
            f"on {gpus} x {device.name}:  about {estimated:,.0f} jobs an hour, "
            f"{min(room.readings, MOST_AT_ONCE)} at once (an estimate from its datasheet)"
        )
    else:
        typer.echo(f"on {gpus} x {device.name}: {_too_small(size, device.memory_bytes, tokens)}")


def _readings(since: str | None) -> tuple[Any, int, float]:
    """The average reading in the ledger, how many jobs that is of, and their seconds."""
    import time

    from schedmate.agent.react.extractor import PURPOSE
    from schedmate.durations import parse_duration
    from schedmate.llm.serving import Reading
    from schedmate.llm.store import FILE, Store
    from schedmate.settings import data_dir

    began = 0.0 if since is None else time.time() - parse_duration(since)
    calls: list[dict[str, Any]] = []
    if (data_dir() / FILE).exists():
        store = Store(data_dir())
        try:
            calls = [one for one in store.calls(since=began) if one["purpose"] == PURPOSE]
        finally:
            store.close()
    answered = [one for one in calls if one["verdict"] == "ok" and one["sent"] > 0]
    answered = [one for one in answered if one["endpoint"] != "scripted"]
    jobs = len({one["job"] for one in answered})
    if not jobs:
        raise InputError(
            "the ledger holds no reading of a repository; read some jobs first, "
            "`schedmate analyze REPO --model NAME`, or say a longer time with --since."
        )

    def mean(name: str) -> float:
        return float(sum(one[name] for one in answered)) / jobs

    reading = Reading(
        len(answered) / jobs, mean("input_tokens"), mean("cached_tokens"), mean("output_tokens")
    )
    return reading, jobs, float(sum(one["seconds"] for one in answered))


def _size(model: str, parameters: float | None) -> ModelSize:
    from schedmate.llm.serving import given_size, model_size

    if not model.strip() or model.startswith("-"):
        raise UsageError(
            f"{model!r} is not the name of a model; give one as its server does, such as "
            "Qwen/Qwen2.5-7B-Instruct."
        )
    return model_size(model) if parameters is None else given_size(model, parameters)


def _device(gpu: str) -> Any:
    from schedmate.schedulers.parallelism.devices import described, device

    if ":" in gpu:
        return described(gpu, "--gpu")
    say_which(gpu)
    return device(gpu, "--gpu")


def _context(context: int | None) -> int:
    if context is not None:
        return context
    from schedmate.settings import load_settings

    return load_settings().llm_context_tokens


def _too_small(size: ModelSize, memory_bytes: float, context: int) -> str:
    from schedmate.llm.serving import fit

    enough = (n for n in (1, 2, 4, 8, 16, 32, 64) if fit(size, memory_bytes, n, context).readings)
    gpus = next(enough, None)
    more = f"{gpus} of these GPUs would do" if gpus else "not even 64 of these GPUs would do"
    return f"the model does not fit with {context:,} tokens of context; {more}, or fewer tokens"
