"""Nodes that fail more often than chance explains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, lgamma, log

from schedmate.logparse.triage.document import JobVerdict, NodeFinding, NodeTest

ALPHA = 0.05
"""Probability of naming any node if all are equally reliable."""
LEAST_JOBS, LEAST_FAILURES = 20, 5
"""With fewer jobs, or fewer infrastructure failures among them, no node is named."""
SHOWN = 200


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
    total, bad = len(placed), len(failed)
    reason = _too_little(total, bad, len(ran))
    p_values = {
        node: tail(against.get(node, 0), len(on_it), bad, total) for node, on_it in ran.items()
    }
    adjusted = holm(p_values)
    findings = [
        NodeFinding(
            node=node,
            jobs=len(on_it),
            failures=against.get(node, 0),
            expected=len(on_it) * bad / total,
            node_hours=_hours(on_it),
            per_1000_hours=_rate(against.get(node, 0), _hours(on_it)),
            p_value=p_values[node],
            p_adjusted=adjusted[node],
            suspect=not reason and adjusted[node] < ALPHA,
        )
        for node, on_it in ran.items()
    ]
    findings.sort(key=lambda one: (one.p_value, -one.failures, one.node))
    suspects = sum(one.suspect for one in findings)
    return NodeTest(
        tested=not reason,
        reason=reason
        or f"{suspects or 'None'} of {len(ran)} nodes had more infrastructure failures than chance "
        f"explains: exact hypergeometric test against the baseline of {bad} failures in {total} "
        f"jobs ({bad / total:.1%}), p < {ALPHA} after Holm's correction."
        + (
            " Test a suspect node before draining it: these logs were written by jobs."
            if suspects
            else ""
        ),
        jobs=total,
        failures=bad,
        baseline=bad / total if total else None,
        alpha=ALPHA,
        nodes=findings[:SHOWN],
    )


def _infrastructure(job: JobVerdict) -> bool:
    return job.diagnosis is not None and job.diagnosis.error_type == "infrastructure"


def _blamed(job: JobVerdict) -> list[str]:
    named = job.diagnosis.node if job.diagnosis is not None else None
    short = (named or "").partition(".")[0]
    mine = [node for node in dict.fromkeys(job.nodes) if node.partition(".")[0] == short]
    return mine or list(dict.fromkeys(job.nodes))


def _hours(jobs: Iterable[JobVerdict]) -> float | None:
    known = [job.duration_s for job in jobs if job.duration_s is not None]
    return sum(known) / 3600 if known else None


def _rate(failures: int, hours: float | None) -> tuple[float, float, float] | None:
    if not hours:
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
            below = sum(exp(k * log(middle) - middle - lgamma(k + 1)) for k in range(upto + 1))
            low, high = (middle, high) if below > chance else (low, middle)
        return low

    return (0.0 if count == 0 else mean_at(1 - part, count - 1), mean_at(part, count))


def _too_little(total: int, bad: int, nodes: int) -> str:
    if not total:
        return (
            "Not tested: the nodes of the jobs are unknown. Give a job list with a column "
            "`nodes` that includes successful jobs."
        )
    if total < LEAST_JOBS or bad < LEAST_FAILURES or nodes < 2:
        return (
            f"Nothing is claimed: the jobs whose nodes are known are {total}, on {nodes} nodes, "
            f"{bad} of them with an infrastructure failure; {LEAST_JOBS} jobs, {LEAST_FAILURES} "
            "failures and two nodes are the least."
        )
    if bad == total:
        return "Nothing is claimed: every job failed, so there is nothing to compare with."
    return ""


def tail(at_least: int, drawn: int, marked: int, total: int) -> float:
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


def holm(p_values: dict[str, float]) -> dict[str, float]:
    """Holm's step-down correction (1979): the chance of any false name stays below the level."""
    adjusted: dict[str, float] = {}
    largest = 0.0
    ordered = sorted(p_values, key=lambda name: p_values[name])
    for place, name in enumerate(ordered):
        largest = max(largest, min(1.0, (len(ordered) - place) * p_values[name]))
        adjusted[name] = largest
    return adjusted
