"""Checks a Slurm cluster: may schedmate do on it what its bounds ask for?

Each right is tested with a command that changes nothing, or sets what is set already.
"""

from __future__ import annotations

import os
import pwd
import re
import time
from collections.abc import Iterator, Mapping, Sequence

from schedmate.base.errors import SchedmateError
from schedmate.base.terminal import counted
from schedmate.cluster import Check
from schedmate.cluster.adapter import LiveJob
from schedmate.cluster.bounds import Bounds
from schedmate.cluster.slurm.adapter import SlurmAdapter, connect_slurm
from schedmate.cluster.slurm.reading import parse_config

SAMPLE = 50
"""Jobs whose directories are looked at."""

SlurmConfig = dict[str, str]


def slurm_checks(bounds: Bounds) -> Iterator[Check]:
    """Every check, in the order in which a fault would be looked for.

    Raises `SchedmateError` while the controller does not answer.
    """
    adapter = connect_slurm(bounds)
    version = adapter.version()
    config = parse_config(adapter.commands.run("scontrol", "show", "config"))
    jobs = adapter.jobs()
    fact = f"Slurm {version[0]}.{version[1]:02d}, cluster {adapter.cluster}"
    yield Check("controller", "ok", f"{fact}, {counted(len(jobs), 'job')} in the queue")
    yield _nodes(adapter, config)
    yield from _accounting(adapter, config)
    pending = [job for job in jobs if job.state == "PENDING"]
    yield from _scripts(adapter, pending)
    if bounds.order.allowed:
        yield from _priority(bounds, config, adapter, pending)
    yield from _annotations(bounds, adapter, pending)
    if bounds.recovery is not None or bounds.slurm.drain:
        yield _level(adapter)
        yield _requeue(config)
        yield _drain(bounds, adapter)


def _nodes(adapter: SlurmAdapter, config: SlurmConfig) -> Check:
    try:
        nodes = adapter.nodes()
    except SchedmateError as error:
        fix = (
            "Slurm needs its JSON plugin: install slurm-wlm-basic-plugins, or build with libjson-c"
        )
        return Check("nodes", "failed", str(error), fix)
    gpus = sum(node.gpus for node in nodes)
    healthy = sum(node.healthy for node in nodes)
    fact = f"{counted(len(nodes), 'node')} with {counted(gpus, 'GPU')}, {healthy} take jobs"
    if not gpus or "gres/gpu" not in config.get("AccountingStorageTRES", "gres/gpu"):
        fix = "set AccountingStorageTRES=gres/gpu, so that Slurm counts GPUs"
        return Check("nodes", "warning", fact, fix)
    return Check("nodes", "ok", fact)


def _accounting(adapter: SlurmAdapter, config: SlurmConfig) -> Iterator[Check]:
    try:
        runs = adapter.ended(time.time() - 7 * 86_400.0)
    except SchedmateError as error:
        fix = "schedmate learns from slurmdbd: check AccountingStorageType, and `sacct -a` here"
        yield Check("accounting", "failed", str(error), fix)
        return
    users = {run.record.user for run in runs}
    fact = f"{counted(len(runs), 'run')} of {counted(len(users), 'user')} in seven days"
    private = "jobs" in config.get("PrivateData", "")
    if private and len(users) < 2:
        fix = "PrivateData hides others' jobs: give the agent AdminLevel=Operator"
        yield Check("accounting", "warning", fact, fix)
    else:
        yield Check("accounting", "ok", fact)
    flags = config.get("AccountingStoreFlags", "")
    if "job_env" in flags:
        fix = "remove job_env from AccountingStoreFlags, unless somebody needs it"
        fact = "AccountingStoreFlags keeps the environment of every job, and the secrets in it"
        yield Check("accounting flags", "warning", fact, fix)


def _scripts(adapter: SlurmAdapter, pending: list[LiveJob]) -> Iterator[Check]:
    me = pwd.getpwuid(os.geteuid()).pw_name
    others = [job for job in pending if job.user != me][:SAMPLE]
    if not others:
        yield Check("code", "warning", "nothing of other users is pending: not tested")
        return
    scripts = [adapter.script(job.group) for job in others[:3]]
    if not any(scripts):
        fix = (
            "give the agent AdminLevel=Operator: sacctmgr modify user NAME set AdminLevel=Operator"
        )
        yield Check("batch scripts", "failed", "others' batch scripts are not shown", fix)
    else:
        yield Check("batch scripts", "ok", "others' batch scripts can be read")
    descriptions = adapter.describe([job.id for job in others]).values()
    folders = {description.spec.repo for description in descriptions if description.spec.repo}
    readable = sum(os.access(folder, os.R_OK | os.X_OK) for folder in folders)
    fact = f"{readable} of {counted(len(folders), 'directory')} of pending jobs can be read"
    fact = fact.replace("directorys", "directories")
    if readable < len(folders):
        fix = (
            "without its code a job has no estimate: let a group or an ACL read it (docs/slurm.md)"
        )
        yield Check("code", "warning", fact, fix)
    else:
        yield Check("code", "ok", fact)


def _priority(
    bounds: Bounds, config: SlurmConfig, adapter: SlurmAdapter, pending: list[LiveJob]
) -> Iterator[Check]:
    if config.get("PriorityType") != "priority/multifactor":
        fact = f"PriorityType is {config.get('PriorityType') or 'not set'}"
        fix = "SiteFactor counts only with PriorityType=priority/multifactor"
        yield Check("priority", "failed", fact, fix)
        return
    band = bounds.order.highest - bounds.order.lowest
    waiting = [job for job in pending if not job.held and job.priority is not None]
    floored = [job for job in waiting if (job.priority or 0) <= 1]
    site = adapter.order_values([job.id for job in waiting]) if waiting else {}
    bases = [(job.user, job.id, (job.priority or 0) - site.get(job.id, 0)) for job in waiting]
    weights = {name: _weight(config, name) for name in _FACTORS}
    if not any(weights.values()) or (waiting and len(floored) == len(waiting)):
        fact = "priorities are floored at 1: a negative SiteFactor cannot lower them"
        fix = "raise the base of all jobs alike: PriorityWeightPartition=10000"
        yield Check("priority", "failed" if bounds.order.lowest < 0 else "warning", fact, fix)
    else:
        yield order_check(bases, band, weights)
    if not waiting:
        yield Check("right to order", "warning", "nothing is pending: not tested")
        return
    job = waiting[0].id
    try:
        value = adapter.order_values([job]).get(job, 0)
        adapter.commands.run("scontrol", "update", f"JobId={job}", f"SiteFactor={value}")
    except SchedmateError as error:
        fix = (
            "give the agent AdminLevel=Operator: sacctmgr modify user NAME set AdminLevel=Operator"
        )
        yield Check("right to order", "failed", str(error), fix)
    else:
        yield Check("right to order", "ok", f"SiteFactor of job {job} could be set to what it was")


_FACTORS = ("Age", "Assoc", "FairShare", "JobSize", "Partition", "QOS")


def _weight(config: SlurmConfig, factor: str) -> int:
    text = config.get(f"PriorityWeight{factor}", "0")
    return int(text) if text.isdigit() else 0


def order_check(
    jobs: Sequence[tuple[str, str, int]], band: int, weights: Mapping[str, int]
) -> Check:
    """Whether estimates can outrank what the site's own factors say of the jobs that wait.

    Args:
        jobs: user, id and priority without SiteFactor of each pending job.
        band: how far apart estimates can move two jobs.
        weights: the site's PriorityWeights by factor; what counts where nothing waits, without that
            of the partition, which is the same for all jobs of one.
    """
    fix = "narrow the band (order: lowest, highest), or accept that estimates outweigh the rest"
    if len(jobs) < 2:
        spread = sum(weight for name, weight in weights.items() if name != "Partition")
        fact = f"a band of {band:,} on weights of {spread:,} besides the partition's"
        if spread < band:
            return Check("priority", "warning", f"{fact}: it decides alone", fix)
        return Check("priority", "ok", f"{fact}; fewer than two jobs wait: not compared")
    user, favoured, highest = max(jobs, key=lambda job: (job[2], job[1]))
    spread = highest - min(base for _, _, base in jobs)
    passing = {job: who for who, job, base in jobs if who != user and highest - band < base}
    fact = f"the site's own factors of {counted(len(jobs), 'pending job')} lie {spread:,} apart"
    if not passing or spread >= band:
        return Check("priority", "ok", f"{fact}, the band of estimates is {band:,}")
    others = counted(len(set(passing.values())), "other user")
    fact += (
        f", less than the band of {band:,}: job {favoured} of {user}, whom they favour, can be "
        f"passed by {counted(len(passing), 'job')} of {others}"
    )
    return Check("priority", "warning", fact, fix)


def _annotations(bounds: Bounds, adapter: SlurmAdapter, pending: list[LiveJob]) -> Iterator[Check]:
    where = bounds.annotate.where
    if where == "off":
        return
    if not pending:
        yield Check("right to annotate", "warning", "nothing is pending: not tested")
        return
    job = pending[0].id
    try:
        text = adapter.comments([job]).get(job)
        if text is None:
            raise SchedmateError(f"job {job} is not in accounting yet")
        if where == "comment":
            words = ["scontrol", "update", f"JobId={job}", f"Comment={text}"]
        else:
            change = ("modify", "job", "where", f"jobid={job}", "set", f"AdminComment={text}")
            words = ["sacctmgr", "-i", *change]
        adapter.commands.run(*words)
    except SchedmateError as error:
        fix = "give the agent AdminLevel=Operator, or set annotate: where: off"
        yield Check("right to annotate", "failed", str(error), fix)
    else:
        yield Check("right to annotate", "ok", f"{where} of job {job} could be set to what it was")


def _level(adapter: SlurmAdapter) -> Check:
    """Requeueing cannot be tried without a requeue: it is what Operators may do."""
    try:
        me = adapter.commands.run("id", "-un").strip()
        words = ("show", "user", me, "format=AdminLevel")
        level = adapter.commands.run("sacctmgr", "-n", "-P", *words).strip()
    except SchedmateError as error:
        return Check("right to requeue", "failed", str(error), "check `sacctmgr show user`")
    fact = f"{me} is {level or 'unknown to accounting'}"
    if level in ("Operator", "Administrator") or me in ("root", "slurm"):
        return Check("right to requeue", "ok", fact)
    fix = f"sacctmgr modify user {me} set AdminLevel=Operator"
    return Check("right to requeue", "failed", fact, fix)


def _requeue(config: SlurmConfig) -> Check:
    match = re.search(r"cred_expire=(\d+)", config.get("AuthInfo", ""))
    wait = int(match[1]) if match else 120
    fact = f"a requeued job waits {wait} s before it may start again"
    if config.get("JobRequeue") == "0":
        fix = "with JobRequeue=0 only jobs submitted with --requeue can be restarted"
        return Check("requeue", "warning", fact, fix)
    return Check("requeue", "ok", fact)


def _drain(bounds: Bounds, adapter: SlurmAdapter) -> Check:
    command = bounds.slurm.drain
    if not command:
        fix = "install examples/slurm/schedmate-drain and name it in the bounds (slurm: drain)"
        return Check("right to drain", "warning", "no command is set that may drain nodes", fix)
    try:
        printed = adapter.commands.run_directly([*command, "check"]).strip()
    except SchedmateError as error:
        fix = "see docs/slurm.md, Draining: the command, its owner and sudoers"
        return Check("right to drain", "failed", str(error), fix)
    return Check("right to drain", "ok", printed or "the drain command answers")
