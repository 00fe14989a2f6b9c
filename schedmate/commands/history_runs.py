"""Jobs of the history from runs that have been: `schedmate history add --from`.

What a run does not say of its training comes from its code, which is read as `analyze` reads it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedmate.base.data import encodable
from schedmate.base.errors import UsageError
from schedmate.base.inputs import format_duration
from schedmate.base.terminal import clean, say

if TYPE_CHECKING:
    from schedmate.jobs import JobRecord, JobSpec, WorkloadMetadata
    from schedmate.logparse.experiments import Run

_SETTINGS = (
    "model_config.model_name",
    "dataset_config.train",
    "training_config.batch_size",
    "training_config.lr",
    "training_config.gradient_accumulation_steps",
)


def records_of_runs(
    path: Path,
    *,
    job: str | None,
    repo: Path | None,
    command: str | None,
    fields: Sequence[str],
) -> list[tuple[JobRecord, list[str]]]:
    """A record of every run at `path` and what is open to doubt in it; with the metadata of the
    code where `repo` is given.

    FIELD=VALUE in `fields` win over what the run says, and that over the code. Raises `UsageError`
    where nothing says what a run trained, how long it took, or what to call it.
    """
    from schedmate.mate import SchedMate
    from schedmate.readers import Readers
    from schedmate.retrieval.importers import parse_assignments
    from schedmate.settings import load_settings

    settings = load_settings(mode="static")
    with Readers(settings.memory_mb, own_process=True) as readers:
        runs = readers.runs(path)
    if job is not None and len(runs) > 1:
        raise UsageError(
            f"{path} has {len(runs)} runs, which get their own ids; leave the id {job!r} out."
        )
    stated = parse_assignments([*fields, f"job_id={job or 'run'}"])
    if len({run.name for run in runs}) < len(runs):
        for run in runs:
            run.name = str(Path(run.path).relative_to(path)) if run.path != str(path) else run.name
    records: list[tuple[JobRecord, list[str]]] = []
    with SchedMate(settings, own_process=True) as mate:
        for run in runs:
            spec = _spec(run, repo, command, stated)
            base = _metadata_of_code(mate, spec) if spec is not None else None
            try:
                record = _record(run, job, base, command, fields, path)
            except UsageError as error:
                if len(runs) == 1 or (run is runs[-1] and not records):
                    raise
                say(f"warning: {error}")
                continue
            # what the user says needs no word on how it is known
            records.append((record, run.notes if stated.duration_s is None else []))
    return records


def _spec(run: Run, repo: Path | None, command: str | None, stated: JobRecord) -> JobSpec | None:
    from schedmate.jobs import JobSpec, LaunchConfig

    if repo is None:
        return None
    launch = LaunchConfig(gpus=run.gpus, gpu_type=run.gpu_type)
    own = stated.launch.model_dump(exclude_none=True)
    return JobSpec(
        repo=str(repo), command=command or run.command, launch=launch.model_copy(update=own)
    )


def _metadata_of_code(mate: Any, spec: JobSpec) -> dict[str, Any]:
    analysis = mate.analyze(spec)
    return {
        "metadata": analysis.metadata.model_dump(mode="json", by_alias=True),
        "launch": analysis.launch.model_dump(mode="json", exclude_none=True),
        "command": spec.command,
    }


def _record(
    run: Run,
    job: str | None,
    code: dict[str, Any] | None,
    command: str | None,
    fields: Sequence[str],
    path: Path,
) -> JobRecord:
    from schedmate.jobs import JobRecord
    from schedmate.retrieval.importers import parse_assignments

    document: dict[str, Any] = code or {"metadata": {}, "launch": {}}
    metadata = document["metadata"]
    for field in _SETTINGS:
        section, _, leaf = field.partition(".")
        value = run.setting(field)
        if value is not None and metadata.setdefault(section, {}).get(leaf) is None:
            metadata[section][leaf] = value
    _lay_length(run, metadata.setdefault("training_config", {}))
    launch = {"gpus": run.gpus, "gpu_type": run.gpu_type, **document["launch"]}
    assigned = parse_assignments([*fields, "job_id=run"]).model_dump(
        mode="json", by_alias=True, exclude_unset=True
    )
    explicit = {one.partition("=")[0].strip() for one in fields}
    own: dict[str, Any] = {
        "job_id": job or encodable(run.name),
        "command": command or run.command,
        "user": run.user,
        "state": run.state or "COMPLETED",
        "start_time": run.start_time,
        "end_time": run.end_time,
        "duration_s": run.stated_duration_s,
    }
    if not {"state", "status"} & explicit:
        assigned.pop("state", None)  # a default of a duration that was given, not an answer
    assigned.pop("job_id", None)
    merged = _merged({**own, "metadata": metadata, "launch": launch}, assigned)
    record = JobRecord.model_validate(merged)
    _check(record, run, path)
    return record


def _lay_length(run: Run, training: dict[str, Any]) -> None:
    """The run's own length, in the unit of the code if that has one.

    Where neither states it, the steps of a complete run are its length.
    """
    units = {"step": run.total_steps, "epoch": run.total_epochs}
    if training.get("iters") is None and not any(units.values()):
        units["step"] = run.steps_done
    unit = training.get("iter_type") or next((u for u, length in units.items() if length), None)
    length = units.get(str(unit))
    if length:
        training["iters"] = int(length) if length == int(length) else length
        training["iter_type"] = unit


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        inner = merged.get(key)
        both = isinstance(value, dict) and isinstance(inner, dict)
        merged[key] = _merged(merged[key], value) if both else value
    return merged


def _check(record: JobRecord, run: Run, path: Path) -> None:
    if not record.duration_s:
        raise UsageError(
            f"the run {clean(run.path, 400)} does not say how long it took; say it, as in "
            "duration=2h30m."
        )
    if not _says_what(record.metadata):
        raise UsageError(
            f"the run {clean(run.path, 400)} does not say what it trained; name its code: "
            f"schedmate history add --from {path} --repo DIR --command 'python train.py', or say "
            "it, as in model=resnet50 dataset=imagenet."
        )


def _says_what(metadata: WorkloadMetadata) -> bool:
    return metadata.model.model_name is not None or metadata.data_name is not None


def say_added(records: Iterable[tuple[JobRecord, list[str]]]) -> None:
    """A line for each record: what was added, with which run time, and how that is known."""
    for record, notes in records:
        assert record.duration_s is not None
        at_least = "at least " if record.censored else ""
        about = f" ({'; '.join(clean(note, 300) for note in notes)})" if notes else ""
        say(
            f"added {clean(record.job_id, 200)}: {record.state}, ran "
            f"{at_least}{format_duration(record.duration_s)}{about}"
        )
