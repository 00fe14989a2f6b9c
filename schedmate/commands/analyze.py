"""`schedmate analyze`: estimates a job from its repository and launch command.

With --batch it answers many jobs from a file as JSON lines; `batch.py` spreads that work.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from shlex import join, quote
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperCommand

from schedmate.base.data import MOST_GPUS, dumps
from schedmate.base.errors import ABSTAINED, InputError, UsageError
from schedmate.base.files import open_output, parquet_rows, write_output
from schedmate.base.inputs import parse_duration
from schedmate.base.terminal import Screen, clean, counted, outlasting, progress, say
from schedmate.commands import options

if TYPE_CHECKING:
    from schedmate.jobs import JobSpec
    from schedmate.mate import SchedMate
    from schedmate.settings import Settings


CONTEXT = {"allow_extra_args": True}
"""Extra words are accepted so that an unquoted launch command gets an error that corrects it."""

_AFTER_DASHES = "schedmate.analyze.after_dashes"


class _WithWords(TyperCommand):
    """What follows `REPO --` is the launch command, with its own options."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Keep the words after `--` for `analyze`."""
        at = args.index("--") if "--" in args else len(args)
        if at:
            ctx.meta[_AFTER_DASHES] = args[at + 1 :]
            args = args[:at]
        return super().parse_args(ctx, args)


COMMAND = _WithWords


def analyze(
    context: typer.Context,
    repo: Annotated[
        Path | None,
        typer.Argument(
            metavar="REPO|JOB",
            help="Directory of the job's source code, or the scheduler's id of a job.",
            show_default=False,
        ),
    ] = None,
    command: Annotated[
        str | None,
        typer.Option(
            "--command",
            "-c",
            help="The launch command, as typed in REPO; or put it last, after --. Default: the "
            "most plausible entry point.",
        ),
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=0, max=MOST_GPUS, help="GPUs over all nodes.")
    ] = None,
    nodes: Annotated[int | None, typer.Option(min=1, max=MOST_GPUS, help="Nodes.")] = None,
    gpu_type: Annotated[str | None, typer.Option(help="GPU model, for example A100.")] = None,
    time_limit: Annotated[
        str | None, typer.Option(help="Time limit, for example 36h or 1-12:00:00.")
    ] = None,
    job_id: Annotated[str | None, typer.Option(help="The scheduler's id of the job.")] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one JSON document (schedmate.analyze/v1).")
    ] = False,
    form: options.Format = "text",
    output: options.OutputOption = None,
    html: options.HtmlOption = None,
    record: Annotated[
        bool, typer.Option("--record", help="Store the job in the history as pending.")
    ] = False,
    history: options.HistoryOption = None,
    top_k: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Most similar workloads of which an estimate uses the past jobs; with `--method "
            "mean`, most past jobs.",
        ),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(min=-1, max=1, help="Lowest similarity of a past job that counts."),
    ] = None,
    method: Annotated[
        str | None,
        typer.Option(
            help="What an estimate is made of. experts (default): several predictors, weighted by "
            "how well they did. weighted, mean: similar jobs alone."
        ),
    ] = None,
    mode: Annotated[
        str | None,
        typer.Option(
            help=(
                "static: read the code without a model. hybrid: also ask a language model "
                "about open fields. opening: the same in one request without tools, for small "
                "models. agent: use only what the model finds. Default: hybrid "
                "when a model is named, otherwise static."
            ),
        ),
    ] = None,
    llm_base_url: options.LlmBaseUrl = None,
    llm_model: options.LlmModel = None,
    llm_timeout: options.LlmTimeout = None,
    llm_deadline: options.LlmDeadline = None,
    show_prompt: Annotated[
        bool,
        typer.Option(
            "--show-prompt", help="Print the first request to the model and send nothing."
        ),
    ] = False,
    replay: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Repeat a recorded reading of REPO with the model's recorded replies.",
        ),
    ] = None,
    min_confidence: Annotated[
        float | None,
        typer.Option(
            min=0,
            max=1,
            help="Leave out values of lower confidence; 0.75 leaves out those marked unsure.",
        ),
    ] = None,
    fail_on_abstain: Annotated[
        bool, typer.Option("--fail-on-abstain", help="Exit with 4 when no past job is similar.")
    ] = False,
    plain: options.PlainOption = False,
    batch: Annotated[
        str | None,
        typer.Option(
            "--batch",
            metavar="JOBS",
            help=(
                "Analyse many jobs: a file with one JSON object per line (repo, command, "
                "gpus, nodes, job_id, ...); - is standard input. Prints JSON lines in order "
                "of completion."
            ),
        ),
    ] = None,
    processes: options.ProcessesOption = None,
    ray: options.RayOption = None,
    journal: options.JournalOption = None,
    parquet: options.ParquetOption = None,
) -> None:
    """Estimate a job's run time from its code and from past jobs.

    Reads the code as text and runs none of it. Needs no GPU, no network and no language model. If a
    model is named, it is asked about fields that static analysis left open, and an answer counts
    only with the file and line that prove it. Of a job of this machine's cluster its id is enough:
    directory, script and size come from the scheduler.
    """
    from schedmate.jobs import JobSpec, LaunchConfig
    from schedmate.settings import load_settings

    options.check_format(form, as_json=as_json)
    command = _launch_command(context, repo, command)
    settings = load_settings(
        history=history,
        top_k=top_k,
        threshold=threshold,
        method=method,
        mode=mode,
        min_confidence=min_confidence,
        llm_base_url=llm_base_url,
        llm_timeout_s=llm_timeout,
        llm_deadline_s=llm_deadline,
        llm_model=llm_model,
    )
    if settings.embedder != "bundled":
        from schedmate.retrieval.embedders import check_embedder

        check_embedder(settings.embedder)
    if batch is not None:
        for name, is_given in (
            ("--show-prompt", show_prompt),
            ("--replay", replay is not None),
            ("--html", html is not None),
            ("--format", form != "text"),
        ):
            if is_given:
                raise UsageError(f"{name} is for one job, not for --batch; leave it out.")
        if settings.mode != "static":
            options.announce_model(settings, "the source code")
        described = {
            "REPO": repo,
            "--command": command,
            "--gpus": gpus,
            "--nodes": nodes,
            "--gpu-type": gpu_type,
            "--time-limit": time_limit,
            "--job-id": job_id,
        }
        for name, value in described.items():
            if value is not None:
                raise UsageError(f"{name} describes one job; with --batch it goes into the lines.")
        where = options.Workers(processes, ray, journal)
        where.check()

        failed, abstained = analyze_batch(batch, settings, output, parquet, where, record=record)
        if failed:
            raise InputError(f"{failed} of the lines could not be analysed; see their `error`.")
    else:
        if repo is None:
            raise UsageError("name the directory of a training repository, or use --batch.")
        many = {
            "--jobs": processes,
            "--ray": ray,
            "--journal": journal,
            "--parquet": parquet,
        }
        for name, value in many.items():
            if value is not None:
                raise UsageError(f"{name} is for --batch FILE; leave it out for one job.")
        launch = LaunchConfig(
            gpus=gpus,
            nodes=nodes,
            gpu_type=gpu_type,
            time_limit_s=None if time_limit is None else parse_duration(time_limit),
        )
        spec = _described(JobSpec(job_id=job_id, repo=str(repo), command=command, launch=launch))
        if show_prompt:
            _show_prompt(spec, settings, output)
            return
        mate = _mate(settings) if replay is None else _replaying(replay, spec, settings)
        elsewhere = f" --history {quote(str(history))}" if history is not None else ""
        abstained = _analyze_one(spec, mate, output, record, elsewhere, as_json, plain, html, form)
    if abstained and fail_on_abstain:
        raise typer.Exit(ABSTAINED)


def _launch_command(context: typer.Context, repo: Path | None, command: str | None) -> str | None:
    """The launch command, of --command or of what follows `--`."""
    if context.args:
        raise UsageError(_unquoted(repo, context.args))
    words = context.meta.get(_AFTER_DASHES)
    if words and command is not None:
        raise UsageError("give the launch command once: with --command, or after --.")
    return join(words) if words else command


def _described(spec: JobSpec) -> JobSpec:
    """What was named: code, or a job of this machine's cluster, of whose size counts what the
    command line says."""
    job = spec.repo or ""
    if spec.command is not None or not options.is_job_id(job):
        return spec
    import time

    from schedmate.cluster.finding import job_here

    found = job_here(job, time.time())
    if found.spec.repo is None or found.spec.command is None:
        raise InputError(
            f"{found.title} does not say what job {job} runs, or not to this user; name its "
            "directory and --command."
        )
    say(f"note: job {job} runs `{found.spec.command}` in {found.spec.repo}.")
    launch = found.spec.launch.model_copy(update=spec.launch.model_dump(exclude_none=True))
    return found.spec.model_copy(update={"launch": launch})


def _unquoted(repo: Path | None, words: list[str]) -> str:
    """What to type instead of a command, or a second repository, after the first argument."""
    if repo is not None and repo.is_dir():
        if Path(words[0]).is_dir():
            return "give one REPO; many jobs go into a file for --batch."
        place = str(repo)
    else:
        place, words = ".", [str(repo), *words]
    return (
        "give the launch command as one argument, in quotes: "
        f"schedmate analyze {quote(place)} --command {quote(join(words))}"
    )


def _mate(settings: Settings) -> SchedMate:
    from schedmate.mate import SchedMate

    if settings.mode != "static":
        options.announce_model(settings, "the source code")
    return SchedMate(settings, own_process=True)


def _replaying(record: Path, spec: JobSpec, settings: Settings) -> SchedMate:
    """A `SchedMate` whose model repeats the replies of a recorded reading."""
    from schedmate.llm import replay_llm, require_packages

    require_packages()
    from schedmate.agent.react.trajectory import load_trajectory
    from schedmate.mate import SchedMate

    job, use, script = load_trajectory(record)
    if job.command != spec.command:
        say(f"note: the recorded job was {job.command or 'without a command'}")
    settings = settings.model_copy(update={"mode": use.mode})
    return SchedMate(settings, llm=replay_llm(settings, record, script), own_process=True)


def _show_prompt(spec: JobSpec, settings: Settings, output: Path | None) -> None:
    from schedmate.mate import SchedMate

    with SchedMate(settings, own_process=True) as mate:
        request = mate.prompt(spec)
    if request is None:
        say("nothing would be sent: static analysis answered every mandatory field.")
        return
    write_output(output, dumps(request, indent=2) + "\n")


def _analyze_one(
    spec: JobSpec,
    mate: SchedMate,
    output: Path | None,
    record: bool,
    elsewhere: str,
    as_json: bool,
    plain: bool,
    html: Path | None,
    form: str,
) -> bool:
    """Analyse one job and print it; gives whether the estimate abstained.

    `elsewhere` is the option that names the history to the next command, where one was given.
    """
    from schedmate.report.jobs import show_analysis

    with mate:
        analysis = mate.analyze(spec)
        use = analysis.model
        if use is not None and use.outcome not in ("ok", "not needed"):
            say(f"note: the language model did not answer: {use.reason}")
            say("note: this is what static analysis says")
        with open_output(output) as stream:
            if record:  # before anything is printed: whoever reads it may leave
                job = clean(mate.store(analysis.record()))
                say(
                    f"recorded as {job}; when it has ended: schedmate history finish {job} "
                    f"--duration SECONDS --state COMPLETED{elsewhere}"
                )
            if as_json:
                stream.write(dumps(analysis.document(), indent=2) + "\n")
            elif form == "markdown":
                from schedmate.report.markdown import analysis_markdown

                stream.write(analysis_markdown(analysis))
            else:
                show_analysis(analysis, Screen(stream, plain=plain))
                if analysis.estimate.abstained and not analysis.estimate.endless:
                    stream.write(_what_it_needs(spec, elsewhere))
        about = f"{spec.repo}: {spec.command}" if spec.command else str(spec.repo)
        options.write_page(html, "analyze", about, partial(show_analysis, analysis))
    return analysis.estimate.abstained


def _what_it_needs(spec: JobSpec, elsewhere: str) -> str:
    """What would give the job a run time: one finished run of its code, and the command for it."""

    def shown(text: str, else_: str) -> str:
        return quote(text) if clean(text, 2_000) == text else else_

    words = ["schedmate history add --from RUN --repo", shown(str(spec.repo), "REPO")]
    if spec.command is not None:
        words += ["--command", shown(spec.command, "COMMAND")]
    if spec.launch.gpus is not None:
        words.append(f"gpus={spec.launch.gpus}")
    return (
        "\nFor a run time, add one finished run of this code: its log, trainer_state.json, or a "
        "run of\nTensorBoard, W&B or MLflow:\n\n"
        f"  {' '.join(words)}{elsewhere}\n"
    )


# `schedmate analyze --batch`: many jobs from a file, answered as JSON lines.


def analyze_batch(
    batch: str,
    settings: Settings,
    output: Path | None,
    parquet: Path | None,
    where: options.Workers,
    *,
    record: bool,
) -> tuple[int, int]:
    """Analyse the lines of `batch`; gives how many failed and how many abstained."""
    from schedmate.base.objects import local_copy
    from schedmate.base.reading import open_text
    from schedmate.commands.batch import COLUMNS, Analyst, analyze_many
    from schedmate.mate import SchedMate

    failed = abstained = 0
    with ExitStack() as stack:
        try:
            if batch == "-":
                # A buffer of its own that is not closed: a thread may be waiting in it.
                lines = open(0, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
            else:
                path = stack.enter_context(local_copy(Path(batch)))
                lines = stack.enter_context(open_text(path, errors="replace", pipe=True))
        except OSError as error:
            raise InputError(
                f"cannot read {batch}: {error.strerror}; --batch takes a file of JSON lines or -."
            ) from None
        stream = stack.enter_context(open_output(output))
        write: Callable[[str], None] = partial(print, file=stream, flush=True)
        if record:  # every job is, also when nobody reads the answers any more
            write = stack.enter_context(outlasting(stream))
        add_row = stack.enter_context(parquet_rows(parquet, COLUMNS))
        mate = stack.enter_context(SchedMate(settings, at_once=where.at_once))
        what = f"analyze{' --record' if record else ''} with {_digest(settings)}"
        journal = stack.enter_context(where.journal(what))
        advance = stack.enter_context(progress("analysing"))
        results = analyze_many(
            lines,
            Analyst(settings, mate),
            at_once=where.at_once,
            ray=where.ray,
            journal=journal,
        )
        for done, result in enumerate(results, start=1):
            failed += result.failed
            abstained += result.abstained
            if record and result.record is not None:
                result.document["recorded_as"] = mate.store(result.record)
            add_row(result.row())
            write(dumps(result.document))
            advance(done, counted(done, "job"))
    return failed, abstained


def _digest(settings: Settings) -> str:
    """The settings and the version, as a journal names them."""
    from hashlib import sha256

    from schedmate import __version__

    text = settings.model_dump_json(exclude={"memory_mb", "deadline_s", "trajectories"})
    return f"schedmate {__version__}, settings {sha256(text.encode()).hexdigest()[:12]}"
