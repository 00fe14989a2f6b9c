"""`schedmate parallel`: plans how to split a large model over GPUs, and predicts the cost.

Also times collectives, converts profiles, and lists the GPU types and models known by name.
"""

from __future__ import annotations

import sys
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from schedmate.base.data import MOST_GPUS, dumps
from schedmate.base.errors import INPUT, InputError, UsageError
from schedmate.base.files import write_output
from schedmate.base.terminal import Screen, Table, clean, progress, say
from schedmate.commands.options import JsonOption

if TYPE_CHECKING:
    from schedmate.schedulers.parallelism.models import ModelSpec
    from schedmate.schedulers.parallelism.network import Network
    from schedmate.schedulers.parallelism.planner import GridPlans, Planning
    from schedmate.schedulers.parallelism.predict import Prediction


COLLECTIVES_SCHEMA = "schedmate.parallel-collectives/v1"


def collectives(
    profile: ProfileOption = None,
    ranks: Annotated[
        int | None,
        typer.Option(
            min=2, max=64, help="Time collectives now, between this many devices of this machine."
        ),
    ] = None,
    gpu: Annotated[
        str | None, typer.Option(help="With --ranks: name of this GPU type, such as A100-40.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="With --ranks: the table to write."),
    ] = None,
    on: Annotated[str, typer.Option(help="With --ranks: cuda (NCCL) or cpu (gloo).")] = "cuda",
    repeats: Annotated[int, typer.Option(min=2, help="With --ranks: timed runs of each.")] = 20,
    as_json: JsonOption = False,
) -> None:
    """Show latency, bandwidth and fit of collectives by volume.

    Predictions interpolate between measured volumes; the last column has the error of that for
    volumes that were left out.

    Examples:

      schedmate parallel collectives --profile collectives.csv.gz

      schedmate parallel collectives --ranks 4 --gpu A100-40 -o collectives.csv
    """
    from schedmate.schedulers.parallelism.network import alpha_beta_fits
    from schedmate.schedulers.parallelism.profile import read_tables

    paths = list(profile or [])
    if ranks is not None:
        if gpu is None or output is None:
            raise UsageError("--ranks times collectives: say --gpu NAME and -o FILE as well")
        _time_collectives(ranks, gpu, output, on, repeats)
        paths.append(output)
    if not paths:
        raise UsageError("say what to show: --profile collectives.csv, or --ranks to time some")
    fits = alpha_beta_fits(read_tables(paths))
    if not fits:
        raise InputError(
            f"{paths[0]}: no times of collectives in it; time some with --ranks, --gpu and -o"
        )
    if as_json:
        rows = [
            {**fit._asdict(), "bandwidth": fit.bandwidth if fit.bandwidth < float("inf") else None}
            for fit in fits
        ]
        typer.echo(dumps({"schema": COLLECTIVES_SCHEMA, "collectives": rows}, indent=1))
        return
    right = ("GPUs", "volumes", "latency", "bandwidth", "error of the line", "interpolated")
    table = Table("GPU", "precision", "primitive", *right, right=right)
    for fit in fits:
        table.add(
            fit.gpu,
            fit.precision,
            fit.primitive,
            fit.ranks,
            fit.points,
            f"{fit.latency_s * 1e6:,.0f} us",
            f"{fit.bandwidth / 1e9:,.1f} GB/s",
            f"{fit.error:.0%}",
            f"{fit.interpolated:.0%}",
        )
    Screen(sys.stdout).table(table)


def _time_collectives(ranks: int, gpu: str, output: Path, on: str, repeats: int) -> None:
    from schedmate.schedulers.parallelism.network import (
        COLLECTIVE_COLUMNS,
        collective_row,
        time_collectives,
    )

    if on.partition(":")[0] not in ("cpu", "cuda"):
        raise UsageError(f"--on {on}: say cuda or cpu")
    timings = time_collectives(ranks, on, repeats)
    write_output(
        output,
        "\n".join([COLLECTIVE_COLUMNS, *(collective_row(timing, gpu) for timing in timings)])
        + "\n",
    )
    say(f"timed {len(timings)} collectives among {ranks} devices")


# `schedmate parallel devices` and `models`: the GPU types and models that are known by name.


def devices(as_json: JsonOption = False) -> None:
    """List the known GPU types with their datasheet numbers."""
    from schedmate.schedulers.parallelism import devices as known

    gpu_types = known.bundled_devices().values()
    if as_json:
        rows = [
            {
                "name": gpu.name,
                "memory_bytes": gpu.memory_bytes,
                "bandwidth": gpu.bandwidth,
                "peaks": dict(gpu.peaks),
                "link": gpu.link,
                "source": gpu.source,
            }
            for gpu in gpu_types
        ]
        typer.echo(dumps({"schema": "schedmate.parallel-devices/v1", "devices": rows}, indent=1))
        return
    table = Table("GPU", "memory", "bandwidth", "fp32", "bf16/fp16", "source")
    for gpu in gpu_types:
        table.add(
            gpu.name,
            f"{gpu.memory_bytes / 1e9:.0f} GB",
            f"{gpu.bandwidth / 1e9:,.0f} GB/s",
            f"{gpu.peak('fp32') / 1e12:.1f} TFLOP/s",
            f"{gpu.peak('fp16') / 1e12:.0f} TFLOP/s",
            gpu.source,
        )
    Screen(sys.stdout).table(table)


def models(as_json: JsonOption = False) -> None:
    """List the known models with their sizes."""
    from schedmate.schedulers.parallelism import models as known

    known_models = known.bundled_models().values()
    if as_json:
        rows = [
            {
                "name": model.name,
                "parameters": model.parameters(),
                "hidden": model.hidden,
                "layers": model.layers,
            }
            for model in known_models
        ]
        typer.echo(dumps({"schema": "schedmate.parallel-models/v1", "models": rows}, indent=1))
        return
    table = Table("model", "parameters", "hidden", "layers", "heads")
    for model in known_models:
        table.add(
            model.name,
            f"{model.parameters() / 1e9:.2f} billion",
            str(model.hidden or "-"),
            str(model.layers),
            str(model.heads if model.hidden else "-"),
        )
    Screen(sys.stdout).table(table)


# Options of the commands of `schedmate parallel`, and the network that they describe.


ProfileOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--profile",
        metavar="FILE",
        help=(
            "Measured times: layers, collectives, kernels (CSV, also gzip), fitted links "
            "(network.json), or a folder with such files. Repeatable."
        ),
    ),
]
NetworkOption = Annotated[
    float | None,
    typer.Option(
        "--network",
        min=0.01,
        metavar="GB/S",
        help="Bandwidth from a node to other nodes, if no profile has it.",
    ),
]
DeviceOption = Annotated[
    list[str] | None,
    typer.Option(
        "--device",
        metavar="NAME:memory=GB,...",
        help="A GPU type by its datasheet, such as X:memory=80,bandwidth=3350,bf16=989,link=450.",
    ),
]


def described_network(
    profile: list[Path] | None, between_nodes: float | None, described: list[str] | None
) -> Network:
    """The cluster that the options describe; raises `InputError` for what cannot be read."""
    from schedmate.schedulers.parallelism import devices
    from schedmate.schedulers.parallelism.network import Network
    from schedmate.schedulers.parallelism.profile import read_tables

    return Network(
        read_tables(profile or []),
        (between_nodes or 0) * 1e9,
        tuple(devices.parse_device(text) for text in described or []),
        describing="--device",
    )


def say_device(gpu: str) -> None:
    """Say which GPU a name is taken for that several of different memory have."""
    from schedmate.schedulers.parallelism.devices import assumed_memory_variant

    meant = assumed_memory_variant(gpu)
    if meant is not None:
        say(f"note: {meant}")


# `schedmate parallel`: how to split a large model over GPUs, and what each split would take.


app = typer.Typer(
    no_args_is_help=True,
    help="Plan how to split a large model over GPUs; predict the cost.",
)

app.command()(collectives)

DEGREES = (1, 2, 4)
MOST = 10**6
"""Samples of an iteration and tokens of a sample at most, as in a plan."""


@app.command()
def predict(
    plans: Annotated[
        Path, typer.Argument(metavar="PLAN", help="Plans as JSON, an array of them or JSON lines.")
    ],
    profile: ProfileOption = None,
    between_nodes: NetworkOption = None,
    device: DeviceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Predict the iteration time and memory of plans given by hand.

    With --json one line per plan: iteration_s, max_memory_bytes and their parts. If there are
    several plans, one that cannot be predicted or read gets a line with its error, and the exit
    code is 3.

    Example: schedmate parallel predict plan.json --profile profiles/
    """
    from schedmate.schedulers.parallelism.plan import InvalidPlan, Plan, plans_in
    from schedmate.schedulers.parallelism.predict import Predictor

    plans_read = list(plans_in(plans))
    for gpu in sorted(
        {gpu for one in plans_read if isinstance(one, Plan) for gpu in one.gpu_types()}
    ):
        say_device(gpu)
    predictor = Predictor(described_network(profile, between_nodes, device))
    predictions: list[tuple[str, Prediction | InputError]] = []
    with progress("predicting", len(plans_read)) as step:
        for done, one in enumerate(plans_read, 1):
            name = one.place if isinstance(one, InvalidPlan) else one.id
            try:
                if isinstance(one, InvalidPlan):
                    raise one.error
                predictions.append((name, predictor.predict(one)))
            except InputError as error:
                if len(plans_read) == 1:
                    raise
                predictions.append((name, error))
            step(done, name)
    for number, (name, answer) in enumerate(predictions):
        if as_json:
            failed = {"id": name, "error": str(answer)}
            typer.echo(dumps(failed if isinstance(answer, InputError) else answer.document()))
            continue
        if number:
            typer.echo()
        if isinstance(answer, InputError):
            typer.echo(clean(answer))
        else:
            show_prediction(answer)
    if any(isinstance(answer, InputError) for _, answer in predictions):
        raise typer.Exit(INPUT)


@app.command()
def plan(
    repo: Annotated[
        Path | None,
        typer.Argument(metavar="REPO", help="Source code of the job; or name a --model."),
    ] = None,
    command: Annotated[
        str | None, typer.Option("--command", "-c", help="The launch command, as typed in REPO.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(help="A known model, such as gpt-2.7b; see `schedmate parallel models`."),
    ] = None,
    gpus: Annotated[int, typer.Option(min=1, max=MOST_GPUS, help="GPUs, a power of two.")] = 8,
    gpu_type: Annotated[str, typer.Option(help="GPU model, such as A100-80.")] = "A100-80",
    gpus_per_node: Annotated[int, typer.Option(min=1, max=64, help="GPUs per node.")] = 8,
    global_batch: Annotated[
        int | None,
        typer.Option(min=1, max=MOST, help="Samples per iteration. Default: as in REPO."),
    ] = None,
    sequence: Annotated[
        int | None,
        typer.Option(min=1, max=MOST, help="Tokens per sample. Default: as in REPO."),
    ] = None,
    precision: Annotated[str, typer.Option(help="fp32, tf32, fp16, bf16 or fp8.")] = "bf16",
    sharding: Annotated[str, typer.Option(help="none, zero-1 or zero-2.")] = "none",
    recompute: Annotated[str, typer.Option(help="none, selective or full.")] = "none",
    uniform: Annotated[
        bool, typer.Option("--uniform", help="Give all stages the same number of GPUs.")
    ] = False,
    profile: ProfileOption = None,
    between_nodes: NetworkOption = None,
    device: DeviceOption = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", help="Write the plans as an HTML page."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find parallelism plans for a model, without running it.

    Examples:

      schedmate parallel plan --model gpt-2.7b --gpus 16 --gpu-type A100-40

      schedmate parallel plan REPO --command "torchrun train.py --config 7b.yaml" --gpus 16
    """
    from schedmate.schedulers.parallelism.plan import check_settings
    from schedmate.schedulers.parallelism.planner import Planner, PlanRequest

    precision, sharding, recompute = check_settings(
        precision=precision, sharding=sharding, recompute=recompute
    )
    if sharding == "zero-3":
        raise UsageError(
            "zero-3 shards everything over all GPUs, which leaves no stages to plan: write such a "
            "plan by hand and use `schedmate parallel predict`"
        )
    spec, batch, length = _model_and_sizes(repo, command, model)
    request = PlanRequest(
        spec,
        gpu_type,
        gpus,
        gpus_per_node,
        global_batch or batch or 256,
        sequence or length or spec.positions or 2048,
        precision,
        sharding,
        recompute,
        uniform,
    )
    if not device:
        say_device(gpu_type)
    planning = Planner(described_network(profile, between_nodes, device)).plan(request)
    if output is not None:
        from schedmate.report.parallel import parallel_page

        write_output(output, parallel_page(planning))
        say(f"wrote {output}")
    elif as_json:
        typer.echo(dumps(planning.document(), indent=1))
    else:
        show_planning(planning)


@app.command()
def profile(
    model: Annotated[str, typer.Option(help="A known model; see `schedmate parallel models`.")],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", metavar="FILE", help="Table to write, such as layers.csv."),
    ],
    gpu: Annotated[str, typer.Option(help="Name of this GPU type, such as A100-40.")],
    micro_batch: Annotated[
        list[int] | None, typer.Option(min=1, help="Micro-batch sizes. Default: 1, 2, 4.")
    ] = None,
    tensor: Annotated[
        list[int] | None, typer.Option(min=1, help="Tensor-parallel degrees. Default: 1, 2, 4.")
    ] = None,
    sequence: Annotated[int, typer.Option(min=1, help="Tokens per sample.")] = 2048,
    precision: Annotated[str, typer.Option(help="fp32, tf32, fp16 or bf16.")] = "bf16",
    on: Annotated[str, typer.Option(help="PyTorch device: cuda, cuda:1, cpu.")] = "cuda",
    repeats: Annotated[int, typer.Option(min=2, help="Timed runs of each operator.")] = 20,
) -> None:
    """Time the operators of a model on one device.

    `predict` and `plan` use the result. Each distinct operator is timed once with its shape under
    each tensor-parallel degree. The output shows how much the runs of an operator differ.

    Example: schedmate parallel profile --model gpt-2.7b --gpu A100-40 -o layers.csv
    """
    from schedmate.schedulers.parallelism import models as known
    from schedmate.schedulers.parallelism.operators import Sizes
    from schedmate.schedulers.parallelism.plan import check_settings
    from schedmate.schedulers.parallelism.profile import (
        TIMING_COLUMNS,
        time_operators,
        timing_row,
    )

    (precision,) = check_settings(precision=precision)
    spec = known.find_model(model)
    lines, noise = [TIMING_COLUMNS], []
    cases = list(product(micro_batch or DEGREES, tensor or DEGREES))
    with progress("timing", len(cases)) as step:
        for done, (batch, degree) in enumerate(cases, 1):
            sizes = Sizes(batch, sequence, precision, degree)
            for timing in time_operators(spec, sizes, on, repeats):
                lines.append(timing_row(timing, gpu, spec, sizes))
                noise.append(timing.noise)
            step(done, f"micro-batch {batch}, tensor {degree}")
    write_output(output, "\n".join(lines) + "\n")
    say(
        f"timed {len(lines) - 1} operators; the middle half of an operator's runs is within "
        f"{sorted(noise)[len(noise) // 2]:.0%} of their median"
    )


@app.command()
def export(
    plans: Annotated[
        Path,
        typer.Argument(
            metavar="PLAN", help="A plan as JSON, or the output of `parallel plan --json`."
        ),
    ],
    to: Annotated[str, typer.Option(help="megatron, deepspeed, torchtitan or fsdp.")] = "megatron",
) -> None:
    """Print the launch arguments that run a plan.

    Example: schedmate parallel export plan.json --to torchtitan
    """
    from schedmate.schedulers.parallelism.export import FRAMEWORKS, launch_arguments
    from schedmate.schedulers.parallelism.plan import read_plans

    if to not in FRAMEWORKS:
        raise UsageError(f"--to {to}: say one of {', '.join(FRAMEWORKS)}")
    typer.echo(launch_arguments(next(read_plans(plans)), to))


app.command()(devices)
app.command()(models)


def _model_and_sizes(
    repo: Path | None, command: str | None, name: str | None
) -> tuple[ModelSpec, int | None, int | None]:
    """The model, and the global batch and sequence length that the source code states."""
    from schedmate.schedulers.parallelism.models import find_model, model_from_metadata

    if repo is None:
        if name is None:
            raise UsageError("say what to plan: a REPO with its --command, or --model NAME")
        return find_model(name), None, None
    from schedmate.jobs import JobSpec
    from schedmate.readers import Readers
    from schedmate.settings import Settings

    with Readers(own_process=True) as readers:
        job = JobSpec(repo=str(repo), command=command)
        extraction = readers.extract(job, Settings().budget_s)
    training = extraction.metadata.sections()["training_config"]
    sizes = extraction.metadata.sections()["model_config"]
    spec = find_model(name) if name else model_from_metadata(extraction.metadata)
    batch = next((training[key] for key in _BATCH if isinstance(training.get(key), int)), None)
    lengths = (one.get(key) for one in (training, sizes) for key in _SEQUENCE)
    length = next((value for value in lengths if isinstance(value, int)), None)
    return spec, batch, length


_BATCH = ("global_batch_size", "global_batch", "batch_size")
_SEQUENCE = ("seq_length", "sequence_length", "seq_len", "max_seq_len", "block_size", "max_length")


# Plans for people: what to run, why, and what the alternatives would cost.


MOST_SHOWN = 6
"""Limit for the alternatives that are listed, one per number of stages."""


def show_planning(planning: Planning) -> None:
    """Print the best plan with its reasons, then the best plan of every other number of stages."""
    screen = Screen(sys.stdout)
    best = planning.best.proxy
    request = planning.request
    screen.line(
        f"{request.spec.name} ({request.spec.parameters() / 1e9:.2f} billion parameters) on "
        f"{request.gpus} {request.gpu}: {best.samples_per_s:.4g} samples/s, "
        f"{best.iteration_s:.4g} s an iteration of {request.global_batch} samples "
        f"(80 % interval: {best.interval_s[0]:.4g} to {best.interval_s[1]:.4g} s)"
    )
    for note in planning.notes:
        screen.line(f"note: {note}")
    screen.line()
    stages = Table("stage", "layers", "GPUs", "tensor", "data", "memory", "", right=("memory",))
    for place, stage in enumerate(best.plan.stages):
        stages.add(
            place + 1,
            stage.layers,
            stage.gpus,
            stage.tensor,
            stage.data,
            f"{best.memory[place].total / 1e9:.1f} GB",
            "slowest" if place == best.bottleneck and len(best.plan.stages) > 1 else "",
        )
    screen.table(stages)
    screen.line()
    for reason in plan_reasons(best):
        screen.line(reason)
    if len(planning.grids) > 1:
        screen.line()
        screen.table(_alternatives(planning))
    if len(planning.grids) > MOST_SHOWN:
        screen.line(f"{len(planning.grids) - MOST_SHOWN} slower ones are left out; --json has all.")


def show_prediction(prediction: Prediction) -> None:
    """Print the time and memory that a plan is predicted to take."""
    title = f"{clean(prediction.plan.id)}: " if prediction.plan.id else ""
    typer.echo(
        f"{title}{prediction.iteration_s:.4g} s an iteration "
        f"(80 % interval: {prediction.interval_s[0]:.4g} to {prediction.interval_s[1]:.4g} s), "
        f"{prediction.samples_per_s:.4g} samples/s, "
        f"{prediction.max_memory_bytes / 1e9:.1f} GB on the fullest GPU ({prediction.source})"
    )
    for name, seconds in prediction.parts.items():
        share = seconds / prediction.iteration_s
        typer.echo(
            f"  {name.removesuffix('_s').replace('_', ' '):24}{seconds:10.4g} s {share:6.0%}"
        )
    if not prediction.fits:
        typer.echo(f"  does not fit: {prediction.why_not}")
    for note in prediction.notes:
        typer.echo(f"  note: {clean(note)}")


def plan_reasons(best: Prediction) -> list[str]:
    """Where the time and the memory of a plan go, in sentences."""
    plan = best.plan
    largest = sorted(best.parts.items(), key=lambda part: -part[1])[:3]
    spent = ", ".join(
        f"{name.removesuffix('_s').replace('_', ' ')} {seconds / best.iteration_s:.0%}"
        for name, seconds in largest
    )
    fullest = max(range(len(best.memory)), key=lambda stage: best.memory[stage].total)
    memory = best.memory[fullest]
    return [
        f"Time goes to: {spent}.",
        (
            f"{plan.micro_batches} micro-batches of {plan.micro_batch} samples in each of "
            f"{plan.data} data-parallel replicas."
        ),
        (
            f"The fullest GPU (stage {fullest + 1}) holds {memory.total / 1e9:.1f} GB: "
            f"{memory.states / 1e9:.1f} weights, gradients and optimiser states, "
            f"{memory.activations / 1e9:.1f} activations, {memory.temporary / 1e9:.1f} temporary, "
            f"{memory.context / 1e9:.1f} the framework itself."
        ),
        *best.notes,
    ]


def _alternatives(planning: Planning) -> Table:
    table = Table("stages", "samples/s", "against the best", "fullest GPU", "plan")
    best = planning.best.proxy.iteration_s
    for grid in planning.grids[:MOST_SHOWN]:
        prediction = grid.proxy
        table.add(
            grid.stages,
            f"{prediction.samples_per_s:.4g}",
            f"{best / prediction.iteration_s - 1:+.0%}",
            f"{prediction.max_memory_bytes / 1e9:.1f} GB",
            plan_shape(grid),
        )
    return table


def plan_shape(grid: GridPlans) -> str:
    """The stages of a plan in short: `16 layers on 8 GPUs (tensor 2) + ...`."""
    return " + ".join(
        f"{stage.layers} on {stage.gpus}" + (f" (t{stage.tensor})" if stage.tensor > 1 else "")
        for stage in grid.proxy.plan.stages
    )
