"""How often is the first failure of a job found, named and put down to the right fault?

Three kinds of logs, never in one row: real ones with known failures (`--logs`, a folder with an
index.csv of `file, failure_label, first_error_line`), programs that really fail here
(labels/faults.yaml), and published lines of hardware faults put into real logs of healthy jobs
(labels/fault_lines.yaml). Where the type is left open, the likely one is what counts, and `of it
likely` says how often. A log belongs to the half that the hash of its name says; rules may be
tuned on the development half alone.

    python benchmarks/failure.py --logs LOGS --half report [--python PYTHON_WITH_TORCH]
"""

from __future__ import annotations

import argparse
import csv
import hashlib
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from _record import record

from schedmate.jobs import Diagnosis
from schedmate.logparse.failure import diagnose
from schedmate.logparse.failure.examine import PROBED_CHUNK, Locator
from schedmate.logparse.reading import open_log

LABELS = Path(__file__).parent / "labels"
STEP = (
    "    print(f'step {step}/40 | loss {2 / (step + 1):.4f} | lr 1e-4 | 0.12 s/it', flush=True)\n"
)
MEMORY = re.compile(r"out of memory|OutOfMemory|\bOOM\b", re.IGNORECASE)
RENAMED = {"user_script": "script"}


@dataclass(frozen=True)
class Case:
    """A log and what is known of it; `type` and `line` None where they are not."""

    id: str
    path: Path
    type: str | None
    name: str | None
    line: int | None
    any_name: bool = False


def real(logs: Path, half: str) -> Iterator[Case]:
    """The real logs of one half."""
    with (logs / "index.csv").open() as file:
        for row in csv.DictReader(file):
            path = logs / row["file"]
            if not in_half(row["file"], half) or not path.exists():
                continue
            kind = RENAMED.get(row["failure_label"], row["failure_label"]) or None
            if kind == "script" and MEMORY.search(row["failing_component"]):
                kind = "framework"  # the taxonomy's word for it, whoever chose the batch size
            line = row["first_error_line"]
            known = (
                int(line)
                if line.isdigit() and (kind != "none" or row["failing_component"])
                else None
            )
            yield Case(row["file"], path, kind, None, known, any_name=True)


def in_half(name: str, half: str) -> bool:
    """Whether a log belongs to `development`, `report` or `both`."""
    even = hashlib.sha256(name.encode()).digest()[0] % 2 == 0
    return half == "both" or even == (half == "development")


def provoked(folder: Path, python: str | None) -> Iterator[Case]:
    """Runs every program of labels/faults.yaml; its output in the order it was written."""
    for case in yaml.safe_load((LABELS / "faults.yaml").read_text())["cases"]:
        needs = case.get("needs")
        interpreter = python if needs == "torch" else sys.executable
        if interpreter is None or (needs == "root" and os.geteuid() != 0):
            print(f"left out: {case['id']} needs {needs}", file=sys.stderr)
            continue
        home = folder / case["id"]
        home.mkdir()
        (home / "train.py").write_text(program(case))
        if "tmpfs" in case:
            (home / "full").mkdir()
            mount = ["mount", "-t", "tmpfs", "-o", f"size={case['tmpfs']}", "tmpfs", "full"]
            subprocess.run(mount, cwd=home, check=True)
        command = case.get("launch", "python train.py").replace("python ", f"{interpreter} ")
        path = home / "job.out"
        try:
            with path.open("wb") as out:
                subprocess.run(
                    ["bash", "-c", command],
                    cwd=home, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL,
                    env=os.environ | {"PYTHONUNBUFFERED": "1"}, check=False, timeout=300,
                )  # fmt: skip
        finally:
            if "tmpfs" in case:
                subprocess.run(["umount", "full"], cwd=home, check=False)
        yield Case(case["id"], path, case["type"], case["name"], failing_line(path, case))


def program(case: dict[str, Any]) -> str:
    """The text of a training program that fails as the case says."""
    body = case["body"]
    if case.get("start"):
        return body + "\n"
    lines = "".join(f"        {line}\n" for line in body.split("\n"))
    each = "".join(f"    {line}\n" for line in case.get("each", "").split("\n") if line)
    return (
        f"{case.get('before', '')}\nfor step in range(40):\n{each}{STEP}    if step == 20:\n{lines}"
    )


def failing_line(path: Path, case: dict[str, Any]) -> int | None:
    """The first line after step 20 was reported that is no progress; None where none failed."""
    if case["type"] == "none" or case["type"] == "unknown":
        return None
    lines = path.read_text(errors="replace").splitlines()
    reported = [n for n, line in enumerate(lines, 1) if line.startswith("step 20/")]
    for number, line in enumerate(lines, 1):
        if number > (reported[0] if reported else 0) and not line.startswith("step ") and line:
            return number
    return None


def inserted(logs: Path, half: str, folder: Path, seed: int) -> Iterator[Case]:
    """Published lines of hardware faults at a random place of real logs of healthy jobs."""
    chance = random.Random(seed)
    hosts = []
    with (logs / "index.csv").open() as file:
        for row in csv.DictReader(file):
            if row["failure_label"] == "none" and not row["failing_component"]:
                if in_half(row["file"], half) and (logs / row["file"]).exists():
                    hosts.append(row["file"])
    for number, case in enumerate(
        yaml.safe_load((LABELS / "fault_lines.yaml").read_text())["cases"]
    ):
        for host in chance.sample(hosts, 3):
            lines = (logs / host).read_bytes().split(b"\n")
            cut = chance.randrange(len(lines) // 3, len(lines) * 2 // 3)
            fault = [line.encode() for line in case["lines"]]
            text = lines[:cut] + fault
            if case.get("background"):
                text += lines[cut:]
            path = folder / f"{number}-{host.replace('/', '-')}"
            path.write_bytes(b"\n".join(text) + b"\n")
            line = None if case["type"] == "none" and case["name"] is None else cut + 1
            if line is not None:
                line += case.get("at", 0)
            yield Case(path.name, path, case["type"], case["name"], line)


def judge(
    cases: list[Case], logs: str, locator: Locator
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """One row on all cases, and one on each that went wrong."""
    began = time.perf_counter()
    found = [(case, answer(case, locator)) for case in cases]
    seconds = time.perf_counter() - began
    wrong = []
    right: Counter[str] = Counter()
    infra: Counter[str] = Counter()
    confusion: Counter[tuple[str, str]] = Counter()
    located = lines = named = names = probes = leaning = 0
    for case, diagnosis in found:
        kind = diagnosis.error_type if case.type == "unknown" else diagnosis.leaning
        kind_right = case.type is None or kind == case.type
        name_right = case.any_name or diagnosis.error_name == case.name
        line_right = case.line is None or diagnosis.line == case.line
        if case.type is not None:
            confusion[case.type, kind] += 1
            leaning += diagnosis.likely is not None and kind_right
            right["type"] += kind_right
            infra[f"{case.type == 'infrastructure'}-{kind == 'infrastructure'}"] += 1
        names += not case.any_name
        named += not case.any_name and name_right
        lines += case.line is not None
        located += case.line is not None and line_right
        probes += diagnosis.probes or 0
        if not (kind_right and name_right and line_right):
            wrong.append({
                "kind": logs, "locator": locator, "case": case.id,
                "expected": f"{case.type} / {case.name} / {case.line}",
                "found": f"{diagnosis.error_type} / {diagnosis.error_name} / {diagnosis.line}",
                "rule": diagnosis.rule,
            })  # fmt: skip
    true, missed, false = infra["True-True"], infra["True-False"], infra["False-True"]
    f1 = 2 * true / max(1, 2 * true + missed + false)
    row = {
        "logs": logs, "locator": locator, "n": len(cases),
        "type right": share(right["type"], confusion.total()),
        "of it likely": leaning,
        "infrastructure F1": f"{f1:.3f} ({true + missed})",
        "name right": share(named, names),
        "first line right": share(located, lines),
        "probes": probes if locator == "binary" else "",
        "s": round(seconds, 2),
        "confusion (true>found)": ", ".join(
            f"{a[:5]}>{b[:5]} {count}" for (a, b), count in sorted(confusion.items())
        ),
    }  # fmt: skip
    return row, wrong


def answer(case: Case, locator: Locator) -> Diagnosis:
    """The diagnosis of one log."""
    with open_log(case.path) as log:
        return diagnose(log, locator=locator)


def share(part: int, whole: int) -> str:
    """`part/whole`, or a dash."""
    return f"{part}/{whole}" if whole else "-"


def speed(folder: Path) -> dict[str, Any]:
    """A log of a million lines, 150 MB, with a failure at its end, beside `grep -c`."""
    path = folder / "large.out"
    filler = "x" * 60
    with path.open("w") as out:
        for n in range(1_000_000):
            out.write(
                f" iteration {n:8d}/ 1000000 | elapsed time per iteration (ms): 130.1 | "
                f"lm loss: 2.{n % 997} {filler}\n"
            )
        out.write("Traceback (most recent call last):\n  File 'a.py', line 1\nKeyError: 'x'\n")
    began = time.perf_counter()
    subprocess.run(["grep", "-c", "Error", str(path)], capture_output=True, check=False)
    grep = time.perf_counter() - began
    # the peak of the new process alone: ru_maxrss begins with that of the process that started it
    code = (
        "import sys, time\nfrom schedmate.logparse.failure import diagnose\n"
        "from schedmate.logparse.reading import open_log\nbegan = time.perf_counter()\n"
        f"with open_log({str(path)!r}) as log: found = diagnose(log, locator=sys.argv[1])\n"
        "took = time.perf_counter() - began\n"
        "peak = open('/proc/self/status').read().split('VmHWM:')[1].split()[0]\n"
        "print(took, peak, found.line, found.probes)\n"
    )
    row: dict[str, Any] = {
        "MB": path.stat().st_size // 10**6,
        "lines": 1_000_003,
        "grep -c [s]": round(grep, 2),
    }
    for locator in ("scan", "binary"):
        done = subprocess.run(
            [sys.executable, "-c", code, locator], capture_output=True, text=True, check=True
        )
        took, memory, line, probes = done.stdout.split()
        row[f"{locator} [s]"] = round(float(took), 2)
        row[f"{locator} memory [MB]"] = int(memory) // 1024
        row[f"{locator} line"] = int(line)
    row["probes"] = f"{probes} of {-(-path.stat().st_size // PROBED_CHUNK)} chunks"
    return row


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--logs", type=Path, help="folder of real logs with their index.csv")
    parser.add_argument("--half", choices=("development", "report", "both"), default="report")
    parser.add_argument("--python", help="an interpreter that has torch")
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--no-speed", action="store_true")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    wrong: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        groups: list[tuple[str, list[Case]]] = []
        if options.logs:
            groups.append((f"real, {options.half}", list(real(options.logs, options.half))))
        (folder / "run").mkdir()
        groups.append(("programs that really fail", list(provoked(folder / "run", options.python))))
        if options.logs:
            (folder / "put").mkdir()
            cases = list(inserted(options.logs, options.half, folder / "put", options.seed))
            groups.append((f"lines put into real logs, {options.half}", cases))
        for kind, cases in groups:
            for locator in ("scan", "binary"):
                row, failed = judge(cases, kind, locator)
                rows.append(row)
                wrong += failed
        suffix = "" if options.half == "report" else f"_{options.half}"
        record(f"failure{suffix}", rows, working=bool(suffix), seed=options.seed)
        record(f"failure_wrong{suffix}", wrong, working=bool(suffix), seed=options.seed)
        if not options.no_speed:
            record("failure_speed", [speed(folder)])


if __name__ == "__main__":
    main()
