"""Watches over one command until all of its processes have ended: `python supervise.py`.

It runs between a runner and a command because either may be killed at any moment, and two copies of
a job must never write one checkpoint. The command has a process group of its own and dies with this
process; this process ends it when the runner is gone (its pipe closes) or silent for the time of
the lease. Only when no process of the job is left is the end recorded.

It is started often and on any node, so it needs nothing but the standard library. The first line of
standard input is the order as JSON, later lines are `beat` and `stop SIGNAL GRACE_S`; standard
output has a line when the command has started and one when it has ended.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import select
import signal
import sys
import time
from pathlib import Path

MARK = "SCHEDMATE_JOB_MARK"
"""Environment variable that identifies every process of a job, even without its parents."""
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGPIPE)
"""What this process ignores, and its command does not."""
KILLED_WITHIN_S = 10.0
"""How long processes that were killed are waited for [s]; one in the kernel may take longer."""


def marked(mark: str, before: int | None = None) -> list[int]:
    """The processes on this machine whose mark, JOB/RUN/RANK, begins with this.

    With `before`, only those of earlier runs than this. Processes of other users are not visible.
    """
    wanted = f"{MARK}={mark}/".encode()
    pids = []
    for place in Path("/proc").iterdir():
        if not place.name.isdigit() or int(place.name) == os.getpid():
            continue
        with contextlib.suppress(OSError, ValueError, IndexError):
            for variable in (place / "environ").read_bytes().split(b"\0"):
                if not (variable + b"/").startswith(wanted) or _is_gone(place):
                    continue
                if before is None or int(variable.rsplit(b"/", 2)[1]) < before:
                    pids.append(int(place.name))
    return pids


def kill_marked(
    mark: str, before: int | None = None, within_s: float = KILLED_WITHIN_S
) -> list[int]:
    """Kill the processes that `marked` finds; return those that are still alive."""
    until = time.monotonic() + within_s
    while left := marked(mark, before):
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        _reap()
        if time.monotonic() > until:
            return left
        time.sleep(0.01)
    return []


def _is_gone(place: Path) -> bool:
    return (place / "stat").read_text().rpartition(")")[2].split()[0] in "ZX"


def _reap() -> None:
    """Collect what has ended, orphans of the command too."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _prctl(option: int, value: int) -> None:
    ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _start(order: dict[str, object], parent: int) -> int:
    """Start the command in a separate process group, which is killed when this process dies."""
    log = os.open(str(order["log"]), os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    # a signal for the command that comes earlier stays pending until it is handled
    allowed = signal.pthread_sigmask(signal.SIG_BLOCK, IGNORED)
    pid = os.fork()
    if pid:
        signal.pthread_sigmask(signal.SIG_SETMASK, allowed)
        os.close(log)
        return pid
    try:
        os.setpgid(0, 0)
        _prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it was killed before it could write this
            os._exit(1)
        for number in IGNORED:
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, allowed)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        os.chdir(str(order["cwd"]))
        os.execve("/bin/sh", ["sh", "-c", str(order["command"])], order["env"])  # type: ignore[arg-type]  # noqa: S606
    except OSError as error:
        os.write(2, f"schedmate: the command cannot be started: {error}\n".encode())
    finally:
        os._exit(127)


def _tell(**what: object) -> None:
    with contextlib.suppress(OSError):  # the reader is gone
        os.write(1, (json.dumps(what) + "\n").encode())


class _Supervisor:
    def __init__(self, order: dict[str, object], rest: bytes) -> None:
        self.order, self.rest = order, rest
        self.lease_s = float(order["lease_s"])  # type: ignore[arg-type]
        self.ends_at = time.monotonic() + self.lease_s
        self.kill_at = float("inf")
        self.why = "exited"
        self.listens = True

    def run(self) -> None:
        pid = _start(self.order, os.getpid())
        with contextlib.suppress(OSError):  # the child does the same: whichever is first
            os.setpgid(pid, pid)
        started = time.time()
        _tell(pid=pid, started=started)
        ended = os.pidfd_open(pid)
        status = None
        while status is None:
            now = time.monotonic()
            if now >= self.ends_at:
                self.why = "lease"
                self.kill_at = now
            if now >= self.kill_at:
                self._signal(pid, signal.SIGKILL)
                self.kill_at = self.ends_at = float("inf")
            until = min(self.ends_at, self.kill_at)
            wait = None if until == float("inf") else max(0.0, until - now)
            ready, _, _ = select.select([ended, *([0] if self.listens else [])], [], [], wait)
            if 0 in ready:
                self._listen(pid)
            if ended in ready:
                status = os.waitpid(pid, 0)[1]
        self._signal(pid, signal.SIGKILL)
        while kill_marked(str(self.order["mark"])):  # one in the kernel: it keeps lock and GPUs
            self._ignore()
        code = os.waitstatus_to_exitcode(status)
        report = {
            "exit_code": code if code >= 0 else None,
            "signal": -code if code < 0 else None,
            "why": self.why,
            "started": started,
            "ended": time.time(),
        }
        place = Path(str(self.order["report"]))
        part = place.with_name(place.name + ".part")
        with contextlib.suppress(OSError):  # a full disk: the reader is notified
            part.write_text(json.dumps(report))
            part.replace(place)
        _tell(**report)

    def _listen(self, pid: int) -> None:
        chunk = os.read(0, 1 << 16)
        if not chunk:
            self.listens = False
            self.why, self.kill_at, self.ends_at = "runner", 0.0, float("inf")
            return
        *lines, self.rest = (self.rest + chunk).split(b"\n")
        for line in lines:
            what, *words = line.split()
            if what == b"beat" and self.why != "lease":
                self.ends_at = time.monotonic() + self.lease_s
            elif what == b"stop":
                if self.why == "exited":
                    self.why = "told"
                    self._signal(pid, int(words[0]))
                self.kill_at = min(self.kill_at, time.monotonic() + float(words[1]))

    def _ignore(self) -> None:
        """Discard messages to a command that has ended, so that the sender need not wait."""
        while self.listens and select.select([0], [], [], 0.0)[0]:
            self.listens = bool(os.read(0, 1 << 16))

    def _signal(self, group: int, number: int) -> None:
        with contextlib.suppress(OSError):
            os.killpg(group, number)


def main() -> None:
    """Supervise the command of the order on standard input."""
    for number in IGNORED:
        signal.signal(number, signal.SIG_IGN)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    text = b""
    while b"\n" not in text:
        chunk = os.read(0, 1 << 16)
        if not chunk:
            return
        text += chunk
    first, _, rest = text.partition(b"\n")
    _Supervisor(json.loads(first), rest).run()


if __name__ == "__main__":
    main()
    sys.stdout.flush()
