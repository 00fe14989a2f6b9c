"""A private Slurm with accounting for tests: nodes with four fake GPUs each, all on 127.0.0.1.

Needs root and Debian's packages (`.ci/install live`); touches no system service. ::

    with Testbed(folder) as bed:
        job = bed.submit("sleep 5", gpus=2)
        bed.stop("slurmctld"); bed.start("slurmctld")

Two users are made: `USER` submits, `AGENT` is a Slurm Operator.
"""

from __future__ import annotations

import os
import random
import secrets
import shutil
import signal
import socket
import stat
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

USER, AGENT = "schedmate-user", "schedmate-agent"
PROGRAMS = ("slurmctld", "slurmd", "slurmdbd", "munged", "mariadbd", "runuser", "useradd")
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
CONFIGURATION = """\
ClusterName=testbed
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=slurm
AuthType=auth/munge
CredType=cred/munge
# cred_expire is also how long a requeued job waits before it may start again
AuthInfo=socket={root}/munge/socket,cred_expire={cred_expire}
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
StateSaveLocation={root}/state
SlurmdSpoolDir={root}/spool/%n
SlurmctldPidFile={root}/run/slurmctld.pid
SlurmdPidFile={root}/run/slurmd-%n.pid
SlurmctldLogFile={root}/log/slurmctld.log
SlurmdLogFile={root}/log/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
ReturnToService=2
KillWait=2
MessageTimeout=10
SlurmdTimeout={slurmd_timeout}
SchedulerParameters={scheduler}
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PriorityType=priority/multifactor
# every job starts from 10000, so that a negative SiteFactor can lower it; the floor is 1
PriorityWeightPartition=10000
PriorityWeightAge=1000
PriorityCalcPeriod=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={database_port}
# with munge this is the socket: sacct and sacctmgr do not read AuthInfo
AccountingStoragePass={root}/munge/socket
AccountingStorageTRES=gres/gpu
AccountingStoreFlags=job_comment,job_script
GresTypes=gpu
NodeName=DEFAULT CPUs=64 RealMemory=4000 Gres=gpu:a100:4 State=UNKNOWN
{nodes}
PartitionName=batch Nodes=ALL Default=YES MaxTime=INFINITE State=UP PriorityJobFactor=1
JobSubmitPlugins=lua
EpilogSlurmctld={root}/etc/epilog
{more}
"""
SUBMIT = """\
function slurm_job_submit(job_desc, part_list, submit_uid) return slurm.SUCCESS end
function slurm_job_modify(job_desc, job_rec, part_list, modify_uid) return slurm.SUCCESS end
return slurm.SUCCESS
"""
"""A `job_submit.lua` that does nothing; the controller reads it again when it changes."""
DATABASE = """\
AuthType=auth/munge
AuthInfo=socket={root}/munge/socket
CommunicationParameters=NoInAddrAny
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={database_port}
SlurmUser=slurm
PidFile={root}/run/slurmdbd.pid
LogFile={root}/log/slurmdbd.log
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={sql_port}
StorageUser=slurm
StoragePass=testbed
StorageLoc=slurm_acct_db
"""


def missing() -> str | None:
    """Why the testbed cannot be set up here; None if it can."""
    if os.geteuid() != 0:
        return "setting up a private Slurm needs root"
    lacking = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    return f"not installed: {', '.join(lacking)}; `.ci/install live`" if lacking else None


PATIENCE_S = 120.0


def until(what: str, seconds: float, done: Callable[[], object]) -> None:
    """Wait for something to become true; fails when it does not, on a busy machine much later."""
    seconds = max(seconds, PATIENCE_S)
    end = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < end, f"{what}: not within {seconds:g} s"
        time.sleep(0.05)


class Testbed:
    """One cluster, in a folder that it is given and removes again."""

    __test__ = False

    def __init__(
        self,
        root: Path,
        *,
        nodes: int = 4,
        slurmd_timeout: int = 60,
        cred_expire: int = 5,
        scheduler: str = "bf_interval=1,sched_interval=1,batch_sched_delay=0,sched_min_interval=0",
        more: str = "",
    ) -> None:
        self.root = root
        self.node_names = [f"gpu{number:02d}" for number in range(1, nodes + 1)]
        self._port = _free_ports(3 + nodes)
        self.values = {
            "host": socket.gethostname().partition(".")[0],
            "root": root,
            "port": self._port,
            "database_port": self._port + 1,
            "sql_port": self._port + 2,
            "slurmd_timeout": slurmd_timeout,
            "cred_expire": cred_expire,
            "scheduler": scheduler,
            "more": more,
        }
        self.values["nodes"] = "\n".join(
            f"NodeName={name} NodeHostname={self.values['host']} NodeAddr=127.0.0.1 "
            f"Port={self._port + 3 + at}"
            for at, name in enumerate(self.node_names)
        )
        self._database: subprocess.Popen[bytes] | None = None
        self.conf = root / "etc" / "slurm.conf"
        self.jobs_folder = root / "jobs"
        self.environment = {"PATH": PATH, "SLURM_CONF": str(self.conf), "LC_ALL": "C.UTF-8"}

    # -- up and down -----------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self._up()
        except BaseException:
            for log in sorted((self.root / "log").glob("*.log")):
                print(log.name, log.read_text(errors="replace")[-600:])
            self.down()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    def _up(self) -> None:
        root = self.root
        for user in (USER, AGENT):
            if self.run("id", user, check=False).returncode:
                self.run("useradd", "--system", "--no-create-home", "--shell", "/bin/bash", user)
        folders = ["etc", "state", "spool", "log", "run", "dev", "db", "jobs", "munge"]
        for name in folders:
            (root / name).mkdir(parents=True)
        for part in (root, *root.parents):  # made by pytest for root alone
            if part == Path("/tmp") or part == Path("/"):
                break
            part.chmod(part.stat().st_mode | 0o055)
        for name in ("jobs", "run"):
            (root / name).chmod(0o1777)
        for number in range(4):
            device = root / "dev" / f"gpu{number}"  # Slurm refuses plain files
            os.mknod(device, stat.S_IFCHR | 0o666, os.makedev(195, number))
        (root / "munge" / "key").write_bytes(secrets.token_bytes(128))
        (root / "munge" / "key").chmod(0o400)
        self.run("chown", "-R", "munge:", str(root / "munge"))
        for name, owner in (("state", "slurm"), ("log", "slurm"), ("db", "mysql")):
            shutil.chown(root / name, owner)
        self.conf.write_text(CONFIGURATION.format(**self.values))
        names = f"gpu[01-{len(self.node_names):02d}]"
        (root / "etc" / "gres.conf").write_text(
            f"NodeName={names} Name=gpu Type=a100 File={root}/dev/gpu[0-3]\n"
        )
        (root / "etc" / "job_submit.lua").write_text(SUBMIT)
        (root / "etc" / "epilog").write_text("#!/bin/sh\nexit 0\n")
        (root / "etc" / "epilog").chmod(0o755)
        database = root / "etc" / "slurmdbd.conf"
        database.write_text(DATABASE.format(**self.values))
        database.chmod(0o600)
        shutil.chown(database, "slurm")
        for program in ("munged", "mariadbd", "slurmdbd"):
            self.start(program)
        self._register()
        self.start("slurmctld")
        for name in self.node_names:
            self.start("slurmd", name)
        until("the nodes", 60, lambda: len(self.idle()) == len(self.node_names))

    def _register(self) -> None:
        for words in (
            "add cluster testbed",
            "add account lab Cluster=testbed",
            f"add user {USER} Account=lab",
            f"add user {AGENT} Account=lab AdminLevel=Operator",
        ):
            self.run("sacctmgr", "-i", *words.split())

    def down(self) -> None:
        """End what was started, and remove the folder."""
        with suppress(subprocess.SubprocessError, OSError):
            self.run("scancel", "-u", USER, check=False, timeout=20)
        for name in self.node_names:
            self.stop("slurmd", name)
        for program in ("slurmctld", "slurmdbd", "mariadbd", "munged"):
            self.stop(program)
        shutil.rmtree(self.root, ignore_errors=True)

    def start(self, program: str, node: str = "") -> None:
        """Start a daemon, and wait until it answers."""
        root, sql = self.root, str(self.root / "db" / "socket")
        if program == "munged":
            folder = root / "munge"
            files = {"key-file": "key", "socket": "socket", "pid-file": "pid", "log-file": "log"}
            words = [f"--{name}={folder / file}" for name, file in files.items()]
            seed = f"--seed-file={folder / 'seed'}"
            self.run("runuser", "-u", "munge", "--", "munged", "--force", seed, *words)
        elif program == "mariadbd":
            self._start_database(sql)
        elif program == "slurmdbd":
            self.run("slurmdbd")
            until("slurmdbd", 60, lambda: self._answers("sacctmgr", "-n", "list", "cluster"))
        elif program == "slurmctld":
            self.run("slurmctld", "-i")
            until("slurmctld", 60, lambda: self._answers("squeue", "-h"))
        else:
            (root / "spool" / node).mkdir(exist_ok=True)
            self.run("slurmd", "-N", node)

    def _start_database(self, sql: str) -> None:
        data = ("--no-defaults", "--user=mysql", f"--datadir={self.root / 'db'}")
        new = not (self.root / "db" / "mysql").exists()
        if new:
            how = ("--auth-root-authentication-method=normal", "--skip-test-db")
            self.run("mariadb-install-db", *data, *how)
        words = (
            *("mariadbd", *data, f"--socket={sql}", f"--pid-file={self._pid_file('mariadbd', '')}"),
            *("--bind-address=127.0.0.1", f"--port={self.values['sql_port']}"),
            *("--innodb-buffer-pool-size=64M", "--innodb-lock-wait-timeout=900"),
            *(
                "--innodb-flush-log-at-trx-commit=0",
                f"--log-error={self.root / 'db' / 'error.log'}",
            ),
        )
        null = subprocess.DEVNULL
        self._database = subprocess.Popen(
            words,
            env=self.environment,
            stdin=null,
            stdout=null,
            stderr=null,
            start_new_session=True,
        )
        ask = ("mariadb", "--no-defaults", "-u", "root", "-S", sql, "-e")
        until("mariadbd", 60, lambda: self._answers(*ask, "select 1"))
        if new:
            who = "slurm@'127.0.0.1'"
            self.run(*ask, f"create user {who} identified by 'testbed'")
            self.run(*ask, f"grant all on slurm_acct_db.* to {who}")

    def _answers(self, *words: str) -> bool:
        with suppress(subprocess.TimeoutExpired):
            return self.run(*words, check=False, timeout=10).returncode == 0
        return False

    def _pid_file(self, program: str, node: str) -> Path:
        own = {"munged": "munge/pid", "mariadbd": "db/pid", "slurmd": f"run/slurmd-{node}.pid"}
        return self.root / own.get(program, f"run/{program}.pid")

    def stop(self, program: str, node: str = "", how: signal.Signals = signal.SIGTERM) -> None:
        """End a daemon, and wait until it has."""
        file = self._pid_file(program, node)
        try:
            pid = int(file.read_text())
            os.kill(pid, how)
        except (OSError, ValueError):
            return
        for attempt in range(400):
            if not Path(f"/proc/{pid}").exists() or _is_zombie(pid):
                break
            if attempt == 200:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.05)
        if program == "mariadbd" and self._database is not None:
            self._database.wait()
        file.unlink(missing_ok=True)

    # -- use -------------------------------------------------------------

    def run(
        self, *words: str, user: str | None = None, check: bool = True, timeout: float = 60
    ) -> subprocess.CompletedProcess[str]:
        """Run a command with this Slurm's configuration, as root or another user."""
        before = ("runuser", "-u", user, "--") if user else ()
        done = subprocess.run(
            (*before, *words),
            env=self.environment,
            cwd=self.jobs_folder if self.jobs_folder.exists() else "/",
            capture_output=True,
            text=True,
            timeout=timeout,
            stdin=subprocess.DEVNULL,
        )
        if check and done.returncode:
            raise AssertionError(f"{' '.join(words)}: {done.stderr or done.stdout}")
        return done

    def submit(self, script: str, *options: str, gpus: int = 4, nodes: int = 1) -> str:
        """Submit a batch script's text as `USER`; gives the job's id."""
        words = ("sbatch", "--parsable", f"--gres=gpu:{gpus}", f"-N{nodes}", *options)
        return self.run(*words, "--wrap", script, user=USER).stdout.strip().partition(";")[0]

    def submit_file(self, path: Path, *arguments: str, options: Sequence[str] = ()) -> str:
        """Submit a batch script as `USER` from the folder it lies in; gives the job's id."""
        words = ("sbatch", "--parsable", *options, f"--chdir={path.parent}", str(path), *arguments)
        return self.run(*words, user=USER).stdout.strip().partition(";")[0]

    def queue(self, fields: str = "%A %T %N") -> list[list[str]]:
        """`squeue`, a list of cells for each job."""
        printed = self.run("squeue", "-h", "-a", "-o", fields.replace(" ", "|")).stdout
        return [line.split("|") for line in printed.splitlines()]

    def accounting(self, job: str, fields: str = "State,NodeList") -> list[list[str]]:
        """Rows of all runs of a job, oldest first."""
        words = ("sacct", "-D", "-X", "-n", "-P", "-j", job, "-o", fields)
        return [line.split("|") for line in self.run(*words).stdout.splitlines()]

    def ended_as(self, job: str) -> str:
        """The state of a job's last run in accounting; empty while it is not there."""
        rows = self.accounting(job)
        return rows[-1][0] if rows else ""

    def settled(self, job: str) -> bool:
        """Whether a job's last row in accounting is complete, which takes some seconds."""
        rows = self.accounting(job, "SubmitLine,WorkDir,End")
        return bool(rows) and all(rows[-1]) and rows[-1][2] != "Unknown"

    def show(self, kind: str, name: str) -> dict[str, str]:
        """`scontrol show job` or `node`, as a dictionary; only of things with plain names."""
        words = self.run("scontrol", "show", kind, name).stdout.replace("\n", " ").split(" ")
        return dict(word.partition("=")[::2] for word in words if "=" in word)

    def idle(self) -> list[str]:
        """Nodes without jobs."""
        return self.run("sinfo", "-h", "-N", "-p", "batch", "-t", "idle", "-o", "%N").stdout.split()

    def clear(self) -> None:
        """Cancel all jobs, put every node back, and wait for both."""
        self.run("scancel", "-u", USER)
        until("an empty queue", 60, lambda: not self.queue())
        for name in self.node_names:
            self.run("scontrol", "update", f"NodeName={name}", "State=RESUME", check=False)
        until("idle nodes", 60, lambda: len(self.idle()) == len(self.node_names))


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def _free_ports(number: int) -> int:
    """The first of so many free ports in a row, below those that the kernel gives out."""
    for _ in range(200):
        first = random.randrange(20_000, 32_000 - number)
        taken = []
        try:
            for port in range(first, first + number):
                taken.append(socket.socket())
                taken[-1].bind(("127.0.0.1", port))
        except OSError:
            continue
        finally:
            for one in taken:
                one.close()
        return first
    raise AssertionError("no free ports")
