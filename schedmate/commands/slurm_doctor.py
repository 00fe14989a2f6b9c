"""`schedmate slurm doctor`: may schedmate do on this cluster what its bounds ask for?"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from schedmate.commands.agents import BoundsOption
from schedmate.commands.checks import Check
from schedmate.commands.options import JsonOption
from schedmate.errors import SchedmateError
from schedmate.terminal import counted

if TYPE_CHECKING:
    from schedmate.schedulers.live.adapter import LiveJob
    from schedmate.schedulers.live.bounds import Bounds
    from schedmate.schedulers.live.slurm.adapter import SlurmAdapter

SCHEMA = "schedmate.slurm-doctor/v1"
SAMPLE = 50
"""Jobs whose directories are looked at."""

Config = dict[str, str]


def doctor(bounds: BoundsOption = None, as_json: JsonOption = False) -> None:
    """Check Slurm, and test each right that the bounds need with a command that changes nothing.

    Exits with 1 when a check failed (✗); a warning (!) leaves the exit code at 0.
    """
    from schedmate.commands.doctor import report
    from schedmate.schedulers.live.bounds import load_bounds

    report(list(examine(load_bounds(bounds))), SCHEMA, as_json=as_json)


def examine(bounds: Bounds) -> Iterator[Check]:
    """Every check, in the order in which a fault would be looked for."""
    from schedmate.commands.slurm_setup import connect
    from schedmate.schedulers.live.slurm.reading.config import parse_config

    try:
        adapter = connect(bounds)
        version = adapter.version()
        config = parse_config(adapter.commands.run("scontrol", "show", "config"))
        jobs = adapter.jobs()
    except SchedmateError as error:
        yield Check(
            "controller", "failed", str(error), "run `scontrol ping` here, as the same user"
        )
        return
    fact = f"Slurm {version[0]}.{version[1]:02d}, cluster {adapter.cluster}"
    yield Check("controller", "ok", f"{fact}, {counted(len(jobs), 'job')} in the queue")
    yield _nodes(adapter)
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
    stop = bounds.kill_switch
    if stop.exists():
        yield Check("kill switch", "warning", f"{stop} is there: nothing is changed", f"rm {stop}")
    else:
        yield Check("kill switch", "ok", f"`touch {stop}` stops every change at once")


def _nodes(adapter: SlurmAdapter) -> Check:
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
    if not gpus:
        fix = "set AccountingStorageTRES=gres/gpu, so that Slurm counts GPUs"
        return Check("nodes", "warning", fact, fix)
    return Check("nodes", "ok", fact)


def _accounting(adapter: SlurmAdapter, config: Config) -> Iterator[Check]:
    import time

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
    import pwd

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
    known = adapter.describe([job.id for job in others]).values()
    folders = {one.spec.repo for one in known if one.spec.repo}
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
    bounds: Bounds, config: Config, adapter: SlurmAdapter, pending: list[LiveJob]
) -> Iterator[Check]:
    if config.get("PriorityType") != "priority/multifactor":
        fact = f"PriorityType is {config.get('PriorityType') or 'not set'}"
        fix = "SiteFactor counts only with PriorityType=priority/multifactor"
        yield Check("priority", "failed", fact, fix)
        return
    names = ("Age", "Assoc", "FairShare", "JobSize", "Partition", "QOS")
    weights = {name: config.get(f"PriorityWeight{name}", "0") for name in names}
    spread = sum(int(weight) for weight in weights.values() if weight.isdigit())
    band = bounds.order.highest - bounds.order.lowest
    waiting = [job for job in pending if not job.held and job.priority is not None]
    floored = [job for job in waiting if (job.priority or 0) <= 1]
    if spread == 0 or (waiting and len(floored) == len(waiting)):
        fact = "priorities are floored at 1: a negative SiteFactor cannot lower them"
        fix = "raise the base of all jobs alike: PriorityWeightPartition=10000"
        yield Check("priority", "failed" if bounds.order.lowest < 0 else "warning", fact, fix)
    elif spread < band:
        fact = f"the weights add up to {spread:,}, less than the band of {band:,}: it decides alone"
        fix = "narrow the band (order: lowest, highest), or accept that estimates outweigh the rest"
        yield Check("priority", "warning", fact, fix)
    else:
        yield Check("priority", "ok", f"a band of {band:,} on weights of {spread:,}")
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


def _requeue(config: Config) -> Check:
    import re

    found = re.search(r"cred_expire=(\d+)", config.get("AuthInfo", ""))
    wait = int(found[1]) if found else 120
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
        said = adapter.commands.run_directly([*command, "check"]).strip()
    except SchedmateError as error:
        fix = "see docs/slurm.md, Draining: the command, its owner and sudoers"
        return Check("right to drain", "failed", str(error), fix)
    return Check("right to drain", "ok", said or "the drain command answers")
