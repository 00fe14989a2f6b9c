"""How many files of the package does one follow for one job?

    python benchmarks/walks.py [--show WALK]

Runs each command once on small input under a profiler and counts the files below `schedmate/` that
have a function which ran: what somebody opens who follows this one job. `here` are those of the
command's own process, `confined` those that only ran in the processes that read foreign input.
`of_lines` is how long those files are together. `with_classes` also counts files of which only
classes were made at import. The cluster of the agent's pass is a program that prints what Slurm's
commands would: one job waits, one runs and one has failed. `--show` prints the files of one walk.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from _record import record

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "schedmate"

HOOK = """\
import os, sys, threading

place, asker, package = os.environ["PYTHON_WALK"].split(os.pathsep)
asked = os.getpid() if os.getppid() == int(asker) else None
out = os.open(place, os.O_WRONLY)
seen = set()
within = {"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>"}  # a function, or an import

def profile(frame, event, _argument):
    code = frame.f_code
    if event != "call" or code.co_name == "<module>" or not code.co_filename.startswith(package):
        return
    what = "class"
    if code.co_flags & 1 and code.co_name not in within:  # optimised, as functions are
        what = "here" if os.getpid() == asked else "confined"
    if (what, code.co_filename) not in seen:
        seen.add((what, code.co_filename))
        os.write(out, f"{what}\\t{code.co_filename}\\n".encode())

def watch():
    sys.setprofile(profile)
    threading.setprofile(profile)

if asked:
    watch()
else:  # a template of confined processes: not itself, which tries everything once, but its copies
    os.register_at_fork(after_in_child=watch)
"""
"""A `sitecustomize` module. Variables called PYTHON_... reach confined processes, and a pipe can be
written to where files cannot."""

SCRIPT = """\
import argparse
import torch, torchvision
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=90)
parser.add_argument("--batch-size", type=int, default=256)
args = parser.parse_args()
model = torchvision.models.resnet50()
data = torchvision.datasets.CIFAR10("data", train=True)
loader = torch.utils.data.DataLoader(data, batch_size=args.batch_size)
for epoch in range(args.epochs):
    print(epoch, sum(model(x).sum() for x, y in loader))
"""

STEPS = "".join(f"step {n}/1000 | loss {3 / n:.4f} | 0.25 s/it\n" for n in range(1, 201))
FAILED = f"""\
{STEPS}Traceback (most recent call last):
  File "train.py", line 11, in <module>
    print(epoch, sum(model(x).sum() for x, y in loader))
torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.50 GiB.
"""

SLURM = """\
#!{python}
import pathlib, sys, time
name, words = sys.argv[0].rpartition("/")[2], sys.argv[1:]
now = int(time.time())
folder = {folder!r}
long = [name, *words]
busy = pathlib.Path(folder, "busy").exists()
jobs = {{"11": ("PENDING", "", "N/A"), "12": ("RUNNING", "gpu01", now - 600)}} if busy else {{}}
if long[:3] == ["scontrol", "show", "config"]:
    print("ClusterName             = walk")
elif long[:2] == ["scontrol", "write"]:
    print("#!/bin/bash\\npython train.py --epochs 30")
elif name == "squeue" and "--version" in words:
    print("slurm 24.11.3")
elif name == "squeue" and "-o" in words:
    for job, (state, node, began) in jobs.items():
        row = job, job, "N/A", state, 100, now - 900, began, "ada", "batch", node, "Resources"
        print("|".join(map(str, row)))
elif name == "squeue":
    format = words[words.index("-O") + 1]
    between = format.partition(":20")[2].partition(",")[0]
    for job in words[words.index("-j") + 1].split(","):
        cells = [job, job, "ada", "1", "cpu=8,gres/gpu=4", "1:00:00", str(now - 900), "net", folder]
        cells += [folder + "/job.sh", f"{{folder}}/{{job}}.log", ""]
        print(between.join(cells) + between)
elif name == "sacct" and "-e" in words:
    print({columns!r})
elif name == "sacct" and busy:
    between = next(one.partition("=")[2] for one in words if one.startswith("--delimiter"))
    known = {{
        "JobID": "10", "JobIDRaw": "10", "State": "FAILED", "JobName": "net", "User": "ada",
        "Partition": "batch", "Submit": now - 4000, "Start": now - 3600, "End": now,
        "ElapsedRaw": 3600, "TimelimitRaw": 120, "ExitCode": "1:0", "NNodes": 1,
        "NodeList": "gpu02", "AllocTRES": "cpu=8,gres/gpu=4", "ReqTRES": "cpu=8,gres/gpu=4",
        "WorkDir": folder, "SubmitLine": "sbatch job.sh", "StdOut": folder + "/10.log",
    }}
    names = words[words.index("-o") + 1].split(",")
    print(between.join(str(known.get(one, "")) for one in names) + between)
"""
BOUNDS = "{advise: {seconds: 120, each: 60}, follow: {seconds: 120}, diagnose: {each: 120}}"
"""Time enough for a process that is watched, so that the same is read on any machine."""
COLUMNS = (
    "JobID JobIDRaw State JobName User Partition Submit Start End ElapsedRaw TimelimitRaw ExitCode "
    "NNodes NodeList AllocTRES ReqTRES TRESUsageInAve TRESUsageInMax WorkDir SubmitLine Restarts "
    "FailedNode StdOut"
)


def prepare(folder: Path) -> dict[str, list[str]]:
    """Write the input; gives the arguments of the command of each walk."""
    job = folder / "job"
    job.mkdir()
    (job / "train.py").write_text(SCRIPT)
    (job / "12.log").write_text(STEPS)
    (job / "10.log").write_text(FAILED)
    (folder / "bounds.yaml").write_text(BOUNDS)
    (folder / "bin").mkdir()
    program = SLURM.format(python=sys.executable, folder=str(job), columns=COLUMNS)
    for name in ("scontrol", "squeue", "sacct"):
        (folder / "bin" / name).write_text(program)
        (folder / "bin" / name).chmod(0o755)
    trace, fleet = str(folder / "trace.csv"), str(folder / "fleet.json")
    schedmate("traces", "synthesize", "philly", "--jobs", "100", "-o", trace, folder=folder)
    schedmate("fleet", "synthesize", "--nodes", "40", "-o", fleet, folder=folder)
    agent = [
        *("slurm", "agent", "--once", "--json", "--bounds", str(folder / "bounds.yaml")),
        *("--state", str(folder / "state"), "--history", str(folder / "history")),
    ]
    schedmate(*agent, folder=folder)  # what ended before an agent's first pass does not concern it
    (job / "busy").touch()
    return {
        "analyze": ["analyze", str(job), "--command", "python train.py --epochs 30"],
        "diagnose": ["diagnose", str(job / "10.log")],
        **{
            f"simulate, {policy}": ["simulate", trace, "--policy", policy, "--cluster", "32x8"]
            for policy in ("fifo", "lucid", "sia")
        },
        "slurm agent, one pass": agent,
        "fleet defrag": ["fleet", "defrag", fleet, "--jobs", "1"],
    }


def schedmate(*arguments: str, folder: Path, walk: str | None = None) -> str:
    """Run a command in a home of its own; gives what it printed. `walk` is for the profiler."""
    paths = [str(ROOT), *([str(folder / "hook")] if walk is not None else [])]
    environment = {
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "PYTHONPATH": os.pathsep.join(paths),
        **({"PYTHON_WALK": walk} if walk is not None else {}),
    }
    done = subprocess.run(
        [sys.executable, "-m", "schedmate", *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"schedmate {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def followed(arguments: list[str], folder: Path) -> dict[str, set[Path]]:
    """Files with a function that ran, in the command's process or a confined one, or a class."""
    pipe = folder / "pipe"
    os.mkfifo(pipe)
    reading = os.open(pipe, os.O_RDWR)
    heard: list[bytes] = []
    ended = threading.Event()

    def listen() -> None:
        os.set_blocking(reading, False)
        while True:
            last = ended.is_set()
            try:
                heard.append(os.read(reading, 1 << 16))
            except BlockingIOError:
                if last:
                    return
                time.sleep(0.01)

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        walk = os.pathsep.join((str(pipe), str(os.getpid()), f"{PACKAGE}{os.sep}"))
        schedmate(*arguments, folder=folder, walk=walk)
    finally:
        ended.set()
        listener.join()
        os.close(reading)
        pipe.unlink()
    found: dict[str, set[Path]] = {"here": set(), "confined": set(), "class": set()}
    for line in b"".join(heard).decode().splitlines():
        what, _, name = line.partition("\t")
        found[what].add(Path(name))
    return found


def lines(files: set[Path]) -> int:
    return sum(path.read_bytes().count(b"\n") for path in files)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--show", metavar="WALK", help="print the files of one walk only")
    options = parser.parse_args()
    rows, listed = [], []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name).resolve()
        (folder / "hook").mkdir()
        (folder / "hook" / "sitecustomize.py").write_text(HOOK)
        for walk, arguments in prepare(folder).items():
            if options.show not in (None, walk):
                continue
            found = followed(arguments, folder)
            whole = found["here"] | found["confined"]
            rows.append(
                {
                    "walk": walk,
                    "files": len(whole),
                    "here": len(found["here"]),
                    "confined": len(found["confined"] - found["here"]),
                    "of_lines": lines(whole),
                    "with_classes": len(whole | found["class"]),
                }
            )
            names = sorted(str(path.relative_to(ROOT)) for path in whole)
            listed.append({"walk": walk, "files": names})
    if options.show is not None:
        print(json.dumps(listed, indent=1))
        return
    modules = set(PACKAGE.rglob("*.py"))
    sizes = [path.read_bytes().count(b"\n") for path in modules]
    record("walks_files", listed, working=True)
    record(
        "walks",
        rows,
        modules=len(modules),
        lines=sum(sizes),
        median_lines=statistics.median(sizes),
    )


if __name__ == "__main__":
    main()
