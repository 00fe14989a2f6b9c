"""`schedmate ray`: a queue for training jobs on a Ray cluster, with any of the policies."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from schedmate.commands.options import JsonOption, PlainOption
from schedmate.commands.ray_client import DEFAULT, AddressOption, Client, NameOption
from schedmate.commands.ray_logs import follow_log, logs
from schedmate.commands.ray_up import down, up
from schedmate.errors import InputError, UsageError
from schedmate.plain import MOST_GPUS, dumps
from schedmate.terminal import say
from schedmate.validation import sentence

if TYPE_CHECKING:
    from schedmate.schedulers.live.queue.requests import Request

MOST_JOBS = 1_000_000
"""Jobs that are over which one look shows at most."""

app = typer.Typer(
    help="Run a queue of training jobs on a Ray cluster (extra `ray`).", no_args_is_help=True
)
app.command()(up)


@app.command()
def submit(
    repo: Annotated[
        Path | None,
        typer.Argument(
            metavar="REPO [-- COMMAND ...]",
            help=(
                "Directory of the job's source code, in which it runs; the same path on all nodes."
            ),
            show_default=False,
        ),
    ] = None,
    words: Annotated[list[str] | None, typer.Argument(hidden=True)] = None,
    command: Annotated[
        str | None, typer.Option("--command", "-c", help="The launch command, as typed in REPO.")
    ] = None,
    working_dir: Annotated[
        Path | None,
        typer.Option(
            "--working-dir", help="Same as REPO, for users of `ray job submit`.", metavar="DIR"
        ),
    ] = None,
    gpus: Annotated[
        float, typer.Option(min=0.01, help="GPUs over all nodes; 0.5 is half of a GPU.")
    ] = 1.0,
    min_gpus: Annotated[
        int, typer.Option(min=0, help="Fewest GPUs of an elastic job; with --max-gpus.")
    ] = 0,
    max_gpus: Annotated[int, typer.Option(min=0, help="Most GPUs of an elastic job.")] = 0,
    gpu_type: Annotated[str | None, typer.Option(help="GPU model, for example A100.")] = None,
    time_limit: Annotated[
        str | None,
        typer.Option(help="Time with GPUs after which it is stopped: 36h, 1-12:00:00."),
    ] = None,
    job_name: Annotated[str | None, typer.Option("--job-name", help="Name of the job.")] = None,
    priority: Annotated[
        int, typer.Option(min=-1000, max=1000, help="Priority; higher runs first.")
    ] = 0,
    env: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="NAME=VALUE", help="Environment variable of the command."),
    ] = None,
    checkpoints: Annotated[
        str | None,
        typer.Option(
            metavar="DIR",
            help="Directory of its checkpoints; a restart resumes from the newest complete one.",
        ),
    ] = None,
    signal: Annotated[
        str,
        typer.Option(
            help="Signal that tells it to save its work and end: TERM, INT, USR1 or USR2."
        ),
    ] = "TERM",
    grace: Annotated[str, typer.Option(help="Time between that signal and SIGKILL.")] = "30s",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Show its log until it ends.")
    ] = False,
    address: AddressOption = None,
    name: NameOption = DEFAULT,
    as_json: JsonOption = False,
) -> None:
    """Add a job to the queue.

    Examples:

      schedmate ray submit ~/work/gpt -c "python train.py --epochs 10" --gpus 2

      schedmate ray submit --working-dir ~/work/gpt -- python train.py --epochs 10
    """
    from schedmate.schedulers.live.queue.orders import shell_words
    from schedmate.schedulers.live.queue.store import new_mark

    given = list(words or [])
    if working_dir is not None and repo is not None:
        given, repo = [str(repo), *given], None
    place = working_dir or repo
    if place is None:
        raise UsageError("name the directory of the job: `schedmate ray submit REPO -c COMMAND`.")
    if (command is None) == (not given):
        raise UsageError("give the command once: with -c, or after --.")
    if not place.is_dir():
        raise InputError(f"{place} is not a directory; name the one in which the command is run.")
    request = _request(
        place.resolve(),
        command or shell_words(given),
        *(gpus, min_gpus, max_gpus, gpu_type, time_limit, job_name, priority),
        *(env or [], checkpoints, signal, grace),
    )
    client = Client(address, name)
    mark = new_mark()  # the same each time it is asked, so that it is submitted once
    job = client.ask("submit", mark, request.model_dump_json())
    if as_json:
        typer.echo(dumps({"job": job}))
    else:
        say(f"job {job} is in the queue; `schedmate ray logs -f {job}` shows its log.")
    if follow:
        follow_log(client, job, None, 0)


def _request(
    repo: Path,
    command: str,
    gpus: float,
    min_gpus: int,
    max_gpus: int,
    gpu_type: str | None,
    time_limit: str | None,
    job_name: str | None,
    priority: int,
    env: list[str],
    checkpoints: str | None,
    signal: str,
    grace: str,
) -> Request:
    from getpass import getuser

    from pydantic import ValidationError

    from schedmate.durations import parse_duration
    from schedmate.jobs import JobSpec, LaunchConfig
    from schedmate.schedulers.live.queue.requests import Request

    variables = {}
    for one in env:
        key, equals, value = one.partition("=")
        if not key or not equals:
            raise UsageError(f"--env {one}: write it as NAME=VALUE.")
        variables[key] = value
    limit_s = None if time_limit is None else parse_duration(time_limit)
    try:
        user: str | None = getuser()
    except (OSError, KeyError):
        user = None
    if not gpus <= MOST_GPUS:
        raise UsageError(f"--gpus {gpus:g}: a number up to {MOST_GPUS:,}.")
    try:
        launch = LaunchConfig(gpus=max(1, int(gpus)), gpu_type=gpu_type, time_limit_s=limit_s)
        spec = JobSpec(repo=str(repo), command=command, launch=launch, name=job_name, user=user)
        return Request(
            spec=spec,
            gpus=gpus,
            min_gpus=min_gpus,
            max_gpus=max_gpus,
            priority=priority,
            env=variables,
            checkpoints=checkpoints,
            signal=signal,
            grace_s=parse_duration(grace),
        )
    except ValidationError as error:
        raise UsageError(sentence(error)) from None


@app.command()
def queue(
    ended: Annotated[
        int, typer.Option(min=0, help="Also show this many of the last ended jobs.")
    ] = 0,
    every: Annotated[bool, typer.Option("--all", "-a", help="Also show all ended jobs.")] = False,
    address: AddressOption = None,
    name: NameOption = DEFAULT,
    as_json: JsonOption = False,
    plain: PlainOption = False,
) -> None:
    """Show running and waiting jobs.

    With their estimates, their expected start and end, and why a job waits.
    """
    from schedmate.commands.ray_words import show
    from schedmate.schedulers.live.queue.document import SCHEMA, QueueDocument
    from schedmate.terminal.screen import Screen

    found = Client(address, name).ask("look", MOST_JOBS if every else ended)
    document = QueueDocument.model_validate(found)
    if as_json:
        typer.echo(dumps({"schema": SCHEMA, **document.model_dump(mode="json")}, indent=2))
    else:
        show(document, Screen(sys.stdout, plain=plain))


app.command()(logs)


def _change(what: str, done: str, jobs: list[int], address: str | None, name: str) -> None:
    found = Client(address, name).ask("change", jobs, what)
    for job in jobs:
        if job in found:
            say(f"job {job} is {done}")
    missing = [str(job) for job in jobs if job not in found]
    if missing:
        raise InputError(
            f"not in the queue: {', '.join(missing)}; `schedmate ray queue --all` lists its jobs."
        )


JobsArgument = Annotated[list[int], typer.Argument(metavar="JOB...", help="Job numbers.")]


@app.command()
def cancel(jobs: JobsArgument, address: AddressOption = None, name: NameOption = DEFAULT) -> None:
    """Cancel jobs: waiting ones leave the queue, running ones are stopped."""
    _change("cancel", "being cancelled", jobs, address, name)


@app.command()
def hold(jobs: JobsArgument, address: AddressOption = None, name: NameOption = DEFAULT) -> None:
    """Keep waiting jobs from starting; a running one continues, but is not restarted."""
    _change("hold", "held", jobs, address, name)


@app.command()
def release(jobs: JobsArgument, address: AddressOption = None, name: NameOption = DEFAULT) -> None:
    """Let held jobs start."""
    _change("release", "released", jobs, address, name)


app.command()(down)
