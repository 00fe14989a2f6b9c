"""`schedmate parallel`: how to split a large model over GPUs, and what each split would take."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from schedmate.commands.options import JsonOption
from schedmate.commands.parallel_collectives import collectives
from schedmate.commands.parallel_known import devices, models
from schedmate.commands.parallel_options import (
    DeviceOption,
    NetworkOption,
    ProfileOption,
    network,
    say_which,
)
from schedmate.errors import INPUT, InputError, UsageError
from schedmate.plain import MOST_GPUS, dumps
from schedmate.terminal import clean, progress, say

if TYPE_CHECKING:
    from schedmate.schedulers.parallelism.models import ModelSpec
    from schedmate.schedulers.parallelism.predict import Prediction

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
    """
    from schedmate.commands.parallel_text import show_prediction
    from schedmate.schedulers.parallelism.plan import Plan
    from schedmate.schedulers.parallelism.plan_files import NoPlan, plans_in
    from schedmate.schedulers.parallelism.predict import Predictor

    given = list(plans_in(plans))
    for gpu in sorted({gpu for one in given if isinstance(one, Plan) for gpu in one.gpu_types()}):
        say_which(gpu)
    predictor = Predictor(network(profile, between_nodes, device))
    found: list[tuple[str, Prediction | InputError]] = []
    with progress("predicting", len(given)) as step:
        for done, one in enumerate(given, 1):
            name = one.place if isinstance(one, NoPlan) else one.id
            try:
                if isinstance(one, NoPlan):
                    raise one.error
                found.append((name, predictor.predict(one)))
            except InputError as error:
                if len(given) == 1:
                    raise
                found.append((name, error))
            step(done, name)
    for number, (name, answer) in enumerate(found):
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
    if any(isinstance(answer, InputError) for _, answer in found):
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
        typer.Option(
            "--output", "-o", metavar="FILE", help="Write an HTML page to FILE.html instead."
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Find parallelism plans for a model on a number of GPUs, without running it.

    Examples:
      schedmate parallel plan --model gpt-2.7b --gpus 16 --gpu-type A100-40
      schedmate parallel plan REPO --command "torchrun train.py --config 7b.yaml" --gpus 16
    """
    from schedmate.schedulers.parallelism.candidates import Request
    from schedmate.schedulers.parallelism.plan import check
    from schedmate.schedulers.parallelism.planner import Planner

    precision, sharding, recompute = check(
        precision=precision, sharding=sharding, recompute=recompute
    )
    if sharding == "zero-3":
        raise UsageError(
            "zero-3 shards everything over all GPUs, which leaves no stages to plan: write such a "
            "plan by hand and use `schedmate parallel predict`"
        )
    spec, batch, length = _what(repo, command, model)
    request = Request(
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
        say_which(gpu_type)
    found = Planner(network(profile, between_nodes, device)).plan(request)
    if output is not None:
        from schedmate.files import open_output
        from schedmate.report.parallel import parallel_page

        with open_output(output) as stream:
            stream.write(parallel_page(found))
        say(f"wrote {output}")
    elif as_json:
        typer.echo(dumps(found.document(), indent=1))
    else:
        from schedmate.commands.parallel_text import show_planning

        show_planning(found)


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
    """Time the operators of a model on one device, for `predict` and `plan`.

    Each distinct operator is timed once with its shape under each tensor-parallel degree. The
    output shows how much the runs of an operator differ.
    """
    from schedmate.files import open_output
    from schedmate.schedulers.parallelism import models as known
    from schedmate.schedulers.parallelism.operators import Sizes
    from schedmate.schedulers.parallelism.plan import check
    from schedmate.schedulers.parallelism.timing import COLUMNS, row, timed

    (precision,) = check(precision=precision)
    spec = known.model(model)
    lines, noise = [COLUMNS], []
    cases = list(product(micro_batch or DEGREES, tensor or DEGREES))
    with progress("timing", len(cases)) as step:
        for done, (batch, degree) in enumerate(cases, 1):
            sizes = Sizes(batch, sequence, precision, degree)
            for timing in timed(spec, sizes, on, repeats):
                lines.append(row(timing, gpu, spec, sizes))
                noise.append(timing.noise)
            step(done, f"micro-batch {batch}, tensor {degree}")
    with open_output(output) as stream:
        stream.write("\n".join(lines) + "\n")
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
    """Print the launch arguments that run a plan."""
    from schedmate.schedulers.parallelism.export import FRAMEWORKS, exported
    from schedmate.schedulers.parallelism.plan_files import read_plans

    if to not in FRAMEWORKS:
        raise UsageError(f"--to {to}: say one of {', '.join(FRAMEWORKS)}")
    typer.echo(exported(next(read_plans(plans)), to))


app.command()(devices)
app.command()(models)


def _what(
    repo: Path | None, command: str | None, name: str | None
) -> tuple[ModelSpec, int | None, int | None]:
    """The model, and the global batch and sequence length that the source code states."""
    from schedmate.schedulers.parallelism.models import model
    from schedmate.schedulers.parallelism.sizes import from_metadata

    if repo is None:
        if name is None:
            raise UsageError("say what to plan: a REPO with its --command, or --model NAME")
        return model(name), None, None
    from schedmate.jobs import JobSpec
    from schedmate.readers import Readers
    from schedmate.settings import Settings

    with Readers(own_process=True) as readers:
        job = JobSpec(repo=str(repo), command=command)
        extraction = readers.extract(job, Settings().budget_s)
    training = extraction.metadata.sections()["training_config"]
    sizes = extraction.metadata.sections()["model_config"]
    spec = model(name) if name else from_metadata(extraction.metadata)
    batch = next((training[key] for key in _BATCH if isinstance(training.get(key), int)), None)
    lengths = (one.get(key) for one in (training, sizes) for key in _SEQUENCE)
    length = next((value for value in lengths if isinstance(value, int)), None)
    return spec, batch, length


_BATCH = ("global_batch_size", "global_batch", "batch_size")
_SEQUENCE = ("seq_length", "sequence_length", "seq_len", "max_seq_len", "block_size", "max_length")
