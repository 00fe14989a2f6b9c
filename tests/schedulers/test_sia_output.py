"""The solver's own messages never reach standard output, where the answer is."""

from __future__ import annotations

import json
import subprocess
import sys

PROGRAM = """
import functools, json, os, sys
import scipy.optimize

# as loud as it can be, from C
for name in ("milp", "linprog"):
    loud = getattr(scipy.optimize, name)
    def louder(*args, loud=loud, options=None, **rest):
        return loud(*args, options={**(options or {}), "disp": True}, **rest)
    setattr(scipy.optimize, name, louder)

from schedmate.schedulers.policies.sia import Choice, ProgramMatrix as Table

choices = [[Choice(0, 1, -1.0), Choice(1, 2, -1.5 - job % 3)] for job in range(60)]
table = Table(choices, [[0, 1]] * 60, [20, 30])
print("[", end="")  # not flushed yet
assert table.relaxed(5.0) is not None
print(1, end="")
chosen = table.optimum(5.0, 1e-4)
print(",", sum(map(len, chosen)), end="]")
if len(sys.argv) > 1:
    os.close(1)
    table.optimum(5.0, 1e-4)
    os._exit(0)
"""


def test_nothing_of_the_solver_is_printed_among_the_answer() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, check=True)
    assert json.loads(done.stdout) == [1, 35]
    assert b"HiGHS" in done.stderr  # it did print


def test_it_solves_without_a_standard_output() -> None:
    subprocess.run([sys.executable, "-c", PROGRAM, "closed"], capture_output=True, check=True)
