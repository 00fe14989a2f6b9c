"""Summarises the verdicts of a batch: its document, and its table for spreadsheets.

Failures are grouped by root cause, with the cost of each cause; nodes that fail more often than
chance explains are found by an exact test; templates that no earlier batch showed are new.
"""

from __future__ import annotations

import csv
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from math import exp, lgamma, log, sqrt
from typing import NamedTuple, TextIO

from schedmate import __version__
from schedmate.base.files import ColumnKind
from schedmate.base.terminal import counted, no_formula, visible
from schedmate.jobs import Diagnosis
from schedmate.logparse.failure.rules import load_rules
from schedmate.logparse.templates import mask
from schedmate.logparse.triage.document import (
    Bar,
    Earlier,
    Group,
    JobVerdict,
    ModelUse,
    NewTemplate,
    NodeFinding,
    NodeTest,
    Novelty,
    Pareto,
    Since,
    Totals,
    Triage,
)
from schedmate.logparse.triage.run import Ledger, RootCause, version

JOBS_NAMED = 10
"""Limit for the jobs that a warning names."""
TEMPLATES_SHOWN = 500
"""Limit for the new templates in the document."""


def summarise(
    source: str,
    verdicts: Sequence[JobVerdict],
    shown: Mapping[int, int],
    ledger: Ledger,
    warnings: Sequence[str] = (),
    model: ModelUse | None = None,
    *,
    since_last: bool = False,
) -> Triage:
    """The summary of a batch. `shown` is the number of failures near each template, by number.

    With `since_last` its causes are compared with those of the batch before it.
    """
    jobs = sorted(verdicts, key=lambda job: job.index)
    groups = group_failures(jobs)
    past = ledger.causes()
    for group in groups:
        if group.id in past:
            group.earlier = Earlier(**past[group.id]._asdict())
    return Triage(
        source=source,
        version=__version__,
        rules=version(),
        totals=_totals(jobs),
        groups=groups,
        pareto=pareto(groups),
        node_test=compare_nodes(jobs),
        novelty=_novelty(shown, ledger),
        since=_since(groups, ledger) if since_last else None,
        model=model,
        jobs=jobs,
        warnings=[*warnings, *_warn_of_silent(jobs)],
    )


def _since(groups: Sequence[Group], ledger: Ledger) -> Since | None:
    """The causes beside those of the batch before."""
    before = ledger.last_batch()
    if before is None:
        return None
    finished, jobs = before
    now = {group.id for group in groups}
    return Since(
        finished=finished,
        new=[group.id for group in groups if group.id not in jobs],
        grown=[one.id for one in groups if one.id in jobs and len(one.jobs) > jobs[one.id]],
        gone=sum(name not in now for name in jobs),
    )


def _warn_of_silent(jobs: Sequence[JobVerdict]) -> list[str]:
    """A note on the jobs that failed without a failure in their logs."""
    names = [job.job_id for job in jobs if job.silent]
    if not names:
        return []
    some = ", ".join(names[:JOBS_NAMED]) + (", ..." if len(names) > JOBS_NAMED else "")
    jobs_failed = counted(len(names), "job") + " failed as the list has it"
    return [
        f"{jobs_failed}, and no failure is in the log: {some}; ask the scheduler and the nodes."
    ]


def causes(triage: Triage) -> list[RootCause]:
    """The root causes of a batch, as the ledger stores them."""
    jobs = {job.index: job for job in triage.jobs}
    remembered = []
    for group in triage.groups:
        example = jobs[group.example]
        line = example.diagnosis.line if example.diagnosis is not None else None
        remembered.append(RootCause(group.id, len(group.jobs), example.log, line))
    return remembered


def _totals(jobs: Sequence[JobVerdict]) -> Totals:
    failed = [job for job in jobs if job.failed]
    diagnoses = [job.diagnosis for job in jobs if job.diagnosis is not None]
    hours = [job.gpu_hours for job in failed if job.gpu_hours is not None]
    return Totals(
        jobs=len(jobs),
        failed=len(failed),
        not_failed=len(diagnoses) - len(failed),
        unreadable=len(jobs) - len(diagnoses),
        silent=sum(job.silent for job in jobs),
        unfinished=sum(diagnosis.finished is False for diagnosis in diagnoses),
        by_type=dict(Counter(diagnosis.error_type for diagnosis in diagnoses).most_common()),
        by_name=dict(
            Counter(
                diagnosis.error_name or "unknown"
                for diagnosis in diagnoses
                if diagnosis.error_type != "none"
            ).most_common()
        ),
        gpu_hours_lost=sum(hours) if hours else None,
        gpu_hours_known=len(hours),
    )


def _novelty(shown: Mapping[int, int], ledger: Ledger) -> Novelty:
    batches, remembered = ledger.earlier()
    new = {number: seen for number, seen in ledger.new_templates().items() if number in shown}
    if not batches:
        return Novelty(
            compared=False,
            reason="There is no earlier batch in the ledger to compare with; "
            f"{len(new):,} templates near failures were remembered for the next one.",
            total=0,
            templates=[],
        )
    ordered = sorted(new, key=lambda number: (-shown[number], new[number].text))
    return Novelty(
        compared=True,
        reason=f"{counted(len(new), 'template')} near failures not seen in "
        f"{batches:,} earlier batch{'es' * (batches != 1)} ({remembered:,} known).",
        total=len(new),
        templates=[
            NewTemplate(
                template=new[number].text,
                jobs=shown[number],
                log=new[number].log,
                line=new[number].line,
            )
            for number in ordered[:TEMPLATES_SHOWN]
        ],
    )


# Failures grouped by root cause, and the cost of each cause.


HOURS_KNOWN = 0.9
"""Share of the failed jobs with known GPU-hours that is needed to rank by GPU-hours."""


_BAR = re.compile(r"^.{0,400}?\d%\|[^|\n]*\|[^\]\n]*(?:\]|$)[\s,]*+")
"""A progress bar at the beginning of a line, which does not say what failed."""


def deciding_line(diagnosis: Diagnosis) -> str:
    """The line that matched the rule, else the first line of the failure, else nothing.

    A progress bar before it is left out.
    """
    decided = [line.text for line in diagnosis.evidence if line.note == "decided"]
    if not decided and diagnosis.evidence and diagnosis.line is not None:
        decided = [diagnosis.evidence[0].text]
    return _BAR.sub("", decided[0]) or decided[0] if decided else ""


def _same_cause(diagnosis: Diagnosis) -> tuple[str, ...]:
    """What the diagnoses of one root cause share.

    A rule that knows a line knows its wordings, of all versions, so that its failures are one
    cause. Of a script's, and where a rule knows no more than a class, the message says which.
    """
    rule = load_rules().by_id.get(diagnosis.rule or "")
    by_line = rule is not None and rule.pattern is not None and not rule.general
    by_rule = by_line and diagnosis.source == "rules" and diagnosis.leaning != "script"
    return (
        diagnosis.error_type,
        diagnosis.likely or "",
        diagnosis.error_name or "",
        diagnosis.faulty_component or "",
        f"rule {diagnosis.rule}" if by_rule else _message(deciding_line(diagnosis)),
    )


_MODULES = re.compile(r"^(?:[A-Za-z_]\w*\.)+(?=[A-Z]\w*(?:Error|Exception)\b)")


def _message(line: str) -> str:
    """The template of a line, without the module of its exception, which versions differ in."""
    return mask(_MODULES.sub("", line.strip()))


def group_failures(jobs: Iterable[JobVerdict]) -> list[Group]:
    """The groups of failed jobs, ordered by GPU-hours and then by jobs, largest first.

    Sets `group` of each failed job.
    """
    together: dict[tuple[str, ...], list[JobVerdict]] = {}
    for job in jobs:
        diagnosis = job.diagnosis
        if diagnosis is not None and job.failed:
            together.setdefault(_same_cause(diagnosis), []).append(job)
    groups = [_group(key, members) for key, members in together.items()]
    groups.sort(key=lambda group: (-group.gpu_hours, -len(group.jobs), group.id))
    return groups


def _group(key: tuple[str, ...], members: list[JobVerdict]) -> Group:
    members.sort(key=lambda job: job.index)
    name = hashlib.sha256("\0".join(key).encode(errors="replace")).hexdigest()[:10]
    diagnoses = [job.diagnosis for job in members if job.diagnosis is not None]
    times = [diagnosis.time for diagnosis in diagnoses if diagnosis.time is not None]
    for job in members:
        job.group = name
    # of the jobs of a group the one with most to show stands for it
    example = max(members, key=lambda job: (len(job.diagnosis.evidence), -job.index))  # type: ignore[union-attr]
    shown = example.diagnosis
    assert shown is not None
    return Group(
        id=name,
        error_type=shown.error_type,
        likely=shown.likely,
        error_name=shown.error_name,
        faulty_component=shown.faulty_component,
        general=_is_catch_all(shown),
        template=mask(deciding_line(shown)),
        jobs=[job.index for job in members],
        example=example.index,
        gpu_hours=sum(job.gpu_hours or 0.0 for job in members),
        gpu_hours_known=sum(job.gpu_hours is not None for job in members),
        nodes=dict(
            Counter(diagnosis.node for diagnosis in diagnoses if diagnosis.node).most_common(20)
        ),
        first_time=min(times, default=None),
        last_time=max(times, default=None),
        rule=shown.rule,
        source=shown.source,
        plan=shown.plan,
    )


CATCH_ALL = frozenset({"Runtime Error", "Value Error", "Assertion Error", "OS Error"})
"""Names of classes of exceptions that say little about what failed."""


def _is_catch_all(diagnosis: Diagnosis) -> bool:
    """Whether the error's name says little, or there is none."""
    rule = load_rules().by_id.get(diagnosis.rule or "")
    if rule is None or rule.general:
        return True
    return rule.exception is not None and rule.name in CATCH_ALL


def pareto(groups: Sequence[Group]) -> Pareto:
    """Groups by GPU-hours lost if nearly all failed jobs have them, else by number of jobs."""
    failed = sum(len(group.jobs) for group in groups)
    hours_known = sum(group.gpu_hours_known for group in groups)
    by_hours = (
        hours_known > 0
        and hours_known >= HOURS_KNOWN * failed
        and any(group.gpu_hours for group in groups)
    )
    values = {group.id: group.gpu_hours if by_hours else float(len(group.jobs)) for group in groups}
    total = sum(values.values())
    bars, running = [], 0.0
    for name, value in sorted(values.items(), key=lambda item: -item[1]):
        running += value
        share = value / total if total else 0.0
        bars.append(
            Bar(group=name, value=value, share=share, cumulative=running / total if total else 0.0)
        )
    if by_hours:
        reason = (
            f"By GPU-hours lost (run time x GPUs), known for {hours_known} of {failed} failed jobs."
        )
    else:
        reason = (
            f"By number of jobs: run time and GPUs are known for {hours_known} of {failed} failed "
            "jobs; a job list with the columns duration and gpus gives GPU-hours."
        )
    return Pareto(basis="gpu_hours" if by_hours else "jobs", reason=reason, total=total, bars=bars)


# Nodes that fail more often than chance explains.


ALPHA = 0.05
"""Probability of naming any node if all are equally reliable."""
LEAST_JOBS, LEAST_FAILURES = 20, 5
"""With fewer jobs, or fewer infrastructure failures among them, no node is named."""
NODES_SHOWN = 200


def compare_nodes(jobs: Sequence[JobVerdict]) -> NodeTest:
    """An exact test of each node, one-sided, at `ALPHA` after Holm's correction over all nodes.

    If failures did not care where a job ran, the n jobs of a node would be a random draw from the
    N jobs of the batch, K of which failed, and the failures among them hypergeometric. Counted are
    infrastructure failures: others follow the program. A failure whose diagnosis names a node of
    the job counts against that node alone, any other against all nodes of its job; so the test
    errs towards silence. Jobs whose log could not be read take no part. What counts here was
    written by jobs, so a suspect node is one to test, never one to take out of service at once.
    """
    placed = [job for job in jobs if job.nodes and job.diagnosis is not None]
    failed = [job for job in placed if _infrastructure(job)]
    ran: dict[str, list[JobVerdict]] = {}
    against: dict[str, int] = {}
    for job in placed:
        for node in dict.fromkeys(job.nodes):
            ran.setdefault(node, []).append(job)
    for job in failed:
        for node in _blamed(job):
            against[node] = against.get(node, 0) + 1
    uses = {
        node: NodeUse(len(on_it), against.get(node, 0), _node_hours(on_it))
        for node, on_it in ran.items()
    }
    return exact_test(
        uses,
        len(placed),
        len(failed),
        unknown="Give a job list with a column `nodes` that includes successful jobs.",
        doubt="these logs were written by jobs",
    )


class NodeUse(NamedTuple):
    """Jobs that ran on a node, failures that count against it, and the hours of the jobs."""

    jobs: int
    failures: int
    hours: float | None


def exact_test(
    uses: Mapping[str, NodeUse], total: int, bad: int, *, unknown: str, doubt: str
) -> NodeTest:
    """The test of `compare_nodes` on counts: `bad` of `total` jobs failed, on these nodes.

    `unknown` says what to do where no nodes are known, `doubt` why a suspect node is to be tested.
    """
    reason = _too_little(total, bad, len(uses), unknown)
    p_values = {
        node: hypergeometric_tail(use.failures, use.jobs, bad, total) for node, use in uses.items()
    }
    adjusted = holm_adjusted(p_values)
    findings = [
        NodeFinding(
            node=node,
            jobs=use.jobs,
            failures=use.failures,
            expected=use.jobs * bad / total,
            node_hours=use.hours,
            per_1000_hours=_rate(use.failures, use.hours),
            p_value=p_values[node],
            p_adjusted=adjusted[node],
            suspect=not reason and adjusted[node] < ALPHA,
        )
        for node, use in uses.items()
    ]
    findings.sort(key=lambda finding: (finding.p_value, -finding.failures, finding.node))
    suspects = sum(finding.suspect for finding in findings)
    return NodeTest(
        tested=not reason,
        reason=reason
        or f"{suspects or 'None'} of {len(uses)} nodes had more infrastructure failures than "
        f"chance explains: exact hypergeometric test against the baseline of {bad} failures in "
        f"{total} jobs ({bad / total:.1%}), p < {ALPHA} after Holm's correction."
        + (f" Test a suspect node before draining it: {doubt}." if suspects else ""),
        jobs=total,
        failures=bad,
        baseline=bad / total if total else None,
        alpha=ALPHA,
        nodes=findings[:NODES_SHOWN],
    )


def _infrastructure(job: JobVerdict) -> bool:
    return job.diagnosis is not None and job.diagnosis.leaning == "infrastructure"


def _blamed(job: JobVerdict) -> list[str]:
    named = job.diagnosis.node if job.diagnosis is not None else None
    short = (named or "").partition(".")[0]
    mine = [node for node in dict.fromkeys(job.nodes) if node.partition(".")[0] == short]
    return mine or list(dict.fromkeys(job.nodes))


def _node_hours(jobs: Iterable[JobVerdict]) -> float | None:
    run_times = [job.duration_s for job in jobs if job.duration_s is not None]
    return sum(run_times) / 3600 if run_times else None


LEAST_HOURS = 1e-3
"""Hours of a node below which no rate is stated."""


def _rate(failures: int, hours: float | None) -> tuple[float, float, float] | None:
    if hours is None or hours < LEAST_HOURS:
        return None
    low, high = poisson_interval(failures)
    return (1000 * failures / hours, 1000 * low / hours, 1000 * high / hours)


def poisson_interval(count: int, level: float = 0.95) -> tuple[float, float]:
    """The exact interval of the mean of a Poisson variable that came out as `count` (Garwood)."""
    part = (1 - level) / 2

    def mean_at(chance: float, upto: int) -> float:
        """The mean under which at most `upto` has this chance, by bisection."""
        low, high = 0.0, 10.0 + 3.0 * upto
        for _ in range(60):
            middle = (low + high) / 2
            wide = 40 + 40 * sqrt(middle)  # what is farther away adds nothing that a float holds
            terms = range(max(0, int(middle - wide)), min(upto, int(middle + wide)) + 1)
            below = sum(exp(k * log(middle) - middle - lgamma(k + 1)) for k in terms)
            low, high = (middle, high) if below > chance else (low, middle)
        return low

    return (0.0 if count == 0 else mean_at(1 - part, count - 1), mean_at(part, count))


def _too_little(total: int, bad: int, nodes: int, unknown: str) -> str:
    if not total:
        return f"Not tested: the nodes of the jobs are unknown. {unknown}"
    if total < LEAST_JOBS or bad < LEAST_FAILURES or nodes < 2:
        return (
            f"Nothing is claimed: the jobs whose nodes are known are {total}, on {nodes} nodes, "
            f"{bad} of them with an infrastructure failure; {LEAST_JOBS} jobs, {LEAST_FAILURES} "
            "failures and two nodes are the least."
        )
    if bad == total:
        return "Nothing is claimed: every job failed, so there is nothing to compare with."
    return ""


def hypergeometric_tail(at_least: int, drawn: int, marked: int, total: int) -> float:
    """P(X >= at_least) of marked ones among `drawn` of `total`, `marked` of which are marked."""
    if at_least <= 0:
        return 1.0
    whole = _log_choose(total, drawn)
    return min(
        1.0,
        sum(
            exp(_log_choose(marked, k) + _log_choose(total - marked, drawn - k) - whole)
            for k in range(at_least, min(drawn, marked) + 1)
            if drawn - k <= total - marked
        ),
    )


def _log_choose(n: int, k: int) -> float:
    return lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1)


def holm_adjusted(p_values: dict[str, float]) -> dict[str, float]:
    """Holm's step-down correction (1979): the chance of any false name stays below the level."""
    adjusted: dict[str, float] = {}
    largest = 0.0
    ordered = sorted(p_values, key=lambda name: p_values[name])
    for place, name in enumerate(ordered):
        largest = max(largest, min(1.0, (len(ordered) - place) * p_values[name]))
        adjusted[name] = largest
    return adjusted


# The verdicts of a batch as a table, for spreadsheets.


DIAGNOSIS_COLUMNS = (
    *(
        "error_type",
        "likely",
        "error_name",
        "faulty_component",
        "recoverable",
        "file",
        "line",
        "rank",
    ),
    *("node", "time", "rule", "source"),
)
"""Columns that come from the diagnosis."""
COLUMNS = (
    *("job_id", *DIAGNOSIS_COLUMNS, "evidence", "plan", "group", "gpu_hours", "duration_s", "gpus"),
    *("nodes", "workload", "state", "user", "log", "error"),
)


COLUMN_KINDS: dict[str, ColumnKind] = {
    **dict.fromkeys(("index", *COLUMNS), "string"),
    **dict.fromkeys(("index", "line", "rank"), "int64"),
    **dict.fromkeys(("gpu_hours", "duration_s", "gpus", "time"), "float64"),
    "recoverable": "bool",
    "nodes": "strings",
}
"""The column types in Parquet."""


def write_csv(triage: Triage, stream: TextIO) -> None:
    """Write one row for each job, in the order of the batch.

    Text that a spreadsheet would take as a formula gets an apostrophe before it, and invisible
    characters are written as escapes.
    """
    table = csv.writer(stream, lineterminator="\n")
    table.writerow(COLUMNS)
    for job in triage.jobs:
        values = table_row(job) | {"nodes": " ".join(job.nodes)}
        table.writerow([_cell(values.get(name)) for name in COLUMNS])


def table_row(job: JobVerdict) -> dict[str, object]:
    """The values of the columns, `nodes` as a list."""
    values: dict[str, object] = job.model_dump(exclude={"diagnosis"})
    if (diagnosis := job.diagnosis) is not None:
        values |= {name: getattr(diagnosis, name) for name in DIAGNOSIS_COLUMNS}
        values["evidence"] = deciding_line(diagnosis)
        values["plan"] = diagnosis.plan.id if diagnosis.plan is not None else None
    return values


def _cell(value: object) -> object:
    if not isinstance(value, str):
        return value
    return no_formula(visible(value).replace("\n", "\\n"))
