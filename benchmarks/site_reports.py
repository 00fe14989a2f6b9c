"""What does `schedmate site-report` say of real accounting, and what does a million rows cost?

    python benchmarks/site_reports.py --data DATA [--replay 6000] [--only NAME ...] [--million]

Each list is read whole; estimates are replayed on its latest jobs. `within 2x` is beside requested
times and the last run, of completed jobs of the second half. `queue` says whether the model of the
queue was found faithful on windows that did not choose its settings. The waits of
SDSC-SP2-simulated-wait were themselves simulated (EASY), so there the model must be found faithful.
Cedar and Graham lack short waits, Supercloud short runs.

`--million` writes the jobs of CEA-Curie again and again, one after the other in time, up to a
million rows, and measures CPU time and the largest memory of the whole command.
"""

from __future__ import annotations

import argparse
import gzip
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from _record import record

LISTS = {
    "Compute Canada, Cedar": "computecanada/cedar_jobs.csv.gz",
    "Compute Canada, Graham": "computecanada/graham_jobs.csv.gz",
    "Supercloud": "supercloud/slurm_sample.csv.gz",
    "XDMoD, pozidriv": "xdmod/pozidriv_jobs.csv.gz",
    "Eagle": "eagle/sample_eagle_data.csv.gz",
    "CEA-Curie": "swf/CEA-Curie-2011-2.1-cln.swf.gz",
    "SDSC-BLUE": "swf/SDSC-BLUE-2000-4.2-cln.swf.gz",
    "SDSC-SP2-simulated-wait": "swf/SDSC-SP2-simulated-wait.swf.gz",
}
MILLION = 1_000_000


def reported(path: Path, *words: str) -> tuple[dict[str, Any], float, float]:
    """The document of a report, its CPU time [s] and the largest memory so far [MiB]."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "schedmate", "site-report", str(path), "--json", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return json.loads(done.stdout), used, after.ru_maxrss / 1024


def row(name: str, document: dict[str, Any]) -> dict[str, Any]:
    """The numbers of one report."""
    total, fidelity = document["predictability"]["total"], document["queue"]["fidelity"]
    line: dict[str, Any] = {"list": name, "jobs": document["coverage"]["jobs"]}
    line["scored"] = document["predictability"]["scored"]
    for key in ("estimate", "requested", "last", "covered", "unused"):
        value = None if total is None else total[key]
        line[f"within 2x, {key}" if key in ("estimate", "requested", "last") else key] = (
            "" if value is None else round(value, 3)
        )
    lost = document["failures"]["lost_share"]
    line["lost share"] = "" if lost is None else round(lost, 3)
    line["rank correlation"] = "" if fidelity is None else round(fidelity["correlation"], 2)
    line["modelled / recorded wait"] = (
        ""
        if fidelity is None
        else round(fidelity["modelled_mean_s"] / max(1.0, fidelity["recorded_mean_s"]), 2)
    )
    line["queue"] = (
        "not modelled"
        if fidelity is None
        else "faithful"
        if fidelity["faithful"]
        else "not faithful"
    )
    return line


def million(curie: Path) -> dict[str, Any]:
    """CPU time and memory for a million rows."""
    with gzip.open(curie, "rt", encoding="latin-1") as stream:
        lines = [line.split() for line in stream if line.strip() and not line.startswith(";")]
    span = max(int(line[1]) for line in lines) + 86_400
    with tempfile.TemporaryDirectory(prefix="site-reports-") as folder:
        path = Path(folder) / "million.swf"
        with path.open("w") as stream:
            for n in range(MILLION):
                turn, place = divmod(n, len(lines))
                line = lines[place]
                stream.write(f"{n} {int(line[1]) + turn * span} {' '.join(line[2:])}\n")
        began = time.perf_counter()
        document, used, memory = reported(path)
        lasted = time.perf_counter() - began
    return {
        "rows": document["coverage"]["jobs"],
        "replayed": document["predictability"]["replayed"],
        "CPU s": round(used),
        "wall s": round(lasted),
        "largest memory MiB": round(memory),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--replay", type=int, default=6000)
    parser.add_argument("--only", nargs="+", choices=LISTS, default=list(LISTS))
    parser.add_argument("--million", action="store_true")
    asked = parser.parse_args()
    if asked.million:
        record("site_reports_million", [million(asked.data / LISTS["CEA-Curie"])])
        return
    rows = [
        row(name, reported(asked.data / LISTS[name], "--replay", str(asked.replay))[0])
        for name in asked.only
    ]
    record("site_reports", rows, replayed=f"the latest {asked.replay} jobs of each list at most")


if __name__ == "__main__":
    main()
