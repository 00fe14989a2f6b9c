"""Shows answers on single jobs as text: an analysis, progress, a diagnosis, stored records.

Each says the answer in a few lines, and then its evidence. Text of a repository or log cannot
control the terminal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from schedmate.base.files import without_shared_folders
from schedmate.base.inputs import format_duration, moment_of
from schedmate.base.terminal import Screen, Table, Tone, clean, counted, say
from schedmate.jobs import (
    Diagnosis,
    Estimate,
    Evidence,
    EvidenceLine,
    JobRecord,
    ModelUse,
    Neighbour,
    Progress,
    Remaining,
    RunOutcome,
    WorkloadMetadata,
)
from schedmate.jobs.diagnosis import TYPE_MEANINGS

if TYPE_CHECKING:
    from schedmate.logparse.progress.ratio import Slowdown
    from schedmate.logparse.triage.document import Group
    from schedmate.mate import Analysis
    from schedmate.retrieval.table import HistoryStats


NEIGHBOURS_NAMED = 3
"""Neighbours named in the headline."""
NEIGHBOURS_LISTED = 10
"""Neighbours listed in the table; JSON has all of them."""


def show_analysis(analysis: Analysis, screen: Screen) -> None:
    """Print the analysis; text of a repository cannot control the terminal."""
    what, how_long, why = analysis_headline(analysis)
    screen.line(what)
    screen.line(how_long, "doubtful" if analysis.estimate.abstained else "good")
    screen.line(why)
    if analysis.estimate.interval_basis is not None:
        screen.line(analysis.estimate.interval_basis.text, label="interval: ")
    if analysis.estimate.experts and not analysis.estimate.abstained:
        sources = "; ".join(one.text for one in analysis.estimate.experts)
        screen.line(sources, label="from: ")
    for beyond in analysis.estimate.extrapolated:
        screen.line(beyond.text, "doubtful", label="extrapolated: ")
    screen.line()
    screen.table(field_table(analysis.metadata))
    for doubt in _doubts(analysis.metadata):
        screen.line(doubt, "doubtful", label=f"{UNSURE}: ")
    screen.line()
    neighbours = analysis.estimate.neighbours
    if neighbours:
        screen.table(_neighbour_table(neighbours[:NEIGHBOURS_LISTED]))
    if len(neighbours) > NEIGHBOURS_LISTED:
        screen.line(f"and {len(neighbours) - NEIGHBOURS_LISTED} more past jobs, listed by --json")
    if not analysis.estimate.abstained and analysis.estimate.reason:
        screen.line(f"note: {analysis.estimate.reason}")
    if analysis.model is not None:
        screen.line(_model_line(analysis.model))
    for warning in analysis.warnings:
        screen.line(f"warning: {warning}")


def analysis_headline(analysis: Analysis) -> tuple[str, str, str]:
    """Three lines: what the job is, how long it will run, and on what this is based."""
    estimate = analysis.estimate
    job = _job_line(analysis)
    if estimate.endless:
        return job, "does not end by itself", "so no run time is estimated: it runs until stopped"
    if estimate.abstained:
        size = analysis.history_size
        reason = clean(estimate.reason or "no past job was close enough")
        reason = reason.removeprefix("no similar job: ")  # which stands in the line above
        near = len(estimate.neighbours)
        outcome = f"no run time from {counted(near, 'similar job')}" if near else "no similar job"
        if estimate.likely_short is not None:
            likely = f"{estimate.likely_short:.0%} likely within the usual run time"
            return job, f"run time too uncertain, {likely}", f"because {reason}"
        return job, f"{outcome} among {counted(size, 'record')}", f"because {reason}"
    neighbours = estimate.neighbours
    if estimate.experts and not neighbours:
        return job, _run_time_line(estimate), f"based on {estimate.experts[0].text}"
    named = [
        f"{clean(neighbour.job_id, 200)} "
        + ("(same job)" if neighbour.exact else f"(similarity {neighbour.similarity:.2f})")
        for neighbour in neighbours[:NEIGHBOURS_NAMED]
    ]
    if len(neighbours) > NEIGHBOURS_NAMED:
        named.append(f"{len(neighbours) - NEIGHBOURS_NAMED} more")
    count = len(neighbours)
    return (
        job,
        _run_time_line(estimate),
        f"based on {counted(count, 'past job')}: {', '.join(named)}",
    )


UNSURE = "? unsure"
"""The mark of a value that is unsure (`Evidence.unsure`)."""


def _doubts(metadata: WorkloadMetadata) -> list[str]:
    """What unsure values could be instead, and why; those of one reason together."""
    by_reason: dict[str, list[str]] = {}
    for name in metadata.unsure():
        proof = metadata.evidence[name]
        other = proof.runner_up
        instead = f" or {other.value} ({other.where})" if other is not None else ""
        by_reason.setdefault(proof.doubt or "", []).append(f"{name} {proof.value}{instead}")
    return [
        ", ".join(named) + (f": {reason}" if reason else "") for reason, named in by_reason.items()
    ]


def _sure(evidence: Evidence | None) -> str:
    if evidence is None:
        return ""
    return f"{evidence.confidence:.0%}" + f" {UNSURE}" * evidence.unsure


def _model_line(use: ModelUse) -> str:
    """One line on the use of a language model."""
    name = f"model {clean(use.model, 200)}"
    if use.outcome == "not needed":
        return f"{name}: not asked, because static analysis settled every field"
    fields = ", ".join(one.rpartition(".")[2] for one in use.filled) or "nothing"
    tokens = use.input_tokens + use.output_tokens
    return (
        f"{name}: settled {fields} of {len(use.asked)} fields asked; {len(use.dropped)} findings "
        f"rejected for lack of proof; {counted(use.calls, 'call')}, {tokens:,} tokens, "
        f"{use.seconds:.1f} s"
    )


def _job_line(analysis: Analysis) -> str:
    metadata = analysis.metadata
    training = metadata.training
    unsure = metadata.unsure()
    if metadata.family == "training":
        length = "unknown length"
        if training.iters is not None:
            length = counted(training.iters, training.iter_type or "iteration")
        parts = [
            value + " (unsure)" * (field in unsure)
            for field, value in (
                ("model_config.model_name", metadata.model.model_name or "unknown model"),
                ("dataset_config.train", metadata.dataset.train or "unknown dataset"),
                ("training_config.iters", length),
            )
        ]
    else:
        named = (metadata.model.model_name, metadata.data_name)
        parts = [metadata.job_kind, *(name for name in named if name), *_own_length(metadata)]
    gpus = analysis.launch.gpus
    if gpus is not None:
        parts.append(counted(gpus, "GPU"))
    return " · ".join(clean(part, 200) for part in parts)


_LENGTHS = {
    "evaluation": ("items", "item"),
    "batch inference": ("items", "item"),
    "data processing": ("items", "item"),
    "sweep": ("trials", "trial"),
}
"""What the length of other jobs than trainings is counted in."""


def _own_length(metadata: WorkloadMetadata) -> list[str]:
    """The length of a job that is no training, in the unit of its kind, where it is known."""
    key, unit = _LENGTHS.get(metadata.job_kind, ("", ""))
    count = metadata.get(f"job_config.{key}")
    return [counted(count, unit)] if isinstance(count, int) else []


def _run_time_line(estimate: Estimate) -> str:
    middle = estimate.duration_p50_s
    if middle is None:
        middle = estimate.duration_s
    text = "run time unknown" if middle is None else f"run time about {format_duration(middle)}"
    if estimate.duration_p10_s is not None and estimate.duration_p90_s is not None:
        low, high = map(format_duration, (estimate.duration_p10_s, estimate.duration_p90_s))
        text += f" (80 % interval: {low} to {high})"
    for value, what, unit in (
        (estimate.gpu_util, "GPU utilisation", "%"),
        (estimate.sm_util, "SM activity", "%"),
        (estimate.gpu_mem_mb, "GPU memory", "MB"),
    ):
        if value is not None:
            text += f", {what} {value:,.0f} {unit}"
    if (failing := estimate.failing()) is not None:
        text += f", fails in {failing:.0%} of such cases"
    return text


def field_table(metadata: WorkloadMetadata) -> Table:
    """The fields of a job's metadata: value, source and confidence."""
    table = Table("field", "value", "source", "confidence", below="source")
    of_kind = metadata.MANDATORY_OF[metadata.family]
    if (proof := metadata.evidence.get("job_kind")) is not None:
        table.add("job_kind", metadata.job_kind, proof.where(), _sure(proof))
    for section, values in metadata.sections().items():
        for key, value in values.items():
            name = f"{section}.{key}"
            if value is None and metadata.family != "training" and name not in of_kind:
                continue  # a field of trainings
            evidence = metadata.evidence.get(name)
            table.add(
                name,
                "unknown" if value is None else _with_unit(key, value, evidence),
                evidence.where() if evidence else "",
                _sure(evidence),
            )
    return table


_FIELDS_WITH_UNIT = ("batch_size", "iter_type", "optimizer")
"""Fields whose note says what they count, or gives a related value."""


def _with_unit(key: str, value: object, evidence: Evidence | None) -> object:
    """A value and its unit, if that is not obvious: `16 (per device)`."""
    note = evidence.note if evidence is not None and key in _FIELDS_WITH_UNIT else None
    return f"{value} ({note})" if note and not note.startswith("the unit of") else value


def _neighbour_table(neighbours: list[Neighbour]) -> Table:
    columns = ("past job", "similarity", "weight", "run time", "rescaled", "ended", "workload")
    table = Table(*columns, below="workload")
    for neighbour in neighbours:
        table.add(
            neighbour.job_id,
            f"{neighbour.similarity:.3f}" + " (same)" * neighbour.exact,
            f"{neighbour.weight:.0%}",
            format_duration(neighbour.duration_s)
            + f" ({neighbour.state})" * (neighbour.state != "COMPLETED"),
            (">= " if neighbour.censored else "") + format_duration(neighbour.adjusted_duration_s),
            _age(neighbour.age_s),
            neighbour.summary,
        )
    return table


def _age(age_s: float | None) -> str:
    if age_s is None:
        return ""
    days = round(age_s / 86_400)
    return f"{days} d ago" if days >= 2 else f"{format_duration(age_s)} ago"


# A `Progress` as text for a person: position, speed and evidence.


_STEP_TIME_SOURCES = {
    "stated": "stated in the log",
    "elapsed": "from the elapsed time that it prints",
    "samples": "from samples per second and the batch size",
    "timestamps": "from the timestamps of its lines",
    "eta": "from the remaining time that the log states",
    "summary": "from the run time of the whole run",
    "model": "read by a pattern that a language model wrote",
    "none": "",
}


_NO_NUMBER = {"nan": "NaN", "inf": "infinite"}
MOST_CONFIDENCE = 0.999
"""No confidence above this is shown."""


def show_progress(progress: Progress, screen: Screen) -> None:
    """Print the three lines, then notes on how units were decided."""
    place, speed, because = progress_headline(progress)
    screen.line(place)
    screen.line(speed, "doubtful" if progress.step_time_s is None else "good")
    screen.line(because)
    if progress.loss_state is not None:
        screen.line(_loss_alarm(progress), "bad")
    if progress.no_numbers:
        named = ", ".join(
            f"{clean(name)} is {_NO_NUMBER[state]}" for name, state in progress.no_numbers.items()
        )
        screen.line(f"warning: {named}, where the log last states it.", "bad")
    for note in progress.notes:
        screen.line(f"note: {note}")


def show_remaining(remaining: Remaining, screen: Screen) -> None:
    """Print how long a running job still takes, and what that follows from."""
    if remaining.remaining_s is None:
        screen.line(f"no time left: {remaining.reason}", "doubtful")
        return
    low, high = remaining.remaining_p10_s or 0.0, remaining.remaining_p90_s or 0.0
    by = " and ".join(_REMAINING_BY[source] for source in remaining.sources)
    screen.line(
        f"left: about {format_duration(remaining.remaining_s)}, {format_duration(low)} to "
        f"{format_duration(high)} in eight of ten cases, by {by}",
        "good",
    )
    if remaining.reason is not None:
        screen.line(f"note: {remaining.reason}", "bad" if remaining.unusual else None)
    if remaining.failure is not None:
        screen.line(f"fails before its end: {remaining.failure:.0%} of such jobs do from here on")


_REMAINING_BY = {"estimate": "its estimate, as it still runs,", "log": "its log"}


def progress_headline(progress: Progress) -> tuple[str, str, str]:
    """Where the job is; how fast it goes and when it ends; what that rests on."""
    return _position_line(progress), _speed_line(progress), _basis_line(progress)


def show_comparison(before: Progress, after: Progress, slowdown: Slowdown, screen: Screen) -> None:
    """Print what the two windows say and how they compare."""
    if slowdown.ratio is None:
        screen.line("no comparison", "doubtful")
        screen.line(f"because {slowdown.reason}")
        return
    change = (slowdown.ratio - 1) * 100
    word = "slowed down" if slowdown.slowed else "not slowed down"
    screen.line(f"{word}: throughput {change:+.1f} %", "bad" if slowdown.slowed else "good")
    screen.line(
        f"{_seconds(before.step_time_s)} per step before, {_seconds(after.step_time_s)} after"
    )
    screen.line(
        f"based on {before.readings} and {after.readings} readings; throughput fell by "
        f"{'at least' if slowdown.slowed else 'less than'} {slowdown.threshold:.0%} "
        f"(confidence {min(slowdown.confidence or 0.0, MOST_CONFIDENCE):.1%})"
    )


def _position_line(progress: Progress) -> str:
    parts = []
    if progress.iteration is not None:
        text = f"iteration {progress.iteration:,}"
        if progress.total_iterations:
            text += f" of {progress.total_iterations:,}"
        parts.append(text + " of its epoch" * progress.in_epoch)
    if progress.epoch is not None:
        text = f"epoch {progress.epoch:g}"
        parts.append(text + (f" of {progress.total_epochs:,}" if progress.total_epochs else ""))
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4g}")
    elif progress.loss_state is not None:
        parts.append(f"loss {_NO_NUMBER[progress.loss_state]}")
    if progress.lr is not None:
        parts.append(f"learning rate {progress.lr:.3g}")
    return " · ".join(parts) or "no training progress"


def _loss_alarm(progress: Progress) -> str:
    """The line on a loss that is not a number: the run continues, but learns nothing."""
    since = progress.loss_state_since
    text = f"warning: the loss is {_NO_NUMBER[progress.loss_state or 'nan']}"
    text += f", since iteration {since:,} at the latest" if since is not None else ""
    return f"{text}; such a run seldom recovers; check it before it uses more GPU time."


def _speed_line(progress: Progress) -> str:
    if progress.step_time_s is None:
        text = "step time unknown"
        if progress.epoch_time_s is not None:
            text += f", {_lasts(progress.epoch_time_s)} per epoch"
    else:
        text = f"{_seconds(progress.step_time_s)} per step"
        low, high = progress.step_time_p10_s, progress.step_time_p90_s
        if progress.readings > 1 and _seconds(low) != _seconds(high):
            text += f" (80 % interval: {_seconds(low)} to {_seconds(high)})"
    if progress.throughput is not None and progress.throughput_unit != "iterations/s":
        text += f", {_digits(progress.throughput)} {progress.throughput_unit}"
    if progress.ended is not None:
        text += f", {progress.ended}"
        text += f" in {progress.failure}" if progress.failure else ""
        text += f" (line {progress.ended_line:,})" if progress.ended_line is not None else ""
    elif progress.eta_s is not None:
        text += f", {format_duration(progress.eta_s)} left"
    return text


def _digits(value: float) -> str:
    """Four digits, without an exponent where the number is large: `30,000`."""
    return f"{float(f'{value:.4g}'):,.15g}"


def _lasts(value: float) -> str:
    return _seconds(value) if value < 10 else format_duration(value)


def _basis_line(progress: Progress) -> str:
    if progress.step_time_s is None:
        return f"because {clean(progress.reason)}"
    text = (
        f"based on {counted(progress.readings, 'reading')}, {_STEP_TIME_SOURCES[progress.source]}"
    )
    if progress.lines:
        text += f", up to line {max(progress.lines):,}"
    if progress.reader and progress.reader != "general":
        text += f" ({progress.reader})"
    return text


def _seconds(value: float | None) -> str:
    if value is None:
        return "unknown"
    if value < 1:
        return f"{value * 1000:.3g} ms"
    return f"{value:.3g} s" if value < 1000 else format_duration(value)


# A `Diagnosis` as text for a person: what failed first, why, what to do, and the lines.


LINES_QUOTED = 8
"""Limit for the lines that a diagnosis quotes on a terminal."""
QUOTED_LENGTH = 160
"""Characters of a quoted line that a terminal shows; a pipe gets all of them."""


def show_diagnosis(diagnosis: Diagnosis, screen: Screen) -> None:
    """Print the headline, why, the plan and the quoted lines; warnings go to standard error."""
    screen.line(diagnosis_headline(diagnosis), _tone(diagnosis))
    if diagnosis.line is not None:
        screen.line(diagnosis.reason, label=f"{clean(diagnosis.file)}:{diagnosis.line} ")
    elif diagnosis.reason and (
        diagnosis.error_type != "none" or diagnosis.finished or diagnosis.attempts > 1
    ):  # else the headline has it
        screen.line(diagnosis.reason[:1].upper() + diagnosis.reason[1:] + ".")
    if diagnosis.error_type == "framework":  # the one name that does not explain itself
        screen.line(f"{TYPE_MEANINGS['framework']}.", label="Framework: ")
    for number, reading in enumerate(diagnosis.conflict):
        what = f"{reading.error_name or 'a failure'} ({reading.error_type})"
        place = f"{clean(reading.file)}:{reading.line}"
        screen.line(
            f"{what}, {place}: {reading.text}", label="In doubt: " if number == 0 else "      or: "
        )
    if diagnosis.plan is not None and (
        diagnosis.error_type != "none" or diagnosis.finished is False
    ):
        screen.line(diagnosis.plan.summary, label="Plan: ")
        if diagnosis.plan.diagnose and diagnosis.plan.isolation != "needs confirmation":
            screen.line(diagnosis.plan.diagnose, label="      check first: ")
        for step in diagnosis.plan.steps:
            if step.action == "confirm":
                screen.line("; ".join(step.commands), label="      confirm with: ")
        if diagnosis.plan.innocent:
            screen.line("; ".join(diagnosis.plan.innocent), label="      other explanations: ")
    if diagnosis.evidence:
        screen.line()
        _show_lines(most_telling(diagnosis.evidence), screen, notes=diagnosis.error_type == "none")
    if diagnosis.ruled_out:
        screen.line()
        screen.line("Ruled out:")
        _show_lines(diagnosis.ruled_out, screen)
    if diagnosis.rule:
        screen.line()
        screen.line(f"Decided by rule {diagnosis.rule}; see {diagnosis.reference}")
    _show_runs(diagnosis, screen)
    for warning in diagnosis.warnings:
        say(f"note: {warning}")


def _show_runs(diagnosis: Diagnosis, screen: Screen) -> None:
    """Which of several runs this is about, how the others ended, and what was caught."""
    if diagnosis.attempts > 1 and (diagnosis.error_type != "none" or diagnosis.error_name):
        screen.line(f"Attempt {diagnosis.attempt} of {diagnosis.attempts} in this log.")
    if len(diagnosis.runs) > 1:
        screen.line(f"{runs_in_words(diagnosis.runs)}.", label="Runs: ")
    for incident in diagnosis.incidents:
        screen.line(
            f"{counted(incident.count, incident.error_name or 'failure')} that work went on after, "
            f"the first in line {incident.line}.",
            label="Caught: ",
        )


def runs_in_words(runs: Sequence[RunOutcome]) -> str:
    """How several runs ended, in a sentence: the most frequent outcome, and that of the last."""
    ends = [_in_words(run) for run in runs]
    most, count = Counter(ends).most_common(1)[0]
    if count == len(ends):
        return f"all {count} runs {most}"
    last = "" if ends[-1] == most else f", the last {ends[-1]}"
    return f"{count} of {len(ends)} runs {most}{last}"


def _in_words(run: RunOutcome) -> str:
    if run.outcome == "finished":
        return "ended well"
    if run.outcome == "open":
        return "without an end that the log shows"
    return f"ended in {run.error_name or 'a failure of unknown cause'}"


def _tone(diagnosis: Diagnosis) -> Tone:
    if diagnosis.error_type != "none":
        return "bad"
    return "doubtful" if diagnosis.finished is False else "good"


def diagnosis_headline(diagnosis: Diagnosis) -> str:
    """Type, name, component and place in one line."""
    if diagnosis.error_type == "none":
        if diagnosis.finished is False:
            return "No failure found, but no successful end either"
        return f"No failure: {diagnosis.error_name}" if diagnosis.error_name else "No failure"
    parts = [
        diagnosis.error_name or "Failed, reason not stated",
        side_in_words(diagnosis),
    ]
    if diagnosis.faulty_component and not diagnosis.likely:
        parts.append(diagnosis.faulty_component)
    if diagnosis.conflict:
        parts.append("in doubt")
    if diagnosis.rank is not None:
        parts.append(f"rank {diagnosis.rank}")
    if diagnosis.node:
        parts.append(f"node {diagnosis.node}")
    return " · ".join(parts)


def side_in_words(found: Diagnosis | Group) -> str:
    """Whose fault it is, or of what is not proved what is likely."""
    likely = [found.likely, found.faulty_component] if found.likely else []
    words = " ".join(part for part in likely if part is not None)
    return f"{found.error_type}, likely {words}" if words else found.error_type


def most_telling(lines: list[EvidenceLine]) -> list[EvidenceLine]:
    """At most `QUOTED` lines: the first one, and then those up to the one that decided."""
    decided = next((n for n, line in enumerate(lines) if line.note == "decided"), 0)
    if decided < LINES_QUOTED:
        return lines[:LINES_QUOTED]
    return [lines[0], *lines[decided + 2 - LINES_QUOTED : decided + 1]]


def _show_lines(lines: list[EvidenceLine], screen: Screen, *, notes: bool = False) -> None:
    """Quoted lines with their numbers, and with their files if there are several.

    `notes` has the reason for quoting each line.
    """
    names = {line.file: "" for line in lines}
    if len(names) > 1:
        names = {file: f"{clean(name)}:" for file, name in without_shared_folders(names).items()}
    width = 7 + max(map(len, names.values()), default=0)
    for line in lines:
        mark = ">" if line.note == "decided" else " "
        indent = " " * min(8, len(line.text) - len(line.text.lstrip(" ")))
        place = f"{names[line.file]}{line.line}"
        text = clean(line.text, None if screen.width is None else QUOTED_LENGTH)
        if notes and line.note not in (None, "decided"):
            text += f"  ({line.note})"
        screen.line(text, label=f"{mark} {place:>{width}} | {indent}")


# Records of the history as text for a person.


def show_jobs(records: list[JobRecord], screen: Screen) -> None:
    """Print a table with a row for each job."""
    table = Table("job", "state", "ran", "GPUs", "model", "dataset", "name", "user")
    for record in records:
        cells = (
            record.job_id,
            record.state,
            None if record.duration_s is None else format_duration(record.duration_s),
            record.launch.gpus,
            record.metadata.model.model_name,
            record.metadata.data_name,
            record.name,
            record.user,
        )
        table.add(*("" if cell is None else cell for cell in cells))
    screen.table(table)


def show_job(record: JobRecord, screen: Screen) -> None:
    """Print all that is stored of one job, a line for each field."""
    document = record.model_dump(mode="json", by_alias=True)
    document["fingerprint"] = record.metadata.fingerprint()
    document["metadata"].pop("evidence", None)
    for name, value in _flat_fields(document):
        if value is not None:
            screen.line(value, label=f"{clean(name)} = ")


def show_stats(stats: HistoryStats, screen: Screen) -> None:
    """Print what a history holds, and how far estimates can use it."""
    states = ", ".join(f"{count:,} {state}" for state, count in stats["states"].items())
    screen.line(counted(stats["jobs"], "job") + f": {states}" * bool(states))
    if not stats["jobs"]:
        screen.line("to add past jobs: schedmate history import FILE")
        return
    if stats["workloads"]:
        screen.line(counted(stats["workloads"], "different workload"))
    else:
        screen.line(
            "no job says what it trained, so none is similar to a new one: import with --analyze, "
            "which reads their code, or with columns such as model and dataset (--map)",
            "doubtful",
        )
    first, last = stats["first_submit_time"], stats["last_submit_time"]
    if first is not None and last is not None:
        screen.line(f"submitted from {_utc_text(first)} to {_utc_text(last)}")
    manifest = stats["manifest"]
    screen.line(f"embedded by {manifest['embedder']}, {manifest['dim']} dimensions")


def _utc_text(seconds: float) -> str:
    return moment_of(seconds).strftime("%Y-%m-%d %H:%M UTC")


def _flat_fields(values: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, object]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat_fields(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value
