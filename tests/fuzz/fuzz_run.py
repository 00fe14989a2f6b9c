"""Fuzz targets of `fuzz_targets.py`, in processes with limits; `make fuzz` runs this.

Input number N of a target depends on the seed and N alone. What fails is written to a folder, made
small, once for each place in the code that it fails at.
"""

from __future__ import annotations

import argparse
import faulthandler
import hashlib
import json
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

MEMORY_BYTES = 6 << 30
CASE_S = float(os.environ.get("FUZZ_CASE_S", "30"))
"""CPU time of one input [s]; a machine that is busy elsewhere costs none."""
_SMALLER_RUNS = 120
_PLACE = re.compile(r'File "[^"]*/schedmate/([^"]+)", line \d+, in (\S+)')
_ERROR = re.compile(r"(?:^|internal error, |stopped early \()((?:\w+\.)*\w+)(?=:)", re.MULTILINE)


class TooLongError(BaseException):
    """One input took more than its time; no handler of the code under test may catch it."""


@contextmanager
def limited() -> Iterator[None]:
    """Bounds for one input: an exception at `CASE_S`, the end of the process at thrice of that."""

    def late(_signal: int, _frame: object) -> None:
        raise TooLongError(f"more than {CASE_S:g} s of CPU time")

    before = signal.signal(signal.SIGVTALRM, late)
    signal.setitimer(signal.ITIMER_VIRTUAL, CASE_S)
    # C code that never returns lets no handler run
    faulthandler.dump_traceback_later(20 * CASE_S, exit=True)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        faulthandler.cancel_dump_traceback_later()
        signal.signal(signal.SIGVTALRM, before)


def failure_of(name: str, data: bytes, folder: Path) -> tuple[str, str] | None:
    """Where and how a target fails on an input, with the traceback; None when it answers well."""
    from fuzz_targets import TARGETS, run

    try:
        with limited():
            run(TARGETS[name], data, folder)
    except (Exception, TooLongError) as error:  # noqa: BLE001 - whatever it is, it is the result
        text = "".join(traceback.format_exception(error, limit=-12))
        said = str(error)
        places = _PLACE.findall(said if _PLACE.search(said) else text)
        place = next((one for one in reversed(places) if one[0] != "cli.py"), ("", ""))
        kinds = _ERROR.findall(said)
        kind = kinds[-1] if kinds else type(error).__name__
        return f"{kind} at {place[0]} {place[1]}", text
    return None


def smaller(name: str, data: bytes, folder: Path, where: str) -> bytes:
    """A smaller input that fails at the same place: pieces are left out while it still does."""
    left, piece = _SMALLER_RUNS, max(1, len(data) // 2)
    until = time.monotonic() + 4 * CASE_S
    while piece and left and time.monotonic() < until:
        at = 0
        while at < len(data) and left and time.monotonic() < until:
            left -= 1
            tried = data[:at] + data[at + piece :]
            found = failure_of(name, tried, folder)
            if found is not None and found[0] == where:
                data = tried
            else:
                at += piece
        piece //= 2
    return data


def child(names: list[str], seed: int, runs: int | None, seconds: float, failures: Path) -> None:
    """Run inputs of targets until time or number is up; a JSON line for each failure."""
    from fuzz_mutate import mutate
    from fuzz_targets import TARGETS

    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    running = failures / f".{os.getpid()}.running"
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "case"
        for name in names:
            samples = [one for one in TARGETS[name].samples() if one]
            most = TARGETS[name].short if runs is None else runs
            seen: set[str] = set()
            began, number = time.monotonic(), 0
            while number < most and time.monotonic() - began < seconds:
                data = mutate(random.Random(f"{seed}/{name}/{number}"), samples)
                running.write_bytes(data)
                _say({"running": name, "file": running.name})
                found = failure_of(name, data, folder)
                number += 1
                if found is not None and found[0] not in seen:
                    seen.add(found[0])
                    _keep(name, smaller(name, data, folder, found[0]), found, number, failures)
            _say({"done": name, "inputs": number, "seconds": time.monotonic() - began})
    running.unlink(missing_ok=True)


def _keep(name: str, data: bytes, found: tuple[str, str], number: int, failures: Path) -> None:
    label = f"{name}-{hashlib.sha256(found[0].encode()).hexdigest()[:8]}"
    (failures / label).write_bytes(data)
    (failures / f"{label}.txt").write_text(found[1], encoding="utf-8", errors="replace")
    _say({"failed": f"{name}: {found[0]} (input {number - 1}), see {failures / label}"})


def _say(document: dict[str, object]) -> None:
    print(json.dumps(document), flush=True)


def fuzz(
    names: list[str], *, seed: int, runs: int | None, seconds: float, failures: Path
) -> tuple[list[str], dict[str, int]]:
    """Fuzz targets in a process of their own; gives what failed, a line each, and inputs by target.

    `runs` is the number of inputs of each target, None for as many as the target's short run has.
    """
    failures.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, __file__, *names, "--child", "--seed", str(seed)]
    command += ["--seconds", str(seconds), "--failures", str(failures.resolve())]
    command += [] if runs is None else ["--runs", str(runs)]
    kept = {key: value for key, value in os.environ.items() if not key.startswith("SCHEDMATE_")}
    threads = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PYTHONHASHSEED": "0"}
    found: list[str] = []
    inputs: dict[str, int] = {}
    last: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as home, tempfile.TemporaryFile() as errors:
        own = {f"XDG_{kind}_HOME": home for kind in ("CONFIG", "DATA", "CACHE")} | {"HOME": home}
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=errors, env={**kept, **threads, **own}
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                said = json.loads(line) if line.startswith(b"{") else {}
                if "running" in said:
                    last = said
                elif "failed" in said:
                    found.append(said["failed"])
                    print(f"  {said['failed']}", flush=True)
                elif "done" in said:
                    inputs[said["done"]] = said["inputs"]
                    print("{done}: {inputs} inputs in {seconds:.0f} s".format(**said), flush=True)
        errors.seek(0)
        text = errors.read().decode(errors="replace")[-2000:]
    if process.returncode != 0:
        file = failures / f"{last.get('running', 'start')}-killed"
        if last:
            (failures / last["file"]).replace(file)
        found.append(f"the process ended with {process.returncode}, see {file}: {text}")
        print(f"  {found[-1]}", flush=True)
    return found, inputs


def main() -> int:
    """The command line; gives its exit code."""
    from fuzz_targets import TARGETS

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--runs", type=int, help="inputs of each target (default: a few)")
    parser.add_argument("--seconds", type=float, default=600.0, help="time of each target at most")
    parser.add_argument("--failures", type=Path, default=Path("build/fuzz"), metavar="DIR")
    parser.add_argument("--replay", type=Path, metavar="FILE", help="one input of one TARGET")
    parser.add_argument("--record", action="store_true", help="keep benchmarks/results/fuzz.json")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if unknown := set(given.targets) - set(TARGETS):
        parser.error(f"no target {', '.join(sorted(unknown))}; there are {', '.join(TARGETS)}")
    if given.replay is not None:
        with tempfile.TemporaryDirectory() as scratch:
            name, data = given.targets[0], given.replay.read_bytes()
            found = failure_of(name, data, Path(scratch) / "case")
        print("answered well" if found is None else found[1])
        return int(found is not None)
    if given.child:
        child(given.targets, given.seed, given.runs, given.seconds, given.failures)
        return 0
    failed: list[str] = []
    rows = []
    for name in given.targets or TARGETS:
        found, inputs = fuzz(
            [name], seed=given.seed, runs=given.runs, seconds=given.seconds, failures=given.failures
        )
        failed += found
        rows.append({"target": name, "inputs": inputs.get(name, 0), "failures": len(found)})
    if given.record:
        _record([*rows, _total(rows)], given.seed)
    if failed:
        print(f"{len(failed)} failures; the inputs and where each one fails: {given.failures}/")
    return int(bool(failed))


def _total(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {"target": "all"} | {key: sum(r[key] for r in rows) for key in ("inputs", "failures")}


def _record(rows: list[dict[str, Any]], seed: int) -> None:
    sys.path.append(str(Path(__file__).parent.parent.parent / "benchmarks"))
    from _record import record

    limits = {"cpu_s_an_input": CASE_S, "memory_gb": MEMORY_BYTES >> 30}
    record("fuzz", rows, seed=seed, limits=limits)


if __name__ == "__main__":
    sys.exit(main())
