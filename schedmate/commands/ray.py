"""`schedmate ray`: starts a queue of training jobs on a Ray cluster, and talks to it.

The queue itself is an actor on the cluster's head: `ray_service.py`.
"""

from __future__ import annotations

import codecs
import re
import shlex
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from schedmate.base.data import MOST_GPUS, dumps
from schedmate.base.errors import InputError, UsageError
from schedmate.base.inputs import fault_sentence, format_duration
from schedmate.base.terminal import Screen, Table, counted, say, strip_escapes
from schedmate.cluster.ray import Ray, address_of, forget_cluster, is_local_cluster, note_cluster
from schedmate.commands import options
from schedmate.commands.agents import BoundsOption, ShadowOption, add_report
from schedmate.commands.options import HistoryOption, JsonOption, PlainOption

if TYPE_CHECKING:
    from schedmate.cluster.ray.store import QueueDocument, QueueJob, Request
    from schedmate.commands.ray_service import QueueSetup


AddressOption = Annotated[
    str | None,
    typer.Option(
        "--address",
        metavar="HOST:PORT",
        help="The Ray cluster. Default: RAY_ADDRESS, then that of the last `ray up`, then auto.",
    ),
]
NameOption = Annotated[
    str, typer.Option("--name", help="Name of the queue, if the cluster has several.")
]
DEFAULT_NAME = "default"
PATIENCE_S = 60.0
"""Time that a client waits for a queue that is being restarted [s]."""
CALL_S = 30.0


def actor_name(name: str) -> str:
    """The name under which Ray knows a queue's actor."""
    return f"queue:{name}"


def queue_folder(name: str) -> Path:
    """Where a queue keeps its files unless `up --state` names another directory."""
    from schedmate.settings import data_dir

    return data_dir() / "ray" / name


class QueueClient:
    """The queue of a name on a cluster. Raises `InputError` where there is none."""

    def __init__(self, address: str | None, name: str) -> None:
        from schedmate.cluster.ray.backend import connect

        self.name, self.address = name, address_of(address)
        connect(self.address)
        self.actor = find_queue(name)
        if self.actor is None:
            raise InputError(
                f"the Ray cluster at {self.address} has no queue {name!r}; `schedmate ray up` "
                "starts one."
            )

    def ask(self, method: str, *arguments: Any) -> Any:
        """Call a method of the queue; waits while it is being restarted.

        Whatever is asked may be asked again, since the first answer may have been lost.
        """
        import ray

        until = time.monotonic() + PATIENCE_S
        while True:
            try:
                return ray.get(getattr(self.actor, method).remote(*arguments), timeout=CALL_S)
            except ray.exceptions.RayTaskError as error:
                cause = error.cause or error
                raise InputError(f"the queue cannot do that: {cause}") from None
            except (ray.exceptions.RayActorError, ray.exceptions.GetTimeoutError) as error:
                if time.monotonic() > until:
                    raise InputError(
                        f"the queue {self.name!r} does not answer: {type(error).__name__}; see "
                        "`ray list actors`, or `schedmate ray down` and `up` again."
                    ) from None
                time.sleep(0.5)
                self.actor = find_queue(self.name) or self.actor


def find_queue(name: str) -> Any:
    """The queue's actor, or None."""
    import ray

    from schedmate.cluster.ray.backend import NAMESPACE

    try:
        return ray.get_actor(actor_name(name), namespace=NAMESPACE)
    except ValueError:
        return None


# `schedmate ray up` and `down`: starting and ending the queue of a Ray cluster.


LEAST_LEASE_S = 15.0
"""Three times as long as a call of the queue waits for news (`seats.WAIT_S`) [s]."""


def up(
    policy: Annotated[
        str,
        typer.Option(
            help="A policy of `schedmate policies`, with settings: lucid:profile_limit_s=100.",
            autocompletion=options.complete_policy,
        ),
    ] = "sjf+schedmate",
    local: Annotated[
        str | None,
        typer.Option(
            metavar="NODESxGPUS",
            help=(
                "For trials: start a Ray cluster with simulated GPUs on this machine, which "
                "ends with this command."
            ),
        ),
    ] = None,
    state: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Directory of the queue's files on this machine, kept after it ends.",
        ),
    ] = None,
    shared: Annotated[
        Path | None,
        typer.Option(
            metavar="DIR",
            help="Logs and locks, on a file system that all nodes share; default: --state.",
        ),
    ] = None,
    history: HistoryOption = None,
    estimate: Annotated[
        bool,
        typer.Option(help="Estimate jobs from their code, or only use their time limits."),
    ] = True,
    restart: Annotated[
        bool,
        typer.Option(
            "--restart",
            help="Restart failed jobs as the Failure Handler proposes, within recovery's limits.",
        ),
    ] = False,
    recovery: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="A recovery.yaml: which actions are allowed after failures."
        ),
    ] = None,
    bounds: BoundsOption = None,
    shadow: ShadowOption = False,
    meter: Annotated[
        str | None,
        typer.Option(
            metavar="COMMAND",
            help=(
                "Command that measures GPUs {gpus} and prints `util,memory util,MB` for each. "
                "Default: nvidia-smi."
            ),
        ),
    ] = None,
    lease: Annotated[
        str,
        typer.Option(
            help=(
                "Time after which a job on an unreachable node ends by itself and is started "
                "elsewhere; 15s or more."
            )
        ),
    ] = "60s",
    keep: Annotated[
        str,
        typer.Option(
            help=(
                "How long a runner process keeps its GPUs for the next job of that size, "
                "since a new process takes a second or more to start."
            )
        ),
    ] = "30s",
    address: AddressOption = None,
    name: NameOption = DEFAULT_NAME,
) -> None:
    """Start the queue on a Ray cluster, or resume it after a restart.

    Ray restarts the queue when its process dies. The nodes need schedmate and the same paths. A
    change of the bounds or of recovery.yaml has them read anew; one with a fault is named by `ray
    queue`, and what held before stays. With --shadow, `ray report` says which failures it would
    have acted on.

    Examples:

      schedmate ray up --address 10.0.0.1:6379 --shared /nfs/schedmate --restart

      schedmate ray up --local 2x4 --policy lucid+schedmate
    """
    from schedmate.base.inputs import parse_duration
    from schedmate.cluster.ray.backend import prepare
    from schedmate.commands.ray_service import QueueSetup, bounds_of, recovery_of
    from schedmate.schedulers import registry

    lease_s = parse_duration(lease)
    if lease_s < LEAST_LEASE_S:
        raise UsageError(
            f"--lease {lease}: {LEAST_LEASE_S:g} s at least; the queue is heard of every few "
            "seconds, and jobs would end between two times."
        )
    prepare()
    registry.make(policy)
    if local is not None and address is not None:
        raise UsageError("--local starts a cluster, --address names one: choose.")
    if not name.replace("-", "").isalnum():
        raise UsageError(f"--name {name}: letters, digits and - only.")
    folder = (state or queue_folder(name)).absolute()
    setup = QueueSetup(
        name=name,
        state=str(folder),
        policy=policy,
        folder=str((shared or folder).absolute()),
        history=history,
        bounds=None if bounds is None else str(bounds.absolute()),
        recovery=None if recovery is None else str(recovery.absolute()),
        shadow=shadow,
        restart=restart,
        estimate=estimate,
        meter=None if meter is None else tuple(shlex.split(meter)),
        lease_s=lease_s,
        keep_s=parse_duration(keep),
    )
    recovery_of(setup, bounds_of(setup))
    if local is not None:
        _run_local_cluster(local, setup)
        return
    where = address_of(address)
    _start_queue(where, setup)
    note_cluster(where, folder)
    say(f"the queue {name!r} is up; `schedmate ray submit` puts jobs into it.")


def _start_queue(address: str, setup: QueueSetup) -> None:
    from schedmate.cluster.ray.backend import NAMESPACE, connect

    connect(address)
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    from schedmate.commands.ray_service import QueueActor

    if find_queue(setup.name) is not None:
        raise UsageError(
            f"the queue {setup.name!r} is up already; `schedmate ray down` ends it, its jobs stay "
            "in its files."
        )
    here = ray.get_runtime_context().get_node_id()
    actor = (
        ray.remote(QueueActor)
        .options(
            name=actor_name(setup.name),
            namespace=NAMESPACE,
            lifetime="detached",
            max_restarts=-1,
            max_concurrency=16,
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(here, soft=False),
        )
        .remote(setup)
    )
    try:
        ray.get(actor.ping.remote(), timeout=120)
    except ray.exceptions.RayActorError as error:
        raise UsageError(f"the queue cannot be started: {_last_line(error)}") from None


def _last_line(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def _run_local_cluster(shape: str, setup: QueueSetup) -> None:
    """A cluster for as long as this command runs, and its queue."""
    from schedmate.cluster.ray.local import local_cluster
    from schedmate.schedulers.model import Cluster

    cluster, ends = Cluster.parse(shape), threading.Event()
    with local_cluster(shape) as made:
        try:
            _start_queue(made.address, setup)
            note_cluster(made.address, Path(setup.state), local=True)
            for number in (signal.SIGINT, signal.SIGTERM):  # Ray has set its own by now
                signal.signal(number, lambda *_: ends.set())
            gpus = f"{counted(len(cluster.nodes), 'node')}, {counted(cluster.gpus, 'GPU')}"
            say(f"{gpus} at {made.address}; Ctrl-C ends them.")
            sys.stdout.flush()
            while not ends.wait(1.0) and made.is_there and find_queue(setup.name) is not None:
                pass
            if ends.is_set():
                _end_queue(setup.name)
        finally:
            forget_cluster(made.address)
            _disconnect()


def _disconnect() -> None:
    """Disconnect from the cluster while it is there: afterwards Ray looks for it for a minute."""
    import ray

    ray.shutdown()


def _end_queue(name: str) -> None:
    """End the queue's actor and all of its runners."""
    import ray

    actor = find_queue(name)
    if actor is None:
        return
    with suppress(ray.exceptions.RayError):  # it is killed all the same
        ray.get(actor.close.remote(), timeout=60)
    ray.kill(actor, no_restart=True)


def down(
    force: Annotated[
        bool, typer.Option("--force", help="Stop even while jobs run; they return to the queue.")
    ] = False,
    address: AddressOption = None,
    name: NameOption = DEFAULT_NAME,
) -> None:
    """End the queue; its jobs stay in its files, and `up` resumes them.

    A cluster that `up --local` has started ends with its queue; any other keeps running.
    """
    client = QueueClient(address, name)
    running = client.ask("look", 0)["counts"].get("RUNNING", 0)
    if running and not force:
        raise UsageError(
            f"{counted(running, 'job')} would be stopped; wait, cancel them, or add --force."
        )
    local = is_local_cluster(client.address)
    _end_queue(name)
    forget_cluster(client.address)
    _disconnect()
    rest = "with it ends the cluster that `ray up --local` started" if local else "Ray goes on"
    say(f"the queue {name!r} has ended; {rest}.")


# `schedmate ray logs`: what a job has printed, or prints now.


FOLLOW_S = 0.5


def logs(
    job: Annotated[int, typer.Argument(metavar="JOB", min=1, help="The job's number.")],
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Follow the log until the job ends.")
    ] = False,
    run: Annotated[
        int | None,
        typer.Option(min=0, help="Log of this run of the job, from 0. Default: the last."),
    ] = None,
    rank: Annotated[int, typer.Option(min=0, help="Log of this node, from 0.")] = 0,
    address: AddressOption = None,
    name: NameOption = DEFAULT_NAME,
) -> None:
    """Show the log of a job."""
    client = QueueClient(address, name)
    if follow:
        follow_log(client, job, run, rank)
        return
    offset, shown = 0, LogText(sys.stdout)
    while True:
        part = _log_part(client, job, run, rank, offset)
        if part["run"] is None or (not offset and "error" in part):
            raise InputError(no_log(job, part, run))
        if not part["text"]:
            shown.end()
            return
        shown.write(part["text"])
        offset = part["next"]


def follow_log(client: QueueClient, job: int, run: int | None, rank: int) -> None:
    """Print a log as it grows, continuing with the log of the job's next run."""
    shown, offset, text = run, 0, LogText(sys.stdout)
    while True:
        part = _log_part(client, job, shown, rank, offset)
        text.write(part["text"])
        offset = part["next"]
        if part["text"]:
            continue
        later = run is None and shown is not None and part["runs"] > shown + 1
        if part["run"] is not None and shown is None:
            shown = part["run"]
        elif later and part.get("ended"):
            text.end()
            shown, offset = (shown or 0) + 1, 0
            say(f"job {job} runs again")
        elif part["over"] or (run is not None and part.get("ended")):
            text.end()
            if part["run"] is None or (not offset and "error" in part):
                raise InputError(no_log(job, part, run))
            return
        else:
            time.sleep(FOLLOW_S)


def no_log(job: int, part: dict[str, Any], run: int | None) -> str:
    """Why there is nothing to show of a job (`Service.log`), in a sentence."""
    if part["run"] is not None:
        return f"the log {part['path']} cannot be read: {part['error']}."
    if run is not None and part["runs"]:
        return f"job {job} has run {counted(part['runs'], 'time')}; --run counts from 0."
    if part["over"]:
        why = f": {part['why']}" if part["why"] else ""
        return f"job {job} never ran; it is {part['state']}{why}."
    return f"job {job} has not run yet; `schedmate ray queue` says why, `logs -f` waits for it."


def _log_part(
    client: QueueClient, job: int, run: int | None, rank: int, offset: int
) -> dict[str, Any]:
    part: dict[str, Any] = client.ask("log", job, run, rank, offset)
    if not part["job"]:
        raise InputError(f"there is no job {job}; `schedmate ray queue --all` lists them.")
    return part


# A log that comes in pieces, on a terminal or in a file.


_UNFINISHED_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\x9c]*\x1b?|[ -/]*)\Z")
"""The beginning of an escape sequence at the end of a text."""
LONGEST_ESCAPE = 4096
"""Characters of an escape sequence that are waited for; what is longer is none."""


class LogText:
    """Writes the pieces of a log to a stream; to a terminal without escape sequences.

    A piece may end within a character or an escape sequence, which is kept until its rest comes.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._strips = stream.isatty()
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._unfinished = ""

    def write(self, piece: bytes, *, last: bool = False) -> None:
        """Write the next piece."""
        text = self._unfinished + self._decoder.decode(piece, last)
        self._unfinished = ""
        if self._strips:
            escape = _UNFINISHED_ESCAPE.search(text)
            if escape is not None:
                text, rest = text[: escape.start()], escape[0]
                if not last and len(rest) <= LONGEST_ESCAPE:
                    self._unfinished = rest
            text = strip_escapes(text)
        self._stream.write(text)
        self._stream.flush()

    def end(self) -> None:
        """There is no more: what was kept is written if it is text, and left out else."""
        self.write(b"", last=True)
        self._decoder.reset()


# `schedmate ray`: a queue for training jobs on a Ray cluster, with any of the policies.


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
            metavar="REPO",
            help=(
                "Directory of the job's source code, in which it runs; the same path on all nodes."
            ),
            show_default=False,
        ),
    ] = None,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="-- COMMAND", help="The launch command, instead of -c.", show_default=False
        ),
    ] = None,
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
    name: NameOption = DEFAULT_NAME,
    as_json: JsonOption = False,
) -> None:
    """Add a job to the queue.

    Examples:

      schedmate ray submit ~/work/gpt -c "python train.py --epochs 10" --gpus 2

      schedmate ray submit --working-dir ~/work/gpt -- python train.py --epochs 10
    """
    from schedmate.cluster.ray.runs import shell_words
    from schedmate.cluster.ray.store import new_mark

    arguments = list(words or [])
    if working_dir is not None and repo is not None:
        arguments, repo = [str(repo), *arguments], None
    place = working_dir or repo
    if place is None:
        raise UsageError("name the directory of the job: `schedmate ray submit REPO -c COMMAND`.")
    if (command is None) == (not arguments):
        raise UsageError("give the command once: with -c, or after --.")
    if not place.is_dir():
        raise InputError(f"{place} is not a directory; name the one in which the command is run.")
    request = _request(
        place.resolve(),
        command or shell_words(arguments),
        *(gpus, min_gpus, max_gpus, gpu_type, time_limit, job_name, priority),
        *(env or [], checkpoints, signal, grace),
    )
    client = QueueClient(address, name)
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

    from schedmate.base.inputs import parse_duration
    from schedmate.cluster.ray.store import Request
    from schedmate.jobs import JobSpec, LaunchConfig

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
        raise UsageError(fault_sentence(error)) from None


@app.command()
def queue(
    ended: Annotated[
        int, typer.Option(min=0, help="Also show this many of the last ended jobs.")
    ] = 0,
    every: Annotated[bool, typer.Option("--all", "-a", help="Also show all ended jobs.")] = False,
    address: AddressOption = None,
    name: NameOption = DEFAULT_NAME,
    as_json: JsonOption = False,
    plain: PlainOption = False,
) -> None:
    """Show running and waiting jobs.

    With their estimates, their expected start and end, and why a job waits.
    """
    from schedmate.base.terminal import Screen
    from schedmate.cluster.ray.store import QUEUE_SCHEMA, QueueDocument

    answer = QueueClient(address, name).ask("look", MOST_JOBS if every else ended)
    document = QueueDocument.model_validate(answer)
    if as_json:
        typer.echo(dumps({"schema": QUEUE_SCHEMA, **document.model_dump(mode="json")}, indent=2))
    else:
        show_queue(document, Screen(sys.stdout, plain=plain))


app.command()(logs)


def _change(what: str, done: str, jobs: list[int], address: str | None, name: str) -> None:
    changed = QueueClient(address, name).ask("change", jobs, what)
    for job in jobs:
        if job in changed:
            say(f"job {job} is {done}")
    missing = [str(job) for job in jobs if job not in changed]
    if missing:
        raise InputError(
            f"not in the queue: {', '.join(missing)}; `schedmate ray queue --all` lists its jobs."
        )


JobsArgument = Annotated[list[int], typer.Argument(metavar="JOB", help="Job numbers.")]


@app.command()
def cancel(
    jobs: JobsArgument, address: AddressOption = None, name: NameOption = DEFAULT_NAME
) -> None:
    """Cancel jobs, waiting or running."""
    _change("cancel", "being cancelled", jobs, address, name)


@app.command()
def hold(
    jobs: JobsArgument, address: AddressOption = None, name: NameOption = DEFAULT_NAME
) -> None:
    """Keep waiting jobs from starting.

    A running job continues, but is not restarted.
    """
    _change("hold", "held", jobs, address, name)


@app.command()
def release(
    jobs: JobsArgument, address: AddressOption = None, name: NameOption = DEFAULT_NAME
) -> None:
    """Let held jobs start."""
    _change("release", "released", jobs, address, name)


app.command()(down)
add_report(app, Ray(), lambda: queue_folder(DEFAULT_NAME))


# A queue in words: what `schedmate ray queue` shows.


LONGEST_NAME = 40
"""Characters of a job's name or command that are shown."""


def show_queue(document: QueueDocument, screen: Screen) -> None:
    """Print the state of a queue: nodes, running and waiting jobs, ended ones, latest problems."""
    free, gpus = (
        sum(node.free for node in document.nodes),
        sum(node.gpus for node in document.nodes),
    )
    running, waiting = (document.counts.get(state, 0) for state in ("RUNNING", "PENDING"))
    from schedmate.cluster.ray.store import OVER

    over = sum(document.counts.get(state, 0) for state in OVER)
    screen.line(
        f"{document.cluster}: {counted(len(document.nodes), 'node')}, {free} of "
        f"{counted(gpus, 'GPU')} free; {running} running, {waiting} waiting, {over} over; "
        f"{document.policy}"
    )
    for node in document.nodes:
        if node.reason:
            screen.line(f"{node.name} takes no new jobs: {node.reason}", "bad")
    rows = [*document.ended, *document.jobs]
    if rows:
        table = Table("job", "what", "GPUs", "state", "estimate", "begins", "ends", "where or why")
        for job in rows:
            table.add(
                job.job,
                _job_text(job),
                f"{job.gpus:g}",
                job.state if not job.profiling else "PROFILING",
                "" if job.estimate_s is None else format_duration(job.estimate_s),
                _relative_time(job.started or job.starts, document.time, about=job.started is None),
                _relative_time(job.ends, document.time, about=job.state not in OVER),
                _place_and_reason(job),
            )
        screen.table(table)
    if over > len(document.ended):
        hidden = counted(over - len(document.ended), "job")
        screen.line(f"{hidden} not shown that are over: `schedmate ray queue --all`")
    for problem in document.problems[-3:]:
        screen.line(problem, "bad")


def _job_text(job: QueueJob) -> str:
    text = job.name or job.command or ""
    return text if len(text) <= LONGEST_NAME else f"{text[: LONGEST_NAME - 1]}…"


def _relative_time(at: float | None, now: float, *, about: bool) -> str:
    if at is None:
        return ""
    if at > now:
        return f"in {'about ' if about else ''}{format_duration(at - now)}"
    return "now" if about else f"{format_duration(now - at)} ago"


def _place_and_reason(job: QueueJob) -> str:
    parts = [", ".join(job.nodes)] if job.nodes else []
    if job.partner is not None:
        beside = f"beside {job.partner}"
        parts.append(beside if job.slowdown is None else f"{beside} at {job.slowdown:.0%} speed")
    if job.why:
        parts.append(job.why)
    if job.restarts:
        parts.append(f"restarted {counted(job.restarts, 'time')}")
    return "; ".join(parts)
