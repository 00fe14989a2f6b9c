"""Is the cause found when it stands among what it brings about?

    python benchmarks/cascades.py --logs LOGS [--half report] [--rounds 6]

LOGS is a folder of real logs with an index.csv of `file, failure_label`. Into a healthy one, at a
random place after which nothing trains, each fault of labels/fault_lines.yaml and each exception of
`EXCEPTIONS` is put with what really surrounds one: alarming lines that mean nothing and faults that
were retried before it, what other ranks say of it afterwards, mixed at random with lines of the
healthy log, then a launcher's summary. Several ranks share one file by prefix in half of the cases.
What is judged is the line: the first one of the fault, under both locators. Synthetic, from real
parts: these rows are never to be read with those of real failures.
"""

from __future__ import annotations

import argparse
import csv
import random
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import yaml
from _record import record
from failure import in_half

from schedmate.logparse.failure import diagnose
from schedmate.logparse.failure.examine import Locator
from schedmate.logparse.failure.rules import load_rules, subsystems
from schedmate.logparse.reading import open_log
from schedmate.logparse.signs import signs

LABELS = Path(__file__).parent / "labels"
EXCEPTIONS = {
    "KeyError: 'input_ids'": "script",
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/train.bin'": "script",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.": "framework",
    "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x8 and 16x2)": "framework",
    "OSError: [Errno 116] Stale file handle: '/mnt/data/shard-7.tar'": "infrastructure",
    "torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered": "infrastructure",
    "ConnectionError: Remote end closed connection without response": "infrastructure",
}
BEFORE = """\
WARNING: could not import apex: No module named 'apex'
NCCL INFO NET/Plugin : dlerror=libnccl-net.so: cannot open shared object file: No such file
Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 1024.0
S3 read failed with SlowDown, retrying in 2s (attempt 1/5)
/opt/lib/x.py:12: UserWarning: Error while fetching the version, ignoring it
skipping corrupt sample 1233: OSError: image file is truncated (12 bytes not processed)
wandb: Network error (ConnectionError), entering retry loop.
""".splitlines()
CASCADES = yaml.safe_load((LABELS / "cascades.yaml").read_text())
NOTICES = CASCADES["notices"]
SUMMARIES = {
    **CASCADES["launchers"],
    "wrapper": "wrapper: ERROR job step 4711 ended with status 1, see above\n"
    "make: *** [train] Error 1\n",
    "none": "",
}


def faults() -> list[tuple[str, list[str], str]]:
    """Kind, lines and type of each fault."""
    above = ["Traceback (most recent call last):", '  File "a.py", line 5, in f']
    published = yaml.safe_load((LABELS / "fault_lines.yaml").read_text())["cases"]
    return [
        *(("exception", [*above, said], kind) for said, kind in EXCEPTIONS.items()),
        *(
            ("published line", case["lines"], case["type"])
            for case in published
            if not case.get("background") and not case.get("at") and case["type"] != "none"
        ),
        *(
            ("wording alone", [example], one.type)
            for one in subsystems()
            for example in one.examples
            if one.type == "infrastructure" and load_rules().line(example) is None
        ),
    ]


def compose(healthy: list[str], fault: list[str], chance: random.Random) -> tuple[list[str], int]:
    """A log that ends in a fault and what it brings about; the number of the fault's first line."""
    cut = chance.randrange(len(healthy) // 3, len(healthy) * 2 // 3)
    steps = [n for n in range(cut) if signs("progress").sign(healthy[n].encode())]
    first, last = (steps[0], steps[-1]) if steps else (cut, cut)
    quiet = [line for line in healthy[first:last] if plain(line)][-400:] or ["."]
    text = healthy[: last + 1]
    for alarm in chance.sample(BEFORE, 3):
        text.insert(chance.randrange(len(text) // 2), alarm)
    world = chance.choice((1, 4))
    rank = chance.randrange(world)
    prefix = [f"[rank{n}]: " if world > 1 else "" for n in range(world)]
    text += [f"{prefix[chance.randrange(world)]}{chance.choice(quiet)}" for _ in range(3)]
    line = len(text) + 1
    text += [prefix[rank] + part for part in fault]
    others = [
        prefix[n] + notice.format(rank=n)
        for n in range(world)
        if n != rank
        for notice in chance.sample(NOTICES, 2)
    ]
    for notice in others:
        text += [f"{prefix[rank]}{chance.choice(quiet)}" for _ in range(chance.randrange(4))]
        text.append(notice)
    return text + SUMMARIES[chance.choice(sorted(SUMMARIES))].splitlines(), line


def plain(line: str) -> bool:
    """Whether a line says nothing of progress, of an end, of a start or of trouble."""
    return (
        not signs("progress").sign(line.encode())
        and not signs("finished").sign(line.encode())
        and "OMP_NUM_THREADS" not in line
        and load_rules().line(line) is None
    )


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--logs", type=Path, help="folder of real logs with their index.csv")
    parser.add_argument("--half", choices=("development", "report", "both"), default="report")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seed", type=int, default=11)
    options = parser.parse_args()
    if options.logs is None:
        print("give a folder of logs; nothing was measured")
        return
    with (options.logs / "index.csv").open() as file:
        hosts = [
            options.logs / row["file"]
            for row in csv.DictReader(file)
            if row["failure_label"] == "none"
            and not row["failing_component"]
            and in_half(row["file"], options.half)
            and (options.logs / row["file"]).exists()
        ]
    healthy = [path.read_text(errors="replace").splitlines()[:20_000] for path in hosts]
    healthy = [lines for lines in healthy if len(lines) > 30]
    chance = random.Random(options.seed)
    counts: Counter[tuple[str, str, str]] = Counter()
    confusion: Counter[tuple[str, str, str]] = Counter()
    wrong: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "job.out"
        for round_ in range(options.rounds):
            for kind, fault, expected in faults():
                text, line = compose(chance.choice(healthy), fault, chance)
                path.write_text("".join(part + "\n" for part in text))
                locators: tuple[Locator, ...] = ("scan", "binary")
                for locator in locators:
                    with open_log(path) as log:
                        found = diagnose(log, locator=locator)
                    key = (kind, locator)
                    counts[*key, "n"] += 1
                    counts[*key, "line"] += found.line == line
                    counts[*key, "type"] += found.leaning == expected
                    confusion[locator, expected, found.leaning] += 1
                    if found.line != line or found.leaning != expected:
                        wrong.append({
                            "round": round_, "kind": kind, "locator": locator,
                            "fault": fault[-1][:90], "expected": f"{expected} / {line}",
                            "found": f"{found.error_type} / {found.line}", "rule": found.rule,
                        })  # fmt: skip
    rows = [
        {
            "fault": kind,
            "locator": locator,
            "n": n,
            "first line right": f"{counts[kind, locator, 'line']}/{n}",
            "type right": f"{counts[kind, locator, 'type']}/{n}",
        }
        for (kind, locator, what), n in sorted(counts.items())
        if what == "n"
    ]
    rows += [
        {
            "fault": "confusion (put in>found)",
            "locator": locator,
            "type right": ", ".join(
                f"{a[:5]}>{b[:5]} {n}"
                for (at, a, b), n in sorted(confusion.items())
                if at == locator
            ),
        }
        for locator in ("scan", "binary")
    ]
    suffix = "" if options.half == "report" else f"_{options.half}"
    record(
        f"cascades{suffix}",
        rows,
        working=bool(suffix),
        seed=options.seed,
        hosts=len(healthy),
    )
    record(f"cascades_wrong{suffix}", wrong[:60], working=True, seed=options.seed)


if __name__ == "__main__":
    main()
