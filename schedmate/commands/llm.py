"""`schedmate llm`: says which model server to start, and what calls to one cost."""

from __future__ import annotations

import shlex
import sys
import time
from contextlib import closing
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from schedmate.base.data import dumps
from schedmate.base.errors import InputError, ModelError, UsageError
from schedmate.base.inputs import moment_of, parse_duration
from schedmate.base.terminal import Screen, Table
from schedmate.commands.options import JsonOption, LlmBaseUrl

if TYPE_CHECKING:
    from schedmate.llm.runtimes import Memory
    from schedmate.llm.serving import ModelSize

SERVE_SCHEMA = "schedmate.serve-command/v1"
UP_SCHEMA = "schedmate.llm-up/v1"
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
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="Name of the model on a hub, or its folder.")
    ],
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

    size, device, tokens = _model_size(model, parameters), _device(gpu), _context_length(context)
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


def up(
    llm_base_url: LlmBaseUrl = None,
    memory_gb: Annotated[
        float | None,
        typer.Option(
            "--memory",
            min=0.5,
            max=10_000,
            metavar="GB",
            help="Memory for the model. Default: this machine's.",
        ),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Write nothing; print the settings.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Find a model server on this machine and set it up.

    Looks for Ollama, llama-server, vLLM and LM Studio. If one answers, its address, a model, the
    context, time limits and the mode are written to the user's settings file (or the one that
    --config names), and the checks of `schedmate doctor` on models run. If none answers, the
    commands that install or start one are printed, with a model that fits the memory. Nothing is
    installed or started.
    """
    from schedmate.llm import require_packages, runtimes

    require_packages()
    memory = runtimes.memory_here()
    if memory_gb is not None:
        memory = replace(memory, bytes=memory_gb * _GB)
    places = runtimes.usual_places() if llm_base_url is None else {"the server": llm_base_url}
    server = next(
        (one for one in runtimes.running(places) if runtimes.best_model(one.models)), None
    )
    if server is None:
        _say_how_to_start(memory, list(places.values()), as_json=as_json)
        return
    model = runtimes.best_model(server.models)
    assert model is not None
    values = runtimes.settings_for(server, model, memory)
    if not as_json:
        typer.echo(f"{server.runtime} answers at {server.base_url} and serves {model.name}")
    _set_up(values, dry_run=dry_run, as_json=as_json, memory=memory)


def _say_how_to_start(memory: Memory, places: list[str], *, as_json: bool) -> None:
    """Print the commands that serve a model here, then end with what is missing."""
    from schedmate.llm import runtimes

    choice, found = runtimes.choose(memory), runtimes.installed()
    if choice is None:
        raise InputError(
            f"no model fits into {memory.bytes / _GB:.0f} GB ({memory.name}); name a server on "
            "another machine with --llm-base-url, or go on without a model."
        )
    runtime = runtimes.runtime_to_start(found, memory)
    lines = runtimes.lines_to_start(runtime, choice, install=runtime not in found)
    if as_json:
        document = {
            "schema": UP_SCHEMA,
            "ok": False,
            "settings": None,
            "written": False,
            "memory": asdict(memory),
            "choice": asdict(choice),
            "commands": lines,
            "checks": [],
        }
        typer.echo(dumps(document, indent=2))
    else:
        typer.echo(
            f"# {choice.bytes / _GB:.0f} of {memory.bytes / _GB:.0f} GB ({memory.name}) for a "
            f"quantised model with {choice.context:,} tokens of context:"
        )
        for line in [*lines, "schedmate llm up"]:
            typer.echo(line)
    looked = ", ".join(places)
    raise ModelError("unavailable", f"no model server answers here (looked at {looked}).")


def _set_up(values: dict[str, Any], *, dry_run: bool, as_json: bool, memory: Memory) -> None:
    """Write the settings and run the checks of a model with them."""
    from schedmate.commands.doctor import SET_MODEL, examine_model, guarded, print_checks
    from schedmate.commands.init import old_settings, write_settings
    from schedmate.settings import config_dir, load_settings, named_file

    path = named_file() or config_dir() / "config.toml"
    old = old_settings(path) if path.exists() else {}
    written = not dry_run and old | values != old
    if written:
        write_settings(path, old | values)
    if not as_json:
        typer.echo(f"{path} {'was written' if written else 'is as it was'}:")
        for name, value in values.items():
            typer.echo(f"  {name} = {value}")
    settings = load_settings(**values)
    checks = list(guarded("model", SET_MODEL, examine_model(settings)))
    more = {"settings": values, "written": written, "memory": asdict(memory)}
    more |= {"choice": None, "commands": []}
    print_checks(checks, UP_SCHEMA, as_json=as_json, more=more)


def capacity(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="Name of the model.")],
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

    size, device, tokens = _model_size(model, parameters), _device(gpu), _context_length(context)
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
    from schedmate.agent.react.extractor import PURPOSE
    from schedmate.llm.serving import Reading

    calls = [call for call in _calls(since) if call["purpose"] == PURPOSE]
    answered = [call for call in calls if call["verdict"] == "ok" and call["sent"] > 0]
    answered = [call for call in answered if call["endpoint"] != "scripted"]
    jobs = len({call["job"] for call in answered})
    if not jobs:
        raise InputError(
            "the ledger holds no reading of a repository; read some jobs first, "
            "`schedmate analyze REPO --model NAME`, or say a longer time with --since."
        )

    def mean(name: str) -> float:
        return float(sum(call[name] for call in answered)) / jobs

    reading = Reading(
        len(answered) / jobs, mean("input_tokens"), mean("cached_tokens"), mean("output_tokens")
    )
    return reading, jobs, float(sum(call["seconds"] for call in answered))


def _model_size(model: str, parameters: float | None) -> ModelSize:
    from schedmate.llm.serving import given_size, model_size

    if not model.strip() or model.startswith("-"):
        raise UsageError(
            f"{model!r} is not the name of a model; give one as its server does, such as "
            "Qwen/Qwen2.5-7B-Instruct."
        )
    return model_size(model) if parameters is None else given_size(model, parameters)


def _device(gpu: str) -> Any:
    from schedmate.schedulers.parallelism.devices import find_device, parse_device

    if ":" in gpu:
        return parse_device(gpu, "--gpu")
    from schedmate.commands.parallel import say_device

    say_device(gpu)
    return find_device(gpu, "--gpu")


def _context_length(context: int | None) -> int:
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


# `schedmate llm`: what language models were asked, and what it took.


LEDGER_SCHEMA = "schedmate.ledger/v1"

app = typer.Typer(
    no_args_is_help=True, help="Serve a language model; list its calls and their cost."
)
app.command("serve-command")(serve_command)
app.command()(up)
app.command()(capacity)


@app.command()
def ledger(
    last: Annotated[
        int, typer.Option("--last", "-n", min=1, help="How many calls to list, newest first.")
    ] = 20,
    since: Annotated[
        str | None,
        typer.Option(help="Only calls of the last 24h, 7-0 (days-hours) or other time span."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List calls of language models: tokens, time, verdict, sums.

    A request that reached no server (none there, no time or budget left) is not a call and has no
    tokens. The ledger has no text; the setting `trajectories` keeps records of readings.
    """
    calls = _calls(since)
    totals = _ledger_totals(calls)
    if as_json:
        document = {"schema": LEDGER_SCHEMA, "totals": totals, "calls": calls[:last]}
        typer.echo(dumps(document, indent=2))
        return
    _print_ledger(calls[:last], totals)


def _calls(since: str | None) -> list[dict[str, Any]]:
    """The calls in the ledger of the most recent time span, newest first; None: all."""
    from schedmate.llm.store import STORE_FILE, Store
    from schedmate.settings import data_dir

    began = 0.0 if since is None else time.time() - parse_duration(since)
    if not (data_dir() / STORE_FILE).exists():
        return []
    with closing(Store(data_dir())) as store:
        return list(store.calls(since=began))


def _ledger_totals(calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Sums by endpoint, model and purpose, the most used first."""
    sums: dict[tuple[str, str, str], dict[str, Any]] = {}
    for call in calls:
        key = (call["endpoint"], call["model"], call["purpose"])
        total = sums.setdefault(
            key,
            dict(zip(("endpoint", "model", "purpose"), key, strict=True))
            | dict.fromkeys(
                (
                    *("calls", "from_cache", "failed", "unsent"),
                    *("input_tokens", "cached_tokens", "output_tokens"),
                ),
                0,
            )
            | {"seconds": 0.0, "cost": 0.0},
        )
        answered = call["verdict"] == "ok"
        unsent = not answered and call["sent"] == 0  # no server, no time or no budget
        total["calls"] += not unsent
        total["from_cache"] += call["attempts"] == 0 and answered
        total["failed"] += not (answered or unsent)
        total["unsent"] += unsent
        for name in ("input_tokens", "cached_tokens", "output_tokens", "seconds", "cost"):
            total[name] += call[name]
    return sorted(sums.values(), key=lambda one: -one["calls"])


def _print_ledger(calls: list[dict[str, Any]], totals: list[dict[str, Any]]) -> None:
    screen = Screen(sys.stdout)
    if not calls:
        screen.line("no model has been called yet.")
        return
    tokens = sum(total["input_tokens"] + total["output_tokens"] for total in totals)
    seconds = sum(total["seconds"] for total in totals)
    count, unsent = (sum(total[name] for total in totals) for name in ("calls", "unsent"))
    never = f", {unsent:,} more reached no server" if unsent else ""
    screen.line(f"{count:,} calls, {tokens:,} tokens, {seconds:,.1f} s{never}")
    numbers = ("calls", "cached", "failed", "not sent", "tokens in", "out", "s", "cost")
    sums = Table("model", "at", "for", *numbers, right=numbers)
    for total in totals:
        sums.add(
            total["model"],
            total["endpoint"],
            total["purpose"],
            *(f"{total[name]:,}" for name in ("calls", "from_cache", "failed", "unsent")),
            *(f"{total[name]:,}" for name in ("input_tokens", "output_tokens")),
            f"{total['seconds']:,.1f}",
            f"{total['cost']:,.4f}",
        )
    screen.line()
    screen.table(sums)
    columns = ("time (UTC)", "for", "job", "model", "verdict", "in", "out", "s", "why")
    listed = Table(*columns, right=("in", "out", "s"))
    for call in calls:
        moment = moment_of(call["time"])
        listed.add(
            moment.strftime("%Y-%m-%d %H:%M:%S"),
            call["purpose"],
            call["job"] or "",
            call["model"],
            call["verdict"]
            + (" (cache)" if call["attempts"] == 0 else "") * (call["verdict"] == "ok"),
            f"{call['input_tokens']:,}",
            f"{call['output_tokens']:,}",
            f"{call['seconds']:.1f}",
            call["detail"] or "",
        )
    screen.line()
    screen.table(listed)
