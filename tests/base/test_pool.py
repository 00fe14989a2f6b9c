"""The pool of processes, as a command leaves it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

# Python wakes up every pool's thread when it exits; here it does so slowly, in which time a pool
# whose processes were killed, as by Ctrl-C, would close its pipe.
INTERRUPTED = """
import concurrent.futures.process as process
import os, signal, sys, threading, time
from multiprocessing import active_children

from schedmate.base.spread import spread

def wakeup(self):
    if not self._closed:
        if process._global_shutdown:
            time.sleep(0.5)
        self._writer.send_bytes(b"")

process._ThreadWakeup.wakeup = wakeup

def work(value, shared):
    return value

def results():
    for value, _ in spread(work, range(100), None, processes=2):
        yield value

def main():
    try:
        for value in results():
            for child in active_children():
                os.kill(child.pid, signal.SIGKILL)
            raise KeyboardInterrupt
    except KeyboardInterrupt:
        sys.exit(130)

if __name__ == "__main__":
    main()
"""


def test_a_pool_left_at_ctrl_c_ends_before_python_does(tmp_path: Path) -> None:
    script = tmp_path / "interrupted.py"
    script.write_text(INTERRUPTED)
    ended = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (130, "")
