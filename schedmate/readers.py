"""Reads what a job's owner wrote, in processes that can be killed.

Each of the three has two halves: a function of JSON values that runs in a confined process, and a
method of `Readers` that sends the request and builds the answer.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from schedmate.agent import Extraction
from schedmate.base.confine.client import Confinement
from schedmate.base.confine.limits import MEMORY_MB, Limits
from schedmate.base.errors import InputError, LimitError, SchedmateError, UsageError
from schedmate.jobs import Diagnosis, JobSpec, LaunchConfig, Progress, WorkloadMetadata
from schedmate.jobs.health import Health

if TYPE_CHECKING:
    from schedmate.logparse.experiments import Run
    from schedmate.logparse.watch.health import WatchLimits

UNPACKED_MB = 4 << 10
"""Longest file that a packed log, or one from a pipe, may become while it is read [MiB]."""

TABLES_MB = 4
"""Longest file that an extraction may write [MiB]: bundled tables that it keeps in the cache."""

BACKSTOP = 2.0, 5.0
"""CPU time after which an extraction is ended that does not end by itself: so many times its
budget, and so much for what the budget does not count [s]."""

EXTRACT = f"{__name__}:extract_work"
EXTRACT_VARIANTS = f"{__name__}:extract_variants_work"
TRACK = f"{__name__}:track_work"
WATCH = f"{__name__}:watch_work"
DIAGNOSE = f"{__name__}:diagnose_work"
RUNS = f"{__name__}:runs_work"


class Readers:
    """Reads repositories and logs in confined processes; any number of threads at once.

    Everything raises `LimitError` if a limit was reached, and `InputError` for unreadable input.
    """

    def __init__(
        self,
        memory_mb: int = MEMORY_MB,
        *,
        rules_folder: Path | None = None,
        at_once: int | None = None,
        own_process: bool = False,
    ) -> None:
        """`memory_mb` [MiB] bounds each process, `rules_folder` has the site's failure rules; the
        rest is as of `Confinement`."""
        self._memory_mb = memory_mb
        self._rules = None if rules_folder is None else os.fspath(rules_folder.absolute())
        self._confinement = Confinement(at_once=at_once, own_process=own_process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def prepare(self) -> None:
        """Load the code of all kinds of work now, so that the first job does not wait for it."""
        self._confinement.prepare(EXTRACT, TRACK, DIAGNOSE)

    def close(self) -> None:
        """End all running work."""
        self._confinement.close()

    def extract(self, spec: JobSpec, budget_s: float, wall_s: float | None = None) -> Extraction:
        """The result of `schedmate.agent.static.extract` for a job.

        With `budget_s` [s of CPU time] exceeded the answer is partial, with a warning; with
        `wall_s` [s] exceeded there is none.
        """
        if not spec.repo:  # an empty path would be the current directory
            raise UsageError("the job names no repository; set `repo` to the path of its code.")
        times, more_s = BACKSTOP
        limits = Limits(wall_s, times * budget_s + more_s, self._memory_mb, TABLES_MB)
        request = {
            "repo": spec.repo,
            "command": spec.command,
            "launch": spec.launch.model_dump(mode="json"),
            "budget_s": budget_s,
            "wall_s": wall_s,
        }
        answer = self._confinement.run(EXTRACT, request, limits, f"the repository {spec.repo}")
        return _extraction(answer)

    def extract_variants(
        self, specs: Sequence[JobSpec], budget_s: float
    ) -> list[Extraction | SchedmateError]:
        """`extract` for jobs of one repository, in one process; `budget_s` is for each.

        An error stands in the place of its job. If the process is ended at a limit, each job is
        read in its own, so that one does not take the others with it.
        """
        if len({spec.repo for spec in specs}) > 1:
            raise UsageError("variants are jobs of one repository.")
        if len(specs) > 1 and specs[0].repo:
            times, more_s = BACKSTOP
            cpu_s = len(specs) * (times * budget_s + more_s)
            limits = Limits(None, cpu_s, self._memory_mb, TABLES_MB)
            variants = [
                {"command": spec.command, "launch": spec.launch.model_dump(mode="json")}
                for spec in specs
            ]
            request = {"repo": specs[0].repo, "variants": variants, "budget_s": budget_s}
            what = f"the repository {specs[0].repo}"
            with suppress(LimitError):
                answers = self._confinement.run(EXTRACT_VARIANTS, request, limits, what)
                return [
                    InputError(answer["error"]) if "error" in answer else _extraction(answer)
                    for answer in answers
                ]
        found: list[Extraction | SchedmateError] = []
        for spec in specs:
            try:
                found.append(self.extract(spec, budget_s))
            except SchedmateError as error:
                found.append(error)
            except OSError as error:
                found.append(InputError(str(error)))
        return found

    def track(
        self,
        log: Path | str,
        *,
        since: int = 0,
        batch_size: int | None = None,
        wall_s: float | None = None,
    ) -> Progress:
        """The progress of a job by its log; arguments as of `SchedMate.on_progress`."""
        request = {"log": os.fspath(log), "since": since, "batch_size": batch_size}
        return Progress.model_validate(self._read(TRACK, request, f"the log {log}", wall_s))

    def watch(
        self,
        log: Path | str,
        *,
        now: float,
        written: float,
        limits: WatchLimits,
        before: Health | None = None,
        batch_size: int | None = None,
        wall_s: float | None = None,
    ) -> Health:
        """The health of a running job by its log; arguments as of `logparse.watch.watch_log`."""
        request = {
            "log": os.fspath(log),
            "now": now,
            "written": written,
            "limits": limits._asdict(),
            "before": None if before is None else before.model_dump(mode="json"),
            "batch_size": batch_size,
        }
        return Health.model_validate(self._read(WATCH, request, f"the log {log}", wall_s))

    def diagnose(
        self,
        logs: Sequence[Path | str],
        *,
        node_logs: Sequence[Path | str] = (),
        nodes: Sequence[str] = (),
        wall_s: float | None = None,
    ) -> Diagnosis:
        """The failure of a job on `nodes` by its logs; arguments as of `SchedMate.on_failure`."""
        if not logs:
            raise UsageError("a diagnosis needs at least one log.")
        request = {
            "logs": [os.fspath(one) for one in logs],
            "node_logs": [os.fspath(one) for one in node_logs],
            "nodes": list(nodes),
            "rules_folder": self._rules,
        }
        what = f"the log {logs[0]}" if len(logs) == 1 else f"the {len(logs)} logs of the job"
        return Diagnosis.model_validate(self._read(DIAGNOSE, request, what, wall_s))

    def runs(self, path: Path | str, *, wall_s: float | None = None) -> list[Run]:
        """The runs at a path that have been (`logparse.experiments.read_runs`)."""
        from schedmate.logparse.experiments import Run

        answer = self._read(RUNS, {"path": os.fspath(path)}, f"the runs of {path}", wall_s)
        return [Run.model_validate(one) for one in answer]

    def _read(self, work: str, request: Any, what: str, wall_s: float | None) -> Any:
        limits = Limits(wall_s, wall_s, self._memory_mb, UNPACKED_MB)
        return self._confinement.run(work, request, limits, what)


def _extraction(answer: Any) -> Extraction:
    return Extraction(
        WorkloadMetadata.model_validate(answer["metadata"]),
        LaunchConfig.model_validate(answer["launch"]),
        answer["warnings"],
        answer["timing_s"],
        answer["entry"],
        answer["cut_off"],
        answer["contradicted"],
    )


def extract_work(request: Any) -> Any:
    """`Readers.extract` in the confined process."""
    from schedmate.agent.static import extract

    extraction = extract(
        Path(request["repo"]),
        request["command"],
        LaunchConfig.model_validate(request["launch"]),
        budget_s=request["budget_s"],
        wall_s=request["wall_s"],
    )
    return {
        "metadata": extraction.metadata.model_dump(mode="json", by_alias=True),
        "launch": extraction.launch.model_dump(mode="json"),
        "warnings": extraction.warnings,
        "timing_s": extraction.timing_s,
        "entry": extraction.entry,
        "cut_off": extraction.cut_off,
        "contradicted": extraction.contradicted,
    }


def extract_variants_work(request: Any) -> Any:
    """`Readers.extract_variants` in the confined process."""
    answers = []
    for variant in request["variants"]:
        try:
            answers.append(extract_work({**request, **variant, "wall_s": None}))
        except SchedmateError as error:
            answers.append({"error": str(error)})
    return answers


def track_work(request: Any) -> Any:
    """`Readers.track` in the confined process."""
    from schedmate.logparse.experiments import curve_progress
    from schedmate.logparse.failure.ending import track_job
    from schedmate.logparse.reading import open_log

    if (curve := curve_progress(Path(request["log"]))) is not None:
        return curve.model_dump(mode="json")
    with open_log(request["log"]) as log:
        progress, _ = track_job(log, batch=request["batch_size"], since=request["since"])
    return progress.model_dump(mode="json")


def watch_work(request: Any) -> Any:
    """`Readers.watch` in the confined process."""
    from schedmate.logparse.reading import open_log
    from schedmate.logparse.watch.health import WatchLimits, watch_log

    before = request["before"]
    with open_log(request["log"]) as log:
        health = watch_log(
            log,
            request["now"],
            request["written"],
            limits=WatchLimits(**request["limits"]),
            before=None if before is None else Health.model_validate(before),
            batch=request["batch_size"],
        )
    return health.model_dump(mode="json")


def diagnose_work(request: Any) -> Any:
    """`Readers.diagnose` in the confined process."""
    from schedmate.logparse.failure import diagnose, open_job, site_rules
    from schedmate.logparse.reading import open_log

    rules_folder = request.get("rules_folder")
    with ExitStack() as stack:
        stack.enter_context(site_rules(rules_folder and Path(rules_folder)))
        log = stack.enter_context(open_job(request["logs"]))
        kernel = [stack.enter_context(open_log(path)) for path in request["node_logs"]]
        diagnosis = diagnose(log, node_logs=kernel, nodes=request["nodes"])
    return diagnosis.model_dump(mode="json")


def runs_work(request: Any) -> Any:
    """`Readers.runs` in the confined process; curves, which are long, stay there."""
    from schedmate.logparse.experiments import read_runs

    answers = []
    for run in read_runs(Path(request["path"])):
        if run.format != "log":
            run.conclude()
        answers.append(run.model_dump(mode="json", exclude={"points"}))
    return answers


def warm(work: str) -> None:
    """Do the work once, on a small sample, to load its modules and tables."""
    sample = Path(__file__).parent / "sample"
    if work in (EXTRACT, EXTRACT_VARIANTS):
        launch = LaunchConfig(gpus=8, nodes=1).model_dump(mode="json")
        for command in ("torchrun train.py --config config.yaml --epochs 3", None):
            extract_work(
                {
                    "repo": str(sample),
                    "command": command,
                    "launch": launch,
                    "budget_s": 5.0,
                    "wall_s": None,
                }
            )
    elif work == TRACK:
        track_work({"log": str(sample / "job.out"), "since": 0, "batch_size": None})
    elif work == DIAGNOSE:
        diagnose_work({"logs": [str(sample / "job.out")], "node_logs": [], "nodes": []})
