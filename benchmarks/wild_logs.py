"""The Metric Tracker and the Failure Handler on logs that people left in public repositories.

    python benchmarks/wild_logs.py MIRRORS [--package DIR --code NAME]...

MIRRORS holds snapshots as OWNER+NAME/repo (git directories). labels/wild_logs.json says which file
of which commit was read (of a notebook the output of cell `part`, of a page of documentation its
block of code `part`) and what a careful reader says of it: the step time [s], computed from the
lines, or null, and of later batches the latest loss, the iteration and the total, and the
throughput where lines state it, of batch 14 also the epoch, null where they say none of it; a list
where several answers are right. labels/failures.jsonl says of failed jobs the type, the name and
the first line, as far as they are not open. The time of an epoch is none of a step. Where a label
says step, iteration and total, what is left of the run follows from it. Logs came in batches, each
labelled before the program had read it: what the code of that time made of it is its first sight. A
source belongs to one half of its batch by the hash of its name. Half `look` was worked on first,
`first` when what that gave there was known, and since batch 5 not at all; all of batch 11 was
worked on, none of batch 13 and 14. Batch 14 is 60 logs drawn from the third of a census that was
put aside before it was read. `--package` measures an older package as well: it is what shows first
sights. Rows of code that is not measured again are kept.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from _package import read_with
from _record import record, recorded

LABELS = Path(__file__).parent / "labels" / "wild_logs.json"
FAILURES = Path(__file__).parent / "labels" / "failures.jsonl"
CLOSE = 0.05
REPORTED = 5
"""Of batches from this one on, half `first` is counted, not looked at."""
REST = ("loss", "iteration", "total", "eta", "throughput", "epoch")
"""What the labels of later batches say besides, where the last line of training states it."""
LOOSE = {"eta": 0.1, "throughput": 0.1}
"""How near is right, where readings differ from line to line; of the others 0.1 %."""
FEW_STEPS = 10
"""An estimate of what is left may be off by so many steps."""
READ = """
import json, sys
from pathlib import Path
from schedmate.logparse.failure import diagnose
from schedmate.logparse.progress.tracker import track_log
from schedmate.logparse.reading import open_log
for path in sys.argv[1:]:
    try:
        with open_log(Path(path)) as log:
            went = track_log(log)[0]
        step, rest = went.step_time_s, [went.loss, went.iteration, went.total_iterations]
        rest += [went.eta_s, went.throughput, went.epoch]
    except ValueError:
        step, rest = "crashed", [None] * 6
    with open_log(Path(path)) as log:
        found = diagnose(log)
    kind = getattr(found, "likely", None) or found.error_type
    print(json.dumps([step, kind, found.error_name, found.line, *rest]))
"""


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("mirrors", type=Path, nargs="?", help="directory of snapshots")
    parser.add_argument("--package", type=Path, action="append", default=[])
    parser.add_argument("--code", action="append", default=[])
    options = parser.parse_args()
    if options.mirrors is None:
        print("give a directory of snapshots; nothing was measured")
        return
    labels = json.loads(LABELS.read_text())
    failures = failed()
    for one in labels:
        if "part" not in one:
            one["failure"] = failures.get(f"{one['repo']}@{one['commit']}:{one['path']}")
        of = [one["step"], one.get("iteration"), one.get("total")]
        if all(isinstance(known, int | float) for known in of):
            one["eta"] = (one["total"] - one["iteration"]) * one["step"]
    rows: list[dict[str, Any]] = []
    wrong: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as scratch:
        paths = [
            fetch(options.mirrors, one, Path(scratch) / str(n)) for n, one in enumerate(labels)
        ]
        here = Path(__file__).parent.parent
        for package, code in [*zip(options.package, options.code, strict=True), (here, "this")]:
            found = read_with(package, READ, paths)
            for batch, half in sorted({(one["batch"], one["half"]) for one in labels}):
                pairs = [
                    (a, b)
                    for a, b in zip(labels, found, strict=True)
                    if (a["batch"], a["half"]) == (batch, half)
                ]
                rows.append({"code": code, "batch": batch, "half": half, **_row(pairs)})
                if code == "this" and (half == "look" or batch < REPORTED):
                    wrong += [_case(*pair) for pair in pairs if not _right(*pair)]
    rows = _recorded({row["code"] for row in rows}) + rows
    record("wild_logs", rows, success=f"within {CLOSE:.0%}, or both null", sources=_sources(labels))
    record(
        "wild_logs_cases",
        wrong,
        working=True,
        what="logs of which something differs from the label",
    )


def failed() -> dict[str, dict[str, Any]]:
    """What labels/failures.jsonl says of logs, by source: type, name and first line, or None."""
    found = {}
    for row in map(json.loads, FAILURES.read_text().splitlines()):
        if not isinstance(row["batch"], int):  # the others are of fresh_failures.py
            said = {key: one[0] for key, one in row["expected"].items()}
            keys = {"type": "error_type", "name": "error_name", "line": "line"}
            found[row["source"]] = {key: said.get(name) for key, name in keys.items()}
    return found


def fetch(mirrors: Path, label: dict[str, Any], target: Path) -> Path:
    """The log of a label, written into the new folder `target`."""
    home = mirrors / label["repo"].replace("/", "+") / "repo"
    git = home / ".git" if (home / ".git").exists() else home
    command = ["git", "-c", "safe.directory=*", "--git-dir", str(git), "show"]
    target.mkdir()
    path = target / "job.log"
    with path.open("wb") as out:
        subprocess.run([*command, f"{label['commit']}:{label['path']}"], stdout=out, check=True)
    if "part" in label:
        path.write_text(_part(path.read_text(errors="replace"), label["path"], label["part"]))
    return path


def _part(text: str, name: str, part: int) -> str:
    """What a cell of a notebook printed, or a fenced block of a page."""
    if not name.endswith(".ipynb"):
        return re.findall(r"(?ms)^```[^\n]*\n(.*?)^```", text)[part]
    outputs = json.loads(text)["cells"][part]["outputs"]
    streams = [one["text"] for one in outputs if one["output_type"] == "stream"]
    return "".join(line for stream in streams for line in stream)


def _step_right(label: dict[str, Any], step: float | str | None) -> bool:
    return not isinstance(step, str) and _near(label["step"], step, CLOSE)


def _near(said: Any, found: float | None, within: float, absolute: float = 0) -> bool:
    """Whether what was found is what a label says, or one of several; null is null."""
    if isinstance(said, list):
        return any(_near(one, found, within, absolute) for one in said)
    if said is None or found is None:
        return said is None and found is None
    return abs(found - said) <= max(within * abs(said), absolute)


def _failure_right(label: dict[str, Any], found: list[Any]) -> list[bool]:
    wanted = label.get("failure")
    if wanted is None:
        return []
    keys = ("type", "name", "line")
    return [
        wanted[key] is None or wanted[key] == value
        for key, value in zip(keys, found[1:4], strict=True)
    ]


def _right(label: dict[str, Any], found: list[Any]) -> bool:
    return _step_right(label, found[0]) and all(_failure_right(label, found))


def _row(pairs: list[tuple[dict[str, Any], list[Any]]]) -> dict[str, Any]:
    steps = [_step_right(label, found[0]) for label, found in pairs]
    errors = [
        found[0] / label["step"] - 1
        for label, found in pairs
        if isinstance(label["step"], float) and isinstance(found[0], float)
    ]
    failures = [right for label, found in pairs if (right := _failure_right(label, found))]
    return {
        "logs": len(pairs),
        "success": f"{sum(steps) / len(steps):.1%}",
        "stated: right": sum(r for r, (a, _) in zip(steps, pairs, strict=True) if a["step"]),
        "stated": sum(label["step"] is not None for label, _ in pairs),
        "silent: answered": sum(a["step"] is None and isinstance(b[0], float) for a, b in pairs),
        "crashed": sum(b[0] == "crashed" for _, b in pairs),
        "RMSRE": round(math.sqrt(sum(e * e for e in errors) / max(1, len(errors))), 4),
        **{f"{key} right": _rest(pairs, key, at) for at, key in enumerate(REST, 4)},
        "failures": len(failures),
        "type right": sum(right[0] for right in failures),
        "name right": sum(right[1] for right in failures),
        "first line right": sum(right[2] for right in failures),
    }


def _rest(pairs: list[tuple[dict[str, Any], list[Any]]], key: str, at: int) -> str:
    """Of the logs whose label says this as well, those of which it was read."""
    known = [(label, found[at]) for label, found in pairs if key in label]
    near = LOOSE.get(key, 1e-3)
    same = sum(
        _near(label[key], b, near, FEW_STEPS * label["step"] if key == "eta" else 0)
        for label, b in known
    )
    return f"{same} of {len(known)}" if known else ""


def _recorded(measured: set[str]) -> list[dict[str, Any]]:
    """The rows that were recorded of other code than was measured now."""
    return [row for row in recorded("wild_logs")["rows"] if row["code"] not in measured]


def _case(label: dict[str, Any], found: list[Any]) -> dict[str, Any]:
    return {
        "batch": label["batch"],
        "half": label["half"],
        "log": f"{label['repo']}: {label['path']}",
        "expected s": label["step"] and round(label["step"], 4),
        "found s": round(found[0], 4) if isinstance(found[0], float) else found[0],
        "expected failure": str(label.get("failure") or ""),
        "found failure": " / ".join(map(str, found[1:4])) if label.get("failure") else "",
    }


def _sources(labels: list[dict[str, Any]]) -> int:
    return len({label["repo"] for label in labels})


if __name__ == "__main__":
    main()
