"""Tracebacks as loggers, launchers, notebooks and other processes pass them on."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedmate.jobs import Diagnosis
from schedmate.logparse.failure import diagnose
from schedmate.logparse.reading import open_log

STALE = """Traceback (most recent call last):
  File "train.py", line 10, in <module>
    main()
  File "train.py", line 5, in main
    f = open("/mnt/nfs/ckpt.pt", "wb")
OSError: [Errno 116] Stale file handle: '/mnt/nfs/ckpt.pt'
"""
KEY = """Traceback (most recent call last):
  File "a.py", line 1, in f
    x = d["lr"]
KeyError: 'lr'
"""
DIRECT = "\nThe above exception was the direct cause of the following exception:\n\n"
DURING = "\nDuring handling of the above exception, another exception occurred:\n\n"


def of(path: Path, text: str) -> Diagnosis:
    path.write_text("epoch 1\nepoch 2\n" + text)
    with open_log(path) as log:
        return diagnose(log)


def prefixed(text: str, *prefixes: str) -> str:
    lines = text.splitlines()
    return "".join(f"{prefixes[n % len(prefixes)]}{line}\n" for n, line in enumerate(lines))


WRAPPED = {
    "a logger, numbers of any width": prefixed(
        STALE,
        "2024-01-01 10:00:00,3 - loop:99: ERROR - ",
        "2024-01-01 10:00:01,333 - loop:1: ERROR - ",
    ),
    "padded columns": prefixed(STALE, "[   0.1] worker-1[410] E ", "[1250.79] worker-0[99999] E "),
    "a cloud's viewer": prefixed(
        STALE, "| 2024-11-28T07:42:10.527Z | ", "| 2024-11-28T07:42:11.27Z | "
    ),
    "a string of JSON": '{"level": "error", "exc_info": "'
    + STALE.replace('"', '\\\\"').replace("\n", "\\\\n")
    + '"}\n',
    "a list of strings": "ERR: ['Traceback (most recent call last):\\n', '  File \"a.py\", line 3"
    ", in f\\n    g()\\n', 'OSError: [Errno 116] Stale file handle\\n']\n",
    "bytes": "stderr: b'" + STALE.replace("\n", "\\n") + "'\n",
    "a box": "╭──── Traceback (most recent call last) ────╮\n│ /u/train.py:10 in <module>   │\n"
    "│ ❱ 10 │   main()              │\n╰──────────────────────────────╯\n"
    + STALE.splitlines()[-1]
    + "\n",
    "another process": 'concurrent.futures.process._RemoteTraceback: \n"""\n'
    + STALE
    + '"""\n'
    + DIRECT
    + STALE,
    "a group": "  + Exception Group Traceback (most recent call last):\n"
    '  |   File "a.py", line 1, in <module>\n  |     main()\n'
    "  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)\n"
    "  +-+---------------- 1 ----------------\n"
    + prefixed(STALE, "    | ")
    + "    +------------------------------------\n",
}


@pytest.mark.parametrize("name", WRAPPED)
def test_a_traceback_is_read_whatever_is_around_it(name: str, tmp_path: Path) -> None:
    found = of(tmp_path / "job.out", WRAPPED[name])
    assert (found.error_name, found.rule, found.line) == ("S3/Storage Error", "errno-116", 3)
    text = (tmp_path / "job.out").read_text().splitlines()
    for quoted in found.evidence:
        assert quoted.text.strip() in text[quoted.line - 1]


def test_loguru_points_at_a_frame_and_a_launcher_indents_its_summary(tmp_path: Path) -> None:
    found = of(
        tmp_path / "loguru.out",
        "10:00 | ERROR | launch:98 - An error has been caught in function 'launch':\n"
        "Traceback (most recent call last):\n\n"
        '  File "tools/train.py", line 134, in <module>\n    launch(\n    └ <function launch>\n\n'
        '> File "/yolox/core/launch.py", line 98, in launch\n    main_func(*args)\n'
        "    └ <function main>\n\nKeyError: 'lr'\n",
    )
    assert (found.error_name, found.line) == ("Key Error", 4)
    found = of(
        tmp_path / "elastic.out",
        "  rank      : 0 (local_rank: 0)\n  traceback : Traceback (most recent call last):\n"
        '    File "/a/record.py", line 348, in wrapper\n      return f(*args, **kwargs)\n'
        "  KeyError: 'lr'\n",
    )
    assert (found.error_name, found.line) == ("Key Error", 4)


def test_a_direct_cause_counts_and_what_failed_while_it_was_handled_too(tmp_path: Path) -> None:
    last = KEY.replace("KeyError: 'lr'", "RuntimeError: could not build the optimizer")
    assert of(tmp_path / "a.out", KEY + DIRECT + last).error_name == "Key Error"
    assert of(tmp_path / "b.out", KEY + DURING + last).error_name == "Runtime Error"
    storage = of(tmp_path / "c.out", KEY + DIRECT + STALE)
    assert storage.error_name == "S3/Storage Error", "what says most goes before what came first"


def test_an_assertion_of_pytest(tmp_path: Path) -> None:
    found = of(tmp_path / "job.out", ">       raise KeyError('x')\nE       KeyError: 'x'\n")
    assert (found.error_name, found.line) == ("Key Error", 4)
