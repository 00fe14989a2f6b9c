"""The Failure Handler on logs of failures that nobody had looked at before they were labelled.

    python benchmarks/fresh_failures.py LOGS [--package DIR --code NAME[:BATCH,..]]...
        [--here NAME] [--found FILE]

LOGS holds ID.log for each entry of labels/failures.jsonl with a numbered batch, as far as it is
there, as `public_benchmark.py logs --from` writes them. `source` is the public thread that quotes
the log, or OWNER/REPO@COMMIT:PATH of a file. Each was labelled before the Failure Handler had seen
it: type, name, first failing line and component list what a careful reader accepts, and are left
out where that is open. Batches were collected one after another, each with the code of its day
measured at once: its first sight. Half `look` was then worked on; what that code made of half
`report`, still unread, says what carries over. The last rows are of code for which both were read.
Batch 4 is small and was sought to be hard: quotes of a line or a few, nearly all of infrastructure
that others had little of. `3828b6a` had not seen it, nor had `families`, the rules of whole
subsystems by name.

Batches 5 to 8 were drawn by kinds of failure, not by texts: about half of infrastructure, the rest
failures of frameworks and scripts, and alarming logs of jobs that ended well. `sight-N` is the code
that met batch N first, `look-N` that for which only half `look` of it had been worked on; `3a187c4`
is from before all four. `old-rules` are the rules of `40ee5e7`, written before batches 2 to 4, with
the wording of lines (`subsystems.yaml`) of today, for which half `look` of these had been read.

Batches 9 and 10 are of schedulers, fabrics, storage and services, with a few scripts. `sight-9` met
batch 9 first; what that showed, tracebacks in their wrappings and what is documented of each system
went into `sight-10`, frozen before batch 10 was collected: its rows of batch 10 beside those of
`sight-9` are what carried over. Both halves of both were read afterwards.

Batch 11 came after a census rather than another batch: what `954aee0` made of about 175 quoted
threads, 444 blocks of documentation, 137 notebooks and some 5,000 messages from the sources of
what clusters run on, read for what is plainly wrong, its causes counted and mended in general
form. Twenty subjects were drawn by seed (12 of infrastructure) from 98 before that, and searched
for only when the code was frozen: `sight-11`. What shares a line with an earlier text was left out.

Batch 12 is whole logs, healthy ones among them, whose labels also say the outcome and of some the
progress. Of these, `fresh_failures_whole` says more: whether the side is right that the reader put
first, how often an answer is wrong and sure (a type without a doubt), which healthy logs are called
failed, which plans lean to hardware (a node is confirmed, isolated or left, an operator told) where
a program is at fault, and what `track` says; beside it the keywords, patterns and last error of
log_baselines.py, which are sure of all they say. `sight-12` met them first; `missed` of a label is
a word on why that was wrong, written afterwards.

`--found` keeps what this package said in a file, and reads it from there where it exists. Rows of
code that is not measured again are kept as they were recorded.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _package import read_with
from _record import record, recorded
from log_baselines import Method, keywords, last_error, patterns

LABELS = Path(__file__).parent / "labels" / "failures.jsonl"
KEYS = {
    "type": "error_type",
    "name": "error_name",
    "line": "line",
    "component": "faulty_component",
}
READ = """
import json, sys
from pathlib import Path
from schedmate.logparse.failure import diagnose
from schedmate.logparse.reading import open_log
for path in sys.argv[1:]:
    with open_log(Path(path)) as log:
        found = diagnose(log)
    kind = getattr(found, "likely", None) or found.error_type
    keys = (kind, found.error_name, found.line, found.faulty_component)
    doubts = getattr(found, "doubts", []) or getattr(found, "undecided", False)
    plan = found.plan and found.plan.model_dump()
    more = {"type": found.error_type, "doubts": bool(doubts), "plan": plan}
    more["finished"] = getattr(found, "finished", None)
    if WHOLE:
        try:
            from schedmate.logparse.failure.ending import track_job
        except ImportError:  # before the two readers agreed
            from schedmate.logparse.progress.tracker import track_log as track_job
        with open_log(Path(path)) as log:
            more["progress"] = track_job(log)[0].model_dump()
    print(json.dumps([*keys, found.rule, found.source, more]))
"""
SIDES = ("script", "framework", "infrastructure", "unknown", "none")
SIMPLE: dict[str, Method] = {"keywords": keywords, "patterns": patterns, "last error": last_error}


def main() -> None:
    """Measure and record."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("logs", type=Path, nargs="?", help="directory of ID.log files")
    parser.add_argument("--package", type=Path, action="append", default=[])
    parser.add_argument("--code", action="append", default=[])
    parser.add_argument("--here", default="this", help="name of this package's rows")
    parser.add_argument("--found", type=Path, help="file of what this package said")
    options = parser.parse_args()
    if options.logs is None:
        print("give a directory of logs; nothing was measured")
        return
    labels = [one for one in labelled() if (options.logs / f"{one['id']}.log").exists()]
    paths = [options.logs / f"{one['id']}.log" for one in labels]
    here = Path(__file__).parent.parent
    rows: list[dict[str, Any]] = []
    wrong: list[dict[str, Any]] = []
    every = sorted({one["batch"] for one in labels})
    packages = [*zip(options.package, options.code, strict=True), (here, options.here)]
    for package, named in packages:
        kept = options.found if package == here else None
        whole = any(one["outcome"] for one in labels)
        if kept is not None and kept.exists():
            found = json.loads(kept.read_text())
        else:
            found = read_with(package, READ.replace("WHOLE", str(whole)), paths)
            if kept is not None:
                kept.write_text(json.dumps(found))
        pairs = list(zip(labels, found, strict=True))
        code, _, chosen = named.partition(":")
        for batch in [int(one) for one in chosen.split(",")] if chosen else every:
            for half in ("look", "report", "both"):
                part = [
                    pair
                    for pair in pairs
                    if pair[0]["batch"] == batch and half in (pair[0]["half"], "both")
                ]
                if part:
                    rows.append({"code": code, "batch": batch, "half": half, **row(part)})
        if package == here:
            said = found
            wrong = [case(*pair) for pair in pairs if not all(right(*pair).values())]
    measured = {(row["code"], row["batch"]) for row in rows}
    last = recorded("fresh_failures")["rows"]
    rows = [row for row in last if (row["code"], row["batch"]) not in measured] + rows
    record("fresh_failures", rows, sources=len({one["source"] for one in labelled()}))
    record(
        "fresh_failures_wrong",
        wrong,
        working=True,
        what="logs of which something differs from the label",
    )
    pairs = [pair for pair in zip(labels, said, strict=True) if pair[0]["outcome"]]
    if pairs:
        record_whole(options.here, pairs, options.logs)


def record_whole(code: str, pairs: list[tuple[dict[str, Any], list[Any]]], logs: Path) -> None:
    """Record what is said of whole logs, beside simple methods, and the answers that were wrong."""
    last = recorded("fresh_failures_whole")["rows"]
    rows = [row for row in last if row["method"] not in (code, *SIMPLE)]
    rows.append(whole_row(code, pairs))
    for name, method in SIMPLE.items():
        answers = [method(logs / f"{label['id']}.log") for label, _ in pairs]
        simple = [
            [one["error_type"], one["error_name"], one["line"], one["faulty_component"], None, name]
            for one in answers
        ]
        rows.append(whole_row(name, [(a, b) for (a, _), b in zip(pairs, simple, strict=True)]))
    record(
        "fresh_failures_whole",
        rows,
        logs=len(pairs),
        repositories=len({label["repo"] for label, _ in pairs}),
        outcomes=dict(Counter(label["outcome"] for label, _ in pairs)),
        sides=dict(Counter(label["type"][0] for label, _ in pairs if label["type"])),
        confusion=matrix(pairs),
        progress=progress(pairs),
        cases=[whole_case(*pair) for pair in pairs if missed(*pair)],
    )


def labelled() -> list[dict[str, Any]]:
    """The labels of the numbered batches: by key a list of what is accepted, or None."""
    rows = (json.loads(line) for line in LABELS.read_text().splitlines())
    return [
        {
            **{key: row[key] for key in ("id", "repo", "source", "batch", "half")},
            **{key: row.get(key) for key in ("outcome", "progress", "missed")},
            **{key: accepted(row["expected"], name) for key, name in KEYS.items()},
        }
        for row in rows
        if isinstance(row["batch"], int)
    ]


def accepted(expected: dict[str, Any], name: str) -> list[Any] | None:
    """What a label accepts: a list, which may hold None; None where it says nothing."""
    if name not in expected:
        return None
    return [None] if expected[name] is None else expected[name]


def right(label: dict[str, Any], found: list[Any]) -> dict[str, bool]:
    """Which of the labelled answers are among those accepted."""
    keys = ("type", "name", "line", "component")
    return {
        key: value in label[key]
        for key, value in zip(keys, found[:4], strict=True)
        if label[key] is not None
    }


def row(pairs: list[tuple[dict[str, Any], list[Any]]]) -> dict[str, Any]:
    """Shares that are right, and the confusion of types (that of the label first)."""
    judged = [right(*pair) for pair in pairs]
    confusion: Counter[tuple[str, str]] = Counter()
    counts: Counter[tuple[bool, bool]] = Counter()
    for label, found in pairs:
        if label["type"] is None:
            continue
        said = found[0] if found[0] in label["type"] else label["type"][0]
        confusion[said, found[0]] += 1
        if "infrastructure" not in label["type"] or len(label["type"]) == 1:
            counts["infrastructure" in label["type"], found[0] == "infrastructure"] += 1
    true, missed, false = counts[True, True], counts[True, False], counts[False, True]
    shares = {
        f"{key} right": f"{sum(one[key] for one in judged if key in one)}"
        f"/{sum(key in one for one in judged)}"
        for key in ("type", "name", "line", "component")
    }
    return {
        "n": len(pairs),
        **shares,
        "infrastructure": true + missed,
        "precision": f"{true / max(1, true + false):.3f}",
        "recall": f"{true / max(1, true + missed):.3f}",
        "F1": f"{2 * true / max(1, 2 * true + missed + false):.3f}",
        "confusion (label>found)": ", ".join(
            f"{a[:5]}>{b[:5]} {count}" for (a, b), count in sorted(confusion.items())
        ),
    }


def side(found: list[Any]) -> str:
    """The type that an answer commits to; simple methods commit always."""
    return str(found[6]["type"] if len(found) > 6 else found[0])


def sure(found: list[Any]) -> bool:
    """Whether an answer commits to a type and has no doubt of it."""
    if len(found) <= 6:
        return True
    ended = found[6]["finished"] or found[1] is not None
    return not found[6]["doubts"] and side(found) != "unknown" and (side(found) != "none" or ended)


def leans_to_hardware(found: list[Any]) -> bool:
    """Whether a plan confirms, isolates or leaves a node, or tells an operator."""
    plan = found[6]["plan"] if len(found) > 6 else None
    if not plan:
        return False
    acts = {step["action"] for step in plan["steps"]} & {"confirm", "isolate"}
    elsewhere = plan["restart"].startswith("elsewhere")
    return bool(acts) or elsewhere or plan["notify"] == "operator" or plan["isolation"] != "none"


def missed(label: dict[str, Any], found: list[Any]) -> list[str]:
    """What is wrong of an answer: `side`, `line`, `alarm`, `plan`; empty where nothing is."""
    wrong = []
    failed = label["outcome"] == "failed"
    if label["type"] is not None and side(found) not in label["type"]:
        wrong.append("side" if failed else "alarm")
    if failed and label["line"] is not None and found[2] not in label["line"]:
        wrong.append("line")
    program = label["type"] and set(label["type"]) <= {"script", "framework"}
    if (program or not failed) and leans_to_hardware(found):
        wrong.append("plan")
    return wrong


def whole_row(code: str, pairs: list[tuple[dict[str, Any], list[Any]]]) -> dict[str, Any]:
    """Counts over whole logs; `leaning` takes the likely type where the answer is unknown."""
    failed = [(a, b) for a, b in pairs if a["outcome"] == "failed" and a["type"]]
    lines = [(a, b) for a, b in failed if a["line"] is not None]
    healthy = [(a, b) for a, b in pairs if a["outcome"] in ("finished", "running")]
    stopped = [(a, b) for a, b in pairs if a["outcome"] == "stopped"]
    sure_ones = [(a, b) for a, b in pairs if a["type"] and sure(b)]

    def found_infrastructure(say: Callable[[list[Any]], str]) -> dict[str, str]:
        only = [(a, b) for a, b in pairs if a["type"] and "infrastructure" not in a["type"][1:]]
        true = sum(a["type"][0] == say(b) == "infrastructure" for a, b in only)
        false = sum(a["type"][0] != "infrastructure" == say(b) for a, b in only)
        lost = sum(a["type"][0] == "infrastructure" != say(b) for a, b in only)
        return {
            "precision": f"{true}/{true + false}",
            "recall": f"{true}/{true + lost}",
            "F1": f"{2 * true / max(1, 2 * true + false + lost):.3f}",
        }

    leaning = found_infrastructure(lambda found: str(found[0]))
    return {
        "method": code,
        "side right": f"{sum(side(b) == a['type'][0] for a, b in failed)}/{len(failed)}",
        "side accepted": f"{sum(side(b) in a['type'] for a, b in failed)}/{len(failed)}",
        "leaning accepted": f"{sum(b[0] in a['type'] for a, b in failed)}/{len(failed)}",
        "wrong and sure": f"{sum(side(b) not in a['type'] for a, b in sure_ones)}/{len(pairs)}",
        **found_infrastructure(side),
        "F1 leaning": leaning["F1"],
        "first line right": f"{sum(b[2] in a['line'] for a, b in lines)}/{len(lines)}",
        "false failures, healthy": f"{sum('alarm' in missed(*p) for p in healthy)}/{len(healthy)}",
        "false failures, stopped": f"{sum('alarm' in missed(*p) for p in stopped)}/{len(stopped)}",
        "failures missed": sum(side(b) == "none" for _, b in failed),
        "plans to hardware, wrongly": sum("plan" in missed(*pair) for pair in pairs),
    }


def matrix(pairs: list[tuple[dict[str, Any], list[Any]]]) -> dict[str, dict[str, int]]:
    """How often each type was said, by the type that the label puts first."""
    counts = Counter((a["type"][0], side(b)) for a, b in pairs if a["type"])
    return {
        said: {found: counts[said, found] for found in SIDES if counts[said, found]}
        for said in SIDES
    }


def progress(pairs: list[tuple[dict[str, Any], list[Any]]]) -> dict[str, str]:
    """What `track` said of whole logs: values beside labels, time left of runs that are over."""
    found: dict[str, Counter[str]] = {}
    keys = {"iteration": "iteration", "total": "total_iterations", "epoch": "epoch"}
    for label, (*_, more) in pairs:
        for name, wanted in (label["progress"] or {}).items():
            value = more["progress"][keys[name]]
            verdict = "silent" if value is None else "wrong"
            fits = value in (wanted or [None])
            found.setdefault(name, Counter())["right" if fits else verdict] += 1
    shown = {name: ", ".join(f"{n} {v}" for v, n in some.items()) for name, some in found.items()}
    for outcome in ("failed", "stopped", "finished"):
        over = [more["progress"] for label, (*_, more) in pairs if label["outcome"] == outcome]
        left = sum(bool(one["eta_s"]) for one in over)
        shown[f"time left though {outcome}"] = f"{left} of {len(over)}"
    running = [more["progress"] for label, (*_, more) in pairs if label["outcome"] == "running"]
    ended = sum(one["ended"] is not None for one in running)
    return shown | {"ended though running": f"{ended} of {len(running)}"}


def whole_case(label: dict[str, Any], found: list[Any]) -> dict[str, Any]:
    """A whole log of which something was wrong, and a word on why."""
    return {
        "log": label["id"],
        "outcome": label["outcome"],
        "wrong": ", ".join(missed(label, found)),
        "accepted": " / ".join(
            "any" if label[key] is None else "|".join(map(str, label[key]))
            for key in ("type", "line")
        ),
        "found": f"{side(found)} / {found[2]}",
        "likely": found[0],
        "name": found[1],
        "sure": sure(found),
        "rule": found[4],
        "why": label["missed"] or "",
    }


def case(label: dict[str, Any], found: list[Any]) -> dict[str, Any]:
    """A log with something wrong: what was accepted and what was found."""
    keys = ("type", "name", "line", "component")
    return {
        "batch": label["batch"],
        "half": label["half"],
        "log": label["id"],
        "accepted": " / ".join(
            "any" if label[key] is None else "|".join(map(str, label[key])) for key in keys
        ),
        "found": " / ".join(map(str, found[:4])),
        "rule": found[4],
        "by": found[5],
    }


if __name__ == "__main__":
    main()
